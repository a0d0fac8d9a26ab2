#include "server/user_command.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "proto/ops/utf8.h"
#include "server/front/config.h"
#include "server/users/config_value.h"
#include "server/users/users_edit.h"

enum { USER_OK, USER_FAILED, USER_USAGE, USER_WORDS_MAX = 2, USER_UIDS_MAX = 16 };

static const char user_usage[] =
    "usage: tensord user COMMAND [OPTION]...\n\n"
    "  add NAME        a new user; prints a token for it, which is shown only once\n"
    "  token NAME      one more token for a user, printed likewise (also: token add NAME)\n"
    "  revoke TOKEN    ends one token, named by its id (see list), or by its whole text\n"
    "  role NAME ROLE  gives a user another role\n"
    "  remove NAME     ends a user with all of its tokens\n"
    "  list            users, roles, uids, and their tokens: ids, when they end and were used, comments\n\n"
    "  --users FILE    the file of users; or else\n"
    "  --config FILE   tensord's configuration, which names the file\n"
    "  --role ROLE     add: observe, run (the default) or admin\n"
    "  --uid UID       add: the user's uid on this host, for Unix sockets; may be repeated\n"
    "  --no-token      add: none yet\n"
    "  --expires TIME  add, token: the token ends after so long (30d, 8h), and its connections with it\n"
    "  --comment TEXT  add, token: the token's purpose, up to 100 bytes\n\n"
    "SIGHUP makes a running daemon read the file again. It then ends the connections of revoked users and tokens.\n";

struct user_words {
    const char *words[USER_WORDS_MAX];
    unsigned n_words;
    const char *file, *role;
    const char *uids[USER_UIDS_MAX];
    unsigned n_uids;
    bool no_token, help;
    uint64_t expires_ms; /* 0: never */
    const char *comment;
    char text[TOKEN_TEXT_CHARS + 1]; /* of the token that was made */
};

/* ---- changes ---- */

static int user_unknown(const char *name, struct fault *fault) {
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "there is no user \"%.64s\"", name);
}

static int user_make_token(struct users_edit *edit, struct user_words *words, const char *name, struct fault *fault) {
    char record[TOKEN_RECORD_BYTES];
    struct token token;
    int error = token_make(&token, words->text, fault);
    if (error)
        return error;
    if (words->expires_ms)
        token.expires = (int64_t)time(NULL) + (int64_t)((words->expires_ms + 999) / 1000);
    snprintf(token.comment, sizeof token.comment, "%s", words->comment ? words->comment : "");
    token_record_write(&token, record);
    return users_edit_add_pair(edit, name, "token", record, fault);
}

static int user_change_add(struct users_edit *edit, void *owner, struct fault *fault) {
    struct user_words *words = owner;
    const char *name = words->words[0];
    enum role role = role_parse(words->role ? words->role : "run");
    if (users_find(edit->users, name))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "there is a user \"%s\" already", name);
    int error = users_edit_add(edit, name, role, fault);
    if (!error)
        error = users_edit_add_id(edit, name, fault);
    for (unsigned i = 0; !error && i < words->n_uids; i++)
        error = users_edit_add_pair(edit, name, "uid", words->uids[i], fault);
    return error || words->no_token ? error : user_make_token(edit, words, name, fault);
}

static int user_change_token(struct users_edit *edit, void *owner, struct fault *fault) {
    struct user_words *words = owner;
    if (!users_find(edit->users, words->words[0]))
        return user_unknown(words->words[0], fault);
    return user_make_token(edit, words, words->words[0], fault);
}

static int user_change_revoke(struct users_edit *edit, void *owner, struct fault *fault) {
    const struct user_words *words = owner;
    char id[TOKEN_ID_CHARS + 1];
    if (token_is_id(words->words[0]))
        memcpy(id, words->words[0], sizeof id);
    else if (!token_text_id(words->words[0], id))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "this is neither a token nor the id of one (see list)");
    if (users_edit_revoke(edit, id))
        return STATUS_OK;
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "no token has the id %s", id);
}

static int user_change_role(struct users_edit *edit, void *owner, struct fault *fault) {
    const struct user_words *words = owner;
    if (!users_find(edit->users, words->words[0]))
        return user_unknown(words->words[0], fault);
    return users_edit_set_role(edit, words->words[0], role_parse(words->words[1]), fault);
}

