/* Functions that other operations make up, at no more cost than an operation of their own would have: views, and one pass at most. */
#include <stdlib.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/tensor.h"

static int64_t extent_of(const td_tensor *x, int axis) {
    return x && axis >= -x->type.rank && axis < x->type.rank ? x->type.shape[axis < 0 ? axis + x->type.rank : axis] : 0;
}

/* ---- the order of elements ---- */

td_tensor *td_flip(td_tensor *x, int count, const int64_t *axes) {
    struct op_packed packed;
    int64_t ranges[3 * TD_RANK_MAX];
    uint32_t mask = 0;
    struct fault fault;
    int rank = x ? x->type.rank : 0;
    if (x && !call_takes_axes(OP_SLICE, count, axes))
        return NULL;
    int code = x ? op_reduced_axes(&(struct op_ints){(unsigned)count, axes}, rank, &mask, &fault) : STATUS_OK;
    if (code)
        return call_refuse(OP_SLICE, (enum status)code, "%s", fault.message);
    for (int i = 0; i < rank; i++) {
        ranges[3 * i] = ranges[3 * i + 1] = OP_SLICE_NONE;
        ranges[3 * i + 2] = mask >> i & 1 ? -1 : 1;
    }
    slice_attributes_write(&(struct slice_attributes){.ranges = {3 * (unsigned)rank, ranges}}, &packed);
    struct batch_entry entry = {
        .opcode = OP_SLICE, .n_inputs = 1, .inputs = &x, .ints = packed.ints, .n_ints = packed.n_ints};
    return call_enqueue(NULL, &entry);
}

td_tensor *td_roll(td_tensor *x, int64_t shift, int axis) {
    int64_t extent = extent_of(x, axis), away = extent ? shift % extent : 0, begin = away > 0 ? extent - away : -away;
    td_tensor *parts[] = {td_slice(x, axis, begin, TD_NONE, 1), td_slice(x, axis, 0, begin, 1)};
    td_tensor *result = parts[0] && parts[1] ? td_concat(parts, 2, axis) : NULL;
    td_release(parts[0]);
    return made_of(parts[1], result);
}

td_tensor *td_moveaxis(td_tensor *x, int count, const int64_t *source, const int64_t *destination) {
    int rank = x ? x->type.rank : 0, next = 0;
    int64_t axes[TD_RANK_MAX];
    bool placed[TD_RANK_MAX] = {false}, moved[TD_RANK_MAX] = {false};
    if (x &&
        (!call_takes_axes(OP_PERMUTE_DIMS, count, source) || !call_takes_axes(OP_PERMUTE_DIMS, count, destination)))
        return NULL;
    for (int i = 0; x && i < count; i++) {
        int from, to;
        struct fault fault;
        int code = shape_axis(source[i], rank, &from, &fault);
        if (!code)
            code = shape_axis(destination[i], rank, &to, &fault);
        if (code)
            return call_refuse(OP_PERMUTE_DIMS, (enum status)code, "%s", fault.message);
        if (moved[from] || placed[to])
            return call_refuse(OP_PERMUTE_DIMS, STATUS_INVALID_ARGUMENT, "axis %d is named twice",
                               moved[from] ? from : to);
        moved[from] = placed[to] = true;
        axes[to] = from;
    }
    for (int i = 0; i < rank; i++) {
        if (placed[i])
            continue;
        while (moved[next])
            next++;
        axes[i] = next++;
    }
    return td_permute(x, rank, axes);
}

/* ---- repetition ---- */

/* x with each axis repeated, by a view that has an axis for each repetition. */
static td_tensor *tile_view(td_tensor *x, int rank, const int64_t *extents, const int64_t *repetitions) {
    int64_t apart[TD_RANK_MAX], wide[TD_RANK_MAX], result[TD_RANK_MAX];
    int n = 0;
    for (int i = 0; i < rank; i++) {
        if (repetitions[i] != 1) {
            apart[n] = 1;
            wide[n++] = repetitions[i];
        }
        apart[n] = wide[n] = extents[i];
        n++;
        result[i] = extents[i] * repetitions[i]; /* the caller has refused what is above 2^63 */
    }
    td_tensor *view = td_reshape(x, n, apart);
    view = made_of(view, td_broadcast_to(view, n, wide));
    return made_of(view, td_reshape(view, rank, result));
}

