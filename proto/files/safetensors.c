#include "proto/files/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/files/file.h"
#include "proto/files/json_text.h"
#include "proto/ops/cleanup.h"
#include "proto/wire/check.h"

#define WRONG(fault, ...) fault_set(fault, STATUS_INVALID_ARGUMENT, __VA_ARGS__)

static const char *const safetensors_dtypes[DTYPE_COUNT] = {
    [DTYPE_BOOL] = "BOOL", [DTYPE_U8] = "U8",   [DTYPE_I8] = "I8",          [DTYPE_I16] = "I16",
    [DTYPE_I32] = "I32",   [DTYPE_I64] = "I64", [DTYPE_F16] = "F16",        [DTYPE_BF16] = "BF16",
    [DTYPE_F32] = "F32",   [DTYPE_F64] = "F64", [DTYPE_F8E4M3] = "F8_E4M3", [DTYPE_F8E5M2] = "F8_E5M2",
    [DTYPE_U16] = "U16",   [DTYPE_U32] = "U32", [DTYPE_U64] = "U64",        [DTYPE_C64] = "C64",
};

bool safetensors_has(enum dtype dtype) {
    return safetensors_dtypes[dtype] != NULL;
}

/* ---- reading ---- */

int safetensors_header_bytes(const uint8_t length[SAFETENSORS_LENGTH_BYTES], uint64_t file_bytes, size_t *bytes,
                             struct fault *fault) {
    uint64_t value = 0;
    for (int i = SAFETENSORS_LENGTH_BYTES - 1; i >= 0; i--)
        value = value << 8 | length[i];
    if (value > SAFETENSORS_HEADER_MAX)
        return WRONG(fault, "a header of %llu bytes, the limit is %d", (unsigned long long)value,
                     SAFETENSORS_HEADER_MAX);
    if (file_bytes < SAFETENSORS_LENGTH_BYTES || value > file_bytes - SAFETENSORS_LENGTH_BYTES)
        return WRONG(fault, "a header of %llu bytes in a file of %llu", (unsigned long long)value,
                     (unsigned long long)file_bytes);
    *bytes = (size_t)value;
    return STATUS_OK;
}

static enum dtype entry_dtype(const char *name) {
    for (int dtype = 1; dtype < DTYPE_COUNT; dtype++)
        if (safetensors_has((enum dtype)dtype) && !strcmp(safetensors_dtypes[dtype], name))
            return (enum dtype)dtype;
    return DTYPE_INVALID;
}

/* An array of `count` integers that are not negative. */
static bool entry_integers(const json_t *array, size_t count, int64_t *out) {
    for (size_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(array, i);
        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return false;
        out[i] = json_integer_value(number);
    }
    return true;
}

static int entry_type(struct safetensors_entry *entry, const json_t *value, struct fault *fault) {
    const json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape");
    int64_t extents[SHAPE_RANK_MAX];
    struct fault cause;
    if (!json_is_string(dtype) || !json_is_array(shape))
        return WRONG(fault, "tensor \"%.100s\" has no dtype or no shape", entry->name);
    enum dtype found = entry_dtype(json_string_value(dtype));
    if (found == DTYPE_INVALID)
        return WRONG(fault, "tensor \"%.100s\" has the dtype %.32s, which tensord does not have", entry->name,
                     json_string_value(dtype));
    size_t rank = json_array_size(shape);
    if (rank > SHAPE_RANK_MAX)
        return WRONG(fault, "tensor \"%.100s\" has %zu axes, the limit is %d", entry->name, rank, SHAPE_RANK_MAX);
    if (!entry_integers(shape, rank, extents))
        return WRONG(fault, "tensor \"%.100s\": its shape is not made of numbers from 0 on", entry->name);
    if (type_make(&entry->type, found, extents, rank, &cause) != STATUS_OK)
        return WRONG(fault, "tensor \"%.60s\": %.150s", entry->name, cause.message);
    return STATUS_OK;
}

static int entry_offsets(struct safetensors_entry *entry, const json_t *value, struct fault *fault) {
    const json_t *offsets = json_object_get(value, "data_offsets");
    int64_t places[2];
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !entry_integers(offsets, 2, places))
        return WRONG(fault, "tensor \"%.100s\" has no pair of data_offsets", entry->name);
    if (places[1] < places[0] || places[1] - places[0] != type_bytes(&entry->type))
        return WRONG(fault, "tensor \"%.100s\" needs %lld bytes and has those from %lld to %lld", entry->name,
                     (long long)type_bytes(&entry->type), (long long)places[0], (long long)places[1]);
    entry->begin = (uint64_t)places[0];
    entry->end = (uint64_t)places[1];
    return STATUS_OK;
}

