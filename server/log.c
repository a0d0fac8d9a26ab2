#include "server/log.h"

#include <errno.h>
#include <poll.h>
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
static unsigned long log_lost; /* lines, since the last one that was written */
static int log_patience_ms;    /* for standard error to take a line */

/* One line in the making. What does not fit as a whole is left out, with all that follows; there is always room for a
 * closing quote and the final newline. */
struct log_line {
    char text[LOG_LINE_MAX];
    size_t length;
    bool quoted, cut;
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

static void log_line_add(struct log_line *line, const void *bytes, size_t n) {
    size_t end = LOG_LINE_MAX - 1 - line->quoted;
    line->cut = line->cut || n > end - line->length;
    if (line->cut)
        return;
    memcpy(line->text + line->length, bytes, n);
    line->length += n;
}

static void log_line_text(struct log_line *line, const char *text) {
    log_line_add(line, text, strlen(text));
}

/* Bytes of the UTF-8 character at `c`, a zero-terminated text; 0 where there is none: a lone or missing continuation
 * byte, a form longer than needed, a surrogate, beyond U+10FFFF (the Unicode Standard, table 3-7). */
static size_t log_utf8_bytes(const unsigned char *c) {
    static const struct {
        unsigned char first_low, first_high, second_low, second_high, bytes;
    } rows[] = {
        {0x01, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 1;
        if (*c < rows[i].first_low || *c > rows[i].first_high || c[1] < rows[i].second_low ||
            c[1] > rows[i].second_high)
            continue;
        while (n < rows[i].bytes && (c[n] & 0xc0) == 0x80)
            n++;
        return n == rows[i].bytes ? n : 0;
    }
    return 0;
}

/* Whether a terminal or a log reader might take this character for more than itself: a control character (U+0080 to
 * U+009F as well), a separator of lines or paragraphs (U+2028, U+2029), or one that turns the direction of what follows
 * (U+202A to U+202E, U+2066 to U+2069). */
static bool log_is_control(const unsigned char *c, size_t bytes) {
    return (bytes == 1 && (*c < ' ' || *c == 0x7f)) || (bytes == 2 && c[0] == 0xc2 && c[1] < 0xa0) ||
           (bytes == 3 && c[0] == 0xe2 && c[1] == 0x80 && c[2] >= 0xa8 && c[2] <= 0xae) ||
           (bytes == 3 && c[0] == 0xe2 && c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9);
}

static bool log_is_plain(const char *value) {
    const unsigned char *c = (const unsigned char *)value;
    size_t bytes = 0;
    for (; *c; c += bytes) {
        bytes = log_utf8_bytes(c);
        if (!bytes || log_is_control(c, bytes) || strchr(" \"=\\", *c))
            return false;
    }
    return *value;
}

/* One character, or one byte that is none; returns how many bytes that was. */
static size_t log_line_escaped(struct log_line *line, const unsigned char *c) {
    static const char digits[] = "0123456789abcdef";
    size_t bytes = log_utf8_bytes(c);
    if (bytes == 1 && (*c == '"' || *c == '\\')) {
        log_line_add(line, (char[]){'\\', (char)*c}, 2);
    } else if (*c == '\n') {
        log_line_text(line, "\\n");
    } else if (!bytes || log_is_control(c, bytes)) {
        bytes = bytes ? bytes : 1;
        char text[4 * 4];
        for (size_t i = 0; i < bytes; i++)
            memcpy(text + 4 * i, (char[]){'\\', 'x', digits[c[i] >> 4], digits[c[i] & 15]}, 4);
        log_line_add(line, text, 4 * bytes);
    } else {
        log_line_add(line, c, bytes);
    }
    return bytes;
}

static void log_line_value(struct log_line *line, const char *value) {
    line->quoted = !log_is_plain(value);
    if (line->quoted)
        log_line_text(line, "\"");
    if (line->cut)
        return;
    for (const unsigned char *c = (const unsigned char *)value; *c;)
        c += log_line_escaped(line, c);
    if (line->quoted)
        line->text[line->length++] = '"';
    line->quoted = false;
}

/* The key and its value whole, or neither. */
static void log_line_field(struct log_line *line, const char *key, const char *value) {
    size_t before = line->length;
    if (before)
        log_line_text(line, " ");
    log_line_text(line, key);
    log_line_text(line, "=");
    if (line->cut)
        line->length = before;
    else
        log_line_value(line, value);
}

static void log_digits(char *text, unsigned long value, unsigned digits) {
    for (unsigned i = digits; i-- > 0; value /= 10)
        text[i] = (char)('0' + value % 10);
}

/* Year, month and day of a day counted from 1970-01-01, by the Gregorian calendar: 400 years have 146097 days, and years
 * are counted from March here, so that a leap day is a year's last. gmtime_r() is not for signal handlers. */
static void log_civil(unsigned long days, unsigned long civil[3]) {
    unsigned long shifted = days + 719468; /* from 0000-03-01 */
    unsigned long of_era = shifted % 146097;
    unsigned long year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    unsigned long of_year = of_era - (365 * year + year / 4 - year / 100);
    unsigned long month = (5 * of_year + 2) / 153; /* 0 is March */
    civil[0] = year + shifted / 146097 * 400 + (month >= 10);
    civil[1] = month < 10 ? month + 3 : month - 9;
    civil[2] = of_year - (153 * month + 2) / 5 + 1;
}

static void log_line_time(struct log_line *line) {
    struct timespec now;
    unsigned long civil[3];
    char text[] = "0000-00-00T00:00:00.000Z";
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long seconds = now.tv_sec > 0 ? (unsigned long)now.tv_sec : 0, of_day = seconds % 86400;
    log_civil(seconds / 86400, civil);
    log_digits(text, civil[0], 4);
    log_digits(text + 5, civil[1], 2);
    log_digits(text + 8, civil[2], 2);
    log_digits(text + 11, of_day / 3600, 2);
    log_digits(text + 14, of_day / 60 % 60, 2);
    log_digits(text + 17, of_day % 60, 2);
    log_digits(text + 20, (unsigned long)now.tv_nsec / 1000000, 3);
    log_line_field(line, "ts", text);
}

static void log_line_begin(struct log_line *line, enum log_level level, const char *event) {
    line->length = 0;
    line->quoted = line->cut = false;
    log_line_time(line);
    log_line_field(line, "level", log_level_names[level]);
    log_line_field(line, "process", log_process);
    log_line_field(line, "event", event);
}

static void log_line_write(struct log_line *line) {
    line->text[line->length++] = '\n';
    ssize_t written = write(STDERR_FILENO, line->text, line->length);
    (void)written; /* there is nobody to tell */
}

/* Nobody may hold up the daemon by not reading its log, a terminal that was stopped or a full pipe. A pipe that is
 * writable at all has room for PIPE_BUF bytes, which is more than a line. */
static bool log_is_writable(void) {
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    int ready;
    do
        ready = poll(&out, 1, log_patience_ms);
    while (ready < 0 && errno == EINTR && log_patience_ms);
    return ready > 0;
}

static void log_tell_lost(void) {
    struct log_line line;
    char lines[24];
    log_line_begin(&line, LOG_LEVEL_WARNING, "log_lost");
    log_line_field(&line, "lines", log_number(lines, log_lost));
    log_line_write(&line);
    log_lost = 0;
}

void log_event(enum log_level level, const char *event, ...) {
    if (level < log_threshold)
        return;
    if (!log_is_writable()) {
        log_lost++;
        log_patience_ms = 0;
        return;
    }
    if (log_lost)
        log_tell_lost();
    struct log_line line;
    log_line_begin(&line, level, event);
    va_list fields;
    va_start(fields, event);
    for (const char *key; (key = va_arg(fields, const char *));) {
        const char *value = va_arg(fields, const char *);
        log_line_field(&line, key, value ? value : "");
    }
    va_end(fields);
    log_line_write(&line);
}

char *log_text(char *buffer, unsigned long size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(buffer, size, format, arguments);
    va_end(arguments);
    return buffer;
}

void log_patience(int milliseconds) {
    log_patience_ms = milliseconds;
}

static char *log_in_base(char buffer[LOG_NUMBER_MAX], uint64_t value, unsigned base) {
    char *at = buffer + LOG_NUMBER_MAX - 1;
    *at = 0;
    do
        *--at = "0123456789abcdef"[value % base];
    while (value /= base);
    return at;
}

char *log_number(char buffer[LOG_NUMBER_MAX], uint64_t value) {
    return log_in_base(buffer, value, 10);
}

char *log_address(char buffer[LOG_NUMBER_MAX], uint64_t value) {
    char *text = log_in_base(buffer, value, 16);
    *--text = 'x';
    *--text = '0';
    return text;
}
