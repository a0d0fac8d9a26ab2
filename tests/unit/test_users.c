/* The file of users: what is read, what is refused, and how it is changed. */
#include "server/users/identities.h"
#include "server/users/users_edit.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SALT "000102030405060708090a0b0c0d0e0f"
#define HASH "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define RECORD(id) id " " SALT " " HASH
#define ALICE "[alice]\nrole = run\n"

static char directory[] = "/tmp/tensord-test-users-XXXXXX", path[64];

static void setup(void) {
    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/users", directory);
}
static void teardown(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    cr_assert_eq(system(command), 0);
}
TestSuite(users, .init = setup, .fini = teardown, .timeout = 60);

static void put(const char *text, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    fchmod(fd, mode);
    close(fd);
}

static char *get(void) {
    struct fault fault;
    char *text = NULL;
    cr_assert_eq(users_load(path, &text, NULL, &fault), STATUS_OK, "%s", fault.message);
    return text;
}

/* ---- tokens ---- */

Test(users, a_token_is_known_by_its_text_alone_and_by_nothing_else) {
    struct token token, other;
    struct fault fault;
    char text[TOKEN_TEXT_CHARS + 1], second[TOKEN_TEXT_CHARS + 1], id[TOKEN_ID_CHARS + 1], record[TOKEN_RECORD_BYTES];
    cr_assert_eq(token_make(&token, text, &fault), STATUS_OK);
    cr_assert_eq(token_make(&other, second, &fault), STATUS_OK);
    cr_assert(!strncmp(text, "tensord_", 8) && strlen(text) == TOKEN_TEXT_CHARS);
    cr_assert(token_text_id(text, id));
    cr_assert_str_eq(id, token.id);
    cr_assert(token_verify(&token, text) && token_verify(&other, second));
    cr_assert(!token_verify(&other, text) && !token_verify(&token, second) && !token_verify(NULL, text));
    token_record_write(&token, record);
    cr_assert(!strstr(record, text + TOKEN_TEXT_CHARS - TOKEN_SECRET_CHARS), "the secret itself is kept");
    cr_assert(token_record_parse(record, &other) && !memcmp(&other, &token, sizeof token));
    for (unsigned i = TOKEN_TEXT_CHARS - TOKEN_SECRET_CHARS; i < TOKEN_TEXT_CHARS; i++) {
        char wrong[TOKEN_TEXT_CHARS + 1];
        memcpy(wrong, text, sizeof wrong);
        wrong[i] = wrong[i] == '0' ? '1' : '0';
        cr_assert(token_text_id(wrong, id) && !token_verify(&token, wrong), "character %u does not count", i);
    }
}

Test(users, the_hash_is_sha256_of_salt_and_secret) {
    /* printf '\x00…\x0f0123…' | sha256sum, with the salt and the secret below */
    static const char record[] = "00c0ffee " SALT " "
                                 "2fc13bdced4c1dc74ef419b1aabb0831f324e00bc9c685a0cb59e6125bf0252e";
    struct token token;
    cr_assert(token_record_parse(record, &token));
    cr_assert(
        token_verify(&token, "tensord_00c0ffee_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"));
}

Test(users, what_is_no_token_is_seen_as_such) {
    static const char *const wrong[] = {
        "",
        "tensord_",
        "tensord_00c0ffee",
        "tensord_00c0ffee_",
        "tensord_00c0ffee_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde",   /* too short */
        "tensord_00c0ffee_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0", /* too long */
        "tensord_00C0FFEE_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "tensord_00c0ffee-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "TENSORD_00c0ffee_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "tensord_00c0ffee_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeg",
    };
    char id[TOKEN_ID_CHARS + 1];
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert(!token_text_id(wrong[i], id), "%s", wrong[i]);
}

/* ---- reading ---- */

