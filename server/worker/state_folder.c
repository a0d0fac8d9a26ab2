/* The folder of an owner: the names of its files, and its index. */
#include "server/worker/state_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/files/json_text.h"
#include "proto/ops/cleanup.h"
#include "proto/wire/check.h"
#include "server/worker/service.h"

static const char state_suffix[] = ".safetensors";

/* ---- names of files ---- */

static bool state_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* A principal's name may have any characters: those that are not plain are written as "%3A". The longest name fits,
 * even with 3 bytes for each character. */
void state_folder_name(const struct state *state, const char *principal, char name[STATE_NAME_MAX + 1]) {
    int used = snprintf(name, STATE_NAME_MAX + 1, "%s@", state->service->device);
    for (; *principal; principal++)
        used += snprintf(name + used, (size_t)(STATE_NAME_MAX + 1 - used), state_plain(*principal) ? "%c" : "%%%02X",
                         (unsigned char)*principal);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Reads one character of the principal, and moves *text behind it; 0: there is none. */
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
    CLEANUP(close) int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.150s: %s", folder, strerror(errno));
    return STATUS_OK;
}

/* names.json; and its name while it is written (proto/files/file.h). */
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

/* names.json: which names an owner has, and where their bytes lie.
 *
 *     {"device": "cpu:0", "names": {
 *       "weights": {"dtype": "f32", "shape": [2, 3], "file": 17, "tensor": "weights", "begin": 0},
 *       "half": {"dtype": "f32", "shape": [3], "file": 17, "tensor": "weights", "begin": 0}}}
 *
 * Names that share memory share a tensor of a file: the bytes of a name begin at byte `begin` of it. */
#define WRONG(fault, ...) fault_set(fault, STATUS_INVALID_ARGUMENT, __VA_ARGS__)

/* ---- writing ---- */

static void index_print_name(FILE *out, const struct index_name *name) {
    json_quote(out, name->name);
    fprintf(out, ": {\"dtype\": \"%s\", \"shape\": [", dtype_name(name->type.dtype));
    for (int i = 0; i < name->type.rank; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "", name->type.shape[i]);
    fputc(']', out);
    if (name->file) {
        fprintf(out, ", \"file\": %" PRIu64 ", \"tensor\": ", name->file);
        json_quote(out, name->key);
        fprintf(out, ", \"begin\": %" PRId64, name->begin);
    }
    fputc('}', out);
}

char *index_print(const char *device, const struct index_name *names, size_t count, size_t *bytes) {
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    fputs("{\"device\": ", out);
    json_quote(out, device);
    fputs(", \"names\": {", out);
    for (size_t i = 0; i < count; i++) {
        fputs(i ? ",\n" : "\n", out);
        index_print_name(out, &names[i]);
    }
    fputs("}}\n", out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* ---- reading ---- */

static enum dtype index_dtype(const char *text) {
    for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
        if (!strcmp(dtype_name((enum dtype)dtype), text))
            return (enum dtype)dtype;
    return DTYPE_INVALID;
}

static int index_read_type(struct index_name *name, const json_t *value, struct fault *fault) {
    const json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape");
    int64_t extents[SHAPE_RANK_MAX];
    struct fault cause;
    if (!json_is_string(dtype) || !json_is_array(shape) || json_array_size(shape) > SHAPE_RANK_MAX)
        return WRONG(fault, "\"%.100s\" has no dtype or no shape", name->name);
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *extent = json_array_get(shape, i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return WRONG(fault, "\"%.100s\": its shape is not a list of numbers from 0 on", name->name);
        extents[i] = json_integer_value(extent);
    }
    if (type_make(&name->type, index_dtype(json_string_value(dtype)), extents, json_array_size(shape), &cause))
        return WRONG(fault, "\"%.60s\": %.150s", name->name, cause.message);
    return STATUS_OK;
}

static int index_read_place(struct index_name *name, const json_t *value, struct fault *fault) {
    const json_t *file = json_object_get(value, "file"), *key = json_object_get(value, "tensor"),
                 *begin = json_object_get(value, "begin");
    if (type_bytes(&name->type) == 0)
        return STATUS_OK;
    if (!json_is_integer(file) || json_integer_value(file) <= 0 || !json_is_string(key) || !json_is_integer(begin) ||
        json_integer_value(begin) < 0)
        return WRONG(fault, "\"%.100s\" does not say where its bytes are", name->name);
    name->file = (uint64_t)json_integer_value(file);
    name->begin = json_integer_value(begin);
    name->key = strdup(json_string_value(key));
    return name->key ? STATUS_OK : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
}

static int index_read_name(struct index_name *name, const char *text, const json_t *value, struct fault *fault) {
    int error = name_check(text, fault);
    if (error != STATUS_OK)
        return error;
    name->name = strdup(text);
    if (!name->name)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
    if (!json_is_object(value))
        return WRONG(fault, "\"%.100s\" is no object", text);
    error = index_read_type(name, value, fault);
    return error == STATUS_OK ? index_read_place(name, value, fault) : error;
}

static int index_fill(struct index *index, const json_t *root, struct fault *fault) {
    const json_t *names = json_object_get(root, "names");
    const char *key;
    json_t *value;
    int error = STATUS_OK;
    if (!json_is_object(names))
        return WRONG(fault, "has no names");
    if (json_object_size(names) > LIMITS_NAMED_TENSORS_MAX)
        return fault_set(fault, STATUS_LIMIT, "has %zu names, the limit is %d", json_object_size(names),
                         LIMITS_NAMED_TENSORS_MAX);
    index->names = calloc(json_object_size(names) + 1, sizeof *index->names);
    if (!index->names)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", json_object_size(names));
    json_object_foreach((json_t *)(uintptr_t)names, key, value) {
        error = index_read_name(&index->names[index->count++], key, value, fault);
        if (error != STATUS_OK)
            break;
    }
    return error;
}

int index_read(struct index *index, const char *path, struct fault *fault) {
    json_error_t error;
    *index = (struct index){.count = 0};
    json_auto_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        json_clean(error.text);
        return WRONG(fault, "names.json: %.150s at byte %d", error.text, error.position);
    }
    struct fault cause = {0};
    int code = index_fill(index, root, &cause);
    if (code == STATUS_OK)
        return STATUS_OK;
    index_finish(index);
    return fault_set(fault, (enum status)code, "names.json: %.200s", cause.message);
}

void index_finish(struct index *index) {
    for (size_t i = 0; i < index->count; i++) {
        free(index->names[i].name);
        free(index->names[i].key);
    }
    free(index->names);
    *index = (struct index){.count = 0};
}
