/* Arrays that require gradients, and backward().
 *
 * One tape of the process notes the operations that use such arrays, while they run, and no others: the extension enters it before the call and
 * leaves it behind. Each result is marked as a part of the graph. What no living array can lead back through is dropped from the tape whenever it has doubled,
 * and backward() drops what led to its array. So the tape is as long as the graphs that the program still has.
 *
 * All of it is under the GIL. Between entering and leaving the GIL may change hands where rules that are written in Python run; then other threads wait for
 * the tape. */
#include "client/python/core/core.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

unsigned graph_parts;

static td_tape *tape;
static struct graph_part *parts;   /* of all arrays that have one */
static _Thread_local unsigned off; /* no_grad() and td.grad(): the thread's operations are not noted */

/* The tape is shortened when this is reached. */
enum { OPERATIONS_LEAST = 512 };
static const size_t BYTES_LEAST = (size_t)64 << 20;
static size_t operations, bytes, operations_most = OPERATIONS_LEAST, bytes_most = (size_t)64 << 20;

static const char *const OF_BACKWARD =
    "an earlier backward() has let go what led to it; backward(retain_graph=True) keeps that";
static const char *const OF_CHANGE =
    "an array that it follows from has been changed since, by an assignment or an optimiser's step: compute it again";
static const char *const OF_COPY =
    "it follows from a copy on a device of another connection, through which no derivative goes";

/* ---- the one thread that uses the tape while functions in Python run ---- */

static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t tape_free = PTHREAD_COND_INITIALIZER;
static unsigned uses; /* nested ones of one thread */
static _Thread_local bool is_user;
static bool changed_meanwhile; /* by that thread itself */

static void user_begin(void) {
    uses++;
    is_user = true;
}

static void user_end(void) {
    pthread_mutex_lock(&users_lock);
    is_user = --uses > 0;
    if (!uses)
        pthread_cond_broadcast(&tape_free);
    pthread_mutex_unlock(&users_lock);
}

/* Gives up the GIL if another thread uses the tape. */
static void user_wait(void) {
    while (uses && !is_user) {
        Py_BEGIN_ALLOW_THREADS;
        pthread_mutex_lock(&users_lock);
        while (uses)
            pthread_cond_wait(&tape_free, &users_lock);
        pthread_mutex_unlock(&users_lock);
        Py_END_ALLOW_THREADS;
    }
}

/* ---- parts ---- */

static struct graph_part *part_of(struct array *array) {
    struct graph_part *part = array->graph;
    if (part)
        return part;
    part = calloc(1, sizeof *part);
    if (!part) {
        PyErr_NoMemory();
        return NULL;
    }
    part->array = array;
    part->next = parts;
    if (parts)
        parts->previous = part;
    parts = part;
    graph_parts++;
    return array->graph = part;
}

void graph_finish(struct array *array) {
    struct graph_part *part = array->graph;
    array->graph = NULL;
    if (part->previous)
        part->previous->next = part->next;
    else
        parts = part->next;
    if (part->next)
        part->next->previous = part->previous;
    graph_parts--;
    Py_XDECREF(part->grad);
    free(part);
}

static bool is_node(const struct array *array) {
    return array->graph && (array->graph->node || array->graph->lost);
}

/* The device has a handle, so the array has one. */
static bool is_open(const struct graph_part *part) {
    return part->array->device->handle != NULL;
}

/* ---- the tape ---- */

/* Nodes that the tape does not know any more have lost what led to them. */
static void parts_lose(const char *why) {
    for (struct graph_part *part = parts; part; part = part->next) {
        if (part->node && is_open(part) && !td_tape_has(tape, part->array->tensor)) {
            part->node = false;
            part->lost = why;
        }
    }
}

static void measure(void) {
    operations = td_tape_size(tape, &bytes);
    operations_most = operations < OPERATIONS_LEAST ? OPERATIONS_LEAST : 2 * operations;
    bytes_most = bytes < BYTES_LEAST ? BYTES_LEAST : 2 * bytes;
}

/* Drops all but what leads to a living array. Without memory for that the tape grows on. */
static void shorten(void) {
    td_tensor **nodes = malloc((graph_parts + 1) * sizeof(td_tensor *));
    int n = 0;
    for (struct graph_part *part = parts; nodes && part; part = part->next)
        if (part->node && is_open(part))
            nodes[n++] = part->array->tensor;
    if (nodes)
        (void)td_tape_keep(tape, n, nodes);
    free(nodes);
    measure();
}

