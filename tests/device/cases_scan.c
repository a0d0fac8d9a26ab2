/* Scans. */
#include <math.h>

#include "tests/device/cases.h"

static void scan_once(struct suite *suite, const struct op_case *row, struct sample *x, int64_t axis) {
    const struct sample *input = x;
    struct op_packed attributes = SUITE_ATTRIBUTES(scan, .axis = axis);
    if (row->opcode == OP_CUMULATIVE_SUM || row->opcode == OP_CUMULATIVE_PROD)
        attributes = SUITE_ATTRIBUTES(cumulative, .axis = axis, .include_initial = suite_chance(suite, 40));
    struct sample results[2];
    unsigned n = op_info(row->opcode)->n_outputs;
    suite_run_several(
        suite, &(struct suite_call){.opcode = row->opcode, .n_inputs = 1, .inputs = &input, .attributes = attributes},
        results, n);
    for (unsigned i = 0; i < n; i++)
        case_settle(suite, &results[i]);
    suite_free(suite, x);
}

/* Infinities and NaN in the midst of numbers. */
static void scan_specials(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    for (int i = 0; i < 8; i++) {
        struct values *values = values_create(dtype, 2, (int64_t[]){21, 21});
        suite_fill(suite, values, FILL_NEAR_ONE);
        for (int k = 0; k < 5; k++) {
            values->f[suite_below(suite, values->count)] = i & 1 ? INFINITY : 0.5L;
            values->f[suite_below(suite, values->count)] = i & 2 ? -INFINITY : -0.0L;
            values->f[suite_below(suite, values->count)] = i & 4 ? NAN : 0;
        }
        values->f[0] = i & 2 ? -INFINITY : 1;
        struct sample x = suite_upload(suite, values);
        scan_once(suite, row, &x, i & 1);
    }
}

/* Ascending and descending, over a wide range. */
static void scan_wide(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    for (int i = 0; i < 4; i++) {
        struct values *values = values_create(dtype, 2, (int64_t[]){40, 40});
        for (int64_t k = 0; k < values->count; k++)
            values->f[k] = value_round(dtype, (long double)((i & 1 ? k / 40 : k % 40) * 13 - 200) * (i & 2 ? 1 : -1));
        struct sample x = suite_upload(suite, values);
        scan_once(suite, row, &x, !(i & 1));
    }
}

static void case_scan(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        if (!op_case_takes(row, dtype))
            continue;
        for (int i = 0; i < case_length_count; i++) {
            struct sample x = suite_sample(suite, dtype, 1, &case_lengths[i], row->fill);
            scan_once(suite, row, &x, 0);
            x = suite_sample(suite, dtype, 2, (int64_t[]){3, case_lengths[i]}, row->fill);
            scan_once(suite, row, &x, 1);
            x = suite_sample(suite, dtype, 2, (int64_t[]){case_lengths[i], 5}, row->fill);
            scan_once(suite, row, &x, 0);
        }
        for (int i = 0; i < SUITE_REPEAT(40); i++) {
            int64_t shape[VALUES_RANK_MAX];
            int rank;
            do
                rank = suite_shape(suite, 5, shape);
            while (rank == 0);
            struct sample x = suite_input(suite, dtype, rank, shape,
                                          row->fill == FILL_ANY && suite_chance(suite, 50) ? FILL_COUNT : row->fill);
            scan_once(suite, row, &x, suite_below(suite, 2 * rank) - rank);
        }
        /* A complex product with an infinity is NaN or infinite by the order of its steps. */
        if (value_is_float(dtype) && !(value_is_complex(dtype) && row->opcode == OP_CUMULATIVE_PROD))
            scan_specials(suite, row, dtype);
        if (value_is_float(dtype) && row->opcode != OP_CUMULATIVE_PROD)
            scan_wide(suite, row, dtype);
    }
    int64_t n = SUITE_REPEAT(60000), wide[] = {SUITE_REPEAT(300), 1037};
    struct sample x = suite_sample(suite, DTYPE_F32, 1, &n, row->fill); /* one line for several blocks of threads */
    scan_once(suite, row, &x, 0);
    for (int axis = 0; axis < 2; axis++) {
        x = suite_sample(suite, DTYPE_F32, 2, wide, row->fill);
        scan_once(suite, row, &x, axis);
    }
}

const struct op_case op_case_cumulative_sum = {case_scan, OP_CUMULATIVE_SUM, FILL_ORDINARY};
const struct op_case op_case_cumulative_prod = {case_scan, OP_CUMULATIVE_PROD, FILL_NEAR_ONE};
const struct op_case op_case_cummax = {case_scan, OP_CUMMAX, FILL_ANY};
const struct op_case op_case_cummin = {case_scan, OP_CUMMIN, FILL_ANY};
const struct op_case op_case_logcumsumexp = {case_scan, OP_LOGCUMSUMEXP, FILL_ORDINARY};
