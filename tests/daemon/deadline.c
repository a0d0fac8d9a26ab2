#include "tests/daemon/deadline.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

enum { PAUSE_MS = 5 };

int64_t deadline_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

int64_t deadline_in(int64_t milliseconds) {
    const char *slow = getenv("TENSORD_TEST_SLOW");
    int factor = slow ? atoi(slow) : 1;
    return deadline_now() + milliseconds * (factor > 0 ? factor : 1);
}

int deadline_left(int64_t deadline) {
    int64_t left = deadline - deadline_now();
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

bool deadline_poll(int fd, short events, int64_t deadline) {
    struct pollfd entry = {.fd = fd, .events = events};
    for (;;) {
        int ready = poll(&entry, 1, deadline_left(deadline));
        if (ready > 0)
            return true;
        if (ready == 0)
            return false;
        if (errno != EINTR)
            return false;
    }
}

bool deadline_pause(int64_t deadline) {
    if (deadline_now() >= deadline)
        return false;
    poll(NULL, 0, PAUSE_MS);
    return true;
}
