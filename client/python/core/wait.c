/* Waiting: without the GIL, and until Ctrl-C at the longest. */
#include "client/python/core/core.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* How an upload's wait and its end on the library's thread find each other: who comes second ends the wait. */
enum upload_state { UPLOAD_WAITED, UPLOAD_DONE, UPLOAD_LEFT };

/* One wait. After an interrupt it lives until the library has done with the request, and so does the memory of a transfer. */
struct wait {
    struct wait *next;
    PyThreadState *thread; /* that waits */
    struct target target;
    _Atomic enum upload_state upload;
    sem_t uploaded;
};

/* Waits that were interrupted and are over now. The library's thread cannot free them, because that takes the GIL. */
static struct wait *_Atomic over;

static void wait_over(void *user, int status) {
    struct wait *wait = user;
    (void)status;
    wait->next = atomic_load(&over);
    while (!atomic_compare_exchange_weak(&over, &wait->next, wait))
        ;
}

/* Whether the thread has a signal whose handler raises, as that of Ctrl-C does. */
static bool wait_asked(void *user) {
    struct wait *wait = user;
    PyEval_RestoreThread(wait->thread);
    bool raised = PyErr_CheckSignals() != 0;
    wait->thread = PyEval_SaveThread();
    return raised;
}

void target_finish(struct target *target) {
    if (target->view.obj)
        PyBuffer_Release(&target->view);
    free(target->memory);
    Py_XDECREF(target->object);
    *target = (struct target){.memory = NULL};
}

static struct wait *wait_create(void) {
    struct wait *wait = atomic_exchange(&over, NULL);
    while (wait) {
        struct wait *next = wait->next;
        target_finish(&wait->target);
        PyMem_Free(wait);
        wait = next;
    }
    wait = PyMem_Calloc(1, sizeof *wait);
    if (!wait)
        PyErr_NoMemory();
    return wait;
}

enum asked { ASKED_FETCH, ASKED_WAIT, ASKED_SYNC };

/* The array is NULL for a sync. After an interrupt the target is empty: the wait has taken it over. */
static int wait_run(enum asked asked, struct device *device, struct array *array, void *data, size_t bytes,
                    struct target *target) {
    struct wait *wait = wait_create();
    td_device *handle = device_open(device);
    td_tensor *tensor = array && handle ? array_tensor(array) : NULL;
    if (!wait || !handle || (array && !tensor)) {
        PyMem_Free(wait);
        return -1;
    }
    const td_interrupt interrupt = {wait_asked, wait_over, wait};
    int code;
    device->connection->waits++;
    if (array)
        array->pins++;
    wait->thread = PyEval_SaveThread();
    if (asked == ASKED_FETCH)
        code = td_fetch_interruptible(tensor, data, bytes, &interrupt);
    else
        code = array ? td_wait_interruptible(tensor, &interrupt) : td_sync_interruptible(handle, &interrupt);
    PyEval_RestoreThread(wait->thread);
    device->connection->waits--;
    if (array)
        array->pins--;
    if (code == TD_E_CANCELLED && PyErr_Occurred()) {
        if (target) {
            wait->target = *target;
            *target = (struct target){.memory = NULL};
        }
        return -1;
    }
    PyMem_Free(wait);
    return code ? (void)device_raise(device), -1 : PyErr_Occurred() ? -1 : 0;
}

int wait_fetch(struct array *array, void *data, size_t bytes, struct target *target) {
    return wait_run(ASKED_FETCH, array->device, array, data, bytes, target);
}

int wait_array(struct array *array) {
    return wait_run(ASKED_WAIT, array->device, array, NULL, 0, NULL);
}

int wait_device(struct device *device) {
    return wait_run(ASKED_SYNC, device, NULL, NULL, 0, NULL);
}

/* ---- uploads ---- */

enum { SLICE_NS = 100000000, NS_PER_S = 1000000000 };

/* On the library's thread. */
static void upload_over(void *user) {
    struct wait *wait = user;
    if (atomic_exchange(&wait->upload, UPLOAD_DONE) == UPLOAD_LEFT)
        wait_over(wait, 0);
    else
        sem_post(&wait->uploaded);
}

/* Without the GIL, except where it asks. False: a signal's handler has raised. */
static bool upload_wait(struct wait *wait) {
    struct timespec until;
    do {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += SLICE_NS;
        until.tv_sec += until.tv_nsec / NS_PER_S;
        until.tv_nsec %= NS_PER_S;
        if (!sem_clockwait(&wait->uploaded, CLOCK_MONOTONIC, &until))
            return true;
    } while (!wait_asked(wait));
    return false;
}

td_tensor *wait_upload(struct device *device, td_dtype dtype, int rank, const int64_t *shape, const void *data,
                       struct target *target) {
    struct wait *wait = wait_create();
    td_device *handle = device_open(device);
    if (!wait || !handle) {
        PyMem_Free(wait);
        return NULL;
    }
    wait->upload = UPLOAD_WAITED;
    sem_init(&wait->uploaded, 0, 0);
    device->connection->waits++;
    wait->thread = PyEval_SaveThread();
    td_tensor *tensor = td_upload_borrow(handle, dtype, rank, shape, data, upload_over, wait);
    bool waited = !tensor || upload_wait(wait);
    PyEval_RestoreThread(wait->thread);
    device->connection->waits--;
    if (!waited) {
        wait->target = *target;
        *target = (struct target){.memory = NULL};
        td_release(tensor);
        tensor = NULL;
        if (atomic_exchange(&wait->upload, UPLOAD_LEFT) != UPLOAD_DONE)
            return NULL; /* upload_over() has the wait now */
        while (sem_wait(&wait->uploaded)) /* it is about to post it, if it has not done so yet */
            continue;
        target_finish(&wait->target);
    }
    sem_destroy(&wait->uploaded);
    PyMem_Free(wait);
    return tensor;
}

/* ---- room in the send queue ---- */

enum { ROOM_SLICE_MS = 100 };

int device_wait_room(struct device *device) {
    int code = 0;
    do {
        td_device *handle = device_open(device);
        if (!handle || PyErr_CheckSignals())
            return -1;
        device->connection->waits++;
        Py_BEGIN_ALLOW_THREADS;
        code = td_wait_room(handle, ROOM_SLICE_MS);
        Py_END_ALLOW_THREADS;
        device->connection->waits--;
    } while (code == TD_E_TIMED_OUT);
    return code ? (void)device_raise(device), -1 : 0;
}
