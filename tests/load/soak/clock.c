#include "tests/load/soak/clock.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

struct clock_page *clock_page;

void clock_attach(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *clock_page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    if (page != MAP_FAILED)
        clock_page = page;
}

__attribute__((constructor)) static void clock_start(void) {
    const char *path = getenv(CLOCK_PAGE);
    if (path)
        clock_attach(path);
}

/* The kernel's answer, and the jump on top of it where it is a time of day. */
EXPORTED int clock_gettime(clockid_t clock, struct timespec *now) {
    long error = syscall(SYS_clock_gettime, clock, now);
    if (error || !clock_page || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return (int)error;
    now->tv_sec += clock_page->ahead_s;
    return 0;
}

EXPORTED int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

EXPORTED time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
