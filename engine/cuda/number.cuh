/* Element types in kernels: f16 and bf16 are computed in f32 and rounded once; f8 is only converted. CUDA C++ only. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

#include "engine/cuda/cuda.h"

#include "engine/cuda/formula.cuh"
#include "engine/device/formula_f8.h"

#define NUMBER_FUNCTION FORMULA_FUNCTION

template <typename T> NUMBER_FUNCTION T number_widen(T x) {
    return x;
}
NUMBER_FUNCTION float number_widen(__half x) {
    return __half2float(x);
}
NUMBER_FUNCTION float number_widen(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

/* ---- f8: from compute capability 8.9 on there are instructions, which saturate, otherwise the formulas ---- */

struct f8e4m3 {
    uint8_t bits;
};
struct f8e5m2 {
    uint8_t bits;
};

NUMBER_FUNCTION float number_widen(f8e4m3 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
#else
    return formula_from_f8e4m3(x.bits);
#endif
}
NUMBER_FUNCTION float number_widen(f8e5m2 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E5M2)));
#else
    return formula_from_f8e5m2(x.bits);
#endif
}

/* Corrects results that the instruction has saturated. */
NUMBER_FUNCTION f8e4m3 number_to_f8e4m3(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint8_t bits = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
    uint8_t sign = (uint8_t)(__float_as_uint(x) >> 24 & 0x80);
    return {(uint8_t)(x != x ? 0x7f : fabsf(x) > 464.0f ? sign | 0x7f : bits)};
#else
    return {formula_to_f8e4m3(x)};
#endif
}
NUMBER_FUNCTION f8e5m2 number_to_f8e5m2(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint8_t bits = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
    uint8_t sign = (uint8_t)(__float_as_uint(x) >> 24 & 0x80);
    return {(uint8_t)(x != x ? 0x7f : fabsf(x) >= 61440.0f ? sign | 0x7c : bits)};
#else
    return {formula_to_f8e5m2(x)};
#endif
}

/* number_narrow<R>(x): a computed value, converted to the type in which it is stored. */
template <typename R> struct number_store {
    template <typename C> static __host__ __device__ __forceinline__ R from(C x) {
        return x;
    }
};
template <> struct number_store<__half> {
    static __host__ __device__ __forceinline__ __half from(float x) {
        return __float2half_rn(x);
    }
};
template <> struct number_store<__nv_bfloat16> {
    static __host__ __device__ __forceinline__ __nv_bfloat16 from(float x) {
        return __float2bfloat16_rn(x);
    }
};

template <> struct number_store<f8e4m3> {
    static __host__ __device__ __forceinline__ f8e4m3 from(float x) {
        return number_to_f8e4m3(x);
    }
};
template <> struct number_store<f8e5m2> {
    static __host__ __device__ __forceinline__ f8e5m2 from(float x) {
        return number_to_f8e5m2(x);
    }
};

/* Whether a value is other than zero; a NaN is. */
template <typename C> NUMBER_FUNCTION bool number_truth(C x) {
    return x != 0;
}
NUMBER_FUNCTION bool number_truth(formula_c64 x) {
    return x.re != 0 || x.im != 0;
}
NUMBER_FUNCTION bool number_truth(formula_c128 x) {
    return x.re != 0 || x.im != 0;
}

/* Elements that one access moves. */
template <typename T, int lanes> struct alignas(sizeof(T) * lanes) number_pack { T lane[lanes]; };

/* ---- casts: anything to anything, as a cast operation does it ---- */

template <typename R> struct number_cast;

