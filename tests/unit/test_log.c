/* Log lines: one event a line, key=value, quoted where needed. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/log.h"

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
