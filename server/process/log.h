/* Logs: one line an event on stderr, key=value, as `ts=… level=info event=listening url=unix:/run/…`, or the same as an
 * object of JSON. Where stderr is the journal's, its priority stands in front, as sd-daemon(3) has it. Never waits: what
 * stderr does not take is lost, and counted in a line of its own later. One thread of a process. */
#pragma once

#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* "debug", "info", "warning", "error"; -1 for another word. */
int log_level_parse(const char *text);
/* `process` stands in every line: "front", "cpu:0". */
void log_init(enum log_level level, const char *process);
enum log_level log_level(void);
/* Text, until something else is said. */
void log_set_format(enum log_format format);
enum log_format log_format(void);

/* Fields alternate key, value, and end with NULL: log_event(LOG_LEVEL_INFO, "session_open", "peer", peer, NULL).
 * Values are quoted where they hold spaces, quotes, or what is no plain text (utf8_is_unsafe()); that is escaped as \n, \x1b
 * or \u202e, so that a line is always one event and always text. One write(2) a line; lines over 1 KiB are cut between two
 * characters. Allocates nothing and may be called from a signal handler. */
void log_event(enum log_level level, const char *event, ...) __attribute__((sentinel));
/* The same for what others can bring about as often as they like; `source` is where they come from ("10.0.0.7", "uid:1000").
 * Lines beyond a bound (log_limit.h) are left out, but at the level debug, and counted in a line of their own, which
 * log_tick() writes, too. Not in a signal handler. */
void log_event_from(enum log_level level, const char *source, const char *event, ...) __attribute__((sentinel));
/* Once in a while. */
void log_tick(void);
/* A number or formatted text as a value: log_text(buffer, sizeof buffer, "%d", n) returns buffer. */
char *log_text(char *buffer, unsigned long size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same where a signal handler may be at work, which must not format text: they return a place in `buffer`. An address
 * is shown as 0x2a. */
enum { LOG_NUMBER_MAX = 24 };
char *log_number(char buffer[LOG_NUMBER_MAX], uint64_t value);
char *log_address(char buffer[LOG_NUMBER_MAX], uint64_t value);
/* From here on a line waits so long for standard error to take it: for the last lines of a process, which has nothing left
 * to hold up. Once one has waited in vain, those after it do not wait. */
void log_patience(int milliseconds);
