/* Attention. The gradient takes the results of the forward operation. */
#include <math.h>
#include <string.h>

#include "tests/device/cases.h"

enum { HEADS_AXES = 2 };

struct sizes {
    int64_t batch, kv_heads, group, n, m, d, e;
    int leading; /* axes before the matrices: 0 to 2 */
};

static int shape_of(const struct sizes *s, bool keys, int64_t rows, int64_t columns, int64_t *shape) {
    int rank = 0;
    if (s->leading > 1)
        shape[rank++] = s->batch;
    if (s->leading > 0)
        shape[rank++] = keys ? s->kv_heads : s->kv_heads * s->group;
    shape[rank++] = rows;
    shape[rank++] = columns;
    return rank;
}

/* A mask that broadcasts to the scores: bool, or floating with -inf here and there, of a dtype whose numbers f32 has. */
static struct sample mask_random(struct suite *suite, enum dtype dtype, const struct sizes *s) {
    static const enum dtype others[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32};
    int64_t shape[VALUES_RANK_MAX], narrow[VALUES_RANK_MAX];
    int rank = shape_of(s, false, s->n, s->m, shape);
    rank = suite_narrower(suite, rank, shape, narrow);
    if (suite_chance(suite, 50)) {
        struct values *values = values_create(DTYPE_BOOL, rank, narrow);
        for (int64_t k = 0; k < values->count; k++)
            values->i[k] = suite_chance(suite, 70);
        return suite_upload(suite, values);
    }
    struct values *values =
        values_create(suite_chance(suite, 50) ? dtype : others[suite_below(suite, 3)], rank, narrow);
    suite_fill(suite, values, FILL_ORDINARY);
    for (int64_t k = 0; k < values->count; k++)
        values->f[k] = suite_chance(suite, 10) ? -INFINITY : values->f[k];
    return suite_upload(suite, values);
}

static void attention_once(struct suite *suite, const struct op_case *row, enum dtype dtype, const struct sizes *s,
                           bool is_causal) {
    bool back = row->opcode == OP_ATTENTION_GRAD, masked = suite_chance(suite, 50);
    int64_t q[VALUES_RANK_MAX], k[VALUES_RANK_MAX], v[VALUES_RANK_MAX], y[VALUES_RANK_MAX];
    int rank = shape_of(s, false, s->n, s->d, q);
    shape_of(s, true, s->m, s->d, k);
    shape_of(s, true, s->m, s->e, v);
    shape_of(s, false, s->n, s->e, y);
    struct sample in[7], gradients[3];
    in[0] = suite_input(suite, dtype, rank, y, FILL_ORDINARY);
    in[1] = suite_input(suite, dtype, rank, q, FILL_NEAR_ONE);
    in[2] = suite_input(suite, dtype, rank, k, FILL_NEAR_ONE);
    in[3] = suite_input(suite, dtype, rank, v, FILL_ORDINARY);
    in[6] = mask_random(suite, dtype, s);
    const struct sample *inputs[] = {&in[1], &in[2], &in[3], &in[6]};
    struct suite_call call = {.opcode = OP_ATTENTION, .n_inputs = 3u + masked, .inputs = inputs};
    call.attributes = SUITE_ATTRIBUTES(attention, .is_causal = is_causal, .scale = suite_chance(suite, 50) ? 0 : 0.375);
    suite_run_several(suite, &call, &in[4], 2);
    suite_adopt(suite, &in[4]);
    suite_adopt(suite, &in[5]);
    if (back) {
        const struct sample *all[] = {&in[0], &in[1], &in[2], &in[3], &in[4], &in[5], &in[6]};
        call.opcode = OP_ATTENTION_GRAD;
        call.n_inputs = 6u + masked;
        call.inputs = all;
        suite_run_several(suite, &call, gradients, 3);
        for (int i = 0; i < 3; i++)
            case_settle(suite, &gradients[i]);
    }
    for (int i = 0; i < 7; i++)
        suite_free(suite, &in[i]);
}

static void case_attention(struct suite *suite, const struct op_case *row) {
    for (int i = 0; i < SUITE_REPEAT(80); i++) {
        struct sizes s = {.batch = suite_below(suite, 3),
                          .kv_heads = 1 + suite_below(suite, 3),
                          .group = 1 + suite_below(suite, 3),
                          .n = suite_below(suite, 20),
                          .m = suite_below(suite, 20),
                          .d = 1 + suite_below(suite, 20),
                          .e = 1 + suite_below(suite, 20),
                          .leading = (int)suite_below(suite, HEADS_AXES + 1)};
        attention_once(suite, row, op_case_dtype(suite, row), &s, suite_chance(suite, 40));
    }
    /* Several blocks of rows and of keys, wide heads, one row, and many heads. */
    static const struct sizes large[] = {{1, 1, 2, 70, 300, 9, 8, 1},
                                         {1, 1, 1, 3, 270, 200, 256, 2},
                                         {2, 2, 1, 1, 520, 64, 64, 2},
                                         {4, 4, 1, 65, 40, 5, 6, 2},
                                         {1, 2, 1, 66, 20, 100, 128, 2}};
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        for (int dtype = DTYPE_F16; dtype <= DTYPE_F64; dtype++)
            attention_once(suite, row, (enum dtype)dtype, &large[i], suite_chance(suite, 40));
    /* Causal, with blocks of which some are hidden whole and some in part; more keys than rows, and more rows than keys; heads that share keys
     * and whose keys have odd extents, and the widest ones. */
    static const struct sizes causal[] = {{1, 1, 1, 200, 330, 16, 16, 1}, {1, 2, 2, 330, 259, 7, 20, 2},
                                          {2, 2, 1, 129, 64, 64, 33, 2},  {1, 1, 1, 330, 300, 64, 80, 1},
                                          {1, 1, 2, 40, 70, 256, 256, 1}, {1, 1, 1, 70, 600, 256, 8, 1},
                                          {1, 1, 1, 15, 300, 8, 8, 1}};
    for (size_t i = 0; i < sizeof causal / sizeof *causal; i++)
        for (int dtype = DTYPE_F16; dtype <= DTYPE_F64; dtype++)
            attention_once(suite, row, (enum dtype)dtype, &causal[i], true);
}

const struct op_case op_case_attention = {case_attention, OP_ATTENTION, FILL_ORDINARY};
const struct op_case op_case_attention_grad = {case_attention, OP_ATTENTION_GRAD, FILL_ORDINARY};
