/* The stats page under its sequence lock. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/ipc/stats_page.h"

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
    page->n_sessions = sessions;
    for (unsigned i = 0; i < sessions; i++) {
        page->sessions[i].id = number;
        page->sessions[i].ops_done = number;
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
        write_page(writer->page, number, (unsigned)(number % 32));
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void expect_whole(const struct stats_device *device, const struct stats_session *sessions, unsigned count) {
    uint64_t number = device->bytes_in;
    cr_assert(device->engine.ops_total == number && device->bytes_out == number, "a torn device");
    cr_assert(count == number % 32, "%u sessions with number %llu", count, (unsigned long long)number);
    for (unsigned i = 0; i < count; i++)
        cr_assert(sessions[i].id == number && sessions[i].ops_done == number, "a torn session");
}

Test(stats_page, a_reader_never_sees_half_a_write) {
    struct writer writer = {.page = calloc(1, sizeof *writer.page)};
    struct stats_session *sessions = calloc(STATS_SESSIONS_MAX, sizeof *sessions);
    struct stats_device device;
    pthread_t thread;
    unsigned good = 0, changes = 0;
    uint64_t last = 0, end = now_ns() + 300000000;
    pthread_create(&thread, NULL, write_on, &writer);
    while (now_ns() < end) {
        int count = stats_page_read(writer.page, &device, sessions, STATS_SESSIONS_MAX);
        if (count < 0)
            continue;
        expect_whole(&device, sessions, (unsigned)count);
        changes += device.bytes_in != last;
        last = device.bytes_in;
        good++;
    }
    atomic_store(&writer.stop, 1);
    pthread_join(thread, NULL);
    cr_assert(good > 100 && changes > 10, "%u reads saw %u changes", good, changes);
    free(sessions);
    free(writer.page);
}

Test(stats_page, a_writer_that_died_while_writing_costs_a_millisecond) {
    struct stats_page *page = calloc(1, sizeof *page);
    struct stats_device device;
    write_page(page, 5, 0);
    stats_page_begin(page);
    uint64_t before = now_ns();
    cr_assert(stats_page_read(page, &device, NULL, 0) == -1);
    cr_assert(now_ns() - before < 100000000);
    stats_page_end(page);
    cr_assert(stats_page_read(page, &device, NULL, 0) == 0 && device.bytes_in == 5);
    free(page);
}

Test(stats_page, a_page_with_nonsense_stays_within_bounds) {
    struct stats_page *page = malloc(sizeof *page);
    struct stats_session *sessions = calloc(STATS_SESSIONS_MAX, sizeof *sessions);
    struct stats_device device;
    memset(page, 'x', sizeof *page);
    atomic_store(&page->sequence, 2);
    page->n_sessions = UINT32_MAX;
    cr_assert(stats_page_read(page, &device, sessions, STATS_SESSIONS_MAX) == STATS_SESSIONS_MAX);
    cr_assert(strlen(sessions[0].peer) == sizeof sessions[0].peer - 1);
    cr_assert(strlen(sessions[STATS_SESSIONS_MAX - 1].last_failure) == sizeof sessions[0].last_failure - 1);
    cr_assert(strlen(device.engine.device.model) == sizeof device.engine.device.model - 1);
    cr_assert(strlen(device.readings.driver) == sizeof device.readings.driver - 1);
    struct stats_operations *operations = malloc(sizeof *operations);
    stats_operations_read(&page->operations, operations);
    cr_assert(strlen(operations->rows[OP_CODE_MAX - 1].reason) == STATS_REASON_MAX - 1);
    free(operations);
    struct stats_principal *principals = calloc(STATS_PRINCIPALS_MAX, sizeof *principals);
    page->n_principals = UINT32_MAX;
    cr_assert(stats_page_read_principals(page, principals, STATS_PRINCIPALS_MAX) == STATS_PRINCIPALS_MAX);
    cr_assert(strlen(principals[STATS_PRINCIPALS_MAX - 1].name) == sizeof principals->name - 1);
    free(principals);
    struct stats_program *listed = calloc(STATS_PROGRAMS_MAX, sizeof *listed);
    page->n_programs = UINT32_MAX;
    cr_assert(stats_page_read_programs(page, listed, STATS_PROGRAMS_MAX) == STATS_PROGRAMS_MAX);
    const struct stats_program *last = &listed[STATS_PROGRAMS_MAX - 1];
    cr_assert(strlen(last->figures.label) == sizeof last->figures.label - 1);
    cr_assert(strlen(last->figures.cause) == sizeof last->figures.cause - 1);
    cr_assert(strlen(last->figures.graph_reason) == sizeof last->figures.graph_reason - 1);
    cr_assert(strlen(last->figures.fused_reason) == sizeof last->figures.fused_reason - 1);
    cr_assert(strlen(last->principal.name) == sizeof last->principal.name - 1);
    free(listed);
    free(sessions);
    free(page);
}

Test(stats_page, fewer_sessions_are_copied_than_there_are) {
    struct stats_page *page = calloc(1, sizeof *page);
    struct stats_session sessions[2];
    struct stats_device device;
    write_page(page, 9, 5);
    memset(sessions, 0, sizeof sessions);
    cr_assert(stats_page_read(page, &device, sessions, 1) == 5);
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
