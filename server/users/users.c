#include "server/users/users.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/net/tls.h"
#include "server/users/config_value.h"

/* ---- reading ---- */

static int users_grow(void **list, unsigned count, unsigned most, size_t size, const char *what, struct fault *fault) {
    if (count == most)
        return fault_set(fault, STATUS_LIMIT, "more than %u %s", most, what);
    /* Doubles the list whenever the count is a power of two. */
    if (count & (count - 1))
        return STATUS_OK;
    void *grown = realloc(*list, (count ? 2 * (size_t)count : 1) * size);
    if (!grown)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %u %s", count + 1, what);
    *list = grown;
    return STATUS_OK;
}

bool users_is_name(const char *text) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz", others[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    /* Names that stand for peers without a name, or for all and nobody in the configuration. */
    static const char *const taken[] = {"tcp", "unix", "uid", "cert", "all", "none"};
    size_t length = strlen(text);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (!strcmp(text, taken[i]))
            return false;
    return length && length <= USERS_NAME_MAX && strchr(letters, *text) && strspn(text, others) == length;
}

/* How the key of a row compares with this one. */
typedef int users_order(const struct users *users, unsigned row, const void *key);

static int users_order_name(const struct users *users, unsigned row, const void *key) {
    return strcmp(users->users[row].name, key);
}

static int users_order_token(const struct users *users, unsigned row, const void *key) {
    return strcmp(users->tokens[row].token.id, key);
}

static int users_order_uid(const struct users *users, unsigned row, const void *key) {
    uid_t uid = users->uids[row].uid, other = *(const uid_t *)key;
    return (uid > other) - (uid < other);
}

/* The place of the first row whose key is not below this one. */
static unsigned users_place(const struct users *users, const unsigned *rows, unsigned n, users_order *order,
                            const void *key) {
    unsigned begin = 0;
    for (unsigned end = n; begin < end;) {
        unsigned middle = begin + (end - begin) / 2;
        if (order(users, rows[middle], key) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* The number of the row with this key; -1: there is none. */
static int users_row(const struct users *users, const unsigned *rows, unsigned n, users_order *order, const void *key) {
    unsigned place = users_place(users, rows, n, order, key);
    return place < n && !order(users, rows[place], key) ? (int)rows[place] : -1;
}

/* Makes room for a row more in a list and in its order, and puts the row into the order. */
static int users_add_row(struct users *users, void **list, unsigned **rows, unsigned count, unsigned most, size_t size,
                         const char *what, users_order *order, const void *key, struct fault *fault) {
    int error = users_grow(list, count, most, size, what, fault);
    if (!error)
        error = users_grow((void **)rows, count, most, sizeof **rows, what, fault);
    if (error)
        return error;
    unsigned place = users_place(users, *rows, count, order, key);
    memmove(*rows + place + 1, *rows + place, (count - place) * sizeof **rows);
    (*rows)[place] = count;
    return STATUS_OK;
}

const struct user *users_find(const struct users *users, const char *name) {
    int row = users_row(users, users->by_name, users->n_users, users_order_name, name);
    return row < 0 ? NULL : &users->users[row];
}

/* The end of a section: checks that the user has a role. */
static int users_end(void *owner, struct fault *fault) {
    const struct users *users = owner;
    const struct user *last = users->n_users ? &users->users[users->n_users - 1] : NULL;
    if (last && last->role == ROLE_NONE)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the user %s has no role", last->name);
    return STATUS_OK;
}

static int users_section(void *owner, const char *name, struct fault *fault) {
    struct users *users = owner;
    int error = users_end(users, fault);
    if (error)
        return error;
    if (!users_is_name(name))
        return fault_set(
            fault, STATUS_INVALID_ARGUMENT,
            "\"%.64s\" is no name of a user: a letter, then letters, digits, '.', '_' and '-', at most %d, "
            "in lower case; and not tcp, unix, uid, cert, all or none",
            name, USERS_NAME_MAX);
    if (users_find(users, name))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the user %s is there twice", name);
    error = users_add_row(users, (void **)&users->users, &users->by_name, users->n_users, USERS_MAX,
                          sizeof *users->users, "users", users_order_name, name, fault);
    if (error)
        return error;
    struct user *user = &users->users[users->n_users++];
    *user = (struct user){.role = ROLE_NONE};
    memcpy(user->name, name, strlen(name));
    return STATUS_OK;
}

static int users_set_role(struct user *user, const char *value, struct fault *fault) {
    enum role role = role_parse(value);
    if (role == ROLE_NONE)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "unknown role \"%.64s\" (observe, run or admin)", value);
    if (user->role != ROLE_NONE)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the user %s has two roles", user->name);
    user->role = role;
    return STATUS_OK;
}

static int users_set_id(struct user *user, const char *value, struct fault *fault) {
    size_t length = strlen(value);
    if (length < 8 || length >= sizeof user->id || strspn(value, "0123456789abcdef") != length)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.64s\" is no id of 8 to %zu hexadecimal digits", value,
                         sizeof user->id - 1);
    if (*user->id)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the user %s has two ids", user->name);
    memcpy(user->id, value, length + 1);
    return STATUS_OK;
}

const struct users_token *users_find_token(const struct users *users, const char *id) {
    int row = users_row(users, users->by_token, users->n_tokens, users_order_token, id);
    return row < 0 ? NULL : &users->tokens[row];
}

static int users_add_token(struct users *users, const char *value, struct fault *fault) {
    struct users_token entry = {.user = users->n_users - 1};
    if (!token_record_parse(value, &entry.token))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "this is no token as `tensord user` writes it: ID SALT HASH");
    if (users_find_token(users, entry.token.id))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the token %s is there twice", entry.token.id);
    int error = users_add_row(users, (void **)&users->tokens, &users->by_token, users->n_tokens, USERS_TOKENS_MAX,
                              sizeof *users->tokens, "tokens", users_order_token, entry.token.id, fault);
    if (!error)
        users->tokens[users->n_tokens++] = entry;
    return error;
}