Test(users, a_file_says_who_somebody_is) {
    static const char text[] = "# people\n" ALICE "  token = " RECORD("00000001") "\ntoken=" RECORD(
        "00000002") " ; old\n"
                    "uid = 1000\n\n[bob-2]\nuid: 7\nrole = admin\nuid = 4294967294\n";
    struct users *users;
    struct principal principal;
    struct fault fault;
    put(text, 0600);
    cr_assert_eq(users_read(path, &users, &fault), STATUS_OK, "%s", fault.message);
    cr_assert(users->n_users == 2 && users->n_tokens == 2 && users->n_uids == 3);
    cr_assert_eq(users_find(users, "bob-2")->role, ROLE_ADMIN);
    cr_assert_null(users_find(users, "carol"));
    users_by_uid(users, 1000, &principal);
    cr_assert_str_eq(principal.name, "alice");
    cr_assert_str_eq(principal.credential, "uid:1000");
    cr_assert_eq(principal.role, ROLE_RUN);
    users_by_uid(users, 4294967294, &principal);
    cr_assert_str_eq(principal.name, "bob-2");
    users_destroy(users);
}

Test(users, an_empty_file_is_one_that_was_cut) {
    static const char *const texts[] = {"", "\n", " \r\n\t\n"};
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct users *users = NULL;
        struct fault fault;
        put(texts[i], 0600);
        cr_assert_eq(users_read(path, &users, &fault), STATUS_INVALID_ARGUMENT);
        cr_assert(strstr(fault.message, "it is empty") && !users, "%s", fault.message);
    }
}

Test(users, a_token_has_a_time_and_a_comment) {
    struct token token, read;
    char text[TOKEN_TEXT_CHARS + 1], record[TOKEN_RECORD_BYTES], file[TOKEN_RECORD_BYTES + 64];
    struct principal principal;
    struct users *users;
    struct fault fault;
    for (int past = 0; past < 2; past++) {
        cr_assert_eq(token_make(&token, text, &fault), STATUS_OK);
        token.expires = 4102444800 - past * INT64_C(3000000000); /* 2100, and 2004 */
        strcpy(token.comment, "laptop of alice = gr\xc3\xbcn");
        token_record_write(&token, record);
        cr_assert(
            strstr(record, past ? " expires=2004-12-07T18:40:00Z comment=laptop" : " expires=2100-01-01T00:00:00Z "),
            "%s", record);
        cr_assert(token_record_parse(record, &read) && read.expires == token.expires);
        cr_assert_str_eq(read.comment, token.comment);
        snprintf(file, sizeof file, "[alice]\nrole = run\ntoken = %s\n", record);
        cr_assert_eq(users_parse("users", file, &users, &fault), STATUS_OK, "%s", fault.message);
        cr_assert_eq(users_by_token(users, text, &principal), past ? USERS_EXPIRED : USERS_GRANTED);
        users_destroy(users);
    }
    cr_assert(!token_record_parse("5d1c20aa", &read));
    strcpy(strstr(record, " expires="), " expires=tomorrow");
    cr_assert(!token_record_parse(record, &read));
    strcpy(strstr(record, " expires="), " junk");
    cr_assert(!token_record_parse(record, &read));
    cr_assert(!token_is_comment("two\nlines") && !token_is_comment("a;b") && !token_is_comment("\xe2\x80\xae"));
}

