/* The stats page under its sequence lock. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/ipc/stats_page.h"

enum { ROOM = 32 };

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One number in every field that the reader compares. */
static void write_page(struct stats_page *page, uint64_t number, unsigned sessions) {
    stats_page_begin(page);
    page->device.bytes_in = number;
    page->device.engine.ops_total = number;
    page->n_sessions = page->n_principals = page->n_programs = sessions;
    for (unsigned i = 0; i < sessions; i++) {
        page->sessions[i].id = number;
        page->sessions[i].ops_done = number;
        page->principals[i].ops_done = number;
        page->programs[i].session = number;
    }
    page->device.bytes_out = number;
    stats_page_end(page);
}

struct writer {
    struct stats_page *page;
    _Atomic int stop;
};

static void *write_on(void *argument) {
    struct writer *writer = argument;
    for (uint64_t number = 1; !atomic_load(&writer->stop); number++) {
        struct timespec pause = {.tv_nsec = 1000};
        write_page(writer->page, number, (unsigned)(number % ROOM));
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* A copy with room for so many sessions, principals and programs. */
static void open_copy(struct stats_copy *copy, unsigned room) {
    *copy = (struct stats_copy){.sessions = calloc(room, sizeof *copy->sessions),
                                .principals = calloc(room, sizeof *copy->principals),
                                .programs = calloc(room, sizeof *copy->programs),
                                .sessions_room = room,
                                .principals_room = room,
                                .programs_room = room};
    cr_assert(copy->sessions && copy->principals && copy->programs);
}

static void close_copy(struct stats_copy *copy) {
    free(copy->sessions);
    free(copy->principals);
    free(copy->programs);
}

static void expect_whole(const struct stats_copy *copy) {
    uint64_t number = copy->device.bytes_in;
    unsigned n = copy->n_sessions;
    cr_assert(copy->device.engine.ops_total == number && copy->device.bytes_out == number, "a torn device");
    cr_assert(n == number % ROOM, "%u sessions with number %llu", n, (unsigned long long)number);
    cr_assert(copy->n_principals == n && copy->n_programs == n, "sessions, principals and programs of one moment");
    for (unsigned i = 0; i < n; i++) {
        cr_assert(copy->sessions[i].id == number && copy->sessions[i].ops_done == number, "a torn session");
        cr_assert(copy->principals[i].ops_done == number && copy->programs[i].session == number);
    }
}

Test(stats_page, a_reader_never_sees_half_a_write) {
    struct writer writer = {.page = calloc(1, sizeof *writer.page)};
    struct stats_copy copy;
    pthread_t thread;
    unsigned good = 0, changes = 0;
    uint64_t last = 0, end = now_ns() + 300000000;
    open_copy(&copy, ROOM);
    pthread_create(&thread, NULL, write_on, &writer);
    while (now_ns() < end) {
        if (!stats_page_read(writer.page, &copy))
            continue;
        expect_whole(&copy);
        changes += copy.device.bytes_in != last;
        last = copy.device.bytes_in;
        good++;
    }
    atomic_store(&writer.stop, 1);
    pthread_join(thread, NULL);
    cr_assert(good > 100 && changes > 10, "%u reads saw %u changes", good, changes);
    close_copy(&copy);
    free(writer.page);
}

Test(stats_page, a_writer_that_died_while_writing_costs_a_millisecond) {
    struct stats_page *page = calloc(1, sizeof *page);
    struct stats_copy copy = {0};
    write_page(page, 5, 0);
    stats_page_begin(page);
    uint64_t before = now_ns();
    cr_assert_not(stats_page_read(page, &copy));
    cr_assert(now_ns() - before < 100000000);
    stats_page_end(page);
    cr_assert(stats_page_read(page, &copy) && copy.n_sessions == 0 && copy.device.bytes_in == 5);
    free(page);
}

Test(stats_page, a_page_with_nonsense_stays_within_bounds) {
    struct stats_page *page = malloc(sizeof *page);
    struct stats_copy copy;
    open_copy(&copy, STATS_SESSIONS_MAX + STATS_PRINCIPALS_MAX + STATS_PROGRAMS_MAX);
    memset(page, 'x', sizeof *page);
    atomic_store(&page->sequence, 2);
    page->n_sessions = page->n_principals = page->n_programs = UINT32_MAX;
    cr_assert(stats_page_read(page, &copy));
    cr_assert(copy.n_sessions == STATS_SESSIONS_MAX);
    cr_assert(strlen(copy.sessions[0].peer) == sizeof copy.sessions[0].peer - 1);
    cr_assert(strlen(copy.sessions[STATS_SESSIONS_MAX - 1].last_failure) == sizeof copy.sessions[0].last_failure - 1);
    cr_assert(strlen(copy.device.engine.device.model) == sizeof copy.device.engine.device.model - 1);
    cr_assert(strlen(copy.device.readings.driver) == sizeof copy.device.readings.driver - 1);
    cr_assert(copy.n_principals == STATS_PRINCIPALS_MAX);
    cr_assert(strlen(copy.principals[STATS_PRINCIPALS_MAX - 1].name) == sizeof copy.principals->name - 1);
    cr_assert(copy.n_programs == STATS_PROGRAMS_MAX);
    const struct stats_program *last = &copy.programs[STATS_PROGRAMS_MAX - 1];
    cr_assert(strlen(last->figures.label) == sizeof last->figures.label - 1);
    cr_assert(strlen(last->figures.cause) == sizeof last->figures.cause - 1);
    cr_assert(strlen(last->figures.graph_reason) == sizeof last->figures.graph_reason - 1);
    cr_assert(strlen(last->figures.fused_reason) == sizeof last->figures.fused_reason - 1);
    cr_assert(strlen(last->principal.name) == sizeof last->principal.name - 1);
    struct stats_operations *operations = malloc(sizeof *operations);
    stats_operations_read(&page->operations, operations);
    cr_assert(strlen(operations->rows[OP_CODE_MAX - 1].reason) == STATS_REASON_MAX - 1);
    free(operations);
    close_copy(&copy);
    free(page);
}

Test(stats_page, fewer_sessions_are_copied_than_there_are) {
    struct stats_page *page = calloc(1, sizeof *page);
    struct stats_session sessions[2] = {{.id = 0}};
    struct stats_copy copy = {.sessions = sessions, .sessions_room = 1};
    write_page(page, 9, 5);
    cr_assert(stats_page_read(page, &copy) && copy.n_sessions == 5);
    cr_assert(sessions[0].id == 9 && sessions[1].id == 0);
    free(page);
}

Test(stats_page, writing_is_the_heartbeat) {
    struct stats_page *page = calloc(1, sizeof *page);
    uint64_t before = now_ns();
    write_page(page, 1, 0);
    cr_assert(atomic_load(&page->written_ns) >= before && atomic_load(&page->written_ns) <= now_ns());
    free(page);
}
