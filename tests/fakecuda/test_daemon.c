/* The real daemon with the real module, on a stand-in for CUDA. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/client.h"
#include "tests/integration/command.h"
#include "tests/integration/daemon.h"
#include "tests/integration/status.h"

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
    expect_refusal("cuda", "FAKECUDA_DEVICES=-1", "no GPU here: no driver for NVIDIA GPUs is installed");
    expect_refusal("cuda", "FAKECUDA_DEVICES=-2", "the driver is one for CUDA 11.8, and too old");
    expect_refusal("cuda", "FAKECUDA_DEVICES=0", "no GPU here: no CUDA-capable device is detected");
    expect_refusal("cuda:2", "FAKECUDA_DEVICES=2", "the number after \"cuda:\" goes from 0 to 1");
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

Test(fakecuda, every_device_has_a_worker_and_does_its_job) {
    struct daemon tensord;
    struct client client;
    daemon_start(&tensord, &(struct daemon_options){.devices = "cuda",
                                                    .environment = (const char *const[]){"FAKECUDA_DEVICES=2", NULL}});
    client_open(&client, tensord.url, "cuda:0");
    td_device *second = open_device(&client, "cuda:1");
    cr_assert_eq(job_run(client.device, second), 0);
    cr_assert_eq(job_run(second, client.device), 0);
    td_device_close(second);
    client_close(&client);
    for (int i = 0; i < 2; i++)
        cr_assert(status_settles(tensord.url, &(struct status_baseline){i ? "cuda:1" : "cuda:0", 0, 0}, 5000));
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
        status_until(tensord.url, status_device_is, &(struct status_is){"cuda:0", NULL, 2}, 10000);
    status_until(tensord.url, back_or_given_up, NULL, 10000);
    client_expect(client_ramp(other, 3, 1), (float[]){1, 2, 3}, 3);
    td_device_close(other);
    client_close(&client);
    cr_assert(status_settles(tensord.url, &(struct status_baseline){"cuda:0", 0, 0}, 5000), "%s: memory is left", fail);
    daemon_stop(&tensord);
}

Test(fakecuda, memory_that_runs_out_costs_no_more_than_an_operation) {
    expect_survival("cudaMalloc:1:2", false);
    expect_survival("cudaMalloc:3:2", false);
    expect_survival("cudaHostAlloc:2:2", false);
    expect_survival("cudaMallocAsync:1:2", false);
}

Test(fakecuda, lost_device_comes_back) {
    expect_survival("cudaLaunchKernel:3:700", true);
    expect_survival("cudaMemcpyAsync:4:719", true);
    expect_survival("cudaEventQuery:6:700", true);
    expect_survival("cublasLtMatmul:1:700", true);
}

/* Found where the host asks for memory, with nothing on the device to say so later. */
Test(fakecuda, device_found_lost_by_an_allocation_comes_back) {
    expect_survival("cudaMalloc:1:719", true);
    expect_survival("cudaHostAlloc:1:719", true);
}

/* Beyond those that a worker makes to open its device; FAKECUDA_FULL=1 leaves fewer out. */
Test(fakecuda, any_call_may_fail) {
    enum { OPENING = 11, CALLS = 300 };
    const char *full = getenv("FAKECUDA_FULL");
    for (int n = OPENING + 1; n < CALLS; n += full && *full ? 3 : 61) {
        char fail[32];
        snprintf(fail, sizeof fail, "%d:%d", n, n % 2 ? 2 : 700);
        expect_survival(fail, false);
    }
}
