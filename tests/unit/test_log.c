/* Log lines: one event a line, key=value, quoted where needed. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/process/log.h"

/* Standard error as a pipe while a test logs; what came is read back. */
static int log_pipe[2], log_saved;

static void capture(void) {
    cr_assert(!pipe(log_pipe));
    log_saved = dup(STDERR_FILENO);
    dup2(log_pipe[1], STDERR_FILENO);
}

static void captured(char *text, size_t size) {
    dup2(log_saved, STDERR_FILENO);
    close(log_pipe[1]);
    ssize_t got = read(log_pipe[0], text, size - 1);
    text[got > 0 ? got : 0] = 0;
}

/* The line from "level=" on: the time before it is another one each time. */
static const char *after_time(const char *line) {
    const char *level = strstr(line, " level=");
    return level ? level + 1 : line;
}

Test(log, a_line_has_time_level_process_event_and_fields) {
    char text[2048];
    log_init(LOG_LEVEL_INFO, "cpu:0");
    capture();
    log_event(LOG_LEVEL_WARNING, "session_open", "peer", "127.0.0.1:5", "id", "7", NULL);
    captured(text, sizeof text);
    cr_assert_str_eq(after_time(text), "level=warning process=cpu:0 event=session_open peer=127.0.0.1:5 id=7\n");
    int year, month, day, hour, minute, second, ms;
    char zone;
    cr_assert(sscanf(text, "ts=%4d-%2d-%2dT%2d:%2d:%2d.%3d%c", &year, &month, &day, &hour, &minute, &second, &ms,
                     &zone) == 8);
    cr_assert(zone == 'Z' && year >= 2024);
}

