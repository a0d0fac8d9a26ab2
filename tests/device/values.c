#include "tests/device/values.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* precision counts the implicit bit; exponents are those of 1.xxx * 2^e. A format without infinities has numbers at its top
 * exponent, all but the last one, which is NaN. */
struct float_format {
    int precision, exponent_min, exponent_max;
    bool finite;
};

static const struct float_format float_formats[DTYPE_COUNT] = {
    [DTYPE_F16] = {11, -14, 15, false},   [DTYPE_BF16] = {8, -126, 127, false},
    [DTYPE_F32] = {24, -126, 127, false}, [DTYPE_F64] = {53, -1022, 1023, false},
    [DTYPE_F8E4M3] = {4, -6, 8, true},    [DTYPE_F8E5M2] = {3, -14, 15, false},
    [DTYPE_C64] = {24, -126, 127, false}, [DTYPE_C128] = {53, -1022, 1023, false},
};

static const struct {
    const char *name;
    size_t size;
} value_dtypes[DTYPE_COUNT] = {
    [DTYPE_BOOL] = {"bool", 1}, [DTYPE_U8] = {"u8", 1},         [DTYPE_I8] = {"i8", 1},
    [DTYPE_I16] = {"i16", 2},   [DTYPE_I32] = {"i32", 4},       [DTYPE_I64] = {"i64", 8},
    [DTYPE_F16] = {"f16", 2},   [DTYPE_BF16] = {"bf16", 2},     [DTYPE_F32] = {"f32", 4},
    [DTYPE_F64] = {"f64", 8},   [DTYPE_F8E4M3] = {"f8e4m3", 1}, [DTYPE_F8E5M2] = {"f8e5m2", 1},
    [DTYPE_U16] = {"u16", 2},   [DTYPE_U32] = {"u32", 4},       [DTYPE_U64] = {"u64", 8},
    [DTYPE_C64] = {"c64", 8},   [DTYPE_C128] = {"c128", 16},
};

bool value_is_float(enum dtype dtype) {
    return float_formats[dtype].precision != 0;
}

bool value_is_f8(enum dtype dtype) {
    return value_is_float(dtype) && value_dtypes[dtype].size == 1;
}

bool value_is_complex(enum dtype dtype) {
    return value_name(dtype)[0] == 'c';
}

size_t value_size(enum dtype dtype) {
    return value_dtypes[dtype].size;
}

const char *value_name(enum dtype dtype) {
    return value_dtypes[dtype].name;
}

int value_bits(enum dtype dtype) {
    return (int)value_dtypes[dtype].size * 8;
}

bool value_is_unsigned(enum dtype dtype) {
    return value_name(dtype)[0] == 'u';
}

long double value_number(enum dtype dtype, int64_t element) {
    return (long double)element + (dtype == DTYPE_U64 && element < 0 ? 0x1p64L : 0); /* 64 bits: exact */
}

int value_order(enum dtype dtype, int64_t a, int64_t b) {
    long double x = value_number(dtype, a), y = value_number(dtype, b);
    return (x > y) - (x < y);
}

int64_t value_low(enum dtype dtype) {
    if (dtype == DTYPE_BOOL || value_is_unsigned(dtype))
        return 0;
    return dtype == DTYPE_I64 ? INT64_MIN : -((int64_t)1 << (value_bits(dtype) - 1));
}

int64_t value_high(enum dtype dtype) {
    if (dtype == DTYPE_BOOL)
        return 1;
    if (value_is_unsigned(dtype))
        return dtype == DTYPE_U64 ? -1 : ((int64_t)1 << value_bits(dtype)) - 1;
    return dtype == DTYPE_I64 ? INT64_MAX : ((int64_t)1 << (value_bits(dtype) - 1)) - 1;
}

int64_t value_wrap(enum dtype dtype, int64_t value) {
    if (dtype == DTYPE_BOOL)
        return value != 0;
    if (dtype == DTYPE_I64 || dtype == DTYPE_U64)
        return value;
    uint64_t modulus = (uint64_t)1 << value_bits(dtype);
    int64_t low_bits = (int64_t)((uint64_t)value & (modulus - 1));
    return low_bits > value_high(dtype) ? low_bits - (int64_t)modulus : low_bits;
}

/* The reference needs millions of them, and ldexpl() takes longer than all the rest of a rounding. */
enum { POWER_MIN = -1100, POWER_MAX = 1100 };

static long double powers[POWER_MAX - POWER_MIN + 1];

__attribute__((constructor)) static void powers_make(void) {
    for (int exponent = POWER_MIN; exponent <= POWER_MAX; exponent++)
        powers[exponent - POWER_MIN] = ldexpl(1, exponent);
}

long double value_power(int exponent) {
    return powers[exponent - POWER_MIN];
}

/* e of ±1.xxx * 2^e; less than any format's for 0, more for what is not finite. ilogbl() takes long, too. */
static int exponent_of(long double value) {
#if LDBL_MANT_DIG == 64
    uint16_t sign_and_exponent;
    memcpy(&sign_and_exponent, (const char *)&value + 8, sizeof sign_and_exponent);
    return (sign_and_exponent & 0x7fff) - 0x3fff;
#else
    return value == 0 ? INT_MIN : isfinite(value) ? ilogbl(value) : INT_MAX;
#endif
}

