#include "engine/session/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/memory/host.h"
#include "engine/session/session_impl.h"
#include "engine/session/waiting.h"
#include "proto/ops/bytes_text.h"

/* ---- life ---- */

void session_give_group(struct session *session) {
    if (session->group)
        engine_group_give(session->engine, session->group);
    if (session->share)
        engine_share_give(session->engine, session->share);
}

static int session_init(struct session *session, struct engine *engine, struct tenant *tenant) {
    session->engine = engine;
    session->tenant = tenant;
    session->share = tenant ? NULL : engine_share_take(engine, SHARE_WEIGHT_DEFAULT);
    struct run_share *share = tenant ? tenant->share : session->share;
    session->group = share ? engine_group_take(engine, share) : NULL;
    if (session->group)
        session->group->session = session->limits.number;
    session->stream = session->group ? engine_stream_take(engine, session->group, 0) : NULL;
    if (session->stream && tensor_table_init(&session->tensors) == STATUS_OK)
        return STATUS_OK;
    if (session->stream)
        engine_stream_give(engine, session->stream);
    session_give_group(session);
    return STATUS_NO_HOST_MEMORY;
}

int session_create(struct engine *engine, const struct session_limits *limits, struct session **result,
                   struct fault *fault) {
    struct session *session = calloc(1, sizeof *session);
    if (session)
        session->limits = *limits;
    if (!session || session_init(session, engine, limits->tenant) != STATUS_OK) {
        free(session);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a session");
    }
    staging_join(session);
    host_note(session, sizeof *session);
    session->next = engine->sessions_list;
    session->previous = &engine->sessions_list;
    if (session->next)
        session->next->previous = &session->next;
    engine->sessions_list = session;
    engine->sessions++;
    engine->rested = false;
    if (session->tenant)
        session->tenant->sessions++;
    *result = session;
    return STATUS_OK;
}

void session_set_limits(struct session *session, uint64_t bytes, uint64_t host_bytes, uint32_t tensors,
                        uint32_t streams) {
    session->limits.bytes = bytes;
    session->limits.host_bytes = host_bytes;
    session->limits.tensors = tensors;
    session->limits.streams = streams;
    host_set_room(session);
}

/* ---- memory ---- */

static int session_check_limit(const struct session *session, uint64_t bytes, struct fault *fault) {
    uint64_t limit = session->limits.bytes;
    if (limit && (bytes > limit || session->live > limit - bytes)) {
        engine_refuse(session->engine, ENGINE_REFUSED_SESSION_BYTES);
        char most[BYTES_TEXT_MAX], asked[BYTES_TEXT_MAX], live[BYTES_TEXT_MAX];
        return fault_set(fault, STATUS_LIMIT, "the session's limit of %s is reached: %s asked, %s live",
                         bytes_text(most, limit), bytes_text(asked, bytes), bytes_text(live, session->live));
    }
    int code = tenant_check(session->tenant, bytes, fault);
    if (code != STATUS_OK)
        engine_refuse(session->engine, ENGINE_REFUSED_TENANT_BYTES);
    return code;
}

void session_discharge(struct session *session, uint64_t bytes) {
    session->live -= bytes;
    tenant_discharge(session->tenant, bytes);
}

static void session_add(struct session *session, uint64_t bytes) {
    session->live += bytes;
    if (session->live > session->peak)
        session->peak = session->live;
    tenant_charge(session->tenant, bytes);
}