Test(log, values_that_would_break_the_line_are_quoted) {
    static const struct {
        const char *value, *shown;
    } rows[] = {
        {"plain", "v=plain\n"},
        {"", "v=\"\"\n"},
        {"two words", "v=\"two words\"\n"},
        {"say \"hi\"", "v=\"say \\\"hi\\\"\"\n"},
        {"a\nlevel=error event=forged", "v=\"a\\nlevel=error event=forged\"\n"},
        {"back\\slash", "v=\"back\\\\slash\"\n"},
        {"\x1b[31m", "v=\"\\x1b[31m\"\n"},
        {"\x7f", "v=\"\\x7f\"\n"},
        {"a=b", "v=\"a=b\"\n"},
        {"grün", "v=grün\n"},
        {"\xf0\x9f\x98\x80", "v=\xf0\x9f\x98\x80\n"}, /* U+1F600 */
        {"\t\r", "v=\"\\x09\\x0d\"\n"},
        {"next\xc2\x85line", "v=\"next\\u0085line\"\n"},
        {"a\xe2\x80\xa8"
         "b\xe2\x80\xa9",
         "v=\"a\\u2028b\\u2029\"\n"},
        {"\xe2\x80\xae"
         "dlrow",
         "v=\"\\u202edlrow\"\n"},
        {"\xff", "v=\"\\xff\"\n"},
        {"a\x80z", "v=\"a\\x80z\"\n"},
        {"\xc3", "v=\"\\xc3\"\n"}, /* cut off */
        {"\xe2\x82", "v=\"\\xe2\\x82\"\n"},
        {"\xf0\x9f\x98", "v=\"\\xf0\\x9f\\x98\"\n"},
        {"\xc3(", "v=\"\\xc3(\"\n"},
        {"\xc0\x8a", "v=\"\\xc0\\x8a\"\n"}, /* a newline in more bytes than it needs, */
        {"\xe0\x80\x8a", "v=\"\\xe0\\x80\\x8a\"\n"},
        {"\xed\xa0\x80", "v=\"\\xed\\xa0\\x80\"\n"},          /* a surrogate, */
        {"\xf4\x90\x80\x80", "v=\"\\xf4\\x90\\x80\\x80\"\n"}, /* and beyond U+10FFFF */
        {"\xef\xbf\xbf", "v=\xef\xbf\xbf\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[2048];
        capture();
        log_event(LOG_LEVEL_INFO, "e", "v", rows[i].value, NULL);
        captured(text, sizeof text);
        const char *value = strstr(text, "event=e ");
        cr_expect(value && !strcmp(value + 8, rows[i].shown), "row %zu: %s", i, text);
    }
}

Test(log, long_lines_are_cut_and_still_end) {
    char value[4000], text[8000];
    memset(value, 'x', sizeof value);
    value[sizeof value - 1] = 0;
    capture();
    log_event(LOG_LEVEL_ERROR, "e", "v", value, NULL);
    captured(text, sizeof text);
    cr_assert(strlen(text) == 1024);
    cr_assert(text[1023] == '\n' && text[1022] == 'x');
}

/* The end of the line is at each place once: before, within and after a character, an escape and the quotes. */
Test(log, cut_lines_keep_characters_escapes_and_quotes_whole) {
    for (size_t fill = 940; fill < 1000; fill++) {
        char value[1100] = " ", text[2048];
        memset(value + 1, 'x', fill - 1);
        value[fill] = 0;
        for (int i = 0; i < 10; i++)
            strcat(value, "\xe2\x82\xac\x01\xff");
        capture();
        log_event(LOG_LEVEL_ERROR, "e", "v", value, "after", "y", NULL);
        captured(text, sizeof text);
        size_t n = strlen(text);
        cr_assert(n <= 1024 && text[n - 1] == '\n' && text[n - 2] == '"', "%zu: %s", fill, text);
        cr_assert(n >= 1024 - 4, "%zu: %zu bytes", fill, n);
        cr_assert(!strstr(text, "after"));
        char before = text[n - 3];
        cr_assert(before == 'x' || before == '1' || before == 'f' || before == '\xac', "%zu: %s", fill, text);
    }
}

/* Also where the line is full right before the value's first quote. */
Test(log, a_quoted_value_finds_a_line_of_any_length) {
    static const enum log_format formats[] = {LOG_FORMAT_TEXT, LOG_FORMAT_JSON};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        log_set_format(formats[f]);
        for (size_t fill = 880; fill < 1024; fill++) {
            char value[1100], text[4096];
            memset(value, 'x', fill);
            value[fill] = 0;
            capture();
            log_event(LOG_LEVEL_ERROR, "e", "v", value, "key", "two words, and many more of them", NULL);
            captured(text, sizeof text);
            size_t n = strlen(text);
            cr_assert(n <= 1024 && strchr(text, '\n') == text + n - 1, "%zu: %zu bytes: %s", fill, n, text);
            const char *key = strstr(text, "key");
            cr_assert(!key || strchr(key, 't'), "%zu: a key without its value: %s", fill, text);
            cr_assert(formats[f] == LOG_FORMAT_TEXT || !strcmp(text + n - 3, "\"}\n"), "%zu: %s", fill, text);
        }
    }
}

Test(log, full_pipe_loses_lines_and_says_so_later) {
    static char text[1 << 20];
    enum { MORE = 5 };
    struct pollfd in;
    capture();
    in = (struct pollfd){.fd = log_pipe[1], .events = POLLOUT};
    while (poll(&in, 1, 0) > 0)
        log_event(LOG_LEVEL_ERROR, "fills", NULL);
    for (int i = 0; i < MORE; i++)
        log_event(LOG_LEVEL_ERROR, "lost", NULL);
    ssize_t got = read(log_pipe[0], text, sizeof text - 1);
    cr_assert(got > 0 && text[got - 1] == '\n');
    log_event(LOG_LEVEL_ERROR, "after", NULL);
    captured(text, sizeof text);
    cr_assert(strstr(text, "event=log_lost lines=5\n") && strstr(text, "event=after\n"), "%s", text);
    cr_assert(!strstr(text, "event=lost"));
}

