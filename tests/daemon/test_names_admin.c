/* Names in the hands of administrators, and of users who have gone. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/users/principal.h"
#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"

_Static_assert(TD_OWNER_MAX + 1 == PRINCIPAL_NAME_BYTES, "a client has room for every owner");

enum { RUN_MS = 60000, TOKEN_BYTES = 96 };

static struct daemon tensord;
static char state[64], users[96];
static struct command command;

static void run_with(const char *sync) {
    const char *const flags[] = {"--state-dir", state, "--users", users, "--state-sync", sync, NULL};
    daemon_start(&tensord,
                 &(struct daemon_options){.devices = "cpu:0,cpu:1", .tcp = "tcp://127.0.0.1:0", .flags = flags});
}

static void run(void) {
    run_with("publish");
}

/* `tensord user …`; the token that it prints, if any. */
static void user(char *token, const char *verb, const char *name, const char *more, const char *value) {
    const char *const words[] = {
        daemon_program("TENSORD_EXE"), "user", verb, name, "--users", users, more, value, NULL};
    struct command edit;
    command_run(&edit, words, NULL, RUN_MS);
    cr_assert_eq(edit.code, 0, "%s", edit.err);
    if (token) {
        const char *found = strstr(edit.out, "tensord_");
        cr_assert_not_null(found);
        snprintf(token, TOKEN_BYTES, "%.*s", (int)strcspn(found, "\n"), found);
    }
    command_finish(&edit);
}

static char alice[TOKEN_BYTES], bob[TOKEN_BYTES], admin[TOKEN_BYTES], watcher[TOKEN_BYTES];

static void start(void) {
    daemon_directory_make(state);
    snprintf(users, sizeof users, "%s/users", state);
    user(alice, "add", "alice", "--role", "run");
    user(bob, "add", "bob", "--role", "run");
    user(admin, "add", "root", "--role", "admin");
    user(watcher, "add", "watcher", "--role", "observe");
    run();
}

static void stop(void) {
    daemon_kill(&tensord);
    daemon_directory_remove(state);
}

TestSuite(names_admin, .init = start, .fini = stop, .timeout = 120);

static void restart(void) {
    daemon_stop(&tensord);
    run();
}

/* tensorctl by somebody; its exit code. */
static int ctl(const char *token, const char *const words[]) {
    const char *arguments[16] = {daemon_program("TENSORCTL_EXE"), "--url", tensord.tcp, "names"};
    char variable[TOKEN_BYTES + 20];
    const char *const environment[] = {variable, NULL};
    unsigned n = 4;
    snprintf(variable, sizeof variable, "TENSORD_TOKEN=%s", token);
    for (unsigned i = 0; words[i]; i++)
        arguments[n++] = words[i];
    command_finish(&command);
    command_run(&command, arguments, environment, RUN_MS);
    return command.code;
}
#define CTL(token, ...) ctl(token, (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})
#define SUCCEEDS(token, ...) cr_assert_eq(CTL(token, __VA_ARGS__), 0, "%s", command.err)
#define REFUSED(words, token, ...)                                                                                     \
    cr_assert(CTL(token, __VA_ARGS__) == 1 && strstr(command.err, words), "%d: %s", command.code, command.err)

static void open_as(struct client *client, const char *token, const char *device) {
    setenv("TENSORD_TOKEN", token, 1);
    client_open(client, tensord.tcp, device);
    unsetenv("TENSORD_TOKEN");
}

static void publish(const char *token, const char *device, const char *name, double value) {
    struct client client;
    open_as(&client, token, device);
    cr_assert_eq(td_publish(td_full(client.device, TD_F32, TD_SHAPE(100), value), name), 0, "%s",
                 td_last_error()->message);
    client_close(&client);
}

static float value_of(const char *token, const char *device, const char *name) {
    struct client client;
    float values[100] = {-1};
    open_as(&client, token, device);
    td_tensor *tensor = td_open(client.device, name);
    if (tensor && td_fetch(tensor, values, sizeof values))
        values[0] = -2;
    client_close(&client);
    return values[0];
}

/* ---- roles ---- */

