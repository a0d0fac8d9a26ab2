/* tensorctl names: lists, removes and moves named tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensorctl/command.h"
#include "proto/files/json.h"
#include "proto/ops/cleanup.h"

CLEANUP_OF(td_connection, td_close)

enum { NAMES_DEVICES_MAX = 64 };

int tensorctl_library_fault(struct fault *fault) {
    const td_error *error = td_last_error();
    return fault_set(fault, (enum status)error->code, "%s", error->message);
}

int tensorctl_open(const struct tensorctl *ctl, td_connection **connection, td_device **device, struct fault *fault) {
    td_options options = {.client_name = "tensorctl " TENSORD_VERSION};
    *connection = NULL;
    if (!td_connect(ctl->url, &options, connection) && !td_device_open(*connection, ctl->words[0], device))
        return STATUS_OK;
    int code = tensorctl_library_fault(fault);
    td_close(*connection);
    *connection = NULL;
    return code;
}

/* "f32 (2, 3)" */
static void names_type(char *text, size_t size, const td_name_info *info) {
    size_t used = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < info->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? ", " : "", (long long)info->shape[i]);
    if (used < size)
        snprintf(text + used, size - used, info->rank == 1 ? ",)" : ")");
}

/* ---- lists ---- */

/* The names on one device. */
struct names_found {
    char device[TD_NAME_MAX];
    td_name_info *infos;
    size_t count;
};

static void names_write_json_one(struct json *json, const char *device, const td_name_info *info) {
    json_open(json, NULL, '{');
    json_text(json, "device", device);
    if (*info->owner) {
        json_text(json, "user", info->user);
        json_text(json, "owner", info->owner);
        json_bool(json, "orphan", info->orphan);
    }
    json_text(json, "name", info->name);
    json_text(json, "dtype", td_dtype_name(info->dtype));
    json_open(json, "shape", '[');
    for (int axis = 0; axis < info->rank; ++axis)
        json_integer(json, NULL, (uint64_t)info->shape[axis]);
    json_close(json, ']');
    json_integer(json, "bytes", info->bytes);
    json_real(json, "age_s", info->age_s);
    json_bool(json, "unsaved", info->unsaved);
    json_close(json, '}');
}

static void names_write_json(FILE *out, const struct names_found *found, size_t devices) {
    struct json json = {.out = out, .pretty = true, .first = true};

    json_open(&json, NULL, '{');
    json_open(&json, "names", '[');
    for (size_t d = 0; d < devices; d++)
        for (size_t i = 0; i < found[d].count; ++i)
            names_write_json_one(&json, found[d].device, &found[d].infos[i]);
    json_close(&json, ']');
    json_close(&json, '}');
    fputc('\n', out);
}

static void names_fill_row(struct table *table, size_t row, bool all, const char *device, const td_name_info *info) {
    char text[TEXT_UNIT_MAX], more[TEXT_UNIT_MAX + 16], shape[TABLE_CELL_MAX];
    unsigned column = 0;

    names_type(shape, sizeof shape, info);
    table_set(table, row, column++, device);
    if (all)
        table_set(table, row, column++, info->user);
    table_set(table, row, column++, info->name);
    table_set(table, row, column++, td_dtype_name(info->dtype));
    table_set(table, row, column++, shape);
    table_set(table, row, column++, text_bytes(text, (double)info->bytes));
    snprintf(more, sizeof more, "%s%s", text_duration(text, info->age_s), info->unsaved ? " unsaved" : "");
    table_set(table, row, column++, more);
}

static void names_write(const struct names_found *found, size_t devices, bool all) {
    static const struct table_column columns[] = {{"DEVICE"},
                                                  {"USER", .flexible = true},
                                                  {"NAME", .flexible = true},
                                                  {"DTYPE"},
                                                  {"SHAPE", .flexible = true},
                                                  {"BYTES", .right = true},
                                                  {"AGE", .right = true}};
    struct table_column shown[sizeof columns / sizeof *columns];
    struct table table;
    size_t count = 0, row = 0;
    unsigned n = 0;
    for (size_t d = 0; d < devices; d++)
        count += found[d].count;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (all || i != 1)
            shown[n++] = columns[i];
    if (count == 0)
        return text_line(stdout, "no named tensors");
    if (!table_init(&table, shown, n, count))
        return text_line(stdout, "out of memory");
    for (size_t d = 0; d < devices; d++)
        for (size_t i = 0; i < found[d].count; i++)
            names_fill_row(&table, row++, all, found[d].device, &found[d].infos[i]);
    table_write(&table, stdout);
}

static int names_list(td_device *device, bool all, td_name_info **infos, size_t *count, struct fault *fault) {
    int (*list)(td_device *, td_name_info *, size_t, size_t *) = all ? td_names_all : td_names;
    size_t capacity = 0;
    *infos = NULL;
    *count = 0;
    if (list(device, NULL, 0, count))
        return tensorctl_library_fault(fault);
    do { /* more names may appear between two calls */
        capacity = *count + 16;
        free(*infos);
        *infos = calloc(capacity, sizeof **infos);
        if (!*infos)
            return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", capacity);
        if (list(device, *infos, capacity, count))
            return tensorctl_library_fault(fault);
    } while (*count > capacity);
    return STATUS_OK;
}

