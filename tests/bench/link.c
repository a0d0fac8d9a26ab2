/* A link that takes its time: netem in a network namespace of this process, or else a process that passes bytes on later. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { LINK_PAIRS = 16, LINK_CHUNK = 64 << 10 };

bool bench_link_netem(int milliseconds) {
    char command[200];
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return false;
    /* Each way is a packet that leaves by lo. */
    snprintf(command, sizeof command,
             "{ ip link set lo up && tc qdisc add dev lo root netem delay %dms limit 100000; } >/dev/null 2>&1",
             milliseconds);
    if (system(command) == 0)
        return true;
    if (system("ip link set lo up >/dev/null 2>&1") != 0)
        bench_fail("a network namespace was made, but its interface cannot be brought up");
    return false;
}

/* ---- the process that passes bytes on ---- */

struct chunk {
    struct chunk *next;
    double due;
    size_t begin, end;
    char bytes[LINK_CHUNK];
};

struct flow {
    int from, to;
    struct chunk *first, **last;
    bool over; /* its source has ended */
};

struct pair {
    struct flow up, down;
};

static void flow_open(struct flow *flow, int from, int to) {
    *flow = (struct flow){.from = from, .to = to};
    flow->last = &flow->first;
}

static void flow_take(struct flow *flow, double delay) {
    struct chunk *chunk = malloc(sizeof *chunk);
    ssize_t got = chunk ? read(flow->from, chunk->bytes, sizeof chunk->bytes) : -1;
    if (got <= 0) {
        flow->over = true;
        free(chunk);
        return;
    }
    chunk->next = NULL;
    chunk->due = bench_now() + delay;
    chunk->begin = 0;
    chunk->end = (size_t)got;
    *flow->last = chunk;
    flow->last = &chunk->next;
}

static void flow_give(struct flow *flow) {
    struct chunk *chunk = flow->first;
    ssize_t put = send(flow->to, chunk->bytes + chunk->begin, chunk->end - chunk->begin, MSG_NOSIGNAL);
    chunk->begin += put > 0 ? (size_t)put : 0;
    if (put >= 0 && chunk->begin < chunk->end)
        return;
    flow->over |= put < 0;
    flow->first = chunk->next;
    if (!flow->first)
        flow->last = &flow->first;
    free(chunk);
}

/* Seconds until it has something to give; adds what it waits for. */
static double flow_poll(struct flow *flow, struct pollfd *in, struct pollfd *out) {
    double wait = flow->first ? flow->first->due - bench_now() : 1;
    *in = (struct pollfd){.fd = flow->over ? -1 : flow->from, .events = POLLIN};
    *out = (struct pollfd){.fd = flow->first && wait <= 0 ? flow->to : -1, .events = POLLOUT};
    return wait > 0 ? wait : 1;
}

static bool flow_goes_on(struct flow *flow) {
    if (!flow->over || flow->first)
        return true;
    shutdown(flow->to, SHUT_WR);
    return false;
}

static void pair_open(struct pair *pair, int listener, const struct sockaddr_in *to) {
    int one = 1, client = accept(listener, NULL, NULL), server = socket(AF_INET, SOCK_STREAM, 0);
    if (client < 0 || server < 0 || connect(server, (const struct sockaddr *)to, sizeof *to) != 0)
        _exit(1);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    flow_open(&pair->up, client, server);
    flow_open(&pair->down, server, client);
}

static void relay(int listener, const struct sockaddr_in *to, double delay) {
    struct pair pairs[LINK_PAIRS];
    struct pollfd polls[1 + 4 * LINK_PAIRS];
    int n = 0;
    for (;;) {
        double wait = 1;
        polls[0] = (struct pollfd){.fd = n < LINK_PAIRS ? listener : -1, .events = POLLIN};
        for (int i = 0; i < n; i++)
            for (int k = 0; k < 2; k++) {
                struct pollfd *own = &polls[1 + 4 * i + 2 * k];
                double until = flow_poll(k ? &pairs[i].down : &pairs[i].up, own, own + 1);
                wait = until < wait ? until : wait;
            }
        const struct timespec limit = {.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9)};
        if (ppoll(polls, 1 + 4 * (nfds_t)n, &limit, NULL) < 0 && errno != EINTR)
            _exit(1);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < 2; k++) {
                struct flow *flow = k ? &pairs[i].down : &pairs[i].up;
                if (polls[1 + 4 * i + 2 * k].revents)
                    flow_take(flow, delay);
                if (polls[2 + 4 * i + 2 * k].revents)
                    flow_give(flow);
            }
        for (int i = 0; i < n;) { /* a pair that has ended makes room for another one */
            bool up = flow_goes_on(&pairs[i].up), down = flow_goes_on(&pairs[i].down);
            if (up || down) {
                i++;
                continue;
            }
            close(pairs[i].up.from);
            close(pairs[i].up.to);
            pairs[i] = pairs[--n];
            for (int k = 0; k < 2; k++) { /* the end of an empty list is in it */
                struct flow *flow = k ? &pairs[i].down : &pairs[i].up;
                if (!flow->first)
                    flow->last = &flow->first;
            }
            break; /* the polls are those of the old order */
        }
        if (polls[0].revents)
            pair_open(&pairs[n++], listener, to);
    }
}

pid_t bench_link_relay(const char *url, int milliseconds, char slow[BENCH_URL]) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, own = to;
    socklen_t length = sizeof own;
    unsigned port;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (sscanf(url, "tcp://127.0.0.1:%u", &port) != 1)
        bench_fail("%s: not a port of this machine", url);
    to.sin_port = htons((uint16_t)port);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) != 0 || listen(listener, LINK_PAIRS) != 0 ||
        getsockname(listener, (struct sockaddr *)&own, &length) != 0)
        bench_fail("a port for the slow link: %s", strerror(errno));
    snprintf(slow, BENCH_URL, "tcp://127.0.0.1:%u", ntohs(own.sin_port));
    pid_t child = fork();
    if (child < 0)
        bench_fail("fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        relay(listener, &to, milliseconds * 1e-3);
    }
    close(listener);
    return child;
}
