#include "engine/device/thread.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum {
    THREAD_STACK_BYTES = 64 << 10, /* the kernel's frame alone has some 11 KiB with AMX */
    THREAD_GUARD_BYTES = 4 << 10,
};

static _Thread_local uint8_t *thread_stack; /* NULL: thread_begin() has made none */

void thread_begin(const char *name) {
    stack_t present;
    if (name)
        prctl(PR_SET_NAME, name);
    if (thread_stack || sigaltstack(NULL, &present) || !(present.ss_flags & SS_DISABLE))
        return;
    size_t bytes = THREAD_STACK_BYTES + THREAD_GUARD_BYTES;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return;
    const stack_t stack = {.ss_sp = (uint8_t *)memory + THREAD_GUARD_BYTES, .ss_size = THREAD_STACK_BYTES};
    if (mprotect(memory, THREAD_GUARD_BYTES, PROT_NONE) || sigaltstack(&stack, NULL))
        munmap(memory, bytes);
    else
        thread_stack = memory;
}

void thread_end(void) {
    const stack_t none = {.ss_flags = SS_DISABLE};
    if (!thread_stack || sigaltstack(&none, NULL))
        return;
    munmap(thread_stack, THREAD_STACK_BYTES + THREAD_GUARD_BYTES);
    thread_stack = NULL;
}

void thread_block_signals(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}
