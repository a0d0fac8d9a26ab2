/* Views by strides, against views by lists of positions: each operation is done twice, once by engine/layout and once by
 * picking positions one by one, and every element must be the same. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/layout.h"

enum { ELEMENTS_MAX = 4096 };

static uint32_t seed = 1;

static int pick(int limit) {
    seed = seed * 1664525 + 1013904223;
    return (int)((uint64_t)seed * (unsigned)limit >> 32);
}

/* A view and, row-major, the position of each of its elements in the storage. */
struct sample {
    struct tensor_type type;
    int64_t strides[SHAPE_RANK_MAX], offset;
    int64_t positions[ELEMENTS_MAX];
};

static void index_of(const struct tensor_type *type, int64_t flat, int64_t *index) {
    for (int i = type->rank - 1; i >= 0; i--) {
        index[i] = flat % type->shape[i];
        flat /= type->shape[i];
    }
}

static int64_t flat_of(const struct tensor_type *type, const int64_t *index) {
    int64_t flat = 0;
    for (int i = 0; i < type->rank; i++)
        flat = flat * type->shape[i] + index[i];
    return flat;
}

static void check(const struct sample *sample, const char *what) {
    int64_t elements = type_elements(&sample->type), index[SHAPE_RANK_MAX];
    bool row_major = true;
    for (int64_t k = 0; k < elements; k++) {
        index_of(&sample->type, k, index);
        int64_t position = sample->offset;
        for (int i = 0; i < sample->type.rank; i++)
            position += index[i] * sample->strides[i];
        cr_assert_eq(position, sample->positions[k], "%s: element %d lies at %d, not %d", what, (int)k, (int)position,
                     (int)sample->positions[k]);
        row_major &= position == sample->positions[0] + k;
    }
    cr_assert_eq(layout_is_contiguous(sample->type.rank, sample->type.shape, sample->strides), row_major, "%s", what);
}

static void start(struct sample *sample, bool empty) {
    sample->type = (struct tensor_type){.dtype = DTYPE_F32, .rank = pick(5)};
    for (int i = 0; i < sample->type.rank; i++)
        sample->type.shape[i] = pick(3) ? 1 + pick(5) : 1;
    if (empty && sample->type.rank)
        sample->type.shape[pick(sample->type.rank)] = 0;
    layout_contiguous(sample->type.rank, sample->type.shape, sample->strides);
    sample->offset = 0;
    for (int64_t k = 0; k < type_elements(&sample->type); k++)
        sample->positions[k] = k;
}

/* Applies the rule and the layout; false where the rule refuses, or a copy is needed. */
static bool view(const struct sample *in, unsigned opcode, unsigned n_ints, const int64_t *ints, struct sample *out) {
    const struct tensor_type *types[1] = {&in->type};
    struct op_attributes attributes = {.ints = ints, .n_ints = n_ints};
    if (op_infer(opcode, types, 1, &attributes, &out->type, NULL) != STATUS_OK)
        return false;
    if (type_elements(&out->type) > ELEMENTS_MAX)
        return false;
    return layout_view(opcode, &attributes, &in->type, in->strides, in->offset, &out->type, out->strides, &out->offset);
}

static bool permute(const struct sample *in, struct sample *out) {
    int64_t axes[SHAPE_RANK_MAX], index[SHAPE_RANK_MAX], from[SHAPE_RANK_MAX];
    int rank = in->type.rank;
    for (int i = 0; i < rank; i++)
        axes[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        int k = pick(i + 1);
        int64_t swap = axes[i];
        axes[i] = axes[k];
        axes[k] = swap;
    }
    if (!view(in, OP_PERMUTE_DIMS, (unsigned)rank, axes, out))
        return false;
    for (int64_t k = 0; k < type_elements(&out->type); k++) {
        index_of(&out->type, k, index);
        for (int i = 0; i < rank; i++)
            from[axes[i]] = index[i];
        out->positions[k] = in->positions[flat_of(&in->type, from)];
    }
    return true;
}

