/* A session's work of every kind on a device, to be watched while calls fail beneath it. */
#pragma once

#include "engine/session/session.h"

enum { JOB_ASKED_MAX = 64, JOB_WRONG_MAX = 256, JOB_LAUNCHED_MAX = 128, JOB_KERNELS = 3 /* launches of clients' */ };

struct job_answer {
    struct fetch fetch;
    struct job *job;
    uint32_t words, first; /* what an uploaded tensor holds: first, first + 1, …; 0 words: not known */
    bool done;
    int code;
};

struct job {
    struct engine *engine;
    struct session *session;
    uint64_t next_id, sequence;
    uint32_t stream; /* of operations to come */
    struct job_answer asked[JOB_ASKED_MAX];
    unsigned n_asked, n_answered, n_failed;
    struct {
        uint64_t sequence;
        const char *name;
    } launched[JOB_LAUNCHED_MAX]; /* one launch of this name, by an operation that was taken: many, but not all */
    unsigned n_launched;
    char wrong[JOB_WRONG_MAX]; /* what an answer should not have been; "": nothing */
};

/* Runs it to its end: every fetch and wait has been answered, and the session is gone. */
void job_run(struct job *job, struct engine *engine);
