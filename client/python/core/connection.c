/* Connections to daemons. */
#include "client/python/core/core.h"

#include <pthread.h>
#include <stdlib.h>

static PyTypeObject *connection_type;
static struct connection *open_first;         /* all open ones: borrowed */
static struct connection *default_connection; /* owned; NULL: none yet */
/* What connect() made it of, owned; NULL: of nothing. The child of a fork() makes its own of that: `again`. */
static PyObject *default_arguments, *default_names;
static bool again;

static PyObject *function_connect(PyObject *module, PyObject *arguments, PyObject *names);

static void open_remove(const struct connection *connection) {
    struct connection **place = &open_first;
    while (*place && *place != connection)
        place = &(*place)->next;
    if (*place)
        *place = connection->next;
}

/* The connection's devices have no handles any more. */
static void devices_forget(struct connection *connection, const char *why) {
    Py_ssize_t at = 0;
    PyObject *name, *device;
    while (connection->devices && PyDict_Next(connection->devices, &at, &name, &device))
        device_forget((struct device *)device, why);
}

/* Blocks. */
static void connection_close(struct connection *connection) {
    td_connection *handle = connection->handle;
    if (!handle)
        return;
    connection->handle = NULL;
    open_remove(connection);
    devices_forget(connection, "its connection was closed");
    graph_device_closes();
    Py_BEGIN_ALLOW_THREADS;
    td_close(handle);
    Py_END_ALLOW_THREADS;
}

/* The child of a fork() must not use what its parent has opened; its next default connection is one of its own. Only this thread
 * is in the child, and it has the GIL, or it is about to call exec(). */
static void forked(void) {
    again = again || (default_arguments && default_connection && default_connection->handle);
    for (struct connection *each = open_first; each; each = each->next) {
        each->handle = NULL;
        devices_forget(each, "the parent process has opened it, and this process was forked; connect again here");
    }
    graph_forked();
    open_first = NULL;
    default_connection = NULL; /* its memory stays with the arrays that still refer to it */
}

/* ---- the devices of a connection ---- */

enum { DEVICES_FEW = 16 };

/* All devices, as td_devices() tells them; the caller frees them. NULL with an exception. Blocks. */
static td_device_info *infos_read(struct connection *connection, size_t *count) {
    td_connection *handle = connection->handle;
    if (!handle)
        return (td_device_info *)error_set(TD_E_CONNECTION, "the connection is closed");
    size_t capacity = DEVICES_FEW;
    td_device_info *infos = NULL;
    for (*count = 0;;) {
        td_device_info *more = realloc(infos, capacity * sizeof *infos);
        int code = TD_E_NO_HOST_MEMORY;
        if (more) {
            infos = more;
            connection->waits++;
            Py_BEGIN_ALLOW_THREADS;
            code = td_devices(handle, infos, capacity, count);
            Py_END_ALLOW_THREADS;
            connection->waits--;
        }
        if (code) {
            free(infos);
            return more ? (td_device_info *)error_raise() : (td_device_info *)PyErr_NoMemory();
        }
        if (*count <= capacity)
            return infos;
        capacity = *count;
    }
}

/* The device object of this name, which is made if there is none or if it was lost. Borrowed. */
static struct device *intern(struct connection *connection, const td_device_info *info) {
    struct device *device = (struct device *)PyDict_GetItemString(connection->devices, info->name);
    if (device && !device->lost) {
        device->info = *info;
        return device;
    }
    device = device_create(connection, info);
    if (!device)
        return NULL;
    int code = PyDict_SetItemString(connection->devices, info->name, (PyObject *)device);
    Py_DECREF(device); /* the dictionary has it */
    return code ? NULL : device;
}

/* Asks the daemon for its devices. A new list. Blocks. */
static PyObject *devices_read(struct connection *connection) {
    size_t count;
    td_device_info *infos = infos_read(connection, &count);
    PyObject *list = infos ? PyList_New(0) : NULL;
    for (size_t i = 0; list && i < count; i++) {
        struct device *device = intern(connection, &infos[i]);
        if (device && i == 0)
            connection->first = device;
        if (!device || PyList_Append(list, (PyObject *)device)) {
            Py_DECREF(list);
            list = NULL;
        }
    }
    free(infos);
    return list;
}

struct device *connection_device(struct connection *connection, const char *name) {
    struct device *device = name ? (struct device *)PyDict_GetItemString(connection->devices, name) : connection->first;
    if (!device || device->lost) {
        PyObject *list = devices_read(connection);
        if (!list)
            return NULL;
        Py_DECREF(list);
        device = name ? (struct device *)PyDict_GetItemString(connection->devices, name) : connection->first;
    }
    if (!device)
        return (struct device *)error_set(TD_E_NO_DEVICE, "the daemon has no device%s%s", name ? " " : "",
                                          name ? name : "");
    Py_INCREF(device);
    return device;
}

/* ---- connecting ---- */

