/* Daemons whose first answers, to Hello and ListDevices, are wrong: the call says so in time, leaves nothing behind, and
 * the next one works. */
#include <criterion/criterion.h>
#include <grp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tensord.h"
#include "proto/wire/frame.h"
#include "tests/stand_ins/fake_daemon.h"

static struct fake_daemon fake;

/* Only where the daemon is to be too late: no other row depends on how fast the machine is. */
static const td_options short_timeout = {.timeout_ms = 400};

static void start(void) {
    fake_daemon_start(&fake);
}

static void stop(void) {
    fake_daemon_stop(&fake);
}

TestSuite(client_handshake, .init = start, .fini = stop, .timeout = 60);

struct row {
    const char *name;
    struct fake_frame frames[FAKE_FRAMES_MAX];
    int code;
};

/* What is wrong with any answer; TYPE is the right one, OTHER belongs elsewhere. */
#define WRONG(TYPE, OTHER)                                                                                             \
    {"another number", {{TYPE, .sequence = 1}}, TD_E_PROTOCOL}, {"number 0", {{TYPE, .sequence = -1}}, TD_E_PROTOCOL}, \
        {"a message that is none", {{TYPE, .garbage = true}}, TD_E_PROTOCOL},                                          \
        {"a message of 4 GiB", {{TYPE, .more_message = 0xfffffff0}}, TD_E_PROTOCOL},                                   \
        {"a message of 2 MiB", {{TYPE, .more_message = 2 << 20}}, TD_E_PROTOCOL},                                      \
        {"a message whose end never comes", {{TYPE, .more_message = 1}}, TD_E_TIMED_OUT},                              \
        {"a payload", {{TYPE, .payload = 8}}, TD_E_PROTOCOL},                                                          \
        {"a payload of 2^64 - 1", {{TYPE, .more_payload = UINT64_MAX}}, TD_E_PROTOCOL},                                \
        {"another magic", {{TYPE, .magic = 0x12345678}}, TD_E_PROTOCOL},                                               \
        {"a frame of no known type", {{999}}, TD_E_PROTOCOL}, {"another answer", {{OTHER}}, TD_E_PROTOCOL},            \
        {"Done with an error", {{FRAME_DONE, .error = TD_E_DENIED}}, TD_E_DENIED},                                     \
        {"Done", {{FRAME_DONE}}, TD_E_PROTOCOL}, {"Pong", {{FRAME_PONG}}, TD_E_PROTOCOL},                              \
        {"part of a tensor", {{FRAME_FETCH_CHUNK}}, TD_E_PROTOCOL}, {"a request", {{FRAME_HELLO}}, TD_E_PROTOCOL},     \
        {"Error", {{FRAME_ERROR, .error = TD_E_LIMIT}}, TD_E_LIMIT},                                                   \
        {"Error without a code", {{FRAME_ERROR, .error = FAKE_CODE_0}}, TD_E_INTERNAL},                                \
        {"Error with an unknown code", {{FRAME_ERROR, .error = 9999}}, TD_E_INTERNAL},                                 \
        {"Error that is none", {{FRAME_ERROR, .garbage = true}}, TD_E_PROTOCOL}, {                                     \
        "silence", {{0}}, TD_E_TIMED_OUT                                                                               \
    }

static const struct row hello_rows[] = {
    {"a right answer", {{FRAME_WELCOME}}, 0},
    {"an older version", {{FRAME_WELCOME, .version = -1}}, TD_E_VERSION},
    {"a newer version", {{FRAME_WELCOME, .version = 1}}, TD_E_VERSION},
    WRONG(FRAME_WELCOME, FRAME_DEVICE_LIST),
};

static const struct row list_rows[] = {
    {"a right answer", {{FRAME_DEVICE_LIST}}, 0},
    WRONG(FRAME_DEVICE_LIST, FRAME_WELCOME),
};

#define LONG_NAME "cpu:00000000000000000000000000000000000000000000000000000000000000000000000000000000"