int tensorctl_list_names(td_device *device, td_name_info **infos, size_t *count, struct fault *fault) {
    return names_list(device, false, infos, count, fault);
}

/* Keeps the names of one user only; NULL: all. */
static void names_select(struct names_found *found, const char *user) {
    size_t kept = 0;
    for (size_t i = 0; user && i < found->count; i++)
        if (!strcmp(found->infos[i].user, user) || !strcmp(found->infos[i].owner, user))
            found->infos[kept++] = found->infos[i];
    if (user)
        found->count = kept;
}

static int names_look(const struct tensorctl *ctl, td_connection *connection, struct names_found *found,
                      struct fault *fault) {
    td_device *device;
    bool all = ctl->all || ctl->user;
    if (td_device_open(connection, found->device, &device))
        return tensorctl_library_fault(fault);
    int code = names_list(device, all, &found->infos, &found->count, fault);
    if (!code)
        names_select(found, ctl->user);
    return code;
}

/* The device that the command line names, or all devices that are ready. */
static int names_devices(const struct tensorctl *ctl, td_connection *connection, struct names_found **found,
                         size_t *devices, struct fault *fault) {
    static td_device_info infos[NAMES_DEVICES_MAX];
    size_t count = 1;
    if (!ctl->n_words && td_devices(connection, infos, NAMES_DEVICES_MAX, &count))
        return tensorctl_library_fault(fault);
    count = count < NAMES_DEVICES_MAX ? count : NAMES_DEVICES_MAX;
    *found = calloc(count + 1, sizeof **found);
    if (!*found)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a list");
    for (size_t i = 0; i < count; i++) {
        if (!ctl->n_words && strcmp(infos[i].state, "ready") != 0) {
            fprintf(stderr, "tensorctl: %s is %s: its names cannot be listed\n", infos[i].name, infos[i].state);
            continue;
        }
        snprintf((*found)[*devices].device, sizeof(*found)[*devices].device, "%.*s", TD_NAME_MAX - 1,
                 ctl->n_words ? ctl->words[0] : infos[i].name);
        ++*devices;
    }
    return STATUS_OK;
}

static int names_show(const struct tensorctl *ctl, td_connection *connection, struct fault *fault) {
    struct names_found *found = NULL;
    size_t devices = 0;
    int code = names_devices(ctl, connection, &found, &devices, fault);
    for (size_t i = 0; i < devices && !code; i++)
        code = names_look(ctl, connection, &found[i], fault);
    if (!code && ctl->json)
        names_write_json(stdout, found, devices);
    else if (!code)
        names_write(found, devices, ctl->all || ctl->user);
    for (size_t i = 0; found && i < devices; i++)
        free(found[i].infos);
    free(found);
    return code ? code : command_flushed(fault);
}

/* ---- changes ---- */

/* Removes or moves each name, or all names at once. */
static int names_change(const struct tensorctl *ctl, td_connection *connection, struct fault *fault) {
    bool remove = !strcmp(ctl->words[0], "rm");
    const char *new_name = !remove && !ctl->to ? ctl->words[3] : NULL;
    int last = new_name ? 3 : ctl->n_words;
    td_device *device;
    if (td_device_open(connection, ctl->words[1], &device))
        return tensorctl_library_fault(fault);
    for (int i = 2; i < last || (i == 2 && ctl->all); i++) {
        const char *name = ctl->all ? NULL : ctl->words[i];
        int code = remove ? td_names_remove(device, ctl->user, name)
                          : td_names_move(device, ctl->user, name, ctl->to, new_name);
        if (code)
            return tensorctl_library_fault(fault);
    }
    return STATUS_OK;
}

const char *command_names_check(const struct tensorctl *ctl) {
    bool remove = ctl->n_words && !strcmp(ctl->words[0], "rm"), move = ctl->n_words && !strcmp(ctl->words[0], "mv");
    int names = ctl->n_words - 2;
    if (!remove && !move)
        return ctl->n_words > 1 ? "names takes one device, or rm or mv before it"
               : ctl->to        ? "--to is for names mv"
                                : NULL;
    if (ctl->json)
        return "--json is for the list of names";
    if (names < 0)
        return "which device?";
    if (ctl->all ? names != 0 : names == 0)
        return ctl->all ? "with --all there is no name to be said" : "which name?";
    if (remove)
        return ctl->to ? "--to is for names mv" : NULL;
    if (!ctl->to && (ctl->all || names != 2))
        return "names mv takes a name and a new one, or --to and whom to";
    return NULL;
}

int tensorctl_names(struct tensorctl *ctl, struct fault *fault) {
    td_options options = {.client_name = "tensorctl " TENSORD_VERSION};
    CLEANUP(td_close) td_connection *connection = NULL;
    if (td_connect(ctl->url, &options, &connection))
        return tensorctl_library_fault(fault);
    bool change = ctl->n_words && (!strcmp(ctl->words[0], "rm") || !strcmp(ctl->words[0], "mv"));
    return change ? names_change(ctl, connection, fault) : names_show(ctl, connection, fault);
}
