/* Bytes from another device come when that device has them, which may be when it has got something from here. So what
 * brings them, or takes something there, waits for nothing that was enqueued later, whatever it shares with that. Each of
 * these waited in a circle once, or would on a device with fewer streams. */
#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

#include "tests/device/suite.h"

enum {
    CIRCLES_SECONDS = 60,
    CIRCLES_LARGE = 5 << 18, /* elements, 5 MiB: read in parts where the host cannot reach the device's memory */
};

static struct values *circles_values(struct suite *suite, int64_t n) {
    struct values *values = values_create(DTYPE_F32, 1, &n);
    suite_fill(suite, values, FILL_ORDINARY);
    return values;
}

/* Begins a copy from elsewhere. */
static struct sample circles_begin(struct suite *suite, struct upload *upload, int64_t n) {
    struct values *values = circles_values(suite, n);
    struct sample sample = {
        .id = ++suite->next_id, .opcode = OP_COPY, .values = values, .story = "copy from elsewhere"};
    struct tensor_type type = {.dtype = DTYPE_F32, .rank = 1, .shape = {n}};
    struct upload_request request = {
        .id = sample.id, .type = &type, .sequence = ++suite->sequence, .label = "copy", .waitable = true};
    cr_assert_eq(session_upload(suite->session, &request, upload), STATUS_OK);
    return sample;
}

static void circles_end(struct suite *suite, struct upload *upload, const struct sample *sample) {
    suite_deliver(upload, sample->values);
    upload_finish(upload, NULL);
    engine_kick(suite->engine);
}

/* Of a value that waits, and of one that is there and comes in parts. */
Test(circles, a_large_value_is_read_while_a_small_one_waits, .timeout = CIRCLES_SECONDS) {
    struct suite suite;
    struct upload upload;
    struct suite_fetch fetch;
    suite_open(&suite, 61);
    struct sample large = suite_upload(&suite, circles_values(&suite, CIRCLES_LARGE));
    struct sample copied = circles_begin(&suite, &upload, 100), small = suite_unary(&suite, OP_NEGATIVE, &copied);
    suite_fetch_start(&suite, small.id, &fetch);
    suite_check(&suite, &large);
    engine_poll(suite.engine);
    cr_assert_not(fetch.done, "nothing can be there yet");
    circles_end(&suite, &upload, &copied);
    suite_fetch_wait(&suite, &fetch);
    cr_expect_not(fetch.failed);
    fetch_release(&fetch.fetch);
    suite_check(&suite, &small);
    suite_close(&suite);
}

/* Memory goes to a second copy while what has been computed from the first one is still to use it. */
Test(circles, a_copy_comes_into_memory_that_waits_for_another_one, .timeout = CIRCLES_SECONDS) {
    enum { ELEMENTS = 1 << 19 }; /* 2 MiB: two fit, and not three */
    struct suite suite;
    struct upload first, second;
    suite_open_limited(&suite, 62, 5 << 20, 0);
    struct sample w = circles_begin(&suite, &first, ELEMENTS), v = suite_unary(&suite, OP_NEGATIVE, &w);
    suite_release(&suite, w.id);
    suite_release(&suite, v.id);
    struct sample x = circles_begin(&suite, &second, ELEMENTS);
    engine_kick(suite.engine);
    circles_end(&suite, &first, &w);
    circles_end(&suite, &second, &x);
    struct sample y = suite_unary(&suite, OP_NEGATIVE, &x);
    suite_check(&suite, &x);
    suite_check(&suite, &y);
    suite_close(&suite);
}

enum { CIRCLES_READERS = 9 }; /* streams: more than memory notes the uses of */

static void circles_open_streams(struct suite *suite) {
    struct fault fault;
    for (uint32_t i = 1; i <= CIRCLES_READERS; i++)
        cr_assert_eq(session_stream_open(suite->session, i, 0, &fault), STATUS_OK);
}

/* Something computed from `x` on each stream. */
static void circles_read(struct suite *suite, const struct sample *x, struct sample results[CIRCLES_READERS]) {
    for (uint32_t i = 0; i < CIRCLES_READERS; i++) {
        suite->stream = i + 1;
        results[i] = suite_unary(suite, OP_NEGATIVE, x);
    }
    suite->stream = 0;
    engine_kick(suite->engine);
}

