#include "server/worker/state_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/worker/service.h"

static const char state_suffix[] = ".safetensors";

/* ---- names of files ---- */

static bool state_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* A principal's name may be anything; what is not plain is written as "%3A". The longest one fits: 3 bytes for each. */
void state_folder_name(const struct state *state, const char *principal, char name[STATE_NAME_MAX + 1]) {
    int used = snprintf(name, STATE_NAME_MAX + 1, "%s@", state->service->device);
    for (; *principal; principal++)
        used += snprintf(name + used, (size_t)(STATE_NAME_MAX + 1 - used), state_plain(*principal) ? "%c" : "%%%02X",
                         (unsigned char)*principal);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Takes one character of the principal off the text; 0 where there is none. */
static char state_decode(const char **text) {
    const char *at = *text;
    if (state_plain(*at)) {
        *text += 1;
        return *at;
    }
    int high = *at == '%' ? hex_digit(at[1]) : -1, low = high >= 0 ? hex_digit(at[2]) : -1;
    if (low < 0)
        return 0;
    *text += 3;
    return (char)(high << 4 | low);
}

bool state_folder_principal(const struct state *state, const char *name, char principal[PRINCIPAL_NAME_BYTES]) {
    size_t device = strlen(state->service->device), used = 0;
    if (strncmp(name, state->service->device, device) != 0 || name[device] != '@')
        return false;
    const char *at = name + device + 1;
    for (char c; used < PRINCIPAL_NAME_BYTES - 1 && (c = state_decode(&at)); used++)
        principal[used] = c;
    principal[used] = 0;
    char again[STATE_NAME_MAX + 1];
    state_folder_name(state, principal, again);
    return used > 0 && !strcmp(again, name);
}

void state_path(const struct state *state, const char *name, char *path, size_t size) {
    snprintf(path, size, "%s/%s", state->directory, name);
}

void state_index_path(const char *folder, char path[STATE_FILE_MAX]) {
    snprintf(path, STATE_FILE_MAX, "%s/names.json", folder);
}

void state_file_path(const char *folder, uint64_t number, char path[STATE_FILE_MAX]) {
    snprintf(path, STATE_FILE_MAX, "%s/%" PRIu64 "%s", folder, number, state_suffix);
}

uint64_t state_file_number(const char *name) {
    char again[64];
    char *end;
    uint64_t number = *name >= '1' && *name <= '9' ? strtoull(name, &end, 10) : 0;
    snprintf(again, sizeof again, "%" PRIu64 "%s", number, state_suffix);
    return strcmp(again, name) == 0 ? number : 0;
}

/* ---- folders ---- */

int state_sync_folder(const char *folder, struct fault *fault) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 || fsync(fd);
    int error = errno;
    if (fd >= 0)
        close(fd);
    return failed ? fault_set(fault, STATUS_INVALID_ARGUMENT, "%.150s: %s", folder, strerror(error)) : STATUS_OK;
}

/* names.json itself, and what it is called while it is written (proto/files/new_file.h). */
static bool state_is_index(const char *name) {
    return !strcmp(name, "names.json");
}

static bool state_is_temporary(const char *name) {
    return !strncmp(name, ".names.json.", strlen(".names.json."));
}

static bool state_needs(const struct state_file *files, size_t n_files, uint64_t number) {
    for (size_t i = 0; i < n_files; i++)
        if (files[i].number == number)
            return true;
    return false;
}

void state_sweep_folder(const char *folder, const struct state_file *files, size_t n_files) {
    DIR *directory = opendir(folder);
    struct dirent *entry;
    if (!directory)
        return;
    while ((entry = readdir(directory))) {
        uint64_t number = state_file_number(entry->d_name);
        bool old = number ? !state_needs(files, n_files, number)
                          : state_is_temporary(entry->d_name) || (!files && state_is_index(entry->d_name));
        if (old)
            unlinkat(dirfd(directory), entry->d_name, 0);
    }
    closedir(directory);
    if (!files)
        rmdir(folder);
}