static PyObject *connect_to(const char *url, const td_options *options) {
    td_connection *handle;
    int code;
    Py_BEGIN_ALLOW_THREADS;
    code = td_connect(url, options, &handle);
    Py_END_ALLOW_THREADS;
    if (code)
        return error_raise();
    struct connection *connection = PyObject_GC_New(struct connection, connection_type);
    if (!connection) {
        td_close(handle);
        return NULL;
    }
    connection->handle = handle;
    connection->waits = 0;
    connection->first = NULL;
    connection->devices = PyDict_New();
    connection->url = url ? PyUnicode_FromString(url) : NULL;
    connection->next = open_first;
    open_first = connection;
    PyObject_GC_Track(connection);
    if (connection->devices)
        return (PyObject *)connection;
    Py_DECREF(connection);
    return NULL;
}

static void default_set(struct connection *connection) {
    struct connection *old = default_connection;
    Py_XINCREF(connection);
    default_connection = connection;
    Py_XDECREF(old);
}

/* With a use of both. */
static void default_made_of(PyObject *arguments, PyObject *names) {
    PyObject *old_arguments = default_arguments, *old_names = default_names;
    Py_XINCREF(arguments);
    Py_XINCREF(names);
    default_arguments = arguments;
    default_names = names;
    again = false;
    Py_XDECREF(old_arguments);
    Py_XDECREF(old_names);
}

struct connection *connection_default(void) {
    if (default_connection && !default_connection->handle)
        default_set(NULL);
    if (!default_connection && again) {
        PyObject *connection = function_connect(NULL, default_arguments, default_names);
        if (!connection)
            return NULL;
        Py_DECREF(connection); /* it is the default one */
    } else if (!default_connection) {
        PyObject *connection = connect_to(NULL, NULL);
        if (!connection)
            return NULL;
        if (default_connection) /* another thread was faster */
            Py_DECREF(connection);
        else
            default_connection = (struct connection *)connection;
    }
    return default_connection;
}

/* Seconds as the library's milliseconds, of which it has special ones: for None 0, which stands for its default, and for the seconds that
 * mean "never" TD_NEVER. False with an exception. */
static bool seconds_read(PyObject *seconds, const char *name, double never, unsigned *ms) {
    *ms = 0;
    if (seconds == Py_None)
        return true;
    const double value = PyFloat_AsDouble(seconds);
    if (value == -1 && PyErr_Occurred())
        return false;
    const bool ends = value > 0 && value < 4e6;
    if (ends || value == never) {
        *ms = !ends ? TD_NEVER : value < 0.001 ? 1 : (unsigned)(value * 1000);
        return true;
    }
    PyErr_Format(PyExc_ValueError, "%s is a number of seconds, more than 0 and less than 4,000,000, or %s for never",
                 name, never == 0 ? "0" : "infinity");
    return false;
}

static PyObject *function_connect(PyObject *module, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"url",         "token",   "ca_file",    "cert_file",   "key_file",
                               "client_name", "timeout", "allow_tf32", "queue_bytes", "reconnect",
                               "heartbeat",   "default", NULL};
    const char *url = NULL;
    td_options options = {0};
    double timeout = 0;
    PyObject *reconnect = Py_None, *heartbeat = Py_None;
    Py_ssize_t queue_bytes = 0;
    int allow_tf32 = 0, is_default = 1;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "|zzzzz$zdpnOOp:connect", keywords, &url, &options.token,
                                     &options.ca_file, &options.cert_file, &options.key_file, &options.client_name,
                                     &timeout, &allow_tf32, &queue_bytes, &reconnect, &heartbeat, &is_default))
        return NULL;
    if (!(timeout >= 0 && timeout < 4e6)) {
        PyErr_SetString(PyExc_ValueError, "the timeout is a number of seconds, from 0 to 4,000,000");
        return NULL;
    }
    if (queue_bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "queue_bytes is a number of bytes, or 0 for the usual one");
        return NULL;
    }
    if (!seconds_read(reconnect, "reconnect", 0, &options.reconnect_ms) ||
        !seconds_read(heartbeat, "heartbeat", Py_HUGE_VAL, &options.heartbeat_ms))
        return NULL;
    options.timeout_ms = (unsigned)(timeout * 1000);
    options.queue_bytes = (size_t)queue_bytes;
    options.allow_tf32 = allow_tf32;
    PyObject *connection = connect_to(url, &options);
    if (connection && is_default) {
        default_set((struct connection *)connection);
        default_made_of(arguments, names);
    }
    return connection;
}

static PyObject *function_default(PyObject *module, PyObject *unused) {
    PyObject *connection = (PyObject *)connection_default();
    (void)module, (void)unused;
    Py_XINCREF(connection);
    return connection;
}

/* At the interpreter's end: daemons learn at once that their sessions are over, and need not wait whether they come back. */
static PyObject *function_close_all(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    while (open_first) {
        struct connection *connection = open_first;
        Py_INCREF(connection);
        if (connection->waits) /* a daemon thread still waits, and will never go on */
            open_remove(connection);
        else
            connection_close(connection);
        Py_DECREF(connection);
    }
    default_set(NULL);
    default_made_of(NULL, NULL);
    Py_RETURN_NONE;
}

/* ---- the type ---- */