Test(names_admin, everybodys_names_are_for_administrators) {
    publish(alice, "cpu:0", "weights", 1);
    publish(bob, "cpu:1", "mine", 2);
    REFUSED("role admin; bob has run", bob, "--all");
    REFUSED("role admin; bob has run", bob, "rm", "cpu:0", "weights", "--user", "alice");
    REFUSED("role admin; bob has run", bob, "mv", "cpu:0", "weights", "--user", "alice", "--to", "bob");
    REFUSED("role admin; bob has run", bob, "mv", "cpu:1", "mine", "--to", "alice");
    cr_assert_eq(CTL(watcher, "--all"), 1);
    cr_assert_eq(CTL(watcher, "rm", "cpu:0", "weights", "--user", "alice"), 1);
    cr_assert_eq(value_of(alice, "cpu:0", "weights"), 1);
    cr_assert_eq(value_of(bob, "cpu:1", "mine"), 2);
    SUCCEEDS(admin, "--all");
    cr_assert(strstr(command.out, "alice") && strstr(command.out, "weights") && strstr(command.out, "bob") &&
                  strstr(command.out, "mine"),
              "%s", command.out);
    SUCCEEDS(admin, "rm", "cpu:0", "weights", "--user", "alice");
    cr_assert_eq(value_of(alice, "cpu:0", "weights"), -1);
    SUCCEEDS(admin, "mv", "cpu:1", "mine", "--user", "bob", "--to", "alice");
    cr_assert_eq(value_of(alice, "cpu:1", "mine"), 2);
    cr_assert_eq(value_of(bob, "cpu:1", "mine"), -1);
}

static bool owners_are_users(const Tensord__Status *status, const void *none) {
    const Tensord__DeviceStatus *device = status_device(status, "cpu:0");
    (void)none;
    return device->n_name_owners == 1 && !strcmp(device->name_owners[0]->principal, "alice");
}

Test(names_admin, list_has_all_devices_and_only_ones_own) {
    publish(alice, "cpu:0", "weights", 1);
    publish(alice, "cpu:1", "other", 1);
    publish(bob, "cpu:1", "mine", 2);
    SUCCEEDS(alice);
    cr_assert(strstr(command.out, "cpu:0") && strstr(command.out, "weights") && strstr(command.out, "other") &&
                  !strstr(command.out, "mine"),
              "%s", command.out);
    SUCCEEDS(alice, "cpu:1");
    cr_assert(!strstr(command.out, "weights") && strstr(command.out, "other"), "%s", command.out);
    status_until(tensord.url, owners_are_users, NULL, RUN_MS);
    SUCCEEDS(admin, "--all", "--json");
    cr_assert(strstr(command.out, "\"user\": \"alice\"") && strstr(command.out, "\"orphan\": false") &&
                  strstr(command.out, "\"unsaved\": false"),
              "%s", command.out);
}

/* ---- renaming ---- */

Test(names_admin, renamed_tensor_keeps_its_value_and_its_memory) {
    publish(alice, "cpu:0", "old", 3);
    publish(alice, "cpu:0", "taken", 4);
    REFUSED("\"taken\" already", alice, "mv", "cpu:0", "old", "taken");
    REFUSED("has the name \"none\"", alice, "mv", "cpu:0", "none", "new");
    SUCCEEDS(alice, "mv", "cpu:0", "old", "new");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(value_of(alice, "cpu:0", "new"), 3);
        cr_assert_eq(value_of(alice, "cpu:0", "old"), -1);
        cr_assert_eq(value_of(alice, "cpu:0", "taken"), 4);
        restart();
    }
    SUCCEEDS(alice, "rm", "cpu:0", "new", "taken");
    SUCCEEDS(alice);
    cr_assert(strstr(command.out, "no named tensors"), "%s", command.out);
}

Test(names_admin, memory_goes_to_the_new_owner_but_is_not_shared_by_two) {
    struct client client;
    open_as(&client, alice, "cpu:0");
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(1000), 1);
    cr_assert(!td_publish(x, "a") && !td_publish(x, "b"));
    client_close(&client);
    REFUSED("shares its memory with 1 other name of alice", admin, "mv", "cpu:0", "a", "--user", "alice", "--to",
            "bob");
    SUCCEEDS(admin, "mv", "cpu:0", "--all", "--user", "alice", "--to", "bob");
    SUCCEEDS(admin, "--all", "--json");
    cr_assert(strstr(command.out, "\"user\": \"bob\"") && !strstr(command.out, "\"user\": \"alice\""), "%s",
              command.out);
    restart();
    SUCCEEDS(bob, "rm", "cpu:0", "a", "b");
    publish(bob, "cpu:0", "a", 1);
    REFUSED("there is no user \"nobody\"", admin, "mv", "cpu:0", "a", "--user", "bob", "--to", "nobody");
    REFUSED("there is no user \"a b\"", admin, "mv", "cpu:0", "a", "--user", "bob", "--to", "a b");
}

/* ---- moves before the first of them is on the disk ---- */

