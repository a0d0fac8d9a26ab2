/* Keeps the worker's stats page up to date. Loop thread only. */
#pragma once

#include "server/ipc/stats_page.h"
#include "server/worker/service.h"

enum { WORKER_STATS_SAMPLES = 10 };

struct worker_stats {
    struct stats_page *page; /* NULL: there is none */
    uint64_t written_ns;
    /* A ring of counts, one for each write of the page, for rates over about a second. */
    struct worker_stats_sample {
        uint64_t at_ns, ops, bytes_in, bytes_out, busy_ns;
    } samples[WORKER_STATS_SAMPLES];
    unsigned n_samples;
    uint64_t process_ns, memory, cpu_ns; /* when host memory and processor time were read last, and their values */
    struct worker_library {              /* what the log has of each library */
        char reason[sizeof((struct device_library *)0)->reason];
        unsigned lines;
    } libraries[DEVICE_LIBRARIES_MAX];
};

/* Maps the file; -1: there is none. Negative errno: it cannot be mapped. */
int worker_stats_init(struct worker_stats *stats, int file);
void worker_stats_finish(struct worker_stats *stats);
/* Call it at each tick: writes the page if something happened, or if the last write is long ago. */
void worker_stats_tick(struct worker_stats *stats, struct service *service);
