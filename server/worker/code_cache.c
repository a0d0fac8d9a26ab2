#include "server/worker/code_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/files/crc64.h"
#include "proto/files/file.h"
#include "proto/ops/cleanup.h"

/* A file begins with this; behind it are key, code and symbol, without zeros. */
struct code_head {
    char magic[8];
    uint64_t checksum; /* of all that follows this number */
    uint64_t key_bytes, code_bytes, symbol_bytes;
};
static const char code_magic[8] = "tdcode1";
static const char suffix[] = ".kernel";
enum { NAME_MAX_BYTES = 32, STALE_SECONDS = 3600 };

/* ---- the folder ---- */

static bool folder_of(const char *setting, char folder[CODE_CACHE_PATH_MAX]) {
    const char *given = getenv("CACHE_DIRECTORY"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int bytes = *setting                 ? snprintf(folder, CODE_CACHE_PATH_MAX, "%s", setting)
                : given && *given == '/' ? snprintf(folder, CODE_CACHE_PATH_MAX, "%s", given)
                : cache && *cache == '/' ? snprintf(folder, CODE_CACHE_PATH_MAX, "%s/tensord", cache)
                : home && *home == '/'   ? snprintf(folder, CODE_CACHE_PATH_MAX, "%s/.cache/tensord", home)
                                         : 0;
    return bytes > 0 && bytes < CODE_CACHE_PATH_MAX;
}

/* With the folder above it, which is ~/.cache of a new user. */
static bool folder_make(const char *folder) {
    char above[CODE_CACHE_PATH_MAX];
    snprintf(above, sizeof above, "%s", folder);
    char *slash = strrchr(above, '/');
    if (mkdir(folder, 0700) == 0 || errno != ENOENT || !slash || slash == above)
        return true;
    *slash = 0;
    return mkdir(above, 0700) == 0 && mkdir(folder, 0700) == 0;
}

bool code_cache_init(struct code_cache *cache, const char *setting, struct fault *fault) {
    struct stat now;
    char folder[CODE_CACHE_PATH_MAX];
    *cache = (struct code_cache){.folder = ""};
    if (!strcmp(setting, "none"))
        return true;
    if (!folder_of(setting, folder)) {
        fault_set(fault, STATUS_INVALID_ARGUMENT, "cache-dir: no folder, and neither HOME nor XDG_CACHE_HOME is set");
        return false;
    }
    if (!folder_make(folder) || stat(folder, &now) || !S_ISDIR(now.st_mode) || access(folder, R_OK | W_OK | X_OK)) {
        fault_set(fault, STATUS_INVALID_ARGUMENT, "cache-dir: %.150s: %s", folder,
                  strerror(errno && errno != EEXIST ? errno : ENOTDIR));
        return false;
    }
    if (now.st_uid != geteuid() || (now.st_mode & 022)) {
        fault_set(fault, STATUS_INVALID_ARGUMENT, "cache-dir: others may write to %.150s", folder);
        return false;
    }
    strcpy(cache->folder, folder);
    return true;
}

/* ---- keys ---- */

/* One block of malloc(). NULL: no memory. */
static char *key_of(const char *compiler, const struct kernel_source *source, size_t *bytes) {
    char *key = NULL;
    int n =
        asprintf(&key, "%s, architecture %" PRIu32 ", %s\n%s", compiler, source->target, source->name, source->text);
    *bytes = n > 0 ? (size_t)n : 0;
    return n > 0 ? key : NULL;
}

/* The key, as above, and the path of its file. NULL: nothing is kept, or there is no memory. */
static char *file_of(const struct code_cache *cache, const char *compiler, const struct kernel_source *source,
                     size_t *bytes, char path[CODE_CACHE_PATH_MAX + NAME_MAX_BYTES]) {
    char *key = *cache->folder && *compiler ? key_of(compiler, source, bytes) : NULL;
    if (key)
        snprintf(path, CODE_CACHE_PATH_MAX + NAME_MAX_BYTES, "%s/%016" PRIx64 "%s", cache->folder,
                 crc64(0, key, *bytes), suffix);
    return key;
}

/* ---- reading ---- */

/* The file of this size as a block; NULL: it cannot be read, or is damaged. */
static struct code_head *file_read(int fd, uint64_t bytes) {
    struct code_head *head = bytes >= sizeof *head && bytes <= CODE_CACHE_FILE_MAX ? malloc((size_t)bytes) : NULL;
    if (!head)
        return NULL;
    const uint64_t *behind = &head->checksum + 1;
    uint64_t most = bytes - sizeof *head;
    if (!whole_read(fd, head, (size_t)bytes, 0) || memcmp(head->magic, code_magic, sizeof code_magic) ||
        head->key_bytes > most || head->code_bytes > most || head->symbol_bytes > most ||
        head->key_bytes + head->code_bytes + head->symbol_bytes != most ||
        crc64(0, behind, (size_t)bytes - (size_t)((const char *)behind - (const char *)head)) != head->checksum) {
        free(head);
        return NULL;
    }
    return head;
}

static struct device_code *code_of(const struct code_head *head) {
    const char *from = (const char *)(head + 1) + head->key_bytes;
    size_t bytes = (size_t)head->code_bytes, symbol = (size_t)head->symbol_bytes;
    struct device_code *code = malloc(sizeof *code + bytes + symbol + 1);
    if (!code)
        return NULL;
    memcpy(code->code, from, bytes + symbol);
    code->code[bytes + symbol] = 0;
    code->bytes = bytes;
    code->symbol = (const char *)code->code + bytes;
    return code;
}

bool code_cache_find(const struct code_cache *cache, const char *compiler, const struct kernel_source *source,
                     struct device_code **code) {
    char path[CODE_CACHE_PATH_MAX + NAME_MAX_BYTES];
    struct stat now;
    size_t bytes;
    *code = NULL;
    char *key = file_of(cache, compiler, source, &bytes, path);
    if (!key)
        return false;
    CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct code_head *head = fd >= 0 && fstat(fd, &now) == 0 ? file_read(fd, (uint64_t)now.st_size) : NULL;
    if (head && head->key_bytes == bytes && !memcmp(head + 1, key, bytes))
        *code = code_of(head);
    if (*code)
        futimens(fd, NULL); /* it was used now */
    free(head);
    free(key);
    return *code;
}

/* ---- writing ---- */

struct kept {
    char name[NAME_MAX_BYTES];
    uint64_t bytes;
    struct timespec used;
};

static int kept_order(const void *a, const void *b) {
    const struct kept *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static bool is_kept(const char *name) {
    size_t length = strlen(name);
    return length == 16 + strlen(suffix) && !strcmp(name + 16, suffix) && strspn(name, "0123456789abcdef") == 16;
}

/* The name of a file while it is written (proto/files/file.h), by a process that has ended since. */
static bool is_stale(const char *name, const struct stat *now) {
    return *name == '.' && strstr(name, suffix) && now->st_mtime < time(NULL) - STALE_SECONDS;
}

/* The names, sizes and times of what is kept, and in *bytes all of it; a block. NULL: there is nothing, or no memory. */
static struct kept *folder_list(DIR *directory, size_t *count, uint64_t *bytes) {
    struct kept *list = NULL;
    struct dirent *entry;
    struct stat now;
    size_t room = 0;
    *count = 0;
    *bytes = 0;
    while ((entry = readdir(directory))) {
        if (fstatat(dirfd(directory), entry->d_name, &now, AT_SYMLINK_NOFOLLOW))
            continue;
        if (is_stale(entry->d_name, &now))
            unlinkat(dirfd(directory), entry->d_name, 0);
        if (!is_kept(entry->d_name))
            continue;
        if (*count == room) {
            struct kept *grown = realloc(list, (room = room ? 2 * room : 64) * sizeof *list);
            if (!grown)
                break;
            list = grown;
        }
        struct kept *kept = &list[(*count)++];
        *kept = (struct kept){.bytes = (uint64_t)now.st_size, .used = now.st_mtim};
        snprintf(kept->name, sizeof kept->name, "%s", entry->d_name);
        *bytes += kept->bytes;
    }
    return list;
}

/* Makes the folder a quarter smaller than it may be, where it is larger than that. */
static void folder_sweep(const struct code_cache *cache) {
    uint64_t most = cache->most ? cache->most : CODE_CACHE_BYTES, bytes;
    DIR *directory = opendir(cache->folder);
    size_t count;
    if (!directory)
        return;
    struct kept *list = folder_list(directory, &count, &bytes);
    if (list && bytes > most) {
        qsort(list, count, sizeof *list, kept_order);
        for (size_t i = 0; i < count && bytes > most / 4 * 3; i++) {
            unlinkat(dirfd(directory), list[i].name, 0);
            bytes -= list[i].bytes;
        }
    }
    free(list);
    closedir(directory);
}

static bool file_write(const char *path, const char *key, size_t key_bytes, const struct device_code *code) {
    struct code_head head = {.key_bytes = key_bytes, .code_bytes = code->bytes, .symbol_bytes = strlen(code->symbol)};
    struct new_file file;
    struct fault fault;
    memcpy(head.magic, code_magic, sizeof head.magic);
    const char *behind = (const char *)(&head.checksum + 1);
    head.checksum = crc64(0, behind, (size_t)((const char *)(&head + 1) - behind));
    head.checksum = crc64(head.checksum, key, key_bytes);
    head.checksum = crc64(head.checksum, code->code, code->bytes);
    head.checksum = crc64(head.checksum, code->symbol, head.symbol_bytes);
    bool written = new_file_open(&file, path, 0600, &fault) == STATUS_OK &&
                   new_file_write(&file, &head, sizeof head, &fault) == STATUS_OK &&
                   new_file_write(&file, key, key_bytes, &fault) == STATUS_OK &&
                   new_file_write(&file, code->code, code->bytes, &fault) == STATUS_OK &&
                   new_file_write(&file, code->symbol, head.symbol_bytes, &fault) == STATUS_OK &&
                   new_file_commit(&file, &fault) == STATUS_OK;
    if (!written)
        new_file_abandon(&file);
    return written;
}

void code_cache_keep(const struct code_cache *cache, const char *compiler, const struct kernel_source *source,
                     const struct device_code *code) {
    char path[CODE_CACHE_PATH_MAX + NAME_MAX_BYTES];
    size_t bytes;
    char *key = file_of(cache, compiler, source, &bytes, path);
    if (!key)
        return;
    if (sizeof(struct code_head) + bytes + code->bytes + strlen(code->symbol) <= CODE_CACHE_FILE_MAX &&
        file_write(path, key, bytes, code))
        folder_sweep(cache);
    free(key);
}

void code_cache_forget(const struct code_cache *cache, const char *compiler, const struct kernel_source *source) {
    char path[CODE_CACHE_PATH_MAX + NAME_MAX_BYTES];
    size_t bytes;
    char *key = file_of(cache, compiler, source, &bytes, path);
    if (!key)
        return;
    unlink(path);
    free(key);
}
