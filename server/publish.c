#include "server/publish.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/cause.h"
#include "server/connection.h"
#include "server/state.h"

enum { PUBLISH_STEPS = 4 }; /* of the budget, for a value */

struct publish_item {
    struct hold hold;
    uint64_t id;
    struct publish *publish;
};

struct publish {
    struct answer *answer;
    struct state_wait saved; /* for the values to be on the disk, too */
    unsigned n, left;        /* values; those not yet there, and one for the start */
    unsigned held;           /* those that have been asked for */
    bool only_new;
    bool failed;
    struct failure failure; /* the first */
    const char **names;     /* their texts lie behind them */
    struct publish_item items[];
};

static size_t publish_text_bytes(const Tensord__Publish *message) {
    size_t bytes = 0;

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
}

static void publish_saved(struct state_wait *wait, const struct fault *fault) {
    struct publish *publish = (struct publish *)((char *)wait - offsetof(struct publish, saved));

    if (fault)
        cause_set(&publish->failure, fault);
    answer_published(publish->answer, fault ? &publish->failure : NULL);
}

static void publish_finish(struct publish *publish) {
    struct connection *connection = publish->answer->connection;
    struct held **values = malloc(publish->n * sizeof *values);
    struct fault fault = {0};

    for (unsigned i = 0; values && i < publish->n; i++)
        values[i] = publish->items[i].hold.held;
    if (!values)
        fault_set(&fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", publish->n);
    else
        names_publish(&connection->service->names, connection->account->key, &connection->account->limits, values,
                      publish->names, publish->n, publish->only_new, &fault);
    free(values);
    publish->failed = fault.code != STATUS_OK;
    if (publish->failed)
        cause_set(&publish->failure, &fault);
}

static void publish_let_go(struct publish *publish) {
    for (unsigned i = 0; i < publish->n; i++)
        if (publish->items[i].hold.session)
            hold_cancel(&publish->items[i].hold);
}

/* The values are let go of here and not when the answer has left, which is the client's business. */
static void publish_step(struct publish *publish) {
    if (--publish->left)
        return;
    if (!publish->failed)
        publish_finish(publish);
    publish_let_go(publish);
    struct connection *connection = publish->answer->connection;
    publish->saved.done = publish_saved;
    if (!publish->failed && names_wait(&connection->service->names, connection->account->key, &publish->saved))
        answer_changed(publish->answer, connection->account->key);
    else
        answer_published(publish->answer, publish->failed ? &publish->failure : NULL);
}

static void publish_held(struct hold *hold, const struct failure *failure) {
    struct publish *publish = ((struct publish_item *)hold)->publish;

    if (failure && !publish->failed) {
        publish->failed = true;
        publish->failure = *failure;
    }
    publish_step(publish);
}

struct publish *publish_create(struct answer *answer, const Tensord__Publish *message) {
    struct publish *publish = calloc(1, sizeof *publish + message->n_ids * sizeof *publish->items);

    if (publish)
        publish->names = malloc(publish_text_bytes(message) + 1);
    if (!publish || !publish->names) {
        free(publish);
        return NULL;
    }
    publish->answer = answer;
    publish->n = (unsigned)message->n_ids;
    publish->left = publish->n + 1;
    publish->only_new = message->only_new;
    publish_copy_names(publish, message);
    for (unsigned i = 0; i < publish->n; i++)
        publish->items[i].id = message->ids[i];
    return publish;
}

int publish_hold_some(struct publish *publish) {
    struct connection *connection = publish->answer->connection;
    struct budget *budget = service_budget(connection->service);

    while (publish->held < publish->n) {
        struct publish_item *item = &publish->items[publish->held];

        if (publish->failed) { /* it stays so, whatever the others are */
            publish->left -= publish->n - publish->held;
            publish->held = publish->n;
            break;
        }
        item->publish = publish;
        item->hold.done = publish_held;
        if (session_hold(connection->session, item->id, &item->hold) == STATUS_AGAIN)
            return STATUS_AGAIN;
        publish->held++;
        if (budget_spent(budget, PUBLISH_STEPS) && publish->held < publish->n)
            return STATUS_AGAIN;
    }
    return STATUS_OK;
}

void publish_begin(struct publish *publish) {
    publish_step(publish);
}

void publish_destroy(struct publish *publish) {
    if (!publish)
        return;
    publish_let_go(publish);
    state_wait_cancel(&publish->saved);
    free(publish->names);
    free(publish);
}