Test(users, a_comment_is_a_file_without_users) {
    struct users *users;
    struct fault fault;
    put("# no users\n", 0600);
    cr_assert_eq(users_read(path, &users, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(users->n_users, 0);
    users_destroy(users);
}

Test(users, a_uid_without_a_user_is_its_own_principal) {
    struct principal principal;
    users_by_uid(NULL, 54321, &principal);
    cr_assert_str_eq(principal.name, "uid:54321");
    cr_assert_eq(principal.role, ROLE_RUN);
    users_by_uid(NULL, 0, &principal);
    cr_assert_eq(principal.role, ROLE_ADMIN);
    users_by_uid(NULL, geteuid(), &principal);
    cr_assert_eq(principal.role, ROLE_ADMIN);
}

Test(users, a_malformed_file_is_refused_with_its_line) {
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"role = run\n", ":1: \"role\" before the first [user]"},
        {"[alice]\nrole = king\n", ":2: unknown role \"king\" (observe, run or admin)"},
        {"[alice]\nrole =\n", ":2: \"role\" has no value"},
        {"[alice]\n", ":1: the user alice has no role"},
        {"[alice]\nuid = 1\n[bob]\nrole = run\n", ":3: the user alice has no role"},
        {ALICE "[bob]\n", ":3: the user bob has no role"},
        {ALICE "role = admin\n", ":3: the user alice has two roles"},
        {ALICE ALICE, ":3: the user alice is there twice"},
        {ALICE "[bob]\nrole = run\n[alice]\nuid = 3\n", ":5: the user alice is there twice"},
        {ALICE "id = 12\n", ":3: \"12\" is no id"},
        {ALICE "id = 0123456789ABCDEF\n", ":3: \"0123456789ABCDEF\" is no id"},
        {ALICE "id = 01234567\nid = 01234567\n", ":4: the user alice has two ids"},
        {"[]\nrole = run\n", ":1: \"\" is no name"},
        {"[Alice]\nrole = run\n", ":1: \"Alice\" is no name"},
        {"[ alice ]\nrole = run\n", ":1: \" alice \" is no name"},
        {"[al ice]\nrole = run\n", ":1: \"al ice\" is no name"},
        {"[uid:0]\nrole = run\n", ":1: \"uid:0\" is no name"},
        {"[tcp]\nrole = run\n", ":1: \"tcp\" is no name"},
        {"[all]\nrole = run\n", ":1: \"all\" is no name"},
        {"[1st]\nrole = run\n", ":1: \"1st\" is no name"},
        {"[abcdefghijklmnopqrstuvwxyz0123456]\nrole = run\n", ":1: \"abcdef"},
        {"[alice\nrole = run\n", ":1: neither"},
        {ALICE "colour = red\n", ":3: unknown key \"colour\""},
        {ALICE "uid = root\n", ":3: \"root\" is not a number"},
        {ALICE "uid = -1\n", ":3: \"-1\" is not a number"},
        {ALICE "uid = 4294967295\n", ":3: \"4294967295\" is not a number"},
        {ALICE "uid = 1\n[bob]\nrole = run\nuid = 1\n", ":6: the uid 1 is alice already"},
        {ALICE "token = secret\n", ":3: this is no token"},
        {ALICE "token = " RECORD("0000000g") "\n", ":3: this is no token"},
        {ALICE "token = " RECORD("00000001") "00\n", ":3: this is no token"},
        {ALICE "token = " RECORD("00000001") "\ntoken = " RECORD("00000001") "\n", ":4: the token 00000001 is there"},
        {ALICE "nonsense\n", ":3: neither"},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct users *users = NULL;
        struct fault fault = {.message = ""};
        put(rows[i].text, 0600);
        cr_expect_eq(users_read(path, &users, &fault), STATUS_INVALID_ARGUMENT, "row %u is taken", i);
        const char *rest = fault.message + strlen(path);
        cr_expect(!strncmp(fault.message, path, strlen(path)) &&
                      !strncmp(rest, rows[i].message, strlen(rows[i].message)),
                  "row %u: %s", i, fault.message);
    }
}

Test(users, a_file_that_others_may_read_is_refused) {
    static const mode_t modes[] = {0644, 0640, 0604, 0620, 0602, 0660, 0666, 0601};
    struct users *users;
    struct fault fault;
    for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
        put(ALICE, modes[i]);
        cr_expect_eq(users_read(path, &users, &fault), STATUS_INVALID_ARGUMENT, "mode %o", modes[i]);
        cr_expect(strstr(fault.message, "chmod 600"), "%s", fault.message);
    }
    put(ALICE, 0400);
    cr_assert_eq(users_read(path, &users, &fault), STATUS_OK, "%s", fault.message);
    users_destroy(users);
}

Test(users, a_file_of_somebody_else_is_refused) {
    struct users *users;
    struct fault fault;
    put(ALICE, 0600);
    if (chown(path, 54321, (gid_t)-1))
        cr_skip_test("only root can give a file away");
    cr_assert_eq(users_read(path, &users, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "belongs to uid 54321"), "%s", fault.message);
}

