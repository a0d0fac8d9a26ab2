/* Arrays from values of this process. */
#include "client/python/core/core.h"

#include <stdlib.h>
#include <string.h>

PyObject *upload_memory(struct device *device, td_dtype dtype, int rank, const int64_t *shape, const void *data,
                        struct target *target) {
    enum { COPIED_MAX = 256 << 10 }; /* td_upload() copies so much, and does not block */
    td_device *handle = device_open(device);
    td_tensor *tensor;
    int code = 0;
    size_t bytes = td_dtype_size(dtype);
    for (int i = 0; i < rank && i < TD_RANK_MAX; i++)
        bytes *= (size_t)shape[i];
    if (!handle)
        return NULL;
    do {
        label_next();
        if (bytes > COPIED_MAX)
            tensor = wait_upload(device, dtype, rank, shape, data, target);
        else
            tensor = td_upload(handle, dtype, rank, shape, data);
        if (!tensor && PyErr_Occurred())
            return NULL;
    } while (!tensor && td_last_error()->code == TD_E_AGAIN && !(code = device_wait_room(device)));
    return code ? NULL : array_wrap(device, tensor);
}

PyObject *upload_cast(PyObject *array, td_dtype dtype) {
    struct array *x = (struct array *)array;
    if (!array || td_tensor_dtype(x->tensor) == dtype)
        return array;
    td_tensor *tensor;
    bool noted = graph_wants(array, array);
    int code = 0;
    do {
        if (noted && graph_enter())
            return Py_DECREF(array), NULL;
        tensor = td_cast(x->tensor, dtype); /* a handle that was taken before a wait may be gone */
        if (noted)
            graph_leave();
    } while (!tensor && td_last_error()->code == TD_E_AGAIN && !(code = device_wait_room(x->device)));
    PyObject *result = code ? NULL : array_wrap(x->device, tensor);
    if (noted)
        result = graph_mark(result, graph_lost(array));
    Py_DECREF(array);
    return result;
}

PyObject *upload_view(struct device *device, td_dtype dtype, Py_buffer *view) {
    td_dtype found = dtype_of_format(view->format, view->itemsize);
    int64_t shape[TD_RANK_MAX];
    PyObject *result = NULL;
    struct target target = {.memory = NULL};
    bool row_major = PyBuffer_IsContiguous(view, 'C');
    if (!found)
        PyErr_Format(PyExc_TypeError, "tensord has no dtype for elements of %zd bytes with the format \"%s\"",
                     view->itemsize, view->format ? view->format : "B");
    else if (view->ndim > TD_RANK_MAX)
        (void)error_set(TD_E_SHAPE, "%d axes, 0 to %d are possible", view->ndim, TD_RANK_MAX);
    else if (!row_major && !(target.memory = malloc((size_t)view->len + 1)))
        PyErr_NoMemory();
    else if (row_major || !PyBuffer_ToContiguous(target.memory, view, view->len, 'C')) {
        for (int i = 0; i < view->ndim; i++)
            shape[i] = view->shape ? view->shape[i] : view->len / view->itemsize;
        if (row_major) {
            target.view = *view;
            view->obj = NULL;
        }
        result = upload_memory(device, found, view->ndim, shape, row_major ? view->buf : target.memory, &target);
    }
    target_finish(&target);
    if (view->obj)
        PyBuffer_Release(view);
    return dtype ? upload_cast(result, dtype) : result;
}

/* ---- asarray ---- */

/* An array already: as it is, or cast, or moved. */
static PyObject *asarray_array(struct device *device, td_dtype dtype, PyObject *object, PyObject *copy) {
    struct array *x = (struct array *)object;
    td_tensor *tensor = array_tensor(x);
    if (!tensor)
        return NULL;
    bool casts = dtype && dtype != td_tensor_dtype(tensor), moves = device && device != x->device;
    if ((casts || moves) && copy == Py_False)
        return PyErr_Format(PyExc_ValueError, "another %s cannot be had without a copy", casts ? "dtype" : "device");
    Py_INCREF(object);
    if (!casts && !moves && copy != Py_True)
        return object;
    if (casts)
        object = upload_cast(object, dtype);
    if (moves && object) {
        PyObject *moved = copy_to((struct array *)object, device);
        Py_DECREF(object);
        return moved;
    }
    if (casts || !object)
        return object;
    PyObject *result = operator_unary(object, td_copy);
    Py_DECREF(object);
    return result;
}

