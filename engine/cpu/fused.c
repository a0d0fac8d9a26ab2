/* Fused operations: the row functions of all of them run on one tile after another, so that what they pass on stays in the first-level
 * cache; if some of them reduce rows, on one row after another. The functions and their order are those of the operations by themselves, and so are the
 * bits. Neighbours of which the processor has chains (chain.h) take each tile together, as one step. What all elements are reduced to is taken piece by
 * piece, from memory or from slots that have room for a piece and stay in the second-level cache. */
#include "engine/cpu/fused.h"

enum {
    CHAINED_TILE = 2 * FUSED_TILE, /* if all operations are one chain, with so many slots at most */
    CHAINED_SLOTS = 3,
    FUSED_LOOK = 64 * FUSED_TILE, /* elements between two looks whether to stop, if no row is longer */
    FUSED_SOFTMAX = 24,           /* and what an element of a softmax costs */
    FUSED_SKEW = 192,
    FUSED_CALL = 16, /* what a call of a row function costs, as bytes of memory traffic */
    FUSED_SLOTS_ROOM = FUSED_SLOTS_BYTES + FUSED_SLOTS_MAX * FUSED_SKEW,
    OPERANDS = 4,         /* an output and three inputs */
    LINE = 64,            /* bytes of a line of the caches */
    AHEAD_FROM = 1 << 20, /* an input of so many bytes comes from memory */
    AHEAD_MOST = 4,       /* inputs that are fetched ahead */
};

struct job {
    struct cpu_job base;
    const struct fused_launch *launch;
    int64_t width, tiles; /* elements of a tile, tiles of a row */
    int64_t slot;         /* bytes from a slot to the next */
    uint64_t parameters[FUSED_OPERATIONS_MAX][2];
    /* Operations that reduce all elements, each with an accumulator for each segment: here or, NULL, in the job's room. */
    unsigned n_whole;
    uint32_t whole[FUSED_WHOLE_MAX];
    struct cpu_accumulators *accumulators;
};

/* Where an operand's elements are: that of a row and the column at which a tile begins is at + row · by_row + column · by_column, and the next one in the
 * tile is `bytes` behind it. A slot has one tile. */
struct place {
    char *at;
    int64_t by_row, by_column, bytes;
};

/* An operation as one thread runs it. The strides and the attributes in `run` are always the same; each tile has its addresses and its length. */
struct step {
    const struct fused_operation *operation;
    struct cpu_row run;
    struct place places[OPERANDS];
    bool converts;     /* some input is converted */
    bool streams;      /* the output is written past the caches */
    unsigned together; /* operations that begin with this one and are one chain; 0: it is in none */
};

/* A step of a chain of tiles, but for the tile's addresses. */
struct link {
    const struct place *with, *out;
    uint8_t what;
    bool streams;
};

/* An input whose next tile is fetched from memory while this tile is computed. By itself the processor fetches ahead within a page alone, and
 * a tile of f32 is a page. */
struct ahead {
    struct place place;
    int64_t share;        /* bytes that are fetched beside each operation */
    const char *at, *end; /* what is still to be fetched */
};

/* What one thread computes a tile in. */
struct room {
    _Alignas(64) char slots[FUSED_SLOTS_ROOM];
    /* A converted input has up to 16 bytes an element. */
    _Alignas(64) char casts[OPERANDS - 1][FUSED_TILE * sizeof(struct cpu_pair)];
    _Alignas(64) char streamed[FUSED_TILE * sizeof(struct cpu_pair)];
    struct cpu_accumulators accumulators;
    struct step steps[FUSED_OPERATIONS_MAX];
    struct link links[2 * FUSED_OPERATIONS_MAX]; /* of all chains, one after another */
    unsigned n_ahead;
    struct ahead ahead[AHEAD_MOST];
};

static inline char *place_at(const struct place *place, int64_t row, int64_t begin) {
    return place->at + row * place->by_row + begin * place->by_column;
}

