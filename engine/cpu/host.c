#include "engine/cpu/host.h"

#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

unsigned host_cores(void) {
    cpu_set_t set;
    int cores = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        cores = CPU_COUNT(&set);
    } else { /* more cores than cpu_set_t has bits */
        cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    return cores > 0 ? (unsigned)cores : 1;
}

/* The number in a file of one line; UINT64_MAX where there is none ("max"). */
static uint64_t read_limit(const char *path) {
    FILE *file = fopen(path, "re");
    uint64_t limit = UINT64_MAX;
    if (file) {
        if (fscanf(file, "%" SCNu64, &limit) != 1) {
            limit = UINT64_MAX;
        }
        fclose(file);
    }
    return limit;
}

/* The lowest limit of a control group and those above it; `group` is "/a/b", and is cut. */
static uint64_t group_limit(const char *root, char *group, const char *name) {
    uint64_t lowest = UINT64_MAX;
    char path[1024];
    for (;;) {
        if ((size_t)snprintf(path, sizeof path, "%s%s/%s", root, group, name) < sizeof path) {
            uint64_t limit = read_limit(path);
            lowest = limit < lowest ? limit : lowest;
        }
        char *slash = strrchr(group, '/');
        if (!slash) {
            return lowest;
        }
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/group" for version 2, "4:memory:/group" for version 1. */
static uint64_t groups_limit(void) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    uint64_t lowest = UINT64_MAX;
    char line[768];
    while (file && fgets(line, sizeof line, file)) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) {
            continue;
        }
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        bool unified = controllers[1] == '\0';
        if (!unified && strcmp(controllers + 1, "memory") != 0) {
            continue;
        }
        uint64_t limit = unified ? group_limit("/sys/fs/cgroup", group, "memory.max")
                                 : group_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        lowest = limit < lowest ? limit : lowest;
    }
    if (file) {
        fclose(file);
    }
    return lowest;
}

uint64_t host_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t physical = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_C(1) << 30;
    uint64_t limit = groups_limit();
    return limit < physical ? limit : physical;
}

void host_model(char *model, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    struct utsname name;
    snprintf(model, size, "%s processor", uname(&name) == 0 ? name.machine : "unknown");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (value && strncmp(line, "model name", 10) == 0) {
            value += 1 + strspn(value + 1, " ");
            value[strcspn(value, "\n")] = '\0';
            snprintf(model, size, "%s", value);
            break;
        }
    }
    if (file) {
        fclose(file);
    }
}
