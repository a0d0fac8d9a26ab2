/* scatter and scatter_add: values that go to positions of an axis.
 *
 * Each part has elements of the output for itself: some columns (places off the axis), or, where there are few columns or short rows, a range of
 * the axis.
 * It takes the values of its elements in ascending order of their places on the axis, so that the result depends neither on threads nor on
 * chance. Sums of integers are the same in any order: where there are many more values than elements, each part has some of the values and
 * sums of its own, which are added at the end. Halves are summed in f32, in the workspace. Indices and values of other dtypes are converted
 * block by block, as they are read. */
#include "engine/cpu/indices.h"

#include <string.h>

typedef struct cpu_pair pair;
typedef struct {
    float re, im;
} complex64;
typedef struct {
    double re, im;
} complex128;

enum {
    BLOCK = CPU_INDICES_BLOCK, /* values that are converted at a time */
    PIECE = 1 << 14,           /* values between two looks whether to stop */
    COLUMNS_LEAST = 16,        /* of a part: fewer would share cache lines */
    ROW_LEAST = 64,            /* neighbours that are worth a call */
    LINE_MOST = 2048,          /* bytes of a row that is short: the parts have rows of the output then, if there are */
    ROWS_LEAST = 16,           /* of them for each; columns would share what a processor fetches ahead */
    LINE_STEP = 16,            /* neighbours between two looks whether there are more */
    /* Bytes of an axis that is cut where there are no columns. Each part reads all indices, which takes longer than to write what is in the
     * cache. */
    CUT_LEAST = 1 << 20,
    APART_LEAST = 4, /* values for each sum that a part has for itself */
};

/* For n values: out[index · step + i · along] += or = values[i], where the index of value i is in begin … end - 1. The function returns
 * whether an index is outside of the axis. */
struct points {
    const int64_t *index;
    int64_t index_stride, extent, begin, end, step, along, n;
    void *out;
    const void *values;
    int64_t stride; /* of the values */
};
typedef bool points_function(const struct points *points);

/* The same of values that are rows: value i is `width` neighbours, values[i · stride] …, which go to out[index · step] …. */
struct lines {
    const int64_t *index;
    int64_t extent, begin, end, step, n, width;
    void *out;
    const void *values;
    int64_t stride;
};
typedef bool lines_function(const struct lines *lines);

/* Where the indices of such values are. */
struct places {
    int64_t offset, stride;
    int64_t position; /* of the first one in the index tensor; the others follow it */
};

struct job {
    struct cpu_job base;
    const struct launch *launch;
    const char *x, *values;
    struct cpu_indices indices;
    char *out;
    char *sums;  /* where values are added: `out`, or f32 in the workspace */
    char *apart; /* the sums of all parts but the first, where parts have sums of their own */
    points_function *points;
    lines_function
        *lines; /* of short rows, each of which has one index; NULL: they are long, or have gaps, or are converted */
    cpu_row_function *row; /* adds values to neighbours, with the level's vectors; NULL: they are few, or have gaps */
    cpu_row_function *widen, *narrow; /* of halves, to f32 and back; else NULL */
    cpu_row_function *convert;        /* of values to the output's dtype; NULL: they have it */
    int64_t outer, n, inner, k;       /* x [outer, n, inner], places [outer, k, inner] */
    int64_t size, sum_size, value_size;
    int64_t value_strides[3], index_strides[3];
    bool same;        /* the indices are [k]; else [outer, k, inner] */
    bool cuts_axis;   /* parts are ranges of the axis; else ranges of columns */
    int64_t segments; /* of columns, in each of the outer places */
};

/* `operation` makes of the elements *to and *from what *to becomes. Values that have one index are a row, mostly one of neighbours. `all`: the
 * part has the whole axis. `own`: it has a range; its values are first listed without a branch, which no processor could predict. */
