/* Streams of devices. */
#include "client/python/core/core.h"

static PyTypeObject *stream_type;
/* A context variable. The library's stream is the thread's, so an asyncio task must not wait inside `with stream:`. */
static PyObject *current_stream;

struct stream {
    PyObject_HEAD
    td_stream *handle; /* NULL: closed; valid while the device has a handle */
    struct device *device;
};

static PyObject *device_stream(PyObject *self, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"priority", NULL};
    struct device *device = (struct device *)self;
    int priority = 0;
    td_stream *handle;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "|i:stream", keywords, &priority) || !device_open(device))
        return NULL;
    if (td_stream_open(device->handle, priority, &handle))
        return device_raise(device);
    struct stream *stream = PyObject_New(struct stream, stream_type);
    if (!stream) {
        td_stream_close(handle);
        return NULL;
    }
    stream->handle = handle;
    stream->device = device;
    Py_INCREF(device);
    return (PyObject *)stream;
}

static PyObject *stream_close(PyObject *self, PyObject *unused) {
    struct stream *stream = (struct stream *)self;
    (void)unused;
    if (stream->device->handle)
        td_stream_close(stream->handle);
    stream->handle = NULL;
    Py_RETURN_NONE;
}

static void stream_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(stream_close(self, NULL));
    Py_DECREF(((struct stream *)self)->device);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *stream_enter(PyObject *self, PyObject *unused) {
    struct stream *stream = (struct stream *)self;
    (void)unused;
    if (!stream->device->handle || !stream->handle)
        return error_set(TD_E_INVALID_ARGUMENT, "the stream was closed");
    if (context_push(current_stream, self))
        return NULL;
    if (td_stream_set(stream->device->handle, stream->handle)) {
        (void)context_pop(current_stream);
        return device_raise(stream->device);
    }
    Py_INCREF(self);
    return self;
}

/* The stream that this thread used on the device before; NULL, without an exception: the default stream. Borrowed. */
static struct stream *stream_before(const struct device *device) {
    PyObject *pair = PyObject_CallMethod(current_stream, "get", NULL);
    Py_XDECREF(pair); /* the variable has it, and it has the pairs before */
    while (pair && pair != Py_None) {
        struct stream *stream = (struct stream *)PyTuple_GetItem(pair, 0);
        if (stream && stream->device == device && stream->handle)
            return stream;
        pair = PyTuple_GetItem(pair, 1);
    }
    return NULL;
}

static PyObject *stream_exit(PyObject *self, PyObject *arguments) {
    struct device *device = ((struct stream *)self)->device;
    (void)arguments;
    if (context_pop(current_stream))
        return NULL;
    const struct stream *before = stream_before(device);
    if (PyErr_Occurred())
        return NULL;
    if (device->handle && td_stream_set(device->handle, before ? before->handle : NULL))
        return device_raise(device);
    Py_RETURN_NONE;
}

static PyObject *stream_device(PyObject *self, void *unused) {
    PyObject *device = (PyObject *)((struct stream *)self)->device;
    (void)unused;
    Py_INCREF(device);
    return device;
}

static PyGetSetDef stream_getters[] = {{"device", stream_device, NULL, "The stream's device.", NULL}, {0}};

static PyMethodDef stream_methods[] = {
    {"close", stream_close, METH_NOARGS, "close()\n--\n\nWhat was enqueued on the stream still runs."},
    {"__enter__", stream_enter, METH_NOARGS, "This thread enqueues on the stream of its device."},
    {"__exit__", stream_exit, METH_VARARGS, NULL},
    {0},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc,
     "A stream of a device, whose operations run beside those of other streams. `with stream:` enqueues on it."},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_getset, stream_getters},
    {Py_tp_methods, stream_methods},
    {0},
};
static PyType_Spec stream_spec = {"tensord.Stream", sizeof(struct stream), 0, Py_TPFLAGS_DEFAULT, stream_slots};

PyMethodDef stream_device_methods[] = {
    {"stream", (PyCFunction)(void (*)(void))device_stream, METH_VARARGS | METH_KEYWORDS,
     "stream(priority=0)\n--\n\nOpens a stream; streams with a higher priority go first. Does not block."},
    {0},
};

int stream_init(PyObject *module) {
    if (!stream_type)
        stream_type = (PyTypeObject *)PyType_FromSpec(&stream_spec);
    if (!current_stream)
        current_stream = context_create("tensord.stream");
    return stream_type && current_stream ? PyObject_SetAttrString(module, "Stream", (PyObject *)stream_type) : -1;
}
