/* Logins: who is let in, and how those who fail are slowed down. */
#include "server/front/login.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/process/log.h"
#include "server/users/users_edit.h"

static uv_loop_t loop;
static struct config config;
static struct login login;
static char directory[] = "/tmp/tensord-test-login-XXXXXX";
static char good[TOKEN_TEXT_CHARS + 1], bad[TOKEN_TEXT_CHARS + 1];

static int add_alice(struct users_edit *edit, void *owner, struct fault *fault) {
    char record[TOKEN_RECORD_BYTES];
    struct token token;
    (void)owner;
    cr_assert_eq(token_make(&token, good, fault), STATUS_OK);
    token_record_write(&token, record);
    cr_assert_eq(users_edit_add(edit, "alice", ROLE_RUN, fault), STATUS_OK);
    return users_edit_add_pair(edit, "alice", "token", record, fault);
}

static void setup(void) {
    struct fault fault;
    log_init(LOG_LEVEL_ERROR, "test");
    cr_assert_not_null(mkdtemp(directory));
    config_init(&config);
    snprintf(config.users, sizeof config.users, "%s/users", directory);
    cr_assert_eq(users_edit(config.users, true, add_alice, NULL, &fault), STATUS_OK, "%s", fault.message);
    memcpy(bad, good, sizeof bad);
    bad[TOKEN_TEXT_CHARS - 1] = bad[TOKEN_TEXT_CHARS - 1] == '0' ? '1' : '0';
    uv_loop_init(&loop);
    cr_assert_eq(login_init(&login, &loop, &config, &fault), STATUS_OK, "%s", fault.message);
}
static void teardown(void) {
    char used[sizeof login.use.path];
    memcpy(used, login.use.path, sizeof used);
    login_finish(&login);
    unlink(used);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0, "a handle was left");
    unlink(config.users);
    rmdir(directory);
}
TestSuite(login, .init = setup, .fini = teardown, .timeout = 60);

static struct peer peer_at(unsigned char last) {
    struct peer peer = {.source = {SOURCE_IPV4, {192, 0, 2, last}}};
    snprintf(peer.address, sizeof peer.address, "192.0.2.%u:1", last);
    login_identify(&login, &peer);
    return peer;
}

struct result {
    unsigned calls;
    int status;
    struct principal principal;
};
static void done(void *owner, uint64_t number, int status, const struct principal *principal,
                 const struct fault *fault) {
    struct result *result = owner;
    (void)number, (void)fault;
    result->calls++;
    result->status = status;
    if (!status)
        result->principal = *principal;
}

/* What login_check says; STATUS_AGAIN's end comes into `result`. */
static int try(unsigned char last, const char *token, struct result *result) {
    struct peer peer = peer_at(last);
    struct login_request request = {.peer = &peer, .token = token, .done = done, .owner = result};
    struct fault fault;
    return login_check(&login, &request, &result->principal, &fault);
}

static void fail_often(unsigned char last, unsigned times) {
    struct result result = {0};
    for (unsigned i = 0; i < times; i++)
        cr_assert_eq(try(last, bad, &result), STATUS_DENIED);
}

static struct source source_of(const char *text) {
    struct sockaddr_storage address = {.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET};
    struct source source;
    void *place = address.ss_family == AF_INET6 ? (void *)&((struct sockaddr_in6 *)&address)->sin6_addr
                                                : (void *)&((struct sockaddr_in *)&address)->sin_addr;
    cr_assert_eq(inet_pton(address.ss_family, text, place), 1);
    source_find(&source, &address);
    return source;
}

Test(login, a_source_is_an_address_or_a_network_of_64_bits) {
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"192.0.2.1", "192.0.2.1", true},
        {"192.0.2.1", "192.0.2.2", false},
        {"2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true},
        {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
        {"::ffff:192.0.2.1", "192.0.2.1", true},
        {"::ffff:192.0.2.1", "::ffff:192.0.2.2", false},
        {"::1", "127.0.0.1", false},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct source a = source_of(rows[i].a), b = source_of(rows[i].b);
        bool same = a.kind == b.kind && !memcmp(a.bytes, b.bytes, sizeof a.bytes);
        cr_expect_eq(same, rows[i].same, "%s and %s", rows[i].a, rows[i].b);
    }
}

