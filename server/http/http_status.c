/* The answers that are not for Prometheus: health, status and history. */
#include "proto/files/status_json.h"
#include "server/front/status.h"
#include "server/http/http_impl.h"

enum { HTTP_OK = MHD_HTTP_OK, HTTP_UNAVAILABLE = MHD_HTTP_SERVICE_UNAVAILABLE };

static int http_use_status(void *owner, const Tensord__Status *status) {
    status_json_write(owner, status, STATUS_JSON_ALL, true);
    return STATUS_OK;
}

unsigned http_write_status(struct http *http, FILE *out) {
    static const struct principal admin = {.role = ROLE_ADMIN};
    return status_use(http->front, http->admin ? &admin : NULL, http_use_status, out) == STATUS_OK ? HTTP_OK : 0;
}

unsigned http_write_history(struct http *http, FILE *out) {
    http_history_write(&http->history, &http->front->supervisor, out);
    return HTTP_OK;
}

/* The front is what answers, so it lives. */
unsigned http_write_healthz(struct http *http, FILE *out) {
    (void)http;
    fputs("ok\n", out);
    return HTTP_OK;
}

unsigned http_write_readyz(struct http *http, FILE *out) {
    const struct supervisor *supervisor = &http->front->supervisor;
    bool ready = !http->front->draining;
    if (!ready)
        fputs("the daemon is shutting down\n", out);
    for (unsigned i = 0; i < supervisor->n_slots; i++) {
        const struct worker_slot *slot = &supervisor->slots[i];
        if (slot->state == WORKER_READY)
            continue;
        ready = false;
        /* Causes may name what clients do, and this is read without a token. */
        bool told = slot->last_fault[0] && !http->front->login.users;
        fprintf(out, "%s is %s%s%s\n", slot->device.name, worker_state_name(slot->state), told ? ": " : "",
                told ? slot->last_fault : "");
    }
    if (ready)
        fputs("ok\n", out);
    return ready ? HTTP_OK : HTTP_UNAVAILABLE;
}
