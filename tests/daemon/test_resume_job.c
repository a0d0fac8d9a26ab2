/* A job whose connections are cut a thousand times gives the same bits as one that is left in peace. */
#include <criterion/criterion.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/certificates.h"
#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/proxy.h"
#include "tests/daemon/status.h"

enum { SMALL = 300, MIDDLE = 40000, LARGE = 400000, CHAIN = 60 };

static struct daemon tensord;
static struct certificates certificates;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0,cpu:1"});
}

static void stop(void) {
    daemon_stop(&tensord);
}

static void start_tls(void) {
    certificates_make(&certificates);
    certificates_use(&certificates, "ca", NULL);
    certificates_start(&certificates, &tensord, "cpu:0,cpu:1", NULL);
}

static void stop_tls(void) {
    stop();
    certificates_remove(&certificates);
}

TestSuite(resume_job, .init = start, .fini = stop, .timeout = 280);
TestSuite(resume_job_tls, .init = start_tls, .fini = stop_tls, .timeout = 280);

/* One of the two runs: what it keeps on its devices from round to round, and what it has fetched in this one. */
struct run {
    td_connection *connection;
    td_device *here, *there;
    td_stream *side;
    td_tensor *sum; /* of all rounds */
    float *small, *middle, *large, *copied, *late, *total;
    const char *name; /* under which it publishes */
    sem_t done, given_back;
    int late_status;
};

static void run_open(struct run *run, const char *url) {
    cr_assert(!td_connect(url, NULL, &run->connection), "%s", td_last_error()->message);
    cr_assert(!td_device_open(run->connection, "cpu:0", &run->here), "%s", td_last_error()->message);
    cr_assert(!td_device_open(run->connection, "cpu:1", &run->there), "%s", td_last_error()->message);
    cr_assert(!td_stream_open(run->here, 0, &run->side));
    run->sum = td_full(run->here, TD_F32, TD_SHAPE(MIDDLE), 1);
    run->small = calloc(SMALL, sizeof(float));
    run->middle = calloc(MIDDLE, sizeof(float));
    run->large = calloc(LARGE, sizeof(float));
    run->copied = calloc(MIDDLE, sizeof(float));
    run->late = calloc(LARGE, sizeof(float));
    run->total = calloc(MIDDLE, sizeof(float));
    sem_init(&run->done, 0, 0);
    sem_init(&run->given_back, 0, 0);
}

static void run_close(struct run *run) {
    td_close(run->connection);
    free(run->small), free(run->middle), free(run->large), free(run->copied), free(run->late), free(run->total);
}

static void late_done(void *user, int status) {
    struct run *run = user;
    run->late_status = status;
    sem_post(&run->done);
}

static void given_back(void *user) {
    sem_post(&((struct run *)user)->given_back);
}

static td_tensor *replaced(td_tensor *old, td_tensor *new) {
    td_release(old);
    return new;
}

/* Many small operations, each of whose inputs is released. */
static td_tensor *chain(td_tensor *x, td_tensor *y) {
    td_tensor *z = td_add(x, y);
    for (int i = 0; i < CHAIN; i++) {
        z = replaced(z, td_multiply(z, x));
        z = replaced(z, td_subtract(z, y));
        if (i % 7 == 0)
            td_flush(td_tensor_device(x));
    }
    return z;
}

/* Noise that is the same in both runs. */
static void inputs(float *data, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        data[i] = (float)(seed >> 8) / (float)(1 << 24);
    }
}

/* Each of these fails where it is done twice. */
static void named(struct run *run, td_tensor *tensor) {
    float got[SMALL];
    cr_assert(!td_publish_all(1, &tensor, &run->name, true), "%s", td_last_error()->message);
    td_tensor *opened = td_open(run->here, run->name);
    cr_assert_not_null(opened, "%s", td_last_error()->message);
    cr_assert(!td_unpublish(run->here, run->name), "%s", td_last_error()->message);
    cr_assert(!td_fetch(opened, got, sizeof got), "%s", td_last_error()->message);
    cr_assert(!memcmp(got, run->small, sizeof got));
    td_release(opened);
}

