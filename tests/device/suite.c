#include "tests/device/suite.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device/replayed.h"
#include "tests/device/tolerance.h"
#include "tests/stand_ins/late.h"

int suite_repeat(int times) {
    const char *text = getenv("TENSORD_TEST_DIVIDE");
    int divisor = text ? atoi(text) : 1;
    return divisor > 1 ? times / divisor + 1 : times;
}

/* ---- device and session ---- */

static struct engine *engine_open(const char *kind, const struct device_options *options) {
    struct fault fault = {0};
    struct device *device = NULL;
    struct engine *engine = NULL;
    bool late = !strcmp(kind, "late");
    if ((late ? late_open(options, &device, &fault) : device_open(kind, options, &device, &fault)) ||
        engine_create(device, &(struct engine_options){0}, &engine, &fault))
        cr_assert_fail("cannot open %s: %s", kind, fault.message);
    return engine;
}

static const char *device_wanted(void) {
    const char *name = getenv("TENSORD_TEST_DEVICE");
    return name && *name ? name : "cpu";
}

struct engine *suite_engine(uint64_t memory) {
    char kind[32];
    unsigned index = 0;
    snprintf(kind, sizeof kind, "%s", device_wanted());
    char *colon = strchr(kind, ':');
    if (colon) {
        *colon = '\0';
        index = (unsigned)atoi(colon + 1);
    }
    return engine_open(kind, &(struct device_options){.index = index, .memory_total = memory});
}

static void suite_session(struct suite *suite, uint64_t quota) {
    struct fault fault = {0};
    struct session_limits limits = {.bytes = quota, .tensors = 1 << 20, .streams = 16};
    if (session_create(engine_sessions(suite->engine), &limits, &suite->session, &fault))
        suite_fail(suite, "no session: %s", fault.message);
    suite->next_id = 0;
    suite->sequence = 0;
    suite->stream = 0;
}

static uint64_t seed_wanted(uint64_t seed) {
    const char *given = getenv("TENSORD_TEST_SEED");
    return given ? strtoull(given, NULL, 0) : seed;
}

void suite_open_limited(struct suite *suite, uint64_t seed, uint64_t memory, uint64_t quota) {
    *suite = (struct suite){.seed = seed_wanted(seed), .replays = replayed_wanted()};
    suite->random = suite->seed;
    suite->engine = suite_engine(memory);
    suite_session(suite, quota);
}

void suite_open(struct suite *suite, uint64_t seed) {
    suite_open_limited(suite, seed, 0, 0);
}

static void suite_open_device(struct suite *suite, uint64_t seed, const char *kind, unsigned threads) {
    *suite = (struct suite){.seed = seed, .random = seed};
    suite->engine = engine_open(kind, &(struct device_options){.threads = threads});
    suite_session(suite, 0);
}

enum { SUITE_TWINS_MAX = 3 };

static struct suite *twin_open(struct suite *suite, const char *kind, unsigned threads) {
    if (!suite->twins)
        suite->twins = calloc(SUITE_TWINS_MAX, sizeof *suite->twins);
    struct suite *twin = &suite->twins[suite->n_twins++];
    suite_open_device(twin, suite->seed, kind, threads);
    return twin;
}

static void twin_open_threads(struct suite *suite, unsigned threads) {
    struct suite *twin = twin_open(suite, "cpu", threads);
    snprintf(twin->how, sizeof twin->how, "with %u thread%s", threads, threads == 1 ? "" : "s");
}

static void twin_open_replayed(struct suite *suite, const char *kind) {
    struct suite *twin = twin_open(suite, kind, 0);
    snprintf(twin->how, sizeof twin->how, "as a recorded program on the device \"%s\"", kind);
    twin->replays = true;
}

void suite_open_with_threads(struct suite *suite, uint64_t seed) {
    suite_open_device(suite, seed_wanted(seed), "cpu", 1);
    for (unsigned threads = 2; threads <= 3; threads++)
        twin_open_threads(suite, threads);
}

void suite_open_with_twins(struct suite *suite, uint64_t seed) {
    suite_open(suite, seed);
    if (suite->replays)
        return;
    if (!strcmp(device_wanted(), "cpu")) {
        struct device_info info;
        device_describe(engine_device(suite->engine), &info);
        for (unsigned threads = 1; threads <= 3; threads++)
            if (threads != info.processors)
                twin_open_threads(suite, threads);
    } else if (!strcmp(device_wanted(), "late")) {
        twin_open_replayed(suite, "late");
#ifndef SUITE_SANITIZED /* only where most goes on at once */
        twin_open_replayed(suite, "cpu");
#endif
    }
}