Test(log, levels_below_the_threshold_are_silent) {
    char text[2048];
    log_init(LOG_LEVEL_WARNING, "front");
    capture();
    log_event(LOG_LEVEL_INFO, "quiet", NULL);
    log_event(LOG_LEVEL_ERROR, "loud", NULL);
    captured(text, sizeof text);
    cr_assert(!strstr(text, "quiet") && strstr(text, "loud"));
}

Test(log, levels_have_names) {
    cr_assert(log_level_parse("debug") == LOG_LEVEL_DEBUG);
    cr_assert(log_level_parse("error") == LOG_LEVEL_ERROR);
    cr_assert(log_level_parse("Error") == -1 && log_level_parse("") == -1);
}

/* ---- JSON ---- */

Test(log, a_line_of_json_is_one_object_of_texts) {
    char text[2048];
    log_init(LOG_LEVEL_INFO, "cpu:0");
    log_set_format(LOG_FORMAT_JSON);
    capture();
    log_event(LOG_LEVEL_WARNING, "e", "v", "say \"hi\"\n\\ \x1b gr\xc3\xbcn \xe2\x80\xae \xff \xf3\xa0\x80\x81", "w",
              "", NULL);
    captured(text, sizeof text);
    const char *level = strstr(text, ",\"level\"");
    cr_assert(!strncmp(text, "{\"ts\":\"20", 9) && level, "%s", text);
    cr_assert_str_eq(level,
                     ",\"level\":\"warning\",\"process\":\"cpu:0\",\"event\":\"e\",\"v\":\"say \\\"hi\\\"\\u000a\\\\ "
                     "\\u001b gr\xc3\xbcn \\u202e \xef\xbf\xbd \\udb40\\udc01\",\"w\":\"\"}\n");
}

Test(log, cut_lines_of_json_are_whole_objects) {
    log_set_format(LOG_FORMAT_JSON);
    for (size_t fill = 880; fill < 960; fill++) {
        char value[1100], text[2048];
        memset(value, 'x', fill);
        value[fill] = 0;
        for (int i = 0; i < 10; i++)
            strcat(value, "\xe2\x82\xac\x01\xff");
        capture();
        log_event(LOG_LEVEL_ERROR, "e", "v", value, "after", "y", NULL);
        captured(text, sizeof text);
        size_t n = strlen(text);
        cr_assert(n <= 1024 && !strcmp(text + n - 3, "\"}\n"), "%zu: %s", fill, text);
        cr_assert(!strstr(text, "after") || strstr(text, "\"after\":\"y\"}\n"), "%zu: %s", fill, text);
    }
}

/* ---- the journal ---- */

