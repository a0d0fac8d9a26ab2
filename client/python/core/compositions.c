/* Functions of the extension whose arguments differ from those of their C functions. A call that finds an argument wrong raises, and
 * returns TD_E_INVALID_ARGUMENT. */
#include "client/python/core/compositions.h"

#include <stdlib.h>
#include <string.h>

static int refused(void) {
    return TD_E_INVALID_ARGUMENT;
}

static int done(td_tensor *tensor, td_tensor **out) {
    *out = tensor;
    return tensor ? 0 : td_last_error()->code;
}

int call_full(const union argument *in, td_tensor **out) {
    PyObject *number = in[1].object;
    td_dtype dtype = (td_dtype)in[2].i;
    if (!scalar_check(number)) {
        PyErr_Format(PyExc_TypeError, "full(): the value is a number, not %R", (PyObject *)Py_TYPE(number));
        return refused();
    }
    if (in[0].count > TD_RANK_MAX) {
        (void)error_set(TD_E_SHAPE, "%d axes, 0 to %d are possible", in[0].count, TD_RANK_MAX);
        return refused();
    }
    if (dtype && PyComplex_Check(number) && dtype_of(dtype)->class != 'c') {
        PyErr_Format(PyExc_TypeError, "full(): a complex number is no value of %s", dtype_of(dtype)->name);
        return refused();
    }
    return done(scalar_full(in[3].device, dtype ? dtype : scalar_dtype(number), in[0].count, in[0].ints, number), out);
}

int call_arange(const union argument *in, td_tensor **out) {
    return done(td_arange(in[4].device, (td_dtype)in[3].i, in[0].f, in[1].f, in[2].f), out);
}

/* Three numbers, of which None is TD_NONE. */
static int range_take(PyObject *object, int64_t *range) {
    PyObject *parts[3];
    if (!PyTuple_Check(object) || !PyArg_UnpackTuple(object, "slice", 3, 3, &parts[0], &parts[1], &parts[2])) {
        PyErr_SetString(PyExc_TypeError, "slice(): each range is a tuple (start, stop, step)");
        return -1;
    }
    for (int i = 0; i < 3; i++) {
        PyObject *index = parts[i] == Py_None ? NULL : PyNumber_Index(parts[i]);
        range[i] = index ? PyLong_AsLongLong(index) : TD_NONE;
        Py_XDECREF(index);
        if (PyErr_Occurred())
            return -1;
    }
    if (parts[2] == Py_None)
        range[2] = 1;
    return 0;
}

int call_slice(const union argument *in, td_tensor **out) {
    int64_t ranges[3 * TD_RANK_MAX];
    Py_ssize_t n = PySequence_Size(in[1].object);
    if (n > TD_RANK_MAX)
        (void)error_set(TD_E_INVALID_ARGUMENT, "slice(): %zd ranges, 0 to %d are possible", n, TD_RANK_MAX);
    for (Py_ssize_t i = 0; i < n && !PyErr_Occurred(); i++) {
        PyObject *range = PySequence_GetItem(in[1].object, i);
        if (range)
            (void)range_take(range, ranges + 3 * i);
        Py_XDECREF(range);
    }
    return PyErr_Occurred() ? refused() : done(td_slices(in[0].tensor, 3 * (int)n, ranges), out);
}

/* Whether a list of arrays that take results is of one. */
static bool takes_one(const union argument *list, const char *function) {
    if (list->count == 1)
        return true;
    PyErr_Format(PyExc_ValueError, "%s(): a list of one array, not of %d", function, list->count);
    return false;
}

int call_scatter_into(const union argument *in, td_tensor **out) {
    (void)out;
    return takes_one(&in[0], "scatter_into") ? td_scatter_into(in[0].tensors, in[1].tensor, in[2].tensor, (int)in[3].i)
                                             : refused();
}

