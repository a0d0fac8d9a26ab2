#include "engine/cpu/job.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/cpu/cpu.h"

enum {
    PART_WORK = 64 << 10,     /* bytes of memory traffic below which a part is not worth a thread: some 5 µs */
    PARTS_PER_THREAD = 4,     /* so that a thread which starts late, or is held up, leaves its share to others */
    PART_WORK_MOST = 1 << 20, /* a part then takes 0.1 to 1 ms, and 10 where the estimate is far too low */
    JOB_WORK = 8 << 20,       /* from here on a job can be left */
};

unsigned cpu_parts(const struct cpu *cpu, double work) {
    double parts = work / PART_WORK, most = cpu->team.threads > 1 ? cpu->team.threads * PARTS_PER_THREAD : 1;
    double least = work / PART_WORK_MOST;
    parts = parts < most ? parts : most;
    parts = parts > least ? parts : least;
    return parts < 2 ? 1 : parts < (double)INT32_MAX ? (unsigned)parts : INT32_MAX;
}

static uint64_t job_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool cpu_job_stops(struct cpu_job *job) {
    struct device_turn *turn = job->turn;
    if (!turn) {
        return false;
    }
    if (turn->progress) {
        atomic_fetch_add_explicit(turn->progress, 1, memory_order_relaxed);
    }
    if (atomic_load_explicit(&job->stop, memory_order_relaxed)) {
        return true;
    }
    bool stop = turn->cancelled && atomic_load_explicit(turn->cancelled, memory_order_relaxed);
    bool wanted = turn->wanted && atomic_load_explicit(turn->wanted, memory_order_relaxed);
    if (!stop && (wanted || turn->most_ns)) {
        uint64_t used = job_clock() - job->begun_ns;
        stop = (wanted && used >= turn->turn_ns) || (turn->most_ns && used >= turn->most_ns);
    }
    if (stop) {
        atomic_store_explicit(&job->stop, true, memory_order_relaxed);
    }
    return stop;
}

/* ---- to the end ---- */

static void job_part(void *context, unsigned part) {
    struct cpu_job *job = context;
    struct cpu_lane lane = {.number = part, .part = part};
    job->run(job, &lane);
}

void cpu_job_run(struct cpu_job *job) {
    team_run(&job->cpu->team, job->parts, job_part, job);
    if (job->end) {
        job->end(job);
    }
}

/* ---- in turns ---- */

static void job_lane(void *context, unsigned number) {
    struct cpu_job *job = context;
    struct cpu_lane *lane = &job->lanes[number];
    do {
        if (!lane->left) {
            lane->part = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
            lane->position = 0;
            if (lane->part >= job->parts) {
                return;
            }
        }
        lane->left = !job->run(job, lane);
    } while (!lane->left && !cpu_job_stops(job));
}

static bool job_ended(const struct cpu_job *job) {
    bool ended = atomic_load_explicit(&job->next, memory_order_relaxed) >= job->parts;
    for (unsigned i = 0; i < job->n_lanes && ended; i++) {
        ended = !job->lanes[i].left;
    }
    return ended;
}

static size_t rounded(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

bool cpu_job_keep(const struct cpu_job *job, size_t bytes, double work, struct cpu_job **begun) {
    if (work < JOB_WORK) {
        return false;
    }
    unsigned n = job->cpu->team.threads;
    n = n < job->parts ? n : job->parts;
    n = job->lanes_most && job->lanes_most < n ? job->lanes_most : n;
    size_t lanes = rounded(n * sizeof(struct cpu_lane)), state = rounded(job->lane_bytes);
    size_t head = rounded(bytes) + lanes + n * state, all = head + rounded(job->room_bytes);
    struct cpu_job *kept = aligned_alloc(64, all);
    if (!kept) {
        return false;
    }
    memcpy(kept, job, bytes);
    kept->bytes = all;
    kept->room = (char *)kept + head;
    kept->n_lanes = n;
    kept->lanes = (struct cpu_lane *)(void *)((char *)kept + rounded(bytes));
    for (unsigned i = 0; i < n; i++) {
        kept->lanes[i] = (struct cpu_lane){.number = i, .state = state ? (char *)kept->lanes + lanes + i * state : NULL};
    }
    atomic_init(&kept->next, 0);
    atomic_init(&kept->stop, false);
    atomic_fetch_add(&kept->cpu->begun_bytes, all);
    *begun = kept;
    return true;
}

void cpu_job_begin(struct cpu_job *job, size_t bytes, double work, struct cpu_job **begun) {
    if (!cpu_job_keep(job, bytes, work, begun)) {
        cpu_job_run(job);
    }
}

bool cpu_job_continue(struct cpu_job *job, struct device_turn *turn) {
    job->turn = turn;
    job->begun_ns = job_clock();
    atomic_store_explicit(&job->stop, false, memory_order_relaxed);
    team_run(&job->cpu->team, job->n_lanes, job_lane, job);
    bool ended = job_ended(job);
    if (ended && job->end) {
        job->end(job);
    }
    turn->used_ns = job_clock() - job->begun_ns + 1;
    if (ended) {
        cpu_job_abandon(job);
    }
    return ended;
}

void cpu_job_abandon(struct cpu_job *job) {
    atomic_fetch_sub(&job->cpu->begun_bytes, job->bytes);
    free(job);
}
