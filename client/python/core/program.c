/* Recorded programs: what td.function() and td.scan() are made of. */
#include "client/python/core/core.h"

#include <stdlib.h>

struct program {
    PyObject_HEAD
    td_program *handle; /* valid while the device has a handle */
    struct device *device;
    int n_state;         /* the last inputs, which take the values of the last results */
    int n_given, *given; /* inputs that have no value any more after a run */
};

static PyTypeObject *program_type;
static _Thread_local struct device
    *recording; /* the device whose operations the thread records; borrowed from the caller's frame */

bool program_records(const struct device *device) {
    return recording == device;
}

/* ---- recording ---- */

static struct device *device_argument(PyObject *object) {
    if (Py_TYPE(object) == device_type)
        return (struct device *)object;
    PyErr_Format(PyExc_TypeError, "a device, not %R", (PyObject *)Py_TYPE(object));
    return NULL;
}

static PyObject *record_begin(PyObject *module, PyObject *object) {
    struct device *device = device_argument(object);
    (void)module;
    if (!device || !device_open(device))
        return NULL;
    if (td_record_begin(device->handle))
        return device_raise(device);
    recording = device;
    Py_RETURN_NONE;
}

static PyObject *record_parameter(PyObject *module, PyObject *arguments) {
    PyObject *dtype_object, *shape_object;
    int64_t shape[TD_RANK_MAX];
    int rank, consumed;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOp:_record_parameter", &dtype_object, &shape_object, &consumed))
        return NULL;
    td_dtype dtype = dtype_take(dtype_object);
    if (!dtype || shape_take(shape_object, shape, &rank))
        return NULL;
    if (!recording)
        return error_set(TD_E_INVALID_ARGUMENT, "this thread records nothing");
    return array_wrap(recording,
                      consumed ? td_parameter_consumed(dtype, rank, shape) : td_parameter(dtype, rank, shape));
}

/* Handles of a sequence of arrays, to be freed; *count: how many. NULL: the exception is set. */
static td_tensor **tensors_take(PyObject *sequence, int *count) {
    Py_ssize_t n = PySequence_Size(sequence);
    td_tensor **tensors = n < 0 ? NULL : PyMem_Malloc((size_t)(n + 1) * sizeof(td_tensor *));
    if (!tensors && !PyErr_Occurred())
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; tensors && i < n; i++) {
        PyObject *array = PySequence_GetItem(sequence, i);
        if (array && !array_check(array))
            PyErr_Format(PyExc_TypeError, "a program has arrays, not %R", (PyObject *)Py_TYPE(array));
        tensors[i] = array && array_check(array) ? array_tensor((struct array *)array) : NULL;
        Py_XDECREF(array); /* the sequence has it, too */
        if (tensors[i])
            continue;
        PyMem_Free(tensors);
        tensors = NULL;
    }
    *count = (int)n;
    return tensors;
}

/* The numbers of a sequence of integers, to be freed. */
static int *numbers_take(PyObject *sequence, int *count) {
    Py_ssize_t n = PySequence_Size(sequence);
    int *numbers = n < 0 ? NULL : PyMem_Malloc((size_t)(n + 1) * sizeof(int));
    if (!numbers && !PyErr_Occurred())
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; numbers && i < n; i++) {
        PyObject *entry = PySequence_GetItem(sequence, i);
        long value = entry ? PyLong_AsLong(entry) : -1;
        Py_XDECREF(entry);
        numbers[i] = (int)value;
        if (!PyErr_Occurred())
            continue;
        PyMem_Free(numbers);
        numbers = NULL;
    }
    *count = (int)n;
    return numbers;
}

/* The program takes the numbers over. */
static PyObject *program_make(struct device *device, td_program *handle, int n_given, int *given, int n_state) {
    struct program *program = PyObject_New(struct program, program_type);
    if (!program) {
        td_program_release(handle);
        PyMem_Free(given);
        return NULL;
    }
    program->handle = handle;
    program->device = device;
    program->n_state = n_state;
    program->n_given = n_given;
    program->given = given;
    Py_INCREF(device);
    return (PyObject *)program;
}

static PyObject *record_end(PyObject *module, PyObject *arguments) {
    PyObject *results, *given_object;
    struct device *device = recording;
    td_program *handle = NULL;
    int count, n_given, n_state;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOi:_record_end", &results, &given_object, &n_state))
        return NULL;
    if (!device)
        return error_set(TD_E_INVALID_ARGUMENT, "this thread records nothing");
    int *given = numbers_take(given_object, &n_given);
    td_tensor **tensors = given ? tensors_take(results, &count) : NULL;
    if (!tensors) {
        PyMem_Free(given);
        return NULL;
    }
    recording = NULL;
    int code = td_record_end(device->handle, count, tensors, &handle);
    PyMem_Free(tensors);
    if (!code && (n_state < 0 || n_state > count || n_state > td_program_parameters(handle))) {
        td_program_release(handle);
        code = -1;
        (void)error_set(TD_E_INVALID_ARGUMENT, "%d arrays of state", n_state);
    } else if (code) {
        device_raise(device);
    }
    if (!code)
        return program_make(device, handle, n_given, given, n_state);
    PyMem_Free(given);
    return NULL;
}

