#include <string.h>

#include "client/tensorctl/top.h"
#include "proto/wire/figures.h"

enum top_kind { KIND_NUMBER, KIND_PERCENT, KIND_COUNT, KIND_BYTES, KIND_DURATION, KIND_TEXT, KIND_PROGRAM };

/* ---- what a session has ---- */

static double value_id(const struct top *top, const Tensord__SessionStatus *session) {
    (void)top;
    return (double)session->id;
}
static double value_live(const struct top *top, const Tensord__SessionStatus *session) {
    (void)top;
    return (double)session->live;
}
static double value_peak(const struct top *top, const Tensord__SessionStatus *session) {
    (void)top;
    return (double)session->peak;
}
static double value_tensors(const struct top *top, const Tensord__SessionStatus *session) {
    (void)top;
    return (double)session->tensors;
}
static double value_queued(const struct top *top, const Tensord__SessionStatus *session) {
    (void)top;
    return (double)session->ops_queued;
}
static double value_done(const struct top *top, const Tensord__SessionStatus *session) {
    (void)top;
    return (double)session->ops_done;
}
static double value_share(const struct top *top, const Tensord__SessionStatus *session) {
    (void)top;
    return session->device_ratio * 100;
}
static double value_pid(const struct top *top, const Tensord__SessionStatus *session) {
    (void)top;
    return session->pid;
}
static double value_failed(const struct top *top, const Tensord__SessionStatus *session) {
    double sum = 0;
    (void)top;
    for (size_t i = 0; i < session->n_failures; i++)
        sum += (double)session->failures[i]->count;
    return sum;
}
static double value_age(const struct top *top, const Tensord__SessionStatus *session) {
    (void)top;
    return session->age_s;
}

static const char *text_user(const Tensord__SessionStatus *session) {
    return session->principal;
}
static const char *text_device(const Tensord__SessionStatus *session) {
    return session->device;
}
static const char *text_peer(const Tensord__SessionStatus *session) {
    return *session->host ? session->host : session->peer;
}
static const char *text_client(const Tensord__SessionStatus *session) {
    return session->client;
}
static const char *text_label(const Tensord__SessionStatus *session) {
    return session->label;
}

static const struct {
    struct top_column_info info;
    enum top_kind kind;
    double (*value)(const struct top *top, const Tensord__SessionStatus *session);
    const char *(*text)(const Tensord__SessionStatus *session);
} top_columns[TOP_COLUMNS] = {
    [TOP_ID] = {{"ID", 'I', 6, 14, true}, KIND_NUMBER, .value = value_id},
    [TOP_USER] = {{"USER", 'U', 9, 12}, KIND_TEXT, .text = text_user},
    [TOP_DEVICE] = {{"DEVICE", 'V', 8, 10}, KIND_TEXT, .text = text_device},
    [TOP_LIVE] = {{"LIVE", 'L', 8, 13, true}, KIND_BYTES, .value = value_live},
    [TOP_PEAK] = {{"PEAK", 'P', 8, 5, true}, KIND_BYTES, .value = value_peak},
    [TOP_TENSORS] = {{"TENSORS", 'T', 9, 4, true}, KIND_COUNT, .value = value_tensors},
    [TOP_QUEUED] = {{"QUEUED", 'W', 8, 9, true}, KIND_COUNT, .value = value_queued},
    [TOP_SHARE] = {{"TIME", 'M', 6, 15, true}, KIND_PERCENT, .value = value_share},
    [TOP_RATE] = {{"OP/S", 'O', 6, 11, true}, KIND_COUNT, .value = top_session_rate},
    [TOP_DONE] = {{"DONE", 'D', 6, 6, true}, KIND_COUNT, .value = value_done},
    [TOP_FAILED] = {{"FAILED", 'F', 8, 3, true}, KIND_COUNT, .value = value_failed},
    [TOP_AGE] = {{"AGE", 'A', 8, 7, true}, KIND_DURATION, .value = value_age},
    [TOP_PID] = {{"PID", 'N', 7, 2, true}, KIND_NUMBER, .value = value_pid},
    [TOP_PEER] = {{"FROM", 'E', 15, 1}, KIND_TEXT, .text = text_peer},
    [TOP_CLIENT] = {{"PROGRAM", 'C', 14, 8}, KIND_PROGRAM, .text = text_client},
    [TOP_LABEL] = {{"LABEL", 'B', 0, 2}, KIND_TEXT, .text = text_label},
};

const struct top_column_info *top_column_info(enum top_column column) {
    return &top_columns[column].info;
}

void top_column_text(const struct top *top, const Tensord__SessionStatus *session, enum top_column column,
                     char text[TABLE_CELL_MAX]) {
    double value = top_columns[column].value ? top_columns[column].value(top, session) : 0;
    char unit[TEXT_UNIT_MAX];
    switch (top_columns[column].kind) {
    case KIND_NUMBER:
        snprintf(text, TABLE_CELL_MAX, "%.0f", value);
        return;
    case KIND_PERCENT:
        snprintf(text, TABLE_CELL_MAX, "%.0f%%", value);
        return;
    case KIND_COUNT:
        snprintf(text, TABLE_CELL_MAX, "%s", text_count(unit, value));
        return;
    case KIND_BYTES:
        snprintf(text, TABLE_CELL_MAX, "%s", text_bytes(unit, value));
        return;
    case KIND_DURATION:
        snprintf(text, TABLE_CELL_MAX, "%s", text_duration(unit, value));
        return;
    case KIND_PROGRAM:
        figures_program(session->client, text, TABLE_CELL_MAX);
        return;
    case KIND_TEXT:
        text_fit(text, TABLE_CELL_MAX, top_columns[column].text(session), TABLE_CELL_MAX / 4);
        return;
    }
}

/* The largest number first, texts by the alphabet; equals by the session's number. */
int top_column_compare(const struct top *top, const Tensord__SessionStatus *a, const Tensord__SessionStatus *b,
                       enum top_column column) {
    int order = 0;
    if (top_columns[column].text) {
        order = strcmp(top_columns[column].text(a), top_columns[column].text(b));
    } else {
        double x = top_columns[column].value(top, a), y = top_columns[column].value(top, b);
        order = x > y ? -1 : x < y;
    }
    return order ? order : a->id < b->id ? -1 : a->id > b->id;
}
