/* Context variables of Python: what `with` makes current, for a thread or an asyncio task. A variable has a pair (value, what it had
 * before), or None. */
#include "client/python/core/core.h"

PyObject *context_create(const char *name) {
    PyObject *contextvars = PyImport_ImportModule("contextvars");
    PyObject *type = contextvars ? PyObject_GetAttrString(contextvars, "ContextVar") : NULL;
    PyObject *arguments = Py_BuildValue("(s)", name), *names = Py_BuildValue("{s:O}", "default", Py_None);
    PyObject *variable = type && arguments && names ? PyObject_Call(type, arguments, names) : NULL;
    Py_XDECREF(contextvars);
    Py_XDECREF(type);
    Py_XDECREF(arguments);
    Py_XDECREF(names);
    return variable;
}

/* The first of the pair that the variable has; NULL, without an exception: it has none. Borrowed. */
PyObject *context_get(PyObject *variable) {
    PyObject *pair = PyObject_CallMethod(variable, "get", NULL);
    PyObject *value = pair && pair != Py_None ? PyTuple_GetItem(pair, 0) : NULL;
    Py_XDECREF(pair); /* the variable has it */
    return value;
}

/* Enters: the variable has (value, what it had). */
int context_push(PyObject *variable, PyObject *value) {
    PyObject *before = PyObject_CallMethod(variable, "get", NULL);
    PyObject *token = before ? PyObject_CallMethod(variable, "set", "((OO))", value, before) : NULL;
    Py_XDECREF(before);
    Py_XDECREF(token);
    return token ? 0 : -1;
}

int context_pop(PyObject *variable) {
    PyObject *pair = PyObject_CallMethod(variable, "get", NULL);
    PyObject *before = pair && pair != Py_None ? PyTuple_GetItem(pair, 1) : pair;
    PyObject *token = before ? PyObject_CallMethod(variable, "set", "(O)", before) : NULL;
    Py_XDECREF(pair);
    Py_XDECREF(token);
    return token ? 0 : -1;
}
