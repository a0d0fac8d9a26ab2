#include "server/process/farewell.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/process/packet.h"

enum { FAREWELL_MS = 1000, FAREWELL_BYTES_MAX = 1 << 20, FAREWELL_MAX = 64 };

void farewell_list_init(struct farewell_list *list, uv_loop_t *loop) {
    *list = (struct farewell_list){.loop = loop};
    LIST_INIT(&list->head);
}

static void farewell_closed(uv_handle_t *handle) {
    struct farewell *farewell = handle->data;
    if (!--farewell->handles)
        free(farewell);
}

static void farewell_end(struct farewell *farewell) {
    LIST_REMOVE(farewell, link);
    farewell->list->count--;
    uv_close((uv_handle_t *)&farewell->poll, farewell_closed);
    uv_close((uv_handle_t *)&farewell->timer, farewell_closed);
    close(farewell->fd);
}

static void farewell_timed_out(uv_timer_t *timer) {
    farewell_end(timer->data);
}

static void farewell_drop(uv_poll_t *poll, int status, int events) {
    struct farewell *farewell = poll->data;
    static char scrap[16 << 10];
    (void)events;
    ssize_t got = status < 0 ? 0 : recv(farewell->fd, scrap, sizeof scrap, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    farewell->dropped += got > 0 ? (size_t)got : 0;
    if (got <= 0 || farewell->dropped > FAREWELL_BYTES_MAX)
        farewell_end(farewell);
}

void farewell_send(int fd, const struct fault *fault) {
    uint8_t bytes[PACKET_ERROR_MAX];
    size_t size = packet_error(bytes, fault);
    /* The frame is small, and nothing was sent before it on a refused connection: if it does not fit, the peer does not
     * read. */
    send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static struct farewell *farewell_create(struct farewell_list *list, int fd) {
    struct farewell *farewell = list->count < FAREWELL_MAX ? calloc(1, sizeof *farewell) : NULL;
    if (!farewell)
        return NULL;
    if (uv_poll_init(list->loop, &farewell->poll, fd)) {
        free(farewell);
        return NULL;
    }
    uv_timer_init(list->loop, &farewell->timer);
    farewell->poll.data = farewell->timer.data = farewell;
    farewell->handles = 2;
    farewell->fd = fd;
    farewell->list = list;
    LIST_INSERT_HEAD(&list->head, farewell, link);
    list->count++;
    return farewell;
}

void farewell_say(struct farewell_list *list, int fd, const struct fault *fault) {
    if (fault)
        farewell_send(fd, fault);
    shutdown(fd, SHUT_WR);
    struct farewell *farewell = farewell_create(list, fd);
    if (!farewell) {
        close(fd); /* too many at once, or no memory: this one is closed at once */
        return;
    }
    uv_timer_start(&farewell->timer, farewell_timed_out, FAREWELL_MS, 0);
    uv_poll_start(&farewell->poll, UV_READABLE, farewell_drop);
}

void farewell_say_over(struct farewell_list *list, struct transport *transport, const struct fault *fault) {
    if (fault) {
        uint8_t bytes[PACKET_ERROR_MAX];
        struct iovec part = {bytes, packet_error(bytes, fault)};
        (void)transport_write(transport, &part, 1); /* as in farewell_send() */
    }
    transport_end(transport);
    int fd = transport->fd;
    transport->fd = -1;
    transport_finish(transport);
    farewell_say(list, fd, NULL); /* incoming bytes are dropped, so they are not decrypted */
}

void farewell_list_finish(struct farewell_list *list) {
    while (!LIST_EMPTY(&list->head))
        farewell_end(LIST_FIRST(&list->head));
}