static int session_out_of_memory(struct session *session, uint64_t bytes, struct fault *fault) {
    struct pool *pool = &session->engine->pool;
    struct device *device = session->engine->device;
    struct device_workspaces workspaces = {0};
    if (device->vtable->workspaces)
        device->vtable->workspaces(device, &workspaces);
    if (workspaces.bytes && bytes <= pool->total - pool->reserved) /* it was the device that had no more */
        engine_trim_workspaces(session->engine);
    char asked[BYTES_TEXT_MAX], left[BYTES_TEXT_MAX], total[BYTES_TEXT_MAX], own[BYTES_TEXT_MAX],
        others[BYTES_TEXT_MAX];
    char block[BYTES_TEXT_MAX], beside[BYTES_TEXT_MAX], more[32 + BYTES_TEXT_MAX] = "";
    if (workspaces.bytes)
        snprintf(more, sizeof more, ", workspaces take %s", bytes_text(beside, workspaces.bytes));
    return fault_set(
        fault, STATUS_OUT_OF_MEMORY,
        "out of device memory: %s asked, %s free of %s; you hold %s, others %s; the largest free block has %s%s",
        bytes_text(asked, bytes), bytes_text(left, pool->total - pool->live), bytes_text(total, pool->total),
        bytes_text(own, session->live), bytes_text(others, pool->live - (session->live - session->apart)),
        bytes_text(block, pool_largest_free(pool)), more);
}

int session_charge_apart(struct session *session, uint64_t bytes, struct fault *fault) {
    if (bytes > session->engine->pool.total)
        return session_out_of_memory(session, bytes, fault);
    int code = session_check_limit(session, bytes, fault);
    if (code == STATUS_OK) {
        session_add(session, bytes);
        session->apart += bytes;
    }
    return code;
}

void session_discharge_apart(struct session *session, uint64_t bytes) {
    session->apart -= bytes;
    session_discharge(session, bytes);
}

int session_storage(struct session *session, uint64_t bytes, struct stream *stream, struct storage **result,
                    struct fault *fault) {
    struct pool *pool = &session->engine->pool;
    size_t rounded = pool_rounded(bytes);
    if (!rounded || rounded > pool->total)
        return session_out_of_memory(session, bytes, fault);
    int code = session_check_limit(session, rounded, fault); /* before it is taken */
    if (code != STATUS_OK)
        return code;
    struct storage *storage;
    code = pool_take(pool, rounded, stream, stream ? &session->search : NULL, &storage);
    if (code == STATUS_AGAIN)
        return fault_set(fault, STATUS_AGAIN, "device memory is being looked for");
    if (code == STATUS_NO_HOST_MEMORY)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to keep account of device memory");
    if (code != STATUS_OK)
        return session_out_of_memory(session, bytes, fault);
    session_add(session, storage->charged);
    storage->session = session;
    *result = storage;
    return STATUS_OK;
}

/* ---- streams ---- */

struct stream *session_transfer_stream(struct session *session, enum transfer transfer) {
    struct stream **stream = &session->transfers[transfer];
    if (*stream)
        return *stream;
    *stream = engine_stream_take(session->engine, session->group, 1); /* short, and somebody waits for it */
    if (*stream)
        (*stream)->role = transfer == TRANSFER_UPLOAD ? TRACE_UPLOADS : TRACE_FETCHES;
    return *stream;
}

/* Operations of this session that have run there. */
static uint64_t stream_done(const struct stream *stream) {
    return atomic_load_explicit(&stream->ops_done, memory_order_relaxed) - stream->ops_before;
}

static uint64_t session_stream_time(const struct session *session, const struct stream *stream) {
    pthread_mutex_lock(&session->engine->lock);
    uint64_t ns = engine_stream_time(session->engine, stream, engine_clock());
    pthread_mutex_unlock(&session->engine->lock);
    return ns;
}

/* Gives back closed streams that have run out of work, and counts the open ones. */
static uint32_t session_reap_streams(struct session *session) {
    uint32_t kept = 0, open = 0;
    for (uint32_t i = 0; i < session->n_streams; i++) {
        struct session_stream entry = session->streams[i];
        if (entry.closed && point_reached(entry.stream, entry.stream->enqueued)) {
            session->ops_ended += stream_done(entry.stream);
            session->device_ns_ended += session_stream_time(session, entry.stream);
            engine_stream_give(session->engine, entry.stream);
            continue;
        }
        open += !entry.closed;
        session->streams[kept++] = entry;
    }
    session->n_streams = kept;
    return open;
}

