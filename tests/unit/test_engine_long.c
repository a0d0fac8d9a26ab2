/* Operations that take long. On a CPU device others go on beside them, and they are stopped when nobody wants them or they
 * take too long; what has been left and continued comes out as what has not. Elsewhere they are refused. */
#include "tests/unit/engine_fixture.h"

#include "engine/device/device_impl.h"
#include "engine/watch/trace.h"

enum { GIANT = 40 }; /* the logarithm of elements whose sum takes a quarter of an hour at least */

static struct tenant *tenant;
static struct session *other;
static bool measures; /* the device is to measure its rates */

static void open_cpu(uint64_t operation_ns) {
    struct fault fault;
    struct device *cpu;
    struct tenant_limits of_tenant = {.operation_ns = operation_ns};
    sequence = 0;
    cr_assert_eq(device_open("cpu",
                             &(struct device_options){.memory_total = 512 << 20, .threads = 2, .measure = measures},
                             &cpu, &fault),
                 STATUS_OK);
    cr_assert_eq(engine_create(cpu, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(tenant_create(engine_memory(engine), "somebody", &of_tenant, &tenant, &fault), STATUS_OK);
    struct session_limits mine = limits;
    mine.tenant = tenant;
    cr_assert_eq(session_create(engine_sessions(engine), &mine, &session, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &mine, &other, &fault), STATUS_OK);
}

static void close_cpu(void) {
    session_destroy(session);
    session_destroy(other);
    tenant_destroy(tenant);
    engine_destroy(engine);
}

/* Tensor `id` of this shape, of ones that take four bytes in all. */
static void ones(uint64_t id, enum dtype dtype, int rank, const int64_t *shape) {
    int64_t ints[3] = {dtype, 1, 1};
    double one = 1;
    uint64_t scalar = id - 1;
    cr_assert_eq(
        submit_in(session,
                  (struct op_request){
                      .opcode = OP_FULL, .n_ints = 3, .ints = ints, .n_floats = 1, .floats = &one, .output = scalar}),
        STATUS_OK);
    cr_assert_eq(submit_in(session, (struct op_request){.opcode = OP_BROADCAST_TO,
                                                        .n_inputs = 1,
                                                        .inputs = &scalar,
                                                        .n_ints = (unsigned)rank,
                                                        .ints = shape,
                                                        .output = id}),
                 STATUS_OK);
}

static const struct giant {
    const char *name;
    unsigned opcode;
    enum dtype dtype;
    int rank;
    int64_t shape[4], second[4]; /* of the inputs; 0: there is no second one */
    int n_ints;
    int64_t ints[16];
    unsigned further;
} giants[] = {
    {"whole sum", OP_SUM, DTYPE_F32, 1, {INT64_C(1) << GIANT}, {0}, 1, {0}},
    {"few outputs", OP_PROD, DTYPE_F64, 2, {3, INT64_C(1) << GIANT}, {0}, 2, {0, 1}},
    {"down", OP_MAX, DTYPE_I32, 2, {INT64_C(1) << 32, 300}, {0}, 2, {0, 0}},
    {"short runs", OP_ALL, DTYPE_BOOL, 3, {INT64_C(1) << (GIANT - 2), 1, 2}, {0}, 4, {0, 0, 1, 2}},
    {"positions", OP_ARGMAX, DTYPE_F16, 1, {INT64_C(1) << GIANT}, {0}, 2, {0, 0}},
    {"one long product", OP_MATMUL, DTYPE_F32, 2, {1, INT64_C(1) << 38}, {INT64_C(1) << 38, 1}},
    {"product of integers", OP_MATMUL, DTYPE_I8, 2, {2, INT64_C(1) << 38}, {INT64_C(1) << 38, 2}},
    {"product of halves", OP_MATMUL, DTYPE_BF16, 2, {70, INT64_C(1) << 30}, {INT64_C(1) << 30, 70}},
    /* An image takes seconds at least. */
    {"convolution", OP_CONV, DTYPE_F32, 4, {4, 64, 200, 200}, {32, 64, 100, 100}, 4, {1, 0, 0, 0}},
    {"convolution of one image", OP_CONV, DTYPE_F32, 4, {1, 64, 200, 200}, {32, 64, 100, 100}, 4, {1, 0, 0, 0}},
    {"convolution of f64", OP_CONV, DTYPE_F64, 4, {4, 16, 200, 200}, {64, 16, 100, 100}, 4, {1, 0, 0, 0}},
    {"convolution back",
     OP_CONV_GRAD_INPUT,
     DTYPE_F32,
     4,
     {4, 32, 101, 101},
     {32, 64, 100, 100},
     9,
     {1, 0, 4, 4, 64, 200, 200, 0, 0}},
    {"convolution by weight",
     OP_CONV_GRAD_WEIGHT,
     DTYPE_F32,
     4,
     {4, 64, 200, 200},
     {4, 32, 101, 101},
     9,
     {1, 0, 4, 32, 64, 100, 100, 0, 0}},
    {"decomposition", OP_QR, DTYPE_F32, 2, {4000, 4000}, {0}, 1, {0}, 1},
};

static int start(const struct giant *giant, const char *label) {
    uint64_t inputs[2] = {2, 4};
    bool two = giant->second[0] > 0;
    ones(2, giant->dtype, giant->rank, giant->shape);
    if (two)
        ones(4, giant->dtype, giant->rank, giant->second);
    int code = submit_in(session, (struct op_request){.opcode = giant->opcode,
                                                      .n_inputs = two ? 2 : 1,
                                                      .inputs = inputs,
                                                      .n_ints = (unsigned)giant->n_ints,
                                                      .ints = giant->ints,
                                                      .further = giant->further,
                                                      .label = label,
                                                      .output = 5});
    engine_kick(engine);
    return code;
}

static bool begun(void) {
    for (int i = 0; i < 20000; i++) {
        if (atomic_load(&engine->order.pieces) > 0)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

Test(engine_long, small_operations_go_on_beside_a_giant_one, .timeout = 60) {
    open_cpu(0);
    cr_assert_eq(start(&giants[0], NULL), STATUS_OK);
    cr_assert(begun());
    struct stream *busy = session->stream;
    uint64_t number = busy->enqueued;
    for (uint64_t id = 1; id <= 20; id++) {
        struct answer answer = {.wait.done = answer_wait, .code = -1};
        cr_assert_eq(full(other, id, 100, 0), STATUS_OK);
        session_wait(other, id, &answer.wait);
        cr_assert(settle(&answer.times), "operation %d", (int)id);
        cr_assert_eq(answer.code, STATUS_OK);
    }
    cr_assert_not(point_reached(busy, number));
    close_cpu();
}

Test(engine_long, operation_of_an_ended_session_stops, .timeout = 120) {
    for (size_t i = 0; i < sizeof giants / sizeof *giants; i++) {
        struct answer answer = {.wait.done = answer_wait, .code = -1};
        open_cpu(0);
        cr_assert_eq(start(&giants[i], NULL), STATUS_OK, "%s", giants[i].name);
        cr_assert(begun(), "%s", giants[i].name);
        struct stream *busy = session->stream;
        uint64_t number = busy->enqueued;
        session_destroy(session);
        session = NULL;
        for (int k = 0; k < 20000 && !point_reached(busy, number); k++)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        cr_assert(point_reached(busy, number), "%s", giants[i].name);
        cr_assert_eq(full(other, 1, 100, 0), STATUS_OK);
        session_wait(other, 1, &answer.wait);
        cr_assert(settle(&answer.times));
        close_cpu();
    }
}

/* ---- the limit of one operation's time ---- */

struct told {
    struct wait wait;
    int times;
    struct failure failure;
};

static void tell(struct wait *wait, const struct failure *failure) {
    struct told *told = (struct told *)wait;
    told->times++;
    if (failure)
        told->failure = *failure;
}

static void ask(struct told *told, uint64_t id) {
    *told = (struct told){.wait.done = tell};
    session_wait(session, id, &told->wait);
}

Test(engine_long, operation_that_takes_too_long_is_ended_alone, .timeout = 120) {
    for (size_t i = 0; i < sizeof giants / sizeof *giants; i++) {
        struct told told, after, beside;
        uint64_t five = 5;
        open_cpu(20 * 1000 * 1000);
        cr_assert_eq(start(&giants[i], "forward/norm"), STATUS_OK, "%s", giants[i].name);
        int code =
            submit_in(session, (struct op_request){.opcode = OP_COPY, .n_inputs = 1, .inputs = &five, .output = 7});
        cr_assert(code == STATUS_OK || code == STATUS_LIMIT); /* on a busy machine its input has failed by now */
        cr_assert_eq(full(session, 8, 100, 0), STATUS_OK);
        ask(&told, 5);
        ask(&after, 7);
        ask(&beside, 8);
        cr_assert(settle(&told.times) && settle(&after.times) && settle(&beside.times), "%s", giants[i].name);
        cr_assert_eq(told.failure.code, STATUS_LIMIT, "%s: %s", giants[i].name, told.failure.message);
        cr_assert(strstr(told.failure.message, "operation-time"), "%s", told.failure.message);
        cr_assert_str_eq(told.failure.operation, op_info(giants[i].opcode)->name);
        cr_assert_str_eq(told.failure.label, "forward/norm");
        cr_assert_eq(after.failure.code, STATUS_LIMIT);
        cr_assert_str_eq(after.failure.label, "forward/norm", "the first cause");
        cr_assert_eq(beside.failure.code, STATUS_OK);
        close_cpu();
    }
}

static uint64_t used_ns, most_ns; /* what a launch takes, and how long it might have */

static int launch_takes(struct device *cpu, const struct launch *launch, struct device_turn *turn,
                        struct device_begun **left, struct fault *fault) {
    (void)cpu, (void)launch, (void)left, (void)fault;
    most_ns = turn->most_ns;
    turn->used_ns = used_ns;
    return STATUS_OK;
}

static struct device_vtable taking;

static void launches_take(uint64_t ns) {
    taking = *engine->device->vtable;
    taking.launch_part = launch_takes;
    engine->device->vtable = &taking;
    used_ns = ns;
}

static void run_long(uint64_t id) {
    struct answer answer = {.wait.done = answer_wait, .code = -1};
    cr_assert_eq(full(session, id, 1 << 20, 0), STATUS_OK);
    session_wait(session, id, &answer.wait);
    cr_assert(settle(&answer.times));
    cr_assert_eq(answer.code, STATUS_OK);
}

Test(engine_long, time_of_an_operation_is_not_inherited_by_the_next_session, .timeout = 60) {
    static const uint64_t limit = 20 * 1000 * 1000;
    struct session_limits mine = limits;
    struct fault fault;
    open_cpu(limit);
    mine.tenant = tenant;
    launches_take(limit * 3 / 4);
    run_long(1);
    struct stream *before = session->stream;
    session_destroy(session);
    engine_poll(engine);
    cr_assert_eq(session_create(engine_sessions(engine), &mine, &session, &fault), STATUS_OK);
    cr_assert_eq(session->stream, before, "the stream is used again");
    sequence = 0;
    run_long(1);
    cr_assert_eq(most_ns, limit);
    close_cpu();
}

Test(engine_long, time_it_ran_is_that_which_the_device_has_worked, .timeout = 60) {
    static const uint64_t hour = UINT64_C(3600) * 1000 * 1000 * 1000;
    struct engine_stats stats = {0};
    open_cpu(0);
    launches_take(hour);
    run_long(1);
    for (int i = 0; i < 20000 && !stats.run_time.samples; i++) { /* booked a moment after the completion */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        engine_stats(engine, &stats);
    }
    cr_assert_eq(stats.run_time.sum_ns, hour);
    close_cpu();
}

/* ---- a device that can stop nothing ---- */

static void open_unstoppable(uint64_t operation_ns) {
    struct fault fault;
    struct tenant_limits of_tenant = {.operation_ns = operation_ns};
    struct session_limits mine = limits;
    sequence = 0;
    null_device_init(&device, 16 << 20);
    cr_assert_eq(engine_create(&device.device, &(struct engine_options){0}, &engine, &fault), STATUS_OK);
    cr_assert_eq(tenant_create(engine_memory(engine), "somebody", &of_tenant, &tenant, &fault), STATUS_OK);
    mine.tenant = tenant;
    cr_assert_eq(session_create(engine_sessions(engine), &mine, &session, &fault), STATUS_OK);
}

static void close_unstoppable(void) {
    session_destroy(session);
    session = NULL;
    tenant_destroy(tenant);
    close_engine();
}

Test(engine_long, where_nothing_can_be_stopped_what_would_take_too_long_is_refused, .timeout = 60) {
    struct told told;
    open_unstoppable(UINT64_C(60) * 1000 * 1000 * 1000);
    cr_assert_eq(start(&giants[0], "forward/norm"), STATUS_LIMIT);
    ask(&told, 5);
    cr_assert(settle(&told.times));
    cr_assert_eq(told.failure.code, STATUS_LIMIT);
    cr_assert_str_eq(told.failure.label, "forward/norm");
    cr_assert_str_eq(told.failure.message,
                     "the operation would take about 18.3 minutes; this device cannot stop one, and "
                     "none may take longer than 60 s (operation-time)");
    cr_assert_eq(full(session, 7, 100, 0), STATUS_OK);
    cr_assert_eq(wait_for(7), STATUS_OK);
    close_unstoppable();
}

Test(engine_long, without_the_limit_the_same_is_enqueued, .timeout = 60) {
    open_unstoppable(0);
    cr_assert_eq(start(&giants[0], NULL), STATUS_OK);
    cr_assert_eq(wait_for(5), STATUS_OK);
    close_unstoppable();
}

Test(engine_long, all_launches_of_an_operation_count_together, .timeout = 60) {
    static const uint64_t inputs[] = {1, 2, 3, 4};
    open_unstoppable(600 * 1000); /* a copy of 1 MiB is estimated to take 262 us */
    for (uint64_t id = 1; id <= 4; id++)
        cr_assert_eq(full_of(session, DTYPE_U8, id, 1 << 20, 0), STATUS_OK);
    cr_assert_eq(apply(OP_CONCAT, 5, 2, inputs, 1, (const int64_t[]){0}, 0, 0), STATUS_OK);
    cr_assert_eq(apply(OP_CONCAT, 6, 4, inputs, 1, (const int64_t[]){0}, 0, 0), STATUS_LIMIT);
    cr_assert_eq(apply(OP_CONCAT, 7, 2, inputs, 1, (const int64_t[]){0}, 0, 0), STATUS_OK, "an operation begins anew");
    close_unstoppable();
}

Test(engine_long, what_was_learned_from_others_refuses_nothing, .timeout = 60) {
    open_unstoppable(600 * 1000);
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++)
        atomic_store(&engine->order.cost.factors[opcode][DTYPE_U8], 256 * 250);
    cr_assert_eq(full_of(session, DTYPE_U8, 1, 1 << 20, 0), STATUS_OK);
    close_unstoppable();
}

/* ---- a device that works is never taken for one that does not ---- */

Test(engine_long, device_that_works_is_not_stalled, .timeout = 60) {
    static const uint64_t second = 1000 * 1000 * 1000;
    struct engine_stall stall;
    open_cpu(0);
    cr_assert_eq(start(&giants[0], "a"), STATUS_OK);
    cr_assert(begun());
    for (int i = 0; i < 50; i++) {
        uint64_t pieces = atomic_load(&engine->order.pieces);
        while (atomic_load(&engine->order.pieces) == pieces)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        engine->order.watch.looked_ns = clock_now() - second;
        cr_assert_not(engine_stalled(engine, 5 * second, &stall));
        cr_assert_str_eq(stall.operation, "sum");
    }
    close_cpu();
}

/* ---- rates are measured where the device has nothing to do ---- */

Test(engine_long, device_that_works_is_not_kept_from_it_by_a_measurement, .timeout = 60) {
    struct engine_stall stall;
    measures = true;
    open_cpu(0);
    double usual = engine->order.cost.rates.bytes;
    cr_assert_eq(start(&giants[0], NULL), STATUS_OK);
    cr_assert(begun());
    for (int i = 0; i < 3; i++)
        engine_stalled(engine, 0, &stall);
    cr_assert_eq(engine->order.cost.rates.bytes, usual);
    struct stream *busy = session->stream;
    uint64_t number = busy->enqueued;
    session_destroy(session);
    session = NULL;
    while (!point_reached(busy, number))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    while (engine->order.cost.rates.bytes == usual)
        engine_stalled(engine, 0, &stall);
    close_cpu();
}

/* ---- left as often as can be ---- */

static const struct device_vtable *real;
static struct device_vtable hooked;
static int calls;

static int launch_and_leave(struct device *cpu, const struct launch *launch, struct device_turn *turn,
                            struct device_begun **left, struct fault *fault) {
    static const _Atomic bool wanted = true;
    struct device_turn brief = {.wanted = &wanted, .progress = turn->progress};
    int code = real->launch_part(cpu, launch, &brief, left, fault);
    turn->used_ns = brief.used_ns;
    calls += *left != NULL;
    return code;
}

static void leave_often(void) {
    real = engine->device->vtable;
    hooked = *real;
    hooked.launch_part = launch_and_leave;
    engine->device->vtable = &hooked;
}

static const struct left_row {
    const char *name;
    unsigned opcode, n_inputs;
    enum dtype dtype;
    int rank;
    int64_t shape[4], second[4];
    int n_ints;
    int64_t ints[16];
    int least; /* how often it is left, at least; 0: twice */
} left_rows[] = {
    {"add", OP_ADD, 2, DTYPE_F32, 1, {3000001}, {3000001}},
    {"exp of f64", OP_EXP, 1, DTYPE_F64, 1, {500001}},
    {"transposed copy", OP_MATRIX_TRANSPOSE, 1, DTYPE_F32, 2, {1501, 1701}},
    {"whole sum of f64", OP_SUM, 1, DTYPE_F64, 1, {3000001}, {0}, 1, {0}},
    {"product of f64", OP_PROD, 1, DTYPE_F64, 1, {3000001}, {0}, 1, {0}},
    {"sums of columns", OP_SUM, 1, DTYPE_F64, 2, {4001, 800}, {0}, 2, {0, 0}},
    {"sums of few rows", OP_SUM, 1, DTYPE_F32, 2, {3, 1500001}, {0}, 2, {0, 1}},
    {"positions", OP_ARGMAX, 1, DTYPE_F16, 1, {4000001}, {0}, 2, {0, 0}},
    {"softmax of a long row", OP_SOFTMAX, 1, DTYPE_F32, 2, {2, 400001}, {0}, 1, {1}},
    {"logarithm of softmax", OP_LOG_SOFTMAX, 1, DTYPE_F64, 2, {20001, 30}, {0}, 1, {1}},
    {"product", OP_MATMUL, 2, DTYPE_F32, 2, {1100, 900}, {900, 1300}},
    {"linear", OP_LINEAR, 2, DTYPE_F32, 2, {1100, 900}, {1300, 900}, 1, {OP_ACTIVATION_RELU}},
    {"thin product", OP_MATMUL, 2, DTYPE_F32, 2, {1, 9000000}, {9000000, 1}},
    {"product of halves without pieces", OP_MATMUL, 2, DTYPE_BF16, 2, {700, 1000}, {1000, 700}},
    {"product of halves", OP_MATMUL, 2, DTYPE_BF16, 2, {300, 9000}, {9000, 300}},
    {"product of f64", OP_MATMUL, 2, DTYPE_F64, 2, {600, 6000}, {6000, 600}},
    /* Each image of a convolution takes more than one call. */
    {"convolution", OP_CONV, 2, DTYPE_F32, 4, {4, 64, 130, 131}, {70, 64, 3, 3}, 6, {1, 0, 0, 2, 1, 1}, 7},
    {"convolution back",
     OP_CONV_GRAD_INPUT,
     2,
     DTYPE_F32,
     4,
     {4, 70, 130, 131},
     {70, 64, 3, 3},
     11,
     {1, 0, 4, 4, 64, 130, 131, 0, 2, 1, 1},
     7},
    {"convolution by weight",
     OP_CONV_GRAD_WEIGHT,
     2,
     DTYPE_F32,
     4,
     {4, 64, 130, 131},
     {4, 70, 130, 131},
     11,
     {1, 0, 4, 70, 64, 3, 3, 0, 2, 1, 1},
     3},
    {"convolution of one image of f64", OP_CONV, 2, DTYPE_F64, 4, {1, 16, 64, 65}, {5000, 16, 3, 3}, 4, {1, 0, 0, 0}},
    {"inverse", OP_INV, 1, DTYPE_F32, 2, {2000, 2000}, {0}, 0, {0}, 40},
};

/* `id` with numbers between -1 and 1 that depend on it. */
static void noise(uint64_t id, enum dtype dtype, int rank, const int64_t *shape) {
    int64_t ints[7] = {dtype, (int64_t)id, 0};
    memcpy(&ints[3], shape, (size_t)rank * sizeof *shape);
    double floats[2] = {-1, 1};
    cr_assert_eq(submit_in(session, (struct op_request){.opcode = OP_UNIFORM,
                                                        .n_ints = 3 + (unsigned)rank,
                                                        .ints = ints,
                                                        .n_floats = 2,
                                                        .floats = floats,
                                                        .output = id}),
                 STATUS_OK);
}

static uint64_t compute(const struct left_row *row, uint64_t id) {
    uint64_t inputs[2] = {1, 2};
    cr_assert_eq(submit_in(session, (struct op_request){.opcode = row->opcode,
                                                        .n_inputs = row->n_inputs,
                                                        .inputs = inputs,
                                                        .n_ints = (unsigned)row->n_ints,
                                                        .ints = row->ints,
                                                        .output = id}),
                 STATUS_OK, "%s", row->name);
    return id;
}

static void value(struct answer *answer, uint64_t id) {
    ask_fetch(answer, id);
    for (int tries = 0; !answer->times && tries < 50; tries++) /* a busy machine takes its time */
        settle(&answer->times);
    cr_assert_eq(answer->times, 1);
    cr_assert_eq(answer->code, STATUS_OK);
}

Test(engine_long, result_is_the_same_however_often_it_was_left, .timeout = 120) {
    for (size_t i = 0; i < sizeof left_rows / sizeof *left_rows; i++) {
        const struct left_row *row = &left_rows[i];
        struct answer whole, parts;
        open_cpu(0);
        noise(1, row->dtype, row->rank, row->shape);
        if (row->n_inputs == 2)
            noise(2, row->dtype, row->rank, row->second);
        value(&whole, compute(row, 3));
        leave_often();
        calls = 0;
        value(&parts, compute(row, 4));
        cr_assert_geq(calls, row->least > 0 ? row->least : 2, "%s was left %d times", row->name, calls);
        cr_assert_eq(whole.fetch.bytes, parts.fetch.bytes);
        cr_assert_eq(memcmp(whole.fetch.data, parts.fetch.data, (size_t)whole.fetch.bytes), 0, "%s", row->name);
        fetch_release(&whole.fetch);
        fetch_release(&parts.fetch);
        close_cpu();
    }
}

Test(engine_long, of_a_launch_that_was_left_the_first_piece_alone_was_in_the_queue, .timeout = 120) {
    struct trace_event event;
    struct fault fault;
    struct answer answer;
    open_cpu(0);
    noise(1, left_rows[0].dtype, left_rows[0].rank, left_rows[0].shape);
    noise(2, left_rows[0].dtype, left_rows[0].rank, left_rows[0].second);
    cr_assert_eq(wait_for(2), STATUS_OK);
    leave_often();
    calls = 0;
    cr_assert_eq(engine_trace_start(engine, NULL, 0, &fault), STATUS_OK);
    compute(&left_rows[0], 3);
    ask_wait(&answer, 3);
    cr_assert(settle(&answer.times));
    for (int piece = 0; piece <= calls; piece++) {
        cr_assert(trace_next(engine_trace(engine), &event), "piece %d of %d", piece, calls);
        cr_assert_eq(event.queued_ns != 0, piece == 0, "piece %d", piece);
    }
    cr_assert_gt(calls, 1);
    close_cpu();
}
