#include "client/tensorctl/tensorctl_contracts.h"

#include <string.h>

#include "client/tensorctl/tensorctl.h"
#include "proto/files/json.h"
#include "proto/ops/status.h"

static const struct operation_contract *contract_find(const char *name) {
    for (size_t i = 0; i < operation_contracts_count; i++)
        if (!strcmp(operation_contracts[i].name, name))
            return &operation_contracts[i];
    return NULL;
}

/* A list, one entry a line. */
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
