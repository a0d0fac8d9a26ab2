#include "client/lib/contract.h"

#include <math.h>
#include <string.h>

#include "client/lib/call.h"
#include "client/lib/tensor.h"

enum {
    BEST_MOST = 8
}; /* for so many operands the best order is found; each operand more would take three times as long */

static uint64_t bit(unsigned label) {
    return UINT64_C(1) << label;
}

static uint64_t labels_of(const struct labelled *operand) {
    uint64_t mask = 0;
    for (int i = 0; i < operand->rank; i++)
        mask |= bit(operand->labels[i]);
    return mask;
}

static uint64_t result_of(const struct contraction *c) {
    uint64_t mask = 0;
    for (int i = 0; i < c->rank; i++)
        mask |= bit(c->labels[i]);
    return mask;
}

/* Puts what was made of an operand into its place. False: it could not be made. */
static bool becomes(struct labelled *operand, td_tensor *made) {
    if (operand->own)
        td_release(operand->x);
    operand->x = made;
    operand->own = made != NULL;
    return made != NULL;
}

static void drop_axis(struct labelled *operand, int axis) {
    operand->rank--;
    for (int i = axis; i < operand->rank; i++)
        operand->labels[i] = operand->labels[i + 1];
}

/* ---- operands ---- */

bool contract_init(struct contraction *c, const char *function, int count, td_tensor *const *operands) {
    c->function = function;
    c->dtype = operands[0]->type.dtype;
    c->n = c->rank = 0;
    for (int i = 0; i < CONTRACT_LABELS; i++)
        c->extents[i] = 1;
    for (int i = 1; i < count; i++) {
        enum dtype other = operands[i]->type.dtype, promoted = dtype_promote(c->dtype, other);
        if (promoted == DTYPE_INVALID) {
            call_refuse_function(function, STATUS_DTYPE, "%s and %s do not promote", dtype_name(c->dtype),
                                 dtype_name(other));
            return false;
        }
        c->dtype = promoted;
    }
    if (c->dtype != DTYPE_BOOL && !dtype_is_f8(c->dtype))
        return true;
    call_refuse_function(function, STATUS_DTYPE, "%s is no dtype for sums of products", dtype_name(c->dtype));
    return false;
}

/* Of two axes with one label: their diagonal, which becomes the last axis. */
static bool take_diagonal(struct contraction *c, struct labelled *operand, int first, int second) {
    const int64_t *shape = operand->x->type.shape;
    uint8_t label = operand->labels[first];
    if (shape[first] != shape[second]) {
        call_refuse_function(c->function, STATUS_SHAPE,
                             "axes %d and %d of operand %d have one name, and extents %lld and %lld", first, second,
                             c->n - 1, (long long)shape[first], (long long)shape[second]);
        return false;
    }
    if (!becomes(operand, td_diagonal(operand->x, 0, first, second)))
        return false;
    drop_axis(operand, second);
    drop_axis(operand, first);
    operand->labels[operand->rank++] = label;
    return true;
}

static bool take_diagonals(struct contraction *c, struct labelled *operand) {
    for (int first = 0; first < operand->rank; first++)
        for (int second = first + 1; second < operand->rank; second++)
            if (operand->labels[first] == operand->labels[second]) {
                if (!take_diagonal(c, operand, first, second))
                    return false;
                first = -1; /* the axes have moved */
                break;
            }
    return true;
}

/* Notes the extents of an operand's labels, and drops the axes that have extent 1. */
static bool take_extents(struct contraction *c, struct labelled *operand) {
    int64_t axes[TD_RANK_MAX];
    int n = 0;
    for (int i = 0; i < operand->rank; i++) {
        int64_t extent = operand->x->type.shape[i], *known = &c->extents[operand->labels[i]];
        if (extent == 1) {
            axes[n++] = i;
        } else if (*known != 1 && *known != extent) {
            call_refuse_function(c->function, STATUS_SHAPE,
                                 "axis %d of operand %d has extent %lld, and an earlier axis of its name %lld", i,
                                 c->n - 1, (long long)extent, (long long)*known);
            return false;
        } else {
            *known = extent;
        }
    }
    if (n && !becomes(operand, td_squeeze(operand->x, n, axes)))
        return false;
    while (n > 0)
        drop_axis(operand, (int)axes[--n]);
    return true;
}

