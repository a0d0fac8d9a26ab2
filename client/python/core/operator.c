/* The operators of arrays. */
#include "client/python/core/core.h"

/* The device that both operands have, and their tensors. */
struct pair {
    struct device *device;
    struct operand a, b;
};

static void pair_finish(struct pair *pair) {
    operand_finish(pair->device, &pair->a);
    operand_finish(pair->device, &pair->b);
}

/* One of two is an array; the other one may be a number. 1: an operand is of another type. */
static int pair_take(PyObject *a, PyObject *b, struct pair *pair) {
    PyObject *array = array_check(a) ? a : b, *other = array == a ? b : a;
    struct operand *mine = array == a ? &pair->a : &pair->b, *its = array == a ? &pair->b : &pair->a;
    *pair = (struct pair){.device = ((struct array *)array)->device};
    mine->tensor = array_tensor((struct array *)array);
    if (!mine->tensor)
        return -1;
    if (!array_check(other)) {
        PyObject *number = scalar_check(other) ? NULL : scalar_foreign(other);
        if (!number && !scalar_check(other))
            return PyErr_Occurred() ? -1 : 1;
        int code = scalar_operand(pair->device, td_tensor_dtype(mine->tensor), number ? number : other, its);
        Py_XDECREF(number);
        return code;
    }
    its->tensor = array_tensor((struct array *)other);
    return its->tensor ? 0 : -1;
}

/* The handle that the operand has now: arrays may have taken other values during a wait. */
static td_tensor *operand_tensor(PyObject *object, const struct operand *operand) {
    return array_check(object) ? array_tensor((struct array *)object) : operand->tensor;
}

/* Operands that are not both arrays, or an operation that is noted, or no room in the send queue. */
static __attribute__((noinline)) PyObject *binary_slow(PyObject *a, PyObject *b,
                                                       td_tensor *call(td_tensor *, td_tensor *)) {
    struct pair pair;
    td_tensor *result;
    int code = pair_take(a, b, &pair);
    if (code > 0) {
        Py_INCREF(Py_NotImplemented);
        return Py_NotImplemented;
    }
    if (code)
        return NULL;
    bool noted = graph_wants(a, b);
    do {
        td_tensor *x = operand_tensor(a, &pair.a), *y = operand_tensor(b, &pair.b);
        code = x && y && !(noted && graph_enter()) ? 0 : -1;
        label_next();
        result = code ? NULL : call(x, y);
        if (noted && !code)
            graph_leave();
    } while (!code && !result && td_last_error()->code == TD_E_AGAIN && !(code = device_wait_room(pair.device)));
    PyObject *array = code ? NULL : array_wrap(pair.device, result);
    pair_finish(&pair);
    return noted ? graph_mark(array, graph_lost(a) ? graph_lost(a) : graph_lost(b)) : array;
}

/* The short way: two arrays, and room for the operation. */
static inline __attribute__((always_inline)) PyObject *binary(PyObject *a, PyObject *b,
                                                              td_tensor *call(td_tensor *, td_tensor *)) {
    if (array_check(a) && array_check(b) && __builtin_expect(!graph_wants(a, b), 1)) {
        struct array *x = (struct array *)a, *y = (struct array *)b;
        label_next();
        if (x->device->handle && y->device->handle && x->tensor && y->tensor) {
            td_tensor *result = call(x->tensor, y->tensor);
            if (result || td_last_error()->code != TD_E_AGAIN)
                return array_wrap(x->device, result);
        }
    }
    return binary_slow(a, b, call);
}

PyObject *operator_binary(PyObject *a, PyObject *b, td_tensor *call(td_tensor *, td_tensor *)) {
    return binary(a, b, call);
}

static inline __attribute__((always_inline)) PyObject *unary(PyObject *self, td_tensor *call(td_tensor *), bool noted) {
    struct array *x = (struct array *)self;
    td_tensor *result;
    do {
        td_tensor *tensor = array_tensor(x);
        if (!tensor || (noted && graph_enter()))
            return NULL;
        label_next();
        result = call(tensor);
        if (noted)
            graph_leave();
    } while (!result && td_last_error()->code == TD_E_AGAIN && !device_wait_room(x->device));
    PyObject *array = result || !PyErr_Occurred() ? array_wrap(x->device, result) : NULL;
    return noted ? graph_mark(array, graph_lost(self)) : array;
}

