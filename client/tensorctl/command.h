/* tensorctl's commands, and what the command line has said to them. One thread. */
#pragma once

#include "client/lib/control.h"
#include "client/tensorctl/tensorctl.h"
#include "client/tensorctl/top.h"
#include "client/tensord.h"

struct command;

/* Each option but --url, --help and --version belongs to the commands that name it in `options`. */
enum command_option {
    COMMAND_JSON,
    COMMAND_WATCH,
    COMMAND_REASON,
    COMMAND_USER,
    COMMAND_SECONDS,
    COMMAND_OUTPUT,
    COMMAND_INTERVAL,
    COMMAND_BATCH,
    COMMAND_COUNT,
    COMMAND_REPLACE,
    COMMAND_ALL,
    COMMAND_TO,
    COMMAND_SESSION,
    COMMAND_DOT,
    COMMAND_OPTIONS
};
#define COMMAND_TAKES(option) (1u << (option))

struct tensorctl {
    struct control *control;
    const struct command *command;
    const char *url;
    bool json, replace;
    bool all;            /* names */
    bool dot;            /* program */
    const char *to;      /* names; NULL: not said */
    double watch_s;      /* 0: once */
    const char *reason;  /* kill */
    const char *user;    /* kill, names */
    double interval_s;   /* top; 0: not said */
    bool batch;          /* top */
    uint64_t session;    /* trace: the session's number; 0: all */
    unsigned long count; /* top --batch, ping; 0: not said */
    double seconds;      /* trace, bench; 0: not said */
    const char *output;  /* trace; NULL: not said */
    const char **words;  /* the words behind the command */
    int n_words;
    unsigned given; /* the options that were given, as bits of COMMAND_TAKES() */
};

struct command {
    const char *name;
    const char *arguments; /* shown behind the name in its usage; "": none */
    const char *summary;   /* one line of `tensorctl --help` */
    const char *text;      /* further text of the command's own --help, in lines of at most 80 columns; NULL: none */
    unsigned options;      /* bits of COMMAND_TAKES() */
    int words_min, words_max;
    const char *missing;                               /* the error if there are fewer words */
    const char *(*check)(const struct tensorctl *ctl); /* what else is wrong; NULL: nothing is */
    int (*run)(struct tensorctl *ctl, struct fault *fault);
    enum tensorctl_view view;
    bool device;         /* it opens sessions of its own through the client library; there is no control connection */
    bool local_words;    /* with words it asks no daemon */
    unsigned timeout_ms; /* of each request; 0: CONTROL_TIMEOUT_MS */
};

/* tensorctl.c. Makes ctl->control, a control connection for the command. It is NULL before, and after a failure. */
int tensorctl_connect(struct tensorctl *ctl, struct fault *fault);

/* command_view.c */
int command_view(struct tensorctl *ctl, struct fault *fault);
int command_operations(struct tensorctl *ctl, struct fault *fault);
/* Flushes standard output; STATUS_INTERNAL if something could not be written. */
int command_flushed(struct fault *fault);
/* Seconds of CLOCK_MONOTONIC; an order of doubles for qsort(); and the median of such, which are sorted, n > 0. */
double command_now(void);
int command_compare(const void *a, const void *b);
double command_median(const double *sorted, size_t n);

/* command.c */
int command_ping(struct tensorctl *ctl, struct fault *fault);
int command_drain(struct tensorctl *ctl, struct fault *fault);
const char *command_kill_check(const struct tensorctl *ctl);
int command_kill(struct tensorctl *ctl, struct fault *fault);
const char *command_top_check(const struct tensorctl *ctl);
int command_top(struct tensorctl *ctl, struct fault *fault);
int command_trace(struct tensorctl *ctl, struct fault *fault);
const char *command_names_check(const struct tensorctl *ctl);
const char *command_program_check(const struct tensorctl *ctl);

int command_config(struct tensorctl *ctl, struct fault *fault);

/* tensorctl_program.c */
int tensorctl_program(struct tensorctl *ctl, struct fault *fault);

/* ---- commands that open sessions ---- */

int tensorctl_names(struct tensorctl *ctl, struct fault *fault);
int tensorctl_save(struct tensorctl *ctl, struct fault *fault);
int tensorctl_load(struct tensorctl *ctl, struct fault *fault);
int tensorctl_bench(struct tensorctl *ctl, struct fault *fault);

/* Opens the device that the first word names (no word: the daemon's first device). On failure *connection is NULL, which
 * td_close() takes. */
int tensorctl_open(const struct tensorctl *ctl, td_connection **connection, td_device **device, struct fault *fault);
/* All names on the device, malloc'ed; to be freed also after a failure. */
int tensorctl_list_names(td_device *device, td_name_info **infos, size_t *count, struct fault *fault);
/* The library's last error as a fault. */
int tensorctl_library_fault(struct fault *fault);

/* ---- command_line.c ---- */

enum { COMMAND_USAGE_EXIT = 2 };

/* Reads the command line into *ctl. -1: run the command; otherwise the exit status, and the help or the error was printed. */
int command_line_read(struct tensorctl *ctl, int argc, char **argv, const struct command *commands, size_t n_commands);