/* To the Hello of a device's own connection. */
static const struct row device_rows[] = {
    {"the device asked for", {{FRAME_WELCOME}}, 0},
    {"chunks of one byte", {{FRAME_WELCOME, .chunk = 1}}, 0},
    {"chunks of 2^64 - 1 bytes", {{FRAME_WELCOME, .chunk = UINT64_MAX}}, 0},
    {"another device", {{FRAME_WELCOME, .device = "cpu:1"}}, TD_E_NO_DEVICE},
    {"no device", {{FRAME_WELCOME, .device = ""}}, TD_E_NO_DEVICE},
    {"a name too long", {{FRAME_WELCOME, .device = LONG_NAME}}, TD_E_NO_DEVICE},
    WRONG(FRAME_WELCOME, FRAME_DEVICE_LIST),
};

/* To the ListDevices that looks for "cpu:0". */
static const struct row name_rows[] = {
    {"the device asked for", {{FRAME_DEVICE_LIST}}, 0},
    {"another device alone", {{FRAME_DEVICE_LIST, .device = "cpu:1"}}, TD_E_NO_DEVICE},
    {"a device without a name", {{FRAME_DEVICE_LIST, .device = ""}}, TD_E_NO_DEVICE},
    {"a name too long", {{FRAME_DEVICE_LIST, .device = LONG_NAME}}, TD_E_NO_DEVICE},
    {"the target of control connections", {{FRAME_DEVICE_LIST, .target = 0xffff}}, TD_E_PROTOCOL},
    {"a target that no preamble holds", {{FRAME_DEVICE_LIST, .target = 0x10000}}, TD_E_PROTOCOL},
};

#define EACH(rows, check)                                                                                              \
    for (size_t i = 0; i < sizeof(rows) / sizeof *(rows); i++)                                                         \
    check(&(rows)[i])

static const td_options *options_for(const struct row *row) {
    return row->code == TD_E_TIMED_OUT ? &short_timeout : NULL;
}

static void expect_code(const struct row *row, int code) {
    cr_expect_eq(code, row->code, "%s: %d (%s)", row->name, code, td_last_error()->message);
}

static void connects(const struct row *row) {
    td_connection *connection;
    fake.greeting = row->frames;
    int code = td_connect(fake.url, options_for(row), &connection);
    expect_code(row, code);
    if (!code)
        td_close(connection);
}

Test(client_handshake, wrong_answers_to_hello) {
    EACH(hello_rows, connects);
}

static void lists(const struct row *row) {
    td_connection *connection;
    size_t count;
    cr_assert_eq(td_connect(fake.url, options_for(row), &connection), 0);
    fake.listing = row->frames;
    expect_code(row, td_devices(connection, NULL, 0, &count));
    cr_expect_eq(td_devices(connection, NULL, 0, &count), 0, "after %s", row->name);
    cr_expect_eq(count, 2);
    td_close(connection);
}

Test(client_handshake, wrong_lists_of_devices) {
    EACH(list_rows, lists);
}

static void opens(const struct row *row, const struct fake_frame *_Atomic *script) {
    static uint8_t data[5000], back[5000];
    td_connection *connection;
    td_device *device;
    cr_assert_eq(td_connect(fake.url, options_for(row), &connection), 0);
    *script = row->frames;
    int code = td_device_open(connection, "cpu:0", &device);
    expect_code(row, code);
    if (!code) {
        memset(data, 7, sizeof data);
        td_tensor *x = td_upload(device, TD_U8, TD_SHAPE(sizeof data), data);
        cr_expect_eq(td_fetch(x, back, sizeof back), 0, "%s", row->name);
        cr_expect(!memcmp(data, back, sizeof data), "%s", row->name);
    }
    td_close(connection);
}

static void opens_greeted(const struct row *row) {
    opens(row, &fake.greeting);
}

static void opens_listed(const struct row *row) {
    opens(row, &fake.listing);
}

Test(client_handshake, wrong_answers_to_a_devices_hello) {
    EACH(device_rows, opens_greeted);
}

