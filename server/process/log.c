#include "server/process/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/ops/utf8.h"
#include "server/process/clock.h"

enum { LOG_LINE_MAX = 1024, LOG_LAST_PATIENCE_MS = 1000 };

static const char *const log_level_names[] = {
    [LOG_LEVEL_DEBUG] = "debug",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_WARNING] = "warning",
    [LOG_LEVEL_ERROR] = "error",
};
enum { LOG_LEVEL_COUNT = sizeof log_level_names / sizeof *log_level_names };

static enum log_level log_threshold = LOG_LEVEL_INFO;
static char log_process[32] = "front";
static enum log_format log_shape = LOG_FORMAT_TEXT;
static bool log_journal; /* standard error goes to the journal */
static struct log_limit log_limits;
static unsigned long log_lost; /* lines lost since the last line that was written */
static int log_patience_ms;    /* how long a line waits for standard error */

/* A line that is being made. A part that does not fit is left out, with all that follows; there is always room for a
 * closing quote and the final newline. */
struct log_line {
    char text[LOG_LINE_MAX];
    size_t length, begin; /* begin: where the first field begins */
    bool quoted, cut;
};

int log_level_parse(const char *text) {
    for (int i = 0; i < LOG_LEVEL_COUNT; i++)
        if (!strcmp(text, log_level_names[i]))
            return i;
    return -1;
}

/* Whether standard error is the stream that the service manager names (systemd.exec(5)). */
static bool log_is_journal(void) {
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long device, inode;
    struct stat file;
    return stream && sscanf(stream, "%lu:%lu", &device, &inode) == 2 && !fstat(STDERR_FILENO, &file) &&
           file.st_dev == device && file.st_ino == inode;
}

void log_init(enum log_level level, const char *process) {
    log_threshold = level;
    log_journal = log_is_journal();
    snprintf(log_process, sizeof log_process, "%s", process);
}

void log_set_format(enum log_format format) {
    log_shape = format;
}

enum log_format log_format(void) {
    return log_shape;
}

enum log_level log_level(void) {
    return log_threshold;
}

static void log_line_add(struct log_line *line, const void *bytes, size_t n) {
    size_t end = LOG_LINE_MAX - 1 - line->quoted - (log_shape == LOG_FORMAT_JSON);
    line->cut = line->cut || line->length + n > end; /* `length` may be past `end` already */
    if (line->cut)
        return;
    memcpy(line->text + line->length, bytes, n);
    line->length += n;
}

static void log_line_text(struct log_line *line, const char *text) {
    log_line_add(line, text, strlen(text));
}

/* Writes the escape for a character that may not stand within quotes of JSON; returns its bytes. */
static size_t log_json_escape(uint32_t rune, char out[12]) {
    static const char digits[] = "0123456789abcdef";
    uint32_t halves[2] = {rune > 0xffff ? 0xd7c0 + (rune >> 10) : rune, 0xdc00 + (rune & 0x3ff)};
    size_t n = 0;
    if (rune == '"' || rune == '\\')
        return out[0] = '\\', out[1] = (char)rune, 2;
    for (int half = 0; half < (rune > 0xffff ? 2 : 1); half++) {
        out[n++] = '\\';
        out[n++] = 'u';
        for (int shift = 12; shift >= 0; shift -= 4)
            out[n++] = digits[halves[half] >> shift & 15];
    }
    return n;
}

/* Adds one character within quotes. */
static void log_line_escaped(struct log_line *line, const char **text) {
    char out[12];
    const char *at = *text;
    uint32_t rune = utf8_next(text);
    bool quote = rune == '"' || rune == '\\';
    if (log_shape == LOG_FORMAT_JSON)
        log_line_add(line, out, quote || utf8_is_unsafe(rune) ? log_json_escape(rune, out) : utf8_put(rune, out));
    else if (quote)
        log_line_add(line, (char[]){'\\', (char)rune}, 2);
    else
        log_line_add(line, out, utf8_show(&at, out));
}

/* Whether the value can stand without quotes. */
static bool log_is_plain(const char *value) {
    char out[UTF8_SHOWN_MAX];
    const char *at = value;
    while (*at) {
        const char *before = at;
        if (strchr(" \"=\\", *at) || utf8_show(&at, out) != (size_t)(at - before) ||
            memcmp(out, before, (size_t)(at - before)))
            return false;
    }
    return *value;
}

