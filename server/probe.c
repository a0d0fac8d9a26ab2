#include "server/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/device.h"

enum { PROBE_TIMEOUT_MS = 30000, PROBE_FD = STDOUT_FILENO };

/* What the process says: "COUNT" or "- REASON". */
int probe_main(const char *kind) {
    struct fault fault;
    unsigned count;
    if (device_count(kind, &count, &fault) == STATUS_OK)
        printf("%u", count);
    else
        printf("- %s", fault.message);
    return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

bool probe_worthwhile(void) {
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

static int64_t probe_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Everything up to the end, as a string; false where the end does not come in time. */
static bool probe_read(int fd, char *text, size_t size) {
    int64_t end = probe_now_ms() + PROBE_TIMEOUT_MS;
    size_t used = 0;
    for (;;) {
        int64_t left = end - probe_now_ms();
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (left <= 0)
            return false;
        if (poll(&wait, 1, (int)left) <= 0)
            continue;
        ssize_t got = read(fd, text + used, size - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        used += got > 0 ? (size_t)got : 0;
        text[used] = 0;
        if (got <= 0 || used == size - 1)
            return true;
    }
}

static int probe_spawn(const char *kind, int out, pid_t *process) {
    char *arguments[] = {"tensord", "count", (char *)(uintptr_t)kind, NULL};
    posix_spawn_file_actions_t actions;
    extern char **environ;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, PROBE_FD);
    int error = posix_spawn(process, "/proc/self/exe", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static int probe_understand(const char *kind, const char *text, unsigned *count, struct fault *fault) {
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (end != text && !*end && number > 0 && number < 1024) {
        *count = (unsigned)number;
        return STATUS_OK;
    }
    if (text[0] == '-' && text[1] == ' ')
        return fault_set(fault, STATUS_NO_DEVICE, "%s", text + 2);
    return fault_set(fault, STATUS_NO_DEVICE, "the %s backend died when it was asked for its devices", kind);
}

int probe_count(const char *kind, unsigned *count, struct fault *fault) {
    char text[sizeof fault->message];
    pid_t process;
    int ends[2], status;
    *count = 0;
    if (pipe2(ends, O_CLOEXEC))
        return fault_set(fault, STATUS_INTERNAL, "no pipe to ask for devices: %s", strerror(errno));
    int error = probe_spawn(kind, ends[1], &process);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        return fault_set(fault, STATUS_INTERNAL, "no process to ask for devices: %s", strerror(error));
    }
    bool answered = probe_read(ends[0], text, sizeof text);
    close(ends[0]);
    if (!answered)
        kill(process, SIGKILL);
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    if (!answered)
        return fault_set(fault, STATUS_NO_DEVICE, "the %s backend did not say in %d s which devices there are", kind,
                         PROBE_TIMEOUT_MS / 1000);
    return probe_understand(kind, text, count, fault);
}