static const struct users_uid *users_find_uid(const struct users *users, uid_t uid) {
    int row = users ? users_row(users, users->by_uid, users->n_uids, users_order_uid, &uid) : -1;
    return row < 0 ? NULL : &users->uids[row];
}

static int users_add_uid(struct users *users, const char *value, struct fault *fault) {
    uint64_t number;
    /* The largest one means "nobody" to the system. */
    int error = config_value_count(value, 0, UINT32_MAX - 1, &number, fault);
    if (error)
        return error;
    const uid_t uid = (uid_t)number;
    const struct users_uid *other = users_find_uid(users, uid);
    if (other)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the uid %s is %s already", value,
                         users->users[other->user].name);
    error = users_add_row(users, (void **)&users->uids, &users->by_uid, users->n_uids, USERS_UIDS_MAX,
                          sizeof *users->uids, "uids", users_order_uid, &uid, fault);
    if (!error)
        users->uids[users->n_uids++] = (struct users_uid){uid, users->n_users - 1};
    return error;
}

static int users_pair(void *owner, const char *key, const char *value, struct fault *fault) {
    struct users *users = owner;
    if (!users->n_users)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.64s\" before the first [user]", key);
    struct user *user = &users->users[users->n_users - 1];
    if (!*value)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.64s\" has no value", key);
    if (!strcmp(key, "role"))
        return users_set_role(user, value, fault);
    if (!strcmp(key, "id"))
        return users_set_id(user, value, fault);
    if (!strcmp(key, "token"))
        return users_add_token(users, value, fault);
    if (!strcmp(key, "uid"))
        return users_add_uid(users, value, fault);
    return limits_set_own(&user->limits, &user->own, key, value, fault);
}

static bool users_ends(const char *text) {
    for (const char *line = text; (line = strstr(line, "\n" USERS_LAST_LINE)); line++)
        if (strchr("\r\n", line[strlen("\n" USERS_LAST_LINE)]))
            return true;
    return false;
}

int users_parse(const char *path, const char *text, struct users **result, struct fault *fault) {
    static const struct ini_file_events events = {.section = users_section, .pair = users_pair, .end = users_end};
    CLEANUP(users_destroy) struct users *users = calloc(1, sizeof *users);
    size_t size = strlen(text);
    /* glibc does not open empty memory, and an empty line means the same. */
    CLEANUP(fclose) FILE *stream = fmemopen((char *)(size ? text : "\n"), size ? size : 1, "r");
    if (!users || !stream)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "%s: no memory to read it", path);
    int error = ini_file_read(stream, path, &events, users, fault);
    users->whole = users_ends(text);
    if (!error)
        *result = TAKE(users);
    return error;
}

/* ---- the file ---- */

