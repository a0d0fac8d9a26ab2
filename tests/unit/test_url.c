#include "proto/net/url.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fault fault;

Test(url, unix_paths) {
    struct url url;
    cr_assert_eq(url_parse("unix:/run/tensord/tensord.sock", &url, &fault), STATUS_OK);
    cr_assert_eq(url.kind, URL_UNIX);
    cr_assert_str_eq(url.path, "/run/tensord/tensord.sock");
}

Test(url, tcp_hosts_and_ports) {
    struct url url;
    cr_assert_eq(url_parse("tcp://example.org:8478", &url, &fault), STATUS_OK);
    cr_assert_eq(url.kind, URL_TCP);
    cr_assert_str_eq(url.host, "example.org");
    cr_assert_eq(url.port, 8478);
    cr_assert_eq(url_parse("tcp://127.0.0.1:0", &url, &fault), STATUS_OK);
    cr_assert_eq(url.port, 0);
    cr_assert_eq(url_parse("tcp://[::1]:65535", &url, &fault), STATUS_OK);
    cr_assert_str_eq(url.host, "::1");
    cr_assert_eq(url.port, 65535);
}

Test(url, tls_is_tcp_with_another_name) {
    struct url url;
    cr_assert_eq(url_parse("tls://[::1]:8478", &url, &fault), STATUS_OK);
    cr_assert_eq(url.kind, URL_TLS);
    cr_assert_str_eq(url.host, "::1");
    cr_assert_eq(url.port, 8478);
    url.port = 1;
    cr_assert_eq(url_parse("tls://host", &url, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(url.kind, URL_TLS);
    cr_assert_eq(url.port, 1, "untouched");
}

Test(url, bad_forms_are_refused_with_a_hint) {
    const char *const bad[] = {
        "",           "unix:",           "unix:relative",    "/run/x",        "tcp://",         "tcp://host",
        "tcp://:1",   "tcp://host:",     "tcp://host:65536", "tcp://host:-1", "tcp://host:1x",  "tcp://::1:8478",
        "tcp://[]:1", "tcp://[::1]8478", "tcp://[::1",       "tcp://h/x:1",   "http://host:80", "tcp:host:1",
        "tcp://h:1/", "tcp://h:000001",  "tcp://[host]:1",   "tcp://a b:1",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct url url = {.port = 4242};
        cr_assert_eq(url_parse(bad[i], &url, &fault), STATUS_INVALID_ARGUMENT, "%s", bad[i]);
        cr_assert_not_null(strstr(fault.message, "tcp://host:port"), "%s", fault.message);
        cr_assert_eq(url.port, 4242, "%s", bad[i]);
    }
}

Test(url, long_paths_and_hosts_are_refused_not_cut) {
    struct url url;
    char text[600] = "unix:/";
    memset(text + 6, 'x', 106); /* 107 bytes with the slash: the longest that fits */
    cr_assert_eq(url_parse(text, &url, &fault), STATUS_OK);
    cr_assert_eq(strlen(url.path), 107u);
    text[112] = 'x';
    cr_assert_eq(url_parse(text, &url, &fault), STATUS_INVALID_ARGUMENT);
    snprintf(text, sizeof(text), "tcp://%0256d:1", 0);
    cr_assert_eq(url_parse(text, &url, &fault), STATUS_INVALID_ARGUMENT);
}

Test(url, the_default_is_in_the_runtime_directory) {
    char text[256];
    setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
    cr_assert_eq(url_default(text, sizeof(text), &fault), STATUS_OK);
    cr_assert_str_eq(text, "unix:/run/user/1000/tensord.sock");
    cr_assert_eq(url_default(text, 10, &fault), STATUS_INVALID_ARGUMENT);
}

Test(url, the_default_without_runtime_directory_is_for_root_only) {
    char text[256];
    unsetenv("XDG_RUNTIME_DIR");
    int status = url_default(text, sizeof(text), &fault);
    if (geteuid() == 0) {
        cr_assert_eq(status, STATUS_OK);
        cr_assert_str_eq(text, "unix:/run/tensord/tensord.sock");
    } else {
        cr_assert_eq(status, STATUS_INVALID_ARGUMENT);
    }
}

static bool loopback(const char *text) {
    struct url url;
    struct url_address address;
    size_t count = 0;
    cr_assert_eq(url_parse(text, &url, &fault), STATUS_OK, "%s", text);
    cr_assert_eq(url_resolve(&url, true, &address, 1, &count, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(count, 1u);
    return url_is_loopback(&address);
}

Test(url, loopback_is_told_from_the_rest) {
    cr_assert(loopback("unix:/tmp/x"));
    cr_assert(loopback("tcp://127.0.0.1:1"));
    cr_assert(loopback("tcp://127.200.0.9:1"));
    cr_assert(loopback("tcp://[::1]:1"));
    cr_assert(loopback("tcp://[::ffff:127.0.0.1]:1"));
    cr_assert_not(loopback("tcp://0.0.0.0:1"));
    cr_assert_not(loopback("tcp://192.0.2.1:1"));
    cr_assert_not(loopback("tcp://[::]:1"));
    cr_assert_not(loopback("tcp://[2001:db8::1]:1"));
}

Test(url, a_host_that_cannot_be_resolved_is_named) {
    struct url url;
    struct url_address address;
    size_t count;
    url_parse("tcp://[1:2:3:4:5:6:7:8:9]:1", &url, &fault);
    cr_assert_eq(url_resolve(&url, false, &address, 1, &count, &fault), STATUS_CONNECTION);
    cr_assert_not_null(strstr(fault.message, "1:2:3:4:5:6:7:8:9"));
}

static void touch(const char *path) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fclose(file);
}

/* The user's own daemon first, then the host's; a user without either is told of the host's. */
Test(url, clients_find_the_users_own_socket_or_the_hosts) {
    char folder[] = "/tmp/tensord-url-XXXXXX", own[64], system[64], own_url[80], system_url[80], text[200];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(own, sizeof(own), "%s/tensord.sock", folder);
    snprintf(system, sizeof(system), "%s/system.sock", folder);
    snprintf(own_url, sizeof(own_url), "unix:%s", own);
    snprintf(system_url, sizeof(system_url), "unix:%s", system);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    cr_assert_eq(url_find(system, text, sizeof(text), NULL), STATUS_OK);
    cr_expect_str_eq(text, own_url, "neither is there");
    touch(system);
    cr_assert_eq(url_find(system, text, sizeof(text), NULL), STATUS_OK);
    cr_expect_str_eq(text, system_url);
    touch(own);
    cr_assert_eq(url_find(system, text, sizeof(text), NULL), STATUS_OK);
    cr_expect_str_eq(text, own_url);
    setenv("XDG_RUNTIME_DIR", "relative", 1); /* is none */
    if (geteuid() == 0 && !seteuid(65534)) {
        cr_assert_eq(url_find(system, text, sizeof(text), NULL), STATUS_OK);
        cr_expect_str_eq(text, system_url);
        cr_assert_eq(seteuid(0), 0);
    }
    unlink(own), unlink(system), rmdir(folder);
}