Test(circles, a_copy_comes_though_many_streams_wait_to_read_it, .timeout = CIRCLES_SECONDS) {
    struct suite suite;
    struct upload upload;
    struct sample results[CIRCLES_READERS];
    suite_open(&suite, 63);
    circles_open_streams(&suite);
    struct sample x = circles_begin(&suite, &upload, 5000);
    circles_read(&suite, &x, results);
    circles_end(&suite, &upload, &x);
    for (int i = 0; i < CIRCLES_READERS; i++)
        suite_check(&suite, &results[i]);
    suite_close(&suite);
}

Test(circles, a_large_value_is_read_though_many_streams_wait_to_read_it, .timeout = CIRCLES_SECONDS) {
    struct suite suite;
    struct upload upload;
    uint64_t results[CIRCLES_READERS];
    suite_open(&suite, 64);
    circles_open_streams(&suite);
    struct sample large = suite_upload(&suite, circles_values(&suite, CIRCLES_LARGE));
    struct sample copied = circles_begin(&suite, &upload, 1);
    for (uint32_t i = 0; i < CIRCLES_READERS; i++) {
        const uint64_t inputs[] = {large.id, copied.id};
        suite.stream = i + 1;
        cr_assert_eq(
            suite_submit(&suite, &(struct op_request){.opcode = OP_ADD, .n_inputs = 2, .inputs = inputs}, &results[i]),
            STATUS_OK);
    }
    engine_kick(suite.engine);
    suite_check(&suite, &large);
    circles_end(&suite, &upload, &copied);
    for (int i = 0; i < CIRCLES_READERS; i++)
        cr_expect_eq(suite_outcome(&suite, results[i], NULL), STATUS_OK);
    suite_close(&suite);
}

/* What `x` becomes on one stream, which waits for its own copy from elsewhere first. */
struct circles_reader {
    struct upload upload;
    struct sample copied, result;
};

/* All of them are held up, and of x there is nothing but what they are to read. */
static void circles_hold(struct suite *suite, struct circles_reader readers[CIRCLES_READERS], int64_t elements) {
    enum { FEW = 100 };
    struct sample x = suite_upload(suite, circles_values(suite, elements));
    struct sample part = suite_attributes(
        suite, OP_SLICE, &x, SUITE_ATTRIBUTES(slice, .ranges = SUITE_LIST(elements - FEW, OP_SLICE_NONE, 1)));
    for (uint32_t i = 0; i < CIRCLES_READERS; i++) {
        readers[i].copied = circles_begin(suite, &readers[i].upload, FEW);
        suite->stream = i + 1;
        readers[i].result = suite_binary(suite, OP_ADD, &part, &readers[i].copied);
    }
    suite->stream = 0;
    suite_free(suite, &x);
    suite_free(suite, &part);
}

/* Memory that many streams are to read is not given to another one before the last of them is done with it, whichever
 * that is. There is room for it nowhere else. */