static int entry_parse(struct safetensors_entry *entry, const char *name, const json_t *value, struct fault *fault) {
    int code = name_check(name, fault);
    if (code != STATUS_OK)
        return code;
    entry->name = strdup(name);
    if (!entry->name)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
    if (!json_is_object(value))
        return WRONG(fault, "tensor \"%.100s\" is no object", name);
    code = entry_type(entry, value, fault);
    return code == STATUS_OK ? entry_offsets(entry, value, fault) : code;
}

/* Metadata is an object of texts. Their content is not used. */
static int metadata_check(const json_t *metadata, struct fault *fault) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return WRONG(fault, "__metadata__ is no object");
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        if (!json_is_string(value))
            return WRONG(fault, "__metadata__ has the key \"%.100s\", which is no text", key);
    }
    return STATUS_OK;
}

static int compare_places(const void *a, const void *b) {
    const struct safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Checks that the tensors lie one after the other, and that the last one ends at the end of the file. */
static int safetensors_check_places(const struct safetensors *file, uint64_t file_bytes, struct fault *fault) {
    uint64_t end = 0, data_bytes = file_bytes - file->data;
    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        if (entry->begin != end)
            return WRONG(fault, "tensor \"%.100s\" begins at %llu, and what is before it ends at %llu", entry->name,
                         (unsigned long long)entry->begin, (unsigned long long)end);
        end = entry->end;
    }
    if (end == data_bytes)
        return STATUS_OK;
    return WRONG(fault, "the tensors have %llu bytes, and %llu are there: the file is %s", (unsigned long long)end,
                 (unsigned long long)data_bytes, end > data_bytes ? "cut off" : "longer than it says");
}

static int safetensors_fill(struct safetensors *file, const json_t *root, struct fault *fault) {
    const char *key;
    json_t *value;
    int code = STATUS_OK;
    file->entries = calloc(json_object_size(root) + 1, sizeof *file->entries);
    if (!file->entries)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu tensors", json_object_size(root));
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (!strcmp(key, "__metadata__"))
            code = metadata_check(value, fault);
        else
            code = entry_parse(&file->entries[file->count++], key, value, fault);
        if (code != STATUS_OK)
            return code;
    }
    return STATUS_OK;
}

static int json_fault(json_error_t *error, struct fault *fault) {
    json_clean(error->text);
    return WRONG(fault, "the header is not JSON: %.150s at byte %d", error->text, error->position);
}

