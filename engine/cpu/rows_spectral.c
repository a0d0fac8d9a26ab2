/* Plane rotations of the columns of eigenvectors and singular vectors. A column that one rotation leaves is an input of the next one, so it
 * stays in registers; and two sweeps along the same columns go together, the second one column behind the first, so that each column is
 * loaded and stored once for both. */
#include "engine/cpu/rows.h"

typedef float f32;
typedef double f64;
#if defined(__AVX512F__)
#include <immintrin.h>
enum { BYTES = 64 };
#define ALL_f32 _mm512_set1_ps
#define ALL_f64 _mm512_set1_pd
#define ADD_f32 _mm512_fmadd_ps
#define ADD_f64 _mm512_fmadd_pd
#define LESS_f32 _mm512_fnmadd_ps
#define LESS_f64 _mm512_fnmadd_pd
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
enum { BYTES = 32 };
#define ALL_f32 _mm256_set1_ps
#define ALL_f64 _mm256_set1_pd
#define ADD_f32 _mm256_fmadd_ps
#define ADD_f64 _mm256_fmadd_pd
#define LESS_f32 _mm256_fnmadd_ps
#define LESS_f64 _mm256_fnmadd_pd
#else
enum { BYTES = 16 };
#define ALL_f32
#define ALL_f64
#define ADD_f32(a, b, c) ((c) + (a) * (b))
#define ADD_f64(a, b, c) ((c) + (a) * (b))
#define LESS_f32(a, b, c) ((c) - (a) * (b))
#define LESS_f64(a, b, c) ((c) - (a) * (b))
#endif
/* Vectors of a column. Two of them are turned at a time: with more there are too few registers. */
enum { EACH = CPU_ROTATE_BYTES / BYTES };
typedef f32 wide_f32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef f64 wide_f64 __attribute__((vector_size(BYTES), aligned(8), may_alias));

/* The rotation of the columns in x0, x1 and y0, y1: x becomes the column that it leaves finished, y the one that goes on. */
#define ROTATE(T, x0, x1, y0, y1, c, s)                                                                                \
    do {                                                                                                               \
        const __typeof__(ALL_##T(c)) cosine = ALL_##T(c), sine = ALL_##T(s);                                           \
        const wide_##T left0 = ADD_##T(sine, y0, cosine * (x0)), left1 = ADD_##T(sine, y1, cosine * (x1));             \
        y0 = LESS_##T(sine, x0, cosine * (y0));                                                                        \
        y1 = LESS_##T(sine, x1, cosine * (y1));                                                                        \
        x0 = left0;                                                                                                    \
        x1 = left1;                                                                                                    \
    } while (0)

#define SWEEPS(T)                                                                                                      \
    static void sweep_one_##T(wide_##T *column, int64_t step, int64_t n, const T *r) {                                 \
        wide_##T x0 = column[0], x1 = column[1];                                                                       \
        for (int64_t i = 0; i < n; i++, r += 2) {                                                                      \
            wide_##T y0 = column[step], y1 = column[step + 1];                                                         \
            ROTATE(T, x0, x1, y0, y1, r[0], r[1]);                                                                     \
            column[0] = x0;                                                                                            \
            column[1] = x1;                                                                                            \
            x0 = y0;                                                                                                   \
            x1 = y1;                                                                                                   \
            column += step;                                                                                            \
        }                                                                                                              \
        column[0] = x0;                                                                                                \
        column[1] = x1;                                                                                                \
    }                                                                                                                  \
    /* n rotations of the first sweep, n > 0, and m of the second one: as many, or one less. */                        \
    static void sweep_two_##T(wide_##T *column, int64_t step, int64_t n, const T *a, int64_t m, const T *b) {          \
        wide_##T x0 = column[0], x1 = column[1], y0 = column[step], y1 = column[step + 1];                             \
        ROTATE(T, x0, x1, y0, y1, a[0], a[1]);                                                                         \
        wide_##T z0 = x0, z1 = x1; /* the column that the second sweep has come to */                                  \
        for (int64_t i = 1; i < n; i++, b += 2) {                                                                      \
            a += 2;                                                                                                    \
            x0 = y0;                                                                                                   \
            x1 = y1;                                                                                                   \
            y0 = column[2 * step];                                                                                     \
            y1 = column[2 * step + 1];                                                                                 \
            ROTATE(T, x0, x1, y0, y1, a[0], a[1]);                                                                     \
            ROTATE(T, z0, z1, x0, x1, b[0], b[1]);                                                                     \
            column[0] = z0;                                                                                            \
            column[1] = z1;                                                                                            \
            z0 = x0;                                                                                                   \
            z1 = x1;                                                                                                   \
            column += step;                                                                                            \
        }                                                                                                              \
        if (m == n) {                                                                                                  \
            ROTATE(T, z0, z1, y0, y1, b[0], b[1]);                                                                     \
        }                                                                                                              \
        column[0] = z0;                                                                                                \
        column[1] = z1;                                                                                                \
        column[step] = y0;                                                                                             \
        column[step + 1] = y1;                                                                                         \
    }                                                                                                                  \
    static void turn_##T(wide_##T *columns, const struct cpu_sweep *sweeps, int64_t n) {                               \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const struct cpu_sweep *a = &sweeps[i], *b = a + 1;                                                        \
            wide_##T *first = columns + EACH * a->first;                                                               \
            int64_t step = EACH * a->step, done = 0;                                                                   \
            if (i + 1 < n && a->count > 0 && b->first == a->first && b->step == a->step && b->count <= a->count) {     \
                done = b->count < a->count ? b->count + 1 : a->count;                                                  \
                sweep_two_##T(first, step, done, a->rotations, b->count, b->rotations);                                \
                i++;                                                                                                   \
            }                                                                                                          \
            if (done < a->count) {                                                                                     \
                sweep_one_##T(first + done * step, step, a->count - done, (const T *)a->rotations + 2 * done);         \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    void CPU_NAME(rotate_##T)(void *columns, const struct cpu_sweep *sweeps, int64_t n) {                              \
        for (int64_t i = 0; i < EACH; i += 2) {                                                                        \
            turn_##T((wide_##T *)columns + i, sweeps, n);                                                              \
        }                                                                                                              \
    }
SWEEPS(f32)
SWEEPS(f64)