td_tensor *td_tile(td_tensor *x, int count, const int64_t *repetitions) {
    int own = x ? x->type.rank : 0, rank = own > count ? own : count, axes;
    int64_t extents[TD_RANK_MAX], times[TD_RANK_MAX];
    if (!x)
        return td_reshape(x, 0, NULL);
    if (!call_takes_shape(OP_BROADCAST_TO, count, repetitions))
        return NULL;
    axes = rank;
    for (int i = 0; i < rank; i++) {
        extents[i] = i < rank - own ? 1 : x->type.shape[i - (rank - own)];
        times[i] = i < rank - count ? 1 : repetitions[i - (rank - count)];
        axes += times[i] != 1;
        if (times[i] < 0)
            return call_refuse(OP_BROADCAST_TO, STATUS_INVALID_ARGUMENT, "axis %d is repeated %lld times", i,
                               (long long)times[i]);
        if (times[i] > 0 && extents[i] > INT64_MAX / times[i])
            return call_refuse(OP_BROADCAST_TO, STATUS_SHAPE, "axis %d would have more than 2^63 elements", i);
    }
    if (axes <= TD_RANK_MAX)
        return tile_view(x, rank, extents, times);
    /* Too many axes for one view: axis by axis, from the last one on, so that the passes over little memory come first. */
    td_tensor *result = td_reshape(x, rank, extents);
    for (int i = rank - 1; i >= 0 && result; i--) {
        int64_t outer = 1, inner = 1, wide;
        bool fits = true;
        if (times[i] == 1)
            continue;
        for (int j = 0; j < rank; j++) {
            int64_t *part = j < i ? &outer : &inner;
            fits = !__builtin_mul_overflow(*part, extents[j], part) && fits;
        }
        if (!fits || __builtin_mul_overflow(inner, times[i], &wide))
            return made_of(result, call_refuse(OP_BROADCAST_TO, STATUS_SHAPE, "more than 2^63 elements"));
        extents[i] *= times[i];
        result = made_of(result, td_reshape(result, TD_SHAPE(outer, inner)));
        result = made_of(result, tile_view(result, 2, (int64_t[]){outer, inner}, (int64_t[]){1, times[i]}));
        result = made_of(result, td_reshape(result, rank, extents));
    }
    return result;
}

td_tensor *td_repeat(td_tensor *x, int64_t repeats, int axis) {
    int rank = x ? x->type.rank : 0, at = 0;
    int64_t shape[TD_RANK_MAX + 1];
    struct fault fault;
    int code = x ? shape_axis(axis, rank, &at, &fault) : STATUS_OK;
    if (code)
        return call_refuse(OP_BROADCAST_TO, (enum status)code, "%s", fault.message);
    if (repeats < 0 || (repeats > 0 && extent_of(x, at) > INT64_MAX / repeats))
        return call_refuse(OP_BROADCAST_TO, STATUS_INVALID_ARGUMENT, "axis %d is repeated %lld times", at,
                           (long long)repeats);
    for (int i = 0; i < rank; i++)
        shape[i <= at ? i : i + 1] = x->type.shape[i];
    shape[at + 1] = repeats;
    td_tensor *view = td_expand_dims(x, at + 1);
    view = made_of(view, td_broadcast_to(view, rank + 1, shape));
    if (!view)
        return NULL;
    shape[at] *= repeats;
    for (int i = at + 1; i < rank; i++)
        shape[i] = shape[i + 1];
    return made_of(view, td_reshape(view, rank, shape));
}

/* Releases what has been made of a list, and gives the code of the failure. */
static int unmade(td_tensor **list, int64_t made) {
    int code = td_last_error()->code;
    for (int64_t i = 0; i < made; i++) {
        td_release(list[i]);
        list[i] = NULL;
    }
    return code;
}