Test(login, the_right_token_is_somebody) {
    struct result result = {0};
    cr_assert_eq(try(1, good, &result), STATUS_OK);
    cr_assert_str_eq(result.principal.name, "alice");
    cr_assert(!strncmp(result.principal.credential, good + 8, TOKEN_ID_CHARS));
    cr_assert_eq(result.principal.role, ROLE_RUN);
    cr_assert_eq(login.counts.granted, 1);
}

Test(login, last_uses_of_revoked_tokens_are_forgotten) {
    char id[TOKEN_ID_CHARS + 1];
    struct token_use read;
    struct result result = {0};
    cr_assert_eq(try(1, good, &result), STATUS_OK);
    token_text_id(good, id);
    token_use_note(&login.use, "0badcafe", 1000000000);
    token_use_save(&login.use, login.users, 2000000000, true);
    cr_assert_eq(token_use_of(&login.use, "0badcafe"), 0);
    token_use_init(&read, config.users);
    cr_assert_eq(read.count, 1);
    cr_assert_eq(token_use_of(&read, id), token_use_of(&login.use, id));
    cr_assert_neq(token_use_of(&read, id), 0);
    unlink(read.path);
    token_use_finish(&read);
}

Test(login, each_way_to_fail_is_counted_for_itself) {
    struct result result = {0};
    char unknown[TOKEN_TEXT_CHARS + 1];
    memcpy(unknown, good, sizeof unknown);
    unknown[8] = unknown[8] == '0' ? '1' : '0';
    cr_assert_eq(try(1, "", &result), STATUS_DENIED);
    cr_assert_eq(try(1, "tensord_x", &result), STATUS_DENIED);
    cr_assert_eq(try(1, unknown, &result), STATUS_DENIED);
    cr_assert_eq(try(2, bad, &result), STATUS_DENIED);
    cr_assert_eq(login.counts.no_token, 1);
    cr_assert_eq(login.counts.malformed, 1);
    cr_assert_eq(login.counts.unknown, 1);
    cr_assert_eq(login.counts.wrong, 1);
    cr_assert_eq(login.counts.granted, 0);
}

Test(login, a_stranger_is_told_the_same_whatever_is_wrong) {
    struct peer peer = peer_at(1);
    struct principal principal;
    struct fault first, second;
    struct login_request request = {.peer = &peer, .token = bad};
    cr_assert_eq(login_check(&login, &request, &principal, &first), STATUS_DENIED);
    request.token = "tensord_00000000_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    cr_assert_eq(login_check(&login, &request, &principal, &second), STATUS_DENIED);
    cr_assert_str_eq(first.message, second.message);
}

Test(login, a_good_token_is_let_in_at_once_whatever_others_at_its_address_do) {
    static struct result waiting[LOGIN_SOURCE_WAITING_MAX];
    struct result result = {0};
    fail_often(1, LOGIN_FREE_FAILURES);
    cr_assert_eq(try(1, good, &result), STATUS_OK, "after failures");
    for (unsigned i = 0; i < LOGIN_SOURCE_WAITING_MAX; i++)
        cr_assert_eq(try(1, bad, &waiting[i]), STATUS_AGAIN);
    cr_assert_eq(try(1, bad, &result), STATUS_LIMIT);
    cr_assert_eq(try(1, good, &result), STATUS_OK, "where all who may wait do");
    cr_assert_str_eq(result.principal.name, "alice");
    cr_assert_eq(login.counts.granted, 2);
    cr_assert_eq(login.counts.put_off, LOGIN_SOURCE_WAITING_MAX);
}

Test(login, a_wrong_token_that_waited_is_denied_and_counts_again) {
    struct result result = {0};
    fail_often(1, LOGIN_FREE_FAILURES);
    cr_assert_eq(try(1, bad, &result), STATUS_AGAIN);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(result.status, STATUS_DENIED);
    cr_assert_eq(login.counts.wrong, LOGIN_FREE_FAILURES + 1);
    cr_assert_eq(login.sources.sources[0].failures, LOGIN_FREE_FAILURES + 1);
}

Test(login, others_are_not_held_up) {
    struct result waiting = {0}, result = {0};
    fail_often(1, LOGIN_FREE_FAILURES);
    cr_assert_eq(try(1, bad, &waiting), STATUS_AGAIN);
    cr_assert_eq(try(2, good, &result), STATUS_OK);
    cr_assert_eq(waiting.calls, 0);
}

