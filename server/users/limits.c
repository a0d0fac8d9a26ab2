#include "server/users/limits.h"

#include <stddef.h>
#include <string.h>

#include "engine/order/turns.h"
#include "server/users/config_value.h"

/* One key. `minimum` and `maximum` are in the field's unit. */
struct limits_key {
    const char *name;
    enum limits_kind { LIMITS_BYTES, LIMITS_RATE, LIMITS_COUNT, LIMITS_PLACES, LIMITS_DURATION } kind;
    size_t offset;
    const char *initial;
    uint64_t minimum, maximum;
    const char *help;
};

#define LIMITS_FIELD(field) offsetof(struct limits, field)
#define LIMITS_TERABYTE (UINT64_C(1) << 40)
#define LIMITS_WEEK UINT64_C(604800000)

static const struct limits_key limits_keys[] = {
    {"session-bytes", LIMITS_BYTES, LIMITS_FIELD(session_bytes), "0", 0, INT64_MAX,
     "live bytes of a session; 0: the device's"},
    {"session-host-bytes", LIMITS_BYTES, LIMITS_FIELD(session_host_bytes), "512M", 0, INT64_MAX,
     "host memory of a session: tensors, queues, programs, replies; 0: any"},
    {"session-tensors", LIMITS_COUNT, LIMITS_FIELD(session_tensors), "1048576", 1, 1u << 30,
     "live tensors of a session"},
    {"session-streams", LIMITS_COUNT, LIMITS_FIELD(session_streams), "64", 1, 65536, "open streams of a session"},
    {"session-operations", LIMITS_COUNT, LIMITS_FIELD(session_operations), "65536", 1, 1u << 30,
     "operations in flight of a session"},
    {"session-out-bytes", LIMITS_BYTES, LIMITS_FIELD(session_out_bytes), "16M", 1u << 20, LIMITS_TERABYTE,
     "reply bytes in flight of a session"},
    {"principal-bytes", LIMITS_BYTES, LIMITS_FIELD(principal_bytes), "0", 0, INT64_MAX,
     "live bytes of a principal on a device; 0: the device's"},
    {"principal-host-bytes", LIMITS_BYTES, LIMITS_FIELD(principal_host_bytes), "2G", 0, INT64_MAX,
     "the same of a principal on a device; 0: any"},
    {"principal-operations", LIMITS_COUNT, LIMITS_FIELD(principal_operations), "1048576", 1, 1u << 30,
     "operations in flight of a principal on a device"},
    {"principal-staging", LIMITS_BYTES, LIMITS_FIELD(principal_staging), "0", 0, LIMITS_TERABYTE,
     "bytes of `staging` that a principal may hold; 0: a fair part"},
    {"principal-rate", LIMITS_RATE, LIMITS_FIELD(principal_rate), "0", 0, LIMITS_TERABYTE,
     "bytes a second of a principal to and from a device; 0: any"},
    {"weight", LIMITS_COUNT, LIMITS_FIELD(weight), "100", 1, SHARE_WEIGHT_MAX,
     "of a principal's share of a device's time"},
    {"named-bytes", LIMITS_BYTES, LIMITS_FIELD(named_bytes), "0", 0, INT64_MAX,
     "named tensors of a principal on a device; 0: principal-bytes"},
    {"named-tensors", LIMITS_COUNT, LIMITS_FIELD(named_tensors), "4096", 1, LIMITS_NAMED_TENSORS_MAX,
     "names of a principal on a device"},
    {"principal-sessions", LIMITS_PLACES, LIMITS_FIELD(principal_sessions), "quarter", 0, 1u << 20,
     "of a principal on all devices; quarter: of max-sessions, admins any; 0: any"},
    {"principal-connections", LIMITS_PLACES, LIMITS_FIELD(principal_connections), "quarter", 0, 1u << 20,
     "of a principal; quarter: of max-connections, admins any; 0: any"},
    {"idle-timeout", LIMITS_DURATION, LIMITS_FIELD(idle_timeout), "0", 0, LIMITS_WEEK,
     "without use a session is closed; 0: never"},
    {"operation-time", LIMITS_DURATION, LIMITS_FIELD(operation_time), "60s", 0, LIMITS_WEEK,
     "of a device for one operation: then stopped (CPU), or refused at once (GPU); 0: any"},
    {"session-lease", LIMITS_DURATION, LIMITS_FIELD(session_lease), "60s", 0, LIMITS_WEEK,
     "for a session to be taken up again after its connection is lost"},
};
_Static_assert(sizeof limits_keys / sizeof *limits_keys == LIMITS_KEYS, "LIMITS_KEYS counts the rows");
_Static_assert(LIMITS_KEYS <= 32, "a bit for each key");
_Static_assert(sizeof(struct limits) == LIMITS_KEYS * sizeof(uint64_t), "a field without a key");

