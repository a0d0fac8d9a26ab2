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

/* ---- report.c. Its rows lie in memory shared with processes that are forked after bench_report_init(). ---- */

void bench_report_init(void);
/* Adds a row to the report. `ratio` is the value against the limit, as the goal is stated; `goal` is the ratio that is
 * wanted, met when the ratio is at most (LOWER) or at least (HIGHER) that. */
void bench_row(const char *row, double value, const char *unit, double limit, double ratio, enum bench_better better,
               double goal);
/* A row that could not be measured, and why. */
void bench_not_run(const char *row, const char *unit, enum bench_better better, double goal, const char *reason);
/* Says more about the row that was added last. */
void bench_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
size_t bench_rows(void); /* so far */
/* Writes all rows; not 0 and errno where it cannot. */
int bench_report_write(const char *path);

/* Says why on standard error, and exits with 1. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* What the last process that failed so said; "": none since it was cleared. */
const char *bench_failure(void);
void bench_failure_clear(void);

/* Where the two ends run: both on one core, or free on two. */
struct bench_placement {
    const char *name; /* "one core", "two cores" */
    unsigned cores;
};
/* Pins this process, and what it starts from now on. False: there are not as many cores. */
bool bench_place(const struct bench_placement *placement);

enum { BENCH_WHY = 256, BENCH_URL = 128 }; /* bytes of a reason; of a URL */

struct bench_daemon {
    pid_t pid; /* 0: it has ended by itself */
    char directory[64];
    char url[BENCH_URL]; /* "unix:/tmp/…/socket" */
    char tcp[BENCH_URL]; /* "tcp://127.0.0.1:…" */
    char tls[BENCH_URL]; /* "tls://127.0.0.1:…"; "" without bench_daemon_certificate */
    double start_ms;     /* from exec to READY=1 */
};
/* A PEM file with certificate and key, for daemons that are started from now on; NULL: none. */
extern const char *bench_daemon_certificate;
/* Makes one for 127.0.0.1; false where openssl cannot be run. */
bool bench_certificate(const char *path);
/* Memory of each device of such daemons, as the option --memory has it; NULL: automatic. */
extern const char *bench_daemon_memory;
/* More arguments of such daemons, NULL at the end; NULL: none. */
extern const char *const *bench_daemon_flags;
/* Starts a daemon with these devices ("cpu"), and waits until it is ready. False and the reason where it does not come to
 * that; nothing is left of it then. */
bool bench_daemon_open(struct bench_daemon *daemon, const char *devices, char why[BENCH_WHY]);
/* The same with one CPU device; exits with a message where it cannot. */
void bench_daemon_start(struct bench_daemon *daemon);
void bench_daemon_stop(struct bench_daemon *daemon);
/* At once, whatever its state. */
void bench_daemon_kill(struct bench_daemon *daemon);

/* Exits with the library's words when `code` is not 0 or `made` is NULL. */
void bench_check(int code, const char *what);
td_tensor *bench_made(td_tensor *made, const char *what);
/* After a call that returned NULL: true where the send queue was full, which by then is no longer so. */
bool bench_again(td_device *device);
/* A device of the daemon at `url`, on a connection of its own. */
struct bench_client {
    td_connection *connection;
    td_device *device;
};
void bench_client_open(struct bench_client *client, const char *url, const td_options *options);
void bench_client_close(struct bench_client *client);

/* 16 floats of one value. */
td_tensor *bench_vector16(td_device *device, float value);
/* x = x + b, `count` times; takes x over. Where the send queue is full, waits for what was made last. */
td_tensor *bench_adds(td_tensor *x, td_tensor *b, long count);

/* A second process, into whose memory bytes are copied over a socket: what a transfer is held against. */
struct bench_socket {
    pid_t pid;
    int fd;
    size_t bytes;
};
void bench_socket_open(struct bench_socket *to, bool tcp, size_t bytes, int rounds);
/* Seconds until it has said that all of `bytes` have arrived; called `rounds` times. */
double bench_socket_copy(const struct bench_socket *to, const char *data);
void bench_socket_close(struct bench_socket *to);

/* A link that takes so many milliseconds each way (link.c). By netem, on the loopback interface of a network namespace that this process, and
 * what it starts from now on, then has; false where that is not permitted, and then the interface delays nothing. */
bool bench_link_netem(int milliseconds);
/* By a process that passes bytes on later, to the daemon at "tcp://127.0.0.1:…"; its own such URL. The caller ends it. */
pid_t bench_link_relay(const char *url, int milliseconds, char slow[BENCH_URL]);

/* Medians in bytes per second: of such copies, and of uploads and fetches of as many bytes over `url`. */
double bench_raw_rate(bool tcp, const char *data, size_t bytes);
void bench_bulk_rates(const char *url, size_t bytes, double *up, double *down);

/* What each of many clients does, in a process of its own. `round` returns how much has run by then that it had not told
 * of before. */
struct bench_work {
    void *(*open)(struct bench_client *client);
    long (*round)(struct bench_client *client, void *state);
};
enum { BENCH_CLIENTS_MAX = 64 };
/* Rates of all together and of the slowest. */
void bench_clients_measure(const char *url, const struct bench_work *work, int count, double seconds, double *total,
                           double *slowest);

/* Operations that keep a device at work for long (long.c). */
struct bench_long {
    const char *name;
    /* Makes the operands of an operation, and its result, which is NULL where the call failed. */
    void (*open)(td_device *device, td_tensor *operands[3]);
    td_tensor *(*make)(td_device *device, td_tensor *const operands[3]);
};
extern const struct bench_long bench_longs[];
extern const size_t bench_longs_count;
/* Makes results, some in advance, until the session ends; exits with a message where one fails before. With `told`, a pipe's
 * end, not negative: also takes the memory that they leave, down to pieces of 4 MiB, and then writes a byte there. */
void bench_long_keep_busy(const struct bench_long *work, td_device *device, int told);

double bench_now(void);        /* seconds of CLOCK_MONOTONIC */
double bench_thread_cpu(void); /* seconds of this thread */
/* The median; sorts. */
double bench_median(double *values, size_t count);

extern bool bench_quick; /* --quick: a hundredth of the work, to see that everything runs */

/* The rows, by file. */
void bench_enqueue(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_chain(const struct bench_placement *placement, const struct bench_daemon *daemon);
/* The step of a small network. */
void bench_training(const struct bench_placement *placement, td_device *device);
void bench_programs(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_round_trip(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_bulk(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_tls(const struct bench_placement *placement);
void bench_matmul(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_add(const struct bench_placement *placement);
void bench_clients(const struct bench_placement *placement, const struct bench_daemon *daemon);
void bench_neighbours(void);
void bench_long_neighbours(void);
void bench_epochs(void);
void bench_stops(void);
void bench_start(void);
void bench_pool(void);