void graph_device_closes(void) {
    if (tape && !uses)
        shorten();
}

/* The tape stays as it is, because its locks may have been held. */
void graph_forked(void) {
    tape = NULL;
    operations = bytes = uses = 0;
    is_user = changed_meanwhile = false;
    (void)pthread_mutex_init(&users_lock, NULL);
    (void)pthread_cond_init(&tape_free, NULL);
    for (struct graph_part *part = parts; part; part = part->next) {
        if (part->node)
            part->lost = "this process was forked since: compute it again";
        part->node = false;
    }
}

bool graph_notes(void) {
    return !off;
}

void graph_pause(void) {
    off++;
}

void graph_resume(void) {
    off--;
}

unsigned graph_pauses(unsigned pauses) {
    unsigned before = off;
    off = pauses;
    return before;
}

size_t graph_length(void) {
    size_t all;
    return tape ? td_tape_size(tape, &all) : 0;
}

static int tape_make(void) {
    if (!tape && !(tape = td_tape_create()))
        return (void)error_raise(), -1;
    return 0;
}

int graph_enter(void) {
    if (tape_make())
        return -1;
    user_wait();
    if (operations >= operations_most || bytes >= bytes_most)
        shorten();
    td_tape_enter(tape);
    return 0;
}

static void drop_changed(void) {
    if (!changed_meanwhile || uses)
        return;
    changed_meanwhile = false;
    if (!td_tape_keep(tape, 0, NULL))
        parts_lose(OF_CHANGE);
}

void graph_leave(void) {
    td_tape_leave(tape);
    operations++;
}

int graph_enter_user(bool noted) {
    if (noted && graph_enter())
        return -1;
    if (noted)
        user_begin();
    off++;
    return 0;
}

void graph_leave_user(bool noted) {
    off--;
    if (!noted)
        return;
    user_end();
    graph_leave();
    drop_changed();
}

PyObject *graph_mark(PyObject *result, const char *lost) {
    if (!result)
        return NULL;
    if (!array_check(result)) {
        for (Py_ssize_t i = 0, n = PySequence_Size(result); i < n; i++) {
            PyObject *entry = PySequence_GetItem(result, i);
            PyObject *marked = entry ? graph_mark(entry, lost) : NULL;
            Py_XDECREF(marked);
            if (!marked) {
                Py_DECREF(result);
                return NULL;
            }
        }
        return result;
    }
    struct array *array = (struct array *)result;
    char class = dtype_of(td_tensor_dtype(array->tensor))->class;
    if (class != 'f' && class != 'c')
        return result;
    struct graph_part *part = part_of(array);
    if (!part) {
        Py_DECREF(result);
        return NULL;
    }
    part->node = !lost;
    part->lost = lost;
    bytes += td_tensor_bytes(array->tensor);
    return result;
}

PyObject *graph_copied(const struct array *x, PyObject *copy) {
    if (off || !graph_wanted(x) || copy == (PyObject *)x)
        return copy;
    return graph_mark(copy, x->graph->lost ? x->graph->lost : OF_COPY);
}

/* ---- values that arrays take ---- */

bool graph_may_take(const struct array *x, const struct array *result) {
    if (off || x->recorded || !x->graph || !x->graph->leaf || !result->graph || !is_node(result))
        return true;
    PyErr_SetString(
        PyExc_RuntimeError,
        "an array that requires a gradient cannot be changed in place by what depends on such arrays: do it "
        "within td.no_grad(), or make a new array");
    return false;
}

void graph_changed(struct array *x) {
    user_wait();
    if (uses) { /* a function that runs for the tape changes it: what is on the tape cannot be dropped now */
        changed_meanwhile = changed_meanwhile || x->graph->leaf;
        return;
    }
    if (!tape || !x->graph->leaf || !x->device->handle || !td_tape_has(tape, x->tensor))
        return;
    if (!td_tape_drop_after(tape, x->tensor))
        parts_lose(OF_CHANGE);
}

/* What is known of the values goes with them; a gradient and the wish for it stay with the array. */
static void part_move(struct graph_part *x, const struct graph_part *y) {
    if (x && !x->leaf) {
        x->node = y && y->node;
        x->lost = y ? y->lost : NULL;
    }
}

