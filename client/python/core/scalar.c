/* Python's numbers as operands of operations, and as values of full tensors.
 *
 * An operand becomes a tensor of rank 0 on the device. Loops use the same few numbers again and again, so a device keeps its last
 * ones: then `x * 2` costs one operation and not two. */
#include "client/python/core/core.h"

#include <math.h>
#include <string.h>

enum { SCALARS = 64 };

/* The value's bits: those of an int64, a uint64 (`is_unsigned`) or of a double for each part. */
struct number {
    uint64_t bits[2];
    td_dtype dtype;
    char class; /* 'i', 'u' (an integer above the greatest int64), 'f', 'c' */
};

struct scalar {
    unsigned references;
    struct number number;
    td_tensor *tensor;
};

struct scalars {
    struct scalar *entries[SCALARS];
};

bool scalar_check(PyObject *object) {
    return PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object);
}

PyObject *scalar_foreign(PyObject *object) {
    if (array_check(object) || PyType_Check(object))
        return NULL;
    PyObject *shape = PyObject_GetAttrString(object, "shape"), *number = NULL;
    if (shape && PyTuple_Check(shape) && !PyTuple_Size(shape))
        number = PyObject_CallMethod(object, "item", NULL);
    Py_XDECREF(shape);
    if (number && !scalar_check(number)) {
        Py_DECREF(number);
        number = NULL;
    }
    if (PyErr_Occurred() && (PyErr_ExceptionMatches(PyExc_AttributeError) || PyErr_ExceptionMatches(PyExc_TypeError)))
        PyErr_Clear();
    return number;
}

td_dtype scalar_dtype(PyObject *number) {
    if (PyBool_Check(number))
        return TD_BOOL;
    if (PyLong_Check(number))
        return TD_I64;
    return PyFloat_Check(number) ? TD_F32 : PyComplex_Check(number) ? TD_C64 : 0;
}

/* The dtype of a number beside an array: the array's, unless the number is of a higher kind. */
static td_dtype beside(td_dtype like, PyObject *number) {
    char class = dtype_of(like)->class;
    if (PyBool_Check(number))
        return class == '8' ? TD_BOOL : like;
    if (PyLong_Check(number))
        return class == 'b' ? TD_I64 : like;
    if (PyFloat_Check(number))
        return class == 'b' || class == 'i' || class == 'u' ? TD_F32 : like;
    return class == 'c' ? like : like == TD_F64 ? TD_C128 : TD_C64;
}

static int number_refuse(PyObject *value, td_dtype dtype) {
    PyErr_Format(PyExc_OverflowError, "%R is no value of %s", value, dtype_of(dtype)->name);
    return -1;
}

static int number_take_int(PyObject *value, struct number *number) {
    int over;
    int64_t i = PyLong_AsLongLongAndOverflow(value, &over);
    if (i == -1 && PyErr_Occurred())
        return -1;
    memcpy(number->bits, &i, sizeof i);
    number->class = 'i';
    if (!over)
        return 0;
    if (over > 0 && number->dtype == TD_U64) {
        number->class = 'u';
        number->bits[0] = PyLong_AsUnsignedLongLong(value);
        return PyErr_Occurred() ? -1 : 0;
    }
    double real = PyLong_AsDouble(value);
    char class = dtype_of(number->dtype)->class;
    if (class == 'i' || class == 'u' || PyErr_Occurred()) {
        PyErr_Clear();
        return number_refuse(value, number->dtype);
    }
    memcpy(number->bits, &real, sizeof real);
    number->class = 'f';
    return 0;
}

/* Whether an integer dtype has this value. */
static bool number_fits(const struct number *number) {
    char class = dtype_of(number->dtype)->class;
    unsigned bits = 8 * (unsigned)td_dtype_size(number->dtype);
    int64_t i = (int64_t)number->bits[0];
    if (number->class == 'u' || (class != 'i' && class != 'u'))
        return true;
    if (class == 'u')
        return i >= 0 && (bits == 64 || i >> bits == 0);
    return bits == 64 || (i >= -(INT64_C(1) << (bits - 1)) && i < INT64_C(1) << (bits - 1));
}