int td_meshgrid(int count, td_tensor *const *vectors, int xy, td_tensor **grids) {
    int64_t extents[TD_RANK_MAX], own[TD_RANK_MAX];
    if (count < 0 || count > TD_RANK_MAX || (count && (!vectors || !grids))) {
        call_refuse(OP_BROADCAST_TO, STATUS_INVALID_ARGUMENT, "%d vectors, 0 to %d are possible", count, TD_RANK_MAX);
        return TD_E_INVALID_ARGUMENT;
    }
    for (int i = 0; i < count; i++) {
        int rank = vectors[i] ? vectors[i]->type.rank : 0;
        grids[i] = NULL;
        extents[xy && count > 1 && i < 2 ? 1 - i : i] = rank == 1 ? vectors[i]->type.shape[0] : 1;
        if (rank > 1) {
            call_refuse(OP_BROADCAST_TO, STATUS_SHAPE, "vector %d has rank %d", i, rank);
            return unmade(grids, i);
        }
    }
    for (int i = 0; i < count; i++) {
        int axis = xy && count > 1 && i < 2 ? 1 - i : i;
        for (int k = 0; k < count; k++)
            own[k] = k == axis ? extents[axis] : 1;
        td_tensor *view = td_reshape(vectors[i], count, own);
        grids[i] = made_of(view, td_broadcast_to(view, count, extents));
        if (!grids[i])
            return unmade(grids, i);
    }
    return TD_OK;
}

/* ---- parts ---- */

int td_split(td_tensor *x, int count, const int64_t *sizes, int axis, td_tensor **parts) {
    int64_t begin = 0, extent = extent_of(x, axis);
    bool fits = count >= 0 && (!count || (sizes && parts));
    for (int i = 0; i < count && parts; i++)
        parts[i] = NULL;
    if (!x) {
        td_release(td_slice(x, axis, 0, 0, 1));
        return td_last_error()->code;
    }
    for (int i = 0; i < count && fits; i++) {
        fits = sizes[i] >= 0 && sizes[i] <= extent - begin;
        begin += fits ? sizes[i] : 0;
    }
    if (!fits || begin != extent) {
        call_refuse(OP_SLICE, STATUS_SHAPE, "%d parts do not make up the %lld elements of axis %d", count,
                    (long long)extent, axis);
        return TD_E_SHAPE;
    }
    begin = 0;
    for (int i = 0; i < count; begin += sizes[i++]) {
        parts[i] = td_slice(x, axis, begin, begin + sizes[i], 1);
        if (!parts[i])
            return unmade(parts, i);
    }
    return TD_OK;
}

int td_unstack(td_tensor *x, int axis, td_tensor **parts) {
    int64_t extent = extent_of(x, axis);
    for (int64_t i = 0; i < extent; i++)
        parts[i] = NULL;
    for (int64_t i = 0; i < extent; i++) {
        td_tensor *part = td_slice(x, axis, i, i + 1, 1);
        parts[i] = made_of(part, td_squeeze(part, TD_AXES(axis)));
        if (!parts[i])
            return unmade(parts, i);
    }
    if (extent > 0)
        return TD_OK;
    td_tensor *none = td_slice(x, axis, 0, 0, 1); /* it refuses a wrong axis, and NULL */
    int code = none ? TD_OK : td_last_error()->code;
    td_release(none);
    return code;
}

/* ---- differences ---- */

td_tensor *td_diff(td_tensor *x, int64_t n, int axis, td_tensor *prepend, td_tensor *append) {
    td_tensor *parts[3];
    int count = 0, at;
    struct fault fault;
    int code = x ? shape_axis(axis, x->type.rank, &at, &fault) : STATUS_OK;
    if (code)
        return call_refuse(OP_SLICE, (enum status)code, "%s", fault.message);
    if (n < 0)
        return call_refuse(OP_SUBTRACT, STATUS_INVALID_ARGUMENT, "%lld differences", (long long)n);
    if (prepend)
        parts[count++] = prepend;
    parts[count++] = x;
    if (append)
        parts[count++] = append;
    td_tensor *result =
        count > 1 && x ? td_concat(parts, count, axis) : td_reshape(x, x ? x->type.rank : 0, x ? x->type.shape : NULL);
    bool truths = result && result->type.dtype == DTYPE_BOOL;
    for (int64_t i = 0; i < n && result && extent_of(result, axis) > 0; i++) {
        td_tensor *later = td_slice(result, axis, 1, TD_NONE, 1), *earlier = td_slice(result, axis, 0, -1, 1);
        td_tensor *next = !later || !earlier ? NULL : (truths ? td_logical_xor : td_subtract)(later, earlier);
        td_release(later);
        td_release(earlier);
        result = made_of(result, next);
    }
    return result;
}