int graph_exchange(struct array *x, struct array *y) {
    if ((is_node(x) && !part_of(y)) || (is_node(y) && !part_of(x)))
        return -1;
    struct graph_part was = x->graph ? *x->graph : (struct graph_part){.next = NULL};
    part_move(x->graph, y->graph);
    part_move(y->graph, &was);
    return 0;
}

/* ---- of arrays ---- */

static PyObject *get_requires_grad(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(graph_wanted((struct array *)self));
}

static int set_requires_grad(PyObject *self, PyObject *value, void *unused) {
    (void)unused;
    struct array *array = (struct array *)self;
    int wanted = value ? PyObject_IsTrue(value) : 0;
    const td_tensor *tensor = wanted < 0 ? NULL : array_tensor(array);
    if (!tensor)
        return -1;
    if (is_node(array)) {
        if (wanted)
            return 0;
        PyErr_SetString(PyExc_RuntimeError,
                        "the array follows from others that require gradients: detach() makes a constant of it");
        return -1;
    }
    char class = dtype_of(td_tensor_dtype(tensor))->class;
    if (wanted && class != 'f' && class != 'c') {
        (void)error_set(TD_E_DTYPE,
                        "an array of %s cannot require a gradient: derivatives are by floats and complex numbers",
                        dtype_of(td_tensor_dtype(tensor))->name);
        return -1;
    }
    struct graph_part *part = wanted ? part_of(array) : array->graph;
    if (part)
        part->leaf = wanted;
    return part || !wanted ? 0 : -1;
}

static PyObject *get_grad(PyObject *self, void *unused) {
    (void)unused;
    struct graph_part *part = ((struct array *)self)->graph;
    if (part)
        part->unread = false;
    PyObject *grad = part && part->grad ? part->grad : Py_None;
    Py_INCREF(grad);
    return grad;
}

static int set_grad(PyObject *self, PyObject *value, void *unused) {
    (void)unused;
    struct array *array = (struct array *)self;
    if (value == Py_None)
        value = NULL;
    if (value) {
        const struct array *grad = (struct array *)value;
        if (!array_check(value) || value == self) {
            PyErr_SetString(PyExc_TypeError, "a gradient is another array, or None");
            return -1;
        }
        const td_tensor *x = array_tensor(array), *g = array_tensor(grad);
        if (!x || !g)
            return -1;
        int rank = td_tensor_rank(x);
        if (grad->device != array->device || td_tensor_dtype(x) != td_tensor_dtype(g) || rank != td_tensor_rank(g) ||
            memcmp(td_tensor_shape(x), td_tensor_shape(g), (size_t)rank * sizeof(int64_t)) != 0) {
            (void)error_set(TD_E_INVALID_ARGUMENT, "a gradient has its array's device, dtype and shape");
            return -1;
        }
    }
    struct graph_part *part = value ? part_of(array) : array->graph;
    if (!part)
        return value ? -1 : 0;
    PyObject *old = part->grad;
    Py_XINCREF(value);
    part->grad = value;
    part->unread = false;
    Py_XDECREF(old);
    return 0;
}

static PyObject *get_is_leaf(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(!is_node((struct array *)self));
}

PyGetSetDef graph_getters[] = {
    {"requires_grad", get_requires_grad, set_requires_grad,
     "Whether backward() reaches this array: it was set so, or the array follows from such ones.", NULL},
    {"grad", get_grad, set_grad, "What backward() has added up: an array, or None.", NULL},
    {"is_leaf", get_is_leaf, NULL, "Whether no operation that is noted has made this array.", NULL},
    {0},
};

/* ---- backward() ---- */

/* The leaves that y follows from, and their gradients. */
struct leaves {
    int n;
    struct array **arrays; /* owned references */
    td_tensor **tensors, **gradients;
};

static void leaves_finish(struct leaves *leaves) {
    for (int i = 0; i < leaves->n; i++)
        Py_DECREF((PyObject *)leaves->arrays[i]);
    free(leaves->arrays);
    free(leaves->tensors);
    free(leaves->gradients);
}

/* In a function that is recorded the gradients of others would be added up once, and not in each run. */
static int leaves_refuse(const struct leaves *leaves, bool recorded) {
    for (int i = 0; recorded && i < leaves->n; i++)
        if (!leaves->arrays[i]->recorded) {
            (void)error_set(TD_E_INVALID_ARGUMENT,
                            "backward() in a recorded function comes to an array that is not among its state, such as "
                            "a model's parameter: td.function(state=[model, optimiser])");
            return -1;
        }
    return 0;
}

