/* What a client may have the service do is done in turns of bounded time, by a clock that the test moves. */
#include <errno.h>
#include <search.h>
#include <semaphore.h>

#include "engine/session/host.h"
#include "proto/wire/batch.h"
#include "tests/unit/service_fixture.h"

static unsigned publishes_read, batches_read, lists_read;

ProtobufCMessage *__real_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data);
ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data);

ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data) {
    publishes_read += descriptor == &tensord__publish__descriptor;
    batches_read += descriptor == &tensord__batch__descriptor;
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
