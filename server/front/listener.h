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
    int fd, reserve;  /* reserve: a descriptor to give up when there is no other */
    unsigned handles;
    char url[300];
    char path[108]; /* of our own socket file; "" for none */
    dev_t device;   /* of that file, to know it again */
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
    /* Whether TCP clients have to show who they are, and may do so in the clear. Set after listener_list_init(); without
     * both, no address is listened on that other hosts can reach. */
    bool authenticated, plaintext;
    /* `fd` is non-blocking, close-on-exec, and the receiver's. */
    void (*accepted)(void *owner, int fd, const struct sockaddr_storage *peer, bool tls);
    void *owner;
    /* What the owner sets before it opens any: whether it has a certificate to show, and demands one of clients. */
    bool have_certificate, clients_show_certificates;
};

void listener_list_init(struct listener_list *list, uv_loop_t *loop, mode_t socket_mode,
                        void (*accepted)(void *owner, int fd, const struct sockaddr_storage *peer, bool tls),
                        void *owner);
/* Whether listener_open() would be allowed to; opens nothing, and looks at the list's first fields alone. */
int listener_check(const struct listener_list *list, const char *text, struct fault *fault);
/* Listens on every address that the URL means. STATUS_DENIED for an address that other hosts can reach
 * where nothing says who they are, STATUS_INVALID_ARGUMENT for tls:// without a certificate, STATUS_CONNECTION where the system refuses or another daemon is there. */
int listener_open(struct listener_list *list, const char *url, struct fault *fault);
/* The same for the default socket; makes its directory. */
int listener_open_default(struct listener_list *list, struct fault *fault);
/* A socket that is bound and listens already; it is the list's afterwards, on success. */
int listener_inherit(struct listener_list *list, int fd, struct fault *fault);
/* A TCP socket that listens on one address: 0 or an errno. */
int listener_bind_tcp(const struct url_address *address, int *fd);
/* "tcp://127.0.0.1:8478" */
void listener_name_tcp(const struct sockaddr_storage *address, char *text, size_t size);
/* Stops listening and removes our socket files. The loop then closes the handles. */
void listener_list_finish(struct listener_list *list);
