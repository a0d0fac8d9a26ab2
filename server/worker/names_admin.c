/* Names of others, for admins: whose are meant, and how they are moved and removed (names.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ops/cleanup.h"
#include "server/process/log.h"
#include "server/users/users.h"
#include "server/worker/names.h"
#include "server/worker/service.h"
#include "server/worker/state.h"
#include "server/worker/state_impl.h"

/* ---- for admins: whose names are meant ---- */

/* The line that begins with this text and then `end`; NULL: there is none. */
static const char *names_find_user(const struct names *names, const char *text, char end) {
    char line[PRINCIPAL_NAME_BYTES + 4];
    snprintf(line, sizeof line, "\n%.*s%c", PRINCIPAL_NAME_BYTES, text, end);
    const char *found = names->users ? strstr(names->users, line) : NULL;
    return found ? found + 1 : NULL;
}

static bool names_orphaned(const struct names *names, const char *key) {
    char name[PRINCIPAL_NAME_BYTES];
    principal_key_name(key, name);
    return users_is_name(name) && !names_find_user(names, key, '\n');
}

void names_know_owner(const struct names *names, struct name_owner *owner) {
    owner->principal->orphan = names_orphaned(names, owner->key);
    snprintf(owner->shown, sizeof owner->shown, "%s%s", owner->key,
             owner->principal->orphan && !strchr(owner->key, '#') ? "#" : "");
}

void names_set_users(struct names *names, char *users) {
    free(names->users);
    names->users = users;
    for (struct name_owner *owner = names->owners; owner; owner = owner->next) {
        bool before = owner->principal->orphan;
        char count[24];
        names_know_owner(names, owner);
        if (owner->principal->orphan && !before && owner->count)
            log_event(LOG_LEVEL_INFO, "names_set_aside", "owner", owner->shown, "names",
                      log_text(count, sizeof count, "%u", owner->count), "cause", "the user was removed", NULL);
    }
}

const char *names_shown(const struct name_owner *owner) {
    return owner->principal->orphan ? owner->shown : owner->principal->name;
}

/* The key of the present user of this name; false: there is none. */
static bool names_present_key(const struct names *names, const char *name, char key[PRINCIPAL_NAME_BYTES]) {
    const char *line = names_find_user(names, name, '#');
    if (!line)
        line = names_find_user(names, name, '\n');
    if (!line)
        return false;
    snprintf(key, PRINCIPAL_NAME_BYTES, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
}

/* Whether `words` may be the key of a principal: of a present user, or of a principal that is no user. */
static bool names_can_be(const struct names *names, const char *words, const char *name) {
    bool uid = !strncmp(words, "uid:", 4) && words[4] && words[4 + strspn(words + 4, "0123456789")] == 0;
    if (users_is_name(name))
        return !names_orphaned(names, words);
    return uid || (!strncmp(words, "cert:", 5) && words[5]) || !strcmp(words, "tcp") || !strcmp(words, "unix");
}

/* Whether `words` are a user's name with a '#' at its end; then the key is the name. */
static bool names_without_id(const char *words, char key[PRINCIPAL_NAME_BYTES]) {
    size_t length = strlen(words);
    if (!length || words[length - 1] != '#' || length > PRINCIPAL_NAME_BYTES)
        return false;
    snprintf(key, PRINCIPAL_NAME_BYTES, "%.*s", (int)length - 1, words);
    return users_is_name(key);
}

int names_resolve(const struct names *names, const char *words, bool given, char key[PRINCIPAL_NAME_BYTES],
                  struct fault *fault) {
    char present[PRINCIPAL_NAME_BYTES], name[PRINCIPAL_NAME_BYTES];
    if (names_without_id(words, name)) {
        if (given && names_orphaned(names, name))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "there is no user \"%s\"", words);
        memcpy(key, name, sizeof name);
        return STATUS_OK;
    }
    if (strlen(words) >= PRINCIPAL_NAME_BYTES)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "nobody is called \"%.100s\"", words);
    bool user = users_is_name(words) && names_present_key(names, words, present);
    if (user && (given || names_owner(names, present) || !names_owner(names, words))) {
        memcpy(key, present, sizeof present);
        return STATUS_OK;
    }
    principal_key_name(words, name);
    if (given && !names_can_be(names, words, name))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "there is no user \"%s\"", words);
    snprintf(key, PRINCIPAL_NAME_BYTES, "%s", words);
    return STATUS_OK;
}

/* ---- moving names ---- */

enum { NAMES_COMPARE_STEPS = 1 }; /* of the budget, for each name */

static int names_find_own(const struct names *names, const char *key, const char *name, struct name_owner **owner,
                          struct fault *fault) {
    *owner = names_owner(names, key);
    if (*owner && (*owner)->count && (!name || names_entry(*owner, name)))
        return STATUS_OK;
    if (!name || !*owner || !(*owner)->count)
        return fault_set(fault, STATUS_UNKNOWN_ID, "%s has no named tensors here", key);
    return fault_set(fault, STATUS_UNKNOWN_ID, "no tensor of %s here has the name \"%.100s\"", key, name);
}

/* The number of names that stay and share memory with the moved one: it would not be clear who pays for it. */
static unsigned names_count_sharing(const struct names *names, const struct name_owner *owner,
                                    const struct name_entry *moved) {
    const void *storage = held_place(moved->held).storage;
    unsigned count = 0;
    names_charge(names, owner->count, NAMES_COMPARE_STEPS);
    for (unsigned i = 0; storage && i < owner->count; i++)
        count += owner->entries[i] != moved && held_place(owner->entries[i]->held).storage == storage;
    return count;
}

