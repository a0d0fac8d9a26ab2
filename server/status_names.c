#include "server/status_names.h"

void status_fill_names(const struct worker_slot *slot, struct status_names *names, Tensord__DeviceStatus *status) {
    const struct stats_names *from = &slot->snapshot.device.names;
    status->names = from->count;
    status->names_bytes = from->bytes;
    status->names_fault = (char *)from->fault;
    status->name_owners = names->pointers;
    for (unsigned i = 0; i < from->n_owners && i < STATS_OWNERS_MAX; i++) {
        Tensord__NameOwner *owner = names->pointers[i] = &names->owners[i];
        tensord__name_owner__init(owner);
        owner->principal = (char *)from->owners[i].principal;
        owner->names = from->owners[i].count;
        owner->bytes = from->owners[i].bytes;
        status->n_name_owners++;
    }
}