bool contract_add(struct contraction *c, td_tensor *x, const uint8_t *labels) {
    struct labelled *operand = &c->operands[c->n++];
    *operand = (struct labelled){.x = x, .rank = x->type.rank};
    memcpy(operand->labels, labels, (size_t)operand->rank);
    return take_diagonals(c, operand) && take_extents(c, operand) &&
           (x->type.dtype == c->dtype || becomes(operand, td_cast(operand->x, (td_dtype)c->dtype)));
}

td_tensor *contract_abandon(struct contraction *c) {
    for (int i = 0; i < c->n; i++)
        if (c->operands[i].own)
            td_release(c->operands[i].x);
    c->n = 0;
    return NULL;
}

/* ---- one pair ---- */

/* Sums over the labels that are not in `kept`. */
static bool sum_others(const struct contraction *c, struct labelled *operand, uint64_t kept) {
    int64_t axes[TD_RANK_MAX];
    int n = 0;
    for (int i = 0; i < operand->rank; i++)
        if (!(kept & bit(operand->labels[i])))
            axes[n++] = i;
    if (!n)
        return true;
    if (!becomes(operand, td_sum(operand->x, n, axes, 0)))
        return false;
    while (n > 0)
        drop_axis(operand, (int)axes[--n]);
    /* sums of small integers are i64 or u64 */
    return operand->x->type.dtype == c->dtype || becomes(operand, td_cast(operand->x, (td_dtype)c->dtype));
}

/* Axes in the order in which they are wanted. */
struct arranged {
    int rank;
    uint8_t labels[TD_RANK_MAX];
};

/* Appends the labels of `from` that are in `mask`. */
static void append(struct arranged *to, const struct labelled *from, uint64_t mask) {
    for (int i = 0; i < from->rank; i++)
        if (mask & bit(from->labels[i]))
            to->labels[to->rank++] = from->labels[i];
}

/* A view with the axes in this order, which has the same labels. */
static bool arrange(struct labelled *operand, const struct arranged *wanted) {
    int64_t axes[TD_RANK_MAX];
    bool same = true;
    for (int i = 0; i < wanted->rank; i++) {
        int axis = 0;
        while (operand->labels[axis] != wanted->labels[i])
            axis++;
        axes[i] = axis;
        same &= axis == i;
    }
    memcpy(operand->labels, wanted->labels, sizeof wanted->labels);
    return same || becomes(operand, td_permute(operand->x, wanted->rank, axes));
}

static bool shape_becomes(struct labelled *operand, int rank, const int64_t *shape) {
    const struct tensor_type *type = &operand->x->type;
    if (type->rank == rank && !memcmp(type->shape, shape, (size_t)rank * sizeof *shape))
        return true;
    return becomes(operand, td_reshape(operand->x, rank, shape));
}

/* The product of the extents of n labels of one operand, which fits since a tensor has them. */
static int64_t merged(const struct contraction *c, const uint8_t *labels, int n) {
    int64_t extent = 1;
    for (int i = 0; i < n; i++)
        extent *= c->extents[labels[i]];
    return extent;
}

/* An operand as matrices: its first `batch` axes, then `rows` axes as one, and the rest as one. The batch's axes are one, too, if they would
 * be too many. */
static bool as_matrices(const struct contraction *c, struct labelled *operand, int batch, int rows) {
    int64_t shape[TD_RANK_MAX];
    int rank = 0;
    if (batch + 2 > TD_RANK_MAX)
        shape[rank++] = merged(c, operand->labels, batch);
    for (int i = 0; i < batch && batch + 2 <= TD_RANK_MAX; i++)
        shape[rank++] = c->extents[operand->labels[i]];
    shape[rank++] = merged(c, operand->labels + batch, rows);
    shape[rank++] = merged(c, operand->labels + batch + rows, operand->rank - batch - rows);
    return shape_becomes(operand, rank, shape);
}

