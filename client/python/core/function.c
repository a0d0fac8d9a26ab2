/* Calls of the generated functions: arguments as their table says, and arrays of the results. */
#include "client/python/core/core.h"

#include <stdlib.h>
#include <string.h>

enum { INTS_MAX = 160, FLOATS_MAX = 128 };

/* What users of NumPy, whose functions take lists, need to know. */
#define ARRAYS_OF_OTHERS ": tensord.asarray() makes arrays of lists, numbers and other arrays"

/* A list of arrays, and their handles. */
struct list {
    PyObject *tuple; /* keeps the arrays alive */
    td_tensor **tensors;
    Py_ssize_t pinned; /* the first so many of them, which take other values afterwards */
    bool updates;
};

/* The state of one call. */
struct call {
    const struct function *function;
    PyObject *given[PARAMETERS_MAX]; /* borrowed; NULL: left out, or None for what may be left out */
    union argument in[PARAMETERS_MAX];
    struct operand operands[PARAMETERS_MAX];
    struct device *device; /* owned */
    bool noted;            /* for backward() */
    const char *lost;      /* why the results have no way back */
    td_dtype like;         /* of the first array that promotes; 0: none */
    struct list lists[LISTS_MAX];
    unsigned n_lists, n_ints, n_floats;
    int64_t ints[INTS_MAX];
    double floats[FLOATS_MAX];
};

static int refuse(const struct call *call, const struct parameter *parameter, const char *expected, PyObject *object) {
    PyErr_Format(PyExc_TypeError, "%s(): %s is %s, not %R" ARRAYS_OF_OTHERS, call->function->name, parameter->name,
                 expected, (PyObject *)Py_TYPE(object));
    return -1;
}

/* ---- which argument is which ---- */

static int bind_name(struct call *call, PyObject *name, PyObject *value) {
    const struct function *function = call->function;
    for (unsigned i = 0; i < function->n_parameters; i++) {
        if (PyUnicode_CompareWithASCIIString(name, function->parameters[i].name))
            continue;
        if (call->given[i])
            return PyErr_Format(PyExc_TypeError, "%s() has two values for %U", function->name, name), -1;
        call->given[i] = value;
        return 0;
    }
    return PyErr_Format(PyExc_TypeError, "%s() has no argument %U", function->name, name), -1;
}

static int bind(struct call *call, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    const struct function *function = call->function;
    Py_ssize_t n_names = names ? PyTuple_Size(names) : 0;
    if (count > function->n_parameters)
        return PyErr_Format(PyExc_TypeError, "%s() takes %u arguments, not %zd", function->name, function->n_parameters,
                            count),
               -1;
    memset(call->given, 0, sizeof call->given);
    for (Py_ssize_t i = 0; i < count; i++)
        call->given[i] = arguments[i];
    for (Py_ssize_t i = 0; i < n_names; i++)
        if (bind_name(call, PyTuple_GetItem(names, i), arguments[count + i]))
            return -1;
    for (unsigned i = 0; i < function->n_parameters; i++) {
        if (call->given[i] == Py_None && function->parameters[i].optional)
            call->given[i] = NULL;
        if (!call->given[i] && !function->parameters[i].optional)
            return PyErr_Format(PyExc_TypeError, "%s() needs the argument %s", function->name,
                                function->parameters[i].name),
                   -1;
        if (call->given[i] && function->parameters[i].needs_former && !call->given[i - 1])
            return PyErr_Format(PyExc_TypeError, "%s() takes no %s without %s", function->name,
                                function->parameters[i].name, function->parameters[i - 1].name),
                   -1;
    }
    return 0;
}

/* ---- the values ---- */

static int take_int(PyObject *object, int64_t *out) {
    PyObject *index = PyNumber_Index(object);
    *out = index ? PyLong_AsLongLong(index) : -1;
    Py_XDECREF(index);
    return PyErr_Occurred() ? -1 : 0;
}

