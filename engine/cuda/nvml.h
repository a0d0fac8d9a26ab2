/* The part of NVML, the driver's management library, that is called here. The toolkit has no header for it, so the functions and structs
 * are declared after NVIDIA's "NVML API Reference Guide" (R580). The library is loaded at run time: a host without it only lacks
 * readings.
 *
 * Threads: any thread may call NVML. Its calls can hang together with the driver, so no thread makes one if another thread waits for it
 * without a limit. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef int nvml_status;
enum { NVML_OK = 0, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6, NVML_TIMED_OUT = 10, NVML_NO_FUNCTION = 13 };

enum {
    NVML_TEMPERATURE_GPU = 0, /* nvmlTemperatureSensors_t */
    NVML_CLOCK_SM = 1,        /* nvmlClockType_t */
    NVML_CLOCK_MEMORY = 2,
    NVML_ECC_CORRECTED = 0, /* nvmlMemoryErrorType_t */
    NVML_ECC_UNCORRECTED = 1,
    NVML_ECC_VOLATILE = 0, /* nvmlEccCounterType_t: since the driver was loaded */
    NVML_EVENT_XID = 8,    /* nvmlEventTypeXidCriticalError */
    NVML_UUID_MAX = 96,
    NVML_MEMORY_VERSION = 2 << 24 | 40, /* NVML_STRUCT_VERSION(Memory, 2) */
};

typedef struct nvmlDevice_st *nvml_device;
typedef struct nvmlEventSet_st *nvml_events;

struct nvml_utilisation { /* nvmlUtilization_t: percent */
    unsigned gpu, memory;
};

struct nvml_memory { /* nvmlMemory_v2_t: bytes; `used` is without what the driver keeps for itself, `reserved` */
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct nvml_process { /* nvmlProcessInfo_v2_t */
    unsigned pid;
    unsigned long long memory; /* all ones: not available */
    unsigned gpu_instance, compute_instance;
};

struct nvml_event { /* nvmlEventData_t */
    nvml_device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

_Static_assert(sizeof(struct nvml_memory) == 40 && offsetof(struct nvml_memory, total) == 8, "as NVML lays it out");
_Static_assert(sizeof(struct nvml_process) == 24 && offsetof(struct nvml_process, memory) == 8, "as NVML lays it out");
_Static_assert(sizeof(struct nvml_event) == 32 && offsetof(struct nvml_event, data) == 16, "as NVML lays it out");

/* X(member, symbol, arguments). A function that the library lacks returns NVML_NO_FUNCTION. */
#define NVML_TABLE(X)                                                                                                  \
    X(init, nvmlInit_v2, (void))                                                                                       \
    X(shutdown, nvmlShutdown, (void))                                                                                  \
    X(driver, nvmlSystemGetDriverVersion, (char *text, unsigned bytes))                                                \
    X(count, nvmlDeviceGetCount_v2, (unsigned *count))                                                                 \
    X(by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvml_device *device))                                  \
    X(by_uuid, nvmlDeviceGetHandleByUUID, (const char *uuid, nvml_device *device))                                     \
    X(by_bus, nvmlDeviceGetHandleByPciBusId_v2, (const char *bus, nvml_device *device))                                \
    X(uuid, nvmlDeviceGetUUID, (nvml_device device, char *text, unsigned bytes))                                       \
    X(utilisation, nvmlDeviceGetUtilizationRates, (nvml_device device, struct nvml_utilisation * utilisation))         \
    X(temperature, nvmlDeviceGetTemperature, (nvml_device device, int sensor, unsigned *celsius))                      \
    X(power, nvmlDeviceGetPowerUsage, (nvml_device device, unsigned *milliwatts))                                      \
    X(power_limit, nvmlDeviceGetEnforcedPowerLimit, (nvml_device device, unsigned *milliwatts))                        \
    X(clock, nvmlDeviceGetClockInfo, (nvml_device device, int clock, unsigned *megahertz))                             \
    X(ecc_mode, nvmlDeviceGetEccMode, (nvml_device device, int *present, int *pending))                                \
    X(ecc_errors, nvmlDeviceGetTotalEccErrors,                                                                         \
      (nvml_device device, int type, int counter, unsigned long long *errors))                                         \
    X(memory, nvmlDeviceGetMemoryInfo_v2, (nvml_device device, struct nvml_memory * memory))                           \
    X(processes, nvmlDeviceGetComputeRunningProcesses_v3,                                                              \
      (nvml_device device, unsigned *count, struct nvml_process *processes))                                           \
    X(events_create, nvmlEventSetCreate, (nvml_events * events))                                                       \
    X(events_free, nvmlEventSetFree, (nvml_events events))                                                             \
    X(events_register, nvmlDeviceRegisterEvents, (nvml_device device, unsigned long long types, nvml_events events))   \
    X(events_wait, nvmlEventSetWait_v2, (nvml_events events, struct nvml_event * event, unsigned milliseconds))        \
    X(mig_mode, nvmlDeviceGetMigMode, (nvml_device device, unsigned *present, unsigned *pending))                      \
    X(mig_most, nvmlDeviceGetMaxMigDeviceCount, (nvml_device device, unsigned *count))                                 \
    X(mig_device, nvmlDeviceGetMigDeviceHandleByIndex, (nvml_device device, unsigned index, nvml_device *instance))

struct nvml {
#define X(member, symbol, arguments) nvml_status(*member) arguments;
    NVML_TABLE(X)
#undef X
};

/* The library, which the first call loads for good; NULL if there is none. It is not initialised: for that the caller calls nvml->init(),
 * and later nvml->shutdown() as often. */
const struct nvml *nvml_load(void);
