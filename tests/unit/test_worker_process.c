/* What the front tells a worker whose channel is full: it is queued, up to a limit; what changes rights or ends work is not lost
 * to those who have filled the queue. No process is started. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/front/worker_process.h"

enum { MANY = 100000 };

static uv_loop_t loop;
static struct worker_process *process;
static int worker; /* its end of the channel */

static unsigned n_heard, n_hung_up;

static void heard(void *owner, const struct channel_message *message, int fd) {
    (void)owner, (void)message, (void)fd;
    n_heard++;
}

static void hung_up(void *owner) {
    (void)owner;
    n_hung_up++;
}

static const struct worker_process_events events = {.message = heard, .hung_up = hung_up};

static void start(void) {
    int ends[2];
    cr_assert(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends));
    process = calloc(1, sizeof *process);
    cr_assert(process && !uv_loop_init(&loop) && !uv_poll_init(&loop, &process->poll, ends[0]));
    process->channel = ends[0];
    process->last = &process->first;
    process->handles = 1;
    process->events = &events;
    process->poll.data = process;
    worker = ends[1];
}

/* The end of its channel is the end of its only handle. */
static void stop(void) {
    close(worker);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(!uv_loop_close(&loop));
}

TestSuite(worker_process, .init = start, .fini = stop, .timeout = 60);

static int send_type(enum channel_type type, int fd) {
    struct channel_message message;
    memset(&message, 0, sizeof message);
    message.type = type;
    return worker_process_send(process, &message, fd);
}

/* How many connections it has taken until it takes no more. */
static unsigned fill(void) {
    unsigned n = 0;
    int code;
    while ((code = send_type(CHANNEL_CONNECTION, -1)) == STATUS_OK && n < MANY)
        n++;
    cr_assert_eq(code, STATUS_LIMIT);
    return n;
}

/* The next message's type; -1: there is none. Its descriptor is closed. */
static int next_type(bool *with_fd) {
    struct channel_message message;
    int fd = -1;
    *with_fd = false;
    for (int turns = 0; channel_receive(worker, &message, &fd); turns++) {
        if (turns == 2)
            return -1;
        uv_run(&loop, UV_RUN_NOWAIT); /* there is room again */
    }
    *with_fd = fd >= 0;
    if (fd >= 0)
        close(fd);
    return (int)message.type;
}

Test(worker_process, full_queue_refuses_connections_and_keeps_rights_and_orders) {
    static const enum channel_type kept[] = {CHANNEL_REVOKED, CHANNEL_LIMITS, CHANNEL_CREDENTIALS, CHANNEL_LINK_OUT,
                                             CHANNEL_GRANTED, CHANNEL_DENIED, CHANNEL_DRAIN};
    enum { KEPT = sizeof kept / sizeof *kept };
    bool with_fd;
    unsigned n = fill();
    for (unsigned i = 0; i < KEPT; i++)
        cr_expect_eq(send_type(kept[i], kept[i] == CHANNEL_CREDENTIALS ? dup(worker) : -1), STATUS_OK, "message %d",
                     (int)kept[i]);
    cr_expect_eq(send_type(CHANNEL_CONNECTION, -1), STATUS_LIMIT);
    for (unsigned i = 0; i < n; i++)
        cr_assert_eq(next_type(&with_fd), CHANNEL_CONNECTION, "message %u of %u", i, n);
    for (unsigned i = 0; i < KEPT; i++) {
        cr_expect_eq(next_type(&with_fd), (int)kept[i], "behind all the others, and in their order");
        cr_expect_eq(with_fd, kept[i] == CHANNEL_CREDENTIALS);
    }
    cr_expect_eq(next_type(&with_fd), -1);
    cr_expect_eq(send_type(CHANNEL_CONNECTION, -1), STATUS_OK, "there is room again");
}

Test(worker_process, links_are_not_queued_and_leave_room_for_connections) {
    bool with_fd;
    unsigned links = 0;
    int code;
    while ((code = send_type(CHANNEL_LINK_IN, -1)) == STATUS_OK && links < MANY)
        links++;
    cr_assert_eq(code, STATUS_LIMIT);
    cr_expect_gt(fill(), 200);
    for (unsigned i = 0; i < links; i++)
        cr_assert_eq(next_type(&with_fd), CHANNEL_LINK_IN, "message %u of %u", i, links);
    cr_expect_eq(next_type(&with_fd), CHANNEL_CONNECTION, "at once behind what the channel held");
}

Test(worker_process, descriptor_of_a_refused_message_is_closed) {
    int ends[2];
    char byte;
    (void)fill();
    cr_assert(!pipe(ends));
    cr_expect_eq(send_type(CHANNEL_CONNECTION, ends[1]), STATUS_LIMIT);
    cr_expect_eq(read(ends[0], &byte, 1), 0, "nobody has its other end");
    close(ends[0]);
}

Test(worker_process, last_words_of_a_worker_that_has_not_read_everything_are_heard) {
    enum { WORDS = 5 };
    struct channel_message word;
    memset(&word, 0, sizeof word);
    word.type = CHANNEL_LINK_WANTED;
    (void)fill();
    for (int i = 0; i < WORDS; i++)
        cr_assert(!channel_send(worker, &word, -1));
    close(worker);
    worker = -1;
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(n_heard, WORDS);
    cr_expect_eq(n_hung_up, 1);
}
