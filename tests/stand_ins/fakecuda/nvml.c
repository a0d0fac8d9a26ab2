/* The stand-in for NVML: always the same values, and calls that fail or never return. The real module loads it as
 * libnvidia-ml.so.1; it declares NVML's functions as the module does, and so cannot show that these fit NVML's own.
 *
 * Environment, besides the stand-in for CUDA's:
 *   FAKENVML_FAIL    names of functions, with commas between them: these are not supported
 *   FAKENVML_HANG    "nvmlDeviceGetTemperature:4": this call of this function never returns
 *   FAKENVML_XID     "3:79": the 3rd wait for events is told of Xid 79
 *   FAKENVML_OTHERS  bytes of each device that others use, 300 MiB by default
 *   FAKENVML_MIG     for each device how many parts it has, "2,-": "-" where MIG is off */
#include "engine/cuda/nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/stand_ins/fakecuda/fakecuda.h"

/* The module looks them up by name. */
#define X(member, symbol, arguments) nvml_status symbol arguments;
NVML_TABLE(X)
#undef X

enum { GPUS_MAX = 16, PARTS_MAX = 8, NVML_NO_DRIVER = 9, NVML_INVALID = 2 };
static const unsigned long long context_bytes = 200ull << 20, kept_bytes = 64ull << 20;

struct nvmlDevice_st {
    int gpu, part; /* part -1: the whole GPU */
};
static struct nvmlDevice_st devices[GPUS_MAX][PARTS_MAX + 1]; /* [gpu][0]: the whole one */

struct nvmlEventSet_st {
    unsigned waits;
};

/* ---- scripts ---- */

static bool listed(const char *list, const char *function) {
    size_t length = strlen(function);
    for (; list && *list; list += strcspn(list, ","), list += *list == ',')
        if (strncmp(list, function, length) == 0 && (!list[length] || list[length] == ','))
            return true;
    return false;
}

static bool hangs(const char *function) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static long calls;
    const char *text = getenv("FAKENVML_HANG");
    size_t length = strlen(function);
    if (!text || strncmp(text, function, length) != 0 || text[length] != ':')
        return false;
    pthread_mutex_lock(&lock);
    bool this = ++calls == strtol(text + length + 1, NULL, 10);
    pthread_mutex_unlock(&lock);
    return this;
}

static nvml_status called(const char *function) {
    while (hangs(function))
        for (;;)
            pause();
    return listed(getenv("FAKENVML_FAIL"), function) ? NVML_NOT_SUPPORTED : NVML_OK;
}

#define CALLED()                                                                                                       \
    do {                                                                                                               \
        nvml_status called_status = called(__func__);                                                                  \
        if (called_status != NVML_OK)                                                                                  \
            return called_status;                                                                                      \
    } while (0)

/* MIG devices lack most. */
#define CALLED_OF_GPU(device)                                                                                          \
    do {                                                                                                               \
        CALLED();                                                                                                      \
        if ((device)->part >= 0)                                                                                       \
            return NVML_NOT_SUPPORTED;                                                                                 \
    } while (0)

/* ---- the library, and finding devices ---- */

static int gpus(void) {
    long count = fakecuda_setting("FAKECUDA_DEVICES", 1);
    return count < 0 ? 0 : count > GPUS_MAX ? GPUS_MAX : (int)count;
}

nvml_status nvmlInit_v2(void) {
    CALLED();
    return gpus() > 0 ? NVML_OK : NVML_NO_DRIVER;
}

nvml_status nvmlShutdown(void) {
    CALLED();
    return NVML_OK;
}

nvml_status nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
    CALLED();
    snprintf(text, bytes, "580.65.06");
    return NVML_OK;
}

nvml_status nvmlDeviceGetCount_v2(unsigned *count) {
    CALLED();
    *count = (unsigned)gpus();
    return NVML_OK;
}

static nvml_device device_at(int gpu, int part) {
    struct nvmlDevice_st *device = &devices[gpu][part + 1];
    *device = (struct nvmlDevice_st){gpu, part};
    return device;
}

nvml_status nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device) {
    CALLED();
    if (index >= (unsigned)gpus())
        return NVML_INVALID;
    *device = device_at((int)index, -1);
    return NVML_OK;
}

nvml_status nvmlDeviceGetUUID(nvml_device device, char *text, unsigned bytes) {
    char uuid[FAKECUDA_UUID_MAX];
    CALLED();
    if (device->part < 0)
        fakecuda_uuid(device->gpu, uuid);
    else
        fakecuda_part_uuid(device->gpu, device->part, uuid);
    snprintf(text, bytes, "%s", uuid);
    return NVML_OK;
}

nvml_status nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device) {
    char text[FAKECUDA_UUID_MAX];
    CALLED();
    for (int gpu = 0; gpu < gpus(); gpu++) {
        fakecuda_uuid(gpu, text);
        if (strcmp(text, uuid) == 0) {
            *device = device_at(gpu, -1);
            return NVML_OK;
        }
        for (int part = 0; part < fakecuda_parts(gpu) && part < PARTS_MAX; part++) {
            fakecuda_part_uuid(gpu, part, text);
            if (strcmp(text, uuid) == 0) {
                *device = device_at(gpu, part);
                return NVML_OK;
            }
        }
    }
    return NVML_NOT_FOUND;
}

