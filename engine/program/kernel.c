#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/program/fusion.h"
#include "engine/program/ids.h"
#include "engine/program/kernel_impl.h"
#include "engine/session/session_impl.h"

/* ---- kernels on the device ---- */

void kernel_unload(struct kernel_store *store, struct device_kernel *kernel) {
    kernel->next = store->unused;
    store->unused = kernel;
}

static void kernel_release_all(struct device *device, struct device_kernel **list) {
    while (*list) {
        struct device_kernel *kernel = *list;
        *list = kernel->next;
        device->vtable->kernels->release(device, kernel);
    }
}

/* Nothing runs it any more. */
static void kernel_free(struct kernel_store *store, struct kernel *kernel) {
    kernel_unload(store, kernel->device_kernel);
    if (kernel->payer)
        ledger_give_apart(&kernel->payer->ledger, kernel->bytes);
    free(kernel->name);
    use_list_finish(&kernel->uses);
    free(kernel);
}

struct device_kernel *kernel_unused_take(struct kernel_store *store) {
    struct device_kernel *unused = store->unused;
    store->unused = NULL;
    return unused;
}

void kernel_unused_release(struct kernel_store *store, struct device_kernel *unused) {
    kernel_release_all(store->order->device, &unused);
}

static void kernel_let_go(struct kernel_store *store, struct kernel *kernel) {
    if (!use_list_runs(&kernel->uses)) {
        kernel_free(store, kernel);
        return;
    }
    kernel->payer->kernels->running++;
    kernel->next = store->running;
    kernel->previous = &store->running;
    if (kernel->next)
        kernel->next->previous = &kernel->next;
    store->running = kernel;
}

static void kernel_end(struct kernel_store *store, struct kernel *kernel) {
    *kernel->previous = kernel->next;
    if (kernel->next)
        kernel->next->previous = kernel->previous;
    if (kernel->payer)
        kernel->payer->kernels->running--;
    kernel_free(store, kernel);
}

void kernel_use(struct kernel *kernel, struct stream *stream, uint64_t number) {
    use_list_note(&kernel->uses, stream, number);
}

void kernel_store_sweep(struct kernel_store *store) {
    for (struct kernel *kernel = store->running, *next; kernel; kernel = next) {
        next = kernel->next;
        if (!use_list_runs(&kernel->uses))
            kernel_end(store, kernel);
    }
}

/* ---- the cache of code ---- */

static uint64_t code_hash(const char *source, const char *name) { /* FNV-1a; the texts themselves decide */
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *source; source++)
        hash = (hash ^ (uint8_t)*source) * 0x100000001b3u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return hash;
}

static void code_unref(struct kernel_code *code) {
    if (!code || --code->references)
        return;
    free(code->source);
    free(code->name);
    free(code->code);
    free(code);
}

static void code_list(struct kernel_store *store, struct kernel_code *code) {
    code->next = store->codes;
    code->previous = &store->codes;
    if (code->next)
        code->next->previous = &code->next;
    store->codes = code;
}

static void code_unlist(struct kernel_code *code) {
    *code->previous = code->next;
    if (code->next)
        code->next->previous = code->previous;
}

/* With a reference; it is the newest then. NULL: it is not there. */
static struct kernel_code *code_find(struct kernel_store *store, const char *source, const char *name) {
    uint64_t hash = code_hash(source, name);
    struct kernel_code *code = store->codes;
    while (code && (code->hash != hash || strcmp(code->source, source) != 0 || strcmp(code->name, name) != 0))
        code = code->next;
    if (!code)
        return NULL;
    code_unlist(code);
    code_list(store, code);
    code->references++;
    return code;
}

static void code_drop(struct kernel_store *store, struct kernel_code *code) {
    store->bytes -= code->bytes;
    code_unlist(code);
    code_unref(code);
}

static void code_add(struct kernel_store *store, struct kernel_code *code) {
    code_list(store, code);
    store->bytes += code->bytes;
    while (store->bytes > KERNEL_CACHE_BYTES) {
        struct kernel_code *oldest = store->codes;
        while (oldest->next)
            oldest = oldest->next;
        code_drop(store, oldest); /* the new one, too, where it is larger than all of the cache */
    }
}

void kernel_store_finish(struct kernel_store *store) {
    while (store->codes)
        code_drop(store, store->codes);
    while (store->running)
        kernel_end(store, store->running);
    fusions_finish(store);
    kernel_release_all(store->order->device, &store->unused);
}

/* ---- jobs ---- */

int kernel_job_init(struct kernel_job *job, struct kernel_store *store, const char *source, const char *name,
                    struct fault *fault) {
    struct device_info info;
    memset(job, 0, sizeof *job);
    atomic_init(&job->cancelled, false);
    job->store = store;
    if (!store->order->device->vtable->kernels) {
        device_describe(store->order->device, &info);
        return fault_set(fault, STATUS_UNSUPPORTED, "a %s device takes no user kernels", info.kind);
    }
    job->source = strdup(source);
    job->name = strdup(name);
    if (!job->source || !job->name) {
        free(job->source);
        free(job->name);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a kernel's source");
    }
    return STATUS_OK;
}

