#include "server/worker/link.h"

#include <fcntl.h>

#include "server/worker/connection.h"
#include "server/worker/link_in.h"
#include "server/worker/link_out.h"

/* In a time that tells nothing: who knows a ticket may write into another client's tensor. */
bool link_ticket_equal(const uint8_t *a, const uint8_t *b) {
    unsigned difference = 0;
    for (unsigned i = 0; i < LINK_TICKET_BYTES; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

int link_watch(struct service *service, uv_poll_t *poll, int fd, void *owner) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    int error = uv_poll_init(service->loop, poll, fd);
    poll->data = owner;
    return error;
}

void link_table_init(struct link_table *table) {
    *table = (struct link_table){0};
    TAILQ_INIT(&table->wanted);
    TAILQ_INIT(&table->turns);
    LIST_INIT(&table->destinations);
}

void link_ends_init(struct link_ends *ends) {
    *ends = (struct link_ends){0};
    LIST_INIT(&ends->routes);
    TAILQ_INIT(&ends->asking);
}

void link_table_finish(struct service *service) {
    link_in_finish(service);
    link_out_finish(service);
}

void link_tick(struct service *service, uint64_t now_ms) {
    link_in_tick(service, now_ms);
    link_out_tick(service, now_ms);
}

bool link_drop_connection(struct connection *connection) {
    return link_in_drop_connection(connection) && link_out_drop_connection(connection);
}

bool link_busy(const struct connection *connection) {
    return link_in_busy(connection) || link_out_busy(connection);
}
