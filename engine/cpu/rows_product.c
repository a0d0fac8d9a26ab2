/* Matrix products of integers and truth values on packed blocks: each row of c gathers multiples of four rows
 * of b at a time, so that c is loaded and stored a quarter as often. */
#include "engine/cpu/lanes.h"

#define PRODUCT(name, T, PLUS, TIMES)                                                                                  \
    void CPU_NAME(name)(int64_t rows, int64_t columns, int64_t depth, const void *a, const void *b, void *c,           \
                        int64_t c_stride) {                                                                            \
        for (int64_t i = 0; i < rows; i++) {                                                                           \
            const T *x = (const T *)a + i * depth;                                                                     \
            T *z = (T *)c + i * c_stride;                                                                              \
            int64_t k = 0;                                                                                             \
            for (; k + 4 <= depth; k += 4) {                                                                           \
                const T *y = (const T *)b + k * columns;                                                               \
                const T x0 = x[k], x1 = x[k + 1], x2 = x[k + 2], x3 = x[k + 3];                                        \
                CPU_LOOP                                                                                               \
                for (int64_t j = 0; j < columns; j++) {                                                                \
                    z[j] = z[j] PLUS((x0 TIMES y[j])PLUS(x1 TIMES y[columns + j]))                                     \
                        PLUS((x2 TIMES y[2 * columns + j])PLUS(x3 TIMES y[3 * columns + j]));                          \
                }                                                                                                      \
            }                                                                                                          \
            for (; k < depth; k++) {                                                                                   \
                const T *y = (const T *)b + k * columns;                                                               \
                CPU_LOOP                                                                                               \
                for (int64_t j = 0; j < columns; j++) {                                                                \
                    z[j] = z[j] PLUS(x[k] TIMES y[j]);                                                                 \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
PRODUCT(product_u32, uint32_t, +, *)
PRODUCT(product_u64, uint64_t, +, *)
PRODUCT(product_bool, uint32_t, |, &)
