/* Programs in files and under names. */
#include "client/python/core/core.h"

#include <stdlib.h>

struct saved {
    PyObject_HEAD
    td_program *handle; /* valid while the device has a handle */
    struct device *device;
};

static PyTypeObject *saved_type;

static td_program *saved_handle(PyObject *object, struct device **device) {
    struct saved *saved = (struct saved *)object;
    if (Py_TYPE(object) != saved_type)
        return program_handle(object, device);
    *device = saved->device;
    return saved->device->handle ? saved->handle
                                 : (td_program *)error_set(TD_E_CANCELLED, "the program's device is gone");
}

/* ---- files and names: calls that wait ---- */

typedef int store(td_program *program, const char *where);
typedef int fetch(td_device *device, const char *where, td_program **program);

/* The program object is an argument of the caller, so it lives as long as the call. */
static PyObject *store_program(PyObject *arguments, const char *format, store *call) {
    struct device *device = NULL;
    PyObject *program;
    const char *where;
    int code;
    td_program *handle = PyArg_ParseTuple(arguments, format, &program, &where) ? saved_handle(program, &device) : NULL;
    if (!handle)
        return NULL;
    device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    code = call(handle, where);
    Py_END_ALLOW_THREADS;
    device->connection->waits--;
    if (code)
        return device_raise(device);
    Py_RETURN_NONE;
}

static PyObject *fetch_program(PyObject *arguments, const char *format, fetch *call) {
    PyObject *device_object = NULL;
    const char *where;
    td_program *handle = NULL;
    int code;
    if (!PyArg_ParseTuple(arguments, format, &where, &device_object))
        return NULL;
    struct device *device = device_take(device_object);
    td_device *opened = device ? device_open(device) : NULL;
    if (!opened) {
        Py_XDECREF(device);
        return NULL;
    }
    device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    code = call(opened, where, &handle);
    Py_END_ALLOW_THREADS;
    device->connection->waits--;
    struct saved *saved = code ? NULL : PyObject_New(struct saved, saved_type);
    if (code)
        device_raise(device);
    if (!saved) {
        if (!code)
            td_program_release(handle);
        Py_DECREF(device);
        return NULL;
    }
    saved->handle = handle;
    saved->device = device;
    return (PyObject *)saved;
}

static PyObject *program_save(PyObject *module, PyObject *arguments) {
    (void)module;
    return store_program(arguments, "Os:_program_save", td_program_save);
}

static PyObject *program_publish(PyObject *module, PyObject *arguments) {
    (void)module;
    return store_program(arguments, "Os:_program_publish", td_program_publish);
}

static PyObject *load_program(PyObject *module, PyObject *arguments) {
    (void)module;
    return fetch_program(arguments, "s|O:_program_load", td_program_load);
}

static PyObject *open_program(PyObject *module, PyObject *arguments) {
    (void)module;
    return fetch_program(arguments, "s|O:_program_open", td_program_open);
}

static PyMethodDef saved_functions[] = {
    {"_program_save", program_save, METH_VARARGS, "_program_save(program, path)\n--\n\nWrites a program into a file."},
    {"_program_publish", program_publish, METH_VARARGS,
     "_program_publish(program, name)\n--\n\nPublishes a program under a name."},
    {"_program_load", load_program, METH_VARARGS, "_program_load(path, device)\n--\n\nThe program in a file."},
    {"_program_open", open_program, METH_VARARGS, "_program_open(name, device)\n--\n\nThe program under a name."},
    {0},
};

/* ---- runs ---- */

static void saved_dealloc(PyObject *self) {
    struct saved *saved = (struct saved *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (saved->device->handle)
        td_program_release(saved->handle);
    Py_DECREF(saved->device);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* Puts the handles of the arguments into `inputs`. A run releases those of consumed parameters: it gets others, so that the arrays
 * keep their values. Returns how many of them it has made; -1 with an exception. */
static int inputs_take(const struct saved *saved, PyObject *arguments, td_tensor **inputs, td_tensor **made) {
    Py_ssize_t n = PyTuple_Size(arguments);
    int n_made = 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *array = PyTuple_GetItem(arguments, i);
        inputs[i] = array && array_check(array) ? array_tensor((struct array *)array) : NULL;
        if (array && !array_check(array))
            PyErr_Format(PyExc_TypeError, "a program has arrays, not %R", (PyObject *)Py_TYPE(array));
        if (inputs[i] && td_program_consumes(saved->handle, (int)i)) {
            td_tensor *view = td_reshape(inputs[i], td_tensor_rank(inputs[i]), td_tensor_shape(inputs[i]));
            if (!view)
                device_raise(saved->device);
            else
                made[n_made++] = view;
            inputs[i] = view;
        }
        if (inputs[i])
            continue;
        while (n_made)
            td_release(made[--n_made]);
        return -1;
    }
    return n_made;
}

static PyObject *results_give(const struct saved *saved, td_tensor **results, int n) {
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; i < n; i++) {
        PyObject *array = array_wrap(saved->device, results[i]);
        if (tuple && (!array || PyTuple_SetItem(tuple, i, array)))
            Py_CLEAR(tuple);
    }
    if (!tuple || n != 1)
        return tuple;
    PyObject *only = PyTuple_GetItem(tuple, 0);
    Py_XINCREF(only);
    Py_DECREF(tuple);
    return only;
}

