#include "client/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/frame.h"

enum { PINGS = 5 };

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int command_ping(struct tensorctl *ctl, struct fault *fault) {
    Tensord__Ping request = TENSORD__PING__INIT;
    ProtobufCMessage *reply;
    double times[PINGS];
    char text[TEXT_UNIT_MAX], median[TEXT_UNIT_MAX];

    for (int i = 0; i < PINGS; ++i) {
        double start = seconds_now();
        int error = control_call(ctl->control, FRAME_PING, &request.base, FRAME_PONG, &reply, fault);
        if (error)
            return error;
        times[i] = seconds_now() - start;
        protobuf_c_message_free_unpacked(reply, NULL);
        text_line(stdout, "%s: %d: %s", control_server(ctl->control), i + 1, text_duration(text, times[i]));
    }
    qsort(times, PINGS, sizeof *times, compare_doubles);
    text_line(stdout, "min %s, median %s", text_duration(text, times[0]), text_duration(median, times[PINGS / 2]));
    return command_flushed(fault);
}

int command_drain(struct tensorctl *ctl, struct fault *fault) {
    Tensord__Drain request = TENSORD__DRAIN__INIT;
    Tensord__Done *done;
    int error = control_call(ctl->control, FRAME_DRAIN, &request.base, FRAME_DONE, (ProtobufCMessage **)&done, fault);
    if (error)
        return error;
    if (done->error)
        error = fault_set(fault, (enum status)done->error->code, "%s", done->error->message);
    tensord__done__free_unpacked(done, NULL);
    return error;
}

int command_kill(struct tensorctl *ctl, struct fault *fault) {
    char *end;
    errno = 0;
    uint64_t session = strtoull(ctl->words[0], &end, 10);
    if (*end || errno || !strchr("0123456789", *ctl->words[0]))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a session is a number, as status shows it, not %.80s",
                         ctl->words[0]);
    return tensorctl_kill(ctl->control, session, ctl->reason ? ctl->reason : "", fault);
}

int command_top(struct tensorctl *ctl, struct fault *fault) {
    struct control *control = ctl->control;
    if (ctl->top.count && !ctl->top.batch)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "--count is for --batch");
    ctl->top.url = ctl->url;
    ctl->control = NULL;
    return top_run(control, &ctl->top, fault);
}

int command_trace(struct tensorctl *ctl, struct fault *fault) {
    return tensorctl_trace(ctl->control, ctl->url, ctl->seconds, ctl->output, ctl->words, ctl->n_words, fault);
}
