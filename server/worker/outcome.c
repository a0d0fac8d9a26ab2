#include "server/worker/outcome.h"

#include <stdlib.h>
#include <string.h>

#include "server/worker/reply.h"

static void outcome_drop_first(struct outcome_list *list) {
    struct outcome *outcome = list->first;

    list->first = outcome->next;
    if (!list->first)
        list->last = NULL;
    list->count--;
    free(outcome);
}

static void outcome_forget(struct outcome_list *list, uint64_t sequence) {
    struct outcome **at = &list->first, **last = NULL, *outcome;

    while (*at && (*at)->sequence != sequence) {
        last = &(*at)->next;
        at = last;
    }
    outcome = *at;
    if (!outcome)
        return;
    *at = outcome->next;
    if (!outcome->next)
        list->last = last;
    list->count--;
    free(outcome);
}

static void outcome_add(struct outcome_list *list, const struct outcome *what, const void *data) {
    struct outcome *outcome = malloc(sizeof *outcome + what->bytes);

    outcome_forget(list, what->sequence);
    if (!outcome)
        return;
    *outcome = *what;
    memcpy(outcome->frame, data, what->bytes);
    *(list->last ? list->last : &list->first) = outcome;
    list->last = &outcome->next;
    if (++list->count > OUTCOMES_MAX)
        outcome_drop_first(list);
}

void outcome_remember(struct outcome_list *list, const struct reply *reply) {
    outcome_add(list, &(struct outcome){.sequence = reply->sequence, .type = reply->type, .bytes = reply->head_bytes},
                reply->head);
}

void outcome_changed(struct outcome_list *list, uint64_t sequence, const char *principal) {
    outcome_add(list, &(struct outcome){.sequence = sequence, .changed = true, .bytes = strlen(principal) + 1},
                principal);
}

const struct outcome *outcome_find(const struct outcome_list *list, uint64_t sequence) {
    const struct outcome *outcome = list->first;

    while (outcome && outcome->sequence != sequence)
        outcome = outcome->next;
    return outcome;
}

void outcome_list_finish(struct outcome_list *list) {
    while (list->first)
        outcome_drop_first(list);
}
