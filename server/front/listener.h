/* Listening sockets: Unix and TCP, our own or passed by the service manager. Front thread only. */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <uv.h>

#include "proto/net/url.h"

struct listener {
    uv_poll_t poll;
    uv_timer_t pause; /* while nothing can be accepted */
    int fd;
    int reserve; /* a descriptor that is closed when no other one is left, so that a client can be refused */
    unsigned handles;
    char url[300];
    char path[108]; /* of the socket's file, if the daemon made it; else "" */
    dev_t device;   /* of that file, to recognise it */
    ino_t inode;
    uint64_t complained_ns;
    bool tls;
    struct listener_list *list;
    LIST_ENTRY(listener) link;
};

struct listener_list {
    LIST_HEAD(, listener) head;
    unsigned count;
    uv_loop_t *loop;
    mode_t socket_mode;
    /* Whether clients over TCP have to log in, and whether they may do so without TLS. Set after listener_list_init().
     * An address that other hosts can reach needs the first; without TLS it needs both. */
    bool authenticated, plaintext;
    /* `fd` is non-blocking, close-on-exec, and the receiver's. */
    void (*accepted)(void *owner, int fd, const struct sockaddr_storage *peer, bool tls);
    void *owner;
    /* Set before a listener is opened: whether there is a certificate, and whether clients must show one. */
    bool have_certificate, clients_show_certificates;
};

void listener_list_init(struct listener_list *list, uv_loop_t *loop, mode_t socket_mode,
                        void (*accepted)(void *owner, int fd, const struct sockaddr_storage *peer, bool tls),
                        void *owner);
/* Whether listener_open() would be allowed to listen on this URL; opens nothing. */
int listener_check(const struct listener_list *list, const char *text, struct fault *fault);
/* Listens on each address that the URL means. STATUS_DENIED: other hosts can reach the address, and clients would not
 * have to log in. STATUS_INVALID_ARGUMENT: tls:// without a certificate. STATUS_CONNECTION: the system refuses, or
 * another daemon listens there. */
int listener_open(struct listener_list *list, const char *url, struct fault *fault);
/* The same for the default socket; makes its directory. */
int listener_open_default(struct listener_list *list, struct fault *fault);
/* Adds a socket that listens already; on success the list owns it. */
int listener_inherit(struct listener_list *list, int fd, struct fault *fault);
/* A TCP socket that listens on one address: 0 or an errno. */
int listener_bind_tcp(const struct url_address *address, int *fd);
/* "tcp://127.0.0.1:8478" */
void listener_name_tcp(const struct sockaddr_storage *address, char *text, size_t size);
/* Stops listening and removes the socket files that the daemon made. The loop then closes the handles. */
void listener_list_finish(struct listener_list *list);