static inline bool operand_in_piece(const struct fused_operand *operand) {
    return operand->in_slot && operand->slot >= FUSED_SLOTS_MAX;
}

/* ---- places ---- */

static struct place place_of(const struct job *job, const struct fused_operand *operand, struct room *room) {
    int64_t size = (int64_t)dtype_size((enum dtype)operand->dtype), bytes = operand->column * size;
    if (operand_in_piece(operand)) {
        return (struct place){NULL, 0, bytes, bytes}; /* each piece says where */
    }
    if (operand->in_slot) {
        return (struct place){room->slots + operand->slot * job->slot, 0, 0, bytes};
    }
    int64_t apart = operand->row == FUSED_FLAT ? job->launch->columns : operand->row;
    return (struct place){operand->data, apart * size, bytes, bytes};
}

static inline bool operand_converts(const struct fused_operation *operation, const struct fused_operand *input) {
    return input->as != input->dtype && operation->opcode != OP_CAST;
}

static inline bool operand_same(const struct fused_operand *a, const struct fused_operand *b) {
    return !a->in_slot && a->data == b->data;
}

/* Whether an operation's output is written past the caches: it is large, its rows begin with a line, and no other operand is in the same place. */
static bool operation_streams(const struct fused_launch *launch, const struct fused_operation *operation) {
    const struct fused_operand *output = &operation->output;
    int64_t row = launch->columns * (int64_t)dtype_size((enum dtype)output->dtype);
    if (output->in_slot || !output->column || launch->rows * row < CPU_STREAM_FROM || (uintptr_t)output->data % LINE ||
        (launch->rows > 1 && (row % LINE || output->row != FUSED_FLAT)) || operation->reduces || operation->softmax) {
        return false;
    }
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operation *other = &launch->operations[i];
        bool same = other != operation && operand_same(&other->output, output);
        for (unsigned k = 0; k < other->n_inputs; k++) {
            same |= operand_same(&other->inputs[k], output);
        }
        if (same) {
            return false;
        }
    }
    return true;
}

/* ---- chains of tiles ---- */

/* The links of an operation. Returns the place of the next ones. */
static struct link *operation_links(const struct step *step, struct link *link) {
    const struct fused_operation *operation = step->operation;
    uint8_t what;
    if (fused_note_loads(operation->note, &what)) {
        *link++ = (struct link){.with = &step->places[1], .what = fused_load(&operation->inputs[0])};
    }
    bool of = CPU_CHAIN_FORM(what) >= CPU_CHAIN_OF_ELEMENTS;
    *link = (struct link){.with = &step->places[of ? 1 : 2],
                          .out = fused_note_stays(operation->note) ? NULL : &step->places[0],
                          .what = what,
                          .streams = step->streams};
    return link + 1;
}

/* Neighbours with notes are chains. */
static void room_chains(struct room *room, const struct fused_launch *launch) {
    struct link *link = room->links;
    for (uint32_t i = 0, from = 0; i < launch->n; i++) {
        if (!launch->operations[i].note) {
            from = i + 1;
            continue;
        }
        room->steps[from].together++;
        link = operation_links(&room->steps[i], link);
    }
}

/* Inputs that come from memory, each once. */
static void room_ahead(struct room *room, const struct job *job) {
    const struct fused_launch *launch = job->launch;
    room->n_ahead = 0;
    for (uint32_t i = 0; i < launch->n && job->tiles * launch->rows > 1; i++) {
        for (unsigned j = 0; j < launch->operations[i].n_inputs; j++) {
            const struct place *place = &room->steps[i].places[j + 1];
            bool wanted = place->at && place->by_column && (launch->rows == 1 || place->by_row) &&
                          launch->rows * launch->columns * place->bytes >= AHEAD_FROM;
            for (unsigned k = 0; k < room->n_ahead; k++) {
                wanted &= room->ahead[k].place.at != place->at;
            }
            if (wanted && room->n_ahead < AHEAD_MOST) {
                int64_t lines = (job->width * place->bytes + LINE - 1) / LINE;
                room->ahead[room->n_ahead++] =
                    (struct ahead){.place = *place, .share = (lines + launch->n - 1) / launch->n * LINE};
            }
        }
    }
}

