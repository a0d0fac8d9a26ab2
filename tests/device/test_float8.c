/* The f8 formats to the last bit: every byte is decoded, every f16 and bf16 encoded, and of wider dtypes all values where
 * a result changes, with their neighbours. What is expected is found by search among the values that the formats list:
 * their codes are in the order of their values, and the code after the largest number stands for what overflows. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/suite.h"

static const struct format {
    enum dtype dtype;
    int mantissa, bias;
    uint8_t beyond; /* the first code that is no number */
} formats[] = {{DTYPE_F8E4M3, 3, 7, 0x7f}, {DTYPE_F8E5M2, 2, 15, 0x7c}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Of a code without sign, also of the first one beyond, as if the format went on. */
static double format_value(const struct format *format, int code) {
    int exponent = code >> format->mantissa, fraction = code & ((1 << format->mantissa) - 1);
    int implicit = exponent ? 1 << format->mantissa : 0;
    return ldexp(implicit + fraction, (exponent ? exponent : 1) - format->bias - format->mantissa);
}

/* To the nearest, of two as near to the even code. */
static uint8_t format_encode(const struct format *format, long double x) {
    uint8_t sign = signbit(x) ? 0x80 : 0;
    long double magnitude = fabsl(x);
    int low = 0, high = format->beyond;
    if (isnan(x))
        return 0x7f;
    if (magnitude >= format_value(format, high))
        return sign | format->beyond;
    while (high - low > 1) { /* value(low) <= magnitude < value(high) */
        int middle = (low + high) / 2;
        *(format_value(format, middle) <= magnitude ? &low : &high) = middle;
    }
    long double below = magnitude - format_value(format, low), above = format_value(format, high) - magnitude;
    bool up = above < below || (above == below && low % 2);
    return sign | (uint8_t)(up ? high : low);
}

/* ---- a device's casts, byte for byte ---- */

static uint64_t upload_bytes(struct suite *suite, enum dtype dtype, const void *data, int64_t n) {
    struct tensor_type type = {.dtype = dtype, .rank = 1, .shape = {n}};
    uint64_t id = ++suite->next_id;
    struct upload upload;
    struct upload_request request = {.id = id, .type = &type, .sequence = ++suite->sequence};
    cr_assert_eq(session_upload(suite->session, &request, &upload), STATUS_OK);
    uint8_t *chunk = upload_chunk(&upload, 0, upload.bytes);
    memcpy(chunk, data, (size_t)upload.bytes);
    upload_chunk_done(&upload);
    upload_finish(&upload, NULL);
    return id;
}

static void fetch_bytes(struct suite *suite, uint64_t id, void *out, int64_t bytes) {
    struct suite_fetch fetch;
    suite_fetch_start(suite, id, &fetch);
    suite_fetch_wait(suite, &fetch);
    cr_assert_not(fetch.failed, "%s", fetch.failure.message);
    cr_assert_eq(fetch.fetch.bytes, bytes);
    suite_read(suite, &fetch.fetch, out);
    fetch_release(&fetch.fetch);
}

static void cast_bytes(struct suite *suite, enum dtype from, const void *data, int64_t n, enum dtype to, void *out) {
    uint64_t id = upload_bytes(suite, from, data, n), result;
    struct op_request request = {.opcode = OP_CAST, .n_inputs = 1, .inputs = &id, .n_ints = 1, .ints = (int64_t[]){to}};
    cr_assert_eq(suite_submit(suite, &request, &result), STATUS_OK);
    fetch_bytes(suite, result, out, n * (int64_t)dtype_size(to));
    suite_release(suite, id);
    suite_release(suite, result);
}

/* Casts n elements, which are the numbers `value`, to both formats. */
static void expect_encoded(struct suite *suite, enum dtype from, const void *data, int64_t n,
                           const long double *value) {
    uint8_t *got = malloc((size_t)n);
    for (int i = 0; i < FORMATS; i++) {
        cast_bytes(suite, from, data, n, formats[i].dtype, got);
        for (int64_t k = 0; k < n; k++) {
            uint8_t want = format_encode(&formats[i], value[k]);
            cr_assert_eq(got[k], want, "%s %.20Lg (%La) became %s 0x%02x, not 0x%02x", dtype_name(from), value[k],
                         value[k], dtype_name(formats[i].dtype), got[k], want);
        }
    }
    free(got);
}

Test(float8, every_byte_decodes_to_its_value, .timeout = 60) {
    static const enum dtype wider[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32, DTYPE_F64};
    struct suite suite;
    uint8_t all[256], got[8 * 256];
    suite_open(&suite, 1);
    for (int code = 0; code < 256; code++)
        all[code] = (uint8_t)code;
    for (int i = 0; i < FORMATS * 4; i++) {
        const struct format *format = &formats[i / 4];
        struct values *values = values_create(wider[i % 4], 1, (int64_t[]){256});
        cast_bytes(&suite, format->dtype, all, 256, wider[i % 4], got);
        values_decode(values, got);
        for (int code = 0; code < 256; code++) {
            long double value = values->f[code], want = format_value(format, code & 0x7f);
            if ((code & 0x7f) >= format->beyond)
                want = format->dtype == DTYPE_F8E5M2 && (code & 0x7f) == 0x7c ? INFINITY : NAN;
            cr_assert(isnan(want) ? isnan(value) : fabsl(value) == want, "%s 0x%02x is %Lg in %s",
                      dtype_name(format->dtype), code, value, dtype_name(wider[i % 4]));
            cr_assert(isnan(value) || !signbit(value) == !(code & 0x80), "%02x", code);
        }
    }
    suite_close(&suite);
}

Test(float8, known_codes, .timeout = 60) {
    static const float e4m3[] = {448, 0x1p-6F, 0x1p-9F, 1, -2, 240, 464, 465, INFINITY, -1e30F, 0x1p-10F, 0x1.8p-10F};
    static const uint8_t e4m3_codes[] = {0x7e, 8, 1, 0x38, 0xc0, 0x77, 0x7e, 0x7f, 0x7f, 0xff, 0, 1};
    static const float e5m2[] = {57344, 0x1p-14F, 0x1p-16F, 1,        -2,        61439,
                                 61440, INFINITY, -1e30F,   0x1p-17F, 0x1.8p-17F};
    static const uint8_t e5m2_codes[] = {0x7b, 4, 1, 0x3c, 0xc0, 0x7b, 0x7c, 0x7c, 0xfc, 0, 1};
    struct suite suite;
    uint8_t got[12];
    suite_open(&suite, 2);
    cast_bytes(&suite, DTYPE_F32, e4m3, 12, DTYPE_F8E4M3, got);
    cr_assert_arr_eq(got, e4m3_codes, 12);
    cast_bytes(&suite, DTYPE_F32, e5m2, 11, DTYPE_F8E5M2, got);
    cr_assert_arr_eq(got, e5m2_codes, 11);
    suite_close(&suite);
}

Test(float8, every_half_encodes, .timeout = 120) {
    static uint16_t all[65536];
    static const enum dtype halves[] = {DTYPE_F16, DTYPE_BF16};
    struct suite suite;
    suite_open(&suite, 3);
    for (int bits = 0; bits < 65536; bits++)
        all[bits] = (uint16_t)bits;
    for (int i = 0; i < 2; i++) {
        struct values *values = values_create(halves[i], 1, (int64_t[]){65536});
        values_decode(values, all);
        expect_encoded(&suite, halves[i], all, 65536, values->f);
    }
    suite_close(&suite);
}

Test(float8, every_byte_encodes_in_the_other_format, .timeout = 60) {
    struct suite suite;
    uint8_t all[256], got[256];
    suite_open(&suite, 4);
    for (int code = 0; code < 256; code++)
        all[code] = (uint8_t)code;
    for (int i = 0; i < FORMATS; i++) {
        struct values *values = values_create(formats[i].dtype, 1, (int64_t[]){256});
        values_decode(values, all);
        cast_bytes(&suite, formats[i].dtype, all, 256, formats[1 - i].dtype, got);
        for (int code = 0; code < 256; code++)
            cr_assert_eq(got[code], format_encode(&formats[1 - i], values->f[code]), "0x%02x became 0x%02x", code,
                         got[code]);
        cast_bytes(&suite, formats[i].dtype, all, 256, formats[i].dtype, got);
        cr_assert_arr_eq(got, all, 256);
    }
    suite_close(&suite);
}

/* Where results change: each value and each middle between two, from the smallest to beyond the largest. */
static int edges(const struct format *format, double out[512]) {
    int n = 0;
    for (int code = 0; code <= format->beyond; code++) {
        double value = format_value(format, code), next = format_value(format, code + 1);
        out[n++] = value;
        out[n++] = value + (next - value) / 2;
    }
    return n;
}

static const double far_away[] = {0x1p-149, 0x1p-126, 1e-40,  0x1p-24, 0x1p-17, 0x1p16, 1e10,
                                  1e38,     3.4e38,   1e-300, 1e300,   5e-324,  1.7e308};
enum { FAR = sizeof far_away / sizeof *far_away, EDGES_MAX = 2 * (3 * 512 + FAR + 3) };

Test(float8, edges_and_their_neighbours_in_f32, .timeout = 60) {
    struct suite suite;
    static float given[EDGES_MAX];
    static long double value[EDGES_MAX];
    suite_open(&suite, 5);
    for (int i = 0; i < FORMATS; i++) {
        double edge[512];
        int n = 0, count = edges(&formats[i], edge);
        for (int k = 0; k < count; k++) {
            given[n++] = (float)edge[k];
            given[n++] = nextafterf((float)edge[k], INFINITY);
            given[n++] = nextafterf((float)edge[k], 0);
        }
        for (int k = 0; k < FAR; k++)
            given[n++] = (float)far_away[k];
        given[n++] = INFINITY;
        given[n++] = NAN;
        for (int k = 0; k < n; k++)
            given[n + k] = -given[k];
        for (int k = 0; k < 2 * n; k++)
            value[k] = given[k];
        expect_encoded(&suite, DTYPE_F32, given, 2 * n, value);
    }
    suite_close(&suite);
}

/* A neighbour of a middle in f64 is the middle itself in f32: rounded twice, it would go the wrong way. */
Test(float8, f64_is_rounded_once, .timeout = 60) {
    struct suite suite;
    static double given[EDGES_MAX];
    static long double value[EDGES_MAX];
    suite_open(&suite, 6);
    for (int i = 0; i < FORMATS; i++) {
        double edge[512];
        int n = 0, count = edges(&formats[i], edge);
        for (int k = 0; k < count; k++) {
            given[n++] = edge[k];
            given[n++] = nextafter(edge[k], INFINITY);
            given[n++] = nextafter(edge[k], 0);
        }
        for (int k = 0; k < FAR; k++)
            given[n++] = far_away[k];
        given[n++] = INFINITY;
        given[n++] = NAN;
        for (int k = 0; k < n; k++)
            given[n + k] = -given[k];
        for (int k = 0; k < 2 * n; k++)
            value[k] = given[k];
        expect_encoded(&suite, DTYPE_F64, given, 2 * n, value);
    }
    suite_close(&suite);
}

Test(float8, integers_are_rounded_once, .timeout = 60) {
    static const int64_t far[] = {61439, 61440, 61441, 65535, 65536, 1 << 30, INT32_MAX, INT32_MIN};
    struct suite suite;
    static int64_t wide[20000];
    static int32_t narrow[20000];
    static long double value[20000];
    int n = 0;
    suite_open(&suite, 7);
    for (int i = -9000; i <= 9000; i++)
        wide[n++] = i;
    for (int i = 0; i < 8; i++) {
        wide[n++] = far[i];
        wide[n++] = -far[i] > INT32_MAX ? 0 : -far[i];
    }
    for (int i = 0; i < n; i++) {
        narrow[i] = (int32_t)wide[i];
        value[i] = (long double)wide[i];
    }
    expect_encoded(&suite, DTYPE_I32, narrow, n, value);
    for (int bit = 14; bit < 63; bit++) { /* the sticky bits of what f64 cannot hold */
        wide[n] = (INT64_C(1) << bit) + 1;
        wide[n + 1] = -(INT64_C(1) << bit) - 1;
        value[n] = (long double)wide[n];
        value[n + 1] = (long double)wide[n + 1];
        n += 2;
    }
    expect_encoded(&suite, DTYPE_I64, wide, n, value);
    suite_close(&suite);
}

Test(float8, random_floats_encode, .timeout = 120) {
    enum { N = 200000 };
    struct suite suite;
    float *given = malloc(N * sizeof *given);
    long double *value = malloc(N * sizeof *value);
    suite_open(&suite, 8);
    for (int k = 0; k < N; k++) {
        /* any bits, or exponents from 2^-20 to 2^19 */
        uint32_t bits = (uint32_t)suite_random(&suite);
        if (k % 4)
            bits = (bits & 0x807fffff) | (uint32_t)(107 + suite_below(&suite, 40)) << 23;
        memcpy(&given[k], &bits, sizeof bits);
        value[k] = given[k];
    }
    expect_encoded(&suite, DTYPE_F32, given, N, value);
    free(given);
    free(value);
    suite_close(&suite);
}

static uint64_t moved(struct suite *suite, unsigned opcode, uint64_t x, unsigned n_ints, const int64_t *ints) {
    struct op_request request = {.opcode = opcode, .n_inputs = 1, .inputs = &x, .n_ints = n_ints, .ints = ints};
    uint64_t result;
    cr_assert_eq(suite_submit(suite, &request, &result), STATUS_OK);
    return result;
}

/* What moves elements does not look at them: NaN keep their bits. */
Test(float8, bytes_survive_being_moved, .timeout = 60) {
    struct suite suite;
    suite_open(&suite, 9);
    for (int i = 0; i < FORMATS; i++) {
        uint8_t all[256], got[512];
        for (int code = 0; code < 256; code++)
            all[code] = (uint8_t)code;
        uint64_t x = upload_bytes(&suite, formats[i].dtype, all, 256), joined;
        uint64_t turned = moved(&suite, OP_SLICE, x, 3, (int64_t[]){OP_SLICE_NONE, OP_SLICE_NONE, -1});
        turned = moved(&suite, OP_RESHAPE, turned, 2, (int64_t[]){16, 16});
        turned = moved(&suite, OP_MATRIX_TRANSPOSE, turned, 0, NULL);
        turned = moved(&suite, OP_RESHAPE, turned, 1, (int64_t[]){-1});
        struct op_request request = {
            .opcode = OP_CONCAT, .n_inputs = 2, .inputs = (uint64_t[]){turned, x}, .n_ints = 1, .ints = (int64_t[]){0}};
        cr_assert_eq(suite_submit(&suite, &request, &joined), STATUS_OK);
        fetch_bytes(&suite, joined, got, 512);
        for (int k = 0; k < 256; k++) {
            cr_assert_eq(got[k], 255 - (k % 16 * 16 + k / 16));
            cr_assert_eq(got[256 + k], k);
        }
    }
    suite_close(&suite);
}
