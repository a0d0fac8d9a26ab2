/* tensorctl: asks a running daemon how it is, and tells it to stop. It talks to the front alone, so that it is answered
 * while a device is busy or hung; what is about named tensors (tensorctl_device.h) talks to their device. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/command.h"
#include "client/secure.h"

enum { EXIT_USAGE = 2, DRAIN_TIMEOUT_MS = 24 * 3600 * 1000 };

static const char tensorctl_usage[] =
    "usage: tensorctl [--url URL] COMMAND [OPTION]...\n"
    "\n"
    "  status    devices and sessions: memory, work, failures\n"
    "  devices   what devices there are, and how they do\n"
    "  ops       the operations, and which devices have them\n"
    "  sessions  who uses them, the largest in memory first\n"
    "  ping      the time that the daemon takes to answer\n"
    "  drain     have the daemon finish what is queued, take nothing new, and end;\n"
    "            waits for that\n"
    "  top       devices and sessions on a screen, refreshed; h tells its keys\n"
    "  trace     what ran when, as a file for https://ui.perfetto.dev; devices may be\n"
    "            named: trace --seconds 5 -o trace.json cpu:0\n"
    "  kill ID   end a session: its client is told, its memory given back\n"
    "  names [DEVICE]               your named tensors there\n"
    "  save DEVICE FILE [NAME]...   writes them (or these) to a safetensors file\n"
    "  load DEVICE FILE             names the tensors of such a file\n"
    "\n"
    "  --url URL      unix:/path, tcp://host:port or tls://host:port;\n"
    "                 else $TENSORD_URL; else the default socket\n"
    "  --json         status, devices, ops, sessions, names: JSON, not text\n"
    "  --replace      load: instead of tensors that have these names\n"
    "  --watch [S]    status: again every S seconds (1), in place on a terminal,\n"
    "                 one after another elsewhere; Ctrl-C ends it\n"
    "  --reason TEXT  kill: for the session's client and the log\n"
    "  --seconds S    trace: for so long (5)\n"
    "  -o FILE, --output FILE  trace: where to (trace.json)\n"
    "  --interval S   top: between refreshes (1)\n"
    "  --batch        top: plain text, a frame after the other\n"
    "  --count N      top --batch: so many frames\n"
    "  --help, --version\n"
    "\n"
    "A daemon that wants a token gets $TENSORD_TOKEN, or else what stands in the\n"
    "file $TENSORD_TOKEN_FILE.\n"
    "tls:// takes PEM files from $TENSORD_CA_FILE (whom to trust; else the\n"
    "system's), $TENSORD_CERT_FILE and $TENSORD_KEY_FILE.\n"
    "\n"
    "ops shows the dtypes that an operation's last input may have (take: its\n"
    "indices), or its result's where it has no input.\n"
    "\n"
    "In a bar of memory, '#' is in tensors, '=' is kept by the pool besides, '.' is\n"
    "free. Exit status: 0 success, 1 failure, 2 wrong usage.\n";

/* ---- commands ---- */

static const struct command tensorctl_commands[] = {
    {"status", command_view, TENSORCTL_STATUS, .json = true, .watch = true},
    {"devices", command_view, TENSORCTL_DEVICES, .json = true},
    {"ops", command_operations, .json = true},
    {"sessions", command_view, TENSORCTL_SESSIONS, .json = true},
    {"ping", command_ping},
    {"drain", command_drain, .timeout_ms = DRAIN_TIMEOUT_MS},
    {"names", .device = tensorctl_names, .json = true, .words_max = 1},
    {"save", .device = tensorctl_save, .words_min = 2, .words_max = INT_MAX, .missing = "which device, to which file?"},
    {"load", .device = tensorctl_load, .replace = true, .words_min = 2, .words_max = 2,
     .missing = "which device, from which file?"},
    {"top", command_top, .timeout_ms = TOP_TIMEOUT_MS},
    {"trace", command_trace, .words_max = INT_MAX},
    {"kill", command_kill, .words_min = 1, .words_max = 1,
     .missing = "which session? the number of a session is missing"},
};

/* ---- the command line ---- */