static void room_init(struct room *room, const struct job *job) {
    const struct fused_launch *launch = job->launch;
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operation *operation = &launch->operations[i];
        struct step *step = &room->steps[i];
        unsigned k = operation->n_inputs;
        step->operation = operation;
        step->places[0] = place_of(job, &operation->output, room);
        step->run.stride[0] = 1;
        step->converts = false;
        step->streams = operation_streams(launch, operation);
        step->together = 0;
        for (unsigned j = 0; j < operation->n_inputs; j++) {
            step->places[j + 1] = place_of(job, &operation->inputs[j], room);
            step->run.stride[j + 1] = operation->inputs[j].column;
            step->converts |= operand_converts(operation, &operation->inputs[j]);
        }
        for (unsigned p = 0; p < operation->n_floats && !operation->reduces; p++) {
            step->run.data[++k] = (char *)(uintptr_t)&job->parameters[i][p];
            step->run.stride[k] = 0;
        }
    }
    room_chains(room, launch);
    room_ahead(room, job);
}

/* Where a tile is. */
struct tile {
    int64_t row, begin, n; /* columns begin … begin + n - 1 */
};

static inline struct tile tile_number(const struct job *job, int64_t number) {
    int64_t row = job->tiles == 1 ? number : number / job->tiles, begin = (number - row * job->tiles) * job->width;
    int64_t left = job->launch->columns - begin;
    return (struct tile){row, begin, left < job->width ? left : job->width};
}

static inline void ahead_begin(struct room *room, const struct tile *next) {
    for (unsigned k = 0; k < room->n_ahead; k++) {
        struct ahead *ahead = &room->ahead[k];
        ahead->at = place_at(&ahead->place, next->row, next->begin);
        ahead->end = ahead->at + next->n * ahead->place.bytes;
    }
}

static inline void ahead_fetch(struct room *room) {
    for (unsigned k = 0; k < room->n_ahead; k++) {
        struct ahead *ahead = &room->ahead[k];
        const char *stop = ahead->end - ahead->at < ahead->share ? ahead->end : ahead->at + ahead->share;
        for (; ahead->at < stop; ahead->at += LINE) {
            __builtin_prefetch(ahead->at, 0, 3);
        }
    }
}

static void step_reduce(const struct job *job, const struct step *step, struct room *room, int64_t row) {
    const struct fused_operation *operation = step->operation;
    const struct fused_operand *input = &operation->inputs[0];
    cpu_row_function *cast = input->as != input->dtype ? job->base.cpu->kernels->cast[input->dtype][input->as] : NULL;
    cpu_reduce_run(operation->kernel, cast, job->launch->columns, place_at(&step->places[1], row, 0),
                   (int64_t)dtype_size((enum dtype)input->dtype), operation->floats[0], &room->accumulators,
                   place_at(&step->places[0], row, 0));
}

/* Converts inputs of the n elements, FUSED_TILE at most, that the step's run has the addresses of. */
static void step_convert(const struct job *job, struct step *step, struct room *room, int64_t n) {
    for (unsigned k = 0; k < step->operation->n_inputs; k++) {
        const struct fused_operand *input = &step->operation->inputs[k];
        if (operand_converts(step->operation, input)) {
            job->base.cpu->kernels->cast[input->dtype][input->as](
                &(struct cpu_row){input->column ? n : 1, {room->casts[k], step->run.data[k + 1]}, {1, input->column}});
            step->run.data[k + 1] = room->casts[k];
        }
    }
}