/* All leaves that the tape knows, and then those of them that y follows from. */
static int leaves_find(struct leaves *leaves, td_tensor *y, bool recorded) {
    size_t room = graph_parts + 1;
    *leaves = (struct leaves){.arrays = malloc(room * sizeof(struct array *)),
                              .tensors = malloc(room * sizeof(td_tensor *)),
                              .gradients = malloc(room * sizeof(td_tensor *))};
    int *depends = malloc(room * sizeof *depends), found = 0, code = -1;
    if (!leaves->arrays || !leaves->tensors || !leaves->gradients || !depends) {
        PyErr_NoMemory();
        free(depends);
        return -1;
    }
    for (struct graph_part *part = parts; part; part = part->next) {
        if (!part->leaf || !is_open(part) || !td_tape_has(tape, part->array->tensor))
            continue;
        leaves->arrays[found] = part->array;
        leaves->tensors[found++] = part->array->tensor;
    }
    if (td_tape_depends(tape, y, found, leaves->tensors, depends))
        (void)error_raise();
    else
        code = 0;
    for (int i = 0; i < found && !code; i++) {
        if (!depends[i])
            continue;
        Py_INCREF((PyObject *)leaves->arrays[i]);
        leaves->arrays[leaves->n] = leaves->arrays[i];
        leaves->tensors[leaves->n++] = leaves->tensors[i];
    }
    free(depends);
    return code ? code : leaves_refuse(leaves, recorded);
}

/* Adds a gradient to what the array has, which takes the sum as its value; takes the tensor over. 1: the send queue is full, and the tensor is still
 * the caller's. */
static int accumulate(struct array *array, td_tensor *gradient) {
    struct array *grad = array->graph ? (struct array *)array->graph->grad : NULL;
    struct device *device = array->device;
    td_tensor *old = grad ? array_tensor(grad) : NULL;
    if (grad && !old)
        return td_release(gradient), -1;
    td_tensor *sum = grad ? td_add(old, gradient) : gradient;
    if (!sum && td_last_error()->code == TD_E_AGAIN)
        return 1;
    if (grad)
        td_release(gradient);
    PyObject *result = array_wrap(device, sum);
    int code = result ? 0 : -1;
    if (grad)
        result = array_replace((PyObject *)grad, result);
    else if (result)
        code = set_grad((PyObject *)array, result, NULL);
    if (!result)
        code = -1;
    else if (array->graph)
        array->graph->unread = true;
    Py_XDECREF(result);
    return code;
}

static int accumulate_all(struct leaves *leaves) {
    int code = 0;
    for (int i = 0; i < leaves->n; i++) {
        while (!code && leaves->arrays[i]->device->handle && accumulate(leaves->arrays[i], leaves->gradients[i]) > 0)
            code = device_wait_room(leaves->arrays[i]->device);
        code = PyErr_Occurred() ? -1 : code;
    }
    return code;
}

/* The sum of y's elements, weighed, on the tape; the caller has entered it. */
static td_tensor *seeded(td_tensor *y, td_tensor *weights) {
    td_tensor *weighed = weights ? td_multiply(y, weights) : NULL;
    td_tensor *sum = weights ? weighed ? td_sum(weighed, TD_ALL_AXES, 0) : NULL
                             : td_reshape(y, td_tensor_rank(y), td_tensor_shape(y));
    td_release(weighed);
    return sum;
}

/* 0, a code of the library, or -1 with an exception. */
static int walk(struct array *y, td_tensor *weights, struct leaves *leaves) {
    user_wait();
    user_begin();
    td_tape_enter(tape);
    off++; /* what rules do that are written in Python is not noted */
    label_next();
    td_tensor *sum = seeded(y->tensor, weights);
    int code = sum ? 0 : td_last_error()->code;
    *leaves = (struct leaves){.n = 0};
    if (!code)
        code = leaves_find(leaves, sum, y->recorded);
    if (!code)
        code = td_gradients(sum, leaves->n, leaves->tensors, leaves->gradients);
    off--;
    td_tape_leave(tape);
    user_end();
    td_release(sum);
    drop_changed();
    return PyErr_Occurred() ? -1 : code;
}

