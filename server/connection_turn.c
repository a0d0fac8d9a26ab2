/* What a connection takes of the loop's time. */
#include "server/connection_impl.h"

void connection_begin_share(struct connection *connection) {
    budget_go_on(service_budget(connection->service), SERVICE_SHARE_NS);
}

void connection_end_share(struct connection *connection) {
    struct budget *budget = service_budget(connection->service);
    uint64_t began_ns = budget->until_ns - SERVICE_SHARE_NS;

    budget_look(budget);
    connection->used_ns += budget->now_ns - began_ns;
}
