#include "server/front/status_config.h"

#include <stdlib.h>

#include "proto/wire/frame.h"
#include "proto/wire/tensord.pb-c.h"
#include "server/front/config.h"
#include "server/process/packet.h"

/* All rows, with what their texts stand in. */
struct config_message {
    struct config_row rows[CONFIG_ROWS_MAX];
    Tensord__ConfigRow messages[CONFIG_ROWS_MAX], *pointers[CONFIG_ROWS_MAX];
};

int status_append_config(const struct config *config, uint64_t sequence, uint8_t **bytes, size_t *size) {
    Tensord__Config reply = TENSORD__CONFIG__INIT;
    struct config_message *message = malloc(sizeof *message);
    if (!message)
        return STATUS_NO_HOST_MEMORY;
    for (unsigned i = 0; config_row(config, i, &message->rows[i]); i++) {
        Tensord__ConfigRow *row = message->pointers[i] = &message->messages[i];
        tensord__config_row__init(row);
        row->key = (char *)(uintptr_t)message->rows[i].key;
        row->value = message->rows[i].value;
        row->origin = (char *)(uintptr_t)config_origin_text(config, message->rows[i].origin);
        row->reloadable = message->rows[i].reloadable;
        reply.n_rows = i + 1;
    }
    reply.rows = message->pointers;
    int error = packet_append(bytes, size, FRAME_CONFIG, sequence, &reply.base);
    free(message);
    return error;
}