static PyObject *backward(struct array *y, struct array *weights, int retain) {
    struct leaves leaves;
    int code;
    for (;;) {
        td_tensor *given = weights ? array_tensor(weights) : NULL;
        if (!array_tensor(y) || (weights && !given))
            return NULL;
        code = walk(y, given, &leaves);
        if (code != TD_E_AGAIN)
            break;
        leaves_finish(&leaves);
        if (device_wait_room(y->device))
            return NULL;
    }
    if (code > 0)
        (void)device_raise(y->device);
    if (!code)
        code = accumulate_all(&leaves);
    leaves_finish(&leaves);
    if (!retain && !code && y->device->handle) {
        if (td_tape_drop_before(tape, y->tensor))
            return error_raise();
        parts_lose(OF_BACKWARD);
        measure();
    }
    if (code)
        return NULL;
    Py_RETURN_NONE;
}

static int backward_check(const struct array *y, PyObject *weights) {
    td_tensor *tensor = array_tensor(y);
    if (!tensor)
        return -1;
    if (program_records(y->device) && !y->recorded)
        (void)error_set(TD_E_INVALID_ARGUMENT,
                        "backward() of an array that was made outside of the function that is recorded");
    else if (off)
        PyErr_SetString(
            PyExc_RuntimeError,
            "backward(): nothing is noted within td.no_grad() and in functions that td.grad() differentiates");
    else if (y->graph && y->graph->lost)
        PyErr_Format(PyExc_RuntimeError, "backward() of an array has no way back: %s", y->graph->lost);
    else if (!graph_wanted(y))
        PyErr_SetString(
            PyExc_RuntimeError,
            "backward() of an array that follows from none that requires a gradient: x.requires_grad_() says "
            "that one does, and operations within td.no_grad() are not noted");
    else if (!weights && td_tensor_bytes(tensor) != td_dtype_size(td_tensor_dtype(tensor)))
        (void)error_set(
            TD_E_SHAPE,
            "backward() of an array with more than one element: sum it up, or give a gradient of its shape");
    else if (weights && (!array_check(weights) || !array_tensor((struct array *)weights)))
        PyErr_Occurred() ? (void)0 : PyErr_SetString(PyExc_TypeError, "backward(): the gradient is an array");
    else
        return tape_make();
    return -1;
}

static PyObject *method_backward(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    static const char *const words[] = {"gradient", "retain_graph"};
    PyObject *given[2] = {Py_None, Py_False};
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    if (count > 2)
        return PyErr_Format(PyExc_TypeError, "backward() takes at most 2 arguments, not %zd", count);
    for (Py_ssize_t i = 0; i < count; i++)
        given[i] = arguments[i];
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int which = !PyUnicode_CompareWithASCIIString(name, words[0])   ? 0
                    : !PyUnicode_CompareWithASCIIString(name, words[1]) ? 1
                                                                        : -1;
        if (which < 0)
            return PyErr_Format(PyExc_TypeError, "backward() has no argument %U", name);
        given[which] = arguments[count + i];
    }
    int retain = PyObject_IsTrue(given[1]);
    PyObject *weights = given[0] == Py_None ? NULL : given[0];
    struct array *y = (struct array *)self;
    if (retain < 0 || backward_check(y, weights))
        return NULL;
    return backward(y, (struct array *)weights, retain);
}

static PyObject *method_requires_grad(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    PyObject *wanted = count ? arguments[0] : Py_True;
    if (count > 1 || names)
        return PyErr_Format(PyExc_TypeError, "requires_grad_() takes one positional argument at most");
    if (set_requires_grad(self, wanted, NULL))
        return NULL;
    Py_INCREF(self);
    return self;
}

PyMethodDef graph_methods[] = {
    {"backward", FASTCALL(method_backward),
     "backward($self, gradient=None, retain_graph=False)\n--\n\n"
     "Adds to `grad` of each array that requires a gradient, and that this one follows from, the derivative of this "
     "array by it; of\n"
     "sum(self * gradient) if there is a gradient. What led to this array is let go afterwards, unless it is to be "
     "retained. Does not block."},
    {"requires_grad_", FASTCALL(method_requires_grad),
     "requires_grad_($self, requires_grad=True)\n--\n\nSays whether backward() is to reach this array; returns it."},
    {0},
};
