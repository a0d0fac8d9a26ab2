/* What the daemon tells of GPUs, and which it finds: the real module on stand-ins for CUDA and NVML. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/nvml.h"
#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/json.h"
#include "tests/daemon/status.h"

enum { RUN_MS = 30000, READ_MS = 10000 };
#define MIB UINT64_C(1048576)
#define GPU(last) "GPU-00000000-0000-0000-0000-0000000000" last
#define MIG(gpu, part) "MIG-00000000-0000-0000-00" gpu "-0000000000" part

TestSuite(readings, .timeout = 120);

static struct daemon tensord;
static struct command command;

#define ENVIRONMENT(...) ((const char *const[]){__VA_ARGS__, NULL})

static void start(const char *const environment[]) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cuda", .environment = environment});
}

static void tensorctl(const char *word, const char *option) {
    command_run(&command,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", tensord.url, word, option, NULL}, NULL,
                RUN_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
}

static void json_holds(const char *expression) {
    json_expect(command.out, command.out_bytes, expression);
}

/* Those of a sample that was made after the context: others' memory can be told then. */
static bool memory_is_told(const Tensord__Status *status, const void *device) {
    const Tensord__DeviceReadings *readings = status_device(status, device)->readings;
    return readings && readings->memory_free && readings->memory_free->value < 1600 * MIB && readings->memory_others &&
           readings->memory_others->value == 300 * MIB;
}

/* The device works, whatever its readings do. */
static void expect_work(const char *device) {
    struct client client;
    client_open(&client, tensord.url, device);
    client_expect(client_ramp(client.device, 3, 1), (float[]){1, 2, 3}, 3);
    client_close(&client);
}

/* ---- readings ---- */

Test(readings, everything_is_told) {
    start(NULL);
    status_until(tensord.url, memory_is_told, "cuda:0", READ_MS);
    tensorctl("devices", "--json");
    json_holds("d['devices'][0]['driver_version'] == '580.65.06' and d['devices'][0]['uuid'] == '" GPU("01") "'");
    json_holds("d['devices'][0]['memory_device'] == 2 << 30 and d['devices'][0]['bus'] == '0000:01:00.0'");
    json_holds(
        "{'utilisation_gpu_percent': 37, 'utilisation_memory_percent': 12, 'temperature_c': 45, "
        "'power_draw_w': 312.4, 'power_limit_w': 700, 'clock_sm_mhz': 1980, 'clock_memory_mhz': 3201}.items() <= "
        "d['devices'][0]['readings'].items()");
    json_holds("{'ecc_enabled': True, 'ecc_corrected': 3, 'ecc_uncorrected': 0, 'xid_watched': True, 'xid': None, "
               "'xid_age_s': None}.items() <= d['devices'][0]['readings'].items()");
    json_holds("d['devices'][0]['readings']['memory_total'] == (2 << 30) + (64 << 20)");
    json_holds("d['devices'][0]['readings']['memory_free'] <= (2 << 30) - (500 << 20)");
    json_holds("0 <= d['devices'][0]['readings']['age_s'] < 5");
    command_finish(&command);
    daemon_stop(&tensord);
}

Test(readings, text_fits_and_tells_them) {
    static const char *const FACTS[] = {"stand-in 0 for a GPU, 16 multiprocessors",
                                        "compute capability 9.0, driver 580.65.06 for CUDA",
                                        "GPU 37 %, memory 12 %; temperature 45 \xc2\xb0"
                                        "C",
                                        "312.4 W of 700.0 W; clocks: SM 1980 MHz, memory 3201 MHz",
                                        "ECC on, errors: corrected 3, uncorrected 0; last Xid: none",
                                        "300 MiB used by others",
                                        GPU("01") " at 0000:01:00.0"};
    start(NULL);
    status_until(tensord.url, memory_is_told, "cuda:0", READ_MS);
    for (int i = 0; i < 2; i++) {
        tensorctl(i ? "status" : "devices", NULL);
        cr_assert_leq(command_columns(command.out), 100, "%s", command.out); /* a pipe gets all columns */
        for (size_t f = 0; f < sizeof FACTS / sizeof *FACTS; f++)
            cr_expect(strstr(command.out, FACTS[f]), "\"%s\" is not in:\n%s", FACTS[f], command.out);
        command_finish(&command);
    }
    daemon_stop(&tensord);
}

