#include "engine/program/fusion.h"

#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"
#include "engine/program/kernel_impl.h"

struct fusion {
    struct replay_kernel shared;
    struct device_kernel *loaded;
    char *text;
    char *cause; /* of a failure; NULL: none, or no memory to say it */
    uint64_t hash;
    uint64_t tenant;  /* that asked for it when nobody had it */
    unsigned holders; /* steps of plans */
    enum { FUSION_WAITS, FUSION_COMPILES, FUSION_READY, FUSION_FAILED } state;
    struct fusion *next, **previous; /* the newest first */
};

static const struct device_fusion *device_fusion(const struct kernel_store *store) {
    const struct device_vtable *vtable = store->order->device->vtable;
    return vtable->kernels ? vtable->fusion : NULL;
}

/* ---- the list ---- */

static void fusion_list(struct kernel_store *store, struct fusion *fusion) {
    fusion->next = store->fusions;
    fusion->previous = &store->fusions;
    if (fusion->next)
        fusion->next->previous = &fusion->next;
    store->fusions = fusion;
}

static void fusion_unlist(struct fusion *fusion) {
    *fusion->previous = fusion->next;
    if (fusion->next)
        fusion->next->previous = fusion->previous;
}

static void fusion_drop(struct kernel_store *store, struct fusion *fusion) {
    fusion_unlist(fusion);
    store->n_fusions--;
    store->n_fusions_wait -= fusion->state == FUSION_WAITS;
    if (fusion->loaded)
        kernel_unload(store, fusion->loaded);
    free(fusion->text);
    free(fusion->cause);
    free(fusion);
}

/* False: all of them are in use, or as many of them as one tenant may have asked for. */
static bool fusion_make_room(struct kernel_store *store, uint64_t tenant) {
    struct fusion *oldest = NULL;
    unsigned own = 0;
    for (struct fusion *fusion = store->fusions; fusion; fusion = fusion->next) {
        own += fusion->tenant == tenant && fusion->holders;
        if (!fusion->holders && fusion->state != FUSION_COMPILES)
            oldest = fusion;
    }
    if (own >= FUSIONS_TENANT_MAX || (store->n_fusions >= FUSIONS_MAX && !oldest))
        return false;
    if (store->n_fusions >= FUSIONS_MAX)
        fusion_drop(store, oldest);
    return true;
}

static uint64_t text_hash(const char *text) { /* FNV-1a; the text itself decides */
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash;
}

static struct fusion *fusion_find(struct kernel_store *store, const char *text, uint64_t hash) {
    struct fusion *fusion = store->fusions;
    while (fusion && (fusion->hash != hash || strcmp(fusion->text, text) != 0))
        fusion = fusion->next;
    return fusion;
}

/* ---- plans ---- */

struct replay_kernel *fusion_hold(struct kernel_store *store, const struct fused_launch *launch, uint64_t tenant) {
    const struct device_fusion *device = device_fusion(store);
    char *text = device && !store->fusions_off ? device->text(launch) : NULL;
    if (!text)
        return NULL;
    uint64_t hash = text_hash(text);
    struct fusion *fusion = fusion_find(store, text, hash);
    if (fusion) {
        free(text);
        fusion_unlist(fusion); /* it is the newest again */
    } else {
        if (!fusion_make_room(store, tenant) || !(fusion = calloc(1, sizeof *fusion))) {
            free(text);
            return NULL;
        }
        fusion->text = text;
        fusion->hash = hash;
        store->n_fusions++;
        store->n_fusions_wait++;
    }
    fusion_list(store, fusion);
    if (!fusion->holders++)
        fusion->tenant = tenant;
    return &fusion->shared;
}

void fusion_let_go(struct kernel_store *store, struct replay_kernel *kernel) {
    struct fusion *fusion = (struct fusion *)kernel;
    if (--fusion->holders == 0 && (fusion->state == FUSION_WAITS || fusion->state == FUSION_FAILED))
        fusion_drop(store, fusion); /* a later plan may ask again */
}

const char *fusion_cause(const struct replay_kernel *kernel) {
    const struct fusion *fusion = (const struct fusion *)kernel;
    if (!fusion)
        return "there are as many fused kernels as may be, or none can be compiled here";
    return fusion->state == FUSION_READY ? NULL : fusion->cause ? fusion->cause : "";
}

/* ---- compiling ---- */

bool fusions_wait(const struct kernel_store *store) {
    return store->n_fusions_wait;
}

/* The oldest of the next tenant that has one, so that nobody waits for all of another's. */
struct fusion *fusion_take(struct kernel_store *store) {
    struct fusion *best = NULL;
    uint64_t last = store->fusion_tenant;
    for (struct fusion *fusion = store->n_fusions_wait ? store->fusions : NULL; fusion; fusion = fusion->next)
        if (fusion->state == FUSION_WAITS && (!best || fusion->tenant - last - 1 <= best->tenant - last - 1))
            best = fusion;
    if (!best)
        return NULL;
    best->state = FUSION_COMPILES;
    store->n_fusions_wait--;
    store->fusion_tenant = best->tenant;
    return best;
}

int fusion_job_init(struct kernel_job *job, struct kernel_store *store, const struct fusion *fusion,
                    struct fault *fault) {
    const struct device_fusion *device = device_fusion(store);
    char *source = device->source(fusion->text);
    int code = source ? kernel_job_init(job, store, source, device->name, fault)
                      : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a fused kernel's source");
    free(source);
    return code;
}

void fusion_settle(struct kernel_store *store, struct fusion *fusion, struct kernel_job *job) {
    fusion->state = FUSION_FAILED;
    if (job && job->status == STATUS_OK) {
        fusion->state = FUSION_READY;
        fusion->loaded = job->kernel;
        job->kernel = NULL;
        free(job->code); /* the cache of code is clients' kernels' */
        job->code = NULL;
        atomic_store_explicit(&fusion->shared.kernel, fusion->loaded, memory_order_release);
        atomic_fetch_add_explicit(&store->fusions_came, 1, memory_order_release);
    } else if (job)
        fusion->cause = strdup(job->fault.message);
    if (job && job->status == STATUS_UNSUPPORTED) /* there is no compiler */
        store->fusions_off = true;
    if (job)
        kernel_job_finish(job);
    if (fusion->state == FUSION_FAILED && !fusion->holders)
        fusion_drop(store, fusion);
}

void fusions_finish(struct kernel_store *store) {
    while (store->fusions)
        fusion_drop(store, store->fusions);
}
