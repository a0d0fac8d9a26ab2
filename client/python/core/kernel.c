/* Kernels of the program's own: Device.compile(), and the arguments of their launches. */
#include "client/python/core/core.h"

struct kernel {
    PyObject_HEAD
    td_kernel *handle; /* valid while the device has a handle */
    struct device *device;
};

/* An argument of a kernel that is no array and no plain number. */
struct kernel_argument {
    PyObject_HEAD
    enum {
        ARGUMENT_OUT,
        ARGUMENT_UPDATE,
        ARGUMENT_I32,
        ARGUMENT_U32,
        ARGUMENT_I64,
        ARGUMENT_U64,
        ARGUMENT_F32,
        ARGUMENT_F64
    } kind;
    PyObject *array; /* of an update */
    td_dtype dtype;  /* of an output */
    int rank;
    int64_t shape[TD_RANK_MAX];
    int64_t i;
    double f;
};

static PyTypeObject *kernel_type, *argument_type;

static PyObject *device_compile(PyObject *self, PyObject *arguments) {
    struct device *device = (struct device *)self;
    const char *source, *name;
    td_kernel *handle;
    int code;
    if (!PyArg_ParseTuple(arguments, "ss:compile", &source, &name) || !device_open(device))
        return NULL;
    device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    code = td_kernel_compile(device->handle, source, name, &handle);
    Py_END_ALLOW_THREADS;
    device->connection->waits--;
    if (code)
        return device_raise(device);
    struct kernel *kernel = PyObject_New(struct kernel, kernel_type);
    if (!kernel) {
        td_kernel_release(handle);
        return NULL;
    }
    kernel->handle = handle;
    kernel->device = device;
    Py_INCREF(device);
    return (PyObject *)kernel;
}

