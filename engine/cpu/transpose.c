/* Transposed copies: the input's elements lie together along another axis than the output's.
 *
 * A block is as many rows as a cache line has elements, by as many elements: its lines are read whole, turned over in registers, and put
 * together in a buffer, from which the output's lines are written whole. So it does not matter that lines whose addresses are
 * 2^n bytes apart compete for few places in a cache, as those of most matrices do. Blocks go in tiles, so that a thread touches few pages
 * at a time. */
#include "engine/cpu/cpu.h"
#include "engine/cpu/interleave.h"
#include "engine/cpu/walk.h"

#include <string.h>

enum {
    LINE = 64,             /* bytes of a cache line */
    TILE_ROWS = 256,       /* extent of a tile along the output's rows, in elements, */
    TILE_COLUMNS = 256,    /* and along its columns */
    STREAM_MEGABYTES = 16, /* an output of so many is written past the caches */
};

/* out [rows, columns], in [columns, rows]: the strides are bytes from one line to the next, elements within a line lie together. */
struct block {
    char *out;
    const char *in;
    int64_t out_stride, in_stride;
};

struct job {
    struct cpu_job base;
    struct walk batches; /* over the other axes: the output, the input */
    char *origin[2];
    int64_t n_batches, rows, columns, size, tiles_down, tiles_across;
    int64_t out_stride, in_stride;
    void (*turn)(const char *in, int64_t in_stride, char *buffer);
    cpu_turn_function *turn_lines; /* NULL: there is only `turn` */
    bool streamed;
};

/* Turns a block over, where kernels->turn has nothing for it, into lines that follow one another. 16 bytes of each of N lines are N
 * vectors. */
#define TURN(bits, N, ...)                                                                                             \
    typedef uint##bits##_t vector##bits __attribute__((vector_size(16), aligned(1), may_alias));                       \
    static void turn_##bits(const char *in, int64_t in_stride, char *buffer) {                                         \
        enum { ELEMENTS = LINE * 8 / bits };                                                                           \
        for (int down = 0; down < ELEMENTS; down += N) {                                                               \
            for (int along = 0; along < ELEMENTS; along += N) {                                                        \
                vector##bits a[N], b[N];                                                                               \
                _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) {                                                 \
                    a[i] = *(const vector##bits *)(const void *)(in + (down + i) * in_stride + along * (bits / 8));    \
                }                                                                                                      \
                INTERLEAVED(N, a, b, INTERLEAVE_##bits)                                                                \
                _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) {                                                 \
                    *(vector##bits *)(void *)(buffer + (along + i) * LINE + down * (bits / 8)) = a[i];                 \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

#define INTERLEAVE_8(x, y, low, high)                                                                                  \
    low = __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);                       \
    high = __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define INTERLEAVE_16(x, y, low, high)                                                                                 \
    low = __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11);                                                     \
    high = __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15)
#define INTERLEAVE_32(x, y, low, high)                                                                                 \
    low = __builtin_shufflevector(x, y, 0, 4, 1, 5);                                                                   \
    high = __builtin_shufflevector(x, y, 2, 6, 3, 7)
#define INTERLEAVE_64(x, y, low, high)                                                                                 \
    low = __builtin_shufflevector(x, y, 0, 2);                                                                         \
    high = __builtin_shufflevector(x, y, 1, 3)

TURN(8, 16)
TURN(16, 8)
TURN(32, 4)
TURN(64, 2)

/* `rows` and `columns`: of the block, fewer than it could have at an edge. */
static void copy_block(const struct job *job, const struct block *at, int64_t rows, int64_t columns) {
    _Alignas(LINE) char buffer[LINE * LINE], lines[LINE * LINE];
    int64_t elements = LINE / job->size;
    struct block from = *at;
    if (rows == elements && columns == elements) {
        if (job->turn_lines && !job->streamed) {
            job->turn_lines(at->in, at->in_stride, at->out, at->out_stride);
            return;
        }
    } else {
        memset(lines, 0, sizeof lines);
        for (int64_t i = 0; i < columns; i++) {
            memcpy(lines + i * LINE, at->in + i * at->in_stride, (size_t)(rows * job->size));
        }
        from = (struct block){.in = lines, .in_stride = LINE};
    }
    if (job->turn_lines) {
        job->turn_lines(from.in, from.in_stride, buffer, LINE);
    } else {
        job->turn(from.in, from.in_stride, buffer);
    }
    for (int64_t i = 0; i < rows; i++) {
        if (job->streamed && columns == elements) {
            job->base.cpu->kernels->stream(at->out + i * at->out_stride, buffer + i * LINE, LINE);
        } else if (columns == elements) {
            memcpy(at->out + i * at->out_stride, buffer + i * LINE, LINE);
        } else {
            memcpy(at->out + i * at->out_stride, buffer + i * LINE, (size_t)(columns * job->size));
        }
    }
}

static void copy_tile(const struct job *job, const struct block *tile, int64_t rows, int64_t columns) {
    int64_t elements = LINE / job->size;
    for (int64_t column = 0; column < columns; column += elements) {
        int64_t across = columns - column < elements ? columns - column : elements;
        for (int64_t row = 0; row < rows; row += elements) {
            int64_t down = rows - row < elements ? rows - row : elements;
            struct block at = {tile->out + row * tile->out_stride + column * job->size,
                               tile->in + column * tile->in_stride + row * job->size, tile->out_stride,
                               tile->in_stride};
            copy_block(job, &at, down, across);
        }
    }
}

static bool transpose_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t tiles = job->tiles_down * job->tiles_across;
    int64_t at = cpu_part_begin(job->n_batches * tiles, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->n_batches * tiles, lane->part + 1, base->parts);
    for (; at < end; at++) {
        struct walk batch = job->batches;
        int64_t row = at % tiles / job->tiles_across * TILE_ROWS, column = at % job->tiles_across * TILE_COLUMNS;
        walk_seek(&batch, job->origin, at / tiles);
        struct block tile = {batch.at[0] + row * job->out_stride + column * job->size,
                             batch.at[1] + column * job->in_stride + row * job->size, job->out_stride, job->in_stride};
        copy_tile(job, &tile, job->rows - row < TILE_ROWS ? job->rows - row : TILE_ROWS,
                  job->columns - column < TILE_COLUMNS ? job->columns - column : TILE_COLUMNS);
    }
    if (job->streamed) {
        base->cpu->kernels->stream_end();
    }
    return true;
}