/* ---- diagonals ---- */

/* One element of x in each row of a matrix with one column more than the result: so each lies on the result's diagonal, when the rows are
 * put one after another and cut anew. */
static td_tensor *diag_matrix(td_tensor *x, int64_t offset) {
    int64_t n = x->type.shape[0], away = offset < 0 ? -offset : offset;
    int64_t extent = n + away, columns = extent + 1, rows = extent * extent / columns + 1;
    int64_t before = offset < 0 ? away - 1 : 0, left = offset < 0 ? columns - away : away;
    int64_t behind = rows > before + n ? rows - before - n : 0;
    td_tensor *part = td_expand_dims(x, 1);
    part =
        made_of(part, td_pad(part, 4, (int64_t[]){before, behind, left, columns - 1 - left}, TD_PAD_MODE_CONSTANT, 0));
    part = made_of(part, td_reshape(part, TD_SHAPE(-1)));
    part = made_of(part, td_slice(part, 0, 0, extent * extent, 1));
    return made_of(part, td_reshape(part, TD_SHAPE(extent, extent)));
}

td_tensor *td_diag(td_tensor *x, int64_t offset) {
    if (!x || x->type.rank != 1)
        return td_diagonal(x, offset, -2, -1);
    int64_t n = x->type.shape[0], most = INT32_MAX, extent;
    if (n > most || offset > most - n || offset < n - most)
        return call_refuse(OP_DIAGONAL, STATUS_SHAPE, "a matrix with %lld elements on diagonal %lld is too large",
                           (long long)n, (long long)offset);
    extent = n + (offset < 0 ? -offset : offset);
    if (n == 0) /* a border needs something that it is around */
        return td_full(x->device, (td_dtype)x->type.dtype, TD_SHAPE(extent, extent), 0);
    return diag_matrix(x, offset);
}

/* ---- indices ---- */

td_tensor *td_masked_fill(td_tensor *x, td_tensor *mask, double value) {
    td_tensor *filling = x ? td_full(x->device, (td_dtype)x->type.dtype, TD_SCALAR, value) : NULL;
    return x && !filling ? NULL : made_of(filling, td_where(mask, x ? filling : NULL, x));
}

td_tensor *td_gather(td_tensor *x, td_tensor *indices, int axis) {
    td_tensor *part = x;
    int rank = x ? x->type.rank : 0, at = axis < 0 ? axis + rank : axis;
    for (int i = 0; x && indices && indices->type.rank == rank && i < rank && part; i++) {
        int64_t extent = indices->type.shape[i];
        if (i == at || extent == x->type.shape[i])
            continue;
        if (extent > x->type.shape[i])
            return made_of(part == x ? NULL : part, call_refuse(OP_TAKE_ALONG_AXIS, STATUS_SHAPE,
                                                                "axis %d of the indices has extent %lld, above %lld", i,
                                                                (long long)extent, (long long)x->type.shape[i]));
        part = made_of(part == x ? NULL : part, td_slice(part, i, 0, extent, 1));
    }
    return x && !part ? NULL : made_of(part == x ? NULL : part, td_take_along_axis(part, indices, axis));
}

/* The result takes the place of *x, which the operation releases. */
static int call_into(td_tensor **x, struct batch_entry *entry) {
    td_tensor *result;
    int code = call_enqueue_taking(entry, 1, &result, 1, x);
    if (!code)
        *x = td_keep(result);
    return code;
}

static int no_place(const char *function) {
    call_refuse_function(function, STATUS_INVALID_ARGUMENT, "there is no place for the result: the pointer is NULL");
    return td_last_error()->code;
}