void suite_restart(struct suite *suite) {
    for (unsigned i = 0; i < suite->n_twins; i++)
        suite_restart(&suite->twins[i]);
    session_destroy(suite->session);
    suite_session(suite, 0);
}

void suite_close(struct suite *suite) {
    for (unsigned i = 0; i < suite->n_twins; i++) {
        session_destroy(suite->twins[i].session);
        engine_destroy(suite->twins[i].engine);
    }
    free(suite->twins);
    suite->twins = NULL;
    suite->n_twins = 0;
    session_destroy(suite->session);
    engine_destroy(suite->engine);
    values_destroy_all();
}

void suite_fail(const struct suite *suite, const char *format, ...) {
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cr_assert_fail("%s [seed %" PRIu64 "]", text, suite->seed);
    abort(); /* cr_assert_fail has left already */
}

/* ---- operations ---- */

static int submit(struct suite *suite, const struct op_request *request) {
    return suite->replays ? replayed_submit(suite->session, request, request->sequence)
                          : session_submit(suite->session, request);
}

int suite_submit(struct suite *suite, const struct op_request *request, uint64_t *output) {
    struct op_request filled = *request;
    filled.sequence = ++suite->sequence;
    filled.stream = suite->stream;
    if (filled.opcode != OP_FREE) {
        *output = filled.output = suite->next_id + 1;
        suite->next_id += 1 + filled.further;
    }
    int rc = submit(suite, &filled);
    for (unsigned i = 0; i < suite->n_twins; i++)
        if (submit(&suite->twins[i], &filled) != rc)
            suite_fail(suite, "%s: %s it is refused, or taken, in another way", op_info(filled.opcode)->name,
                       suite->twins[i].how);
    return rc;
}

void suite_release(struct suite *suite, uint64_t id) {
    uint64_t none = 0;
    int rc = suite_submit(suite, &(struct op_request){.opcode = OP_FREE, .n_inputs = 1, .inputs = &id}, &none);
    if (rc)
        suite_fail(suite, "free of a live id: %s", status_name(rc));
}

void suite_forget(struct sample *sample) {
    values_destroy(sample->values);
    sample->values = NULL;
}

void suite_free(struct suite *suite, struct sample *sample) {
    suite_release(suite, sample->id);
    suite_forget(sample);
}

/* Prints behind what is there; what does not fit is cut. */
__attribute__((format(printf, 2, 3))) static void story_add(char *story, const char *format, ...) {
    size_t used = strlen(story);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(story + used, SUITE_STORY_MAX - used, format, arguments);
    va_end(arguments);
}

/* "slice{0, 4, 2} of [f32 (4)]" */
static void story_tell(struct sample *out, const struct suite_call *call) {
    char text[VALUES_TEXT_MAX];
    const struct op_info *info = op_info(call->opcode);
    out->story[0] = '\0';
    story_add(out->story, "%s", info ? info->name : "unnamed");
    const struct op_packed *attributes = &call->attributes;
    if (attributes->n_ints + attributes->n_floats) {
        for (unsigned i = 0; i < attributes->n_ints; i++) {
            if (attributes->ints[i] == OP_SLICE_NONE)
                story_add(out->story, "%sNone", i ? ", " : "{");
            else
                story_add(out->story, "%s%" PRId64, i ? ", " : "{", attributes->ints[i]);
        }
        for (unsigned i = 0; i < attributes->n_floats; i++)
            story_add(out->story, "%s%g", i + attributes->n_ints ? ", " : "{", attributes->floats[i]);
        story_add(out->story, "}");
    }
    for (unsigned i = 0; i < call->n_inputs; i++)
        story_add(out->story, "%s%s = %s", i ? "; " : " of [", values_text(call->inputs[i]->values, text),
                  call->inputs[i]->story);
    if (call->n_inputs)
        story_add(out->story, "]");
}

static void suite_check_type(struct suite *suite, const struct sample *sample) {
    struct tensor_type type;
    char text[VALUES_TEXT_MAX], got[SHAPE_TEXT_MAX];
    if (!session_type(suite->session, sample->id, &type))
        suite_fail(suite, "%s: its result's id %" PRIu64 " is unknown", sample->story, sample->id);
    if (!values_same_type(sample->values, type.dtype, type.rank, type.shape))
        suite_fail(suite, "%s: the result is %s %s, expected %s", sample->story, dtype_name(type.dtype),
                   shape_text(&type, got), values_text(sample->values, text));
}

