#include "tests/stand_ins/libraries/stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic int objects;

void stand_in_expect(bool condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "a library is given %s\n", what);
        abort();
    }
}

void stand_in_objects(int more) {
    objects += more;
    stand_in_expect(objects >= 0, "something back that it has not made");
}

#ifdef FAKECUDA
#include "tests/stand_ins/fakecuda/fakecuda.h"

/* Some hundred calls that only describe what follows: the emulated device has them fail, one by one. */
static bool is_description(const char *function) {
    static const char *const ends[] = {"Attribute", "Descriptor", "Finalize", "_bufferSize"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strlen(function) > strlen(ends[i]) && !strcmp(function + strlen(function) - strlen(ends[i]), ends[i]))
            return true;
    return false;
}

enum stand_in_outcome stand_in_call(const char *function) {
    if (is_description(function))
        return STAND_IN_WORKS;
    cudaError_t error = fakecuda_call_of_library(function);
    return error == cudaSuccess                 ? STAND_IN_WORKS
           : error == cudaErrorMemoryAllocation ? STAND_IN_NO_MEMORY
           : error == cudaErrorInvalidValue     ? STAND_IN_REFUSES
                                                : STAND_IN_FAILS;
}

bool stand_in_put(cudaStream_t stream, void (*work)(void *argument), void *argument) {
    (void)work, (void)argument;
    return !fakecuda_put(stream, &(struct fakecuda_item){.kind = ITEM_KERNEL});
}

#else

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

#include "tests/stand_ins/emulate/graph.h"

/* Which way it fails changes from one to the next. */
static enum stand_in_outcome next_failure(void) {
    static unsigned failures;
    static const enum stand_in_outcome ways[] = {STAND_IN_REFUSES, STAND_IN_FAILS, STAND_IN_NO_MEMORY};
    return ways[failures++ % 3];
}

static void pass_gate(const char *function) {
    const char *gate = getenv("STAND_IN_GATE");
    size_t length = strlen(function);
    char byte;
    if (!gate || strncmp(gate, function, length) != 0 || gate[length] != ':')
        return;
    int fd = open(gate + length + 1, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return;
    stand_in_expect(fd >= 0 && read(fd, &byte, 1) == 0, "a STAND_IN_GATE that is no FIFO, or data in it");
    close(fd);
}

static enum stand_in_outcome counted_outcome(const char *function, const char *wanted) {
    static char now[96];
    static unsigned long seen;
    char name[64], plus = 0;
    unsigned long number;
    if (strcmp(wanted, now)) {
        snprintf(now, sizeof now, "%s", wanted);
        seen = 0;
    }
    int parts = sscanf(now, "%63[a-zA-Z_0-9]:%lu%c", name, &number, &plus);
    stand_in_expect(parts >= 2, "a STAND_IN_FAIL that says nothing");
    if (strcmp(name, "any") && strcmp(name, function))
        return STAND_IN_WORKS;
    seen++;
    return seen == number || (plus == '+' && seen > number) ? next_failure() : STAND_IN_WORKS;
}

enum stand_in_outcome stand_in_call(const char *function) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *wanted = getenv("STAND_IN_FAIL");
    pass_gate(function);
    if (!wanted || !*wanted)
        return STAND_IN_WORKS;
    pthread_mutex_lock(&lock);
    enum stand_in_outcome outcome = counted_outcome(function, wanted);
    pthread_mutex_unlock(&lock);
    return outcome;
}

bool stand_in_put(cudaStream_t stream, void (*work)(void *argument), void *argument) {
    stand_in_expect(!stream->captured, "a stream that captures"); /* none of them has been tried with that */
    work(argument);
    return true;
}

__attribute__((destructor)) static void stand_in_end(void) {
    if (objects) {
        fprintf(stderr, "%d objects of a library are left\n", objects);
        _exit(3);
    }
}

#endif