static int usage_error(const char *problem, const char *word) {
    fprintf(stderr, "tensorctl: %s%s%s\nTry 'tensorctl --help'.\n", problem, word ? ": " : "", word ? word : "");
    return EXIT_USAGE;
}

static const struct command *command_find(const char *name) {
    for (size_t i = 0; i < sizeof tensorctl_commands / sizeof *tensorctl_commands; ++i)
        if (strcmp(tensorctl_commands[i].name, name) == 0)
            return &tensorctl_commands[i];
    return NULL;
}

static bool seconds_parse(const char *text, double *seconds) {
    char *end;
    if (!*text)
        return false;
    double value = strtod(text, &end);
    if (*end || !(value >= 0.05 && value <= 86400))
        return false;
    *seconds = value;
    return true;
}

static bool count_parse(const char *text, unsigned long *count) {
    char *end;
    errno = 0;
    *count = strtoul(text, &end, 10);
    return strchr("0123456789", *text) && *count && !*end && !errno;
}

enum {
    OPTION_URL = 1,
    OPTION_JSON,
    OPTION_WATCH,
    OPTION_REASON,
    OPTION_SECONDS,
    OPTION_OUTPUT,
    OPTION_INTERVAL,
    OPTION_BATCH,
    OPTION_COUNT,
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_REPLACE
};

/* 0: go on. -1: nothing is left to do. Else the exit status. */
static int option_take(struct tensorctl *ctl, int option, char **argv) {
    switch (option) {
    case OPTION_URL:
        ctl->url = optarg;
        return 0;
    case OPTION_JSON:
        ctl->json = true;
        return 0;
    case OPTION_REPLACE:
        ctl->replace = true;
        return 0;
    case OPTION_WATCH:
        ctl->watch_s = 1;
        if (!optarg && argv[optind] && strchr("0123456789.", argv[optind][0])) /* "--watch 2", too */
            optarg = argv[optind++];
        if (optarg && !seconds_parse(optarg, &ctl->watch_s))
            return usage_error("--watch takes 0.05 to 86400 seconds, not", optarg);
        return 0;
    case OPTION_REASON:
        ctl->reason = optarg;
        return 0;
    case OPTION_SECONDS:
        if (!seconds_parse(optarg, &ctl->seconds) || ctl->seconds > 3600)
            return usage_error("--seconds takes 0.05 to 3600, not", optarg);
        ctl->trace_only = "--seconds";
        return 0;
    case 'o':
    case OPTION_OUTPUT:
        ctl->output = optarg;
        ctl->trace_only = "--output";
        return 0;
    case OPTION_INTERVAL:
        if (!seconds_parse(optarg, &ctl->top.interval_s))
            return usage_error("--interval takes 0.05 to 86400 seconds, not", optarg);
        ctl->top_only = "--interval";
        return 0;
    case OPTION_BATCH:
        ctl->top.batch = true;
        ctl->top_only = "--batch";
        return 0;
    case OPTION_COUNT:
        if (!count_parse(optarg, &ctl->top.count))
            return usage_error("--count takes a number of frames, not", optarg);
        ctl->top_only = "--count";
        return 0;
    case OPTION_HELP:
        fputs(tensorctl_usage, stdout);
        return -1;
    case OPTION_VERSION:
        puts("tensorctl " TENSORD_VERSION);
        return -1;
    default: /* getopt has said what is wrong */
        fputs("Try 'tensorctl --help'.\n", stderr);
        return EXIT_USAGE;
    }
}

