/* Certificates and the file of users: whose role a client has, what revokes it, and tokens inside of TLS. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/certificates.h"
#include "tests/daemon/client.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"
#include "tests/daemon/users.h"

enum { LOG_MS = 30000 };

static struct daemon tensord;
static struct certificates certificates;
static struct users_file users;

static void start(void) {
    certificates_make(&certificates);
    users_file_make(&users);
    users_file_write(&users, "[alice]\nrole = observe\n[bob]\nrole = run\n");
}

static void stop(void) {
    daemon_stop(&tensord);
    users_file_remove(&users);
    certificates_remove(&certificates);
}

TestSuite(tls_users, .init = start, .fini = stop, .timeout = 120);

static void start_daemon(const char *auth) {
    certificates_start(&certificates, &tensord, NULL,
                       (const char *const[]){"--tls-client-ca", certificates_file(&certificates, "ca.pem"),
                                             "--tls-client-auth", auth, "--users", users.path, NULL});
}

static int open_device(const char *token) {
    td_connection *connection;
    td_device *device;
    td_options options = {.token = token};
    int code = td_connect(tensord.tcp, &options, &connection);
    if (code)
        return code;
    code = td_device_open(connection, NULL, &device);
    td_close(connection);
    return code;
}

Test(tls_users, certificate_has_the_role_of_the_user_of_its_name) {
    start_daemon("required");
    certificates_use(&certificates, "ca", "alice");
    cr_assert_eq(open_device(""), TD_E_DENIED, "an observer opened a device");
    cr_assert(strstr(td_last_error()->message, "alice has observe"), "%s", td_last_error()->message);
    certificates_add(&certificates, "bob", "ca", "/CN=bob", NULL);
    certificates_use(&certificates, "ca", "bob");
    cr_assert_eq(open_device(""), TD_OK, "%s", td_last_error()->message);
}

static uint64_t denied_as_unknown(void) {
    Tensord__Status *status = status_get(tensord.url);
    uint64_t unknown = status->logins->unknown;
    status_free(status);
    return unknown;
}

/* The CA may sign for many who have no business here. */
Test(tls_users, certificate_of_no_user_is_refused_by_name) {
    char token[USERS_TOKEN_BYTES];
    struct client carol;
    users_file_add(&users, "dave", "run", token);
    start_daemon("required");
    certificates_add(&certificates, "carol", "ca", "/CN=carol", NULL);
    certificates_use(&certificates, "ca", "carol");
    for (int i = 0; i < 8; i++) { /* and it is not slowed down: nothing was guessed */
        cr_assert_eq(open_device(""), TD_E_DENIED, "carol was let in");
        cr_assert(strstr(td_last_error()->message, "\"carol\" is no user"), "%s", td_last_error()->message);
    }
    cr_assert_eq(denied_as_unknown(), 8);
    cr_assert(daemon_log_has(&tensord, "event=login_failed", LOG_MS));
    cr_assert_eq(open_device(token), TD_OK, "the token wins: %s", td_last_error()->message);
    users_file_write(&users, "[carol]\nrole = run\n# end of users\n");
    users_reload(&tensord, "reloaded", 1);
    client_open(&carol, tensord.tcp, NULL);
    cr_assert(!td_sync(carol.device), "%s", td_last_error()->message);
    users_file_write(&users, "[alice]\nrole = run\n# end of users\n");
    users_reload(&tensord, "reloaded", 2);
    int64_t deadline = deadline_in(LOG_MS);
    while (!td_sync(carol.device))
        cr_assert(deadline_pause(deadline), "carol was not told");
    cr_assert_eq(td_last_error()->code, TD_E_DENIED, "%s", td_last_error()->message);
    client_close(&carol);
}

Test(tls_users, token_serves_those_without_a_certificate) {
    char token[USERS_TOKEN_BYTES];
    users_file_add(&users, "dave", "run", token);
    start_daemon("optional");
    certificates_use(&certificates, "ca", NULL);
    cr_assert_eq(open_device(""), TD_E_DENIED, "nobody was let in");
    cr_assert_eq(open_device(token), TD_OK, "%s", td_last_error()->message);
    certificates_use(&certificates, "ca", "alice");
    cr_assert_eq(open_device(token), TD_OK, "the token wins: %s", td_last_error()->message);
}

Test(tls_users, change_of_the_role_ends_what_a_certificate_opened) {
    struct client bob, alice;
    start_daemon("required");
    certificates_add(&certificates, "bob", "ca", "/CN=bob", NULL);
    certificates_use(&certificates, "ca", "bob");
    client_open(&bob, tensord.tcp, NULL);
    cr_assert(!td_sync(bob.device), "%s", td_last_error()->message);
    users_file_write(&users, "[alice]\nrole = run\n[bob]\nrole = observe\n");
    users_reload(&tensord, "reloaded", 1);
    int64_t deadline = deadline_in(LOG_MS);
    while (!td_sync(bob.device))
        cr_assert(deadline_pause(deadline), "bob was not told");
    cr_assert_eq(td_last_error()->code, TD_E_DENIED, "%s", td_last_error()->message);
    client_close(&bob);
    certificates_use(&certificates, "ca", "alice");
    client_open(&alice, tensord.tcp, NULL);
    client_close(&alice);
}