static PyObject *asarray_number(struct device *device, td_dtype dtype, PyObject *number) {
    td_device *handle = device_open(device);
    int over = 0;
    if (!dtype && PyLong_Check(number))
        (void)PyLong_AsLongLongAndOverflow(number, &over);
    td_dtype own = over > 0 ? TD_U64 : scalar_dtype(number);
    td_tensor *tensor = NULL;
    int code = 0;
    if (!handle)
        return NULL;
    if (dtype && PyComplex_Check(number) && dtype_of(dtype)->class != 'c')
        return PyErr_Format(PyExc_TypeError, "a complex number is no value of %s", dtype_of(dtype)->name);
    do {
        label_next();
        tensor = scalar_full(handle, dtype ? dtype : own, TD_SCALAR, number);
    } while (!tensor && !PyErr_Occurred() && td_last_error()->code == TD_E_AGAIN && !(code = device_wait_room(device)));
    return tensor || !PyErr_Occurred() ? array_wrap(device, tensor) : NULL;
}

/* NumPy arrays of bfloat16 and f8 show no buffer: ml_dtypes has the names of these dtypes. 0, without an exception: it is none. */
static td_dtype foreign_dtype(PyObject *object) {
    PyObject *type = PyObject_GetAttrString(object, "dtype");
    PyObject *name = type ? PyObject_GetAttrString(type, "name") : NULL;
    td_dtype dtype = name && PyUnicode_Check(name) ? dtype_take(name) : 0;
    PyErr_Clear();
    Py_XDECREF(type);
    Py_XDECREF(name);
    return dtype && !dtype_of(dtype)->format ? dtype : 0;
}

int shape_take(PyObject *object, int64_t shape[TD_RANK_MAX], int *rank) {
    Py_ssize_t n = PySequence_Size(object);
    if (n < 0)
        return -1;
    if (n > TD_RANK_MAX)
        return error_set(TD_E_SHAPE, "%zd axes, 0 to %d are possible", n, TD_RANK_MAX), -1;
    for (*rank = 0; *rank < n; ++*rank) {
        PyObject *extent = PySequence_GetItem(object, *rank);
        PyObject *index = extent ? PyNumber_Index(extent) : NULL;
        shape[*rank] = index ? PyLong_AsLongLong(index) : -1;
        Py_XDECREF(extent);
        Py_XDECREF(index);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* The buffer's bytes as elements of a dtype and shape. */
static PyObject *upload_bytes(struct device *device, td_dtype dtype, PyObject *object, PyObject *shape_object) {
    int64_t shape[TD_RANK_MAX];
    int rank;
    struct target target = {.memory = NULL};
    size_t bytes = td_dtype_size(dtype);
    if (shape_take(shape_object, shape, &rank) || PyObject_GetBuffer(object, &target.view, PyBUF_C_CONTIGUOUS))
        return NULL;
    bool fits = true;
    for (int i = 0; i < rank; i++)
        fits = fits && shape[i] >= 0 && !__builtin_mul_overflow(bytes, (size_t)shape[i], &bytes);
    PyObject *result = NULL;
    if (fits && bytes == (size_t)target.view.len)
        result = upload_memory(device, dtype, rank, shape, target.view.buf, &target);
    else
        PyErr_Format(PyExc_ValueError, "the buffer has %zd bytes, which is not the size of this shape",
                     target.view.len);
    target_finish(&target);
    return result;
}

static PyObject *asarray_foreign(struct device *device, td_dtype dtype, td_dtype found, PyObject *object) {
    PyObject *bytes = PyObject_CallMethod(object, "tobytes", NULL), *shape = PyObject_GetAttrString(object, "shape");
    PyObject *result = bytes && shape ? upload_bytes(device, found, bytes, shape) : NULL;
    Py_XDECREF(bytes);
    Py_XDECREF(shape);
    return dtype ? upload_cast(result, dtype) : result;
}

/* What has __array__(), and no buffer: the array that it gives. */
static PyObject *asarray_array_like(struct device *device, td_dtype dtype, PyObject *object) {
    Py_buffer view;
    PyObject *array = PyObject_CallMethod(object, "__array__", NULL);
    PyObject *result = NULL;
    if (array && !PyObject_GetBuffer(array, &view, PyBUF_FULL_RO))
        result = upload_view(device, dtype, &view);
    Py_XDECREF(array);
    return result;
}

static PyObject *asarray_object(struct device *device, td_dtype dtype, PyObject *object) {
    Py_buffer view;
    td_dtype foreign;
    if (PyObject_CheckBuffer(object)) {
        if (!PyObject_GetBuffer(object, &view, PyBUF_FULL_RO))
            return upload_view(device, dtype, &view);
        PyErr_Clear();
        if ((foreign = foreign_dtype(object)))
            return asarray_foreign(device, dtype, foreign, object);
    }
    if (scalar_check(object))
        return asarray_number(device, dtype, object);
    if (PyObject_HasAttrString(object, "__dlpack__")) {
        PyObject *result = dlpack_upload(device, object);
        return dtype ? upload_cast(result, dtype) : result;
    }
    if (PyObject_HasAttrString(object, "__array__"))
        return asarray_array_like(device, dtype, object);
    return sequence_upload(device, dtype, object);
}

static PyObject *function_asarray(PyObject *module, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"obj", "dtype", "device", "copy", NULL};
    PyObject *object, *dtype_object = Py_None, *device_object = Py_None, *copy = Py_None;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O|OOO:asarray", keywords, &object, &dtype_object,
                                     &device_object, &copy))
        return NULL;
    td_dtype dtype = dtype_object == Py_None ? 0 : dtype_take(dtype_object);
    if (PyErr_Occurred())
        return NULL;
    bool of_own = array_check(object);
    struct device *device = of_own && device_object == Py_None ? NULL : device_take(device_object);
    PyObject *result = NULL;
    if (PyErr_Occurred())
        ;
    else if (of_own)
        result = asarray_array(device, dtype, object, copy);
    else if (copy == Py_False)
        PyErr_SetString(PyExc_ValueError, "values of this process cannot be on a device without a copy");
    else
        result = asarray_object(device, dtype, object);
    Py_XDECREF(device);
    return result;
}

