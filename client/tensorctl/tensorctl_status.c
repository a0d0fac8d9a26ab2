/* The status of a daemon for people: sessions, principals, and the whole. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensorctl/tensorctl.h"
#include "proto/files/status_json.h"
#include "proto/ops/status.h"

void tensorctl_head(char *text, size_t size, const Tensord__Status *status) {
    char up[TEXT_UNIT_MAX];
    size_t sessions = status->n_sessions + status->sessions_left_out;
    snprintf(text, size, "%s%s, up %s, %zu device%s, %zu session%s%s",
             strncmp(status->version, "tensord", 7) ? "tensord " : "", status->version,
             text_duration(up, status->uptime_s), status->n_devices, status->n_devices == 1 ? "" : "s", sessions,
             sessions == 1 ? "" : "s", status->draining ? ", draining" : "");
}

/* ---- sessions ---- */

enum session_column {
    SESSION_ID,
    SESSION_USER,
    SESSION_PROGRAM,
    SESSION_PID,
    SESSION_FROM,
    SESSION_DEVICE,
    SESSION_AGE,
    SESSION_SHARE,
    SESSION_RATE,
    SESSION_QUEUED,
    SESSION_DONE,
    SESSION_LIVE,
    SESSION_PEAK,
    SESSION_TENSORS,
    SESSION_COLUMNS
};

/* "gpu7 (10.0.0.7:40212)": the name that a client claims, and its address. */
static void tensorctl_session_from(char *out, size_t size, const Tensord__SessionStatus *session) {
    if (*session->host)
        snprintf(out, size, "%s (%s)", session->host, session->peer);
    else
        snprintf(out, size, "%s", session->peer);
}

static void tensorctl_session_row(struct table *table, size_t row, const Tensord__SessionStatus *session) {
    char text[256], unit[TEXT_UNIT_MAX];

    snprintf(text, sizeof text, "%" PRIu64, session->id);
    table_set(table, row, SESSION_ID, text);
    table_set(table, row, SESSION_USER, session->principal);
    figures_program(session->client, text, sizeof text);
    table_set(table, row, SESSION_PROGRAM, text);
    snprintf(text, sizeof text, "%" PRIu32, session->pid);
    table_set(table, row, SESSION_PID, session->pid ? text : "");
    tensorctl_session_from(text, sizeof text, session);
    table_set(table, row, SESSION_FROM, text);
    table_set(table, row, SESSION_DEVICE, session->device);
    table_set(table, row, SESSION_AGE, text_duration(unit, session->age_s));
    snprintf(text, sizeof text, "%.0f %%", session->device_ratio * 100);
    table_set(table, row, SESSION_SHARE, text);
    table_set(table, row, SESSION_RATE, text_count(unit, session->ops_per_s));
    table_set(table, row, SESSION_QUEUED, text_count(unit, (double)session->ops_queued));
    table_set(table, row, SESSION_DONE, text_count(unit, (double)session->ops_done));
    table_set(table, row, SESSION_LIVE, text_bytes(unit, (double)session->live));
    table_set(table, row, SESSION_PEAK, text_bytes(unit, (double)session->peak));
    table_set(table, row, SESSION_TENSORS, text_count(unit, (double)session->tensors));
}

/* "SHAPE 2, OUT_OF_MEMORY 1; last: matmul forward/logits: shapes do not fit: …" */
static void tensorctl_session_failures(FILE *out, const Tensord__SessionStatus *session) {
    char text[1024], count[TEXT_UNIT_MAX];
    size_t used = 0;

    for (size_t i = 0; i < session->n_failures && used < sizeof text / 2; ++i) {
        const Tensord__FailureCount *failure = session->failures[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", i ? ", " : "",
                                 status_name((int)failure->code), text_count(count, (double)failure->count));
    }
    if (used > 0)
        snprintf(text + used, sizeof text - used, "%s%s", *session->last_failure ? "; last: " : "",
                 session->last_failure);
    if (used > 0)
        text_wrap(out, "    failed: ", text);
}

/* "detached, 41.0 s left; reconnected 2 times" */
static void tensorctl_session_link(FILE *out, const Tensord__SessionStatus *session) {
    char left[TEXT_UNIT_MAX], times[TEXT_UNIT_MAX], detached[TEXT_UNIT_MAX + 32] = "";

    if (session->detached)
        snprintf(detached, sizeof detached, "detached, %s left%s", text_duration(left, session->lease_left_s),
                 session->reconnects ? "; " : "");
    if (session->reconnects)
        text_line(out, "    %sreconnected %s time%s", detached, text_count(times, (double)session->reconnects),
                  session->reconnects == 1 ? "" : "s");
    else if (session->detached)
        text_line(out, "    %s", detached);
}

