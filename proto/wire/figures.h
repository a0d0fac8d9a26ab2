/* What is worked out of the figures in a status, the same for whoever shows them. */
#pragma once

#include "proto/wire/tensord.pb-c.h"

/* The bound below which this part of all times lies, in seconds; infinite among the longest ones, which have none. NaN where
 * fewer than two of the measured times lie beyond it, so that it says nothing. NULL has no times. */
double figures_quantile(const Tensord__Histogram *histogram, double part);
uint64_t figures_count(const Tensord__Histogram *histogram);

/* The program's name, of a client that says "name libtensord/1.2". `size` of 64 is enough for the one of a session. */
void figures_program(const char *client, char *program, unsigned size);