/* An operand that has `before` axes in common, `own` axes, and extents of 1 where the other operand has axes of its own. */
static bool with_ones(const struct contraction *c, struct labelled *operand, int common, int before, int behind) {
    int64_t shape[TD_RANK_MAX];
    int rank = 0;
    for (int i = 0; i < common; i++)
        shape[rank++] = c->extents[operand->labels[i]];
    for (int i = 0; i < before; i++)
        shape[rank++] = 1;
    for (int i = common; i < operand->rank; i++)
        shape[rank++] = c->extents[operand->labels[i]];
    for (int i = 0; i < behind; i++)
        shape[rank++] = 1;
    return shape_becomes(operand, rank, shape);
}

/* The shape of a product by its labels. */
static bool by_labels(const struct contraction *c, struct labelled *operand) {
    int64_t shape[TD_RANK_MAX];
    for (int i = 0; i < operand->rank; i++)
        shape[i] = c->extents[operand->labels[i]];
    return shape_becomes(operand, operand->rank, shape);
}

/* a becomes the product of both, which has the common labels that are `needed`, then a's own, then b's. */
static bool multiply(const struct contraction *c, struct labelled *a, struct labelled *b, uint64_t needed) {
    uint64_t in_a = labels_of(a), in_b = labels_of(b), common = in_a & in_b;
    const struct labelled *larger = type_elements(&a->x->type) >= type_elements(&b->x->type) ? a : b;
    struct arranged left = {0}, right = {0};
    append(&left, larger, common & needed);
    right = left;
    int batch = left.rank, sums = __builtin_popcountll(common & ~needed);
    append(&left, a, in_a & ~in_b);
    int own = left.rank - batch;
    append(&left, larger, common & ~needed);
    append(&right, larger, common & ~needed);
    append(&right, b, in_b & ~in_a);
    if (!arrange(a, &left) || !arrange(b, &right))
        return false;
    bool fits = sums ? as_matrices(c, a, batch, own) && as_matrices(c, b, batch, sums)
                     : with_ones(c, a, batch, 0, b->rank - batch) && with_ones(c, b, batch, own, 0);
    if (!fits || !becomes(a, sums ? td_matmul(a->x, b->x) : td_multiply(a->x, b->x)))
        return false;
    a->rank = batch + own;
    memcpy(a->labels + a->rank, b->labels + batch + sums, (size_t)(b->rank - batch - sums));
    a->rank += b->rank - batch - sums;
    return by_labels(c, a);
}

/* Replaces operands number i and k by their product. */
static bool contract_pair(struct contraction *c, int i, int k) {
    uint64_t needed = result_of(c);
    for (int other = 0; other < c->n; other++)
        needed |= other != i && other != k ? labels_of(&c->operands[other]) : 0;
    /* The last product has the result's last axis, as far as it can. */
    uint64_t last = c->n == 2 && c->rank ? bit(c->labels[c->rank - 1]) : 0;
    if (last & labels_of(&c->operands[i]) & ~labels_of(&c->operands[k])) {
        int other = i;
        i = k;
        k = other;
    }
    struct labelled *a = &c->operands[i], *b = &c->operands[k];
    uint64_t in_a = labels_of(a), in_b = labels_of(b);
    if (!sum_others(c, a, needed | in_b) || !sum_others(c, b, needed | in_a) || !multiply(c, a, b, needed))
        return false;
    if (b->own)
        td_release(b->x);
    *b = c->operands[--c->n];
    return true;
}

/* ---- the order ---- */

/* Elements of a tensor with these labels; what is empty costs as much as one. A double holds it: a pair has 16 labels at most. */
static double elements(const struct contraction *c, uint64_t labels) {
    double product = 1;
    for (; labels; labels &= labels - 1) {
        int64_t extent = c->extents[__builtin_ctzll(labels)];
        product *= extent ? (double)extent : 1;
    }
    return product;
}