#define NUMBER_CAST_INTEGER(name, R)                                                                                   \
    template <> struct number_cast<R> {                                                                                \
        static __host__ __device__ __forceinline__ R from(float x) {                                                   \
            return formula_float_to_##name(x);                                                                         \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(double x) {                                                  \
            return formula_double_to_##name(x);                                                                        \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(int64_t x) {                                                 \
            return (R)x;                                                                                               \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(int32_t x) {                                                 \
            return (R)x;                                                                                               \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(uint64_t x) {                                                \
            return (R)x;                                                                                               \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(uint32_t x) {                                                \
            return (R)x;                                                                                               \
        }                                                                                                              \
    };
NUMBER_CAST_INTEGER(u8, uint8_t)
NUMBER_CAST_INTEGER(u16, uint16_t)
NUMBER_CAST_INTEGER(u32, uint32_t)
NUMBER_CAST_INTEGER(u64, uint64_t)
NUMBER_CAST_INTEGER(i8, int8_t)
NUMBER_CAST_INTEGER(i16, int16_t)
NUMBER_CAST_INTEGER(i32, int32_t)
NUMBER_CAST_INTEGER(i64, int64_t)

#define NUMBER_CAST_PLAIN(R)                                                                                           \
    template <> struct number_cast<R> {                                                                                \
        template <typename C> static __host__ __device__ __forceinline__ R from(C x) {                                 \
            return (R)x;                                                                                               \
        }                                                                                                              \
    };
NUMBER_CAST_PLAIN(float)
NUMBER_CAST_PLAIN(double)

/* Of a real number the imaginary part is 0. */
#define NUMBER_CAST_COMPLEX(name, R, part)                                                                             \
    template <> struct number_cast<R> {                                                                                \
        template <typename C> static __host__ __device__ __forceinline__ R from(C x) {                                 \
            return formula_make_##name(number_cast<part>::from(x), 0);                                                 \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(formula_c64 x) {                                             \
            return formula_make_##name((part)x.re, (part)x.im);                                                        \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(formula_c128 x) {                                            \
            return formula_make_##name((part)x.re, (part)x.im);                                                        \
        }                                                                                                              \
    };
NUMBER_CAST_COMPLEX(c64, formula_c64, float)
NUMBER_CAST_COMPLEX(c128, formula_c128, double)

#define NUMBER_CAST_HALF(R)                                                                                            \
    template <> struct number_cast<R> {                                                                                \
        static __host__ __device__ __forceinline__ R from(float x) {                                                   \
            return number_store<R>::from(x);                                                                           \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(double x) {                                                  \
            return number_store<R>::from(formula_odd(x));                                                              \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(int64_t x) {                                                 \
            return number_store<R>::from(formula_odd_i64(x));                                                          \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(int32_t x) {                                                 \
            return number_store<R>::from(formula_odd_i32(x));                                                          \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(uint64_t x) {                                                \
            return number_store<R>::from(formula_odd_u64(x));                                                          \
        }                                                                                                              \
        static __host__ __device__ __forceinline__ R from(uint32_t x) {                                                \
            return number_store<R>::from(formula_odd_u32(x));                                                          \
        }                                                                                                              \
    };
NUMBER_CAST_HALF(__half)
NUMBER_CAST_HALF(__nv_bfloat16)
NUMBER_CAST_HALF(f8e4m3)
NUMBER_CAST_HALF(f8e5m2)

/* ---- the types of elements, by dtype; a bool is a byte, 0 or 1 ---- */

template <enum dtype dtype> struct number_element;
#define NUMBER_ELEMENT(DTYPE, T)                                                                                       \
    template <> struct number_element<DTYPE_##DTYPE> { typedef T type; };
NUMBER_ELEMENT(BOOL, uint8_t)
NUMBER_ELEMENT(U8, uint8_t)
NUMBER_ELEMENT(I8, int8_t)
NUMBER_ELEMENT(I16, int16_t)
NUMBER_ELEMENT(I32, int32_t)
NUMBER_ELEMENT(I64, int64_t)
NUMBER_ELEMENT(F16, __half)
NUMBER_ELEMENT(BF16, __nv_bfloat16)
NUMBER_ELEMENT(F32, float)
NUMBER_ELEMENT(F64, double)
NUMBER_ELEMENT(F8E4M3, f8e4m3)
NUMBER_ELEMENT(F8E5M2, f8e5m2)
NUMBER_ELEMENT(U16, uint16_t)
NUMBER_ELEMENT(U32, uint32_t)
NUMBER_ELEMENT(U64, uint64_t)
NUMBER_ELEMENT(C64, formula_c64)
NUMBER_ELEMENT(C128, formula_c128)

/* ---- on the host: a value in the bytes of any dtype, repeated up to sixteen bytes ---- */

struct alignas(16) number_bytes {
    uint64_t half[2];
};
/* The element that a pattern repeats. */
template <typename T> NUMBER_FUNCTION T number_of_pattern(const struct number_bytes &pattern) {
    return *(const T *)&pattern;
}

template <typename T> static inline struct number_bytes number_repeat(T x) {
    struct number_bytes pattern;
    for (size_t i = 0; i < sizeof pattern; i += sizeof x) {
        memcpy((char *)&pattern + i, &x, sizeof x);
    }
    return pattern;
}

/* A value as op_scalar has it. */
static inline struct number_bytes number_pattern(enum dtype dtype, int64_t integer, double value) {
    double imaginary;
    memcpy(&imaginary, &integer, sizeof imaginary);
    switch (dtype) {
    case DTYPE_BOOL:
        return number_repeat<uint8_t>(integer != 0);
    case DTYPE_U8:
    case DTYPE_I8:
        return number_repeat<uint8_t>((uint8_t)integer);
    case DTYPE_U16:
    case DTYPE_I16:
        return number_repeat<uint16_t>((uint16_t)integer);
    case DTYPE_U32:
    case DTYPE_I32:
        return number_repeat<uint32_t>((uint32_t)integer);
    case DTYPE_F16:
        return number_repeat<__half>(number_cast<__half>::from(value));
    case DTYPE_BF16:
        return number_repeat<__nv_bfloat16>(number_cast<__nv_bfloat16>::from(value));
    case DTYPE_F32:
        return number_repeat<float>((float)value);
    case DTYPE_F64:
        return number_repeat<double>(value);
    case DTYPE_F8E4M3:
        return number_repeat<f8e4m3>(number_cast<f8e4m3>::from(value));
    case DTYPE_F8E5M2:
        return number_repeat<f8e5m2>(number_cast<f8e5m2>::from(value));
    case DTYPE_C64:
        return number_repeat<formula_c64>(formula_make_c64((float)value, (float)imaginary));
    case DTYPE_C128:
        return number_repeat<formula_c128>(formula_make_c128(value, imaginary));
    default:
        return number_repeat<uint64_t>((uint64_t)integer);
    }
}

/* One in any dtype. */
static inline struct number_bytes number_one(enum dtype dtype) {
    return number_pattern(dtype, dtype_is_complex(dtype) ? 0 : 1, 1);
}