/* Everything at once: uploads of all sizes, streams, both devices, fetches that overlap with frees. */
static void run_round(struct run *run, const float *noise, const float *borrowed) {
    td_device *here = run->here;
    td_tensor *small = td_upload(here, TD_F32, TD_SHAPE(SMALL), noise);
    td_tensor *middle = td_upload(here, TD_F32, TD_SHAPE(MIDDLE), noise + SMALL);
    td_tensor *large = td_upload(here, TD_F32, TD_SHAPE(LARGE), noise);
    td_tensor *lent = td_upload_borrow(here, TD_F32, TD_SHAPE(LARGE), borrowed, given_back, run);
    td_tensor *half = td_full(here, TD_F32, TD_SCALAR, 0.5);
    td_tensor *z = chain(small, half);
    cr_assert(!td_stream_set(here, run->side));
    td_tensor *aside = td_add(large, lent);
    cr_assert(!td_fetch_async(aside, run->late, LARGE * sizeof(float), late_done, run));
    td_tensor *less = td_multiply(aside, half);
    td_release(aside);
    cr_assert(!td_stream_set(here, NULL));
    td_tensor *there = td_copy_to(middle, run->there);
    td_tensor *twice = td_add(there, there);
    td_tensor *back = td_copy_to(twice, here);
    run->sum = replaced(run->sum, td_multiply(run->sum, half));
    run->sum = replaced(run->sum, td_add(run->sum, middle));
    cr_assert(!td_wait(z), "%s", td_last_error()->message);
    cr_assert(!td_fetch(z, run->small, SMALL * sizeof(float)), "%s", td_last_error()->message);
    named(run, z);
    cr_assert(!td_fetch(less, run->large, LARGE * sizeof(float)), "%s", td_last_error()->message);
    cr_assert(!td_fetch(back, run->copied, MIDDLE * sizeof(float)), "%s", td_last_error()->message);
    cr_assert(!td_fetch(twice, run->middle, MIDDLE * sizeof(float)), "%s", td_last_error()->message);
    cr_assert(!td_fetch(run->sum, run->total, MIDDLE * sizeof(float)), "%s", td_last_error()->message);
    td_tensor *all[] = {small, middle, large, lent, half, z, less, there, twice, back};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        td_release(all[i]);
    cr_assert(!td_sync(here) && !td_sync(run->there), "%s", td_last_error()->message);
    sem_wait(&run->done);
    sem_wait(&run->given_back);
    cr_assert_eq(run->late_status, TD_OK);
}

static void same(const float *a, const float *b, size_t n, const char *what, unsigned round) {
    cr_assert(!memcmp(a, b, n * sizeof *a), "%s differs in round %u", what, round);
}

static void compare(const struct run *a, const struct run *b, unsigned round) {
    same(a->small, b->small, SMALL, "the chain", round);
    same(a->middle, b->middle, MIDDLE, "what the other device computed", round);
    same(a->large, b->large, LARGE, "what the other stream computed", round);
    same(a->copied, b->copied, MIDDLE, "what was copied back", round);
    same(a->late, b->late, LARGE, "what was fetched while it was freed", round);
    same(a->total, b->total, MIDDLE, "the sum of all rounds", round);
}

static unsigned number_of(const char *variable, unsigned otherwise) {
    const char *text = getenv(variable);
    return text ? (unsigned)strtoul(text, NULL, 0) : otherwise;
}

/* The URL is where the connections that are cut lead to. */
static void job(const char *url, bool one_sided, unsigned cuts) {
    struct proxy proxy;
    struct run calm = {.name = "calm"}, cut = {.name = "cut"};
    unsigned seed = number_of("TENSORD_TEST_SEED", (unsigned)time(NULL)), round = 0;
    cuts = number_of("TENSORD_TEST_CUTS", cuts);
    float *noise = calloc(LARGE, sizeof *noise), *borrowed = calloc(LARGE, sizeof *borrowed);
    struct status_baseline baseline[2] = {status_baseline_of(tensord.url, "cpu:0"),
                                          status_baseline_of(tensord.url, "cpu:1")};
    fprintf(stderr, "TENSORD_TEST_SEED=%u\n", seed);
    proxy_start(&proxy, url, seed);
    proxy.one_sided = one_sided;
    run_open(&calm, tensord.url);
    run_open(&cut, proxy.url);
    proxy.cuts_max = cuts;
    proxy_cut(&proxy); /* the first connections were opened in peace */
    for (; proxy.cuts < cuts; round++) {
        inputs(noise, LARGE, seed + round);
        inputs(borrowed, LARGE, ~(seed + round));
        run_round(&calm, noise, borrowed);
        run_round(&cut, noise, borrowed);
        compare(&calm, &cut, round);
    }
    td_link here, there;
    cr_assert(!td_device_link(cut.here, &here) && !td_device_link(cut.there, &there));
    fprintf(stderr, "%u rounds, %u cuts, %lu reconnects, %lu messages repeated\n", round, (unsigned)proxy.cuts,
            here.reconnects + there.reconnects, here.frames_repeated + there.frames_repeated);
    cr_assert_geq(here.reconnects + there.reconnects, 10);
    run_close(&cut);
    run_close(&calm);
    proxy_stop(&proxy);
    free(noise);
    free(borrowed);
    for (unsigned i = 0; i < 2; i++)
        cr_assert(status_settles(tensord.url, &baseline[i], 20000), "memory was not given back");
}

Test(resume_job, thousand_cuts_change_no_bit) {
    job(tensord.url, false, 1000);
}

/* The daemon hears of a new connection before it hears of the old one's end. */
Test(resume_job, connections_that_the_daemon_believes_in_are_taken_over) {
    job(tensord.url, true, 200);
}

/* In the middle of handshakes, too, and of records. */
Test(resume_job_tls, cuts_change_no_bit) {
    job(tensord.tcp, false, 300);
}

Test(resume_job_tls, connections_that_the_daemon_believes_in_are_taken_over) {
    job(tensord.tcp, true, 100);
}
