/* Functions of linear algebra that other operations make up. */
#include "client/lib/call.h"
#include "client/lib/contract.h"
#include "client/lib/tensor.h"

static td_tensor *refuse_shapes(const char *function, const td_tensor *a, const td_tensor *b, const char *rule) {
    char a_text[SHAPE_TEXT_MAX], b_text[SHAPE_TEXT_MAX];
    return call_refuse_function(function, STATUS_SHAPE, "%s x %s: %s", shape_text(&a->type, a_text),
                                shape_text(&b->type, b_text), rule);
}

static td_tensor *refuse_shape(const char *function, const td_tensor *x, const char *rule) {
    char text[SHAPE_TEXT_MAX];
    return call_refuse_function(function, STATUS_SHAPE, "%s: %s", shape_text(&x->type, text), rule);
}

/* Of a call with a tensor that is NULL. */
static td_tensor *none(void) {
    return td_reshape(NULL, 0, NULL);
}

/* ---- sums of products ---- */

td_tensor *td_outer(td_tensor *x1, td_tensor *x2) {
    if (!x1 || !x2)
        return none();
    if (x1->type.rank != 1 || x2->type.rank != 1)
        return refuse_shapes("outer", x1, x2, "both must have rank 1");
    td_tensor *column = td_expand_dims(x1, 1);
    return made_of(column, td_multiply(column, x2));
}

/* An axis that counts from the end. -1: not both have it; the error is set. */
static int axis_of_both(const char *function, const td_tensor *x1, const td_tensor *x2, int axis) {
    int least = x1->type.rank < x2->type.rank ? x1->type.rank : x2->type.rank;
    if (axis < 0 && axis >= -least)
        return 0;
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    call_refuse_function(function, STATUS_INVALID_ARGUMENT,
                         "%s x %s: axis %d is not -1 to -%d, an axis of both counted from the end",
                         shape_text(&x1->type, a), shape_text(&x2->type, b), axis, least);
    return -1;
}

static int64_t extent_from_end(const td_tensor *x, int axis) {
    return x->type.shape[x->type.rank + axis];
}

static bool is_complex(const td_tensor *x) {
    return x && dtype_is_complex((enum dtype)x->type.dtype);
}

/* The conjugate of x, which is released; real numbers stay as they are. Takes NULL. */
static td_tensor *conjugated(td_tensor *x) {
    return is_complex(x) ? made_of(x, td_conj(x)) : x;
}

static td_tensor *vecdot(td_tensor *x1, td_tensor *x2, int axis) {
    struct contraction c;
    td_tensor *operands[] = {x1, x2};
    uint8_t labels[TD_RANK_MAX];
    struct tensor_type batches[2], shape;
    if (axis_of_both("vecdot", x1, x2, axis))
        return NULL;
    if (extent_from_end(x1, axis) != extent_from_end(x2, axis))
        return refuse_shapes("vecdot", x1, x2, "the extents of the axis differ");
    for (int i = 0; i < 2; i++) {
        batches[i] = operands[i]->type;
        batches[i].shape[batches[i].rank + axis] = 1;
    }
    if (shape_broadcast(&shape, &batches[0], &batches[1], NULL) != STATUS_OK)
        return refuse_shapes("vecdot", x1, x2, "the other axes do not broadcast");
    if (!contract_init(&c, "vecdot", 2, operands))
        return NULL;
    /* Labels count from the end, too. */
    for (int i = 0; i < 2; i++) {
        int rank = operands[i]->type.rank;
        for (int k = 0; k < rank; k++)
            labels[k] = (uint8_t)(rank - 1 - k);
        if (!contract_add(&c, operands[i], labels))
            return contract_abandon(&c);
    }
    for (int k = shape.rank - 1; k >= 0; k--)
        if (k != -1 - axis)
            c.labels[c.rank++] = (uint8_t)k;
    return contract_run(&c);
}

