/* tensorctl's commands: what the command line has said, and what each of them does with it. One thread. */
#pragma once

#include "client/control.h"
#include "client/tensorctl.h"
#include "client/tensorctl_device.h"
#include "client/top.h"

struct command;

struct tensorctl {
    struct control *control;
    const struct command *command;
    const char *url;
    bool json, replace;
    double watch_s;     /* 0: once */
    const char *reason; /* kill */
    struct top_options top;
    double seconds;     /* trace */
    const char *output; /* the same */
    const char **words; /* behind the command */
    int n_words;
    const char *top_only, *trace_only; /* an option that was given, and is for these */
};

struct command {
    const char *name;
    int (*run)(struct tensorctl *ctl, struct fault *fault);
    enum tensorctl_view view;
    bool json, watch, replace; /* options it takes */
    unsigned timeout_ms;
    int (*device)(const struct tensorctl_device *about, struct fault *fault); /* instead of `run` */
    int words_min, words_max;                                                 /* behind it */
    const char *missing;
};

/* command_view.c */
int command_view(struct tensorctl *ctl, struct fault *fault);
int command_operations(struct tensorctl *ctl, struct fault *fault);
/* What was printed has gone out; else STATUS_INTERNAL. */
int command_flushed(struct fault *fault);

/* command.c */
int command_ping(struct tensorctl *ctl, struct fault *fault);
int command_drain(struct tensorctl *ctl, struct fault *fault);
int command_kill(struct tensorctl *ctl, struct fault *fault);
int command_top(struct tensorctl *ctl, struct fault *fault);
int command_trace(struct tensorctl *ctl, struct fault *fault);
