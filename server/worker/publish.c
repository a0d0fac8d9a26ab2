#include "server/worker/publish.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/worker/connection.h"
#include "server/worker/reply.h"
#include "server/worker/state.h"

enum { PUBLISH_STEPS = 4 }; /* of the budget, for a value */

struct publish_item {
    struct hold hold;
    uint64_t id;
    struct publish *publish;
};

struct publish {
    struct pending_reply *pending;
    struct state_wait saved; /* waits until the values are on the disk, too */
    unsigned n;              /* values */
    unsigned left;           /* values that are not computed yet, plus one until all have been asked for */
    unsigned asked;          /* values that have been asked for */
    bool only_new;
    bool failed;
    struct failure failure; /* the first */
    const char **names;     /* their texts, and that of `beneath`, follow in the same block */
    const char *beneath;
    struct held **values;               /* set while the names are being bound */
    struct names_batch *batch;          /* likewise */
    struct worker_principal *principal; /* while the names are being bound: in its `publishes` */
    TAILQ_ENTRY(publish) turn;
    struct publish_item items[];
};

static size_t publish_text_bytes(const Tensord__Publish *message) {
    size_t bytes = strlen(message->beneath) + 1;
    for (size_t i = 0; i < message->n_names; i++)
        bytes += sizeof(char *) + strlen(message->names[i]) + 1;
    return bytes;
}

uint64_t publish_cost(const Tensord__Publish *message) {
    return sizeof(struct publish) + message->n_ids * sizeof(struct publish_item) + publish_text_bytes(message);
}

static void publish_copy_names(struct publish *publish, const Tensord__Publish *message) {
    char *at = (char *)(publish->names + publish->n);
    for (unsigned i = 0; i < publish->n; i++) {
        publish->names[i] = at;
        at = stpcpy(at, message->names[i]) + 1;
    }
    publish->beneath = strcpy(at, message->beneath);
}

static void publish_saved(struct state_wait *wait, const struct fault *fault) {
    struct publish *publish = (struct publish *)((char *)wait - offsetof(struct publish, saved));
    if (fault)
        cause_set(&publish->failure, fault);
    pending_reply_done(publish->pending, fault ? &publish->failure : NULL);
}

static void publish_let_go(struct publish *publish) {
    for (unsigned i = 0; i < publish->n; i++)
        if (publish->items[i].hold.session)
            hold_cancel(&publish->items[i].hold);
}

static void publish_join(struct publish *publish, struct worker_principal *principal) {
    if (TAILQ_EMPTY(&principal->publishes))
        TAILQ_INSERT_TAIL(&principal->service->publishes, principal, publish_turn);
    TAILQ_INSERT_TAIL(&principal->publishes, publish, turn);
    publish->principal = principal;
}

static void publish_leave(struct publish *publish) {
    struct worker_principal *principal = publish->principal;
    if (!principal)
        return;
    TAILQ_REMOVE(&principal->publishes, publish, turn);
    if (TAILQ_EMPTY(&principal->publishes))
        TAILQ_REMOVE(&principal->service->publishes, principal, publish_turn);
    publish->principal = NULL;
}

static void publish_drop_batch(struct publish *publish) {
    publish_leave(publish);
    names_batch_destroy(publish->batch);
    publish->batch = NULL;
    free(publish->values);
    publish->values = NULL;
}

/* The values are released here, and not when the reply has left, because a client may read late. */
static void publish_end(struct publish *publish, const struct fault *fault) {
    if (fault && fault->code) {
        publish->failed = true;
        cause_set(&publish->failure, fault);
    }
    publish_drop_batch(publish);
    publish_let_go(publish);
    struct connection *connection = publish->pending->connection;
    publish->saved.done = publish_saved;
    if (!publish->failed && names_wait(&connection->service->names, connection->principal->key, &publish->saved))
        pending_reply_changed(publish->pending, connection->principal->key);
    else
        pending_reply_done(publish->pending, publish->failed ? &publish->failure : NULL);
}

