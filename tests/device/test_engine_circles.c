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
    struct sample part = suite_attributes(suite, OP_SLICE, &x, 3, (int64_t[]){elements - FEW, OP_SLICE_NONE, 1});
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