int td_scatter_into(td_tensor **x, td_tensor *indices, td_tensor *values, int axis) {
    struct scatter_attributes attributes = {.axis = axis};
    struct op_packed packed;
    scatter_attributes_write(&attributes, &packed);
    if (!x)
        return no_place("scatter_into");
    td_tensor *inputs[] = {*x, indices, values};
    struct batch_entry entry = {
        .opcode = OP_SCATTER, .ints = packed.ints, .n_ints = packed.n_ints, .n_inputs = 3, .inputs = inputs};
    return call_into(x, &entry);
}

static bool broadcasts_to(const td_tensor *tensor, const td_tensor *x) {
    struct tensor_type both;
    return tensor && x &&
           shape_broadcast(&both, &x->type, &tensor->type, &(struct fault){.code = STATUS_OK}) == STATUS_OK &&
           shape_equal(&both, &x->type);
}

int td_where_into(td_tensor **x, td_tensor *mask, td_tensor *value) {
    if (!x)
        return no_place("where_into");
    td_tensor *inputs[] = {mask, value, *x};
    struct batch_entry entry = {.opcode = OP_WHERE, .n_inputs = 3, .inputs = inputs};
    /* Other mistakes are the operation's to find. */
    for (unsigned i = 0; i < 2; i++)
        if (inputs[i] && *x && !broadcasts_to(inputs[i], *x)) {
            call_refuse_function("where_into", STATUS_SHAPE, "the %s does not broadcast to x's shape",
                                 i ? "value" : "mask");
            return td_last_error()->code;
        }
    if (value && *x && dtype_promote(value->type.dtype, (*x)->type.dtype) != (*x)->type.dtype) {
        call_refuse_function("where_into", STATUS_DTYPE, "a value of %s is none of %s", dtype_name(value->type.dtype),
                             dtype_name((*x)->type.dtype));
        return td_last_error()->code;
    }
    return call_into(x, &entry);
}

/* Indices of rank 1 as those of td_scatter(): with an axis for each of x's. */
static td_tensor *along(td_tensor *x, td_tensor *indices, int axis, unsigned opcode) {
    int64_t shape[TD_RANK_MAX];
    int rank = x ? x->type.rank : 0, at = axis < 0 ? axis + rank : axis;
    if (!x || !indices || at < 0 || at >= rank)
        return td_reshape(x ? indices : NULL, TD_SHAPE(-1)); /* the operation itself refuses the axis */
    if (indices->type.rank != 1)
        return call_refuse(opcode, STATUS_SHAPE, "indices have rank %d, not 1", indices->type.rank);
    for (int i = 0; i < rank; i++)
        shape[i] = i == at ? indices->type.shape[0] : 1;
    return td_reshape(indices, rank, shape);
}

td_tensor *td_index_copy(td_tensor *x, int axis, td_tensor *indices, td_tensor *values) {
    td_tensor *places = along(x, indices, axis, OP_SCATTER);
    return places ? made_of(places, td_scatter(x, places, values, axis)) : NULL;
}

td_tensor *td_index_add(td_tensor *x, int axis, td_tensor *indices, td_tensor *values) {
    td_tensor *places = along(x, indices, axis, OP_SCATTER_ADD);
    return places ? made_of(places, td_scatter_add(x, places, values, axis)) : NULL;
}

td_tensor *td_bincount(td_tensor *x, td_tensor *weights, int64_t length) {
    if (!x)
        return td_scatter_add(NULL, x, weights, 0);
    td_dtype dtype = weights ? (td_dtype)weights->type.dtype : TD_I64;
    td_tensor *none = td_full(x->device, dtype, TD_SHAPE(length), 0);
    td_tensor *one = weights ? NULL : td_full_int(x->device, TD_I64, TD_SCALAR, 1);
    td_tensor *result = none && (weights || one) ? td_scatter_add(none, x, weights ? weights : one, 0) : NULL;
    td_release(none);
    return made_of(one, result);
}

td_tensor *td_embedding(td_tensor *weight, td_tensor *indices) {
    int64_t shape[TD_RANK_MAX + 1];
    if (!weight || !indices)
        return td_take(weight, indices, 0);
    int rank = indices->type.rank;
    if (weight->type.rank != 2 || rank == TD_RANK_MAX)
        return call_refuse(OP_TAKE, STATUS_SHAPE, "the weight has rank %d and the indices %d, not 2 and at most %d",
                           weight->type.rank, rank, TD_RANK_MAX - 1);
    for (int i = 0; i < rank; i++)
        shape[i] = indices->type.shape[i];
    shape[rank] = weight->type.shape[1];
    td_tensor *flat = td_reshape(indices, TD_SHAPE(-1)), *rows = flat ? td_take(weight, flat, 0) : NULL;
    td_release(flat);
    return rows ? made_of(rows, td_reshape(rows, rank + 1, shape)) : NULL;
}

