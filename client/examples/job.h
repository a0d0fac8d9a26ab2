/* What the examples that train share: errors, the clock, the line that shows progress, the order of the images, and the options of the
 * command line. */
#pragma once
#include "client/tensord.h"

/* Ends the program with a message; the daemon frees what it has left on the device. */
_Noreturn void job_die(const char *what, const char *why);

/* Ends the program if a call returned an error. Operations need no check: an operation that fails returns NULL or poisons its result, and so
 * does every operation that uses that result. So the fetch at the end reports the first cause, with its operation and label. */
void job_check(int code);

double job_seconds(void);

/* Shows progress on standard error, if that is a terminal: standard output has only the results. */
void job_progress(long epoch, long done, long steps, double images_per_second);
void job_progress_end(void);

/* A random order of the images (Fisher and Yates), as indices on the device. `order` has all of them, in any order; it is shuffled. */
td_tensor *job_shuffled(td_device *device, int32_t *order, int64_t count, unsigned short random[3]);

/* An option of the command line sets one of: a text, a whole number from 1 to a million, a positive number, a flag. */
struct job_option {
    const char *name, **text;
    long *count;
    double *number;
    bool *flag;
};

/* Reads the command line; prints `usage` and ends the program if that is asked for, or if the command line is wrong. */
void job_options(int argc, char **argv, const char *usage, const struct job_option *options, int count);
