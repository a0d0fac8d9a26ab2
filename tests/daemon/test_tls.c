/* TLS as clients meet it: whom they accept, who they are, and what goes through. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/json.h"
#include "tests/daemon/status.h"
#include "tests/daemon/tls_fixture.h"
#include "tests/daemon/wire.h"

enum { LARGE = 64 << 20, RUN_MS = 30000, LOG_MS = 30000 };

TLS_SUITE(tls);

static void works(const char *url) {
    struct client client;
    client_open(&client, url, "cpu:0");
    client_expect(client_ramp(client.device, 3, 1), (float[]){1, 2, 3}, 3);
    client_close(&client);
}

static const char *ca_file(void) {
    return certificates_file(&certificates, "ca.pem");
}

/* ---- bytes ---- */

Test(tls, large_tensor_goes_both_ways_unchanged) {
    struct client client;
    uint8_t *sent = malloc(LARGE), *got = calloc(LARGE, 1);
    START(NULL);
    client_noise(sent, LARGE, 11);
    client_open(&client, tensord.tcp, "cpu:0");
    td_tensor *tensor = td_upload(client.device, TD_U8, TD_SHAPE(LARGE), sent);
    cr_assert(!td_fetch(td_copy(tensor), got, LARGE), "%s", td_last_error()->message);
    cr_assert(!memcmp(sent, got, LARGE), "the bytes changed on the way");
    client_close(&client);
    free(sent);
    free(got);
}

Test(tls, copies_between_devices_work) {
    struct client client;
    td_device *other;
    certificates_start(&certificates, &tensord, "cpu:0,cpu:1", NULL);
    client_open(&client, tensord.tcp, "cpu:0");
    cr_assert(!td_device_open(client.connection, "cpu:1", &other), "%s", td_last_error()->message);
    client_expect(td_copy_to(client_ramp(client.device, 4, 2), other), (float[]){2, 3, 4, 5}, 4);
    client_close(&client);
}

Test(tls, tensorctl_speaks_it) {
    struct command command;
    START(NULL);
    command_run(&command,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.tcp, "status", "--json", NULL},
                NULL, RUN_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
    json_expect(command.out, command.out_bytes, "d['devices'][0]['name'] == 'cpu:0'");
    command_finish(&command);
}

/* ---- the daemon's certificate ---- */

Test(tls, host_name_and_address_are_checked) {
    char url[160];
    START(NULL);
    works(tensord.tcp); /* 127.0.0.1, as an address in the certificate */
    snprintf(url, sizeof url, "tls://localhost:%s", strrchr(tensord.tcp, ':') + 1);
    works(url);
    daemon_stop(&tensord);
    certificates_add(&certificates, "elsewhere", "ca", "/CN=localhost", "DNS:gpuhost.example,IP:192.0.2.1");
    certificates_replace(&certificates, "elsewhere", "server");
    START(NULL);
    refused(tensord.tcp, TD_E_DENIED, "IP address mismatch");
    snprintf(url, sizeof url, "tls://localhost:%s", strrchr(tensord.tcp, ':') + 1);
    refused(url, TD_E_DENIED, "hostname mismatch");
}

Test(tls, certificate_of_an_unknown_ca_is_refused) {
    START(NULL);
    certificates_add_ca(&certificates, "other");
    certificates_use(&certificates, "other", NULL);
    refused(tensord.tcp, TD_E_DENIED, "unable to get local issuer certificate");
    certificates_use(&certificates, NULL, NULL); /* the system's do not know it either */
    refused(tensord.tcp, TD_E_DENIED, "the certificate of 127.0.0.1 is not accepted");
}

Test(tls, expired_certificate_is_refused_and_the_log_warns) {
    certificates_add_expired(&certificates, "old", "ca", "/CN=localhost", "DNS:localhost,IP:127.0.0.1");
    certificates_replace(&certificates, "old", "server");
    START(NULL);
    cr_assert(daemon_log_has(&tensord, "the certificate has expired", LOG_MS));
    refused(tensord.tcp, TD_E_DENIED, "certificate has expired");
}