/* n elements of an operation whose inputs are converted before, or whose output is written past the caches behind, piece by piece. */
static void step_pieces(const struct job *job, struct step *step, struct room *room, int64_t row, int64_t begin,
                        int64_t n) {
    for (int64_t at = 0; at < n; at += FUSED_TILE) {
        int64_t piece = n - at < FUSED_TILE ? n - at : FUSED_TILE, bytes = piece * step->places[0].bytes;
        for (unsigned k = 0; k <= step->operation->n_inputs; k++) {
            step->run.data[k] = place_at(&step->places[k], row, begin) + at * step->places[k].bytes;
        }
        char *output = step->run.data[0];
        bool streams = step->streams && bytes % LINE == 0;
        step->run.data[0] = streams ? room->streamed : output;
        step->run.n = piece;
        step_convert(job, step, room, piece);
        ((cpu_row_function *)step->operation->kernel)(&step->run);
        if (streams) {
            job->base.cpu->kernels->stream(output, room->streamed, (size_t)bytes);
        }
    }
}

/* Steps by which a chain of so many operations fetches their share of the next tile between its blocks. */
static unsigned chain_fetches(struct room *room, unsigned together, int64_t n, struct cpu_chain_step *steps) {
    const int64_t blocks = (n + CPU_CHAIN_BLOCK - 1) / CPU_CHAIN_BLOCK;
    unsigned found = 0;
    for (unsigned k = 0; k < room->n_ahead; k++) {
        struct ahead *ahead = &room->ahead[k];
        int64_t left = ahead->end - ahead->at, share = ahead->share * together;
        share = share < left ? share : left;
        if (share > 0) {
            unsigned lines = 0; /* their logarithm */
            while (lines < CPU_CHAIN_FETCH_MOST && (blocks * LINE << lines) < share) {
                lines++;
            }
            steps[found++] =
                (struct cpu_chain_step){.with = ahead->at, .what = (uint8_t)CPU_CHAIN_WHAT(CPU_CHAIN_FETCH, lines)};
            ahead->at += blocks * LINE << lines;
        }
    }
    return found;
}

/* One tile of the chain that begins with a step. Returns the next chain's links. */
static const struct link *step_chain(const struct job *job, struct room *room, const struct step *step,
                                     const struct link *link, const struct tile *tile) {
    struct cpu_chain_step steps[2 * FUSED_OPERATIONS_MAX + AHEAD_MOST];
    struct cpu_chain_divisor divisors[2 * FUSED_OPERATIONS_MAX + AHEAD_MOST];
    unsigned n = chain_fetches(room, step->together, tile->n, steps);
    for (unsigned left = step->together; left; link++, n++) {
        struct cpu_chain_step *to = &steps[n];
        to->what = link->what;
        to->with = CPU_CHAIN_FORM(link->what) == CPU_CHAIN_SELF ? NULL : place_at(link->with, tile->row, tile->begin);
        to->out = link->out ? place_at(link->out, tile->row, tile->begin) : NULL;
        to->streams = link->streams;
        if (to->what == CPU_CHAIN_WHAT(CPU_CHAIN_DIVIDE, CPU_CHAIN_ONE) &&
            cpu_chain_divisor_init(&divisors[n], *(const float *)to->with)) {
            to->what = CPU_CHAIN_WHAT(CPU_CHAIN_QUOTIENT, CPU_CHAIN_ONE);
            to->with = &divisors[n];
        }
        left -= link->what / CPU_CHAIN_WHAT(1, 0) != CPU_CHAIN_LOAD;
    }
    (*job->base.cpu->kernels->chain_tile)(tile->n, steps, n);
    return link;
}

