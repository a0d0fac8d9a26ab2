/* Who does not speak TLS where it is spoken, or the other way round, or badly. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "proto/net/transport.h"
#include "tests/daemon/client.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/hostile.h"
#include "tests/daemon/status.h"
#include "tests/daemon/tls_fixture.h"

enum { CLOSE_MS = 10000, LOG_MS = 30000, NOISE_ROUNDS = 60 };

TLS_SUITE(tls_hostile);

/* The wire's dialling does not ask which of the two it is. */
static void dial(struct wire *wire) {
    char url[160];
    snprintf(url, sizeof url, "tcp://%.100s", tensord.tcp + 6);
    cr_assert(wire_dial(wire, url));
}

static void preamble(struct wire *wire, uint16_t target) {
    uint8_t bytes[PREAMBLE_BYTES];
    preamble_encode(target, bytes);
    preamble_set_tls(bytes);
    cr_assert(wire_write(wire, bytes, sizeof bytes));
}

/* ---- the wrong kind of address ---- */

Test(tls_hostile, plaintext_to_a_tls_address_is_told_so) {
    char url[160];
    START(NULL);
    snprintf(url, sizeof url, "tcp://%.100s", tensord.tcp + 6);
    refused(url, TD_E_DENIED, "use tls://");
}

Test(tls_hostile, tls_to_a_plaintext_address_is_told_so) {
    char url[160];
    daemon_start(&tensord, &(struct daemon_options){.tcp = "tcp://127.0.0.1:0"});
    snprintf(url, sizeof url, "tls://%.100s", tensord.tcp + 6);
    refused(url, TD_E_PROTOCOL, "does not speak TLS: use tcp://");
}

/* As openssl s_client or a browser would begin. */
Test(tls_hostile, tls_without_a_preamble_is_told_so) {
    const uint8_t hello[] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
    char message[256];
    struct wire wire;
    START(NULL);
    dial(&wire);
    cr_assert(wire_write(&wire, hello, sizeof hello));
    cr_assert_eq(wire_until_closed(&wire, CLOSE_MS, message), STATUS_PROTOCOL);
    cr_assert(strstr(message, "TLS without the preamble"), "%s", message);
    wire_close(&wire);
}

/* ---- stalls ---- */

/* The daemon says nothing, and closes; 0 bytes is all that comes. */
static void expect_cut(struct wire *wire) {
    uint8_t byte;
    cr_assert(deadline_poll(wire->fd, POLLIN, deadline_in(CLOSE_MS)), "it was not cut");
    ssize_t got = recv(wire->fd, &byte, 1, 0);
    cr_assert(got == 0 || (got < 0 && errno == ECONNRESET), "%zd", got);
    wire_close(wire);
}

Test(tls_hostile, stalled_handshake_is_cut_by_hello_timeout) {
    const uint8_t begun[] = {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3};
    const uint16_t targets[] = {PREAMBLE_TARGET_CONTROL, PREAMBLE_TARGET_DEFAULT};
    START("--hello-timeout", "200ms");
    for (int i = 0; i < 4; i++) {
        struct wire wire;
        dial(&wire);
        preamble(&wire, targets[i % 2]);
        if (i / 2)
            cr_assert(wire_write(&wire, begun, sizeof begun));
        expect_cut(&wire);
    }
    cr_assert(daemon_log_has(&tensord, "TLS handshake", LOG_MS));
}

/* The timeout goes on after the handshake, for Hello. */
Test(tls_hostile, silence_after_the_handshake_is_cut_too) {
    struct tls_context *context;
    struct transport transport;
    struct fault fault;
    struct wire wire;
    int error;
    START("--hello-timeout", "2s");
    struct tls_client_options options = {.host = "127.0.0.1", .ca = certificates_file(&certificates, "ca.pem")};
    cr_assert(!tls_client_create(&options, &context, &fault), "%s", fault.message);
    dial(&wire);
    preamble(&wire, PREAMBLE_TARGET_DEFAULT);
    cr_assert(!transport_init(&transport, wire.fd, context, &fault));
    while ((error = transport_handshake(&transport)) == EAGAIN)
        cr_assert(deadline_poll(wire.fd, POLLIN, deadline_in(CLOSE_MS)));
    cr_assert_eq(error, 0);
    uint8_t bytes[512];
    ssize_t got, have = 0;
    while ((got = transport_read(&transport, bytes + have, sizeof bytes - (size_t)have)) > 0 ||
           (got < 0 && errno == EAGAIN)) {
        have += got > 0 ? got : 0;
        if (got < 0)
            cr_assert(deadline_poll(wire.fd, POLLIN, deadline_in(CLOSE_MS)), "it was not cut");
    }
    cr_assert_eq(got, 0, "an orderly end: %s", transport_reason(&transport, errno, &fault));
    struct frame_header header;
    cr_assert_gt(have, FRAME_HEADER_BYTES);
    cr_assert(!frame_header_decode(bytes, sizeof bytes, 0, &header, &fault));
    cr_assert_eq(header.type, FRAME_ERROR);
    transport_finish(&transport);
    tls_context_release(context);
}

/* ---- handshakes that take their time ---- */

