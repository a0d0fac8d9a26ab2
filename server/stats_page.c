#include "server/stats_page.h"

#include <sched.h>
#include <string.h>
#include <time.h>

enum { STATS_READ_PATIENCE_NS = 1000000 };

static uint64_t stats_page_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void stats_page_begin(struct stats_page *page) {
    uint32_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 1, memory_order_relaxed);
    /* The odd number must be visible before any of the plain writes that follow. */
    atomic_thread_fence(memory_order_release);
}

void stats_page_end(struct stats_page *page) {
    uint32_t sequence = atomic_load_explicit(&page->sequence, memory_order_relaxed);
    atomic_store_explicit(&page->written_ns, stats_page_now(), memory_order_relaxed);
    atomic_store_explicit(&page->sequence, sequence + 1, memory_order_release);
}

/* The writer is another process, and the reader believes no text in its page to end by itself. */
static void stats_terminate(struct stats_device *device, struct stats_session *sessions, unsigned count) {
    struct device_info *info = &device->engine.device;
    info->kind[sizeof info->kind - 1] = 0;
    info->model[sizeof info->model - 1] = 0;
    info->capability[sizeof info->capability - 1] = 0;
    info->uuid[sizeof info->uuid - 1] = 0;
    info->bus[sizeof info->bus - 1] = 0;
    info->driver[sizeof info->driver - 1] = 0;
    info->runtime[sizeof info->runtime - 1] = 0;
    device->readings.driver[sizeof device->readings.driver - 1] = 0;
    for (struct stats_session *s = sessions; s < sessions + count; s++) {
        principal_end_texts(&s->principal);
        s->tls_cipher[sizeof s->tls_cipher - 1] = 0;
        s->peer[sizeof s->peer - 1] = 0;
        s->client[sizeof s->client - 1] = 0;
        s->last_failure[sizeof s->last_failure - 1] = 0;
        s->label[sizeof s->label - 1] = 0;
    }
}

static unsigned stats_least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

int stats_page_read(const struct stats_page *page, struct stats_device *device, struct stats_session *sessions,
                    unsigned capacity) {
    uint64_t deadline = stats_page_now() + STATS_READ_PATIENCE_NS;
    do {
        uint32_t before = atomic_load_explicit(&page->sequence, memory_order_acquire);
        if (!(before & 1)) {
            unsigned total = stats_least(page->n_sessions, STATS_SESSIONS_MAX);
            unsigned copied = stats_least(total, capacity);
            *device = page->device;
            if (copied)
                memcpy(sessions, page->sessions, copied * sizeof *sessions);
            /* The copies must be done before the number is looked at again. */
            atomic_thread_fence(memory_order_acquire);
            if (atomic_load_explicit(&page->sequence, memory_order_relaxed) == before) {
                stats_terminate(device, sessions, copied);
                return (int)total;
            }
        }
        sched_yield();
    } while (stats_page_now() < deadline);
    return -1;
}
