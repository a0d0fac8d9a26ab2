/* The transport over TLS, both ends in one thread: what is taken arrives, in order, whatever the sockets' buffers do. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/tls_pair.h"

enum { BYTES = 3 << 20, PARTS = 9, SMALL_BUFFER = 4096 };

static struct tls_pair pair;

static void finish(void) {
    tls_pair_finish(&pair);
}

TestSuite(tls, .fini = finish, .timeout = 60);

static uint8_t *noise(size_t n) {
    uint8_t *bytes = malloc(n);
    uint64_t state = 7;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(state >> 56);
    }
    return bytes;
}

/* A write from parts of all sizes, as a gather of replies is. */
static ssize_t write_parts(struct transport *transport, const uint8_t *bytes, size_t n, unsigned turn) {
    struct iovec parts[PARTS];
    size_t at = 0, count = 0;
    for (; count < PARTS && at < n; count++) {
        static const size_t sizes[] = {1, 40, 0, 70000, 16384, 300, 16383, 5, 200000, 16385, 12, 64};
        size_t size = sizes[(turn + count) % (sizeof sizes / sizeof *sizes)];
        size = size < n - at ? size : n - at;
        parts[count] = (struct iovec){(void *)(uintptr_t)(bytes + at), size};
        at += size;
    }
    return transport_write(transport, parts, count);
}

/* Sends all of it from `from` to `to`, which reads in pieces of changing sizes. */
static void pump(struct transport *from, struct transport *to, const uint8_t *bytes, uint8_t *got, size_t n) {
    size_t sent = 0, received = 0;
    for (unsigned turn = 0; received < n; turn++) {
        if (sent < n) {
            ssize_t taken = write_parts(from, bytes + sent, n - sent, turn);
            cr_assert(taken >= 0 || errno == EAGAIN, "%s", strerror(errno));
            sent += taken > 0 ? (size_t)taken : 0;
        }
        int error = transport_flush(from);
        cr_assert(!error || error == EAGAIN);
        size_t want = turn % 3 ? 100000 : 777;
        ssize_t came = transport_read(to, got + received, want < n - received ? want : n - received);
        cr_assert(came > 0 || (came < 0 && errno == EAGAIN), "%zd", came);
        received += came > 0 ? (size_t)came : 0;
    }
    cr_assert(!transport_flush(from));
    cr_assert(!transport_unsent(from));
    cr_assert(!memcmp(bytes, got, n), "the bytes changed on the way");
}

static void both_ways(int buffer) {
    uint8_t *bytes = noise(BYTES), *got = malloc(BYTES);
    tls_pair_make(&pair, buffer);
    pump(&pair.client, &pair.server, bytes, got, BYTES); /* the first calls do the handshake */
    memset(got, 0, BYTES);
    pump(&pair.server, &pair.client, bytes, got, BYTES);
    free(bytes);
    free(got);
}

Test(tls, bytes_arrive_through_wide_sockets) {
    both_ways(0);
}

Test(tls, bytes_arrive_through_narrow_sockets) {
    both_ways(SMALL_BUFFER);
}

/* A reader that takes less than a record must be told that there is more, for the socket will not. */
Test(tls, what_was_read_ahead_is_announced) {
    uint8_t bytes[1000] = {1}, got[1000];
    struct iovec part = {bytes, sizeof bytes};
    tls_pair_make(&pair, 0);
    tls_pair_shake(&pair);
    cr_assert_eq(transport_write(&pair.client, &part, 1), 1000);
    cr_assert_eq(transport_read(&pair.server, got, 10), 10);
    cr_assert(transport_more(&pair.server));
    cr_assert_eq(transport_read(&pair.server, got, sizeof got), 990);
    cr_assert(!transport_more(&pair.server));
    cr_assert_eq(transport_read(&pair.server, got, sizeof got), -1);
    cr_assert_eq(errno, EAGAIN);
}

Test(tls, orderly_end_is_an_end_and_the_other_way_goes_on) {
    uint8_t byte = 5;
    struct iovec part = {&byte, 1};
    tls_pair_make(&pair, 0);
    tls_pair_shake(&pair);
    cr_assert_eq(transport_write(&pair.client, &part, 1), 1);
    transport_end(&pair.client);
    cr_assert_eq(transport_read(&pair.server, &byte, 1), 1);
    cr_assert_eq(transport_read(&pair.server, &byte, 1), 0);
    cr_assert_eq(transport_read(&pair.server, &byte, 1), 0, "and stays one");
    cr_assert_eq(transport_write(&pair.server, &part, 1), 1);
    cr_assert_eq(transport_read(&pair.client, &byte, 1), 1);
}

Test(tls, cut_is_no_end) {
    uint8_t byte;
    struct fault fault = {0};
    tls_pair_make(&pair, 0);
    tls_pair_shake(&pair);
    shutdown(pair.client.fd, SHUT_WR);
    cr_assert_eq(transport_read(&pair.server, &byte, 1), -1);
    cr_assert_eq(errno, EPROTO);
    cr_assert(strstr(transport_reason(&pair.server, errno, &fault), "without an orderly end"), "%s", fault.message);
    cr_assert_eq(fault.code, STATUS_CONNECTION);
}

Test(tls, changed_record_is_noticed) {
    uint8_t bytes[300], got[300];
    struct iovec part = {bytes, sizeof bytes};
    struct fault fault = {0};
    memset(bytes, 9, sizeof bytes);
    tls_pair_make(&pair, 0);
    tls_pair_shake(&pair);
    cr_assert_eq(transport_read(&pair.client, got, 1), -1); /* takes the ticket */
    cr_assert_eq(transport_write(&pair.client, &part, 1), 300);
    /* One who sits between the two: takes the record out of the server's socket, and puts another one in. */
    uint8_t record[400];
    ssize_t n = recv(pair.server.fd, record, sizeof record, 0);
    cr_assert_gt(n, 300);
    record[100] ^= 1;
    cr_assert_eq(send(pair.client.fd, record, (size_t)n, 0), n);
    cr_assert_eq(transport_read(&pair.server, got, sizeof got), -1);
    cr_assert_eq(errno, EPROTO);
    cr_assert(strstr(transport_reason(&pair.server, errno, &fault), "bad record mac"), "%s", fault.message);
    cr_assert_eq(transport_read(&pair.client, got, sizeof got), -1, "the alert");
    cr_assert_eq(errno, EPROTO);
}

Test(tls, second_connection_resumes_the_first_session) {
    uint8_t byte;
    tls_pair_make(&pair, 0);
    tls_pair_shake(&pair);
    cr_assert(!transport_resumed(&pair.client) && !transport_resumed(&pair.server));
    cr_assert_eq(transport_read(&pair.client, &byte, 1), -1); /* takes the ticket */
    for (int i = 0; i < 3; i++) {
        tls_pair_again(&pair, 0);
        tls_pair_shake(&pair);
        cr_assert(transport_resumed(&pair.client) && transport_resumed(&pair.server), "round %d", i);
        transport_read(&pair.client, &byte, 1);
    }
}

Test(tls, answer_in_the_clear_stays_in_the_socket) {
    char text[16] = "";
    struct fault fault = {0};
    tls_pair_make(&pair, 0);
    cr_assert_eq(send(pair.server.fd, "TSD1 no", 7, 0), 7);
    cr_assert_eq(transport_handshake(&pair.client), EPROTO);
    cr_assert(strstr(transport_reason(&pair.client, EPROTO, &fault), "does not speak it"), "%s", fault.message);
    cr_assert_eq(recv(pair.client.fd, text, sizeof text, 0), 7);
    cr_assert_str_eq(text, "TSD1 no");
}
