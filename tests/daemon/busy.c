/* A job for tests that look at a daemon from outside: busy LABEL MEBIBYTES [DEVICE [recorded]]. It holds so much, works without end
 * under the label, says "ready" once some of it is done, and ends with its standard input. With `recorded` it runs a program
 * and a loop over it, too, and has a second program that never runs. */
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

/* tanh(x @ x) @ exp(x @ x), where the product of x is there twice. */
static td_program *record(td_device *device) {
    td_program *program = NULL;
    if (td_record_begin(device))
        return NULL;
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(64, 64));
    td_tensor *result = td_matmul(td_tanh(td_matmul(x, x)), td_exp(td_matmul(x, x)));
    td_record_end(device, 1, &result, &program);
    return program;
}

static td_program *program;

static int run_program(td_device *device) {
    const td_carry carry = {0, 0};
    const td_loop loop = {1, &carry, 0, NULL, 0, NULL};
    td_tensor *x = td_full(device, TD_F32, TD_SHAPE(64, 64), 0.5), *y, *z;
    if (!program && (!record(device) || !(program = record(device))))
        return TD_E_INVALID_ARGUMENT;
    int error = td_program_run(program, 1, &x, 1, &y);
    if (!error)
        error = td_program_repeat(program, 5, &loop, 1, &y, 1, &z);
    td_release(z);
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
        if ((argc > 4 && run_program(device)) || work(device))
            return failed("work");
        if (i == 0 && (puts("ready") < 0 || fflush(stdout)))
            return 1;
        usleep(1000); /* leaves some of the processor to others */
    }
    td_release(held);
    td_close(connection);
    return 0;
}
