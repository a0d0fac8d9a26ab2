/* Labels of operations: those that the program gives, scopes, and with debug(where=True) the line of Python that enqueues. */
#include "client/python/core/core.h"

#include <stdio.h>
#include <string.h>

enum { WHERE_MAX = 60 }; /* bytes of a label that a line of Python takes; the end of a long path */

unsigned label_hooks;
static bool where_on;
static PyObject *package; /* the folder of this package, whose own lines are not meant */

static _Thread_local bool pending;
static _Thread_local char text[TD_LABEL_MAX + 1];

static void pending_set(bool on) {
    label_hooks += on && !pending;
    label_hooks -= !on && pending;
    pending = on;
}

/* The file of a frame's code, and its line. Whether the frame is one of this package. */
static bool frame_read(PyObject *frame, char *where, size_t size) {
    PyObject *code = PyObject_GetAttrString(frame, "f_code");
    PyObject *file = code ? PyObject_GetAttrString(code, "co_filename") : NULL;
    PyObject *line = PyObject_GetAttrString(frame, "f_lineno");
    const char *path = file && PyUnicode_Check(file) ? PyUnicode_AsUTF8AndSize(file, NULL) : NULL;
    const char *mine = package ? PyUnicode_AsUTF8AndSize(package, NULL) : NULL;
    bool own = path && mine && !strncmp(path, mine, strlen(mine));
    char number[24];
    snprintf(number, sizeof number, ":%ld", line ? PyLong_AsLong(line) : 0);
    size_t n = path ? strlen(path) : 0, most = size - 1 - strlen(number);
    const char *end = n > most ? path + n - most : path;
    const char *slash = n > most ? strchr(end, '/') : NULL; /* whole names */
    snprintf(where, size, "%s%s", slash ? slash + 1 : end ? end : "?", number);
    Py_XDECREF(code);
    Py_XDECREF(file);
    Py_XDECREF(line);
    return own;
}

/* The innermost line outside of this package. */
static void where_find(char *where, size_t size) {
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    Py_XINCREF(frame);
    *where = 0;
    while (frame && frame != Py_None && frame_read(frame, where, size)) {
        PyObject *outer = PyObject_GetAttrString(frame, "f_back");
        Py_DECREF(frame);
        frame = outer;
    }
    Py_XDECREF(frame);
    PyErr_Clear();
}

void label_set(void) {
    char whole[TD_LABEL_MAX + 1 + WHERE_MAX + 2], where[WHERE_MAX];
    if (!pending && !where_on)
        return;
    snprintf(whole, sizeof whole, "%s", pending ? text : "");
    if (where_on) {
        where_find(where, sizeof where);
        snprintf(whole, sizeof whole, "%.*s@%s", TD_LABEL_MAX - WHERE_MAX - 1, pending ? text : "", where);
    }
    td_label(whole);
    pending_set(false);
}

static PyObject *function_label(PyObject *module, PyObject *label) {
    (void)module;
    const char *given = label == Py_None ? "" : PyUnicode_AsUTF8AndSize(label, NULL);
    if (!given)
        return NULL;
    snprintf(text, sizeof text, "%s", given);
    pending_set(*given);
    Py_RETURN_NONE;
}

static PyObject *function_debug(PyObject *module, PyObject *arguments, PyObject *names) {
    static char *keywords[] = {"where", NULL};
    int on = where_on;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "|$p:debug", keywords, &on))
        return NULL;
    label_hooks += on && !where_on;
    label_hooks -= !on && where_on;
    where_on = on;
    Py_RETURN_NONE;
}

/* ---- scopes ---- */

struct scope {
    PyObject_HEAD
    PyObject *name;
};

static PyTypeObject *scope_type;

static PyObject *function_scope(PyObject *module, PyObject *name) {
    (void)module;
    if (!PyUnicode_AsUTF8AndSize(name, NULL))
        return NULL;
    struct scope *scope = PyObject_New(struct scope, scope_type);
    if (scope) {
        scope->name = name;
        Py_INCREF(name);
    }
    return (PyObject *)scope;
}

static PyObject *scope_enter(PyObject *self, PyObject *unused) {
    (void)unused;
    td_scope_begin_label(PyUnicode_AsUTF8AndSize(((struct scope *)self)->name, NULL));
    Py_INCREF(self);
    return self;
}

static PyObject *scope_exit(PyObject *self, PyObject *arguments) {
    (void)self, (void)arguments;
    td_scope_end();
    Py_RETURN_NONE;
}

static void scope_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((struct scope *)self)->name);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMethodDef scope_methods[] = {
    {"__enter__", scope_enter, METH_NOARGS, NULL}, {"__exit__", scope_exit, METH_VARARGS, NULL}, {0}};

static PyType_Slot scope_slots[] = {
    {Py_tp_doc, "A part of a program that operations' labels name: tensord.scope()."},
    {Py_tp_dealloc, scope_dealloc},
    {Py_tp_methods, scope_methods},
    {0},
};
static PyType_Spec scope_spec = {"tensord.Scope", sizeof(struct scope), 0, Py_TPFLAGS_DEFAULT, scope_slots};

static PyMethodDef functions[] = {
    {"label", function_label, METH_O,
     "label(text)\n--\n\nNames the next array that this thread makes: errors and the daemon's status show it. None: no "
     "label."},
    {"scope", function_scope, METH_O,
     "scope(name)\n--\n\n`with scope(\"forward\"):` labels this thread's operations \"forward/…\". Scopes nest."},
    {"debug", (PyCFunction)(void (*)(void))function_debug, METH_VARARGS | METH_KEYWORDS,
     "debug(*, where=None)\n--\n\nWith where=True each operation is labelled with the line of Python that enqueues it, "
     "and errors have it "
     "as their attribute `where`. Each operation then takes some microseconds more."},
    {0},
};

/* The folder of the package is that of this module's file. */
static int package_find(PyObject *module) {
    PyObject *file = PyObject_GetAttrString(module, "__file__");
    if (!file) {
        PyErr_Clear(); /* a module that is built in has none */
        return 0;
    }
    PyObject *parts = PyObject_CallMethod(file, "rpartition", "s", "/");
    PyObject *folder = parts ? PyTuple_GetItem(parts, 0) : NULL;
    package = folder ? PyUnicode_FromFormat("%U/", folder) : NULL;
    Py_XDECREF(parts);
    Py_DECREF(file);
    return package ? 0 : -1;
}

int label_init(PyObject *module) {
    if (!scope_type)
        scope_type = (PyTypeObject *)PyType_FromSpec(&scope_spec);
    if (!scope_type || (!package && package_find(module)))
        return -1;
    return PyModule_AddFunctions(module, functions);
}
