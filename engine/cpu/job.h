/* A launch as a job: parts that do not depend on each other, which the device's threads take one after another.
 *
 * A job of some milliseconds or more can be left and continued. Its parts are small, or look now and then whether to stop, and then say
 * how far they have come. So no job keeps the device from other sessions for long, and a job whose result is not wanted any more
 * ends soon. */
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
    void *state;      /* job->lane_bytes that the part keeps while it is left; NULL in jobs that are never left */
};

/* A driver's own struct begins with this. */
struct cpu_job {
    struct cpu *cpu;
    /* Runs lane->part from lane->position on. False: it was left since cpu_job_stops() said so, and lane->position is where to go on. */
    bool (*run)(struct cpu_job *job, struct cpu_lane *lane);
    void (*end)(struct cpu_job *job); /* called when all parts have run; may be NULL */
    void (*done)(
        struct cpu_job
            *job); /* called once for a job that has begun: behind `end`, or when it is abandoned; may be NULL */
    /* Called when all parts have run, before `end`. True: it has changed `run` or the driver's own fields, and `parts`, for a further
     * round of parts, which see all that the rounds before have written. It takes some microseconds. NULL: there is one round. */
    bool (*again)(struct cpu_job *job);
    unsigned parts;
    unsigned lanes_most; /* so many threads may work on it; 0: any number */
    size_t lane_bytes;
    size_t room_bytes;
    void *room; /* room_bytes for all parts of a job that is kept */
    /* private to job.c */
    struct device_turn *turn;      /* NULL: it runs to its end */
    const _Atomic bool *cancelled; /* of its last turn; NULL: it cannot be cancelled */
    uint64_t begun_ns;             /* of the turn */
    size_t bytes;                  /* of all that has been allocated for it */
    unsigned n_lanes;
    struct cpu_lane *lanes;
    _Alignas(64) _Atomic int64_t next; /* the first part that no thread has taken yet */
    _Atomic bool stop;
    _Atomic bool failed;
};

/* The number of parts into which to cut `work` (bytes of memory traffic, or work that takes as long). 1: too little to wake a thread. */
unsigned cpu_parts(const struct cpu *cpu, double work);

/* The spare place: memory for one job for which the host has none, with as many lanes as there is room for. So each job can be left.
 * Other jobs without memory wait for the one in the spare place, and continue it in their turns. */
struct cpu_spare {
    void *memory;
    size_t bytes;
    struct cpu_job *job; /* NULL: the place is empty */
    uintptr_t number;    /* of the job that is in it, or of the next one */
};
/* For a team of so many threads. The pages are not touched before they are needed. */
int cpu_spare_init(struct cpu_spare *spare, unsigned threads, struct fault *fault);
void cpu_spare_finish(struct cpu_spare *spare);

/* If the job has so much `work` that it should not run without a pause: makes a copy of it, of `bytes` with the driver's own fields, for
 * cpu_job_continue(). False: it has less. *begun becomes cpu->waiting if there is no room for the job yet: then the same launch is
 * to be begun again. */
bool cpu_job_keep(const struct cpu_job *job, size_t bytes, double work, struct cpu_job **begun);
/* Runs the job to its end. */
void cpu_job_run(struct cpu_job *job);
/* Keeps the job by cpu_job_keep(), or runs it to its end. */
void cpu_job_begin(struct cpu_job *job, size_t bytes, double work, struct cpu_job **begun);
/* True: the job has ended, and its memory is freed. */
bool cpu_job_continue(struct cpu_job *job, struct device_turn *turn);
void cpu_job_abandon(struct cpu_job *job);
/* The turn of a launch that waits for the spare place: continues the job that is in it. */
void cpu_job_wait(struct cpu *cpu, struct device_turn *turn);

/* Whether a part should be left now. Parts call it every few hundred microseconds, products every few milliseconds. */
bool cpu_job_stops(struct cpu_job *job);
/* A part calls it where a library has no memory, and returns: the launch fails with STATUS_NO_HOST_MEMORY, and `end` is not called. */
void cpu_job_fail(struct cpu_job *job);
/* Whether other sessions have the device by turns: then parts call cpu_job_stops() more often, though that costs time. */
static inline bool cpu_job_shares(const struct cpu_job *job) {
    return job->turn && job->turn->shared;
}

/* Where part number `part` of `parts` begins if n things are shared out; it ends where the next one begins. */
static inline int64_t cpu_part_begin(int64_t n, int64_t part, unsigned parts) {
    return n / parts * part + n % parts * part / parts;
}
