/* A million random steps of allocation, free, failure, disconnect and new limits, over an engine with sessions of several
 * tenants, beside a model that only adds and subtracts: after each step both have the same sums, nothing is above its
 * limit that was asked for under it, and at the end everything is zero. With a main of its own, for its time.
 *
 *   engine_accounts [steps [seed]] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/engine_impl.h"
#include "engine/memory/tenant.h"
#include "engine/session/host.h"
#include "tests/stand_ins/null_device.h"
#include "tests/unit/requests.h"

enum {
    TENANTS = 4,
    SESSIONS = 10,
    SLOTS = 24,
    FETCHES = 3,
    UPLOADS = 2,
    TENSORS_MAX = 20,
    DEVICE_BYTES = 8 << 20,
    STAGING_BYTES = 4 << 20,
    GENERATION = 25000, /* steps until the device fails */
    AFTERMATH = 200,    /* and those that come after that */
};

/* ---- the model ---- */

struct model_memory {
    uint64_t bytes;
    unsigned references;
    int session;
};

struct model_tensor {
    uint64_t id; /* 0: free */
    int64_t elements;
    struct model_memory *memory; /* NULL: it has failed */
    bool uploading;
    bool row; /* of shape (1, elements), not (elements) */
};

struct model_upload {
    struct upload real;
    struct model_tensor *tensor; /* NULL: freed meanwhile */
    struct model_memory *memory;
    int64_t sent;
    bool active;
};

struct model_fetch {
    struct fetch real;
    struct model_memory *memory;
    bool active, answered;
};

struct model_session {
    struct session *real;
    int tenant; /* -1: none */
    uint64_t limit, live, last_id;
    unsigned count;
    struct model_tensor tensors[SLOTS];
    struct model_fetch fetches[FETCHES];
    struct model_upload uploads[UPLOADS];
};

struct model_tenant {
    struct tenant *real;
    uint64_t limit, live;
    unsigned sessions;
};

static struct null_device device;
static struct engine *engine;
static struct model_tenant tenants[TENANTS];
static struct model_session sessions[SESSIONS];
static uint64_t total, step, seed, started_seed, sequence;

/* What the steps have met: a run that misses one of these has shown less than it says. */
enum met {
    SESSION_LIMIT,
    TENANT_LIMIT,
    TENSOR_LIMIT,
    DEVICE_FULL,
    SHARED,
    IN_PLACE,
    STAGED,
    CUT_UPLOAD,
    CUT_FETCH,
    METS
};
static const char *const met_names[METS] = {"session limit", "tenant limit",  "tensor limit",
                                            "device full",   "shared memory", "in place",
                                            "staged",        "cut upload",    "cut fetch"};
static uint64_t met[METS];

static void fail(const char *what, uint64_t got, uint64_t want) {
    fprintf(stderr, "engine_accounts: seed %" PRIu64 ", step %" PRIu64 ": %s: %" PRIu64 ", not %" PRIu64 "\n",
            started_seed, step, what, got, want);
    exit(1);
}

static void same(const char *what, uint64_t got, uint64_t want) {
    if (got != want)
        fail(what, got, want);
}

static unsigned pick(unsigned limit) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((seed >> 33) * limit >> 31);
}

static uint64_t rounded(int64_t elements) {
    return ((uint64_t)elements + 63) / 64 * 64;
}

static struct model_memory *memory_take(int s, int64_t elements) {
    struct model_memory *memory = malloc(sizeof *memory);
    *memory = (struct model_memory){rounded(elements), 1, s};
    sessions[s].live += memory->bytes;
    if (sessions[s].tenant >= 0)
        tenants[sessions[s].tenant].live += memory->bytes;
    total += memory->bytes;
    return memory;
}

static void memory_drop(struct model_memory *memory) {
    if (!memory || --memory->references)
        return;
    struct model_session *session = &sessions[memory->session];
    session->live -= memory->bytes;
    if (session->tenant >= 0)
        tenants[session->tenant].live -= memory->bytes;
    total -= memory->bytes;
    free(memory);
}

