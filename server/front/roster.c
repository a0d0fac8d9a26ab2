#include "server/front/roster.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* ---- the lobby ---- */

void lobby_init(struct lobby *lobby) {
    TAILQ_INIT(&lobby->head);
}

void lobby_enter(struct lobby *lobby, struct lobby_entry *entry, enum lobby_kind kind, const struct source *source) {
    lobby_leave(lobby, entry);
    entry->kind = kind;
    entry->source = *source;
    entry->since_ns = uv_hrtime();
    TAILQ_INSERT_TAIL(&lobby->head, entry, link);
}

void lobby_leave(struct lobby *lobby, struct lobby_entry *entry) {
    if (entry->kind == LOBBY_NOT_HERE)
        return;
    TAILQ_REMOVE(&lobby->head, entry, link);
    entry->kind = LOBBY_NOT_HERE;
}

unsigned lobby_count(const struct lobby *lobby, const struct source *source) {
    const struct lobby_entry *entry;
    unsigned count = 0;
    TAILQ_FOREACH(entry, &lobby->head, link)
        count += source_same(&entry->source, source);
    return count;
}

struct lobby_entry *lobby_oldest(const struct lobby *lobby, const struct source *source, enum lobby_kind kind) {
    struct lobby_entry *entry;
    TAILQ_FOREACH(entry, &lobby->head, link)
        if ((!source || source_same(&entry->source, source)) && (kind == LOBBY_NOT_HERE || entry->kind == kind))
            return entry;
    return NULL;
}

/* ---- the roster ---- */

void roster_init(struct roster *roster) {
    LIST_INIT(&roster->entries);
    lobby_init(&roster->lobby);
    for (int i = 0; i < ROSTER_BUCKETS; i++)
        LIST_INIT(&roster->guests[i]);
}

void roster_finish(struct roster *roster) {
    for (int i = 0; i < ROSTER_BUCKETS; i++)
        while (!LIST_EMPTY(&roster->guests[i]))
            roster_leave(roster_take_back(roster, LIST_FIRST(&roster->guests[i])->session));
}

/* ---- principals ---- */

struct roster_entry *roster_find(const struct roster *roster, const char *name) {
    struct roster_entry *entry;
    LIST_FOREACH(entry, &roster->entries, link)
        if (!strncmp(entry->name, name, sizeof entry->name - 1))
            return entry;
    return NULL;
}

static struct roster_entry *roster_add(struct roster *roster, const char *name) {
    struct roster_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    strncpy(entry->name, name, sizeof entry->name - 1);
    LIST_INSERT_HEAD(&roster->entries, entry, link);
    return entry;
}

int roster_join(struct roster *roster, const char *name, const struct limits *limits, struct roster_entry **result,
                struct fault *fault) {
    struct roster_entry *entry = roster_find(roster, name);
    uint64_t limit = limits ? limits_of_places(limits->principal_connections, roster->places) : 0;
    if (entry && limit && entry->connections - entry->evicted >= limit)
        return fault_set(fault, STATUS_LIMIT, "%s has %u connection%s, and may have no more (principal-connections)",
                         entry->name, entry->connections, entry->connections == 1 ? "" : "s");
    if (!entry && !(entry = roster_add(roster, name)))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a connection");
    entry->connections++;
    *result = entry;
    return STATUS_OK;
}

int roster_move(struct roster *roster, struct roster_entry **entry, const char *name, const struct limits *limits,
                struct fault *fault) {
    struct roster_entry *other;
    if (*entry && *entry == roster_find(roster, name))
        return STATUS_OK;
    int error = roster_join(roster, name, limits, &other, fault);
    if (error)
        return error;
    roster_leave(*entry);
    *entry = other;
    return STATUS_OK;
}

void roster_leave(struct roster_entry *entry) {
    if (!entry || --entry->connections)
        return;
    LIST_REMOVE(entry, link);
    free(entry);
}

/* ---- guests ---- */

static struct roster_bucket *roster_bucket(struct roster *roster, uint64_t session) {
    return &roster->guests[session % ROSTER_BUCKETS];
}

static struct roster_guest *roster_guest(struct roster *roster, uint64_t session) {
    struct roster_guest *guest;
    LIST_FOREACH(guest, roster_bucket(roster, session), link)
        if (guest->session == session)
            return guest;
    return NULL;
}