td_tensor *td_vecdot(td_tensor *x1, td_tensor *x2, int axis) {
    if (!x1 || !x2)
        return none();
    if (!is_complex(x1))
        return vecdot(x1, x2, axis);
    td_tensor *conjugate = td_conj(x1);
    return made_of(conjugate, conjugate ? vecdot(conjugate, x2, axis) : NULL);
}

/* The axes that tensordot sums over: axes[i][k] is number k of operand i. */
static bool dot_axes(td_tensor *const x[2], int count, const int64_t *const given[2], int axes[2][TD_RANK_MAX]) {
    for (int i = 0; i < 2; i++) {
        int rank = x[i]->type.rank;
        uint32_t seen = 0;
        if (count < 0 || count > rank || !given[0] != !given[1]) {
            call_refuse_function("tensordot", STATUS_INVALID_ARGUMENT,
                                 !given[0] == !given[1] ? "%d axes, and operand %d has rank %d"
                                                        : "%d axes, operand %d has rank %d, and one list is NULL",
                                 count, i, rank);
            return false;
        }
        for (int k = 0; k < count; k++) {
            struct fault fault;
            int64_t axis = given[i] ? given[i][k] : i == 0 ? rank - count + k : k;
            int code = shape_axis(axis, rank, &axes[i][k], &fault);
            if (!code && seen >> axes[i][k] & 1)
                code =
                    fault_set(&fault, STATUS_INVALID_ARGUMENT, "axis %d of operand %d is named twice", axes[i][k], i);
            if (code) {
                call_refuse_function("tensordot", (enum status)code, "%s", fault.message);
                return false;
            }
            seen |= UINT32_C(1) << axes[i][k];
        }
    }
    for (int k = 0; k < count; k++)
        if (x[0]->type.shape[axes[0][k]] != x[1]->type.shape[axes[1][k]]) {
            char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
            call_refuse_function("tensordot", STATUS_SHAPE, "%s x %s: axis %d and axis %d: %lld != %lld",
                                 shape_text(&x[0]->type, a), shape_text(&x[1]->type, b), axes[0][k], axes[1][k],
                                 (long long)x[0]->type.shape[axes[0][k]], (long long)x[1]->type.shape[axes[1][k]]);
            return false;
        }
    return true;
}

td_tensor *td_tensordot(td_tensor *x1, td_tensor *x2, int count, const int64_t *axes1, const int64_t *axes2) {
    struct contraction c;
    td_tensor *operands[] = {x1, x2};
    int axes[2][TD_RANK_MAX];
    uint8_t labels[2][TD_RANK_MAX], kept[2 * TD_RANK_MAX];
    int next = TD_RANK_MAX, rank = 0;
    if (!x1 || !x2)
        return none();
    if (!dot_axes(operands, count, (const int64_t *[]){axes1, axes2}, axes))
        return NULL;
    for (int i = 0; i < 2; i++)
        for (int axis = 0; axis < operands[i]->type.rank; axis++) {
            int k = 0;
            while (k < count && axes[i][k] != axis)
                k++;
            labels[i][axis] = (uint8_t)(k < count ? k : next++);
            if (k == count)
                kept[rank++] = labels[i][axis];
        }
    if (rank > TD_RANK_MAX)
        return refuse_shapes("tensordot", x1, x2, "the result would have more axes than a tensor can have");
    if (!contract_init(&c, "tensordot", 2, operands))
        return NULL;
    for (int i = 0; i < 2; i++)
        if (!contract_add(&c, operands[i], labels[i]))
            return contract_abandon(&c);
    for (int i = 0; i < rank; i++)
        c.labels[c.rank++] = kept[i];
    return contract_run(&c);
}

td_tensor *td_trace(td_tensor *x, int64_t offset) {
    td_tensor *diagonal = td_diagonal(x, offset, -2, -1);
    return made_of(diagonal, td_sum(diagonal, TD_AXES(-1), 0));
}

