/* The extension tensord._core: Python objects over the handles of libtensord.
 *
 * Threads. All fields are under the GIL. Functions whose comment says "Blocks" give it up while they wait.
 * Failures. A function that returns a pointer or an int returns NULL or -1 on failure, with a Python exception set.
 * Lives. An array keeps its device object alive, and a device its connection. When a connection closes, or in the child of a
 * fork(), its devices lose their handles (`handle` is NULL): their arrays still exist, but each use of them is an error. */
#pragma once

#include "client/python/core/python.h"

#include <stdbool.h>
#include <stdint.h>

#include "client/tensord.h"

/* ---- error.c ---- */

int error_init(PyObject *module);
/* Raises the thread's last error; returns NULL. */
PyObject *error_raise(void);
/* Raises the exception of this code with words of the extension's own; returns NULL. */
PyObject *error_set(td_status code, const char *format, ...);

/* ---- dtype.c ---- */

struct dtype {
    PyObject_HEAD
    td_dtype number;
    const char *name, *kind;
    const char *format; /* of the buffer protocol; NULL: it has none */
    char class;         /* 'b', 'i', 'u', 'f', 'c' as NumPy; '8': a float of 8 bits */
};

enum { DTYPE_END = TD_C128 + 1 };

int dtype_init(PyObject *module);
/* Borrowed. */
struct dtype *dtype_of(td_dtype number);
/* A DType, or a name ("float32", "f32"); 0 on failure. */
td_dtype dtype_take(PyObject *object);
/* The dtype of a format of the buffer protocol with elements of this size; 0, without an exception: there is none. */
td_dtype dtype_of_format(const char *format, Py_ssize_t size);

/* ---- connection.c, device.c ---- */

struct device;

struct connection {
    PyObject_HEAD
    td_connection *handle;   /* NULL: closed */
    struct connection *next; /* of all that are open */
    unsigned waits;          /* calls of threads that have given up the GIL: it must not be closed meanwhile */
    PyObject *devices;       /* a dict by name */
    PyObject *url;           /* as it was given; None: the default */
    struct device *first;    /* the daemon's first device, borrowed from `devices`; NULL: not known yet */
};

int connection_init(PyObject *module);
/* The connection of those who name none; it is made if there is none. Borrowed. Blocks the first time. */
struct connection *connection_default(void);
/* A device of the connection; NULL name: its first one. A device that was lost is replaced by a new one. New reference. Blocks
 * unless the device is known. */
struct device *connection_device(struct connection *connection, const char *name);

struct scalars;

struct device {
    PyObject_HEAD
    td_device *handle; /* NULL: not opened yet, or closed */
    struct connection *connection;
    PyObject *name;
    td_device_info info;
    struct scalars *scalars; /* scalar.c; NULL: none yet */
    bool lost;               /* a call has failed with TD_E_DEVICE_LOST */
    const char *gone;        /* why there is no handle any more; NULL: it is open, or can be opened */
};

extern PyTypeObject *device_type;
int device_init(PyObject *module);
struct device *device_create(struct connection *connection, const td_device_info *info);
/* The handle, which is opened if it is not yet. Blocks the first time. */
td_device *device_open(struct device *device);
/* The device has no handle any more. */
void device_forget(struct device *device, const char *why);
/* The device that an argument names: None or NULL is the current one. New reference. Blocks unless the device is known. */
struct device *device_take(PyObject *object);
/* Raises the thread's last error, which a call on this device has set; returns NULL. */
PyObject *device_raise(struct device *device);
/* After TD_E_AGAIN: waits until the device's send queue has room (wait.c). Blocks, so an array may have another handle afterwards: the
 * caller takes it again. */
int device_wait_room(struct device *device);

/* ---- context.c ---- */

/* A new variable without a value. */
PyObject *context_create(const char *name);
/* The current value; NULL, without an exception: there is none. Borrowed. */
PyObject *context_get(PyObject *variable);
/* Entering and leaving `with`. */
int context_push(PyObject *variable, PyObject *value);
int context_pop(PyObject *variable);

/* ---- stream.c ---- */

int stream_init(PyObject *module);
extern PyMethodDef stream_device_methods[]; /* of Device */

/* ---- array.c ---- */

struct graph_part;