int safetensors_parse(struct safetensors *file, const char *header, size_t bytes, uint64_t file_bytes,
                      struct fault *fault) {
    json_error_t error;
    *file = (struct safetensors){.data = SAFETENSORS_LENGTH_BYTES + bytes};
    if (bytes > SAFETENSORS_HEADER_MAX || file->data > file_bytes)
        return WRONG(fault, "a header of %zu bytes in a file of %llu", bytes, (unsigned long long)file_bytes);
    json_auto_t *root = json_loadb(header, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return json_fault(&error, fault);
    int code =
        json_is_object(root) ? safetensors_fill(file, root, fault) : WRONG(fault, "the header is no JSON object");
    if (code == STATUS_OK) {
        qsort(file->entries, file->count, sizeof *file->entries, compare_places);
        code = safetensors_check_places(file, file_bytes, fault);
    }
    if (code != STATUS_OK)
        safetensors_finish(file);
    return code;
}

static int read_whole(int fd, void *to, size_t bytes, uint64_t at, struct fault *fault) {
    if (whole_read(fd, to, bytes, at))
        return STATUS_OK;
    return WRONG(fault, "cannot be read: %s", errno ? strerror(errno) : "it is cut off");
}

int safetensors_read(struct safetensors *file, int fd, struct fault *fault) {
    uint8_t length[SAFETENSORS_LENGTH_BYTES];
    struct stat stat;
    size_t bytes = 0;
    *file = (struct safetensors){0};
    if (fstat(fd, &stat) || !S_ISREG(stat.st_mode))
        return WRONG(fault, "is no ordinary file");
    if (stat.st_size < SAFETENSORS_LENGTH_BYTES)
        return WRONG(fault, "has %lld bytes, which is too short for a file of tensors", (long long)stat.st_size);
    int code = read_whole(fd, length, sizeof length, 0, fault);
    if (code == STATUS_OK)
        code = safetensors_header_bytes(length, (uint64_t)stat.st_size, &bytes, fault);
    if (code != STATUS_OK)
        return code;
    CLEANUP(free) char *header = malloc(bytes + 1);
    if (!header)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a header of %zu bytes", bytes);
    code = read_whole(fd, header, bytes, sizeof length, fault);
    return code == STATUS_OK ? safetensors_parse(file, header, bytes, (uint64_t)stat.st_size, fault) : code;
}

void safetensors_finish(struct safetensors *file) {
    for (size_t i = 0; i < file->count; i++)
        free(file->entries[i].name);
    free(file->entries);
    file->entries = NULL;
    file->count = 0;
}

/* ---- writing ---- */

static int compare_for_file(const void *a, const void *b) {
    const struct safetensors_entry *x = a, *y = b;
    size_t x_size = dtype_size(x->type.dtype), y_size = dtype_size(y->type.dtype);
    if (x_size != y_size)
        return x_size > y_size ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct safetensors_entry *entries, size_t count, struct fault *fault) {
    CLEANUP(free) const char **names = malloc((count + 1) * sizeof *names);
    if (!names)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", count);
    for (size_t i = 0; i < count; i++) {
        names[i] = entries[i].name;
        int code = name_check(names[i], fault);
        if (code != STATUS_OK)
            return code;
        if (!safetensors_has(entries[i].type.dtype))
            return WRONG(fault, "\"%.100s\" is %s, which safetensors files do not have", names[i],
                         dtype_name(entries[i].type.dtype));
    }
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count; i++)
        if (!strcmp(names[i - 1], names[i]))
            return WRONG(fault, "\"%.100s\" is there twice", names[i]);
    return STATUS_OK;
}

static void print_entry(FILE *out, const struct safetensors_entry *entry) {
    json_quote(out, entry->name);
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtypes[entry->type.dtype]);
    for (int i = 0; i < entry->type.rank; i++)
        fprintf(out, "%s%lld", i ? "," : "", (long long)entry->type.shape[i]);
    fprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)entry->begin, (unsigned long long)entry->end);
}

static void print_head(FILE *out, const struct safetensors_entry *entries, size_t count) {
    static const uint8_t later[SAFETENSORS_LENGTH_BYTES];
    fwrite(later, 1, sizeof later, out);
    fputc('{', out);
    for (size_t i = 0; i < count; i++) {
        if (i)
            fputc(',', out);
        print_entry(out, &entries[i]);
    }
    fputc('}', out);
    while (ftell(out) % SAFETENSORS_LENGTH_BYTES) /* so that the data is aligned, too */
        fputc(' ', out);
}

static int safetensors_place(struct safetensors_entry *entries, size_t count, struct fault *fault) {
    uint64_t end = 0;
    qsort(entries, count, sizeof *entries, compare_for_file);
    for (size_t i = 0; i < count; i++) {
        entries[i].begin = end;
        if (__builtin_add_overflow(end, (uint64_t)type_bytes(&entries[i].type), &end) || end > INT64_MAX / 2)
            return fault_set(fault, STATUS_LIMIT, "the tensors are more than one file holds");
        entries[i].end = end;
    }
    return STATUS_OK;
}

int safetensors_lay_out(struct safetensors_entry *entries, size_t count, uint8_t **head, size_t *head_bytes,
                        struct fault *fault) {
    CLEANUP(free) char *text = NULL;
    size_t bytes = 0;
    int code = check_names(entries, count, fault);
    if (code == STATUS_OK)
        code = safetensors_place(entries, count, fault);
    if (code != STATUS_OK)
        return code;
    FILE *out = open_memstream(&text, &bytes);
    if (out)
        print_head(out, entries, count);
    if (!out || fclose(out))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a header of %zu tensors", count);
    uint64_t length = bytes - SAFETENSORS_LENGTH_BYTES;
    if (length > SAFETENSORS_HEADER_MAX)
        return fault_set(fault, STATUS_LIMIT, "%zu tensors need a header of %llu bytes, the limit is %d", count,
                         (unsigned long long)length, SAFETENSORS_HEADER_MAX);
    for (int i = 0; i < SAFETENSORS_LENGTH_BYTES; i++)
        text[i] = (char)(length >> (8 * i));
    *head = (uint8_t *)TAKE(text);
    *head_bytes = bytes;
    return STATUS_OK;
}