Test(tls, options_win_over_the_environment) {
    td_connection *connection;
    char ca[128];
    START("--tls-client-ca", ca_file());
    snprintf(ca, sizeof ca, "%s", ca_file());
    certificates_add_ca(&certificates, "other");
    certificates_use(&certificates, "other", NULL);
    td_options options = {.ca_file = ca,
                          .cert_file = certificates_file(&certificates, "alice.pem"),
                          .key_file = certificates_file(&certificates, "alice.key")};
    cr_assert(!td_connect(tensord.tcp, &options, &connection), "%s", td_last_error()->message);
    td_close(connection);
    options.key_file = certificates_file(&certificates, "server.key");
    cr_assert_eq(td_connect(tensord.tcp, &options, &connection), TD_E_INVALID_ARGUMENT);
    options.ca_file = "/nowhere/ca.pem";
    cr_assert_eq(td_connect(tensord.tcp, &options, &connection), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->message, "/nowhere/ca.pem"), "%s", td_last_error()->message);
}

/* ---- certificates of clients ---- */

static bool alice_is_there(const Tensord__Status *status, const void *none) {
    (void)none;
    return status->n_sessions == 1 && !strcmp(status->sessions[0]->principal, "cert:alice") &&
           status->sessions[0]->tls && !strncmp(status->sessions[0]->tls->cipher, "TLS_", 4);
}

Test(tls, client_is_the_name_in_its_certificate) {
    struct client client;
    START("--tls-client-ca", ca_file());
    certificates_use(&certificates, "ca", "alice");
    client_open(&client, tensord.tcp, "cpu:0");
    status_until(tensord.url, alice_is_there, NULL, LOG_MS);
    client_close(&client);
    cr_assert(daemon_log_has(&tensord, "principal=cert:alice", LOG_MS));
}

Test(tls, client_without_the_right_certificate_is_refused) {
    START("--tls-client-ca", ca_file());
    refused(tensord.tcp, TD_E_DENIED, "certificate required");
    cr_assert(daemon_log_has(&tensord, "the client shows no certificate", LOG_MS));
    certificates_add_ca(&certificates, "other");
    certificates_add(&certificates, "mallory", "other", "/CN=alice", NULL);
    certificates_use(&certificates, "ca", "mallory");
    refused(tensord.tcp, TD_E_DENIED, "unknown ca");
    certificates_add_expired(&certificates, "late", "ca", "/CN=alice", NULL);
    certificates_use(&certificates, "ca", "late");
    refused(tensord.tcp, TD_E_DENIED, "certificate expired");
    certificates_use(&certificates, "ca", "alice");
    works(tensord.tcp);
}

/* A name with a comma would be two names in a list of principals. */
Test(tls, client_whose_name_cannot_be_used_is_refused) {
    START("--tls-client-ca", ca_file());
    certificates_add(&certificates, "two", "ca", "/CN=bob,alice", NULL);
    certificates_use(&certificates, "ca", "two");
    refused(tensord.tcp, TD_E_DENIED, "the daemon refuses");
    cr_assert(daemon_log_has(&tensord, "holds a comma", LOG_MS));
    certificates_add(&certificates, "san", "ca", "/O=nobody", "email:bob@example.org");
    certificates_use(&certificates, "ca", "san");
    works(tensord.tcp);
    cr_assert(daemon_log_has(&tensord, "principal=cert:email:bob@example.org", LOG_MS));
}

/* Each is somebody else: a DNS name "alice" is not the CN alice. */
Test(tls, names_of_certificates_are_told_apart) {
    char longest[80], principal[100];
    START("--tls-client-ca", ca_file());
    memset(longest, 'c', 64);
    memcpy(longest, "/CN=", 4);
    memset(longest + 4, 'c', 64);
    longest[68] = 0;
    const struct {
        const char *file, *subject, *san, *principal;
    } rows[] = {
        {"first", "/CN=staff/CN=bob", NULL, "principal=cert:bob "}, /* the last CN is the most specific */
        {"dns", "/O=nobody", "DNS:alice", "principal=cert:dns:alice "},
        {"uri", "/O=nobody", "URI:alice", "principal=cert:uri:alice "},
        {"long", longest, NULL, principal}, /* as long as X.520 lets it be */
    };
    snprintf(principal, sizeof principal, "principal=cert:%s ", longest + 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        certificates_add(&certificates, rows[i].file, "ca", rows[i].subject, rows[i].san);
        certificates_use(&certificates, "ca", rows[i].file);
        works(tensord.tcp);
        cr_assert(daemon_log_has(&tensord, rows[i].principal, LOG_MS), "%s", rows[i].principal);
    }
}

