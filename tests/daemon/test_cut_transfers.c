/* Large transfers over connections that end again and again: they end, with every byte in its place, in bounded time. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/daemon/certificates.h"
#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/proxy.h"

enum { MIB = 1 << 20 };

static struct daemon tensord;
static struct proxy proxy;
static struct certificates certificates;

static void start(void) {
    daemon_start(&tensord, NULL);
    proxy_start(&proxy, tensord.url, 1);
}

static void stop(void) {
    proxy_stop(&proxy);
    daemon_stop(&tensord);
}

static void start_tls(void) {
    certificates_make(&certificates);
    certificates_use(&certificates, "ca", NULL);
    certificates_start(&certificates, &tensord, NULL, NULL);
    proxy_start(&proxy, tensord.tcp, 1);
}

static void stop_tls(void) {
    stop();
    certificates_remove(&certificates);
}

/* With TENSORD_TEST_CUTS in the thousands it may take some minutes. */
TestSuite(cut_transfers, .init = start, .fini = stop, .timeout = 1200);
TestSuite(cut_transfers_tls, .init = start_tls, .fini = stop_tls, .timeout = 280);

static unsigned number_of(const char *variable, unsigned otherwise) {
    const char *text = getenv(variable);
    return text ? (unsigned)strtoul(text, NULL, 0) : otherwise;
}

/* ---- who waits for a socket when another one gets its number ---- */

static atomic_bool late;       /* polls end late */
static atomic_int polled = -1; /* the socket that somebody waits for without a limit */
static atomic_uint polls, exchanges, exchanged_under_poll;

/* These two are called by the library in place of the C library's. A thread that gets the processor late comes out of
 * poll() 200 ms after its socket has ended. */
__attribute__((visibility("default"))) int poll(struct pollfd *entries, nfds_t n, int timeout) {
    int (*real)(struct pollfd *, nfds_t, int) = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll");
    if (!late || n != 1 || timeout >= 0)
        return real(entries, n, timeout);
    unsigned before = exchanges;
    polled = entries->fd;
    polls++;
    int found = real(entries, n, timeout);
    for (int i = 0; i < 200 && found > 0 && entries->revents & POLLHUP && exchanges == before; i++)
        real(NULL, 0, 1);
    polled = -1;
    return found;
}

__attribute__((visibility("default"))) int dup3(int from, int to, int flags) {
    int (*real)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "dup3");
    exchanged_under_poll += to == polled;
    exchanges++;
    return real(from, to, flags);
}

/* What is polled has been since the last look: the socket is full. */
static bool polled_since(unsigned *look) {
    bool same = polled >= 0 && polls == *look;
    *look = polls;
    return same;
}

struct uploads {
    td_device *device;
    uint8_t *data;
    atomic_bool stop;
    td_tensor *last;
};

enum { UPLOAD = 8 * MIB };

static void *uploads_main(void *argument) {
    struct uploads *uploads = argument;
    do {
        td_release(uploads->last);
        uploads->last = td_upload(uploads->device, TD_U8, TD_SHAPE(UPLOAD), uploads->data);
    } while (uploads->last && !uploads->stop);
    return NULL;
}

/* poll() would go on waiting for the old one, for ever. */
Test(cut_transfers, no_socket_is_exchanged_under_a_thread_that_polls_it) {
    struct client client;
    uint8_t *back = malloc(UPLOAD);
    client_open(&client, proxy.url, "cpu:0");
    struct uploads uploads = {.device = client.device, .data = malloc(UPLOAD)};
    pthread_t thread;
    int64_t deadline = deadline_in(30000);
    client_noise(uploads.data, UPLOAD, 1);
    late = true;
    cr_assert(!pthread_create(&thread, NULL, uploads_main, &uploads));
    for (int cut = 0; cut < 3; cut++) {
        unsigned look = 0, before = exchanges;
        proxy.frozen = true;
        while (!polled_since(&look))
            cr_assert(deadline_pause(deadline), "nobody waits for room in the socket");
        proxy.frozen = false;
        proxy_cut(&proxy);
        while (exchanges == before)
            cr_assert(deadline_pause(deadline), "nobody has come back");
        cr_assert_eq(exchanged_under_poll, 0);
    }
    uploads.stop = true;
    pthread_join(thread, NULL);
    cr_assert(uploads.last && !td_fetch(uploads.last, back, UPLOAD), "%s", td_last_error()->message);
    cr_assert(!memcmp(uploads.data, back, UPLOAD));
    client_close(&client);
    free(uploads.data), free(back);
}

/* ---- many transfers ---- */

struct transfers {
    struct client client;
    size_t bytes_max;
    uint8_t *data, *back;
    unsigned seed;
    atomic_bool stop;
    sem_t ended; /* one more, or all of them */
    atomic_bool over;
    char fault[sizeof((td_error *)0)->message];
};

/* On one processor with all that keeps it busy, and only when that leaves it: a thread that runs late. */
static void run_late(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    (void)sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){0});
}