Test(login, showing_no_token_tries_nothing_and_slows_nobody_down) {
    struct result result = {0};
    for (unsigned i = 0; i < 100; i++)
        cr_assert_eq(try(1, "", &result), STATUS_DENIED);
    cr_assert_eq(try(1, good, &result), STATUS_OK);
}

Test(login, only_so_many_of_one_source_wait) {
    static struct result results[LOGIN_SOURCE_WAITING_MAX];
    struct result result = {0};
    fail_often(1, LOGIN_FREE_FAILURES);
    for (unsigned i = 0; i < LOGIN_SOURCE_WAITING_MAX; i++)
        cr_assert_eq(try(1, bad, &results[i]), STATUS_AGAIN);
    for (unsigned i = 0; i < 1000; i++)
        cr_assert_eq(try(1, bad, &result), STATUS_LIMIT);
    cr_assert_eq(login.n_waiting, LOGIN_SOURCE_WAITING_MAX);
    cr_assert_eq(login.counts.turned_away, 1000);
    cr_assert_eq(try(2, good, &result), STATUS_OK);
    uv_run(&loop, UV_RUN_DEFAULT);
    for (unsigned i = 0; i < LOGIN_SOURCE_WAITING_MAX; i++)
        cr_assert_eq(results[i].calls, 1);
}

Test(login, a_failure_that_cannot_wait_is_turned_away_after_others_of_its_kind) {
    struct peer peer = peer_at(1), other = peer_at(2);
    struct login_request request = {.peer = &peer, .token = bad};
    struct principal principal;
    struct result result = {0};
    struct fault fault;
    uint64_t wait_ms, started = uv_hrtime();
    for (unsigned i = 0; i < LOGIN_FREE_FAILURES; i++) {
        cr_assert_eq(login_check_now(&login, &request, &principal, &wait_ms, &fault), STATUS_DENIED);
        cr_assert_eq(wait_ms, 0);
    }
    int status = login_check_now(&login, &request, &principal, &wait_ms, &fault);
    if (uv_hrtime() - started < (uint64_t)LOGIN_DELAY_MS * 1000000) {
        cr_assert_eq(status, STATUS_LIMIT);
        cr_assert(wait_ms > 0 && wait_ms <= LOGIN_DELAY_MS, "%lu", wait_ms);
        cr_assert_eq(login.counts.turned_away, 1);
        cr_assert_eq(login.counts.wrong, LOGIN_FREE_FAILURES);
    }
    cr_assert(login.counts.granted == 0 && login.n_waiting == 0);
    cr_assert_eq(try(1, bad, &result), STATUS_DENIED, "others at that address are not slowed down");
    request.token = good;
    cr_assert_eq(login_check_now(&login, &request, &principal, &wait_ms, &fault), STATUS_OK, "a good one is looked at");
    cr_assert_str_eq(principal.name, "alice");
    request.peer = &other;
    cr_assert_eq(login_check_now(&login, &request, &principal, &wait_ms, &fault), STATUS_OK, "another address");
}

/* Those that are turned away do not count as guesses. */
Test(login, guesses_of_one_that_cannot_wait_are_few) {
    struct peer peer = peer_at(1);
    struct login_request request = {.peer = &peer, .token = bad};
    struct principal principal;
    struct fault fault;
    uint64_t wait_ms, started = uv_hrtime(), tried = 0;
    while (uv_hrtime() - started < UINT64_C(500000000)) {
        login_check_now(&login, &request, &principal, &wait_ms, &fault);
        tried++;
    }
    /* Free ones, and those at 100 and 300 ms; the next one would be at 700. */
    cr_assert(login.counts.wrong <= LOGIN_FREE_FAILURES + 2, "%lu", login.counts.wrong);
    cr_assert_eq(login.counts.turned_away, tried - login.counts.wrong);
}

Test(login, only_so_many_wait_in_all) {
    static struct result results[256];
    struct result result = {0};
    unsigned waiting = 0;
    for (unsigned source = 0; source < 64; source++)
        fail_often((unsigned char)source, LOGIN_FREE_FAILURES);
    for (unsigned i = 0; i < 64 * LOGIN_SOURCE_WAITING_MAX; i++)
        waiting += try((unsigned char)(i % 64), bad, &results[i % 256]) == STATUS_AGAIN;
    cr_assert_eq(waiting, LOGIN_WAITING_MAX);
    cr_assert_eq(login.n_waiting, LOGIN_WAITING_MAX);
    cr_assert_eq(try(200, good, &result), STATUS_OK);
}