static int command_take(struct tensorctl *ctl, int count, char **words) {
    if (count == 0)
        return usage_error(
            "which command? status, devices, ops, sessions, ping, drain, top, trace, kill, names, save or load", NULL);
    ctl->command = command_find(words[0]);
    if (!ctl->command)
        return usage_error("there is no command", words[0]);
    if (count - 1 > ctl->command->words_max)
        return usage_error("too many arguments", words[1 + ctl->command->words_max]);
    if (count - 1 < ctl->command->words_min)
        return usage_error(ctl->command->missing, NULL);
    ctl->words = (const char **)words + 1;
    ctl->n_words = count - 1;
    if (ctl->trace_only && ctl->command->run != command_trace)
        return usage_error("this option is for trace", ctl->trace_only);
    if (ctl->top_only && ctl->command->run != command_top)
        return usage_error("this option is for top", ctl->top_only);
    if (ctl->reason && ctl->command->run != command_kill)
        return usage_error("--reason is not for", ctl->command->name);
    if (ctl->json && !ctl->command->json)
        return usage_error("--json is not for", ctl->command->name);
    if (ctl->watch_s > 0 && !ctl->command->watch)
        return usage_error("--watch is not for", ctl->command->name);
    if (ctl->replace && !ctl->command->replace)
        return usage_error("--replace is not for", ctl->command->name);
    return 0;
}

static int options_parse(struct tensorctl *ctl, int argc, char **argv) {
    static const struct option options[] = {{"url", required_argument, NULL, OPTION_URL},
                                            {"json", no_argument, NULL, OPTION_JSON},
                                            {"watch", optional_argument, NULL, OPTION_WATCH},
                                            {"help", no_argument, NULL, OPTION_HELP},
                                            {"version", no_argument, NULL, OPTION_VERSION},
                                            {"reason", required_argument, NULL, OPTION_REASON},
                                            {"seconds", required_argument, NULL, OPTION_SECONDS},
                                            {"output", required_argument, NULL, OPTION_OUTPUT},
                                            {"interval", required_argument, NULL, OPTION_INTERVAL},
                                            {"batch", no_argument, NULL, OPTION_BATCH},
                                            {"count", required_argument, NULL, OPTION_COUNT},
                                            {"replace", no_argument, NULL, OPTION_REPLACE},
                                            {0}};
    for (int option; (option = getopt_long(argc, argv, "o:", options, NULL)) != -1;) {
        int code = option_take(ctl, option, argv);
        if (code)
            return code;
    }
    return command_take(ctl, argc - optind, argv + optind);
}

static int failed(int error, const struct fault *fault) {
    fprintf(stderr, "tensorctl: %s\n", *fault->message ? fault->message : status_text(error));
    return EXIT_FAILURE;
}

static void tell_how_to_start(const char *url) {
    char text[CONTROL_URL_MAX];
    if (!control_url(url, text, NULL))
        fprintf(stderr, "To start a daemon there: tensord --listen %s\n", text);
}

static int tensorctl_connect(struct tensorctl *ctl, struct fault *fault) {
    char url[CONTROL_URL_MAX];
    struct tls_context *tls = NULL;
    int error = control_url(ctl->url, url, fault);
    if (!error)
        error = secure_create(url, &(struct secure_files){NULL}, &tls, fault);
    if (!error)
        error =
            control_open(url, tls, ctl->command->timeout_ms, "tensorctl " TENSORD_VERSION, NULL, &ctl->control, fault);
    tls_context_release(tls);
    return error;
}

static int device_command(const struct tensorctl *ctl) {
    struct tensorctl_device about = {
        .url = ctl->url, .device = ctl->words[0], .json = ctl->json, .replace = ctl->replace};
    struct fault fault = {0};
    if (ctl->n_words > 1) {
        about.file = ctl->words[1];
        about.names = ctl->words + 2;
        about.n_names = ctl->n_words - 2;
    }
    int error = ctl->command->device(&about, &fault);
    if (error)
        failed(error, &fault);
    if (error == STATUS_CONNECTION)
        tell_how_to_start(ctl->url);
    return error ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    struct tensorctl ctl = {.top.interval_s = 1, .seconds = 5, .output = "trace.json"};
    struct fault fault = {0};
    int code = options_parse(&ctl, argc, argv);
    if (code)
        return code < 0 ? EXIT_SUCCESS : code;

    if (ctl.command->device)
        return device_command(&ctl);
    int error = tensorctl_connect(&ctl, &fault);
    if (error) {
        failed(error, &fault);
        if (error == STATUS_CONNECTION)
            tell_how_to_start(ctl.url);
        return EXIT_FAILURE;
    }
    error = ctl.command->run(&ctl, &fault);
    control_close(ctl.control);
    return error ? failed(error, &fault) : EXIT_SUCCESS;
}
