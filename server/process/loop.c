#include "server/process/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/ops/cleanup.h"

enum { LOOP_DESCRIPTORS_BESIDE = 1024 }; /* links between workers, farewells, what a driver opens */

static rlim_t loop_descriptors(uint64_t connections, rlim_t most) {
    rlim_t enough = (rlim_t)connections * 2 + LOOP_DESCRIPTORS_BESIDE;
    return most < enough ? most : enough;
}

void loop_limit_descriptors(uint64_t connections) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    limit.rlim_cur = loop_descriptors(connections, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void loop_watched(uv_poll_t *poll, int status, int events) {
    (void)poll;
    (void)status;
    (void)events;
}

static void loop_closed(uv_handle_t *handle) {
    free(handle);
}

/* A descriptor with the highest possible number; -1: there is none. */
static int loop_highest(rlim_t descriptors) {
    CLEANUP(close) int fd = eventfd(0, EFD_CLOEXEC);
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, (int)descriptors - 1);
}

int loop_reserve(uv_loop_t *loop, struct fault *fault) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return fault_set(fault, STATUS_INTERNAL, "the limit of descriptors is not known: %s", strerror(errno));
    /* Tries first whether there is memory for the entries, because libuv would abort. */
    void *probe = malloc(limit.rlim_cur * 2 * sizeof(void *));
    uv_poll_t *poll = malloc(sizeof *poll);
    free(probe);
    CLEANUP(close) int fd = probe && poll ? loop_highest(limit.rlim_cur) : -1;
    int error = fd < 0 ? -errno : uv_poll_init(loop, poll, fd);
    if (error) {
        free(poll);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no room to watch %llu descriptors: %s",
                         (unsigned long long)limit.rlim_cur, uv_strerror(error));
    }
    uv_poll_start(poll, UV_READABLE, loop_watched);
    uv_close((uv_handle_t *)poll, loop_closed);
    return STATUS_OK;
}

int loop_raise_descriptors(uv_loop_t *loop, uint64_t connections, struct fault *fault) {
    struct rlimit before, limit;
    if (getrlimit(RLIMIT_NOFILE, &before))
        return fault_set(fault, STATUS_INTERNAL, "the limit of descriptors is not known: %s", strerror(errno));
    limit = before;
    limit.rlim_cur = loop_descriptors(connections, limit.rlim_max);
    if (limit.rlim_cur <= before.rlim_cur)
        return STATUS_OK;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        return fault_set(fault, STATUS_LIMIT, "no %llu descriptors for %llu connections: %s",
                         (unsigned long long)limit.rlim_cur, (unsigned long long)connections, strerror(errno));
    int error = loop_reserve(loop, fault);
    if (error)
        setrlimit(RLIMIT_NOFILE, &before);
    return error;
}