bool kernel_job_compiled(struct kernel_job *job) {
    if (!job->cached && !job->code && (job->cached = code_find(job->store, job->source, job->name)))
        job->device_bytes = job->cached->device_bytes;
    return job->cached;
}

int kernel_compile(const char *kind, const struct kernel_source *source, const _Atomic bool *cancelled,
                   struct device_code **code, char **log, struct fault *fault) {
    const struct device_kernels *kernels;
    *log = NULL;
    int status = device_find_kernels(kind, &kernels, fault);
    return status == STATUS_OK ? kernels->compile(source, cancelled, code, log, fault) : status;
}

void kernel_compiler(const char *kind, char words[KERNEL_COMPILER_MAX]) {
    const struct device_kernels *kernels;
    struct fault fault;
    *words = 0;
    if (device_find_kernels(kind, &kernels, &fault) == STATUS_OK && kernels->compiler)
        kernels->compiler(words);
}

static bool job_cancelled(struct kernel_job *job) {
    if (atomic_load(&job->cancelled))
        job->status = fault_set(&job->fault, STATUS_CANCELLED, "nobody waits for it any more");
    return job->status != STATUS_OK;
}

uint32_t kernel_job_target(const struct kernel_job *job) {
    const struct device *device = job->store->order->device;
    return device->vtable->kernels->target(device);
}

void kernel_job_compile(struct kernel_job *job) {
    struct device *device = job->store->order->device;
    const struct device_kernels *kernels = device->vtable->kernels;
    const struct kernel_source source = {.text = job->source, .name = job->name, .target = kernel_job_target(job)};
    if (job_cancelled(job))
        return;
    job->status = job->compile ? job->compile(job, &source, &job->code, &job->log, &job->fault)
                               : kernels->compile(&source, &job->cancelled, &job->code, &job->log, &job->fault);
    if (job->status == STATUS_OK)
        job->status = kernels->measure(job->code, &job->device_bytes, &job->fault);
    if (job->status == STATUS_OK)
        return;
    free(job->code); /* not to be remembered */
    job->code = NULL;
}

int kernel_job_charge(struct kernel_job *job, struct session *session) {
    if (job->status == STATUS_OK)
        job->status = ledger_take_apart(&session->ledger, job->device_bytes, &job->fault);
    if (job->status != STATUS_OK)
        return job->status;
    job->payer = session;
    job->unused = kernel_unused_take(job->store);
    return STATUS_OK;
}

void kernel_job_discharge(struct kernel_job *job) {
    if (job->payer)
        ledger_give_apart(&job->payer->ledger, job->device_bytes);
    job->payer = NULL;
}

void kernel_job_load(struct kernel_job *job) {
    struct device *device = job->store->order->device;
    const struct device_kernels *kernels = device->vtable->kernels;
    kernel_release_all(device, &job->unused);
    if (!job_cancelled(job))
        job->status = kernels->load(device, job->cached ? job->cached->code : job->code, &job->kernel, &job->fault);
}

/* Takes over what was compiled, for those who ask for the same; another job may have been faster. */
static void job_remember(struct kernel_job *job) {
    struct kernel_store *store = job->store;
    if (!job->code)
        return;
    if (!(job->cached = code_find(store, job->source, job->name)) && (job->cached = calloc(1, sizeof *job->cached))) {
        *job->cached = (struct kernel_code){
            .references = 2, .source = job->source, .name = job->name, .hash = code_hash(job->source, job->name)};
        job->cached->bytes = strlen(job->source) + strlen(job->name) + job->code->bytes + sizeof *job->cached;
        job->cached->device_bytes = job->device_bytes;
        job->cached->code = job->code;
        job->source = job->name = NULL;
        job->code = NULL;
        code_add(store, job->cached);
    }
    free(job->code);
    job->code = NULL;
}

static unsigned kernel_table_seek(const struct kernel_table *table, uint64_t id) {
    return ids_seek(table->entries, table->count, sizeof *table->entries, id);
}

/* Released ones that still run count, too: else a client could load and release beyond the limit. */
static int table_check(const struct kernel_table *table, struct fault *fault) {
    if (table->count < SESSION_KERNELS_MAX && table->count + table->running < 2 * SESSION_KERNELS_MAX)
        return STATUS_OK;
    return fault_set(fault, STATUS_LIMIT, "the session's limit of %d kernels is reached%s", SESSION_KERNELS_MAX,
                     table->running ? ", and released ones still run" : "");
}

