/* Two vectors times a matrix, on whatever device the daemon has. */
#include <stdio.h>

#include "client/tensord.h"

int main(void) {
    const float x_host[2][3] = {{1, 2, 3}, {4, 5, 6}};
    float y_host[2][2];
    td_connection *connection;
    td_device *device;
    /* $TENSORD_URL, or the default socket; the first device, or name one: "cpu:0" */
    if (td_connect(NULL, NULL, &connection) || td_device_open(connection, NULL, &device))
        return fprintf(stderr, "hello: %s\n", td_last_error()->message), 1;

    td_tensor *x = td_upload(device, TD_F32, TD_SHAPE(2, 3), x_host);
    td_tensor *w = td_normal(device, TD_F32, TD_SHAPE(3, 2), 42, 0.0, 0.1);
    td_tensor *y = td_tanh(td_matmul(x, w)); /* enqueued: nothing has waited so far */
    if (td_fetch(y, y_host, sizeof y_host))  /* waits, and reports what went wrong anywhere above */
        return fprintf(stderr, "hello: %s\n", td_last_error()->message), 1;

    printf("%s: %g %g %g %g\n", td_device_name(device), y_host[0][0], y_host[0][1], y_host[1][0], y_host[1][1]);
    td_close(connection);
    return 0;
}
