/* Fourier transforms. */
#include "tests/device/cases.h"

static void fft_once(struct suite *suite, const struct op_case *row, struct sample *x, struct fft_attributes given) {
    struct op_packed packed;
    fft_attributes_write(&given, &packed);
    struct sample result = suite_attributes(suite, row->opcode, x, packed);
    case_settle(suite, &result);
    suite_free(suite, x);
}

/* The elements that a line needs for a transform of length n. */
static int64_t extent_for(const struct op_case *row, int64_t n) {
    return row->opcode == OP_IRFFT ? n / 2 + 1 : n;
}

/* Each short length, and products and powers of primes, many lines and one. */
static void fft_lengths(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    static const int64_t longer[] = {81, 97, 100, 125, 128, 143, 210, 256, 341, 343, 367, 500, 512, 961, 1001, 1024};
    int64_t norms = 3;
    for (int64_t i = 1; i < 40 + (int64_t)(sizeof longer / sizeof *longer); i++) {
        int64_t n = i < 40 ? i : longer[i - 40], extent = extent_for(row, n);
        for (int64_t lines = 1; lines < 20; lines += lines == 1 ? 4 : 14) {
            struct sample x = suite_sample(suite, dtype, 2, (int64_t[]){lines, extent}, row->fill);
            fft_once(suite, row, &x,
                     (struct fft_attributes){.n = n, .axis = -1, .norm = (enum op_fft_norm)suite_below(suite, norms)});
        }
    }
}

/* Lines that are taken as matrices, of small factors and of a large one; lines beside each other. */
static void fft_long(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    static const int64_t lengths[] = {2000, 4096, 4099, 6000};
    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++) {
        int64_t n = lengths[i], extent = extent_for(row, n);
        struct sample x = suite_sample(suite, dtype, 1, &extent, row->fill);
        fft_once(suite, row, &x, (struct fft_attributes){.n = n});
    }
    struct sample x = suite_sample(suite, dtype, 3, (int64_t[]){2, extent_for(row, 360), 37}, row->fill);
    fft_once(suite, row, &x, (struct fft_attributes){.axis = 1, .n = 360});
    x = suite_sample(suite, dtype, 3, (int64_t[]){1, extent_for(row, 1013), 3}, row->fill);
    fft_once(suite, row, &x, (struct fft_attributes){.axis = 1, .n = 1013});
    x = suite_sample(suite, dtype, 2, (int64_t[]){extent_for(row, 600), 2}, row->fill);
    fft_once(suite, row, &x, (struct fft_attributes){.axis = 0, .n = 600});
}

/* Lines that are transformed by themselves, as a matrix in the first-level cache, with lengths of various factors: of the extent that they need,
 * cut, and filled up, which is done otherwise. Lines beside each other whose results begin at addresses of all kinds. */
static void fft_shapes(struct suite *suite, const struct op_case *row, enum dtype dtype) {
    static const int64_t lengths[] = {512, 768, 1280, 1536, 1792, 2048, 3328, 4096};
    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++) {
        for (int64_t more = -1; more <= 1; more++) {
            int64_t n = lengths[i], lines = more ? 2 : 18;
            struct sample x = suite_sample(suite, dtype, 2, (int64_t[]){lines, extent_for(row, n) + more}, row->fill);
            fft_once(suite, row, &x,
                     (struct fft_attributes){.n = n, .axis = 1, .norm = (enum op_fft_norm)suite_below(suite, 3)});
        }
    }
    static const int64_t inner[] = {16, 17, 32, 36, 40};
    static const int64_t beside[] = {6, 12, 15, 20, 32, 77, 512};
    for (int i = 0; i < (int)(sizeof beside / sizeof *beside); i++) {
        for (int j = 0; j < (int)(sizeof inner / sizeof *inner); j++) {
            int64_t n = beside[i];
            struct sample x = suite_sample(suite, dtype, 3, (int64_t[]){2, extent_for(row, n), inner[j]}, row->fill);
            fft_once(suite, row, &x,
                     (struct fft_attributes){.n = n, .axis = 1, .norm = (enum op_fft_norm)suite_below(suite, 3)});
        }
    }
}

static void case_fft(struct suite *suite, const struct op_case *row) {
    for (enum dtype dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        if (!op_case_takes(row, dtype))
            continue;
        fft_lengths(suite, row, dtype);
        fft_long(suite, row, dtype);
        fft_shapes(suite, row, dtype);
        for (int i = 0; i < SUITE_REPEAT(60); i++) {
            int64_t shape[VALUES_RANK_MAX];
            int rank;
            do
                rank = suite_shape(suite, 5, shape);
            while (rank == 0);
            int64_t axis = suite_below(suite, rank);
            shape[axis] += 1 + suite_below(suite, 30);
            /* Cut, filled up, or as it is. */
            int64_t n = suite_chance(suite, 40) && (row->opcode != OP_IRFFT || shape[axis] > 1)
                            ? 0
                            : 1 + suite_below(suite, 2 * shape[axis]);
            struct sample x = suite_input(suite, dtype, rank, shape, row->fill);
            fft_once(suite, row, &x,
                     (struct fft_attributes){.n = n,
                                             .axis = suite_chance(suite, 50) ? axis : axis - rank,
                                             .norm = (enum op_fft_norm)suite_below(suite, 3)});
        }
    }
}

const struct op_case op_case_fft = {case_fft, OP_FFT, FILL_ORDINARY};
const struct op_case op_case_ifft = {case_fft, OP_IFFT, FILL_ORDINARY};
const struct op_case op_case_rfft = {case_fft, OP_RFFT, FILL_ORDINARY};
const struct op_case op_case_irfft = {case_fft, OP_IRFFT, FILL_ORDINARY};
