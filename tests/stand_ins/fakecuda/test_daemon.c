/* The real daemon with the real module, on a stand-in for CUDA. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

enum { LARGE = (9 << 20) / 4 + 3 }; /* words: several chunks and a rest */

TestSuite(fakecuda, .timeout = 120);

/* ---- devices ---- */

static void expect_refusal(const char *devices, const char *environment, const char *words) {
    struct command command;
    command_run(&command, (const char *const[]){daemon_program("TENSORD_EXE"), "--devices", devices, NULL},
                (const char *const[]){environment, NULL}, 30000);
    cr_assert_eq(command.code, 2, "%s", command.err);
    cr_assert(strstr(command.err, words), "%s", command.err);
    command_finish(&command);
}

Test(fakecuda, a_host_without_a_gpu_is_told_so) {
    expect_refusal("cuda", "FAKECUDA_DEVICES=-1", "no NVIDIA driver is loaded");
    expect_refusal("cuda", "FAKECUDA_DEVICES=-2", "the driver is one for CUDA 11.8, and too old");
    expect_refusal("cuda", "FAKECUDA_DEVICES=0", "no CUDA-capable device is detected");
    expect_refusal("cuda:2", "FAKECUDA_DEVICES=2", "the number after \\\"cuda:\\\" goes from 0 to 1");
    expect_refusal("cuda", "FAKECUDA_FAIL=cudaGetDeviceCount:1:2", "CUDA cannot tell its devices: out of memory");
}

/* ---- a job ---- */

struct job {
    td_device *device, *other;
    td_tensor *kept[64];
    unsigned n_kept, failed;
};

static td_tensor *keep(struct job *job, td_tensor *tensor) {
    if (tensor)
        job->kept[job->n_kept++] = tensor;
    else
        job->failed++;
    return tensor;
}

/* An answer in any case; and a value that no kernel has touched must be what was uploaded. */
static void fetch(struct job *job, td_tensor *tensor, const void *want) {
    if (!tensor)
        return;
    size_t bytes = td_tensor_bytes(tensor);
    uint8_t *got = malloc(bytes);
    int code = td_fetch(tensor, got, bytes);
    cr_assert(code == TD_OK || code == TD_E_DEVICE_LOST || code == TD_E_OUT_OF_MEMORY || code == TD_E_NO_HOST_MEMORY,
              "%d: %s", code, code ? td_last_error()->message : "");
    job->failed += code != TD_OK;
    if (!code && want)
        cr_assert_eq(memcmp(got, want, bytes), 0, "%zu bytes came back changed", bytes);
    free(got);
}

static void transfer(struct job *job) {
    uint32_t *words = malloc(LARGE * sizeof *words);
    client_noise(words, LARGE * sizeof *words, 3);
    td_tensor *large = keep(job, td_upload(job->device, TD_I32, TD_SHAPE(LARGE), words));
    td_tensor *small = keep(job, td_upload(job->device, TD_I32, TD_SHAPE(5), words));
    td_tensor *there = large ? keep(job, td_copy_to(large, job->other)) : NULL;
    td_tensor *back = there ? keep(job, td_copy_to(there, job->device)) : NULL;
    fetch(job, small, words);
    fetch(job, large, words);
    fetch(job, back, words);
    free(words);
}

static void compute(struct job *job, td_device *device) {
    td_tensor *x = keep(job, td_full(device, TD_F32, TD_SHAPE(64, 96), 2));
    if (!x)
        return;
    td_tensor *sum = keep(job, td_add(x, x));
    td_tensor *product = sum ? keep(job, td_matmul(sum, td_transpose(x))) : NULL;
    td_tensor *total = product ? keep(job, td_sum(product, 0, NULL, 0)) : NULL;
    td_tensor *index = keep(job, td_full(device, TD_I64, TD_SHAPE(3), 1));
    td_tensor *rows = index ? keep(job, td_take(x, index, 0)) : NULL;
    fetch(job, total, NULL);
    fetch(job, rows, NULL);
    td_tensor *noise = keep(job, td_uniform(device, TD_F32, TD_SHAPE(2, 1 << 18), 1, 0, 1));
    int64_t axis = 1;
    fetch(job, noise ? keep(job, td_sum(noise, 1, &axis, 0)) : NULL, NULL);
    fetch(job, noise ? keep(job, td_softmax(noise, 1)) : NULL, NULL);
}