static bool slice(const struct sample *in, struct sample *out) {
    int64_t ints[3 * SHAPE_RANK_MAX], starts[SHAPE_RANK_MAX], steps[SHAPE_RANK_MAX], index[SHAPE_RANK_MAX];
    for (int i = 0; i < in->type.rank; i++) {
        int64_t extent = in->type.shape[i];
        int64_t step = pick(2) ? 1 + pick(3) : -1 - pick(3);
        int64_t first = extent ? pick((int)extent) : 0;
        bool whole = pick(2);
        ints[3 * i] = whole ? OP_SLICE_NONE : first;
        ints[3 * i + 1] = OP_SLICE_NONE;
        ints[3 * i + 2] = pick(9) ? step : step > 0 ? INT64_MAX : -INT64_MAX;
        starts[i] = !whole ? first : step > 0 ? 0 : extent - 1;
        steps[i] = ints[3 * i + 2];
    }
    if (!view(in, OP_SLICE, 3 * (unsigned)in->type.rank, ints, out))
        return false;
    for (int64_t k = 0; k < type_elements(&out->type); k++) {
        index_of(&out->type, k, index);
        for (int i = 0; i < in->type.rank; i++)
            index[i] = starts[i] + (index[i] ? index[i] * steps[i] : 0);
        out->positions[k] = in->positions[flat_of(&in->type, index)];
    }
    return true;
}

static bool broadcast(const struct sample *in, struct sample *out) {
    int64_t shape[SHAPE_RANK_MAX], index[SHAPE_RANK_MAX];
    int more = pick(3), rank = in->type.rank + more;
    if (rank > SHAPE_RANK_MAX)
        return false;
    for (int i = 0; i < rank; i++) {
        int64_t own = i < more ? 1 : in->type.shape[i - more];
        shape[i] = own == 1 && pick(2) ? pick(4) : own;
    }
    if (!view(in, OP_BROADCAST_TO, (unsigned)rank, shape, out))
        return false;
    for (int64_t k = 0; k < type_elements(&out->type); k++) {
        index_of(&out->type, k, index);
        for (int i = 0; i < in->type.rank; i++)
            index[i] = in->type.shape[i] == 1 ? 0 : index[i + more];
        out->positions[k] = in->positions[flat_of(&in->type, index)];
    }
    return true;
}

/* Factors the number of elements at random. */
static bool reshape(const struct sample *in, struct sample *out) {
    int64_t shape[SHAPE_RANK_MAX], left = type_elements(&in->type);
    unsigned rank = 0;
    bool empty = left == 0;
    if (empty)
        shape[rank++] = 0;
    while (rank < 6 && (left > 1 || pick(2))) {
        int64_t extent = 1 + pick(6);
        if (!empty && left % extent)
            continue;
        shape[rank++] = extent;
        left = empty ? 0 : left / extent;
    }
    if (left > 1 && rank < SHAPE_RANK_MAX)
        shape[rank++] = left;
    if (!view(in, OP_RESHAPE, rank, shape, out))
        return false;
    memcpy(out->positions, in->positions, sizeof out->positions);
    return true;
}

static bool squeeze_or_expand(const struct sample *in, struct sample *out) {
    int64_t axes[SHAPE_RANK_MAX];
    unsigned n = 0;
    bool squeeze = pick(2);
    for (int i = 0; squeeze && i < in->type.rank; i++)
        if (in->type.shape[i] == 1 && pick(2))
            axes[n++] = pick(2) ? i : i - in->type.rank;
    if (!squeeze)
        axes[n++] = pick(2 * in->type.rank + 2) - in->type.rank - 1;
    if (!view(in, squeeze ? OP_SQUEEZE : OP_EXPAND_DIMS, n, axes, out))
        return false;
    memcpy(out->positions, in->positions, sizeof out->positions);
    return true;
}

Test(layout, chains_of_views_pick_the_right_elements) {
    static bool (*const steps[])(const struct sample *, struct sample *) = {permute, slice, broadcast, reshape,
                                                                          squeeze_or_expand};
    static struct sample samples[2];
    unsigned done[5] = {0};
    for (int round = 0; round < 20000; round++) {
        int now = 0;
        start(&samples[0], round % 20 == 0);
        check(&samples[0], "start");
        for (int step = 0; step < 6; step++) {
            int which = pick(5);
            if (!steps[which](&samples[now], &samples[!now]))
                continue;
            done[which]++;
            now = !now;
            static const char *const names[] = {"permute", "slice", "broadcast", "reshape", "squeeze or expand"};
            check(&samples[now], names[which]);
        }
    }
    for (int i = 0; i < 5; i++)
        cr_assert_gt(done[i], 1000);
}