int session_stream_open(struct session *session, uint32_t number, int priority, struct fault *fault) {
    if (number == 0 || number > INT32_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRIu32 " is not a number for a stream", number);
    if (session_find_stream(session, number, NULL))
        return fault_set(fault, STATUS_DUPLICATE_ID, "stream %" PRIu32 " is open already", number);
    /* Closed ones that still run count as well, or opening and closing would be a way around the limit. */
    if (session_reap_streams(session) >= session->limits.streams || session->n_streams >= 2 * session->limits.streams) {
        session->refused_stream = number;
        engine_refuse(session->engine, ENGINE_REFUSED_STREAMS);
        return fault_set(fault, STATUS_LIMIT, "the session's limit of %" PRIu32 " streams is reached",
                         session->limits.streams);
    }
    struct session_stream *streams = realloc(session->streams, (session->n_streams + 1) * sizeof *streams);
    if (!streams)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a stream");
    session->streams = streams;
    struct stream *stream = engine_stream_take(session->engine, session->group, priority);
    if (!stream)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a stream");
    stream->role = (int32_t)number;
    streams[session->n_streams++] = (struct session_stream){.number = number, .stream = stream};
    return STATUS_OK;
}

int session_stream_close(struct session *session, uint32_t number, struct fault *fault) {
    for (uint32_t i = 0; i < session->n_streams; i++) {
        if (session->streams[i].number != number || session->streams[i].closed)
            continue;
        session->streams[i].closed = true;
        session_reap_streams(session);
        return STATUS_OK;
    }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "no stream %" PRIu32 " is open", number);
}

/* ---- operations ---- */

static int submit_lookup(struct binding *binding, struct cause *cause) {
    const struct op_request *request = binding->request;
    for (unsigned i = 0; i < request->n_inputs; i++) {
        struct tensor *tensor = session_tensor(binding->session, request->inputs[i]);
        if (!tensor && session_refused(binding->session, request->inputs[i], cause))
            return (int)cause->failure->code;
        if (!tensor || outputs_have(&binding->outputs, request->inputs[i]))
            return session_unknown_id(binding->session, request->inputs[i], &binding->fault);
        if (tensor->uploading)
            return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT,
                             "input %u: tensor %" PRIu64 " has not been uploaded completely", i, request->inputs[i]);
        binding->inputs[i] = tensor;
        binding->types[i] = &tensor->type;
    }
    return STATUS_OK;
}

/* The first cause among the inputs, if they do not all have a value so far. */
static bool submit_cause(struct binding *binding, struct cause *cause) {
    for (unsigned i = 0; i < binding->request->n_inputs; i++)
        if ((binding->inputs[i]->taint || binding->inputs[i]->failure) &&
            tensor_settle(binding->session, binding->inputs[i])) {
            *cause = tensor_cause(binding->inputs[i]);
            return true;
        }
    return false;
}

/* Why an operation failed whose ids could not be bound: for that, or, as with any result, because an input has failed before. */
static struct cause submit_refusal(struct session *session, const struct op_request *request,
                                   const struct fault *fault) {
    const struct op_info *info = op_info(request->opcode);
    struct cause cause = {0};
    for (unsigned i = 0; i < request->n_inputs && !cause.failure && fault->code == STATUS_LIMIT; i++) {
        struct tensor *tensor = session_tensor(session, request->inputs[i]);
        if (!tensor)
            session_refused(session, request->inputs[i], &cause);
        else if (tensor_settle(session, tensor))
            cause = tensor_cause(tensor);
    }
    return cause.failure ? cause_ref(cause)
                         : session_cause(session, fault, info ? info->name : "", request->label, request->sequence);
}

static void submit_consume(struct session *session, const struct op_request *request) {
    for (unsigned i = 0; i < request->n_inputs; i++)
        if (op_consumes(request->consume, request->consume_more, i) &&
            request->inputs[i] - request->output > request->further)
            session_unbind(session, request->inputs[i]);
}

