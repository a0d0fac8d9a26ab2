/* names.json: which names an owner has, and where their bytes lie.
 *
 *     {"device": "cpu:0", "names": {
 *       "weights": {"dtype": "f32", "shape": [2, 3], "file": 17, "tensor": "weights", "begin": 0},
 *       "half": {"dtype": "f32", "shape": [3], "file": 17, "tensor": "weights", "begin": 0}}}
 *
 * Names that share memory lie in one tensor of a file, from byte `begin` of it on. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/name.h"
#include "server/worker/state_impl.h"

#define WRONG(fault, ...) fault_set(fault, STATUS_INVALID_ARGUMENT, __VA_ARGS__)

/* ---- writing ---- */

/* Names have no control characters, so that these two are all there is to escape. */
static void index_print_text(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void index_print_name(FILE *out, const struct index_name *name) {
    index_print_text(out, name->name);
    fprintf(out, ": {\"dtype\": \"%s\", \"shape\": [", dtype_name(name->type.dtype));
    for (int i = 0; i < name->type.rank; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "", name->type.shape[i]);
    fputc(']', out);
    if (name->file) {
        fprintf(out, ", \"file\": %" PRIu64 ", \"tensor\": ", name->file);
        index_print_text(out, name->key);
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
    index_print_text(out, device);
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
            return WRONG(fault, "\"%.100s\": its shape is not made of numbers from 0 on", name->name);
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
        return WRONG(fault, "\"%.100s\" says not where its bytes are", name->name);
    name->file = (uint64_t)json_integer_value(file);
    name->begin = json_integer_value(begin);
    name->key = strdup(json_string_value(key));
    return name->key ? STATUS_OK : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
}

static int index_read_name(struct index_name *name, const char *text, const json_t *value, struct fault *fault) {
    int code = name_check(text, fault);
    if (code != STATUS_OK)
        return code;
    name->name = strdup(text);
    if (!name->name)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a name");
    if (!json_is_object(value))
        return WRONG(fault, "\"%.100s\" is no object", text);
    code = index_read_type(name, value, fault);
    return code == STATUS_OK ? index_read_place(name, value, fault) : code;
}

static int index_fill(struct index *index, const json_t *root, struct fault *fault) {
    const json_t *names = json_object_get(root, "names");
    const char *key;
    json_t *value;
    int code = STATUS_OK;
    if (!json_is_object(names))
        return WRONG(fault, "has no names");
    if (json_object_size(names) > LIMITS_NAMED_TENSORS_MAX)
        return fault_set(fault, STATUS_LIMIT, "has %zu names, the limit is %d", json_object_size(names),
                         LIMITS_NAMED_TENSORS_MAX);
    index->names = calloc(json_object_size(names) + 1, sizeof *index->names);
    if (!index->names)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", json_object_size(names));
    json_object_foreach((json_t *)(uintptr_t)names, key, value) {
        code = index_read_name(&index->names[index->count++], key, value, fault);
        if (code != STATUS_OK)
            break;
    }
    return code;
}

int index_read(struct index *index, const char *path, struct fault *fault) {
    json_error_t error;
    *index = (struct index){.count = 0};
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        for (char *c = error.text; *c; c++) /* the parser's words have a piece of the file in them */
            if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
                *c = '?';
        return WRONG(fault, "names.json: %.150s at byte %d", error.text, error.position);
    }
    struct fault cause = {0};
    int code = index_fill(index, root, &cause);
    json_decref(root);
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