struct array {
    PyObject_HEAD
    td_tensor *tensor; /* valid while the device has a handle; NULL: given away to a program */
    struct device *device;
    PyObject *weak;
    struct graph_part *graph; /* NULL: none */
    unsigned pins;            /* threads that use the handle without the GIL: it must not be released or exchanged */
    bool recorded;            /* the handle is of a recording */
};

extern PyTypeObject *array_type;
int array_init(PyObject *module);
/* Takes over the handle; NULL: raises the thread's last error. New reference. */
PyObject *array_wrap(struct device *device, td_tensor *tensor);
/* Raises that the array's device is gone, or that the array was given away; returns NULL. */
td_tensor *array_gone(const struct array *array);
/* The result takes the place of x's value, if it has its dtype and shape; steals `result`; returns x as a new reference. */
PyObject *array_replace(PyObject *x, PyObject *result);
/* Whether another thread uses the handle; then raises. */
bool array_pinned(const struct array *array);
/* Whether the thread records a function that does not have the array among its state, and so may not change it; then raises. */
bool array_outside(const struct array *array);
/* A tuple. */
PyObject *array_shape(const struct array *array);

static inline bool array_check(PyObject *object) {
    return Py_TYPE(object) == array_type;
}

/* NULL with an exception: the device is gone, or the array was given away. */
static inline td_tensor *array_tensor(const struct array *array) {
    return array->device->handle && array->tensor ? array->tensor : array_gone(array);
}

extern PyType_Slot array_operators[]; /* operator.c */

/* ---- graph.c: arrays that require gradients ---- */

struct graph_part {
    struct array *array;
    struct graph_part *next, *previous;
    PyObject *grad;   /* an array; NULL: None */
    bool leaf;        /* requires_grad was set */
    bool unread;      /* backward() has added to the gradient, and nobody has looked at it since */
    bool node;        /* the tape knows how it was made */
    const char *lost; /* it was a node, or follows from one that was: why not any more */
};

extern unsigned graph_parts;        /* how many arrays have one */
extern PyMethodDef graph_methods[]; /* of Array */
extern PyGetSetDef graph_getters[];
/* The array has a part, and goes. */
void graph_finish(struct array *array);
/* A device is about to close, and has no handle any more: what is noted of its arrays is let go. */
void graph_device_closes(void);
/* In the child of a fork(): its parent's graph is none of its own. */
void graph_forked(void);
/* Whether this thread's operations are noted: not between graph_pause() and graph_resume(), which nest. */
bool graph_notes(void);
void graph_pause(void);
void graph_resume(void);
/* Sets how many of these the thread is within, and returns how many they were. */
unsigned graph_pauses(unsigned pauses);
/* How many operations the tape has. */
size_t graph_length(void);
/* Operations between them are noted for backward(). Entering may raise. */
int graph_enter(void);
void graph_leave(void);
/* The same for a call in which functions in Python run: what they do is not noted by itself, and other threads wait for the tape. With `noted` false nothing is
 * noted. */
int graph_enter_user(bool noted);
void graph_leave_user(bool noted);
/* The results of an operation (an array, or a sequence of arrays) are parts of the graph, or of one that is lost. Takes the reference over, and returns
 * it. */
PyObject *graph_mark(PyObject *result, const char *lost);
/* A copy of x that no tape knows of, which may be NULL; the same. */
PyObject *graph_copied(const struct array *x, PyObject *copy);
/* Whether x may take the value of a result; false with an exception. */
bool graph_may_take(const struct array *x, const struct array *result);
/* x, which has a part, is about to have another value. */
void graph_changed(struct array *x);
/* The arrays are about to exchange their values, one of them a node. */
int graph_exchange(struct array *x, struct array *y);

/* Whether operations on the array are noted. */
static inline bool graph_wanted(const struct array *array) {
    return array->graph && (array->graph->leaf || array->graph->node || array->graph->lost);
}

/* Whether an operation on these objects, which may be no arrays, is noted. */
static inline bool graph_wants(PyObject *a, PyObject *b) {
    if (__builtin_expect(!graph_parts, 1))
        return false;
    return ((array_check(a) && graph_wanted((struct array *)a)) ||
            (array_check(b) && graph_wanted((struct array *)b))) &&
           graph_notes();
}