Test(users, what_is_no_file_is_refused) {
    struct users *users;
    struct fault fault;
    cr_assert_eq(users_read(path, &users, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "No such file"), "%s", fault.message);
    cr_assert_eq(users_read(directory, &users, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(!mkfifo(path, 0600));
    cr_assert_eq(users_read(path, &users, &fault), STATUS_INVALID_ARGUMENT); /* and does not wait for a writer */
    cr_assert(strstr(fault.message, "no file"), "%s", fault.message);
}

Test(users, a_nul_byte_or_too_much_of_it_is_refused) {
    struct users *users;
    struct fault fault;
    put(ALICE "# x\n", 0600);
    int fd = open(path, O_WRONLY | O_APPEND);
    cr_assert_eq(write(fd, "\0[eve]\nrole = admin\n", 20), 20);
    close(fd);
    cr_assert_eq(users_read(path, &users, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "NUL"), "%s", fault.message);
    cr_assert(!truncate(path, USERS_FILE_MAX + 1));
    cr_assert_eq(users_read(path, &users, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "more than"), "%s", fault.message);
}

Test(users, more_users_than_there_may_be_are_refused) {
    static char text[(USERS_MAX + 1) * 40];
    size_t used = 0;
    struct users *users;
    struct fault fault;
    for (unsigned i = 0; i < USERS_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "[u%u]\nrole = run\n", i);
    cr_assert_eq(users_parse("f", text, &users, &fault), STATUS_OK, "%s", fault.message);
    users_destroy(users);
    snprintf(text + used, sizeof text - used, "[another]\nrole = run\n");
    cr_assert_eq(users_parse("f", text, &users, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "more than 1024 users"), "%s", fault.message);
}

static unsigned comparisons;
int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b) {
    comparisons++;
    return __real_strcmp(a, b);
}

/* The front looks for users often, and others wait meanwhile. */
Test(users, one_of_many_is_found_in_a_few_steps) {
    enum { MANY = USERS_MAX, STEPS = 12 };
    static char text[MANY * 256];
    size_t used = 0;
    struct users *users;
    struct fault fault;
    for (unsigned k = 0; k < MANY; k++) {
        unsigned i = k * 389 % MANY; /* in no order */
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "[u%u]\nrole = run\nuid = %u\ntoken = %08x " SALT " " HASH "\n", i, 100000 + i, i);
    }
    cr_assert_eq(users_parse("f", text, &users, &fault), STATUS_OK, "%s", fault.message);
    for (unsigned i = 0; i < MANY; i++) {
        struct principal principal;
        char name[16], id[16];
        snprintf(name, sizeof name, "u%u", i);
        snprintf(id, sizeof id, "%08x", i);
        comparisons = 0;
        const struct user *user = users_find(users, name);
        cr_assert(comparisons <= STEPS, "%u comparisons", comparisons);
        cr_assert(user && !__real_strcmp(user->name, name));
        comparisons = 0;
        const struct users_token *token = users_find_token(users, id);
        cr_assert(comparisons <= STEPS, "%u comparisons", comparisons);
        cr_assert(token && &users->users[token->user] == user);
        users_by_uid(users, 100000 + i, &principal);
        cr_assert_str_eq(principal.name, name);
    }
    cr_assert_null(users_find(users, "u"));
    cr_assert_null(users_find(users, "zed"));
    cr_assert_null(users_find_token(users, "ffffffff"));
    users_destroy(users);
}

/* Whatever a byte of it becomes: taken whole, or refused with words. */
Test(users, a_file_with_a_byte_changed_is_taken_or_refused) {
    static const char whole[] =
        "# people\n" ALICE "token = " RECORD("00000001") " ; old\nuid = 1000\n\n[bob]\nrole=admin\n";
    static const char bytes[] = {1, '\n', '\r', ' ', '[', ']', '=', ';', '#', '0', 'z', '\x7f', '\xff'};
    char text[sizeof whole];
    for (unsigned i = 0; i + 1 < sizeof whole; i++)
        for (unsigned k = 0; k < sizeof bytes; k++) {
            struct users *users = NULL;
            struct fault fault = {.message = ""};
            memcpy(text, whole, sizeof whole);
            text[i] = bytes[k];
            int error = users_parse("f", text, &users, &fault);
            cr_assert(error ? !users && !strncmp(fault.message, "f:", 2) && strlen(fault.message) > 4 : users != NULL,
                      "byte %u as %d: %s", i, bytes[k], fault.message);
            users_destroy(users);
        }
}

/* ---- what ends when a file changes ---- */

struct ended {
    char text[512];
};
static void note(void *owner, const struct principal *principal, const struct principal *is) {
    (void)is;
    struct ended *ended = owner;
    size_t used = strlen(ended->text);
    snprintf(ended->text + used, sizeof ended->text - used, "%s/%s ", principal->name, principal->credential);
}

