/* Steps of handshakes that wait for a thread. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/process/handshake.h"

static void done(void *owner, int error) {
    (void)error;
    ++*(unsigned *)owner;
}

/* No thread takes a step here: none is started where one is said to be there. */
Test(handshake, one_that_is_left_before_its_turn_is_gone_at_once, .timeout = 60) {
    enum { N = 3 };
    struct handshakes handshakes;
    struct handshake *steps[N];
    int ends[N][2];
    unsigned calls = 0;
    uv_loop_t loop;
    uv_loop_init(&loop);
    cr_assert_eq(handshakes_init(&handshakes, &loop), 0);
    handshakes.n_threads = 1;
    for (int i = 0; i < N; i++) {
        cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]), 0);
        steps[i] = handshake_begin(&handshakes, &(struct transport){.fd = ends[i][0]}, done, &calls);
        cr_assert_not_null(steps[i]);
    }
    handshake_leave(&handshakes, steps[1]);
    cr_assert(fcntl(ends[1][0], F_GETFD) < 0, "its socket is still there");
    cr_assert_eq(TAILQ_FIRST(&handshakes.waiting), steps[0]);
    cr_assert_eq(TAILQ_NEXT(steps[0], link), steps[2]);
    cr_assert_null(TAILQ_NEXT(steps[2], link));
    handshake_leave(&handshakes, steps[0]);
    handshake_leave(&handshakes, steps[2]);
    cr_assert(TAILQ_EMPTY(&handshakes.waiting));
    cr_assert_eq(calls, 0, "an owner that had left was told");
    handshakes.n_threads = 0;
    handshakes_finish(&handshakes);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    for (int i = 0; i < N; i++)
        close(ends[i][1]);
}
