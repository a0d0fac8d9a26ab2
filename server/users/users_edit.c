#include "server/users/users_edit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/files/file.h"

/* ---- lines ---- */

/* Takes over `line`, also on failure. `line` NULL: there was no memory for it. */
static int users_edit_insert(struct users_edit *edit, unsigned at, char *line, struct fault *fault) {
    if (line && edit->n_lines == edit->capacity) {
        unsigned capacity = edit->capacity ? 2 * edit->capacity : 64;
        char **grown = realloc(edit->lines, capacity * sizeof *grown);
        if (grown) {
            edit->lines = grown;
            edit->capacity = capacity;
        }
    }
    if (!line || edit->n_lines == edit->capacity) {
        free(line);
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the file of users");
    }
    memmove(edit->lines + at + 1, edit->lines + at, (edit->n_lines - at) * sizeof *edit->lines);
    edit->lines[at] = line;
    edit->n_lines++;
    return STATUS_OK;
}

static void users_edit_delete(struct users_edit *edit, unsigned at) {
    free(edit->lines[at]);
    edit->n_lines--;
    memmove(edit->lines + at, edit->lines + at + 1, (edit->n_lines - at) * sizeof *edit->lines);
}

static const char *users_edit_line(const struct users_edit *edit, unsigned at) {
    const char *line = edit->lines[at];
    return line + strspn(line, " \t");
}

static bool users_edit_is_header(const struct users_edit *edit, unsigned at) {
    return *users_edit_line(edit, at) == '[';
}

/* Where the line's value begins, if the line has this key; NULL: it has another one. */
static const char *users_edit_value(const struct users_edit *edit, unsigned at, const char *key) {
    const char *line = users_edit_line(edit, at);
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0)
        return NULL;
    line += length + strspn(line + length, " \t");
    return *line == '=' || *line == ':' ? line + 1 + strspn(line + 1, " \t") : NULL;
}

/* The lines of a user's section, [*begin, *end). Comments directly before the next header belong to the next
 * section. */
static void users_edit_find(const struct users_edit *edit, const char *name, unsigned *begin, unsigned *end) {
    size_t length = strlen(name);
    unsigned at = 0;
    for (; at < edit->n_lines; at++) {
        const char *line = users_edit_line(edit, at);
        if (*line == '[' && !strncmp(line + 1, name, length) && line[1 + length] == ']')
            break;
    }
    *begin = at;
    do
        at++;
    while (at < edit->n_lines && !users_edit_is_header(edit, at));
    while (at < edit->n_lines && at > *begin + 1 && strchr("#;", *users_edit_line(edit, at - 1)) &&
           *users_edit_line(edit, at - 1))
        at--;
    *end = at;
}

int users_edit_add_pair(struct users_edit *edit, const char *name, const char *key, const char *value,
                        struct fault *fault) {
    unsigned begin, end;
    char *line = NULL;
    users_edit_find(edit, name, &begin, &end);
    while (end > begin + 1 && !*users_edit_line(edit, end - 1))
        end--;
    if (asprintf(&line, "%s = %s", key, value) < 0)
        line = NULL;
    return users_edit_insert(edit, end, line, fault);
}

int users_edit_add(struct users_edit *edit, const char *name, enum role role, struct fault *fault) {
    char *line = NULL;
    int error = STATUS_OK;
    if (edit->n_lines && *users_edit_line(edit, edit->n_lines - 1))
        error = users_edit_insert(edit, edit->n_lines, strdup(""), fault);
    if (!error) {
        if (asprintf(&line, "[%s]", name) < 0)
            line = NULL;
        error = users_edit_insert(edit, edit->n_lines, line, fault);
    }
    return error ? error : users_edit_add_pair(edit, name, "role", role_name(role), fault);
}

int users_edit_add_id(struct users_edit *edit, const char *name, struct fault *fault) {
    uint64_t random;
    char id[PRINCIPAL_ID_BYTES];
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return fault_set(fault, STATUS_INTERNAL, "the system gives no random bytes: %s", strerror(errno));
    snprintf(id, sizeof id, "%016" PRIx64, random);
    return users_edit_add_pair(edit, name, "id", id, fault);
}

int users_edit_set_role(struct users_edit *edit, const char *name, enum role role, struct fault *fault) {
    unsigned begin, end;
    users_edit_find(edit, name, &begin, &end);
    for (unsigned at = begin + 1; at < end; at++)
        if (users_edit_value(edit, at, "role")) {
            users_edit_delete(edit, at);
            break;
        }
    return users_edit_add_pair(edit, name, "role", role_name(role), fault);
}

void users_edit_remove(struct users_edit *edit, const char *name) {
    unsigned begin, end;
    users_edit_find(edit, name, &begin, &end);
    while (end-- > begin)
        users_edit_delete(edit, end);
}

bool users_edit_revoke(struct users_edit *edit, const char *id) {
    for (unsigned at = 0; at < edit->n_lines; at++) {
        const char *value = users_edit_value(edit, at, "token");
        if (value && !strncmp(value, id, TOKEN_ID_CHARS)) {
            users_edit_delete(edit, at);
            return true;
        }
    }
    return false;
}

/* ---- text ---- */

/* Splits the text into lines, without the first and the last one, which are written anew. */
static int users_edit_split(struct users_edit *edit, char *text, struct fault *fault) {
    int error = STATUS_OK;
    for (char *line; !error && (line = strsep(&text, "\n")) && (*line || text);) {
        size_t length = strlen(line);
        if (length && line[length - 1] == '\r')
            line[length - 1] = 0;
        if (!strcmp(line, USERS_FIRST_LINE) || !strcmp(line, USERS_LAST_LINE))
            continue;
        error = users_edit_insert(edit, edit->n_lines, strdup(line), fault);
    }
    return error;
}

