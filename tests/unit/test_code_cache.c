#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/worker/code_cache.h"

static char folder[] = "/tmp/code-cache-XXXXXX", inside[64];
static struct code_cache cache;

static void start(void) {
    struct fault fault;
    cr_assert(mkdtemp(folder));
    snprintf(inside, sizeof inside, "%s/a/b", folder); /* with the folder above it */
    cr_assert(code_cache_init(&cache, inside, &fault), "%s", fault.message);
}

static void stop(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(code_cache, .init = start, .fini = stop);

static struct kernel_source source_of(const char *text) {
    return (struct kernel_source){.text = text, .name = "fused", .target = 90};
}

static struct device_code *code_of(size_t bytes, int fill) {
    struct device_code *code = malloc(sizeof *code + bytes + 8);
    memset(code->code, fill, bytes);
    code->bytes = bytes;
    code->symbol = strcpy((char *)code->code + bytes, "symbol");
    return code;
}

static void keep(const char *text, size_t bytes, int fill) {
    struct kernel_source source = source_of(text);
    struct device_code *code = code_of(bytes, fill);
    code_cache_keep(&cache, "compiler 1", &source, code);
    free(code);
}

/* The first byte of the code that is found; -1: none is. */
static int found(const char *compiler, const char *text) {
    struct kernel_source source = source_of(text);
    struct device_code *code;
    int first = -1;
    if (!code_cache_find(&cache, compiler, &source, &code))
        return -1;
    cr_assert_str_eq(code->symbol, "symbol");
    first = code->code[0];
    cr_assert_eq(code->code[code->bytes - 1], first);
    free(code);
    return first;
}

/* Calls `with` for each file; returns how many there are. */
static unsigned files(void (*with)(const char *path, void *argument), void *argument) {
    DIR *directory = opendir(inside);
    struct dirent *entry;
    unsigned n = 0;
    while ((entry = readdir(directory))) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", inside, entry->d_name);
        if (*entry->d_name == '.')
            continue;
        n++;
        if (with)
            with(path, argument);
    }
    closedir(directory);
    return n;
}

Test(code_cache, code_is_found_by_all_that_made_it) {
    keep("one", 1000, 1);
    keep("two", 50, 2);
    cr_assert_eq(found("compiler 1", "one"), 1);
    cr_assert_eq(found("compiler 1", "two"), 2);
    cr_assert_eq(found("compiler 2", "one"), -1);
    cr_assert_eq(found("", "one"), -1);
    cr_assert_eq(found("compiler 1", "three"), -1);
    struct kernel_source other = {.text = "one", .name = "fused", .target = 80};
    struct device_code *code;
    cr_assert(!code_cache_find(&cache, "compiler 1", &other, &code));
    keep("one", 1000, 3);
    cr_assert_eq(found("compiler 1", "one"), 3);
    cr_assert_eq(files(NULL, NULL), 2);
    struct kernel_source source = source_of("one");
    code_cache_forget(&cache, "compiler 1", &source);
    cr_assert_eq(found("compiler 1", "one"), -1);
}

static void copy_with(const char *path, void *argument) {
    long change = *(long *)argument;
    char data[4096];
    FILE *file = fopen(path, "r");
    size_t bytes = fread(data, 1, sizeof data, file);
    fclose(file);
    cr_assert(bytes < sizeof data);
    if (change >= (long)bytes) { /* all bytes have been tried */
        *(long *)argument = -1;
        return;
    }
    data[change] ^= 0x40;
    file = fopen(path, "w");
    fwrite(data, 1, bytes, file);
    fclose(file);
}

static void cut_to(const char *path, void *argument) {
    cr_assert_eq(truncate(path, *(long *)argument), 0);
}

/* Each byte in turn is another one, and the file ends at each. */
Test(code_cache, what_is_damaged_is_not_there) {
    long at = 0;
    for (;; at++) {
        long change = at;
        keep("text", 100, 5);
        cr_assert_eq(found("compiler 1", "text"), 5);
        files(copy_with, &change);
        if (change < 0)
            break;
        cr_assert_eq(found("compiler 1", "text"), -1, "byte %ld", at);
    }
    cr_assert_gt(at, 100);
    for (long end = 0; end < at; end++) {
        keep("text", 100, 5);
        files(cut_to, &end);
        cr_assert_eq(found("compiler 1", "text"), -1, "cut at %ld", end);
    }
}

static void set_old(const char *path, void *argument) {
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    (void)argument;
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

Test(code_cache, what_was_used_longest_ago_goes) {
    char text[16];
    cache.most = 20000;
    for (int i = 0; i < 12; i++) {
        snprintf(text, sizeof text, "text %d", i);
        keep(text, 1000, i);
    }
    cr_assert_eq(files(NULL, NULL), 12);
    files(set_old, NULL);
    cr_assert_eq(found("compiler 1", "text 3"), 3); /* which is a use */
    keep("large", 9000, 20);
    cr_assert_eq(found("compiler 1", "large"), 20);
    cr_assert_lt(files(NULL, NULL), 12);
    cr_assert_eq(found("compiler 1", "text 3"), 3);
}

Test(code_cache, folders_of_others_are_not_used) {
    struct fault fault;
    cr_assert_eq(chmod(inside, 0777), 0);
    cr_assert(!code_cache_init(&cache, inside, &fault));
    cr_assert(strstr(fault.message, "others may write"), "%s", fault.message);
    keep("one", 100, 1);
    cr_assert_eq(found("compiler 1", "one"), -1);
    cr_assert(code_cache_init(&cache, "none", &fault));
    keep("one", 100, 1);
    cr_assert_eq(files(NULL, NULL), 0);
    cr_assert(!code_cache_init(&cache, "/proc/none/b", &fault));
    cr_assert(strstr(fault.message, "/proc/none/b"), "%s", fault.message);
    cr_assert_eq(chmod(inside, 0700), 0);
}

Test(code_cache, folder_follows_from_the_environment) {
    struct fault fault;
    setenv("HOME", folder, 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("CACHE_DIRECTORY");
    cr_assert(code_cache_init(&cache, "", &fault), "%s", fault.message);
    cr_assert(!strncmp(cache.folder, folder, strlen(folder)) && strstr(cache.folder, "/.cache/tensord"));
    setenv("XDG_CACHE_HOME", folder, 1);
    cr_assert(code_cache_init(&cache, "", &fault) && !strcmp(cache.folder + strlen(folder), "/tensord"));
    setenv("CACHE_DIRECTORY", inside, 1);
    cr_assert(code_cache_init(&cache, "", &fault) && !strcmp(cache.folder, inside));
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("CACHE_DIRECTORY");
    cr_assert(!code_cache_init(&cache, "", &fault));
}