struct sample suite_run(struct suite *suite, const struct suite_call *call) {
    struct sample out;
    suite_run_several(suite, call, &out, 1);
    return out;
}

void suite_run_several(struct suite *suite, const struct suite_call *call, struct sample *results, unsigned n) {
    const struct values *values[OP_INPUTS_MAX];
    uint64_t ids[OP_INPUTS_MAX];
    for (unsigned i = 0; i < call->n_inputs; i++) {
        values[i] = call->inputs[i]->values;
        ids[i] = call->inputs[i]->id;
    }
    struct reference_request reference = {.opcode = call->opcode,
                                          .n_inputs = call->n_inputs,
                                          .inputs = values,
                                          .attributes = {.ints = call->attributes.ints,
                                                         .floats = call->attributes.floats,
                                                         .n_ints = call->attributes.n_ints,
                                                         .n_floats = call->attributes.n_floats}};
    for (; reference.output < n; reference.output++) {
        struct sample *out = &results[reference.output];
        *out = (struct sample){.opcode = call->opcode, .values = reference_run(&reference)};
        story_tell(out, call);
        if (!out->values)
            suite_fail(suite, "%s: the reference refuses it: the suite has no case for this operation", out->story);
    }
    struct op_request request = {.opcode = call->opcode,
                                 .n_inputs = call->n_inputs,
                                 .inputs = ids,
                                 .n_ints = call->attributes.n_ints,
                                 .ints = call->attributes.ints,
                                 .n_floats = call->attributes.n_floats,
                                 .floats = call->attributes.floats,
                                 .consume = call->consume,
                                 .further = n - 1};
    int rc = suite_submit(suite, &request, &results[0].id);
    if (rc) {
        struct failure failure = {0};
        suite_outcome(suite, results[0].id, &failure);
        suite_fail(suite, "%s: refused with %s: %s", results[0].story, status_name(rc), failure.message);
    }
    for (unsigned i = 0; i < n; i++) {
        results[i].id = results[0].id + i;
        suite_check_type(suite, &results[i]);
    }
}

struct sample suite_attributes(struct suite *suite, unsigned opcode, const struct sample *x,
                               struct op_packed attributes) {
    return suite_run(suite,
                     &(struct suite_call){.opcode = opcode, .n_inputs = 1, .inputs = &x, .attributes = attributes});
}

struct sample suite_unary(struct suite *suite, unsigned opcode, const struct sample *x) {
    return suite_attributes(suite, opcode, x, (struct op_packed){.n_ints = 0});
}

struct sample suite_binary(struct suite *suite, unsigned opcode, const struct sample *a, const struct sample *b) {
    const struct sample *inputs[] = {a, b};
    return suite_run(suite, &(struct suite_call){.opcode = opcode, .n_inputs = 2, .inputs = inputs});
}

static uint8_t *encoded(const struct values *values) {
    size_t bytes = values_bytes(values);
    uint8_t *all = malloc(bytes ? bytes : 1);
    values_encode(values, all);
    return all;
}

static void deliver(struct upload *upload, const uint8_t *all, size_t bytes) {
    size_t step = bytes / 3 | 1;
    for (size_t at = 0; at < bytes; at += step) {
        size_t n = bytes - at < step ? bytes - at : step;
        uint8_t *chunk = upload_chunk(upload, (int64_t)at, (int64_t)n);
        cr_assert_not_null(chunk);
        memcpy(chunk, all + at, n);
        upload_chunk_done(upload);
    }
}

void suite_deliver(struct upload *upload, const struct values *values) {
    uint8_t *all = encoded(values);
    deliver(upload, all, values_bytes(values));
    free(all);
}

static void upload_once(const struct suite *suite, struct session *session, const struct upload_request *request,
                        const uint8_t *all, size_t bytes) {
    struct upload upload;
    int rc = session_upload(session, request, &upload);
    if (rc)
        suite_fail(suite, "upload refused with %s", status_name(rc));
    if (upload.bytes != (int64_t)bytes)
        suite_fail(suite, "upload of %" PRId64 " bytes, expected %zu", upload.bytes, bytes);
    deliver(&upload, all, bytes);
    upload_finish(&upload, NULL);
}

