/* What clients do while memory is refused to their daemon. Each returns TD_OK or the code of the first call that failed,
 * and asserts that failed calls have a reason. */
#pragma once

/* Uploads, operations, streams, copies between devices, fetches and failures on cpu:0, beside cpu:1. */
int jobs_device(const char *url);
/* The same for a new worker: shorter, without products, and with many connections at once. */
int jobs_first(const char *url);
/* A few operations on cpu:0. */
int jobs_short(const char *url);
/* All that a control connection answers; then a short session. */
int jobs_control(const char *url);
