/* Kernels of fused launches on a device that compiles nothing: who shares one, who has to wait, and how many there are. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order_impl.h"
#include "engine/program/fusion.h"
#include "engine/program/kernel_impl.h"

static int outcome; /* of compiling */
static unsigned loaded;

static uint32_t target(const struct device *device) {
    (void)device;
    return 90;
}

static int compile(const struct kernel_source *source, const _Atomic bool *cancelled, struct device_code **code,
                   char **log, struct fault *fault) {
    (void)source, (void)cancelled;
    *log = NULL;
    if (outcome != STATUS_OK)
        return fault_set(fault, (enum status)outcome, "it does not compile");
    *code = calloc(1, sizeof **code + 1);
    (*code)->symbol = (const char *)(*code)->code;
    return STATUS_OK;
}

static int measure(const struct device_code *code, uint64_t *bytes, struct fault *fault) {
    (void)code, (void)fault;
    *bytes = 100;
    return STATUS_OK;
}

static int load(struct device *device, const struct device_code *code, struct device_kernel **kernel,
                struct fault *fault) {
    (void)device, (void)code, (void)fault;
    *kernel = calloc(1, sizeof **kernel);
    loaded++;
    return STATUS_OK;
}

static void release(struct device *device, struct device_kernel *kernel) {
    (void)device;
    free(kernel);
    loaded--;
}

static char *text(const struct fused_launch *launch) {
    char *text = NULL;
    return asprintf(&text, "%d", (int)launch->columns) > 0 ? text : NULL;
}

static char *source(const char *text) {
    return strdup(text);
}

static const struct device_kernels kernels = {
    .target = target, .compile = compile, .measure = measure, .load = load, .release = release};
static const struct device_fusion fusion = {.name = "fused", .text = text, .source = source};
static const struct device_vtable vtable = {.kind = "none", .kernels = &kernels, .fusion = &fusion};
static struct device device = {.vtable = &vtable};
static struct order *order;
static struct kernel_store store;

static void start(void) {
    order = calloc(1, sizeof *order);
    order->device = &device;
    store = (struct kernel_store){.order = order};
}

static void stop(void) {
    kernel_store_finish(&store);
    cr_assert_eq(loaded, 0);
    free(order);
}

TestSuite(fusion, .init = start, .fini = stop);

static struct replay_kernel *hold(int number, uint64_t tenant) {
    return fusion_hold(&store, &(struct fused_launch){.rows = 1, .columns = number}, tenant);
}

/* Compiles the next one; its number, or -1 if none waits. */
static int next(void) {
    struct kernel_job job;
    struct fault fault;
    struct fusion *taken = fusion_take(&store);
    if (!taken)
        return -1;
    cr_assert_eq(fusion_job_init(&job, &store, taken, &fault), STATUS_OK);
    int number = atoi(job.source);
    kernel_job_compile(&job);
    if (job.status == STATUS_OK)
        kernel_job_load(&job);
    fusion_settle(&store, taken, &job);
    return number;
}

static bool is_there(const struct replay_kernel *kernel) {
    return atomic_load(&kernel->kernel);
}

Test(fusion, launches_of_one_kind_share_a_kernel) {
    struct replay_kernel *one = hold(1, 1), *same = hold(1, 2), *other = hold(2, 2);
    cr_assert(one && one == same && other && other != one);
    cr_assert(!is_there(one) && !strcmp(fusion_cause(one), "") && fusions_wait(&store));
    cr_assert_eq(next(), 1);
    cr_assert(is_there(one) && !is_there(other) && !fusion_cause(one));
    cr_assert_eq(next(), 2);
    cr_assert_eq(next(), -1);
    fusion_let_go(&store, one);
    fusion_let_go(&store, same); /* it stays for a while */
    cr_assert(hold(1, 3) == one && is_there(one) && !fusions_wait(&store));
}

Test(fusion, what_nobody_waits_for_is_not_compiled) {
    fusion_let_go(&store, hold(1, 1));
    cr_assert(!fusions_wait(&store));
    cr_assert_eq(next(), -1);
    struct replay_kernel *kernel = hold(2, 1);
    struct fusion *taken = fusion_take(&store);
    fusion_let_go(&store, kernel); /* while it is compiled */
    struct kernel_job job;
    struct fault fault;
    cr_assert_eq(fusion_job_init(&job, &store, taken, &fault), STATUS_OK);
    kernel_job_compile(&job);
    kernel_job_load(&job);
    fusion_settle(&store, taken, &job);
    cr_assert(hold(2, 1) == kernel && is_there(kernel));
}

Test(fusion, tenants_take_turns) {
    static const int order_of[] = {1, 10, 20, 2, 3};
    for (int i = 1; i <= 3; i++)
        hold(i, 5);
    hold(10, 6);
    hold(20, 9);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(next(), order_of[i], "turn %d", i);
}

Test(fusion, one_tenant_has_a_quarter_of_the_places) {
    struct replay_kernel *of_first[FUSIONS_TENANT_MAX];
    for (int i = 0; i < FUSIONS_TENANT_MAX; i++)
        cr_assert(of_first[i] = hold(i, 1));
    cr_assert_null(hold(5000, 1));
    cr_assert(*fusion_cause(NULL));
    cr_assert_eq(hold(7, 1), of_first[7]);
    fusion_let_go(&store, of_first[7]);
    for (uint64_t tenant = 2; tenant <= 4; tenant++)
        for (int i = 0; i < FUSIONS_TENANT_MAX; i++)
            cr_assert(hold((int)tenant * 10000 + i, tenant));
    cr_assert_null(hold(5000, 5), "all places are in use");
    while (next() >= 0) {
    }
    cr_assert_eq(loaded, FUSIONS_MAX);
    for (int i = 0; i < 10; i++)
        fusion_let_go(&store, of_first[i]);
    for (int i = 0; i < 10; i++)
        cr_assert(hold(6000 + i, 5), "the places of those that nobody uses");
    cr_assert_null(hold(7000, 5));
    kernel_unused_release(&store, kernel_unused_take(&store));
    cr_assert_eq(loaded, FUSIONS_MAX - 10);
}

Test(fusion, what_nobody_has_any_more_is_the_next_one_s) {
    for (int i = 0; i < FUSIONS_TENANT_MAX; i++) {
        struct replay_kernel *kernel = hold(i, 1);
        next();
        fusion_let_go(&store, kernel); /* it stays for a while */
        cr_assert_eq(hold(i, 2), kernel);
    }
    cr_assert(hold(5000, 1), "the first one has none of them any more");
    cr_assert_null(hold(6000, 2));
}

Test(fusion, failures_have_their_causes_and_are_tried_again_by_later_plans) {
    struct replay_kernel *kernel = hold(1, 1);
    outcome = STATUS_TIMED_OUT;
    cr_assert_eq(next(), 1);
    cr_assert(!is_there(kernel) && !strcmp(fusion_cause(kernel), "it does not compile"));
    cr_assert_eq(next(), -1);
    fusion_let_go(&store, kernel);
    outcome = STATUS_OK;
    kernel = hold(1, 1);
    cr_assert_eq(next(), 1);
    cr_assert(is_there(kernel));
    struct replay_kernel *second = hold(2, 1);
    outcome = STATUS_UNSUPPORTED;
    cr_assert_eq(next(), 2);
    cr_assert(strstr(fusion_cause(second), "compile"));
    cr_assert_null(hold(3, 1), "without a compiler nobody asks");
    outcome = STATUS_OK;
}
