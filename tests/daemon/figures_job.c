/* Jobs whose figures are looked at: figures_job URL DEVICE KIND SECONDS. Prints how many operations it enqueued, and how
 * many tensors it released: several of them may make one operation.
 *   work    a long product, behind which short operations pile up, each of several records: on two streams that need each
 *           other, with positions that are checked; then a fetch
 *   failing the same number of operations of which most fail, and some pass a cause on
 *   leaving sessions that end with much in their queue
 * It ends with 0 also where its session is lost meanwhile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/tensord.h"

static unsigned long operations, releases;

static td_tensor *made(td_tensor *tensor) {
    operations++;
    return tensor;
}

static void released(td_tensor *tensor) {
    releases += tensor != NULL;
    td_release(tensor);
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int round_of_work(td_device *device, td_stream *other) {
    static const float values[64] = {1, 2, 3};
    static const long long positions[32];
    float got[32 * 8];
    td_tensor *large = made(td_full(device, TD_F32, TD_SHAPE(700, 700), 0.5)), *slow = made(td_matmul(large, large));
    td_tensor *x = made(td_upload(device, TD_F32, TD_SHAPE(8, 8), values));
    td_tensor *at = made(td_upload(device, TD_I64, TD_SHAPE(32), positions));
    td_tensor *rows = made(td_take(x, at, 0)), *last = rows;
    for (int i = 0; i < 600; i++) {
        td_stream_set(device, i % 2 ? other : NULL);
        td_tensor *next = made(i % 3 ? td_take(last, at, 0) : td_tanh(last));
        if (last != rows)
            released(last);
        last = next;
    }
    td_stream_set(device, NULL);
    int code = td_fetch(last, got, sizeof got);
    released(last);
    released(rows);
    released(at);
    released(x);
    released(slow);
    released(large);
    return code;
}

static int round_of_failures(td_device *device) {
    static const long long positions[4] = {7, -9, 100, 3};
    td_tensor *x = made(td_full(device, TD_F32, TD_SHAPE(4, 4), 1));
    td_tensor *at = made(td_upload(device, TD_I64, TD_SHAPE(4), positions));
    td_tensor *bad = made(td_take(x, at, 0)), *worse = made(td_exp(bad)), *still = made(td_add(worse, x));
    (void)td_wait(still);
    released(still);
    released(worse);
    released(bad);
    released(at);
    released(x);
    return td_wait(made(td_full(device, TD_F32, TD_SHAPE(2), 1)));
}

static int leave(const char *url, const char *name) {
    td_connection *connection;
    td_device *device;
    if (td_connect(url, NULL, &connection))
        return TD_E_CONNECTION;
    int code = td_device_open(connection, name, &device);
    td_tensor *x = code ? NULL : td_full(device, TD_F32, TD_SHAPE(256, 256), 0.5);
    for (int i = 0; i < 300 && x; i++) {
        td_tensor *y = td_matmul(x, x);
        td_release(x);
        x = y;
    }
    td_release(x);
    td_close(connection);
    return code;
}

int main(int count, char **arguments) {
    td_connection *connection;
    td_device *device;
    td_stream *other;
    double end = count == 5 ? seconds_now() + atof(arguments[4]) : 0;
    int code = 0;
    if (count != 5)
        return 2;
    while (!strcmp(arguments[3], "leaving") && seconds_now() < end)
        code = leave(arguments[1], arguments[2]);
    if (!strcmp(arguments[3], "leaving"))
        return code && code != TD_E_DEVICE_LOST && code != TD_E_CONNECTION;
    if (td_connect(arguments[1], NULL, &connection) || td_device_open(connection, arguments[2], &device) ||
        td_stream_open(device, 0, &other)) {
        fprintf(stderr, "figures_job: %s\n", td_last_error()->message);
        return 1;
    }
    td_label(arguments[3]);
    while (!code && seconds_now() < end)
        code = strcmp(arguments[3], "failing") ? round_of_work(device, other) : round_of_failures(device);
    printf("%lu %lu\n", operations, releases);
    td_close(connection);
    return code && code != TD_E_DEVICE_LOST && code != TD_E_CANCELLED && code != TD_E_CONNECTION;
}