/* What must come of asking for so much more; STATUS_AGAIN: it fits, and only the device can still refuse. */
static int memory_expect(int s, int64_t elements) {
    const struct model_session *session = &sessions[s];
    const struct model_tenant *tenant = session->tenant >= 0 ? &tenants[session->tenant] : NULL;
    uint64_t bytes = rounded(elements);
    if (session->limit && session->live + bytes > session->limit)
        return met[SESSION_LIMIT]++, STATUS_LIMIT;
    if (tenant && tenant->limit && tenant->live + bytes > tenant->limit)
        return met[TENANT_LIMIT]++, STATUS_LIMIT;
    if (total + bytes > DEVICE_BYTES)
        return STATUS_OUT_OF_MEMORY;
    return STATUS_AGAIN;
}

/* Whether the answer is the one that was due. */
static bool memory_answered(int code, int expected) {
    if (expected != STATUS_AGAIN)
        same("code", (uint64_t)code, (uint64_t)expected);
    else if (code != STATUS_OK)
        same("code", (uint64_t)code, STATUS_OUT_OF_MEMORY);
    met[DEVICE_FULL] += code == STATUS_OUT_OF_MEMORY;
    return code == STATUS_OK;
}

static void check_session(int s) {
    struct session_stats stats;
    session_stats(sessions[s].real, &stats);
    same("live bytes of a session", stats.live, sessions[s].live);
    same("tensors of a session", stats.tensors, sessions[s].count);
    if (sessions[s].limit && stats.live > sessions[s].limit)
        fail("a session above its limit", stats.live, sessions[s].limit);
}

static void check_tenant(int t) {
    struct tenant_stats stats;
    uint64_t live = 0, staging = 0, host = 0;
    for (int s = 0; s < SESSIONS; s++)
        host += sessions[s].real && sessions[s].tenant == t ? host_bytes(sessions[s].real) : 0;
    tenant_stats(tenants[t].real, &stats);
    same("host bytes of a tenant", stats.host, host);
    same("live bytes of a tenant", stats.live, tenants[t].live);
    same("sessions of a tenant", stats.sessions, tenants[t].sessions);
    for (int s = 0; s < SESSIONS; s++) {
        if (!sessions[s].real || sessions[s].tenant != t)
            continue;
        live += sessions[s].live;
        for (int way = 0; way < STAGING_WAYS; way++)
            staging += sessions[s].real->ledger.staging[way].bytes;
    }
    same("live bytes of a tenant's sessions", live, tenants[t].live);
    same("staging bytes of a tenant", stats.staging, staging);
}

static void check_all(void) {
    for (int s = 0; s < SESSIONS; s++)
        if (sessions[s].real)
            check_session(s);
    for (int t = 0; t < TENANTS; t++)
        check_tenant(t);
    same("live bytes of the device", engine->memory.pool.live, total);
}

/* ---- tensors ---- */

static struct model_tensor *slot_free(struct model_session *session) {
    for (int i = 0; i < SLOTS; i++)
        if (!session->tensors[i].id)
            return &session->tensors[i];
    return NULL;
}

static struct model_tensor *slot_used(struct model_session *session) {
    unsigned from = pick(SLOTS);
    for (unsigned i = 0; i < SLOTS; i++)
        if (session->tensors[(from + i) % SLOTS].id)
            return &session->tensors[(from + i) % SLOTS];
    return NULL;
}

static void tensor_bound(struct model_session *session, struct model_tensor *slot, int64_t elements,
                         struct model_memory *memory) {
    *slot = (struct model_tensor){.id = session->last_id, .elements = elements, .memory = memory};
    session->count++;
}

static void tensor_drop(struct model_session *session, struct model_tensor *tensor) {
    for (int u = 0; u < UPLOADS; u++)
        if (session->uploads[u].active && session->uploads[u].tensor == tensor)
            session->uploads[u].tensor = NULL;
    memory_drop(tensor->memory);
    memset(tensor, 0, sizeof *tensor);
    session->count--;
}

static int submit(struct model_session *session, struct op_request request) {
    request.sequence = ++sequence;
    return session_submit(session->real, &request);
}

/* The next operation binds nothing, and its id is used up. */
static bool full_of_tensors(const struct model_session *session) {
    met[TENSOR_LIMIT] += session->count >= TENSORS_MAX;
    return session->count >= TENSORS_MAX;
}

static int64_t some_size(void) {
    static const int64_t sizes[] = {1, 64, 100, 4096, 70000, 300000, 1100000};
    return sizes[pick(sizeof sizes / sizeof *sizes)];
}

