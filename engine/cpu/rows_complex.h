/* The rows of complex numbers that rows_complex.c has for the table in rows_elementwise.c: CPU_NAME(complex_add_c64) … */
#pragma once

#include "engine/cpu/lanes.h"

/* The macro `complex` for a dtype of complex numbers, and `real` for others: with the comma below it is the second word. */
#define COMPLEX_DTYPE_c64 ,
#define COMPLEX_DTYPE_c128 ,
#define COMPLEX_SECOND(first, second, ...) second
#define COMPLEX_CHOSEN(...) COMPLEX_SECOND(__VA_ARGS__)
#define COMPLEX_CHOOSE(dtype, complex, real) COMPLEX_CHOSEN(COMPLEX_DTYPE_##dtype complex, real, )
#define COMPLEX_NONE(...)

#define COMPLEX_DECLARED(row) cpu_row_function CPU_NAME(complex_##row);
#define COMPLEX_ROW(name, inputs, parameters, dtype, result)                                                           \
    COMPLEX_CHOOSE(dtype, COMPLEX_DECLARED, COMPLEX_NONE)(name##_##dtype)
OP_FORMULAS(COMPLEX_ROW)
#undef COMPLEX_ROW
#undef COMPLEX_DECLARED
