/* The configuration of a running daemon, and where each value comes from. */
#include <string.h>

#include "client/tensorctl/command.h"
#include "proto/files/json.h"
#include "proto/wire/frame.h"

static void config_write_json(FILE *out, const Tensord__Config *config) {
    struct json json = {.out = out, .pretty = true, .first = true};
    json_open(&json, NULL, '{');
    json_open(&json, "config", '[');
    for (size_t i = 0; i < config->n_rows; i++) {
        json_open(&json, NULL, '{');
        json_text(&json, "key", config->rows[i]->key);
        json_text(&json, "value", config->rows[i]->value);
        json_text(&json, "origin", config->rows[i]->origin);
        json_bool(&json, "reloadable", config->rows[i]->reloadable);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    fputc('\n', out);
}

/* As a configuration file, which it may be made into: values that are not set are comments. */
static void config_write(FILE *out, const Tensord__Config *config) {
    char value[4 * TABLE_CELL_MAX];
    for (size_t i = 0; i < config->n_rows; i++) {
        const Tensord__ConfigRow *row = config->rows[i];
        text_fit(value, sizeof value, row->value, UINT32_MAX);
        int width = fprintf(out, "%s%s = %s", *value ? "" : "# ", row->key, value);
        fprintf(out, "%*s; %s%s\n", width < 40 ? 40 - width : 1, "", row->origin, row->reloadable ? ", SIGHUP" : "");
    }
}

int command_config(struct tensorctl *ctl, struct fault *fault) {
    Tensord__GetConfig request = TENSORD__GET_CONFIG__INIT;
    Tensord__Config *config;
    int error =
        control_call(ctl->control, FRAME_GET_CONFIG, &request.base, FRAME_CONFIG, (ProtobufCMessage **)&config, fault);
    if (error)
        return error;
    if (ctl->json)
        config_write_json(stdout, config);
    else
        config_write(stdout, config);
    tensord__config__free_unpacked(config, NULL);
    return command_flushed(fault);
}
