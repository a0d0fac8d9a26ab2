/* A job that meets everything the engine allocates, with the host's memory refused at the first, second, third … time:
 * nothing crashes, every question is answered, nothing leaks, and the device gets all its memory back. Linked with
 * --wrap for malloc, calloc, realloc and aligned_alloc. */
#include <pthread.h>
#include <stdlib.h>

#include "tests/unit/engine_fixture.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

static struct {
    pthread_t owner;
    bool on;
    size_t least;                /* smaller mallocs are granted */
    unsigned calls, first, last; /* calls first … last are refused, counted from 1 */
} refuse;

static bool refused(void) {
    if (!refuse.on || !pthread_equal(pthread_self(), refuse.owner))
        return false;
    refuse.calls++;
    return refuse.calls >= refuse.first && refuse.calls <= refuse.last;
}

void *__wrap_malloc(size_t bytes) {
    return bytes >= refuse.least && refused() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return refused() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes) {
    return refused() ? NULL : __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return !refuse.least && refused() ? NULL : __real_aligned_alloc(alignment, bytes);
}

static void upload_and_end(uint64_t id, bool waitable, uint32_t stream, struct upload *upload) {
    if (upload_to(id, 8, 12, stream, waitable, upload) != STATUS_OK)
        upload->session = NULL;
}

static void finish_upload(struct upload *upload) {
    if (upload->session)
        upload_finish(upload, NULL);
}

/* Submissions may fail; what they say is not looked at. */
static void job(void) {
    struct fault fault;
    static struct upload uploads[3]; /* outlive the job: the session zeroes them when it goes */
    struct answer answers[8];
    unsigned asked = 0;
    uint64_t id = 10, poisoned[8];
    session_stream_open(session, 1, 1, &fault);
    session_stream_open(session, 2, -1, &fault);
    upload_and_end(1, false, 1, &uploads[0]);
    upload_and_end(2, true, 0, &uploads[1]);
    full_of(session, DTYPE_I32, 3, 96, 1);
    full_of(session, DTYPE_I64, 4, 96, 2);
    finish_upload(&uploads[0]);
    unary(OP_MATRIX_TRANSPOSE, 5, 2, 1);
    binary(6, 2, 2, 0, 2);
    for (int i = 0; i < 8; i++) {
        poisoned[i] = ++id;
        apply(OP_TAKE, id, 2, (const uint64_t[]){3, 4}, 1, (const int64_t[]){0}, 0, (uint32_t)i % 3);
    }
    apply(OP_CONCAT, 20, 8, poisoned, 1, (const int64_t[]){0}, 0xff, 1);
    binary(21, 3, 4, 3, 2); /* promoted: temporaries */
    apply(OP_SUM, 22, 1, (const uint64_t[]){20}, 1, (const int64_t[]){0}, 0, 0);
    ask_fetch(&answers[asked++], 5);
    ask_fetch(&answers[asked++], 22);
    ask_wait(&answers[asked++], 0);
    ask_wait(&answers[asked++], 21);
    engine_kick(engine);
    for (uint64_t more = 100; more < 400; more++) { /* further chunks of the queue, more ids than the table has */
        full(session, more, 1000, (uint32_t)(more % 3));
        if (more % 2)
            release(more);
    }
    upload_and_end(500, true, 2, &uploads[2]);
    session_stream_close(session, 1, &fault);
    ask_fetch(&answers[asked++], 500);
    finish_upload(&uploads[1]);
    refuse.on = refuse.calls < refuse.last; /* let the rest settle */
    for (unsigned i = 0; i < asked - 1; i++)
        cr_assert(settle(&answers[i].times), "refused %u … %u: question %u is not answered", refuse.first, refuse.last,
                  i);
    for (unsigned i = 0; i < asked; i++)
        if (answers[i].fetch.done)
            fetch_release(&answers[i].fetch);
    /* the last upload is not ended */
}

static bool run_job(unsigned first, unsigned count) {
    struct fault fault;
    struct engine_options options = {0};
    null_device_init(&device, 64 << 20);
    sequence = 0;
    refuse.owner = pthread_self();
    refuse.calls = 0;
    refuse.first = first;
    refuse.last = first + count - 1;
    refuse.on = true;
    if (engine_create(&device.device, &options, &engine, &fault) == STATUS_OK) {
        if (session_create(engine_sessions(engine), &limits, &session, &fault) == STATUS_OK) {
            job();
            session_destroy(session);
        }
        engine_destroy(engine);
    }
    refuse.on = false;
    cr_assert_eq(device.memory_reserved, 0, "refused %u … %u: the device still has %llu bytes out", first, refuse.last,
                 (unsigned long long)device.memory_reserved);
    return refuse.calls >= first;
}

Test(engine_no_memory, one_refusal_does_no_harm) {
    unsigned n = 1;
    while (run_job(n, 1))
        n++;
    cr_assert_gt(n, 50, "the job allocates more than this");
}

Test(engine_no_memory, several_refusals_do_no_harm) {
    for (unsigned n = 1; run_job(n, 3); n++)
        ;
    for (unsigned n = 1; run_job(n, 40); n += 7)
        ;
}

/* The queue itself cannot grow: nothing was enqueued, so nothing may wait for it. */
Test(engine_no_memory, a_record_that_was_not_enqueued_is_not_waited_for) {
    open_engine(16 << 20);
    open_stream(5);
    cr_assert_eq(full_of(session, DTYPE_U8, 1, 8 << 20, 0), STATUS_OK);
    cr_assert_eq(wait_for(1), STATUS_OK);
    refuse.owner = pthread_self();
    refuse.least = STREAM_CHUNK_BYTES;
    refuse.first = 1;
    refuse.last = UINT32_MAX;
    refuse.on = true;
    int code = unary(OP_NEGATIVE, 2, 1, 5);
    refuse.on = false;
    refuse.least = 0;
    cr_assert_eq(code, STATUS_NO_HOST_MEMORY, "%s, %s", status_name(code), session->last_failure);
    struct storage *input = session_tensor(session, 1)->storage;
    cr_expect(uses_idle(&input->uses), "the input waits for a launch that never was");
    cr_assert_eq(release(1), STATUS_OK);
    cr_assert_eq(full_of(session, DTYPE_U8, 3, 15 << 20, 0), STATUS_OK, "all memory is idle");
    cr_assert_eq(wait_for(3), STATUS_OK);
    close_engine();
}
