/* The log: one line on standard error for each event, with fields key=value, such as `ts=… level=info event=listening
 * url=unix:/run/…`, or the same as a JSON object. If standard error is the journal's, the line begins with its
 * priority, as in sd-daemon(3). Logging never waits: a line that standard error does not take is lost, and a later
 * line says how many were. One thread of a process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* "debug", "info", "warning", "error"; -1: the text is none of these. */
int log_level_parse(const char *text);
/* `process` stands in every line: "front", "cpu:0". */
void log_init(enum log_level level, const char *process);
enum log_level log_level(void);
/* The default is text. */
void log_set_format(enum log_format format);
enum log_format log_format(void);

/* Fields alternate key, value, and end with NULL: log_event(LOG_LEVEL_INFO, "session_open", "peer", peer, NULL). Values
 * are quoted if they have spaces, quotes, or characters that are no plain text (utf8_is_unsafe()), which are escaped as
 * \n, \x1b or \u202e: so an event is always one line, and a line is always text. One write(2) a line; lines over 1 KiB
 * are cut between two characters. Allocates nothing, and may be called from a signal handler. */
void log_event(enum log_level level, const char *event, ...) __attribute__((sentinel));
/* The same for events that clients can cause as often as they like; `source` is where the client comes from
 * ("10.0.0.7", "uid:1000"). Lines beyond a limit (struct log_limit) are left out, except at the level debug; a later line,
 * which log_tick() may also write, says how many were. Not in a signal handler. */
void log_event_from(enum log_level level, const char *source, const char *event, ...) __attribute__((sentinel));
/* Why a program ends before it serves anybody: the event start_failed, which also waits for standard error a little. Where a person
 * started it, which is on a terminal that gets text, it is "tensord: CAUSE" instead. */
void log_start_failed(const char *cause);
/* Call it regularly. */
void log_tick(void);
/* A number or formatted text as a value: log_text(buffer, sizeof buffer, "%d", n) returns buffer. */
char *log_text(char *buffer, unsigned long size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for signal handlers, which must not format text: they return a place in `buffer`. An address is shown as
 * 0x2a. */
enum { LOG_NUMBER_MAX = 24 };
char *log_number(char buffer[LOG_NUMBER_MAX], uint64_t value);
char *log_address(char buffer[LOG_NUMBER_MAX], uint64_t value);
/* From now on a line waits so long for standard error to take it. This is for the last lines of a process, which delay
 * nothing any more. After one line has waited in vain, later ones do not wait. */
void log_patience(int milliseconds);

/* How much of the log clients may fill. A line that a client causes is counted for its source (an address, a network,
 * a uid) and for all sources together, and is left out if either has had too many. Lines that are left out are
 * counted, and the count is reported regularly. Plain data, with the caller's clock. */
enum {
    LOG_LIMIT_SOURCES = 256,    /* in the table; one more replaces the one that was quiet for longest */
    LOG_LIMIT_BURST = 200,      /* lines of one source at once, */
    LOG_LIMIT_PER_S = 2,        /* and so many a second */
    LOG_LIMIT_ALL_BURST = 1000, /* the same for all sources together */
    LOG_LIMIT_ALL_PER_S = 20,
    LOG_LIMIT_TELL_S = 10, /* after which a source's missing lines are reported */
    LOG_LIMIT_NAME_BYTES = 48,
};

struct log_limit_bucket {
    uint64_t spent_ns; /* by how much the written lines are ahead of the rate; shrinks as time passes */
    uint64_t last_ns;
};

struct log_limit_source {
    char name[LOG_LIMIT_NAME_BYTES];
    struct log_limit_bucket bucket;
    uint64_t suppressed, since_ns; /* lines left out, and when the first of them came */
};

/* All zeroes: nothing has been written yet. */
struct log_limit {
    struct log_limit_source sources[LOG_LIMIT_SOURCES];
    unsigned n_sources;
    struct log_limit_bucket all;
};

/* Whether a line of this source may be written at `now_ns`; if not it is counted. */
bool log_limit_take(struct log_limit *limit, const char *source, uint64_t now_ns);
/* Finds a source whose lines were left out a while ago: sets its name (LOG_LIMIT_NAME_BYTES) and the number of lines,
 * which starts again at 0. False: there is none. */
bool log_limit_tell(struct log_limit *limit, uint64_t now_ns, char *name, uint64_t *lines);
