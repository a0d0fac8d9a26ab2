#include "server/users/token_use.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/process/log.h"
#include "server/users/users.h"

enum { TOKEN_USE_STEP_S = 60 };

static struct token_use_entry *token_use_find(const struct token_use *use, const char *id) {
    for (unsigned i = 0; i < use->count; i++)
        if (!strcmp(use->entries[i].id, id))
            return &use->entries[i];
    return NULL;
}

static void token_use_set(struct token_use *use, const char *id, int64_t at) {
    struct token_use_entry *entry = token_use_find(use, id);
    if (!entry && use->count == use->capacity) {
        unsigned capacity = use->capacity ? 2 * use->capacity : 16;
        struct token_use_entry *grown =
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

void token_use_init(struct token_use *use, const char *users) {
    char line[64], id[TOKEN_ID_CHARS + 1], text[TOKEN_TIME_BYTES];
    *use = (struct token_use){.count = 0};
    if (snprintf(use->path, sizeof use->path, "%s.used", users) >= (int)sizeof use->path - 8)
        use->path[0] = 0;
    FILE *file = fopen(use->path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%8s %20s", id, text) == 2 && token_is_id(id) && token_time_parse(text) > 0)
            token_use_set(use, id, token_time_parse(text));
    if (file)
        fclose(file);
}

void token_use_finish(struct token_use *use) {
    free(use->entries);
    *use = (struct token_use){.count = 0};
}

int64_t token_use_of(const struct token_use *use, const char *id) {
    const struct token_use_entry *entry = token_use_find(use, id);
    return entry ? entry->at : 0;
}

void token_use_note(struct token_use *use, const char *id, int64_t now) {
    token_use_set(use, id, now);
    use->changed = true;
}

static int token_use_write(const struct token_use *use, const char *temporary) {
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
static void token_use_forget(struct token_use *use, const struct users *users) {
    unsigned kept = 0;
    for (unsigned i = 0; i < use->count; i++)
        if (users_find_token(users, use->entries[i].id))
            use->entries[kept++] = use->entries[i];
    use->count = kept;
}

void token_use_save(struct token_use *use, const struct users *users, int64_t now, bool at_once) {
    char temporary[sizeof use->path + 8];
    if (!use->changed || !*use->path || (!at_once && now - use->written < TOKEN_USE_STEP_S))
        return;
    snprintf(temporary, sizeof temporary, "%s.new", use->path);
    use->written = now;
    token_use_forget(use, users);
    int error = token_use_write(use, temporary);
    if (error)
        unlink(temporary);
    use->changed = error;
    if (error && !use->complained)
        log_event(LOG_LEVEL_WARNING, "last_use_not_written", "file", use->path, "cause", strerror(error), NULL);
    use->complained = error;
}
