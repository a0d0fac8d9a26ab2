/* Named tensors of one worker: the names that a principal has on this device, and their values. Names belong to their
 * principal, and nobody else sees them. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/session/held.h"
#include "server/users/principal.h"
#include "server/worker/worker_principal.h"

enum { NAMES_OWNERS_MAX = 4096 /* principals with names on a device */ };

struct budget;
struct names;
struct saved_value;
struct service;
struct state;
struct state_owner;
struct stats_names;

/* A name and its value. Name, value and time never change. */
struct name_entry {
    struct held *held;
    uint64_t since_ns;         /* CLOCK_MONOTONIC */
    unsigned references;       /* one of its owner, and one of a save that writes it */
    bool bound;                /* it is among its owner's names now */
    bool on_disk;              /* it is, or was, on the disk */
    struct saved_value *saved; /* where its bytes are on the disk; NULL: it has no bytes, or they are not there */
    char name[];
};
void name_entry_unref(struct name_entry *entry);

/* A principal's names. The owner exists while it has names, pays for storage, or has changes to be saved. */
struct name_owner {
    struct name_owner *next;
    struct worker_principal *principal; /* held for as long as the owner exists */
    char key[PRINCIPAL_NAME_BYTES];
    /* The key as admins see and give it: that of a removed user without an id has a '#' at its end, because the name
     * alone is a present user. */
    char shown[PRINCIPAL_NAME_BYTES + 1];
    struct payer bytes;
    struct name_entry **entries; /* sorted by name, byte by byte */
    unsigned count, capacity;
    struct state_owner *disk; /* which of them are saved; NULL: names are not saved */
};

struct names {
    struct service *service;
    struct name_owner *owners;
    unsigned n_owners;
    struct state *state; /* NULL: nothing is saved */
    char *users;         /* lines with the keys of all users (front_tell_users()); NULL: there are no users */
    char fault[256];     /* why saved names could not be restored; "": they were */
};

void names_init(struct names *names, struct service *service);
/* Releases all values; call it after the sessions have ended. */
void names_finish(struct names *names);

/* Names that are about to be bound: they are checked, copied and sorted, in as many turns as that takes. `values` must
 * be computed; values and texts stay the caller's, and must exist as long as the batch. `beneath`: names that begin
 * with this text, and that the batch does not bind, go in the same step; "": none do. NULL without memory. */
struct names_batch;
struct names_batch *names_batch_create(struct held *const values[], const char *const texts[], unsigned n,
                                       const char *beneath);
/* Continues as far as the budget allows (NULL: to the end). STATUS_AGAIN: there is more to do.
 * STATUS_INVALID_ARGUMENT: a name is wrong, or comes twice. */
int names_batch_some(struct names_batch *batch, struct budget *budget, struct fault *fault);
/* Takes NULL. */
void names_batch_destroy(struct names_batch *batch);
/* Binds all names of a batch that is ready, or none, in one step and within the principal's limits; takes a reference
 * to each value on success. `only_new`: STATUS_DUPLICATE_ID if one of the names exists. STATUS_LIMIT. */
int names_publish_batch(struct names *names, const char *principal, const struct limits *limits,
                        struct names_batch *batch, bool only_new, struct fault *fault);
/* Does all of that at once. */
int names_publish(struct names *names, const char *principal, const struct limits *limits, struct held *const values[],
                  const char *const texts[], unsigned n, bool only_new, struct fault *fault);
/* STATUS_UNKNOWN_ID: there is no such name. */
int names_find(const struct names *names, const char *principal, const char *name, struct held **held,
               struct fault *fault);
/* Removes the name, and with it the names that begin with `beneath`, if that is not "". STATUS_UNKNOWN_ID. */
int names_remove(struct names *names, const char *principal, const char *name, const char *beneath,
                 struct fault *fault);

/* True: the reply to the owner's last change must wait until the change is on the disk; `wait` (server/worker/state.h)
 * is called then. False: the reply can be sent now, because the change is on the disk, or state-sync says that replies
 * do not wait. */
struct state_wait;
bool names_wait(const struct names *names, const char *principal, struct state_wait *wait);
/* As names_publish(), for an owner that exists, and that stays on failure. */
int names_bind(struct names *names, struct name_owner *owner, const struct limits *limits, struct held *const values[],
               const char *const texts[], unsigned n, bool only_new, struct fault *fault);
/* Removes all names in one change. The owner may be gone afterwards. */
void names_remove_all(struct names *names, struct name_owner *owner);
/* Destroys owners without names, charges and changes to be saved. */
void names_let_go(struct names *names);

/* Finds or creates a principal's owner; names_let_go() destroys it again unless it gets names. */
int names_take_owner(struct names *names, const char *principal, const struct limits *limits,
                     struct name_owner **result, struct fault *fault);

/* ---- for admins: the names of other principals. `from`, `to` and `key` are keys (principal_key()). ---- */

/* Takes over `users`, which is malloc'ed. */
void names_set_users(struct names *names, char *users);
/* Finds out whether the owner is a user that has been removed; sets `shown`. */
void names_know_owner(const struct names *names, struct name_owner *owner);
/* The owner as messages show it: the name; or, of a user that has been removed, the key, which a later user of the
 * same name does not have. */
const char *names_shown(const struct name_owner *owner);
/* Finds the key that an admin means by `words`: the name of a present user, or a key. If the present user has no names
 * here, and a removed user with the key `words` has, the removed one is meant. `given`: the principal gets names, so it
 * must exist. */
int names_resolve(const struct names *names, const char *words, bool given, char key[PRINCIPAL_NAME_BYTES],
                  struct fault *fault);
/* Renames a name, or gives it (or all names: `name` NULL) to another principal, in one step. STATUS_DUPLICATE_ID: the
 * new name exists. STATUS_INVALID_ARGUMENT: two principals would share memory. */
int names_move(struct names *names, const char *from, const char *name, const char *to, const char *new_name,
               struct fault *fault);
/* Removes a name, as names_remove() does, or all (`name` NULL). */
int names_remove_of(struct names *names, const char *from, const char *name, const char *beneath, struct fault *fault);

/* What has to be one step to others is charged to the turn: so many of the budget's steps for each of `n` names. So
 * the next request of whoever asked for it waits for a later turn. */
void names_charge(const struct names *names, unsigned n, int steps);
/* NULL: the principal has no names. */
struct name_owner *names_owner(const struct names *names, const char *principal);
struct name_entry *names_entry(const struct name_owner *owner, const char *name);
/* For the stats page. */
void names_stats(const struct names *names, struct stats_names *stats);
/* The index of the first name after `name`; for "" of the first name of all. */
unsigned names_after(const struct name_owner *owner, const char *name);
