#include "server/front/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/process/clock.h"

enum { PROBE_TIMEOUT_MS = 30000, PROBE_FD = STDOUT_FILENO };

int probe_main(const char *kind) {
    static struct device_place places[DEVICE_PLACES_MAX];
    struct fault fault;
    unsigned count;
    if (device_list(kind, places, DEVICE_PLACES_MAX, &count, &fault) != STATUS_OK)
        printf("- %s\n", fault.message);
    for (unsigned i = 0; i < count; i++)
        printf("%u%s%s\n", places[i].index, *places[i].environment ? " " : "", places[i].environment);
    return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

bool probe_worthwhile(void) {
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* Reads everything up to the end, as a string. False: the end does not come in time. */
static bool probe_read(int fd, char *text, size_t size) {
    uint64_t end = clock_now_ms() + PROBE_TIMEOUT_MS;
    size_t used = 0;
    for (;;) {
        int64_t left = (int64_t)(end - clock_now_ms());
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

/* Reads one line. False: probe_main() did not write it. */
static bool probe_read_place(char *line, struct device_place *place) {
    char *end;
    unsigned long index = strtoul(line, &end, 10);
    if (end == line || index >= DEVICE_PLACES_MAX || (*end && *end != ' '))
        return false;
    const char *environment = *end ? end + 1 : "";
    if (*end && (!strchr(environment, '=') || strlen(environment) >= sizeof place->environment))
        return false;
    *place = (struct device_place){.index = (unsigned)index};
    snprintf(place->environment, sizeof place->environment, "%s", environment);
    return true;
}

static int probe_understand(const char *kind, char *text, struct device_place *places, unsigned capacity,
                            unsigned *count, struct fault *fault) {
    unsigned found = 0;
    bool whole = true;
    char *rest = text;
    if (text[0] == '-' && text[1] == ' ')
        return fault_set(fault, STATUS_NO_DEVICE, "%.*s", (int)strcspn(text + 2, "\n"), text + 2);
    for (char *line; whole && found < capacity && (line = strsep(&rest, "\n"));) {
        if (!rest) /* the text behind the last newline */
            whole = !*line;
        else if ((whole = probe_read_place(line, &places[found])))
            found++;
    }
    if (!whole || found == 0)
        return fault_set(fault, STATUS_NO_DEVICE, "the %s backend died when it was asked for its devices", kind);
    *count = found;
    return STATUS_OK;
}

/* Runs the process, and reads its output into `text`. False: it does not end in time. */
static bool probe_run(const char *kind, int ends[2], char *text, size_t size, int *error) {
    pid_t process;
    int status;
    *error = probe_spawn(kind, ends[1], &process);
    close(ends[1]);
    bool replied = *error || probe_read(ends[0], text, size);
    close(ends[0]);
    if (*error)
        return true;
    if (!replied)
        kill(process, SIGKILL);
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    return replied;
}

int probe_list(const char *kind, struct device_place *places, unsigned capacity, unsigned *count, struct fault *fault) {
    static char text[DEVICE_PLACES_MAX * (DEVICE_ENVIRONMENT_MAX + 8)];
    int ends[2], error;
    *count = 0;
    text[0] = 0;
    if (pipe2(ends, O_CLOEXEC))
        return fault_set(fault, STATUS_INTERNAL, "no pipe to ask for devices: %s", strerror(errno));
    bool replied = probe_run(kind, ends, text, sizeof text, &error);
    if (error)
        return fault_set(fault, STATUS_INTERNAL, "no process to ask for devices: %s", strerror(error));
    if (!replied)
        return fault_set(fault, STATUS_NO_DEVICE, "the %s backend did not say in %d s which devices there are", kind,
                         PROBE_TIMEOUT_MS / 1000);
    return probe_understand(kind, text, places, capacity, count, fault);
}