enum { THREADS_MAX = 16 };

/* Stops the threads of a process that have this name. */
static unsigned stop_threads(pid_t process, const char *name, pid_t stopped[THREADS_MAX]) {
    char path[320], comm[32] = "";
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    cr_assert(tasks, "%s", path);
    for (struct dirent *task; (task = readdir(tasks)) && n < THREADS_MAX;) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/comm", process, task->d_name);
        FILE *file = *task->d_name == '.' ? NULL : fopen(path, "r");
        if (!file)
            continue;
        if (fgets(comm, sizeof comm, file) && (comm[strcspn(comm, "\n")] = 0, !strcmp(comm, name))) {
            pid_t thread = atoi(task->d_name);
            if (ptrace(PTRACE_SEIZE, thread, 0, 0))
                cr_skip_test("threads cannot be stopped here: %s", strerror(errno));
            cr_assert(!ptrace(PTRACE_INTERRUPT, thread, 0, 0), "%s", strerror(errno));
            cr_assert_eq(waitpid(thread, NULL, __WALL), thread);
            stopped[n++] = thread;
        }
        fclose(file);
    }
    closedir(tasks);
    return n;
}

/* Its first message is on its way. */
static void begin_handshake(struct wire *wire, struct tls_context *context, struct transport *transport) {
    struct fault fault;
    dial(wire);
    preamble(wire, PREAMBLE_TARGET_CONTROL);
    cr_assert(!transport_init(transport, wire->fd, context, &fault));
    cr_assert_eq(transport_handshake(transport), EAGAIN);
}

/* The threads that sign stand still, and the front goes on. */
Test(tls_hostile, front_answers_while_handshakes_wait) {
    pid_t threads[THREADS_MAX];
    struct transport transports[3];
    struct wire wires[3];
    struct tls_context *context;
    struct client client;
    struct fault fault;
    int error;
    START(NULL);
    struct tls_client_options options = {.host = "127.0.0.1", .ca = certificates_file(&certificates, "ca.pem")};
    cr_assert(!tls_client_create(&options, &context, &fault), "%s", fault.message);
    client_open(&client, tensord.tcp, "cpu:0"); /* there are threads after the first one */
    client_close(&client);
    unsigned n = stop_threads(tensord.pid, "handshake", threads);
    cr_assert_gt(n, 0, "the front has no threads for handshakes");
    for (int i = 0; i < 3; i++)
        begin_handshake(&wires[i], context, &transports[i]);
    status_free(status_get(tensord.url));
    transport_finish(&transports[1]); /* one that waits goes, and maybe one that has been begun with */
    transport_finish(&transports[0]);
    status_free(status_get(tensord.url));
    cr_assert_eq(transport_handshake(&transports[2]), EAGAIN, "a stopped thread has answered");
    for (unsigned i = 0; i < n; i++)
        cr_assert(!ptrace(PTRACE_DETACH, threads[i], 0, 0), "%s", strerror(errno));
    while ((error = transport_handshake(&transports[2])) == EAGAIN)
        cr_assert(deadline_poll(wires[2].fd, POLLIN, deadline_in(CLOSE_MS)), "the handshake does not go on");
    cr_assert_eq(error, 0);
    transport_finish(&transports[2]);
    tls_context_release(context);
}

/* ---- noise ---- */

/* Random bytes, some of them dressed as records, in the place of a handshake: the daemon closes and lives. */
Test(tls_hostile, noise_in_place_of_records_is_harmless) {
    struct hostile_witness witness;
    START("--hello-timeout", "2s");
    hostile_witness_start(&witness, tensord.url);
    for (unsigned i = 0; i < NOISE_ROUNDS; i++) {
        uint8_t noise[2048];
        struct wire wire;
        client_noise(noise, sizeof noise, 900 + i);
        noise[0] = i % 3 ? 0x16 : noise[0]; /* a handshake record */
        noise[1] = i % 3 ? 3 : noise[1];
        noise[2] = i % 3 ? 1 : noise[2];
        noise[3] = i % 3 == 2 ? 2 : noise[3]; /* of a length that is there */
        noise[5] = i % 3 == 2 ? 1 : noise[5]; /* with what says that it is a ClientHello */
        dial(&wire);
        preamble(&wire, i % 2 ? PREAMBLE_TARGET_CONTROL : PREAMBLE_TARGET_DEFAULT);
        wire_write(&wire, noise, 16 + (i * 37) % (sizeof noise - 16));
        shutdown(wire.fd, SHUT_WR);
        uint8_t scrap[4096];
        ssize_t got;
        do {
            cr_assert(deadline_poll(wire.fd, POLLIN, deadline_in(CLOSE_MS)), "round %u was not closed", i);
            got = recv(wire.fd, scrap, sizeof scrap, 0);
        } while (got > 0);
        wire_close(&wire);
    }
    hostile_witness_check(&witness, "noise");
    status_until(tensord.url, status_all_ready, NULL, LOG_MS);
    struct client client;
    client_open(&client, tensord.tcp, "cpu:0");
    client_expect(client_ramp(client.device, 2, 1), (float[]){1, 2}, 2);
    client_close(&client);
}