static PyObject *records(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    return PyBool_FromLong(recording != NULL);
}

static PyObject *record_cancel(PyObject *module, PyObject *none) {
    (void)module, (void)none;
    if (recording && recording->handle)
        td_record_cancel(recording->handle);
    recording = NULL;
    Py_RETURN_NONE;
}

static PyMethodDef program_functions[] = {
    {"_record_begin", record_begin, METH_O,
     "_record_begin(device)\n--\n\nThe thread's operations there are recorded from now on."},
    {"_record_parameter", record_parameter, METH_VARARGS,
     "_record_parameter(dtype, shape, given)\n--\n\nA place that each run fills, with an array that has no value any "
     "more then, if that is `given`."},
    {"_record_end", record_end, METH_VARARGS,
     "_record_end(results, given, state)\n--\n\nThe Program that has been recorded. After a run its inputs with the "
     "numbers `given` have no value any more, and the last ones, `state` of them, have the values of as many last "
     "results."},
    {"_records", records, METH_NOARGS, "_records()\n--\n\nWhether this thread records."},
    {"_record_cancel", record_cancel, METH_NOARGS,
     "_record_cancel()\n--\n\nForgets what has been recorded, if anything is."},
    {0},
};

/* ---- runs ---- */

static void program_dealloc(PyObject *self) {
    struct program *program = (struct program *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (program->device->handle)
        td_program_release(program->handle);
    Py_DECREF(program->device);
    PyMem_Free(program->given);
    PyObject_Free(self);
    Py_DECREF(type);
}

enum use { USE_GIVEN, USE_STATE, USE_READ };

/* What a run does to its inputs can be done to this one. */
static int input_check(PyObject *inputs, Py_ssize_t i, enum use use) {
    PyObject *object = PySequence_GetItem(inputs, i);
    if (!object || !array_check(object)) {
        Py_XDECREF(object);
        return object ? 0 : -1; /* tensors_take() refuses it */
    }
    struct array *array = (struct array *)object;
    bool refused = use != USE_READ && array_pinned(array);
    if (!refused && use == USE_GIVEN && graph_wanted(array)) {
        PyErr_SetString(PyExc_TypeError, "an array that backward() goes through cannot be given away");
        refused = true;
    }
    if (!refused && use == USE_READ && graph_wants(object, object)) {
        PyErr_SetString(PyExc_TypeError, "an argument requires a gradient, which does not go through a recorded "
                                         "function: use td.grad() inside of it, or x.detach()");
        refused = true;
    }
    if (!refused && use == USE_STATE && array->graph && array->device->handle)
        graph_changed(array);
    Py_DECREF(object);
    return refused ? -1 : 0;
}

static int inputs_check(const struct program *program, PyObject *inputs) {
    int code = 0, n = td_program_parameters(program->handle);
    for (int i = 0; i < program->n_given && !code; i++)
        code = input_check(inputs, program->given[i], USE_GIVEN);
    for (int i = n - program->n_state; i < n && !code; i++)
        code = input_check(inputs, i, USE_STATE);
    for (int i = 0; i < n - program->n_state && !code && graph_parts; i++)
        code = input_check(inputs, i, USE_READ);
    return code;
}

/* The run has taken the handle; NULL: the array has no value from now on. */
static void input_becomes(PyObject *inputs, Py_ssize_t i, td_tensor *tensor) {
    PyObject *object = PySequence_GetItem(inputs, i);
    ((struct array *)object)->tensor = tensor;
    Py_DECREF(object); /* the sequence has it, too */
}

/* Results without those that inputs have become, as a tuple. */
static PyObject *results_give(const struct program *program, PyObject *inputs, td_tensor **results) {
    int n = td_program_parameters(program->handle), n_own = td_program_results(program->handle) - program->n_state;
    for (int i = 0; i < program->n_given; i++)
        input_becomes(inputs, program->given[i], NULL);
    for (int i = 0; i < program->n_state; i++)
        input_becomes(inputs, n - program->n_state + i, results[n_own + i]);
    PyObject *tuple = PyTuple_New(n_own);
    for (int i = 0; i < n_own; i++) {
        PyObject *array = array_wrap(program->device, results[i]);
        if (tuple && (!array || PyTuple_SetItem(tuple, i, array))) {
            Py_DECREF(tuple);
            tuple = NULL;
        }
    }
    return tuple;
}

/* `loop` NULL: once. `inputs` is a list or a tuple. */
static PyObject *program_start(struct program *program, PyObject *inputs, long long times, const td_loop *loop) {
    struct device *device = program->device;
    int count, code, waited = 0;
    if (!device->handle)
        return error_set(TD_E_CANCELLED, "the program's device is gone");
    int n_results = td_program_results(program->handle);
    td_tensor **results = PyMem_Malloc((size_t)(n_results + 1) * sizeof(td_tensor *));
    if (!results)
        return PyErr_NoMemory();
    do { /* after a wait, in which other threads ran, arrays may have other handles */
        td_tensor **tensors = tensors_take(inputs, &count);
        if (!tensors || inputs_check(program, inputs)) {
            PyMem_Free(tensors);
            PyMem_Free(results);
            return NULL;
        }
        label_next();
        code = loop ? td_program_repeat(program->handle, times, loop, count, tensors, n_results, results)
                    : td_program_run(program->handle, count, tensors, n_results, results);
        PyMem_Free(tensors);
    } while (code == TD_E_AGAIN && !(waited = device_wait_room(device)));
    PyObject *tuple = NULL;
    if (!code)
        tuple = results_give(program, inputs, results);
    else if (!waited)
        device_raise(device);
    PyMem_Free(results);
    return tuple;
}

static PyObject *program_run(PyObject *self, PyObject *inputs) {
    return program_start((struct program *)self, inputs, 1, NULL);
}

static PyObject *program_repeat(PyObject *self, PyObject *arguments) {
    struct program *program = (struct program *)self;
    PyObject *inputs, *carried_object, *sliced_object, *stacked_object;
    long long times;
    int n_carried = 0, n_sliced = 0, n_stacked = 0;
    if (!PyArg_ParseTuple(arguments, "OLOOO:repeat", &inputs, &times, &carried_object, &sliced_object, &stacked_object))
        return NULL;
    if (!program->device->handle) /* then the program is gone, too */
        return error_set(TD_E_CANCELLED, "the program's device is gone");
    int *carried = numbers_take(carried_object, &n_carried);
    int *sliced = carried ? numbers_take(sliced_object, &n_sliced) : NULL;
    int *stacked = sliced ? numbers_take(stacked_object, &n_stacked) : NULL;
    int n_state = program->n_state, n_inputs = td_program_parameters(program->handle),
        n_results = td_program_results(program->handle);
    td_carry *carries = stacked ? PyMem_Malloc((size_t)(n_carried + n_state + 1) * sizeof *carries) : NULL;
    PyObject *results = NULL;
    if (stacked && !carries)
        PyErr_NoMemory();
    if (carries) {
        for (int i = 0; i < n_carried; i++) /* result i goes to this parameter */
            carries[i] = (td_carry){.result = i, .parameter = carried[i]};
        for (int i = 0; i < n_state; i++)
            carries[n_carried + i] = (td_carry){.result = n_results - n_state + i, .parameter = n_inputs - n_state + i};
        const td_loop loop = {n_carried + n_state, carries, n_sliced, sliced, n_stacked, stacked};
        results = program_start(program, inputs, times, &loop);
    }
    PyMem_Free(carried);
    PyMem_Free(sliced);
    PyMem_Free(stacked);
    PyMem_Free(carries);
    return results;
}

td_program *program_handle(PyObject *object, struct device **device) {
    struct program *program = (struct program *)object;
    if (Py_TYPE(object) != program_type) {
        PyErr_Format(PyExc_TypeError, "a program, not %R", (PyObject *)Py_TYPE(object));
        return NULL;
    }
    *device = program->device;
    return program->device->handle ? program->handle
                                   : (td_program *)error_set(TD_E_CANCELLED, "the program's device is gone");
}

static PyMethodDef program_methods[] = {
    {"run", program_run, METH_O, "run($self, inputs, /)\n--\n\nEnqueues a run, and returns its results as a tuple."},
    {"repeat", program_repeat, METH_VARARGS,
     "repeat($self, inputs, times, carried, sliced, stacked, /)\n--\n\nEnqueues a loop: result i of the first ones "
     "goes to parameter carried[i]."},
    {0},
};

static PyType_Slot program_slots[] = {
    {Py_tp_doc, "Operations that were recorded, and run as one."},
    {Py_tp_dealloc, program_dealloc},
    {Py_tp_methods, program_methods},
    {0},
};

static PyType_Spec program_spec = {"tensord.Program", sizeof(struct program), 0, Py_TPFLAGS_DEFAULT, program_slots};

int program_init(PyObject *module) {
    if (!program_type)
        program_type = (PyTypeObject *)PyType_FromSpec(&program_spec);
    if (!program_type || PyModule_AddFunctions(module, program_functions))
        return -1;
    return PyObject_SetAttrString(module, "Program", (PyObject *)program_type);
}
