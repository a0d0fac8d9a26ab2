#include "server/front/login_use.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/process/log.h"
#include "server/users/users.h"

enum { LOGIN_USE_STEP_S = 60 };

static struct login_use_entry *login_use_find(const struct login_use *use, const char *id) {
    for (unsigned i = 0; i < use->count; i++)
        if (!strcmp(use->entries[i].id, id))
            return &use->entries[i];
    return NULL;
}

static void login_use_set(struct login_use *use, const char *id, int64_t at) {
    struct login_use_entry *entry = login_use_find(use, id);
    if (!entry && use->count == use->capacity) {
        unsigned capacity = use->capacity ? 2 * use->capacity : 16;
        struct login_use_entry *grown =
            use->count < USERS_TOKENS_MAX ? realloc(use->entries, capacity * sizeof *grown) : NULL;
        if (!grown)
            return;
        use->entries = grown;
        use->capacity = capacity;
    }
    if (!entry) {
        entry = &use->entries[use->count++];
        memcpy(entry->id, id, sizeof entry->id);
    }
    entry->at = at;
}

void login_use_init(struct login_use *use, const char *users) {
    char line[64], id[TOKEN_ID_CHARS + 1], text[TOKEN_TIME_BYTES];
    *use = (struct login_use){.count = 0};
    if (snprintf(use->path, sizeof use->path, "%s.used", users) >= (int)sizeof use->path - 8)
        use->path[0] = 0;
    FILE *file = fopen(use->path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%8s %20s", id, text) == 2 && token_is_id(id) && token_time_parse(text) > 0)
            login_use_set(use, id, token_time_parse(text));
    if (file)
        fclose(file);
}

void login_use_finish(struct login_use *use) {
    free(use->entries);
    *use = (struct login_use){.count = 0};
}

int64_t login_use_of(const struct login_use *use, const char *id) {
    const struct login_use_entry *entry = login_use_find(use, id);
    return entry ? entry->at : 0;
}

void login_use_note(struct login_use *use, const char *id, int64_t now) {
    login_use_set(use, id, now);
    use->changed = true;
}

static int login_use_write(const struct login_use *use, const char *temporary) {
    char text[TOKEN_TIME_BYTES];
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file)
        return errno;
    for (unsigned i = 0; i < use->count; i++) {
        token_time_write(use->entries[i].at, text);
        fprintf(file, "%s %s\n", use->entries[i].id, text);
    }
    bool wrong = ferror(file);
    return fclose(file) || wrong || rename(temporary, use->path) ? errno ? errno : EIO : 0;
}

/* Those of revoked tokens would fill the table in the end. */
static void login_use_forget(struct login_use *use, const struct users *users) {
    unsigned kept = 0;
    for (unsigned i = 0; i < use->count; i++)
        if (users_find_token(users, use->entries[i].id))
            use->entries[kept++] = use->entries[i];
    use->count = kept;
}

void login_use_save(struct login_use *use, const struct users *users, int64_t now, bool at_once) {
    char temporary[sizeof use->path + 8];
    if (!use->changed || !*use->path || (!at_once && now - use->written < LOGIN_USE_STEP_S))
        return;
    snprintf(temporary, sizeof temporary, "%s.new", use->path);
    use->written = now;
    login_use_forget(use, users);
    int error = login_use_write(use, temporary);
    if (error)
        unlink(temporary);
    use->changed = error;
    if (error && !use->complained)
        log_event(LOG_LEVEL_WARNING, "last_use_not_written", "file", use->path, "cause", strerror(error), NULL);
    use->complained = error;
}