static int users_check_file(const char *path, const struct stat *file, bool any_owner, struct fault *fault) {
    if (!S_ISREG(file->st_mode))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: it is no file", path);
    if (file->st_uid != 0 && file->st_uid != geteuid() && !any_owner)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "%s: it belongs to uid %u, and must to root or to the user that tensord runs as", path,
                         file->st_uid);
    if (file->st_mode & 077)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "%s: its mode is %04o, and nobody but its owner may read or write it: chmod 600 %s", path,
                         file->st_mode & 07777, path);
    if (file->st_size > USERS_FILE_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: it has more than %d bytes", path, USERS_FILE_MAX);
    return STATUS_OK;
}

/* Reads the file up to `size` bytes: if it grows meanwhile the rest is ignored. */
static int users_load_text(int fd, const char *path, size_t size, char **result, struct fault *fault) {
    CLEANUP(free) char *text = malloc(size + 1);
    size_t got = 0;
    if (!text)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "%s: no memory to read it", path);
    while (got < size) {
        ssize_t n = read(fd, text + got, size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
        if (n == 0)
            break;
        got += (size_t)n;
    }
    text[got] = 0;
    if (strlen(text) != got)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: there is a NUL byte in it", path);
    *result = TAKE(text);
    return STATUS_OK;
}

int users_load(const char *path, char **text, struct stat *owner, struct fault *fault) {
    struct stat file;
    /* O_NONBLOCK: a pipe at this path must not stop the daemon. */
    CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &file))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
    int error = users_check_file(path, &file, owner && !geteuid(), fault);
    if (!error)
        error = users_load_text(fd, path, (size_t)file.st_size, text, fault);
    if (!error && owner)
        *owner = file;
    return error;
}

int users_check_whole(const char *path, const char *text, struct fault *fault) {
    if (!text[strspn(text, " \t\r\n")])
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "%s: it is empty; where nobody is to come in, a comment says so: \"# no users\"", path);
    if (text[strlen(text) - 1] != '\n')
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "%s: its last line has no end, as of a file that was cut: end it with a newline", path);
    if (!strncmp(text, USERS_FIRST_LINE, strlen(USERS_FIRST_LINE)) && !users_ends(text))
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "%s: it was cut: the line \"" USERS_LAST_LINE "\" is missing, with all that was before it",
                         path);
    return STATUS_OK;
}

int users_read(const char *path, struct users **users, struct fault *fault) {
    CLEANUP(free) char *text = NULL;
    int error = users_load(path, &text, NULL, fault);
    if (!error)
        error = users_check_whole(path, text, fault);
    return error ? error : users_parse(path, text, users, fault);
}

static unsigned users_count_admins(const struct users *users) {
    unsigned n = 0;
    for (unsigned i = 0; i < users->n_users; i++)
        n += users->users[i].role == ROLE_ADMIN;
    return n;
}

int users_check_loss(const char *path, const struct users *before, const struct users *now, struct fault *fault) {
    unsigned lost = 0;
    for (unsigned i = 0; i < before->n_users; i++)
        lost += !users_find(now, before->users[i].name);
    bool admins = users_count_admins(before) && !users_count_admins(now);
    if (now->whole || (lost <= before->n_users / 2 && !admins))
        return STATUS_OK;
    return fault_set(fault, STATUS_INVALID_ARGUMENT,
                     "%s: %u of %u users are missing%s, as in a file that was cut; if that is meant, end the file with "
                     "the line \"" USERS_LAST_LINE "\"",
                     path, lost, before->n_users, admins ? ", and no admin is left" : "");
}

void users_destroy(struct users *users) {
    if (!users)
        return;
    free(users->users);
    free(users->tokens);
    free(users->uids);
    free(users->by_name);
    free(users->by_token);
    free(users->by_uid);
    free(users);
}

/* ---- finding a principal ---- */

static void users_fill(struct principal *principal, const struct user *user, const char *credential) {
    *principal = (struct principal){.role = user->role};
    snprintf(principal->name, sizeof principal->name, "%s", user->name);
    snprintf(principal->id, sizeof principal->id, "%s", user->id);
    snprintf(principal->credential, sizeof principal->credential, "%s", credential);
}

enum users_denial users_by_token(const struct users *users, const char *text, struct principal *principal) {
    char id[TOKEN_ID_CHARS + 1];
    if (!*text)
        return USERS_NO_TOKEN;
    if (!token_text_id(text, id))
        return USERS_MALFORMED;
    const struct users_token *entry = users_find_token(users, id);
    if (!token_verify(entry ? &entry->token : NULL, text))
        return entry ? USERS_WRONG : USERS_UNKNOWN;
    if (token_expired(&entry->token, time(NULL)))
        return USERS_EXPIRED;
    users_fill(principal, &users->users[entry->user], id);
    return USERS_GRANTED;
}