Test(log, the_journal_gets_priorities_and_others_do_not) {
    char text[2048], stream[64];
    struct stat file;
    capture();
    cr_assert(!fstat(STDERR_FILENO, &file));
    snprintf(stream, sizeof stream, "%lu:%lu", (unsigned long)file.st_dev, (unsigned long)file.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_init(LOG_LEVEL_DEBUG, "front");
    log_event(LOG_LEVEL_DEBUG, "a", NULL);
    log_event(LOG_LEVEL_INFO, "b", NULL);
    log_event(LOG_LEVEL_WARNING, "c", NULL);
    log_event(LOG_LEVEL_ERROR, "d", NULL);
    setenv("JOURNAL_STREAM", "1:2", 1);
    log_init(LOG_LEVEL_DEBUG, "front");
    log_event(LOG_LEVEL_ERROR, "e", NULL);
    captured(text, sizeof text);
    cr_assert(!strncmp(text, "<7>ts=", 6) && strstr(text, "\n<6>ts=") && strstr(text, "\n<4>ts=") &&
                  strstr(text, "\n<3>ts=") && strstr(text, "\nts="),
              "%s", text);
}

/* ---- a start that fails ---- */

Test(log, what_stops_a_start_is_an_event_with_the_highest_priority) {
    static const char in_text[] = " level=error process=front event=start_failed cause=\"no such directory\"\n";
    static const char in_json[] =
        ",\"level\":\"error\",\"process\":\"front\",\"event\":\"start_failed\",\"cause\":\"no such directory\"}\n";
    char text[2048], stream[64];
    struct stat file;
    capture();
    cr_assert(!fstat(STDERR_FILENO, &file));
    snprintf(stream, sizeof stream, "%lu:%lu", (unsigned long)file.st_dev, (unsigned long)file.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_init(LOG_LEVEL_ERROR, "front");
    log_start_failed("no such directory");
    log_set_format(LOG_FORMAT_JSON);
    log_start_failed("no such directory");
    captured(text, sizeof text);
    cr_assert(!strncmp(text, "<3>ts=", 6) && strstr(text, in_text), "%s", text);
    cr_assert(strstr(text, "\n<3>{\"ts\":") && strstr(text, in_json), "%s", text);
}

Test(log, what_stops_a_start_is_plain_words_on_a_terminal) {
    char text[2048];
    int master = posix_openpt(O_RDWR | O_NOCTTY), terminal;
    cr_assert(master >= 0 && !grantpt(master) && !unlockpt(master));
    terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    cr_assert_geq(terminal, 0);
    log_saved = dup(STDERR_FILENO);
    dup2(terminal, STDERR_FILENO);
    log_init(LOG_LEVEL_INFO, "front");
    log_start_failed("no such directory");
    log_set_format(LOG_FORMAT_JSON);
    log_start_failed("no such directory");
    dup2(log_saved, STDERR_FILENO);
    close(terminal);
    size_t got = 0; /* when all has been read, it is an error: nobody has the terminal any more */
    for (ssize_t some; (some = read(master, text + got, sizeof text - 1 - got)) > 0;)
        got += (size_t)some;
    text[got] = 0;
    cr_assert(!strncmp(text, "tensord: no such directory\r\n{\"ts\":", 34), "%s", text);
}

/* ---- what others may write ---- */

enum { SECOND = 1000000000 };

Test(log, a_source_writes_a_burst_and_then_at_its_rate) {
    static struct log_limit limit;
    char name[LOG_LIMIT_NAME_BYTES];
    uint64_t now = 5 * (uint64_t)SECOND, lines = 0, written = 0;
    for (int i = 0; i < 10000; i++)
        written += log_limit_take(&limit, "10.0.0.1", now);
    cr_assert_eq(written, LOG_LIMIT_BURST);
    cr_assert(log_limit_take(&limit, "10.0.0.2", now), "another source is not held to it");
    cr_assert(!log_limit_tell(&limit, now, name, &lines), "too early");
    now += LOG_LIMIT_TELL_S * (uint64_t)SECOND;
    cr_assert(log_limit_tell(&limit, now, name, &lines));
    cr_assert_str_eq(name, "10.0.0.1");
    cr_assert_eq(lines, 10000 - LOG_LIMIT_BURST);
    cr_assert(!log_limit_tell(&limit, now, name, &lines), "it has been told");
    written = 0;
    for (int i = 0; i < 10000; i++)
        written += log_limit_take(&limit, "10.0.0.1", now);
    cr_assert_eq(written, LOG_LIMIT_PER_S * LOG_LIMIT_TELL_S);
}

Test(log, any_number_of_sources_write_no_more_than_a_bound) {
    static struct log_limit limit;
    char name[LOG_LIMIT_NAME_BYTES];
    uint64_t now = 5 * (uint64_t)SECOND, lines, written = 0, told = 0;
    enum { SECONDS = 100 };
    for (unsigned second = 0; second < SECONDS; second++, now += SECOND) {
        for (unsigned i = 0; i < 1000; i++) {
            snprintf(name, sizeof name, "10.0.%u.%u", second, i);
            written += log_limit_take(&limit, name, now);
        }
        while (log_limit_tell(&limit, now, name, &lines))
            told++;
    }
    cr_assert_leq(written + told, LOG_LIMIT_ALL_BURST + SECONDS * LOG_LIMIT_ALL_PER_S, "%lu and %lu", written, told);
    cr_assert_eq(limit.n_sources, LOG_LIMIT_SOURCES);
}