/* Why an operation's result has no way back; NULL: it has one. */
static inline const char *graph_lost(PyObject *object) {
    const struct graph_part *part = array_check(object) ? ((struct array *)object)->graph : NULL;
    return part ? part->lost : NULL;
}

int tapes_init(PyObject *module);    /* tapes.c: functions for tapes of a thread */
extern PyMethodDef rule_functions[]; /* rule.c: derivatives that are written in Python */

/* ---- scalar.c: Python's numbers as operands ---- */

struct scalar;

/* A tensor of one operation's input: an array's, or a number's, which the device keeps for the next ones. */
struct operand {
    td_tensor *tensor;
    struct scalar *scalar;
};

/* Whether the object is a bool, int, float or complex. */
bool scalar_check(PyObject *object);
/* The number that a scalar of another library has, such as one of NumPy's: an object whose shape is (), and its item(). NULL without an
 * exception: it is none. */
PyObject *scalar_foreign(PyObject *object);
/* A number for an operation with `like`: weak promotion as in the array API. */
int scalar_operand(struct device *device, td_dtype like, PyObject *number, struct operand *operand);
void operand_finish(struct device *device, struct operand *operand);
void scalars_destroy(struct device *device);
/* A full tensor with a Python number as value; dtype 0: that of the number. */
td_tensor *scalar_full(td_device *device, td_dtype dtype, int rank, const int64_t *shape, PyObject *number);
/* Raises OverflowError if an integer dtype does not have this int. */
int scalar_fits(td_dtype dtype, PyObject *value);
/* bool, i64, f32 or c64; 0: the object is no number. */
td_dtype scalar_dtype(PyObject *number);

/* ---- program.c ---- */

int program_init(PyObject *module);
/* Whether the thread records the device's operations: a handle that is made now is none that others may use. */
bool program_records(const struct device *device);

/* The handle of a recorded program; NULL with an exception: the object is none, or its device is gone. */
td_program *program_handle(PyObject *program, struct device **device);

/* ---- saved_program.c: programs in files and under names ---- */

int saved_program_init(PyObject *module);

/* ---- label.c: labels of operations ---- */

int label_init(PyObject *module);
extern unsigned
    label_hooks; /* how many labels are pending, plus 1 if operations are labelled with their line of Python */
void label_set(void);
/* Call it before each call that makes a tensor for the program. */
static inline void label_next(void) {
    if (__builtin_expect(label_hooks != 0, 0))
        label_set();
}

/* ---- function.c ---- */

enum parameter_kind {
    PARAMETER_ARRAY,   /* one of its own dtype */
    PARAMETER_OPERAND, /* an array that promotes with the others, or a number */
    PARAMETER_ARRAYS,
    PARAMETER_UPDATES, /* a sequence of arrays, each once, which take the results' values */
    PARAMETER_INT,
    PARAMETER_BOOL,
    PARAMETER_DTYPE,
    PARAMETER_SEED,
    PARAMETER_FLOAT,
    PARAMETER_INTS, /* a sequence of integers, or one; None, if it is optional: none */
    PARAMETER_FLOATS,
    PARAMETER_STRING,
    PARAMETER_ENUM,
    PARAMETER_DEVICE,
    PARAMETER_OBJECT, /* as it is; NULL: left out */
};

enum { PARAMETERS_MAX = 20, OUTPUTS_MAX = 16, LISTS_MAX = 4 };

struct parameter {
    const char *name;
    enum parameter_kind kind;
    bool optional;
    bool needs_former; /* given only if the parameter before it is given, too */
    int64_t i;         /* the default of integers, booleans and enumerations */
    double f;
    const char *const *words; /* of an enumeration, by number; ends with NULL */
};

union argument {
    td_tensor *tensor;
    struct {
        int count;
        bool given; /* false: None, or left out */
        union {
            td_tensor **tensors;
            int64_t *ints;
            double *floats;
        };
    };
    int64_t i;
    double f;
    const char *string;
    td_device *device;
    PyObject *object;
};