/* The limits of a principal: as its connections here have them, or else as the front has told them
 * (front_tell_users()). */
static void names_limits(const struct names *names, const char *key, struct limits *limits) {
    char line[PRINCIPAL_NAME_BYTES + 4];
    *limits = names->service->limits.each;
    int length = snprintf(line, sizeof line, "\n %s ", key);
    const char *own = names->users ? strstr(names->users, line) : NULL;
    if (own)
        sscanf(own + length, "%" SCNu64 " %" SCNu64, &limits->named_bytes, &limits->named_tensors);
    for (const struct worker_principal *at = names->service->principals; at; at = at->next)
        if (!strcmp(at->key, key))
            *limits = at->limits;
}

struct names_moving {
    struct names *names;
    struct name_owner *from, *to;
    struct held **values;
    const char **texts;
    unsigned n;
    struct limits limits; /* of the new owner */
};

static int moving_fill(struct names_moving *moving, const char *name, const char *new_name, struct fault *fault) {
    struct name_owner *from = moving->from;
    moving->n = name ? 1 : from->count;
    moving->values = calloc(moving->n, sizeof *moving->values);
    moving->texts = calloc(moving->n, sizeof *moving->texts);
    if (!moving->values || !moving->texts)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u names", moving->n);
    for (unsigned i = 0; i < moving->n; i++) {
        const struct name_entry *entry = name ? names_entry(from, name) : from->entries[i];
        moving->values[i] = entry->held;
        moving->texts[i] = new_name ? new_name : entry->name;
    }
    return STATUS_OK;
}

/* The new owner pays for the memory; `back`: the old one does again. */
static void moving_charge(const struct names_moving *moving, bool back) {
    struct payer *from = &moving->from->bytes, *to = &moving->to->bytes;
    for (unsigned i = 0; i < moving->n && from != to; i++)
        held_transfer(moving->values[i], back ? to : from, back ? from : to);
}

static int moving_bind(struct names_moving *moving, struct fault *fault) {
    struct limits limits = moving->limits;
    uint64_t limit = limits.named_bytes;
    moving_charge(moving, false);
    if (moving->from == moving->to)
        limits.named_tensors++; /* for a moment the tensor has two names */
    int error = STATUS_OK;
    if (limit && moving->from != moving->to && moving->to->bytes.bytes > limit)
        error = fault_set(fault, STATUS_LIMIT, "the limit of %lu bytes in named tensors is reached: %s would have %lu",
                          limit, moving->to->key, moving->to->bytes.bytes);
    if (error == STATUS_OK)
        error = names_bind(moving->names, moving->to, &limits, moving->values, moving->texts, moving->n, true, fault);
    if (error != STATUS_OK)
        moving_charge(moving, true);
    return error;
}

/* A value that is saved under the old name is saved under the new one, too. */
static void moving_keep(const struct names_moving *moving, const char *name) {
    const struct name_entry *before = names_entry(moving->from, name);
    struct name_entry *after = names_entry(moving->to, moving->texts[0]);
    if (moving->from != moving->to || !before->saved)
        return;
    after->saved = before->saved;
    after->saved->references++;
}

int names_remove_of(struct names *names, const char *key, const char *name, const char *beneath, struct fault *fault) {
    struct name_owner *owner;
    int error = names_find_own(names, key, name, &owner, fault);
    if (error != STATUS_OK)
        return error;
    if (name)
        return names_remove(names, key, name, beneath, fault);
    names_remove_all(names, owner);
    return STATUS_OK;
}

static int moving_carry_out(struct names_moving *moving, const char *name, const char *to, const char *new_name,
                            struct fault *fault) {
    struct names *names = moving->names;
    int error = names_take_owner(names, to, &moving->limits, &moving->to, fault);
    if (error == STATUS_OK)
        error = moving_fill(moving, name, new_name, fault);
    if (error == STATUS_OK)
        error = moving_bind(moving, fault);
    if (error != STATUS_OK)
        return error;
    if (name)
        moving_keep(moving, name);
    if (moving->from != moving->to)
        state_order(moving->from, moving->to);
    char key[PRINCIPAL_NAME_BYTES];
    memcpy(key, moving->from->key, sizeof key);
    return names_remove_of(names, key, name, "", fault);
}

int names_move(struct names *names, const char *from, const char *name, const char *to, const char *new_name,
               struct fault *fault) {
    struct names_moving moving = {.names = names};
    int error = names_find_own(names, from, name, &moving.from, fault);
    if (error != STATUS_OK)
        return error;
    unsigned sharing =
        name && strcmp(from, to) != 0 ? names_count_sharing(names, moving.from, names_entry(moving.from, name)) : 0;
    if (sharing)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "\"%.100s\" shares its memory with %u other name%s of %s: they can only be moved together",
                         name, sharing, sharing == 1 ? "" : "s", from);
    if (!strcmp(from, to) && (!new_name || !strcmp(name, new_name)))
        return STATUS_OK; /* it has this name already */
    if (strcmp(from, to) != 0)
        error = state_check_order(names->state, moving.from, names_owner(names, to), fault);
    if (error != STATUS_OK)
        return error;
    names_limits(names, to, &moving.limits);
    if (names->state)
        names->state->paused = true;
    error = moving_carry_out(&moving, name, to, new_name, fault);
    if (names->state)
        state_resume(names->state);
    free(moving.values);
    free(moving.texts);
    names_let_go(names);
    return error;
}
