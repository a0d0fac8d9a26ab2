/* Little memory for what is on its way to and from a device, and many who want some: all of it arrives, nobody holds up the
 * others for good, and nobody is refused. */
#include <stddef.h>
#include <stdlib.h>

#include "tests/stand_ins/late.h"
#include "tests/unit/engine_fixture.h"

enum { MIB = 1 << 20, PARTS_MAX = 64 };

static struct device *late;

static void open_late(uint64_t staging) {
    struct fault fault;
    struct engine_options options = {.staging_total = staging};
    sequence = 0;
    cr_assert_eq(late_open(&(struct device_options){.memory_total = 512 << 20, .threads = 1}, &late, &fault),
                 STATUS_OK);
    cr_assert_eq(engine_create(late, &options, &engine, &fault), STATUS_OK);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
}

static void close_late(void) {
    struct engine_stats stats;
    struct timespec pause = {.tv_nsec = 1000000};
    session_destroy(session);
    do { /* what was cancelled passes, too */
        nanosleep(&pause, NULL);
        engine_poll(engine);
        engine_stats(engine, &stats);
    } while (stats.queue_depth);
    cr_assert_eq(stats.staging_waiting, 0);
    cr_assert_eq(engine->memory.staging.pool.live, 0);
    engine_destroy(engine);
}

static struct session *another_session(void) {
    struct session *other;
    struct fault fault;
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    return other;
}

static struct engine_stats figures(void) {
    struct engine_stats stats;
    engine_stats(engine, &stats);
    return stats;
}

