/* tensorctl: asks a running daemon how it is, and tells it to stop. It talks to the front alone, so that it is answered
 * while a device is busy or hung; what is about named tensors (tensorctl_device.h) talks to their device. */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/control.h"
#include "client/secure.h"
#include "client/tensorctl.h"
#include "client/tensorctl_device.h"
#include "client/top.h"
#include "proto/frame.h"
#include "proto/status_json.h"

enum { EXIT_USAGE = 2, PINGS = 5, DRAIN_TIMEOUT_MS = 24 * 3600 * 1000 };

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

/* ---- status, devices, sessions ---- */

static int tensorctl_fetch(struct tensorctl *ctl, Tensord__Status **status, struct fault *fault) {
    Tensord__GetStatus request = TENSORD__GET_STATUS__INIT;
    return control_call(ctl->control, FRAME_GET_STATUS, &request.base, FRAME_STATUS, (ProtobufCMessage **)status,
                        fault);
}

static int tensorctl_flushed(struct fault *fault) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return fault_set(fault, STATUS_INTERNAL, "cannot write the output: %s", strerror(errno));
}

static int tensorctl_show(struct tensorctl *ctl, struct fault *fault) {
    Tensord__Status *status;
    int error = tensorctl_fetch(ctl, &status, fault);
    if (error)
        return error;
    if (ctl->json)
        tensorctl_json_write(stdout, status, ctl->command->view, true);
    else
        tensorctl_status_write(stdout, status, ctl->command->view);
    tensord__status__free_unpacked(status, NULL);
    return tensorctl_flushed(fault);
}

/* ---- status --watch ---- */

/* The alternate screen without cursor and without wrapping, and back. */
static const char watch_enter[] = "\033[?1049h\033[?25l\033[?7l", watch_leave[] = "\033[?7h\033[?25h\033[?1049l";

static void watch_end(int signal) {
    ssize_t ignored = write(STDOUT_FILENO, watch_leave, sizeof watch_leave - 1);
    (void)ignored;
    _exit(signal == SIGINT ? EXIT_SUCCESS : 128 + signal);
}

static void watch_begin(void) {
    struct sigaction action = {.sa_handler = watch_end};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGQUIT, &action, NULL);
    fputs(watch_enter, stdout);
}

/* Draws over what is there, line by line, so that nothing flickers; what the terminal has no lines for is left out. */
static void watch_draw(const char *text) {
    struct winsize size;
    int rows = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 ? size.ws_row - 1 : 24;

    fputs("\033[H", stdout);
    for (const char *end; rows > 0 && (end = strchr(text, '\n')); text = end + 1, --rows)
        printf("%.*s\033[K\n", (int)(end - text), text);
    fputs("\033[J", stdout);
}

static int watch_once(struct tensorctl *ctl, bool terminal, struct fault *fault) {
    Tensord__Status *status;
    char *text = NULL;
    size_t size;
    int error = tensorctl_fetch(ctl, &status, fault);
    if (error)
        return error;
    FILE *memory = open_memstream(&text, &size);
    if (memory && ctl->json)
        tensorctl_json_write(memory, status, TENSORCTL_STATUS, false);
    else if (memory)
        tensorctl_status_write(memory, status, TENSORCTL_STATUS);
    tensord__status__free_unpacked(status, NULL);
    if (!memory || fclose(memory) != 0)
        error = fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the text");
    else if (terminal)
        watch_draw(text);
    else
        printf("%s%s", text, ctl->json ? "" : "\n");
    free(text);
    return error ? error : tensorctl_flushed(fault);
}

static int tensorctl_watch(struct tensorctl *ctl, struct fault *fault) {
    struct timespec pause = {(time_t)ctl->watch_s, (long)(fmod(ctl->watch_s, 1) * 1e9)};
    bool terminal = isatty(STDOUT_FILENO) && !ctl->json;
    int error;

    if (terminal)
        watch_begin();
    while (!(error = watch_once(ctl, terminal, fault)))
        nanosleep(&pause, NULL);
    if (terminal) {
        fputs(watch_leave, stdout);
        fflush(stdout);
    }
    return error;
}

static int command_view(struct tensorctl *ctl, struct fault *fault) {
    return ctl->watch_s > 0 ? tensorctl_watch(ctl, fault) : tensorctl_show(ctl, fault);
}

static int command_operations(struct tensorctl *ctl, struct fault *fault) {
    Tensord__ListOperations request = TENSORD__LIST_OPERATIONS__INIT;
    Tensord__OperationList *list;
    int error = control_call(ctl->control, FRAME_LIST_OPERATIONS, &request.base, FRAME_OPERATION_LIST,
                             (ProtobufCMessage **)&list, fault);
    if (error)
        return error;
    if (ctl->json)
        status_json_write_operations(stdout, list);
    else
        tensorctl_operations_write(stdout, list);
    tensord__operation_list__free_unpacked(list, NULL);
    return tensorctl_flushed(fault);
}

/* ---- ping and drain ---- */

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int command_ping(struct tensorctl *ctl, struct fault *fault) {
    Tensord__Ping request = TENSORD__PING__INIT;
    ProtobufCMessage *reply;
    double times[PINGS];
    char text[TEXT_UNIT_MAX], median[TEXT_UNIT_MAX];

    for (int i = 0; i < PINGS; ++i) {
        double start = seconds_now();
        int error = control_call(ctl->control, FRAME_PING, &request.base, FRAME_PONG, &reply, fault);
        if (error)
            return error;
        times[i] = seconds_now() - start;
        protobuf_c_message_free_unpacked(reply, NULL);
        text_line(stdout, "%s: %d: %s", control_server(ctl->control), i + 1, text_duration(text, times[i]));
    }
    qsort(times, PINGS, sizeof *times, compare_doubles);
    text_line(stdout, "min %s, median %s", text_duration(text, times[0]), text_duration(median, times[PINGS / 2]));
    return tensorctl_flushed(fault);
}

static int command_drain(struct tensorctl *ctl, struct fault *fault) {
    Tensord__Drain request = TENSORD__DRAIN__INIT;
    Tensord__Done *done;
    int error = control_call(ctl->control, FRAME_DRAIN, &request.base, FRAME_DONE, (ProtobufCMessage **)&done, fault);
    if (error)
        return error;
    if (done->error)
        error = fault_set(fault, (enum status)done->error->code, "%s", done->error->message);
    tensord__done__free_unpacked(done, NULL);
    return error;
}

static int command_kill(struct tensorctl *ctl, struct fault *fault) {
    char *end;
    errno = 0;
    uint64_t session = strtoull(ctl->words[0], &end, 10);
    if (*end || errno || !strchr("0123456789", *ctl->words[0]))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a session is a number, as status shows it, not %.80s",
                         ctl->words[0]);
    return tensorctl_kill(ctl->control, session, ctl->reason ? ctl->reason : "", fault);
}

static int command_top(struct tensorctl *ctl, struct fault *fault) {
    struct control *control = ctl->control;
    if (ctl->top.count && !ctl->top.batch)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "--count is for --batch");
    ctl->top.url = ctl->url;
    ctl->control = NULL;
    return top_run(control, &ctl->top, fault);
}

static int command_trace(struct tensorctl *ctl, struct fault *fault) {
    return tensorctl_trace(ctl->control, ctl->url, ctl->seconds, ctl->output, ctl->words, ctl->n_words, fault);
}

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
