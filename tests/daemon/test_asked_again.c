/* Calls that wait for an answer, which is lost with a connection: they ask again, behind what others have enqueued meanwhile. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/proxy.h"
#include "tests/daemon/status.h"

enum { CUTS = 3, WAIT_MS = 30000 };

static struct daemon tensord;
static struct proxy proxy;
static struct client client;

static void start_with(const char *const *flags) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0", .flags = flags});
    proxy_start(&proxy, tensord.url, 1);
    client_open(&client, proxy.url, "late:0");
}

static void start(void) {
    start_with((const char *const[]){"--user-kernels", "all", NULL});
}

static void stop(void) {
    client_close(&client);
    proxy_stop(&proxy);
    daemon_stop(&tensord);
}

TestSuite(asked_again, .init = start, .fini = stop, .timeout = 120);

/* Whether the client has sent something that the proxy, which is frozen, has not taken. */
static bool something_is_sent(void) {
    for (unsigned i = 0; i < PROXY_PAIRS_MAX; i++) {
        int bytes = 0;
        if (proxy.pairs[i] && !proxy.pairs[i]->control && !ioctl(proxy.pairs[i]->client, FIONREAD, &bytes) && bytes > 0)
            return true;
    }
    return false;
}

/* The answer is lost, and other operations are there already when it is asked for again. */
static void *cut_under_it(void *result) {
    td_tensor **enqueued = result;
    int64_t deadline = deadline_in(WAIT_MS);
    while (!something_is_sent() && deadline_pause(deadline))
        ;
    *enqueued = td_full(client.device, TD_F32, TD_SHAPE(2), 5);
    td_flush(client.device);
    proxy.frozen = false; /* that it is no more it sees when it is woken, to cut */
    proxy_cut(&proxy);
    return NULL;
}

/* When nothing is on its way: what the client sends next stays where the proxy has not read it. */
static void freeze(void) {
    cr_assert(!td_sync(client.device), "%s", td_last_error()->message);
    proxy.frozen = true;
}

static pthread_t cutting(td_tensor **enqueued) {
    pthread_t thread;
    *enqueued = NULL;
    freeze();
    cr_assert(!pthread_create(&thread, NULL, cut_under_it, enqueued));
    return thread;
}

static void was_cut(pthread_t thread, td_tensor *const *enqueued, uint64_t times) {
    td_link link;
    pthread_join(thread, NULL);
    client_expect(*enqueued, (float[]){5, 5}, 2);
    cr_assert(!td_device_link(client.device, &link));
    cr_assert_geq(link.reconnects, times, "the question was answered before the connection was cut");
}

Test(asked_again, name_is_opened) {
    static td_tensor *enqueued;
    cr_assert(!td_publish(client_ramp(client.device, 3, 1), "x"), "%s", td_last_error()->message);
    for (uint64_t times = 1; times <= CUTS; times++) {
        pthread_t thread = cutting(&enqueued);
        td_tensor *x = td_open(client.device, "x");
        cr_expect_not_null(x, "%s", td_last_error()->message);
        was_cut(thread, &enqueued, times);
        client_expect(x, (float[]){1, 2, 3}, 3);
    }
}

Test(asked_again, kernel_is_compiled) {
    static td_tensor *enqueued;
    td_tensor *x = client_ramp(client.device, 2, 1), *z = NULL;
    for (uint64_t times = 1; times <= CUTS; times++) {
        pthread_t thread = cutting(&enqueued);
        td_kernel *kernel = NULL;
        int code = td_kernel_compile(client.device, "// a source", "saxpy", &kernel);
        cr_expect_eq(code, 0, "%s", td_last_error()->message);
        was_cut(thread, &enqueued, times);
        cr_assert_not_null(kernel);
        td_kernel_launch(
            kernel, TD_DIM(1), TD_DIM(32), 0,
            TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(2)), td_arg_in(x), td_arg_in(x), td_arg_f32(2), td_arg_i32(2)));
        client_expect(z, (float[]){3, 6}, 2);
        td_kernel_release(kernel);
    }
}

static uint64_t reconnects(void) {
    td_link link;
    cr_assert(!td_device_link(client.device, &link));
    return link.reconnects;
}

/* Of how many tensors the client has asked since its last Hello: the worker has answered all that it has sent. */
static unsigned asked_tensors(void) {
    bool asked[128] = {false};
    unsigned n = 0, id;
    cr_assert(!td_sync(client.device), "%s", td_last_error()->message);
    char *log = daemon_log(&tensord), *hello = log;
    for (char *at = log; (at = strstr(at, "<- HELLO")); at++)
        hello = at;
    cr_assert_neq(hello, log);
    for (const char *at = hello; (at = strstr(at, "<- WAIT")); at++) {
        cr_assert(sscanf(at, "<- WAIT (%*u) id=%u", &id) == 1 && id < 128, "%.40s", at);
        n += !asked[id];
        asked[id] = true;
    }
    free(log);
    return n;
}

