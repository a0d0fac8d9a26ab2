/* Libraries that compute some operations faster than the module's own kernels: cuDNN, cuFFT, cuSOLVER. They cost time and memory to
 * load, so that each is loaded when a launch wants it first, and what cannot be loaded is no error: own kernels compute
 * everything.
 *
 * Loading a library, and making a plan of a new shape (of cuDNN 9.19: about 4 ms, measured without a device), would hold up all sessions if the
 * submitter did it; so would a plan that makes room for another, since freeing what it has on the device may wait for the device. Such
 * launches are put on the device by another thread (op_kernel.waits, aside.h). Until the call has returned, all launches that this library
 * computes go that way, one at a time (cuda_library_begin): the submitter never waits for the library.
 *
 * Whatever a library says of a launch that is not success is a refusal: own kernels take over for this launch, the
 * refusal is counted, and the reason is kept for the operator, unless the device itself has failed. TENSORD_CUDA_LIBRARIES says
 * which of them may be used. */
#pragma once

#include "engine/cuda/cuda.h"

struct device_info;

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_symbol {
    const char *name;
    void *place; /* of a pointer to a function */
};

/* Owner thread, when the device is opened. */
void cuda_libraries_init(struct cuda *cuda);
/* Any thread. */
void cuda_libraries_describe(const struct cuda *cuda, struct device_info *info);
/* Whether it may be there: launches should have what it needs. Any thread. */
bool cuda_library_wanted(const struct cuda *cuda, enum cuda_library library);

/* Whether it has been loaded. Any thread. */
bool cuda_library_in_use(const struct cuda *cuda, enum cuda_library library);
/* How often libraries have refused so far. Any thread. */
uint64_t cuda_libraries_refused(const struct cuda *cuda);

/* Counts calls that threads of aside.h make or are to make. The submitter adds one, the thread that has made the call takes one off. */
void cuda_library_aside(struct cuda *cuda, enum cuda_library library, int more);
/* Whether there is such a call. If there is none, there will be none before the submitter adds one, and what their threads have written
 * can be read. */
bool cuda_library_is_aside(const struct cuda *cuda, enum cuda_library library);

/* The following are for the thread that launches what the library is to compute: the submitter's, or one of those of aside.h. */

/* From begin to end no other thread calls the library, or uses its plans. Not for cuSOLVER, where each thread has a handle of its own. */
void cuda_library_begin(enum cuda_library library);
void cuda_library_end(enum cuda_library library);

/* Loads a library and finds its functions; NULL: it cannot be loaded, which is noted. It is never unloaded. `file` is its file's name
 * with the version. */
void *cuda_library_load(struct cuda *cuda, enum cuda_library library, const char *file,
                        const struct cuda_symbol *symbols, unsigned n);
/* It works, and is this version. */
void cuda_library_loaded(struct cuda *cuda, enum cuda_library library, const char *version);
/* It is not tried again. */
void cuda_library_missing(struct cuda *cuda, enum cuda_library library, const char *reason);
/* It could not be opened for a reason that may pass, such as a full device: it is tried again after some launches. */
void cuda_library_put_off(struct cuda *cuda, enum cuda_library library, const char *reason);
/* Whether it is to be opened for this launch, if it is not open. */
bool cuda_library_due(struct cuda *cuda, enum cuda_library library);
void cuda_library_computed(struct cuda *cuda, enum cuda_library library);
/* It has refused a launch, because `call` returned what `reason` says; NULL: the last reason stays. STATUS_OK, unless the device has failed. */
int cuda_library_refused(struct cuda *cuda, enum cuda_library library, const char *call, const char *reason,
                         struct fault *fault);

/* ---- plans ---- */

/* A library's plan for one kind of launch begins with this. Plans are found by their keys; the one that has not been used for longest makes
 * room for a new one. A plan without `ready` is there, too: the library has refused, and is not asked again for each launch. */
struct cuda_plan {
    uint64_t hash, used;
    bool ready;
    unsigned put_off; /* launches since the library refused for a reason that may pass; 0: it has answered for good */
};

struct cuda_plans {
    unsigned n, room;
    uint64_t clock;
    size_t plan_bytes, key_at,
        key_bytes; /* of the library's struct; where in it its key is. Keys are compared as bytes */
    void (*finish)(void *context, struct cuda_plan *plan); /* gives back what a plan holds */
    void *context;
    struct cuda_plan *plan[1]; /* [room], n of them there */
};

/* NULL: no host memory. */
struct cuda_plans *cuda_plans_create(unsigned room, size_t plan_bytes, size_t key_at, size_t key_bytes,
                                     void (*finish)(void *context, struct cuda_plan *plan), void *context);
/* Takes NULL. All launches that used the plans must have ended. */
void cuda_plans_destroy(struct cuda_plans *plans);
/* *made: the plan is to be made, since it is new, or it is time to ask again. NULL: no host memory. */
struct cuda_plan *cuda_plans_find(struct cuda_plans *plans, const void *key, bool *made);
/* Whether cuda_plans_find() would find a plan that need not be made. */
bool cuda_plans_has(const struct cuda_plans *plans, const void *key);

#ifdef __cplusplus
}
#endif