td_tensor *td_kron(td_tensor *x1, td_tensor *x2) {
    int64_t apart1[2 * TD_RANK_MAX] = {0}, apart2[2 * TD_RANK_MAX] = {0}, shape[TD_RANK_MAX];
    int n = 0;
    if (!x1 || !x2)
        return none();
    int rank = x1->type.rank > x2->type.rank ? x1->type.rank : x2->type.rank;
    for (int i = 0; i < rank; i++) {
        int own1 = i - (rank - x1->type.rank), own2 = i - (rank - x2->type.rank);
        int64_t extent1 = own1 < 0 ? 1 : x1->type.shape[own1], extent2 = own2 < 0 ? 1 : x2->type.shape[own2];
        if (extent1 != 1 && extent2 != 1) {
            apart1[n] = extent1;
            apart2[n++] = 1;
            apart1[n] = 1;
            apart2[n++] = extent2;
        } else {
            apart1[n] = extent1;
            apart2[n++] = extent2;
        }
    }
    if (n > TD_RANK_MAX)
        return refuse_shapes("kron", x1, x2, "too many axes have more than one element in both");
    td_tensor *view1 = td_reshape(x1, n, apart1), *view2 = td_reshape(x2, n, apart2);
    td_tensor *product = td_multiply(view1, view2);
    td_release(view1);
    td_release(view2);
    if (!product)
        return NULL;
    for (int i = 0, k = 0; i < rank; i++) { /* the product has these extents, so their products fit */
        int own1 = i - (rank - x1->type.rank), own2 = i - (rank - x2->type.rank);
        bool both = own1 >= 0 && own2 >= 0 && x1->type.shape[own1] != 1 && x2->type.shape[own2] != 1;
        shape[i] = product->type.shape[k++];
        if (both)
            shape[i] *= product->type.shape[k++];
    }
    return made_of(product, td_reshape(product, rank, shape));
}

/* ---- matrices ---- */

/* Both axes of the matrices again, with extent 1, if they are to be kept. */
static td_tensor *kept(td_tensor *x, int keepdims) {
    if (!keepdims)
        return x;
    td_tensor *column = made_of(x, td_expand_dims(x, -1));
    return made_of(column, td_expand_dims(column, -1));
}

static bool is_empty(const td_tensor *x) {
    return x->type.shape[x->type.rank - 1] == 0 || x->type.shape[x->type.rank - 2] == 0;
}

/* The greatest or least of the rows' or columns' sums of magnitudes. No sum is below 0, so the greatest of none is 0, which adding them
 * up gives. */
static td_tensor *norm_of_sums(td_tensor *x, int along, bool least, int keepdims) {
    td_tensor *sums = td_vector_norm(x, TD_AXES(along), 1, 1);
    td_tensor *extreme = (least ? td_min : is_empty(x) ? td_sum : td_max)(sums, TD_AXES(-1, -2), keepdims);
    return made_of(sums, extreme);
}

static td_tensor *norm_of_values(td_tensor *x, td_matrix_norm_order order, int keepdims) {
    td_tensor *values = td_svdvals(x);
    if (order == TD_MATRIX_NORM_NUCLEAR || (order == TD_MATRIX_NORM_2 && is_empty(x)))
        return kept(made_of(values, td_sum(values, TD_AXES(-1), 0)), keepdims);
    return kept(made_of(values, (order == TD_MATRIX_NORM_2 ? td_max : td_min)(values, TD_AXES(-1), 0)), keepdims);
}

td_tensor *td_matrix_norm(td_tensor *x, td_matrix_norm_order order, int keepdims) {
    if (!x)
        return none();
    if (x->type.rank < 2)
        return refuse_shape("matrix_norm", x, "it is no matrix");
    switch (order) {
    case TD_MATRIX_NORM_FROBENIUS:
        return td_vector_norm(x, TD_AXES(-2, -1), 2, keepdims);
    case TD_MATRIX_NORM_1:
    case TD_MATRIX_NORM_LEAST_1:
        return norm_of_sums(x, -2, order == TD_MATRIX_NORM_LEAST_1, keepdims);
    case TD_MATRIX_NORM_INF:
    case TD_MATRIX_NORM_LEAST_INF:
        return norm_of_sums(x, -1, order == TD_MATRIX_NORM_LEAST_INF, keepdims);
    case TD_MATRIX_NORM_NUCLEAR:
    case TD_MATRIX_NORM_2:
    case TD_MATRIX_NORM_LEAST_2:
        return norm_of_values(x, order, keepdims);
    }
    return call_refuse_function("matrix_norm", STATUS_INVALID_ARGUMENT, "order %d is none of the header's", (int)order);
}

