/* Finds three weights by gradient descent: a step is recorded once, and one message runs it on 200 batches. */
#include <stdio.h>

#include "client/tensord.h"

static int fail(void) {
    return fprintf(stderr, "train: %s\n", td_last_error()->message), 1;
}

int main(void) {
    const float right[] = {1, -2, 3};
    float weights[3], losses[200];
    td_connection *connection;
    td_device *device;
    if (td_connect(NULL, NULL, &connection) || td_device_open(connection, NULL, &device))
        return fail();

    td_record_begin(device); /* operations are recorded, and do not run */
    td_tensor *w = td_parameter_consumed(TD_F32, TD_SHAPE(3)), *x = td_parameter(TD_F32, TD_SHAPE(16, 3));
    td_tensor *y = td_parameter(TD_F32, TD_SHAPE(16)), *error = td_subtract(td_matmul(x, w), y), *slope;
    td_tensor *loss = td_mean(td_multiply(error, error), TD_ALL_AXES, 0);
    td_gradients(loss, 1, &w, &slope);
    td_tensor *change = td_multiply(slope, td_full(device, TD_F32, TD_SCALAR, 0.1));
    td_tensor *results[] = {td_subtract(w, change), loss};
    td_program *step;
    if (td_record_end(device, 2, results, &step))
        return fail();

    td_tensor *points = td_normal(device, TD_F32, TD_SHAPE(200, 16, 3), 1, 0, 1);
    td_tensor *values = td_matmul(points, td_upload(device, TD_F32, TD_SHAPE(3), right));
    td_tensor *inputs[] = {td_full(device, TD_F32, TD_SHAPE(3), 0), points, values}, *outputs[2];
    const td_carry carried[] = {{0, 0}};          /* the new weights are the next iteration's w; */
    const int sliced[] = {1, 2}, stacked[] = {1}; /* each one has its own x and y; and all losses are kept */
    const td_loop epoch = {1, carried, 2, sliced, 1, stacked};
    td_program_repeat(step, 200, &epoch, 3, inputs, 2, outputs);
    if (td_fetch(outputs[0], weights, sizeof weights) || td_fetch(outputs[1], losses, sizeof losses))
        return fail();

    printf("loss %.4f at first, %.4f at the end; weights %.3f %.3f %.3f\n", losses[0], losses[199], weights[0],
           weights[1], weights[2]);
    td_close(connection);
    return 0;
}
