#include "server/outcome.h"

#include <stdlib.h>
#include <string.h>

#include "server/reply.h"

static void outcome_drop_first(struct outcome_list *list) {
    struct outcome *outcome = list->first;

    list->first = outcome->next;
    if (!list->first)
        list->last = NULL;
    list->count--;
    free(outcome);
}

void outcome_remember(struct outcome_list *list, const struct reply *reply) {
    struct outcome *outcome = malloc(sizeof *outcome + reply->head_bytes);

    if (!outcome)
        return;
    *outcome = (struct outcome){.sequence = reply->sequence, .type = reply->type, .bytes = reply->head_bytes};
    memcpy(outcome->frame, reply->head, reply->head_bytes);
    *(list->last ? list->last : &list->first) = outcome;
    list->last = &outcome->next;
    if (++list->count > OUTCOMES_MAX)
        outcome_drop_first(list);
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