static int take_ints(struct call *call, PyObject *object, union argument *out) {
    out->given = true;
    out->ints = call->ints + call->n_ints;
    bool one = PyIndex_Check(object);
    Py_ssize_t n = one ? 1 : PySequence_Size(object);
    if (n < 0)
        return -1;
    if (n > INTS_MAX - (Py_ssize_t)call->n_ints)
        return PyErr_Format(PyExc_ValueError, "%s(): a list of %zd numbers is too long", call->function->name, n), -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *entry = one ? NULL : PySequence_GetItem(object, i);
        int code = one ? take_int(object, out->ints) : entry ? take_int(entry, &out->ints[i]) : -1;
        Py_XDECREF(entry);
        if (code)
            return -1;
    }
    out->count = (int)n;
    call->n_ints += (unsigned)n;
    return 0;
}

static int take_floats(struct call *call, PyObject *object, union argument *out) {
    Py_ssize_t n = PySequence_Size(object);
    out->given = true;
    out->floats = call->floats + call->n_floats;
    if (n < 0)
        return -1;
    if (n > FLOATS_MAX - (Py_ssize_t)call->n_floats)
        return PyErr_Format(PyExc_ValueError, "%s(): a list of %zd numbers is too long", call->function->name, n), -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *entry = PySequence_GetItem(object, i);
        out->floats[i] = entry ? PyFloat_AsDouble(entry) : 0;
        Py_XDECREF(entry);
        if (PyErr_Occurred())
            return -1;
    }
    out->count = (int)n;
    call->n_floats += (unsigned)n;
    return 0;
}

static void call_on(struct call *call, struct device *device) {
    if (call->device)
        return;
    Py_INCREF(device);
    call->device = device;
}

static int take_array(struct call *call, PyObject *object, bool promotes, td_tensor **out) {
    struct array *array = (struct array *)object;
    *out = array_tensor(array);
    if (!*out)
        return -1;
    call_on(call, array->device);
    if (array->graph && graph_wanted(array) && graph_notes()) {
        call->noted = true;
        if (!call->lost)
            call->lost = array->graph->lost;
    }
    if (promotes && !call->like)
        call->like = td_tensor_dtype(*out);
    return 0;
}

/* The list's next array gives its old handle away, which it can do once. */
static int pin(const struct call *call, const struct parameter *parameter, struct list *list) {
    struct array *array = (struct array *)PyTuple_GetItem(list->tuple, list->pinned);
    if (array->pins)
        return PyErr_Format(PyExc_ValueError, "%s(): %s[%zd] comes twice, or another thread waits for it",
                            call->function->name, parameter->name, list->pinned),
               -1;
    if (array_outside(array))
        return -1;
    array->pins++;
    list->pinned++;
    return 0;
}

static int take_arrays(struct call *call, const struct parameter *parameter, PyObject *object, union argument *out) {
    if (array_check(object))
        return refuse(call, parameter, "a sequence of arrays", object);
    struct list *list = &call->lists[call->n_lists++];
    *list = (struct list){.tuple = PySequence_Tuple(object), .updates = parameter->kind == PARAMETER_UPDATES};
    if (!list->tuple && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        return refuse(call, parameter, "a sequence of arrays", object);
    }
    Py_ssize_t n = list->tuple ? PyTuple_Size(list->tuple) : 0;
    list->tensors = list->tuple ? PyMem_Malloc(((size_t)n + 1) * sizeof *list->tensors) : NULL;
    if (!list->tensors)
        return list->tuple ? PyErr_NoMemory(), -1 : -1;
    out->given = true;
    out->count = (int)n;
    out->tensors = list->tensors;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *entry = PyTuple_GetItem(list->tuple, i);
        if (!array_check(entry))
            return refuse(call, parameter, "a sequence of arrays", entry);
        if (take_array(call, entry, true, &out->tensors[i]) || (list->updates && pin(call, parameter, list)))
            return -1;
    }
    return 0;
}