/* Asks of two tensors, releases the first one, and cuts the connection. */
static void ask_and_cut(int64_t deadline) {
    td_tensor *x = client_ramp(client.device, 2, 1), *y = client_ramp(client.device, 2, 1);
    freeze();
    cr_assert_eq(td_test(x), 0);
    while (!something_is_sent())
        cr_assert(deadline_pause(deadline), "td_test() asks nothing");
    cr_assert_eq(td_test(y), 0);
    td_release(x);
    proxy.frozen = false;
    proxy_cut(&proxy);
    while (!td_test(y))
        cr_assert(deadline_pause(deadline), "td_test() is not answered after the connection was cut");
    td_release(y);
}

/* td_test() asks once; nobody wants to know it of a tensor whose handle is gone. */
Test(asked_again, test_of_a_released_tensor_is_not) {
    enum { TRIES = 20 };
    int64_t deadline = deadline_in(WAIT_MS);
    stop();
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0",
                                                    .environment = (const char *const[]){"TENSORD_DEBUG=wire", NULL}});
    proxy_start(&proxy, tensord.url, 1);
    client_open(&client, proxy.url, "late:0");
    unsigned asked = 0;
    for (int tries = 1; asked != 1 && tries <= TRIES;
         tries++) { /* first questions may come through just before the cut */
        ask_and_cut(deadline);
        cr_assert_eq(reconnects(), tries);
        asked = asked_tensors();
    }
    cr_assert_eq(asked, 1, "of the other one, too");
}

/* ---- compilers that are at work ---- */

static char gate[64]; /* a folder: "// gate FOLDER" (tests/stand_ins/late.c) */

/* So many compilers have begun. */
static int begun(void) {
    int n = 0;
    DIR *folder = opendir(gate);
    cr_assert_not_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        n += !strncmp(entry->d_name, "begun", 5);
    closedir(folder);
    return n;
}

/* With spaces behind it that make it this long. */
enum { SOURCE_BYTES = 300000 };

static void *compile_behind_gate(void *kernel) {
    static char source[SOURCE_BYTES + 1];
    int n = snprintf(source, sizeof source, "// gate %s", gate);
    memset(source + n, ' ', SOURCE_BYTES - (size_t)n);
    return (void *)(intptr_t)td_kernel_compile(client.device, source, "saxpy", kernel);
}

static pthread_t compiling(td_kernel **kernel) {
    pthread_t thread;
    int64_t deadline = deadline_in(WAIT_MS);
    daemon_directory_make(gate);
    cr_assert(!pthread_create(&thread, NULL, compile_behind_gate, kernel));
    while (!begun())
        cr_assert(deadline_pause(deadline), "no compiler has begun");
    return thread;
}

Test(asked_again, compiler_goes_on_while_its_client_is_away) {
    char path[96];
    td_kernel *kernel = NULL;
    void *result;
    int64_t deadline = deadline_in(WAIT_MS);
    pthread_t thread = compiling(&kernel);
    proxy_cut(&proxy);
    while (!reconnects())
        cr_assert(deadline_pause(deadline), "the client does not come back");
    cr_assert(!td_sync(client.device)); /* it has asked again, too */
    snprintf(path, sizeof path, "%s/open", gate);
    FILE *open = fopen(path, "w");
    cr_assert(open && !fclose(open));
    pthread_join(thread, &result);
    cr_expect_eq((intptr_t)result, 0, "%d", (int)(intptr_t)result);
    cr_expect_not_null(kernel);
    cr_expect_eq(begun(), 1, "it was compiled %d times", begun());
    daemon_directory_remove(gate);
}

static bool charged(const Tensord__Status *status, bool detached) {
    return status->n_sessions == 1 && status->sessions[0]->detached == detached &&
           status->sessions[0]->host_bytes > SOURCE_BYTES;
}

static bool charged_while_here(const Tensord__Status *status, const void *none) {
    (void)none;
    return charged(status, false);
}

static bool charged_while_away(const Tensord__Status *status, const void *none) {
    (void)none;
    return charged(status, true);
}

static bool not_charged(const Tensord__Status *status, const void *none) {
    (void)none;
    return status->n_sessions == 1 && status->sessions[0]->host_bytes < SOURCE_BYTES;
}

/* A source is its session's host memory for as long as it is there, also while nobody waits for the compiler. */
Test(asked_again, source_is_charged_to_its_session) {
    char path[96];
    td_kernel *kernel = NULL;
    void *result;
    pthread_t thread = compiling(&kernel);
    status_until(tensord.url, charged_while_here, NULL, WAIT_MS);
    atomic_store(&proxy.shut, true);
    proxy_cut(&proxy);
    status_until(tensord.url, charged_while_away, NULL, WAIT_MS);
    atomic_store(&proxy.shut, false);
    snprintf(path, sizeof path, "%s/open", gate);
    FILE *open = fopen(path, "w");
    cr_assert(open && !fclose(open));
    pthread_join(thread, &result);
    cr_expect_eq((intptr_t)result, 0, "%d", (int)(intptr_t)result);
    status_until(tensord.url, not_charged, NULL, WAIT_MS);
    daemon_directory_remove(gate);
}

