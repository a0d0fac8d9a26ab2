/* Definitions of programs are checked in turns of bounded time. */
#include "engine/session/host.h"
#include "proto/wire/batch.h"
#include "tests/unit/service_fixture.h"

static unsigned definitions_read;

ProtobufCMessage *__real_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data);
ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data);

ProtobufCMessage *__wrap_protobuf_c_message_unpack(const ProtobufCMessageDescriptor *descriptor,
                                                   ProtobufCAllocator *allocator, size_t bytes, const uint8_t *data) {
    definitions_read += descriptor == &tensord__program_define__descriptor;
    return __real_protobuf_c_message_unpack(descriptor, allocator, bytes, data);
}

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
Test(service_definitions, a_definition_of_many_operations_is_checked_in_turns) {
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
Test(service_definitions, a_definition_is_read_again_after_messages_of_others) {
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
Test(service_definitions, a_client_may_go_while_its_definition_is_being_checked) {
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

Test(service_definitions, a_definition_that_was_cut_is_checked_from_its_beginning_when_it_comes_again) {
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

Test(service_definitions, a_wrong_definition_is_refused_where_it_is_wrong) {
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
