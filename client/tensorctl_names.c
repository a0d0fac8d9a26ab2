/* The names of tensors on a device. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensorctl.h"
#include "client/tensorctl_device.h"
#include "client/tensord.h"
#include "proto/json.h"

int tensorctl_library_fault(struct fault *fault) {
    const td_error *error = td_last_error();
    return fault_set(fault, (enum status)error->code, "%s", error->message);
}

int tensorctl_open(const struct tensorctl_device *about, td_connection **connection, td_device **device,
                   struct fault *fault) {
    td_options options = {.client_name = "tensorctl " TENSORD_VERSION};
    *connection = NULL;
    if (!td_connect(about->url, &options, connection) && !td_device_open(*connection, about->device, device))
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

static void names_write_json(FILE *out, const char *device, const td_name_info *infos, size_t count) {
    struct json json = {.out = out, .pretty = true, .first = true};

    json_open(&json, NULL, '{');
    json_text(&json, "device", device);
    json_open(&json, "names", '[');
    for (size_t i = 0; i < count; ++i) {
        json_open(&json, NULL, '{');
        json_text(&json, "name", infos[i].name);
        json_text(&json, "dtype", td_dtype_name(infos[i].dtype));
        json_open(&json, "shape", '[');
        for (int axis = 0; axis < infos[i].rank; ++axis)
            json_integer(&json, NULL, (uint64_t)infos[i].shape[axis]);
        json_close(&json, ']');
        json_integer(&json, "bytes", infos[i].bytes);
        json_real(&json, "age_s", infos[i].age_s);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    fputc('\n', out);
}

static void names_write(const td_name_info *infos, size_t count) {
    static const struct table_column columns[] = {{"NAME", .flexible = true},
                                                  {"DTYPE"},
                                                  {"SHAPE", .flexible = true},
                                                  {"BYTES", .right = true},
                                                  {"AGE", .right = true}};
    struct table table;
    char text[TEXT_UNIT_MAX], shape[TABLE_CELL_MAX];
    if (count == 0)
        return text_line(stdout, "no named tensors");
    if (!table_init(&table, columns, sizeof columns / sizeof *columns, count))
        return text_line(stdout, "out of memory");
    for (size_t i = 0; i < count; i++) {
        names_type(shape, sizeof shape, &infos[i]);
        table_set(&table, i, 0, infos[i].name);
        table_set(&table, i, 1, td_dtype_name(infos[i].dtype));
        table_set(&table, i, 2, shape);
        table_set(&table, i, 3, text_bytes(text, (double)infos[i].bytes));
        table_set(&table, i, 4, text_duration(text, infos[i].age_s));
    }
    table_head(&table, stdout);
    for (size_t i = 0; i < count; i++)
        table_row(&table, i, stdout);
    table_finish(&table);
}

int tensorctl_list_names(td_device *device, td_name_info **infos, size_t *count, struct fault *fault) {
    size_t capacity = 0;
    *infos = NULL;
    *count = 0;
    if (td_names(device, NULL, 0, count))
        return tensorctl_library_fault(fault);
    do { /* there may be more of them by the next look */
        capacity = *count + 16;
        free(*infos);
        *infos = calloc(capacity, sizeof **infos);
        if (!*infos)
            return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu names", capacity);
        if (td_names(device, *infos, capacity, count))
            return tensorctl_library_fault(fault);
    } while (*count > capacity);
    return STATUS_OK;
}

int tensorctl_names(const struct tensorctl_device *about, struct fault *fault) {
    td_connection *connection;
    td_device *device;
    td_name_info *infos = NULL;
    size_t count;
    int code = tensorctl_open(about, &connection, &device, fault);
    if (code)
        return code;
    code = tensorctl_list_names(device, &infos, &count, fault);
    if (!code && about->json)
        names_write_json(stdout, td_device_name(device), infos, count);
    else if (!code)
        names_write(infos, count);
    free(infos);
    td_close(connection);
    if (!code && (fflush(stdout) || ferror(stdout)))
        code = fault_set(fault, STATUS_INTERNAL, "cannot write the output: %s", strerror(errno));
    return code;
}