/* Nobody will come back for it. */
Test(asked_again, compiler_ends_with_the_session_that_has_left_it) {
    td_kernel *kernel = NULL;
    void *result;
    stop();
    start_with((const char *const[]){"--user-kernels=all", "--session-lease=1s", NULL});
    pthread_t thread = compiling(&kernel);
    atomic_store(&proxy.shut, true);
    proxy_cut(&proxy);
    cr_assert(daemon_log_has(&tensord, "session_close", WAIT_MS));
    daemon_stop(&tensord); /* which waits for compilers */
    pthread_join(thread, &result);
    cr_expect_neq((intptr_t)result, 0);
    cr_expect_eq(begun(), 1);
    daemon_directory_remove(gate);
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0"});
}

/* ---- answers that wait for the disk ---- */

static char held[96];

static void hold(void) {
    FILE *file = fopen(held, "w");
    cr_assert(file && !fclose(file));
}

static void *publish_new(void *tensor) {
    const char *const name = "x";
    return (void *)(intptr_t)td_publish_all(1, (td_tensor *const *)&tensor, &name, true);
}

static void *unpublish(void *none) {
    (void)none;
    return (void *)(intptr_t)td_unpublish(client.device, "x");
}

/* Whether another client sees the change that waits for the disk. */
static bool is_named(bool named) {
    td_name_info info;
    size_t count = 0;
    struct client other;
    client_open(&other, tensord.url, "late:0");
    cr_assert(!td_names(other.device, &info, 1, &count), "%s", td_last_error()->message);
    client_close(&other);
    return named == (count == 1);
}

/* The change is made, the connection breaks twice, and only then the disk goes on. */
static void is_made_once(void *(*change)(void *), void *argument, bool named) {
    pthread_t thread;
    void *result;
    int64_t deadline = deadline_in(WAIT_MS);
    cr_assert(!td_sync(client.device));
    hold();
    cr_assert(!pthread_create(&thread, NULL, change, argument));
    while (!is_named(named))
        cr_assert(deadline_pause(deadline), "the change is not made");
    for (int i = 0; i < 2; i++) {
        uint64_t before = reconnects();
        proxy_cut(&proxy);
        while (reconnects() == before)
            cr_assert(deadline_pause(deadline), "the client does not come back");
        cr_assert(!td_sync(client.device)); /* it has asked again, too */
    }
    unlink(held);
    pthread_join(thread, &result);
    cr_assert_eq((intptr_t)result, 0, "it was made twice: %d", (int)(intptr_t)result);
}

Test(asked_again, change_that_waits_for_the_disk_is_made_once) {
    char directory[64], preload[300], variable[128];
    const char *const environment[] = {preload, variable, "ASAN_OPTIONS=verify_asan_link_order=0", NULL};
    stop();
    daemon_directory_make(directory);
    snprintf(held, sizeof held, "%s/held", directory);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", daemon_program("DISK_FAULTS_LIBRARY"));
    snprintf(variable, sizeof variable, "TENSORD_DISK_FAULT=hold:%s", held);
    const char *const flags[] = {"--state-dir", directory, "--state-sync", "publish", NULL};
    daemon_start(&tensord, &(struct daemon_options){.devices = "late:0", .flags = flags, .environment = environment});
    proxy_start(&proxy, tensord.url, 1);
    client_open(&client, proxy.url, "late:0");
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    is_made_once(publish_new, x, true);
    client_expect(td_open(client.device, "x"), (float[]){1, 2, 3}, 3);
    is_made_once(unpublish, NULL, false);
    cr_assert_null(td_open(client.device, "x"));
    daemon_directory_remove(directory);
}

/* Each of them is answered as if it had been asked once. */
Test(asked_again, name_is_published_and_removed_once) {
    static td_tensor *enqueued;
    td_tensor *x = client_ramp(client.device, 3, 1);
    cr_assert(!td_wait(x));
    pthread_t thread = cutting(&enqueued);
    int code = td_publish(x, "x");
    cr_expect_eq(code, 0, "%s", td_last_error()->message);
    was_cut(thread, &enqueued, 1);
    client_expect(td_open(client.device, "x"), (float[]){1, 2, 3}, 3);
    thread = cutting(&enqueued);
    code = td_unpublish(client.device, "x");
    cr_expect_eq(code, 0, "%s", td_last_error()->message);
    was_cut(thread, &enqueued, 2);
    cr_assert_null(td_open(client.device, "x"));
}
