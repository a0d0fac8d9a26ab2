/* A device has one trace at a time, and principals take turns at it. */
#include "tests/unit/service_fixture.h"

static uint64_t sequences = 1;

/* A client of this principal; *number is its socket. */
static void open_principal(const char *name, enum role role, int *number) {
    snprintf(peer.principal.name, sizeof peer.principal.name, "%s", name);
    peer.principal.role = role;
    open_client();
    *number = client;
}

/* A TraceStart's reply that says why there is no trace, or ends a trace: its status, with the words. Frames with events
 * before it are dropped. */
static int receive_error(int number, char words[256]) {
    static uint8_t bytes[1 << 20], payload[1 << 20];
    int code = STATUS_OK;
    client = number;
    while (code == STATUS_OK) {
        struct frame_header header = receive_message(bytes, sizeof bytes);
        cr_assert_eq(header.type, FRAME_TRACE_DATA, "%s", frame_type_name(header.type));
        Tensord__TraceData *data = tensord__trace_data__unpack(NULL, header.message_bytes, bytes);
        cr_assert_not_null(data);
        cr_assert_leq(header.payload_bytes, sizeof payload);
        receive_bytes(payload, header.payload_bytes);
        code = data->error ? (int)data->error->code : STATUS_OK;
        snprintf(words, 256, "%s", data->error ? data->error->message : "");
        tensord__trace_data__free_unpacked(data, NULL);
    }
    return code;
}

static void send_start(int number) {
    Tensord__TraceStart start = TENSORD__TRACE_START__INIT;
    start.milliseconds = 60000;
    client = number;
    send_message(FRAME_TRACE_START, ++sequences, &start.base);
}

/* It gets the trace. */
static void begin(int number) {
    send_start(number);
    for (unsigned turns = 0; service.trace.sequence != sequences && turns < TURNS_MAX; turns++)
        turn();
    cr_assert(service.trace.connection && service.trace.sequence == sequences, "it has no trace");
}

static void expect_refused(int number) {
    char words[256];
    send_start(number);
    cr_assert_eq(receive_error(number, words), STATUS_LIMIT, "%s", words);
}

static void expect_ended(int number, const char *who) {
    char words[256];
    cr_assert_eq(receive_error(number, words), STATUS_CANCELLED, "%s", words);
    cr_assert_neq(strstr(words, who), NULL, "%s", words);
}

/* The client goes, with its trace. */
static void leave(int number) {
    struct connection *last = service.trace.connection;
    close(number);
    for (unsigned turns = 0; service.trace.connection == last && turns < TURNS_MAX; turns++)
        turn();
    cr_assert_null(service.trace.connection);
}

static void open_with_room(void) {
    open_service(&(struct limits){.session_host_bytes = UINT64_C(256) << 20});
}

Test(trace_feed, whoever_traces_again_and_again_gives_way_to_others) {
    int first, again, other, others_next;
    open_with_room();
    open_principal("uid:1", ROLE_RUN, &first);
    open_principal("uid:2", ROLE_RUN, &other);
    begin(first);
    expect_refused(other); /* a trace that has begun goes on */
    leave(first);
    open_principal("uid:1", ROLE_RUN, &again);
    begin(again);
    begin(other);
    expect_ended(again, "another principal");
    expect_refused(again);
    leave(other);
    open_principal("uid:2", ROLE_RUN, &others_next);
    begin(others_next);
    begin(again); /* and so on */
    expect_ended(others_next, "another principal");
    close(others_next);
    close(again);
    client = -1;
    close_service();
}

Test(trace_feed, a_second_trace_goes_on_if_nobody_has_waited) {
    int first, second, again, other;
    open_with_room();
    open_principal("uid:1", ROLE_RUN, &first);
    open_principal("uid:1", ROLE_RUN, &second);
    open_principal("uid:2", ROLE_RUN, &other);
    begin(first);
    expect_refused(second); /* one's own session is no other principal */
    leave(first);
    open_principal("uid:1", ROLE_RUN, &again);
    begin(again);
    expect_refused(other);
    cr_assert_not_null(service.trace.connection);
    close(again);
    close(second);
    close(other);
    client = -1;
    close_service();
}

Test(trace_feed, admins_give_way_to_nobody_and_end_what_others_have) {
    int user, admin, next;
    open_with_room();
    open_principal("uid:1", ROLE_RUN, &user);
    open_principal("uid:3", ROLE_ADMIN, &admin);
    begin(user);
    begin(admin);
    expect_ended(user, "an admin");
    expect_refused(user);
    leave(admin);
    open_principal("uid:3", ROLE_ADMIN, &next);
    begin(next);
    expect_refused(user);
    close(user);
    close(next);
    client = -1;
    close_service();
}