long double value_max(enum dtype dtype) {
    const struct float_format *format = &float_formats[dtype];
    return (2.0L - value_power(format->finite ? 2 : 1) * value_power(-format->precision)) *
           value_power(format->exponent_max);
}

long double value_min_normal(enum dtype dtype) {
    return value_power(float_formats[dtype].exponent_min);
}

int value_exponent_max(enum dtype dtype) {
    return float_formats[dtype].exponent_max;
}

/* Of the last place of a number of this format, the exponent. */
static int place_of(const struct float_format *format, long double value) {
    int exponent = exponent_of(value);
    if (exponent < format->exponent_min || exponent >= LDBL_MAX_EXP)
        exponent = format->exponent_min;
    return exponent - format->precision + 1;
}

long double value_ulp(enum dtype dtype, long double value) {
    int place = place_of(&float_formats[dtype], value);
    return value_power(place < POWER_MAX ? place : POWER_MAX);
}

long double value_round(enum dtype dtype, long double value) {
    /* The compiler's conversions round to the nearest, too, and to infinity beyond the largest. */
    if (dtype == DTYPE_F32 || dtype == DTYPE_C64)
        return (float)value;
    if (dtype == DTYPE_F64 || dtype == DTYPE_C128)
        return (double)value;
    long double beyond = float_formats[dtype].finite ? NAN : INFINITY;
    if (isinf(value))
        return copysignl(beyond, value);
    if (isnan(value) || value == 0)
        return value;
    if (exponent_of(value) > float_formats[dtype].exponent_max)
        return copysignl(beyond, value);
    /* All steps but the sum with this number are exact, and that rounds to the nearest whole number. */
    static const long double whole = 1.5L / LDBL_EPSILON;
    int place = place_of(&float_formats[dtype], value);
    long double rounded = (value * value_power(-place) + whole - whole) * value_power(place);
    if (fabsl(rounded) > value_max(dtype))
        return copysignl(beyond, value);
    return copysignl(rounded, value);
}

/* ---- tensors ---- */

static void *values_memory(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fputs("the reference is out of memory\n", stderr);
        abort();
    }
    return memory;
}

static struct values *values_all;

static void values_link(struct values *values) {
    values->next = values_all;
    values->previous = &values_all;
    if (values->next)
        values->next->previous = &values->next;
    values_all = values;
}

struct values *values_create(enum dtype dtype, int rank, const int64_t *shape) {
    struct values *values = values_memory(1, sizeof *values);
    values_link(values);
    values->dtype = dtype;
    values->rank = rank;
    values->count = 1;
    for (int i = 0; i < rank; i++) {
        values->shape[i] = shape[i];
        values->count *= shape[i];
    }
    if (value_is_complex(dtype))
        values->im = values_memory((size_t)values->count, sizeof *values->im);
    if (value_is_float(dtype))
        values->f = values_memory((size_t)values->count, sizeof *values->f);
    else
        values->i = values_memory((size_t)values->count, sizeof *values->i);
    return values;
}

void values_scaled(struct values *values, double terms) {
    values->scale = values_memory((size_t)values->count, sizeof *values->scale);
    values->terms = terms;
}

struct values *values_copy(const struct values *values) {
    struct values *copy = values_create(values->dtype, values->rank, values->shape);
    if (values->f)
        memcpy(copy->f, values->f, (size_t)values->count * sizeof *values->f);
    else
        memcpy(copy->i, values->i, (size_t)values->count * sizeof *values->i);
    if (values->im)
        memcpy(copy->im, values->im, (size_t)values->count * sizeof *values->im);
    return copy;
}

void values_put(struct values *values, int64_t at, const struct values *x, int64_t from) {
    if (values->i)
        values->i[at] = x->i[from];
    if (values->f)
        values->f[at] = x->f[from];
    if (values->im)
        values->im[at] = x->im[from];
}

void values_destroy(struct values *values) {
    if (!values)
        return;
    free(values->i);
    free(values->f);
    free(values->im);
    free(values->scale);
    *values->previous = values->next;
    if (values->next)
        values->next->previous = values->previous;
    free(values);
}

void values_destroy_all(void) {
    while (values_all)
        values_destroy(values_all);
}

size_t values_bytes(const struct values *values) {
    return (size_t)values->count * value_size(values->dtype);
}

