#include "tests/daemon/proxy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/wire/frame.h"
#include "tests/daemon/daemon.h"

/* ---- pairs ---- */

static void pair_close(struct proxy *proxy, unsigned i, bool keep_server) {
    struct proxy_pair *pair = proxy->pairs[i];
    close(pair->client);
    if (keep_server && proxy->n_kept < sizeof proxy->kept / sizeof *proxy->kept)
        proxy->kept[proxy->n_kept++] = pair->server;
    else
        close(pair->server);
    free(pair);
    proxy->pairs[i] = NULL;
}

static void pair_cut(struct proxy *proxy, unsigned i) {
    pair_close(proxy, i, proxy->one_sided && rand_r(&proxy->seed) % 2);
    proxy->cuts++;
}

/* Within a handshake, within what is small, or within what is large. */
static int64_t pair_budget(struct proxy *proxy) {
    static const unsigned most[] = {300, 8 << 10, 256 << 10, 4 << 20};
    unsigned random = (unsigned)rand_r(&proxy->seed);
    if (proxy->cuts >= proxy->cuts_max)
        return -1;
    if (proxy->every)
        return proxy->every;
    return (unsigned)rand_r(&proxy->seed) % most[random % 4];
}

static int dial(const struct url_address *to) {
    int fd = socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to->address, to->length)) {
        close(fd);
        return -1;
    }
    return fd;
}

static void pair_open(struct proxy *proxy) {
    unsigned i = 0;
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0)
        return;
    while (i < PROXY_PAIRS_MAX && proxy->pairs[i])
        i++;
    struct proxy_pair *pair = i < PROXY_PAIRS_MAX && !proxy->shut ? calloc(1, sizeof *pair) : NULL;
    int server = pair ? dial(&proxy->to) : -1;
    if (server < 0) {
        close(client);
        free(pair);
        return;
    }
    /* As at both ends, or what is small waits 40 ms for an acknowledgement. A Unix socket has no such option. */
    (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    (void)setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    pair->client = client;
    pair->server = server;
    pair->left = -1;
    proxy->pairs[i] = pair;
    proxy->taken++;
}

/* A connection's first bytes say where it goes. */
static void pair_meet(struct proxy *proxy, struct proxy_pair *pair) {
    uint16_t target;
    if (pair->met || pair->up.end < PREAMBLE_BYTES)
        return;
    pair->met = true;
    pair->control = preamble_decode(pair->up.bytes, &target, NULL) || target == PREAMBLE_TARGET_CONTROL;
    if (!pair->control)
        pair->left = pair_budget(proxy);
}

/* ---- bytes ---- */

static bool flow_wants(const struct proxy_flow *flow) {
    return !flow->over && flow->end == 0;
}