Test(readings, what_nvml_does_not_tell_is_not_available) {
    start(ENVIRONMENT("FAKENVML_FAIL=nvmlDeviceGetPowerUsage,nvmlDeviceGetTotalEccErrors,nvmlDeviceRegisterEvents,"
                      "nvmlDeviceGetComputeRunningProcesses_v3"));
    status_until(tensord.url, memory_is_told, "cuda:0", READ_MS);
    tensorctl("devices", "--json");
    json_holds("no(d['devices'][0]['readings'], 'power_draw_w ecc_corrected ecc_uncorrected xid xid_age_s')");
    json_holds("d['devices'][0]['readings']['xid_watched'] is False");
    json_holds("{'power_limit_w': 700, 'ecc_enabled': True}.items() <= d['devices'][0]['readings'].items()");
    command_finish(&command);
    tensorctl("devices", NULL);
    cr_assert(strstr(command.out, "not available of 700.0 W"), "%s", command.out);
    cr_assert(strstr(command.out, "last Xid: not available"), "%s", command.out);
    command_finish(&command);
    daemon_stop(&tensord);
}

Test(readings, without_nvml_there_are_none_and_that_is_all) {
    start(ENVIRONMENT("FAKENVML_FAIL=nvmlInit_v2"));
    expect_work("cuda:0");
    tensorctl("devices", "--json");
    json_holds("[k for k, v in d['devices'][0]['readings'].items() if v is not None] == ['xid_watched']");
    json_holds("d['devices'][0]['driver_version'] is None and d['devices'][0]['memory_device'] == 2 << 30");
    command_finish(&command);
    tensorctl("devices", NULL);
    cr_assert(strstr(command.out, "  nvml    not available\n"), "%s", command.out);
    command_finish(&command);
    daemon_stop(&tensord);
}

/* Whatever NVML refuses, the device works, and is told of. */
Test(readings, any_call_may_fail) {
    static const char *const FUNCTIONS[] = {
#define X(member, symbol, arguments) #symbol,
        NVML_TABLE(X)
#undef X
    };
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        char fail[96];
        snprintf(fail, sizeof fail, "FAKENVML_FAIL=%s", FUNCTIONS[i]);
        start(ENVIRONMENT(fail));
        expect_work("cuda:0");
        tensorctl("devices", "--json");
        json_holds("d['devices'][0]['restarts'] == 0 and has(d['devices'][0]['readings'], 'age_s xid memory_others')");
        command_finish(&command);
        daemon_stop(&tensord);
    }
}

/* ---- calls that do not return ---- */

static bool readings_are_old(const Tensord__Status *status, const void *none) {
    const Tensord__DeviceStatus *device = status_device(status, "cuda:0");
    (void)none;
    return device->readings && device->readings->age_s > 2.5 && device->data_age_ms < 2000;
}

Test(readings, a_call_that_hangs_makes_them_old_and_nothing_else) {
    start(ENVIRONMENT("FAKENVML_HANG=nvmlDeviceGetTemperature:3"));
    status_until(tensord.url, readings_are_old, NULL, READ_MS);
    expect_work("cuda:0");
    tensorctl("devices", "--json");
    json_holds("d['devices'][0]['readings']['temperature_c'] == 45 and d['devices'][0]['readings']['age_s'] > 2.5");
    json_holds("d['devices'][0]['restarts'] == 0");
    command_finish(&command);
    daemon_stop(&tensord); /* asserts that it drains */
}

Test(readings, nvml_that_hangs_at_once_does_not_keep_the_daemon_from_starting) {
    start(ENVIRONMENT("FAKENVML_HANG=nvmlInit_v2:1"));
    expect_work("cuda:0");
    daemon_stop(&tensord);
}

/* ---- Xid ---- */

static bool xid_is_told(const Tensord__Status *status, const void *none) {
    const Tensord__DeviceReadings *readings = status_device(status, "cuda:0")->readings;
    (void)none;
    return readings && readings->xid && readings->xid->value == 79;
}

Test(readings, last_xid_is_told_after_the_worker_that_saw_it_is_gone) {
    start(ENVIRONMENT("FAKENVML_XID=3:79"));
    status_until(tensord.url, xid_is_told, NULL, READ_MS);
    tensorctl("status", NULL);
    cr_assert(strstr(command.out, "last Xid: 79, "), "%s", command.out);
    command_finish(&command);
    kill(status_worker_pid(tensord.url, "cuda:0"), SIGKILL);
    status_until(tensord.url, status_device_is, &(struct status_is){"cuda:0", "ready", 2}, READ_MS);
    Tensord__Status *status = status_get(tensord.url);
    cr_expect(xid_is_told(status, NULL));
    status_free(status);
    daemon_stop(&tensord);
}

/* ---- which devices there are ---- */

static void expect_count(const char *const environment[], const char *lines) {
    command_run(&command, (const char *const[]){daemon_program("TENSORD_EXE"), "count", "cuda", NULL}, environment,
                RUN_MS);
    cr_expect_str_eq(command.out, lines, "%s", command.err);
    command_finish(&command);
}