static void lists_finish(struct call *call) {
    for (struct list *list = call->lists; list < call->lists + call->n_lists; list++) {
        for (Py_ssize_t i = 0; i < list->pinned; i++)
            ((struct array *)PyTuple_GetItem(list->tuple, i))->pins--;
        Py_XDECREF(list->tuple);
        PyMem_Free(list->tensors);
    }
}

/* The arrays of the lists that the call has updated have their new handles. */
static PyObject *lists_update(struct call *call) {
    for (struct list *list = call->lists; list < call->lists + call->n_lists; list++)
        for (Py_ssize_t i = 0; i < list->pinned; i++) {
            struct array *array = (struct array *)PyTuple_GetItem(list->tuple, i);
            if (array->graph)
                graph_changed(array);
            array->tensor = list->tensors[i];
        }
    Py_RETURN_NONE;
}

static int lists_match(const struct call *call) {
    for (unsigned i = 1; i < call->n_lists; i++)
        if (PyTuple_Size(call->lists[i].tuple) != PyTuple_Size(call->lists[0].tuple))
            return PyErr_Format(PyExc_ValueError, "%s(): lists of %zd and of %zd arrays", call->function->name,
                                PyTuple_Size(call->lists[0].tuple), PyTuple_Size(call->lists[i].tuple)),
                   -1;
    return 0;
}

static int take_word(const struct call *call, const struct parameter *parameter, PyObject *object, int64_t *out) {
    for (*out = 0; PyUnicode_Check(object) && parameter->words[*out]; ++*out)
        if (!PyUnicode_CompareWithASCIIString(object, parameter->words[*out]))
            return 0;
    PyErr_Format(PyExc_ValueError, "%s(): %s cannot be %R; the first possible word is \"%s\"", call->function->name,
                 parameter->name, object, parameter->words[0]);
    return -1;
}

static int take(struct call *call, const struct parameter *parameter, PyObject *object, union argument *out) {
    switch (parameter->kind) {
    case PARAMETER_OPERAND:
        if (scalar_check(object))
            return 0; /* it needs the dtype of an array: take_numbers() */
        /* fall through */
    case PARAMETER_ARRAY:
        return array_check(object) ? take_array(call, object, parameter->kind == PARAMETER_OPERAND, &out->tensor)
                                   : refuse(call, parameter, "an array", object);
    case PARAMETER_ARRAYS:
    case PARAMETER_UPDATES:
        return take_arrays(call, parameter, object, out);
    case PARAMETER_INT:
        return take_int(object, &out->i);
    case PARAMETER_BOOL:
        out->i = PyObject_IsTrue(object);
        return out->i < 0 ? -1 : 0;
    case PARAMETER_DTYPE:
        out->i = dtype_take(object);
        return out->i ? 0 : -1;
    case PARAMETER_SEED:
        out->i = (int64_t)PyLong_AsUnsignedLongLongMask(object);
        return PyErr_Occurred() ? -1 : 0;
    case PARAMETER_FLOAT:
        out->f = PyFloat_AsDouble(object);
        return PyErr_Occurred() ? -1 : 0;
    case PARAMETER_INTS:
        return take_ints(call, object, out);
    case PARAMETER_FLOATS:
        return take_floats(call, object, out);
    case PARAMETER_STRING:
        out->string = PyUnicode_AsUTF8AndSize(object, NULL);
        return out->string ? 0 : -1;
    case PARAMETER_ENUM:
        return take_word(call, parameter, object, &out->i);
    case PARAMETER_OBJECT:
        out->object = object;
        return 0;
    case PARAMETER_DEVICE:
        call->device = device_take(object);
        return call->device ? 0 : -1;
    }
    return -1;
}