Test(client_handshake, lists_that_mislead) {
    EACH(name_rows, opens_listed);
}

Test(client_handshake, a_second_welcome_ends_the_session) {
    static const struct fake_frame twice[FAKE_FRAMES_MAX] = {{FRAME_WELCOME}, {FRAME_WELCOME}};
    td_connection *connection;
    td_device *device;
    size_t count;
    fake.greeting = twice;
    cr_assert_eq(td_connect(fake.url, NULL, &connection), 0);
    cr_expect_eq(td_devices(connection, NULL, 0, &count), TD_E_PROTOCOL);
    cr_assert_eq(td_devices(connection, NULL, 0, &count), 0);
    fake.greeting = twice;
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
    cr_expect_eq(td_sync(device), TD_E_PROTOCOL);
    td_close(connection);
}

/* For root nothing is forbidden: the test takes another user's rights for a moment. */
Test(client_handshake, forbidden_sockets_name_the_group_to_ask_for) {
    td_connection *forbidden;
    const char *path = strchr(fake.url, ':') + 1;
    const struct group *group = getgrgid(1);
    if (geteuid() != 0 || !group)
        cr_skip_test("takes root, and the group 1");
    char words[200];
    snprintf(words, sizeof words, "permission denied; ask to be added to the group %s", group->gr_name);
    cr_assert(!chmod(path, 0660) && !chown(path, 0, 1));
    cr_assert_eq(seteuid(65534), 0);
    int code = td_connect(fake.url, NULL, &forbidden);
    cr_assert_eq(seteuid(0), 0);
    cr_assert_eq(code, TD_E_CONNECTION, "%d: %s", code, td_last_error()->message);
    cr_expect_not_null(strstr(td_last_error()->message, words), "%s", td_last_error()->message);
}

/* OpenSSL has only "system lib" to say. */
Test(client_handshake, missing_tls_files_are_said_to_be_missing) {
    static const struct {
        td_options options;
        const char *words;
    } rows[] = {{{.ca_file = "/nowhere/ca.pem"}, "the CA's certificates, /nowhere/ca.pem: No such file or directory"},
                {{.cert_file = "/nowhere/cert.pem"}, "the client's certificate, /nowhere/cert.pem: No such file"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        td_connection *none;
        cr_expect_eq(td_connect("tls://127.0.0.1:1", &rows[i].options, &none), TD_E_INVALID_ARGUMENT);
        cr_expect_not_null(strstr(td_last_error()->message, rows[i].words), "%s", td_last_error()->message);
    }
}

/* Writes a certificate to a temporary file, whose name it fills in, and no key. */
static void certificate_write(char path[]) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    cr_assert(X509_sign(certificate, key, EVP_sha256()) > 0);
    FILE *file = fdopen(mkstemp(path), "w");
    cr_assert(file && PEM_write_X509(file, certificate) && !fclose(file));
    X509_free(certificate);
    EVP_PKEY_free(key);
}

/* OpenSSL has only "PEM lib" to say. */
Test(client_handshake, a_file_without_a_key_is_said_to_have_none) {
    char path[] = "/tmp/tensord-certificate.XXXXXX", words[128];
    td_connection *none;
    certificate_write(path);
    cr_expect_eq(td_connect("tls://127.0.0.1:1", &(td_options){.cert_file = path}, &none), TD_E_INVALID_ARGUMENT);
    snprintf(words, sizeof words, "the client's key, %s: there is no key in it, and no other file is named", path);
    cr_expect_not_null(strstr(td_last_error()->message, words), "%s", td_last_error()->message);
    cr_expect_eq(td_connect("tls://127.0.0.1:1", &(td_options){.cert_file = path, .key_file = path}, &none),
                 TD_E_INVALID_ARGUMENT);
    snprintf(words, sizeof words, "the client's key, %s: there is no key in it", path);
    cr_expect_str_eq(td_last_error()->message, words);
    unlink(path);
}
