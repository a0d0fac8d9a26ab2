/* Named tensors: values that outlive the program. */
#include "client/python/core/core.h"

#include <stdlib.h>

static PyObject *method_publish(PyObject *self, PyObject *name) {
    struct array *array = (struct array *)self;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    td_tensor *tensor = text ? array_tensor(array) : NULL;
    int code;
    if (!tensor || wait_array(array)) /* Ctrl-C ends this wait; publishing itself is short */
        return NULL;
    array->pins++;
    array->device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    code = td_publish(tensor, text);
    Py_END_ALLOW_THREADS;
    array->device->connection->waits--;
    array->pins--;
    if (code)
        return device_raise(array->device);
    Py_RETURN_NONE;
}

PyMethodDef name_methods[] = {
    {"publish", method_publish, METH_O,
     "publish(name)\n--\n\nGives the value a name, by which other programs of the same user find it: "
     "device.lookup(name). It outlives this "
     "program. Blocks until the value has been computed."},
    {0},
};

static PyObject *device_lookup(PyObject *self, PyObject *name) {
    struct device *device = (struct device *)self;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    td_device *handle = text ? device_open(device) : NULL;
    td_tensor *tensor;
    if (!handle)
        return NULL;
    device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    tensor = td_open(handle, text);
    Py_END_ALLOW_THREADS;
    device->connection->waits--;
    return array_wrap(device, tensor);
}

static PyObject *device_unpublish(PyObject *self, PyObject *name) {
    struct device *device = (struct device *)self;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    td_device *handle = text ? device_open(device) : NULL;
    int code;
    if (!handle)
        return NULL;
    device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    code = td_unpublish(handle, text);
    Py_END_ALLOW_THREADS;
    device->connection->waits--;
    if (code)
        return device_raise(device);
    Py_RETURN_NONE;
}

/* A dict of the name's properties. */
static PyObject *name_info(const td_name_info *info) {
    PyObject *shape = PyTuple_New(info->rank);
    for (int i = 0; shape && i < info->rank; i++) {
        PyObject *extent = PyLong_FromLongLong(info->shape[i]);
        if (!extent || PyTuple_SetItem(shape, i, extent)) {
            Py_DECREF(shape);
            return NULL;
        }
    }
    if (!shape)
        return NULL;
    return Py_BuildValue("{s:s,s:O,s:N,s:K,s:d,s:O}", "name", info->name, "dtype", (PyObject *)dtype_of(info->dtype),
                         "shape", shape, "nbytes", (unsigned long long)info->bytes, "age", info->age_s, "saved",
                         info->unsaved ? Py_False : Py_True);
}

static PyObject *device_names(PyObject *self, PyObject *unused) {
    struct device *device = (struct device *)self;
    td_device *handle = device_open(device);
    td_name_info *infos = NULL;
    size_t count = 0, capacity = 0;
    int code = 0;
    (void)unused;
    if (!handle)
        return NULL;
    do {
        capacity = count + 16; /* others may publish meanwhile */
        td_name_info *more = realloc(infos, capacity * sizeof *infos);
        if (!more) {
            free(infos);
            return PyErr_NoMemory();
        }
        infos = more;
        device->connection->waits++;
        Py_BEGIN_ALLOW_THREADS;
        code = td_names(handle, infos, capacity, &count);
        Py_END_ALLOW_THREADS;
        device->connection->waits--;
    } while (!code && count > capacity);
    PyObject *list = code ? device_raise(device) : PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *info = name_info(&infos[i]);
        if (!info || PyList_Append(list, info)) {
            Py_DECREF(list);
            list = NULL;
        }
        Py_XDECREF(info);
    }
    free(infos);
    return list;
}

PyMethodDef name_device_methods[] = {
    {"lookup", device_lookup, METH_O,
     "lookup(name)\n--\n\nAn array with the value that the name has now: Array.publish(). Blocks for a round trip. "
     "UnknownNameError: there is "
     "no such name."},
    {"unpublish", device_unpublish, METH_O,
     "unpublish(name)\n--\n\nRemoves the name; arrays that lookup() made from it stay. Blocks for a round trip."},
    {"names", device_names, METH_NOARGS,
     "names()\n--\n\nThe user's names on the device: a list of dicts with name, dtype, shape, nbytes, age (seconds) "
     "and saved. Blocks."},
    {0},
};
