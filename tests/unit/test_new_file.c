/* Replacing a file in one step. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/files/file.h"

static char directory[] = "/tmp/tensord-new.XXXXXX", path[64];
static struct new_file file;
static struct fault fault;

static void put(const char *text) {
    FILE *out = fopen(path, "w");
    fputs(text, out);
    fclose(out);
}

static void expect(const char *text) {
    char got[64] = "";
    FILE *in = fopen(path, "r");
    cr_assert_not_null(in);
    got[fread(got, 1, sizeof got - 1, in)] = 0;
    fclose(in);
    cr_assert_str_eq(got, text);
}

/* Whatever was written besides is gone. */
static void expect_alone(void) {
    DIR *entries = opendir(directory);
    unsigned others = 0;
    for (struct dirent *entry; (entry = readdir(entries));)
        others += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, "file");
    closedir(entries);
    cr_assert_eq(others, 0);
}

static void start(void) {
    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
    put("old");
}

static void stop(void) {
    unlink(path);
    cr_expect_eq(rmdir(directory), 0, "something was left in the directory");
}

TestSuite(new_file, .init = start, .fini = stop);

Test(new_file, replaces_the_old_one_at_the_commit) {
    struct stat stat_now;
    cr_assert_eq(new_file_open(&file, path, 0600, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(new_file_write(&file, "ne", 2, &fault), STATUS_OK);
    cr_assert_eq(new_file_write(&file, "w", 1, &fault), STATUS_OK);
    expect("old");
    cr_assert_eq(new_file_commit(&file, &fault), STATUS_OK, "%s", fault.message);
    new_file_abandon(&file); /* does nothing now */
    expect("new");
    cr_assert_eq(stat(path, &stat_now), 0);
    cr_assert_eq(stat_now.st_mode & 0777, 0600);
    expect_alone();
}

Test(new_file, abandoned_one_leaves_the_old_one) {
    cr_assert_eq(new_file_open(&file, path, 0600, &fault), STATUS_OK);
    cr_assert_eq(new_file_write(&file, "new", 3, &fault), STATUS_OK);
    new_file_abandon(&file);
    expect("old");
    expect_alone();
}

Test(new_file, full_disk_is_told_and_leaves_the_old_one) {
    char *data = calloc(1, 1 << 20);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 1 << 16, .rlim_max = RLIM_INFINITY});
    cr_assert_eq(new_file_open(&file, path, 0600, &fault), STATUS_OK);
    cr_assert_eq(new_file_write(&file, data, 1 << 20, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, path) && strstr(fault.message, "File too large"), "%s", fault.message);
    new_file_abandon(&file);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY});
    expect("old");
    expect_alone();
    free(data);
}

Test(new_file, impossible_places_are_refused) {
    char inside[80], longest[NEW_FILE_PATH_MAX + 10];
    snprintf(inside, sizeof inside, "%s/none/file", directory);
    cr_assert_eq(new_file_open(&file, inside, 0600, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "No such file"), "%s", fault.message);
    snprintf(inside, sizeof inside, "%s/", directory);
    cr_assert_eq(new_file_open(&file, inside, 0600, &fault), STATUS_INVALID_ARGUMENT);
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    cr_assert_eq(new_file_open(&file, longest, 0600, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(new_file_open(&file, directory, 0600, &fault), STATUS_OK);
    cr_assert_neq(new_file_commit(&file, &fault), STATUS_OK); /* a directory stays one */
    new_file_abandon(&file);
    expect_alone();
}