Test(users, what_a_change_ends) {
    static const char before[] = "[alice]\nrole = run\ntoken = " RECORD("00000001") "\ntoken = " RECORD(
        "00000002") "\n"
                    "uid = 11\n[bob]\nrole = observe\ntoken = " RECORD("00000003") "\nuid = 12\n";
    static const struct {
        const char *now, *ended;
    } rows[] = {
        {before, ""},
        {"[bob]\nuid = 12\nrole = observe\ntoken = " RECORD("00000003") "\n[alice]\nrole = run\nuid = 11\ntoken "
                                                                        "= " RECORD("00000002") "\ntoken = " RECORD(
                                                                            "00000001") "\n",
         ""}, /* another order is no change */
        {"[alice]\nrole = run\ntoken = " RECORD("00000001") "\nuid = 11\n[bob]\nrole = observe\ntoken = " RECORD(
             "00000003") "\nuid = 12\n",
         "alice/00000002 "},
        {"[alice]\nrole = run\ntoken = " RECORD("00000001") "\ntoken = " RECORD("00000002") "\nuid = 11\n",
         "bob/cert:bob bob/00000003 bob/uid:12 "},
        {"[alice]\nrole = observe\ntoken = " RECORD("00000001") "\ntoken = " RECORD(
             "00000002") "\nuid = 11\n[bob]\nrole = observe\ntoken = " RECORD("00000003") "\nuid = 12\n",
         "alice/cert:alice alice/00000001 alice/00000002 alice/uid:11 "},
        {"[alice]\nrole = run\ntoken = " RECORD("00000001") "\ntoken = " RECORD(
             "00000002") "\nuid = 11\nuid = 13\n[bob]\nrole = observe\ntoken = " RECORD("00000003") "\nuid = 12\n",
         "uid:13/uid:13 "}, /* who was nobody in particular is alice now */
        {"[alice]\nrole = run\ntoken = " RECORD("00000001") "\nuid = 11\n[bob]\nrole = observe\ntoken = " RECORD(
             "00000003") "\ntoken = " RECORD("00000002") "\nuid = 12\n",
         "alice/00000002 "}, /* handed to bob */
        {"[alice]\nrole = run\ntoken = 00000001 ffffffffffffffffffffffffffffffff " HASH "\ntoken = " RECORD(
             "00000002") "\nuid = 11\n[bob]\nrole = observe\ntoken = " RECORD("00000003") "\nuid = 12\n",
         "alice/00000001 "}, /* another secret under the old id */
    };
    struct users *old, *now;
    struct fault fault;
    cr_assert_eq(users_parse("before", before, &old, &fault), STATUS_OK, "%s", fault.message);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ended ended = {""};
        cr_assert_eq(users_parse("now", rows[i].now, &now, &fault), STATUS_OK, "row %u: %s", i, fault.message);
        users_compare(old, now, 0, note, &ended);
        cr_expect_str_eq(ended.text, rows[i].ended, "row %u: %s", i, ended.text);
        users_destroy(now);
    }
    users_destroy(old);
}

/* A token whose time has ended, but of which nobody has been told so far, and a change of the file before that. */
Test(users, a_change_forgets_no_token_whose_time_has_ended) {
    static const char *const now[] = {
        "[alice]\nrole = run\ntoken = " RECORD("00000001") " expires=2004-12-07T18:40:00Z\n", "[alice]\nrole = run\n",
        "[alice]\nrole = run\ntoken = " RECORD("00000001") "\n"};
    static const struct {
        unsigned table;
        int64_t told; /* of times until then, */
        const char *changed, *expired;
    } rows[] = {
        {0, 1102444799, "", "alice/00000001 "},
        {0, 1102444800, "", ""},
        {1, 1102444799, "alice/00000001 ", ""},
        {1, 1102444800, "", ""},
        {2, 1102444799, "", ""}, /* it goes on */
    };
    struct users *before, *after;
    struct fault fault;
    cr_assert_eq(users_parse("before", now[0], &before, &fault), STATUS_OK, "%s", fault.message);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ended changed = {""}, expired = {""};
        cr_assert_eq(users_parse("now", now[rows[i].table], &after, &fault), STATUS_OK, "%s", fault.message);
        users_compare(before, after, rows[i].told, note, &changed);
        users_expire(after, rows[i].told, 1102444801, note, &expired);
        cr_expect_str_eq(changed.text, rows[i].changed, "row %u: %s", i, changed.text);
        cr_expect_str_eq(expired.text, rows[i].expired, "row %u: %s", i, expired.text);
        users_destroy(after);
    }
    users_destroy(before);
}

