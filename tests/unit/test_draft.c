/* Where drafted pieces are placed: no two that are in use at the same time share a byte, and what is not in use is used again. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "engine/memory/draft.h"
#include "proto/ops/status.h"

static uint64_t state = 88172645463325252u;

static uint64_t below(uint64_t n) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % n;
}

struct layout {
    struct draft_piece *pieces;
    struct draft_piece **list;
    size_t count;
    uint64_t bytes, least;
};

enum { TURN_NS = 10000 };
static uint64_t now_ns;

/* Each look at the clock costs a microsecond, so that a turn is a number of looks. */
static uint64_t ticking(void) {
    return now_ns += 1000;
}

static void layout_make(struct layout *layout, size_t count) {
    layout->count = count;
    layout->pieces = calloc(count, sizeof *layout->pieces);
    layout->list = calloc(count, sizeof(struct draft_piece *));
    for (size_t i = 0; i < count; i++)
        layout->list[i] = &layout->pieces[i];
}

static void layout_place(struct layout *layout) {
    struct budget budget = {.clock = ticking};
    struct draft_placing placing = {.pieces = layout->list, .n = layout->count};
    int code = STATUS_AGAIN;
    while (code == STATUS_AGAIN) {
        budget_begin(&budget, TURN_NS);
        code = draft_place(&placing, &budget);
    }
    cr_assert_eq(code, STATUS_OK);
    layout->bytes = placing.bytes;
    layout->least = placing.least;
    draft_place_end(&placing);
    cr_assert_leq(layout->least, layout->bytes);
    for (size_t i = 0; i < layout->count; i++) {
        const struct draft_piece *a = &layout->pieces[i];
        cr_assert_leq(a->offset + a->storage.bytes, layout->bytes);
        for (size_t k = 0; k < i; k++) {
            const struct draft_piece *b = &layout->pieces[k];
            if (a->from < a->to && b->from < b->to && a->from < b->to && b->from < a->to)
                cr_assert(a->offset + a->storage.bytes <= b->offset || b->offset + b->storage.bytes <= a->offset,
                          "pieces %zu and %zu overlap", i, k);
        }
    }
}

static void layout_free(struct layout *layout) {
    free(layout->pieces);
    free(layout->list);
}

static void piece_set(struct draft_piece *piece, uint64_t from, uint64_t to, uint64_t bytes) {
    piece->from = from;
    piece->to = to;
    piece->storage.bytes = bytes;
}

Test(draft, pieces_in_use_at_the_same_time_do_not_overlap) {
    static const size_t counts[] = {1, 7, 200, 600, 2500};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (int kind = 0; kind < 3; kind++) {
            struct layout layout;
            layout_make(&layout, counts[c]);
            for (size_t i = 0; i < counts[c]; i++) {
                uint64_t from = below(counts[c]), length = kind == 0 ? below(4) : kind == 1 ? 1 + below(counts[c]) : 3;
                bool always = below(20) == 0;
                piece_set(&layout.pieces[i], always ? 0 : from, always ? UINT64_MAX : from + length,
                          256 * (1 + below(kind == 2 ? 1 : 64)));
            }
            layout_place(&layout);
            layout_free(&layout);
        }
    }
}

/* Pieces of one size, a few at a time: they fit into the least memory. */
Test(draft, memory_is_used_again) {
    static const size_t counts[] = {100, 5000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct layout layout;
        layout_make(&layout, counts[c]);
        for (size_t i = 0; i < counts[c]; i++)
            piece_set(&layout.pieces[i], i, i + 3, 1024);
        layout_place(&layout);
        cr_assert_eq(layout.bytes, 3 * 1024);
        cr_assert_eq(layout.least, 3 * 1024);
        layout_free(&layout);
    }
}

/* What is put on a stack, as the values of a network are from its first layer to the last and back. */
Test(draft, neighbours_that_have_ended_become_one_piece_of_memory) {
    enum { LAYERS = 1000 };
    struct layout layout;
    layout_make(&layout, LAYERS + 1);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < LAYERS; i++) {
        uint64_t bytes = 256 * (1 + below(16));
        piece_set(&layout.pieces[i], i, 2 * LAYERS - i, bytes);
        sum += bytes;
    }
    piece_set(&layout.pieces[LAYERS], 2 * LAYERS, 2 * LAYERS + 1, sum);
    layout_place(&layout);
    cr_assert_eq(layout.bytes, sum);
    layout_free(&layout);
}

/* Choosing, counting, sorting and placing: each of them looks at every piece. */
Test(draft, many_pieces_are_placed_in_turns) {
    enum { MANY = 100000, LOOKS = TURN_NS / 1000 };
    struct layout layout;
    layout_make(&layout, MANY);
    for (uint64_t i = 0; i < MANY; i++)
        piece_set(&layout.pieces[i], i, i + 1, 256);
    struct budget budget = {.clock = ticking};
    struct draft_placing placing = {.pieces = layout.list, .n = MANY};
    unsigned turns[8] = {0};
    int code = STATUS_AGAIN;
    while (code == STATUS_AGAIN) {
        uint64_t looks = budget.looks;
        budget_begin(&budget, TURN_NS);
        turns[placing.stage]++;
        code = draft_place(&placing, &budget);
        cr_assert_leq(budget.looks - looks, LOOKS + 2);
    }
    cr_assert_eq(code, STATUS_OK);
    cr_assert_eq(placing.bytes, 256);
    for (unsigned stage = 0; stage < placing.stage; stage++)
        cr_expect_geq(turns[stage], MANY / BUDGET_STEPS / (LOOKS + 2) / 2, "stage %u: %u turns", stage, turns[stage]);
    draft_place_end(&placing);
    layout_free(&layout);
}
