/* Steps of optimisers. */
#include "engine/device/optimiser.h"

#include "engine/cpu/rows.h"

/* An output may be the memory of an input of the same role: each element is read before it is written. */
#define LOOP(way, name, T, inputs)                                                                                     \
    static void way##_##name(int64_t n, const void *const *in, void *const *out, const void *factors) {                \
        const struct optimiser_##name f = *(const struct optimiser_##name *)factors;                                   \
        const T *p = in[0], *g = in[1], *a = in[inputs > 2 ? 2 : 0], *b = in[inputs > 3 ? 3 : 0];                      \
        T *q = out[0], *c = out[inputs > 2 ? 1 : 0], *d = out[inputs > 3 ? 2 : 0];                                     \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T x[OPTIMISER_INPUTS] = {p[i], g[i], a[i], b[i]};                                                    \
            T y[OPTIMISER_OUTPUTS] = {0};                                                                              \
            optimiser_##way##_##name(&f, x, y);                                                                        \
            if (inputs > 3) {                                                                                          \
                d[i] = y[2];                                                                                           \
            }                                                                                                          \
            if (inputs > 2) {                                                                                          \
                c[i] = y[1];                                                                                           \
            }                                                                                                          \
            q[i] = y[0];                                                                                               \
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
