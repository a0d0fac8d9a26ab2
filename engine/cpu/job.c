#include "engine/cpu/job.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/cpu/cpu.h"

enum {
    PART_WORK = 64 << 10,     /* bytes of memory traffic, some 5 µs: a smaller part is not worth a thread */
    PARTS_PER_THREAD = 4,     /* so that other threads take the parts of a thread that starts late or is delayed */
    PART_WORK_MOST = 1 << 20, /* a part then takes 0.1 to 1 ms, and 10 if the estimate is far too low */
    JOB_WORK = 8 << 20,       /* jobs of so much work or more can be left */
    /* What the largest job needs without lanes: the segments of a reduction with few outputs, */
    SPARE_BYTES = 384 << 10,
    SPARE_THREAD_BYTES = 8 << 10, /* and a lane with its accumulators */
    WAIT_NS = 5 * 1000 * 1000,
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

void cpu_job_fail(struct cpu_job *job) {
    atomic_store_explicit(&job->failed, true, memory_order_relaxed);
    atomic_store_explicit(&job->stop, true, memory_order_relaxed);
}

static bool job_failed(const struct cpu_job *job) {
    return atomic_load_explicit(&job->failed, memory_order_relaxed);
}

/* ---- to the end ---- */

static void job_part(void *context, unsigned part) {
    struct cpu_job *job = context;
    struct cpu_lane lane = {.number = part, .part = part};
    if (!job_failed(job)) {
        job->run(job, &lane);
    }
}

void cpu_job_run(struct cpu_job *job) {
    do {
        team_run(&job->cpu->team, job->parts, job_part, job);
    } while (!job_failed(job) && job->again && job->again(job));
    if (!job_failed(job) && job->end) {
        job->end(job);
    }
    job->cpu->job_failed |= job_failed(job);
    if (job->done) {
        job->done(job);
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
    } while (!lane->left && !cpu_job_stops(job) && !job_failed(job));
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

/* The head of a job that is kept, then its lanes with their states, and its room. */
struct job_sizes {
    size_t own, lanes, state, room;
};

static size_t sizes_all(const struct job_sizes *sizes, unsigned lanes) {
    return sizes->own + rounded(lanes * sizeof(struct cpu_lane)) + lanes * sizes->state + sizes->room;
}

/* If the host has no memory: in the spare place, with as many lanes as there is room for. NULL: another job is in that place. */
static struct cpu_job *job_allocate(struct cpu *cpu, const struct job_sizes *sizes, unsigned *lanes) {
    struct cpu_job *kept = aligned_alloc(64, sizes_all(sizes, *lanes));
    if (kept || cpu->spare.job) {
        return kept;
    }
    while (*lanes > 1 && sizes_all(sizes, *lanes) > cpu->spare.bytes) {
        --*lanes;
    }
    assert(sizes_all(sizes, *lanes) <= cpu->spare.bytes);
    cpu->spare.job = cpu->spare.memory;
    return cpu->spare.job;
}

bool cpu_job_keep(const struct cpu_job *job, size_t bytes, double work, struct cpu_job **begun) {
    if (work < JOB_WORK) {
        return false;
    }
    unsigned n = job->cpu->team.threads;
    n = n < job->parts ? n : job->parts;
    n = job->lanes_most && job->lanes_most < n ? job->lanes_most : n;
    struct job_sizes sizes = {
        .own = rounded(bytes), .state = rounded(job->lane_bytes), .room = rounded(job->room_bytes)};
    struct cpu_job *kept = job_allocate(job->cpu, &sizes, &n);
    if (!kept) {
        *begun = &job->cpu->waiting;
        return true;
    }
    size_t all = sizes_all(&sizes, n);
    memcpy(kept, job, bytes);
    kept->bytes = all;
    kept->room = (char *)kept + all - sizes.room;
    kept->n_lanes = n;
    kept->lanes = (struct cpu_lane *)(void *)((char *)kept + sizes.own);
    char *states = (char *)kept->lanes + rounded(n * sizeof(struct cpu_lane));
    for (unsigned i = 0; i < n; i++) {
        kept->lanes[i] = (struct cpu_lane){.number = i, .state = sizes.state ? states + i * sizes.state : NULL};
    }
    atomic_init(&kept->next, 0);
    atomic_init(&kept->stop, false);
    atomic_init(&kept->failed, false);
    atomic_fetch_add(&kept->cpu->begun_bytes, all);
    *begun = kept;
    return true;
}

void cpu_job_begin(struct cpu_job *job, size_t bytes, double work, struct cpu_job **begun) {
    if (!cpu_job_keep(job, bytes, work, begun)) {
        cpu_job_run(job);
    }
}

/* One turn. True: all parts have run, or one has failed. */
static bool job_turn(struct cpu_job *job, struct device_turn *turn) {
    job->turn = turn;
    job->cancelled = turn->cancelled;
    job->begun_ns = job_clock();
    atomic_store_explicit(&job->stop, false, memory_order_relaxed);
    bool ended, again;
    unsigned lanes = job->n_lanes;
    do {
        team_run(&job->cpu->team, lanes, job_lane, job);
        ended = job_failed(job) || job_ended(job);
        again = ended && !job_failed(job) && job->again && job->again(job);
        if (again) {
            ended = false;
            atomic_store_explicit(&job->next, 0, memory_order_relaxed);
            lanes = job->parts < job->n_lanes ? job->parts : job->n_lanes; /* none is in the middle of a part */
        }
    } while (again && !cpu_job_stops(job));
    if (ended && !job_failed(job) && job->end) {
        job->end(job);
    }
    turn->used_ns = job_clock() - job->begun_ns + 1;
    return ended;
}

bool cpu_job_continue(struct cpu_job *job, struct device_turn *turn) {
    if (job_failed(job)) { /* in the turn of a launch that waited for it */
        turn->used_ns = 1;
    } else if (!job_turn(job, turn)) {
        return false;
    }
    job->cpu->job_failed |= job_failed(job);
    cpu_job_abandon(job);
    return true;
}

void cpu_job_abandon(struct cpu_job *job) {
    struct cpu *cpu = job->cpu;
    if (job->done) {
        job->done(job);
    }
    atomic_fetch_sub(&cpu->begun_bytes, job->bytes);
    if (job != cpu->spare.job) {
        free(job);
        return;
    }
    cpu->spare.job = NULL;
    cpu->spare.number++;
}

/* ---- without memory ---- */

int cpu_spare_init(struct cpu_spare *spare, unsigned threads, struct fault *fault) {
    size_t bytes = SPARE_BYTES + (size_t)threads * SPARE_THREAD_BYTES;
    *spare = (struct cpu_spare){.memory = aligned_alloc(64, bytes), .bytes = bytes, .number = 1};
    return spare->memory ? STATUS_OK : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a cpu device");
}

void cpu_spare_finish(struct cpu_spare *spare) {
    free(spare->memory);
}

/* The time of the job in the spare place is not charged to the launch that waits. */
void cpu_job_wait(struct cpu *cpu, struct device_turn *turn) {
    struct cpu_job *job = cpu->spare.job;
    if (job && job->cancelled && atomic_load_explicit(job->cancelled, memory_order_relaxed)) {
        cpu_job_abandon(job);
    } else if (job && !job_failed(job)) {
        struct device_turn part = {.cancelled = job->cancelled,
                                   .wanted = turn->wanted,
                                   .turn_ns = turn->turn_ns,
                                   .most_ns = WAIT_NS,
                                   .shared = true,
                                   .progress = turn->progress};
        if (job_turn(job, &part) && !job_failed(job)) {
            cpu_job_abandon(job);
        }
    }
    turn->used_ns = 1;
}
