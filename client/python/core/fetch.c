/* Looking at the value of an array: every function here blocks until the value has been computed and has come. */
#include "client/python/core/core.h"

#include <stdlib.h>
#include <string.h>

/* ---- the buffer protocol: of a copy that the view owns ---- */

static int array_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    struct array *array = (struct array *)self;
    const td_tensor *tensor = array_tensor(array);
    view->obj = NULL;
    if (!tensor)
        return -1;
    const struct dtype *dtype = dtype_of(td_tensor_dtype(tensor));
    if (!dtype->format || (flags & PyBUF_WRITABLE)) {
        PyErr_Format(PyExc_BufferError,
                     dtype->format ? "the value of an array is read-only" : "%s has no format in the buffer protocol",
                     dtype->name);
        return -1;
    }
    size_t bytes = td_tensor_bytes(tensor), rank = (size_t)td_tensor_rank(tensor),
           extents = 2 * rank * sizeof(Py_ssize_t);
    Py_ssize_t *shape = malloc(extents + bytes + 1);
    struct target target = {.memory = shape};
    void *data = (char *)shape + extents;
    if (!shape) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < rank; i++)
        shape[i] = (Py_ssize_t)td_tensor_shape(tensor)[i];
    if (wait_fetch(array, data, bytes, &target)) {
        target_finish(&target);
        return -1;
    }
    Py_ssize_t *strides = shape + rank, stride = (Py_ssize_t)td_dtype_size(dtype->number);
    for (size_t i = rank; i-- > 0; stride *= shape[i])
        strides[i] = stride;
    *view = (Py_buffer){.buf = data,
                        .obj = self,
                        .len = (Py_ssize_t)bytes,
                        .itemsize = (Py_ssize_t)td_dtype_size(dtype->number),
                        .readonly = 1,
                        .ndim = (int)rank,
                        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)dtype->format : NULL,
                        .shape = flags & PyBUF_ND ? shape : NULL,
                        .strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? strides : NULL,
                        .internal = shape};
    Py_INCREF(self);
    return 0;
}

static void array_releasebuffer(PyObject *self, Py_buffer *view) {
    (void)self;
    free(view->internal);
}

/* ---- into memory of others ---- */

/* Takes over the reference to the object. */
static PyObject *fetch_to(struct array *array, PyObject *object) {
    const td_tensor *tensor = array_tensor(array);
    struct target target = {.memory = NULL};
    if (!tensor || !object || PyObject_GetBuffer(object, &target.view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS)) {
        Py_XDECREF(object);
        return NULL;
    }
    int code = -1;
    if ((size_t)target.view.len != td_tensor_bytes(tensor))
        PyErr_Format(PyExc_ValueError, "the buffer has %zd bytes, the array %zu", target.view.len,
                     td_tensor_bytes(tensor));
    else
        code = wait_fetch(array, target.view.buf, (size_t)target.view.len, &target);
    target_finish(&target);
    if (!code)
        return object;
    Py_DECREF(object);
    return NULL;
}

static PyObject *method_fetch_into(PyObject *self, PyObject *buffer) {
    Py_INCREF(buffer);
    PyObject *done = fetch_to((struct array *)self, buffer);
    Py_XDECREF(done);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *import_name(const char *module, const char *name) {
    PyObject *from = PyImport_ImportModule(module);
    PyObject *object = from ? PyObject_GetAttrString(from, name) : NULL;
    Py_XDECREF(from);
    return object;
}

/* NumPy's type for a dtype, by name; bfloat16 and the f8 formats are those of ml_dtypes. */
static PyObject *numpy_dtype(const struct dtype *dtype) {
    if (dtype->format)
        return PyUnicode_FromString(dtype->name);
    PyObject *type = import_name("ml_dtypes", dtype->name);
    if (!type && PyErr_ExceptionMatches(PyExc_ImportError))
        PyErr_Format(PyExc_TypeError, "NumPy has no %s: cast the array to float32 first, or install ml_dtypes",
                     dtype->name);
    return type;
}

static PyObject *method_numpy(PyObject *self, PyObject *unused) {
    struct array *array = (struct array *)self;
    const td_tensor *tensor = array_tensor(array);
    (void)unused;
    if (!tensor)
        return NULL;
    const struct dtype *dtype = dtype_of(td_tensor_dtype(tensor));
    PyObject *empty = import_name("numpy", "empty"), *shape = array_shape(array);
    PyObject *type = empty ? numpy_dtype(dtype) : NULL;
    PyObject *result = empty && shape && type ? PyObject_CallFunctionObjArgs(empty, shape, type, NULL) : NULL;
    Py_XDECREF(empty);
    Py_XDECREF(shape);
    Py_XDECREF(type);
    if (!result || dtype->format)
        return result ? fetch_to(array, result) : NULL;
    /* NumPy shows no buffer of foreign dtypes, but one of their bytes. */
    PyObject *bytes = PyObject_CallMethod(result, "view", "s", "uint8");
    PyObject *done = bytes ? fetch_to(array, bytes) : NULL;
    Py_XDECREF(done);
    if (done)
        return result;
    Py_DECREF(result);
    return NULL;
}

static PyObject *method_array(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "|OO:__array__", keywords, &dtype, &copy))
        return NULL;
    if (copy == Py_False) {
        PyErr_SetString(PyExc_ValueError, "the value of an array on a device cannot be had without a copy");
        return NULL;
    }
    PyObject *result = method_numpy(self, NULL);
    if (!result || dtype == Py_None)
        return result;
    PyObject *cast = PyObject_CallMethod(result, "astype", "O", dtype);
    Py_DECREF(result);
    return cast;
}

