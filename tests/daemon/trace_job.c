/* Work for a trace to show: `trace_job URL DEVICE`. Round i, from 0, is three labelled operations, each of which is one
 * launch: full-i and exp-i on the default stream, and add-i on another one, which needs the second. Says "ready" after the
 * first round, goes on until its standard input ends, with a round every millisecond at most, and then says how many rounds
 * there were. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "client/tensord.h"

enum { ELEMENTS = 1 << 15 };

static td_tensor *labelled(const char *name, long round, td_tensor *(*make)(td_device *, td_tensor *),
                           td_device *device, td_tensor *in) {
    char label[64];
    snprintf(label, sizeof label, "%s-%ld", name, round);
    td_label(label);
    return make(device, in);
}

static td_tensor *make_full(td_device *device, td_tensor *in) {
    (void)in;
    return td_full(device, TD_F32, TD_SHAPE(ELEMENTS), 0.5);
}

static td_tensor *make_exp(td_device *device, td_tensor *in) {
    (void)device;
    return td_exp(in);
}

static td_tensor *make_add(td_device *device, td_tensor *in) {
    (void)device;
    return td_add(in, in);
}

static int round_run(td_device *device, td_stream *other, long i) {
    static float got[ELEMENTS];
    td_tensor *full = labelled("full", i, make_full, device, NULL);
    td_tensor *x = labelled("exp", i, make_exp, device, full);
    td_stream_set(device, other);
    td_tensor *sum = labelled("add", i, make_add, device, x);
    td_stream_set(device, NULL);
    int code = td_fetch(sum, got, sizeof got);
    td_release(full);
    td_release(x);
    td_release(sum);
    return code;
}

int main(int count, char **arguments) {
    td_connection *connection;
    td_device *device;
    td_stream *other;
    if (count != 3 || td_connect(arguments[1], NULL, &connection) ||
        td_device_open(connection, arguments[2], &device) || td_stream_open(device, 0, &other)) {
        fprintf(stderr, "trace_job: %s\n", td_last_error()->message);
        return 1;
    }
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    long i = 0;
    for (; poll(&input, 1, 1) == 0; i++) {
        if (round_run(device, other, i)) {
            fprintf(stderr, "trace_job: %s\n", td_last_error()->message);
            return 1;
        }
        if (i == 0) {
            puts("ready");
            fflush(stdout);
        }
    }
    printf("%ld\n", i);
    td_close(connection);
    return 0;
}
