/* Keeps the worker's stats page up to date. Loop thread only. */
#pragma once

#include "server/ipc/stats_page.h"
#include "server/worker/service.h"

enum { WORKER_STATS_SAMPLES = 10 };

struct worker_stats {
    struct stats_page *page; /* NULL: nobody wants to know */
    uint64_t written_ns;
    /* A ring of counts, one for each write of the page, for rates over about a second. */
    struct worker_stats_sample {
        uint64_t at_ns, ops, bytes_in, bytes_out, busy_ns;
    } samples[WORKER_STATS_SAMPLES];
    unsigned n_samples;
    uint64_t process_ns, memory, cpu_ns; /* when the process was looked at last, and what it had */
    uint64_t ops, moved_ns; /* at the last look, and when it was another number before, or something was queued */
};

/* Maps the file; -1 stands for none. Negative errno where that fails. */
int worker_stats_init(struct worker_stats *stats, int file);
void worker_stats_finish(struct worker_stats *stats);
/* At each tick: writes the page if something happened or the last time is long ago. */
void worker_stats_tick(struct worker_stats *stats, struct service *service);