static PyObject *saved_run(struct saved *saved, PyObject *arguments, td_tensor **inputs, td_tensor **made,
                           td_tensor **results) {
    int n = (int)PyTuple_Size(arguments), n_results = td_program_results(saved->handle), code, waited = 0;
    do { /* after a wait, in which other threads ran, arrays may have other handles */
        int n_made = inputs_take(saved, arguments, inputs, made);
        if (n_made < 0)
            return NULL;
        label_next();
        code = td_program_run(saved->handle, n, inputs, n_results, results);
        while (code && n_made)
            td_release(made[--n_made]);
    } while (code == TD_E_AGAIN && !(waited = device_wait_room(saved->device)));
    if (code && !waited)
        device_raise(saved->device);
    return code ? NULL : results_give(saved, results, n_results);
}

/* backward() does not go through a program. */
static bool any_wanted(PyObject *arguments) {
    bool any = false;
    for (Py_ssize_t i = 0; i < PyTuple_Size(arguments) && graph_parts; i++) {
        PyObject *array = PyTuple_GetItem(arguments, i);
        any = any || graph_wants(array, array);
    }
    return any;
}

static PyObject *saved_call(PyObject *self, PyObject *arguments, PyObject *names) {
    struct saved *saved = (struct saved *)self;
    struct device *device;
    Py_ssize_t n = PyTuple_Size(arguments);
    if (names && PyDict_Size(names)) {
        PyErr_SetString(PyExc_TypeError, "a saved program takes arrays by their position");
        return NULL;
    }
    if (!saved_handle(self, &device))
        return NULL;
    if (n != td_program_parameters(saved->handle)) {
        PyErr_Format(PyExc_TypeError, "the program takes %d arrays, not %zd", td_program_parameters(saved->handle), n);
        return NULL;
    }
    size_t room = 2 * (size_t)n + (size_t)td_program_results(saved->handle) + 1;
    td_tensor **all = PyMem_Malloc(room * sizeof(td_tensor *));
    if (!all)
        return PyErr_NoMemory();
    PyObject *results = saved_run(saved, arguments, all, all + n, all + 2 * n);
    PyMem_Free(all);
    return results && any_wanted(arguments) ? graph_mark(results, "gradients do not go through a program") : results;
}

/* A list of pairs of dtype and shape. */
static PyObject *types_of(PyObject *self, int n,
                          int type_of(const td_program *, int, td_dtype *, int *, const int64_t **)) {
    const struct saved *saved = (struct saved *)self;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < n; i++) {
        const int64_t *extents;
        td_dtype dtype;
        int rank;
        type_of(saved->handle, i, &dtype, &rank, &extents);
        PyObject *shape = PyTuple_New(rank);
        for (int k = 0; shape && k < rank; k++)
            if (PyTuple_SetItem(shape, k, PyLong_FromLongLong(extents[k])))
                Py_CLEAR(shape);
        PyObject *pair = shape ? Py_BuildValue("ON", (PyObject *)dtype_of(dtype), shape) : NULL;
        if (!pair || PyList_Append(list, pair))
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static PyObject *get_parameters(PyObject *self, void *none) {
    struct device *device;
    (void)none;
    td_program *handle = saved_handle(self, &device);
    return handle ? types_of(self, td_program_parameters(handle), td_program_parameter_type) : NULL;
}

static PyObject *get_results(PyObject *self, void *none) {
    struct device *device;
    (void)none;
    td_program *handle = saved_handle(self, &device);
    return handle ? types_of(self, td_program_results(handle), td_program_result_type) : NULL;
}

static PyObject *get_device(PyObject *self, void *none) {
    PyObject *device = (PyObject *)((struct saved *)self)->device;
    (void)none;
    Py_INCREF(device);
    return device;
}

static PyGetSetDef saved_getters[] = {
    {"parameters", get_parameters, NULL, "The dtype and the shape of each array that the program takes.", NULL},
    {"results", get_results, NULL, "The dtype and the shape of each array that the program gives.", NULL},
    {"device", get_device, NULL, "The device on which it runs.", NULL},
    {0},
};

static PyType_Slot saved_slots[] = {
    {Py_tp_doc, "A program of a file or a name. program(*arrays) enqueues a run, which never blocks, and returns its "
                "result, or a tuple of several. Inside of a td.function it becomes a part of that."},
    {Py_tp_dealloc, saved_dealloc},
    {Py_tp_call, saved_call},
    {Py_tp_getset, saved_getters},
    {0},
};

static PyType_Spec saved_spec = {"tensord.SavedProgram", sizeof(struct saved), 0, Py_TPFLAGS_DEFAULT, saved_slots};

int saved_program_init(PyObject *module) {
    if (!saved_type)
        saved_type = (PyTypeObject *)PyType_FromSpec(&saved_spec);
    if (!saved_type || PyModule_AddFunctions(module, saved_functions))
        return -1;
    return PyObject_SetAttrString(module, "SavedProgram", (PyObject *)saved_type);
}
