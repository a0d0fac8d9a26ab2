/* Named tensors of one worker: which names a principal has on this device, and the values they stand for. Names belong to
 * their principal and nobody else sees them. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/session/held.h"
#include "server/users/principal.h"
#include "server/worker/account.h"

enum { NAMES_OWNERS_MAX = 4096 /* principals with names on a device */ };

struct budget;
struct names;
struct saved_value;
struct service;
struct state;
struct state_owner;
struct stats_names;

/* Its name, value and time never change. */
struct name_entry {
    struct held *held;
    uint64_t since_ns;         /* CLOCK_MONOTONIC */
    unsigned references;       /* its owner's, and that of a save which writes it */
    bool bound;                /* it is one of its owner's names now */
    bool kept;                 /* it is, or was, on the disk, */
    struct saved_value *saved; /* where its bytes are there; NULL: it has no bytes, or they are not on the disk */
    char name[];
};
void name_entry_unref(struct names *names, struct name_entry *entry);

/* A principal's names. It stays while it has some, or storage is charged to it. */
struct name_owner {
    struct name_owner *next;
    struct account *account; /* the principal, who is here for as long */
    char key[PRINCIPAL_NAME_BYTES];
    struct held_account bytes;
    struct name_entry **entries; /* in the order of their bytes */
    unsigned count, capacity;
    struct state_owner *disk; /* what of them is saved; NULL: nothing ever is */
};

struct names {
    struct service *service;
    struct name_owner *owners;
    unsigned n_owners;
    struct state *state; /* NULL: nothing is saved */
    char *users;         /* the users that there are: lines of their keys, front_users.c; NULL: there are none */
    char fault[256];     /* why saved ones could not be restored; "": they could */
};

void names_init(struct names *names, struct service *service);
/* Lets go of all values; the sessions have gone. */
void names_finish(struct names *names);

/* Names that are about to be bound: checked, copied and put into order in as many turns as that takes. `values` are computed;
 * they and the texts are the caller's, and stay there for as long. NULL without memory for it. */
struct names_batch;
struct names_batch *names_batch_create(struct held *const values[], const char *const texts[], unsigned n);
/* As far as the budget goes (NULL: to its end). STATUS_AGAIN: there is more to do; STATUS_INVALID_ARGUMENT. */
int names_batch_some(struct names_batch *batch, struct budget *budget, struct fault *fault);
/* Takes NULL. */
void names_batch_destroy(struct names_batch *batch);
/* Binds all of these names in one step, or none, within the principal's limits; the batch is through. What succeeds takes a
 * reference to each value. `only_new`: STATUS_DUPLICATE_ID where one of the names is there. STATUS_LIMIT. */
int names_publish_batch(struct names *names, const char *principal, const struct limits *limits,
                        struct names_batch *batch, bool only_new, struct fault *fault);
/* All of that at once. */
int names_publish(struct names *names, const char *principal, const struct limits *limits, struct held *const values[],
                  const char *const texts[], unsigned n, bool only_new, struct fault *fault);
/* STATUS_UNKNOWN_ID where there is none. */
int names_find(const struct names *names, const char *principal, const char *name, struct held **held,
               struct fault *fault);
int names_remove(struct names *names, const char *principal, const char *name, struct fault *fault);

/* True: the owner's last change is to be told only when it is on the disk, and `wait` (server/worker/state.h) is called then.
 * False: it can be told now, because it is on the disk already or no change is waited for. */
struct state_wait;
bool names_wait(const struct names *names, const char *principal, struct state_wait *wait);
/* The same for an owner that is here, and stays here on failure. */
int names_bind(struct names *names, struct name_owner *owner, const struct limits *limits, struct held *const values[],
               const char *const texts[], unsigned n, bool only_new, struct fault *fault);
/* In one change. The owner may be gone afterwards. */
void names_remove_all(struct names *names, struct name_owner *owner);
/* Forgets owners that have nothing, pay for nothing, and have nothing to be saved. */
void names_let_go(struct names *names);

/* Finds a principal's owner, or makes it. It is gone after names_let_go() unless it is given names. */
int names_take_owner(struct names *names, const char *principal, const struct limits *limits,
                     struct name_owner **result, struct fault *fault);

/* ---- names of others . Here a principal is its key, principal_key(). ---- */

/* Takes `users`, malloc'ed. */
void names_set_users(struct names *names, char *users);
/* Finds out whether its account is an orphan. */
void names_know_owner(const struct names *names, struct name_owner *owner);
/* Whose names they are, in words: of a user who has gone it is the key, which tells him from a later one. */
const char *names_shown(const struct name_owner *owner);
/* The key that somebody means by these words: a present user's name, or a key itself. For what is looked for, the present
 * user goes first where it has names; for one that is `given` names, it has to be there. */
int names_resolve(const struct names *names, const char *words, bool given, char key[PRINCIPAL_NAME_BYTES],
                  struct fault *fault);
/* Renames one (`name`), or gives it, or all (NULL), to somebody else, in one step. STATUS_DUPLICATE_ID where the new name is
 * taken; STATUS_INVALID_ARGUMENT where memory would be shared by two principals. */
int names_move(struct names *names, const char *from, const char *name, const char *to, const char *new_name,
               struct fault *fault);
/* Removes one, or all. */
int names_remove_of(struct names *names, const char *from, const char *name, struct fault *fault);

/* NULL: it has none. */
struct name_owner *names_owner(const struct names *names, const char *principal);
struct name_entry *names_entry(const struct name_owner *owner, const char *name);
/* For the stats page. */
void names_stats(const struct names *names, struct stats_names *stats);
/* Position of the first name that comes after `name`; of the first of all for "". */
unsigned names_after(const struct name_owner *owner, const char *name);
