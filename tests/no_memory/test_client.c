/* A job that meets everything the client library allocates, with the host's memory refused at the first, second, third
 * … time, once or from then on: each call succeeds or says TD_E_NO_HOST_MEMORY, every callback is called, and nothing
 * crashes, hangs or leaks. A plain program, linked with --wrap for malloc, calloc, realloc and strdup. The daemon is a
 * process of its own, so that its memory is not counted. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/tensord.h"
#include "tests/unit/fake_daemon.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);

static atomic_bool on;
static atomic_uint calls, first, last; /* calls first … last are refused, counted from 1 */

static bool refused(void) {
    if (!on)
        return false;
    unsigned n = ++calls;
    return n >= first && n <= last;
}

void *__wrap_malloc(size_t bytes) {
    return refused() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return refused() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    return refused() ? NULL : __real_realloc(memory, bytes);
}

char *__wrap_strdup(const char *text) {
    return refused() ? NULL : __real_strdup(text);
}

static char url[128];
static atomic_int expected, called; /* callbacks */

static void given_back(void *user) {
    (void)user;
    called++;
}

static void fetched(void *user, int status) {
    (void)user;
    if (status && status != TD_E_NO_HOST_MEMORY && status != TD_E_CANCELLED) {
        fprintf(stderr, "a callback got %d: %s\n", status, td_last_error()->message);
        _exit(1);
    }
    called++;
}

/* Operations of every kind of call; NULL is passed on, so the last one tells. */
static td_tensor *operations(td_device *device, float *values, size_t n) {
    char label[TD_LABEL_MAX];
    td_tensor *x = td_upload(device, TD_F32, TD_SHAPE(4, 4), values), *sum = x;
    td_tensor *large = td_upload(device, TD_F32, TD_SHAPE((int64_t)n), values);
    for (int i = 0; i < 600; i++) { /* batches, slabs of handles, and columns grow */
        snprintf(label, sizeof label, "step %d", i);
        if (i % 10 == 0)
            td_label(label);
        td_tensor *next = td_add(i % 3 ? sum : td_slice(sum, 0, 0, 4, 1), td_full(device, TD_F32, TD_SHAPE(4, 4), i));
        sum = next;
    }
    return td_add(sum, td_max(large, TD_ALL_AXES, 0));
}

static int asynchronous(td_tensor *x, float *out) {
    int fd;
    int code = td_fetch_async(x, out, 64, fetched, NULL);
    expected += !code;
    td_test(x);
    if (!code)
        code = td_fetch_fd(x, out + 16, 64, &fd);
    if (!code) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        uint64_t value = 0;
        if (poll(&entry, 1, 10000) != 1 || read(fd, &value, sizeof value) != sizeof value)
            return -1;
        close(fd);
        code = (int)value - 1;
    }
    return code;
}

static int kernels(td_device *device, td_tensor *x) {
    td_kernel *kernel;
    td_tensor *y, *z;
    int code = td_kernel_compile(device, "wrong", "f", &kernel);
    if (code != TD_E_INVALID_ARGUMENT)
        return code ? code : -1;
    code = td_kernel_compile(device, "right", "f", &kernel);
    if (code)
        return code;
    code = td_kernel_launch(kernel, TD_DIM(1), TD_DIM(32), 0,
                            TD_ARGS(td_arg_out(&y, TD_F32, TD_SHAPE(4)), td_arg_update(&z, x), td_arg_i32(1)));
    if (code && (y || z))
        return -1;
    td_kernel_release(kernel);
    return code;
}

static int work(td_device *device, td_device *other, float *values, size_t n, float *out) {
    td_stream *stream;
    int code = td_stream_open(device, 1, &stream);
    if (!code)
        code = td_stream_set(device, stream);
    if (code)
        return code;
    td_tensor *x = operations(device, values, n);
    if (!x)
        return td_last_error()->code;
    td_tensor *borrowed = td_upload_borrow(device, TD_F32, TD_SHAPE((int64_t)n), values, given_back, NULL);
    expected += borrowed != NULL;
    code = td_fetch(x, out, 64);
    if (!code && !borrowed)
        code = TD_E_NO_HOST_MEMORY;
    if (!code)
        code = asynchronous(x, out);
    if (!code && !td_copy_to(x, other))
        code = td_last_error()->code;
    if (!code)
        code = kernels(device, x);
    return code ? code : td_sync(device);
}

static int job(float *values, size_t n) {
    td_connection *connection;
    td_device *device, *other;
    float out[32];
    td_options options = {.client_name = "no memory", .timeout_ms = 5000};
    int code = td_connect(url, &options, &connection);
    if (code)
        return code;
    td_scope_begin("outer");
    td_scope_begin("inner");
    code = td_device_open(connection, "cpu:0", &device);
    if (!code)
        code = td_device_open(connection, "cpu:1", &other);
    if (!code)
        code = work(device, other, values, n, out);
    td_scope_end();
    td_scope_end();
    td_close(connection);
    return code;
}

static void check(unsigned from, unsigned to, float *values, size_t n) {
    expected = called = 0;
    calls = 0;
    first = from;
    last = to;
    on = true;
    int code = job(values, n);
    on = false;
    if ((code && code != TD_E_NO_HOST_MEMORY) || expected != called) {
        fprintf(stderr, "allocations %u to %u refused: %d (%s), %d of %d callbacks\n", from, to, code,
                td_last_error()->message, called, expected);
        exit(1);
    }
}

/* Serves until its parent ends. */
static pid_t start_daemon(void) {
    int ends[2];
    pid_t pid = pipe(ends) ? -1 : fork();
    if (pid == 0) {
        static struct fake_daemon fake;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fake_daemon_start(&fake);
        (void)!write(ends[1], fake.url, sizeof fake.url);
        pause();
    }
    if (pid < 0 || read(ends[0], url, sizeof url) != sizeof url)
        exit(1);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

int main(void) {
    enum { N = 200000 };
    pid_t daemon = start_daemon();
    float *values = __real_calloc(N, sizeof *values);
    check(0, 0, values, N);
    unsigned all = calls;
    for (unsigned n = 1; n <= all + 5; n++)
        check(n, n, values, N);
    for (unsigned n = 1; n <= all + 5; n += 3)
        check(n, UINT32_MAX, values, N);
    free(values);
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0);
    unlink(url + strlen("unix:"));
    printf("%u allocations, each refused once\n", all);
    return 0;
}