td_tensor *td_matrix_power(td_tensor *x, int64_t n) {
    if (!x)
        return none();
    int rank = x->type.rank;
    if (rank < 2 || x->type.shape[rank - 1] != x->type.shape[rank - 2])
        return refuse_shape("matrix_power", x, "its last two axes are no square matrices");
    if (n == 0) {
        td_tensor *one =
            td_eye(x->device, (td_dtype)x->type.dtype, x->type.shape[rank - 1], x->type.shape[rank - 1], 0);
        return made_of(one, td_broadcast_to(one, rank, x->type.shape));
    }
    td_tensor *square = n < 0 ? td_inv(x) : td_reshape(x, rank, x->type.shape), *power = NULL;
    bool fine = square != NULL;
    for (uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n; fine; fine = square != NULL) {
        if (left & 1) {
            power = made_of(power, power ? td_matmul(power, square) : td_reshape(square, rank, x->type.shape));
            fine = power != NULL;
        }
        left >>= 1;
        if (!fine || !left)
            break;
        square = made_of(square, td_matmul(square, square));
    }
    td_release(square);
    return fine ? power : made_of(power, NULL);
}

/* The greatest singular value times the tolerance, with an axis of extent 1; nothing of an empty matrix. */
static td_tensor *threshold(td_tensor *x, td_tensor *values, double tolerance) {
    if (!values)
        return none();
    int rank = x->type.rank;
    int64_t m = x->type.shape[rank - 2], n = x->type.shape[rank - 1];
    if (tolerance < 0)
        tolerance = (double)(m > n ? m : n) * (values->type.dtype == DTYPE_F64 ? 0x1p-52 : 0x1p-23);
    td_tensor *greatest = td_slice(values, -1, 0, 1, 1);
    td_tensor *factor = td_full(x->device, (td_dtype)values->type.dtype, TD_SCALAR, tolerance);
    td_tensor *product = td_multiply(greatest, factor);
    td_release(factor);
    return made_of(greatest, product);
}

td_tensor *td_matrix_rank(td_tensor *x, double tolerance) {
    if (!x)
        return none();
    td_tensor *values = td_svdvals(x), *least = threshold(x, values, tolerance);
    td_tensor *above = td_greater(values, least);
    td_release(values);
    td_release(least);
    return made_of(above, td_count_nonzero(above, TD_AXES(-1), 0));
}

/* 1 / values, and 0 where a value is not above the threshold. */
static td_tensor *inverted(td_tensor *x, td_tensor *values, double tolerance) {
    td_tensor *least = threshold(x, values, tolerance), *above = td_greater(values, least);
    td_tensor *inverse = td_reciprocal(values);
    td_tensor *zero = values ? td_full(x->device, (td_dtype)values->type.dtype, TD_SCALAR, 0) : NULL;
    td_tensor *result = td_where(above, inverse, zero);
    td_release(least);
    td_release(above);
    td_release(inverse);
    return made_of(zero, result);
}

td_tensor *td_pinv(td_tensor *x, double tolerance) {
    td_tensor *u, *values, *vh;
    if (!x)
        return none();
    if (td_svd(x, 0, &u, &values, &vh))
        return NULL;
    td_tensor *inverse = inverted(x, values, tolerance), *row = td_expand_dims(inverse, -2);
    td_release(values);
    td_release(inverse);
    td_tensor *v = conjugated(td_transpose(vh)), *scaled = td_multiply(v, row), *ut = conjugated(td_transpose(u));
    td_release(vh);
    td_release(u);
    td_release(v);
    td_release(row);
    td_tensor *result = td_matmul(scaled, ut);
    td_release(scaled);
    return made_of(ut, result);
}