#define POINTS(name, T, operation)                                                                                     \
    static void name##_row_##T(int64_t n, T *to, int64_t along, const T *from, int64_t stride) {                       \
        if (along == 1 && stride == 1) {                                                                               \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++, to++, from++) {                                       \
                *to = operation;                                                                                       \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t i = 0; i < n; i++, to += along, from += stride) {                                                 \
            *to = operation;                                                                                           \
        }                                                                                                              \
    }                                                                                                                  \
    static inline __attribute__((always_inline)) bool name##_all_##T(const struct points *p, int64_t index_stride,     \
                                                                     int64_t step, int64_t along, int64_t stride) {    \
        T *out = p->out;                                                                                               \
        const T *from = p->values;                                                                                     \
        const int64_t *index = p->index, n = p->n;                                                                     \
        const uint64_t extent = (uint64_t)p->extent;                                                                   \
        bool wrong = false;                                                                                            \
        for (int64_t i = 0; i < n; i++, from += stride) {                                                              \
            int64_t at = index[i * index_stride];                                                                      \
            if (__builtin_expect((uint64_t)at >= extent, 0)) {                                                         \
                wrong = true;                                                                                          \
                continue;                                                                                              \
            }                                                                                                          \
            T *to = &out[at * step + i * along];                                                                       \
            *to = operation;                                                                                           \
        }                                                                                                              \
        return wrong;                                                                                                  \
    }                                                                                                                  \
    static bool name##_own_##T(const struct points *p) {                                                               \
        T *out = p->out;                                                                                               \
        uint16_t chosen[BLOCK];                                                                                        \
        bool wrong = false;                                                                                            \
        for (int64_t first = 0; first < p->n; first += BLOCK) {                                                        \
            const int64_t *index = p->index + first * p->index_stride;                                                 \
            int64_t n = p->n - first < BLOCK ? p->n - first : BLOCK, count = 0;                                        \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                int64_t at = index[i * p->index_stride];                                                               \
                wrong |= (uint64_t)at >= (uint64_t)p->extent;                                                          \
                chosen[count] = (uint16_t)i;                                                                           \
                count += (at >= p->begin) & (at < p->end);                                                             \
            }                                                                                                          \
            for (int64_t j = 0; j < count; j++) {                                                                      \
                int64_t i = first + chosen[j];                                                                         \
                const T *from = (const T *)p->values + i * p->stride;                                                  \
                T *to = &out[p->index[i * p->index_stride] * p->step + i * p->along];                                  \
                *to = operation;                                                                                       \
            }                                                                                                          \
        }                                                                                                              \
        return wrong;                                                                                                  \
    }                                                                                                                  \
    static bool name##_##T(const struct points *p) {                                                                   \
        T *out = p->out;                                                                                               \
        const T *from = p->values;                                                                                     \
        if (p->index_stride == 0) {                                                                                    \
            int64_t at = *p->index;                                                                                    \
            if (at >= p->begin && at < p->end) {                                                                       \
                name##_row_##T(p->n, &out[at * p->step], p->along, from, p->stride);                                   \
            }                                                                                                          \
            return (uint64_t)at >= (uint64_t)p->extent;                                                                \
        }                                                                                                              \
        if (p->begin > 0 || p->end < p->extent) {                                                                      \
            return name##_own_##T(p);                                                                                  \
        }                                                                                                              \
        if (p->index_stride == 1 && p->along == 0 && p->step == 1 && p->stride == 1) {                                 \
            return name##_all_##T(p, 1, 1, 0, 1);                                                                      \
        }                                                                                                              \
        if (p->index_stride == 1 && p->along == 0 && p->step == 1 && p->stride == 0) {                                 \
            return name##_all_##T(p, 1, 1, 0, 0);                                                                      \
        }                                                                                                              \
        if (p->index_stride == 1 && p->along == 1 && p->stride == 1) {                                                 \
            return name##_all_##T(p, 1, p->step, 1, 1);                                                                \
        }                                                                                                              \
        return name##_all_##T(p, p->index_stride, p->step, p->along, p->stride);                                       \
    }                                                                                                                  \
    static bool name##_lines_##T(const struct lines *l) {                                                              \
        const struct lines lines = *l;                                                                                 \
        uint16_t chosen[BLOCK];                                                                                        \
        bool wrong = false;                                                                                            \
        int64_t count = 0;                                                                                             \
        for (int64_t i = 0; i < lines.n; i++) {                                                                        \
            const int64_t at = lines.index[i];                                                                         \
            wrong |= (uint64_t)at >= (uint64_t)lines.extent;                                                           \
            chosen[count] = (uint16_t)i;                                                                               \
            count += (at >= lines.begin) & (at < lines.end);                                                           \
        }                                                                                                              \
        for (int64_t c = 0; c < count; c++) {                                                                          \
            const int64_t i = chosen[c];                                                                               \
            T *to = (T *)lines.out + lines.index[i] * lines.step;                                                      \
            const T *from = (const T *)lines.values + i * lines.stride;                                                \
            int64_t j = 0;                                                                                             \
            for (; j + LINE_STEP <= lines.width; j += LINE_STEP) {                                                     \
                _Pragma("GCC ivdep") for (int k = 0; k < LINE_STEP; k++, to++, from++) {                               \
                    *to = operation;                                                                                   \
                }                                                                                                      \
            }                                                                                                          \
            for (; j < lines.width; j++, to++, from++) {                                                               \
                *to = operation;                                                                                       \
            }                                                                                                          \
        }                                                                                                              \
        return wrong;                                                                                                  \
    }