/* What Python says of a value says neither of which argument nor of which function. */
static void name_the_argument(const struct call *call, const struct parameter *parameter) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (type == PyExc_TypeError || type == PyExc_OverflowError)
        PyErr_Format(type, "%s(): %s: %S", call->function->name, parameter->name, value);
    else {
        PyErr_Restore(type, value, trace);
        return;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

static int take_named(struct call *call, const struct parameter *parameter, PyObject *object, union argument *out) {
    int code = take(call, parameter, object, out);
    enum parameter_kind kind = parameter->kind;
    if (code && (kind == PARAMETER_INT || kind == PARAMETER_INTS || kind == PARAMETER_FLOAT ||
                 kind == PARAMETER_FLOATS || kind == PARAMETER_SEED || kind == PARAMETER_STRING))
        name_the_argument(call, parameter);
    return code;
}

static void leave_out(const struct parameter *parameter, union argument *out) {
    *out = (union argument){.count = 0};
    if (parameter->kind == PARAMETER_FLOAT)
        out->f = parameter->f;
    else if (parameter->kind == PARAMETER_INT || parameter->kind == PARAMETER_BOOL ||
             parameter->kind == PARAMETER_ENUM || parameter->kind == PARAMETER_DTYPE ||
             parameter->kind == PARAMETER_SEED)
        out->i = parameter->i;
}

/* Numbers as operands, now that the arrays are known. */
static int take_numbers(struct call *call) {
    const struct function *function = call->function;
    for (unsigned i = 0; i < function->n_parameters; i++) {
        if (function->parameters[i].kind != PARAMETER_OPERAND || !call->given[i] || !scalar_check(call->given[i]))
            continue;
        if (!call->like)
            return PyErr_Format(PyExc_TypeError, "%s() needs an array among its operands", function->name), -1;
        if (scalar_operand(call->device, call->like, call->given[i], &call->operands[i]))
            return -1;
        call->in[i].tensor = call->operands[i].tensor;
    }
    return 0;
}

static int take_all(struct call *call) {
    const struct function *function = call->function;
    for (unsigned i = 0; i < function->n_parameters; i++) {
        const struct parameter *parameter = &function->parameters[i];
        call->operands[i].scalar = NULL;
        call->in[i] = (union argument){.count = 0};
        if (call->given[i] && take_named(call, parameter, call->given[i], &call->in[i]))
            return -1;
        if (!call->given[i] && parameter->kind != PARAMETER_DEVICE)
            leave_out(parameter, &call->in[i]);
    }
    if (take_numbers(call) || (function->updates && lists_match(call)))
        return -1;
    if (!call->device)
        call->device = device_take(NULL);
    td_device *handle = call->device ? device_open(call->device) : NULL;
    for (unsigned i = 0; handle && i < function->n_parameters; i++)
        if (function->parameters[i].kind == PARAMETER_DEVICE)
            call->in[i].device = handle;
    return handle ? 0 : -1;
}

/* ---- the call ---- */

static PyObject *wrap_all(struct call *call, td_tensor **out) {
    unsigned n = call->function->n_outputs;
    if (n == 1)
        return array_wrap(call->device, out[0]);
    PyObject *tuple = PyTuple_New(n);
    for (unsigned i = 0; i < n; i++) {
        PyObject *array = array_wrap(call->device, out[i]);
        if (tuple && (!array || PyTuple_SetItem(tuple, (Py_ssize_t)i, array))) {
            Py_DECREF(tuple);
            tuple = NULL;
        }
    }
    return tuple;
}

/* A list of the outputs of a function that says only then how many there are. */
static PyObject *wrap_list(struct call *call, td_tensor **outputs) {
    PyObject *list = PyList_New(0);
    for (td_tensor **each = outputs; *each; each++) {
        PyObject *array = array_wrap(call->device, *each);
        if (list && (!array || PyList_Append(list, array)))
            Py_CLEAR(list);
        Py_XDECREF(array);
    }
    free(outputs);
    return list;
}

/* The handles that the arrays have now: whatever gave up the GIL since they were taken may have given them other values. */
static int take_again(struct call *call) {
    for (unsigned i = 0; i < call->function->n_parameters; i++) {
        enum parameter_kind kind = call->function->parameters[i].kind;
        if ((kind != PARAMETER_ARRAY && kind != PARAMETER_OPERAND) || !call->given[i] || !array_check(call->given[i]))
            continue;
        call->in[i].tensor = array_tensor((struct array *)call->given[i]);
        if (!call->in[i].tensor)
            return -1;
    }
    for (struct list *list = call->lists; list < call->lists + call->n_lists; list++)
        for (Py_ssize_t i = 0; i < PyTuple_Size(list->tuple); i++)
            if (!(list->tensors[i] = array_tensor((struct array *)PyTuple_GetItem(list->tuple, i))))
                return -1;
    return 0;
}

static PyObject *run(struct call *call) {
    td_tensor *out[OUTPUTS_MAX] = {NULL};
    int code;
    do {
        if (take_again(call))
            return NULL;
        if (call->noted && graph_enter())
            return NULL;
        label_next();
        code = call->function->call(call->in, out);
        if (call->noted)
            graph_leave();
        if (PyErr_Occurred())
            return NULL;
    } while (code == TD_E_AGAIN && !device_wait_room(call->device));
    if (PyErr_Occurred())
        return NULL;
    if (code)
        return device_raise(call->device);
    if (call->function->updates)
        return lists_update(call);
    PyObject *results = call->function->n_outputs ? wrap_all(call, out) : wrap_list(call, (td_tensor **)(void *)out[0]);
    return call->noted ? graph_mark(results, call->lost) : results;
}

PyObject *function_call(const struct function *function, PyObject *const *arguments, Py_ssize_t count,
                        PyObject *names) {
    struct call call; /* most of it is not written: it has room for the longest lists */
    call.function = function;
    call.device = NULL;
    call.like = 0;
    call.noted = false;
    call.lost = NULL;
    call.n_lists = call.n_ints = call.n_floats = 0;
    for (unsigned i = 0; i < function->n_parameters; i++)
        call.operands[i].scalar = NULL;
    PyObject *result = NULL;
    if (!bind(&call, arguments, count, names) && !take_all(&call)) {
        call.noted = call.noted && !function->updates; /* steps of optimisers are no part of what they follow */
        result = run(&call);
    }
    for (unsigned i = 0; i < function->n_parameters; i++)
        if (call.operands[i].scalar)
            operand_finish(call.device, &call.operands[i]);
    Py_XDECREF(call.device);
    lists_finish(&call);
    return result;
}

/* ---- elementwise functions: their arguments are positional ---- */

static int positional(const char *name, Py_ssize_t wanted, Py_ssize_t count, PyObject *names) {
    if (count == wanted && !(names && PyTuple_Size(names)))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd positional argument%s, not %zd", name, wanted, wanted == 1 ? "" : "s",
                 names ? count + PyTuple_Size(names) : count);
    return -1;
}