/* ---- changes ---- */

static int add_bob(struct users_edit *edit, void *owner, struct fault *fault) {
    (void)owner;
    int error = users_edit_add(edit, "bob", ROLE_OBSERVE, fault);
    return error ? error : users_edit_add_pair(edit, "bob", "token", RECORD("0000000b"), fault);
}
static int remove_alice(struct users_edit *edit, void *owner, struct fault *fault) {
    (void)owner, (void)fault;
    users_edit_remove(edit, "alice");
    return STATUS_OK;
}
static int change_alice(struct users_edit *edit, void *owner, struct fault *fault) {
    (void)owner;
    int error = users_edit_set_role(edit, "alice", ROLE_ADMIN, fault);
    cr_assert(users_edit_revoke(edit, "00000001") && !users_edit_revoke(edit, "00000001"));
    return error;
}
static int spoil(struct users_edit *edit, void *owner, struct fault *fault) {
    (void)owner;
    return users_edit_add_pair(edit, "alice", "colour", "red", fault);
}

Test(users, a_change_leaves_the_rest_of_the_file_as_it_was) {
    struct fault fault;
    put("# ours\n[alice] ; the first\nrole = run\ntoken = " RECORD(
            "00000001") "\n\n# bob's deputy\n[carol]\nrole = run\n",
        0600);
    cr_assert_eq(users_edit(path, false, add_bob, NULL, &fault), STATUS_OK, "%s", fault.message);
    char *text = get();
    cr_assert_str_eq(text, USERS_FIRST_LINE "\n# ours\n[alice] ; the first\nrole = run\ntoken = " RECORD(
                               "00000001") "\n\n# bob's deputy\n[carol]\nrole = run\n\n[bob]\nrole = observe\ntoken "
                                           "= " RECORD("0000000b") "\n" USERS_LAST_LINE "\n");
    free(text);
    cr_assert_eq(users_edit(path, false, change_alice, NULL, &fault), STATUS_OK, "%s", fault.message);
    text = get();
    cr_assert(strstr(text, "[alice] ; the first\nrole = admin\n\n# bob's deputy\n[carol]"), "%s", text);
    free(text);
    cr_assert_eq(users_edit(path, false, remove_alice, NULL, &fault), STATUS_OK, "%s", fault.message);
    text = get();
    cr_assert(strstr(text, "\n# ours\n# bob's deputy\n[carol]"), "%s", text);
    free(text);
}

/* As a disk that is full leaves it, or a copy that was interrupted: who would be missing shall not be thrown out. */
Test(users, a_file_that_was_cut_anywhere_is_refused) {
    struct users *users;
    struct fault fault;
    put(ALICE "[carol]\nrole = run\n", 0600);
    cr_assert_eq(users_edit(path, false, add_bob, NULL, &fault), STATUS_OK, "%s", fault.message);
    char *text = get();
    for (size_t bytes = strlen(text); bytes-- > 0;) {
        text[bytes] = 0;
        put(text, 0600);
        cr_assert_eq(users_read(path, &users, &fault), STATUS_INVALID_ARGUMENT, "cut to %s", text);
        cr_assert(!bytes || users_edit(path, false, add_bob, NULL, &fault), "what is left of it is changed: %s", text);
    }
    free(text);
}

/* The ids that users of this text get. */
static void identify(struct identities *identities, const char *text, char ids[2][PRINCIPAL_ID_BYTES]) {
    struct users *users;
    struct fault fault;
    cr_assert_eq(users_parse("users", text, &users, &fault), STATUS_OK, "%s", fault.message);
    identities_apply(identities, users);
    for (unsigned i = 0; i < users->n_users; i++)
        memcpy(ids[i], users->users[i].id, sizeof ids[i]);
    users_destroy(users);
}