#define ADD(T) POINTS(add, T, (T)(*to + *from))
#define SET(T) POINTS(set, T, *from)
ADD(uint8_t)
ADD(uint16_t)
ADD(uint32_t)
ADD(uint64_t)
ADD(float)
ADD(double)
POINTS(add, complex64, ((complex64){to->re + from->re, to->im + from->im}))
POINTS(add, complex128, ((complex128){to->re + from->re, to->im + from->im}))
SET(uint8_t)
SET(uint16_t)
SET(uint32_t)
SET(uint64_t)
SET(pair)

struct functions {
    points_function *points;
    lines_function *lines;
};

static struct functions functions_find(unsigned opcode, enum dtype dtype) {
#define FUNCTIONS(name, T)                                                                                             \
    { name##_##T, name##_lines_##T }
    static const struct functions set[] = {FUNCTIONS(set, uint8_t), FUNCTIONS(set, uint16_t), FUNCTIONS(set, uint32_t),
                                           FUNCTIONS(set, uint64_t), FUNCTIONS(set, pair)};
    static const struct functions add[] = {FUNCTIONS(add, uint8_t), FUNCTIONS(add, uint16_t), FUNCTIONS(add, uint32_t),
                                           FUNCTIONS(add, uint64_t)};
    static const struct functions parts[] = {FUNCTIONS(add, complex64), FUNCTIONS(add, complex128)};
    static const struct functions real[] = {FUNCTIONS(add, float), FUNCTIONS(add, double)};
#undef FUNCTIONS
    size_t size = dtype_size(dtype);
    int place = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : 4;
    if (opcode == OP_SCATTER) {
        return set[place];
    }
    if (dtype_is_complex(dtype)) {
        return parts[dtype == DTYPE_C128];
    }
    return dtype_kind(dtype) != DTYPE_KIND_FLOAT ? add[place] : real[dtype == DTYPE_F64];
}

/* The elements that a part writes, of one of the outer places, and where they are summed. */
struct region {
    int64_t outer, row, row_end, column, column_end;
    char *sums;
};

/* Calls `copy` for elements that follow one another: those of a row of the region, or of all its rows. */
static void region_each(const struct job *job, const struct region *at,
                        void (*copy)(const struct job *job, int64_t first, int64_t count)) {
    int64_t columns = at->column_end - at->column, rows = at->row_end - at->row;
    int64_t first = (at->outer * job->n + at->row) * job->inner + at->column;
    if (columns == job->inner) {
        columns *= rows;
        rows = 1;
    }
    for (int64_t row = 0; row < rows; row++) {
        copy(job, first + row * job->inner, columns);
    }
}

/* From x to the sums, */
static void copy_in(const struct job *job, int64_t first, int64_t count) {
    const char *x = job->x + first * job->size;
    if (job->widen) {
        job->widen(&(struct cpu_row){count, {job->sums + first * job->sum_size, (char *)(uintptr_t)x}, {1, 1}});
    } else if (job->x != job->out) {
        job->base.cpu->kernels->move(job->out + first * job->size, x, (size_t)(count * job->size));
    }
}

/* and from f32 back to the output. */
static void copy_out(const struct job *job, int64_t first, int64_t count) {
    job->narrow(&(struct cpu_row){count, {job->out + first * job->size, job->sums + first * job->sum_size}, {1, 1}});
}

static void region_begin(const struct job *job, const struct region *at) {
    region_each(job, at, copy_in);
}

static void region_end(const struct job *job, const struct region *at) {
    if (job->narrow) {
        region_each(job, at, copy_out);
    }
}

/* Reports the first wrong index of a run, which begins at `position`. The first thread claims the report by setting its code. */
static __attribute__((noinline)) void points_report(const struct job *job, const struct points *points,
                                                    int64_t position) {
    struct report *report = job->launch->report;
    uint32_t none = STATUS_OK;
    int64_t i = 0;
    while ((uint64_t)points->index[i * points->index_stride] < (uint64_t)job->n) {
        i++;
    }
    if (atomic_compare_exchange_strong(&report->code, &none, STATUS_OUT_OF_RANGE)) {
        report->value = points->index[i * points->index_stride];
        report->position = position + i;
        report->limit = job->n;
    }
}

static inline void points_take(const struct job *job, const struct points *points, int64_t position) {
    if (__builtin_expect(job->points(points), 0)) {
        points_report(job, points, position);
    }
}

/* A run of values block by block, which are converted; so are indices, if they are `narrow`. Not for runs that are not: it takes much of the
 * stack. */
static __attribute__((noinline)) void points_convert(const struct job *job, const struct points *points,
                                                     const struct places *places, bool narrow) {
    int64_t block[BLOCK];
    _Alignas(16) char converted[BLOCK * sizeof(pair)];
    float widened[BLOCK];
    struct points part = *points;
    for (int64_t i = 0; i < points->n; i += BLOCK) {
        struct cpu_row row = {.stride = {1, points->stride}};
        char *from = (char *)(uintptr_t)points->values + i * points->stride * job->value_size;
        part.n = row.n = points->n - i < BLOCK ? points->n - i : BLOCK;
        if (job->convert) {
            row.data[0] = converted;
            row.data[1] = from;
            job->convert(&row);
            row.stride[1] = 1;
            from = converted;
        }
        if (job->widen) {
            row.data[0] = (char *)widened;
            row.data[1] = from;
            job->widen(&row);
            from = (char *)widened;
        }
        if (narrow) {
            part.index =
                cpu_indices_read(&job->indices, places->offset + i * places->stride, places->stride, part.n, block);
            part.index_stride = 1;
        } else {
            part.index = points->index + i * points->index_stride;
        }
        part.out = (char *)points->out + i * points->along * job->sum_size;
        part.values = from;
        part.stride = job->convert || job->widen ? 1 : points->stride;
        points_take(job, &part, places->position + i);
    }
}

/* A run of neighbours that have one index. */
static inline void points_row(const struct job *job, const struct points *points, const struct places *places) {
    int64_t at = *points->index;
    if (at >= points->begin && at < points->end) {
        char *to = (char *)points->out + at * points->step * job->sum_size;
        job->row(&(struct cpu_row){points->n, {to, to, (char *)(uintptr_t)points->values}, {1, 1, 1}});
    } else if ((uint64_t)at >= (uint64_t)points->extent) {
        points_report(job, points, places->position);
    }
}

/* A run of values, with indices and values as they are in memory. */
static inline void points_run(const struct job *job, struct points *points, const struct places *places) {
    const struct cpu_indices *indices = &job->indices;
    bool narrow = false;
    int64_t one;
    if (places->stride == 0) {
        one = cpu_index(indices, places->offset);
        points->index = &one;
    } else if (indices->size == 8) {
        points->index = cpu_indices_at(indices, places->offset);
        points->index_stride = places->stride;
    } else {
        narrow = true;
    }
    if (narrow || job->convert || job->widen) {
        points_convert(job, points, places, narrow);
    } else if (job->row && places->stride == 0) {
        points_row(job, points, places);
    } else {
        points_take(job, points, places->position);
    }
}

/* Places k, of one outer place, of a region's columns: by one run along the columns, */
static void region_across(const struct job *job, const struct region *at, int64_t k) {
    const int64_t *strides = job->value_strides, *index = job->index_strides;
    const struct places places =
        job->same ? (struct places){.offset = k * index[1], .position = k}
                  : (struct places){.offset = at->outer * index[0] + k * index[1] + at->column * index[2],
                                    .stride = index[2],
                                    .position = (at->outer * job->k + k) * job->inner + at->column};
    struct points points = {
        .extent = job->n,
        .begin = at->row,
        .end = at->row_end,
        .step = job->inner,
        .along = 1,
        .n = at->column_end - at->column,
        .out = at->sums + (at->outer * job->n * job->inner + at->column) * job->sum_size,
        .values = job->values + (at->outer * strides[0] + k * strides[1] + at->column * strides[2]) * job->value_size,
        .stride = strides[2]};
    points_run(job, &points, &places);
}

/* or of places k to k + n - 1, n BLOCK at most, by one run of short rows; */
static void region_lines(const struct job *job, const struct region *at, int64_t k, int64_t n) {
    const int64_t *strides = job->value_strides, index_stride = job->index_strides[1];
    int64_t block[BLOCK];
    const struct lines lines = {.index = cpu_indices_read(&job->indices, k * index_stride, index_stride, n, block),
                                .extent = job->n,
                                .begin = at->row,
                                .end = at->row_end,
                                .step = job->inner,
                                .n = n,
                                .width = at->column_end - at->column,
                                .out = at->sums + (at->outer * job->n * job->inner + at->column) * job->sum_size,
                                .values = job->values +
                                          (at->outer * strides[0] + k * strides[1] + at->column) * job->value_size,
                                .stride = strides[1]};
    if (__builtin_expect(job->lines(&lines), 0)) {
        points_report(job, &(struct points){.index = lines.index, .index_stride = 1}, k);
    }
}

/* and places k to k + n - 1 of the only column there is: by one run along the axis. */
static void region_along(const struct job *job, const struct region *at, int64_t k, int64_t n) {
    const int64_t *strides = job->value_strides, *index = job->index_strides, outer = job->same ? 0 : at->outer;
    const struct places places = {
        .offset = outer * index[0] + k * index[1], .stride = index[1], .position = outer * job->k + k};
    struct points points = {.extent = job->n,
                            .begin = at->row,
                            .end = at->row_end,
                            .step = 1,
                            .n = n,
                            .out = at->sums + at->outer * job->n * job->sum_size,
                            .values = job->values + (at->outer * strides[0] + k * strides[1]) * job->value_size,
                            .stride = strides[1]};
    points_run(job, &points, &places);
}

/* Number `number` of the regions that all parts together have. */
static struct region region_of(const struct job *job, int64_t number, unsigned parts, int64_t part) {
    if (job->cuts_axis) {
        return (struct region){
            number,   cpu_part_begin(job->n, part, parts), cpu_part_begin(job->n, part + 1, parts), 0, job->inner,
            job->sums};
    }
    int64_t segment = number % job->segments;
    return (struct region){number / job->segments,
                           0,
                           job->n,
                           cpu_part_begin(job->inner, segment, (unsigned)job->segments),
                           cpu_part_begin(job->inner, segment + 1, (unsigned)job->segments),
                           job->sums};
}

/* lane->position counts places on the axis, of all regions of the part. */
static bool scatter_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct job *job = (struct job *)base;
    int64_t regions = job->cuts_axis ? job->outer : job->outer * job->segments;
    int64_t begin = job->cuts_axis ? 0 : cpu_part_begin(regions, lane->part, base->parts);
    int64_t end = job->cuts_axis ? regions : cpu_part_begin(regions, lane->part + 1, base->parts), since = 0;
    for (int64_t number = begin + lane->position / job->k; number < end; number++) {
        struct region at = region_of(job, number, base->parts, lane->part);
        int64_t k = lane->position % job->k, columns = at.column_end - at.column, step;
        if (k == 0) {
            if (since >= PIECE && cpu_job_stops(base)) {
                return false;
            }
            since = since >= PIECE ? 0 : since + (at.row_end - at.row) * columns;
            region_begin(job, &at);
        }
        for (; k < job->k; k += step, since += step * columns) {
            if (k > 0 && since >= PIECE) {
                since = 0;
                lane->position = (number - begin) * job->k + k;
                if (cpu_job_stops(base)) {
                    return false;
                }
            }
            step = 1;
            if (job->inner == 1) {
                step = job->k - k < PIECE ? job->k - k : PIECE;
                region_along(job, &at, k, step);
            } else if (job->lines) {
                step = job->k - k < BLOCK ? job->k - k : BLOCK;
                region_lines(job, &at, k, step);
            } else {
                region_across(job, &at, k);
            }
        }
        region_end(job, &at);
        lane->position = (number + 1 - begin) * job->k;
    }
    return true;
}

