/* Certificates from files: which are refused, and how new ones take the place of old ones. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/daemon/certificates.h"
#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"

enum { RUN_MS = 30000, LOG_MS = 30000 };

static struct daemon tensord;
static struct certificates certificates;

static void start(void) {
    certificates_make(&certificates);
    certificates_use(&certificates, "ca", NULL);
}

static void stop(void) {
    daemon_stop(&tensord);
    certificates_remove(&certificates);
}

TestSuite(tls_reload, .init = start, .fini = stop, .timeout = 120);

static const char *file(const char *name) {
    return certificates_file(&certificates, name);
}

/* ---- at the start ---- */

/* It does not start, and says this. */
static void refused(const char *const flags[], const char *word) {
    struct command command;
    const char *arguments[24] = {daemon_program("TENSORD_EXE"), "--devices", "cpu:0"};
    for (size_t i = 0; flags[i]; i++)
        arguments[3 + i] = flags[i];
    command_run(&command, arguments, NULL, RUN_MS);
    cr_assert_eq(command.code, 2, "exit status %d: %s", command.code, command.err);
    cr_assert(strstr(command.err, word), "%s", command.err);
    command_finish(&command);
}

#define REFUSED(word, ...) refused((const char *const[]){"--listen", "tls://127.0.0.1:0", __VA_ARGS__, NULL}, word)

Test(tls_reload, what_cannot_serve_is_refused_at_the_start) {
    REFUSED("set tls-certificate", NULL);
    REFUSED("No such file", "--tls-certificate", "/nowhere/server.pem");
    REFUSED("not the certificate's", "--tls-certificate", file("server.pem"), "--tls-key", file("alice.key"));
    cr_assert(!chmod(file("alice.pem"), 0600));
    REFUSED("the key:", "--tls-certificate", file("server.pem"), "--tls-key", file("alice.pem"));
    REFUSED("the certificate:", "--tls-certificate", file("server.key"), "--tls-key", file("server.key"));
    REFUSED("without tls-client-ca", "--tls-certificate", file("server.pem"), "--tls-key", file("server.key"),
            "--tls-client-auth", "required");
    REFUSED("the clients' CA", "--tls-certificate", file("server.pem"), "--tls-key", file("server.key"),
            "--tls-client-ca", file("server.key"));
    REFUSED("none of none, optional, required", "--tls-client-auth", "sometimes");
    REFUSED("of no use without tls-certificate", "--tls-key", file("server.key"));
}

Test(tls_reload, key_that_others_can_read_is_refused) {
    cr_assert(!chmod(file("server.key"), 0644));
    REFUSED("others may read this key", "--tls-certificate", file("server.pem"), "--tls-key", file("server.key"));
    cr_assert(!chmod(file("server.key"), 0640)); /* a group for those who may is usual */
    certificates_start(&certificates, &tensord, NULL, NULL);
}

Test(tls_reload, key_with_a_passphrase_is_refused) {
    struct command command;
    command_run(&command,
                (const char *const[]){"openssl", "pkey", "-in", file("server.key"), "-aes256", "-passout", "pass:word",
                                      "-out", file("locked.key"), NULL},
                NULL, RUN_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
    command_finish(&command);
    cr_assert(!chmod(file("locked.key"), 0600));
    REFUSED("passphrase", "--tls-certificate", file("server.pem"), "--tls-key", file("locked.key"));
}

Test(tls_reload, beyond_loopback_only_with_certificates_of_clients) {
    const char *certificate = file("server.pem"), *key = file("server.key"), *ca = file("ca.pem");
    refused(
        (const char *const[]){"--listen", "tls://0.0.0.0:0", "--tls-certificate", certificate, "--tls-key", key, NULL},
        "authentication");
    refused((const char *const[]){"--listen", "tls://0.0.0.0:0", "--tls-certificate", certificate, "--tls-key", key,
                                  "--tls-client-ca", ca, "--tls-client-auth", "optional", NULL},
            "authentication");
    refused((const char *const[]){"--listen", "tcp://0.0.0.0:0", "--tls-certificate", certificate, "--tls-key", key,
                                  "--tls-client-ca", ca, NULL},
            "authentication");
    daemon_start(&tensord,
                 &(struct daemon_options){.tcp = "tls://0.0.0.0:0",
                                          .flags = (const char *const[]){"--tls-certificate", certificate, "--tls-key",
                                                                         key, "--tls-client-ca", ca, NULL}});
}

/* ---- later ---- */

static bool connects(const char *ca) {
    td_connection *connection;
    certificates_use(&certificates, ca, NULL);
    if (td_connect(tensord.tcp, NULL, &connection))
        return false;
    td_close(connection);
    return true;
}

Test(tls_reload, new_connections_get_the_new_certificate_and_open_ones_go_on) {
    struct client client;
    td_device *second;
    certificates_start(&certificates, &tensord, NULL, NULL);
    client_open(&client, tensord.tcp, "cpu:0");
    certificates_add_ca(&certificates, "next");
    certificates_add(&certificates, "renewed", "next", "/CN=localhost", "DNS:localhost,IP:127.0.0.1");
    certificates_replace(&certificates, "renewed", "server");
    cr_assert(!connects("next"), "nobody has said that there is a new one");
    kill(tensord.pid, SIGHUP);
    int64_t deadline = deadline_in(LOG_MS);
    while (!connects("next"))
        cr_assert(deadline_pause(deadline), "the new certificate never came: %s", td_last_error()->message);
    cr_assert(!connects("ca"));
    client_expect(client_ramp(client.device, 3, 1), (float[]){1, 2, 3}, 3);
    /* Of the client's old session nothing is left to resume: it is shown the new certificate, which it does not know.
     */
    cr_assert_eq(td_device_open(client.connection, "cpu:0", &second), TD_E_DENIED, "%s", td_last_error()->message);
    client_close(&client);
    struct client late;
    certificates_use(&certificates, "next", NULL);
    client_open(&late, tensord.tcp, "cpu:0"); /* the worker has it, too */
    client_expect(client_ramp(late.device, 2, 1), (float[]){1, 2}, 2);
    client_close(&late);
}

Test(tls_reload, bad_file_leaves_the_old_certificate_in_use) {
    certificates_start(&certificates, &tensord, NULL, NULL);
    cr_assert(!rename(file("alice.key"), file("server.key")));
    kill(tensord.pid, SIGHUP);
    cr_assert(daemon_log_has(&tensord, "event=reload_failed", LOG_MS));
    cr_assert(daemon_log_has(&tensord, "not the certificate's", LOG_MS));
    cr_assert(connects("ca"));
}
