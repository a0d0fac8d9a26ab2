/* Devices; the current device. */
#include "client/python/core/core.h"

#include <string.h>

PyTypeObject *device_type;
static PyObject *current_device; /* a context variable */

/* ---- life ---- */

struct device *device_create(struct connection *connection, const td_device_info *info) {
    PyObject *name = PyUnicode_FromString(info->name);
    struct device *device = name ? PyObject_GC_New(struct device, device_type) : NULL;
    if (!device) {
        Py_XDECREF(name);
        return NULL;
    }
    device->handle = NULL;
    device->connection = connection;
    device->name = name;
    device->info = *info;
    device->scalars = NULL;
    device->lost = false;
    device->gone = NULL;
    Py_INCREF(connection);
    PyObject_GC_Track(device);
    return device;
}

void device_forget(struct device *device, const char *why) {
    device->handle = NULL;
    device->gone = why;
    scalars_destroy(device);
}

/* Ends the session of a device that its connection does not need any more. Blocks. */
static void device_close(struct device *device) {
    td_device *handle = device->handle;
    if (!handle)
        return;
    device_forget(device, "it was closed");
    graph_device_closes();
    Py_BEGIN_ALLOW_THREADS;
    td_device_close(handle);
    Py_END_ALLOW_THREADS;
}

static int device_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct device *)self)->connection);
    return 0;
}

static int device_clear(PyObject *self) {
    device_close((struct device *)self);
    return 0;
}