/* The gradient without the elements whose index is `padding`. */
static td_tensor *unpadded(td_tensor *gradient, td_tensor *indices, int64_t padding) {
    td_tensor *index = td_full_int(gradient->device, (td_dtype)indices->type.dtype, TD_SCALAR, padding);
    td_tensor *places = index ? td_equal(indices, index) : NULL;
    td_tensor *mask = places ? td_expand_dims(places, -1) : NULL;
    td_tensor *result = mask ? td_masked_fill(gradient, mask, 0) : NULL;
    td_release(index);
    td_release(places);
    return made_of(mask, result);
}

td_tensor *td_embedding_grad(td_tensor *gradient, td_tensor *indices, int64_t rows, int64_t padding_index) {
    if (!gradient || !indices)
        return td_scatter_add(gradient, indices, gradient, 0);
    int rank = gradient->type.rank;
    if (rank != indices->type.rank + 1)
        return call_refuse(OP_SCATTER_ADD, STATUS_SHAPE,
                           "the gradient has rank %d and the indices %d, which is not one less", rank,
                           indices->type.rank);
    int64_t width = gradient->type.shape[rank - 1];
    td_tensor *given = padding_index < 0 ? gradient : unpadded(gradient, indices, padding_index);
    td_tensor *none = td_full(gradient->device, (td_dtype)gradient->type.dtype, TD_SHAPE(rows, width), 0);
    td_tensor *values = given ? td_reshape(given, TD_SHAPE(type_elements(&indices->type), width)) : NULL;
    td_tensor *places = td_reshape(indices, TD_SHAPE(-1, 1));
    td_tensor *result = none && values && places ? td_scatter_add(none, places, values, 0) : NULL;
    if (given != gradient)
        td_release(given);
    td_release(none);
    td_release(values);
    return made_of(places, result);
}

/* ---- gradients that are too large ---- */

/* x in a dtype: itself, or a tensor that the caller releases. */
static td_tensor *as_dtype(td_tensor *x, td_dtype dtype) {
    return x && (td_dtype)x->type.dtype != dtype ? td_cast(x, dtype) : x;
}

static td_tensor *norm_of(td_tensor *gradient, double norm_type, td_dtype dtype) {
    td_tensor *x = as_dtype(gradient, dtype), *norm = x ? td_vector_norm(x, TD_ALL_AXES, norm_type, 0) : NULL;
    if (x != gradient)
        td_release(x);
    return norm;
}

/* min(1, max_norm / (norm + 1e-6)) */
static td_tensor *clip_factor(td_tensor *norm, double max_norm) {
    td_device *device = norm->device;
    td_dtype dtype = (td_dtype)norm->type.dtype;
    td_tensor *parts[] = {td_full(device, dtype, TD_SCALAR, max_norm), td_full(device, dtype, TD_SCALAR, 1e-6),
                          td_full(device, dtype, TD_SCALAR, 1), NULL, NULL};
    bool all = parts[0] && parts[1] && parts[2];
    parts[3] = all ? td_add(norm, parts[1]) : NULL;
    parts[4] = parts[3] ? td_divide(parts[0], parts[3]) : NULL;
    td_tensor *factor = parts[4] ? td_minimum(parts[4], parts[2]) : NULL;
    for (int i = 0; i < 5; i++)
        td_release(parts[i]);
    return factor;
}

/* Multiplies all gradients; false: it has made none. */
static bool scale_all(int count, td_tensor *const *gradients, td_tensor *factor, td_tensor **scaled) {
    bool made = factor != NULL;
    for (int i = 0; i < count && made; i++) {
        td_tensor *own = as_dtype(factor, (td_dtype)gradients[i]->type.dtype);
        scaled[i] = own ? td_multiply(gradients[i], own) : NULL;
        made = scaled[i] != NULL;
        if (own != factor)
            td_release(own);
    }
    for (int i = 0; i < count && !made; i++) {
        td_release(scaled[i]);
        scaled[i] = NULL;
    }
    return made;
}

