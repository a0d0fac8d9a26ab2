#include "server/users/ini_file.h"

#include <ini.h>
#include <string.h>

struct ini_file {
    FILE *stream;
    const struct ini_file_events *events;
    void *owner;
    int line;       /* of the text that libinih has now */
    int error_line; /* first wrong one; 0: none */
    struct fault fault;
};

static void ini_file_fail(struct ini_file *file, const struct fault *fault) {
    if (file->error_line)
        return;
    file->error_line = file->line;
    file->fault = *fault;
}

/* A header, told of here: libinih names a section only with its first pair. Where there is no closing bracket it
 * complains itself. */
static int ini_file_section(struct ini_file *file, const char *text, struct fault *fault) {
    char name[INI_FILE_LINE_MAX + 1];
    const char *end = strchr(text, ']');
    if (!file->events->section || *text != '[' || !end)
        return STATUS_OK;
    snprintf(name, sizeof name, "%.*s", (int)(end - text - 1), text + 1);
    return file->events->section(file->owner, name, fault);
}

/* libinih reads through this. It takes an indented line for more of the value before, which nobody means here. */
static char *ini_file_line(char *text, int size, void *stream) {
    struct ini_file *file = stream;
    struct fault fault = {0};
    if (file->error_line || !fgets(text, size, file->stream))
        return NULL;
    file->line++;
    size_t length = strlen(text);
    if (length && text[length - 1] != '\n' && !feof(file->stream))
        fault_set(&fault, STATUS_LIMIT, "the line is longer than %d bytes", INI_FILE_LINE_MAX);
    size_t indent = strspn(text, " \t");
    memmove(text, text + indent, length - indent + 1);
    if (!fault.code)
        ini_file_section(file, text, &fault);
    if (fault.code)
        ini_file_fail(file, &fault);
    return fault.code ? NULL : text;
}

static int ini_file_pair(void *user, const char *section, const char *key, const char *value) {
    struct ini_file *file = user;
    struct fault fault;
    (void)section;
    if (!file->events->pair(file->owner, key, value ? value : "", &fault))
        return 1;
    ini_file_fail(file, &fault);
    return 0;
}

int ini_file_read(FILE *stream, const char *name, const struct ini_file_events *events, void *owner,
                  struct fault *fault) {
    struct ini_file file = {.stream = stream, .events = events, .owner = owner};
    struct fault last;
    int line = ini_parse_stream(ini_file_line, &file, ini_file_pair, &file);
    /* What libinih itself does not understand may come before the first bad value, or after it. */
    if (line > 0 && (!file.error_line || line < file.error_line))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s:%d: neither \"key = value\" nor \"[section]\"", name,
                         line);
    if (!file.error_line && (line < 0 || ferror(stream)))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: cannot be read", name);
    if (!file.error_line && events->end && events->end(owner, &last))
        ini_file_fail(&file, &last);
    if (file.error_line || file.fault.code)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s:%d: %s", name, file.error_line, file.fault.message);
    return STATUS_OK;
}