static int user_change_remove(struct users_edit *edit, void *owner, struct fault *fault) {
    const struct user_words *words = owner;
    if (!users_find(edit->users, words->words[0]))
        return user_unknown(words->words[0], fault);
    users_edit_remove(edit, words->words[0]);
    return STATUS_OK;
}

/* ---- list ---- */

static void user_print_token(const struct token *token, const struct token_use *use) {
    char expires[TOKEN_TIME_BYTES], used[TOKEN_TIME_BYTES];
    token_time_write(token->expires, expires);
    token_time_write(token_use_of(use, token->id), used);
    bool over = token_expired(token, time(NULL));
    printf("    %s  %s %-20s  used %-20s  %s\n", token->id, over ? "expired" : "expires",
           token->expires ? expires : "never", token_use_of(use, token->id) ? used : "never", token->comment);
}

static void user_print(const struct users *users, const struct token_use *use, unsigned number) {
    const struct user *user = &users->users[number];
    const char *separator = "";
    printf("%-*s %-7s uids=", 20, user->name, role_name(user->role));
    for (unsigned i = 0; i < users->n_uids; i++)
        if (users->uids[i].user == number) {
            printf("%s%u", separator, users->uids[i].uid);
            separator = ",";
        }
    printf(" tokens=");
    separator = "";
    for (unsigned i = 0; i < users->n_tokens; i++)
        if (users->tokens[i].user == number) {
            printf("%s%s", separator, users->tokens[i].token.id);
            separator = ",";
        }
    putchar('\n');
    for (unsigned i = 0; i < users->n_tokens; i++)
        if (users->tokens[i].user == number)
            user_print_token(&users->tokens[i].token, use);
}

static int user_list(const char *path, struct fault *fault) {
    CLEANUP(users_destroy) struct users *users = NULL;
    CLEANUP(free) char *text = NULL;
    struct stat owner;
    int error = users_load(path, &text, &owner, fault);
    if (!error)
        error = users_parse(path, text, &users, fault);
    if (error)
        return error;
    struct token_use use;
    token_use_init(&use, path);
    for (unsigned i = 0; i < users->n_users; i++)
        user_print(users, &use, i);
    token_use_finish(&use);
    return STATUS_OK;
}

static const struct user_verb {
    const char *name;
    unsigned n_words;
    int (*change)(struct users_edit *edit, void *owner, struct fault *fault); /* NULL: list */
    bool adds;                                                                /* takes the options of add */
} user_verbs[] = {
    {"add", 1, user_change_add, true},        {"token", 1, user_change_token, false},
    {"revoke", 1, user_change_revoke, false}, {"role", 2, user_change_role, false},
    {"remove", 1, user_change_remove, false}, {"list", 0, NULL, false},
};

/* ---- the command line ---- */

static int user_complain(const char *what, const char *word) {
    fprintf(stderr, "tensord user: %s%s%.64s\n", what, word ? ": " : "", word ? word : "");
    return USER_USAGE;
}

static int user_complain_of(const char *what, const char *word, const char *right) {
    char shown[128];
    utf8_clean(shown, sizeof shown, word);
    fprintf(stderr, "tensord user: %s \"%s\"%s\n", what, shown, right);
    return USER_USAGE;
}

static int user_file_of(const char *path, struct user_words *words) {
    static struct config config;
    struct fault fault;
    config_init(&config);
    config.ignore_devices = true; /* whether the devices exist does not matter here */
    if (config_read(&config, path, &fault))
        return user_complain(fault.message, NULL);
    if (!*config.users)
        return user_complain("this configuration has no key `users`", path);
    words->file = config.users;
    return USER_OK;
}

static int user_expires(const char *value, struct user_words *words) {
    struct fault fault;
    if (config_value_duration(value, 1000, UINT64_C(100) * 366 * 86400000, &words->expires_ms, &fault))
        return user_complain("--expires", fault.message);
    return USER_OK;
}

