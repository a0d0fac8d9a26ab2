/* Readings of a device: temperature, power, clocks and the like. Processes share the struct as it is, so it is plain data. The value of a
 * reading that has not been read is 0, and not marked as available. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, field): the field of DeviceReadings in proto/wire/tensord.proto, where the meaning and the unit stand. */
#define READING_TABLE(X)                                                                                               \
    X(UTILISATION_GPU, utilisation_gpu)                                                                                \
    X(UTILISATION_MEMORY, utilisation_memory)                                                                          \
    X(TEMPERATURE, temperature)                                                                                        \
    X(POWER_DRAW, power_draw)                                                                                          \
    X(POWER_LIMIT, power_limit)                                                                                        \
    X(CLOCK_SM, clock_sm)                                                                                              \
    X(CLOCK_MEMORY, clock_memory)                                                                                      \
    X(ECC_ENABLED, ecc_enabled)                                                                                        \
    X(ECC_CORRECTED, ecc_corrected)                                                                                    \
    X(ECC_UNCORRECTED, ecc_uncorrected)                                                                                \
    X(MEMORY_TOTAL, memory_total)                                                                                      \
    X(MEMORY_FREE, memory_free)                                                                                        \
    X(MEMORY_OTHERS, memory_others)                                                                                    \
    X(XID, xid)

enum reading {
#define X(NAME, field) READING_##NAME,
    READING_TABLE(X)
#undef X
        READING_COUNT
};
_Static_assert(READING_COUNT <= 32, "a bit for each reading");

struct device_readings {
    uint64_t at_ns;     /* CLOCK_MONOTONIC when all had been read; 0: never */
    uint64_t xid_at_ns; /* CLOCK_MONOTONIC when the Xid came; 0: none has come */
    uint32_t available; /* bit r set: values[r] has been read */
    uint64_t values[READING_COUNT];
    char driver[32]; /* the driver's own version, "580.65.06"; "" not available */
};

static inline void device_readings_set(struct device_readings *readings, enum reading reading, uint64_t value) {
    readings->values[reading] = value;
    readings->available |= UINT32_C(1) << reading;
}

static inline bool device_readings_has(const struct device_readings *readings, enum reading reading) {
    return readings->available >> reading & 1;
}
