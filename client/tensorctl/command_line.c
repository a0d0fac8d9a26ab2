/* The command line. There is one table of options and one of commands: they say which options a command takes, what --help
 * prints, and what is refused. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensorctl/command.h"
#include "proto/ops/utf8.h"

/* ---- values ---- */

static bool take_json(struct tensorctl *ctl, const char *value) {
    (void)value;
    return ctl->json = true;
}

static bool take_replace(struct tensorctl *ctl, const char *value) {
    (void)value;
    return ctl->replace = true;
}

static bool take_batch(struct tensorctl *ctl, const char *value) {
    (void)value;
    return ctl->batch = true;
}

static bool take_dot(struct tensorctl *ctl, const char *value) {
    (void)value;
    return ctl->dot = true;
}

static bool take_reason(struct tensorctl *ctl, const char *value) {
    ctl->reason = value;
    return true;
}

static bool take_user(struct tensorctl *ctl, const char *value) {
    ctl->user = value;
    return *value;
}

static bool take_all(struct tensorctl *ctl, const char *value) {
    (void)value;
    return ctl->all = true;
}

static bool take_to(struct tensorctl *ctl, const char *value) {
    ctl->to = value;
    return *value;
}

static bool take_output(struct tensorctl *ctl, const char *value) {
    ctl->output = value;
    return *value;
}

static bool seconds_parse(const char *text, double most, double *seconds) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0.05 && value <= most))
        return false;
    *seconds = value;
    return true;
}

static bool take_watch(struct tensorctl *ctl, const char *value) {
    ctl->watch_s = 1;
    return !value || seconds_parse(value, 86400, &ctl->watch_s);
}

static bool take_interval(struct tensorctl *ctl, const char *value) {
    return seconds_parse(value, 86400, &ctl->interval_s);
}

static bool take_seconds(struct tensorctl *ctl, const char *value) {
    return seconds_parse(value, 3600, &ctl->seconds);
}

static bool take_count(struct tensorctl *ctl, const char *value) {
    char *end;
    errno = 0;
    ctl->count = strtoul(value, &end, 10);
    return *value >= '0' && *value <= '9' && ctl->count && !*end && !errno;
}

static bool take_session(struct tensorctl *ctl, const char *value) {
    char *end;
    errno = 0;
    ctl->session = strtoull(value, &end, 10);
    return *value >= '0' && *value <= '9' && ctl->session && !*end && !errno;
}

/* ---- the table ---- */

static const struct option_row {
    const char *name;
    int letter;                                             /* 0: none */
    int argument;                                           /* as in struct option of getopt_long() */
    const char *shown;                                      /* the argument's name in help */
    bool (*take)(struct tensorctl *ctl, const char *value); /* false: the value is wrong */
    const char *takes;                                      /* says which values are right */
    const char *help;
} option_rows[COMMAND_OPTIONS] = {
    [COMMAND_JSON] = {"json", 0, no_argument, "", take_json, NULL, "JSON, not text"},
    [COMMAND_WATCH] =
        {"watch", 0, optional_argument, " [S]", take_watch, "0.05 to 86400 seconds",
         "again every S seconds (1), in place on a terminal,\none after another elsewhere; Ctrl-C ends it"},
    [COMMAND_REASON] = {"reason", 0, required_argument, " TEXT", take_reason, NULL,
                        "for the session's client and the log"},
    [COMMAND_USER] = {"user", 0, required_argument, " NAME", take_user, "the name of a user, as status shows it",
                      "of this user alone, by the name that status shows"},
    [COMMAND_SECONDS] = {"seconds", 0, required_argument, " S", take_seconds, "0.05 to 3600", "for so long"},
    [COMMAND_OUTPUT] = {"output", 'o', required_argument, " FILE", take_output, "a file, or - for standard output",
                        "where to (trace.json); - is standard output"},
    [COMMAND_INTERVAL] = {"interval", 0, required_argument, " S", take_interval, "0.05 to 86400 seconds",
                          "seconds between refreshes (1)"},
    [COMMAND_BATCH] = {"batch", 0, no_argument, "", take_batch, NULL, "plain text, a frame after the other"},
    [COMMAND_COUNT] = {"count", 0, required_argument, " N", take_count, "a number from 1 on", "how many"},
    [COMMAND_REPLACE] = {"replace", 0, no_argument, "", take_replace, NULL, "also names that are taken"},
    [COMMAND_ALL] = {"all", 0, no_argument, "", take_all, NULL, "everybody's, for administrators; rm, mv: all names"},
    [COMMAND_TO] = {"to", 0, required_argument, " NAME", take_to, "the name of a user", "mv: who is to have them"},
    [COMMAND_SESSION] = {"session", 0, required_argument, " N", take_session, "a session's number, as status shows it",
                         "of this session alone"},
    [COMMAND_DOT] = {"dot", 0, no_argument, "", take_dot, NULL, "as a graph in Graphviz's language"},
};

