/* The conformance suite's harness: one session on one device, and tensors that exist on both sides, on the device and
 * as the reference's values. Any difference fails the running test with words that name the operation, its inputs and
 * how they were made, the place, and both values.
 *
 * TENSORD_TEST_DEVICE names the device ("cpu", "cpu:1"), TENSORD_TEST_SEED another seed. */
#pragma once

#include "engine/engine.h"
#include "engine/program/program.h"
#include "engine/session/session.h"
#include "tests/device/reference.h"

enum { SUITE_STORY_MAX = 512 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SUITE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SUITE_SANITIZED 1
#endif
#endif

/* Repetitions, reduced under a sanitizer, and where TENSORD_TEST_DIVIDE says by how much. */
#ifdef SUITE_SANITIZED
#define SUITE_REPEAT(n) suite_repeat((n) / 6 + 1)
#else
#define SUITE_REPEAT(n) suite_repeat(n)
#endif
int suite_repeat(int times);

struct suite {
    struct engine *engine;
    struct session *session;
    uint64_t next_id, sequence;
    uint64_t seed, random;
    uint32_t stream; /* of operations to come */
    bool replays;    /* each operation runs as a recorded program (replayed.h) */
    char how[64];    /* of a twin: how it runs, "with 3 threads" */
    /* On whose devices everything runs, too. The same bits must come out; of views, recorded, at least what is as near to the reference. */
    struct suite *twins;
    unsigned n_twins;
};

/* A tensor on both sides. */
struct sample {
    uint64_t id;
    unsigned opcode; /* that made it, for the tolerance */
    struct values *values;
    char story[SUITE_STORY_MAX];
};

void suite_open(struct suite *suite, uint64_t seed);
/* The same with limits of the device's memory (0: as the device has) and of the session's bytes. */
void suite_open_limited(struct suite *suite, uint64_t seed, uint64_t memory, uint64_t quota);
/* With twins that share the reference's values, which take most of the time: on a CPU device, those with one, two and three threads; on the
 * late one, recorded programs on that and on the CPU device (late.h, replayed.h); on others, none. */
void suite_open_with_twins(struct suite *suite, uint64_t seed);
/* On a CPU device with one thread, with twins that have two and three. */
void suite_open_with_threads(struct suite *suite, uint64_t seed);
void suite_close(struct suite *suite);
/* The device alone, for tests of the engine. */
struct engine *suite_engine(uint64_t memory);
void suite_restart(struct suite *suite); /* a fresh session, so that memory of a long test stays small */

/* Fails the running test; the seed is added. */
void suite_fail(const struct suite *suite, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* ---- random choices ---- */

uint64_t suite_random(struct suite *suite);
/* 0 … n-1 */
int64_t suite_below(struct suite *suite, int64_t n);
bool suite_chance(struct suite *suite, int percent);

enum suite_fill {
    FILL_ANY,      /* everything the dtype has: NaN, infinities, -0, denormals, extremes; and ordinary numbers */
    FILL_ORDINARY, /* finite, of magnitude 4 at most */
    FILL_NEAR_ONE, /* finite, magnitudes from 0.5 to 1.5 */
    FILL_COUNT,    /* integers from 0 to 6 */
};
void suite_fill(struct suite *suite, struct values *values, enum suite_fill fill);
/* Rank 0 to `rank_max`, mostly small extents, now and then 0 or 1. Returns the rank. */
int suite_shape(struct suite *suite, int rank_max, int64_t shape[VALUES_RANK_MAX]);
/* A shape that broadcasts into the given one. */
int suite_narrower(struct suite *suite, int rank, const int64_t *shape, int64_t narrow[VALUES_RANK_MAX]);

/* ---- tensors ---- */

/* Gives an upload its bytes, in chunks that end inside elements. */
void suite_deliver(struct upload *upload, const struct values *values);
/* Uploads the values and takes them over. */
struct sample suite_upload(struct suite *suite, struct values *values);
/* Of random contents. */
struct sample suite_sample(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, enum suite_fill fill);
/* The same as a view: sliced with steps of either sign, permuted, broadcast, reshaped. The contents are such that views
 * of broadcast axes repeat. */
struct sample suite_view(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, enum suite_fill fill);
/* Either of the two. */
struct sample suite_input(struct suite *suite, enum dtype dtype, int rank, const int64_t *shape, enum suite_fill fill);

struct suite_call {
    unsigned opcode, n_inputs;
    const struct sample *const *inputs;
    struct op_packed attributes;
    uint16_t consume;
};
/* Attributes by their names, and lists: SUITE_ATTRIBUTES(reduction, .axes = SUITE_LIST(0, -1), .keepdims = true) */
#define SUITE_ATTRIBUTES(set, ...)                                                                                     \
    ({                                                                                                                 \
        struct op_packed suite_packed = {.n_ints = 0};                                                                 \
        set##_attributes_write(&(struct set##_attributes){__VA_ARGS__}, &suite_packed);                                \
        suite_packed;                                                                                                  \
    })
#define SUITE_LIST(...)                                                                                                \
    (struct op_ints) {                                                                                                 \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]) {                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
/* Runs an operation on both sides; types are compared here, values by suite_check(). */
struct sample suite_run(struct suite *suite, const struct suite_call *call);
/* The same for an operation with several outputs, all of them. */
void suite_run_several(struct suite *suite, const struct suite_call *call, struct sample *results, unsigned n);
struct sample suite_unary(struct suite *suite, unsigned opcode, const struct sample *x);
struct sample suite_binary(struct suite *suite, unsigned opcode, const struct sample *a, const struct sample *b);
struct sample suite_attributes(struct suite *suite, unsigned opcode, const struct sample *x,
                               struct op_packed attributes);
/* The device's values, for a check of one's own; the caller destroys them. */
struct values *suite_get(struct suite *suite, const struct sample *sample);
/* Fetches and compares. */
void suite_check(struct suite *suite, const struct sample *sample);
/* The same, and the device's values are the reference's from now on. */
void suite_adopt(struct suite *suite, struct sample *sample);
/* Frees on both sides. */
void suite_free(struct suite *suite, struct sample *sample);
/* Frees the reference's side of a tensor that an operation has consumed. */
void suite_forget(struct sample *sample);

/* ---- completions ---- */

struct suite_fetch {
    struct fetch fetch;
    bool done, failed;
    struct failure failure; /* a copy, where it failed */
};
void suite_fetch_start(struct suite *suite, uint64_t id, struct suite_fetch *fetch);
void suite_fetch_wait(struct suite *suite, struct suite_fetch *fetch);
/* The bytes of a fetched value, also of one that comes in parts. */
void suite_read(struct suite *suite, struct fetch *fetch, uint8_t *bytes);
/* Starts, waits, and gives the value back; the failure's code or STATUS_OK. */
int suite_outcome(struct suite *suite, uint64_t id, struct failure *failure);
/* Waits until all of the session's work has run. */
void suite_sync(struct suite *suite);
/* An operation on the device alone, by ids; returns what session_submit does. The output's id is in *output. */
int suite_submit(struct suite *suite, const struct op_request *request, uint64_t *output);
/* Frees an id on the device alone. */
void suite_release(struct suite *suite, uint64_t id);
