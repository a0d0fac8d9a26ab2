/* Poisons: which cause wins, and that every reference is given back (the sanitizer counts them). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/order/poison.h"
#include "tests/stand_ins/null_device.h"

static struct null_device device;
static struct reports reports;

static void open_reports(void) {
    null_device_init(&device, 1 << 20);
    reports_init(&reports, &device.device);
}

static void close_reports(void) {
    reports_finish(&reports);
}

TestSuite(poison, .init = open_reports, .fini = close_reports);

static struct guard *failed(const char *words) {
    struct fault cause = {.code = STATUS_CONNECTION};
    snprintf(cause.message, sizeof cause.message, "%s", words);
    return guard_failed(&cause, "copy_to", "label", 7);
}

static struct poison *settled(struct guard *guard) {
    struct poison *poison = poison_create(), *none[3] = {NULL, NULL, NULL};
    poison_settle(poison_ref(poison), none, guard);
    return poison;
}

static void expect_cause(const struct poison *poison, const char *words) {
    if (!words) {
        cr_assert_eq(poison_state(poison), POISON_CLEAR);
        return;
    }
    cr_assert_eq(poison_state(poison), POISON_FAILED);
    struct fault fault;
    guard_fault(poison->cause, &fault);
    cr_assert_str_eq(fault.message, words);
    cr_assert_str_eq(poison->cause->operation, "copy_to");
    cr_assert_str_eq(poison->cause->label, "label");
    cr_assert_eq(poison->cause->sequence, 7);
}

Test(poison, is_open_until_settled) {
    struct poison *poison = poison_create();
    cr_assert_eq(poison_state(poison), POISON_OPEN);
    poison_unref(poison);
    poison_unref(NULL);
    guard_unref(NULL);
}

/* Every mix of three inputs (none, clear, failed) and an own guard: the first failed input wins over the guard. */
Test(poison, the_first_cause_wins) {
    static const char *const words[3] = {"first", "second", "third"};
    for (unsigned mix = 0; mix < 27 * 3; mix++) {
        unsigned kinds[3] = {mix % 3, mix / 3 % 3, mix / 9 % 3}, own = mix / 27;
        struct poison *inputs[3], *poison = poison_create();
        const char *expected = NULL;
        for (int i = 0; i < 3; i++) {
            inputs[i] = kinds[i] == 0 ? NULL : settled(kinds[i] == 2 ? failed(words[i]) : NULL);
            if (kinds[i] == 2 && !expected)
                expected = words[i];
        }
        if (own == 2 && !expected)
            expected = "own";
        poison_settle(poison_ref(poison), inputs,
                      own == 2 ? failed("own")
                      : own    ? guard_create(&reports, "x", NULL, 1, 0)
                               : NULL);
        expect_cause(poison, expected);
        poison_unref(poison);
    }
}

Test(poison, a_cause_outlives_where_it_came_from) {
    struct poison *poison = settled(failed("root"));
    for (int i = 0; i < 100; i++) {
        struct poison *next = poison_create();
        struct poison *inputs[3] = {NULL, NULL, NULL};
        inputs[i % 3] = poison;
        poison_settle(poison_ref(next), inputs, NULL);
        poison = next;
    }
    expect_cause(poison, "root");
    poison_unref(poison);
}

Test(poison, the_same_poison_may_be_an_input_twice) {
    struct poison *input = settled(failed("root")), *poison = poison_create();
    struct poison *inputs[3] = {poison_ref(input), input, NULL};
    poison_settle(poison_ref(poison), inputs, NULL);
    expect_cause(poison, "root");
    poison_unref(poison);
}

Test(poison, a_report_is_put_in_words) {
    struct guard *guard = guard_create(&reports, "take", NULL, 3, 1);
    guard->report->value = -4;
    guard->report->position = 17;
    guard->report->limit = 10;
    atomic_store(&guard->report->code, STATUS_OUT_OF_RANGE);
    struct poison *poison = settled(guard);
    struct fault fault;
    guard_fault(poison->cause, &fault);
    cr_assert_eq(fault.code, STATUS_OUT_OF_RANGE);
    cr_assert_str_eq(fault.message, "index -4 at position 17 is out of range for axis 1 of extent 10");
    poison_unref(poison);
}

/* one_hot and losses have no axis to name. */
Test(poison, a_report_of_classes_names_no_axis) {
    struct guard *guard = guard_create(&reports, "one_hot", NULL, 3, -1);
    guard->report->value = 3;
    guard->report->position = 17;
    guard->report->limit = 3;
    atomic_store(&guard->report->code, STATUS_OUT_OF_RANGE);
    struct fault fault;
    guard_fault(guard, &fault);
    cr_assert_str_eq(fault.message, "index 3 at position 17 is none of 3 classes");
    guard_unref(guard);
}

Test(poison, long_labels_are_cut) {
    char label[1000];
    memset(label, 'x', sizeof label - 1);
    label[sizeof label - 1] = 0;
    struct guard *guard = guard_create(&reports, "take", label, 3, 1);
    cr_assert_eq(strlen(guard->label), OPERATION_LABEL_MAX);
    guard_unref(guard);
}
