/* Arrays from nested sequences of numbers. */
#include "client/python/core/core.h"

#include <stdlib.h>
#include <string.h>

/* What the numbers of a sequence are, each kind with those before it. */
enum kind { KIND_BOOL, KIND_INT, KIND_LARGE, KIND_FLOAT, KIND_COMPLEX };

struct nested {
    int64_t shape[TD_RANK_MAX];
    int rank;
    enum kind kind;
    td_dtype dtype;  /* of the memory, */
    td_dtype result; /* and of the array; 0: the same */
    char *at;        /* the next element */
};

static bool is_sequence(PyObject *object) {
    return PyList_Check(object) || PyTuple_Check(object) ||
           (PySequence_Check(object) && !PyUnicode_Check(object) && !PyBytes_Check(object) && !array_check(object) &&
            PyObject_HasAttrString(object, "__len__"));
}

static int nested_refuse(PyObject *object) {
    if (array_check(object))
        PyErr_SetString(PyExc_TypeError, "a sequence of arrays is no array: stack() makes one of them");
    else
        PyErr_Format(PyExc_TypeError, "%R is no number and no sequence of numbers", object);
    return -1;
}

/* The shape is that of the first entries. */
static int nested_shape(struct nested *nested, PyObject *object) {
    PyObject *entry = object;
    int code = 0;
    Py_INCREF(entry);
    while (!code && is_sequence(entry)) {
        Py_ssize_t n = PySequence_Size(entry);
        if (n < 0 || nested->rank == TD_RANK_MAX) {
            if (n >= 0)
                (void)error_set(TD_E_SHAPE, "sequences in sequences, more than %d deep", TD_RANK_MAX);
            code = -1;
            break;
        }
        nested->shape[nested->rank++] = n;
        if (!n)
            break;
        PyObject *first = PySequence_GetItem(entry, 0);
        Py_DECREF(entry);
        entry = first;
        code = first ? 0 : -1;
    }
    Py_XDECREF(entry);
    return code;
}

static int number_kind(PyObject *object, enum kind *kind) {
    int over = 0;
    if (PyBool_Check(object))
        *kind = KIND_BOOL;
    else if (PyFloat_Check(object))
        *kind = KIND_FLOAT;
    else if (PyComplex_Check(object))
        *kind = KIND_COMPLEX;
    else if (PyLong_Check(object)) {
        (void)PyLong_AsLongLongAndOverflow(object, &over);
        *kind = over > 0 ? KIND_LARGE : KIND_INT;
    } else if (PyIndex_Check(object) && !array_check(object))
        *kind = KIND_INT;
    else if (PyNumber_Check(object) && !array_check(object))
        *kind = KIND_FLOAT;
    else
        return nested_refuse(object);
    return 0;
}

/* Does something with each number in order. */
typedef int visitor(struct nested *nested, PyObject *number);

static int nested_walk(struct nested *nested, PyObject *object, int axis, visitor *visit) {
    if (axis == nested->rank)
        return is_sequence(object) ? error_set(TD_E_SHAPE, "the sequences have different depths"),
               -1                  : visit(nested, object);
    if (!is_sequence(object))
        return error_set(TD_E_SHAPE, "the sequences have different depths"), -1;
    if (PySequence_Size(object) != nested->shape[axis])
        return PyErr_Occurred() ? -1
                                : (error_set(TD_E_SHAPE, "the sequences of axis %d have different lengths", axis), -1);
    for (int64_t i = 0; i < nested->shape[axis]; i++) {
        PyObject *entry = PySequence_GetItem(object, i);
        int code = entry ? nested_walk(nested, entry, axis + 1, visit) : -1;
        Py_XDECREF(entry);
        if (code)
            return code;
    }
    return 0;
}

static int visit_kind(struct nested *nested, PyObject *number) {
    enum kind kind = KIND_BOOL;
    if (number_kind(number, &kind))
        return -1;
    if (kind > nested->kind)
        nested->kind = kind;
    return 0;
}

