/* Rows of a few elements are laid one behind another: out[i · width + j] = x[i · row + j · column]. The width is a constant of each loop, so
 * that its stores become vectors; a row of 1 is what repeating and interleaving read, where loads are vectors, too. */
#include "engine/cpu/lanes.h"

#define LOOP(T, W)                                                                                                     \
    static inline __attribute__((always_inline)) void gather_##T##_##W(                                                \
        T *restrict out, const T *restrict x, int64_t rows, int64_t row, int64_t column) {                             \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < rows; i++) {                                                                           \
            for (int64_t j = 0; j < W; j++) {                                                                          \
                out[i * W + j] = x[i * row + j * column];                                                              \
            }                                                                                                          \
        }                                                                                                              \
    }
#define CASE(T, W)                                                                                                     \
    case W:                                                                                                            \
        if (row == 1) {                                                                                                \
            gather_##T##_##W(out, x, rows, 1, column);                                                                 \
        } else {                                                                                                       \
            gather_##T##_##W(out, x, rows, row, column);                                                               \
        }                                                                                                              \
        break;
#define WIDTHS(X, T) X(T, 2) X(T, 3) X(T, 4) X(T, 5) X(T, 6) X(T, 7) X(T, 8)
#define GATHER(T)                                                                                                      \
    WIDTHS(LOOP, T)                                                                                                    \
    static void gather_##T(void *to, const void *from, int64_t rows, int64_t width, int64_t row, int64_t column) {     \
        T *out = to;                                                                                                   \
        const T *x = from;                                                                                             \
        switch (width) { WIDTHS(CASE, T) }                                                                             \
    }
typedef struct cpu_pair pair;
GATHER(uint8_t)
GATHER(uint16_t)
GATHER(uint32_t)
GATHER(uint64_t)
GATHER(pair)

cpu_gather_function *const CPU_NAME(gather)[] = {gather_uint8_t, gather_uint16_t, gather_uint32_t, gather_uint64_t,
                                                 gather_pair};