int call_where_into(const union argument *in, td_tensor **out) {
    (void)out;
    return takes_one(&in[0], "where_into") ? td_where_into(in[0].tensors, in[1].tensor, in[2].tensor) : refused();
}

static bool same_count(const union argument *a, const union argument *b, const char *function) {
    if (a->count == b->count)
        return true;
    PyErr_Format(PyExc_ValueError, "%s(): lists of %d and of %d axes", function, a->count, b->count);
    return false;
}

/* Room for so many outputs, and a NULL behind them; NULL with an exception. */
static td_tensor **outputs_of(int64_t n) {
    td_tensor **outputs = n < 0 ? NULL : calloc((size_t)n + 1, sizeof *outputs);
    if (!outputs)
        PyErr_NoMemory();
    return outputs;
}

/* Hands the outputs over, unless the call has failed. */
static int several(int code, td_tensor **outputs, td_tensor **out) {
    if (code)
        free(outputs);
    else
        *out = (td_tensor *)(void *)outputs;
    return code;
}

int call_meshgrid(const union argument *in, td_tensor **out) {
    td_tensor **outputs = outputs_of(in[0].count);
    return outputs ? several(td_meshgrid(in[0].count, in[0].tensors, (int)in[1].i, outputs), outputs, out) : refused();
}

int call_split(const union argument *in, td_tensor **out) {
    td_tensor **outputs = outputs_of(in[1].count);
    return outputs ? several(td_split(in[0].tensor, in[1].count, in[1].ints, (int)in[2].i, outputs), outputs, out)
                   : refused();
}

int call_unstack(const union argument *in, td_tensor **out) {
    int rank = td_tensor_rank(in[0].tensor), axis = (int)in[1].i, at = axis < 0 ? axis + rank : axis;
    td_tensor **outputs = outputs_of(at >= 0 && at < rank ? td_tensor_shape(in[0].tensor)[at] : 0);
    return outputs ? several(td_unstack(in[0].tensor, axis, outputs), outputs, out) : refused();
}

/* The norm, and then the clipped gradients. */
int call_clip_grad_norm(const union argument *in, td_tensor **out) {
    td_tensor **outputs = outputs_of((int64_t)in[0].count + 1);
    if (!outputs)
        return refused();
    outputs[0] = td_clip_grad_norm(in[0].count, in[0].tensors, in[1].f, in[2].f, outputs + 1);
    return several(outputs[0] ? 0 : td_last_error()->code, outputs, out);
}

int call_moveaxis(const union argument *in, td_tensor **out) {
    if (!same_count(&in[1], &in[2], "moveaxis"))
        return refused();
    return done(td_moveaxis(in[0].tensor, in[1].count, in[1].ints, in[2].ints), out);
}

int call_tensordot(const union argument *in, td_tensor **out) {
    if (!same_count(&in[2], &in[3], "tensordot"))
        return refused();
    return done(td_tensordot(in[0].tensor, in[1].tensor, in[2].count, in[2].ints, in[3].ints), out);
}

static int transform(const union argument *in, td_tensor **out, const char *name,
                     td_tensor *call(td_tensor *, int, const int64_t *, const int64_t *, td_fft_norm)) {
    if (in[2].given && !same_count(&in[1], &in[2], name))
        return refused();
    return done(call(in[0].tensor, in[1].count, in[1].ints, in[2].given ? in[2].ints : NULL, (td_fft_norm)in[3].i),
                out);
}

int call_fftn(const union argument *in, td_tensor **out) {
    return transform(in, out, "fftn", td_fftn);
}

int call_ifftn(const union argument *in, td_tensor **out) {
    return transform(in, out, "ifftn", td_ifftn);
}

int call_rfftn(const union argument *in, td_tensor **out) {
    return transform(in, out, "rfftn", td_rfftn);
}

int call_irfftn(const union argument *in, td_tensor **out) {
    return transform(in, out, "irfftn", td_irfftn);
}
