/* The table of all reductions; any and all. */
#include "engine/cpu/rows_reduce.h"

/* A contiguous row is read until the result is known. */
enum { LOOK = 2048 }; /* elements between two looks */
#define TRUTH(name, operation, neutral, TAKE)                                                                          \
    STREAMS(name, uint8_t, uint8_t, uint8_t, operation, neutral, TAKE, MAP_PLAIN)                                      \
    static uint8_t name##_until(int64_t n, const uint8_t *x, int64_t stride, double parameter) {                       \
        uint8_t v = neutral;                                                                                           \
        (void)stride;                                                                                                  \
        for (int64_t i = 0; i < n && v == neutral; i += LOOK) {                                                        \
            v = name##_streams(n - i < LOOK ? n - i : LOOK, x + i, 1, parameter);                                      \
        }                                                                                                              \
        return v;                                                                                                      \
    }                                                                                                                  \
    STEPS_ROW(name, uint8_t, uint8_t, operation, neutral, TAKE, MAP_PLAIN, name##_until)                               \
    FINISH(name, uint8_t, uint8_t, v)                                                                                  \
    TABLE(name, name, name)
TRUTH(any_bool, |, 0, TAKE_OR)
TRUTH(all_bool, &, 1, TAKE_AND)

REDUCTION(any, {[DTYPE_BOOL] = &any_bool})
REDUCTION(all, {[DTYPE_BOOL] = &all_bool})

const struct cpu_reduction *const *const CPU_NAME(reductions)[CPU_REDUCE_COUNT] = {
#define X(NAME, name) [CPU_REDUCE_##NAME] = CPU_NAME(reduce_##name),
    CPU_REDUCTIONS(X)
#undef X
};
