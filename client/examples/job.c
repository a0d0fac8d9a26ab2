#include "client/examples/job.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BAR = 30, OPTIONS_MAX = 15 };

void job_die(const char *what, const char *why) {
    fprintf(stderr, "\n%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(EXIT_FAILURE);
}

void job_check(int code) {
    if (code != TD_OK)
        job_die(td_strerror(code), td_last_error()->message);
}

double job_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void job_progress(long epoch, long done, long steps, double images_per_second) {
    static const char full[] = "##############################";
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r  epoch %2ld  [%-*.*s] %3ld %%  %.0f images/s\033[K", epoch, BAR, (int)(BAR * done / steps),
                full, 100 * done / steps, images_per_second);
}

void job_progress_end(void) {
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

td_tensor *job_shuffled(td_device *device, int32_t *order, int64_t count, unsigned short random[3]) {
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)(erand48(random) * (double)(i + 1));
        int32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    td_label("order");
    return td_upload(device, TD_I32, TD_SHAPE(count), order);
}

static _Noreturn void usage_exit(const char *usage, int code) {
    fputs(usage, code ? stderr : stdout);
    exit(code);
}

/* False if the text is no value of the option. */
static bool option_set(const struct job_option *option, const char *text) {
    char *end = "";
    if (option->text)
        *option->text = text;
    else if (option->flag)
        *option->flag = true;
    else if (option->count)
        *option->count = strtol(text, &end, 10);
    else
        *option->number = strtod(text, &end);
    return !*end && (!option->count || (*option->count >= 1 && *option->count <= 1000000)) &&
           (!option->number || (*option->number > 0 && *option->number < 1e6));
}

void job_options(int argc, char **argv, const char *usage, const struct job_option *options, int count) {
    struct option names[OPTIONS_MAX + 2] = {0};
    if (count > OPTIONS_MAX)
        abort();
    for (int i = 0; i < count; i++)
        names[i] = (struct option){options[i].name, options[i].flag ? no_argument : required_argument, NULL, i};
    names[count] = (struct option){"help", no_argument, NULL, count};
    for (int found; (found = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (found == count)
            usage_exit(usage, 0);
        if (found > count || !option_set(&options[found], optarg)) /* '?' is greater than any count */
            usage_exit(usage, 2);
    }
    if (optind < argc)
        usage_exit(usage, 2);
}
