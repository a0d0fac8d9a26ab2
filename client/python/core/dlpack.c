/* DLPack, both ways: https://dmlc.github.io/dlpack/. Values leave and enter as arrays in the memory of this process. */
#include "client/python/core/core.h"

#include <stdlib.h>
#include <string.h>

/* ---- the protocol's structures, as its specification fixes them ---- */

enum { DLPACK_CPU = 1, DLPACK_CUDA_HOST = 3 };
enum {
    DLPACK_INT,
    DLPACK_UINT,
    DLPACK_FLOAT,
    DLPACK_BFLOAT = 4,
    DLPACK_COMPLEX,
    DLPACK_BOOL,
    DLPACK_E4M3FN = 10,
    DLPACK_E5M2 = 12
};
enum { DLPACK_IS_COPIED = 2 };

struct dlpack_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t rank;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides in elements; NULL: row-major */
    uint64_t offset;          /* bytes */
};

struct dlpack_old {
    struct dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_old *self);
};

struct dlpack_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t flags;
    struct dlpack_tensor tensor;
};

static const char old_name[] = "dltensor", versioned_name[] = "dltensor_versioned";

static const struct {
    td_dtype dtype;
    uint8_t code, bits;
} rows[] = {
    {TD_BOOL, DLPACK_BOOL, 8},     {TD_U8, DLPACK_UINT, 8},      {TD_U16, DLPACK_UINT, 16},
    {TD_U32, DLPACK_UINT, 32},     {TD_U64, DLPACK_UINT, 64},    {TD_I8, DLPACK_INT, 8},
    {TD_I16, DLPACK_INT, 16},      {TD_I32, DLPACK_INT, 32},     {TD_I64, DLPACK_INT, 64},
    {TD_F16, DLPACK_FLOAT, 16},    {TD_BF16, DLPACK_BFLOAT, 16}, {TD_F32, DLPACK_FLOAT, 32},
    {TD_F64, DLPACK_FLOAT, 64},    {TD_C64, DLPACK_COMPLEX, 64}, {TD_C128, DLPACK_COMPLEX, 128},
    {TD_F8E4M3, DLPACK_E4M3FN, 8}, {TD_F8E5M2, DLPACK_E5M2, 8},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- in ---- */

/* Copies the elements of axis `axis` and the axes behind it to `to`, in row-major order; returns the place behind them. */
static char *gather(char *to, const char *from, const struct dlpack_tensor *tensor, size_t size, int axis) {
    if (axis == tensor->rank) {
        memcpy(to, from, size);
        return to + size;
    }
    for (int64_t i = 0; i < tensor->shape[axis]; i++)
        to = gather(to, from + i * tensor->strides[axis] * (int64_t)size, tensor, size, axis + 1);
    return to;
}

static bool is_row_major(const struct dlpack_tensor *tensor) {
    int64_t stride = 1;
    for (int i = tensor->rank; tensor->strides && i-- > 0; stride *= tensor->shape[i])
        if (tensor->strides[i] != stride && tensor->shape[i] != 1)
            return false;
    return true;
}

/* The capsule keeps the memory alive. */
static PyObject *tensor_upload(struct device *device, const struct dlpack_tensor *tensor, PyObject *capsule) {
    struct target target = {.memory = NULL};
    td_dtype dtype = 0;
    for (unsigned i = 0; i < ROWS; i++)
        if (rows[i].code == tensor->dtype.code && rows[i].bits == tensor->dtype.bits && tensor->dtype.lanes == 1)
            dtype = rows[i].dtype;
    if (!dtype)
        return PyErr_Format(PyExc_TypeError, "tensord has no dtype for DLPack's type %d of %d bits", tensor->dtype.code,
                            tensor->dtype.bits);
    if (tensor->device.type != DLPACK_CPU && tensor->device.type != DLPACK_CUDA_HOST)
        return PyErr_Format(PyExc_BufferError, "the array is on a device (DLPack's type %d): copy it to the CPU first",
                            tensor->device.type);
    if (tensor->rank > TD_RANK_MAX)
        return error_set(TD_E_SHAPE, "%d axes, 0 to %d are possible", tensor->rank, TD_RANK_MAX);
    const char *data = (const char *)tensor->data + tensor->offset;
    if (is_row_major(tensor)) {
        Py_INCREF(capsule);
        target.object = capsule;
        PyObject *array = upload_memory(device, dtype, tensor->rank, tensor->shape, data, &target);
        target_finish(&target);
        return array;
    }
    size_t bytes = td_dtype_size(dtype);
    for (int i = 0; i < tensor->rank; i++)
        bytes *= (size_t)tensor->shape[i];
    target.memory = malloc(bytes + 1);
    if (!target.memory)
        return PyErr_NoMemory();
    (void)gather(target.memory, data, tensor, td_dtype_size(dtype), 0);
    PyObject *array = upload_memory(device, dtype, tensor->rank, tensor->shape, target.memory, &target);
    target_finish(&target);
    return array;
}

/* The object's capsule. Objects from before version 1 of the protocol do not know `max_version`. */
static PyObject *capsule_of(PyObject *object) {
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *none = PyTuple_New(0);
    PyObject *names = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
    PyObject *capsule = method && none && names ? PyObject_Call(method, none, names) : NULL;
    if (!capsule && method && none && names && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_CallFunctionObjArgs(method, NULL);
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(names);
    return capsule;
}

PyObject *dlpack_upload(struct device *device, PyObject *object) {
    PyObject *capsule = capsule_of(object), *array = NULL;
    if (!capsule)
        return NULL;
    /* The producer's capsule keeps the memory alive, and frees it: nobody has taken it over. */
    if (PyCapsule_IsValid(capsule, versioned_name)) {
        const struct dlpack_versioned *managed = PyCapsule_GetPointer(capsule, versioned_name);
        if (managed->version.major == 1)
            array = tensor_upload(device, &managed->tensor, capsule);
        else
            PyErr_Format(PyExc_BufferError, "version %d of DLPack is not known", (int)managed->version.major);
    } else {
        const struct dlpack_old *managed = PyCapsule_GetPointer(capsule, old_name);
        array = managed ? tensor_upload(device, &managed->tensor, capsule) : NULL;
    }
    Py_DECREF(capsule);
    return array;
}

/* ---- out ---- */

static void old_free(struct dlpack_old *managed) {
    free(managed->tensor.data);
    free(managed->tensor.shape);
    free(managed);
}

static void versioned_free(struct dlpack_versioned *managed) {
    free(managed->tensor.data);
    free(managed->tensor.shape);
    free(managed);
}

/* A capsule that a consumer has taken over has another name. */
static void capsule_free(PyObject *capsule) {
    if (PyCapsule_IsValid(capsule, old_name))
        old_free(PyCapsule_GetPointer(capsule, old_name));
    else if (PyCapsule_IsValid(capsule, versioned_name))
        versioned_free(PyCapsule_GetPointer(capsule, versioned_name));
}

/* Fetches the value. The caller frees data and shape. */
static int tensor_fetch(struct array *array, struct dlpack_tensor *out) {
    const td_tensor *tensor = array_tensor(array);
    if (!tensor)
        return -1;
    size_t bytes = td_tensor_bytes(tensor), rank = (size_t)td_tensor_rank(tensor);
    int64_t *shape = malloc(2 * rank * sizeof *shape + 1), stride = 1;
    struct target target = {.memory = malloc(bytes + 1)};
    if (!shape || !target.memory || (memcpy(shape, td_tensor_shape(tensor), rank * sizeof *shape), false) ||
        wait_fetch(array, target.memory, bytes, &target)) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        free(shape);
        target_finish(&target);
        return -1;
    }
    *out =
        (struct dlpack_tensor){.data = target.memory, .rank = (int32_t)rank, .shape = shape, .strides = shape + rank};
    out->device.type = DLPACK_CPU;
    for (size_t i = rank; i-- > 0; stride *= shape[i])
        out->strides[i] = stride;
    for (unsigned i = 0; i < ROWS; i++) {
        if (rows[i].dtype == td_tensor_dtype(array->tensor)) {
            out->dtype.code = rows[i].code;
            out->dtype.bits = rows[i].bits;
            out->dtype.lanes = 1;
        }
    }
    return 0;
}

static PyObject *capsule_create(struct array *array, bool versioned) {
    struct dlpack_tensor tensor;
    struct dlpack_old *old = versioned ? NULL : calloc(1, sizeof *old);
    struct dlpack_versioned *new = versioned ? calloc(1, sizeof *new) : NULL;
    if (!old && !new)
        return PyErr_NoMemory();
    if (tensor_fetch(array, &tensor)) {
        free(old);
        free(new);
        return NULL;
    }
    if (old) {
        *old = (struct dlpack_old){.tensor = tensor, .deleter = old_free};
    } else {
        *new = (struct dlpack_versioned){.tensor = tensor, .deleter = versioned_free, .flags = DLPACK_IS_COPIED};
        new->version.major = 1;
    }
    PyObject *capsule = PyCapsule_New(old ? (void *)old : (void *)new, old ? old_name : versioned_name, capsule_free);
    if (!capsule && old)
        old_free(old);
    else if (!capsule)
        versioned_free(new);
    return capsule;
}

static PyObject *method_dlpack(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    int major = 0, minor = 0, type = DLPACK_CPU, id = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "|$OOOO:__dlpack__", keywords, &stream, &version, &device,
                                     &copy))
        return NULL;
    if (version != Py_None && !PyArg_ParseTuple(version, "ii;max_version is two integers", &major, &minor))
        return NULL;
    if (device != Py_None && !PyArg_ParseTuple(device, "ii;dl_device is two integers", &type, &id))
        return NULL;
    if (type != DLPACK_CPU || copy == Py_False) {
        PyErr_SetString(
            PyExc_BufferError,
            "an array is a copy in the CPU's memory for others: dl_device is (1, 0), and copy is not False");
        return NULL;
    }
    return capsule_create((struct array *)self, major >= 1);
}

static PyObject *method_dlpack_device(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return Py_BuildValue("(ii)", DLPACK_CPU, 0);
}

PyMethodDef dlpack_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))method_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nA DLPack capsule of a copy of the "
     "value in the CPU's "
     "memory. Blocks."},
    {"__dlpack_device__", method_dlpack_device, METH_NOARGS,
     "__dlpack_device__()\n--\n\n(1, 0): the CPU, where __dlpack__() puts the copy."},
    {0},
};
