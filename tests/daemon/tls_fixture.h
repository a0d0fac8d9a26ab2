/* A daemon that speaks TLS, and its certificates, for each test of a suite. Include once in a program. */
#pragma once

#include <criterion/criterion.h>
#include <string.h>

#include "client/tensord.h"
#include "tests/daemon/certificates.h"
#include "tests/daemon/daemon.h"

static struct daemon tensord;
static struct certificates certificates;

static void tls_init(void) {
    certificates_make(&certificates);
    certificates_use(&certificates, "ca", NULL);
}

static void tls_fini(void) {
    daemon_stop(&tensord);
    certificates_remove(&certificates);
}

#define TLS_SUITE(name) TestSuite(name, .init = tls_init, .fini = tls_fini, .timeout = 120)

/* Further flags of the daemon; NULL: none. */
#define START(...) certificates_start(&certificates, &tensord, NULL, (const char *const[]){__VA_ARGS__, NULL})

/* Connecting fails with this code, and the words say why. */
static inline void refused(const char *url, int code, const char *word) {
    td_connection *connection;
    cr_assert_eq(td_connect(url, NULL, &connection), code, "%s", td_last_error()->message);
    cr_assert(strstr(td_last_error()->message, word), "%s", td_last_error()->message);
}