/* False: the budget has ended before all are named. */
static bool publish_name_some(struct publish *publish) {
    struct connection *connection = publish->pending->connection;
    struct fault fault = {0};
    int error = names_batch_some(publish->batch, connection->service->budget, &fault);
    if (error == STATUS_AGAIN)
        return false;
    if (error == STATUS_OK)
        names_publish_batch(&connection->service->names, connection->principal->key, &connection->principal->limits,
                            publish->batch, publish->only_new, &fault);
    publish_end(publish, &fault);
    return true;
}

/* One Publish of a principal after the other: each one sees the names as the previous one has left them. Principals have
 * their turns one after the other. */
void publish_turn(struct service *service) {
    struct worker_principal *principal;
    bool more = true;
    while (more && (principal = TAILQ_FIRST(&service->publishes))) {
        TAILQ_REMOVE(&service->publishes, principal, publish_turn);
        TAILQ_INSERT_TAIL(&service->publishes, principal, publish_turn);
        more = publish_name_some(TAILQ_FIRST(&principal->publishes));
    }
}

/* All values are computed: joins the queue of the principal's Publishes that bind names. */
static void publish_name(struct publish *publish) {
    struct service *service = publish->pending->connection->service;
    bool first = TAILQ_EMPTY(&service->publishes);
    struct fault fault;
    publish->values = malloc(publish->n * sizeof(struct held *));
    for (unsigned i = 0; publish->values && i < publish->n; i++)
        publish->values[i] = publish->items[i].hold.held;
    if (publish->values)
        publish->batch = names_batch_create(publish->values, publish->names, publish->n, publish->beneath);
    if (!publish->batch) {
        fault_set(&fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", publish->n);
        publish_end(publish, &fault);
        return;
    }
    publish_join(publish, publish->pending->connection->principal);
    if (first)
        publish_name_some(publish);
}

void publish_step(struct publish *publish) {
    if (--publish->left)
        return;
    if (publish->failed)
        publish_end(publish, NULL);
    else
        publish_name(publish);
}

static void publish_held(struct hold *hold, const struct failure *failure) {
    struct publish *publish = ((struct publish_item *)hold)->publish;
    if (failure && !publish->failed) {
        publish->failed = true;
        publish->failure = *failure;
    }
    publish_step(publish);
}

struct publish *publish_create(struct pending_reply *pending, const Tensord__Publish *message) {
    struct publish *publish = calloc(1, sizeof *publish + message->n_ids * sizeof *publish->items);
    if (publish)
        publish->names = malloc(publish_text_bytes(message));
    if (!publish || !publish->names) {
        free(publish);
        return NULL;
    }
    publish->pending = pending;
    publish->n = (unsigned)message->n_ids;
    publish->left = publish->n + 1;
    publish->only_new = message->only_new;
    publish_copy_names(publish, message);
    for (unsigned i = 0; i < publish->n; i++)
        publish->items[i].id = message->ids[i];
    return publish;
}

int publish_hold_some(struct publish *publish) {
    struct connection *connection = publish->pending->connection;
    struct budget *budget = connection->service->budget;
    while (publish->asked < publish->n) {
        struct publish_item *item = &publish->items[publish->asked];
        if (publish->failed) { /* the others do not change that */
            publish->left -= publish->n - publish->asked;
            publish->asked = publish->n;
            break;
        }
        item->publish = publish;
        item->hold.done = publish_held;
        if (session_hold(connection->session, item->id, &item->hold) == STATUS_AGAIN)
            return STATUS_AGAIN;
        publish->asked++;
        if (budget_spent(budget, PUBLISH_STEPS) && publish->asked < publish->n)
            return STATUS_AGAIN;
    }
    return STATUS_OK;
}

void publish_destroy(struct publish *publish) {
    if (!publish)
        return;
    publish_drop_batch(publish);
    publish_let_go(publish);
    state_wait_cancel(&publish->saved);
    free(publish->names);
    free(publish);
}