Test(tls, optional_certificates_may_be_missing_but_not_wrong) {
    START("--tls-client-ca", ca_file(), "--tls-client-auth", "optional");
    works(tensord.tcp);
    cr_assert(daemon_log_has(&tensord, "principal=tcp", LOG_MS));
    certificates_use(&certificates, "ca", "alice");
    works(tensord.tcp);
    cr_assert(daemon_log_has(&tensord, "principal=cert:alice", LOG_MS));
    certificates_add_ca(&certificates, "other");
    certificates_add(&certificates, "mallory", "other", "/CN=alice", NULL);
    certificates_use(&certificates, "ca", "mallory");
    refused(tensord.tcp, TD_E_DENIED, "unknown ca");
}

/* ---- sessions ---- */

static unsigned resumed_sessions(const Tensord__Status *status) {
    unsigned n = 0;
    for (size_t i = 0; i < status->n_sessions; i++)
        n += status->sessions[i]->tls && status->sessions[i]->tls->resumed;
    return n;
}

static bool four_resumed(const Tensord__Status *status, const void *none) {
    (void)none;
    return status->n_sessions == 4 && resumed_sessions(status) == 4;
}

/* The first handshake is the control connection's, with the front; workers know its tickets. */
Test(tls, connections_to_all_devices_resume_the_first_session) {
    td_connection *connection;
    td_device *devices[4];
    const char *const names[] = {"cpu:0", "cpu:1", "cpu:0", "cpu:1"};
    certificates_start(&certificates, &tensord, "cpu:0,cpu:1",
                       (const char *const[]){"--tls-client-ca", ca_file(), NULL});
    certificates_use(&certificates, "ca", "alice");
    cr_assert(!td_connect(tensord.tcp, NULL, &connection), "%s", td_last_error()->message);
    for (int i = 0; i < 4; i++)
        cr_assert(!td_device_open(connection, names[i], &devices[i]), "%s", td_last_error()->message);
    status_until(tensord.url, four_resumed, NULL, LOG_MS);
    Tensord__Status *status = status_get(tensord.url);
    for (size_t i = 0; i < status->n_sessions; i++)
        cr_assert_str_eq(status->sessions[i]->principal, "cert:alice"); /* resumed, and still the same client */
    status_free(status);
    td_close(connection);
}

/* ---- ends ---- */

static bool has_sessions(const Tensord__Status *status, const void *wanted) {
    return status->n_sessions == *(const size_t *)wanted;
}

static int hold(void *argument) {
    struct client client;
    client_open(&client, tensord.tcp, "cpu:0");
    cr_assert(!td_wait(client_ramp(client.device, 3, 1)));
    (void)!write(*(int *)argument, "x", 1);
    pause();
    return 0;
}

Test(tls, end_without_close_notify_is_told_from_an_orderly_one) {
    const size_t none = 0, one = 1;
    int ready[2];
    char byte;
    START("--session-lease", "0");
    works(tensord.tcp);
    cr_assert(daemon_log_has(&tensord, "cause=\"closed by the client\"", LOG_MS));
    cr_assert(!pipe(ready));
    pid_t pid = client_fork(hold, &ready[1]);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    status_until(tensord.url, has_sessions, &one, LOG_MS); /* figures are some tenths of a second old */
    kill(pid, SIGKILL);
    client_join(pid, LOG_MS);
    cr_assert(daemon_log_has(&tensord, "cut off without an orderly end", LOG_MS));
    status_until(tensord.url, has_sessions, &none, LOG_MS);
}

Test(tls, client_learns_that_its_worker_was_killed) {
    struct client client;
    START(NULL);
    client_open(&client, tensord.tcp, "cpu:0");
    cr_assert(!td_wait(client_ramp(client.device, 3, 1)));
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGKILL);
    int64_t deadline = deadline_in(LOG_MS);
    while (!td_sync(client.device))
        cr_assert(deadline_pause(deadline), "the client never noticed");
    cr_assert_eq(td_last_error()->code, TD_E_DEVICE_LOST);
    /* The new worker may be there first, or not. */
    const char *message = td_last_error()->message;
    cr_assert(strstr(message, "was restarted") || strstr(message, "its worker died"), "%s", message);
    client_close(&client);
    status_until(tensord.url, status_all_ready, NULL, LOG_MS);
    works(tensord.tcp); /* the new worker has the certificate, too */
}

Test(tls, draining_ends_connections_in_order) {
    struct client client;
    START(NULL);
    client_open(&client, tensord.tcp, "cpu:0");
    cr_assert(!td_wait(client_ramp(client.device, 3, 1)));
    daemon_stop(&tensord); /* exit code 0 */
    cr_assert_eq(td_sync(client.device), TD_E_DRAINING, "%s", td_last_error()->message);
    client_close(&client);
}
