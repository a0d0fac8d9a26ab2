#include "tests/load/no_memory/allocator.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static struct refusals own;
struct refusals *allocator_refusals = &own;

/* Of the C library's own calls, under AddressSanitizer: it ends the process where a new thread cannot tell its stack. */
static bool spared(void *caller) {
#ifdef ALLOCATOR_SPARES_LIBC
    Dl_info of_caller, of_libc;
    return dladdr(caller, &of_caller) && dladdr((void *)(uintptr_t)getpid, &of_libc) &&
           of_caller.dli_fbase == of_libc.dli_fbase;
#else
    (void)caller;
    return false;
#endif
}

static bool refused(void *caller) {
    struct refusals *refusals = allocator_refusals;
    if (!refusals->on || spared(caller))
        return false;
    unsigned n = ++refusals->calls;
    if (n < refusals->first || n > refusals->last)
        return false;
    errno = ENOMEM;
    return true;
}

static void *counted(void *memory) {
    if (memory)
        allocator_refusals->live++;
    return memory;
}

/* The allocator behind this one: a sanitizer's, or the C library's. */
static struct {
    void *(*malloc)(size_t bytes);
    void *(*calloc)(size_t count, size_t bytes);
    void *(*realloc)(void *memory, size_t bytes);
    void *(*memalign)(size_t alignment, size_t bytes);
    void (*free)(void *memory);
} next;

/* All of them at once: dlsym() frees what is left of an earlier failure, and must find free() then. It allocates nothing
 * where it succeeds. The first call comes before there are threads. */
static void find_next(void) {
    if (next.malloc)
        return;
    *(void **)&next.free = dlsym(RTLD_NEXT, "free");
    *(void **)&next.calloc = dlsym(RTLD_NEXT, "calloc");
    *(void **)&next.realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next.memalign = dlsym(RTLD_NEXT, "memalign");
    *(void **)&next.malloc = dlsym(RTLD_NEXT, "malloc");
}

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void *malloc(size_t bytes) {
    find_next();
    return refused(__builtin_return_address(0)) ? NULL : counted(next.malloc(bytes));
}

EXPORTED void *calloc(size_t count, size_t bytes) {
    find_next();
    return refused(__builtin_return_address(0)) ? NULL : counted(next.calloc(count, bytes));
}

EXPORTED void *memalign(size_t alignment, size_t bytes) {
    find_next();
    return refused(__builtin_return_address(0)) ? NULL : counted(next.memalign(alignment, bytes));
}

EXPORTED void *aligned_alloc(size_t alignment, size_t bytes) {
    return memalign(alignment, bytes);
}

EXPORTED int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    void *got = memalign(alignment, bytes);
    if (got)
        *memory = got;
    return got ? 0 : ENOMEM;
}

EXPORTED void free(void *memory) {
    if (!memory)
        return;
    find_next();
    allocator_refusals->live--;
    next.free(memory);
}

EXPORTED void *realloc(void *memory, size_t bytes) {
    find_next();
    if (memory && !bytes) {
        free(memory);
        return NULL;
    }
    if (refused(__builtin_return_address(0)))
        return NULL;
    void *got = next.realloc(memory, bytes);
    return memory ? got : counted(got);
}
