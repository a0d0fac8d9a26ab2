/* Exceptions: one family, with a class for each code of the library. */
#include "client/python/core/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Each is an Error, and where Python has a class for such an error, of that class, too. */
static const struct {
    td_status code;
    const char *name, *base, *doc;
} rows[] = {
    {TD_E_INVALID_ARGUMENT, "InvalidArgumentError", "ValueError", "An argument's value is not possible."},
    {TD_E_SHAPE, "ShapeError", "ValueError", "Shapes do not fit each other or the operation."},
    {TD_E_DTYPE, "DTypeError", "TypeError", "The operation does not take arrays of this dtype."},
    {TD_E_UNKNOWN_ID, "UnknownNameError", "LookupError", "There is no named tensor of this name, or no such tensor."},
    {TD_E_DUPLICATE_ID, "DuplicateNameError", "ValueError", "The name exists already."},
    {TD_E_DEVICE_MISMATCH, "DeviceMismatchError", "ValueError", "Arrays of different devices in one operation."},
    {TD_E_OUT_OF_MEMORY, "OutOfMemoryError", "MemoryError", "The device has no memory for a result."},
    {TD_E_LIMIT, "LimitError", NULL, "A limit that the daemon's operator has set."},
    {TD_E_OUT_OF_RANGE, "OutOfRangeError", "IndexError", "An index that an array does not have."},
    {TD_E_UNSUPPORTED, "UnsupportedError", "NotImplementedError", "The device or the daemon cannot do this."},
    {TD_E_DEVICE_LOST, "DeviceLostError", NULL, "The device's session has ended, and its arrays with it."},
    {TD_E_NO_DEVICE, "NoDeviceError", "LookupError", "The daemon has no device of this name."},
    {TD_E_PROTOCOL, "ProtocolError", NULL, "The peer does not speak tensord's protocol."},
    {TD_E_VERSION, "VersionError", NULL,
     "The daemon and this library have no common version of the protocol, or a file is of a later version."},
    {TD_E_AGAIN, "AgainError", NULL, "There is no room now."},
    {TD_E_TIMED_OUT, "TimedOutError", "TimeoutError", "The daemon has not replied in time."},
    {TD_E_CONNECTION, "ConnectionFailedError", "ConnectionError",
     "No daemon listens there, or the connection has ended."},
    {TD_E_NO_HOST_MEMORY, "NoHostMemoryError", "MemoryError", "This process or the daemon has no host memory."},
    {TD_E_CANCELLED, "CancelledError", NULL, "The call was ended before it was done."},
    {TD_E_DRAINING, "DrainingError", NULL, "The daemon is shutting down."},
    {TD_E_INTERNAL, "InternalError", NULL, "A bug in tensord."},
    {TD_E_DENIED, "DeniedError", "PermissionError", "The daemon does not allow this."},
    {TD_E_SINGULAR, "SingularError", "ValueError", "A matrix has no inverse or no such decomposition."},
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS == TD_E_SINGULAR, "a class for each code");

static PyObject *family, *classes[ROWS + 1];

/* Labels end in "@file.py:12" where td.debug(where=True) was set: label.c. */
static const char *where_in(const char *label) {
    const char *at = strrchr(label, '@');
    return at ? at : label + strlen(label);
}

static int set_text(PyObject *error, const char *name, const char *text, size_t length) {
    PyObject *value = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
    int code = value ? PyObject_SetAttrString(error, name, value) : -1;
    Py_XDECREF(value);
    return code;
}

static int set_number(PyObject *error, const char *name, unsigned long long number) {
    PyObject *value = PyLong_FromUnsignedLongLong(number);
    int code = value ? PyObject_SetAttrString(error, name, value) : -1;
    Py_XDECREF(value);
    return code;
}

static PyObject *raise(const td_error *failure) {
    PyObject *class = failure->code > 0 && failure->code <= (int)ROWS ? classes[failure->code] : family;
    const char *where = where_in(failure->label);
    PyObject *text = PyUnicode_DecodeUTF8(failure->message, (Py_ssize_t)strlen(failure->message), "replace");
    PyObject *error = text ? PyObject_CallFunctionObjArgs(class, text, NULL) : NULL;
    Py_XDECREF(text);
    if (error && !set_number(error, "code", (unsigned)failure->code) &&
        !set_text(error, "operation", failure->operation, strlen(failure->operation)) &&
        !set_text(error, "label", failure->label, (size_t)(where - failure->label)) &&
        !set_text(error, "where", *where ? where + 1 : where, *where ? strlen(where + 1) : 0) &&
        !set_number(error, "sequence", failure->sequence) &&
        !set_text(error, "details", failure->details, strlen(failure->details)))
        PyErr_SetObject(class, error);
    Py_XDECREF(error);
    return NULL;
}

PyObject *error_raise(void) {
    return raise(td_last_error());
}

PyObject *error_set(td_status code, const char *format, ...) {
    td_error failure = {.code = code, .details = ""};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure.message, sizeof failure.message, format, arguments);
    va_end(arguments);
    return raise(&failure);
}

static PyObject *class_create(unsigned row) {
    char name[64];
    snprintf(name, sizeof name, "tensord.%s", rows[row].name);
    PyObject *base = NULL;
    if (rows[row].base) {
        PyObject *builtins = PyImport_ImportModule("builtins");
        base = builtins ? PyObject_GetAttrString(builtins, rows[row].base) : NULL;
        Py_XDECREF(builtins);
        if (!base)
            return NULL;
    }
    PyObject *bases = base ? PyTuple_Pack(2, family, base) : PyTuple_Pack(1, family);
    Py_XDECREF(base);
    PyObject *class = bases ? PyErr_NewExceptionWithDoc(name, rows[row].doc, bases, NULL) : NULL;
    Py_XDECREF(bases);
    return class;
}

/* What an error says that was not raised here. */
static PyObject *defaults(void) {
    return Py_BuildValue("{s:i,s:s,s:s,s:s,s:i,s:s}", "code", 0, "operation", "", "label", "", "where", "", "sequence",
                         0, "details", "");
}

int error_init(PyObject *module) {
    PyObject *attributes = defaults();
    if (!family && attributes)
        family = PyErr_NewExceptionWithDoc("tensord.Error",
                                           "What tensord raises. Attributes: code (a td_status), operation (that "
                                           "failed first), label (its label, with scopes), where "
                                           "(its line of Python, with td.debug(where=True)), sequence (its number in "
                                           "the session), details (a compiler's log).",
                                           NULL, attributes);
    Py_XDECREF(attributes);
    if (!family || PyObject_SetAttrString(module, "Error", family))
        return -1;
    for (unsigned i = 0; i < ROWS; i++) {
        PyObject **class = &classes[rows[i].code];
        if (!*class && !(*class = class_create(i)))
            return -1;
        if (PyObject_SetAttrString(module, rows[i].name, *class))
            return -1;
    }
    return 0;
}
