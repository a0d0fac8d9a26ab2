/* The benchmark: each row measures tensord and, in the same run and on the same cores, the limit that it is held
 * against. Nothing here asserts a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/tensord.h"

/* How a value and its goal compare. */
enum bench_better { BENCH_LOWER, BENCH_HIGHER };

/* Adds a row to the report. `ratio` is the value against the limit, as the goal is stated; `goal` is the ratio that is
 * wanted, met when the ratio is at most (LOWER) or at least (HIGHER) that. */
void bench_row(const char *row, double value, const char *unit, double limit, double ratio, enum bench_better better,
               double goal);

/* Where the two ends run: both on one core, or free on two. */
struct bench_placement {
    const char *name; /* "one core", "two cores" */
    unsigned cores;
};
/* Pins this process, and what it starts from now on. False: there are not as many cores. */
bool bench_place(const struct bench_placement *placement);

struct bench_daemon {
    pid_t pid;
    char directory[64];
    char url[128];   /* "unix:/tmp/…/socket" */
    char tcp[128];   /* "tcp://127.0.0.1:…" */
    double start_ms; /* from exec to READY=1 */
};
/* Starts a daemon with one CPU device; exits with a message where it cannot. */
void bench_daemon_start(struct bench_daemon *daemon);
void bench_daemon_stop(struct bench_daemon *daemon);
/* Proportional set size of the daemon and its workers, in bytes. */
double bench_daemon_memory(const struct bench_daemon *daemon);

/* Exits with the library's words when `code` is not 0 or `made` is NULL. */
void bench_check(int code, const char *what);
td_tensor *bench_made(td_tensor *made, const char *what);
/* A device of the daemon at `url`, on a connection of its own. */
struct bench_client {
    td_connection *connection;
    td_device *device;
};
void bench_client_open(struct bench_client *client, const char *url);
void bench_client_close(struct bench_client *client);

double bench_now(void);        /* seconds of CLOCK_MONOTONIC */
double bench_thread_cpu(void); /* seconds of this thread */
/* The median; sorts. */
double bench_median(double *values, size_t count);

extern bool bench_quick; /* --quick: a hundredth of the work, to see that everything runs */

/* The rows, by file. */
void bench_enqueue(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_chain(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_round_trip(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_bulk(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_matmul(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_add(const struct bench_placement *placement);
void bench_clients(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_start(void);
