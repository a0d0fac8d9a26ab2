#include "server/front/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/ops/cleanup.h"

enum { WORKER_QUEUE_MAX = 256, WORKER_MESSAGES_AT_ONCE = 64 };

/* ---- the queue of messages that the channel had no room for ---- */

/* Whether the queue takes a message. A queue that clients have filled must not lose changes of somebody's rights, of
 * which there are as many as users; nor the end of the worker's work or, by an admin's request, of a session; nor
 * replies to the worker, which has few requests open at a time. A link is never queued: the worker asks for it again,
 * and a queue of links would leave no room for other connections. */
static bool worker_process_has_room(const struct worker_process *process, const struct channel_message *message) {
    switch (message->type) {
    case CHANNEL_REVOKED:
    case CHANNEL_LIMITS:
    case CHANNEL_KERNELS:
    case CHANNEL_PLACES:
    case CHANNEL_KILL:
    case CHANNEL_CREDENTIALS:
    case CHANNEL_DRAIN:
    case CHANNEL_LINK_OUT:
    case CHANNEL_GRANTED:
    case CHANNEL_DENIED:
        return true;
    case CHANNEL_LINK_IN:
        return false;
    default:
        return process->queued < WORKER_QUEUE_MAX;
    }
}

static int worker_process_push(struct worker_process *process, const struct channel_message *message, int fd) {
    struct worker_packet *packet = worker_process_has_room(process, message) ? malloc(sizeof *packet) : NULL;
    if (!packet) {
        if (fd >= 0)
            close(fd);
        return STATUS_LIMIT;
    }
    *packet = (struct worker_packet){*message, fd, NULL};
    *process->last = packet;
    process->last = &packet->next;
    process->queued++;
    return STATUS_OK;
}

static void worker_process_pop(struct worker_process *process) {
    struct worker_packet *packet = process->first;
    process->first = packet->next;
    if (!process->first)
        process->last = &process->first;
    process->queued--;
    if (packet->fd >= 0)
        close(packet->fd);
    free(packet);
}

static void worker_process_closed(uv_handle_t *handle) {
    struct worker_process *process = handle->data;
    if (--process->handles)
        return;
    if (process->page)
        munmap((void *)process->page, sizeof *process->page);
    free(process);
}

/* Closes the poll handle together with its descriptor: closed later, it would remove another descriptor with the same
 * number from the loop's poll set. */
static void worker_process_close_channel(struct worker_process *process) {
    if (process->channel < 0)
        return;
    uv_close((uv_handle_t *)&process->poll, worker_process_closed);
    close(process->channel);
    process->channel = -1;
    while (process->first)
        worker_process_pop(process);
}

static void worker_process_hang_up(struct worker_process *process) {
    if (process->channel < 0)
        return;
    worker_process_close_channel(process);
    process->events->hung_up(process->owner);
}

static void worker_process_polled(uv_poll_t *poll, int status, int events);

static void worker_process_listen(struct worker_process *process) {
    uv_poll_start(&process->poll, UV_READABLE | (process->first ? UV_WRITABLE : 0), worker_process_polled);
}

int worker_process_send(struct worker_process *process, const struct channel_message *message, int fd) {
    int error = process->channel < 0 ? -EPIPE : process->first ? -EAGAIN : 0;
    if (!error)
        error = channel_send(process->channel, message, fd);
    if (error == -EAGAIN) {
        int result = worker_process_push(process, message, fd);
        worker_process_listen(process);
        return result;
    }
    if (fd >= 0)
        close(fd);
    /* -ETOOMANYREFS is a failure of this packet; any other error is the end of the channel, which reading reports. */
    return !error ? STATUS_OK : error == -ETOOMANYREFS ? STATUS_LIMIT : STATUS_DEVICE_LOST;
}

/* ---- events ---- */

static void worker_process_receive(struct worker_process *process, int most) {
    struct channel_message message;
    int fd = -1, error = 0;
    for (int i = 0; i < most && process->channel >= 0; i++) {
        error = channel_receive(process->channel, &message, &fd);
        if (error)
            break;
        process->events->message(process->owner, &message, fd);
    }
    if (error && error != -EAGAIN)
        worker_process_hang_up(process);
}

/* The channel has an end or an error: first what the worker has said before, at most so many. */
static void worker_process_hear_out(struct worker_process *process) {
    worker_process_receive(process, WORKER_QUEUE_MAX);
    worker_process_hang_up(process);
}

static void worker_process_flush(struct worker_process *process) {
    int error = 0;
    while (process->first && !error) {
        error = channel_send(process->channel, &process->first->message, process->first->fd);
        if (!error)
            worker_process_pop(process);
    }
    if (error && error != -EAGAIN)
        worker_process_hear_out(process);
    else
        worker_process_listen(process);
}