/* Writes the number as an element of the memory's dtype. */
static int visit_store(struct nested *nested, PyObject *number) {
    char *at = nested->at;
    nested->at += td_dtype_size(nested->dtype);
    PyObject *whole = NULL;
    if (nested->dtype == TD_I64 || nested->dtype == TD_U64) {
        whole = PyNumber_Long(number);
        if (!whole || scalar_fits(nested->result ? nested->result : nested->dtype, whole)) {
            Py_XDECREF(whole);
            return -1;
        }
    }
    double real = 0, imaginary = 0;
    if (nested->dtype == TD_F32 || nested->dtype == TD_F64)
        real = PyFloat_AsDouble(number);
    else if (nested->dtype == TD_C64 || nested->dtype == TD_C128) {
        PyObject *value = PyComplex_Check(number) ? number : NULL;
        real = value ? PyComplex_RealAsDouble(value) : PyFloat_AsDouble(number);
        imaginary = value ? PyComplex_ImagAsDouble(value) : 0;
    }
    switch (nested->dtype) {
    case TD_BOOL:
        *at = (char)PyObject_IsTrue(number);
        break;
    case TD_I64:
        *(int64_t *)(void *)at = PyLong_AsLongLong(whole);
        break;
    case TD_U64:
        *(uint64_t *)(void *)at = PyLong_AsUnsignedLongLong(whole);
        break;
    case TD_F32:
        *(float *)(void *)at = (float)real;
        break;
    case TD_F64:
        *(double *)(void *)at = real;
        break;
    case TD_C64:
        memcpy(at, (float[]){(float)real, (float)imaginary}, 2 * sizeof(float));
        break;
    default:
        memcpy(at, (double[]){real, imaginary}, 2 * sizeof(double));
    }
    Py_XDECREF(whole);
    return PyErr_Occurred() ? -1 : 0;
}

/* The dtype in which the numbers go to the device; it casts them to `dtype`. */
static td_dtype memory_dtype(enum kind kind, td_dtype dtype) {
    static const td_dtype own[] = {TD_BOOL, TD_I64, TD_U64, TD_F32, TD_C64};
    if (!dtype)
        return own[kind];
    switch (dtype_of(dtype)->class) {
    case 'b':
        return TD_BOOL;
    case 'i':
        return TD_I64;
    case 'u':
        return TD_U64;
    case 'c':
        return dtype;
    default:
        return dtype == TD_F32 ? TD_F32 : TD_F64;
    }
}

PyObject *sequence_upload(struct device *device, td_dtype dtype, PyObject *sequence) {
    struct nested nested = {.kind = KIND_BOOL, .result = dtype};
    if (!is_sequence(sequence))
        return (void)nested_refuse(sequence), NULL;
    if (nested_shape(&nested, sequence) || nested_walk(&nested, sequence, 0, visit_kind))
        return NULL;
    size_t n = 1;
    for (int i = 0; i < nested.rank; i++)
        n *= (size_t)nested.shape[i];
    if (!n && !dtype) /* no numbers: floats, as everywhere */
        nested.kind = KIND_FLOAT;
    nested.dtype = memory_dtype(nested.kind, dtype);
    if (nested.kind == KIND_COMPLEX && nested.dtype != TD_C64 && nested.dtype != TD_C128)
        return PyErr_Format(PyExc_TypeError, "a complex number is no value of %s", dtype_of(dtype)->name);
    struct target target = {.memory = malloc(n * td_dtype_size(nested.dtype) + 1)};
    if (!target.memory)
        return PyErr_NoMemory();
    nested.at = target.memory;
    PyObject *array = NULL;
    if (!nested_walk(&nested, sequence, 0, visit_store))
        array = upload_memory(device, nested.dtype, nested.rank, nested.shape, target.memory, &target);
    target_finish(&target);
    return dtype ? upload_cast(array, dtype) : array;
}