PyObject *operator_unary(PyObject *x, td_tensor *call(td_tensor *)) {
    return unary(x, call, graph_wants(x, x));
}

PyObject *operator_constant(PyObject *x, td_tensor *call(td_tensor *)) {
    return unary(x, call, false);
}

#define BINARY(name)                                                                                                   \
    static PyObject *operator_##name(PyObject *a, PyObject *b) {                                                       \
        return binary(a, b, td_##name);                                                                                \
    }
#define IN_PLACE(name)                                                                                                 \
    static PyObject *replace_##name(PyObject *a, PyObject *b) {                                                        \
        return array_replace(a, binary(a, b, td_##name));                                                              \
    }
#define UNARY(name)                                                                                                    \
    static PyObject *operator_##name(PyObject *x) {                                                                    \
        return unary(x, td_##name, graph_wants(x, x));                                                                 \
    }

/* X(operation, operator's slot) */
#define BINARIES(X)                                                                                                    \
    X(add, add)                                                                                                        \
    X(subtract, subtract)                                                                                              \
    X(multiply, multiply)                                                                                              \
    X(divide, true_divide)                                                                                             \
    X(floor_divide, floor_divide)                                                                                      \
    X(remainder, remainder)                                                                                            \
    X(matmul, matrix_multiply)                                                                                         \
    X(bitwise_and, and)                                                                                                \
    X(bitwise_or, or)                                                                                                  \
    X(bitwise_xor, xor)                                                                                                \
    X(bitwise_left_shift, lshift)                                                                                      \
    X(bitwise_right_shift, rshift)
#define UNARIES(X)                                                                                                     \
    X(negative, negative)                                                                                              \
    X(positive, positive)                                                                                              \
    X(abs, absolute)                                                                                                   \
    X(bitwise_invert, invert)

#define X(name, slot) BINARY(name) IN_PLACE(name)
BINARIES(X)
#undef X
#define X(name, slot) UNARY(name)
UNARIES(X)
#undef X
BINARY(pow)
IN_PLACE(pow)
BINARY(equal)
BINARY(not_equal)
BINARY(less)
BINARY(less_equal)
BINARY(greater)
BINARY(greater_equal)

static PyObject *power(PyObject *a, PyObject *b, PyObject *modulus) {
    if (modulus == Py_None)
        return operator_pow(a, b);
    PyErr_SetString(PyExc_TypeError, "pow() of arrays takes no modulus");
    return NULL;
}

static PyObject *replace_power(PyObject *a, PyObject *b, PyObject *modulus) {
    (void)modulus; /* `**=` has none */
    return replace_pow(a, b);
}

static PyObject *quotient_and_remainder(PyObject *a, PyObject *b) {
    PyObject *quotient = operator_floor_divide(a, b), *remainder = NULL, *both = NULL;
    if (!quotient || quotient == Py_NotImplemented)
        return quotient;
    remainder = operator_remainder(a, b);
    if (remainder)
        both = PyTuple_Pack(2, quotient, remainder);
    Py_DECREF(quotient);
    Py_XDECREF(remainder);
    return both;
}

static PyObject *compare(PyObject *a, PyObject *b, int how) {
    static binaryfunc const calls[] = {
        [Py_LT] = operator_less,      [Py_LE] = operator_less_equal, [Py_EQ] = operator_equal,
        [Py_NE] = operator_not_equal, [Py_GT] = operator_greater,    [Py_GE] = operator_greater_equal,
    };
    return calls[how](a, b);
}

PyType_Slot array_operators[] = {
#define X(name, slot) {Py_nb_##slot, operator_##name}, {Py_nb_inplace_##slot, replace_##name},
    BINARIES(X)
#undef X
#define X(name, slot) {Py_nb_##slot, operator_##name},
        UNARIES(X)
#undef X
            {Py_nb_power, power},
    {Py_nb_inplace_power, replace_power},
    {Py_nb_divmod, quotient_and_remainder},
    {Py_tp_richcompare, compare},
    {0},
};
