/* Operations: which devices have them, and the contract of each one. */
#include <stdlib.h>
#include <string.h>

#include "client/tensorctl/tensorctl.h"
#include "proto/files/json.h"
#include "proto/ops/status.h"

/* ---- which devices have them ---- */

enum { OPERATIONS_TEXT_MAX = 512 };

static bool operations_has(const uint32_t *dtypes, size_t n, uint32_t dtype) {
    for (size_t i = 0; i < n; ++i)
        if (dtypes[i] == dtype)
            return true;
    return false;
}

/* The dtypes of `of` that are not in `except`, as text: "f16 bf16". Returns their number. */
static size_t operations_list(const Tensord__OperationList *list, const uint32_t *of, size_t n_of,
                              const uint32_t *except, size_t n_except, char *text, size_t size) {
    size_t n = 0, used = 0;
    text[0] = 0;
    for (size_t i = 0; i < n_of; ++i) {
        if (operations_has(except, n_except, of[i]))
            continue;
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", n ? " " : "",
                                     of[i] < list->n_dtypes ? list->dtypes[of[i]] : "?");
        ++n;
    }
    return n;
}

/* "all", "all but bool", "f16 bf16 f32 f64". */
static void operations_dtypes(const Tensord__OperationList *list, const Tensord__Operation *operation, char *text,
                              size_t size) {
    char but[OPERATIONS_TEXT_MAX];
    uint32_t every[64];
    size_t n = 0, missing;
    while (n < 64 && n + 1 < list->n_dtypes) {
        every[n] = (uint32_t)n + 1;
        ++n;
    }
    missing = operations_list(list, every, n, operation->taken, operation->n_taken, but, sizeof but);
    if (missing == 0)
        snprintf(text, size, "all");
    else if (missing < operation->n_taken)
        snprintf(text, size, "all but %.*s", OPERATIONS_TEXT_MAX - 10, but);
    else
        operations_list(list, operation->taken, operation->n_taken, NULL, 0, text, size);
}

/* The dtypes of the operation that device `d` lacks; returns their number. */
static size_t operations_missing(const Tensord__OperationList *list, const Tensord__Operation *operation, size_t d,
                                 char *text, size_t size) {
    const Tensord__OperationSupport *support = d < operation->n_support ? operation->support[d] : NULL;
    return operations_list(list, operation->dtypes, operation->n_dtypes, support ? support->dtypes : NULL,
                           support ? support->n_dtypes : 0, text, size);
}

/* "all", or the devices that lack something: "cuda:1: no f16 bf16". */
static void operations_devices(const Tensord__OperationList *list, const Tensord__Operation *operation, char *text,
                               size_t size) {
    char missing[OPERATIONS_TEXT_MAX];
    size_t used = 0;
    for (size_t d = 0; d < list->n_devices && used < size; ++d) {
        if (!list->devices[d]->known || !operations_missing(list, operation, d, missing, sizeof missing))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s: no %s", used ? "; " : "", list->devices[d]->name,
                                 missing);
    }
    if (used == 0)
        snprintf(text, size, "all");
}

static void operations_table(FILE *out, const Tensord__OperationList *list) {
    static const struct table_column columns[] = {{"OPERATION", .flexible = true},
                                                  {"DTYPES IT TAKES", .flexible = true},
                                                  {"DEVICES THAT HAVE IT", .flexible = true}};
    char text[OPERATIONS_TEXT_MAX];
    struct table table;
    if (!table_init(&table, columns, sizeof columns / sizeof *columns, list->n_operations))
        return text_line(out, "out of memory");
    for (size_t i = 0; i < list->n_operations; ++i) {
        table_set(&table, i, 0, list->operations[i]->name);
        operations_dtypes(list, list->operations[i], text, sizeof text);
        table_set(&table, i, 1, text);
        operations_devices(list, list->operations[i], text, sizeof text);
        table_set(&table, i, 2, text);
    }
    table_write(&table, out);
}