static int roster_check_sessions(const struct roster *roster, const struct roster_entry *entry,
                                 const struct limits *limits, struct fault *fault) {
    uint64_t limit = limits ? limits_of_places(limits->principal_sessions, roster->session_places) : 0;
    if (!limit || entry->sessions - entry->evicted < limit)
        return STATUS_OK;
    return fault_set(fault, STATUS_LIMIT, "%s has %u session%s, and may have no more (principal-sessions)", entry->name,
                     entry->sessions, entry->sessions == 1 ? "" : "s");
}

int roster_host(struct roster *roster, struct roster_entry **entry, const struct limits *limits, uint64_t session,
                const struct worker_slot *slot, struct fault *fault) {
    int error = roster_check_sessions(roster, *entry, limits, fault);
    if (error)
        return error;
    struct roster_guest *guest = malloc(sizeof *guest);
    if (!guest)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a connection");
    *guest = (struct roster_guest){.session = session, .entry = *entry, .slot = slot};
    LIST_INSERT_HEAD(roster_bucket(roster, session), guest, link);
    (*entry)->sessions++;
    *entry = NULL;
    return STATUS_OK;
}

int roster_identify(struct roster *roster, uint64_t session, const char *name, const struct limits *limits,
                    struct fault *fault) {
    struct roster_guest *guest = roster_guest(roster, session);
    struct roster_entry *entry;
    if (!guest)
        return fault_set(fault, STATUS_CONNECTION, "the connection has ended");
    if (guest->entry == roster_find(roster, name))
        return STATUS_OK;
    int error = roster_join(roster, name, limits, &entry, fault);
    if (error)
        return error;
    error = roster_check_sessions(roster, entry, limits, fault);
    if (error) {
        roster_leave(entry);
        return error;
    }
    guest->entry->sessions--;
    guest->entry->evicted -= guest->evicted;
    roster_leave(guest->entry);
    guest->entry = entry;
    entry->sessions++;
    entry->evicted += guest->evicted;
    return STATUS_OK;
}

void roster_await(struct roster *roster, uint64_t session, const struct source *source, bool kept) {
    struct roster_guest *guest = roster_guest(roster, session);
    if (!guest)
        return;
    guest->kept = kept;
    lobby_enter(&roster->lobby, &guest->waiting, LOBBY_GUEST, source);
}

static void roster_count_evicted(struct roster *roster, struct roster_guest *guest, bool evicted) {
    unsigned change = (unsigned)evicted - guest->evicted; /* may be -1 */
    guest->evicted = evicted;
    guest->entry->evicted += change;
    roster->n_evicted += change;
    roster->n_ordinary_evicted += guest->kept ? 0 : change;
}

void roster_greet(struct roster *roster, const struct worker_slot *slot, uint64_t session) {
    struct roster_guest *guest = roster_guest(roster, session);
    if (!guest || guest->slot != slot)
        return;
    lobby_leave(&roster->lobby, &guest->waiting);
    roster_count_evicted(roster, guest, false);
}

const struct worker_slot *roster_evict(struct roster *roster, struct lobby_entry *waiting, uint64_t *session) {
    struct roster_guest *guest = (struct roster_guest *)((char *)waiting - offsetof(struct roster_guest, waiting));
    lobby_leave(&roster->lobby, waiting);
    roster_count_evicted(roster, guest, true);
    *session = guest->session;
    return guest->slot;
}

static struct roster_entry *roster_remove(struct roster *roster, struct roster_guest *guest) {
    struct roster_entry *entry = guest->entry;
    lobby_leave(&roster->lobby, &guest->waiting);
    roster_count_evicted(roster, guest, false);
    entry->sessions--;
    LIST_REMOVE(guest, link);
    free(guest);
    return entry;
}

struct roster_entry *roster_take_back(struct roster *roster, uint64_t session) {
    struct roster_guest *guest = roster_guest(roster, session);
    return guest ? roster_remove(roster, guest) : NULL;
}

static void roster_all_gone(struct roster *roster, const struct worker_slot *slot) {
    struct roster_guest *next;
    for (int i = 0; i < ROSTER_BUCKETS; i++)
        for (struct roster_guest *guest = LIST_FIRST(&roster->guests[i]); guest; guest = next) {
            next = LIST_NEXT(guest, link);
            if (guest->slot == slot)
                roster_leave(roster_remove(roster, guest));
        }
}

void roster_gone(struct roster *roster, const struct worker_slot *slot, uint64_t session) {
    struct roster_guest *guest = session ? roster_guest(roster, session) : NULL;
    if (!session)
        roster_all_gone(roster, slot);
    else if (guest && guest->slot == slot)
        roster_leave(roster_remove(roster, guest));
}
