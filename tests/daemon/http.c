#include "tests/daemon/http.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/daemon/deadline.h"

enum { HTTP_MS = 10000, HTTP_REPLY_MAX = 16 << 20 };

unsigned http_port(const struct daemon *daemon) {
    unsigned port = 0;
    char *log = daemon_log(daemon), *place = strstr(log, "url=http://127.0.0.1:");
    cr_assert(place && sscanf(place, "url=http://127.0.0.1:%u", &port) == 1, "no HTTP in the log:\n%s", log);
    free(log);
    return port;
}

int http_dial(unsigned port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof address), "port %u: %s", port,
              strerror(errno));
    return fd;
}

static size_t http_receive(int fd, char *text) {
    int64_t deadline = deadline_in(HTTP_MS);
    size_t bytes = 0;
    for (;;) {
        cr_assert(deadline_poll(fd, POLLIN, deadline), "%zu bytes came, and not the end:\n%.*s", bytes, (int)bytes,
                  text);
        ssize_t got = recv(fd, text + bytes, HTTP_REPLY_MAX - bytes, 0);
        if (got <= 0)
            return bytes;
        bytes += (size_t)got;
        cr_assert(bytes < HTTP_REPLY_MAX);
    }
}

void http_exchange(unsigned port, const char *request, struct http_reply *reply) {
    int fd = http_dial(port);
    *reply = (struct http_reply){.text = calloc(1, HTTP_REPLY_MAX + 1)};
    cr_assert_not_null(reply->text);
    for (size_t sent = 0, n; sent < strlen(request); sent += n) {
        ssize_t result = send(fd, request + sent, strlen(request) - sent, MSG_NOSIGNAL);
        if (result < 0)
            break; /* refused before it was all told */
        n = (size_t)result;
    }
    size_t bytes = http_receive(fd, reply->text);
    close(fd);
    char *end = strstr(reply->text, "\r\n\r\n");
    sscanf(reply->text, "HTTP/1.1 %d", &reply->code);
    reply->body = end ? end + 4 : reply->text + bytes;
    reply->bytes = bytes - (size_t)(reply->body - reply->text);
}

void http_get(unsigned port, const char *path, const char *headers, struct http_reply *reply) {
    char request[1024];
    cr_assert(snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n%sConnection: close\r\n\r\n", path,
                       headers ? headers : "Host: 127.0.0.1\r\n") < (int)sizeof request);
    http_exchange(port, request, reply);
}

void http_reply_finish(struct http_reply *reply) {
    free(reply->text);
    *reply = (struct http_reply){0};
}

/* Negative: there is none. */
static double http_metric_find(unsigned port, const char *sample) {
    struct http_reply reply;
    char line[512];
    double value = -1;
    http_get(port, "/metrics", NULL, &reply);
    cr_assert_eq(reply.code, 200, "%s", reply.text);
    snprintf(line, sizeof line, "\n%s ", sample);
    char *place = strstr(reply.body, line);
    if (place)
        value = strtod(place + strlen(line), NULL);
    http_reply_finish(&reply);
    return value;
}

double http_metric(unsigned port, const char *sample) {
    double value = http_metric_find(port, sample);
    cr_assert(value >= 0, "there is no %s", sample);
    return value;
}

bool http_metric_reaches(unsigned port, const char *sample, double value, int milliseconds) {
    int64_t deadline = deadline_in(milliseconds);
    do {
        if (http_metric_find(port, sample) >= value)
            return true;
    } while (deadline_pause(deadline));
    return false;
}
