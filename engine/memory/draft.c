#include "engine/memory/draft.h"

#include <stdlib.h>
#include <string.h>

#include "proto/ops/status.h"

enum {
    DRAFT_ALIGNMENT = 256,
    DRAFT_FIRST = 64,
    DRAFT_MALLOC = 16, /* what the allocator adds to a piece */
    /* Among so many pieces each is compared with all others, which packs best. */
    DRAFT_COMPARED = 512,
};
/* No program has memory here, so an address that is used by mistake is noticed. */
static const uint64_t draft_begin = UINT64_C(1) << 56, draft_end = UINT64_C(1) << 62;

static uint64_t draft_rounded(uint64_t bytes) {
    return (bytes + DRAFT_ALIGNMENT - 1) & ~(uint64_t)(DRAFT_ALIGNMENT - 1);
}

static bool draft_reserve(struct draft *draft) {
    if (draft->count < draft->capacity)
        return true;
    size_t capacity = draft->capacity ? 2 * draft->capacity : DRAFT_FIRST;
    struct draft_piece **pieces = realloc(draft->pieces, capacity * sizeof(struct draft_piece *));
    if (!pieces)
        return false;
    draft->pieces = pieces;
    draft->capacity = capacity;
    return true;
}

int draft_storage(struct draft *draft, uint64_t bytes, struct storage **storage, struct fault *fault) {
    if (bytes > draft_end - draft_begin - draft->bytes - DRAFT_ALIGNMENT)
        return fault_set(fault, STATUS_OUT_OF_MEMORY, "%llu bytes are more than there are addresses",
                         (unsigned long long)bytes);
    struct draft_piece *piece = draft_reserve(draft) ? calloc(1, sizeof *piece) : NULL;
    if (!piece)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to plan a program");
    piece->draft = draft;
    piece->base = draft->base;
    piece->bytes = bytes;
    piece->from = *draft->clock;
    piece->to = UINT64_MAX;
    piece->storage.data = (uint8_t *)(uintptr_t)(draft_begin + draft->bytes);
    piece->storage.bytes = draft_rounded(bytes);
    piece->storage.references = 1;
    piece->storage.state = STORAGE_DRAFT;
    draft->bytes += piece->storage.bytes;
    draft->pieces[draft->count++] = piece;
    *storage = &piece->storage;
    return STATUS_OK;
}

void draft_free(struct storage *storage) {
    struct draft_piece *piece = (struct draft_piece *)storage;
    piece->to = *piece->draft->clock;
}

struct draft_piece *draft_find(const struct draft *draft, const void *address) {
    uint64_t at = (uint64_t)(uintptr_t)address;
    size_t low = 0, high = draft->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uint64_t)(uintptr_t)draft->pieces[middle]->storage.data <= at)
            low = middle + 1;
        else
            high = middle;
    }
    struct draft_piece *piece = low ? draft->pieces[low - 1] : NULL;
    return piece && at - (uint64_t)(uintptr_t)piece->storage.data < piece->storage.bytes ? piece : NULL;
}

bool draft_finish(struct draft *draft, struct budget *budget) {
    while (draft->count) {
        free(draft->pieces[--draft->count]);
        if (budget_spent(budget, 1))
            return false;
    }
    free(draft->pieces);
    *draft = (struct draft){.clock = draft->clock};
    return true;
}

uint64_t draft_host_bytes(const struct draft *draft) {
    return draft->count * (sizeof(struct draft_piece) + DRAFT_MALLOC) + draft->capacity * sizeof(struct draft_piece *);
}

/* ---- places ---- */

static int by_size(const void *a, const void *b) {
    const struct draft_piece *x = *(struct draft_piece *const *)a, *y = *(struct draft_piece *const *)b;
    if (x->storage.bytes != y->storage.bytes)
        return x->storage.bytes < y->storage.bytes ? 1 : -1;
    return x->from < y->from ? -1 : x->from > y->from;
}

