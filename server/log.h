/* Logs: one line an event on stderr, key=value, as `ts=… level=info event=listening url=unix:/run/…`. */
#pragma once

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

/* "debug", "info", "warning", "error"; -1 for another word. */
int log_level_parse(const char *text);
/* `process` stands in every line: "front", "cpu:0". */
void log_init(enum log_level level, const char *process);
enum log_level log_level(void);

/* Fields alternate key, value, and end with NULL: log_event(LOG_LEVEL_INFO, "session_open", "peer", peer, NULL).
 * Values are quoted where they hold spaces, quotes or control characters. One write(2) a line; lines over 1 KiB are cut. */
void log_event(enum log_level level, const char *event, ...) __attribute__((sentinel));
/* A number or formatted text as a value: log_text(buffer, sizeof buffer, "%d", n) returns buffer. */
char *log_text(char *buffer, unsigned long size, const char *format, ...) __attribute__((format(printf, 3, 4)));
