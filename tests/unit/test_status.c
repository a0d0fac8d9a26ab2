#include "proto/status.h"

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