static PyObject *function_from_buffer(PyObject *module, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"obj", "dtype", "shape", "device", NULL};
    PyObject *object, *dtype_object, *shape, *device_object = Py_None;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "OOO|O:from_buffer", keywords, &object, &dtype_object, &shape,
                                     &device_object))
        return NULL;
    td_dtype dtype = dtype_take(dtype_object);
    struct device *device = dtype ? device_take(device_object) : NULL;
    PyObject *result = device ? upload_bytes(device, dtype, object, shape) : NULL;
    Py_XDECREF(device);
    return result;
}

/* ---- copies between devices ---- */

/* Through this process: the devices are of different daemons, or of different connections. */
static PyObject *copy_through(struct array *x, struct device *device) {
    const td_tensor *tensor = array_tensor(x);
    size_t bytes = td_tensor_bytes(tensor);
    td_dtype dtype = td_tensor_dtype(tensor);
    int rank = td_tensor_rank(tensor);
    int64_t shape[TD_RANK_MAX];
    for (int i = 0; i < rank; i++)
        shape[i] = td_tensor_shape(tensor)[i];
    struct target target = {.memory = malloc(bytes + 1)};
    PyObject *result = NULL;
    if (!target.memory)
        PyErr_NoMemory();
    else if (!wait_fetch(x, target.memory, bytes, &target))
        result = upload_memory(device, dtype, rank, shape, target.memory, &target);
    target_finish(&target);
    return result;
}

PyObject *copy_to(struct array *x, struct device *device) {
    td_device *handle = device_open(device);
    td_tensor *copy = NULL;
    int code = 0;
    if (!handle || !array_tensor(x))
        return NULL;
    if (device->connection != x->device->connection)
        return graph_copied(x, copy_through(x, device));
    bool noted = graph_wants((PyObject *)x, (PyObject *)x);
    do {
        if (noted && graph_enter())
            return NULL;
        label_next();
        copy = td_copy_to(x->tensor, handle);
        if (noted)
            graph_leave();
    } while (!copy && td_last_error()->code == TD_E_AGAIN && !(code = device_wait_room(device)));
    PyObject *result = code ? NULL : array_wrap(device, copy);
    return noted ? graph_mark(result, graph_lost((PyObject *)x)) : result;
}

static PyObject *function_copy_to(PyObject *module, PyObject *arguments) {
    PyObject *x, *device_object;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O:copy_to", array_type, &x, &device_object))
        return NULL;
    struct device *device = device_take(device_object);
    PyObject *result = device ? copy_to((struct array *)x, device) : NULL;
    Py_XDECREF(device);
    return result;
}

PyMethodDef upload_functions[] = {
    {"asarray", (PyCFunction)(void (*)(void))function_asarray, METH_VARARGS | METH_KEYWORDS,
     "asarray(obj, dtype=None, device=None, copy=None)\n--\n\nAn array of a number, of nested sequences of numbers, of "
     "an object with a "
     "buffer (such as a NumPy array) or with __dlpack__(), or of an array. Python's numbers become int64, float32, "
     "complex64 or bool. "
     "Blocks until more than 256 KiB are sent."},
    {"from_buffer", (PyCFunction)(void (*)(void))function_from_buffer, METH_VARARGS | METH_KEYWORDS,
     "from_buffer(obj, dtype, shape, device=None)\n--\n\nAn array whose elements are the bytes of a contiguous "
     "buffer."},
    {"copy_to", function_copy_to, METH_VARARGS,
     "copy_to(x, device)\n--\n\nA copy on another device. Does not block between devices of one connection; else the "
     "value goes through "
     "this process."},
    {0},
};
