/* The engine's rules on a device that computes nothing: order between streams, memory, cancellation, sticky faults. */
#include <criterion/criterion.h>
#include <semaphore.h>
#include <string.h>

#include "engine/engine_impl.h"
#include "engine/program/program.h"
#include "tests/stand_ins/null_device.h"

static struct null_device device;
static struct engine *engine;
static struct session *session;
static uint64_t sequence;

static const struct session_limits limits = {.tensors = 100000, .streams = 8};

static void open_engine(uint64_t memory) {
    struct fault fault;
    sequence = 0;
    null_device_init(&device, memory);
    cr_assert_eq(engine_create(&device.device, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
}

static void close_engine(void) {
    session_destroy(session);
    engine_destroy(engine);
    cr_assert_eq(device.memory_reserved, 0, "the device still has %llu bytes out",
                 (unsigned long long)device.memory_reserved);
}

static int full(struct session *in, uint64_t id, int64_t elements, uint32_t stream) {
    int64_t ints[3] = {DTYPE_F32, 0, elements};
    double value = 0;
    struct op_request request = {.opcode = OP_FULL,
                                 .n_ints = 3,
                                 .ints = ints,
                                 .n_floats = 1,
                                 .floats = &value,
                                 .output = id,
                                 .stream = stream,
                                 .sequence = ++sequence};
    return session_submit(in, &request);
}

static int binary(uint64_t id, uint64_t a, uint64_t b, uint16_t consume, uint32_t stream) {
    uint64_t inputs[2] = {a, b};
    struct op_request request = {.opcode = OP_ADD,
                                 .n_inputs = 2,
                                 .inputs = inputs,
                                 .output = id,
                                 .consume = consume,
                                 .stream = stream,
                                 .sequence = ++sequence};
    return session_submit(session, &request);
}

static int release(uint64_t id) {
    struct op_request request = {.opcode = OP_FREE, .n_inputs = 1, .inputs = &id, .sequence = ++sequence};
    return session_submit(session, &request);
}

struct answer {
    struct wait wait;
    bool done;
    int code;
};

static void answered(struct wait *wait, const struct failure *failure) {
    struct answer *answer = (struct answer *)wait;
    cr_assert(!answer->done, "answered twice");
    answer->done = true;
    answer->code = failure ? (int)failure->code : STATUS_OK;
}

static int wait_for(uint64_t id) {
    struct answer answer = {.wait.done = answered};
    session_wait(session, id, &answer.wait);
    engine_kick(engine);
    engine_poll(engine);
    while (!answer.done)
        engine_wait(engine);
    return answer.code;
}

/* ---- a device that stops at a gate ---- */

struct gate {
    sem_t arrived, open;
    unsigned opcode;
    _Atomic bool armed;
};

static int gate_hook(struct null_device *null, const struct launch *launch) {
    struct gate *gate = null->context;
    if (launch->opcode == gate->opcode && atomic_exchange(&gate->armed, false)) {
        sem_post(&gate->arrived);
        sem_wait(&gate->open);
    }
    return 0;
}

static void gate_init(struct gate *gate, unsigned opcode) {
    sem_init(&gate->arrived, 0, 0);
    sem_init(&gate->open, 0, 0);
    gate->opcode = opcode;
    atomic_init(&gate->armed, true);
    device.context = gate;
    device.hook = gate_hook;
}

/* An operation too heavy for the owner to run itself, so that the submitter thread meets the gate. */
static void park(struct gate *gate, uint64_t id) {
    gate_init(gate, OP_FULL);
    cr_assert_eq(full(session, id, 4 << 20, 0), STATUS_OK);
    engine_kick(engine);
    sem_wait(&gate->arrived);
}

static void unpark(struct gate *gate) {
    sem_post(&gate->open);
}

Test(engine_rules, freed_memory_is_reused_in_stream_order_at_once) {
    struct gate gate;
    open_engine(1 << 30);
    park(&gate, 1);
    cr_assert_eq(full(session, 2, 1000, 0), STATUS_OK);
    uint8_t *data = session_tensor(session, 2)->storage->data;
    cr_assert_eq(release(2), STATUS_OK);
    cr_assert_eq(full(session, 3, 1000, 0), STATUS_OK);
    cr_assert_eq(session_tensor(session, 3)->storage->data, data, "the same stream takes what it has just freed");
    unpark(&gate);
    cr_assert_eq(wait_for(3), STATUS_OK);
    close_engine();
}

Test(engine_rules, the_host_never_writes_memory_that_queued_work_uses) {
    struct gate gate;
    struct upload upload;
    struct tensor_type type = {.dtype = DTYPE_F32, .rank = 1, .shape = {1000}};
    open_engine(1 << 30);
    park(&gate, 1);
    cr_assert_eq(full(session, 2, 1000, 0), STATUS_OK);
    uint8_t *data = session_tensor(session, 2)->storage->data;
    cr_assert_eq(release(2), STATUS_OK);
    struct upload_request request = {.id = 3, .type = &type};
    cr_assert_eq(session_upload(session, &request, &upload), STATUS_OK);
    uint8_t *written = upload_chunk(&upload, 0, upload.bytes);
    cr_assert_neq(written, data);
    memset(written, 1, (size_t)upload.bytes);
    upload_chunk_done(&upload);
    upload_finish(&upload, NULL);
    unpark(&gate);
    cr_assert_eq(wait_for(3), STATUS_OK);
    close_engine();
}

Test(engine_rules, a_full_device_stages_uploads_until_its_memory_is_idle) {
    struct gate gate;
    struct upload upload;
    struct tensor_type type = {.dtype = DTYPE_F32, .rank = 1, .shape = {4 << 20}};
    open_engine(48 << 20);
    park(&gate, 1); /* 16 MiB */
    cr_assert_eq(full(session, 2, 4 << 20, 0), STATUS_OK);
    cr_assert_eq(full(session, 3, 3 << 20, 0), STATUS_OK);
    cr_assert_eq(release(2), STATUS_OK);
    struct upload_request request = {.id = 4, .type = &type};
    cr_assert_eq(session_upload(session, &request, &upload), STATUS_OK);
    cr_assert(upload.staged);
    uint8_t *written = upload_chunk(&upload, 0, upload.bytes);
    cr_assert_not_null(written);
    memset(written, 7, (size_t)upload.bytes);
    upload_chunk_done(&upload);
    upload_finish(&upload, NULL);
    unpark(&gate);
    cr_assert_eq(wait_for(4), STATUS_OK);
    close_engine();
}

static struct {
    unsigned order[16];
    _Atomic unsigned count;
} seen;

static int record_hook(struct null_device *null, const struct launch *launch) {
    struct gate *gate = null->context;
    if (gate && launch->opcode == gate->opcode && atomic_exchange(&gate->armed, false)) {
        sem_post(&gate->arrived);
        sem_wait(&gate->open);
    }
    seen.order[atomic_fetch_add(&seen.count, 1)] = launch->opcode;
    return 0;
}

Test(engine_rules, a_tensor_used_on_another_stream_is_waited_for) {
    struct fault fault;
    struct gate gate;
    open_engine(1 << 30);
    cr_assert_eq(session_stream_open(session, 5, 1, &fault), STATUS_OK);
    gate_init(&gate, OP_FULL);
    device.hook = record_hook;
    cr_assert_eq(full(session, 1, 4 << 20, 0), STATUS_OK);
    cr_assert_eq(full(session, 2, 4 << 20, 0), STATUS_OK);
    cr_assert_eq(binary(3, 1, 2, 0, 5), STATUS_OK); /* the other stream has the higher priority */
    engine_kick(engine);
    sem_wait(&gate.arrived);
    unpark(&gate);
    cr_assert_eq(wait_for(3), STATUS_OK);
    cr_assert_eq(seen.order[0], OP_FULL);
    cr_assert_eq(seen.order[1], OP_FULL);
    cr_assert_eq(seen.order[2], OP_ADD);
    close_engine();
}

Test(engine_rules, a_consumed_input_lends_its_memory) {
    open_engine(1 << 30);
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(full(session, 2, 1000, 0), STATUS_OK);
    uint8_t *data = session_tensor(session, 1)->storage->data;
    cr_assert_eq(binary(3, 1, 2, 1, 0), STATUS_OK);
    cr_assert_null(session_tensor(session, 1));
    cr_assert_eq(session_tensor(session, 3)->storage->data, data);
    cr_assert_eq(wait_for(3), STATUS_OK);
    close_engine();
}

Test(engine_rules, a_destroyed_session_skips_its_queue_and_frees_its_memory) {
    struct gate gate;
    struct fault fault;
    struct engine_stats stats;
    open_engine(1 << 30);
    struct session *other;
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    park(&gate, 1);
    for (uint64_t id = 2; id < 1000; id++)
        cr_assert_eq(full(session, id, 1000, 0), STATUS_OK);
    session_destroy(session);
    session = other;
    engine_stats(engine, &stats);
    cr_assert_eq(stats.memory_live, 0);
    cr_assert_eq(stats.sessions, 1);
    unpark(&gate);
    cr_assert_eq(full(other, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    cr_assert_eq(wait_for(0), STATUS_OK);
    cr_assert_leq(atomic_load(&device.launches), 2, "skipped launches ran");
    close_engine();
}

static int failing_hook(struct null_device *null, const struct launch *launch) {
    (void)null;
    return launch->opcode == OP_ADD ? -1 : 0;
}

Test(engine_rules, a_sticky_fault_fails_all_that_is_pending_and_to_come) {
    struct fault fault;
    open_engine(1 << 30);
    device.hook = failing_hook;
    cr_assert_eq(full(session, 1, 1000, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    cr_assert_eq(engine_fault(engine, &fault), STATUS_OK);
    cr_assert_eq(binary(2, 1, 1, 0, 0), STATUS_OK);
    cr_assert_eq(wait_for(2), STATUS_DEVICE_LOST);
    cr_assert_eq(engine_fault(engine, &fault), STATUS_DEVICE_LOST);
    cr_assert_not_null(strstr(fault.message, "told to fail"));
    cr_assert_eq(wait_for(1), STATUS_DEVICE_LOST);
    close_engine();
}

Test(engine_rules, a_missing_kernel_poisons_its_result) {
    open_engine(1 << 30);
    int64_t ints[3] = {DTYPE_F64, 0, 4};
    double value = 1;
    struct op_request request = {
        .opcode = OP_FULL, .n_ints = 3, .ints = ints, .n_floats = 1, .floats = &value, .output = 1, .sequence = 1};
    cr_assert_eq(session_submit(session, &request), STATUS_UNSUPPORTED);
    cr_assert_eq(wait_for(1), STATUS_UNSUPPORTED);
    close_engine();
}

Test(engine_rules, a_refusal_names_the_device_the_operation_and_the_reason) {
    struct fault fault;
    open_engine(1 << 30);
    cr_assert_eq(device_has_kernel(&device.device, OP_ADD, DTYPE_F32, &fault), STATUS_OK);
    cr_assert_eq(device_has_kernel(&device.device, OP_RESHAPE, DTYPE_F64, &fault), STATUS_OK, "the engine's own");
    cr_assert_eq(device_has_kernel(&device.device, OP_STACK, DTYPE_F64, &fault), STATUS_OK, "made of copies");
    cr_assert_eq(device_has_kernel(&device.device, OP_ADD, DTYPE_F64, &fault), STATUS_UNSUPPORTED);
    cr_assert_str_eq(fault.message, "a null device has no kernel for add of f64");
    cr_assert_eq(device_has_kernel(&device.device, OP_ARGMIN, DTYPE_F32, &fault), STATUS_UNSUPPORTED);
    cr_assert_str_eq(fault.message, "a null device has no argmin: it was never taught to");
    cr_assert_eq(full(session, 1, 4, 0), STATUS_OK);
    struct op_request request = {.opcode = OP_ARGMIN,
                                 .n_inputs = 1,
                                 .inputs = (const uint64_t[]){1},
                                 .n_ints = 1,
                                 .ints = (const int64_t[]){0},
                                 .output = 2,
                                 .sequence = 2};
    cr_assert_eq(session_submit(session, &request), STATUS_UNSUPPORTED);
    cr_assert_eq(wait_for(2), STATUS_UNSUPPORTED);
    close_engine();
}

Test(engine_rules, memory_that_is_only_busy_is_waited_for_rather_than_refused) {
    struct gate gate;
    open_engine(32 << 20);
    park(&gate, 1); /* 16 of 32 MiB */
    for (uint64_t id = 2; id < 50; id++) {
        cr_assert_eq(full(session, id, 3 << 20, 0), STATUS_OK, "tensor %d", (int)id);
        cr_assert_eq(release(id), STATUS_OK);
    }
    cr_assert_eq(full(session, 50, 5 << 20, 0), STATUS_OUT_OF_MEMORY);
    cr_assert_eq(wait_for(50), STATUS_OUT_OF_MEMORY);
    unpark(&gate);
    cr_assert_eq(wait_for(0), STATUS_OK);
    close_engine();
}

Test(engine_rules, room_is_told_once_when_the_queue_has_drained) {
    struct gate gate;
    open_engine(1 << 30);
    park(&gate, 1);
    for (uint64_t id = 2; id < 500; id++)
        cr_assert_eq(full(session, id, 10, 0), STATUS_OK);
    static int told;
    extern void room_told(void *owner);
    session_notify_drained(session, 100, room_told, &told);
    engine_kick(engine);
    engine_poll(engine);
    cr_assert_eq(told, 0);
    unpark(&gate);
    while (!told)
        engine_wait(engine);
    cr_assert_leq(session_queued(session), 100);
    cr_assert_eq(wait_for(0), STATUS_OK);
    cr_assert_eq(told, 1);
    close_engine();
}

void room_told(void *owner);
void room_told(void *owner) {
    (*(int *)owner)++;
}

Test(engine_rules, random_frees_and_allocations_leave_nothing_behind) {
    open_engine(256 << 20);
    uint64_t live[64] = {0}, id = 0;
    uint32_t random = 1;
    for (int i = 0; i < 20000; i++) {
        random = random * 1664525 + 1013904223;
        unsigned slot = (random >> 8) % 64;
        if (live[slot])
            cr_assert_eq(release(live[slot]), STATUS_OK);
        int64_t elements = 1 + (random >> 4) % (i % 50 ? 5000 : 800000);
        live[slot] = ++id;
        cr_assert_eq(full(session, id, elements, 0), STATUS_OK, "step %d", i);
        if (i % 128 == 0) {
            engine_kick(engine);
            engine_poll(engine);
        }
    }
    cr_assert_eq(wait_for(0), STATUS_OK);
    for (unsigned slot = 0; slot < 64; slot++)
        if (live[slot])
            cr_assert_eq(release(live[slot]), STATUS_OK);
    struct engine_stats stats;
    engine_stats(engine, &stats);
    cr_assert_eq(stats.memory_live, 0);
    cr_assert_gt(stats.memory_peak, 0);
    pool_trim(&engine->memory.pool, 0);
    cr_assert_eq(device.memory_reserved, 0, "idle storage was not merged");
    close_engine();
}