nvml_status nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvml_device *device) {
    unsigned domain, number;
    CALLED();
    if (sscanf(bus, "%x:%x:", &domain, &number) != 2 || domain || number < 1 || number > (unsigned)gpus())
        return NVML_NOT_FOUND;
    *device = device_at((int)number - 1, -1);
    return NVML_OK;
}

nvml_status nvmlDeviceGetMigMode(nvml_device device, unsigned *present, unsigned *pending) {
    CALLED_OF_GPU(device);
    *present = *pending = fakecuda_parts(device->gpu) >= 0;
    return NVML_OK;
}

nvml_status nvmlDeviceGetMaxMigDeviceCount(nvml_device device, unsigned *count) {
    CALLED_OF_GPU(device);
    *count = PARTS_MAX - 1;
    return NVML_OK;
}

/* Indices have gaps. */
nvml_status nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned index, nvml_device *part) {
    CALLED_OF_GPU(device);
    if (index == 0 || (int)index > fakecuda_parts(device->gpu))
        return NVML_NOT_FOUND;
    *part = device_at(device->gpu, (int)index - 1);
    return NVML_OK;
}

/* ---- readings ---- */

nvml_status nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilisation *utilisation) {
    CALLED_OF_GPU(device);
    *utilisation = (struct nvml_utilisation){37, 12};
    return NVML_OK;
}

nvml_status nvmlDeviceGetTemperature(nvml_device device, int sensor, unsigned *celsius) {
    CALLED_OF_GPU(device);
    *celsius = 45;
    return sensor == NVML_TEMPERATURE_GPU ? NVML_OK : NVML_INVALID;
}

nvml_status nvmlDeviceGetPowerUsage(nvml_device device, unsigned *milliwatts) {
    CALLED_OF_GPU(device);
    *milliwatts = 312400;
    return NVML_OK;
}

nvml_status nvmlDeviceGetEnforcedPowerLimit(nvml_device device, unsigned *milliwatts) {
    CALLED_OF_GPU(device);
    *milliwatts = 700000;
    return NVML_OK;
}

nvml_status nvmlDeviceGetClockInfo(nvml_device device, int clock, unsigned *megahertz) {
    CALLED_OF_GPU(device);
    *megahertz = clock == NVML_CLOCK_SM ? 1980 : clock == NVML_CLOCK_MEMORY ? 3201 : 0;
    return NVML_OK;
}

nvml_status nvmlDeviceGetEccMode(nvml_device device, int *present, int *pending) {
    CALLED_OF_GPU(device);
    *present = *pending = 1;
    return NVML_OK;
}

nvml_status nvmlDeviceGetTotalEccErrors(nvml_device device, int type, int counter, unsigned long long *errors) {
    CALLED_OF_GPU(device);
    *errors = type == NVML_ECC_CORRECTED ? 3 : 0;
    return counter == NVML_ECC_VOLATILE ? NVML_OK : NVML_INVALID;
}

static unsigned long long own_bytes(void) {
    struct fakecuda_figures figures;
    fakecuda_figures(&figures);
    return figures.device_bytes + (fakecuda_opened() ? context_bytes : 0);
}

nvml_status nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory *memory) {
    CALLED();
    (void)device;
    if (memory->version != NVML_MEMORY_VERSION)
        return NVML_INVALID;
    memory->total = (unsigned long long)fakecuda_setting("FAKECUDA_MEMORY", 2l << 30) + kept_bytes;
    memory->reserved = kept_bytes;
    memory->used = (unsigned long long)fakecuda_setting("FAKENVML_OTHERS", 300l << 20) + own_bytes();
    memory->free = memory->total - memory->reserved - memory->used;
    return NVML_OK;
}

nvml_status nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count,
                                                    struct nvml_process *processes) {
    CALLED();
    (void)device;
    if (*count < 2)
        return NVML_INVALID;
    processes[0] = (struct nvml_process){.pid = 1, .memory = 300 << 20};
    processes[1] = (struct nvml_process){.pid = (unsigned)getpid(), .memory = own_bytes()};
    *count = 2;
    return NVML_OK;
}

/* ---- events ---- */

nvml_status nvmlEventSetCreate(nvml_events *events) {
    CALLED();
    *events = calloc(1, sizeof **events);
    return NVML_OK;
}

nvml_status nvmlEventSetFree(nvml_events events) {
    free(events);
    return NVML_OK;
}

nvml_status nvmlDeviceRegisterEvents(nvml_device device, unsigned long long types, nvml_events events) {
    CALLED_OF_GPU(device);
    (void)events;
    return types == NVML_EVENT_XID ? NVML_OK : NVML_INVALID;
}

nvml_status nvmlEventSetWait_v2(nvml_events events, struct nvml_event *event, unsigned milliseconds) {
    const char *script = getenv("FAKENVML_XID");
    unsigned at, xid;
    CALLED();
    events->waits++;
    if (script && sscanf(script, "%u:%u", &at, &xid) == 2 && at == events->waits) {
        *event = (struct nvml_event){.type = NVML_EVENT_XID, .data = xid};
        return NVML_OK;
    }
    nanosleep(&(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000l}, NULL);
    return NVML_TIMED_OUT;
}
