/* A launch as a job: parts that do not depend on each other, which the device's threads take one after another.
 *
 * A job of some milliseconds or more can be left and continued: its parts are small, or look now and then whether it is time
 * to stop, and say then how far they have come. So nothing keeps the device from others for long, or from being told that
 * nobody wants the result any more. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/device/device_impl.h"

struct cpu;

/* One thread's place in a job. */
struct cpu_lane {
    unsigned number;
    bool left;        /* in the middle of a part */
    int64_t part;     /* its number */
    int64_t position; /* where to go on in it, in the part's own measure; 0 at its beginning */
    void *state;      /* what the part keeps while it is left: job->lane_bytes; NULL in jobs that are not left */
};

/* A driver's own struct begins with this. */
struct cpu_job {
    struct cpu *cpu;
    /* Runs lane->part from lane->position on. False: cpu_job_stops() said so, and lane->position is where to go on. */
    bool (*run)(struct cpu_job *job, struct cpu_lane *lane);
    void (*end)(struct cpu_job *job); /* when all parts have run; NULL: nothing is left to do */
    unsigned parts;
    unsigned lanes_most; /* no more threads than this may work on it; 0: any number */
    size_t lane_bytes;
    size_t room_bytes;
    void *room; /* room_bytes for the parts of a job that is kept */
    /* job.c's own */
    struct device_turn *turn;      /* NULL: it runs to its end */
    const _Atomic bool *cancelled; /* of its own last turn; NULL: nobody can cancel it */
    uint64_t begun_ns;             /* of the turn */
    size_t bytes;                  /* of all that has been allocated for it */
    unsigned n_lanes;
    struct cpu_lane *lanes;
    _Alignas(64) _Atomic int64_t next; /* part that nobody has taken yet */
    _Atomic bool stop;
};

/* Parts into which `work` (bytes of memory traffic, or what takes as long) is cut. 1: not worth waking anybody. */
unsigned cpu_parts(const struct cpu *cpu, double work);

/* One job at a time for which the host has no memory is kept here, with as few threads as have room, so that each job can be
 * left. Others that find none wait for it, and have it go on in their turns. */
struct cpu_spare {
    void *memory;
    size_t bytes;
    struct cpu_job *job; /* NULL: none is in it */
    uintptr_t number;    /* of the job that is in it, or will be next */
};
/* For so many threads; the pages are not touched before they are needed. */
int cpu_spare_init(struct cpu_spare *spare, unsigned threads, struct fault *fault);
void cpu_spare_finish(struct cpu_spare *spare);

/* Makes a copy of a job, `bytes` long with the driver's own, for cpu_job_continue(), where it takes so much `work` that it
 * should not run without a pause. False: it does not. *begun is cpu->waiting where there is no room for it yet: then the
 * same launch is to be begun again. */
bool cpu_job_keep(const struct cpu_job *job, size_t bytes, double work, struct cpu_job **begun);
/* Runs it to its end. */
void cpu_job_run(struct cpu_job *job);
/* Either of the two. */
void cpu_job_begin(struct cpu_job *job, size_t bytes, double work, struct cpu_job **begun);
/* True: it has ended, and is no more. */
bool cpu_job_continue(struct cpu_job *job, struct device_turn *turn);
void cpu_job_abandon(struct cpu_job *job);
/* A turn of one that waits: the job for which it does goes on. */
void cpu_job_wait(struct cpu *cpu, struct device_turn *turn);

/* Whether a part should be left now. To be asked every few hundred microseconds. */
bool cpu_job_stops(struct cpu_job *job);
/* Whether others have the device by turns: then it should be asked more often than costs least. */
static inline bool cpu_job_shares(const struct cpu_job *job) {
    return job->turn && job->turn->shared;
}

/* Where part number `part` of `parts` begins, of n things; the end is the beginning of the next. */
static inline int64_t cpu_part_begin(int64_t n, int64_t part, unsigned parts) {
    return n / parts * part + n % parts * part / parts;
}