/* Polls until it is true, for ten seconds at most. */
#define EVENTUALLY(condition)                                                                                          \
    do {                                                                                                               \
        struct timespec pause = {.tv_nsec = 1000000};                                                                  \
        for (int look_ = 0; look_ < 10000 && !(condition); look_++) {                                                  \
            engine_kick(engine);                                                                                       \
            engine_poll(engine);                                                                                       \
            if (!(condition))                                                                                          \
                nanosleep(&pause, NULL);                                                                               \
        }                                                                                                              \
        cr_assert(condition, "never: " #condition);                                                                    \
    } while (0)

/* ---- uploads, by an owner that waits ---- */

struct sender {
    struct upload upload;
    int64_t sent, chunk;
    unsigned waits;
    bool ready;
};

static void sender_room(struct upload *upload) {
    ((struct sender *)upload)->ready = true;
}

/* `waitable`: from another device. */
static void sender_begin_as(struct sender *sender, struct session *in, uint64_t id, int64_t bytes, int64_t chunk,
                            bool waitable) {
    struct tensor_type type = {.dtype = DTYPE_U8, .rank = 1, .shape = {bytes}};
    struct upload_request request = {.id = id, .type = &type, .sequence = ++sequence, .waitable = waitable};
    *sender = (struct sender){.chunk = chunk, .ready = true};
    cr_assert_eq(session_upload(in, &request, &sender->upload), STATUS_OK);
    sender->upload.ready = sender_room;
}

static void sender_begin(struct sender *sender, struct session *in, uint64_t id, int64_t bytes, int64_t chunk) {
    sender_begin_as(sender, in, id, bytes, chunk, false);
}

static int64_t sender_next(const struct sender *sender) {
    int64_t left = sender->upload.bytes - sender->sent;
    return left < sender->chunk ? left : sender->chunk;
}

/* False: it waits. */
static bool sender_step(struct sender *sender) {
    int64_t bytes = sender_next(sender);
    if (!sender->ready)
        return false;
    uint8_t *place = upload_chunk(&sender->upload, sender->sent, bytes);
    if (!place) {
        cr_assert(sender->upload.later, "refused after %ld bytes: %s", (long)sender->sent,
                  sender->upload.fault.message);
        sender->waits++;
        sender->ready = false;
        return false;
    }
    for (int64_t i = 0; i < bytes; i += 4096)
        place[i] = (uint8_t)((sender->sent + i) >> 12);
    upload_chunk_done(&sender->upload);
    sender->sent += bytes;
    return true;
}

static bool sender_runs(struct sender *sender) {
    while (sender->sent < sender->upload.bytes && sender_step(sender)) {
    }
    return sender->sent == sender->upload.bytes;
}

static void send_all(struct sender *sender, struct session *in, uint64_t id, int64_t bytes) {
    sender_begin(sender, in, id, bytes, MIB);
    EVENTUALLY(sender_runs(sender));
    upload_finish(&sender->upload, NULL);
}

/* ---- fetches, in parts ---- */

struct reader {
    struct fetch fetch;
    struct reader_part {
        struct fetch_part part;
        bool came, failed;
    } parts[PARTS_MAX];
    int n, code;
    bool there;
};

static void reader_there(struct fetch *fetch, const struct failure *failure) {
    struct reader *reader = (struct reader *)fetch;
    reader->there = true;
    reader->code = failure ? (int)failure->code : STATUS_OK;
}

static void part_came(struct fetch_part *part, const struct failure *failure) {
    ((struct reader_part *)part)->came = !failure;
    ((struct reader_part *)part)->failed = failure;
}

static void reader_begin(struct reader *reader, struct session *in, uint64_t id) {
    memset(reader, 0, sizeof *reader);
    reader->fetch.done = reader_there;
    session_fetch(in, id, &reader->fetch);
    EVENTUALLY(reader->there);
    cr_assert_eq(reader->code, STATUS_OK);
    cr_assert_null(reader->fetch.data);
}

static void reader_ask(struct reader *reader) {
    struct reader_part *part = &reader->parts[reader->n];
    part->part.done = part_came;
    fetch_read(&reader->fetch, (int64_t)reader->n++ * MIB, MIB, &part->part);
}

static int reader_has(const struct reader *reader) {
    int came = 0;
    for (int i = 0; i < reader->n; i++)
        came += reader->parts[i].came;
    return came;
}

static void reader_end(struct reader *reader) {
    for (int i = 0; i < reader->n; i++)
        fetch_part_release(&reader->parts[i].part);
    fetch_release(&reader->fetch);
}

/* The whole of it, with three parts asked for at any time; checks what send_all() wrote. */
static void read_all(struct session *in, uint64_t id, int64_t bytes) {
    static struct reader reader;
    reader_begin(&reader, in, id);
    cr_assert_eq(reader.fetch.bytes, bytes);
    int parts = (int)(bytes / MIB);
    for (int i = 0; i < parts; i++) {
        while (reader.n < parts && reader.n < i + 3)
            reader_ask(&reader);
        EVENTUALLY(reader.parts[i].came);
        for (int64_t at = 0; at < MIB; at += 4096)
            cr_assert_eq(reader.parts[i].part.data[at], (uint8_t)(((int64_t)i * MIB + at) >> 12), "part %d", i);
        fetch_part_release(&reader.parts[i].part);
    }
    fetch_release(&reader.fetch);
}

/* ---- tests ---- */

Test(engine_staging, a_transfer_larger_than_all_of_it_goes_on_in_parts) {
    struct sender sender;
    open_late(3 * MIB);
    send_all(&sender, session, 1, 40 * MIB);
    cr_assert_gt(sender.waits, 0, "nothing had to wait: the test shows nothing");
    read_all(session, 1, 40 * MIB);
    cr_assert_leq(figures().staging_reserved, 3 * MIB);
    close_late();
}

/* Even where two chunks do not fit at once. */
Test(engine_staging, one_chunk_at_a_time_is_enough) {
    struct sender sender;
    open_late(MIB + MIB / 2);
    send_all(&sender, session, 1, 10 * MIB);
    read_all(session, 1, 10 * MIB);
    close_late();
}

Test(engine_staging, what_is_larger_than_all_of_it_in_one_piece_is_refused_with_figures) {
    struct sender sender;
    open_late(2 * MIB);
    sender_begin(&sender, session, 1, 8 * MIB, 4 * MIB);
    cr_assert_null(upload_chunk(&sender.upload, 0, 4 * MIB));
    cr_assert_not(sender.upload.later);
    cr_assert(strstr(sender.upload.fault.message, "4194304") && strstr(sender.upload.fault.message, "2097152"), "%s",
              sender.upload.fault.message);
    upload_finish(&sender.upload, NULL);
    close_late();
}

/* It asks for ten parts and releases none. */
static void hog(struct reader *reader, struct session *in, uint64_t id) {
    reader_begin(reader, in, id);
    for (int i = 0; i < 10; i++)
        reader_ask(reader);
    EVENTUALLY(reader_has(reader) > 0);
}

Test(engine_staging, client_that_never_reads_leaves_enough_for_the_others) {
    enum { HOGS = 5 };
    static struct reader hogs[HOGS];
    struct session *sessions[HOGS], *other;
    struct sender sender;
    open_late(16 * MIB);
    for (int i = 0; i < HOGS; i++) {
        sessions[i] = another_session();
        send_all(&sender, sessions[i], 1, 10 * MIB);
    }
    for (int i = 0; i < HOGS; i++)
        hog(&hogs[i], sessions[i], 1);
    cr_assert_gt(figures().staging_waiting, 0);
    other = another_session();
    send_all(&sender, other, 1, 20 * MIB);
    read_all(other, 1, 20 * MIB);
    for (int i = 0; i < HOGS; i++) {
        cr_assert_lt(reader_has(&hogs[i]), 10, "hog %d had all it asked for", i);
        cr_assert_gt(reader_has(&hogs[i]), 0);
    }
    session_destroy(other);
    for (int i = 0; i < HOGS; i++) { /* whoever waits goes on when another one ends */
        for (int k = 0; k < 10; k++) {
            EVENTUALLY(hogs[i].parts[k].came);
            fetch_part_release(&hogs[i].parts[k].part);
        }
        fetch_release(&hogs[i].fetch);
        session_destroy(sessions[i]);
    }
    close_late();
}

/* Nor does a session's own fetch that is not read hold up what it sends. */
Test(engine_staging, what_comes_does_not_wait_for_what_goes) {
    static struct reader reader;
    struct sender sender;
    open_late(6 * MIB);
    send_all(&sender, session, 1, 10 * MIB);
    hog(&reader, session, 1);
    send_all(&sender, session, 2, 20 * MIB);
    reader_end(&reader);
    close_late();
}

/* What holds the memory may wait for those very copies: nothing that is sent is ever copied here. */
Test(engine_staging, copies_between_devices_wait_neither_for_chunks_nor_for_one_another) {
    struct sender sender, copies[4];
    open_late(16 * MIB);
    late_hang(late, "copy");
    sender_begin(&sender, session, 1, 20 * MIB, MIB);
    while (sender_step(&sender)) {
    }
    cr_assert(sender.sent > 0 && sender.sent < 16 * MIB);
    for (int i = 0; i < 4; i++) {
        sender_begin_as(&copies[i], session, (uint64_t)(10 + i), 20 * MIB, MIB, true);
        while (sender_step(&copies[i])) {
        }
        cr_assert_gt(copies[i].sent, 0, "copy %d has no first piece", i);
    }
    cr_assert_leq(copies[3].sent, MIB, "it is more than the first");
    late_hang(late, NULL);
    EVENTUALLY(sender_runs(&sender));
    upload_finish(&sender.upload, NULL);
    for (int i = 0; i < 4; i++) {
        EVENTUALLY(sender_runs(&copies[i]));
        upload_finish(&copies[i].upload, NULL);
    }
    for (uint64_t id = 10; id < 14; id++)
        read_all(session, id, 20 * MIB);
    close_late();
}

Test(engine_staging, half_a_chunk_that_never_ends_holds_up_nobody) {
    struct sender stuck, sender;
    struct session *other;
    open_late(8 * MIB);
    other = another_session();
    sender_begin(&stuck, other, 1, 8 * MIB, 4 * MIB);
    cr_assert_not_null(upload_chunk(&stuck.upload, 0, 4 * MIB)); /* and no upload_chunk_done() */
    send_all(&sender, session, 1, 20 * MIB);
    read_all(session, 1, 20 * MIB);
    upload_finish(&stuck.upload, &(struct failure){.code = STATUS_CANCELLED, .message = "gone"});
    session_destroy(other);
    close_late();
}

Test(engine_staging, small_fetches_need_no_place_of_their_own_size) {
    struct sender sender;
    static struct reader reader, small;
    struct session *other;
    open_late(4 * MIB);
    send_all(&sender, session, 1, 10 * MIB);
    hog(&reader, session, 1);
    other = another_session();
    send_all(&sender, other, 1, MIB);
    memset(&small, 0, sizeof small);
    small.fetch.done = reader_there;
    session_fetch(other, 1, &small.fetch); /* whole where there is room for it, and else in parts */
    EVENTUALLY(small.there);
    cr_assert_eq(small.code, STATUS_OK);
    fetch_release(&small.fetch);
    session_destroy(other);
    reader_end(&reader);
    close_late();
}

/* One tenant may hold two pieces, in whatever session: the first piece of each comes anyway, and more when some has come
 * back. */
Test(engine_staging, tenant_holds_what_it_may_and_gets_on_all_the_same) {
    struct session_limits of = limits;
    struct tenant_stats stats;
    struct tenant *tenant;
    struct fault fault;
    struct sender first, second, third, free;
    open_late(64 * MIB);
    struct session *other = another_session(), *mine[2];
    cr_assert_eq(
        tenant_create(engine_memory(engine), "a", &(struct tenant_limits){.staging = 2 * MIB}, &tenant, &fault),
        STATUS_OK);
    of.tenant = tenant;
    for (int i = 0; i < 2; i++)
        cr_assert_eq(session_create(engine_sessions(engine), &of, &mine[i], &fault), STATUS_OK);
    sender_begin(&first, mine[0], 1, 8 * MIB, MIB);
    sender_begin(&second, mine[1], 1, 8 * MIB, MIB);
    sender_begin(&third, mine[1], 2, 8 * MIB, MIB);
    sender_begin(&free, other, 1, 8 * MIB, MIB);
    cr_assert_not_null(upload_chunk(&first.upload, 0, 2 * MIB)); /* and the client sends no more of it */
    cr_assert_not_null(upload_chunk(&second.upload, 0, MIB), "the first piece");
    cr_assert(!sender_step(&third), "more than that");
    tenant_stats(tenant, &stats);
    cr_assert_eq(stats.staging, 3 * MIB);
    EVENTUALLY(sender_runs(&free));
    upload_finish(&free.upload, NULL);
    cr_assert(!sender_step(&third));
    upload_chunk_done(&second.upload);
    EVENTUALLY(sender_runs(&third)); /* piece after piece */
    upload_finish(&third.upload, NULL);
    tenant_stats(tenant, &stats);
    cr_assert_leq(stats.staging, 3 * MIB);
    session_destroy(mine[0]), session_destroy(mine[1]), session_destroy(other);
    tenant_stats(tenant, &stats);
    cr_assert_eq(stats.staging, 0);
    tenant_destroy(tenant);
    close_late();
}

Test(engine_staging, session_may_end_while_it_waits) {
    static struct reader reader, second;
    struct sender sender, waiting;
    struct session *other;
    open_late(3 * MIB);
    other = another_session();
    send_all(&sender, session, 1, 10 * MIB);
    send_all(&sender, other, 1, 10 * MIB);
    hog(&reader, session, 1);
    hog(&second, other, 1);
    sender_begin(&waiting, other, 2, 20 * MIB, MIB);
    while (sender_step(&waiting)) {
    }
    cr_assert_gt(figures().staging_waiting, 0);
    reader_end(&second); /* as its owner does before the session goes */
    session_destroy(other);
    reader_end(&reader);
    send_all(&sender, session, 2, 10 * MIB);
    close_late();
}

Test(engine_staging, fetch_may_be_released_while_parts_of_it_wait) {
    static struct reader reader;
    struct sender sender;
    open_late(3 * MIB);
    send_all(&sender, session, 1, 10 * MIB);
    for (int i = 0; i < 20; i++) {
        hog(&reader, session, 1);
        reader_end(&reader);
    }
    read_all(session, 1, 10 * MIB);
    close_late();
}

Test(engine_staging, those_who_wait_are_answered_when_the_device_is_lost) {
    static struct reader reader;
    struct sender sender, late_sender;
    struct fault fault = {.code = STATUS_DEVICE_LOST, .message = "told to"};
    open_late(2 * MIB);
    send_all(&sender, session, 1, 10 * MIB);
    hog(&reader, session, 1);
    late_hang(late, "copy"); /* so that the second chunk has to wait for the first */
    sender_begin(&late_sender, session, 2, 10 * MIB, MIB);
    while (sender_step(&late_sender)) {
    }
    engine_fail(engine, &fault);
    EVENTUALLY(late_sender.ready && reader.parts[9].failed);
    for (int i = 0; i < 10; i++)
        cr_assert_neq(reader.parts[i].came, reader.parts[i].failed, "part %d", i);
    cr_assert_null(upload_chunk(&late_sender.upload, late_sender.sent, MIB));
    cr_assert_not(late_sender.upload.later, "it would wait for ever");
    cr_assert_eq(late_sender.upload.fault.code, STATUS_DEVICE_LOST);
    reader_end(&reader);
    late_lose(late);
    session_destroy(session);
    engine_destroy(engine);
}

/* ---- parts that a callback asks for ---- */

struct eager {
    struct fetch fetch;
    struct fetch_part part;
    bool asked, came;
};

static void eager_came(struct fetch_part *part, const struct failure *failure) {
    struct eager *eager = (struct eager *)((char *)part - offsetof(struct eager, part));
    eager->came = !failure;
}

static void eager_asks(struct fetch *fetch, const struct failure *failure) {
    struct eager *eager = (struct eager *)fetch;
    cr_assert(!failure && !fetch->data, "it does not come in parts");
    fetch_read(fetch, 0, MIB, &eager->part);
    eager->asked = true;
}

/* Else they would wait for whatever makes the owner kick next: 100 ms in the worker, which ticks that often. */
Test(engine_staging, parts_asked_for_by_a_callback_are_due_at_once) {
    struct eager eager = {.fetch.done = eager_asks, .part.done = eager_came};
    open_late(64 * MIB);
    cr_assert_eq(full_of(session, DTYPE_U8, 1, 8 * MIB, 0), STATUS_OK);
    session_fetch(session, 1, &eager.fetch);
    engine_kick(engine);
    while (engine_poll(engine), !eager.asked)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    cr_assert(eager.came || engine_due(engine), "nobody would know");
    EVENTUALLY(eager.came);
    cr_assert_not(engine_due(engine));
    fetch_part_release(&eager.part);
    fetch_release(&eager.fetch);
    close_late();
}

/* ---- many who wait, by a clock that the test moves ---- */

enum { CROWD = 20000, CROWD_BYTES = 64 << 10 };

struct waiting {
    struct staging_wait wait;
    bool served;
};

static struct waiting crowd[CROWD];
static struct session *crowd_session;
static unsigned crowd_served;

static uint64_t ticking(void) {
    static uint64_t now_ns;
    return now_ns += 1000;
}

/* Gives back at once what it gets. */
static void crowd_ready(struct staging_wait *wait) {
    struct storage *storage;
    struct fault fault = {0};
    cr_assert_eq(staging_take(&crowd_session->ledger, STAGING_IN, CROWD_BYTES, wait, &storage, &fault), STATUS_OK, "%s",
                 fault.message);
    cr_assert_eq((struct waiting *)wait - crowd, crowd_served, "out of their order");
    ((struct waiting *)wait)->served = true;
    crowd_served++;
    staging_give(&crowd_session->ledger, STAGING_IN, storage);
}

/* Ten looks at the clock, which the crowd is too many for. */
static void crowd_turn(void) {
    struct budget *budget = engine_budget(engine);
    uint64_t looks = budget->looks;
    budget_begin(budget, 10000);
    engine_poll(engine);
    cr_assert_leq(budget->looks - looks, 13, "a turn of %lu looks", (unsigned long)(budget->looks - looks));
}

/* One session has all of it, another waits very often. */
static struct storage *crowd_begin(void) {
    struct storage *all;
    struct fault fault;
    open_late(64 * MIB);
    crowd_session = another_session();
    cr_assert_eq(staging_take(&session->ledger, STAGING_IN, 64 * MIB, NULL, &all, &fault), STATUS_OK);
    for (unsigned i = 0; i < CROWD; i++) {
        struct storage *none;
        crowd[i] = (struct waiting){.wait.ready = crowd_ready};
        cr_assert_eq(staging_take(&crowd_session->ledger, STAGING_IN, CROWD_BYTES, &crowd[i].wait, &none, &fault),
                     STATUS_AGAIN);
    }
    engine_budget(engine)->clock = ticking;
    return all;
}

static void crowd_end(void) {
    budget_begin(engine_budget(engine), BUDGET_UNLIMITED);
    session_destroy(crowd_session);
    close_late();
}

static unsigned crowd_turns_until_rest(void) {
    unsigned turns = 0;
    do
        crowd_turn();
    while (++turns < 100 * CROWD && staging_due(&engine->memory.staging));
    cr_assert_not(staging_due(&engine->memory.staging), "not in %u turns", turns);
    return turns;
}

Test(engine_staging, a_look_at_many_who_wait_takes_many_turns_and_ends) {
    struct storage *all = crowd_begin();
    cr_assert_gt(crowd_turns_until_rest(), 10);
    staging_give(&session->ledger, STAGING_IN, all);
    crowd_turns_until_rest();
    cr_assert_eq(crowd_served, CROWD);
    crowd_end();
}

Test(engine_staging, what_is_given_back_during_a_look_is_for_those_before_too) {
    struct storage *all = crowd_begin();
    do
        crowd_turn();
    while (!engine->memory.staging.grant_at);
    uint64_t looks = engine->memory.staging.looks;
    staging_give(&session->ledger, STAGING_IN, all);
    while (!crowd_served)
        crowd_turn();
    cr_assert(crowd[0].served);
    cr_assert_gt(engine->memory.staging.looks, looks, "it had been looked at before");
    crowd_turns_until_rest();
    cr_assert_eq(crowd_served, CROWD);
    crowd_end();
}

/* Some before they are told, and some before they get anything. */
Test(engine_staging, a_session_of_many_waits_may_end) {
    struct storage *all = crowd_begin();
    staging_give(&session->ledger, STAGING_IN, all);
    do
        crowd_turn();
    while (crowd_served < CROWD / 2);
    crowd_end();
    cr_assert_lt(crowd_served, CROWD);
}

/* ---- reports ---- */

/* An x that is copied because it is not contiguous, and indices for which there is no memory when they are copied then, because their axes do not
 * merge. */
static void given_to_scatter(void) {
    enum { PLACES = 40 << 20 };
    full_of(session, DTYPE_U8, 1, 48, 0);
    apply(OP_RESHAPE, 2, 1, (const uint64_t[]){1}, 3, (const int64_t[]){2, 3, 8}, 0, 0);
    apply(OP_SLICE, 3, 1, (const uint64_t[]){2}, 9, (const int64_t[]){0, 2, 1, 0, 3, 1, 0, 8, 2}, 0, 0);
    full_of(session, DTYPE_I32, 4, 2, 0);
    apply(OP_RESHAPE, 5, 1, (const uint64_t[]){4}, 3, (const int64_t[]){2, 1, 1}, 0, 0);
    apply(OP_BROADCAST_TO, 6, 1, (const uint64_t[]){5}, 3, (const int64_t[]){2, 1, PLACES}, 0, 0);
    full_of(session, DTYPE_U8, 7, 1, 0);
}

static int scatter(uint64_t id, uint32_t stream) {
    return apply(OP_SCATTER, id, 3, (const uint64_t[]){3, 6, 7}, 1, (const int64_t[]){2}, 0, stream);
}

/* Nothing that has been enqueued reports anything, so the check is free again. */
Test(engine_staging, an_operation_that_fails_behind_its_copies_gives_its_report_back) {
    open_late(8 * MIB);
    given_to_scatter();
    for (uint64_t id = 10; id < 6000; id++) {
        int code = scatter(id, 0);
        cr_assert_eq(code, STATUS_OUT_OF_MEMORY, "%s: %s", status_name(code), session->last_failure);
        cr_assert_eq(release(id), STATUS_OK);
    }
    cr_expect_leq(reports_reservations(&engine->order.reports), 1);
    close_late();
}

/* ---- at rest ---- */

/* Everything that was enqueued has run, and the session is another one. */
static void rest(void) {
    struct fault fault;
    cr_assert_eq(wait_for(0), STATUS_OK);
    session_destroy(session);
    for (int i = 0; i < 2000 && !engine->sessions.rested; i++) {
        struct timespec pause = {.tv_nsec = 1000000};
        engine_kick(engine);
        engine_poll(engine);
        nanosleep(&pause, NULL);
    }
    cr_assert(engine->sessions.rested);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
}

Test(engine_staging, at_rest_streams_give_back_the_memory_of_their_records_and_go_on_later) {
    open_late(8 * MIB);
    for (int round = 0; round < 3; round++) {
        for (uint32_t stream = 1; stream <= 10; stream++)
            open_stream(stream);
        for (uint64_t id = 1; id <= 3000; id++)
            cr_assert_eq(full(session, id, 16, (uint32_t)(id % 11)), STATUS_OK);
        rest();
        for (struct stream *stream = engine->order.streams_free; stream; stream = stream->free_next)
            cr_expect_null(stream->queue.tail.chunk);
    }
    close_late();
}

/* The copy of x is the first record in the stream's new memory. */
Test(engine_staging, after_a_rest_a_failed_operation_takes_its_copies_back) {
    struct fault fault;
    open_late(8 * MIB);
    open_stream(1);
    for (uint64_t id = 1; id <= 100; id++)
        cr_assert_eq(full(session, id, 16, (uint32_t)(id % 2)), STATUS_OK);
    rest();
    open_stream(1);
    given_to_scatter();
    cr_assert_eq(wait_for(0), STATUS_OK);
    const struct stream *stream = session_find_stream(session, 1, &fault);
    uint64_t before = stream->enqueued;
    cr_assert_eq(scatter(9, 1), STATUS_OUT_OF_MEMORY);
    cr_assert_gt(stream->enqueued, before);
    cr_expect_eq(stream->queue.weight, 0);
    close_late();
}