static void device_dealloc(PyObject *self) {
    struct device *device = (struct device *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    device_close(device);
    scalars_destroy(device);
    Py_DECREF(device->connection);
    Py_DECREF(device->name);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static td_device *gone(const struct device *device) {
    return (td_device *)error_set(TD_E_CANCELLED, "the device %s is gone: %s", device->info.name, device->gone);
}

td_device *device_open(struct device *device) {
    if (device->handle)
        return device->handle;
    td_connection *connection = device->connection->handle;
    td_device *handle = NULL;
    int code = 0;
    if (!device->gone && connection) {
        device->connection->waits++;
        Py_BEGIN_ALLOW_THREADS;
        code = td_device_open(connection, device->info.name, &handle);
        Py_END_ALLOW_THREADS;
        device->connection->waits--;
    }
    if (device->gone)
        return gone(device);
    if (code)
        return (td_device *)error_raise();
    if (!handle)
        return (td_device *)error_set(TD_E_CONNECTION, "the connection of %s is closed", device->info.name);
    if (device->handle) /* another thread was faster */
        td_device_close(handle);
    else
        device->handle = handle;
    return device->handle;
}

PyObject *device_raise(struct device *device) {
    if (td_last_error()->code == TD_E_DEVICE_LOST)
        device->lost = true;
    return error_raise();
}

/* ---- the current device ---- */

struct device *device_take(PyObject *object) {
    if (object && Py_TYPE(object) == device_type) {
        Py_INCREF(object);
        return (struct device *)object;
    }
    if (object && object != Py_None && !PyUnicode_Check(object))
        return (struct device *)PyErr_Format(PyExc_TypeError, "a device or its name was expected, not %R", object);
    struct device *current = (struct device *)context_get(current_device);
    if (PyErr_Occurred())
        return NULL;
    const char *name = object && object != Py_None ? PyUnicode_AsUTF8AndSize(object, NULL) : NULL;
    if (PyErr_Occurred())
        return NULL;
    if (current && !name && !current->lost) {
        Py_INCREF(current);
        return current;
    }
    struct connection *connection = current ? current->connection : connection_default();
    return connection ? connection_device(connection, name ? name : current ? current->info.name : NULL) : NULL;
}

static PyObject *function_device(PyObject *module, PyObject *arguments) {
    PyObject *object = NULL;
    (void)module;
    return PyArg_ParseTuple(arguments, "|O:device", &object) ? (PyObject *)device_take(object) : NULL;
}

static PyObject *function_devices(PyObject *module, PyObject *unused) {
    PyObject *connection = (PyObject *)connection_default();
    (void)module, (void)unused;
    return connection ? PyObject_CallMethod(connection, "devices", NULL) : NULL;
}

/* ---- methods ---- */

static PyObject *device_str(PyObject *self) {
    PyObject *name = ((struct device *)self)->name;
    Py_INCREF(name);
    return name;
}

static PyObject *device_repr(PyObject *self) {
    return PyUnicode_FromFormat("tensord.device('%U')", ((struct device *)self)->name);
}

static PyObject *device_enter(PyObject *self, PyObject *unused) {
    (void)unused;
    if (context_push(current_device, self))
        return NULL;
    Py_INCREF(self);
    return self;
}

static PyObject *device_exit(PyObject *self, PyObject *arguments) {
    (void)self, (void)arguments;
    if (context_pop(current_device))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *device_sync(PyObject *self, PyObject *unused) {
    (void)unused;
    if (wait_device((struct device *)self))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *device_flush(PyObject *self, PyObject *unused) {
    td_device *handle = device_open((struct device *)self);
    (void)unused;
    if (!handle)
        return NULL;
    if (td_flush(handle))
        return device_raise((struct device *)self);
    Py_RETURN_NONE;
}

static PyObject *device_link(PyObject *self, PyObject *unused) {
    td_device *handle = device_open((struct device *)self);
    td_link link;
    (void)unused;
    if (!handle)
        return NULL;
    if (td_device_link(handle, &link))
        return device_raise((struct device *)self);
    return Py_BuildValue("{s:O,s:K,s:K}", "connected", link.connected ? Py_True : Py_False, "reconnects",
                         (unsigned long long)link.reconnects, "frames_repeated",
                         (unsigned long long)link.frames_repeated);
}

#define TEXT(field)                                                                                                    \
    static PyObject *get_##field(PyObject *self, void *unused) {                                                       \
        (void)unused;                                                                                                  \
        return PyUnicode_FromString(((struct device *)self)->info.field);                                              \
    }
TEXT(kind)
TEXT(state)
TEXT(model)
TEXT(capability)
TEXT(uuid)

static PyObject *get_name(PyObject *self, void *unused) {
    (void)unused;
    return device_str(self);
}

static PyObject *get_processors(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLong(((struct device *)self)->info.processors);
}

static PyObject *get_memory_total(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromUnsignedLongLong(((struct device *)self)->info.memory_total);
}

static PyObject *get_connection(PyObject *self, void *unused) {
    PyObject *connection = (PyObject *)((struct device *)self)->connection;
    (void)unused;
    Py_INCREF(connection);
    return connection;
}

static PyGetSetDef getters[] = {
    {"name", get_name, NULL, "\"cpu:0\"", NULL},
    {"kind", get_kind, NULL, "\"cpu\" or \"cuda\"", NULL},
    {"state", get_state, NULL,
     "\"ready\", \"starting\", \"restarting\", \"lost\" or \"quarantined\", when devices() was called last.", NULL},
    {"model", get_model, NULL, "The maker's name for the device.", NULL},
    {"capability", get_capability, NULL, "Compute capability \"9.0\"; of a CPU its vector level.", NULL},
    {"processors", get_processors, NULL, "Multiprocessors, or cores in use.", NULL},
    {"memory_total", get_memory_total, NULL, "Bytes of memory.", NULL},
    {"uuid", get_uuid, NULL, "\"GPU-…\"; \"\": this kind of device has none.", NULL},
    {"connection", get_connection, NULL, "The connection to the device's daemon.", NULL},
    {0},
};

/* ---- the types ---- */

static PyMethodDef own_methods[] = {
    {"flush", device_flush, METH_NOARGS,
     "flush()\n--\n\nSends the enqueued operations now instead of within 100 µs. Does not block."},
    {"sync", device_sync, METH_NOARGS,
     "sync()\n--\n\nBlocks until everything that was enqueued on the device has run."},
    {"link", device_link, METH_NOARGS,
     "link()\n--\n\nThe state of the device's connection: a dict with connected, reconnects and frames_repeated."},
    {"__enter__", device_enter, METH_NOARGS, "The device becomes the current one."},
    {"__exit__", device_exit, METH_VARARGS, NULL},
    {0},
};

enum { METHODS_MAX = 20 };
static PyMethodDef all_methods[METHODS_MAX];

static PyType_Slot slots[] = {
    {Py_tp_doc, "A device of a daemon. `with device:` makes it the current one, on which new arrays are made."},
    {Py_tp_dealloc, device_dealloc},
    {Py_tp_traverse, device_traverse},
    {Py_tp_clear, device_clear},
    {Py_tp_str, device_str},
    {Py_tp_repr, device_repr},
    {Py_tp_getset, getters},
    {Py_tp_methods, all_methods},
    {0},
};
static PyType_Spec spec = {"tensord.Device", sizeof(struct device), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

static PyMethodDef functions[] = {
    {"device", function_device, METH_VARARGS,
     "device(name=None)\n--\n\nThe device of this name on the current connection, or the current device. Blocks until "
     "the daemon has told "
     "its devices, which it does once."},
    {"devices", function_devices, METH_NOARGS,
     "devices()\n--\n\nThe devices of the default connection, a list. Blocks."},
    {0},
};

int device_init(PyObject *module) {
    static const PyMethodDef *const tables[] = {own_methods, stream_device_methods, name_device_methods,
                                                kernel_device_methods};
    methods_join(all_methods, METHODS_MAX, tables, sizeof tables / sizeof *tables);
    if (!device_type)
        device_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!current_device)
        current_device = context_create("tensord.device");
    if (!device_type || !current_device || PyModule_AddFunctions(module, functions))
        return -1;
    return PyObject_SetAttrString(module, "Device", (PyObject *)device_type);
}