static void tensorctl_session_label(FILE *out, const Tensord__SessionStatus *session) {
    tensorctl_session_link(out, session);
    if (*session->label)
        text_wrap(out, "    at: ", session->label);
    if (session->programs)
        text_line(out, "    %" PRIu32 " recorded program%s", session->programs, session->programs == 1 ? "" : "s");
    if (session->allow_tf32)
        text_line(out, "    allows TF32");
}

static int tensorctl_by_live(const void *a, const void *b) {
    const Tensord__SessionStatus *x = *(Tensord__SessionStatus *const *)a, *y = *(Tensord__SessionStatus *const *)b;
    if (x->live != y->live)
        return x->live < y->live ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Also sorts the sessions in the message. */
static void tensorctl_sessions(FILE *out, const Tensord__Status *status) {
    static const struct table_column columns[SESSION_COLUMNS] = {
        [SESSION_ID] = {"ID", .right = true, .flexible = true},
        [SESSION_USER] = {"USER", .flexible = true},
        [SESSION_PROGRAM] = {"PROGRAM", .flexible = true},
        [SESSION_PID] = {"PID", .right = true, .spare = 4},
        [SESSION_FROM] = {"FROM", .flexible = true, .spare = 5},
        [SESSION_DEVICE] = {"DEVICE", .flexible = true},
        [SESSION_AGE] = {"AGE", .right = true, .spare = 3},
        [SESSION_SHARE] = {"TIME", .right = true},
        [SESSION_RATE] = {"OP/S", .right = true},
        [SESSION_QUEUED] = {"QUEUED", .right = true, .spare = 1},
        [SESSION_DONE] = {"DONE", .right = true, .spare = 2},
        [SESSION_LIVE] = {"LIVE", .right = true},
        [SESSION_PEAK] = {"PEAK", .right = true, .spare = 6},
        [SESSION_TENSORS] = {"TENSORS", .right = true, .spare = 7},
    };
    struct table table;
    size_t count = status->n_sessions;

    if (count == 0)
        return text_line(out, "no sessions");
    if (!table_init(&table, columns, sizeof columns / sizeof *columns, count))
        return text_line(out, "out of memory");
    qsort(status->sessions, count, sizeof *status->sessions, tensorctl_by_live);
    for (size_t i = 0; i < count; ++i)
        tensorctl_session_row(&table, i, status->sessions[i]);
    table_head(&table, out);
    for (size_t i = 0; i < count; ++i) {
        table_row(&table, i, out);
        tensorctl_session_label(out, status->sessions[i]);
        tensorctl_session_failures(out, status->sessions[i]);
    }
    if (status->sessions_left_out)
        text_line(out, "and %" PRIu32 " session%s with less memory", status->sessions_left_out,
                  status->sessions_left_out == 1 ? "" : "s");
    table_finish(&table);
}

/* ---- principals ---- */

/* "3/64", or "3" if there is no limit. */
static const char *principals_of(char out[2 * TEXT_UNIT_MAX], const char *used, const char *limit, uint64_t of) {
    snprintf(out, 2 * TEXT_UNIT_MAX, "%s%s%s", used, of ? "/" : "", of ? limit : "");
    return out;
}

static const char *principals_counts(char out[2 * TEXT_UNIT_MAX], uint64_t used, uint64_t limit) {
    char a[TEXT_UNIT_MAX], b[TEXT_UNIT_MAX];
    return principals_of(out, text_count(a, (double)used), text_count(b, (double)limit), limit);
}

static const char *principals_bytes(char out[2 * TEXT_UNIT_MAX], uint64_t used, uint64_t limit) {
    char a[TEXT_UNIT_MAX], b[TEXT_UNIT_MAX];
    return principals_of(out, text_bytes(a, (double)used), text_bytes(b, (double)limit), limit);
}

static void principals_row(struct table *table, size_t row, const Tensord__PrincipalStatus *principal,
                           const Tensord__PrincipalDevice *device) {
    char text[2 * TEXT_UNIT_MAX], rate[TEXT_UNIT_MAX];

    table_set(table, row, 0, principal->name);
    table_set(table, row, 1, principals_counts(text, principal->connections, principal->connections_limit));
    table_set(table, row, 2, principals_counts(text, principal->sessions, principal->sessions_limit));
    table_set(table, row, 3, principals_counts(text, principal->weight, 0));
    table_set(table, row, 4, device->device);
    table_set(table, row, 5, principals_bytes(text, device->live, device->live_limit));
    snprintf(text, sizeof text, "%.0f %%", device->device_ratio * 100);
    table_set(table, row, 6, text);
    table_set(table, row, 7, text_count(rate, device->ops_per_s));
    table_set(table, row, 8, principals_counts(text, device->ops_queued, device->ops_limit));
    table_set(table, row, 9, text_count(rate, (double)device->failures));
    table_set(table, row, 10, text_bytes(rate, (double)device->staging + (double)device->host_bytes));
    snprintf(text, sizeof text, "%s/s", text_bytes(rate, device->bytes_per_s));
    table_set(table, row, 11, text);
}

/* A table of each principal on each device. A principal that only asks for a status has no row. */
static void tensorctl_principals(FILE *out, const Tensord__Status *status) {
    static const struct table_column columns[] = {{"USER", .flexible = true},
                                                  {"CONN", .right = true, .spare = 3},
                                                  {"SESS", .right = true},
                                                  {"WEIGHT", .right = true, .spare = 4},
                                                  {"DEVICE", .flexible = true},
                                                  {"LIVE", .right = true},
                                                  {"TIME", .right = true},
                                                  {"OP/S", .right = true},
                                                  {"QUEUED", .right = true, .spare = 2},
                                                  {"FAILED", .right = true, .spare = 1},
                                                  {"HOST", .right = true, .spare = 6},
                                                  {"IN+OUT", .right = true, .spare = 5}};
    struct table table;
    size_t count = 0, row = 0;

    for (size_t i = 0; i < status->n_principals; ++i)
        count += status->principals[i]->n_devices;
    if (count == 0)
        return;
    fputc('\n', out);
    if (!table_init(&table, columns, sizeof columns / sizeof *columns, count))
        return text_line(out, "out of memory");
    for (size_t i = 0; i < status->n_principals; ++i)
        for (size_t d = 0; d < status->principals[i]->n_devices; ++d)
            principals_row(&table, row++, status->principals[i], status->principals[i]->devices[d]);
    table_write(&table, out);
}

/* ---- the whole ---- */

/* "principal-bytes 3, session-operations 12 (held)" */
void tensorctl_limits_write(FILE *out, const char *head, Tensord__LimitCount *const *limits, size_t n) {
    char text[1024], count[TEXT_UNIT_MAX];
    size_t used = 0;

    for (size_t i = 0; i < n && used < sizeof text / 2; ++i)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.64s %s%s", i ? ", " : "", limits[i]->key,
                                 text_count(count, (double)limits[i]->count), limits[i]->held ? " (held)" : "");
    if (used > 0)
        text_wrap(out, head, text);
}

