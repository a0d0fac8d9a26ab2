#include "server/users/identities.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "server/process/log.h"

static struct identity *identities_find(const struct identities *identities, const char *name) {
    for (unsigned i = 0; i < identities->count; i++)
        if (!strcmp(identities->entries[i].name, name))
            return &identities->entries[i];
    return NULL;
}

/* NULL: no memory. */
static struct identity *identities_add(struct identities *identities, const char *name) {
    if (identities->count == identities->capacity) {
        unsigned capacity = identities->capacity ? 2 * identities->capacity : 16;
        struct identity *grown = realloc(identities->entries, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        identities->entries = grown;
        identities->capacity = capacity;
    }
    struct identity *entry = &identities->entries[identities->count++];
    *entry = (struct identity){.gone = false};
    snprintf(entry->name, sizeof entry->name, "%s", name);
    return entry;
}

/* ---- the file ---- */

static int identities_read_line(struct identities *identities, const char *line, struct fault *fault) {
    char name[USERS_NAME_MAX + 1], id[PRINCIPAL_ID_BYTES], place[5];
    int end = 0;
    _Static_assert(USERS_NAME_MAX == 32 && PRINCIPAL_ID_BYTES == 20, "the widths below");
    bool whole = sscanf(line, "%32s %19s %4s%n", name, id, place, &end) == 3 && !strcmp(line + end, "\n") &&
                 users_is_name(name) && (!strcmp(place, "here") || !strcmp(place, "gone"));
    if (!whole)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.200s: it is damaged", identities->path);
    struct identity *entry = identities_add(identities, name);
    if (!entry)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the names of users");
    snprintf(entry->id, sizeof entry->id, "%s", strcmp(id, "-") ? id : "");
    entry->gone = !strcmp(place, "gone");
    return STATUS_OK;
}

int identities_init(struct identities *identities, const char *directory, struct fault *fault) {
    char line[128];
    int error = STATUS_OK;
    *identities = (struct identities){.count = 0};
    if (!*directory)
        return STATUS_OK;
    snprintf(identities->path, sizeof identities->path, "%s/identities", directory);
    CLEANUP(fclose) FILE *file = fopen(identities->path, "re");
    if (!file && errno == ENOENT)
        return STATUS_OK;
    if (!file)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.200s: %s", identities->path, strerror(errno));
    while (!error && fgets(line, sizeof line, file))
        error = identities_read_line(identities, line, fault);
    return error;
}

void identities_finish(struct identities *identities) {
    free(identities->entries);
    *identities = (struct identities){.count = 0};
}

static int identities_write(const struct identities *identities, const char *temporary) {
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return error;
    }
    for (unsigned i = 0; i < identities->count; i++) {
        const struct identity *entry = &identities->entries[i];
        fprintf(file, "%s %s %s\n", entry->name, *entry->id ? entry->id : "-", entry->gone ? "gone" : "here");
    }
    bool wrong = fflush(file) || ferror(file) || fsync(fd);
    return fclose(file) || wrong || rename(temporary, identities->path) ? errno ? errno : EIO : 0;
}

void identities_save(struct identities *identities) {
    char temporary[sizeof identities->path + 8];
    if (!identities->changed || !*identities->path)
        return;
    snprintf(temporary, sizeof temporary, "%s.new", identities->path);
    int error = identities_write(identities, temporary);
    if (error)
        unlink(temporary);
    if (error && !identities->failing) /* it is tried again and again */
        log_event(LOG_LEVEL_ERROR, "identities_not_written", "file", identities->path, "cause", strerror(error), NULL);
    identities->changed = identities->failing = error;
}

/* ---- a table of users ---- */

/* A user of this name is there again. */
static void identities_renew(struct identity *entry) {
    uint64_t random;
    struct timespec now;
    if (getrandom(&random, sizeof random, 0) != sizeof random) { /* that nobody has it yet is enough */
        clock_gettime(CLOCK_REALTIME, &now);
        random = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    }
    snprintf(entry->id, sizeof entry->id, "%016" PRIx64, random);
    entry->gone = false;
    log_event(LOG_LEVEL_WARNING, "user_again", "principal", entry->name, "id", entry->id, "cause",
              "an earlier user of this name was removed, and its named tensors are not for this one", NULL);
}

static void identities_of_user(struct identities *identities, struct user *user) {
    struct identity *entry = identities_find(identities, user->name);
    if (!entry) {
        entry = identities_add(identities, user->name);
        identities->changed = true;
        if (!entry)
            log_event(LOG_LEVEL_ERROR, "user_without_id", "principal", user->name, "cause", "no memory", NULL);
    } else if (entry->gone) {
        identities_renew(entry);
        identities->changed = true;
    }
    if (entry)
        memcpy(user->id, entry->id, sizeof user->id);
}

void identities_apply(struct identities *identities, struct users *users) {
    for (unsigned i = 0; i < identities->count; i++) {
        struct identity *entry = &identities->entries[i];
        const struct user *user = users_find(users, entry->name);
        if (!entry->gone && (!user || *user->id)) {
            entry->gone = true;
            identities->changed = true;
        }
    }
    for (unsigned i = 0; i < users->n_users; i++)
        if (!*users->users[i].id)
            identities_of_user(identities, &users->users[i]);
    identities_save(identities);
}