static void on_streams(struct job *job) {
    td_stream *stream;
    for (int i = 0; i < 3; i++) {
        if (td_stream_open(job->device, i - 1, &stream) != TD_OK) {
            job->failed++;
            continue;
        }
        if (td_stream_set(job->device, stream) == TD_OK)
            compute(job, job->device);
        td_stream_set(job->device, NULL);
        td_stream_close(stream);
    }
}

/* How much of it failed. */
static unsigned job_run(td_device *device, td_device *other) {
    struct job job = {.device = device, .other = other};
    transfer(&job);
    compute(&job, device);
    on_streams(&job);
    job.failed += td_sync(device) != TD_OK;
    for (unsigned i = 0; i < job.n_kept; i++)
        td_release(job.kept[i]);
    return job.failed;
}

/* ---- daemons ---- */

static td_device *open_device(struct client *client, const char *name) {
    td_device *device;
    cr_assert(!td_device_open(client->connection, name, &device), "%s", td_last_error()->message);
    return device;
}

/* Of a device that has worked. */
static bool memory_is_shown(const Tensord__Status *status, const void *name) {
    const Tensord__DeviceStatus *device = status_device(status, name);
    return device->workspaces > 0 && device->workspaces <= device->workspaces_limit && device->reservations > 0 &&
           device->pinnings > 0 && device->workspace_growths > 0 && device->staging_reserved > 0 &&
           device->staging_reserved <= device->staging_total;
}

Test(fakecuda, every_device_has_a_worker_and_does_its_job) {
    struct daemon tensord;
    struct client client;
    daemon_start(&tensord, &(struct daemon_options){.devices = "cuda",
                                                    .environment = (const char *const[]){"FAKECUDA_DEVICES=2", NULL}});
    client_open(&client, tensord.url, "cuda:0");
    td_device *second = open_device(&client, "cuda:1");
    cr_assert_eq(job_run(client.device, second), 0);
    cr_assert_eq(job_run(second, client.device), 0);
    status_until(tensord.url, memory_is_shown, "cuda:0", 30000);
    status_until(tensord.url, memory_is_shown, "cuda:1", 30000);
    td_device_close(second);
    client_close(&client);
    for (int i = 0; i < 2; i++)
        cr_assert(status_settles(tensord.url, &(struct status_baseline){i ? "cuda:1" : "cuda:0", 0, 0}, 20000));
    daemon_stop(&tensord);
}

static bool back_or_given_up(const Tensord__Status *status, const void *none) {
    const Tensord__DeviceStatus *device = status_device(status, "cuda:0");
    (void)none;
    return !strcmp(device->device->state, "ready") || !strcmp(device->device->state, "quarantined");
}

/* The job fails or does not; the front and other devices do not, and nothing is left of it. `lost`: the worker must have
 * ended. */
static void expect_survival(const char *fail, bool lost) {
    struct daemon tensord;
    struct client client;
    char environment[96];
    snprintf(environment, sizeof environment, "FAKECUDA_FAIL=%s", fail);
    daemon_start(&tensord, &(struct daemon_options){.devices = "cuda:0,cpu:0",
                                                    .environment = (const char *const[]){environment, NULL}});
    client_open(&client, tensord.url, "cuda:0");
    td_device *other = open_device(&client, "cpu:0");
    unsigned failed = job_run(client.device, other);
    cr_assert(!lost || failed, "%s: nothing failed", fail);
    if (lost)
        status_until(tensord.url, status_device_is, &(struct status_is){"cuda:0", NULL, 2}, 30000);
    status_until(tensord.url, back_or_given_up, NULL, 30000);
    client_expect(client_ramp(other, 3, 1), (float[]){1, 2, 3}, 3);
    td_device_close(other);
    client_close(&client);
    cr_assert(status_settles(tensord.url, &(struct status_baseline){"cuda:0", 0, 0}, 20000), "%s: memory is left",
              fail);
    daemon_stop(&tensord);
}

