#include "server/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOG_LINE_MAX = 1024 };

static const char *const log_level_names[] = {
    [LOG_LEVEL_DEBUG] = "debug",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_WARNING] = "warning",
    [LOG_LEVEL_ERROR] = "error",
};
enum { LOG_LEVEL_COUNT = sizeof log_level_names / sizeof *log_level_names };

static enum log_level log_threshold = LOG_LEVEL_INFO;
static char log_process[32] = "front";

/* One line in the making; `text` always has room for the final newline. */
struct log_line {
    char text[LOG_LINE_MAX];
    size_t length;
};

int log_level_parse(const char *text) {
    for (int i = 0; i < LOG_LEVEL_COUNT; i++)
        if (!strcmp(text, log_level_names[i]))
            return i;
    return -1;
}

void log_init(enum log_level level, const char *process) {
    log_threshold = level;
    snprintf(log_process, sizeof log_process, "%s", process);
}

enum log_level log_level(void) {
    return log_threshold;
}

static void log_line_byte(struct log_line *line, char byte) {
    if (line->length < LOG_LINE_MAX - 1)
        line->text[line->length++] = byte;
}

static void log_line_text(struct log_line *line, const char *text) {
    while (*text)
        log_line_byte(line, *text++);
}

static bool log_is_plain(const char *value) {
    if (!*value)
        return false;
    for (const unsigned char *c = (const unsigned char *)value; *c; c++)
        if (*c <= ' ' || *c == '"' || *c == '=' || *c == '\\' || *c == 0x7f)
            return false;
    return true;
}

static void log_line_escaped(struct log_line *line, unsigned char c) {
    static const char digits[] = "0123456789abcdef";
    if (c == '"' || c == '\\') {
        log_line_byte(line, '\\');
        log_line_byte(line, (char)c);
    } else if (c == '\n') {
        log_line_text(line, "\\n");
    } else if (c < ' ' || c == 0x7f) {
        log_line_text(line, "\\x");
        log_line_byte(line, digits[c >> 4]);
        log_line_byte(line, digits[c & 15]);
    } else {
        log_line_byte(line, (char)c);
    }
}

static void log_line_value(struct log_line *line, const char *value) {
    if (log_is_plain(value)) {
        log_line_text(line, value);
        return;
    }
    log_line_byte(line, '"');
    for (const unsigned char *c = (const unsigned char *)value; *c; c++)
        log_line_escaped(line, *c);
    log_line_byte(line, '"');
}

static void log_line_field(struct log_line *line, const char *key, const char *value) {
    if (line->length)
        log_line_byte(line, ' ');
    log_line_text(line, key);
    log_line_byte(line, '=');
    log_line_value(line, value);
}

static void log_line_time(struct log_line *line) {
    struct timespec now;
    struct tm utc;
    char day[32], text[48];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text, sizeof text, "%s.%03ldZ", day, now.tv_nsec / 1000000);
    log_line_field(line, "ts", text);
}

void log_event(enum log_level level, const char *event, ...) {
    if (level < log_threshold)
        return;
    struct log_line line = {.length = 0};
    log_line_time(&line);
    log_line_field(&line, "level", log_level_names[level]);
    log_line_field(&line, "process", log_process);
    log_line_field(&line, "event", event);
    va_list fields;
    va_start(fields, event);
    for (const char *key; (key = va_arg(fields, const char *));) {
        const char *value = va_arg(fields, const char *);
        log_line_field(&line, key, value ? value : "");
    }
    va_end(fields);
    line.text[line.length++] = '\n';
    /* A log that cannot be written is lost: there is nobody to tell. */
    ssize_t written = write(STDERR_FILENO, line.text, line.length);
    (void)written;
}

char *log_text(char *buffer, unsigned long size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, size, format, arguments);
    va_end(arguments);
    return buffer;
}