/* Where strides can express a reshape, no copy is made: all of these are NumPy's answers (a.reshape shares memory). */
Test(layout, reshapes_copy_only_where_numpy_does) {
    static const struct {
        int rank, out_rank;
        int64_t shape[4], strides[4], out[4];
        bool shares;
    } rows[] = {
        {2, 1, {2, 3}, {3, 1}, {6}, true},
        {2, 1, {3, 2}, {1, 3}, {6}, false}, /* transposed */
        {2, 3, {3, 2}, {1, 3}, {3, 1, 2}, true},
        {3, 2, {2, 3, 4}, {12, 4, 1}, {6, 4}, true},
        {3, 2, {2, 3, 4}, {24, 4, 1}, {2, 12}, true}, /* every second block */
        {3, 2, {2, 3, 4}, {24, 4, 1}, {6, 4}, false},
        {1, 2, {4}, {2}, {2, 2}, true},  /* every second element */
        {1, 2, {4}, {-1}, {2, 2}, true}, /* backwards */
        {2, 1, {2, 3}, {0, 1}, {6}, false}, /* rows repeated */
        {2, 1, {2, 3}, {0, 0}, {6}, true},  /* one element repeated */
        {2, 2, {2, 3}, {1, 0}, {3, 2}, false},
        {2, 3, {4, 6}, {1, 4}, {2, 2, 6}, true},
        {0, 3, {0}, {0}, {1, 1, 1}, true},
        {3, 0, {1, 1, 1}, {7, 8, 9}, {0}, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t strides[SHAPE_RANK_MAX];
        cr_assert_eq(layout_reshape(rows[i].rank, rows[i].shape, rows[i].strides, rows[i].out_rank, rows[i].out, strides),
                     rows[i].shares, "row %d", (int)i);
    }
}

static void positions(const struct layout_space *space, int operand, int64_t *list) {
    struct tensor_type type = {.dtype = DTYPE_F32, .rank = space->rank};
    int64_t index[SHAPE_RANK_MAX];
    memcpy(type.shape, space->shape, sizeof type.shape);
    for (int64_t k = 0; k < type_elements(&type); k++) {
        index_of(&type, k, index);
        list[k] = 0;
        for (int i = 0; i < type.rank; i++)
            list[k] += index[i] * space->strides[operand][i];
    }
}

Test(layout, merged_axes_walk_the_same_elements) {
    static int64_t before[LAYOUT_OPERANDS_MAX][ELEMENTS_MAX], after[ELEMENTS_MAX];
    unsigned merged = 0;
    for (int round = 0; round < 20000; round++) {
        struct layout_space space = {.rank = pick(6), .operands = 1 + pick(LAYOUT_OPERANDS_MAX)};
        int64_t elements = 1;
        for (int i = 0; i < space.rank; i++) {
            space.shape[i] = pick(4) ? 1 + pick(3) : 1;
            elements *= space.shape[i];
        }
        for (int k = 0; k < space.operands; k++) {
            layout_contiguous(space.rank, space.shape, space.strides[k]);
            for (int i = 0; i < space.rank; i++)
                if (pick(6) == 0)
                    space.strides[k][i] = pick(3) ? 0 : 1 + pick(20);
            positions(&space, k, before[k]);
        }
        int rank = space.rank, begin = pick(rank + 1), end = begin + pick(rank - begin + 1);
        int64_t kept[SHAPE_RANK_MAX];
        memcpy(kept, space.shape, sizeof kept);
        int new_end = layout_merge(&space, begin, end);
        cr_assert_leq(new_end, end);
        cr_assert_eq(space.rank, rank - (end - new_end));
        for (int i = 0; i < begin; i++)
            cr_assert_eq(space.shape[i], kept[i]);
        for (int i = end; i < rank; i++)
            cr_assert_eq(space.shape[i - (end - new_end)], kept[i]);
        for (int k = 0; k < space.operands; k++) {
            positions(&space, k, after);
            cr_assert_arr_eq(before[k], after, (size_t)elements * sizeof *after);
        }
        merged += new_end < end;
    }
    cr_assert_gt(merged, 1000);
}
