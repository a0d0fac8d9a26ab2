/* Loops of creation: arithmetic progressions. Compilers find vectors for the conversion of 32 bits alone; the sum of two whole numbers is
 * exact. */
#include "engine/cpu/create.h"
#include "engine/cpu/lanes.h"

#define STEPS(name, T)                                                                                                 \
    static void name(double start, double step, int64_t first, int64_t n, T *out) {                                    \
        const double from = (double)first;                                                                             \
        CPU_LOOP                                                                                                       \
        for (int32_t k = 0; k < (int32_t)n; k++) {                                                                     \
            out[k] = (T)(start + (from + (double)k) * step);                                                           \
        }                                                                                                              \
    }
STEPS(steps_f32, float)
STEPS(steps_f64, double)

const struct cpu_creation CPU_NAME(creation) = {.steps_f32 = steps_f32, .steps_f64 = steps_f64};