struct sample suite_upload(struct suite *suite, struct values *values) {
    struct sample out = {.id = ++suite->next_id, .opcode = OP_COPY, .values = values, .story = "upload"};
    struct tensor_type type = {.dtype = values->dtype, .rank = values->rank};
    memcpy(type.shape, values->shape, sizeof values->shape);
    struct upload_request request = {
        .id = out.id, .type = &type, .stream = suite->stream, .sequence = ++suite->sequence};
    uint8_t *all = encoded(values);
    upload_once(suite, suite->session, &request, all, values_bytes(values));
    for (unsigned i = 0; i < suite->n_twins; i++)
        upload_once(suite, suite->twins[i].session, &request, all, values_bytes(values));
    free(all);
    return out;
}

/* ---- completions ---- */

static void suite_fetch_done(struct fetch *fetch, const struct failure *failure) {
    struct suite_fetch *self = (struct suite_fetch *)fetch;
    self->done = true;
    self->failed = failure != NULL;
    if (failure)
        self->failure = *failure;
}

void suite_fetch_start(struct suite *suite, uint64_t id, struct suite_fetch *fetch) {
    *fetch = (struct suite_fetch){.fetch.done = suite_fetch_done};
    session_fetch(suite->session, id, &fetch->fetch);
}

void suite_fetch_wait(struct suite *suite, struct suite_fetch *fetch) {
    engine_kick(suite->engine);
    while (!fetch->done)
        engine_wait(suite->engine);
}

int suite_outcome(struct suite *suite, uint64_t id, struct failure *failure) {
    struct suite_fetch fetch;
    suite_fetch_start(suite, id, &fetch);
    suite_fetch_wait(suite, &fetch);
    if (failure && fetch.failed)
        *failure = fetch.failure;
    int code = fetch.failed ? (int)fetch.failure.code : STATUS_OK;
    fetch_release(&fetch.fetch);
    return code;
}

struct suite_wait {
    struct wait wait;
    bool done;
};

static void suite_wait_done(struct wait *wait, const struct failure *failure) {
    (void)failure;
    ((struct suite_wait *)wait)->done = true;
}

void suite_sync(struct suite *suite) {
    struct suite_wait wait = {.wait.done = suite_wait_done};
    session_wait(suite->session, 0, &wait.wait);
    engine_kick(suite->engine);
    while (!wait.done)
        engine_wait(suite->engine);
}

/* ---- comparison ---- */

static void suite_differ(struct suite *suite, const struct sample *sample, const struct values *got, int64_t k) {
    const struct values *want = sample->values;
    char text[VALUES_TEXT_MAX], at[128] = "", values[192];
    int64_t strides[VALUES_RANK_MAX];
    values_strides(want->rank, want->shape, strides);
    for (int i = 0; i < want->rank; i++) {
        size_t used = strlen(at);
        snprintf(at + used, sizeof at - used, "%s%" PRId64, i ? ", " : "", k / strides[i] % want->shape[i]);
    }
    if (want->im)
        snprintf(values, sizeof values, "got %.17Lg %+.17Lgi, expected %.17Lg %+.17Lgi", got->f[k], got->im[k],
                 want->f[k], want->im[k]);
    else if (want->f)
        snprintf(values, sizeof values, "got %.17Lg, expected %.17Lg, %.3Lg ulps apart", got->f[k], want->f[k],
                 fabsl(got->f[k] - want->f[k]) / value_ulp(want->dtype, want->f[k]));
    else
        snprintf(values, sizeof values, "got %.0Lf, expected %.0Lf", value_number(got->dtype, got->i[k]),
                 value_number(want->dtype, want->i[k]));
    suite_fail(suite, "%s = %s: at [%s] %s", values_text(want, text), sample->story, at, values);
}

struct suite_part {
    struct fetch_part part;
    bool done, failed;
};

static void suite_part_done(struct fetch_part *part, const struct failure *failure) {
    struct suite_part *self = (struct suite_part *)part;
    self->done = true;
    self->failed = failure != NULL;
}

