#include "engine/cpu/team.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/device/thread.h"

enum {
    TEAM_SPIN_WORKER = 500, /* pauses, some 5 to 30 µs: about as long as waking a core takes */
    TEAM_SPIN_CALLER = 1000,
};

static inline void team_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void team_futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void team_futex_wake(_Atomic uint32_t *word, int waiters) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, waiters, NULL, NULL, 0);
}

/* Takes and runs one part. False: no part is left. */
static bool team_work(struct team *team) {
    uint64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
    while ((uint32_t)ticket != 0) {
        void (*body)(void *, unsigned) = atomic_load_explicit(&team->body, memory_order_relaxed);
        void *context = atomic_load_explicit(&team->context, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&team->ticket, &ticket, ticket - 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        body(context, (uint32_t)ticket - 1);
        if (atomic_fetch_sub(&team->unfinished, 1) == 1 && atomic_load(&team->caller_sleeps))
            team_futex_wake(&team->unfinished, 1);
        return true;
    }
    return false;
}

static bool team_spin_for_post(struct team *team, uint32_t seen) {
    for (unsigned i = 0; i < TEAM_SPIN_WORKER; i++) {
        if (atomic_load_explicit(&team->posts, memory_order_acquire) != seen)
            return true;
        team_pause();
    }
    return false;
}

static void *team_worker(void *argument) {
    struct team *team = argument;
    thread_begin("compute");
    while (!atomic_load(&team->stop)) {
        /* Read before the look for work: a job that is posted after the look changes it, so the wait below returns. */
        uint32_t seen = atomic_load(&team->posts);
        if (team_work(team)) {
            while (team_work(team)) {
            }
            if (team_spin_for_post(team, seen))
                continue;
        }
        atomic_fetch_add(&team->sleepers, 1);
        team_futex_wait(&team->posts, seen);
        atomic_fetch_sub(&team->sleepers, 1);
    }
    thread_end();
    return NULL;
}

void team_init(struct team *team, unsigned threads) {
    *team = (struct team){.threads = 1};
    if (threads < 2 || !(team->workers = calloc(threads - 1, sizeof *team->workers)))
        return;
    sigset_t before;
    thread_block_signals(&before); /* the owner handles them */
    while (team->threads < threads && !pthread_create(&team->workers[team->threads - 1], NULL, team_worker, team))
        team->threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void team_finish(struct team *team) {
    atomic_store(&team->stop, true);
    atomic_fetch_add(&team->posts, 1);
    team_futex_wake(&team->posts, INT32_MAX);
    for (unsigned i = 0; i + 1 < team->threads; i++)
        pthread_join(team->workers[i], NULL);
    free(team->workers);
    team->workers = NULL;
}

static void team_post(struct team *team, unsigned parts, void (*body)(void *context, unsigned part), void *context) {
    uint64_t number = (atomic_load_explicit(&team->ticket, memory_order_relaxed) >> 32) + 1;
    atomic_store_explicit(&team->body, body, memory_order_relaxed);
    atomic_store_explicit(&team->context, context, memory_order_relaxed);
    atomic_store(&team->unfinished, parts);
    atomic_store(&team->ticket, number << 32 | parts);
    atomic_fetch_add(&team->posts, 1);
    uint32_t sleepers = atomic_load(&team->sleepers);
    if (sleepers)
        team_futex_wake(&team->posts, parts - 1 < sleepers ? (int)(parts - 1) : (int)sleepers);
}

static void team_join(struct team *team) {
    uint32_t left;
    for (unsigned i = 0; i < TEAM_SPIN_CALLER; i++) {
        if (atomic_load_explicit(&team->unfinished, memory_order_acquire) == 0)
            return;
        team_pause();
    }
    atomic_store(&team->caller_sleeps, 1);
    while ((left = atomic_load(&team->unfinished)) != 0)
        team_futex_wait(&team->unfinished, left);
    atomic_store(&team->caller_sleeps, 0);
}

void team_run(struct team *team, unsigned parts, void (*body)(void *context, unsigned part), void *context) {
    if (parts < 2 || team->threads < 2) {
        for (unsigned i = 0; i < parts; i++)
            body(context, i);
        return;
    }
    team_post(team, parts, body, context);
    while (team_work(team)) {
    }
    team_join(team);
}
