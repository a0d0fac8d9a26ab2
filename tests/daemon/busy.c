/* A job for tests that look at a daemon from outside: busy LABEL MEBIBYTES [DEVICE]. It holds so much, works without end
 * under the label, says "ready" once some of it is done, and ends with its standard input. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/tensord.h"

static int failed(const char *what) {
    fprintf(stderr, "busy: %s: %s\n", what, td_last_error()->message);
    return 1;
}

static bool goes_on(void) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    return poll(&input, 1, 0) <= 0 || read(STDIN_FILENO, &byte, 1) > 0;
}

/* Some small products, a few bytes up and a few down. */
static int work(td_device *device) {
    float values[64] = {1}, result[64];
    td_tensor *x = td_upload(device, TD_F32, TD_SHAPE(8, 8), values), *y = td_matmul(x, x);
    for (int i = 0; i < 50; i++) {
        td_tensor *next = td_tanh(y);
        td_release(y);
        y = next;
    }
    int error = td_fetch(y, result, sizeof result);
    td_release(y);
    td_release(x);
    return error;
}

int main(int argc, char **argv) {
    td_connection *connection;
    td_device *device;
    if (argc < 3)
        return 2;
    if (td_connect(NULL, NULL, &connection) || td_device_open(connection, argc > 3 ? argv[3] : NULL, &device))
        return failed("no device");
    td_label(argv[1]);
    td_tensor *held = td_full(device, TD_F32, TD_SHAPE(atoi(argv[2]), 256, 1024), 0.5);
    for (int i = 0; goes_on(); i++) {
        td_label(argv[1]);
        if (work(device))
            return failed("work");
        if (i == 0 && (puts("ready") < 0 || fflush(stdout)))
            return 1;
        if (i % 16 == 0)
            usleep(1000); /* leaves some of the processor to others */
    }
    td_release(held);
    td_close(connection);
    return 0;
}