/* The axis along which the operand's elements lie together; -1: there is none, or not enough of them. */
static int together(const struct operand *operand, int64_t least) {
    for (int i = 0; i < operand->rank; i++) {
        if (operand->strides[i] == 1 && operand->shape[i] >= least) {
            return i;
        }
    }
    return -1;
}

static void (*turn_of(int64_t size))(const char *, int64_t, char *) {
    return size == 1 ? turn_8 : size == 2 ? turn_16 : size == 4 ? turn_32 : size == 8 ? turn_64 : NULL;
}

bool cpu_transpose(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun) {
    const struct operand *out = &launch->output, *in = &launch->inputs[0];
    int64_t size = (int64_t)dtype_size((enum dtype)out->dtype), elements = 1;
    int column = together(out, LINE / size), row = together(in, LINE / size);
    if (row < 0 || column < 0 || row == column || !turn_of(size) || out->dtype != in->dtype) {
        return false;
    }
    struct job job = {.base = {.cpu = cpu, .run = transpose_part},
                      .origin = {out->data, in->data},
                      .n_batches = 1,
                      .rows = out->shape[row],
                      .columns = out->shape[column],
                      .size = size,
                      .out_stride = out->strides[row] * size,
                      .in_stride = in->strides[column] * size,
                      .turn = turn_of(size),
                      .turn_lines = cpu->kernels->turn[__builtin_ctzll((unsigned long long)size)]};
    bool aligned = ((uintptr_t)out->data | (uintptr_t)job.out_stride) % LINE == 0;
    job.batches.arrays = 2;
    for (int i = 0; i < out->rank; i++) {
        elements *= out->shape[i];
        if (i != row && i != column) {
            int n = job.batches.rank++;
            job.batches.shape[n] = out->shape[i];
            job.batches.strides[0][n] = out->strides[i] * size;
            job.batches.strides[1][n] = in->strides[i] * size;
            job.n_batches *= out->shape[i];
            aligned &= job.batches.strides[0][n] % LINE == 0;
        }
    }
    job.tiles_down = (job.rows + TILE_ROWS - 1) / TILE_ROWS;
    job.tiles_across = (job.columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    job.streamed = aligned && elements * size >= (int64_t)STREAM_MEGABYTES << 20;
    int64_t tiles = job.n_batches * job.tiles_down * job.tiles_across;
    double work = (double)elements * (double)size * 2;
    job.base.parts = cpu_parts(cpu, work);
    job.base.parts = tiles < job.base.parts ? (unsigned)tiles : job.base.parts;
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return true;
}