td_tensor *td_clip_grad_norm(int count, td_tensor *const *gradients, double max_norm, double norm_type,
                             td_tensor **clipped) {
    if (!call_takes_inputs(OP_STACK, count, gradients))
        return NULL;
    td_dtype dtype = TD_F32;
    td_tensor **norms = calloc(2 * (size_t)count, sizeof *norms), **scaled, *all, *norm;
    bool made = true;
    for (int i = 0; i < count; i++) {
        clipped[i] = NULL;
        dtype = gradients[i] && gradients[i]->type.dtype == DTYPE_F64 ? TD_F64 : dtype;
    }
    if (!norms)
        return call_refuse(OP_STACK, STATUS_NO_HOST_MEMORY, "no memory for %d gradients", count);
    scaled = norms + count;
    for (int i = 0; i < count && made; i++)
        made = (norms[i] = norm_of(gradients[i], norm_type, dtype)) != NULL;
    all = made ? td_stack(norms, count, 0) : NULL;
    norm = all ? td_vector_norm(all, TD_ALL_AXES, norm_type, 0) : NULL;
    td_tensor *factor = norm ? clip_factor(norm, max_norm) : NULL;
    if (norm && !scale_all(count, gradients, factor, scaled)) {
        td_release(norm);
        norm = NULL;
    }
    for (int i = 0; i < count; i++) {
        clipped[i] = scaled[i];
        td_release(norms[i]);
    }
    td_release(all);
    td_release(factor);
    free(norms);
    return norm;
}

/* ---- equal elements ---- */

/* The places of complex numbers in lexicographic order, the real part first: by the imaginary part, and then, with equal ones in that order, by
 * the real part. */
static td_tensor *complex_order(td_tensor *flat) {
    td_tensor *imaginary = td_imag(flat), *first = imaginary ? td_argsort(imaginary, 0, 0) : NULL;
    td_tensor *real = first ? td_real(flat) : NULL, *turned = real ? td_take(real, first, 0) : NULL;
    td_tensor *second = turned ? td_argsort(turned, 0, 0) : NULL, *order = second ? td_take(first, second, 0) : NULL;
    td_tensor *all[] = {imaginary, first, real, turned};
    for (int i = 0; i < 4; i++)
        td_release(all[i]);
    return made_of(second, order);
}

static bool is_complex(const td_tensor *x) {
    return x && dtype_is_complex((enum dtype)x->type.dtype);
}

int td_unique(td_tensor *x, td_tensor **values, td_tensor **indices, td_tensor **inverse, td_tensor **counts,
              td_tensor **count) {
    td_tensor *all[5] = {NULL}, **wanted[5] = {values, indices, inverse, counts, count};
    td_tensor *flat = td_reshape(x, TD_SHAPE(-1)), *order, *sorted;
    if (flat && !indices && !inverse && dtype_kind(flat->type.dtype) == DTYPE_KIND_INT) {
        /* Equal integers have equal bits, so nobody sees which of them is where. */
        int64_t extent = flat->type.shape[0];
        order = td_arange(flat->device, extent <= INT32_MAX ? TD_I32 : TD_I64, 0, (double)extent, 1);
        sorted = td_sort(flat, 0, 0);
    } else {
        order = is_complex(flat) ? complex_order(flat) : td_argsort(flat, 0, 0);
        sorted = td_take(flat, order, 0);
    }
    int code = td_unique_runs(sorted, order, &all[0], &all[1], &all[2], &all[3], &all[4]);
    td_release(flat);
    td_release(order);
    td_release(sorted);
    if (!code && inverse) {
        all[2] = made_of(all[2], td_reshape(all[2], x->type.rank, x->type.shape));
        code = all[2] ? TD_OK : td_last_error()->code;
    }
    for (int i = 0; i < 5; i++) {
        if (wanted[i])
            *wanted[i] = code ? NULL : all[i];
        if (!wanted[i] || code)
            td_release(all[i]);
    }
    return code;
}