static void worker_process_polled(uv_poll_t *poll, int status, int events) {
    struct worker_process *process = poll->data;
    if (status < 0) {
        worker_process_hear_out(process);
        return;
    }
    if (events & UV_READABLE)
        worker_process_receive(process, WORKER_MESSAGES_AT_ONCE);
    if (events & UV_WRITABLE && process->channel >= 0)
        worker_process_flush(process);
}

static void worker_process_exited(uv_process_t *handle, int64_t status, int signal) {
    struct worker_process *process = handle->data;
    /* Its last messages may still be in the channel, at most so many. */
    worker_process_receive(process, WORKER_QUEUE_MAX);
    process->events->exited(process->owner, status, signal);
}

/* ---- start and end ---- */

/* Makes the page, sets process->page (NULL: failed), and returns its descriptor. The size is sealed: if a worker made its
 * page smaller, the front would get SIGBUS. */
static int worker_process_make_page(struct worker_process *process) {
    int fd = memfd_create("tensord-stats", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, sizeof(struct stats_page)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        void *page = mmap(NULL, sizeof(struct stats_page), PROT_READ, MAP_SHARED, fd, 0);
        process->page = page == MAP_FAILED ? NULL : page;
    }
    return fd;
}

/* This process's environment with one variable added or replaced; the caller frees the array. NULL: no memory. */
static char **worker_process_environment(const char *assignment) {
    size_t n = 0, kept = 0, name = strcspn(assignment, "=") + 1;
    while (environ[n])
        n++;
    char **list = calloc(n + 2, sizeof(char *));
    for (size_t i = 0; list && i < n; i++)
        if (strncmp(environ[i], assignment, name) != 0)
            list[kept++] = environ[i];
    if (list)
        list[kept] = (char *)(uintptr_t)assignment;
    return list;
}

static int worker_process_spawn(struct worker_process *process, uv_loop_t *loop, const char *device, char **environment,
                                int channel, int page) {
    char name[32], parent[24];
    snprintf(name, sizeof name, "%s", device);
    snprintf(parent, sizeof parent, "%d", getpid());
    char *arguments[] = {"tensord", "worker", name, parent, NULL};
    uv_stdio_container_t stdio[] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDOUT_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        [WORKER_CHANNEL_FD] = {.flags = UV_INHERIT_FD, .data.fd = channel},
        [WORKER_PAGE_FD] = {.flags = UV_INHERIT_FD, .data.fd = page},
    };
    uv_process_options_t options = {
        .exit_cb = worker_process_exited,
        .file = "/proc/self/exe", /* the same binary even if another has been installed meanwhile */
        .args = arguments,
        .env = environment, /* NULL: this process's environment */
        .stdio_count = sizeof stdio / sizeof *stdio,
        .stdio = stdio,
    };
    return uv_spawn(loop, &process->process, &options);
}

static int worker_process_launch(struct worker_process *process, uv_loop_t *loop, const char *device,
                                 char **environment) {
    int ends[2];
    CLEANUP(close) int page = worker_process_make_page(process);
    if (!process->page || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends))
        return -errno;
    CLEANUP(close) int theirs = ends[1];
    int error = uv_poll_init(loop, &process->poll, ends[0]);
    if (error) {
        close(ends[0]);
        return error;
    }
    process->channel = ends[0];
    process->handles = 2; /* a process handle that did not start must be closed as well */
    return worker_process_spawn(process, loop, device, environment, theirs, page);
}

int worker_process_start(uv_loop_t *loop, const char *device, const char *environment,
                         const struct worker_process_events *events, void *owner, struct worker_process **result,
                         struct fault *fault) {
    struct worker_process *process = calloc(1, sizeof *process);
    if (!process)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a worker process");
    process->channel = -1;
    process->last = &process->first;
    process->events = events;
    process->owner = owner;
    process->process.data = process->poll.data = process;
    char **variables = *environment ? worker_process_environment(environment) : NULL;
    int error = *environment && !variables ? UV_ENOMEM : worker_process_launch(process, loop, device, variables);
    free(variables);
    if (error) {
        worker_process_destroy(process);
        return fault_set(fault, STATUS_INTERNAL, "the worker process cannot start: %s", uv_strerror(error));
    }
    worker_process_listen(process);
    *result = process;
    return STATUS_OK;
}

void worker_process_kill(struct worker_process *process) {
    uv_process_kill(&process->process, SIGKILL);
}

void worker_process_destroy(struct worker_process *process) {
    if (!process)
        return;
    if (process->handles && uv_is_active((uv_handle_t *)&process->process))
        uv_process_kill(&process->process, SIGKILL);
    if (process->handles) {
        worker_process_close_channel(process);
        uv_close((uv_handle_t *)&process->process, worker_process_closed);
        return;
    }
    if (process->page)
        munmap((void *)process->page, sizeof *process->page);
    free(process);
}
