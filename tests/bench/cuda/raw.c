#include "tests/bench/cuda/raw.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

void raw_start(struct raw *raw, int ordinal) {
    int pair[2];
    char fd[16], device[16];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        bench_fail("no socket");
    snprintf(fd, sizeof fd, "%d", pair[1]);
    snprintf(device, sizeof device, "%d", ordinal);
    *raw = (struct raw){.pid = fork(), .fd = pair[0]};
    if (raw->pid == 0) {
        fcntl(pair[1], F_SETFD, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/proc/self/exe", "bench-cuda", "--raw", fd, device, (char *)NULL);
        _exit(127);
    }
    close(pair[1]);
}

void raw_stop(struct raw *raw) {
    if (raw->pid <= 0)
        return;
    close(raw->fd);
    kill(raw->pid, SIGKILL);
    waitpid(raw->pid, NULL, 0);
    raw->pid = 0;
}

bool raw_try(const struct raw *raw, const struct raw_request *request, struct raw_reply *reply) {
    memset(reply, 0, sizeof *reply);
    if (send(raw->fd, request, sizeof *request, MSG_NOSIGNAL) != sizeof *request ||
        recv(raw->fd, reply, sizeof *reply, 0) != sizeof *reply)
        snprintf(reply->error, sizeof reply->error, "the process that calls CUDA directly has ended");
    return !*reply->error;
}

struct raw_reply raw_ask(const struct raw *raw, const struct raw_request *request) {
    struct raw_reply reply;
    if (!raw_try(raw, request, &reply))
        bench_fail("CUDA called directly: %s", reply.error);
    return reply;
}
