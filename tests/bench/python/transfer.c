/* What the C client takes for the transfers that python.py measures: bench-python-transfer MIB ROUNDS. Prints the least time of an upload and
 * of a fetch, in seconds. A fetch goes into new memory, as that of NumPy is; NumPy asks for huge pages there,
 * which makes it faster than malloc(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/tensord.h"

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int failed(void) {
    fprintf(stderr, "%s\n", td_last_error()->message);
    return 1;
}

int main(int argc, char **argv) {
    const int64_t n = (argc > 1 ? atoll(argv[1]) : 64) << 18;
    const int rounds = argc > 2 ? atoi(argv[2]) : 9;
    const size_t bytes = (size_t)n * sizeof(float);
    td_connection *connection;
    td_device *device;
    if (td_connect(NULL, NULL, &connection) || td_device_open(connection, NULL, &device))
        return failed();
    float *data = malloc(bytes);
    if (!data)
        return 1;
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)i;
    double least_in = 1e9, least_out = 1e9;
    for (int i = 0; i < rounds; i++) {
        double start = now();
        td_tensor *x = td_upload(device, TD_F32, TD_SHAPE(n), data);
        double middle = now();
        if (!x || td_wait(x))
            return failed();
        double waited = now();
        void *got = malloc(bytes);
        if (!got || td_fetch(x, got, bytes))
            return failed();
        double end = now();
        if (memcmp(got, data, bytes) != 0)
            return fprintf(stderr, "other bytes came back\n"), 1;
        free(got);
        td_release(x);
        least_in = middle - start < least_in ? middle - start : least_in;
        least_out = end - waited < least_out ? end - waited : least_out;
    }
    printf("%.9f %.9f\n", least_in, least_out);
    free(data);
    td_close(connection);
    return 0;
}