Test(fakecuda, memory_that_runs_out_costs_no_more_than_an_operation) {
    expect_survival("cudaMalloc:1:2", false); /* what is held for scratch memory; a device may open without it */
    expect_survival("cudaMalloc:2:2", false);
    expect_survival("cudaMalloc:4:2", false);
    expect_survival("cudaHostAlloc:2:2", false);
    expect_survival("cudaMallocAsync:1:2", false);
}

Test(fakecuda, lost_device_comes_back) {
    expect_survival("cudaLaunchKernel:3:700", true);
    expect_survival("cudaMemcpyAsync:4:719", true);
    expect_survival("cudaEventQuery:6:700", true);
    expect_survival("cublasLtMatmul:1:700", true);
}

/* The worker gives its device up by itself, or is killed where CUDA does not let it. */
Test(fakecuda, endless_kernel_costs_its_device_a_worker) {
    struct daemon tensord;
    struct client client;
    daemon_start(&tensord, &(struct daemon_options){
                               .devices = "cuda:0,cpu:0",
                               .flags = (const char *const[]){"--device-timeout", "1500ms", NULL},
                               .environment = (const char *const[]){"FAKECUDA_HANG=3", NULL},
                           });
    client_open(&client, tensord.url, "cuda:0");
    td_device *other = open_device(&client, "cpu:0");
    td_tensor *x = td_full(client.device, TD_F32, TD_SHAPE(64), 1);
    x = td_exp(x);
    cr_assert(!td_sync(client.device), "%s", td_last_error()->message);
    td_label("endless");
    x = td_exp(x);
    const td_error *error = client_expect_failure(x, TD_E_TIMED_OUT);
    cr_assert(strstr(error->message, "no progress for ") && strstr(error->message, "exp"), "%s", error->message);
    cr_assert(!strstr(error->message, "endless"), "a label is its owner's: %s", error->message);
    status_until(tensord.url, status_device_is, &(struct status_is){"cuda:0", "ready", 2}, 30000);
    client_expect(client_ramp(other, 3, 1), (float[]){1, 2, 3}, 3);
    td_device_close(other);
    client_close(&client);
    daemon_stop(&tensord);
}

/* Found where the host asks for memory, with nothing on the device to say so later. */
Test(fakecuda, device_found_lost_by_an_allocation_comes_back) {
    expect_survival("cudaMalloc:2:719", true); /* the first one is of the opening */
    expect_survival("cudaHostAlloc:1:719", true);
}

/* Beyond those that a worker makes to open its device; FAKECUDA_FULL=1 leaves fewer out. */
Test(fakecuda, any_call_may_fail) {
    enum { OPENING = 13, CALLS = 300 };
    const char *full = getenv("FAKECUDA_FULL");
    for (int n = OPENING + 1; n < CALLS; n += full && *full ? 3 : 61) {
        char fail[32];
        snprintf(fail, sizeof fail, "%d:%d", n, n % 2 ? 2 : 700);
        expect_survival(fail, false);
    }
}

/* ---- user kernels ---- */

static const char store_source[] = "fakecuda: parameters 8 4; fakecuda: store;";

static int store(td_device *device, const char *source, const char *name, int32_t value) {
    td_kernel *kernel;
    td_tensor *y;
    int32_t got[2] = {0, 0};
    int code = td_kernel_compile(device, source, name, &kernel);
    if (code)
        return code;
    td_kernel_launch(kernel, TD_DIM(2), TD_DIM(64), 0, TD_ARGS(td_arg_out(&y, TD_I32, TD_SHAPE(2)), td_arg_i32(value)));
    code = td_fetch(y, got, sizeof got);
    td_kernel_release(kernel);
    td_release(y);
    cr_assert(code || got[0] == value, "%d, not %d", got[0], value);
    return code;
}

