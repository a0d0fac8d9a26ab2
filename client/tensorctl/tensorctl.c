/* tensorctl: shows the state of a running daemon, and tells it what to do. Most commands talk only to the front, which replies
 * even while a device is busy or hung. The commands with `device` open a session on a device. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tensorctl/command.h"

enum { DRAIN_TIMEOUT_MS = 24 * 3600 * 1000 };

static const struct command tensorctl_commands[] = {
    {"status", "", "devices and sessions: memory, work, failures",
     .text = "In a bar of memory, '#' is in tensors, '=' is reserved by the pool, unused,\n"
             "'.' is free.\n",
     .options = COMMAND_TAKES(COMMAND_JSON) | COMMAND_TAKES(COMMAND_WATCH), .run = command_view,
     .view = TENSORCTL_STATUS},
    {"devices", "[DEVICE]...", "what devices there are, and how they do", .options = COMMAND_TAKES(COMMAND_JSON),
     .words_max = INT_MAX, .run = command_view, .view = TENSORCTL_DEVICES},
    {"sessions", "", "who uses them, the largest in memory first", .options = COMMAND_TAKES(COMMAND_JSON),
     .run = command_view, .view = TENSORCTL_SESSIONS},
    {"programs", "", "recorded programs: operations, what is fused, memory, time of a run",
     .text = "Of each session, with the program that was recorded or run last first; at most\n32 of one session, and "
             "256 in all.\n",
     .options = COMMAND_TAKES(COMMAND_JSON), .run = command_view, .view = TENSORCTL_PROGRAMS},
    {"top", "", "devices and sessions on a screen, refreshed; h tells its keys",
     .text = "With --batch, --count is the number of frames.\n",
     .options = COMMAND_TAKES(COMMAND_INTERVAL) | COMMAND_TAKES(COMMAND_BATCH) | COMMAND_TAKES(COMMAND_COUNT),
     .check = command_top_check, .run = command_top, .timeout_ms = TOP_TIMEOUT_MS},
    {"ops", "[NAME]...", "the operations, and which devices have them; or all about one",
     .text = "Without a name: the dtypes that an operation takes, and what devices lack of\n"
             "it. With names: what these operations take, give and mean, as this version\n"
             "knows them; no daemon is asked.\n",
     .options = COMMAND_TAKES(COMMAND_JSON), .words_max = INT_MAX, .local_words = true, .run = command_operations},
    {"trace", "[DEVICE]...", "what ran when, as a file for https://ui.perfetto.dev",
     .text = "Without a device: all that are ready. --seconds is 5 where it is left out.\n",
     .options = COMMAND_TAKES(COMMAND_SECONDS) | COMMAND_TAKES(COMMAND_OUTPUT) | COMMAND_TAKES(COMMAND_SESSION),
     .words_max = INT_MAX, .run = command_trace},
    {"ping", "", "the time that the daemon takes to answer", .text = "--count is 5 where it is left out.\n",
     .options = COMMAND_TAKES(COMMAND_COUNT), .run = command_ping},
    {"bench", "[DEVICE]", "how fast a device is from here: round trip, small operations, bulk, products",
     .text = "Medians, with whatever else runs there meanwhile. --seconds, for each row, is 1\n"
             "where it is left out. Takes 320 MiB of the device.\n",
     .options = COMMAND_TAKES(COMMAND_JSON) | COMMAND_TAKES(COMMAND_SECONDS), .words_max = 1, .device = true,
     .run = tensorctl_bench},
    {"config", "", "the daemon's configuration, and where each value comes from",
     .text = "As a configuration file. Behind each value is its origin (default, flag, or a\n"
             "file), and whether SIGHUP has the daemon read it again.\n",
     .options = COMMAND_TAKES(COMMAND_JSON), .run = command_config},
    {"kill", "ID... | --user NAME", "end sessions: their clients are told, their memory given back",
     .options = COMMAND_TAKES(COMMAND_REASON) | COMMAND_TAKES(COMMAND_USER), .words_max = INT_MAX,
     .check = command_kill_check, .run = command_kill},
    {"drain", "", "have the daemon finish what is queued, and end; waits for that", .run = command_drain,
     .timeout_ms = DRAIN_TIMEOUT_MS},
    {"names", "[rm | mv] [DEVICE] [NAME]...", "named tensors: yours, or with --all everybody's",
     .text = "names [DEVICE]             lists them; without a device those of all devices\n"
             "names rm DEVICE NAME...    removes these; with --all, and no name, all\n"
             "names mv DEVICE NAME NEW   renames one\n"
             "names mv DEVICE NAME... --to USER\n"
             "                           gives these to somebody else; with --all all\n"
             "Names of a user who was removed are nobody's: --all lists them as NAME#ID, which\n"
             "--user takes, too.\n",
     .options = COMMAND_TAKES(COMMAND_JSON) | COMMAND_TAKES(COMMAND_ALL) | COMMAND_TAKES(COMMAND_USER) |
                COMMAND_TAKES(COMMAND_TO),
     .words_max = INT_MAX, .check = command_names_check, .device = true, .run = tensorctl_names},
    {"save", "DEVICE FILE [NAME]...", "writes named tensors, or these, to a safetensors file", .words_min = 2,
     .words_max = INT_MAX, .missing = "which device, to which file?", .device = true, .run = tensorctl_save},
    {"load", "DEVICE FILE", "names the tensors of a safetensors file", .options = COMMAND_TAKES(COMMAND_REPLACE),
     .words_min = 2, .words_max = 2, .missing = "which device, from which file?", .device = true,
     .run = tensorctl_load},
    {"program", "dump FILE", "what is in a recorded program that a client has saved",
     .text = "Its parameters, captured tensors, operations and results, with their types.\n"
             "No daemon is asked. With --dot it can be drawn:\n"
             "  tensorctl program dump FILE --dot | dot -Tsvg >program.svg\n",
     .options = COMMAND_TAKES(COMMAND_DOT), .words_min = 2, .words_max = 2, .missing = "program dump which file?",
     .check = command_program_check, .local_words = true, .run = tensorctl_program},
};

int tensorctl_connect(struct tensorctl *ctl, struct fault *fault) {
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

static void tell(const struct fault *fault, int error) {
    char text[sizeof fault->message * 4];
    text_fit(text, sizeof text, *fault->message ? fault->message : status_text(error), UINT_MAX);
    fprintf(stderr, "tensorctl: %s\n", text);
}

int main(int argc, char **argv) {
    struct tensorctl ctl = {0};
    struct fault fault = {0};
    int code =
        command_line_read(&ctl, argc, argv, tensorctl_commands, sizeof tensorctl_commands / sizeof *tensorctl_commands);
    if (code >= 0)
        return code;
    text_columns_find(STDOUT_FILENO);
    bool local = ctl.command->device || (ctl.command->local_words && ctl.n_words);
    int error = local ? STATUS_OK : tensorctl_connect(&ctl, &fault);
    bool connected = !error && !ctl.command->device;
    if (!error)
        error = ctl.command->run(&ctl, &fault);
    control_close(ctl.control);
    if (error)
        tell(&fault, error);
    char url[CONTROL_URL_MAX];
    if (error == STATUS_CONNECTION && !connected && !control_url(ctl.url, url, NULL))
        tensorctl_advice_write(stderr, url, "");
    return error ? EXIT_FAILURE : EXIT_SUCCESS;
}
