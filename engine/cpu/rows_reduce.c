/* The table of all reductions; any and all. */
#include "engine/cpu/rows_reduce.h"

STEPS(any_bool, uint8_t, uint8_t, |, 0, TAKE_OR, MAP_PLAIN)
FINISH(any_bool, uint8_t, uint8_t, v)
TABLE(any_bool, any_bool, any_bool)
STEPS(all_bool, uint8_t, uint8_t, &, 1, TAKE_AND, MAP_PLAIN)
FINISH(all_bool, uint8_t, uint8_t, v)
TABLE(all_bool, all_bool, all_bool)

REDUCTION(any, {[DTYPE_BOOL] = &any_bool})
REDUCTION(all, {[DTYPE_BOOL] = &all_bool})

const struct cpu_reduction *const *const CPU_NAME(reductions)[CPU_REDUCE_COUNT] = {
#define X(NAME, name) [CPU_REDUCE_##NAME] = CPU_NAME(reduce_##name),
    CPU_REDUCTIONS(X)
#undef X
};