static void start_with_kernels(struct daemon *tensord, struct client *client, const char *who, const char *fail) {
    char environment[96];
    snprintf(environment, sizeof environment, "FAKECUDA_FAIL=%s", fail);
    daemon_start(tensord, &(struct daemon_options){.devices = "cuda:0,cpu:0",
                                                   .flags = (const char *const[]){"--user-kernels", who, NULL},
                                                   .environment = (const char *const[]){environment, NULL}});
    client_open(client, tensord->url, "cuda:0");
}

Test(fakecuda, user_kernels_write_what_they_are_told) {
    struct daemon tensord;
    struct client client;
    td_kernel *kernel;
    start_with_kernels(&tensord, &client, "all", "");
    for (int32_t i = 1; i < 20; i++)
        cr_assert_eq(store(client.device, store_source, "store", i), TD_OK, "%s", td_last_error()->message);
    cr_assert_eq(td_kernel_compile(client.device, "#error", "store", &kernel), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->details, "1 error detected"), "%s", td_last_error()->details);
    cr_assert_eq(td_kernel_compile(client.device, "#include \"/etc/passwd\"", "store", &kernel), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->message, "#include"), "%s", td_last_error()->message);
    cr_assert_eq(store(client.device, "fakecuda: parameters 8; fakecuda: store;", "one", 1), TD_E_INVALID_ARGUMENT);
    cr_assert(strstr(td_last_error()->message, "2 arguments, and the kernel takes 1"), "%s", td_last_error()->message);
    cr_assert_eq(store(client.device, store_source, "store", 77), TD_OK, "%s", td_last_error()->message);
    client_close(&client);
    cr_assert(status_settles(tensord.url, &(struct status_baseline){"cuda:0", 0, 0}, 20000));
    daemon_stop(&tensord);
}

Test(fakecuda, user_kernels_need_the_operators_leave) {
    struct daemon tensord;
    struct client client;
    start_with_kernels(&tensord, &client, "none", "");
    cr_assert_eq(store(client.device, store_source, "store", 1), TD_E_DENIED, "%s", td_last_error()->message);
    client_close(&client);
    daemon_stop(&tensord);
}

Test(fakecuda, deadly_user_kernel_costs_its_worker_and_is_named) {
    struct daemon tensord;
    struct client client;
    td_kernel *kernel;
    td_tensor *y;
    int32_t got;
    start_with_kernels(&tensord, &client, "all", "");
    td_device *other = open_device(&client, "cpu:0");
    cr_assert(!td_kernel_compile(client.device, "fakecuda: parameters 8; fakecuda: trap;", "deadly", &kernel));
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&y, TD_I32, TD_SCALAR)));
    cr_assert_eq(td_fetch(y, &got, sizeof got), TD_E_DEVICE_LOST);
    cr_assert(strstr(td_last_error()->message, "deadly"), "%s", td_last_error()->message);
    status_until(tensord.url, status_device_is, &(struct status_is){"cuda:0", "ready", 2}, 30000);
    client_expect(client_ramp(other, 3, 1), (float[]){1, 2, 3}, 3);
    cr_assert_eq(store(open_device(&client, "cuda:0"), store_source, "store", 5), TD_OK, "%s",
                 td_last_error()->message);
    client_close(&client);
    daemon_stop(&tensord);
}

/* What the driver may fail at costs that kernel; the next try is as if nothing had been. */
Test(fakecuda, failures_of_loaders_are_a_kernels_own) {
    static const char *const fails[] = {
        "cuLibraryLoadData:1:2",  "cuLibraryGetKernel:1:2", "cuKernelGetFunction:1:2",
        "cuFuncSetAttribute:1:2", "cuLaunchKernel:1:2",
    };
    for (size_t i = 0; i < sizeof fails / sizeof *fails; i++) {
        struct daemon tensord;
        struct client client;
        start_with_kernels(&tensord, &client, "all", fails[i]);
        int code = store(client.device, store_source, "store", 1);
        cr_assert(code == TD_E_OUT_OF_MEMORY || code == TD_E_NO_HOST_MEMORY, "%s: %d %s", fails[i], code,
                  td_last_error()->message);
        cr_assert_eq(store(client.device, store_source, "store", 2), TD_OK, "%s: %s", fails[i],
                     td_last_error()->message);
        client_close(&client);
        daemon_stop(&tensord);
    }
}