static int submit_free(struct session *session, const struct op_request *request) {
    int code = STATUS_OK;
    for (unsigned i = 0; i < request->n_inputs; i++) {
        if (session_tensor(session, request->inputs[i])) {
            session_unbind(session, request->inputs[i]);
            continue;
        }
        struct fault fault;
        code = session_unknown_id(session, request->inputs[i], &fault);
        if (code == STATUS_LIMIT) /* it was never made, and that has been reported */
            continue;
        failure_unref(session_failure(session, &fault, "free", request->label, request->sequence));
    }
    return code;
}

static int submit_infer_several(struct binding *binding) {
    const struct op_request *request = binding->request;
    struct tensor_type types[OP_OUTPUTS_MAX];
    int code =
        op_infer(request->opcode, binding->types, request->n_inputs, &binding->attributes, types, &binding->fault);
    for (unsigned i = 0; i < binding->outputs.n && code == STATUS_OK; i++)
        binding->outputs.tensors[i]->type = types[i];
    return code;
}

/* Checks in the order in which a client can use the answer: the operation, its inputs, a cause they carry, the rule. */
static int submit_check(struct binding *binding, struct cause *cause) {
    const struct op_request *request = binding->request;
    if (!binding->info)
        return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT, "%u is not an operation", request->opcode);
    if (request->further + 1 != binding->info->n_outputs)
        return fault_set(&binding->fault, STATUS_INVALID_ARGUMENT, "%s has %u outputs, not %u", binding->info->name,
                         binding->info->n_outputs, request->further + 1);
    int code = submit_lookup(binding, cause);
    if (code != STATUS_OK)
        return code;
    if (submit_cause(binding, cause))
        return (int)cause->failure->code;
    binding->stream = session_find_stream(binding->session, request->stream, &binding->fault);
    if (!binding->stream)
        return (int)binding->fault.code;
    if (binding->outputs.n > 1)
        return submit_infer_several(binding);
    return op_infer(request->opcode, binding->types, request->n_inputs, &binding->attributes, &binding->output->type,
                    &binding->fault);
}

void session_end_operation(struct session *session, struct stream *stream, uint64_t before) {
    if (stream && stream->enqueued != before) {
        stream_end_operation(stream);
        return;
    }
    session->ops_ended++;
    session->engine->ops_ended++;
}

/* With all outputs bound. */
static int submit_operation(struct binding *binding, struct cause *cause) {
    const struct op_request *request = binding->request;
    struct session *session = binding->session;
    binding->output = binding->outputs.tensors[0];
    int code = submit_check(binding, cause);
    if (code != STATUS_OK) {
        session_end_operation(session, NULL, 0);
        return code;
    }
    uint64_t before = binding->stream->enqueued;
    stream_begin_operation(binding->stream, request->label, request->sequence);
    code = bind_operation(binding);
    stream_begin_operation(binding->stream, NULL, 0);
    if (session_put_off(session, code))
        return STATUS_AGAIN;
    session_end_operation(session, code == STATUS_OK ? binding->stream : NULL, before);
    return code;
}

enum { SUBMIT_FEW = 8 }; /* inputs, for which there is room on the stack */

/* With room for more of them. */
static __attribute__((noinline)) int submit_many(struct binding *binding, struct cause *cause) {
    unsigned n = binding->request->n_inputs;
    void **room = malloc(2 * (size_t)n * sizeof *room);
    if (!room) {
        session_end_operation(binding->session, NULL, 0);
        return fault_set(&binding->fault, STATUS_NO_HOST_MEMORY, "no host memory for %u inputs", n);
    }
    binding->inputs = (struct tensor **)room;
    binding->types = (const struct tensor_type **)(room + n);
    int code = submit_operation(binding, cause);
    free(room);
    return code;
}

