#include "tests/stand_ins/emulate/block.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static const size_t stack_size = (size_t)160 << 10, guard_size = (size_t)16 << 10;
/* Stacks begin at different distances from a page's end: otherwise those of a block would share few lines of the processor's caches, and each
 * switch from one to another would wait for memory. */
static const size_t stack_places = 56, stack_step = 9 * 64;

/* The compiler's own setjmp and longjmp, which keep three registers: the C library's took a tenth of the suite's time. */
typedef void *place[5];

/* A stack, made once and used by one block after the other. Threads run on it one after another, until one of them waits: it stays there
 * until it has ended, and the threads behind it begin on another stack. */
struct fiber {
    bool started;
    place here;
    ucontext_t start;   /* the first time */
    struct fiber *next; /* of those on which no thread waits */
};

struct thread {
    enum { THREAD_NEW, THREAD_READY, THREAD_BARRIER, THREAD_EXCHANGE, THREAD_DONE } state;
    const char *where; /* what it waits at */
    unsigned exchanges;
    struct fiber *fiber; /* while it waits */
};

uint3 block_thread, block_index;
dim3 block_size, block_grid;

static pthread_mutex_t block_lock = PTHREAD_MUTEX_INITIALIZER;
static struct thread threads[BLOCK_THREADS_MAX];
static unsigned begun; /* threads of the block, in their order */
static bool back;      /* the order of the block's threads */
static struct fiber *current, *unused;
static size_t fibers;
static place scheduler;
static void (*body)(void *argument);
static void *body_argument;
static bool backwards;
static bool barrier_any, barrier_result;
/* Two for each thread: a lane may come to its next exchange while others still read what it brought to the last one. */
static _Alignas(BLOCK_EXCHANGE_MAX) uint8_t exchanged[2][BLOCK_THREADS_MAX][BLOCK_EXCHANGE_MAX];