static int connection_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct connection *)self)->devices);
    return 0;
}

/* Blocks. */
static int connection_clear(PyObject *self) {
    struct connection *connection = (struct connection *)self;
    connection_close(connection);
    connection->first = NULL;
    Py_CLEAR(connection->devices);
    return 0;
}

static void connection_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)connection_clear(self);
    Py_CLEAR(((struct connection *)self)->url);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *method_devices(PyObject *self, PyObject *unused) {
    (void)unused;
    return devices_read((struct connection *)self);
}

static PyObject *method_device(PyObject *self, PyObject *arguments) {
    const char *name = NULL;
    if (!PyArg_ParseTuple(arguments, "|z:device", &name))
        return NULL;
    return (PyObject *)connection_device((struct connection *)self, name);
}

static PyObject *method_close(PyObject *self, PyObject *unused) {
    (void)unused;
    if (((struct connection *)self)->waits) {
        PyErr_SetString(PyExc_RuntimeError, "another thread waits on this connection");
        return NULL;
    }
    connection_close((struct connection *)self);
    Py_RETURN_NONE;
}

static PyObject *method_enter(PyObject *self, PyObject *unused) {
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *method_exit(PyObject *self, PyObject *arguments) {
    (void)arguments;
    return method_close(self, NULL);
}

static PyObject *get_url(PyObject *self, void *unused) {
    PyObject *url = ((struct connection *)self)->url;
    (void)unused;
    url = url ? url : Py_None;
    Py_INCREF(url);
    return url;
}

static PyObject *get_closed(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(!((struct connection *)self)->handle);
}

static PyGetSetDef getters[] = {
    {"url", get_url, NULL, "The URL as it was given; None: the environment's default.", NULL},
    {"closed", get_closed, NULL, "Whether close() was called.", NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"devices", method_devices, METH_NOARGS, "devices()\n--\n\nThe daemon's devices, a list. Blocks."},
    {"device", method_device, METH_VARARGS,
     "device(name=None)\n--\n\nThe device of this name, or the daemon's first one. Blocks until the daemon has told "
     "its devices."},
    {"close", method_close, METH_NOARGS,
     "close()\n--\n\nEnds the sessions; arrays on the connection's devices cannot be used any more. What was enqueued "
     "still runs. Blocks."},
    {"__enter__", method_enter, METH_NOARGS, NULL},
    {"__exit__", method_exit, METH_VARARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "A connection to a daemon: tensord.connect()."},
    {Py_tp_dealloc, connection_dealloc},
    {Py_tp_traverse, connection_traverse},
    {Py_tp_clear, connection_clear},
    {Py_tp_getset, getters},
    {Py_tp_methods, methods},
    {0},
};
static PyType_Spec spec = {"tensord.Connection", sizeof(struct connection), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           slots};

static PyMethodDef functions[] = {
    {"connect", (PyCFunction)(void (*)(void))function_connect, METH_VARARGS | METH_KEYWORDS,
     "connect(url=None, token=None, ca_file=None, cert_file=None, key_file=None, *, client_name=None, timeout=0, "
     "allow_tf32=False, queue_bytes=0, reconnect=None, heartbeat=None, default=True)\n--\n\n"
     "Connects to a daemon: unix:/path, tcp://host:port or tls://host:port. What is None of the first five comes from "
     "the environment: $TENSORD_URL, $TENSORD_TOKEN, $TENSORD_CA_FILE, $TENSORD_CERT_FILE, $TENSORD_KEY_FILE. "
     "`queue_bytes` bounds what waits to be sent to a device, past which calls wait; 0: 4 MiB, at least 64 KiB. "
     "`reconnect`: for so many seconds a device that has lost its connection tries to get another one; None: as long "
     "as the daemon keeps the session; 0: it is lost at once. `heartbeat`: a daemon that keeps sessions and sends "
     "nothing "
     "for so many seconds counts as gone; None: 10; math.inf: never. Unless `default` is false, the connection becomes "
     "the one of "
     "all who name no device. Blocks until the daemon has replied."},
    {"default_connection", function_default, METH_NOARGS,
     "default_connection()\n--\n\nThe connection of those who name none; it is made if there is none. Blocks the first "
     "time."},
    {"_close_all", function_close_all, METH_NOARGS, NULL},
    {0},
};

int connection_init(PyObject *module) {
    bool first = !connection_type;
    if (first && pthread_atfork(NULL, NULL, forked)) {
        PyErr_NoMemory();
        return -1;
    }
    if (first)
        connection_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!connection_type || PyModule_AddFunctions(module, functions) ||
        PyObject_SetAttrString(module, "Connection", (PyObject *)connection_type))
        return -1;
    if (!first)
        return 0;
    PyObject *close = PyObject_GetAttrString(module, "_close_all");
    PyObject *atexit = PyImport_ImportModule("atexit");
    PyObject *done = close && atexit ? PyObject_CallMethod(atexit, "register", "O", close) : NULL;
    Py_XDECREF(close);
    Py_XDECREF(atexit);
    Py_XDECREF(done);
    return done ? 0 : -1;
}