static void log_line_value(struct log_line *line, const char *value) {
    line->quoted = log_shape == LOG_FORMAT_JSON || !log_is_plain(value);
    if (line->quoted)
        log_line_text(line, "\"");
    if (line->cut) {
        line->quoted = false;
        return;
    }
    while (*value && !line->cut)
        log_line_escaped(line, &value);
    if (line->quoted)
        line->text[line->length++] = '"';
    line->quoted = false;
}

/* Adds a key and its value, which may be cut; or neither. */
static void log_line_field(struct log_line *line, const char *key, const char *value) {
    size_t before = line->length;
    bool json = log_shape == LOG_FORMAT_JSON;
    if (before > line->begin)
        log_line_text(line, json ? "," : " ");
    log_line_text(line, json ? "\"" : "");
    log_line_text(line, key);
    log_line_text(line, json ? "\":" : "=");
    /* There must be room for the quotes at least. */
    if (LOG_LINE_MAX - line->length < 5)
        line->cut = true;
    if (line->cut)
        line->length = before;
    else
        log_line_value(line, value);
}

static void log_digits(char *text, unsigned long value, unsigned digits) {
    for (unsigned i = digits; i-- > 0; value /= 10)
        text[i] = (char)('0' + value % 10);
}

/* Year, month and day of a day counted from 1970-01-01, by the Gregorian calendar: 400 years have 146097 days, and
 * years are counted from March here, so that a leap day is a year's last. gmtime_r() is not for signal handlers. */
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
    static const char *const priorities[] = {
        [LOG_LEVEL_DEBUG] = "<7>", [LOG_LEVEL_INFO] = "<6>", [LOG_LEVEL_WARNING] = "<4>", [LOG_LEVEL_ERROR] = "<3>"};
    line->length = 0;
    line->quoted = line->cut = false;
    if (log_journal)
        log_line_text(line, priorities[level]);
    if (log_shape == LOG_FORMAT_JSON)
        log_line_text(line, "{");
    line->begin = line->length;
    log_line_time(line);
    log_line_field(line, "level", log_level_names[level]);
    log_line_field(line, "process", log_process);
    log_line_field(line, "event", event);
}

static void log_line_write(struct log_line *line) {
    if (log_shape == LOG_FORMAT_JSON)
        line->text[line->length++] = '}';
    line->text[line->length++] = '\n';
    ssize_t written = write(STDERR_FILENO, line->text, line->length);
    (void)written; /* nobody could be told */
}

/* Whether standard error takes a line: a stopped terminal or a full pipe must not delay the daemon. A pipe that is
 * writable has room for PIPE_BUF bytes, which is more than a line. */
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

static void log_write(enum log_level level, const char *event, va_list fields) {
    if (!log_is_writable()) {
        log_lost++;
        log_patience_ms = 0;
        return;
    }
    if (log_lost)
        log_tell_lost();
    struct log_line line;
    log_line_begin(&line, level, event);
    for (const char *key; (key = va_arg(fields, const char *));) {
        const char *value = va_arg(fields, const char *);
        log_line_field(&line, key, value ? value : "");
    }
    log_line_write(&line);
}

void log_event(enum log_level level, const char *event, ...) {
    if (level < log_threshold)
        return;
    va_list fields;
    va_start(fields, event);
    log_write(level, event, fields);
    va_end(fields);
}

void log_event_from(enum log_level level, const char *source, const char *event, ...) {
    if (level < log_threshold ||
        (log_threshold > LOG_LEVEL_DEBUG && !log_limit_take(&log_limits, source, clock_now_ns())))
        return;
    va_list fields;
    va_start(fields, event);
    log_write(level, event, fields);
    va_end(fields);
}

void log_start_failed(const char *cause) {
    log_patience(LOG_LAST_PATIENCE_MS);
    if (log_shape == LOG_FORMAT_TEXT && isatty(STDERR_FILENO))
        fprintf(stderr, "tensord: %s\n", cause);
    else
        log_event(LOG_LEVEL_ERROR, "start_failed", "cause", cause, NULL);
}