/* The bits of a representable number in a format of 16 or 8 bits. */
static uint16_t narrow_encode(enum dtype dtype, long double value) {
    const struct float_format *format = &float_formats[dtype];
    int fraction = format->precision - 1, bias = 1 - format->exponent_min;
    unsigned sign = signbit(value) ? 1u << (8 * value_size(dtype) - 1) : 0, top = (unsigned)(bias * 2 + 1) << fraction;
    if (isnan(value))
        return (uint16_t)(top | (format->finite ? (1u << fraction) - 1 : 1u << (fraction - 1)));
    if (isinf(value))
        return (uint16_t)(sign | top);
    long double magnitude = fabsl(value);
    if (magnitude < value_min_normal(dtype)) /* denormals and zero: a plain count of the smallest one */
        return (uint16_t)(sign | (unsigned)(magnitude * value_power(-place_of(format, 0))));
    int exponent = exponent_of(magnitude);
    unsigned mantissa = (unsigned)(magnitude * value_power(-place_of(format, magnitude))) - (1u << fraction);
    return (uint16_t)(sign | (unsigned)(exponent + bias) << fraction | mantissa);
}

static long double narrow_decode(enum dtype dtype, uint16_t bits) {
    const struct float_format *format = &float_formats[dtype];
    int fraction = format->precision - 1, bias = 1 - format->exponent_min, sign = 1 << (8 * (int)value_size(dtype) - 1);
    int exponent = (bits & (sign - 1)) >> fraction, mantissa = bits & ((1 << fraction) - 1);
    bool last = mantissa == (1 << fraction) - 1;
    long double magnitude;
    if (exponent == bias * 2 + 1 && (last || !format->finite))
        magnitude = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = (long double)mantissa * value_ulp(dtype, 0);
    else
        magnitude = (long double)(mantissa + (1 << fraction)) * value_power(exponent - bias - fraction);
    return bits & sign ? -magnitude : magnitude;
}

void values_encode(const struct values *values, void *bytes) {
    size_t size = value_size(values->dtype);
    for (int64_t k = 0; k < values->count; k++) {
        char *at = (char *)bytes + (size_t)k * size;
        if (values->dtype == DTYPE_C128) {
            memcpy(at, (double[]){(double)values->f[k], (double)values->im[k]}, size);
        } else if (values->dtype == DTYPE_C64) {
            memcpy(at, (float[]){(float)values->f[k], (float)values->im[k]}, size);
        } else if (values->dtype == DTYPE_F64) {
            memcpy(at, &(double){(double)values->f[k]}, size);
        } else if (values->dtype == DTYPE_F32) {
            memcpy(at, &(float){(float)values->f[k]}, size);
        } else if (values->f) {
            memcpy(at, &(uint16_t){narrow_encode(values->dtype, values->f[k])},
                   size); /* little-endian: the low bytes */
        } else {
            memcpy(at, &values->i[k], size);
        }
    }
}

void values_decode(struct values *values, const void *bytes) {
    size_t size = value_size(values->dtype);
    for (int64_t k = 0; k < values->count; k++) {
        const char *at = (const char *)bytes + (size_t)k * size;
        double wide, wide_parts[2];
        float single, parts[2];
        uint16_t narrow = 0;
        int64_t integer = 0;
        if (values->dtype == DTYPE_C128) {
            memcpy(wide_parts, at, size);
            values->f[k] = wide_parts[0];
            values->im[k] = wide_parts[1];
        } else if (values->dtype == DTYPE_C64) {
            memcpy(parts, at, size);
            values->f[k] = parts[0];
            values->im[k] = parts[1];
        } else if (values->dtype == DTYPE_F64) {
            memcpy(&wide, at, size);
            values->f[k] = wide;
        } else if (values->dtype == DTYPE_F32) {
            memcpy(&single, at, size);
            values->f[k] = single;
        } else if (values->f) {
            memcpy(&narrow, at, size);
            values->f[k] = narrow_decode(values->dtype, narrow);
        } else {
            memcpy(&integer, at, size);
            /* A bool byte other than 0 and 1 must not pass for true. */
            values->i[k] = values->dtype == DTYPE_BOOL ? integer : value_wrap(values->dtype, integer);
        }
    }
}

const char *values_text(const struct values *values, char text[VALUES_TEXT_MAX]) {
    size_t used = (size_t)snprintf(text, VALUES_TEXT_MAX, "%s (", value_name(values->dtype));
    for (int i = 0; i < values->rank; i++)
        used +=
            (size_t)snprintf(text + used, VALUES_TEXT_MAX - used, "%s%lld", i ? ", " : "", (long long)values->shape[i]);
    snprintf(text + used, VALUES_TEXT_MAX - used, ")");
    return text;
}

bool values_same_type(const struct values *values, enum dtype dtype, int rank, const int64_t *shape) {
    if (values->dtype != dtype || values->rank != rank)
        return false;
    for (int i = 0; i < rank; i++)
        if (values->shape[i] != shape[i])
            return false;
    return true;
}

void values_strides(int rank, const int64_t *shape, int64_t *strides) {
    int64_t stride = 1;
    for (int i = rank; i-- > 0; stride *= shape[i])
        strides[i] = stride;
}

bool values_next(int rank, const int64_t *shape, int64_t *index) {
    for (int i = rank; i-- > 0; index[i] = 0)
        if (++index[i] < shape[i])
            return true;
    return false;
}

int64_t values_offset(int rank, const int64_t *index, const int64_t *strides) {
    int64_t offset = 0;
    for (int i = 0; i < rank; i++)
        offset += index[i] * strides[i];
    return offset;
}