static bool transfer(struct transfers *transfers) {
    size_t bytes = MIB + (size_t)rand_r(&transfers->seed) % (transfers->bytes_max - MIB + 1);
    size_t at = (size_t)rand_r(&transfers->seed) % (transfers->bytes_max - bytes + 1);
    td_tensor *x = td_upload(transfers->client.device, TD_U8, TD_SHAPE((int64_t)bytes), transfers->data + at);
    memset(transfers->back, 0, bytes);
    if (!x || td_fetch(x, transfers->back, bytes))
        snprintf(transfers->fault, sizeof transfers->fault, "%s", td_last_error()->message);
    else if (memcmp(transfers->back, transfers->data + at, bytes))
        snprintf(transfers->fault, sizeof transfers->fault, "%zu bytes came back as others", bytes);
    td_release(x);
    return !*transfers->fault;
}

static void *transfers_main(void *argument) {
    struct transfers *transfers = argument;
    run_late();
    while (!transfers->stop && transfer(transfers))
        sem_post(&transfers->ended);
    transfers->over = true;
    sem_post(&transfers->ended);
    return NULL;
}

static void *burn_main(void *argument) {
    atomic_bool *stop = argument;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    while (!*stop) {
        int64_t until = deadline_now() + 2;
        while (deadline_now() < until)
            continue;
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    return NULL;
}

/* Grows as long as a transfer goes on: the processor time of its thread, and the bytes that the proxy has carried. */
static uint64_t progress(pthread_t thread) {
    clockid_t clock;
    struct timespec used = {0};
    if (!pthread_getcpuclockid(thread, &clock))
        (void)clock_gettime(clock, &used); /* fails once the thread has ended */
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec + proxy.carried;
}

/* The thread may get little of the processor for long, so only a minute without progress is a hang. */
static void one_ends(struct transfers *transfers, pthread_t thread) {
    uint64_t before = progress(thread);
    int64_t deadline = deadline_in(60000);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    while (until.tv_sec++, sem_timedwait(&transfers->ended, &until)) {
        uint64_t now = progress(thread);
        if (now != before)
            deadline = deadline_in(60000);
        before = now;
        cr_assert(deadline_left(deadline), "a transfer has hung for a minute, after %u cuts", (unsigned)proxy.cuts);
    }
    cr_assert(!*transfers->fault, "%s", transfers->fault);
}

/* Until `cuts` have been made; each after `every` bytes, or 0: after some number of them. */
static void transfers_run(size_t bytes_max, unsigned cuts, unsigned every) {
    struct transfers transfers = {.bytes_max = bytes_max, .seed = number_of("TENSORD_TEST_SEED", (unsigned)time(NULL))};
    pthread_t thread, burner;
    atomic_bool burned = false;
    td_link link;
    unsigned ended = 0;
    fprintf(stderr, "TENSORD_TEST_SEED=%u\n", transfers.seed);
    transfers.data = malloc(bytes_max);
    transfers.back = malloc(bytes_max);
    client_noise(transfers.data, bytes_max, transfers.seed);
    sem_init(&transfers.ended, 0, 0);
    client_open(&transfers.client, proxy.url, "cpu:0");
    proxy.seed = transfers.seed;
    proxy.every = every;
    proxy.cuts_max = cuts;
    proxy_cut(&proxy); /* the first connection was opened in peace */
    cr_assert(!pthread_create(&burner, NULL, burn_main, &burned));
    cr_assert(!pthread_create(&thread, NULL, transfers_main, &transfers));
    for (; proxy.cuts < cuts; ended++)
        one_ends(&transfers, thread);
    /* Each connection has brought something, though some of its bytes are the handshake's. */
    cr_expect_geq(ended, cuts / 5 * 4 * (uint64_t)every / (2 * bytes_max));
    transfers.stop = true;
    for (; !transfers.over; ended++)
        one_ends(&transfers, thread);
    pthread_join(thread, NULL);
    burned = true;
    pthread_join(burner, NULL);
    cr_assert(!td_device_link(transfers.client.device, &link));
    fprintf(stderr, "%u transfers, %u cuts, %lu reconnects, %lu messages repeated\n", ended, (unsigned)proxy.cuts,
            link.reconnects, link.frames_repeated);
    client_close(&transfers.client);
    free(transfers.data), free(transfers.back);
}

Test(cut_transfers, cuts_at_random_bytes_let_every_transfer_end) {
    transfers_run(64 * MIB, number_of("TENSORD_TEST_CUTS", 300), 0);
}

/* Less than a chunk: each connection brings a part of one. */
Test(cut_transfers, link_that_dies_every_150_kb_carries_8_mib_both_ways) {
    transfers_run(8 * MIB, 400, 150000);
}

Test(cut_transfers_tls, link_that_dies_every_150_kb_carries_8_mib_both_ways) {
    transfers_run(8 * MIB, 200, 150000);
}