void suite_read(struct suite *suite, struct fetch *fetch, uint8_t *bytes) {
    enum { PARTS = 3 };
    struct suite_part parts[PARTS];
    int64_t step = fetch->bytes / PARTS + 1;
    if (fetch->data || !fetch->bytes) {
        if (fetch->bytes)
            memcpy(bytes, fetch->data, (size_t)fetch->bytes);
        return;
    }
    for (int i = 0; i < PARTS; i++) {
        int64_t left = fetch->bytes - i * step;
        parts[i] = (struct suite_part){.part.done = suite_part_done};
        fetch_read(fetch, i * step, left < step ? left : step, &parts[i].part);
    }
    engine_kick(suite->engine);
    for (int i = 0; i < PARTS; i++) {
        while (!parts[i].done)
            engine_wait(suite->engine);
        if (parts[i].failed)
            suite_fail(suite, "a part of a value could not be read");
        int64_t left = fetch->bytes - i * step;
        memcpy(bytes + i * step, parts[i].part.data, (size_t)(left < step ? left : step));
        fetch_part_release(&parts[i].part);
    }
}

/* Whether two results have the same bits, but for those of NaN. */
static bool same_bits(const struct values *a, const struct values *b) {
    const long double *const parts[][2] = {{a->f, b->f}, {a->im, b->im}};
    for (int64_t k = 0; k < a->count; k++) {
        if (a->i && a->i[k] != b->i[k])
            return false;
        for (int i = 0; i < 2 && parts[i][0]; i++) {
            long double x = parts[i][0][k], y = parts[i][1][k];
            if (isnan(x) || isnan(y) ? !isnan(x) || !isnan(y) : x != y || signbit(x) != signbit(y))
                return false;
        }
    }
    return true;
}

static uint8_t *bytes_of(struct suite *suite, const struct sample *sample) {
    struct suite_fetch fetch;
    size_t expected = values_bytes(sample->values);
    suite_fetch_start(suite, sample->id, &fetch);
    suite_fetch_wait(suite, &fetch);
    if (fetch.failed)
        suite_fail(suite, "%s: failed with %s: %s (of %s)", sample->story, status_name((int)fetch.failure.code),
                   fetch.failure.message, fetch.failure.operation);
    if (fetch.fetch.bytes != (int64_t)expected)
        suite_fail(suite, "%s: fetched %" PRId64 " bytes, expected %zu", sample->story, fetch.fetch.bytes, expected);
    uint8_t *bytes = malloc(expected ? expected : 1);
    suite_read(suite, &fetch.fetch, bytes);
    fetch_release(&fetch.fetch);
    return bytes;
}

static struct values *values_of(const struct sample *sample, const uint8_t *bytes) {
    struct values *got = values_create(sample->values->dtype, sample->values->rank, sample->values->shape);
    values_decode(got, bytes);
    return got;
}

static bool within_tolerance(const struct sample *sample, const struct values *got) {
    bool holds = true;
    for (int64_t k = 0; k < got->count && holds; k++)
        holds = tolerance_holds(sample->opcode, sample->values, got, k);
    return holds;
}

/* A recorded program's parameters are contiguous, as copies of views are, and sums of those may be added up in another order. */
static void twin_compare(struct suite *twin, const struct sample *sample, const uint8_t *bytes,
                         const struct values *got, bool tolerant) {
    uint8_t *others = bytes_of(twin, sample);
    if (memcmp(others, bytes, values_bytes(got))) {
        struct values *values = values_of(sample, others);
        if (!same_bits(got, values) && !(tolerant && twin->replays && within_tolerance(sample, values)))
            suite_fail(twin, "%s: %s the result has other bits", sample->story, twin->how);
        values_destroy(values);
    }
    free(others);
}

static struct values *get(struct suite *suite, const struct sample *sample, bool tolerant) {
    uint8_t *bytes = bytes_of(suite, sample);
    struct values *got = values_of(sample, bytes);
    for (unsigned i = 0; i < suite->n_twins; i++)
        twin_compare(&suite->twins[i], sample, bytes, got, tolerant);
    free(bytes);
    return got;
}

struct values *suite_get(struct suite *suite, const struct sample *sample) {
    return get(suite, sample, false);
}

static struct values *suite_fetch_values(struct suite *suite, const struct sample *sample) {
    struct values *got = get(suite, sample, true);
    for (int64_t k = 0; k < got->count; k++)
        if (!tolerance_holds(sample->opcode, sample->values, got, k))
            suite_differ(suite, sample, got, k);
    return got;
}

void suite_check(struct suite *suite, const struct sample *sample) {
    values_destroy(suite_fetch_values(suite, sample));
}

void suite_adopt(struct suite *suite, struct sample *sample) {
    struct values *got = suite_fetch_values(suite, sample);
    values_destroy(sample->values);
    sample->values = got;
}
