/* Derivatives that are written in Python: rules of custom_gradient(), and functions that checkpoint() runs again.
 *
 * libtensord calls them back within the calls below and within those that go back through a tape, always under the GIL. Arrays that they make release their
 * handles themselves, so they run in a scope that sets handles free; what goes to the library is a view that belongs to the library's scope. */
#include "client/python/core/core.h"

#include <stdlib.h>

/* The state of a rule, which the library and the call that makes it have. */
struct rule {
    unsigned users;
    PyObject *function; /* list of arrays → list of arrays */
    PyObject *devices;  /* a list: of the arrays that it gets */
    PyObject *
        results; /* a list: of custom_gradient() what has been computed, of checkpoint() what the function returned first; NULL: none */
    bool first; /* the call that makes it has not returned */
};

/* It may be called while an exception is on its way. */
static void rule_drop(void *state) {
    struct rule *rule = state;
    if (--rule->users)
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(rule->function);
    Py_XDECREF(rule->devices);
    Py_XDECREF(rule->results);
    PyErr_Restore(type, value, trace);
    free(rule);
}

/* A list of the devices of arrays in a list. */
static PyObject *devices_of(PyObject *arrays) {
    PyObject *devices = PyList_New(0);
    for (Py_ssize_t i = 0; devices && i < PyList_Size(arrays); i++)
        if (PyList_Append(devices, (PyObject *)((struct array *)PyList_GetItem(arrays, i))->device))
            Py_CLEAR(devices);
    return devices;
}

/* With a use of it for the caller and one for the library. */
static struct rule *rule_create(PyObject *function, PyObject *arrays, PyObject *results) {
    PyObject *devices = devices_of(arrays);
    struct rule *rule = devices ? malloc(sizeof *rule) : NULL;
    if (!rule) {
        Py_XDECREF(devices);
        PyErr_NoMemory();
        return NULL;
    }
    Py_INCREF(function);
    Py_XINCREF(results);
    *rule = (struct rule){.users = 2, .function = function, .devices = devices, .results = results, .first = true};
    return rule;
}

/* ---- tensors of the library as arrays, and back ---- */

static td_tensor *view_of(struct device *device, td_tensor *tensor) {
    td_tensor *view;
    int code = 0;
    do
        view = td_reshape(tensor, td_tensor_rank(tensor), td_tensor_shape(tensor));
    while (!view && td_last_error()->code == TD_E_AGAIN && !(code = device_wait_room(device)));
    if (!view && !code)
        (void)device_raise(device);
    return view;
}