/* ---- Python's numbers ---- */

static double read_half(const void *at) {
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    _Float16 value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double read_bfloat(const void *at) {
    uint32_t bits = 0;
    memcpy((char *)&bits + 2, at, 2);
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* E4M3: a sign, 4 bits of exponent (bias 7) and 3 of mantissa; all ones is NaN, and there are no infinities. */
static double read_e4m3(const void *at) {
    unsigned bits = *(const uint8_t *)at, exponent = bits >> 3 & 15, mantissa = bits & 7;
    double value =
        exponent ? (double)(8 + mantissa) / 8 * (double)(UINT64_C(1) << exponent) / 128 : (double)mantissa / 512;
    if ((bits & 0x7f) == 0x7f)
        value = __builtin_nan("");
    return bits >> 7 ? -value : value;
}

static double read_e5m2(const void *at) {
    uint8_t bytes[2] = {0, *(const uint8_t *)at};
    return read_half(bytes);
}

#define READ(type, at) (*(const type *)(at))

/* The element as a Python number; `at` is aligned. */
static PyObject *number_of(td_dtype dtype, const void *at) {
    switch (dtype) {
    case TD_BOOL:
        return PyBool_FromLong(READ(uint8_t, at));
    case TD_U8:
        return PyLong_FromUnsignedLong(READ(uint8_t, at));
    case TD_U16:
        return PyLong_FromUnsignedLong(READ(uint16_t, at));
    case TD_U32:
        return PyLong_FromUnsignedLong(READ(uint32_t, at));
    case TD_U64:
        return PyLong_FromUnsignedLongLong(READ(uint64_t, at));
    case TD_I8:
        return PyLong_FromLong(READ(int8_t, at));
    case TD_I16:
        return PyLong_FromLong(READ(int16_t, at));
    case TD_I32:
        return PyLong_FromLong(READ(int32_t, at));
    case TD_I64:
        return PyLong_FromLongLong(READ(int64_t, at));
    case TD_F16:
        return PyFloat_FromDouble(read_half(at));
    case TD_BF16:
        return PyFloat_FromDouble(read_bfloat(at));
    case TD_F32:
        return PyFloat_FromDouble((double)READ(float, at));
    case TD_F64:
        return PyFloat_FromDouble(READ(double, at));
    case TD_F8E4M3:
        return PyFloat_FromDouble(read_e4m3(at));
    case TD_F8E5M2:
        return PyFloat_FromDouble(read_e5m2(at));
    case TD_C64:
        return PyComplex_FromDoubles((double)READ(float, at), (double)((const float *)at)[1]);
    case TD_C128:
        return PyComplex_FromDoubles(READ(double, at), ((const double *)at)[1]);
    }
    return PyErr_Format(PyExc_SystemError, "dtype %d", dtype);
}

/* The value in memory of its own. */
static void *fetch_alone(struct array *array) {
    const td_tensor *tensor = array_tensor(array);
    size_t bytes = tensor ? td_tensor_bytes(tensor) : 0;
    struct target target = {.memory = tensor ? malloc(bytes + 1) : NULL};
    if (tensor && !target.memory)
        return PyErr_NoMemory();
    if (tensor && !wait_fetch(array, target.memory, bytes, &target))
        return target.memory;
    target_finish(&target);
    return NULL;
}

static PyObject *method_item(PyObject *self, PyObject *unused) {
    struct array *array = (struct array *)self;
    const td_tensor *tensor = array_tensor(array);
    (void)unused;
    if (!tensor)
        return NULL;
    td_dtype dtype = td_tensor_dtype(tensor);
    if (td_tensor_bytes(tensor) != td_dtype_size(dtype))
        return PyErr_Format(PyExc_ValueError, "only an array of one element is a number, and this one has %zu",
                            td_tensor_bytes(tensor) / td_dtype_size(dtype));
    void *value = fetch_alone(array);
    PyObject *number = value ? number_of(dtype, value) : NULL;
    free(value);
    return number;
}

/* A list for axis `axis` and the axes behind it. */
static PyObject *list_of(td_dtype dtype, int rank, const Py_ssize_t *shape, int axis, const char **at) {
    if (axis == rank) {
        PyObject *number = number_of(dtype, *at);
        *at += td_dtype_size(dtype);
        return number;
    }
    PyObject *list = PyList_New(shape[axis]);
    for (Py_ssize_t i = 0; list && i < shape[axis]; i++) {
        PyObject *entry = list_of(dtype, rank, shape, axis + 1, at);
        if (!entry || PyList_SetItem(list, i, entry)) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *method_tolist(PyObject *self, PyObject *unused) {
    struct array *array = (struct array *)self;
    const td_tensor *tensor = array_tensor(array);
    Py_ssize_t shape[TD_RANK_MAX];
    (void)unused;
    if (!tensor)
        return NULL;
    int rank = td_tensor_rank(tensor);
    td_dtype dtype = td_tensor_dtype(tensor);
    for (int i = 0; i < rank; i++)
        shape[i] = (Py_ssize_t)td_tensor_shape(tensor)[i];
    void *value = fetch_alone(array);
    const char *at = value;
    PyObject *list = value ? list_of(dtype, rank, shape, 0, &at) : NULL;
    free(value);
    return list;
}

/* The element as a number that `convert` takes. */
static PyObject *converted(PyObject *self, PyObject *convert(PyObject *)) {
    PyObject *item = method_item(self, NULL);
    PyObject *number = item ? convert(item) : NULL;
    Py_XDECREF(item);
    return number;
}

static PyObject *array_float(PyObject *self) {
    return converted(self, PyNumber_Float);
}

static PyObject *array_int(PyObject *self) {
    return converted(self, PyNumber_Long);
}

static PyObject *array_index(PyObject *self) {
    const td_tensor *tensor = array_tensor((struct array *)self);
    if (!tensor)
        return NULL;
    const struct dtype *dtype = dtype_of(td_tensor_dtype(tensor));
    if ((dtype->class != 'i' && dtype->class != 'u') || td_tensor_bytes(tensor) != td_dtype_size(dtype->number))
        return PyErr_Format(PyExc_TypeError, "only one integer can be an index, not %zu of %s",
                            td_tensor_bytes(tensor) / td_dtype_size(dtype->number), dtype->name);
    return method_item(self, NULL);
}

static int array_bool(PyObject *self) {
    PyObject *item = method_item(self, NULL);
    int truth = item ? PyObject_IsTrue(item) : -1;
    Py_XDECREF(item);
    return truth;
}

static PyObject *complex_of(PyObject *item) {
    return PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, item, NULL);
}

static PyObject *method_complex(PyObject *self, PyObject *unused) {
    (void)unused;
    return converted(self, complex_of);
}

/* ---- waiting ---- */

static PyObject *method_wait(PyObject *self, PyObject *unused) {
    (void)unused;
    if (wait_array((struct array *)self))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *method_test(PyObject *self, PyObject *unused) {
    td_tensor *tensor = array_tensor((struct array *)self);
    (void)unused;
    return tensor ? PyBool_FromLong(td_test(tensor)) : NULL;
}

static PyObject *method_wait_fd(PyObject *self, PyObject *unused) {
    td_tensor *tensor = array_tensor((struct array *)self);
    int fd;
    (void)unused;
    if (!tensor)
        return NULL;
    return td_wait_fd(tensor, &fd) ? device_raise(((struct array *)self)->device) : PyLong_FromLong(fd);
}

/* The waiting itself is Python: asyncio's loop watches a descriptor. */
static PyObject *array_await(PyObject *self) {
    PyObject *wait = import_name("tensord._await", "wait");
    PyObject *coroutine = wait ? PyObject_CallFunctionObjArgs(wait, self, NULL) : NULL;
    PyObject *iterator = coroutine ? PyObject_CallMethod(coroutine, "__await__", NULL) : NULL;
    Py_XDECREF(wait);
    Py_XDECREF(coroutine);
    return iterator;
}

PyMethodDef fetch_methods[] = {
    {"numpy", method_numpy, METH_NOARGS, "numpy()\n--\n\nThe value as a new NumPy array. Blocks."},
    {"__array__", (PyCFunction)(void (*)(void))method_array, METH_VARARGS | METH_KEYWORDS,
     "__array__(dtype=None, copy=None)\n--\n\nFor numpy.asarray(). Blocks."},
    {"fetch_into", method_fetch_into, METH_O,
     "fetch_into(buffer)\n--\n\nCopies the value, in row-major order, into a writable contiguous buffer of its size. "
     "Blocks."},
    {"item", method_item, METH_NOARGS, "item()\n--\n\nThe only element as a Python number. Blocks."},
    {"tolist", method_tolist, METH_NOARGS, "tolist()\n--\n\nThe value as nested lists of Python numbers. Blocks."},
    {"wait", method_wait, METH_NOARGS,
     "wait()\n--\n\nBlocks until the value has been computed; raises if it has failed."},
    {"test", method_test, METH_NOARGS,
     "test()\n--\n\nWhether the value has been computed, or has failed. The first call asks the daemon. Does not "
     "block."},
    {"_wait_fd", method_wait_fd, METH_NOARGS, "A descriptor that becomes readable when the value has been computed."},
    {"__complex__", method_complex, METH_NOARGS, NULL},
    {0},
};

PyType_Slot fetch_slots[] = {
    {Py_bf_getbuffer, array_getbuffer}, {Py_bf_releasebuffer, array_releasebuffer},
    {Py_nb_float, array_float},         {Py_nb_int, array_int},
    {Py_nb_index, array_index},         {Py_nb_bool, array_bool},
    {Py_am_await, array_await},         {0},
};