static bool pieces_meet(const struct draft_piece *a, const struct draft_piece *b) {
    return a->from < b->to && b->from < a->to;
}

/* Puts the piece into the smallest gap between the pieces that are placed and in use at its time; those are in `placed`, by offset. Returns where
 * it ends. */
static uint64_t place(struct draft_piece *piece, struct draft_piece **placed, size_t count) {
    uint64_t end = 0, best = UINT64_MAX, at = 0;
    for (size_t i = 0; i < count; i++) {
        const struct draft_piece *other = placed[i];
        if (!pieces_meet(piece, other))
            continue;
        if (other->offset >= end + piece->storage.bytes && other->offset - end < best) {
            best = other->offset - end;
            at = end;
        }
        if (other->offset + other->storage.bytes > end)
            end = other->offset + other->storage.bytes;
    }
    piece->offset = best == UINT64_MAX ? end : at;
    return piece->offset + piece->storage.bytes;
}

static uint64_t place_largest_first(struct draft_piece **pieces, size_t count) {
    uint64_t bytes = 0;
    qsort(pieces, count, sizeof(struct draft_piece *), by_size);
    for (size_t i = 0; i < count; i++) {
        struct draft_piece *piece = pieces[i];
        uint64_t end = place(piece, pieces, i);
        bytes = end > bytes ? end : bytes;
        size_t k = i;
        for (; k && pieces[k - 1]->offset > piece->offset; k--)
            pieces[k] = pieces[k - 1];
        pieces[k] = piece;
    }
    return bytes;
}

/* ---- many pieces: as memory is given and taken back in the course of time ---- */

/* A part of the block that is laid out. */
struct part {
    struct part *before, *after;   /* by offset */
    struct part *next, **previous; /* of the free ones of about this size */
    uint64_t offset, bytes;
    bool is_free;
};

enum { PART_SIZES = 64, PART_TRIES = 16 };

struct parts {
    struct part *unused;           /* by `after` */
    size_t made;                   /* of `all` */
    struct part *last;             /* by offset */
    struct part *free[PART_SIZES]; /* [n]: of 2^n bytes or more, and less than twice as many */
    uint64_t bytes;
    struct part all[];
};

static unsigned part_size(uint64_t bytes) {
    return 63u - (unsigned)__builtin_clzll(bytes | 1);
}

static void part_list(struct parts *parts, struct part *part) {
    struct part **list = &parts->free[part_size(part->bytes)];
    part->is_free = true;
    part->next = *list;
    part->previous = list;
    if (part->next)
        part->next->previous = &part->next;
    *list = part;
}

static void part_unlist(struct part *part) {
    part->is_free = false;
    *part->previous = part->next;
    if (part->next)
        part->next->previous = part->previous;
}

/* A new part behind the given one; NULL: behind nothing. */
static struct part *part_add(struct parts *parts, struct part *before, uint64_t offset, uint64_t bytes) {
    struct part *part = parts->unused ? parts->unused : &parts->all[parts->made++];
    parts->unused = part == parts->unused ? part->after : parts->unused;
    *part = (struct part){.before = before, .after = before ? before->after : NULL, .offset = offset, .bytes = bytes};
    if (before)
        before->after = part;
    if (part->after)
        part->after->before = part;
    else
        parts->last = part;
    return part;
}

/* The part behind `part` becomes part of it. */
static void part_join(struct parts *parts, struct part *part) {
    struct part *gone = part->after;
    part->bytes += gone->bytes;
    part->after = gone->after;
    if (part->after)
        part->after->before = part;
    else
        parts->last = part;
    gone->after = parts->unused;
    parts->unused = gone;
}

static void part_give(struct parts *parts, struct part *part) {
    if (part->after && part->after->is_free) {
        part_unlist(part->after);
        part_join(parts, part);
    }
    if (part->before && part->before->is_free) {
        part = part->before;
        part_unlist(part);
        part_join(parts, part);
    }
    part_list(parts, part);
}

