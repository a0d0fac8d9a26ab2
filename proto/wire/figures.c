#include "proto/wire/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FIGURES_BEYOND = 2 /* samples */ };

uint64_t figures_count(const Tensord__Histogram *histogram) {
    uint64_t count = 0;
    for (size_t i = 0; histogram && i < histogram->n_counts; i++)
        count += histogram->counts[i];
    return count;
}

double figures_quantile(const Tensord__Histogram *histogram, double part) {
    uint64_t count = figures_count(histogram), below = 0;
    if (!count || (double)histogram->samples * (1 - part) < FIGURES_BEYOND)
        return NAN;
    for (size_t i = 0; i + 1 < histogram->n_counts; i++) {
        below += histogram->counts[i];
        if ((double)below >= part * (double)count)
            return ldexp(1e-6, (int)i);
    }
    return INFINITY;
}

void figures_program(const char *client, char *program, unsigned size) {
    const char *library = strstr(client, " libtensord/");
    size_t length = library ? (size_t)(library - client) : strlen(client);
    snprintf(program, size, "%.*s", (int)length, client);
}
