/* User kernels of an engine: compiling them, remembering what has been compiled, and keeping each until its last launch
 * has run.
 *
 * A compilation is a job, made and taken by the owner thread and run by any other. Equal sources and names are compiled
 * once: the code stays for a while, what was asked for last the longest. Each session has it on the device by itself, since
 * a source may have variables there. Owner thread, except where a comment says otherwise. */
#pragma once

#include "engine/device_kernels.h"
#include "engine/engine.h"

struct kernel_code;
struct session;

enum { KERNEL_CACHE_BYTES = 64 << 20, SESSION_KERNELS_MAX = 256 };

/* ---- compiling ---- */

/* Embedded in the object of its owner. */
struct kernel_job {
    struct engine *engine;
    char *source, *name;    /* copies */
    _Atomic bool cancelled; /* may be set by any thread */
    struct kernel_code *cached;
    struct device_kernel *unused; /* to be released */
    /* results */
    struct device_code *code;
    struct device_kernel *kernel;
    char *log; /* what the compiler said; NULL: nothing. Lives until kernel_job_finish() */
    int status;
    struct fault fault;
};

/* STATUS_UNSUPPORTED where the device takes no kernels, STATUS_NO_HOST_MEMORY. */
int kernel_job_init(struct kernel_job *job, struct engine *engine, const char *source, const char *name,
                    struct fault *fault);
/* Compiles: on any thread but the owner's, which it would hold up. */
void kernel_job_run(struct kernel_job *job);
/* After it has run: gives the kernel to the session under an id of session_kernel_id(). The fault is the job's own where that failed. */
int kernel_job_bind(struct kernel_job *job, struct session *session, uint64_t id, struct fault *fault);
/* After it has run, or instead. What it compiled stays in the cache. */
void kernel_job_finish(struct kernel_job *job);

/* ---- what nobody needs any more ---- */

/* Takes over the kernels that are through; NULL: there are none. */
struct device_kernel *kernel_unused_take(struct engine *engine);
/* Takes them off the device, which may have to be idle for it: on any thread but the owner's. */
void kernel_unused_release(struct engine *engine, struct device_kernel *unused);

/* ---- sessions ---- */

/* Uses up an id: above all used so far, and no kernel too many. For one job, which may be overtaken by later ones. */
int session_kernel_id(struct session *session, uint64_t id, struct fault *fault);
/* Launches that have been enqueued still run. STATUS_INVALID_ARGUMENT for an unknown id. */
int session_kernel_release(struct session *session, uint64_t id, struct fault *fault);

struct kernel_argument_value {
    enum kernel_argument kind;
    uint64_t value; /* the id of a tensor, or a number's bits */
};
struct kernel_request {
    uint64_t kernel;
    uint32_t stream;
    uint32_t grid[3], block[3], shared;
    unsigned n_arguments, n_types;
    const struct kernel_argument_value *arguments;
    const struct tensor_type *types; /* of the KERNEL_OUTPUTs, in order */
    uint64_t first_output;           /* their ids, and those of updates, follow each other from here on */
    uint64_t sequence;
    const char *label;         /* may be NULL; copied */
    const struct fault *wrong; /* not NULL: nothing is launched, and the outputs fail with this */
};
/* Enqueues a launch; as session_submit() for the outputs. */
int session_launch(struct session *session, const struct kernel_request *request);