/* The operations on one tile. The one behind it is fetched meanwhile. */
static void fused_tile(const struct job *job, struct room *room, const struct tile *tile, const struct tile *next) {
    const int64_t row = tile->row, begin = tile->begin, n = tile->n;
    const struct link *link = room->links;
    ahead_begin(room, next);
    for (uint32_t i = 0; i < job->launch->n; i++) {
        struct step *step = &room->steps[i];
        if (step->together) {
            link = step_chain(job, room, step, link, tile);
            i += step->together - 1;
            continue;
        }
        const struct fused_operation *operation = step->operation;
        int64_t elements = operation->output.column ? n : 1;
        ahead_fetch(room);
        if (__builtin_expect(operation->reduces, 0)) {
            if (!operation->whole) {
                step_reduce(job, step, room, row);
            }
        } else if (__builtin_expect(operation->softmax, 0)) {
            const struct cpu_softmax *softmax = operation->kernel;
            softmax->row(n, place_at(&step->places[1], row, 0), 1, place_at(&step->places[0], row, 0), 1);
        } else if (__builtin_expect(step->converts || step->streams, 0)) {
            step_pieces(job, step, room, row, begin, elements);
        } else {
            for (unsigned k = 0; k <= operation->n_inputs; k++) {
                step->run.data[k] = place_at(&step->places[k], row, begin);
            }
            step->run.n = elements;
            ((cpu_row_function *)operation->kernel)(&step->run);
        }
    }
}

static bool fused_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    const struct fused_launch *launch = job->launch;
    int64_t tiles = job->tiles * launch->rows, look = 1 + FUSED_LOOK / job->width;
    int64_t end = cpu_part_begin(tiles, lane->part + 1, base->parts);
    int64_t at = lane->position ? lane->position : cpu_part_begin(tiles, lane->part, base->parts);
    struct room room;
    room_init(&room, job);
    struct tile tile = tile_number(job, at);
    for (int64_t since = 0; at < end; at++, since++) {
        if (since == look) {
            since = 0;
            if (cpu_job_stops(base)) {
                lane->position = at;
                job->base.cpu->kernels->stream_end();
                return false;
            }
        }
        struct tile next = tile_number(job, at + 1 < end ? at + 1 : at);
        fused_tile(job, &room, &tile, &next);
        tile = next;
    }
    job->base.cpu->kernels->stream_end();
    return true;
}

/* ---- reductions of all elements ---- */

/* What one thread computes a segment in. */
struct segment_room {
    struct room room;
    _Alignas(64) char pieces[FUSED_WHOLE_SLOTS][CPU_REDUCE_PIECE * FUSED_SLOT_ELEMENT];
};

static struct cpu_accumulators *whole_accumulators(const struct job *job, unsigned w) {
    return (job->accumulators ? job->accumulators : (struct cpu_accumulators *)job->base.room) +
           w * job->launch->segments;
}

/* The piece that begins with element number `begin` is in the slots that have room for one. */
static void segment_slots(const struct job *job, struct segment_room *room, int64_t begin) {
    for (uint32_t i = 0; i < job->launch->n; i++) {
        const struct fused_operation *operation = &job->launch->operations[i];
        for (unsigned k = 0; k <= operation->n_inputs; k++) {
            const struct fused_operand *operand = k == 0 ? &operation->output : &operation->inputs[k - 1];
            struct place *place = &room->room.steps[i].places[k];
            if (operand_in_piece(operand)) {
                place->at = room->pieces[operand->slot - FUSED_SLOTS_MAX] - begin * place->bytes;
            }
        }
    }
}

static void segment_take(const struct job *job, struct segment_room *room, int64_t segment, int64_t from, int64_t begin,
                         int64_t end) {
    for (unsigned w = 0; w < job->n_whole; w++) {
        const struct step *step = &room->room.steps[job->whole[w]];
        const struct fused_operand *input = &step->operation->inputs[0];
        struct cpu_accumulators *accumulators = &whole_accumulators(job, w)[segment];
        if (begin == from) {
            accumulators->parameter = step->operation->floats[0];
            ((const struct cpu_reduction *)step->operation->kernel)->start(1, accumulators);
        }
        cpu_reduce_take(step->operation->kernel,
                        input->as != input->dtype ? job->base.cpu->kernels->cast[input->dtype][input->as] : NULL,
                        end - begin, place_at(&step->places[1], 0, begin),
                        (int64_t)dtype_size((enum dtype)input->dtype), begin, accumulators);
    }
}