static void step_full(int s) {
    struct model_session *session = &sessions[s];
    struct model_tensor *slot = slot_free(session);
    int64_t elements = some_size();
    bool refused = full_of_tensors(session);
    int expected = refused ? STATUS_LIMIT : memory_expect(s, elements);
    int code = submit(session, REQUEST_FULL(DTYPE_U8, elements, 0, .output = ++session->last_id));
    bool good = memory_answered(code, expected);
    if (!refused)
        tensor_bound(session, slot, elements, good ? memory_take(s, elements) : NULL);
}

/* Whether an input that is consumed lends its memory to the output. */
static struct model_memory *lent(struct model_tensor *const inputs[2], uint16_t consume, int64_t elements, bool row) {
    for (int i = 0; i < 2; i++)
        if (consume >> i & 1 && inputs[i]->memory && inputs[i]->memory->references == 1 &&
            inputs[i]->elements == elements && inputs[i]->row == row)
            return inputs[i]->memory;
    return NULL;
}

static void step_consume(struct model_session *session, struct model_tensor *const inputs[2], uint16_t consume) {
    if (consume & 1)
        tensor_drop(session, inputs[0]);
    if (consume & 2 && inputs[1]->id)
        tensor_drop(session, inputs[1]);
}

static void step_add(int s) {
    struct model_session *session = &sessions[s];
    struct model_tensor *slot = slot_free(session), *inputs[2] = {slot_used(session), slot_used(session)};
    if (!inputs[0])
        return;
    uint64_t ids[2] = {inputs[0]->id, inputs[1]->id};
    uint16_t consume = (uint16_t)pick(4);
    int64_t a = inputs[0]->elements, b = inputs[1]->elements, elements = a > b ? a : b;
    bool refused = full_of_tensors(session), row = inputs[0]->row || inputs[1]->row;
    bool fits = (a == b || a == 1 || b == 1) && inputs[0]->memory && inputs[1]->memory && !inputs[0]->uploading &&
                !inputs[1]->uploading;
    struct model_memory *memory = fits && !refused ? lent(inputs, consume, elements, row) : NULL;
    int expected = fits && !refused && !memory ? memory_expect(s, elements) : STATUS_OK;
    int code = submit(
        session, (struct op_request){
                     .opcode = OP_ADD, .n_inputs = 2, .inputs = ids, .consume = consume, .output = ++session->last_id});
    if (refused || !fits) {
        if (code == STATUS_OK)
            fail("an operation that cannot be", (uint64_t)code, STATUS_INVALID_ARGUMENT);
    } else if (memory) {
        same("an operation in place", (uint64_t)code, STATUS_OK);
        memory->references++;
        met[IN_PLACE]++;
    } else {
        memory = memory_answered(code, expected) ? memory_take(s, elements) : NULL;
    }
    if (!refused) {
        tensor_bound(session, slot, elements, memory);
        slot->row = row;
    }
    step_consume(session, inputs, consume);
}

static void step_view(int s) {
    struct model_session *session = &sessions[s];
    struct model_tensor *slot = slot_free(session), *input = slot_used(session);
    if (!input)
        return;
    int64_t ints[2] = {1, -1};
    bool refused = full_of_tensors(session), good = input->memory && !input->uploading;
    int code = submit(session, (struct op_request){.opcode = OP_RESHAPE,
                                                   .n_inputs = 1,
                                                   .inputs = &input->id,
                                                   .n_ints = 2,
                                                   .ints = ints,
                                                   .output = ++session->last_id});
    if (refused)
        return;
    same("a view", code == STATUS_OK, good);
    if (good)
        input->memory->references++;
    met[SHARED] += good;
    tensor_bound(session, slot, input->elements, good ? input->memory : NULL);
    slot->row = true;
}

static void step_free(int s) {
    struct model_tensor *tensor = slot_used(&sessions[s]);
    if (!tensor)
        return;
    same("a free",
         (uint64_t)submit(&sessions[s], (struct op_request){.opcode = OP_FREE, .n_inputs = 1, .inputs = &tensor->id}),
         STATUS_OK);
    tensor_drop(&sessions[s], tensor);
}

/* What is wrong by itself costs nothing. */
static void step_wrong(int s) {
    struct model_session *session = &sessions[s];
    uint64_t id = session->last_id + 1000;
    int code = pick(2) ? submit(session, (struct op_request){.opcode = OP_FREE, .n_inputs = 1, .inputs = &id})
                       : submit(session, REQUEST_FULL(DTYPE_U8, 4096, 0, .output = session->last_id));
    if (code == STATUS_OK && session->last_id)
        fail("what is wrong", STATUS_OK, STATUS_UNKNOWN_ID);
}