/* A list of arrays; None for NULL. */
static PyObject *arrays_of(const struct rule *rule, int n, td_tensor *const *tensors) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < n; i++) {
        struct device *device = (struct device *)PyList_GetItem(rule->devices, i);
        td_tensor *view = tensors[i] ? view_of(device, tensors[i]) : NULL;
        PyObject *entry = Py_None;
        if (view)
            entry = array_wrap(device, view);
        else if (tensors[i])
            entry = NULL;
        else
            Py_INCREF(entry);
        if (!entry || PyList_Append(list, entry))
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

/* Views of a list's arrays, which belong to the scope; NULL for None. 0, or -1 with an exception. */
static int tensors_give(PyObject *list, int n, td_tensor **tensors) {
    for (int i = 0; i < n; i++) {
        PyObject *entry = PyList_GetItem(list, i);
        if (entry == Py_None)
            continue;
        if (!array_check(entry))
            return PyErr_Format(PyExc_TypeError, "an array was expected, not %R", (PyObject *)Py_TYPE(entry)), -1;
        td_tensor *tensor = array_tensor((struct array *)entry);
        if (!tensor || !(tensors[i] = view_of(((struct array *)entry)->device, tensor)))
            return -1;
    }
    return 0;
}

/* Calls the function; NULL with an exception. */
static PyObject *rule_call(const struct rule *rule, int n, td_tensor *const *tensors) {
    if (td_scope_begin_free()) {
        td_scope_end();
        return error_raise();
    }
    PyObject *arrays = arrays_of(rule, n, tensors);
    PyObject *results = arrays ? PyObject_CallFunctionObjArgs(rule->function, arrays, NULL) : NULL;
    Py_XDECREF(arrays);
    td_scope_end();
    if (!results || PyList_Check(results))
        return results;
    Py_DECREF(results);
    return PyErr_Format(PyExc_TypeError, "a list of arrays was expected");
}

/* ---- what the library calls; an exception is raised where the call that has led here returns ---- */

static int raised(void) {
    return TD_E_CANCELLED;
}

static int hand_over(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    const struct rule *rule = state;
    (void)inputs;
    return tensors_give(rule->results, (int)PyList_Size(rule->results), outputs) ? raised() : 0;
}

static int backward(void *state, const td_backward *call) {
    PyObject *results = rule_call(state, call->n_outputs, call->output_gradients);
    int code = -1;
    if (results && PyList_Size(results) != call->n_inputs)
        PyErr_Format(PyExc_ValueError, "a rule gave %zd gradients for %d arrays", PyList_Size(results), call->n_inputs);
    else if (results)
        code = tensors_give(results, call->n_inputs, call->input_gradients);
    Py_XDECREF(results);
    return code ? raised() : 0;
}

/* `results` begins with the number of outputs that the library expects, behind which the call that makes the rule finds what the function returned. */
static int run(void *state, td_tensor *const *inputs, td_tensor **outputs) {
    struct rule *rule = state;
    int n = (int)PyList_Size(rule->devices), wanted = (int)PyLong_AsLong(PyList_GetItem(rule->results, 0)), code = -1;
    PyObject *results = rule_call(rule, n, inputs);
    if (results && rule->first && PyList_Append(rule->results, results))
        Py_CLEAR(results);
    if (results && PyList_Size(results) == wanted)
        code = tensors_give(results, wanted, outputs);
    else if (results && !rule->first)
        PyErr_Format(PyExc_ValueError, "checkpoint(): the function returned %d arrays first, and %zd then", wanted,
                     PyList_Size(results));
    Py_XDECREF(results);
    return code ? raised() : 0;
}

/* ---- the calls ---- */

struct request {
    int n;
    td_tensor **inputs; /* then outputs */
    struct device *device;
    bool noted;
    const char *lost;
};

static int request_take(struct request *request, PyObject *list, int n_outputs) {
    request->n = (int)PyList_Size(list);
    request->inputs = calloc((size_t)request->n + (size_t)n_outputs + 1, sizeof(td_tensor *));
    if (!request->inputs)
        return PyErr_NoMemory(), -1;
    for (int i = 0; i < request->n; i++) {
        PyObject *entry = PyList_GetItem(list, i);
        if (!array_check(entry))
            return PyErr_Format(PyExc_TypeError, "an array was expected, not %R", (PyObject *)Py_TYPE(entry)), -1;
        if (!(request->inputs[i] = array_tensor((struct array *)entry)))
            return -1;
        request->device = ((struct array *)entry)->device;
        request->noted = request->noted || graph_wants(entry, entry);
        if (!request->lost)
            request->lost = graph_lost(entry);
    }
    return 0;
}

static PyObject *outputs_wrap(const struct request *request, PyObject *devices, int n, td_tensor *const *outputs) {
    PyObject *list = PyList_New(0);
    for (int i = 0; i < n; i++) {
        PyObject *array = array_wrap((struct device *)PyList_GetItem(devices, i), outputs[i]);
        if (list && (!array || PyList_Append(list, array)))
            Py_CLEAR(list);
        Py_XDECREF(array);
    }
    return request->noted ? graph_mark(list, request->lost) : list;
}

static PyObject *request_failed(const struct request *request) {
    return PyErr_Occurred() ? NULL : device_raise(request->device);
}

static PyObject *custom(PyObject *module, PyObject *arguments) {
    const char *name;
    PyObject *inputs, *results, *function, *list = NULL;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "sO!O!O:_custom", &name, &PyList_Type, &inputs, &PyList_Type, &results, &function))
        return NULL;
    int n = (int)PyList_Size(results), code;
    PyObject *devices = devices_of(results);
    do {
        struct request request = {.n = 0};
        struct rule *rule = NULL;
        code =
            devices && !request_take(&request, inputs, n) && (rule = rule_create(function, results, results)) ? 0 : -1;
        if (!code && !(code = graph_enter_user(request.noted))) {
            td_gradient_rule description = {
                .name = name, .forward = hand_over, .backward = backward, .destroy = rule_drop};
            td_tensor **outputs = request.inputs + request.n;
            label_next();
            code = td_custom_gradient(&description, rule, request.n, request.inputs, n, outputs);
            graph_leave_user(request.noted);
            if (!code)
                list = outputs_wrap(&request, devices, n, outputs);
            else if (code != TD_E_AGAIN || PyErr_Occurred())
                (void)request_failed(&request);
        }
        if (rule) {
            Py_CLEAR(rule->results);
            rule_drop(rule);
        }
        if (code == TD_E_AGAIN && !PyErr_Occurred() && device_wait_room(request.device))
            code = -1;
        free(request.inputs);
    } while (code == TD_E_AGAIN && !PyErr_Occurred());
    Py_XDECREF(devices);
    return list;
}

