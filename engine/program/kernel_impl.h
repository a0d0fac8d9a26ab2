/* The inside of user kernels, for the files of this room. Owner thread. */
#pragma once

#include "engine/order/stream.h"
#include "engine/program/kernel.h"

/* In the cache, the newest first. */
struct kernel_code {
    unsigned references; /* the cache's one, and those of jobs */
    char *source, *name;
    uint64_t hash;
    size_t bytes;
    uint64_t device_bytes; /* what it takes when it is loaded */
    struct device_code *code;
    struct kernel_code *next, **previous;
};

/* A session's, until it is released; then the store's while it runs. */
struct kernel {
    struct device_kernel *device_kernel;
    uint64_t bytes;        /* of the device */
    struct session *payer; /* of these bytes, also after the release, while it runs; NULL: the session has ended */
    char *name;
    struct kernel *next, **previous;
    struct use_list uses; /* its launches */
    unsigned holders;     /* recorded programs of the session that launch it */
    bool left;            /* the session has released it, and it has holders */
};

/* Of an engine. */
struct kernel_store {
    struct order *order;
    struct kernel_code *codes;
    size_t bytes;
    struct kernel *running; /* released, and perhaps not through on the device */
    /* Through, too. Taking one off the device may wait for all that is on it: a thread of its own does that
     * (kernel_unused_release), or the next job. */
    struct device_kernel *unused;
    /* Of fused launches (fusion.h). */
    struct fusion *fusions;
    unsigned n_fusions, n_fusions_wait; /* all; those that wait to be compiled */
    uint64_t fusion_tenant;             /* whose was compiled last */
    bool fusions_off;                   /* there is no compiler */
    _Atomic uint64_t fusions_came;      /* kernels that are there since start */
};

/* Of a session; made with its first kernel. */
struct kernel_table {
    struct kernel_store *store; /* once it has a kernel */
    struct kernel_entry {
        uint64_t id;
        struct kernel *kernel;
    } * entries; /* ascending ids */
    unsigned count, capacity;
    unsigned running; /* those of the store's `running` for which the session pays */
    uint64_t last_id; /* the highest one used */
};

/* `table` NULL: empty. */
struct kernel *kernel_table_find(const struct kernel_table *table, uint64_t id);
/* A program of the session launches it: until the last one has let it go, it stays as it is, also after its release. */
void kernel_hold(struct kernel *kernel);
void kernel_unhold(struct session *session, struct kernel *kernel);
/* For struct sessions. */
void kernel_session_ended(struct session *session);

/* Takes it off the device, by kernel_unused_release() or the next job; nothing runs it any more. */
void kernel_unload(struct kernel_store *store, struct device_kernel *kernel);
/* The kernel stays until the stream has passed this point. */
void kernel_use(struct kernel *kernel, struct stream *stream, uint64_t number);
/* Finds out what has run by now. */
void kernel_store_sweep(struct kernel_store *store);
/* All streams have run dry, or the device has failed. */
void kernel_store_finish(struct kernel_store *store);
