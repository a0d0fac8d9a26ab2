#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "proto/wire/check.h"

Test(name, takes_text_of_any_script) {
    static const char *const good[] = {
        "a", "layer.0/weight",   "Ω",        "模型",         "\xf0\x9f\xa6\x80", "\"quoted\" \\",
        " ", "\xf4\x8f\xbf\xbf", "metadata", "__metadata__2"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect_eq(name_check(good[i], NULL), STATUS_OK, "%s", good[i]);
}

Test(name, refuses_what_is_not_utf8_or_steers_a_terminal) {
    static const char *const bad[] = {"",
                                      "\n",
                                      "a\x1b[2J",
                                      "\x7f",
                                      "\xc2\x9b",
                                      "\x80",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "a\xc3",
                                      "\xe2\x82",
                                      "\xf0\x9f\xa6",
                                      "__metadata__"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fault fault = {0};
        cr_expect_eq(name_check(bad[i], &fault), STATUS_INVALID_ARGUMENT, "%zu", i);
        cr_expect(*fault.message);
    }
}

Test(name, has_at_most_255_bytes) {
    char text[300];
    memset(text, 'x', sizeof text);
    text[256] = 0;
    cr_expect_eq(name_check(text, NULL), STATUS_INVALID_ARGUMENT);
    text[255] = 0;
    cr_expect_eq(name_check(text, NULL), STATUS_OK);
}