/* A part with sums of its own: a range of the values, of the only axis there is. Those of the first part are the output. */
static bool apart_part(struct cpu_job *base, struct cpu_lane *lane) {
    const struct job *job = (const struct job *)base;
    int64_t k = cpu_part_begin(job->k, lane->part, base->parts) + lane->position;
    int64_t end = cpu_part_begin(job->k, lane->part + 1, base->parts), bytes = job->n * job->size, step;
    struct region at = {.row_end = job->n, .column_end = 1, .sums = job->sums};
    if (lane->part > 0) {
        at.sums = job->apart + (lane->part - 1) * bytes;
    }
    if (lane->position == 0 && lane->part > 0) {
        memset(at.sums, 0, (size_t)bytes);
    } else if (lane->position == 0) {
        region_begin(job, &at);
    }
    for (; k < end; k += step) {
        step = end - k < PIECE ? end - k : PIECE;
        region_along(job, &at, k, step);
        lane->position += step;
        if (k + step < end && cpu_job_stops(base)) {
            return false;
        }
    }
    return true;
}

static void apart_end(struct cpu_job *base) {
    const struct job *job = (const struct job *)base;
    for (unsigned part = 1; part < base->parts; part++) {
        char *sums = job->apart + (part - 1) * job->n * job->size;
        job->row(&(struct cpu_row){job->n, {job->out, job->out, sums}, {1, 1, 1}});
    }
}