static bool fused_segment(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t from = cpu_part_begin(job->launch->columns, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->launch->columns, lane->part + 1, base->parts), at = from + lane->position;
    struct segment_room room;
    room_init(&room.room, job);
    while (at < end) {
        int64_t stop = end - at < CPU_REDUCE_PIECE ? end : at + CPU_REDUCE_PIECE;
        segment_slots(job, &room, at);
        for (int64_t begin = at; begin < stop; begin += job->width) {
            int64_t left = stop - begin, behind = end - begin - job->width;
            struct tile tile = {0, begin, left < job->width ? left : job->width};
            struct tile next = {0, begin + job->width, behind < 0 ? 0 : behind < job->width ? behind : job->width};
            fused_tile(job, &room.room, &tile, &next);
        }
        segment_take(job, &room, lane->part, from, at, stop);
        at = stop;
        lane->position = at - from;
        if (at < end && cpu_job_stops(base)) {
            base->cpu->kernels->stream_end();
            return false;
        }
    }
    base->cpu->kernels->stream_end();
    return true;
}

/* Merges the segments in order, as reduce.c does. */
static void fused_merge(struct cpu_job *base) {
    const struct job *job = (const struct job *)base;
    for (unsigned w = 0; w < job->n_whole; w++) {
        const struct fused_operation *operation = &job->launch->operations[job->whole[w]];
        const struct cpu_reduction *reduction = operation->kernel;
        struct cpu_accumulators *all = whole_accumulators(job, w);
        for (unsigned i = 1; i < job->launch->segments; i++) {
            reduction->merge(1, &all[0], &all[i]);
        }
        reduction->finish(1, &all[0], job->launch->columns, operation->output.data);
    }
}

static __attribute__((noinline)) void fused_run_segments(struct job *job, double work, struct cpu_job **begun) {
    job->n_whole = 0;
    job->accumulators = NULL;
    for (uint32_t i = 0; i < job->launch->n; i++) {
        if (job->launch->operations[i].whole) {
            job->whole[job->n_whole++] = i;
        }
    }
    job->base.run = fused_segment;
    job->base.end = fused_merge;
    job->base.parts = job->launch->segments;
    job->base.room_bytes = job->n_whole * job->launch->segments * sizeof(struct cpu_accumulators);
    if (cpu_job_keep(&job->base, sizeof *job, work, begun)) {
        return;
    }
    struct cpu_accumulators here[FUSED_WHOLE_MAX * CPU_REDUCE_SEGMENTS_MAX];
    job->accumulators = here;
    cpu_job_run(&job->base);
}

/* ---- the launch ---- */

/* The work of an element: its bytes in memory, and what the operations cost. */
static double element_work(const struct fused_launch *launch) {
    double work = 0;
    for (uint32_t i = 0; i < launch->n; i++) {
        const struct fused_operation *operation = &launch->operations[i];
        if (!operation->output.column && !operation->reduces) {
            continue;
        }
        work += operation->reduces ? 1
                : operation->softmax
                    ? FUSED_SOFTMAX
                    : 1 + (double)cpu_elementwise_weight(operation->opcode, (enum dtype)operation->output.dtype);
        if (!operation->output.in_slot && operation->output.column) {
            work += (double)dtype_size((enum dtype)operation->output.dtype);
        }
        for (unsigned k = 0; k < operation->n_inputs; k++) {
            const struct fused_operand *input = &operation->inputs[k];
            work += input->in_slot || !input->column ? 0 : (double)dtype_size((enum dtype)input->dtype);
        }
    }
    return work;
}