Test(login, sources_beyond_the_table_replace_the_oldest) {
    struct result result = {0};
    for (unsigned i = 0; i < 4 * LOGIN_SOURCES_MAX; i++) {
        struct peer peer = {.source = {SOURCE_IPV6, {0x20, 1, 0x0d, 0xb8, 0, 0, (uint8_t)(i >> 8), (uint8_t)i}}};
        struct login_request request = {.peer = &peer, .token = bad};
        struct fault fault;
        cr_assert_eq(login_check(&login, &request, &result.principal, &fault), STATUS_DENIED);
    }
    cr_assert_eq(login.sources.n_sources, LOGIN_SOURCES_MAX);
    cr_assert_eq(login.counts.wrong, 4 * LOGIN_SOURCES_MAX);
}

Test(login, a_wait_is_never_longer_than_a_hello_may_take) {
    struct result result = {0};
    config.hello_timeout = 20;
    fail_often(1, LOGIN_FREE_FAILURES);
    for (unsigned i = 0; i < 20; i++) { /* 100 ms · 2^19 would outlast the test */
        cr_assert_eq(try(1, bad, &result), STATUS_AGAIN);
        uv_run(&loop, UV_RUN_DEFAULT);
    }
    cr_assert_eq(result.calls, 20);
}

Test(login, one_that_is_gone_is_not_called) {
    struct result result = {0}, other = {0};
    fail_often(1, LOGIN_FREE_FAILURES);
    cr_assert_eq(try(1, bad, &result), STATUS_AGAIN);
    cr_assert_eq(try(1, bad, &other), STATUS_AGAIN);
    login_forget(&login, &result, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(result.calls, 0);
    cr_assert_eq(other.calls, 1);
}

Test(login, a_token_too_long_for_one_is_none_after_waiting_too) {
    struct result result = {0};
    char text[TOKEN_TEXT_CHARS + 10];
    snprintf(text, sizeof text, "%sabc", good);
    fail_often(1, LOGIN_FREE_FAILURES);
    cr_assert_eq(try(1, text, &result), STATUS_AGAIN);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(result.status, STATUS_DENIED);
    cr_assert_eq(login.counts.malformed, 1);
}

Test(login, a_peer_with_a_uid_needs_no_token_and_a_token_wins) {
    struct peer peer = {.has_uid = true, .uid = 54321, .source = {SOURCE_UID, {1}}};
    struct principal principal;
    struct fault fault;
    struct login_request request = {.peer = &peer, .token = ""};
    login_identify(&login, &peer);
    cr_assert_eq(login_check(&login, &request, &principal, &fault), STATUS_OK);
    cr_assert_str_eq(principal.name, "uid:54321");
    request.token = good;
    cr_assert_eq(login_check(&login, &request, &principal, &fault), STATUS_OK);
    cr_assert_str_eq(principal.name, "alice");
    request.token = bad;
    cr_assert_eq(login_check(&login, &request, &principal, &fault), STATUS_DENIED);
}

Test(login, who_waits_is_looked_up_in_the_users_of_then) {
    struct result result = {0};
    struct users *users, *now;
    struct fault fault;
    cr_assert_eq(users_parse("none", "", &users, &fault), STATUS_OK);
    now = login_replace_users(&login, users);
    for (unsigned i = 0; i < LOGIN_FREE_FAILURES; i++)
        cr_assert_eq(try(1, good, &result), STATUS_DENIED);
    cr_assert_eq(try(1, good, &result), STATUS_AGAIN);
    users_destroy(login_replace_users(&login, now));
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(result.status, STATUS_OK);
    cr_assert_str_eq(result.principal.name, "alice");
    cr_assert_eq(login.counts.unknown, LOGIN_FREE_FAILURES);
}

Test(login, user_kernels_go_by_the_name_of_the_user) {
    struct result result = {0};
    cr_assert_eq(try(1, good, &result), STATUS_OK);
    cr_assert(!result.principal.user_kernels);
    snprintf(config.user_kernels, sizeof config.user_kernels, "alice");
    cr_assert_eq(try(1, good, &result), STATUS_OK);
    cr_assert(result.principal.user_kernels);
}
