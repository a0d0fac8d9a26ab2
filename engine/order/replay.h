/* Replays: launches that were planned once and run often. A replay keeps the launches of a program as they would lie in records, and the
 * places of all addresses in them. An address is an offset from one of the run's bases: blocks of memory that each run names, such as its
 * inputs. A run is one record of its stream: the submitter writes the addresses and makes the launches, one after another, in turns like any others.
 *
 * The owner makes a replay and does not change it. The submitter alone writes to `launches`, `applied` and `skipped`; so runs of one replay
 * must follow one another, in one stream or by waits. */
#pragma once

#include "engine/device/device_kernels.h"
#include "engine/device/launch.h"

struct guard;
struct order;
struct record;
struct replay_graphs;
struct report;
struct reports;
struct stream;

enum replay_kind {
    REPLAY_LAUNCH, /* a struct launch */
    REPLAY_FLAT,   /* `n` struct flat_launch, which follow one another */
    REPLAY_FUSED,  /* a struct fused_launch; `singly` steps that follow do the same, one by one */
    REPLAY_KERNEL, /* a struct kernel_launch */
};

/* The kernel of a fused launch, on a device that has to compile it. */
struct replay_kernel {
    const struct device_kernel *_Atomic kernel; /* NULL: it is not there yet; then it stays */
};

struct replay_step {
    uint8_t kind; /* enum replay_kind */
    bool skipped; /* others do the same now; submitter's */
    uint16_t singly;
    uint32_t n;
    uint32_t at;                  /* offset in `launches` */
    uint32_t name;                /* of the operation: an index in `names` */
    uint64_t weight;              /* nanoseconds, roughly */
    uint64_t sequence;            /* the operation's number in the program, from 1 */
    struct replay_kernel *kernel; /* of a fused launch that is skipped until it is there. NULL: there is none */
};

/* The pointer at `at` in `launches` is base number `base` plus `offset`. They are sorted by `base`. */
struct replay_patch {
    uint32_t at, base;
    uint64_t offset;
};

/* What to say of a launch that reports wrong data: the report's base is `first_report` and this entry's number. */
struct replay_guard {
    uint32_t name;
    uint32_t broadcast; /* number of its entry of `broadcasts`, from 1; 0: its indices do not broadcast */
    int axis;
    bool above, launch;
};

/* An operation in messages and traces. */
struct replay_name {
    char operation[OPERATION_NAME_MAX + 1];
    char label[OPERATION_LABEL_MAX + 1]; /* "": none */
};

/* How long runs took: written by the one thread that ends them, read by any, each number by itself. Of long runs each is timed, of short ones one in
 * so many, which counts for those before it: two looks at the clock would be felt in a run of a microsecond. An odd number fits no rhythm of a job. */
enum { REPLAY_TIMED_GAP = 13, REPLAY_LONG_NS = 5 * 1000 };

struct replay_times {
    _Atomic uint64_t runs, iterations; /* that have ended, but for those of streams that were cancelled */
    _Atomic uint64_t counted, ns;      /* the timed runs count for so many, which took so long together */
    _Atomic uint64_t last_ns;          /* of the last timed run */
    uint32_t left, since;              /* short runs until the next timed one, and since the last one; submitter's */
};

struct replay {
    uint8_t *launches;
    struct replay_step *steps;
    struct replay_patch *patches;
    struct replay_guard *guards;
    struct guard_broadcast *broadcasts;
    struct replay_name *names;
    uint32_t *first_patch; /* of each base; one more number ends the last one's */
    uint8_t **applied;     /* the bases whose addresses are in `launches` now; submitter's */
    unsigned n_steps, n_patches, n_guards, n_broadcasts, n_names, n_bases, first_report;
    unsigned n_once;              /* the first steps, whose results stay: a run makes them if none has done so, */
    bool once;                    /* and this one has; submitter's */
    unsigned n_singly;            /* fused launches that may be made one by one, */
    unsigned n_compiled;          /* those of them with a kernel, */
    _Atomic unsigned n_ready;     /* and those that are made as it; submitter's, any thread may read it */
    const _Atomic uint64_t *came; /* how many kernels have come, of all; NULL: none is waited for */
    uint64_t came_seen;           /* when the submitter looked for its own the last time */
    size_t bytes;                 /* of `launches` */
    uint64_t weight;              /* of all steps */
    struct {
        uint32_t launches, once, groups, grouped;
    } figures; /* for operators: launches of each run, and of the first one besides; fused ones, and operations in these */
    struct replay_times times;
    _Atomic(struct replay_graphs *) graphs; /* made by the submitter; NULL: none yet (replay_graph.h) */
};

/* After an iteration, base `base` moves on by so many bytes; */
struct replay_move {
    uint32_t base;
    int64_t bytes;
};
/* and what base `result` was, base `parameter` becomes. `result` continues in `spare`, and they change places from then on. */
struct replay_carry {
    uint32_t result, parameter;
    uint8_t *spare;
};

/* One run; in its record, followed by its moves, carries and bases. */
struct replay_run {
    struct replay *replay;
    uint64_t times;
    struct guard *guard; /* takes the first report; NULL: no launch reports */
    struct reports *reports;
    uint32_t n_moves, n_carries;
    /* the submitter's */
    uint64_t iteration;
    uint32_t step;
    bool begun;        /* the first launch has begun */
    uint32_t counts;   /* the run is timed, and counts for so many; 0: it is not */
    uint64_t began_ns; /* if it is timed: when it was begun, */
    uint64_t ran_ns;   /* and on devices whose launches have run when they return, how long it has run so far */
};

static inline struct replay_move *replay_moves(struct replay_run *run) {
    return (struct replay_move *)(run + 1);
}
static inline struct replay_carry *replay_carries(struct replay_run *run) {
    return (struct replay_carry *)(replay_moves(run) + run->n_moves);
}
static inline uint8_t **replay_bases(struct replay_run *run) {
    return (uint8_t **)(replay_carries(run) + run->n_carries);
}

static inline size_t replay_run_bytes(const struct replay *replay, size_t n_moves, size_t n_carries) {
    return sizeof(struct replay_run) + n_moves * sizeof(struct replay_move) + n_carries * sizeof(struct replay_carry) +
           replay->n_bases * sizeof(uint8_t *);
}

/* The submitter is at the beginning of an iteration: writes the addresses, and chooses between a fused launch and the same one by one. */
void replay_apply(struct replay_run *run);
/* The submitter is at the beginning of the run. */
void replay_begin(struct replay_run *run);
/* A step has been made. */
static inline void replay_stepped(struct replay_run *run) {
    if (++run->step == run->replay->n_once)
        run->replay->once = true;
}
/* The iteration's launches have been made. False: it was the last one, or `ran` (they have run, too) and one of them has reported wrong data. */
bool replay_next(struct replay_run *run, bool ran);
/* The run has ended, or will not run: gives its reports back. `ran`: its launches have run, and the first report goes to its guard. */
void replay_end(struct replay_run *run, bool ran);
/* Whether a run of so many iterations is to be timed, if it begins now; it begins, and is timed if that was said. */
bool replay_timed(const struct replay *replay, uint64_t times);
void replay_time_begin(struct replay_run *run);
/* A run has ended, which took so long if it was timed. */
void replay_count(struct replay_run *run, uint64_t ns);
void replay_destroy(struct replay *replay);