static void fused_parameters(struct job *job) {
    for (uint32_t i = 0; i < job->launch->n; i++) {
        const struct fused_operation *operation = &job->launch->operations[i];
        for (unsigned p = 0; p < operation->n_floats && !operation->reduces; p++) {
            job->parameters[i][p] = cpu_parameter(operation->floats[p], operation->inputs[0].as);
        }
    }
}

/* Whether all operations are one chain, of which a longer tile has no more in the caches than a block's slots. */
static bool launch_chained(const struct fused_launch *launch) {
    bool chained = launch->n_slots <= CHAINED_SLOTS;
    for (uint32_t i = 0; i < launch->n && chained; i++) {
        chained = launch->operations[i].note != 0;
    }
    return chained;
}

void cpu_fused_run(struct cpu *cpu, const struct fused_launch *launch, struct cpu_job **begun) {
    struct job job;
    if (launch->plain && launch->columns <= FUSED_TILE) {
        fused_few(cpu->kernels, launch);
        return;
    }
    job.base = (struct cpu_job){.cpu = cpu, .run = fused_part};
    job.launch = launch;
    const int64_t tile = launch_chained(launch) ? CHAINED_TILE : FUSED_TILE;
    job.width = launch->whole_rows || launch->columns < tile ? launch->columns : tile;
    job.tiles = (launch->columns + job.width - 1) / job.width;
    /* Slots do not begin at the same place of a page: that would cost cache lines, and stores that seem to be followed by loads. */
    job.slot = ((job.width * FUSED_SLOT_ELEMENT + 63) & ~(int64_t)63) + FUSED_SKEW;
    fused_parameters(&job);
    if (launch->columns <= FUSED_TILE && launch->rows == 1) {
        struct room room;
        room_init(&room, &job);
        struct tile all = {.n = launch->columns};
        fused_tile(&job, &room, &all, &all);
        return;
    }
    double work = (double)launch->rows *
                  ((double)launch->columns * element_work(launch) + (double)job.tiles * launch->n * FUSED_CALL);
    if (launch->segments) {
        fused_run_segments(&job, work, begun);
        return;
    }
    unsigned parts = cpu_parts(cpu, work);
    int64_t tiles = job.tiles * launch->rows;
    job.base.parts = tiles < parts ? (unsigned)tiles : parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
}

const void *cpu_fused_kernel(const struct device *device, const struct launch *launch) {
    const struct cpu_kernels *kernels = ((const struct cpu *)device)->kernels;
    const struct operand *last = &launch->inputs[launch->n_inputs - 1];
    for (unsigned i = 0; i < launch->n_inputs; i++) {
        const struct operand *input = &launch->inputs[i];
        if (launch->opcode != OP_CAST && input->as != input->dtype && !kernels->cast[input->dtype][input->as]) {
            return NULL;
        }
    }
    enum op_family family = op_info(launch->opcode)->family;
    if (launch->opcode == OP_CAST) {
        return (const void *)(uintptr_t)kernels->cast[last->dtype][launch->output.dtype];
    }
    if (family == OP_FAMILY_SOFTMAX) {
        return cpu_softmax_find(kernels, launch->opcode, last->dtype, last->shape[last->rank - 1]);
    }
    return family == OP_FAMILY_REDUCE
               ? (const void *)cpu_reduction_find(kernels, launch->opcode, &launch->attributes, last->as)
               : (const void *)(uintptr_t)cpu_row_find(kernels, launch->opcode, last->as);
}

unsigned cpu_fused_segments(const struct device *device, const struct launch *launch) {
    const struct operand *x = &launch->inputs[0];
    (void)device;
    return cpu_reduce_segments(x->rank == 2 ? x->shape[0] : 1, x->shape[x->rank - 1],
                               (int64_t)dtype_size((enum dtype)x->dtype));
}