struct function {
    const char *name;
    const struct parameter *parameters;
    unsigned n_parameters, n_outputs; /* no outputs: a list (compositions.h), or None */
    /* Calls the function of libtensord: 0, or a code. It may also raise. */
    int (*call)(const union argument *in, td_tensor **out);
    bool updates; /* it has PARAMETER_UPDATES: all lists of arrays have one length, and the result is None */
};

PyObject *function_call(const struct function *function, PyObject *const *arguments, Py_ssize_t count, PyObject *names);
/* For elementwise functions of one and of two operands. */
PyObject *function_unary(const char *name, td_tensor *call(td_tensor *), PyObject *const *arguments, Py_ssize_t count,
                         PyObject *names);
PyObject *function_binary(const char *name, td_tensor *call(td_tensor *, td_tensor *), PyObject *const *arguments,
                          Py_ssize_t count, PyObject *names);
/* Generated: the table of the module's functions, and each with its documentation. */
extern PyMethodDef function_methods[];

/* An operation on two operands, at least one of them an array; NotImplemented if one is neither an array nor a number. */
PyObject *operator_binary(PyObject *a, PyObject *b, td_tensor *call(td_tensor *, td_tensor *));
/* An operation on an array. */
PyObject *operator_unary(PyObject *x, td_tensor *call(td_tensor *));
/* One whose result is a constant. */
PyObject *operator_constant(PyObject *x, td_tensor *call(td_tensor *));

/* ---- wait.c ---- */

/* Who owns the memory that a fetch writes to or that an upload reads: what is not NULL in it. */
struct target {
    Py_buffer view;   /* of an object with a buffer; obj NULL: none */
    void *memory;     /* from malloc() */
    PyObject *object; /* one that keeps memory alive */
};

void target_finish(struct target *target);
/* Copies the value to `data`, which belongs to the target. Ctrl-C ends the wait; then the target is empty, because the library may
 * still write there. Blocks. */
int wait_fetch(struct array *array, void *data, size_t bytes, struct target *target);
/* Uploads memory that belongs to the target, without a copy of it. Ctrl-C ends the wait as above. NULL: the exception is set, or, if
 * there is none, the library's last error. Blocks until the memory is not needed any more. */
td_tensor *wait_upload(struct device *device, td_dtype dtype, int rank, const int64_t *shape, const void *data,
                       struct target *target);
/* Until the value has been computed. Blocks. */
int wait_array(struct array *array);
/* Until all that was enqueued on the device has run. Blocks. */
int wait_device(struct device *device);

/* ---- fetch.c, upload.c, sequence.c, dlpack.c ---- */

extern PyMethodDef fetch_methods[], dlpack_methods[]; /* of Array */
extern PyMethodDef upload_functions[];
extern PyType_Slot fetch_slots[];

/* A new array of the buffer's elements, in row-major order; takes over the view. Blocks if there are many. */
PyObject *upload_view(struct device *device, td_dtype dtype, Py_buffer *view);
/* A new array from memory in row-major order, which belongs to the target: Ctrl-C may leave it empty, as in wait_fetch(). Blocks if
 * there is much. */
PyObject *upload_memory(struct device *device, td_dtype dtype, int rank, const int64_t *shape, const void *data,
                        struct target *target);
/* An array of this dtype, on its device; takes over the reference, which may be NULL. */
PyObject *upload_cast(PyObject *array, td_dtype dtype);
/* A copy on another device. Blocks if the devices have different connections. */
PyObject *copy_to(struct array *x, struct device *device);
/* A new array of a nested list of numbers; dtype 0: the least one that has all of them. */
PyObject *sequence_upload(struct device *device, td_dtype dtype, PyObject *sequence);
/* A new array of an object that has __dlpack__(). Blocks if it is large. */
PyObject *dlpack_upload(struct device *device, PyObject *object);

/* A sequence of integers as a shape. */
int shape_take(PyObject *object, int64_t shape[TD_RANK_MAX], int *rank);

int function_init(PyObject *module);

/* ---- name.c, kernel.c ---- */

extern PyMethodDef name_methods[];                                 /* of Array */
extern PyMethodDef name_device_methods[], kernel_device_methods[]; /* of Device */
int kernel_init(PyObject *module);

/* One table of several, which end with a row of zeros; `room` is for all rows and the last one. */
void methods_join(PyMethodDef *to, unsigned room, const PyMethodDef *const *tables, unsigned n);