/* ---- uploads ---- */

static void step_upload(int s) {
    struct model_session *session = &sessions[s];
    struct model_upload *upload = &session->uploads[pick(UPLOADS)];
    struct model_tensor *slot = slot_free(session);
    if (upload->active)
        return;
    int64_t elements = some_size();
    struct tensor_type type = {.dtype = DTYPE_U8, .rank = 1, .shape = {elements}};
    struct upload_request request = {.id = ++session->last_id, .type = &type, .sequence = ++sequence};
    bool refused = full_of_tensors(session);
    int expected = refused ? STATUS_LIMIT : memory_expect(s, elements);
    bool good = memory_answered(session_upload(session->real, &request, &upload->real), expected);
    struct model_memory *memory = good ? memory_take(s, elements) : NULL;
    if (!refused)
        tensor_bound(session, slot, elements, memory);
    if (!good)
        return;
    slot->uploading = upload->active = true;
    memory->references++;
    upload->memory = memory;
    upload->tensor = slot;
    upload->sent = 0;
    met[STAGED] += upload->real.staged;
}

static void upload_over(struct model_upload *upload, bool failed) {
    if (upload->tensor)
        upload->tensor->uploading = false;
    if (upload->tensor && failed) {
        memory_drop(upload->tensor->memory);
        upload->tensor->memory = NULL;
    }
    memory_drop(upload->memory);
    upload->active = false;
}

static void step_chunk(int s) {
    static const struct failure cause = {.code = STATUS_CANCELLED, .message = "cut"};
    struct model_upload *upload = &sessions[s].uploads[pick(UPLOADS)];
    if (!upload->active)
        return;
    int64_t left = upload->real.bytes - upload->sent, bytes = left < 200000 ? left : 200000;
    bool cut = pick(8) == 0;
    if (!cut && left > 0) {
        uint8_t *place = upload_chunk(&upload->real, upload->sent, bytes);
        if (place)
            place[0] = 1;
        upload_chunk_done(&upload->real);
        upload->sent += bytes;
        return;
    }
    bool failed = cut || upload->real.fault.code;
    met[CUT_UPLOAD] += cut;
    upload_finish(&upload->real, cut ? &cause : NULL);
    upload_over(upload, failed);
}

/* ---- fetches ---- */

static void fetched(struct fetch *real, const struct failure *failure) {
    struct model_fetch *fetch = (struct model_fetch *)real;
    fetch->answered = true;
    if (!failure)
        return;
    memory_drop(fetch->memory);
    fetch->memory = NULL;
}

static void step_fetch(int s) {
    struct model_fetch *fetch = &sessions[s].fetches[pick(FETCHES)];
    struct model_tensor *tensor = slot_used(&sessions[s]);
    if (fetch->active) {
        met[CUT_FETCH] += !fetch->answered;
        fetch_release(&fetch->real);
        memory_drop(fetch->memory);
        memset(fetch, 0, sizeof *fetch);
        return;
    }
    if (!tensor || tensor->uploading)
        return;
    *fetch = (struct model_fetch){.real.done = fetched, .memory = tensor->memory, .active = true};
    if (fetch->memory)
        fetch->memory->references++;
    session_fetch(sessions[s].real, tensor->id, &fetch->real);
}

/* ---- sessions and tenants ---- */

static void session_open(int s) {
    struct model_session *session = &sessions[s];
    struct fault fault;
    memset(session, 0, sizeof *session);
    session->tenant = (int)pick(TENANTS + 1) - 1;
    session->limit = pick(3) ? 200000 + pick(2000000) : 0;
    struct session_limits limits = {.bytes = session->limit, .tensors = TENSORS_MAX, .streams = 1};
    limits.tenant = session->tenant >= 0 ? tenants[session->tenant].real : NULL;
    same("a session", (uint64_t)session_create(engine_sessions(engine), &limits, &session->real, &fault), STATUS_OK);
    if (session->tenant >= 0)
        tenants[session->tenant].sessions++;
}