static const struct limits_key *limits_find(const char *name) {
    for (const struct limits_key *key = limits_keys; key < limits_keys + LIMITS_KEYS; key++)
        if (!strcmp(key->name, name))
            return key;
    return NULL;
}

static int limits_key_set(struct limits *limits, const struct limits_key *key, const char *value, struct fault *fault) {
    uint64_t *number = (uint64_t *)((char *)limits + key->offset);
    switch (key->kind) {
    case LIMITS_BYTES:
    case LIMITS_RATE:
        return config_value_bytes(value, key->minimum, key->maximum, number, fault);
    case LIMITS_COUNT:
        return config_value_count(value, key->minimum, key->maximum, number, fault);
    case LIMITS_PLACES:
        if (!strcmp(value, "quarter"))
            return *number = LIMITS_QUARTER, STATUS_OK;
        return config_value_count(value, key->minimum, key->maximum, number, fault);
    case LIMITS_DURATION:
        return config_value_duration(value, key->minimum, key->maximum, number, fault);
    }
    return fault_set(fault, STATUS_INTERNAL, "the key %s has no kind", key->name);
}

void limits_init(struct limits *limits) {
    for (const struct limits_key *key = limits_keys; key < limits_keys + LIMITS_KEYS; key++)
        limits_key_set(limits, key, key->initial, NULL);
}

void limits_fill(struct limits *limits) {
    for (const struct limits_key *key = limits_keys; key < limits_keys + LIMITS_KEYS; key++)
        if (key->minimum > 0 && !*(uint64_t *)((char *)limits + key->offset))
            limits_key_set(limits, key, key->initial, NULL);
}

bool limits_has(const char *key) {
    return limits_find(key);
}

unsigned limits_number(const char *key) {
    return (unsigned)(limits_find(key) - limits_keys);
}

int limits_set(struct limits *limits, const char *name, const char *value, struct fault *fault) {
    const struct limits_key *key = limits_find(name);
    if (!key)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "unknown key \"%s\"", name);
    if (!*value)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%s\" has no value", name);
    return limits_key_set(limits, key, value, fault);
}

int limits_set_own(struct limits *limits, uint32_t *own, const char *name, const char *value, struct fault *fault) {
    const struct limits_key *key = limits_find(name);
    uint32_t bit = key ? UINT32_C(1) << (key - limits_keys) : 0;
    if (*own & bit)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%s\" is there twice", name);
    int error = limits_set(limits, name, value, fault);
    if (!error)
        *own |= bit;
    return error;
}

uint64_t limits_of_places(uint64_t limit, uint64_t places) {
    return limit != LIMITS_QUARTER ? limit : places < 4 ? 1 : places / 4;
}

void limits_overlay(struct limits *limits, const struct limits *over, uint32_t own) {
    for (unsigned i = 0; i < LIMITS_KEYS; i++)
        if (own >> i & 1) {
            size_t offset = limits_keys[i].offset;
            memcpy((char *)limits + offset, (const char *)over + offset, sizeof(uint64_t));
        }
}

bool limits_row(const struct limits *limits, unsigned row, const char **key, uint64_t *value, const char **unit) {
    static const char *const units[] = {[LIMITS_BYTES] = "bytes",
                                        [LIMITS_RATE] = "bytes/s",
                                        [LIMITS_COUNT] = "",
                                        [LIMITS_PLACES] = "",
                                        [LIMITS_DURATION] = "ms"};
    if (row >= LIMITS_KEYS)
        return false;
    *key = limits_keys[row].name;
    *value = *(const uint64_t *)((const char *)limits + limits_keys[row].offset);
    *unit = units[limits_keys[row].kind];
    return true;
}

void limits_print_help(FILE *out) {
    for (const struct limits_key *key = limits_keys; key < limits_keys + LIMITS_KEYS; key++)
        fprintf(out, "  --%-21s %-8s %s\n", key->name, key->initial, key->help);
}