static int table_reserve(struct kernel_table *table) {
    if (table->count < table->capacity)
        return STATUS_OK;
    unsigned capacity = table->capacity ? 2 * table->capacity : 8;
    struct kernel_entry *entries = realloc(table->entries, capacity * sizeof *entries);
    if (!entries)
        return STATUS_NO_HOST_MEMORY;
    table->entries = entries;
    table->capacity = capacity;
    return STATUS_OK;
}

int kernel_job_bind(struct kernel_job *job, struct session *session, uint64_t id, struct fault *fault) {
    struct kernel_table *table = session->kernels; /* there since the id was used up */
    if (job->status != STATUS_OK) {
        *fault = job->fault;
        return job->status;
    }
    if (table_check(table, fault) != STATUS_OK)
        return STATUS_LIMIT;
    struct kernel *kernel = table_reserve(table) == STATUS_OK ? calloc(1, sizeof *kernel) : NULL;
    if (!kernel || !(kernel->name = strdup(job->name))) {
        free(kernel);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a kernel");
    }
    kernel->device_kernel = job->kernel;
    kernel->bytes = job->device_bytes;
    kernel->payer = session;
    job->kernel = NULL;
    job->payer = NULL; /* the kernel is paid for from here on */
    table->store = job->store;
    unsigned at = kernel_table_seek(table, id);
    memmove(&table->entries[at + 1], &table->entries[at], (table->count - at) * sizeof *table->entries);
    table->entries[at] = (struct kernel_entry){id, kernel};
    table->count++;
    return STATUS_OK;
}

void kernel_job_settle(struct kernel_job *job) {
    job_remember(job);
    code_unref(job->cached);
    job->cached = NULL;
    free(job->source);
    job->source = NULL;
}

void kernel_job_finish(struct kernel_job *job) {
    struct kernel_store *store = job->store;
    if (job->status == STATUS_DEVICE_LOST)
        order_latch(store->order, &job->fault);
    kernel_job_discharge(job);
    if (job->kernel)
        kernel_unload(store, job->kernel);
    for (struct device_kernel *next; job->unused; job->unused = next) { /* it never ran */
        next = job->unused->next;
        kernel_unload(store, job->unused);
    }
    kernel_job_settle(job);
    free(job->name);
    free(job->log);
    kernel_store_sweep(store);
}

/* ---- sessions ---- */

int kernel_refuse(const char *principal, struct fault *fault) {
    return fault_set(fault, STATUS_DENIED, "user kernels are not allowed for %s: the daemon's setting user-kernels",
                     principal);
}

struct kernel *kernel_table_find(const struct kernel_table *table, uint64_t id) {
    unsigned at = table ? kernel_table_seek(table, id) : 0;
    return table && at < table->count && table->entries[at].id == id ? table->entries[at].kernel : NULL;
}

/* What runs of it is the store's from here on. */
static void table_let_go(struct session *session, struct kernel *kernel) {
    kernel->left = kernel->holders > 0;
    if (!kernel->left)
        kernel_let_go(session->kernels->store, kernel);
}

void kernel_hold(struct kernel *kernel) {
    kernel->holders++;
}

void kernel_unhold(struct session *session, struct kernel *kernel) {
    if (--kernel->holders == 0 && kernel->left)
        table_let_go(session, kernel);
}

void kernel_session_ended(struct session *session) {
    struct kernel_table *table = session->kernels;
    if (!table)
        return;
    for (unsigned i = 0; i < table->count; i++)
        table_let_go(session, table->entries[i].kernel);
    for (struct kernel *kernel = table->running ? table->store->running : NULL; kernel; kernel = kernel->next)
        if (kernel->payer == session) {
            ledger_give_apart(&session->ledger, kernel->bytes);
            kernel->payer = NULL;
        }
    free(table->entries);
    free(table);
    session->kernels = NULL;
}

int session_kernel_id(struct session *session, uint64_t id, struct fault *fault) {
    struct kernel_table *table = session->kernels ? session->kernels : (session->kernels = calloc(1, sizeof *table));
    if (!table)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a kernel");
    if (id == 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "0 is not a kernel's id");
    if (id <= table->last_id)
        return fault_set(fault, STATUS_DUPLICATE_ID,
                         "kernel id %" PRIu64 " is not above the highest one used, %" PRIu64, id, table->last_id);
    int status = table_check(table, fault);
    if (status == STATUS_OK)
        table->last_id = id;
    return status;
}

int session_kernel_release(struct session *session, uint64_t id, struct fault *fault) {
    struct kernel_table *table = session->kernels;
    unsigned at = table ? kernel_table_seek(table, id) : 0;
    if (!table || at == table->count || table->entries[at].id != id)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no kernel has id %" PRIu64, id);
    table_let_go(session, table->entries[at].kernel);
    table->count--;
    memmove(&table->entries[at], &table->entries[at + 1], (table->count - at) * sizeof *table->entries);
    return STATUS_OK;
}