/* A line about logins, if some failed. */
static void tensorctl_logins(FILE *out, const Tensord__LoginStatus *logins) {
    uint64_t denied = logins ? logins->no_token + logins->malformed + logins->unknown + logins->wrong : 0;
    if (denied || (logins && logins->turned_away))
        text_line(out, "logins: %llu ok, %llu failed, %llu delayed, %llu rate-limited",
                  (unsigned long long)logins->granted, (unsigned long long)denied, (unsigned long long)logins->put_off,
                  (unsigned long long)logins->turned_away);
}

void tensorctl_status_write(FILE *out, const Tensord__Status *status, enum tensorctl_view view) {
    char head[256];
    if (view == TENSORCTL_DEVICES)
        return tensorctl_devices_write(out, status);
    if (view == TENSORCTL_SESSIONS)
        return tensorctl_sessions(out, status);
    if (view == TENSORCTL_PROGRAMS)
        return tensorctl_programs_write(out, status);
    tensorctl_head(head, sizeof head, status);
    text_line(out, "%s", head);
    tensorctl_logins(out, status->logins);
    for (size_t i = 0; i < status->n_devices; ++i) {
        fputc('\n', out);
        tensorctl_device_write(out, status->devices[i]);
    }
    fputc('\n', out);
    tensorctl_sessions(out, status);
    tensorctl_principals(out, status);
    tensorctl_limits_write(out, "limits met: ", status->limits_met, status->n_limits_met);
}

void tensorctl_json_write(FILE *out, const Tensord__Status *status, enum tensorctl_view view, bool pretty) {
    static const enum status_json_view views[] = {
        [TENSORCTL_STATUS] = STATUS_JSON_ALL,
        [TENSORCTL_DEVICES] = STATUS_JSON_DEVICES,
        [TENSORCTL_SESSIONS] = STATUS_JSON_SESSIONS,
        [TENSORCTL_PROGRAMS] = STATUS_JSON_PROGRAMS,
    };
    status_json_write(out, status, views[view], pretty);
}