/* It is refused at first, and may be asked again: what it waits for is saved at once. */
static void move_later(const char *name, const char *from, const char *to) {
    int64_t deadline = deadline_in(RUN_MS);
    REFUSED("not on the disk yet", admin, "mv", "cpu:0", name, "--user", from, "--to", to);
    while (CTL(admin, "mv", "cpu:0", name, "--user", from, "--to", to))
        cr_assert(strstr(command.err, "not on the disk yet") && deadline_pause(deadline), "%s", command.err);
}

static void start_with(const char *sync) {
    daemon_stop(&tensord);
    run_with(sync);
    publish(alice, "cpu:0", "a", 1);
    publish(alice, "cpu:0", "b", 2);
    SUCCEEDS(admin, "mv", "cpu:0", "a", "--user", "alice", "--to", "bob");
}

static void moved_there_and_back(const char *sync) {
    start_with(sync);
    move_later("a", "bob", "alice");
    cr_assert_eq(value_of(alice, "cpu:0", "a"), 1);
    daemon_kill(&tensord);
    run();
    cr_assert(value_of(alice, "cpu:0", "a") == 1 || value_of(bob, "cpu:0", "a") == 1, "a crash has lost it");
}

Test(names_admin, tensor_that_is_moved_there_and_back_is_on_the_disk_of_one_of_both) {
    moved_there_and_back("3600s");
}

Test(names_admin, tensor_that_is_moved_there_and_back_before_a_drain_is_on_the_disk_of_one_of_both) {
    moved_there_and_back("drain");
}

Test(names_admin, tensors_that_are_moved_to_two_others_are_on_the_disk_of_each) {
    start_with("3600s");
    move_later("b", "alice", "root");
    cr_assert(value_of(bob, "cpu:0", "a") == 1 && value_of(admin, "cpu:0", "b") == 2);
    daemon_stop(&tensord);
    run();
    cr_assert(value_of(bob, "cpu:0", "a") == 1 && value_of(admin, "cpu:0", "b") == 2);
}

/* ---- users who have gone ---- */

static unsigned reloads(void) {
    char *log = daemon_log(&tensord);
    unsigned n = 0;
    for (const char *at = log; (at = strstr(at, "event=reloaded")); at++)
        n++;
    free(log);
    return n;
}

static void reload(void) {
    unsigned before = reloads();
    int64_t deadline = deadline_in(RUN_MS);
    kill(tensord.pid, SIGHUP);
    while (reloads() == before && deadline_pause(deadline))
        continue;
    cr_assert_eq(reloads(), before + 1);
}

/* Whose limits are their own, and who has never been here. */
Test(names_admin, names_given_to_an_absent_user_are_within_the_limits_of_that_one) {
    FILE *file = fopen(users, "a");
    cr_assert(file);
    fputs("\n[carol]\nrole = run\nnamed-tensors = 1\n", file);
    fclose(file);
    reload();
    publish(alice, "cpu:0", "a", 1);
    publish(alice, "cpu:0", "b", 2);
    REFUSED("named", admin, "mv", "cpu:0", "--all", "--user", "alice", "--to", "carol");
    SUCCEEDS(admin, "mv", "cpu:0", "a", "--user", "alice", "--to", "carol");
    REFUSED("named", admin, "mv", "cpu:0", "b", "--user", "alice", "--to", "carol");
}

static void later_user_has_nothing_of_the_one_before(bool running) {
    char second[TOKEN_BYTES], owner[80];
    publish(alice, "cpu:0", "secret", 5);
    if (!running)
        daemon_stop(&tensord);
    user(NULL, "remove", "alice", NULL, NULL);
    user(second, "add", "alice", "--role", "run");
    if (running)
        reload();
    else
        run();
    cr_assert_eq(value_of(second, "cpu:0", "secret"), -1, "names passed to another user");
    publish(second, "cpu:0", "own", 6);
    SUCCEEDS(second);
    cr_assert(!strstr(command.out, "secret"), "%s", command.out);
    SUCCEEDS(admin, "--all", "--json");
    const char *orphan = strstr(command.out, "\"user\": \"alice#");
    cr_assert(orphan && strstr(command.out, "\"orphan\": true"), "%s", command.out);
    snprintf(owner, sizeof owner, "%.*s", (int)strcspn(orphan + 9, "\""), orphan + 9);
    SUCCEEDS(admin, "mv", "cpu:0", "secret", "--user", owner, "--to", "alice");
    cr_assert_eq(value_of(second, "cpu:0", "secret"), 5);
    cr_assert_eq(value_of(second, "cpu:0", "own"), 6);
    restart();
    cr_assert_eq(value_of(second, "cpu:0", "secret"), 5);
    SUCCEEDS(admin, "--all", "--json");
    cr_assert(!strstr(command.out, "alice#") || strstr(command.out, "\"orphan\": false"), "%s", command.out);
}