/* How many parts with sums of their own there are; 0: there are none. */
static unsigned apart_parts(const struct cpu *cpu, const struct launch *launch) {
    const int64_t *shape = launch->output.shape, k = launch->inputs[2].shape[1];
    bool integers = dtype_kind((enum dtype)launch->output.dtype) == DTYPE_KIND_INT;
    if (launch->opcode != OP_SCATTER_ADD || !integers || shape[0] != 1 || shape[1] < 1 || shape[2] != 1) {
        return 0;
    }
    unsigned parts = cpu_parts(cpu, (double)k * 16), threads = cpu->team.threads;
    int64_t most = k / APART_LEAST / shape[1];
    parts = parts < threads ? parts : threads;
    parts = most < (int64_t)parts ? (unsigned)most : parts;
    return parts < 2 ? 0 : parts;
}

static bool is_widened(const struct launch *launch) {
    return launch->opcode == OP_SCATTER_ADD && dtype_kind((enum dtype)launch->output.dtype) == DTYPE_KIND_FLOAT &&
           dtype_size((enum dtype)launch->output.dtype) == 2;
}

static uint64_t scatter_workspace(struct device *device, const struct launch *launch) {
    const int64_t *shape = launch->output.shape;
    unsigned parts = apart_parts((const struct cpu *)device, launch);
    return parts ? (uint64_t)(parts - 1) * (uint64_t)shape[1] * dtype_size((enum dtype)launch->output.dtype)
           : is_widened(launch) ? (uint64_t)(shape[0] * shape[1] * shape[2]) * sizeof(float)
                                : 0;
}

