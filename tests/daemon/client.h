/* Well-behaved clients of the library, for tests that are about something else than the library's errors. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "client/tensord.h"

struct client {
    td_connection *connection;
    td_device *device;
};

/* Asserts that both succeed. `device` NULL: the default one. */
void client_open(struct client *client, const char *url, const char *device);
void client_close(struct client *client);

/* A rank-1 f32 tensor start, start + 1, …; asserts. */
td_tensor *client_ramp(td_device *device, size_t n, float start);
/* Fetches an f32 tensor and asserts that it holds these values. */
void client_expect(td_tensor *tensor, const float *values, size_t n);
/* Asserts that fetching it fails with this code, and gives the error. */
const td_error *client_expect_failure(td_tensor *tensor, int code);
/* `bytes` of reproducible noise. */
void client_noise(void *data, size_t bytes, unsigned seed);

/* Runs `body` in a child process, which must not assert (it is no Criterion test) but return its exit code. No connection may be open here: its
 * threads may hold locks, of a sanitizer's allocator for example, that stay held in the child. */
pid_t client_fork(int (*body)(void *argument), void *argument);
/* Its exit code; 128 + signal; -1 where it did not end in time and was killed. */
int client_join(pid_t pid, int milliseconds);