Test(names_admin, later_user_has_nothing_of_the_one_before_while_the_daemon_runs) {
    later_user_has_nothing_of_the_one_before(true);
}

Test(names_admin, later_user_has_nothing_of_the_one_before_after_a_start) {
    later_user_has_nothing_of_the_one_before(false);
}

/* As if the file of users had been written by hand, by somebody who leaves out the ids. */
static void drop_ids(void) {
    char text[8192], line[512];
    size_t bytes = 0;
    FILE *in = fopen(users, "r");
    cr_assert_not_null(in);
    while (fgets(line, sizeof line, in))
        if (strncmp(line, "id = ", 5) != 0)
            bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "%s", line);
    fclose(in);
    FILE *out = fopen(users, "w");
    cr_assert(out && fwrite(text, 1, bytes, out) == bytes);
    fclose(out);
}

static void let_know(bool running) {
    drop_ids(); /* `tensord user add` writes one */
    if (running)
        reload();
    else
        restart();
}

static void later_user_without_an_id_has_nothing_of_the_one_before(bool running) {
    char second[TOKEN_BYTES];
    let_know(running);
    publish(alice, "cpu:0", "secret", 5);
    let_know(running); /* nothing has changed */
    cr_assert_eq(value_of(alice, "cpu:0", "secret"), 5);
    user(NULL, "remove", "alice", NULL, NULL);
    let_know(running);
    user(second, "add", "alice", "--role", "run");
    let_know(running);
    cr_assert_eq(value_of(second, "cpu:0", "secret"), -1, "names passed to another user");
    publish(second, "cpu:0", "own", 6);
    restart();
    cr_assert_eq(value_of(second, "cpu:0", "secret"), -1, "names passed to another user");
    cr_assert_eq(value_of(second, "cpu:0", "own"), 6);
    SUCCEEDS(admin, "--all", "--json");
    const char *orphan = strstr(command.out, "\"owner\": \"alice#\"");
    cr_assert(orphan && strstr(orphan, "\"orphan\": true"), "%s", command.out);
    SUCCEEDS(admin, "mv", "cpu:0", "secret", "--user", "alice#", "--to", "alice");
    cr_assert_eq(value_of(second, "cpu:0", "secret"), 5);
    restart();
    cr_assert_eq(value_of(second, "cpu:0", "secret"), 5);
    cr_assert_eq(value_of(second, "cpu:0", "own"), 6);
    REFUSED("no user", admin, "mv", "cpu:0", "own", "--user", "alice", "--to", "alice#");
}

Test(names_admin, later_user_without_an_id_has_nothing_of_the_one_before_while_the_daemon_runs) {
    later_user_without_an_id_has_nothing_of_the_one_before(true);
}

Test(names_admin, later_user_without_an_id_has_nothing_of_the_one_before_after_starts) {
    later_user_without_an_id_has_nothing_of_the_one_before(false);
}

Test(names_admin, names_of_a_removed_user_can_be_removed) {
    char owner[80];
    publish(alice, "cpu:0", "a", 5);
    publish(alice, "cpu:0", "b", 5);
    user(NULL, "remove", "alice", NULL, NULL);
    reload();
    SUCCEEDS(admin, "--all", "--json");
    const char *orphan = strstr(command.out, "\"owner\": \"alice#");
    cr_assert_not_null(orphan, "%s", command.out);
    snprintf(owner, sizeof owner, "%.*s", (int)strcspn(orphan + 10, "\""), orphan + 10);
    SUCCEEDS(admin, "rm", "cpu:0", "--all", "--user", owner);
    SUCCEEDS(admin, "--all");
    cr_assert(strstr(command.out, "no named tensors"), "%s", command.out);
}

/* ---- many ---- */

Test(names_admin, names_of_many_users_are_all_saved) {
    enum { USERS = 24 };
    static char tokens[USERS][TOKEN_BYTES];
    char name[16];
    for (int i = 0; i < USERS; i++) {
        snprintf(name, sizeof name, "user%d", i);
        user(tokens[i], "add", name, "--role", "run");
    }
    daemon_stop(&tensord);
    const char *const flags[] = {"--state-dir", state, "--users", users, "--state-sync", "drain", NULL};
    daemon_start(&tensord, &(struct daemon_options){.devices = "cpu:0", .tcp = "tcp://127.0.0.1:0", .flags = flags});
    for (int i = 0; i < USERS; i++)
        publish(tokens[i], "cpu:0", "mine", i);
    restart();
    for (int i = 0; i < USERS; i++)
        cr_assert_eq(value_of(tokens[i], "cpu:0", "mine"), (float)i);
}