static int number_take(td_dtype dtype, PyObject *value, struct number *number) {
    *number = (struct number){.dtype = dtype};
    if (PyLong_Check(value)) {
        if (number_take_int(value, number))
            return -1;
        return number_fits(number) ? 0 : number_refuse(value, dtype);
    }
    double real = PyComplex_Check(value) ? PyComplex_RealAsDouble(value) : PyFloat_AsDouble(value);
    double imaginary = PyComplex_Check(value) ? PyComplex_ImagAsDouble(value) : 0;
    if (PyErr_Occurred())
        return -1;
    memcpy(&number->bits[0], &real, sizeof real);
    memcpy(&number->bits[1], &imaginary, sizeof imaginary);
    number->class = PyComplex_Check(value) ? 'c' : 'f';
    return 0;
}

int scalar_fits(td_dtype dtype, PyObject *value) {
    struct number number;
    return number_take(dtype, value, &number);
}

static td_tensor *number_full(td_device *device, int rank, const int64_t *shape, const struct number *number) {
    double parts[2];
    memcpy(parts, number->bits, sizeof parts);
    switch (number->class) {
    case 'i':
        return td_full_int(device, number->dtype, rank, shape, (int64_t)number->bits[0]);
    case 'u':
        return td_full_uint(device, number->dtype, rank, shape, number->bits[0]);
    case 'c':
        return td_full_complex(device, number->dtype, rank, shape, parts[0], parts[1]);
    default:
        return td_full(device, number->dtype, rank, shape, parts[0]);
    }
}

td_tensor *scalar_full(td_device *device, td_dtype dtype, int rank, const int64_t *shape, PyObject *value) {
    struct number number;
    if (number_take(dtype, value, &number))
        return NULL;
    return number_full(device, rank, shape, &number);
}

/* ---- the numbers that a device keeps ---- */

static bool number_equal(const struct number *a, const struct number *b) {
    return a->bits[0] == b->bits[0] && a->bits[1] == b->bits[1] && a->dtype == b->dtype && a->class == b->class;
}

static unsigned number_place(const struct number *number) {
    uint64_t mixed =
        (number->bits[0] ^ number->bits[1] * 3 ^ ((uint64_t)number->dtype << 8 | (unsigned char)number->class)) *
        UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned)(mixed >> 58);
}
_Static_assert(SCALARS == 1 << 6, "a place has 6 bits");

static void scalar_put(struct device *device, struct scalar *scalar) {
    if (!scalar || --scalar->references)
        return;
    if (device->handle)
        td_release(scalar->tensor);
    PyMem_Free(scalar);
}

/* Makes the number's tensor and puts it into the place. The caller's label is for the operation, not for its operand. */
static struct scalar *scalar_create(struct device *device, const struct number *number, struct scalar **place) {
    struct scalar *scalar = PyMem_Malloc(sizeof *scalar);
    td_tensor *tensor = NULL;
    int code = 0;
    if (!scalar) {
        PyErr_NoMemory();
        return NULL;
    }
    do
        tensor = number_full(device->handle, TD_SCALAR, number);
    while (!tensor && td_last_error()->code == TD_E_AGAIN && !(code = device_wait_room(device)));
    if (!tensor) {
        PyMem_Free(scalar);
        return code ? NULL : (struct scalar *)error_raise();
    }
    *scalar = (struct scalar){.references = 1, .number = *number, .tensor = tensor};
    struct scalar *old = *place;
    *place = scalar;
    scalar_put(device, old);
    return scalar;
}

int scalar_operand(struct device *device, td_dtype like, PyObject *value, struct operand *operand) {
    struct number number;
    if (number_take(beside(like, value), value, &number))
        return -1;
    if (!device->scalars && !(device->scalars = PyMem_Calloc(1, sizeof *device->scalars))) {
        PyErr_NoMemory();
        return -1;
    }
    struct scalar **place = &device->scalars->entries[number_place(&number)], *own = NULL;
    struct scalar *scalar = *place;
    if (!scalar || !number_equal(&scalar->number, &number)) {
        if (program_records(device)) /* a part of the program, which is not kept for other operations */
            place = &own;
        scalar = scalar_create(device, &number, place);
    }
    if (!scalar)
        return -1;
    scalar->references += scalar != own;
    operand->scalar = scalar;
    operand->tensor = scalar->tensor;
    return 0;
}

void operand_finish(struct device *device, struct operand *operand) {
    scalar_put(device, operand->scalar);
    operand->scalar = NULL;
}

void scalars_destroy(struct device *device) {
    for (unsigned i = 0; device->scalars && i < SCALARS; i++)
        scalar_put(device, device->scalars->entries[i]);
    PyMem_Free(device->scalars);
    device->scalars = NULL;
}