static bool flow_read(struct proxy_flow *flow, int fd) {
    ssize_t got = recv(fd, flow->bytes, sizeof flow->bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    flow->begin = 0;
    flow->end = got > 0 ? (unsigned)got : 0;
    flow->over = got <= 0;
    return got > 0;
}

/* At most `*left` bytes, unless that is negative. */
static bool flow_write(struct proxy *proxy, struct proxy_flow *flow, int fd, int64_t *left) {
    size_t n = flow->end - flow->begin;
    if (*left >= 0 && n > (size_t)*left)
        n = (size_t)*left;
    ssize_t sent = n ? send(fd, flow->bytes + flow->begin, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR;
    flow->begin += (unsigned)sent;
    proxy->carried += (unsigned long)sent;
    if (*left >= 0)
        *left -= sent;
    if (flow->begin == flow->end)
        flow->begin = flow->end = 0;
    return true;
}

static void pair_move(struct proxy *proxy, unsigned i, short client, short server) {
    struct proxy_pair *pair = proxy->pairs[i];
    bool whole = true;
    if (flow_wants(&pair->up) && client & (POLLIN | POLLHUP | POLLERR))
        whole = flow_read(&pair->up, pair->client);
    pair_meet(proxy, pair);
    if (whole && flow_wants(&pair->down) && server & (POLLIN | POLLHUP | POLLERR))
        whole = flow_read(&pair->down, pair->server);
    bool cut = pair->left >= 0;
    whole = whole && flow_write(proxy, &pair->up, pair->server, &pair->left) &&
            flow_write(proxy, &pair->down, pair->client, &pair->left);
    if (cut && pair->left == 0)
        pair_cut(proxy, i);
    else if (!whole) /* one side has ended: so does the other, with what it has been sent */
        pair_close(proxy, i, false);
}

static short events_of(const struct proxy_flow *in, const struct proxy_flow *out) {
    return (short)((flow_wants(in) ? POLLIN : 0) | (out->end ? POLLOUT : 0));
}

static void proxy_cut_all(struct proxy *proxy) {
    for (unsigned i = 0; i < PROXY_PAIRS_MAX; i++)
        if (proxy->pairs[i] && !proxy->pairs[i]->control)
            pair_cut(proxy, i);
    proxy->cut_now = false;
    (void)!write(proxy->wake[1], "c", 1); /* says that it is done */
}

static void *proxy_main(void *argument) {
    struct proxy *proxy = argument;
    while (!proxy->stop) {
        struct pollfd entries[2 + 2 * PROXY_PAIRS_MAX] = {{.fd = proxy->listener, .events = POLLIN},
                                                          {.fd = proxy->wake[1], .events = POLLIN}};
        for (unsigned i = 0; i < PROXY_PAIRS_MAX; i++) {
            struct proxy_pair *pair = proxy->frozen ? NULL : proxy->pairs[i];
            entries[2 + 2 * i] =
                (struct pollfd){.fd = pair ? pair->client : -1, .events = pair ? events_of(&pair->up, &pair->down) : 0};
            entries[3 + 2 * i] =
                (struct pollfd){.fd = pair ? pair->server : -1, .events = pair ? events_of(&pair->down, &pair->up) : 0};
        }
        poll(entries, 2 + 2 * PROXY_PAIRS_MAX, -1);
        if (entries[1].revents) {
            char scrap[64];
            (void)!recv(proxy->wake[1], scrap, sizeof scrap, MSG_DONTWAIT);
        }
        for (unsigned i = 0; i < PROXY_PAIRS_MAX && !proxy->frozen; i++)
            if (proxy->pairs[i] && (entries[2 + 2 * i].revents || entries[3 + 2 * i].revents))
                pair_move(proxy, i, entries[2 + 2 * i].revents, entries[3 + 2 * i].revents);
        if (entries[0].revents)
            pair_open(proxy);
        if (proxy->cut_now)
            proxy_cut_all(proxy);
    }
    return NULL;
}

/* ---- life ---- */

static void listen_unix(struct proxy *proxy) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    daemon_directory_make(proxy->directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/proxy.sock", proxy->directory);
    snprintf(proxy->url, sizeof proxy->url, "unix:%s/proxy.sock", proxy->directory);
    proxy->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert(proxy->listener >= 0 && !bind(proxy->listener, (struct sockaddr *)&address, sizeof address));
}

static void listen_tcp(struct proxy *proxy, const char *scheme) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert(proxy->listener >= 0 && !bind(proxy->listener, (struct sockaddr *)&address, length) &&
              !getsockname(proxy->listener, (struct sockaddr *)&address, &length));
    snprintf(proxy->url, sizeof proxy->url, "%s://127.0.0.1:%u", scheme, ntohs(address.sin_port));
}

void proxy_start(struct proxy *proxy, const char *to_url, unsigned seed) {
    struct url url;
    size_t count;
    *proxy = (struct proxy){.seed = seed};
    cr_assert(!url_parse(to_url, &url, NULL) && !url_resolve(&url, false, &proxy->to, 1, &count, NULL) && count == 1);
    if (url.kind == URL_UNIX)
        listen_unix(proxy);
    else
        listen_tcp(proxy, url.kind == URL_TLS ? "tls" : "tcp");
    cr_assert(!listen(proxy->listener, 64));
    cr_assert(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, proxy->wake));
    cr_assert(!pthread_create(&proxy->thread, NULL, proxy_main, proxy));
}

static void proxy_wake(struct proxy *proxy) {
    cr_assert_eq(write(proxy->wake[0], "w", 1), 1);
}

void proxy_cut(struct proxy *proxy) {
    char done;
    proxy->cut_now = true;
    proxy_wake(proxy);
    cr_assert_eq(read(proxy->wake[0], &done, 1), 1);
}

void proxy_stop(struct proxy *proxy) {
    proxy->stop = true;
    proxy_wake(proxy);
    pthread_join(proxy->thread, NULL);
    for (unsigned i = 0; i < PROXY_PAIRS_MAX; i++)
        if (proxy->pairs[i])
            pair_close(proxy, i, false);
    while (proxy->n_kept)
        close(proxy->kept[--proxy->n_kept]);
    close(proxy->listener);
    close(proxy->wake[0]);
    close(proxy->wake[1]);
    if (*proxy->directory)
        daemon_directory_remove(proxy->directory);
}