PyObject *function_unary(const char *name, td_tensor *call(td_tensor *), PyObject *const *arguments, Py_ssize_t count,
                         PyObject *names) {
    if (positional(name, 1, count, names))
        return NULL;
    if (array_check(arguments[0]))
        return operator_unary(arguments[0], call);
    return PyErr_Format(PyExc_TypeError, "%s() takes an array, not %R" ARRAYS_OF_OTHERS, name,
                        (PyObject *)Py_TYPE(arguments[0]));
}

PyObject *function_binary(const char *name, td_tensor *call(td_tensor *, td_tensor *), PyObject *const *arguments,
                          Py_ssize_t count, PyObject *names) {
    if (positional(name, 2, count, names))
        return NULL;
    PyObject *result = Py_NotImplemented;
    if (array_check(arguments[0]) || array_check(arguments[1]))
        result = operator_binary(arguments[0], arguments[1], call);
    else
        Py_INCREF(result);
    if (result != Py_NotImplemented)
        return result;
    Py_DECREF(result);
    return PyErr_Format(PyExc_TypeError,
                        "%s() takes two arrays, or an array and a number, not %R and %R" ARRAYS_OF_OTHERS, name,
                        (PyObject *)Py_TYPE(arguments[0]), (PyObject *)Py_TYPE(arguments[1]));
}

int function_init(PyObject *module) {
    return PyModule_AddFunctions(module, function_methods);
}