/* A list of arrays; or how many the function returned, if not so many as were expected. */
static PyObject *checkpoint(PyObject *module, PyObject *arguments) {
    PyObject *inputs, *function, *list = NULL;
    int n, code;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO!i:_checkpoint", &function, &PyList_Type, &inputs, &n))
        return NULL;
    do {
        struct request request = {.n = 0};
        struct rule *rule = NULL;
        PyObject *expected = Py_BuildValue("[i]", n);
        code =
            expected && !request_take(&request, inputs, n) && (rule = rule_create(function, inputs, expected)) ? 0 : -1;
        request.noted = graph_parts && graph_notes(); /* what else the function uses is known afterwards */
        if (!code && !(code = graph_enter_user(request.noted))) {
            td_tensor **outputs = request.inputs + request.n;
            label_next();
            code = td_checkpoint(run, rule, rule_drop, request.n, request.inputs, n, outputs);
            graph_leave_user(request.noted);
            PyObject *returned = PyList_Size(expected) > 1 ? PyList_GetItem(expected, PyList_Size(expected) - 1) : NULL;
            PyObject *devices = !code && returned ? devices_of(returned) : NULL;
            if (devices)
                list = outputs_wrap(&request, devices, n, outputs);
            else if (!PyErr_Occurred() && returned && PyList_Size(returned) != n)
                list = PyLong_FromSsize_t(PyList_Size(returned));
            else if (code != TD_E_AGAIN || PyErr_Occurred())
                (void)request_failed(&request);
            Py_XDECREF(devices);
        }
        if (rule) {
            rule->first = false;
            PyObject *only = PyList_GetSlice(rule->results, 0, 1); /* the arrays are let go */
            Py_XDECREF(rule->results);
            rule->results = only;
            rule_drop(rule);
        }
        Py_XDECREF(expected);
        if (code == TD_E_AGAIN && !PyErr_Occurred() && !list && device_wait_room(request.device))
            code = -1;
        free(request.inputs);
    } while (code == TD_E_AGAIN && !PyErr_Occurred() && !list);
    return list;
}

PyMethodDef rule_functions[] = {
    {"_custom", custom, METH_VARARGS,
     "The results, which were made of the inputs, as those of one operation with this rule."},
    {"_checkpoint", checkpoint, METH_VARARGS,
     "What the function returns for the inputs, as the results of one operation that computes them again."},
    {0},
};