/* An option with its value, `--name value` or `--name=value`. */
static int user_option(struct user_words *words, const char *name, size_t length, const char *value) {
    if (length == 7 && !strncmp(name, "--users", 7))
        words->file = value;
    else if (length == 8 && !strncmp(name, "--config", 8))
        return user_file_of(value, words);
    else if (length == 6 && !strncmp(name, "--role", 6))
        words->role = value;
    else if (length == 9 && !strncmp(name, "--expires", 9))
        return user_expires(value, words);
    else if (length == 9 && !strncmp(name, "--comment", 9))
        words->comment = value;
    else if (length == 5 && !strncmp(name, "--uid", 5) && words->n_uids < USER_UIDS_MAX)
        words->uids[words->n_uids++] = value;
    else
        return user_complain("no such option, or too many of it", name);
    return USER_OK;
}

static int user_split(struct user_words *words, int count, char **arguments) {
    for (int i = 0; i < count; i++) {
        const char *text = arguments[i], *equals = strchr(text, '=');
        words->help = words->help || !strcmp(text, "--help");
        if (words->help)
            return USER_OK;
        if (!strcmp(text, "--no-token")) {
            words->no_token = true;
        } else if (!strncmp(text, "--", 2)) {
            size_t length = equals ? (size_t)(equals - text) : strlen(text);
            const char *value = equals ? equals + 1 : i + 1 < count ? arguments[++i] : NULL;
            if (!value || !*value)
                return user_complain("an option without its value", text);
            int error = user_option(words, text, length, value);
            if (error)
                return error;
        } else if (words->n_words == USER_WORDS_MAX) {
            return user_complain("too many words", text);
        } else {
            words->words[words->n_words++] = text;
        }
    }
    return USER_OK;
}

static int user_check(const struct user_verb *verb, const struct user_words *words) {
    const char *role = !strcmp(verb->name, "role") ? words->words[1] : words->role;
    if (words->n_words != verb->n_words)
        return user_complain(verb->n_words > words->n_words ? "a word is missing after" : "too many words after",
                             verb->name);
    if (!verb->adds && (words->role || words->n_uids || words->no_token))
        return user_complain("--role, --uid and --no-token are not for", verb->name);
    if (verb->change != user_change_add && verb->change != user_change_token && (words->expires_ms || words->comment))
        return user_complain("--expires and --comment are not for", verb->name);
    if (words->comment && !token_is_comment(words->comment))
        return user_complain("--comment: up to 100 bytes of plain text without ';' and '#'", NULL);
    if (role && role_parse(role) == ROLE_NONE)
        return user_complain_of("unknown role", role, " (observe, run or admin)");
    if (verb->adds && !users_is_name(words->words[0]))
        return user_complain_of("invalid user name", words->words[0],
                                ": a letter, then letters, digits, '.', '_', '-', in lower case");
    if (!words->file)
        return user_complain("which file? Say --users FILE, or --config FILE", NULL);
    return USER_OK;
}

static const struct user_verb *user_find_verb(const char *name) {
    for (size_t i = 0; i < sizeof user_verbs / sizeof *user_verbs; i++)
        if (!strcmp(user_verbs[i].name, name))
            return &user_verbs[i];
    return NULL;
}

static int user_run(const struct user_verb *verb, struct user_words *words) {
    struct fault fault = {0};
    int error = verb->change ? users_edit(words->file, verb->adds, verb->change, words, &fault)
                             : user_list(words->file, &fault);
    /* The file has the token now, so a failure to print its text must be reported. */
    if (!error && ((*words->text && puts(words->text) < 0) || fflush(stdout)))
        error = fault_set(&fault, STATUS_INTERNAL, "the output cannot be written; a token that was made is not known");
    OPENSSL_cleanse(words->text, sizeof words->text);
    if (error)
        fprintf(stderr, "tensord user: %s\n", fault.message);
    return error ? USER_FAILED : USER_OK;
}

int user_command(int count, char **arguments) {
    struct user_words words = {.n_words = 0};
    const struct user_verb *verb = count && strcmp(arguments[0], "--help") != 0 ? user_find_verb(arguments[0]) : NULL;
    if (!verb && count && strcmp(arguments[0], "--help") != 0)
        return user_complain("no such command", arguments[0]);
    int error = verb ? user_split(&words, count - 1, arguments + 1) : USER_OK;
    if (!verb || words.help) {
        fputs(user_usage, count ? stdout : stderr);
        return count ? USER_OK : USER_USAGE;
    }
    if (verb->change == user_change_token && words.n_words == 2 && !strcmp(words.words[0], "add"))
        words.words[0] = words.words[--words.n_words];
    if (!error)
        error = user_check(verb, &words);
    return error ? error : user_run(verb, &words);
}