void users_by_uid(const struct users *users, uid_t uid, struct principal *principal) {
    char credential[24];
    const struct users_uid *entry = users_find_uid(users, uid);
    snprintf(credential, sizeof credential, "uid:%u", uid);
    struct user user = {.role = uid == 0 || uid == geteuid() ? ROLE_ADMIN : ROLE_RUN};
    snprintf(user.name, sizeof user.name, "%s", credential);
    users_fill(principal, entry ? &users->users[entry->user] : &user, credential);
}

_Static_assert(PRINCIPAL_NAME_BYTES == PRINCIPAL_CREDENTIAL_BYTES && PRINCIPAL_NAME_BYTES > 5 + TLS_NAME_MAX,
               "a principal's name and credential hold \"cert:\" and any name that a certificate may have");

void users_by_certificate(const struct users *users, const char *name, struct principal *principal) {
    char credential[PRINCIPAL_CREDENTIAL_BYTES];
    const struct user *known = users ? users_find(users, name) : NULL;
    struct user other = {.role = users ? ROLE_NONE : ROLE_RUN};
    snprintf(credential, sizeof credential, "cert:%.*s", TLS_NAME_MAX, name);
    users_fill(principal, known ? known : &other, credential);
    if (!known)
        memcpy(principal->name, credential, sizeof principal->name);
}

void users_limits(const struct users *users, const char *name, const struct limits *everybody, struct limits *limits) {
    const struct user *user = users ? users_find(users, name) : NULL;
    *limits = *everybody;
    if (user)
        limits_overlay(limits, &user->limits, user->own);
}

/* ---- changes between two tables ---- */

static bool users_same(const struct principal *a, const struct principal *b) {
    return a->role == b->role && !strcmp(a->name, b->name) && !strcmp(a->id, b->id);
}

/* Whether the table still has this token; then *means is its principal. */
static bool users_has_token(const struct users *users, const struct users_token *token, int64_t expired,
                            struct principal *means) {
    const struct users_token *is = users_find_token(users, token->token.id);
    if (!is || !token_same(&is->token, &token->token) || token_expired(&is->token, expired))
        return false;
    users_fill(means, &users->users[is->user], is->token.id);
    return true;
}

/* Compares the principals of certificates. The table has no certificates, but the users whose names they have. */
static void users_compare_certificates(const struct users *before, const struct users *now, users_ended *ended,
                                       void *owner) {
    struct principal was, is;
    for (unsigned side = 0; side < 2; side++) {
        const struct users *table = side ? now : before;
        for (unsigned i = 0; i < table->n_users; i++) {
            const char *name = table->users[i].name;
            if (side && users_find(before, name))
                continue; /* was compared already */
            users_by_certificate(before, name, &was);
            users_by_certificate(now, name, &is);
            if (!users_same(&was, &is))
                ended(owner, &was, is.role == ROLE_NONE ? NULL : &is);
        }
    }
}

void users_compare(const struct users *before, const struct users *now, int64_t expired, users_ended *ended,
                   void *owner) {
    struct principal was, is;
    users_compare_certificates(before, now, ended, owner);
    for (unsigned i = 0; i < before->n_tokens; i++) {
        const struct users_token *token = &before->tokens[i];
        const struct user *user = &before->users[token->user];
        if (token_expired(&token->token, expired))
            continue; /* was reported when it expired */
        bool lives = users_has_token(now, token, expired, &is);
        users_fill(&was, user, token->token.id);
        if (!lives || !users_same(&was, &is))
            ended(owner, &was, lives ? &is : NULL);
    }
    for (unsigned side = 0; side < 2; side++) {
        const struct users *table = side ? now : before;
        for (unsigned i = 0; i < table->n_uids; i++) {
            uid_t uid = table->uids[i].uid;
            if (side && users_find_uid(before, uid))
                continue; /* was compared already */
            users_by_uid(before, uid, &was);
            users_by_uid(now, uid, &is);
            if (!users_same(&was, &is))
                ended(owner, &was, &is);
        }
    }
}

void users_expire(const struct users *users, int64_t since, int64_t now, users_ended *ended, void *owner) {
    struct principal was;
    for (unsigned i = 0; i < users->n_tokens; i++) {
        const struct users_token *token = &users->tokens[i];
        if (!token_expired(&token->token, now) || token_expired(&token->token, since))
            continue;
        users_fill(&was, &users->users[token->user], token->token.id);
        ended(owner, &was, NULL);
    }
}