static int scatter_run(struct cpu *cpu, const struct launch *launch, struct cpu_job **begun, struct fault *fault) {
    const struct operand *x = &launch->inputs[0], *indices = &launch->inputs[1], *values = &launch->inputs[2];
    enum dtype dtype = (enum dtype)launch->output.dtype;
    const struct functions functions = functions_find(launch->opcode, dtype);
    (void)fault;
    struct job job = {.base = {.cpu = cpu, .run = scatter_part},
                      .launch = launch,
                      .x = x->data,
                      .values = values->data,
                      .indices = cpu_indices_of(cpu, indices),
                      .out = launch->output.data,
                      .sums = launch->output.data,
                      .points = functions.points,
                      .outer = x->shape[0],
                      .n = x->shape[1],
                      .inner = x->shape[2],
                      .k = values->shape[1],
                      .size = (int64_t)dtype_size(dtype),
                      .value_size = (int64_t)dtype_size((enum dtype)values->dtype),
                      .same = indices->shape[0] == 1 && indices->shape[2] == 1,
                      .segments = 1};
    job.sum_size = job.size;
    if (is_widened(launch)) {
        job.sums = launch->workspace;
        job.sum_size = sizeof(float);
        job.widen = cpu->kernels->cast[dtype][DTYPE_F32];
        job.narrow = cpu->kernels->cast[DTYPE_F32][dtype];
    }
    if (values->dtype != dtype) {
        job.convert = cpu->kernels->cast[values->dtype][dtype];
    }
    memcpy(job.value_strides, values->strides, sizeof job.value_strides);
    memcpy(job.index_strides, indices->strides, sizeof job.index_strides);
    double columns = (double)job.outer * (double)job.inner;
    double work = columns * (double)(2 * job.n * job.size + job.k * (2 * job.size + 8));
    unsigned parts = cpu_parts(cpu, work), threads = cpu->team.threads;
    job.segments = (job.inner + COLUMNS_LEAST - 1) / COLUMNS_LEAST;
    job.segments = job.segments < threads ? job.segments : threads;
    if (job.same && job.inner > 1 && values->strides[2] == 1 && !job.convert && !job.widen &&
        job.inner * job.size <= LINE_MOST) {
        job.lines = functions.lines;
        job.segments = job.n >= ROWS_LEAST * threads ? 1 : job.segments;
    }
    if (launch->opcode == OP_SCATTER_ADD && values->strides[2] == 1 && job.inner / job.segments >= ROW_LEAST) {
        job.row = cpu_row_find(cpu->kernels, OP_ADD, (unsigned)dtype);
    }
    int64_t regions = job.outer * job.segments;
    job.cuts_axis = regions < threads && job.n > job.outer && (job.inner > 1 || job.n * job.sum_size >= CUT_LEAST);
    int64_t most = job.cuts_axis ? (job.n < threads ? job.n : threads) : regions;
    job.base.parts = most < parts ? (unsigned)most : parts;
    unsigned apart = apart_parts(cpu, launch);
    if (apart) {
        job.base.run = apart_part;
        job.base.end = apart_end;
        job.base.parts = apart;
        job.apart = launch->workspace;
        job.row = cpu_row_find(cpu->kernels, OP_ADD, (unsigned)dtype);
    }
    cpu_job_begin(&job.base, sizeof job, work, begun);
    return STATUS_OK;
}

#define SCATTER                                                                                                        \
    { {.converts = cpu_converts_tiles, .index_dtypes = CPU_INDEX_DTYPES, .workspace = scatter_workspace}, scatter_run }
const struct cpu_kernel cpu_kernel_scatter = SCATTER;
const struct cpu_kernel cpu_kernel_scatter_add = SCATTER;
