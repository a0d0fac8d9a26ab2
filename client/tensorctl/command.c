/* Commands that ask the front or tell it something: ping, drain, kill, config; and top and trace. */
#include "client/tensorctl/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/files/json.h"
#include "proto/ops/utf8.h"
#include "proto/wire/frame.h"

enum {
    PINGS = 5,
    KILL_PAUSE_MS = 50,   /* between looks at a status that shows no other sessions yet */
    KILL_WAIT_MS = 10000, /* for these */
};

double command_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int command_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double command_median(const double *sorted, size_t n) {
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static int ping_once(struct tensorctl *ctl, double *seconds, struct fault *fault) {
    Tensord__Ping request = TENSORD__PING__INIT;
    ProtobufCMessage *reply;
    double start = command_now();
    int error = control_call(ctl->control, FRAME_PING, &request.base, FRAME_PONG, &reply, fault);
    if (error)
        return error;
    *seconds = command_now() - start;
    protobuf_c_message_free_unpacked(reply, NULL);
    return STATUS_OK;
}

int command_ping(struct tensorctl *ctl, struct fault *fault) {
    unsigned long count = ctl->count ? ctl->count : PINGS;
    char text[TEXT_UNIT_MAX], median[TEXT_UNIT_MAX];
    double *times = count <= SIZE_MAX / sizeof *times ? malloc(count * sizeof *times) : NULL;
    int error = times ? STATUS_OK : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %lu times", count);

    for (unsigned long i = 0; i < count && !error; ++i) {
        error = ping_once(ctl, &times[i], fault);
        if (!error) {
            text_line(stdout, "%s: %lu: %s", control_server(ctl->control), i + 1, text_duration(text, times[i]));
            error = command_flushed(fault);
        }
    }
    if (!error) {
        qsort(times, count, sizeof *times, command_compare);
        text_line(stdout, "min %s, median %s", text_duration(text, times[0]),
                  text_duration(median, command_median(times, count)));
    }
    free(times);
    return error ? error : command_flushed(fault);
}

int command_drain(struct tensorctl *ctl, struct fault *fault) {
    Tensord__Drain request = TENSORD__DRAIN__INIT;
    ProtobufCMessage *done;
    int error = control_call(ctl->control, FRAME_DRAIN, &request.base, FRAME_DONE, &done, fault);
    if (!error)
        protobuf_c_message_free_unpacked(done, NULL);
    return error;
}

/* ---- kill ---- */

static bool session_parse(const char *text, uint64_t *session) {
    char *end;
    errno = 0;
    *session = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

const char *command_kill_check(const struct tensorctl *ctl) {
    uint64_t session;
    if (ctl->user)
        return ctl->n_words ? "either sessions or --user, not both" : NULL;
    for (int i = 0; i < ctl->n_words; i++)
        if (!session_parse(ctl->words[i], &session))
            return "a session is a number, as status shows it";
    return ctl->n_words ? NULL : "which session? the number of a session is missing (or --user NAME)";
}

/* The sessions of a user that are gone: the figures show them for some time yet. */
struct gone {
    uint64_t *sessions; /* sorted, but for those that are being added */
    size_t n, ended;    /* `ended`: by this command, not by themselves */
};

static int gone_compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Ends the user's sessions that the status has. A session that ends by itself meanwhile is no failure. */
static int kill_shown(struct tensorctl *ctl, const Tensord__Status *status, const char *reason, struct gone *gone,
                      struct fault *fault) {
    size_t before = gone->n;
    struct fault one;
    int error = STATUS_OK;
    uint64_t *grown = realloc(gone->sessions, (gone->n + status->n_sessions + 1) * sizeof *grown);
    if (!grown)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a list of sessions");
    gone->sessions = grown;
    for (size_t i = 0; i < status->n_sessions && !error; i++) {
        uint64_t session = status->sessions[i]->id;
        if (strcmp(status->sessions[i]->principal, ctl->user) != 0 ||
            bsearch(&session, gone->sessions, before, sizeof session, gone_compare))
            continue;
        error = control_kill(ctl->control, session, reason, &one);
        gone->ended += error == STATUS_OK;
        if (error == STATUS_INVALID_ARGUMENT)
            error = STATUS_OK;
        if (error)
            *fault = one;
        else
            gone->sessions[gone->n++] = session;
    }
    qsort(gone->sessions, gone->n, sizeof *gone->sessions, gone_compare);
    return error;
}

/* Says who has sessions, because the name may be mistyped. */
static int kill_nobody(const char *user, const Tensord__Status *status, struct fault *fault) {
    char users[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < status->n_principals && used < sizeof users; i++)
        if (status->principals[i]->sessions)
            used += (size_t)snprintf(users + used, sizeof users - used, "%s%s", used ? ", " : "",
                                     status->principals[i]->name);
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.64s has no session; %s%s", user,
                     used ? "who has: " : "nobody has", users);
}

/* One look at the status, and as many more as it had no room for all of the user's sessions. */
static int kill_look(struct tensorctl *ctl, const char *reason, struct gone *gone, struct fault *fault) {
    const struct timespec pause = {0, KILL_PAUSE_MS * 1000000};
    int64_t deadline_ms = control_now_ms() + KILL_WAIT_MS;
    for (bool more = true; more;) {
        Tensord__Status *status;
        size_t before = gone->n;
        int error = control_status_of(ctl->control, ctl->user, &status, fault);
        if (error)
            return error;
        more = status->sessions_left_out > 0;
        error = kill_shown(ctl, status, reason, gone, fault);
        if (!error && !more && !gone->n)
            error = kill_nobody(ctl->user, status, fault);
        if (!error && more && gone->n == before && control_now_ms() > deadline_ms)
            error =
                fault_set(fault, STATUS_TIMED_OUT, "the daemon still has %u sessions for which its status has no room",
                          status->sessions_left_out);
        tensord__status__free_unpacked(status, NULL);
        if (error)
            return error;
        if (gone->n > before)
            deadline_ms = control_now_ms() + KILL_WAIT_MS;
        else if (more)
            nanosleep(&pause, NULL); /* until the figures have changed */
    }
    return STATUS_OK;
}

static int kill_user(struct tensorctl *ctl, const char *reason, struct fault *fault) {
    struct gone gone = {0};
    int error = kill_look(ctl, reason, &gone, fault);
    free(gone.sessions);
    if (gone.ended || !error) {
        char shown[256]; /* a client may have chosen the name, and a shell passed it on */
        utf8_clean(shown, sizeof shown, ctl->user);
        printf("%zu session%s of %s ended\n", gone.ended, gone.ended == 1 ? "" : "s", shown);
    }
    return error ? error : command_flushed(fault);
}

/* Tries to end each session; returns the first failure. */
int command_kill(struct tensorctl *ctl, struct fault *fault) {
    const char *reason = ctl->reason ? ctl->reason : "";
    int first = STATUS_OK;
    if (ctl->user)
        return kill_user(ctl, reason, fault);
    for (int i = 0; i < ctl->n_words; i++) {
        struct fault one;
        uint64_t session;
        session_parse(ctl->words[i], &session);
        int error = control_kill(ctl->control, session, reason, &one);
        if (error && !first) {
            first = error;
            *fault = one;
        }
        if (error == STATUS_CONNECTION || error == STATUS_TIMED_OUT)
            break;
    }
    return first;
}

const char *command_top_check(const struct tensorctl *ctl) {
    return ctl->count && !ctl->batch ? "--count is for --batch" : NULL;
}

int command_top(struct tensorctl *ctl, struct fault *fault) {
    struct control *control = ctl->control;
    const struct top_options options = {.url = ctl->url,
                                        .interval_s = ctl->interval_s > 0 ? ctl->interval_s : 1,
                                        .batch = ctl->batch,
                                        .count = ctl->count};
    ctl->control = NULL;
    return top_run(control, &options, fault);
}

/* A session that a status has no room for may be there all the same. */
static int trace_check_session(struct tensorctl *ctl, struct fault *fault) {
    Tensord__Status *status;
    int error = control_status(ctl->control, &status, fault);
    if (error)
        return error;
    const Tensord__SessionStatus *session = NULL;
    for (size_t i = 0; i < status->n_sessions && !session; i++)
        if (status->sessions[i]->id == ctl->session)
            session = status->sessions[i];
    bool named = !ctl->n_words;
    for (int i = 0; session && i < ctl->n_words; i++)
        named = named || !strcmp(ctl->words[i], session->device);
    if (!session && !status->sessions_left_out)
        error = fault_set(fault, STATUS_INVALID_ARGUMENT, "there is no session %llu (it may just have ended)",
                          (unsigned long long)ctl->session);
    else if (session && !named)
        error = fault_set(fault, STATUS_INVALID_ARGUMENT, "session %llu is on %.64s, of which no trace is asked for",
                          (unsigned long long)ctl->session, session->device);
    tensord__status__free_unpacked(status, NULL);
    return error;
}

int command_trace(struct tensorctl *ctl, struct fault *fault) {
    const struct trace_wish wish = {
        .seconds = ctl->seconds > 0 ? ctl->seconds : 5,
        .session = ctl->session,
        .path = ctl->output ? ctl->output : "trace.json",
    };
    int error = ctl->session ? trace_check_session(ctl, fault) : STATUS_OK;
    if (error)
        return error;
    return tensorctl_trace(ctl->control, ctl->url, &wish, ctl->words, ctl->n_words, fault);
}

/* ---- config ---- */

static void config_write_json(FILE *out, const Tensord__Config *config) {
    struct json json = {.out = out, .pretty = true, .first = true};
    json_open(&json, NULL, '{');
    json_open(&json, "config", '[');
    for (size_t i = 0; i < config->n_rows; i++) {
        json_open(&json, NULL, '{');
        json_text(&json, "key", config->rows[i]->key);
        json_text(&json, "value", config->rows[i]->value);
        json_text(&json, "origin", config->rows[i]->origin);
        json_bool(&json, "reloadable", config->rows[i]->reloadable);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    fputc('\n', out);
}

/* In the form of a configuration file, so that it can be used as one: keys without a value are comments. */
static void config_write(FILE *out, const Tensord__Config *config) {
    char value[4 * TABLE_CELL_MAX];
    for (size_t i = 0; i < config->n_rows; i++) {
        const Tensord__ConfigRow *row = config->rows[i];
        text_fit(value, sizeof value, row->value, UINT32_MAX);
        int width = fprintf(out, "%s%s = %s", *value ? "" : "# ", row->key, value);
        fprintf(out, "%*s; %s%s\n", width < 40 ? 40 - width : 1, "", row->origin, row->reloadable ? ", SIGHUP" : "");
    }
}

int command_config(struct tensorctl *ctl, struct fault *fault) {
    Tensord__GetConfig request = TENSORD__GET_CONFIG__INIT;
    Tensord__Config *config;
    int error =
        control_call(ctl->control, FRAME_GET_CONFIG, &request.base, FRAME_CONFIG, (ProtobufCMessage **)&config, fault);
    if (error)
        return error;
    if (ctl->json)
        config_write_json(stdout, config);
    else
        config_write(stdout, config);
    tensord__config__free_unpacked(config, NULL);
    return command_flushed(fault);
}
