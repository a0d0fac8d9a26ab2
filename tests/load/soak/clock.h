/* The time of day as a test wants it, for all of a process (clock.c in front of the C library's). CLOCK_MONOTONIC, which
 * no administrator can set, is left alone. */
#pragma once

#include <stdatomic.h>

/* On a page in the file that CLOCK_PAGE names, shared by all processes that a test lets jump. */
struct clock_page {
    atomic_llong ahead_s; /* seconds that the time of day is ahead of the true one */
};
#define CLOCK_PAGE "CLOCK_PAGE"

/* NULL until the process has found its page. */
extern struct clock_page *clock_page;
/* Maps the page of a file; called by itself where the environment names one. */
void clock_attach(const char *path);
