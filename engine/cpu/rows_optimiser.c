/* Steps of optimisers. */
#include "engine/device/optimiser.h"

#include "engine/cpu/rows.h"

/* One element's step. A function of its own, since compilers keep arrays that a loop's body declares in memory. */
#define STEP(way, name, T)                                                                                             \
    static inline __attribute__((always_inline)) struct step_##name step_##way##_##name(                               \
        const struct optimiser_##name *f, T parameter, T gradient, T first, T second) {                                \
        const T x[OPTIMISER_INPUTS] = {parameter, gradient, first, second};                                            \
        T y[OPTIMISER_OUTPUTS] = {0};                                                                                  \
        optimiser_##way##_##name(f, x, y);                                                                             \
        return (struct step_##name){y[0], y[1], y[2]};                                                                 \
    }
struct step_f32 {
    float parameter, first, second;
};
struct step_f64 {
    double parameter, first, second;
};

/* An output may be the memory of an input of the same role: each element is read before it is written. */
#define LOOP(way, name, T, inputs)                                                                                     \
    STEP(way, name, T)                                                                                                 \
    static void way##_##name(int64_t n, const void *const *in, void *const *out, const void *factors) {                \
        const struct optimiser_##name f = *(const struct optimiser_##name *)factors;                                   \
        const T *p = in[0], *g = in[1], *a = in[inputs > 2 ? 2 : 0], *b = in[inputs > 3 ? 3 : 0];                      \
        T *q = out[0], *c = out[inputs > 2 ? 1 : 0], *d = out[inputs > 3 ? 2 : 0];                                     \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const struct step_##name y = step_##way##_##name(&f, p[i], g[i], a[i], b[i]);                              \
            if (inputs > 3) {                                                                                          \
                d[i] = y.second;                                                                                       \
            }                                                                                                          \
            if (inputs > 2) {                                                                                          \
                c[i] = y.first;                                                                                        \
            }                                                                                                          \
            q[i] = y.parameter;                                                                                        \
        }                                                                                                              \
    }
#define LOOP_f32(way, inputs) LOOP(way, f32, float, inputs)
#define LOOP_f64(way, inputs) LOOP(way, f64, double, inputs)
OPTIMISER_WAYS(LOOP_f32)
OPTIMISER_WAYS(LOOP_f64)

/* [f64][way] */
#define WAY_f32(way, inputs) way##_f32,
#define WAY_f64(way, inputs) way##_f64,
cpu_optimiser_function *const CPU_NAME(optimiser)[2 * OPTIMISER_WAY_COUNT] = {OPTIMISER_WAYS(WAY_f32)
                                                                                  OPTIMISER_WAYS(WAY_f64)};
