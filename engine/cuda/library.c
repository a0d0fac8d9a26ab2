#include "engine/cuda/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device.h"

static const struct {
    const char *name, *word; /* in TENSORD_CUDA_LIBRARIES */
} names[CUDA_LIBRARIES] = {
    [CUDA_CUDNN] = {"cuDNN", "cudnn"},
    [CUDA_CUFFT] = {"cuFFT", "cufft"},
    [CUDA_CUSOLVER] = {"cuSOLVER", "cusolver"},
};
_Static_assert((int)CUDA_LIBRARIES <= (int)DEVICE_LIBRARIES_MAX, "each library has a place in device_info");

enum { EVERY = 64 }; /* what failed for a reason that may pass is tried again every so many launches */

/* Of the entries, and of libraries_wait. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Held during the calls of one library. */
static pthread_mutex_t calls[CUDA_LIBRARIES] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                                PTHREAD_MUTEX_INITIALIZER};

void cuda_libraries_init(struct cuda *cuda) {
    const char *list = getenv("TENSORD_CUDA_LIBRARIES");
    for (int i = 0; i < CUDA_LIBRARIES; i++) {
        struct device_library *own = &cuda->libraries[i];
        bool wanted = !list || !*list || cuda_listed(list, "all") || cuda_listed(list, names[i].word);
        *own = (struct device_library){.state = wanted ? DEVICE_LIBRARY_UNUSED : DEVICE_LIBRARY_OFF};
        snprintf(own->name, sizeof own->name, "%s", names[i].name);
    }
}

void cuda_libraries_describe(const struct cuda *cuda, struct device_info *info) {
    pthread_mutex_lock(&lock);
    memset(info->libraries, 0, sizeof info->libraries);
    memcpy(info->libraries, cuda->libraries, sizeof cuda->libraries);
    pthread_mutex_unlock(&lock);
}

/* `reason` NULL: the last one stays. */
static void set_state(struct cuda *cuda, enum cuda_library library, enum device_library_state state,
                      const char *version, const char *reason) {
    struct device_library *own = &cuda->libraries[library];
    pthread_mutex_lock(&lock);
    snprintf(own->version, sizeof own->version, "%s", version);
    if (reason)
        snprintf(own->reason, sizeof own->reason, "%s", reason);
    __atomic_store_n(&own->state, state, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
}

bool cuda_library_wanted(const struct cuda *cuda, enum cuda_library library) {
    uint32_t state = __atomic_load_n(&cuda->libraries[library].state, __ATOMIC_RELAXED);
    return state == DEVICE_LIBRARY_UNUSED || state == DEVICE_LIBRARY_LOADED;
}

void cuda_library_loaded(struct cuda *cuda, enum cuda_library library, const char *version) {
    set_state(cuda, library, DEVICE_LIBRARY_LOADED, version, NULL);
}

void cuda_library_missing(struct cuda *cuda, enum cuda_library library, const char *reason) {
    set_state(cuda, library, DEVICE_LIBRARY_MISSING, "", reason);
}

void cuda_library_put_off(struct cuda *cuda, enum cuda_library library, const char *reason) {
    set_state(cuda, library, DEVICE_LIBRARY_UNUSED, "", reason);
    pthread_mutex_lock(&lock);
    cuda->libraries[library].refused++;
    cuda->libraries_wait[library] = EVERY;
    pthread_mutex_unlock(&lock);
}

bool cuda_library_due(struct cuda *cuda, enum cuda_library library) {
    pthread_mutex_lock(&lock);
    bool waits = cuda->libraries_wait[library] > 0;
    cuda->libraries_wait[library] -= waits;
    pthread_mutex_unlock(&lock);
    return !waits && cuda_library_wanted(cuda, library);
}

bool cuda_library_in_use(const struct cuda *cuda, enum cuda_library library) {
    return __atomic_load_n(&cuda->libraries[library].state, __ATOMIC_RELAXED) == DEVICE_LIBRARY_LOADED;
}

uint64_t cuda_libraries_refused(const struct cuda *cuda) {
    uint64_t refused = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < CUDA_LIBRARIES; i++)
        refused += cuda->libraries[i].refused;
    pthread_mutex_unlock(&lock);
    return refused;
}

void cuda_library_computed(struct cuda *cuda, enum cuda_library library) {
    pthread_mutex_lock(&lock);
    cuda->libraries[library].launches++;
    pthread_mutex_unlock(&lock);
}

int cuda_library_refused(struct cuda *cuda, enum cuda_library library, const char *call, const char *reason,
                         struct fault *fault) {
    struct device_library *own = &cuda->libraries[library];
    pthread_mutex_lock(&lock);
    own->refused++;
    if (reason)
        snprintf(own->reason, sizeof own->reason, "%s: %s", call, reason);
    pthread_mutex_unlock(&lock);
    return reason ? cuda_survives(call, fault) : STATUS_OK;
}

/* ---- threads ---- */

void cuda_library_aside(struct cuda *cuda, enum cuda_library library, int more) {
    __atomic_fetch_add(&cuda->libraries_aside[library], (unsigned)more, __ATOMIC_RELEASE);
}

