/* What a client has in flight is bounded: operations of a batch, host memory of what is queued, replies that wait. */
#include <semaphore.h>

#include "engine/session/host.h"
#include "proto/wire/batch.h"
#include "tests/unit/service_fixture.h"

static sem_t gate;

/* The first launch runs until the gate is opened. */
static int wait_for_gate(struct null_device *null, const struct launch *launch) {
    (void)launch;
    if (atomic_load(&null->launches) <= 1) {
        sem_wait(&gate);
        sem_post(&gate);
    }
    return 0;
}

/* A batch with tensor 1, and operations that join it with itself: each has a launch for each of its inputs. */
static void send_joins(unsigned joins, unsigned inputs) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    uint64_t *heads = malloc((joins + 1) * sizeof *heads), *ids = malloc((size_t)joins * inputs * sizeof *ids);
    int64_t *ints = calloc(joins + 3, sizeof *ints);
    heads[0] = batch_head(OP_FULL, 0, 3, 1, 0, 0);
    memcpy(ints, (const int64_t[]){DTYPE_U8, 0, 1}, 3 * sizeof *ints);
    for (unsigned i = 1; i <= joins; i++)
        heads[i] = batch_head(OP_CONCAT, inputs, 1, 0, 0, 0);
    for (unsigned i = 0; i < joins * inputs; i++)
        ids[i] = 1;
    batch.first_sequence = batch.first_output = 1;
    batch.n_heads = joins + 1;
    batch.n_inputs = (size_t)joins * inputs;
    batch.n_ints = joins + 3;
    batch.n_floats = 1;
    batch.heads = heads;
    batch.inputs = ids;
    batch.ints = ints;
    batch.floats = (double[]){0};
    send_message(FRAME_BATCH, 0, &batch.base);
    free(heads);
    free(ids);
    free(ints);
}

/* As if a turn had time for all of them. */
static void until_it_waits(void) {
    look_ns = 1;
    for (unsigned turns = 0; !connection->hold.room && turns < TURNS_MAX; turns++)
        turn();
    cr_assert(connection->hold.room);
}

/* A batch whose operations have many launches each. The client's limit holds within it, and it continues when there is room. */
Test(service_room, a_batch_waits_where_much_is_in_flight) {
    enum { LIMIT = 2000, JOINS = 200, INPUTS = 100, AT_ONCE = 1000 };
    static const Tensord__Sync sync = TENSORD__SYNC__INIT;
    struct limits limits = {0};
    uint64_t most = 0;
    char words[256];
    limits_init(&limits);
    limits.session_operations = LIMIT;
    open_service(&limits);
    sem_init(&gate, 0, 0);
    device.hook = wait_for_gate;
    open_client();
    send_joins(JOINS, INPUTS);
    until_it_waits();
    most = session_queued(connection->session);
    sem_post(&gate);
    cr_assert_gt(most, LIMIT);
    cr_assert_leq(most, LIMIT + AT_ONCE, "%lu operations in flight", most);
    cr_assert_lt(connection->operations, JOINS, "the rest of the batch waits");
    for (unsigned turns = 0; connection->operations <= JOINS && turns < TURNS_MAX; turns++) {
        turn();
        sched_yield();
        most = session_queued(connection->session) > most ? session_queued(connection->session) : most;
    }
    cr_assert_leq(most, LIMIT + AT_ONCE, "%lu operations in flight", most);
    send_message(FRAME_SYNC, 5, &sync.base);
    cr_assert_eq(receive_done(5, words), STATUS_OK, "%s", words);
    cr_assert_geq(atomic_load(&device.launches), JOINS * INPUTS, "each input had its launch");
    close_service();
}

/* Where the host memory is full of what is queued, the rest of a batch is not refused for it: it waits. */
Test(service_room, a_batch_waits_where_what_is_queued_fills_host_memory) {
    enum { JOINS = 400, INPUTS = 100, HOST = 2 << 20 };
    static const Tensord__Sync sync = TENSORD__SYNC__INIT;
    struct limits limits = {0};
    char words[256];
    limits_init(&limits);
    limits.session_host_bytes = HOST;
    open_service(&limits);
    sem_init(&gate, 0, 0);
    device.hook = wait_for_gate;
    open_client();
    send_joins(JOINS, INPUTS);
    until_it_waits();
    cr_assert_lt(connection->operations, JOINS, "the rest of the batch waits");
    cr_assert_leq(host_bytes(connection->session), HOST + HOST / 8);
    sem_post(&gate);
    for (unsigned turns = 0; connection->operations <= JOINS && turns < TURNS_MAX; turns++) {
        turn();
        sched_yield();
    }
    send_message(FRAME_SYNC, 5, &sync.base);
    cr_assert_eq(receive_done(5, words), STATUS_OK, "%s", words);
    cr_assert_geq(atomic_load(&device.launches), JOINS * INPUTS, "nothing was refused");
    close_service();
}

/* Replies that wait are host memory of the session, as they are seen in the status. */
Test(service_room, replies_that_wait_are_in_the_account_of_host_memory) {
    enum { MANY = 4000, HOST = 2 << 20 };
    Tensord__Wait wait = TENSORD__WAIT__INIT;
    struct limits limits = {0};
    char words[256];
    limits_init(&limits);
    limits.session_host_bytes = HOST;
    open_service(&limits);
    sem_init(&gate, 0, 0);
    device.hook = wait_for_gate;
    open_client();
    uint64_t before = host_bytes(connection->session), sent = 0;
    send_joins(10, 100); /* more than the loop would launch itself */
    wait.id = 1;
    for (; !connection->hold.output && sent < MANY; turn())
        send_message(FRAME_WAIT, ++sent, &wait.base);
    cr_assert(connection->hold.output, "%lu requests wait, and more would be read", sent);
    cr_assert_geq(host_bytes(connection->session), before + connection->out.cost);
    cr_assert_leq(host_bytes(connection->session), HOST + (64 << 10));
    sem_post(&gate);
    for (uint64_t i = 1; i <= sent; i++)
        cr_assert_eq(receive_done(i, words), STATUS_OK, "%s", words);
    /* Tensor 1 was there after one launch; what the others have queued is in the account until they have run. */
    for (unsigned turns = 0; (connection->out.cost || session_queued(connection->session)) && turns < TURNS_MAX; turns++) {
        turn();
        sched_yield();
    }
    cr_assert_leq(host_bytes(connection->session), before + (128 << 10), "they have left");
    close_service();
}

/* The value of a tensor is no host memory, also where its fetch fails before it comes. */
Test(service_room, a_fetch_that_fails_leaves_no_value_in_the_account) {
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    struct limits limits = {0};
    struct fault fault;
    limits_init(&limits);
    open_service(&limits);
    sem_init(&gate, 0, 0);
    device.hook = wait_for_gate;
    open_client();
    send_joins(10, 100);
    fetch.id = 5;
    send_message(FRAME_FETCH, 1, &fetch.base);
    for (unsigned turns = 0; !connection->out.pending && turns < TURNS_MAX; turns++)
        turn();
    cr_assert(connection->out.pending && connection->out.values);
    fault_set(&fault, STATUS_CANCELLED, "the session was ended");
    pending_reply_fail(connection, &fault);
    cr_assert_leq(connection->out.values, connection->out.cost);
    for (unsigned turns = 0; connection->out.cost && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_eq(connection->out.values, 0);
    sem_post(&gate);
    close_service();
}
