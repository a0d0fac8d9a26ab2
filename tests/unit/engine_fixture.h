/* An engine on a null device with one session, and short words for what tests do with it. Include once in a program. */
#pragma once

#include <criterion/criterion.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>

#include "engine/device/clock.h"
#include "engine/engine_impl.h"
#include "engine/memory/tenant.h"
#include "tests/stand_ins/null_device.h"
#include "tests/unit/requests.h"

static struct null_device device;
static struct engine *engine;
static struct session *session;
static uint64_t sequence;

static const struct session_limits limits = {.tensors = 100000, .streams = 16};

static inline void open_limited(uint64_t memory, const struct session_limits *given) {
    struct fault fault;
    sequence = 0;
    null_device_init(&device, memory);
    cr_assert_eq(engine_create(&device.device, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), given, &session, &fault), STATUS_OK);
}

static inline void open_engine(uint64_t memory) {
    open_limited(memory, &limits);
}

static inline void close_engine(void) {
    session_destroy(session);
    engine_destroy(engine);
    cr_assert_eq(device.memory_reserved, 0, "the device still has %llu bytes out",
                 (unsigned long long)device.memory_reserved);
}

static inline int submit_in(struct session *in, struct op_request request) {
    request.sequence = ++sequence;
    return session_submit(in, &request);
}

static inline int full_of(struct session *in, enum dtype dtype, uint64_t id, int64_t elements, uint32_t stream) {
    return submit_in(in, REQUEST_FULL(dtype, elements, 0, .output = id, .stream = stream));
}

static inline int full(struct session *in, uint64_t id, int64_t elements, uint32_t stream) {
    return full_of(in, DTYPE_F32, id, elements, stream);
}

static inline int apply(unsigned opcode, uint64_t id, unsigned n_inputs, const uint64_t *inputs, unsigned n_ints,
                        const int64_t *ints, uint16_t consume, uint32_t stream) {
    return submit_in(session, (struct op_request){.opcode = opcode, .n_inputs = n_inputs, .inputs = inputs,
                                                  .n_ints = n_ints, .ints = ints, .output = id, .consume = consume,
                                                  .stream = stream});
}

static inline int binary(uint64_t id, uint64_t a, uint64_t b, uint16_t consume, uint32_t stream) {
    return apply(OP_ADD, id, 2, (const uint64_t[]){a, b}, 0, NULL, consume, stream);
}

static inline int unary(unsigned opcode, uint64_t id, uint64_t x, uint32_t stream) {
    return apply(opcode, id, 1, &x, 0, NULL, 0, stream);
}

static inline int release(uint64_t id) {
    return apply(OP_FREE, 0, 1, &id, 0, NULL, 0, 0);
}

static inline void open_stream(uint32_t number) {
    struct fault fault;
    cr_assert_eq(session_stream_open(session, number, 0, &fault), STATUS_OK);
}

static inline void close_stream(uint32_t number) {
    struct fault fault;
    cr_assert_eq(session_stream_close(session, number, &fault), STATUS_OK);
}

/* ---- answers ---- */

struct answer {
    struct wait wait;
    struct fetch fetch;
    int times, code;
};

static inline void answer_wait(struct wait *wait, const struct failure *failure) {
    struct answer *answer = (struct answer *)((char *)wait - offsetof(struct answer, wait));
    answer->times++;
    answer->code = failure ? (int)failure->code : STATUS_OK;
}

static inline void answer_fetch(struct fetch *fetch, const struct failure *failure) {
    struct answer *answer = (struct answer *)((char *)fetch - offsetof(struct answer, fetch));
    answer->times++;
    answer->code = failure ? (int)failure->code : STATUS_OK;
}

static inline void ask_wait(struct answer *answer, uint64_t id) {
    *answer = (struct answer){.wait.done = answer_wait, .code = -1};
    session_wait(session, id, &answer->wait);
}

static inline int ask_fetch(struct answer *answer, uint64_t id) {
    *answer = (struct answer){.fetch.done = answer_fetch, .code = -1};
    return session_fetch(session, id, &answer->fetch);
}

/* Polls for as long as `times` is 0, for half a minute at least: a lost wake-up is a failure, not a hang. On a busy machine other threads may have
 * no turn for seconds. */
static inline bool settle(const int *times) {
    struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 30000 && !*times; i++) {
        engine_kick(engine);
        engine_poll(engine);
        if (!*times)
            nanosleep(&pause, NULL);
    }
    return *times == 1;
}

static inline int wait_for(uint64_t id) {
    struct answer answer;
    ask_wait(&answer, id);
    cr_assert(settle(&answer.times), "no answer for %llu", (unsigned long long)id);
    return answer.code;
}

/* Until the submitter has done what it can and has booked it, which is a moment after the completion of what it ran. */
static inline void await_rest(void) {
    struct order *order = &engine->order;
    for (bool rests = false; !rests; sched_yield()) {
        pthread_mutex_lock(&order->lock);
        rests = !order->submitting && !order->run.first;
        pthread_mutex_unlock(&order->lock);
    }
}

/* ---- uploads ---- */

static inline int upload_to(uint64_t id, int64_t rows, int64_t columns, uint32_t stream, bool waitable,
                            struct upload *upload) {
    struct tensor_type type = {.dtype = DTYPE_F32, .rank = 2, .shape = {rows, columns}};
    struct upload_request request = {.id = id, .type = &type, .stream = stream, .waitable = waitable,
                                     .sequence = ++sequence};
    return session_upload(session, &request, upload);
}

static inline void upload_fill(struct upload *upload, uint8_t byte) {
    uint8_t *data = upload_chunk(upload, 0, upload->bytes);
    cr_assert_not_null(data);
    memset(data, byte, (size_t)upload->bytes);
    upload_chunk_done(upload);
}

/* ---- a device that stops at a gate ---- */

struct gate {
    sem_t arrived, open;
    unsigned opcode;
    _Atomic bool armed;
};

static struct gate gate;

static inline int gate_hook(struct null_device *null, const struct launch *launch) {
    (void)null;
    if (launch->opcode == gate.opcode && atomic_exchange(&gate.armed, false)) {
        sem_post(&gate.arrived);
        sem_wait(&gate.open);
    }
    return 0;
}

/* Parks the submitter thread in an operation that is too heavy for the owner to run itself. */
static inline void park(uint64_t id) {
    sem_init(&gate.arrived, 0, 0);
    sem_init(&gate.open, 0, 0);
    gate.opcode = OP_FULL;
    atomic_store(&gate.armed, true);
    if (!device.hook)
        device.hook = gate_hook;
    cr_assert_eq(full_of(session, DTYPE_U8, id, 8 << 20, 0), STATUS_OK);
    engine_kick(engine);
    sem_wait(&gate.arrived);
}

static inline void unpark(void) {
    sem_post(&gate.open);
}