bool cuda_library_is_aside(const struct cuda *cuda, enum cuda_library library) {
    return __atomic_load_n(&cuda->libraries_aside[library], __ATOMIC_ACQUIRE) > 0;
}

void cuda_library_begin(enum cuda_library library) {
    pthread_mutex_lock(&calls[library]);
}

void cuda_library_end(enum cuda_library library) {
    pthread_mutex_unlock(&calls[library]);
}

/* ---- loading ---- */

/* Beside the CUDA runtime that is in use, then where the loader looks. */
static void *library_open(const char *file) {
    char directory[PATH_MAX], path[PATH_MAX + 64];
    Dl_info info;
    void *handle = NULL;
    if (dladdr((const void *)(uintptr_t)cudaRuntimeGetVersion, &info) && info.dli_fname &&
        realpath(info.dli_fname, directory)) {
        char *slash = strrchr(directory, '/');
        snprintf(path, sizeof path, "%.*s/%s", slash ? (int)(slash - directory) : 0, directory, file);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle ? handle : dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

void *cuda_library_load(struct cuda *cuda, enum cuda_library library, const char *file,
                        const struct cuda_symbol *symbols, unsigned n) {
    char reason[160];
    void *handle = library_open(file);
    if (!handle) {
        const char *error = dlerror();
        cuda_library_missing(cuda, library, error ? error : file);
        return NULL;
    }
    for (unsigned i = 0; i < n; i++) {
        void *symbol = dlsym(handle, symbols[i].name);
        if (!symbol) {
            snprintf(reason, sizeof reason, "%.60s without %.60s", file, symbols[i].name);
            cuda_library_missing(cuda, library, reason);
            return NULL;
        }
        memcpy(symbols[i].place, &symbol, sizeof symbol);
    }
    return handle;
}

/* ---- plans ---- */

struct cuda_plans *cuda_plans_create(unsigned room, size_t plan_bytes, size_t key_at, size_t key_bytes,
                                     void (*finish)(void *context, struct cuda_plan *plan), void *context) {
    struct cuda_plans *plans = calloc(1, sizeof *plans + room * sizeof *plans->plan);
    if (plans) {
        plans->room = room;
        plans->plan_bytes = plan_bytes;
        plans->key_at = key_at;
        plans->key_bytes = key_bytes;
        plans->finish = finish;
        plans->context = context;
    }
    return plans;
}

void cuda_plans_destroy(struct cuda_plans *plans) {
    if (!plans)
        return;
    for (unsigned i = 0; i < plans->n; i++) {
        plans->finish(plans->context, plans->plan[i]);
        free(plans->plan[i]);
    }
    free(plans);
}

/* FNV-1a. */
static uint64_t plans_hash(const void *key, size_t bytes) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const uint8_t *at = key, *end = at + bytes; at < end; at++)
        hash = (hash ^ *at) * UINT64_C(0x100000001b3);
    return hash;
}

/* NULL: there is none. */
static struct cuda_plan *plans_seek(const struct cuda_plans *plans, const void *key, uint64_t hash) {
    for (unsigned i = 0; i < plans->n; i++) {
        struct cuda_plan *plan = plans->plan[i];
        if (plan->hash == hash && !memcmp((char *)plan + plans->key_at, key, plans->key_bytes))
            return plan;
    }
    return NULL;
}

/* The library refused for a reason that may pass, and is to be asked again. */
static bool plan_again(const struct cuda_plan *plan) {
    return plan->put_off && plan->put_off % EVERY == 0;
}

bool cuda_plans_has(const struct cuda_plans *plans, const void *key) {
    const struct cuda_plan *plan = plans_seek(plans, key, plans_hash(key, plans->key_bytes));
    return plan && !plan_again(plan);
}

static struct cuda_plan **plans_oldest(struct cuda_plans *plans) {
    struct cuda_plan **oldest = &plans->plan[0];
    for (unsigned i = 1; i < plans->n; i++)
        oldest = plans->plan[i]->used < (*oldest)->used ? &plans->plan[i] : oldest;
    return oldest;
}

struct cuda_plan *cuda_plans_find(struct cuda_plans *plans, const void *key, bool *made) {
    uint64_t hash = plans_hash(key, plans->key_bytes);
    struct cuda_plan *plan = plans_seek(plans, key, hash);
    *made = plan && plan_again(plan);
    if (plan) {
        plan->used = ++plans->clock;
        plan->put_off = *made ? 0 : plan->put_off + (plan->put_off > 0);
        return plan;
    }
    if (!(plan = calloc(1, plans->plan_bytes)))
        return NULL;
    if (plans->n < plans->room) {
        plans->plan[plans->n++] = plan;
    } else {
        struct cuda_plan **oldest = plans_oldest(plans);
        plans->finish(plans->context, *oldest);
        free(*oldest);
        *oldest = plan;
    }
    memcpy((char *)plan + plans->key_at, key, plans->key_bytes);
    plan->hash = hash;
    plan->used = ++plans->clock;
    *made = true;
    return plan;
}
