/* The type Array: its life and its properties. operator.c has its operators, transfer.c what looks at its value. */
#include "client/python/core/core.h"

#include <stddef.h>
#include <string.h>

PyTypeObject *array_type;

td_tensor *array_gone(const struct array *array) {
    if (array->device->handle) {
        (void)error_set(TD_E_INVALID_ARGUMENT,
                        "the array was given away to a recorded function (donate_argnums), and has "
                        "no value any more");
        return NULL;
    }
    (void)error_set(TD_E_CANCELLED, "the array's device %s is gone: %s", array->device->info.name,
                    array->device->gone ? array->device->gone : "it is not open");
    return NULL;
}

PyObject *array_wrap(struct device *device, td_tensor *tensor) {
    if (!tensor)
        return device_raise(device);
    struct array *array = PyObject_New(struct array, array_type);
    if (!array) {
        td_release(tensor);
        return NULL;
    }
    array->tensor = tensor;
    array->device = device;
    array->weak = NULL;
    array->graph = NULL;
    array->pins = 0;
    array->recorded = program_records(device);
    Py_INCREF(device);
    return (PyObject *)array;
}

/* An array refers to no array but its gradient, so the garbage collector need not know arrays. */
static void array_dealloc(PyObject *self) {
    struct array *array = (struct array *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (array->weak)
        PyObject_ClearWeakRefs(self);
    if (array->graph)
        graph_finish(array);
    if (array->device->handle)
        td_release(array->tensor);
    Py_DECREF(array->device);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- properties ---- */

PyObject *array_shape(const struct array *array) {
    const td_tensor *tensor = array_tensor(array);
    if (!tensor)
        return NULL;
    int rank = td_tensor_rank(tensor);
    const int64_t *extents = td_tensor_shape(tensor);
    PyObject *shape = PyTuple_New(rank);
    for (int i = 0; shape && i < rank; i++) {
        PyObject *extent = PyLong_FromLongLong(extents[i]);
        if (!extent || PyTuple_SetItem(shape, i, extent)) {
            Py_DECREF(shape);
            return NULL;
        }
    }
    return shape;
}

static PyObject *get_shape(PyObject *self, void *unused) {
    (void)unused;
    return array_shape((struct array *)self);
}

static PyObject *get_dtype(PyObject *self, void *unused) {
    (void)unused;
    const td_tensor *tensor = array_tensor((struct array *)self);
    PyObject *dtype = tensor ? (PyObject *)dtype_of(td_tensor_dtype(tensor)) : NULL;
    Py_XINCREF(dtype);
    return dtype;
}

static PyObject *get_device(PyObject *self, void *unused) {
    (void)unused;
    PyObject *device = (PyObject *)((struct array *)self)->device;
    Py_INCREF(device);
    return device;
}

static PyObject *get_ndim(PyObject *self, void *unused) {
    (void)unused;
    const td_tensor *tensor = array_tensor((struct array *)self);
    return tensor ? PyLong_FromLong(td_tensor_rank(tensor)) : NULL;
}

static PyObject *get_itemsize(PyObject *self, void *unused) {
    (void)unused;
    const td_tensor *tensor = array_tensor((struct array *)self);
    return tensor ? PyLong_FromSize_t(td_dtype_size(td_tensor_dtype(tensor))) : NULL;
}

static PyObject *get_nbytes(PyObject *self, void *unused) {
    (void)unused;
    const td_tensor *tensor = array_tensor((struct array *)self);
    return tensor ? PyLong_FromSize_t(td_tensor_bytes(tensor)) : NULL;
}

static PyObject *get_size(PyObject *self, void *unused) {
    (void)unused;
    const td_tensor *tensor = array_tensor((struct array *)self);
    return tensor ? PyLong_FromSize_t(td_tensor_bytes(tensor) / td_dtype_size(td_tensor_dtype(tensor))) : NULL;
}

static PyGetSetDef getters[] = {
    {"shape", get_shape, NULL, "The extents, a tuple of ints.", NULL},
    {"dtype", get_dtype, NULL, "The dtype of the elements.", NULL},
    {"device", get_device, NULL, "The device where the elements are.", NULL},
    {"ndim", get_ndim, NULL, "The number of axes.", NULL},
    {"size", get_size, NULL, "The number of elements.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of an element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {0},
};

static PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(struct array, weak), READONLY, NULL},
    {0},
};

/* ---- taking another value ---- */

bool array_pinned(const struct array *array) {
    if (array->pins)
        PyErr_SetString(PyExc_RuntimeError,
                        "another thread waits for this array: it cannot take another value now, or be given away");
    return array->pins;
}

/* Outside of the function such an array would have no value. */
static bool stays(bool outside) {
    if (outside)
        (void)error_set(TD_E_INVALID_ARGUMENT,
                        "an array from outside of a recorded function changes in it: the function's `state` names "
                        "what it may change, modules and optimisers, too (td.function(state=[model, optimiser]))");
    return outside;
}

static bool array_stays(const struct array *a, const struct array *b) {
    return stays(a->recorded != b->recorded);
}

bool array_outside(const struct array *array) {
    return stays(program_records(array->device) && !array->recorded);
}

static int exchange(struct array *a, struct array *b) {
    if (a->graph || b->graph) {
        if (!graph_may_take(a, b) || graph_exchange(a, b))
            return -1;
        if (a->graph)
            graph_changed(a);
        if (b->graph)
            graph_changed(b);
    }
    struct array was = *a;
    a->tensor = b->tensor;
    a->device = b->device;
    b->tensor = was.tensor;
    b->device = was.device;
    a->recorded = b->recorded;
    b->recorded = was.recorded;
    return 0;
}

PyObject *array_replace(PyObject *self, PyObject *result) {
    if (!result || !array_check(result)) /* NotImplemented, or a failure */
        return result;
    struct array *x = (struct array *)self, *y = (struct array *)result;
    const td_tensor *old = array_tensor(x), *new = array_tensor(y);
    int rank = td_tensor_rank(old);
    bool done = false;
    if (!old || !new || array_pinned(x) || array_stays(x, y))
        ;
    else if (td_tensor_dtype(old) != td_tensor_dtype(new))
        (void)error_set(TD_E_DTYPE, "the result is %s and does not fit into an array of %s",
                        td_dtype_name(td_tensor_dtype(new)), td_dtype_name(td_tensor_dtype(old)));
    else if (rank != td_tensor_rank(new) ||
             memcmp(td_tensor_shape(old), td_tensor_shape(new), (size_t)rank * sizeof(int64_t)) != 0)
        (void)error_set(TD_E_SHAPE, "the result has another shape than the array that it should go into");
    else
        done = !exchange(x, y);
    if (done)
        Py_INCREF(self);
    Py_DECREF(result);
    return done ? self : NULL;
}

static PyObject *exchange_with(PyObject *self, PyObject *other, bool lent) {
    if (!array_check(other))
        return PyErr_Format(PyExc_TypeError, "an array was expected, not %R", (PyObject *)Py_TYPE(other));
    struct array *x = (struct array *)self, *y = (struct array *)other;
    if (array_pinned(x) || array_pinned(y) || (!lent && array_stays(x, y)))
        return NULL;
    if (exchange(x, y))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *method_exchange(PyObject *self, PyObject *other) {
    return exchange_with(self, other, false);
}

static PyObject *method_lend(PyObject *self, PyObject *other) {
    return exchange_with(self, other, true);
}

/* ---- the type ---- */

static PyMethodDef own_methods[] = {
    {"_lend", method_lend, METH_O, "The same as _exchange(), of an array and one of a recording, for its time."},
    {"_exchange", method_exchange, METH_O, "The two arrays exchange their values, dtypes, shapes and devices."},
    {0},
};

enum { METHODS_MAX = 40, SLOTS_MAX = 80, GETTERS_MAX = 20 };

static void getters_join(PyGetSetDef *to, const PyGetSetDef *a, const PyGetSetDef *b) {
    unsigned n = 0;
    while (a->name && n < GETTERS_MAX - 1)
        to[n++] = *a++;
    while (b->name && n < GETTERS_MAX - 1)
        to[n++] = *b++;
}

void methods_join(PyMethodDef *to, unsigned room, const PyMethodDef *const *tables, unsigned n) {
    unsigned count = 0;
    for (unsigned i = 0; i < n; i++)
        for (const PyMethodDef *each = tables[i]; each->ml_name && count < room - 1; each++)
            to[count++] = *each;
}

static unsigned slots_add(PyType_Slot *slots, unsigned n, const PyType_Slot *more) {
    while (more->slot && n < SLOTS_MAX - 1)
        slots[n++] = *more++;
    return n;
}

int array_init(PyObject *module) {
    static const PyMethodDef *const tables[] = {own_methods, graph_methods, fetch_methods, dlpack_methods,
                                                name_methods};
    static PyMethodDef methods[METHODS_MAX]; /* the type refers to it */
    methods_join(methods, METHODS_MAX, tables, sizeof tables / sizeof *tables);
    static PyGetSetDef all_getters[GETTERS_MAX];
    getters_join(all_getters, getters, graph_getters);
    PyType_Slot slots[SLOTS_MAX] = {
        {Py_tp_doc, "An array on a device of a daemon. Its dtype and shape are known at once; its value is computed "
                    "there. Only what "
                    "looks at the value waits: numpy(), float(), bool(), wait() and such."},
        {Py_tp_dealloc, array_dealloc},
        {Py_tp_getset, all_getters},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {Py_tp_hash, PyObject_HashNotImplemented},
    };
    unsigned n = 0;
    while (slots[n].slot)
        n++;
    (void)slots_add(slots, slots_add(slots, n, array_operators), fetch_slots);
    PyType_Spec spec = {"tensord.Array", sizeof(struct array), 0, Py_TPFLAGS_DEFAULT, slots};
    if (!array_type)
        array_type = (PyTypeObject *)PyType_FromSpec(&spec);
    /* Without this NumPy would take an array as a sequence of its elements, and fetch them one by one. */
    if (!array_type || PyObject_SetAttrString((PyObject *)array_type, "__array_ufunc__", Py_None))
        return -1;
    return PyObject_SetAttrString(module, "Array", (PyObject *)array_type);
}
