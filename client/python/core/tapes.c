/* Functions of tensord._core for td.grad(), td.no_grad() and functions that are recorded: a thread's own tapes, and when its operations are not noted
 * for backward() (graph.c). */
#include "client/python/core/core.h"

#include <stdlib.h>

static _Thread_local unsigned pauses_outside; /* of the function that the thread records */

static PyObject *tape_begin(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    if (td_tape_begin())
        return error_raise();
    graph_pause();
    Py_RETURN_NONE;
}

static PyObject *tape_end(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    td_tape_end();
    graph_resume();
    Py_RETURN_NONE;
}

/* The thread's tapes are left too, so that what is computed is a constant for td.grad(). */
static PyObject *no_grad_begin(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    td_tape *suspended = td_tape_suspend();
    PyObject *capsule = suspended ? PyCapsule_New(suspended, "tensord.tapes", NULL) : (Py_INCREF(Py_None), Py_None);
    if (capsule)
        graph_pause();
    else
        td_tape_resume(suspended);
    return capsule;
}

static PyObject *no_grad_end(PyObject *module, PyObject *capsule) {
    (void)module;
    td_tape *suspended = capsule == Py_None ? NULL : PyCapsule_GetPointer(capsule, "tensord.tapes");
    if (PyErr_Occurred())
        return NULL;
    td_tape_resume(suspended);
    graph_resume();
    Py_RETURN_NONE;
}

/* A function is recorded from here on: what the thread does outside of it does not note its operations, and backward() may be called in it. */
static PyObject *recording_begin(PyObject *module, PyObject *unused) {
    PyObject *capsule = no_grad_begin(module, unused);
    if (capsule)
        pauses_outside = graph_pauses(0);
    return capsule;
}

static PyObject *recording_end(PyObject *module, PyObject *capsule) {
    (void)graph_pauses(pauses_outside);
    return no_grad_end(module, capsule);
}

static PyObject *grad_unread(PyObject *module, PyObject *array) {
    (void)module;
    const struct graph_part *part = array_check(array) ? ((struct array *)array)->graph : NULL;
    return PyBool_FromLong(part && part->grad && part->unread);
}

/* [gradient of y by each of xs] on the innermost tape. */
static PyObject *gradients(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    (void)module;
    if (count != 2 || names || !array_check(arguments[0]) || !PyList_Check(arguments[1]))
        return PyErr_Format(PyExc_TypeError, "gradients() takes an array and a list of arrays");
    struct array *y = (struct array *)arguments[0];
    int n = (int)PyList_Size(arguments[1]), code;
    for (int i = 0; i < n; i++)
        if (!array_check(PyList_GetItem(arguments[1], i)))
            return PyErr_Format(PyExc_TypeError, "gradients() takes an array and a list of arrays");
    td_tensor **xs = malloc(2 * ((size_t)n + 1) * sizeof(td_tensor *)), **results = xs + n + 1;
    if (!xs)
        return PyErr_NoMemory();
    do {
        bool gone = !array_tensor(y);
        for (int i = 0; i < n && !gone; i++)
            gone = !(xs[i] = array_tensor((struct array *)PyList_GetItem(arguments[1], i)));
        if (gone) {
            free(xs);
            return NULL;
        }
        label_next();
        code = td_gradients(y->tensor, n, xs, results);
    } while (code == TD_E_AGAIN && !device_wait_room(y->device));
    PyObject *list = code ? NULL : PyList_New(n);
    if (code && !PyErr_Occurred())
        (void)device_raise(y->device);
    for (int i = 0; i < n && !code; i++) {
        struct device *device = ((struct array *)PyList_GetItem(arguments[1], i))->device;
        PyObject *array = array_wrap(device, results[i]);
        if (list && (!array || PyList_SetItem(list, i, array)))
            Py_CLEAR(list);
    }
    free(xs);
    return list;
}

static PyObject *stop_gradient(PyObject *module, PyObject *object) {
    (void)module;
    return array_check(object)
               ? operator_constant(object, td_stop_gradient)
               : PyErr_Format(PyExc_TypeError, "stop_gradient() takes an array, not %R", (PyObject *)Py_TYPE(object));
}

static PyObject *length(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return PyLong_FromSize_t(graph_length());
}

static PyMethodDef functions[] = {
    {"_tape_begin", tape_begin, METH_NOARGS,
     "Begins a tape of this thread, on which arrays that require gradients are like all others."},
    {"_tape_end", tape_end, METH_NOARGS, "Ends the innermost tape."},
    {"_no_grad_begin", no_grad_begin, METH_NOARGS,
     "Nothing that the thread does is noted, until _no_grad_end() gets what this returned."},
    {"_no_grad_end", no_grad_end, METH_O, "The end of that."},
    {"_recording_begin", recording_begin, METH_NOARGS,
     "A function is recorded until _recording_end() gets what this returned: it may call backward()."},
    {"_recording_end", recording_end, METH_O, "The end of that."},
    {"_grad_unread", grad_unread, METH_O,
     "Whether backward() has added to the array's gradient, and nobody has looked at it since."},
    {"_gradients", FASTCALL(gradients),
     "The derivatives of y's sum by each of a list of arrays, on the innermost tape."},
    {"_graph_length", length, METH_NOARGS, "How many operations are noted for backward()."},
    {"_stop_gradient", stop_gradient, METH_O, "The same elements as a constant."},
    {0},
};

int tapes_init(PyObject *module) {
    return PyModule_AddFunctions(module, functions) || PyModule_AddFunctions(module, rule_functions) ? -1 : 0;
}
