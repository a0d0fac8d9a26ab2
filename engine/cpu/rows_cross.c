/* Cross products of vectors of three elements. */
#include "engine/cpu/lanes.h"

/* Loops for vectors that lie one after another and for those whose elements lie apart, each of which the compiler makes of whole loads and stores;
 * and for all others. Each product is rounded, then their difference. */
#define CROSS_LOOP(T, U, out_step, a_step, b_step, out_across, a_across, b_across)                                     \
    CPU_LOOP                                                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        const T *x = a + i * (a_step), *y = b + i * (b_step);                                                          \
        const U x0 = (U)x[0], x1 = (U)x[a_across], x2 = (U)x[2 * (a_across)];                                          \
        const U y0 = (U)y[0], y1 = (U)y[b_across], y2 = (U)y[2 * (b_across)];                                          \
        T *z = out + i * (out_step);                                                                                   \
        z[0] = (T)(x1 * y2 - x2 * y1);                                                                                 \
        z[out_across] = (T)(x2 * y0 - x0 * y2);                                                                        \
        z[2 * (out_across)] = (T)(x0 * y1 - x1 * y0);                                                                  \
    }
#define CROSS(name, T, U)                                                                                              \
    static void cross_##name(int64_t n, void *to, const void *x_data, const void *y_data, const int64_t step[3],       \
                             const int64_t across[3]) {                                                                \
        T *restrict out = to;                                                                                          \
        const T *a = x_data, *b = y_data;                                                                              \
        const int64_t out_across = across[0], a_across = across[1], b_across = across[2];                              \
        bool whole = step[0] == 3 && step[1] == 3 && step[2] == 3;                                                     \
        bool apart = step[0] == 1 && step[1] == 1 && step[2] == 1;                                                     \
        if (whole && out_across == 1 && a_across == 1 && b_across == 1) {                                              \
            CROSS_LOOP(T, U, 3, 3, 3, 1, 1, 1)                                                                         \
        } else if (apart) {                                                                                            \
            CROSS_LOOP(T, U, 1, 1, 1, out_across, a_across, b_across)                                                  \
        } else {                                                                                                       \
            CROSS_LOOP(T, U, step[0], step[1], step[2], out_across, a_across, b_across)                                \
        }                                                                                                              \
    }
CROSS(f32, float, float)
CROSS(f64, double, double)
CROSS(32, uint32_t, uint32_t)
CROSS(64, uint64_t, uint64_t)

cpu_cross_function *const CPU_NAME(cross)[CPU_CROSS_COUNT] = {cross_f32, cross_f64, cross_32, cross_64};