void block_die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("emulated: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

static unsigned turned(unsigned i, unsigned n, bool last_first) {
    return last_first ? n - 1 - i : i;
}

/* ---- fibers; no swapcontext(), which asks the kernel each time ---- */

/* The compiler wants each of its jumps in a function of its own: it takes a place in the function of the jump for one that cannot
 * be reached. */
__attribute__((noipa, noreturn)) static void jump(place to) {
    __builtin_longjmp(to, 1);
}

/* Other fibers run meanwhile and use all registers: callers must not look at which ones this code uses. */
__attribute__((noipa)) static void fiber_leave(void) {
    if (!__builtin_setjmp(current->here))
        jump(scheduler);
}

/* Threads that have not begun yet, one after another; then the fiber is unused. */
static void fiber_main(void) {
    for (;;) {
        while (begun < block_size.x) {
            block_thread.x = turned(begun++, block_size.x, back);
            body(body_argument);
            threads[block_thread.x].state = THREAD_DONE;
        }
        current->next = unused;
        unused = current;
        fiber_leave();
    }
}

static struct fiber *fiber_create(void) {
    struct fiber *fiber = calloc(1, sizeof *fiber);
    uint8_t *stack = mmap(NULL, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!fiber || stack == MAP_FAILED || mprotect(stack, guard_size, PROT_NONE) || getcontext(&fiber->start))
        block_die("no memory for a thread's stack");
    fiber->start.uc_stack.ss_sp = stack;
    fiber->start.uc_stack.ss_size = stack_size - fibers++ % stack_places * stack_step;
    makecontext(&fiber->start, fiber_main, 0);
    return fiber;
}

/* Until a thread on it waits, or all have begun and those on it have ended. */
__attribute__((noipa)) static void fiber_run(struct fiber *fiber) {
    current = fiber;
    if (!__builtin_setjmp(scheduler)) {
        if (current->started)
            jump(current->here);
        current->started = true;
        setcontext(&current->start);
    }
    current = NULL;
}

/* ---- what threads wait for ---- */

/* Until the scheduler lets the running thread go on. */
static void thread_wait(int state, const char *where) {
    unsigned me = block_thread.x;
    threads[me].where = where;
    threads[me].state = state;
    threads[me].fiber = current;
    fiber_leave();
    block_thread.x = me;
}

bool block_barrier(bool any, const char *where) {
    barrier_any |= any;
    thread_wait(THREAD_BARRIER, where);
    return barrier_result;
}

const void *block_exchange(const void *value, size_t bytes, unsigned lane, const char *where) {
    unsigned first = block_thread.x / BLOCK_WARP * BLOCK_WARP;
    if (lane >= BLOCK_WARP || bytes > BLOCK_EXCHANGE_MAX)
        block_die("%s: thread %u of block %u cannot exchange %zu bytes with lane %u", where, block_thread.x,
                  block_index.x, bytes, lane);
    unsigned parity = threads[block_thread.x].exchanges++ % 2;
    memcpy(exchanged[parity][block_thread.x], value, bytes);
    thread_wait(THREAD_EXCHANGE, where);
    return exchanged[parity][first + lane];
}

/* Whether all of some threads are in a state, and wait at the same place. */
static bool threads_agree(unsigned begin, unsigned end, int state) {
    for (unsigned i = begin; i < end; i++)
        if ((int)threads[i].state != state || threads[i].where != threads[begin].where)
            return false;
    return true;
}

static void threads_ready(unsigned begin, unsigned end) {
    for (unsigned i = begin; i < end; i++)
        threads[i].state = THREAD_READY;
}

/* Lets those warps go on whose threads are all at an exchange. */
static bool block_release_warps(void) {
    bool any = false;
    for (unsigned i = 0; i < block_size.x; i += BLOCK_WARP) {
        unsigned end = block_size.x - i < BLOCK_WARP ? block_size.x : i + BLOCK_WARP;
        if (threads_agree(i, end, THREAD_EXCHANGE)) {
            threads_ready(i, end);
            any = true;
        }
    }
    return any;
}

__attribute__((noreturn)) static void block_stuck(void) {
    static const char *const states[] = {"has not begun", "is ready", "waits at a barrier", "waits for its warp",
                                         "has left"};
    for (unsigned i = 0; i < block_size.x; i++)
        if (i == 0 || threads[i].state != threads[i - 1].state || threads[i].where != threads[i - 1].where)
            fprintf(stderr, "emulated: block %u, thread %u and those behind it: %s, %s\n", block_index.x, i,
                    states[threads[i].state], threads[i].state == THREAD_DONE ? "" : threads[i].where);
    block_die("these threads wait for each other");
}

/* All threads have run until they wait or end; false: all have ended. */
static bool block_release(void) {
    if (block_release_warps())
        return true;
    if (threads_agree(0, block_size.x, THREAD_BARRIER)) {
        barrier_result = barrier_any;
        barrier_any = false;
        threads_ready(0, block_size.x);
        return true;
    }
    for (unsigned i = 0; i < block_size.x; i++)
        if (threads[i].state != THREAD_DONE)
            block_stuck();
    return false;
}

/* ---- grids ---- */

static void block_run(void) {
    back = backwards != (block_index.x % 2 == 1);
    memset(threads, 0, block_size.x * sizeof *threads);
    begun = 0;
    while (begun < block_size.x) {
        struct fiber *fiber = unused ? unused : fiber_create();
        unused = fiber->next;
        fiber_run(fiber);
    }
    while (block_release())
        for (unsigned i = 0; i < block_size.x; i++) {
            unsigned thread = turned(i, block_size.x, back);
            if (threads[thread].state == THREAD_READY)
                fiber_run(threads[thread].fiber);
        }
}

void block_launch(dim3 grid, dim3 block, void (*thread)(void *argument), void *argument) {
    if (grid.x == 0 || grid.x > INT32_MAX || grid.y != 1 || grid.z != 1 || block.x == 0 ||
        block.x > BLOCK_THREADS_MAX || block.y != 1 || block.z != 1)
        block_die("a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads", grid.x, grid.y, grid.z, block.x, block.y,
                  block.z);
    pthread_mutex_lock(&block_lock);
    body = thread;
    body_argument = argument;
    block_grid = grid;
    block_size = block;
    backwards = !backwards;
    for (unsigned i = 0; i < grid.x; i++) {
        block_index.x = turned(i, grid.x, backwards);
        block_run();
    }
    pthread_mutex_unlock(&block_lock);
}
