#include "proto/ops/status.h"

#include <criterion/criterion.h>
#include <string.h>

Test(status, every_code_has_a_name_and_a_text) {
    for (int code = 0; code < STATUS_COUNT; code++) {
        cr_assert_not_null(status_name(code));
        cr_assert_gt(strlen(status_name(code)), 0u);
        cr_assert_gt(strlen(status_text(code)), 0u);
    }
    cr_assert_str_eq(status_name(STATUS_OUT_OF_MEMORY), "OUT_OF_MEMORY");
}

Test(status, numbers_that_are_no_code_have_a_text_too) {
    cr_assert_str_eq(status_text(-1), "unknown status");
    cr_assert_str_eq(status_name(STATUS_COUNT), "UNKNOWN");
}

Test(status, fault_carries_code_and_words) {
    struct fault fault;
    cr_assert_eq(fault_set(&fault, STATUS_SHAPE, "%d and %s", 7, "words"), STATUS_SHAPE);
    cr_assert_eq(fault.code, STATUS_SHAPE);
    cr_assert_str_eq(fault.message, "7 and words");
}

Test(status, fault_cuts_long_words_and_may_be_null) {
    struct fault fault;
    char words[1000];
    memset(words, 'x', sizeof(words));
    words[sizeof(words) - 1] = 0;
    fault_set(&fault, STATUS_SHAPE, "%s", words);
    cr_assert_eq(strlen(fault.message), sizeof(fault.message) - 1);
    cr_assert_eq(fault_set(NULL, STATUS_LIMIT, "%s", words), STATUS_LIMIT);
}

Test(status, faults_are_text_whatever_others_have_named) {
    static const struct {
        const char *given, *shown;
    } rows[] = {
        {"\x1b]0;owned\x07", "\\x1b]0;owned\\x07"},
        {"two\nlines", "two\\nlines"},
        {"\xc2\x9b"
         "31m",
         "\\u009b31m"},
        {"\xe2\x80\xae", "\\u202e"},
        {"\xe2\x80\xa8", "\\u2028"},
        {"\xff", "\\xff"},
        {"gr\xc3\xbcn \\", "gr\xc3\xbcn \\"},
        {"\xf3\xa0\x80\x81", "\\ue0001"},
        {"\xe2\x82", "\\xe2\\x82"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fault fault, again;
        fault_set(&fault, STATUS_SHAPE, "%s", rows[i].given);
        cr_expect_str_eq(fault.message, rows[i].shown, "row %zu: %s", i, fault.message);
        fault_set(&again, STATUS_SHAPE, "%s", fault.message);
        cr_expect_str_eq(again.message, fault.message, "row %zu", i);
    }
    struct fault fault;
    char words[1000];
    memset(words, 27, sizeof words);
    words[sizeof words - 1] = 0;
    fault_set(&fault, STATUS_SHAPE, "%s", words);
    cr_assert_eq(strlen(fault.message), 252, "no escape is cut");
}