Test(readings, visible_devices_are_heeded) {
    expect_count(ENVIRONMENT("FAKECUDA_DEVICES=3"), "0\n1\n2\n");
    expect_count(ENVIRONMENT("FAKECUDA_DEVICES=3", "CUDA_VISIBLE_DEVICES=2,0"), "0\n1\n");
    expect_count(ENVIRONMENT("FAKECUDA_DEVICES=3", "CUDA_VISIBLE_DEVICES=" GPU("02")), "0\n");
    expect_count(ENVIRONMENT("FAKECUDA_DEVICES=3", "CUDA_VISIBLE_DEVICES="),
                 "- no CUDA-capable device is detected, with CUDA_VISIBLE_DEVICES=\"\"\n");
    expect_count(ENVIRONMENT("FAKECUDA_DEVICES=0"), "- no CUDA-capable device is detected\n");
    expect_count(ENVIRONMENT("FAKECUDA_DEVICES=-1"), "- no NVIDIA driver is loaded\n");
}

static void expect_uuid(const char *device, const char *uuid) {
    Tensord__Status *status = status_get(tensord.url);
    cr_expect_str_eq(status_device(status, device)->device->uuid, uuid, "%s", device);
    status_free(status);
}

Test(readings, workers_open_the_devices_that_the_operator_lets_them_see) {
    start(ENVIRONMENT("FAKECUDA_DEVICES=3", "CUDA_VISIBLE_DEVICES=2,0"));
    expect_uuid("cuda:0", GPU("03"));
    expect_uuid("cuda:1", GPU("01"));
    expect_work("cuda:1");
    daemon_stop(&tensord);
}

#define VISIBLE "0 CUDA_VISIBLE_DEVICES="

Test(readings, parts_of_a_gpu_count_as_devices) {
    const char *three = "FAKECUDA_DEVICES=3", *mig = "FAKENVML_MIG=2,-,1";
    expect_count(ENVIRONMENT(three, mig), VISIBLE MIG("01", "01") "\n" VISIBLE MIG("01", "02") "\n" VISIBLE GPU(
                                              "02") "\n" VISIBLE MIG("03", "01") "\n");
    expect_count(ENVIRONMENT(three, mig, "CUDA_VISIBLE_DEVICES=1"), VISIBLE GPU("02") "\n");
    expect_count(ENVIRONMENT(three, mig, "CUDA_VISIBLE_DEVICES=" MIG("01", "02")), VISIBLE MIG("01", "02") "\n");
    expect_count(ENVIRONMENT(three, mig, "CUDA_VISIBLE_DEVICES=2, " GPU("02") ",2,-1,0"),
                 VISIBLE MIG("03", "01") "\n" VISIBLE GPU("02") "\n");
    expect_count(ENVIRONMENT(three, mig, "CUDA_VISIBLE_DEVICES="),
                 "- MIG is on, and no MIG device is visible, with CUDA_VISIBLE_DEVICES=\"\"\n");
    expect_count(ENVIRONMENT("FAKENVML_MIG=0"), "- MIG is on, and no MIG device is visible\n");
}

/* What a process was started with. */
static bool environment_has(int pid, const char *assignment) {
    char path[64], text[65536];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = 0;
    for (const char *entry = text; entry < text + bytes; entry += strlen(entry) + 1)
        if (strcmp(entry, assignment) == 0)
            return true;
    return false;
}

Test(readings, each_part_has_a_worker_that_sees_it_alone) {
    start(ENVIRONMENT("FAKENVML_MIG=2"));
    expect_uuid("cuda:0", MIG("01", "01"));
    expect_uuid("cuda:1", MIG("01", "02"));
    cr_expect(environment_has(status_worker_pid(tensord.url, "cuda:0"), "CUDA_VISIBLE_DEVICES=" MIG("01", "01")));
    cr_expect(environment_has(status_worker_pid(tensord.url, "cuda:1"), "CUDA_VISIBLE_DEVICES=" MIG("01", "02")));
    expect_work("cuda:0");
    expect_work("cuda:1");
    status_until(tensord.url, memory_is_told, "cuda:1", READ_MS);
    tensorctl("devices", "--json");
    json_holds(
        "all(no(x['readings'], 'utilisation_gpu_percent temperature_c power_draw_w clock_sm_mhz ecc_enabled xid') "
        "and x['readings']['memory_total'] > 0 for x in d['devices'])");
    command_finish(&command);
    daemon_stop(&tensord);
}

/* ---- operations ---- */

Test(readings, operations_of_every_device_are_listed) {
    daemon_start(&tensord, &(struct daemon_options){.devices = "cuda,cpu:0"});
    tensorctl("ops", "--json");
    json_holds("[x['name'] for x in d['devices'] if x['known']] == ['cuda:0', 'cpu:0']");
    json_holds("[x['name'] for x in d['operations'] if not all(y['complete'] for y in x['devices'].values())] == []");
    command_finish(&command);
    tensorctl("ops", NULL);
    cr_expect(strstr(command.out, "\ncuda:0: none missing\ncpu:0: none missing\n"), "%s", command.out);
    command_finish(&command);
    daemon_stop(&tensord);
}
