/* What a client may have the service do is done in turns of bounded time, by a clock that the test moves. */
#include <errno.h>
#include <search.h>
#include <semaphore.h>

#include "engine/session/host.h"
#include "proto/wire/batch.h"
#include "tests/unit/service_fixture.h"

static unsigned publishes_read, batches_read, definitions_read, lists_read;

ProtobufCMessage *__real_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data);
ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data);

ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data) {
    publishes_read += descriptor == &tensord__publish__descriptor;
    batches_read += descriptor == &tensord__batch__descriptor;
    definitions_read += descriptor == &tensord__program_define__descriptor;
    lists_read += descriptor == &tensord__list_names__descriptor;
    return __real_protobuf_c_message_unpack(descriptor, allocator, bytes, data);
}

static __compar_fn_t compare;
static unsigned compared;

static int compare_counted(const void *a, const void *b) {
    compared++;
    return compare(a, b);
}

void *__real_tfind(const void *key, void *const *root, __compar_fn_t function);
void *__wrap_tfind(const void *key, void *const *root, __compar_fn_t function);

void *__wrap_tfind(const void *key, void *const *root, __compar_fn_t function) {
    compare = function;
    return __real_tfind(key, root, compare_counted);
}

/* Until it is true, with so much time a turn that a look at the clock or two are all of it. */
#define TURNS_UNTIL(condition)                                                                                         \
    ({                                                                                                                 \
        unsigned turns_ = 0;                                                                                           \
        look_ns = SERVICE_TURN_NS;                                                                                     \
        for (; !(condition) && turns_ < TURNS_MAX; turns_++)                                                           \
            turn();                                                                                                    \
        look_ns = 1000;                                                                                                \
        cr_assert(condition, "never: " #condition);                                                                    \
        turns_;                                                                                                        \
    })

/* Names "n0", "n1" and so on for the tensors 1, 2 and so on. */
static void send_publish(uint64_t sequence, unsigned n) {
    Tensord__Publish publish = TENSORD__PUBLISH__INIT;
    uint64_t *ids = malloc(n * sizeof *ids);
    char **names = malloc(n * sizeof *names), (*texts)[16] = malloc(n * sizeof *texts);
    for (unsigned i = 0; i < n; i++) {
        ids[i] = i + 1;
        names[i] = texts[i];
        snprintf(texts[i], sizeof texts[i], "n%u", i);
    }
    publish.n_ids = publish.n_names = n;
    publish.ids = ids;
    publish.names = names;
    send_message(FRAME_PUBLISH, sequence, &publish.base);
    free(ids);
    free(names);
    free(texts);
}

Test(service_turns, a_publish_that_takes_many_turns_is_read_once) {
    enum { MANY = 2000 };
    unsigned turns = 0;
    char words[256];
    open_service(&(struct limits){.named_tensors = MANY, .session_tensors = MANY});
    open_client();
    make_tensors(MANY);
    look_ns = SERVICE_SHARE_NS / 2;
    send_publish(2, MANY);
    while (!publishes_read)
        turn();
    for (; connection->request.publishing && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_gt(turns, 10, "%u turns", turns);
    cr_assert_eq(publishes_read, 1, "%u times in %u turns", publishes_read, turns);
    cr_assert_eq(receive_done(2, words), STATUS_OK, "%s", words);
    cr_assert_eq(names_owner(&service.names, "uid:0")->count, MANY);
    close_service();
}

/* A batch that makes the tensors 1, 2 and so on. */
static void send_batch(unsigned n) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    uint64_t *heads = malloc(n * sizeof *heads);
    int64_t *ints = malloc(3 * n * sizeof *ints);
    double *floats = calloc(n, sizeof *floats);
    for (unsigned i = 0; i < n; i++) {
        heads[i] = (uint64_t)OP_FULL | UINT64_C(3) << 24 | UINT64_C(1) << 32;
        memcpy(&ints[3 * i], (const int64_t[]){DTYPE_U8, 0, 1}, 3 * sizeof *ints);
    }
    batch.first_sequence = batch.first_output = 1;
    batch.n_heads = batch.n_floats = n;
    batch.n_ints = 3 * n;
    batch.heads = heads;
    batch.ints = ints;
    batch.floats = floats;
    send_message(FRAME_BATCH, 0, &batch.base);
    free(heads);
    free(ints);
    free(floats);
}

Test(service_turns, a_batch_that_takes_many_turns_is_read_once) {
    enum { MANY = 2000 };
    unsigned turns = 0;
    open_service(&(struct limits){.session_tensors = MANY});
    open_client();
    look_ns = SERVICE_SHARE_NS / 2;
    send_batch(MANY);
    for (; connection->operations < MANY && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_gt(turns, 10, "%u turns", turns);
    cr_assert_eq(batches_read, 1, "%u times in %u turns", batches_read, turns);
    close_service();
}

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
Test(service_turns, a_batch_waits_where_much_is_in_flight) {
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
Test(service_turns, a_batch_waits_where_what_is_queued_fills_host_memory) {
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
Test(service_turns, replies_that_wait_are_in_the_account_of_host_memory) {
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
    for (unsigned turns = 0; connection->out.cost && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_leq(host_bytes(connection->session), before + (128 << 10), "they have left");
    close_service();
}

/* The value of a tensor is no host memory, also where its fetch fails before it comes. */
Test(service_turns, a_fetch_that_fails_leaves_no_value_in_the_account) {
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

/* What was parsed does not stay where another client's message has been parsed since. */
Test(service_turns, a_batch_is_read_again_after_messages_of_others) {
    enum { MANY = 2000 };
    const Tensord__Ping ping = TENSORD__PING__INIT;
    struct tensor_type type;
    uint8_t bytes[256];
    open_service(&(struct limits){.session_tensors = MANY});
    open_client();
    struct connection *first = connection;
    int first_client = client;
    open_client();
    int second_client = client;
    look_ns = SERVICE_SHARE_NS / 2;
    client = first_client;
    send_batch(MANY);
    for (unsigned turns = 0; !first->request.batch.begun && turns < TURNS_MAX; turns++)
        turn();
    cr_assert(first->request.batch.begun);
    for (uint64_t sequence = 2; first->request.batch.begun && sequence < 6; sequence++) {
        client = second_client;
        send_message(FRAME_PING, sequence, &ping.base);
        cr_assert_eq(receive_message(bytes, sizeof bytes).type, FRAME_PONG);
    }
    look_ns = 1000;
    for (unsigned turns = 0; first->operations < MANY && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_gt(batches_read, 1);
    cr_assert_eq(first->operations, MANY);
    for (uint64_t id = 1; id <= MANY; id++)
        cr_assert(session_type(first->session, id, &type) && type.dtype == DTYPE_U8, "%lu", (unsigned long)id);
    close(first_client);
    close_service();
}

/* What the daemon says of a RemoveName with this text. */
static void refuse_text(const char *text, size_t bytes, const char *words) {
    uint8_t frame[FRAME_HEADER_BYTES + 64] = {0}, reply[1024];
    struct frame_header header = {.type = FRAME_REMOVE_NAME, .message_bytes = (uint32_t)bytes + 2, .sequence = 2};
    frame_header_encode(&header, frame);
    frame[FRAME_HEADER_BYTES] = 1 << 3 | 2; /* field 1, a length follows */
    frame[FRAME_HEADER_BYTES + 1] = (uint8_t)bytes;
    memcpy(frame + FRAME_HEADER_BYTES + 2, text, bytes);
    open_client();
    cr_assert_eq(send(client, frame, FRAME_HEADER_BYTES + 2 + bytes, MSG_NOSIGNAL),
                 (ssize_t)(FRAME_HEADER_BYTES + 2 + bytes));
    header = receive_message(reply, sizeof reply);
    cr_assert_eq(header.type, FRAME_ERROR, "%s", frame_type_name(header.type));
    Tensord__Error *error = tensord__error__unpack(NULL, header.message_bytes, reply);
    cr_assert_str_eq(error->message, words);
    tensord__error__free_unpacked(error, NULL);
    close(client);
    client = -1;
}

Test(service_turns, a_text_with_a_nul_byte_is_refused_wherever_it_is) {
    open_service(&(struct limits){.named_tensors = 3});
    refuse_text("a\0b", 3, "REMOVE_NAME: a text with a NUL byte");
    refuse_text("\0ab", 3, "REMOVE_NAME: a text with a NUL byte");
    refuse_text("ab\0", 3, "REMOVE_NAME: a text with a NUL byte");
    refuse_text("\0", 1, "REMOVE_NAME: a text with a NUL byte");
    close_service();
}

Test(service_turns, a_publish_of_more_names_than_may_be_is_refused_at_once) {
    char words[256];
    open_service(&(struct limits){.named_tensors = 3});
    open_client();
    send_publish(2, 4); /* of tensors that are not there */
    cr_assert_eq(receive_done(2, words), STATUS_LIMIT, "%s", words);
    cr_assert_str_eq(words, "the limit of 3 named tensors is reached: 4 came in one Publish");
    close_service();
}

/* Values are checked, copied and put into order; only the last step has to be one. */
Test(service_turns, many_values_that_have_come_are_named_in_turns_and_at_once) {
    enum { MANY = 2000 };
    char words[256];
    open_service(&(struct limits){.named_tensors = MANY + 1, .session_tensors = MANY});
    open_client();
    make_tensors(MANY);
    for (unsigned round = 0; round < 2; round++) { /* new names, then the same again */
        send_publish(2 + round, MANY);
        TURNS_UNTIL(!TAILQ_EMPTY(&service.publishes));
        cr_assert_eq(names_owner(&service.names, "uid:0") == NULL, round == 0, "some are named before the others");
        cr_assert_gt(TURNS_UNTIL(TAILQ_EMPTY(&service.publishes)), 10);
        cr_assert_eq(receive_done(2 + round, words), STATUS_OK, "%s", words);
        const struct name_owner *owner = names_owner(&service.names, "uid:0");
        cr_assert_eq(owner->count, MANY);
        for (unsigned i = 1; i < MANY; i++)
            cr_assert_lt(strcmp(owner->entries[i - 1]->name, owner->entries[i]->name), 0);
    }
    close_service();
}

/* The client has so many names, with tensors of its own. */
static void open_with_names(unsigned n) {
    char words[256];
    open_service(&(struct limits){.named_tensors = n + 1, .session_tensors = n});
    open_client();
    make_tensors(n);
    send_publish(2, n);
    cr_assert_eq(receive_done(2, words), STATUS_OK, "%s", words);
}

/* Asks for many lists without waiting. Returns how many are made in one turn at most. */
static unsigned lists_in_a_turn(void) {
    enum { LISTS = 40 };
    const Tensord__ListNames list = TENSORD__LIST_NAMES__INIT;
    static uint8_t received[1 << 20];
    unsigned most = 0;
    for (uint64_t sequence = 3; sequence < 3 + LISTS; sequence++)
        send_message(FRAME_LIST_NAMES, sequence, &list.base);
    look_ns = SERVICE_TURN_NS;
    for (unsigned turns = 0; lists_read < LISTS && turns < TURNS_MAX; turns++) {
        unsigned before = lists_read;
        turn();
        most = lists_read - before > most ? lists_read - before : most;
        while (recv(client, received, sizeof received, MSG_DONTWAIT) > 0)
            continue;
    }
    look_ns = 1000;
    cr_assert_eq(lists_read, LISTS);
    return most;
}

Test(service_turns, after_a_list_of_many_names_the_next_one_waits_for_a_later_turn) {
    open_with_names(2000);
    unsigned most = lists_in_a_turn();
    cr_assert_leq(most, 3, "%u", most); /* one as it comes, and one for each of the two queues of those that wait */
    close_service();
}

Test(service_turns, short_lists_share_a_turn) {
    open_with_names(1);
    unsigned most = lists_in_a_turn();
    cr_assert_gt(most, 3, "%u", most);
    close_service();
}

/* The looks at the clock that a change takes, for which there is all time. */
#define LOOKS_OF(change)                                                                                               \
    ({                                                                                                                 \
        budget_begin(service.budget, BUDGET_UNLIMITED);                                                                \
        uint64_t looks_ = service.budget->looks;                                                                       \
        cr_assert_eq(change, STATUS_OK, "%s", fault.message);                                                          \
        service.budget->looks - looks_;                                                                                \
    })

Test(service_turns, changes_of_many_names_are_charged_to_the_turn) {
    enum { MANY = 2000 };
    struct names *names = &service.names;
    struct fault fault;
    open_with_names(MANY);
    service.limits.each.named_tensors = MANY;
    cr_assert_eq(LOOKS_OF(names_move(names, "uid:0", "n0", "uid:0", "m0", &fault)), 0);
    cr_assert_gt(LOOKS_OF(names_move(names, "uid:0", NULL, "uid:1", NULL, &fault)), 0);
    cr_assert_eq(names_owner(names, "uid:1")->count, MANY);
    cr_assert_gt(LOOKS_OF(names_remove(names, "uid:1", "m0", "n1", &fault)), 0);
    cr_assert_eq(LOOKS_OF(names_remove(names, "uid:1", "n2", "", &fault)), 0);
    cr_assert_gt(LOOKS_OF(names_remove_of(names, "uid:1", NULL, "", &fault)), 0);
    cr_assert_eq(names_owner(names, "uid:1")->count, 0);
    close_service();
}

Test(service_turns, a_client_may_go_while_its_values_are_being_named) {
    enum { MANY = 2000 };
    open_service(&(struct limits){.named_tensors = MANY, .session_tensors = MANY});
    open_client();
    make_tensors(MANY);
    send_publish(2, MANY);
    TURNS_UNTIL(!TAILQ_EMPTY(&service.publishes));
    close(client);
    client = -1;
    TURNS_UNTIL(!service.connections);
    TURNS_UNTIL(TAILQ_EMPTY(&service.publishes));
    close_service();
}

/* ---- uploads ---- */

static void send_upload(uint64_t id) {
    static uint64_t sequence;
    Tensord__Upload upload = TENSORD__UPLOAD__INIT;
    upload.dtype = DTYPE_U8;
    upload.n_shape = 1;
    upload.shape = &(int64_t){1};
    upload.id = id;
    upload.sequence = ++sequence;
    send_message(FRAME_UPLOAD, 0, &upload.base);
}

static void send_chunk(uint64_t id, uint8_t value) {
    Tensord__UploadChunk chunk = TENSORD__UPLOAD_CHUNK__INIT;
    chunk.id = id;
    send_payload(FRAME_UPLOAD_CHUNK, 0, &chunk.base, &value, 1);
}

/* The ids are such as a client may choose to make the search long. */
Test(service_turns, chunks_of_many_uploads_find_theirs_in_few_steps) {
    enum { MANY = 4096, BITS = 12 };
    open_service(&(struct limits){0});
    open_client();
    for (uint64_t i = 1; i <= MANY; i++)
        send_upload(i << 40);
    TURNS_UNTIL(connection->request.n_uploads == MANY);
    compared = 0;
    for (uint64_t i = 1; i <= MANY; i++)
        send_chunk(i << 40, 1);
    TURNS_UNTIL(connection->request.n_uploads == 0);
    cr_expect_lt(compared,
                 MANY * 2 * 2 * BITS); /* to find it, and to remove it; a balanced tree is at most twice as deep */
    cr_expect_null(connection->request.uploads_by_id);
    close_service();
}

Test(service_turns, chunks_of_an_id_that_was_uploaded_twice_are_for_the_newer_one_first) {
    open_service(&(struct limits){0});
    open_client();
    send_upload(1);
    send_upload(1); /* fails, and what comes is dropped */
    send_chunk(1, 1);
    TURNS_UNTIL(connection->request.n_uploads == 1);
    send_chunk(1, 1);
    TURNS_UNTIL(connection->request.n_uploads == 0);
    cr_expect_eq(connection->state, CONNECTION_OPEN);
    close_service();
}

/* ---- ends ---- */

enum { CROWD = 3000 };

static sem_t gate, arrived;

static int wait_at_gate(struct null_device *null, const struct launch *launch) {
    (void)null, (void)launch;
    sem_post(&arrived);
    sem_wait(&gate);
    return 0;
}

/* Tensor 1 is not there before the gate opens. It is so large that the submitter launches it, and not this thread. */
static void close_gate(void) {
    sem_init(&gate, 0, 0);
    sem_init(&arrived, 0, 0);
    device.hook = wait_at_gate;
    make_tensor(1, 8 << 20);
    engine_kick(service.engine);
    sem_wait(&arrived);
}

static void open_gate(void) {
    sem_post(&gate);
}

/* ---- names of several ---- */

/* All Publishes of one principal have their values at one time. */
Test(service_turns, names_of_one_principal_do_not_wait_for_all_of_another_one) {
    enum { MANY = 400, PUBLISHES = 20 };
    char words[256];
    unsigned left = 0;
    open_service(&(struct limits){.named_tensors = MANY, .session_tensors = MANY});
    open_client();
    struct connection *first = connection;
    int first_client = client;
    close_gate();
    device.hook = NULL;
    for (uint64_t id = 2; id <= MANY; id++)
        make_tensor(id, 1);
    engine_kick(service.engine);
    for (uint64_t sequence = 2; sequence < 2 + PUBLISHES; sequence++)
        send_publish(sequence, MANY);
    for (unsigned turns = 0; (publishes_read < PUBLISHES || first->request.publishing) && turns < TURNS_MAX; turns++)
        turn();
    snprintf(peer.principal.name, sizeof peer.principal.name, "uid:1");
    open_client();
    make_tensors(1);
    cr_assert(TAILQ_EMPTY(&service.publishes));
    open_gate();
    TURNS_UNTIL(!TAILQ_EMPTY(&service.publishes));
    send_publish(2, 1);
    TURNS_UNTIL(names_owner(&service.names, "uid:1") != NULL);
    for (const struct pending_reply *at = first->out.pending; at; at = at->next)
        left++;
    cr_assert_geq(left, PUBLISHES - 2, "%u of the other one's were left", left);
    cr_assert_eq(receive_done(2, words), STATUS_OK, "%s", words);
    close(first_client);
    close_service();
}

/* Requests that wait for tensor 1, so many that the connection has them all. */
static void ask_often(void) {
    Tensord__Wait wait = TENSORD__WAIT__INIT;
    Tensord__Ping ping = TENSORD__PING__INIT;
    uint8_t pong[256];
    wait.id = 1;
    for (uint64_t i = 0; i < CROWD; i++)
        send_message(FRAME_WAIT, 2 + i, &wait.base);
    send_message(FRAME_PING, 2 + CROWD, &ping.base);
    cr_assert_eq(receive_message(pong, sizeof pong).type, FRAME_PONG);
}

static void send_garbage(void) {
    uint8_t garbage[FRAME_HEADER_BYTES] = {0};
    cr_assert_eq(send(client, garbage, sizeof garbage, MSG_NOSIGNAL), sizeof garbage);
}

static void expect_last_words(void) {
    static uint8_t bytes[1 << 16];
    struct frame_header header = receive_message(bytes, sizeof bytes);
    cr_assert_eq(header.type, FRAME_ERROR, "%s", frame_type_name(header.type));
}

Test(service_turns, many_requests_of_a_client_that_breaks_the_protocol_are_dropped_in_turns) {
    open_service(&(struct limits){0});
    open_client();
    close_gate();
    ask_often();
    send_garbage();
    TURNS_UNTIL(connection->state != CONNECTION_OPEN);
    cr_assert_gt(TURNS_UNTIL(!connection->out.pending), 10);
    expect_last_words();
    open_gate();
    close_service();
}

Test(service_turns, many_uploads_of_a_connection_that_closes_are_dropped_in_turns) {
    open_service(&(struct limits){0});
    open_client();
    for (unsigned i = 1; i <= CROWD; i++)
        send_upload(i);
    TURNS_UNTIL(connection->request.n_uploads == CROWD);
    send_garbage();
    TURNS_UNTIL(connection->state == CONNECTION_CLOSING);
    expect_last_words(); /* before all of them have gone */
    cr_assert_gt(connection->request.n_uploads, 0);
    cr_assert_gt(TURNS_UNTIL(connection->state == CONNECTION_LINGER), 10);
    cr_assert_null(connection->session);
    close_service();
}

static void open_resumable(const struct limits *limits) {
    open_service(limits);
    open_connection();
    send_hello(true, false);
    receive_welcome();
}

Test(service_turns, many_requests_of_a_lost_connection_are_dropped_in_turns) {
    open_resumable(&(struct limits){.session_lease = 60000});
    close_gate();
    ask_often();
    close(client);
    TURNS_UNTIL(!connection->socket.poll);
    cr_assert_not_null(connection->session);
    cr_assert_gt(TURNS_UNTIL(!connection->end.unplugging), 10);
    cr_assert_null(connection->out.pending);
    client = -1;
    service_drain(&service); /* its lease is long */
    open_gate();
    close_service();
}

Test(service_turns, a_client_that_comes_back_meanwhile_is_not_told_of_what_it_had_asked_before) {
    uint8_t bytes[256];
    open_resumable(&(struct limits){.session_lease = 60000});
    close_gate();
    ask_often();
    struct connection *session = connection;
    int first = client;
    uint64_t number = welcomed.session;
    open_connection();
    send_hello(true, true);
    TURNS_UNTIL(session->end.unplugging);
    cr_assert_gt(TURNS_UNTIL(session->socket.poll), 10);
    cr_assert_null(session->out.pending);
    receive_welcome();
    cr_assert_eq(welcomed.session, number);
    open_gate();
    Tensord__Wait wait = TENSORD__WAIT__INIT;
    wait.id = 1;
    send_message(FRAME_WAIT, 7777, &wait.base);
    struct frame_header header = receive_message(bytes, sizeof bytes);
    cr_assert_eq(header.type, FRAME_DONE);
    cr_assert_eq(header.sequence, 7777);
    close(first);
    service_drain(&service);
    close_service();
}

/* Its client is not read any more when it says goodbye behind much else. */
Test(service_turns, a_goodbye_is_looked_for_in_turns) {
    enum { PINGS = (96 << 10) / FRAME_HEADER_BYTES };
    static uint8_t frames[(PINGS + 1) * FRAME_HEADER_BYTES];
    Tensord__Wait wait = TENSORD__WAIT__INIT;
    open_resumable(&(struct limits){.session_lease = 60000, .session_out_bytes = 1 << 16});
    close_gate();
    wait.id = 1;
    for (uint64_t i = 0; !connection->hold.output; i++) {
        send_message(FRAME_WAIT, 2 + i, &wait.base);
        turn();
    }
    for (unsigned i = 0; i <= PINGS; i++) {
        struct frame_header header = {.type = i < PINGS ? FRAME_PING : FRAME_GOODBYE, .sequence = i + 1};
        frame_header_encode(&header, frames + i * FRAME_HEADER_BYTES);
    }
    cr_assert_eq(send(client, frames, sizeof frames, MSG_NOSIGNAL), sizeof frames);
    close(client);
    TURNS_UNTIL(!connection->socket.poll);
    cr_assert_eq(service.connections, connection, "the goodbye has not been found yet");
    cr_assert(connection->lease.scan.on);
    cr_assert_geq(TURNS_UNTIL(!service.connections), 1);
    client = -1;
    open_gate();
    close_service();
}

/* ---- definitions of programs ---- */

enum { LONG = 4000, HOST_BYTES = 64 << 20 };

/* A program of `n` sums: of its parameter and a captured tensor, and then of the last two values. Every tenth is the same as the one before it. */
static void send_definition(uint64_t id, unsigned n, uint64_t captured) {
    Tensord__ProgramDefine define = TENSORD__PROGRAM_DEFINE__INIT;
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    uint64_t *heads = malloc(n * sizeof *heads), *inputs = malloc(2 * n * sizeof *inputs);
    for (unsigned i = 0; i < n; i++) {
        bool again = i % 10 == 9;
        heads[i] = batch_head(OP_ADD, 2, 0, 0, 0, 0);
        inputs[2 * i] = 1 + i - again;
        inputs[2 * i + 1] = 2 + i - again;
    }
    batch.n_heads = n;
    batch.heads = heads;
    batch.n_inputs = 2 * n;
    batch.inputs = inputs;
    define.program = id;
    define.n_parameters = 3;
    define.parameters = (int64_t[]){DTYPE_U8, 1, 1};
    define.operations = &batch;
    define.n_captures = 1;
    define.captures = &captured;
    define.n_outputs = 1;
    define.outputs = &(uint64_t){n + 1};
    send_message(FRAME_PROGRAM_DEFINE, 0, &define.base);
    free(heads);
    free(inputs);
}

/* Runs it with tensor 1; the result is tensor 2. */
static void send_run(uint64_t id) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    batch.first_sequence = 1;
    batch.first_output = 2;
    batch.n_heads = 1;
    batch.heads = &(uint64_t){batch_head(OP_PROGRAM, 1, 2, 0, 0, 0)};
    batch.n_inputs = 1;
    batch.inputs = &(uint64_t){1};
    batch.n_ints = 2;
    batch.ints = (int64_t[]){(int64_t)id, 1};
    send_message(FRAME_BATCH, 0, &batch.base);
}

static void send_wait(uint64_t sequence, uint64_t id) {
    Tensord__Wait wait = TENSORD__WAIT__INIT;
    wait.id = id;
    send_message(FRAME_WAIT, sequence, &wait.base);
}

static void expect_program(const struct session *session, uint64_t id) {
    struct recorded_figures figures;
    cr_assert_eq(session_programs_figures(session, &figures, 1), 1);
    cr_assert_eq(figures.id, id);
    cr_assert_str_eq(figures.cause, "");
    cr_assert_eq(figures.operations, LONG);
    cr_assert_eq(figures.kept, LONG - LONG / 10);
}

/* What the client has sent behind it waits. */
Test(service_turns, a_definition_of_many_operations_is_checked_in_turns) {
    char words[256];
    open_service(&(struct limits){.session_host_bytes = HOST_BYTES});
    open_client();
    make_tensors(1);
    send_definition(7, LONG, 1);
    send_run(7);
    send_wait(2, 2);
    TURNS_UNTIL(connection->request.definition.measured);
    cr_assert_eq(session_programs(connection->session), 0);
    cr_assert_gt(TURNS_UNTIL(!connection->request.definition.begun), 50);
    cr_assert_eq(definitions_read, 1, "%u times", definitions_read);
    expect_program(connection->session, 7);
    cr_assert_eq(receive_done(2, words), STATUS_OK, "%s", words);
    close_service();
}

/* What was parsed does not stay where another client's message has been parsed since. */
Test(service_turns, a_definition_is_read_again_after_messages_of_others) {
    const Tensord__Ping ping = TENSORD__PING__INIT;
    uint8_t bytes[256];
    open_service(&(struct limits){.session_host_bytes = HOST_BYTES});
    open_client();
    struct connection *first = connection;
    int first_client = client;
    make_tensors(1);
    open_client();
    int second_client = client;
    client = first_client;
    send_definition(7, LONG, 1);
    TURNS_UNTIL(first->request.definition.measured);
    client = second_client;
    look_ns = SERVICE_SHARE_NS / 2;
    for (uint64_t sequence = 2; sequence < 6; sequence++) {
        send_message(FRAME_PING, sequence, &ping.base);
        cr_assert_eq(receive_message(bytes, sizeof bytes).type, FRAME_PONG);
        cr_assert(first->request.definition.begun);
    }
    TURNS_UNTIL(!first->request.definition.begun);
    cr_assert_gt(definitions_read, 1);
    expect_program(first->session, 7);
    close(first_client);
    close_service();
}

/* The memory of the captured tensor is given back, too: close_service() looks. */
Test(service_turns, a_client_may_go_while_its_definition_is_being_checked) {
    open_service(&(struct limits){.session_host_bytes = HOST_BYTES});
    open_client();
    make_tensors(1);
    send_definition(7, LONG, 1);
    TURNS_UNTIL(connection->request.definition.measured);
    turn();
    send_garbage();
    close(client);
    client = -1;
    TURNS_UNTIL(!service.connections);
    close_service();
}

Test(service_turns, a_definition_that_was_cut_is_checked_from_its_beginning_when_it_comes_again) {
    open_resumable(&(struct limits){.session_lease = 60000, .session_host_bytes = HOST_BYTES});
    make_tensors(1);
    send_definition(7, LONG, 1);
    TURNS_UNTIL(connection->request.definition.measured);
    struct connection *session = connection;
    int first = client;
    open_connection();
    send_hello(true, true);
    receive_welcome();
    cr_assert_not(session->request.definition.begun);
    cr_assert_eq(session_programs(session->session), 0);
    send_definition(7, LONG, 1);
    TURNS_UNTIL(session->request.definition.measured);
    TURNS_UNTIL(!session->request.definition.begun);
    expect_program(session->session, 7);
    close(first);
    service_drain(&service);
    close_service();
}

Test(service_turns, a_wrong_definition_is_refused_where_it_is_wrong) {
    struct recorded_figures figures;
    open_service(&(struct limits){.session_host_bytes = HOST_BYTES});
    open_client();
    make_tensors(1);
    send_definition(7, LONG, 2); /* no such tensor */
    TURNS_UNTIL(connection->request.definition.begun);
    TURNS_UNTIL(!connection->request.definition.begun);
    cr_assert_eq(session_programs_figures(connection->session, &figures, 1), 1);
    cr_assert_neq(strstr(figures.cause, "no tensor has id 2"), NULL, "%s", figures.cause);
    close_service();
}

/* ---- fairness ---- */

/* Each client asks again as soon as it has its answer, and a turn has time for a few of them. Whoever is polled first must not be
 * served again and again while others wait. */
Test(service_turns, clients_that_ask_at_once_are_served_about_equally_often) {
    enum { CLIENTS = 16, ROUNDS = 200 };
    static const Tensord__Ping ping = TENSORD__PING__INIT;
    struct limits limits = {0};
    int sockets[CLIENTS];
    unsigned answers[CLIENTS] = {0}, least = 0;
    uint8_t bytes[256];
    limits_init(&limits);
    open_service(&limits);
    for (unsigned i = 0; i < CLIENTS; i++) {
        open_client();
        sockets[i] = client;
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        client = sockets[i];
        send_message(FRAME_PING, 1, &ping.base);
    }
    look_ns = SERVICE_TURN_NS / 5;
    for (unsigned turns = 0; least < ROUNDS && turns < TURNS_MAX; turns++) {
        turn();
        for (unsigned i = 0; i < CLIENTS; i++) {
            if (recv(sockets[i], bytes, sizeof bytes, MSG_DONTWAIT) <= 0)
                continue;
            answers[i]++;
            client = sockets[i];
            send_message(FRAME_PING, 1, &ping.base);
        }
        least = answers[0];
        for (unsigned i = 1; i < CLIENTS; i++)
            least = answers[i] < least ? answers[i] : least;
        for (unsigned i = 0; i < CLIENTS; i++)
            cr_assert_leq(answers[i], 2 * least + 4, "client %u has %u answers, and another one %u", i, answers[i],
                          least);
    }
    cr_assert_geq(least, ROUNDS);
}