Test(users, who_comes_after_a_user_without_an_id_gets_one_and_keeps_it) {
    static const char both[] = "[alice]\nrole = run\n[bob]\nrole = run\nid = 0123456789abcdef\n",
                      one[] = "[bob]\nrole = run\nid = 0123456789abcdef\n";
    struct identities identities;
    struct fault fault;
    char ids[2][PRINCIPAL_ID_BYTES], first[PRINCIPAL_ID_BYTES], file[80];
    cr_assert_eq(identities_init(&identities, directory, &fault), STATUS_OK, "%s", fault.message);
    identify(&identities, both, ids);
    cr_assert_str_eq(ids[0], "");
    identify(&identities, both, ids);
    cr_assert_str_eq(ids[0], "");
    identify(&identities, one, ids);
    identify(&identities, both, ids);
    cr_assert_eq(strlen(ids[0]), 16);
    cr_assert_str_eq(ids[1], "0123456789abcdef", "it has its own");
    memcpy(first, ids[0], sizeof first);
    identities_finish(&identities);
    cr_assert_eq(identities_init(&identities, directory, &fault), STATUS_OK, "%s", fault.message);
    identify(&identities, both, ids);
    cr_assert_str_eq(ids[0], first);
    identify(&identities, one, ids);
    identities_finish(&identities);
    cr_assert_eq(identities_init(&identities, directory, &fault), STATUS_OK, "%s", fault.message);
    identify(&identities, both, ids);
    cr_assert(strlen(ids[0]) == 16 && strcmp(ids[0], first) != 0, "the third is the second");
    identities_finish(&identities);
    snprintf(file, sizeof file, "%s/identities", directory);
    cr_assert_eq(truncate(file, 10), 0);
    cr_assert_eq(identities_init(&identities, directory, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "damaged"), "%s", fault.message);
    identities_finish(&identities);
    unlink(file);
}

#define NAMED(name, role) "[" name "]\nrole = " role "\n"

