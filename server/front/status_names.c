#include "server/front/status_names.h"

void status_fill_names(const struct worker_slot *slot, struct status_names *names, Tensord__DeviceStatus *status) {
    const struct stats_names *from = &slot->snapshot.device.names;
    uint64_t now = uv_hrtime();
    status->names = from->count;
    status->names_bytes = from->bytes;
    status->names_fault = (char *)from->fault;
    status->names_unsaved = from->unsaved;
    if (from->unsaved_since_ns && now > from->unsaved_since_ns)
        status->names_unsaved_s = (double)(now - from->unsaved_since_ns) / 1e9;
    status->names_failing = from->failing;
    status->names_save_fault = (char *)from->save_fault;
    status->name_owners = names->pointers;
    for (unsigned i = 0; i < from->n_owners && i < STATS_OWNERS_MAX; i++) {
        Tensord__NameOwner *owner = names->pointers[i] = &names->owners[i];
        tensord__name_owner__init(owner);
        owner->principal = (char *)from->owners[i].principal;
        owner->names = from->owners[i].count;
        owner->bytes = from->owners[i].bytes;
        owner->unsaved = from->owners[i].unsaved;
        status->n_name_owners++;
    }
}
