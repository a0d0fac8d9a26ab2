/* The engine of one device: memory pool, submitter, completions. It knows no socket.
 *
 * Threads. One owner thread (the worker's loop) makes every call in this header and in session.h; tensors, ids, memory
 * accounts and failures belong to it alone and need no lock. The engine has one more thread, the submitter, which only
 * ever sees launches: memory is stream-ordered, so freeing and binding are decided on the owner thread at once, before
 * the launches that they follow have run. */
#pragma once

#include "engine/device/device.h"
#include "engine/memory/tenant.h"
#include "engine/order/budget.h"
#include "engine/watch/histogram.h"
#include "engine/watch/history.h"
#include "engine/watch/trace.h"

struct engine;
struct kernel_store;
struct memory;
struct session;
struct sessions;

struct engine_options {
    /* Called from any thread when completions wait for engine_poll(); it must not call back into the engine. May be
     * NULL for an owner that uses engine_wait(). */
    void (*wake)(void *owner);
    /* Called by the owner thread before and after a call of the device that takes or gives back memory, which may take
     * long in a driver. May be NULL. */
    void (*blocks)(void *owner, bool begins);
    void *owner;
    /* Bytes of host memory for what is on its way to and from the device; 0: 1 GiB. What does not fit waits. */
    uint64_t staging_total;
};

/* Takes over `device` on success. */
int engine_create(struct device *device, const struct engine_options *options, struct engine **engine,
                  struct fault *fault);
/* All sessions must have been destroyed. Closes the device. */
void engine_destroy(struct engine *engine);

/* Starts what has been enqueued since the last kick: call it once after each batch of submissions, not per operation,
 * and engine_poll() after it. A little work on an idle device is done before it returns, which spares two thread
 * switches; more goes to the submitter. Does not call callbacks. */
void engine_kick(struct engine *engine);
/* Whether it is time for both again without any other sign: callbacks have enqueued something, or given memory back for
 * which somebody waits, or the last poll's budget has ended. */
bool engine_due(const struct engine *engine);
/* Calls the callbacks of what has completed, and gives back what ended sessions had; where the budget ends before, the
 * rest is left to a later call, and engine_due() says so. Callbacks may use sessions and fetches as they like, but not
 * poll or wait. */
void engine_poll(struct engine *engine);
/* Call it several times a second: gives host memory that sessions have freed back to the system, if it is much, and if nothing
 * has run or been enqueued for ENGINE_REST_TICKS calls. */
enum { ENGINE_REST_TICKS = 8 };
void engine_tick(struct engine *engine);
/* Blocks until there is something to poll, then polls. For owners without an event loop; only with wake == NULL. */
void engine_wait(struct engine *engine);

/* How long the owner's present turn may take; unlimited until the owner begins it. Its clock may be replaced. */
struct budget *engine_budget(struct engine *engine);

struct device *engine_device(struct engine *engine);
/* Its parts, as the rooms' own headers take them. */
struct sessions *engine_sessions(struct engine *engine);    /* engine/session/session.h */
struct memory *engine_memory(struct engine *engine);        /* engine/memory/tenant.h */
struct kernel_store *engine_kernels(struct engine *engine); /* engine/program/kernel.h */

/* What runs when (engine/watch/trace.h): of all sessions, or of one tenant's alone, which must be there until the trace is
 * stopped; and of these of the one with this number alone, unless it is 0. Errors as of trace_start(). */
struct tenant;
int engine_trace_start(struct engine *engine, const struct tenant *tenant, uint64_t session, struct fault *fault);
struct trace *engine_trace(struct engine *engine);

struct engine_stats {
    struct device_info device;
    /* bytes; live: in tensors, reserved: taken from the device, largest_free: largest tensor that fits now */
    uint64_t memory_total, memory_reserved, memory_live, memory_peak, memory_largest_free;
    uint64_t workspaces, workspaces_limit; /* bytes that kernels and libraries keep besides, and may */
    /* Bytes of host memory for copies to and from the device: all, pinned, on its way; and who waits for some. */
    uint64_t staging_total, staging_reserved, staging_held, staging_waiting;
    /* Calls that are no part of an operation's usual way, since start: segments of the device's memory taken and given
     * back, the same of pinned host memory, and growths of workspaces. */
    uint64_t reservations, releases, pinnings, unpinnings, workspace_growths;
    uint64_t stalled_ns;   /* as of the last engine_stalled(): for so long nothing has completed of what is due */
    uint64_t queue_depth;  /* operations enqueued and not yet run */
    uint64_t ops_total;    /* operations completed since start, failed ones included; never falls */
    uint64_t programs;     /* recorded ones that sessions have, */
    uint64_t program_runs; /* and their runs enqueued since start, a loop's as one */
    uint64_t busy_ns;      /* for so long since start the device has had something to do; never falls */
    uint64_t refusals[LEDGER_REFUSALS]; /* since start */
    unsigned sessions;
    uint64_t failures[STATUS_COUNT]; /* operations that failed by themselves, of all sessions there were */
    /* Of launches (an operation has one, as a rule): from being enqueued to being launched, and from there, or from the
     * end of what the device had to do before it, to completion. Of a sample (engine/watch/samples.h), in which each counts
     * for all that it stands for. */
    struct histogram queue_time, run_time;
};
void engine_stats(struct engine *engine, struct engine_stats *stats);

/* What the device was given last, newest first; returns how many. For the report of a crash: it may be called from a
 * signal handler on any thread, takes no lock, and may tell nonsense of what is being written meanwhile. */
enum { ENGINE_LAST_OPERATIONS = HISTORY_MAX };
unsigned engine_last_operations(const struct engine *engine, struct history_operation *operations, unsigned capacity);

/* The work of a device that has stopped completing work. */
struct engine_stall {
    uint64_t ns;
    char operation[320];     /* "matmul (forward/logits)"; "" not known */
    struct session *session; /* NULL: it has ended */
};
/* Whether the device has stalled; a `timeout_ns` of 0: never. A single operation may be long, so the estimated time of
 * the work counts as well. The device has stalled in two cases:
 * - it has had work for `timeout_ns` plus four times the work's estimated time, and has completed none of it;
 * - one of its streams has had work for `timeout_ns` plus four times the estimated time of the work on all streams, and
 *   has completed none of it, although other streams may have completed work.
 * If the caller has reported a stall already and the work has not moved since, the estimated time is over: then only
 * `timeout_ns` counts. Time counts from call to call, at most a second for each call, because a process that was
 * stopped or swapped out is not the device's fault: call it several times a second. */
bool engine_stalled(struct engine *engine, uint64_t timeout_ns, struct engine_stall *stall);
/* The stalled session has been ended: the device gets the same time again for the rest of its work. */
void engine_stall_again(struct engine *engine);
/* Treats the device as failed, with this cause. */
void engine_fail(struct engine *engine, const struct fault *fault);

/* Not STATUS_OK once the device has failed for good: all pending and later work fails with STATUS_DEVICE_LOST and this
 * cause, and the worker must end. */
int engine_fault(struct engine *engine, struct fault *fault);
