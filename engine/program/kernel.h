/* User kernels of an engine: compiling them, remembering what has been compiled, and keeping each until its last launch
 * has run.
 *
 * A compilation is a job: the owner thread makes it, any other compiles, the owner charges the session with what the code
 * takes of the device, any other loads it, and the owner gives it to the session. Equal sources and names are compiled
 * once: the code stays for a while, what was asked for last the longest. Each session has it on the device by itself, since
 * a source may have variables there, and pays for it until it has released it and its launches have run. Owner thread,
 * except where a comment says otherwise. */
#pragma once

#include "engine/device/device.h"
#include "engine/device/device_kernels.h"

struct kernel_code;
struct kernel_store; /* of an engine: engine_kernels() */
struct session;

enum { KERNEL_CACHE_BYTES = 64 << 20, SESSION_KERNELS_MAX = 256 };

/* ---- compiling ---- */

/* Compiles without an engine: what kernel_job_compile() does unless its owner has another way, such as a process that
 * does this. Opens no device. Any thread. Parameters and errors as of device_kernels.compile(), and those of a kind that
 * is not here or takes no kernels. */
int kernel_compile(const char *kind, const struct kernel_source *source, const _Atomic bool *cancelled,
                   struct device_code **code, char **log, struct fault *fault);

/* What compiles for such devices (device_kernels.compiler); "": it is not known. Any thread. */
void kernel_compiler(const char *kind, char words[KERNEL_COMPILER_MAX]);

/* Embedded in the object of its owner. */
struct kernel_job {
    struct kernel_store *store;
    char *source, *name;    /* copies */
    _Atomic bool cancelled; /* may be set by any thread */
    /* Compiles in the place of the device's own compiler: set by the owner after kernel_job_init(), where sources are not
     * its own, for a source can crash a compiler. Called by kernel_job_compile(); as device_kernels.compile(), and what
     * it returns is trusted no further. NULL: the device's own, in this process. */
    int (*compile)(struct kernel_job *job, const struct kernel_source *source, struct device_code **code, char **log,
                   struct fault *fault);
    struct kernel_code *cached;
    struct device_kernel *unused; /* to be released */
    struct session *payer;        /* charged with device_bytes; NULL: nobody is yet, or the kernel is bound */
    /* results */
    struct device_code *code;
    uint64_t device_bytes; /* what the code takes of the device, estimated */
    struct device_kernel *kernel;
    char *log; /* what the compiler said; NULL: nothing. Lives until kernel_job_finish() */
    int status;
    struct fault fault;
};

/* STATUS_UNSUPPORTED where the device takes no kernels, STATUS_NO_HOST_MEMORY. */
int kernel_job_init(struct kernel_job *job, struct kernel_store *store, const char *source, const char *name,
                    struct fault *fault);
/* Whether somebody has compiled the same by now, so that this job need not. */
bool kernel_job_compiled(struct kernel_job *job);
/* On any thread but the owner's, which it would hold up; not where kernel_job_compiled(). Leaves its status in the job. */
void kernel_job_compile(struct kernel_job *job);
/* The architecture for which it compiles. */
uint32_t kernel_job_target(const struct kernel_job *job);
/* When it is compiled: charges the session with what loading it takes, within its limits. Leaves its status in the job,
 * too. */
int kernel_job_charge(struct kernel_job *job, struct session *session);
/* The session that was charged gets it back: for one that ends, or waits no more, before the job is bound. */
void kernel_job_discharge(struct kernel_job *job);
/* When it is charged: puts the code on the device. On any thread but the owner's; leaves its status in the job. */
void kernel_job_load(struct kernel_job *job);
/* After it has been loaded, or has failed before: gives the kernel to the session under an id of session_kernel_id(). The
 * fault is the job's own where that failed. */
int kernel_job_bind(struct kernel_job *job, struct session *session, uint64_t id, struct fault *fault);
/* After that, when the name is not needed any more: what it compiled goes to the cache, and the job keeps only the log. */
void kernel_job_settle(struct kernel_job *job);
/* In the end, or instead. What it compiled stays in the cache. */
void kernel_job_finish(struct kernel_job *job);

/* ---- what nobody needs any more ---- */

/* Takes over the kernels that are through; NULL: there are none. */
struct device_kernel *kernel_unused_take(struct kernel_store *store);
/* Takes them off the device, which may have to be idle for it: on any thread but the owner's. */
void kernel_unused_release(struct kernel_store *store, struct device_kernel *unused);

/* ---- sessions ---- */

/* Uses up an id: above all used so far, and no kernel too many. For one job, which may be overtaken by later ones. */
int session_kernel_id(struct session *session, uint64_t id, struct fault *fault);
/* Launches that have been enqueued still run. STATUS_INVALID_ARGUMENT for an unknown id. */
int session_kernel_release(struct session *session, uint64_t id, struct fault *fault);

/* Why a principal may not have kernels of its own. */
int kernel_refuse(const char *principal, struct fault *fault);