/* One line about a device, and one line with the reason for each operation that it lacks. */
static void operations_device(FILE *out, const Tensord__OperationList *list, size_t d) {
    const Tensord__OperationDevice *device = list->devices[d];
    char text[2 * OPERATIONS_TEXT_MAX], missing[OPERATIONS_TEXT_MAX], head[64];
    size_t n = 0;
    snprintf(head, sizeof head, "%.40s: ", device->name);
    if (!device->known) {
        snprintf(text, sizeof text, "not known: %s", device->reason);
        return text_wrap(out, head, text);
    }
    for (size_t i = 0; i < list->n_operations; ++i)
        n += operations_missing(list, list->operations[i], d, missing, sizeof missing) > 0;
    if (n == 0)
        return text_line(out, "%snone missing", head);
    text_line(out, "%s%zu missing, or not with every dtype", head, n);
    for (size_t i = 0; i < list->n_operations; ++i) {
        const Tensord__Operation *operation = list->operations[i];
        if (!operations_missing(list, operation, d, missing, sizeof missing))
            continue;
        snprintf(text, sizeof text, "%s with %s: %s", operation->name, missing,
                 d < operation->n_support ? operation->support[d]->reason : "");
        text_wrap(out, "    ", text);
    }
}

void tensorctl_operations_write(FILE *out, const Tensord__OperationList *list) {
    operations_table(out, list);
    fputc('\n', out);
    for (size_t d = 0; d < list->n_devices; ++d)
        operations_device(out, list, d);
}

/* ---- contracts ---- */

static const struct operation_contract *contract_find(const char *name) {
    for (size_t i = 0; i < operation_contracts_count; i++)
        if (!strcmp(operation_contracts[i].name, name))
            return &operation_contracts[i];
    return NULL;
}

/* Prints a list, one entry on each line. */
static void contract_list(FILE *out, const char *head, const char *list) {
    char entry[512];
    while (*list) {
        size_t length = strcspn(list, ";");
        snprintf(entry, sizeof entry, "%.*s", (int)length, list);
        text_wrap(out, head, entry);
        list += length;
        list += strspn(list, "; ");
    }
}

static void contract_show(FILE *out, const struct operation_contract *contract) {
    text_line(out, "%s: operation %u, %s, since %s", contract->name, contract->number, contract->family,
              contract->since);
    text_wrap(out, "    ", contract->contract);
    contract_list(out, "  C          ", contract->prototypes);
    contract_list(out, "  input      ", contract->inputs);
    contract_list(out, "  attribute  ", contract->attributes);
    contract_list(out, "  output     ", contract->outputs);
    if (*contract->dtypes) {
        text_wrap(out, "  dtypes     ", contract->dtypes);
        text_wrap(out, "  result     ", contract->result);
    }
    text_wrap(out, "  derivative ", contract->derivative);
    text_wrap(out, "  cost       ", contract->cost);
}

static void contract_write(struct json *json, const struct operation_contract *contract) {
    json_open(json, NULL, '{');
    json_text(json, "name", contract->name);
    json_integer(json, "number", contract->number);
    json_text(json, "family", contract->family);
    json_text(json, "since", contract->since);
    json_text(json, "c", contract->prototypes);
    json_text(json, "inputs", contract->inputs);
    json_text(json, "attributes", contract->attributes);
    json_text(json, "outputs", contract->outputs);
    json_text(json, "dtypes", contract->dtypes);
    json_text(json, "result", contract->result);
    json_text(json, "derivative", contract->derivative);
    json_text(json, "cost", contract->cost);
    json_text(json, "contract", contract->contract);
    json_close(json, '}');
}

int tensorctl_contracts_write(FILE *out, const char *const names[], int n_names, bool json, struct fault *fault) {
    for (int i = 0; i < n_names; i++)
        if (!contract_find(names[i]))
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "there is no operation %.64s: `tensorctl ops` lists those of a daemon", names[i]);
    struct json writer = {.out = out, .pretty = true, .first = true};
    if (json)
        json_open(&writer, NULL, '[');
    for (int i = 0; i < n_names; i++) {
        if (json)
            contract_write(&writer, contract_find(names[i]));
        else
            contract_show(out, contract_find(names[i]));
    }
    if (json) {
        json_close(&writer, ']');
        fputc('\n', out);
    }
    return STATUS_OK;
}
