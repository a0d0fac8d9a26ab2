/* Dtypes as Python objects: one for each, so that they are compared by identity. */
#include "client/python/core/core.h"

#include <string.h>

static struct dtype *dtypes[DTYPE_END];
static PyTypeObject *dtype_type;

/* By the array API's names. Formats are those of the module struct; f8 formats and bfloat16 have none. */
static const struct {
    td_dtype number;
    const char *name, *kind, *format;
    char class;
} rows[] = {
    {TD_BOOL, "bool", "bool", "?", 'b'},
    {TD_U8, "uint8", "unsigned integer", "B", 'u'},
    {TD_U16, "uint16", "unsigned integer", "H", 'u'},
    {TD_U32, "uint32", "unsigned integer", "I", 'u'},
    {TD_U64, "uint64", "unsigned integer", "Q", 'u'},
    {TD_I8, "int8", "signed integer", "b", 'i'},
    {TD_I16, "int16", "signed integer", "h", 'i'},
    {TD_I32, "int32", "signed integer", "i", 'i'},
    {TD_I64, "int64", "signed integer", "q", 'i'},
    {TD_F16, "float16", "real floating", "e", 'f'},
    {TD_BF16, "bfloat16", "real floating", NULL, 'f'},
    {TD_F32, "float32", "real floating", "f", 'f'},
    {TD_F64, "float64", "real floating", "d", 'f'},
    {TD_C64, "complex64", "complex floating", "Zf", 'c'},
    {TD_C128, "complex128", "complex floating", "Zd", 'c'},
    {TD_F8E4M3, "float8_e4m3fn", "float8", NULL, '8'},
    {TD_F8E5M2, "float8_e5m2", "float8", NULL, '8'},
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS == DTYPE_END - 1, "a row for each dtype");

struct dtype *dtype_of(td_dtype number) {
    return dtypes[number];
}

td_dtype dtype_take(PyObject *object) {
    if (Py_TYPE(object) == dtype_type)
        return ((struct dtype *)object)->number;
    const char *name = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, NULL) : NULL;
    if (PyErr_Occurred())
        return 0;
    for (unsigned i = 0; name && i < ROWS; i++)
        if (!strcmp(name, rows[i].name) || !strcmp(name, td_dtype_name(rows[i].number)))
            return rows[i].number;
    PyErr_Format(PyExc_TypeError, "a dtype of tensord or its name was expected, not %R", object);
    return 0;
}

td_dtype dtype_of_format(const char *format, Py_ssize_t size) {
    static const char signeds[] = "bhilqn", unsigneds[] = "BHILQNc";
    if (!format)
        format = "B";
    if (*format == '@' || *format == '=' || (*format == '<' && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__))
        format++;
    char class = *format == 'Z' ? 'c' : *format == '?' ? 'b' : 'f';
    if (*format && strchr(signeds, *format))
        class = 'i';
    else if (*format && strchr(unsigneds, *format))
        class = 'u';
    else if (class == 'f' && !(*format && strchr("efd", *format)))
        return 0;
    if (strlen(format) != (class == 'c' ? 2u : 1u))
        return 0;
    for (unsigned i = 0; i < ROWS; i++)
        if (rows[i].class == class && rows[i].format && (Py_ssize_t)td_dtype_size(rows[i].number) == size)
            return rows[i].number;
    return 0;
}

static PyObject *dtype_repr(PyObject *self) {
    return PyUnicode_FromFormat("tensord.%s", ((struct dtype *)self)->name);
}

static PyObject *dtype_reduce(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyUnicode_FromString(
        ((struct dtype *)self)->name); /* pickle: a global of the module that __module__ names */
}

static PyObject *dtype_name(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(((struct dtype *)self)->name);
}

static PyObject *dtype_kind(PyObject *self, void *unused) {
    (void)unused;
    return PyUnicode_FromString(((struct dtype *)self)->kind);
}

static PyObject *dtype_number(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(((struct dtype *)self)->number);
}

static PyObject *dtype_itemsize(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromSize_t(td_dtype_size(((struct dtype *)self)->number));
}

static PyGetSetDef getters[] = {
    {"name", dtype_name, NULL, "The array API's name.", NULL},
    {"kind", dtype_kind, NULL,
     "\"bool\", \"signed integer\", \"unsigned integer\", \"real floating\", \"complex floating\" or \"float8\".",
     NULL},
    {"number", dtype_number, NULL, "The number in the C library and on the wire.", NULL},
    {"itemsize", dtype_itemsize, NULL, "Bytes of an element.", NULL},
    {0},
};

static PyMethodDef methods[] = {{"__reduce__", dtype_reduce, METH_NOARGS, NULL}, {0}};

static PyType_Slot slots[] = {
    {Py_tp_doc, "The type of an array's elements; there is one object for each."},
    {Py_tp_repr, dtype_repr},
    {Py_tp_getset, getters},
    {Py_tp_methods, methods},
    {0},
};
static PyType_Spec spec = {"tensord.DType", sizeof(struct dtype), 0, Py_TPFLAGS_DEFAULT, slots};

int dtype_init(PyObject *module) {
    PyObject *names = PyDict_New();
    if (!dtype_type)
        dtype_type = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!names || !dtype_type || PyModule_AddObject(module, "dtypes", names))
        return -1;
    for (unsigned i = 0; i < ROWS; i++) {
        struct dtype *dtype = dtypes[rows[i].number];
        if (!dtype && !(dtype = PyObject_New(struct dtype, dtype_type)))
            return -1;
        dtypes[rows[i].number] = dtype;
        dtype->number = rows[i].number;
        dtype->name = rows[i].name;
        dtype->kind = rows[i].kind;
        dtype->format = rows[i].format;
        dtype->class = rows[i].class;
        if (PyObject_SetAttrString(module, dtype->name, (PyObject *)dtype) ||
            PyDict_SetItemString(names, dtype->name, (PyObject *)dtype))
            return -1;
    }
    Py_INCREF(dtype_type);
    return PyModule_AddObject(module, "DType", (PyObject *)dtype_type);
}