static char *users_edit_join(const struct users_edit *edit) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    fputs(USERS_FIRST_LINE "\n", out);
    for (unsigned at = 0; at < edit->n_lines; at++)
        fprintf(out, "%s\n", edit->lines[at]);
    fputs(USERS_LAST_LINE "\n", out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

static void users_edit_finish(struct users_edit *edit) {
    while (edit->n_lines)
        users_edit_delete(edit, edit->n_lines - 1);
    free(edit->lines);
    users_destroy(edit->users);
}

CLEANUP_FINISH(struct users_edit, users_edit_finish)

/* ---- the file ---- */

static int users_edit_fail(const char *path, const char *what, struct fault *fault) {
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s: %s", path, what, strerror(errno));
}

/* When root edits the file of the daemon's user, or makes it in that user's folder, the new file is given to that user:
 * otherwise the daemon could not read it. */
static int users_edit_give(int fd, int folder, const struct stat *before) {
    struct stat owner = *before;
    if (geteuid() || (!owner.st_nlink && fstat(folder, &owner)) || owner.st_uid == 0)
        return 0;
    return fchown(fd, owner.st_uid, owner.st_gid);
}

/* `folder` is a descriptor of the folder of `path`. */
static int users_edit_replace(const char *path, int folder, const char *text, const struct stat *before,
                              struct fault *fault) {
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s.XXXXXX", path) >= (int)sizeof temporary)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: the path is too long", path);
    int fd = mkostemp(temporary, O_CLOEXEC); /* of mode 0600 */
    if (fd < 0)
        return users_edit_fail(path, "cannot make a new file beside it", fault);
    int error = STATUS_OK;
    if (users_edit_give(fd, folder, before) || !whole_write(fd, text, strlen(text)) || fsync(fd))
        error = users_edit_fail(path, "cannot write a new file beside it", fault);
    else if (rename(temporary, path))
        error = users_edit_fail(path, "cannot replace it", fault);
    close(fd);
    if (error)
        unlink(temporary);
    else
        fsync(folder); /* if this fails the change may be lost in a crash of the system, but not otherwise */
    return error;
}

static int users_edit_locked(const char *path, int folder, bool create,
                             int (*change)(struct users_edit *edit, void *owner, struct fault *fault), void *owner,
                             struct fault *fault) {
    CLEANUP(users_edit_finish) struct users_edit edit = {.lines = NULL};
    CLEANUP(users_destroy) struct users *changed = NULL;
    CLEANUP(free) char *text = NULL;
    struct stat before = {.st_nlink = 0};
    int error = STATUS_OK;
    if (create && access(path, F_OK) && errno == ENOENT)
        text = calloc(1, 1);
    else
        error = users_load(path, &text, &before, fault);
    if (!error && text && *text)
        error = users_check_whole(path, text, fault);
    if (!error && !text)
        error = fault_set(fault, STATUS_NO_HOST_MEMORY, "%s: no memory", path);
    if (!error)
        error = users_parse(path, text, &edit.users, fault);
    if (!error)
        error = users_edit_split(&edit, text, fault);
    if (!error)
        error = change(&edit, owner, fault);
    if (error)
        return error;
    CLEANUP(free) char *joined = users_edit_join(&edit);
    if (!joined)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "%s: no memory", path);
    error = users_parse(path, joined, &changed, fault); /* also checks that the table is not too large */
    if (error)
        return error;
    if (strlen(joined) > USERS_FILE_MAX)
        return fault_set(fault, STATUS_LIMIT, "%s: it would have more than %d bytes", path, USERS_FILE_MAX);
    return users_edit_replace(path, folder, joined, &before, fault);
}

/* Makes the folders that are missing. The last one is for its owner alone. If root makes it, and the system has a user
 * tensord, that user owns it, because the service runs as that user. */
static int users_edit_make_folders(const char *directory) {
    char path[PATH_MAX];
    struct stat there;
    if (!stat(directory, &there))
        return 0;
    snprintf(path, sizeof path, "%s", directory);
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0755) && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    if (mkdir(path, 0700) && errno != EEXIST)
        return -1;
    const struct passwd *service = geteuid() ? NULL : getpwnam("tensord");
    return service ? chown(path, service->pw_uid, service->pw_gid) : 0;
}

int users_edit(const char *path, bool create, int (*change)(struct users_edit *edit, void *owner, struct fault *fault),
               void *owner, struct fault *fault) {
    char real[PATH_MAX], directory[PATH_MAX];
    /* A symbolic link stays, and the file that it leads to is replaced. */
    if (!realpath(path, real) && snprintf(real, sizeof real, "%s", path) >= (int)sizeof real)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: the path is too long", path);
    const char *slash = strrchr(real, '/');
    if (slash)
        snprintf(directory, sizeof directory, "%.*s", slash == real ? 1 : (int)(slash - real), real);
    else
        snprintf(directory, sizeof directory, ".");
    if (create && users_edit_make_folders(directory))
        return users_edit_fail(path, "cannot make its folder", fault);
    CLEANUP(close) int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return users_edit_fail(path, "cannot open its folder", fault);
    if (flock(folder, LOCK_EX)) /* the folder, because each change makes another file */
        return users_edit_fail(path, "cannot lock its folder", fault);
    return users_edit_locked(real, folder, create, change, owner, fault);
}
