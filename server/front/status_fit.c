#include "server/front/status_fit.h"

#include <stdlib.h>
#include <string.h>

void status_keep(Tensord__Status *status, const char *principal) {
    size_t sessions = 0, programs = 0;
    for (size_t i = 0; i < status->n_sessions; i++)
        if (!strcmp(status->sessions[i]->principal, principal))
            status->sessions[sessions++] = status->sessions[i];
    for (size_t i = 0; i < status->n_programs; i++)
        if (!strcmp(status->programs[i]->principal, principal))
            status->programs[programs++] = status->programs[i];
    status->n_sessions = sessions;
    status->n_programs = programs;
}

static int by_live(const void *a, const void *b) {
    const Tensord__SessionStatus *x = *(Tensord__SessionStatus *const *)a, *y = *(Tensord__SessionStatus *const *)b;
    if (x->live != y->live)
        return x->live < y->live ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void drop_texts(Tensord__Status *status) {
    for (size_t i = 0; i < status->n_sessions; i++)
        status->sessions[i]->label = status->sessions[i]->last_failure = (char *)(uintptr_t) "";
    for (size_t i = 0; i < status->n_programs; i++)
        status->programs[i]->label = (char *)(uintptr_t) "";
}

/* How many of the sessions, from the first one on, fit into so many bytes. */
static size_t sessions_that_fit(const Tensord__Status *status, size_t bytes) {
    size_t n = 0;
    for (size_t used = 0; n < status->n_sessions; n++) {
        used += tensord__session_status__get_packed_size(status->sessions[n]) + 8; /* its number and length take less */
        if (used > bytes)
            break;
    }
    return n;
}

void status_fit(Tensord__Status *status, size_t most) {
    if (tensord__status__get_packed_size(status) <= most)
        return;
    drop_texts(status);
    if (tensord__status__get_packed_size(status) <= most)
        return;
    size_t all = status->n_sessions;
    qsort(status->sessions, all, sizeof *status->sessions, by_live);
    status->n_sessions = 0;
    status->sessions_left_out = (uint32_t)all; /* its size counts */
    size_t rest = tensord__status__get_packed_size(status);
    if (rest > most)
        status->n_programs = 0;
    rest = tensord__status__get_packed_size(status);
    status->n_sessions = all;
    status->n_sessions = sessions_that_fit(status, rest < most ? most - rest : 0);
    status->sessions_left_out = (uint32_t)(all - status->n_sessions);
}
