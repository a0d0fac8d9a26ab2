#include "tests/daemon/client.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"

void client_open(struct client *client, const char *url, const char *device) {
    cr_assert(!td_connect(url, NULL, &client->connection), "td_connect: %s", td_last_error()->message);
    cr_assert(!td_device_open(client->connection, device, &client->device), "td_device_open: %s",
              td_last_error()->message);
}

void client_close(struct client *client) {
    td_close(client->connection);
    *client = (struct client){0};
}

td_tensor *client_ramp(td_device *device, size_t n, float start) {
    float *values = malloc(n * sizeof *values + 1);
    for (size_t i = 0; i < n; i++)
        values[i] = start + (float)i;
    td_tensor *tensor = td_upload(device, TD_F32, TD_SHAPE((int64_t)n), values);
    cr_assert_not_null(tensor, "td_upload: %s", td_last_error()->message);
    free(values);
    return tensor;
}

void client_expect(td_tensor *tensor, const float *values, size_t n) {
    cr_assert_not_null(tensor, "no tensor: %s", td_last_error()->message);
    cr_assert_eq(td_tensor_dtype(tensor), TD_F32);
    cr_assert_eq(td_tensor_bytes(tensor), n * sizeof *values);
    float *got = malloc(n * sizeof *got + 1);
    cr_assert(!td_fetch(tensor, got, n * sizeof *got), "td_fetch: %s", td_last_error()->message);
    for (size_t i = 0; i < n; i++)
        cr_assert_float_eq(got[i], values[i], 1e-4, "element %zu is %g, not %g", i, got[i], values[i]);
    free(got);
}

const td_error *client_expect_failure(td_tensor *tensor, int code) {
    cr_assert_not_null(tensor, "no tensor: %s", td_last_error()->message);
    size_t bytes = td_tensor_bytes(tensor);
    void *data = malloc(bytes + 1);
    int got = td_fetch(tensor, data, bytes);
    free(data);
    cr_assert_eq(got, code, "td_fetch gave %d (%s), not %d", got, got ? td_last_error()->message : "success", code);
    cr_assert_eq(td_last_error()->code, code);
    return td_last_error();
}

void client_noise(void *data, size_t bytes, unsigned seed) {
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < bytes; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ((uint8_t *)data)[i] = (uint8_t)(state >> 56);
    }
}

pid_t client_fork(int (*body)(void *argument), void *argument) {
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(body(argument));
}

int client_join(pid_t pid, int milliseconds) {
    int status;
    int watch = daemon_process_watch(pid);
    bool ended = deadline_poll(watch, POLLIN, deadline_in(milliseconds));
    close(watch);
    if (!ended)
        kill(pid, SIGKILL);
    cr_assert(waitpid(pid, &status, 0) == pid);
    return !ended ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
