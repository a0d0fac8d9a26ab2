/* How a launch is made and enqueued, and how it waits for other streams. Owner thread. */
#pragma once

#include "engine/memory/ledger.h"
#include "engine/order/cost.h"
#include "engine/values/view.h"

enum { PLAN_INPUTS_MAX = 12, PLAN_OUTPUTS_MAX = 8 };

/* The parts of a launch. `out`, `inputs` and `outputs` (the outputs after the first) have shapes and strides as the kernel sees them. */
struct plan {
    unsigned opcode, n_inputs;
    struct ledger *ledger; /* to which its workspace is charged */
    unsigned further;      /* outputs after the first */
    struct view *out, *inputs[PLAN_INPUTS_MAX], *outputs[PLAN_OUTPUTS_MAX - 1];
    struct op_attributes attributes; /* as launch.h has them */
    struct report *report;
    uint64_t weight;
    bool tf32;
};

/* Enqueues the launch and notes its use of all storage. */
int plan_push(struct stream *stream, const struct plan *plan, struct fault *fault);
/* A launch of contiguous tensors with storage and equal numbers of elements; the kernel has neither accepts() nor workspace(). */
struct plan_flat {
    unsigned opcode, n_inputs;
    int64_t elements;
    const struct tensor *out;
    struct tensor *const *inputs;
};
/* As plan_push(), for such a launch. */
int plan_push_flat(struct stream *stream, const struct plan_flat *flat, struct fault *fault);
/* Enqueues a launch of a client's kernel, which the caller fills in, and notes its use of the storages. */
int plan_push_kernel(struct stream *stream, struct storage *const storages[], unsigned n, unsigned n_arguments,
                     uint64_t weight, struct record **record, struct fault *fault);
/* The same for a run of a replay; the record has `run_bytes` for it. `weight` is that of one iteration, `times` their number. */
int plan_push_replay(struct stream *stream, struct storage *const storages[], unsigned n, size_t run_bytes,
                     uint64_t weight, uint64_t times, struct record **record, struct fault *fault);
/* About what a pass over these operands costs, in nanoseconds; `in` may be NULL. */
uint64_t plan_weight(const struct cost *cost, const struct view *out, const struct view *in);

/* The stream waits until an input's value is there. */
int plan_wait_point(struct stream *stream, struct stream *other, uint64_t number, struct fault *fault);
static inline int plan_wait_value(struct stream *stream, const struct tensor *tensor, struct fault *fault) {
    return !tensor->ready || tensor->ready == stream
               ? STATUS_OK
               : plan_wait_point(stream, tensor->ready, tensor->ready_number, fault);
}
/* Makes the stream wait for all other users of memory that it is going to write. From then on the stream is the only user, also if no
 * launch follows because of a failure. */
int plan_wait_users(struct stream *stream, struct uses *uses, struct fault *fault);
static inline int plan_wait_memory(struct stream *stream, struct storage *storage, struct fault *fault) {
    struct uses *uses = &storage->uses;
    if (uses->count == 0 || (uses->count == 1 && uses->use[0].stream == stream))
        return STATUS_OK;
    return plan_wait_users(stream, uses, fault);
}
/* The stream's newest record uses the storage. */
static inline void plan_note_use(struct stream *stream, struct storage *storage) {
    if (!storage)
        return;
    struct use *first = &storage->uses.use[0];
    if (__builtin_expect(storage->uses.count && first->stream == stream, 1))
        first->number = stream->enqueued;
    else
        uses_add(&storage->uses, stream, stream->enqueued);
}
int plan_no_memory(struct fault *fault);
