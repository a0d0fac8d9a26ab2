/* The table of limits: its keys, their defaults, and what they refuse. */
#include <criterion/criterion.h>
#include <string.h>

#include "server/front/config.h"
#include "server/users/limits.h"

Test(limits, every_row_has_a_key_that_sets_it) {
    struct limits limits;
    const char *key, *unit;
    uint64_t value;
    unsigned rows = 0;
    limits_init(&limits);
    for (; limits_row(&limits, rows, &key, &value, &unit); rows++) {
        struct fault fault;
        const char *text = !strcmp(unit, "ms") ? "77s" : !strcmp(unit, "") ? "77" : "77M";
        uint64_t want = !strcmp(unit, "ms") ? 77000 : !strcmp(unit, "") ? 77 : UINT64_C(77) << 20, got;
        cr_assert(limits_has(key));
        cr_assert_neq(value, want, "%s has no default that can be told apart", key);
        cr_assert_eq(limits_set(&limits, key, text, &fault), STATUS_OK, "%s: %s", key, fault.message);
        limits_row(&limits, rows, &key, &got, &unit);
        cr_assert_eq(got, want, "%s", key);
    }
    cr_assert_eq(rows, LIMITS_KEYS);
}

Test(limits, defaults_leave_the_device_to_whoever_comes) {
    struct limits limits;
    limits_init(&limits);
    cr_assert_eq(limits.session_bytes, 0);
    cr_assert_eq(limits.session_tensors, 1 << 20);
    cr_assert_eq(limits.session_operations, 65536);
    cr_assert_eq(limits.session_out_bytes, 16 << 20);
    cr_assert_eq(limits.principal_bytes, 0);
    cr_assert_eq(limits.principal_rate, 0);
    cr_assert_eq(limits.weight, 100);
    cr_assert_eq(limits.idle_timeout, 0);
    cr_assert_eq(limits.session_lease, 60000);
}

Test(limits, what_is_wrong_is_refused_and_changes_nothing) {
    static const struct {
        const char *key, *value, *message;
    } rows[] = {
        {"colour", "red", "unknown key \"colour\""},
        {"weight", "", "\"weight\" has no value"},
        {"weight", "0", "\"0\" is not a number from 1 to 10000"},
        {"weight", "10001", "is not a number"},
        {"session-tensors", "0", "is not a number"},
        {"principal-operations", "0", "is not a number"},
        {"principal-bytes", "lots", "\"lots\" is not a size"},
        {"principal-bytes", "9223372036854775808", "is out of range"},
        {"principal-rate", "1M/s", "is not a size"},
        {"session-out-bytes", "1K", "\"1K\" is out of range: 1M to 1T"},
        {"idle-timeout", "5", "\"5\" is not a duration"},
        {"session-lease", "-1s", "is not a duration"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct limits limits, before;
        struct fault fault;
        limits_init(&limits);
        before = limits;
        cr_assert_eq(limits_set(&limits, rows[i].key, rows[i].value, &fault), STATUS_INVALID_ARGUMENT, "%s = %s",
                     rows[i].key, rows[i].value);
        cr_assert_not_null(strstr(fault.message, rows[i].message), "%s", fault.message);
        cr_assert(!memcmp(&limits, &before, sizeof limits), "%s = %s", rows[i].key, rows[i].value);
    }
}

Test(limits, units_may_be_large) {
    struct limits limits;
    struct fault fault;
    limits_init(&limits);
    cr_assert_eq(limits_set(&limits, "idle-timeout", "8h", &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(limits.idle_timeout, 8 * 3600 * 1000);
    cr_assert_eq(limits_set(&limits, "principal-bytes", "1T", &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(limits.principal_bytes, UINT64_C(1) << 40);
}

Test(limits, what_was_left_empty_gets_its_default) {
    struct limits limits = {.session_tensors = 5};
    limits_fill(&limits);
    cr_assert_eq(limits.session_tensors, 5);
    cr_assert_eq(limits.session_streams, 64);
    cr_assert_eq(limits.weight, 100);
    cr_assert_eq(limits.session_bytes, 0);
}

Test(limits, flags_set_the_limits_of_everybody) {
    char *arguments[] = {"tensord", "--principal-bytes", "3G", "--weight=7", "--idle-timeout", "90s", NULL};
    struct config config;
    enum config_action action;
    struct fault fault;
    config_init(&config);
    cr_assert_eq(config_read_flags(&config, 6, arguments, &action, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(config.limits.principal_bytes, UINT64_C(3) << 30);
    cr_assert_eq(config.limits.weight, 7);
    cr_assert_eq(config.limits.idle_timeout, 90000);
    arguments[2] = "x";
    cr_assert_eq(config_read_flags(&config, 6, arguments, &action, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(fault.message, "--principal-bytes: \"x\" is not a size"), "%s", fault.message);
}