/* A pair whose product adds least to what is kept in memory. */
static bool choose_greedily(const struct contraction *c, int *first, int *second) {
    double least = INFINITY;
    for (int i = 0; i < c->n; i++)
        for (int k = i + 1; k < c->n; k++) {
            uint64_t needed = result_of(c), a = labels_of(&c->operands[i]), b = labels_of(&c->operands[k]);
            for (int other = 0; other < c->n; other++)
                needed |= other != i && other != k ? labels_of(&c->operands[other]) : 0;
            uint64_t kept = (a | b) & needed;
            double more = elements(c, kept) - elements(c, a) - elements(c, b);
            if (__builtin_popcountll(kept) <= TD_RANK_MAX && more < least) {
                least = more;
                *first = i;
                *second = k;
            }
        }
    return least < INFINITY;
}

/* A pair that the cheapest order multiplies, found over all subsets of the operands: a subset's product has the labels that are needed
 * outside of it, and costs as many multiplications as the labels of its two parts together have elements. */
static bool choose_best(const struct contraction *c, int *first, int *second) {
    unsigned all = (1u << c->n) - 1;
    uint64_t kept[1 << BEST_MOST];
    double cost[1 << BEST_MOST];
    uint8_t part[1 << BEST_MOST] = {0};
    for (unsigned set = 1; set <= all; set++) {
        uint64_t inside = 0, outside = result_of(c);
        for (int i = 0; i < c->n; i++)
            *(set >> i & 1 ? &inside : &outside) |= labels_of(&c->operands[i]);
        kept[set] = inside & outside;
        bool single = !(set & (set - 1));
        cost[set] = single ? 0 : INFINITY;
        if (single || __builtin_popcountll(kept[set]) > TD_RANK_MAX)
            continue;
        for (unsigned some = (set - 1) & set; some > set / 2; some = (some - 1) & set) { /* each split once */
            double sum = cost[some] + cost[set ^ some] + elements(c, kept[some] | kept[set ^ some]);
            if (sum < cost[set]) {
                cost[set] = sum;
                part[set] = (uint8_t)some;
            }
        }
    }
    if (!(cost[all] < INFINITY))
        return false;
    unsigned set = all;
    for (;;) {
        unsigned a = part[set], b = set ^ a;
        if (!(a & (a - 1)) && !(b & (b - 1))) {
            *first = __builtin_ctz(a);
            *second = __builtin_ctz(b);
            return true;
        }
        set = a & (a - 1) ? a : b;
    }
}

/* ---- all of them ---- */

/* The last operand becomes the result: sums, order, and axes of extent 1. */
static td_tensor *finish(struct contraction *c) {
    struct labelled *x = &c->operands[0];
    struct arranged wanted = {0};
    int64_t shape[TD_RANK_MAX];
    uint64_t present;
    if (!sum_others(c, x, result_of(c)))
        return NULL;
    present = labels_of(x);
    for (int i = 0; i < c->rank; i++) {
        shape[i] = c->extents[c->labels[i]];
        if (present & bit(c->labels[i]))
            wanted.labels[wanted.rank++] = c->labels[i];
    }
    if (!arrange(x, &wanted) || !shape_becomes(x, c->rank, shape) ||
        (!x->own && !becomes(x, td_reshape(x->x, c->rank, shape))))
        return NULL;
    x->own = false;
    return x->x;
}

td_tensor *contract_run(struct contraction *c) {
    while (c->n > 1) {
        int first = 0, second = 0;
        if (!(c->n > BEST_MOST ? choose_greedily : choose_best)(c, &first, &second)) {
            call_refuse_function(c->function, STATUS_SHAPE,
                                 "each order of the products has an intermediate result with more than %d axes",
                                 TD_RANK_MAX);
            return contract_abandon(c);
        }
        if (!contract_pair(c, first, second))
            return contract_abandon(c);
    }
    td_tensor *result = finish(c);
    contract_abandon(c);
    return result;
}
