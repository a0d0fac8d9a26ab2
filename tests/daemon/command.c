#include "tests/daemon/command.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/deadline.h"

struct stream {
    int fd;
    char *text;
    size_t bytes;
};

void command_environment(const char *const environment[]) {
    for (size_t i = 0; environment && environment[i]; i++) {
        char *entry = strdup(environment[i]);
        char *value = strchr(entry, '=');
        if (value) {
            *value++ = 0;
            setenv(entry, value, 1);
        } else {
            unsetenv(entry);
        }
        free(entry);
    }
}

static pid_t command_start(const char *const arguments[], const char *const environment[], int out, int err) {
    pid_t pid = fork();
    cr_assert(pid >= 0, "fork");
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, 0);
    dup2(out, 1);
    dup2(err, 2);
    command_environment(environment);
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

/* False at the end of the stream. */
static bool stream_read(struct stream *stream) {
    char piece[4096];
    ssize_t n = read(stream->fd, piece, sizeof piece);
    if (n <= 0)
        return false;
    stream->text = realloc(stream->text, stream->bytes + (size_t)n + 1);
    memcpy(stream->text + stream->bytes, piece, (size_t)n);
    stream->bytes += (size_t)n;
    return true;
}

/* Both streams at once, so that neither pipe fills up; false when the deadline passed. */
static bool streams_read(struct stream streams[2], int64_t deadline) {
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
        struct pollfd entries[2] = {{.fd = streams[0].fd, .events = POLLIN}, {.fd = streams[1].fd, .events = POLLIN}};
        if (poll(entries, 2, deadline_left(deadline)) <= 0)
            return false;
        for (int i = 0; i < 2; i++) {
            if (entries[i].revents && !stream_read(&streams[i])) {
                close(streams[i].fd);
                streams[i].fd = -1;
            }
        }
    }
    return true;
}

static char *stream_text(struct stream *stream) {
    if (stream->fd >= 0)
        close(stream->fd);
    if (!stream->text)
        return calloc(1, 1);
    stream->text[stream->bytes] = 0;
    return stream->text;
}

void command_run(struct command *command, const char *const arguments[], const char *const environment[],
                 int milliseconds) {
    int64_t deadline = deadline_in(milliseconds);
    int out[2], err[2], status;
    cr_assert(!pipe2(out, O_CLOEXEC) && !pipe2(err, O_CLOEXEC));
    pid_t pid = command_start(arguments, environment, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    struct stream streams[2] = {{.fd = out[0]}, {.fd = err[0]}};
    bool ended = streams_read(streams, deadline);
    if (!ended)
        kill(pid, SIGKILL);
    cr_assert(waitpid(pid, &status, 0) == pid);
    command->code = !ended ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    command->out_bytes = streams[0].bytes;
    command->out = stream_text(&streams[0]);
    command->err = stream_text(&streams[1]);
}

void command_finish(struct command *command) {
    free(command->out);
    free(command->err);
    *command = (struct command){0};
}

size_t command_columns(const char *text) {
    size_t longest = 0, columns = 0;
    for (; *text; text++) {
        if (*text == '\n')
            columns = 0;
        else if (((unsigned char)*text & 0xc0) != 0x80)
            columns++;
        if (columns > longest)
            longest = columns;
    }
    return longest;
}
