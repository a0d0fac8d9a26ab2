#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/reference.h"

/* One matrix of each operand and of the result, by their first elements. */
struct product {
    const struct values *a, *b;
    struct values *out;
    int64_t m, n, k;
};

static void product_float(const struct product *p, int64_t at_a, int64_t at_b, int64_t at_out) {
    for (int64_t row = 0; row < p->m; row++) {
        for (int64_t column = 0; column < p->n; column++) {
            long double sum = 0, magnitude = 0;
            for (int64_t i = 0; i < p->k; i++) {
                long double term = p->a->f[at_a + row * p->k + i] * p->b->f[at_b + i * p->n + column];
                sum += term;
                magnitude += fabsl(term);
            }
            p->out->f[at_out + row * p->n + column] = value_round(p->out->dtype, sum);
            p->out->scale[at_out + row * p->n + column] = magnitude;
        }
    }
}

static void product_complex(const struct product *p, int64_t at_a, int64_t at_b, int64_t at_out) {
    const struct values *a = p->a, *b = p->b;
    for (int64_t row = 0; row < p->m; row++) {
        for (int64_t column = 0; column < p->n; column++) {
            long double re = 0, im = 0, magnitude = 0;
            for (int64_t i = 0; i < p->k; i++) {
                int64_t x = at_a + row * p->k + i, y = at_b + i * p->n + column;
                re += a->f[x] * b->f[y] - a->im[x] * b->im[y];
                im += a->f[x] * b->im[y] + a->im[x] * b->f[y];
                magnitude += hypotl(a->f[x], a->im[x]) * hypotl(b->f[y], b->im[y]);
            }
            int64_t at = at_out + row * p->n + column;
            p->out->f[at] = value_round(p->out->dtype, re);
            p->out->im[at] = value_round(p->out->dtype, im);
            p->out->scale[at] = magnitude;
        }
    }
}

static void product_integer(const struct product *p, int64_t at_a, int64_t at_b, int64_t at_out) {
    for (int64_t row = 0; row < p->m; row++) {
        for (int64_t column = 0; column < p->n; column++) {
            uint64_t sum = 0;
            for (int64_t i = 0; i < p->k; i++)
                sum += (uint64_t)p->a->i[at_a + row * p->k + i] * (uint64_t)p->b->i[at_b + i * p->n + column];
            p->out->i[at_out + row * p->n + column] = value_wrap(p->out->dtype, (int64_t)sum);
        }
    }
}

/* An operand as [batch…, rows, columns] in the common dtype. */
static struct values *matrix_presented(const struct values *x, enum dtype dtype, int batch_rank, const int64_t *batch,
                                       int64_t rows, int64_t columns) {
    int64_t shape[VALUES_RANK_MAX], own_rank = x->rank > 2 ? x->rank : 2;
    struct values *cast = reference_cast(x, dtype);
    cast->shape[own_rank - 2] = rows;
    cast->shape[own_rank - 1] = columns;
    cast->rank = (int)own_rank;
    memcpy(shape, batch, (size_t)batch_rank * sizeof *shape);
    shape[batch_rank] = rows;
    shape[batch_rank + 1] = columns;
    struct values *wide = reference_broadcast_to(cast, batch_rank + 2, shape);
    values_destroy(cast);
    return wide;
}

static bool whole_numbers(const struct values *x) {
    for (int64_t k = 0; k < x->count; k++)
        if (x->f[k] != rintl(x->f[k]))
            return false;
    return true;
}

void reference_loosen_f8(struct values *out, const struct values *a, const struct values *b) {
    const char *device = getenv("TENSORD_TEST_DEVICE");
    if (!dtype_is_f8(a->dtype) || !dtype_is_f8(b->dtype) || !device || strncmp(device, "cuda", 4) != 0 ||
        (whole_numbers(a) && whole_numbers(b)))
        return;
    for (int64_t k = 0; k < out->count; k++)
        out->scale[k] *= 0x1p10L;
}

struct values *reference_matmul(const struct reference_request *r) {
    const struct values *x = r->inputs[0], *y = r->inputs[1];
    if (r->opcode == OP_LINEAR)
        return reference_linear(r);
    if (x->rank == 0 || y->rank == 0)
        return NULL;
    int64_t m = x->rank > 1 ? x->shape[x->rank - 2] : 1, k = x->shape[x->rank - 1];
    int64_t n = y->rank > 1 ? y->shape[y->rank - 1] : 1, k_other = y->shape[y->rank > 1 ? y->rank - 2 : 0];
    int rank;
    int64_t shape[VALUES_RANK_MAX];
    bool f8 = value_is_f8(x->dtype) && value_is_f8(y->dtype);
    enum dtype dtype = f8 ? DTYPE_F32 : reference_promote(x->dtype, y->dtype);
    if (k != k_other || dtype == DTYPE_BOOL || dtype == DTYPE_INVALID ||
        !reference_broadcast(x->rank > 2 ? x->rank - 2 : 0, x->shape, y->rank > 2 ? y->rank - 2 : 0, y->shape, &rank,
                             shape))
        return NULL;
    struct product product = {.m = m, .n = n, .k = k};
    struct values *a = matrix_presented(x, dtype, rank, shape, m, k);
    struct values *b = matrix_presented(y, dtype, rank, shape, k, n);
    int out_rank = rank;
    int64_t out_shape[VALUES_RANK_MAX], batches = 1;
    for (int i = 0; i < rank; i++)
        batches *= out_shape[i] = shape[i];
    if (x->rank > 1)
        out_shape[out_rank++] = m;
    if (y->rank > 1)
        out_shape[out_rank++] = n;
    struct values *out = values_create(dtype, out_rank, out_shape);
    if (out->f)
        values_scaled(out, (double)k);
    product.a = a, product.b = b, product.out = out;
    for (int64_t i = 0; i < batches; i++)
        (out->im  ? product_complex
         : out->f ? product_float
                  : product_integer)(&product, i * m * k, i * k * n, i * m * n);
    reference_loosen_f8(out, x, y);
    values_destroy(a);
    values_destroy(b);
    return out;
}