static void kernel_dealloc(PyObject *self) {
    struct kernel *kernel = (struct kernel *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (kernel->device->handle)
        td_kernel_release(kernel->handle);
    Py_DECREF(kernel->device);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int dim_take(PyObject *object, td_dim *dim) {
    int64_t extents[3] = {1, 1, 1};
    Py_ssize_t n = PyIndex_Check(object) ? 1 : PySequence_Size(object);
    if (n < 1 || n > 3) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a grid or block is an integer, or up to three of them");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *entry = PyIndex_Check(object) ? (Py_INCREF(object), object) : PySequence_GetItem(object, i);
        extents[i] = entry ? PyLong_AsLongLong(entry) : -1;
        Py_XDECREF(entry);
        if (PyErr_Occurred())
            return -1;
    }
    *dim = (td_dim){extents[0], extents[1], extents[2]};
    return 0;
}

enum { ARGUMENTS_MAX = 64 };

struct launch {
    td_kernel_arg args[ARGUMENTS_MAX];
    td_tensor *outputs[ARGUMENTS_MAX];
    int n, n_outputs;
    bool noted;       /* for backward() */
    const char *lost; /* why the outputs have no way back */
};

static void launch_input(struct launch *launch, PyObject *array) {
    launch->noted = launch->noted || graph_wants(array, array);
    if (!launch->lost)
        launch->lost = graph_lost(array);
}

static int launch_typed(struct launch *launch, struct kernel_argument *argument) {
    td_tensor **output = &launch->outputs[launch->n_outputs];
    td_tensor *tensor = NULL;
    switch (argument->kind) {
    case ARGUMENT_OUT:
        launch->args[launch->n] = td_arg_out(output, argument->dtype, argument->rank, argument->shape);
        launch->n_outputs++;
        return 0;
    case ARGUMENT_UPDATE:
        tensor = array_tensor((struct array *)argument->array);
        launch->args[launch->n] = td_arg_update(output, tensor);
        launch_input(launch, argument->array);
        launch->n_outputs++;
        return tensor ? 0 : -1;
    case ARGUMENT_I32:
        launch->args[launch->n] = td_arg_i32((int32_t)argument->i);
        return 0;
    case ARGUMENT_U32:
        launch->args[launch->n] = td_arg_u32((uint32_t)argument->i);
        return 0;
    case ARGUMENT_I64:
        launch->args[launch->n] = td_arg_i64(argument->i);
        return 0;
    case ARGUMENT_U64:
        launch->args[launch->n] = td_arg_u64((uint64_t)argument->i);
        return 0;
    case ARGUMENT_F32:
        launch->args[launch->n] = td_arg_f32((float)argument->f);
        return 0;
    case ARGUMENT_F64:
        launch->args[launch->n] = td_arg_f64(argument->f);
        return 0;
    }
    return -1;
}

static int launch_add(struct launch *launch, PyObject *object) {
    if (Py_TYPE(object) == argument_type) {
        if (launch_typed(launch, (struct kernel_argument *)object))
            return -1;
    } else if (array_check(object)) {
        td_tensor *tensor = array_tensor((struct array *)object);
        if (!tensor)
            return -1;
        launch->args[launch->n] = td_arg_in(tensor);
        launch_input(launch, object);
    } else {
        PyErr_Format(PyExc_TypeError,
                     "a kernel takes arrays, out(), update(), and numbers as i32(7) or f32(0.5), not %R",
                     (PyObject *)Py_TYPE(object));
        return -1;
    }
    launch->n++;
    return 0;
}

static PyObject *launch_results(const struct launch *launch, struct device *device) {
    PyObject *tuple = PyTuple_New(launch->n_outputs);
    for (int i = 0; i < launch->n_outputs; i++) {
        PyObject *array = array_wrap(device, launch->outputs[i]);
        if (tuple && (!array || PyTuple_SetItem(tuple, i, array))) {
            Py_DECREF(tuple);
            tuple = NULL;
        }
    }
    if (!tuple || launch->n_outputs != 1)
        return tuple;
    PyObject *only = PyTuple_GetItem(tuple, 0);
    Py_INCREF(only);
    Py_DECREF(tuple);
    return only;
}

static PyObject *kernel_call(PyObject *self, PyObject *arguments, PyObject *names) {
    struct kernel *kernel = (struct kernel *)self;
    struct launch launch = {.n = 0};
    td_dim grid, block;
    Py_ssize_t n = PyTuple_Size(arguments), shared = 0;
    PyObject *shared_object = names ? PyDict_GetItemString(names, "shared") : NULL;
    if (n < 3 || n > 2 + ARGUMENTS_MAX || (names && PyDict_Size(names) != (shared_object != NULL)))
        return PyErr_Format(
            PyExc_TypeError,
            "a kernel is called with a grid, a block and 1 to %d arguments, and shared=", ARGUMENTS_MAX);
    if (shared_object)
        shared = PyLong_AsSsize_t(shared_object);
    if (PyErr_Occurred() || dim_take(PyTuple_GetItem(arguments, 0), &grid) ||
        dim_take(PyTuple_GetItem(arguments, 1), &block))
        return NULL;
    if (!kernel->device->handle)
        return error_set(TD_E_CANCELLED, "the kernel's device is gone");
    int code, waited = 0;
    do {
        launch.n = launch.n_outputs = 0;
        for (Py_ssize_t i = 2; i < n; i++)
            if (launch_add(&launch, PyTuple_GetItem(arguments, i)))
                return NULL;
        if (launch.noted && graph_enter())
            return NULL;
        label_next();
        code = td_kernel_launch(kernel->handle, grid, block, (size_t)shared, launch.n, launch.args);
        if (launch.noted)
            graph_leave();
    } while (code == TD_E_AGAIN && !(waited = device_wait_room(kernel->device)));
    if (waited)
        return NULL;
    if (code)
        return device_raise(kernel->device);
    PyObject *results = launch_results(&launch, kernel->device);
    return launch.noted ? graph_mark(results, launch.lost) : results;
}

static struct kernel_argument *argument_create(int kind) {
    struct kernel_argument *argument = PyObject_New(struct kernel_argument, argument_type);
    if (argument) {
        argument->kind = kind;
        argument->array = NULL;
        argument->rank = 0;
        argument->i = 0;
        argument->f = 0;
    }
    return argument;
}

static void argument_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((struct kernel_argument *)self)->array);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *function_out(PyObject *module, PyObject *arguments) {
    PyObject *dtype_object, *shape;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO:out", &dtype_object, &shape))
        return NULL;
    td_dtype dtype = dtype_take(dtype_object);
    struct kernel_argument *argument = dtype ? argument_create(ARGUMENT_OUT) : NULL;
    if (!argument)
        return NULL;
    argument->dtype = dtype;
    if (!shape_take(shape, argument->shape, &argument->rank))
        return (PyObject *)argument;
    Py_DECREF(argument);
    return NULL;
}

static PyObject *function_update(PyObject *module, PyObject *array) {
    (void)module;
    if (!array_check(array))
        return PyErr_Format(PyExc_TypeError, "update() takes an array, not %R", (PyObject *)Py_TYPE(array));
    struct kernel_argument *argument = argument_create(ARGUMENT_UPDATE);
    if (argument) {
        Py_INCREF(array);
        argument->array = array;
    }
    return (PyObject *)argument;
}