/* A free part of at least so many bytes: of those that are looked at, the smallest. NULL: none. */
static struct part *part_find(const struct parts *parts, uint64_t bytes) {
    for (unsigned size = part_size(bytes); size < PART_SIZES; size++) {
        struct part *best = NULL, *part = parts->free[size];
        for (int tries = 0; part && tries < PART_TRIES; part = part->next, tries++)
            if (part->bytes >= bytes && (!best || part->bytes < best->bytes))
                best = part;
        if (best)
            return best;
    }
    return NULL;
}

static struct part *part_take(struct parts *parts, uint64_t bytes) {
    struct part *part = part_find(parts, bytes);
    if (part) {
        part_unlist(part);
    } else if (parts->last && parts->last->is_free) { /* it grows */
        part = parts->last;
        part_unlist(part);
        parts->bytes += bytes - part->bytes;
        part->bytes = bytes;
    } else {
        part = part_add(parts, parts->last, parts->bytes, bytes);
        parts->bytes += bytes;
    }
    if (part->bytes > bytes) {
        part_list(parts, part_add(parts, part, part->offset + bytes, part->bytes - bytes));
        part->bytes = bytes;
    }
    return part;
}

struct moment {
    uint64_t at;
    bool begins;
    uint64_t bytes;
};

static int by_moment(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->begins - y->begins; /* what ends at a time has gone when something begins */
}

/* 0 out of memory: the figure is only told. */
static uint64_t place_least(struct draft_piece *const *pieces, size_t count) {
    struct moment *moments = malloc(2 * count * sizeof *moments + 1);
    uint64_t most = 0, now = 0;
    if (!moments)
        return 0;
    for (size_t i = 0; i < count; i++) {
        moments[2 * i] = (struct moment){pieces[i]->from, true, pieces[i]->storage.bytes};
        moments[2 * i + 1] = (struct moment){pieces[i]->to, false, pieces[i]->storage.bytes};
    }
    qsort(moments, 2 * count, sizeof *moments, by_moment);
    for (size_t i = 0; i < 2 * count; i++) {
        now = moments[i].begins ? now + moments[i].bytes : now - moments[i].bytes;
        most = now > most ? now : most;
    }
    free(moments);
    return most;
}

static int place_few(struct draft_placing *placing) {
    placing->least = place_least(placing->pieces, placing->count);
    placing->bytes = place_largest_first(placing->pieces, placing->count);
    return STATUS_OK;
}

/* ---- the stages. Times count launches, so there are not many more of them than pieces: they are sorted by counting ---- */

enum place_stage { PLACE_CHOOSE, PLACE_COUNT, PLACE_ADD_UP, PLACE_SORT, PLACE_ALL, PLACE_DONE };

static uint64_t ends_at(const struct draft_placing *placing, const struct draft_piece *piece) {
    return piece->to <= placing->latest ? piece->to : placing->latest + 1;
}

/* Of more parts than one for each piece there is need where a free one is cut. */
static size_t parts_bytes(size_t count) {
    return sizeof(struct parts) + (2 * count + 1) * sizeof(struct part);
}

static int place_memory(struct draft_placing *placing) {
    size_t times = (size_t)placing->latest + 2;
    placing->begins = calloc(times, sizeof *placing->begins);
    placing->ends = calloc(times, sizeof *placing->ends);
    placing->beginning = malloc(placing->count * sizeof(struct draft_piece *));
    placing->ending = malloc(placing->count * sizeof(struct draft_piece *));
    placing->parts = malloc(parts_bytes(placing->count));
    if (!placing->begins || !placing->ends || !placing->beginning || !placing->ending || !placing->parts)
        return STATUS_NO_HOST_MEMORY;
    *placing->parts = (struct parts){0};
    return STATUS_OK;
}

