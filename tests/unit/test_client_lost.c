/* A connection that ends while one thread is in the middle of sending what others have queued: nobody is told twice, and nothing
 * that is still queued is gone. What is wrong here AddressSanitizer sees, and malloc's perturbation as a rule. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>

#include "client/tensord.h"
#include "tests/stand_ins/fake_daemon.h"

enum { FETCHES = 50 };

static struct fake_daemon fake;
static td_connection *connection;
static td_device *device;
static sem_t arrived, send_now, sent, leave;
static _Thread_local bool stops;
static atomic_uint failed;

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

/* The linker hands the library's calls to it. The thread that stops here has given up the device's lock. */
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
    if (!stops)
        return __real_sendmsg(fd, message, flags);
    stops = false;
    sem_post(&arrived);
    sem_wait(&send_now);
    ssize_t bytes = __real_sendmsg(fd, message, flags);
    sem_post(&sent);
    sem_wait(&leave);
    return bytes;
}

static void start(void) {
    const td_options options = {.reconnect_ms = TD_NEVER};
    sem_t *semaphores[] = {&arrived, &send_now, &sent, &leave};
    for (int i = 0; i < 4; i++)
        sem_init(semaphores[i], 0, 0);
    fake_daemon_start(&fake);
    cr_assert_eq(td_connect(fake.url, &options, &connection), 0);
    cr_assert_eq(td_device_open(connection, "cpu:0", &device), 0);
}

static void stop(void) {
    td_close(connection);
    fake_daemon_stop(&fake);
}

TestSuite(client_lost, .init = start, .fini = stop, .timeout = 60);

/* Until it is this thread that sends, and not the library's own. */
static void *send_something(void *none) {
    stops = true;
    while (stops && td_full(device, TD_F32, TD_SCALAR, 1))
        td_flush(device);
    return none;
}

static void fetched(void *user, int status) {
    unsigned *times = user;
    ++*times;
    cr_expect_eq(status, TD_E_DEVICE_LOST);
    atomic_fetch_add(&failed, 1);
}

Test(client_lost, requests_that_are_queued_while_another_thread_sends_are_told_once) {
    static unsigned times[FETCHES];
    static float places[FETCHES];
    pthread_t thread;
    td_tensor *x = td_full(device, TD_F32, TD_SCALAR, 1);
    cr_assert_not_null(x);
    cr_assert(!pthread_create(&thread, NULL, send_something, NULL));
    sem_wait(&arrived);
    for (int i = 0; i < FETCHES; i++)
        cr_assert_eq(td_fetch_async(x, &places[i], sizeof places[i], fetched, &times[i]), 0, "%s",
                     td_last_error()->message);
    fake.hang_up = true;
    sem_post(&send_now);
    sem_wait(&sent);
    while (!td_flush(device)) /* until the end of the connection is known */
        sched_yield();
    sem_post(&leave);
    pthread_join(thread, NULL);
    td_device_close(device); /* no callback comes afterwards */
    cr_expect_eq(failed, FETCHES);
    for (int i = 0; i < FETCHES; i++)
        cr_expect_eq(times[i], 1, "the callback of fetch %d ran %u times", i, times[i]);
}