enum { LINE_URL = 256, LINE_VERSION, LINE_FIRST /* + enum command_option */ };

/* ---- help ---- */

static void option_print(const char *head, const char *help) {
    int column = printf("  %s", head);
    for (const char *end;; help = end + 1) {
        end = strchrnul(help, '\n');
        printf("%*s%.*s\n", column < 22 ? 22 - column : 1, "", (int)(end - help), help);
        column = 0;
        if (!*end)
            return;
    }
}

static void help_print(const struct command *commands, size_t n_commands) {
    fputs("usage: tensorctl [--url URL] COMMAND [OPTION]... [ARGUMENT]...\n\n", stdout);
    for (size_t i = 0; i < n_commands; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("  %-10s %s\n\n", "help", "what a command takes: help COMMAND, or COMMAND --help");
    option_print("--url URL",
                 "unix:/path, tcp://host:port or tls://host:port;\nelse $TENSORD_URL; else the default socket");
    option_print("-h, --help", "this; behind a command, what that takes");
    option_print("--version", "the version");
    fputs("\nA daemon that wants a token gets $TENSORD_TOKEN, or else what stands in the\n"
          "file $TENSORD_TOKEN_FILE.\n"
          "tls:// takes PEM files from $TENSORD_CA_FILE (whom to trust; else the\n"
          "system's), $TENSORD_CERT_FILE and $TENSORD_KEY_FILE.\n"
          "Exit status: 0 success, 1 failure, 2 wrong usage.\n",
          stdout);
}

static void help_print_command(const struct command *command) {
    char head[64];
    printf("usage: tensorctl [--url URL] %s%s%s%s\n\n%s\n", command->name, command->options ? " [OPTION]..." : "",
           *command->arguments ? " " : "", command->arguments, command->summary);
    if (command->text)
        printf("\n%s", command->text);
    for (unsigned i = 0, n = 0; i < COMMAND_OPTIONS; i++) {
        const struct option_row *row = &option_rows[i];
        if (!(command->options & COMMAND_TAKES(i)))
            continue;
        if (n++ == 0)
            putchar('\n');
        if (row->letter)
            snprintf(head, sizeof head, "-%c, --%s%s", row->letter, row->name, row->shown);
        else
            snprintf(head, sizeof head, "--%s%s", row->name, row->shown);
        option_print(head, row->help);
    }
}

/* ---- errors ---- */

static int usage_error(const struct command *command, const char *problem, const char *word) {
    char shown[256] = "";
    if (word) /* a client may have chosen it as a name, and a shell passed it on */
        utf8_clean(shown, sizeof shown, word);
    size_t length = strlen(problem);
    bool question = !word && problem[length - 1] == '?' && problem[length - 2] != '-'; /* "unknown option -?" is none */
    fprintf(stderr, "tensorctl: %s%s%s%s tensorctl %s%s--help\n", problem, word ? ": " : "", shown,
            question ? " See" : "; see", command ? command->name : "", command ? " " : "");
    return COMMAND_USAGE_EXIT;
}

static int usage_unknown(const char *word) {
    char shown[256];
    utf8_clean(shown, sizeof shown, word);
    fprintf(stderr, "tensorctl: there is no command %s; see tensorctl --help\n", shown);
    return COMMAND_USAGE_EXIT;
}

static const struct command *command_find(const struct command *commands, size_t n_commands, const char *name) {
    for (size_t i = 0; i < n_commands; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

static int command_check(const struct tensorctl *ctl) {
    const struct command *command = ctl->command;
    char problem[96];
    for (unsigned i = 0; i < COMMAND_OPTIONS; i++)
        if (ctl->given & ~command->options & COMMAND_TAKES(i)) {
            snprintf(problem, sizeof problem, "%s does not take --%s", command->name, option_rows[i].name);
            return usage_error(command, problem, NULL);
        }
    if (ctl->n_words > command->words_max)
        return usage_error(command, "too many arguments", ctl->words[command->words_max]);
    if (ctl->n_words < command->words_min)
        return usage_error(command, command->missing, NULL);
    const char *wrong = command->check ? command->check(ctl) : NULL;
    return wrong ? usage_error(command, wrong, NULL) : -1;
}

/* ---- the command line ---- */

/* Writes what is wrong with the value to `problem`, if something is. */
static void option_take(struct tensorctl *ctl, unsigned option, char **argv, char *problem, size_t size) {
    const struct option_row *row = &option_rows[option];
    const char *value = optarg;
    char shown[128];
    /* "--watch 2" is the same as "--watch=2". */
    if (row->argument == optional_argument && !value && argv[optind] && *argv[optind] &&
        strchr("0123456789.", *argv[optind]))
        value = argv[optind++];
    ctl->given |= COMMAND_TAKES(option);
    if (row->take(ctl, value))
        return;
    utf8_clean(shown, sizeof shown, value && *value ? value : "\"\"");
    snprintf(problem, size, "--%s takes %s, not: %s", row->name, row->takes, shown);
}

/* Says what is wrong with the option at which getopt_long() has stopped; `found` is what it returned. A letter may stand in the
 * middle of a word. The letter h is excluded, because --help has it as its value. */
static void option_problem(char *text, size_t size, const struct option *options, int found, char **argv) {
    bool letter = optopt && optopt < LINE_URL && optopt != 'h';
    const char *word = argv[optind - 1], *name = word + (letter ? 0 : 2);
    size_t length = strcspn(name, "=");
    unsigned alike = 0;
    char shown[128];
    for (const struct option *at = options; !letter && at->name; at++)
        alike += !strncmp(at->name, name, length);
    utf8_clean(shown, sizeof shown, word);
    shown[strcspn(shown, "=")] = 0;
    if (letter)
        snprintf(text, size, found == ':' ? "-%c takes a value" : "unknown option -%c",
                 optopt > ' ' && optopt < 127 ? optopt : '?');
    else if (optopt)
        snprintf(text, size, found == ':' ? "%s takes a value" : "%s takes no value", shown);
    else
        snprintf(text, size, "%s option %s", alike > 1 ? "ambiguous" : "unknown", shown);
}

static int help_of(const char *name, const struct command *commands, size_t n_commands) {
    const struct command *command = name ? command_find(commands, n_commands, name) : NULL;
    if (name && !command && strcmp(name, "help") != 0)
        return usage_unknown(name);
    if (command)
        help_print_command(command);
    else
        help_print(commands, n_commands);
    return EXIT_SUCCESS;
}

int command_line_read(struct tensorctl *ctl, int argc, char **argv, const struct command *commands, size_t n_commands) {
    struct option options[COMMAND_OPTIONS + 4] = {{"url", required_argument, NULL, LINE_URL},
                                                  {"help", no_argument, NULL, 'h'},
                                                  {"version", no_argument, NULL, LINE_VERSION}};
    for (int i = 0; i < COMMAND_OPTIONS; i++)
        options[3 + i] = (struct option){option_rows[i].name, option_rows[i].argument, NULL, LINE_FIRST + i};
    bool help = false;
    char problem[256] = ""; /* the first problem; it is printed when the command is known */
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":ho:", options, NULL)) != -1;) {
        if (option == 'o')
            option = LINE_FIRST + COMMAND_OUTPUT;
        if (*problem) {
            continue;
        } else if (option == 'h') {
            help = true;
        } else if (option == LINE_URL) {
            ctl->url = optarg;
        } else if (option == LINE_VERSION) {
            puts("tensorctl " TENSORD_VERSION);
            return EXIT_SUCCESS;
        } else if (option < LINE_FIRST) {
            option_problem(problem, sizeof problem, options, option, argv);
        } else {
            option_take(ctl, (unsigned)(option - LINE_FIRST), argv, problem, sizeof problem);
        }
    }
    const char *name = argv[optind];
    if (*problem)
        return usage_error(name ? command_find(commands, n_commands, name) : NULL, problem, NULL);
    if (help || (name && !strcmp(name, "help")))
        return help_of(help || !name ? name : argv[optind + 1], commands, n_commands);
    if (name && !strcmp(name, "version")) {
        puts("tensorctl " TENSORD_VERSION);
        return EXIT_SUCCESS;
    }
    if (!name)
        return usage_error(NULL, "which command?", NULL);
    ctl->command = command_find(commands, n_commands, name);
    if (!ctl->command)
        return usage_unknown(name);
    ctl->words = (const char **)argv + optind + 1;
    ctl->n_words = argc - optind - 1;
    return command_check(ctl);
}