int session_submit(struct session *session, const struct op_request *request) {
    uint64_t last_id = session->last_id;
    session->engine->refused = NULL;
    session_label(session, request->label);
    if (request->opcode == OP_FREE) {
        session_end_operation(session, NULL, 0);
        return submit_free(session, request);
    }
    struct tensor *inputs[SUBMIT_FEW];
    const struct tensor_type *types[SUBMIT_FEW];
    struct binding binding;
    struct cause cause = {0};
    binding.inputs = inputs;
    binding.types = types;
    binding.session = session;
    binding.engine = session->engine;
    binding.request = request;
    binding.info = op_info(request->opcode);
    binding.attributes = (struct op_attributes){request->ints, request->floats, request->n_ints, request->n_floats};
    binding.check = NULL;
    binding.outputs.first = request->output;
    binding.outputs.n = request->further < OP_OUTPUTS_MAX ? 1 + request->further : OP_OUTPUTS_MAX;
    int code = outputs_bind(session, &binding.outputs, &binding.fault);
    if (code == STATUS_OK)
        code = request->n_inputs <= SUBMIT_FEW ? submit_operation(&binding, &cause) : submit_many(&binding, &cause);
    else if (session_put_off(session, code))
        code = STATUS_AGAIN;
    else
        session_end_operation(session, NULL, 0);
    if (code == STATUS_AGAIN) {
        outputs_take_back(session, &binding.outputs, last_id);
        return code;
    }
    if (code != STATUS_OK) {
        cause = cause.failure ? cause_ref(cause) : submit_refusal(session, request, &binding.fault);
        code = (int)cause.failure->code;
        outputs_fail(session, &binding.outputs, cause);
    }
    if (request->consume || request->consume_more)
        submit_consume(session, request);
    return code;
}

/* ---- figures ---- */

static uint64_t stream_queued(const struct stream *stream) {
    return stream->enqueued - atomic_load_explicit(&stream->completed, memory_order_acquire);
}

uint64_t session_queued(const struct session *session) {
    uint64_t queued = stream_queued(session->stream);
    for (uint32_t i = 0; i < session->n_streams; i++)
        queued += stream_queued(session->streams[i].stream);
    return queued;
}

static void session_stats_operations(const struct session *session, struct session_stats *stats) {
    stats->ops_done = session->ops_ended + stream_done(session->stream);
    stats->ops_queued = stream_operations(session->stream);
    for (uint32_t i = 0; i < session->n_streams; i++) {
        stats->ops_done += stream_done(session->streams[i].stream);
        stats->ops_queued += stream_operations(session->streams[i].stream);
    }
}

static void session_stats_time(const struct session *session, struct session_stats *stats) {
    struct engine *engine = session->engine;
    stats->device_ns = session->device_ns_ended;
    pthread_mutex_lock(&engine->lock);
    uint64_t now = engine_clock();
    stats->device_ns += engine_stream_time(engine, session->stream, now);
    for (uint32_t i = 0; i < session->n_streams; i++)
        stats->device_ns += engine_stream_time(engine, session->streams[i].stream, now);
    for (int i = 0; i < TRANSFER_STREAMS; i++)
        if (session->transfers[i])
            stats->device_ns += engine_stream_time(engine, session->transfers[i], now);
    pthread_mutex_unlock(&engine->lock);
}

void session_stats(struct session *session, struct session_stats *stats) {
    memset(stats, 0, sizeof *stats);
    stats->tensors = session->tensors.count;
    stats->live = session->live;
    stats->peak = session->peak;
    stats->host = host_bytes(session);
    session_stats_operations(session, stats);
    session_stats_time(session, stats);
    memcpy(stats->failures, session->failures, sizeof stats->failures);
    snprintf(stats->last_failure, sizeof stats->last_failure, "%s", session->last_failure);
    snprintf(stats->label, sizeof stats->label, "%s", session->label);
    stats->allow_tf32 = session->limits.allow_tf32;
}