void log_tick(void) {
    char source[LOG_LIMIT_NAME_BYTES], lines[LOG_NUMBER_MAX];
    uint64_t count;
    while (log_limit_tell(&log_limits, clock_now_ns(), source, &count))
        log_event(LOG_LEVEL_WARNING, "log_suppressed", "source", source, "lines", log_number(lines, count), NULL);
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

/* ---- how much of the log clients may fill ---- */

#define LOG_LIMIT_SECOND_NS UINT64_C(1000000000)

static void log_limit_refill(struct log_limit_bucket *bucket, uint64_t now_ns) {
    uint64_t passed = now_ns - bucket->last_ns;
    bucket->spent_ns = bucket->spent_ns > passed ? bucket->spent_ns - passed : 0;
    bucket->last_ns = now_ns;
}

static bool log_limit_has(const struct log_limit_bucket *bucket, unsigned burst, unsigned per_s) {
    return bucket->spent_ns <= (burst - 1) * (LOG_LIMIT_SECOND_NS / per_s);
}

/* The entry to replace: the source that was quiet for longest. Suppressed lines of a replaced source are never
 * reported, so sources without such lines go first. */
static struct log_limit_source *log_limit_replace(struct log_limit *limit) {
    struct log_limit_source *oldest = limit->sources;
    for (unsigned i = 1; i < LOG_LIMIT_SOURCES; i++) {
        struct log_limit_source *at = &limit->sources[i];
        bool silent = at->suppressed == 0, oldest_silent = oldest->suppressed == 0;
        if (silent > oldest_silent || (silent == oldest_silent && at->bucket.last_ns < oldest->bucket.last_ns))
            oldest = at;
    }
    return oldest;
}

static struct log_limit_source *log_limit_find(struct log_limit *limit, const char *name) {
    struct log_limit_source *source;
    for (unsigned i = 0; i < limit->n_sources; i++)
        if (!strncmp(limit->sources[i].name, name, LOG_LIMIT_NAME_BYTES - 1))
            return &limit->sources[i];
    if (limit->n_sources < LOG_LIMIT_SOURCES)
        source = &limit->sources[limit->n_sources++];
    else
        source = log_limit_replace(limit);
    *source = (struct log_limit_source){.suppressed = 0};
    memcpy(source->name, name, strnlen(name, LOG_LIMIT_NAME_BYTES - 1));
    return source;
}

bool log_limit_take(struct log_limit *limit, const char *name, uint64_t now_ns) {
    struct log_limit_source *source = log_limit_find(limit, name);
    log_limit_refill(&source->bucket, now_ns);
    log_limit_refill(&limit->all, now_ns);
    if (log_limit_has(&source->bucket, LOG_LIMIT_BURST, LOG_LIMIT_PER_S) &&
        log_limit_has(&limit->all, LOG_LIMIT_ALL_BURST, LOG_LIMIT_ALL_PER_S)) {
        source->bucket.spent_ns += LOG_LIMIT_SECOND_NS / LOG_LIMIT_PER_S;
        limit->all.spent_ns += LOG_LIMIT_SECOND_NS / LOG_LIMIT_ALL_PER_S;
        return true;
    }
    if (!source->suppressed++)
        source->since_ns = now_ns;
    return false;
}

bool log_limit_tell(struct log_limit *limit, uint64_t now_ns, char *name, uint64_t *lines) {
    for (unsigned i = 0; i < limit->n_sources; i++) {
        struct log_limit_source *source = &limit->sources[i];
        if (!source->suppressed || now_ns - source->since_ns < LOG_LIMIT_TELL_S * LOG_LIMIT_SECOND_NS)
            continue;
        log_limit_refill(&limit->all, now_ns);
        if (!log_limit_has(&limit->all, LOG_LIMIT_ALL_BURST, LOG_LIMIT_ALL_PER_S))
            return false;
        limit->all.spent_ns += LOG_LIMIT_SECOND_NS / LOG_LIMIT_ALL_PER_S;
        memcpy(name, source->name, LOG_LIMIT_NAME_BYTES);
        *lines = source->suppressed;
        source->suppressed = 0;
        return true;
    }
    return false;
}