/* Pieces that somebody uses come first in the list. */
static void place_choose(struct draft_placing *placing) {
    struct draft_piece *piece = placing->pieces[placing->at];
    piece->offset = 0;
    if (piece->from >= piece->to)
        return;
    placing->pieces[placing->count++] = piece;
    placing->latest = piece->from > placing->latest ? piece->from : placing->latest;
    if (piece->to != UINT64_MAX && piece->to > placing->latest)
        placing->latest = piece->to;
}

static void place_count(struct draft_placing *placing) {
    const struct draft_piece *piece = placing->pieces[placing->at];
    placing->begins[piece->from]++;
    placing->ends[ends_at(placing, piece)]++;
}

/* How many have begun and ended before. */
static void place_add_up(struct draft_placing *placing) {
    uint32_t begin = placing->begins[placing->at], end = placing->ends[placing->at];
    placing->begins[placing->at] = (uint32_t)placing->now;
    placing->ends[placing->at] = (uint32_t)placing->ended;
    placing->now += begin;
    placing->ended += end;
}

static void place_sort(struct draft_placing *placing) {
    struct draft_piece *piece = placing->pieces[placing->at];
    placing->beginning[placing->begins[piece->from]++] = piece;
    placing->ending[placing->ends[ends_at(placing, piece)]++] = piece;
}

/* Memory of pieces that have ended is free for those that begin. Returns how many pieces were looked at. */
static int place_next(struct draft_placing *placing) {
    struct draft_piece *piece = placing->beginning[placing->at];
    int looks = 1;
    for (; placing->ending[placing->ended]->to <= piece->from; placing->ended++, looks++) {
        part_give(placing->parts, placing->ending[placing->ended]->part);
        placing->now -= placing->ending[placing->ended]->storage.bytes;
    }
    piece->part = part_take(placing->parts, piece->storage.bytes);
    piece->offset = piece->part->offset;
    placing->now += piece->storage.bytes;
    placing->least = placing->now > placing->least ? placing->now : placing->least;
    placing->bytes = placing->parts->bytes;
    return looks;
}

/* One step of the stage. Returns what it takes of the budget. */
static int place_step(struct draft_placing *placing) {
    switch ((enum place_stage)placing->stage) {
    case PLACE_CHOOSE:
        place_choose(placing);
        return 1;
    case PLACE_COUNT:
        place_count(placing);
        return 1;
    case PLACE_ADD_UP:
        place_add_up(placing);
        return 1;
    case PLACE_SORT:
        place_sort(placing);
        return 1;
    default:
        return place_next(placing);
    }
}

static size_t place_steps(const struct draft_placing *placing) {
    if (placing->stage == PLACE_CHOOSE)
        return placing->n;
    return placing->stage == PLACE_ADD_UP ? (size_t)placing->latest + 2 : placing->count;
}

int draft_place(struct draft_placing *placing, struct budget *budget) {
    while (placing->stage < PLACE_DONE) {
        for (size_t steps = place_steps(placing); placing->at < steps;) {
            int taken = place_step(placing);
            placing->at++;
            if (budget_spent(budget, taken))
                return STATUS_AGAIN;
        }
        placing->at = placing->ended = 0;
        placing->now = 0;
        if (placing->stage++ != PLACE_CHOOSE)
            continue;
        if (placing->count <= DRAFT_COMPARED) {
            placing->stage = PLACE_DONE;
            return place_few(placing);
        }
        if (place_memory(placing) != STATUS_OK)
            return STATUS_NO_HOST_MEMORY;
    }
    return STATUS_OK;
}

uint64_t draft_place_bytes(size_t n, uint64_t launches) {
    return n <= DRAFT_COMPARED
               ? 2 * n * sizeof(struct moment)
               : parts_bytes(n) + 2 * n * sizeof(struct draft_piece *) + 2 * (launches + 2) * sizeof(uint32_t);
}

void draft_place_end(struct draft_placing *placing) {
    free(placing->begins);
    free(placing->ends);
    free(placing->beginning);
    free(placing->ending);
    free(placing->parts);
    *placing = (struct draft_placing){0};
}