/* A client that goes in the middle of everything. */
static void session_close(int s) {
    struct model_session *session = &sessions[s];
    int tenant = session->tenant;
    for (int f = 0; f < FETCHES; f++)
        if (session->fetches[f].active && session->fetches[f].answered)
            fetch_release(&session->fetches[f].real);
    session_destroy(session->real);
    for (int f = 0; f < FETCHES; f++)
        if (session->fetches[f].active)
            memory_drop(session->fetches[f].memory);
    for (int u = 0; u < UPLOADS; u++)
        if (session->uploads[u].active)
            memory_drop(session->uploads[u].memory);
    for (int i = 0; i < SLOTS; i++)
        if (session->tensors[i].id)
            memory_drop(session->tensors[i].memory);
    same("bytes that a session leaves behind", session->live, 0);
    session->real = NULL;
    if (tenant >= 0)
        tenants[tenant].sessions--;
}

/* Below what is in use, too: then nothing more is given, and nothing taken. */
static void step_limits(void) {
    struct model_tenant *tenant = &tenants[pick(TENANTS)];
    tenant->limit = pick(4) ? 100000 + pick(4000000) : 0;
    tenant_set_limits(tenant->real, &(struct tenant_limits){.bytes = tenant->limit,
                                                            .staging = pick(2) ? (uint64_t)pick(2 << 20) : 0,
                                                            .weight = pick(300)});
}

static void take_step(void) {
    static void (*const steps[])(int s) = {step_full,  step_full,  step_add,    step_add,   step_view,
                                           step_free,  step_free,  step_upload, step_chunk, step_chunk,
                                           step_chunk, step_fetch, step_fetch,  step_wrong};
    int s = (int)pick(SESSIONS);
    if (!sessions[s].real)
        session_open(s);
    else if (pick(200) == 0)
        session_close(s);
    else if (pick(100) == 0)
        step_limits();
    else
        steps[pick(sizeof steps / sizeof *steps)](s);
    if (sessions[s].real)
        check_session(s);
    same("live bytes of the device", engine->memory.pool.live, total);
    if (pick(4) == 0) {
        engine_kick(engine);
        engine_poll(engine);
    }
    if (pick(8) == 0)
        check_all();
}

/* ---- one life of an engine ---- */

static int failing_hook(struct null_device *null, const struct launch *launch) {
    (void)null, (void)launch;
    return -1;
}

static void engine_begin(void) {
    struct fault fault;
    null_device_init(&device, DEVICE_BYTES);
    same("an engine",
         (uint64_t)engine_create(&device.device, &(struct engine_options){.staging_total = STAGING_BYTES}, &engine,
                                 &fault),
         STATUS_OK);
    for (int t = 0; t < TENANTS; t++) {
        tenants[t] = (struct model_tenant){.limit = 0};
        same("a tenant",
             (uint64_t)tenant_create(engine_memory(engine), "tenant", &(struct tenant_limits){0}, &tenants[t].real,
                                     &fault),
             STATUS_OK);
    }
}

static void engine_end(void) {
    for (int s = 0; s < SESSIONS; s++)
        if (sessions[s].real)
            session_close(s);
    check_all();
    same("live bytes at the end", total, 0);
    for (int t = 0; t < TENANTS; t++) {
        same("live bytes of a tenant at the end", tenants[t].live, 0);
        tenant_destroy(tenants[t].real);
    }
    engine_destroy(engine);
    same("bytes that the device still has out", device.memory_reserved, 0);
}

/* A device that fails for good changes no sum. */
static void engine_lose(void) {
    device.hook = failing_hook;
    for (int i = 0; i < AFTERMATH; i++, step++)
        take_step();
}

int main(int count, char **arguments) {
    uint64_t steps = count > 1 ? strtoull(arguments[1], NULL, 10) : 1000000;
    seed = started_seed = count > 2 ? strtoull(arguments[2], NULL, 10) : (uint64_t)time(NULL);
    printf("engine_accounts: %" PRIu64 " steps, seed %" PRIu64 "\n", steps, started_seed);
    fflush(stdout);
    while (step < steps) {
        engine_begin();
        for (int i = 0; i < GENERATION && step < steps; i++, step++)
            take_step();
        engine_lose();
        engine_end();
    }
    for (int i = 0; i < METS; i++) {
        printf("%s: %" PRIu64 "\n", met_names[i], met[i]);
        if (!met[i] && steps >= 100000)
            fail(met_names[i], 0, 1);
    }
    return 0;
}