Test(users, a_change_that_leaves_less_than_half_of_them_or_no_admin_needs_the_last_line) {
    static const char before[] = NAMED("a", "run") NAMED("b", "run") NAMED("c", "admin") NAMED("d", "admin");
    static const struct {
        const char *now;
        bool taken;
    } rows[] = {
        {NAMED("a", "run") NAMED("b", "run") NAMED("c", "admin"), true},
        {NAMED("a", "run") NAMED("c", "admin"), true},
        {NAMED("c", "admin"), false},
        {NAMED("c", "admin") NAMED("e", "run") NAMED("f", "run") NAMED("g", "run"), false},
        {NAMED("a", "run") NAMED("b", "run"), false},
        {NAMED("a", "run") NAMED("b", "run") NAMED("c", "run") NAMED("d", "run"), false},
        {NAMED("a", "run") NAMED("b", "run") NAMED("e", "admin"), true},
        {"# nobody\n", false},
        {"# nobody\n" USERS_LAST_LINE "\n", true},
        {NAMED("c", "admin") USERS_LAST_LINE "\n", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct users *was, *now;
        struct fault fault = {0};
        cr_assert_eq(users_parse("before", before, &was, &fault), STATUS_OK, "%s", fault.message);
        cr_assert_eq(users_parse("now", rows[i].now, &now, &fault), STATUS_OK, "%s", fault.message);
        cr_assert_eq(users_check_loss("now", was, now, &fault) == STATUS_OK, rows[i].taken, "%zu: %s", i,
                     fault.message);
        users_destroy(was);
        users_destroy(now);
    }
}

Test(users, what_is_added_by_hand_behind_the_last_line_counts) {
    struct users *users;
    struct fault fault;
    put(USERS_FIRST_LINE "\n" ALICE USERS_LAST_LINE "\n[carol]\nrole = run\n", 0600);
    cr_assert_eq(users_read(path, &users, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(users->n_users, 2);
    users_destroy(users);
    cr_assert_eq(users_edit(path, false, add_bob, NULL, &fault), STATUS_OK, "%s", fault.message);
    char *text = get();
    cr_assert_gt(strstr(text, "\n" USERS_LAST_LINE "\n"), strstr(text, "[carol]"));
    free(text);
}

Test(users, a_change_makes_a_new_file_of_mode_600_and_leaves_no_other) {
    struct fault fault;
    struct stat before, after;
    char command[160];
    umask(0);
    cr_assert_eq(users_edit(path, true, add_bob, NULL, &fault), STATUS_OK, "%s", fault.message);
    cr_assert(!stat(path, &before) && (before.st_mode & 07777) == 0600);
    put(ALICE "token = " RECORD("00000001") "\n", 0600);
    cr_assert(!stat(path, &before));
    cr_assert_eq(users_edit(path, false, change_alice, NULL, &fault), STATUS_OK, "%s", fault.message);
    cr_assert(!stat(path, &after) && (after.st_mode & 07777) == 0600);
    cr_assert_neq(before.st_ino, after.st_ino, "the file was written in place");
    snprintf(command, sizeof command, "test \"$(ls -A %s)\" = users", directory);
    cr_assert_eq(system(command), 0, "something was left beside it");
}

Test(users, a_change_that_would_spoil_the_file_changes_nothing) {
    struct fault fault;
    struct stat before, after;
    char command[160];
    put(ALICE, 0600);
    cr_assert(!stat(path, &before));
    cr_assert_eq(users_edit(path, false, spoil, NULL, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(!stat(path, &after));
    cr_assert_eq(before.st_ino, after.st_ino);
    put("[alice]\n", 0600); /* nor is one repaired that is wrong already */
    cr_assert_eq(users_edit(path, false, add_bob, NULL, &fault), STATUS_INVALID_ARGUMENT);
    put(ALICE, 0644); /* or one that others could read */
    cr_assert_eq(users_edit(path, false, add_bob, NULL, &fault), STATUS_INVALID_ARGUMENT);
    snprintf(command, sizeof command, "test \"$(ls -A %s)\" = users", directory);
    cr_assert_eq(system(command), 0, "something was left beside it");
}

Test(users, a_file_that_must_be_there_is_not_made) {
    struct fault fault;
    cr_assert_eq(users_edit(path, false, add_bob, NULL, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(access(path, F_OK));
}

Test(users, a_link_to_the_file_stays_one) {
    struct fault fault;
    struct stat file;
    char link[80];
    put(ALICE, 0600);
    snprintf(link, sizeof link, "%s/link", directory);
    cr_assert(!symlink("users", link));
    cr_assert_eq(users_edit(link, false, add_bob, NULL, &fault), STATUS_OK, "%s", fault.message);
    cr_assert(!lstat(link, &file) && S_ISLNK(file.st_mode));
    char *text = get();
    cr_assert(strstr(text, "[bob]"));
    free(text);
}

Test(users, root_makes_the_file_for_whom_the_folder_belongs_to) {
    struct fault fault;
    struct stat file;
    if (geteuid() || chown(directory, 54321, 54321))
        cr_skip_test("only root can give a folder away");
    cr_assert_eq(users_edit(path, true, add_bob, NULL, &fault), STATUS_OK, "%s", fault.message);
    cr_assert(!stat(path, &file) && file.st_uid == 54321 && file.st_gid == 54321 && (file.st_mode & 07777) == 0600);
}

Test(users, root_leaves_the_file_to_whom_it_belongs) {
    struct fault fault;
    struct stat file;
    put(ALICE, 0600);
    if (geteuid() || chown(path, 54321, 54321))
        cr_skip_test("only root can give a file away");
    cr_assert_eq(users_edit(path, false, add_bob, NULL, &fault), STATUS_OK, "%s", fault.message);
    cr_assert(!stat(path, &file) && file.st_uid == 54321 && file.st_gid == 54321);
}

static int add_numbered(struct users_edit *edit, void *owner, struct fault *fault) {
    char name[16];
    snprintf(name, sizeof name, "user%d", *(int *)owner);
    return users_edit_add(edit, name, ROLE_RUN, fault);
}

Test(users, changes_at_the_same_time_are_all_made) {
    enum { WRITERS = 8, EACH = 5 };
    struct users *users;
    struct fault fault;
    put("", 0600);
    for (int writer = 0; writer < WRITERS; writer++) {
        if (fork())
            continue;
        for (int i = 0; i < EACH; i++) {
            int number = writer * EACH + i;
            if (users_edit(path, true, add_numbered, &number, &fault))
                _exit(1);
        }
        _exit(0);
    }
    for (int writer = 0, status; writer < WRITERS; writer++)
        cr_assert(wait(&status) > 0 && status == 0);
    cr_assert_eq(users_read(path, &users, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(users->n_users, WRITERS * EACH);
    users_destroy(users);
}
