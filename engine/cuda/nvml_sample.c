#include "engine/cuda/nvml_sample.h"

#include <string.h>
#include <unistd.h>

enum { NVML_PROCESSES_MAX = 256 };

/* ---- one reading after the other. Each says whether NVML had it. ---- */

struct nvml_reader {
    enum reading reading;
    nvml_status (*read)(const struct nvml *nvml, nvml_device device, uint64_t *value);
};

static nvml_status nvml_number(nvml_status status, unsigned number, uint64_t *value) {
    *value = number;
    return status;
}

static nvml_status read_utilisation_gpu(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    struct nvml_utilisation utilisation = {0};
    nvml_status status = nvml->utilisation(device, &utilisation);
    return nvml_number(status, utilisation.gpu, value);
}

static nvml_status read_utilisation_memory(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    struct nvml_utilisation utilisation = {0};
    nvml_status status = nvml->utilisation(device, &utilisation);
    return nvml_number(status, utilisation.memory, value);
}

static nvml_status read_temperature(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    unsigned number = 0;
    nvml_status status = nvml->temperature(device, NVML_TEMPERATURE_GPU, &number);
    return nvml_number(status, number, value);
}

static nvml_status read_power_draw(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    unsigned number = 0;
    nvml_status status = nvml->power(device, &number);
    return nvml_number(status, number, value);
}

static nvml_status read_power_limit(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    unsigned number = 0;
    nvml_status status = nvml->power_limit(device, &number);
    return nvml_number(status, number, value);
}

static nvml_status read_clock_sm(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    unsigned number = 0;
    nvml_status status = nvml->clock(device, NVML_CLOCK_SM, &number);
    return nvml_number(status, number, value);
}

static nvml_status read_clock_memory(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    unsigned number = 0;
    nvml_status status = nvml->clock(device, NVML_CLOCK_MEMORY, &number);
    return nvml_number(status, number, value);
}

static nvml_status read_ecc_enabled(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    int present = 0, pending = 0;
    nvml_status status = nvml->ecc_mode(device, &present, &pending);
    return nvml_number(status, present != 0, value);
}

static nvml_status nvml_errors(const struct nvml *nvml, nvml_device device, int type, uint64_t *value) {
    unsigned long long errors = 0;
    nvml_status status = nvml->ecc_errors(device, type, NVML_ECC_VOLATILE, &errors);
    *value = errors;
    return status;
}

static nvml_status read_ecc_corrected(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    return nvml_errors(nvml, device, NVML_ECC_CORRECTED, value);
}

static nvml_status read_ecc_uncorrected(const struct nvml *nvml, nvml_device device, uint64_t *value) {
    return nvml_errors(nvml, device, NVML_ECC_UNCORRECTED, value);
}

static const struct nvml_reader nvml_readers[] = {
    {READING_UTILISATION_GPU, read_utilisation_gpu}, {READING_UTILISATION_MEMORY, read_utilisation_memory},
    {READING_TEMPERATURE, read_temperature},         {READING_POWER_DRAW, read_power_draw},
    {READING_POWER_LIMIT, read_power_limit},         {READING_CLOCK_SM, read_clock_sm},
    {READING_CLOCK_MEMORY, read_clock_memory},       {READING_ECC_ENABLED, read_ecc_enabled},
    {READING_ECC_CORRECTED, read_ecc_corrected},     {READING_ECC_UNCORRECTED, read_ecc_uncorrected},
};

void nvml_sample(const struct nvml *nvml, nvml_device device, struct device_readings *readings) {
    for (size_t i = 0; i < sizeof nvml_readers / sizeof *nvml_readers; i++) {
        uint64_t value;
        if (nvml_readers[i].read(nvml, device, &value) == NVML_OK)
            device_readings_set(readings, nvml_readers[i].reading, value);
    }
}

/* ---- memory, by processes ---- */

/* NVML names processes as the host does. Only in the host's own PID namespace, whose number Linux fixes, is that what
 * getpid() says; in a container it would be another process's number, if anybody's. */
static bool nvml_pids_known(void) {
    char text[64];
    ssize_t bytes = readlink("/proc/self/ns/pid", text, sizeof text - 1);
    text[bytes > 0 ? bytes : 0] = 0;
    return strcmp(text, "pid:[4026531836]") == 0;
}

int64_t nvml_own_memory(const struct nvml *nvml, nvml_device device) {
    struct nvml_process processes[NVML_PROCESSES_MAX];
    unsigned count = NVML_PROCESSES_MAX, self = (unsigned)getpid();
    if (!nvml_pids_known() || nvml->processes(device, &count, processes) != NVML_OK)
        return -1;
    for (unsigned i = 0; i < count && i < NVML_PROCESSES_MAX; i++)
        if (processes[i].pid == self && processes[i].memory <= INT64_MAX)
            return (int64_t)processes[i].memory;
    return -1;
}