static PyObject *whole(int kind, PyObject *object, int64_t least, uint64_t most) {
    PyObject *index = PyNumber_Index(object);
    int over = 0;
    int64_t i = index ? PyLong_AsLongLongAndOverflow(index, &over) : -1;
    if (over > 0 && most == UINT64_MAX) {
        i = (int64_t)PyLong_AsUnsignedLongLong(index);
        over = 0;
    } else if (index && !PyErr_Occurred() && (over || i < least || (i > 0 && (uint64_t)i > most))) {
        PyErr_Format(PyExc_OverflowError, "%R does not fit", index);
    }
    Py_XDECREF(index);
    struct kernel_argument *argument = PyErr_Occurred() ? NULL : argument_create(kind);
    if (argument)
        argument->i = i;
    return (PyObject *)argument;
}

static PyObject *real(int kind, PyObject *object) {
    double value = PyFloat_AsDouble(object);
    struct kernel_argument *argument = PyErr_Occurred() ? NULL : argument_create(kind);
    if (argument)
        argument->f = value;
    return (PyObject *)argument;
}

#define NUMBER(name, make)                                                                                             \
    static PyObject *function_##name(PyObject *module, PyObject *object) {                                             \
        (void)module;                                                                                                  \
        return make;                                                                                                   \
    }
NUMBER(i32, whole(ARGUMENT_I32, object, INT32_MIN, INT32_MAX))
NUMBER(u32, whole(ARGUMENT_U32, object, 0, UINT32_MAX))
NUMBER(i64, whole(ARGUMENT_I64, object, INT64_MIN, INT64_MAX))
NUMBER(u64, whole(ARGUMENT_U64, object, 0, UINT64_MAX))
NUMBER(f32, real(ARGUMENT_F32, object))
NUMBER(f64, real(ARGUMENT_F64, object))

/* ---- the types ---- */

static PyType_Slot kernel_slots[] = {
    {Py_tp_doc, "A compiled kernel: kernel(grid, block, *arguments, shared=0) enqueues a launch and gives the outputs, "
                "in their order, or the "
                "only one. Arguments: arrays, which the kernel reads; out(dtype, shape); update(x); numbers as i32(7) "
                "or f32(0.5)."},
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_call, kernel_call},
    {0},
};
static PyType_Spec kernel_spec = {"tensord.Kernel", sizeof(struct kernel), 0, Py_TPFLAGS_DEFAULT, kernel_slots};

static PyType_Slot argument_slots[] = {
    {Py_tp_doc, "An argument of a kernel: out(), update(), i32() and such."},
    {Py_tp_dealloc, argument_dealloc},
    {0},
};
static PyType_Spec argument_spec = {"tensord.KernelArgument", sizeof(struct kernel_argument), 0, Py_TPFLAGS_DEFAULT,
                                    argument_slots};

PyMethodDef kernel_device_methods[] = {
    {"compile", device_compile, METH_VARARGS,
     "compile(source, name)\n--\n\nCompiles a kernel of your own, in CUDA C++, on a CUDA device whose operator allows "
     "it. `name` is that of an "
     "extern \"C\" kernel, or a template's as \"scale<float>\". Blocks. The error's `details` have the compiler's "
     "log."},
    {0},
};

static PyMethodDef functions[] = {
    {"out", function_out, METH_VARARGS,
     "out(dtype, shape)\n--\n\nFor a kernel: the address of a new array, at first 0 everywhere."},
    {"update", function_update, METH_O,
     "update(x)\n--\n\nFor a kernel: the address of a new array, at first a copy of x."},
    {"i32", function_i32, METH_O, "i32(value)\n--\n\nFor a kernel: an int."},
    {"u32", function_u32, METH_O, "u32(value)\n--\n\nFor a kernel: an unsigned int."},
    {"i64", function_i64, METH_O, "i64(value)\n--\n\nFor a kernel: a long long."},
    {"u64", function_u64, METH_O, "u64(value)\n--\n\nFor a kernel: an unsigned long long."},
    {"f32", function_f32, METH_O, "f32(value)\n--\n\nFor a kernel: a float."},
    {"f64", function_f64, METH_O, "f64(value)\n--\n\nFor a kernel: a double."},
    {0},
};

int kernel_init(PyObject *module) {
    if (!kernel_type)
        kernel_type = (PyTypeObject *)PyType_FromSpec(&kernel_spec);
    if (!argument_type)
        argument_type = (PyTypeObject *)PyType_FromSpec(&argument_spec);
    if (!kernel_type || !argument_type || PyModule_AddFunctions(module, functions))
        return -1;
    return PyObject_SetAttrString(module, "Kernel", (PyObject *)kernel_type);
}