Test(circles, memory_that_many_streams_wait_to_read_is_not_written_over, .timeout = CIRCLES_SECONDS) {
    enum { ELEMENTS = 1 << 19 };
    struct suite suite;
    struct circles_reader readers[CIRCLES_READERS];
    suite_open_limited(&suite, 65, 4 << 20, 0);
    circles_open_streams(&suite);
    for (int last = 0; last < CIRCLES_READERS; last++) {
        circles_hold(&suite, readers, ELEMENTS);
        struct sample other = suite_upload(&suite, circles_values(&suite, ELEMENTS)); /* where x was */
        for (int i = 0; i < CIRCLES_READERS; i++)
            if (i != last)
                circles_end(&suite, &readers[i].upload, &readers[i].copied);
        for (int i = 0; i < 20; i++) { /* time enough for what does not wait */
            engine_kick(suite.engine);
            engine_poll(suite.engine);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        circles_end(&suite, &readers[last].upload, &readers[last].copied);
        for (int i = 0; i < CIRCLES_READERS; i++) {
            suite_check(&suite, &readers[i].result);
            suite_free(&suite, &readers[i].result);
            suite_free(&suite, &readers[i].copied);
        }
        suite_check(&suite, &other);
        suite_free(&suite, &other);
    }
    suite_close(&suite);
}

struct circles_wait {
    struct wait wait;
    int times;
};

static void circles_waited(struct wait *wait, const struct failure *failure) {
    cr_expect_null(failure);
    ((struct circles_wait *)wait)->times++;
}

Test(circles, everything_has_run_when_copies_have_come, .timeout = CIRCLES_SECONDS) {
    struct suite suite;
    struct upload upload;
    struct circles_wait all = {.wait.done = circles_waited};
    suite_open(&suite, 66);
    struct sample x = circles_begin(&suite, &upload, 100);
    session_wait(suite.session, 0, &all.wait);
    engine_kick(suite.engine);
    engine_poll(suite.engine);
    cr_expect_eq(all.times, 0, "a copy is still to come");
    circles_end(&suite, &upload, &x);
    while (!all.times)
        engine_wait(suite.engine);
    suite_check(&suite, &x);
    cr_expect_eq(all.times, 1);
    suite_close(&suite);
}

Test(circles, a_session_may_end_while_streams_wait_for_copies, .timeout = CIRCLES_SECONDS) {
    struct suite suite;
    struct upload uploads[3];
    struct sample results[CIRCLES_READERS];
    struct engine_stats stats;
    suite_open(&suite, 67);
    circles_open_streams(&suite);
    for (int i = 0; i < 3; i++) {
        struct sample x = circles_begin(&suite, &uploads[i], 5000);
        circles_read(&suite, &x, results);
        if (i == 0)
            suite_deliver(&uploads[i], x.values);
        if (i == 1)
            circles_end(&suite, &uploads[i], &x);
    }
    session_destroy(suite.session);
    suite.session = NULL;
    engine_stats(suite.engine, &stats);
    cr_expect_eq(stats.memory_live, 0);
    suite_close(&suite);
}

/* ---- sessions beside each other ---- */

enum { CIRCLES_BLOCK = 1 << 19 /* elements, 2 MiB: of 5 MiB two fit, and not three */, CIRCLES_MEMORY = 5 << 20 };

/* Another session of the same engine. */
static void circles_join(struct suite *suite, const struct suite *first) {
    struct session_limits limits = {.tensors = 1000, .streams = 16};
    struct fault fault;
    *suite = (struct suite){.engine = first->engine, .seed = first->seed + 1, .random = first->seed + 1};
    cr_assert_eq(session_create(engine_sessions(suite->engine), &limits, &suite->session, &fault), STATUS_OK);
}

static int circles_fill(struct suite *suite, uint64_t *id) {
    return suite_submit(suite,
                        &(struct op_request){.opcode = OP_FULL,
                                             .n_ints = 3,
                                             .ints = (int64_t[]){DTYPE_F32, 0, CIRCLES_BLOCK},
                                             .n_floats = 1,
                                             .floats = (double[]){1}},
                        id);
}

/* All memory is free again, and used by what waits for a copy. */
static struct sample circles_occupy(struct suite *suite, struct upload *upload) {
    struct sample w = circles_begin(suite, upload, CIRCLES_BLOCK), v = suite_unary(suite, OP_NEGATIVE, &w);
    suite_release(suite, w.id);
    suite_release(suite, v.id);
    engine_kick(suite->engine);
    return w;
}

/* One copy to a device, of a value that another session than the one that waits there makes on the other device. */
struct circles_copy {
    struct suite *from, *to;
    struct upload upload;
    struct sample copied;
    struct suite_fetch fetch;
    bool refused, ended;
};

static void circles_copy_begin(struct circles_copy *copy) {
    uint64_t id;
    copy->refused = circles_fill(copy->from, &id) != STATUS_OK;
    suite_fetch_start(copy->from, id, &copy->fetch);
    engine_kick(copy->from->engine);
}

/* What the two workers do for a copy. */
static void circles_copy_go_on(struct circles_copy *copy) {
    engine_poll(copy->from->engine);
    engine_kick(copy->from->engine);
    if (copy->ended || !copy->fetch.done)
        return;
    cr_expect_eq(copy->fetch.failed, copy->refused);
    circles_end(copy->to, &copy->upload, &copy->copied);
    if (!copy->fetch.failed)
        fetch_release(&copy->fetch.fetch);
    copy->ended = true;
}

/* Each of two sessions takes memory on one device that the other one's work still uses, which waits for a copy from the
 * other device: of what the first one makes in that memory. Who cannot have memory without that is refused. */
Test(circles, two_sessions_on_two_devices_do_not_wait_for_each_others_memory, .timeout = CIRCLES_SECONDS) {
    enum { TURNS = 5000 };
    struct suite a1, a2, b1, b2; /* a's and b's sessions on devices 1 and 2 */
    suite_open_limited(&a1, 68, CIRCLES_MEMORY, 0);
    suite_open_limited(&b2, 69, CIRCLES_MEMORY, 0);
    circles_join(&b1, &a1);
    circles_join(&a2, &b2);
    struct circles_copy a = {.from = &a2, .to = &a1}, b = {.from = &b1, .to = &b2};
    a.copied = circles_occupy(&a1, &a.upload);
    b.copied = circles_occupy(&b2, &b.upload);
    circles_copy_begin(&a);
    circles_copy_begin(&b);
    for (int i = 0; i < TURNS && !(a.ended && b.ended); i++) {
        circles_copy_go_on(&a);
        circles_copy_go_on(&b);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_assert(a.ended && b.ended, "each copy waits for the other one");
    suite_sync(&a1);
    suite_sync(&b2);
    uint64_t id; /* and all have memory again */
    cr_expect_eq(circles_fill(&b1, &id), STATUS_OK);
    cr_expect_eq(circles_fill(&a2, &id), STATUS_OK);
    session_destroy(b1.session);
    session_destroy(a2.session);
    session_destroy(a1.session);
    engine_destroy(a1.engine);
    suite_close(&b2);
}

/* Through a third stream, too, and behind more waits than a stream remembers. */
Test(circles, memory_is_not_had_from_what_waits_for_a_copy_by_way_of_others, .timeout = CIRCLES_SECONDS) {
    struct suite suite, other;
    struct upload uploads[CIRCLES_READERS];
    struct sample small[CIRCLES_READERS], sum;
    uint64_t id;
    suite_open_limited(&suite, 70, CIRCLES_MEMORY, 0);
    circles_join(&other, &suite);
    circles_open_streams(&suite);
    for (int i = 0; i < CIRCLES_READERS; i++)
        small[i] = circles_begin(&suite, &uploads[i], 1);
    suite.stream = 1;
    sum = suite_unary(&suite, OP_NEGATIVE, &small[0]);
    for (int i = 1; i < CIRCLES_READERS; i++)
        sum = suite_binary(&suite, OP_ADD, &sum, &small[i]);
    suite.stream = 2;
    for (int i = 0; i < 2; i++) {
        uint64_t block, result;
        cr_assert_eq(circles_fill(&suite, &block), STATUS_OK);
        suite_submit(
            &suite,
            &(struct op_request){.opcode = OP_ADD, .n_inputs = 2, .inputs = (uint64_t[]){block, sum.id}, .consume = 1},
            &result);
        suite_release(&suite, result);
    }
    engine_kick(suite.engine);
    for (int i = 0; i < CIRCLES_READERS; i++) {
        cr_expect_eq(circles_fill(&other, &id), STATUS_OUT_OF_MEMORY, "%d copies have come", i);
        circles_end(&suite, &uploads[i], &small[i]);
    }
    suite.stream = 0;
    suite_sync(&suite);
    suite_check(&suite, &sum);
    cr_expect_eq(circles_fill(&other, &id), STATUS_OK);
    session_destroy(other.session);
    suite_close(&suite);
}

/* Work that waits for nothing from elsewhere ends: its memory is waited for. */
Test(circles, memory_of_another_sessions_queued_work_is_waited_for, .timeout = CIRCLES_SECONDS) {
    struct suite suite, other;
    uint64_t ids[2], id;
    suite_open_limited(&suite, 71, CIRCLES_MEMORY, 0);
    circles_join(&other, &suite);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(circles_fill(&suite, &ids[i]), STATUS_OK);
    for (int i = 0; i < 2; i++)
        suite_release(&suite, ids[i]);
    cr_expect_eq(circles_fill(&other, &id), STATUS_OK, "nothing has been put on the device yet");
    cr_expect_eq(suite_outcome(&other, id, NULL), STATUS_OK);
    session_destroy(other.session);
    suite_close(&suite);
}
