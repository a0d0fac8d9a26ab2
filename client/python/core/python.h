/* Python's C API, of which the extension uses the stable part (PEP 384): one build runs on all Pythons from 3.9 on.
 *
 * Three things that the extension needs were in every Python 3.9, but its headers show them to extensions of the stable ABI only
 * from a later version on, when they were declared to stay as they are: METH_FASTCALL (3.10), PyUnicode_AsUTF8AndSize() (3.10), and
 * Py_buffer with its functions and type slots (3.11). They are declared here, as those headers declare them. */
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <structmember.h>

#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

PyAPI_FUNC(const char *) PyUnicode_AsUTF8AndSize(PyObject *unicode, Py_ssize_t *size);

#ifndef Py_bf_getbuffer
#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2
#endif

#ifndef PyBUF_SIMPLE
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
} Py_buffer;

#define PyBUF_SIMPLE 0
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
#define PyBUF_C_CONTIGUOUS (0x0020 | PyBUF_STRIDES)
#define PyBUF_INDIRECT (0x0100 | PyBUF_STRIDES)
#define PyBUF_FULL_RO (PyBUF_INDIRECT | PyBUF_FORMAT)

PyAPI_FUNC(int) PyObject_CheckBuffer(PyObject *object);
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(int) PyBuffer_IsContiguous(const Py_buffer *view, char order);
PyAPI_FUNC(int) PyBuffer_ToContiguous(void *to, const Py_buffer *view, Py_ssize_t bytes, char order);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
#endif

/* A function that takes its arguments as an array, as a row of a table of methods has it. */
typedef PyObject *fastcall(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names);
#define FASTCALL(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS
