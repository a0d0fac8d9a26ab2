/* In a daemon's process: the allocator obeys its test's page, which the environment names. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/load/no_memory/allocator.h"

/* `tensord worker cpu:1 …` is a worker's command. */
static int attach_role(int count, char **arguments) {
    if (count < 3 || strcmp(arguments[1], "worker"))
        return REFUSALS_FRONT;
    return strcmp(arguments[2], "cpu:0") ? REFUSALS_CPU1 : REFUSALS_CPU0;
}

__attribute__((constructor)) static void attach(int count, char **arguments, char **environment) {
    const char *path = getenv(REFUSALS_PAGE);
    (void)environment;
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *page = mmap(NULL, REFUSALS_ROLES * sizeof(struct refusals), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED)
        return;
    struct refusals *refusals = (struct refusals *)page + attach_role(count, arguments);
    refusals->live = (long)allocator_refusals->live;
    allocator_refusals = refusals;
}
