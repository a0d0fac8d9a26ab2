#include "server/users/config_value.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/net/url.h"
#include "server/process/state_directory.h"

struct config_unit {
    const char *suffix;
    uint64_t factor;
};

char *config_value_trim(char *text) {
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = 0;
    return text;
}

/* Reads digits and then one of the suffixes. -1: the text has another form, or the number is too large for 64 bits. */
static int config_value_scaled(const char *text, int base, const struct config_unit *units, uint64_t *value) {
    char *end;
    if (!isdigit((unsigned char)*text))
        return -1;
    errno = 0;
    unsigned long long number = strtoull(text, &end, base);
    if (errno)
        return -1;
    for (const struct config_unit *unit = units; unit->suffix; unit++)
        if (!strcmp(end, unit->suffix))
            return __builtin_mul_overflow((uint64_t)number, unit->factor, value) ? -1 : 0;
    return -1;
}

/* Says why a value is wrong: it is not `what` ("a size (examples: 512M, 2G)"); or, if it is `good`, it is out of
 * range. */
static int config_value_wrong(const char *text, bool good, const char *what, const char *least, const char *most,
                              struct fault *fault) {
    if (!good)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is not %s", text, what);
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is out of range: %s to %s", text, least, most);
}

int config_value_count(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault) {
    static const struct config_unit units[] = {{"", 1}, {NULL, 0}};
    uint64_t number;
    if (config_value_scaled(text, 10, units, &number) || number < minimum || number > maximum)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is not a number from %" PRIu64 " to %" PRIu64,
                         text, minimum, maximum);
    *value = number;
    return STATUS_OK;
}

int config_value_octal(const char *text, uint64_t maximum, uint64_t *value, struct fault *fault) {
    static const struct config_unit units[] = {{"", 1}, {NULL, 0}};
    uint64_t number;
    if (config_value_scaled(text, 8, units, &number) || number > maximum)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is not an octal mode up to %" PRIo64, text,
                         maximum);
    *value = number;
    return STATUS_OK;
}

int config_value_bytes(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault) {
    static const struct config_unit units[] = {{"", 1},        {"K", 1 << 10},           {"M", 1 << 20},
                                               {"G", 1 << 30}, {"T", UINT64_C(1) << 40}, {NULL, 0}};
    char least[32], most[32];
    uint64_t number;
    bool good = !config_value_scaled(text, 10, units, &number);
    config_value_bytes_text(minimum, least, sizeof least);
    config_value_bytes_text(maximum, most, sizeof most);
    if (!good || number < minimum || number > maximum)
        return config_value_wrong(text, good, "a size (examples: 512M, 2G)", least, most, fault);
    *value = number;
    return STATUS_OK;
}

int config_value_duration(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault) {
    static const struct config_unit units[] = {{"ms", 1},      {"s", 1000},     {"m", 60000},
                                               {"h", 3600000}, {"d", 86400000}, {NULL, 0}};
    char least[32], most[32];
    uint64_t number;
    bool good = !config_value_scaled(!strcmp(text, "0") ? "0s" : text, 10, units, &number);
    config_value_duration_text(minimum, least, sizeof least);
    config_value_duration_text(maximum, most, sizeof most);
    if (!good || number < minimum || number > maximum)
        return config_value_wrong(text, good, "a duration (examples: 250ms, 5s, 8h)", least, most, fault);
    *value = number;
    return STATUS_OK;
}

int config_value_sync(const char *text, uint64_t minimum, uint64_t maximum, uint64_t *value, struct fault *fault) {
    static const struct config_unit units[] = {{"ms", 1}, {"s", 1000}, {"", 1000}, {NULL, 0}};
    uint64_t number;
    if (!strcmp(text, "publish"))
        number = 0;
    else if (!strcmp(text, "drain"))
        number = STATE_SYNC_DRAIN;
    else if (config_value_scaled(text, 10, units, &number) || number < minimum || number > maximum)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "\"%s\" is none of publish, drain, and a duration such as 5s, from %" PRIu64 " to %" PRIu64
                         " ms",
                         text, minimum, maximum);
    *value = number;
    return STATUS_OK;
}

static void config_value_scaled_text(uint64_t value, const struct config_unit *units, char *out, size_t size) {
    while (units[1].suffix && (value == 0 || value % units[0].factor))
        units++;
    snprintf(out, size, "%" PRIu64 "%s", value / units[0].factor, value ? units[0].suffix : "");
}

void config_value_bytes_text(uint64_t bytes, char *out, size_t size) {
    static const struct config_unit units[] = {{"T", UINT64_C(1) << 40}, {"G", 1 << 30}, {"M", 1 << 20},
                                               {"K", 1 << 10},           {"", 1},        {NULL, 0}};
    config_value_scaled_text(bytes, units, out, size);
}

void config_value_duration_text(uint64_t milliseconds, char *out, size_t size) {
    static const struct config_unit units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000},
                                               {"s", 1000},     {"ms", 1},      {NULL, 0}};
    config_value_scaled_text(milliseconds, units, out, size);
}

void config_value_sync_text(uint64_t milliseconds, char *out, size_t size) {
    if (milliseconds == 0 || milliseconds == STATE_SYNC_DRAIN)
        snprintf(out, size, "%s", milliseconds ? "drain" : "publish");
    else
        config_value_duration_text(milliseconds, out, size);
}

int config_value_switch(const char *text, uint64_t *value, struct fault *fault) {
    bool yes = !strcmp(text, "yes");
    if (!yes && strcmp(text, "no") != 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is neither yes nor no", text);
    *value = yes;
    return STATUS_OK;
}

/* Reads a comma-separated list and leaves out white space. `wrong` says whether a part is invalid; `alone`: it is the
 * only part. */
static int config_value_list(const char *text, char list[PRINCIPAL_LIST_BYTES],
                             bool (*wrong)(const char *part, bool alone), const char *what, struct fault *fault) {
    char copy[PRINCIPAL_LIST_BYTES], clean[PRINCIPAL_LIST_BYTES];
    size_t used = 0;
    if (strlen(text) >= sizeof copy)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list is longer than %zu bytes", sizeof copy - 1);
    snprintf(copy, sizeof copy, "%s", text);
    char *rest = copy;
    for (char *part; (part = strsep(&rest, ","));) {
        part = config_value_trim(part);
        if (wrong(part, !used && !rest))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is no list of %s", text, what);
        used += (size_t)snprintf(clean + used, sizeof clean - used, "%s%s", used ? "," : "", part);
    }
    snprintf(list, PRINCIPAL_LIST_BYTES, "%s", clean);
    return STATUS_OK;
}

/* Whether the text is the name of a user, or names a peer without one: a kind, and a name if the kind has names. */
static bool config_value_is_principal(const char *text) {
    size_t kind = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    if (!strncmp(text, "uid:", 4)) {
        size_t digits = strspn(text + 4, "0123456789");
        return digits > 0 && !text[4 + digits];
    }
    if (kind > 0 && text[kind] == ':')
        return text[kind + 1];
    return kind > 0 && !text[kind + strspn(text + kind, "abcdefghijklmnopqrstuvwxyz0123456789._-")];
}

static bool config_value_no_principal(const char *part, bool alone) {
    bool all = !strcmp(part, "none") || !strcmp(part, "all");
    return (all && !alone) || !config_value_is_principal(part);
}

int config_value_principals(const char *text, char list[PRINCIPAL_LIST_BYTES], struct fault *fault) {
    return config_value_list(text, list, config_value_no_principal,
                             "principals such as uid:1000,uid:1001; or none, or all", fault);
}

static bool config_value_no_host(const char *part, bool alone) {
    (void)alone;
    return !*part || part[strspn(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:")];
}

int config_value_hosts(const char *text, char list[PRINCIPAL_LIST_BYTES], struct fault *fault) {
    return config_value_list(text, list, config_value_no_host, "host names such as gpu1,gpu1.example.org", fault);
}

int config_value_address(const char *text, char *address, size_t size, struct fault *fault) {
    char copy[512];
    struct url url;
    if (strlen(text) >= size || snprintf(copy, sizeof copy, "tcp://%s", text) >= (int)sizeof copy ||
        url_parse(copy, &url, NULL))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is not an address and port such as 127.0.0.1:8477",
                         text);
    strcpy(address, text);
    return STATUS_OK;
}

int config_value_path(const char *text, char *path, size_t size, struct fault *fault) {
    if (strlen(text) >= size)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the path is longer than %zu bytes", size - 1);
    strcpy(path, text);
    return STATUS_OK;
}

/* ---- files ---- */

struct ini_file {
    FILE *stream;
    const struct ini_file_events *events;
    void *owner;
    int line;       /* the line that libinih has now */
    int error_line; /* the first wrong line; 0: none */
    struct fault fault;
};

static void ini_file_fail(struct ini_file *file, const struct fault *fault) {
    if (file->error_line)
        return;
    file->error_line = file->line;
    file->fault = *fault;
}

/* Reports a section when its header comes: libinih reports a section only with its first pair. If the closing bracket
 * is missing libinih reports that. */
static int ini_file_section(struct ini_file *file, const char *text, struct fault *fault) {
    char name[INI_FILE_LINE_MAX + 1];
    const char *end = strchr(text, ']');
    if (!file->events->section || *text != '[' || !end)
        return STATUS_OK;
    snprintf(name, sizeof name, "%.*s", (int)(end - text - 1), text + 1);
    return file->events->section(file->owner, name, fault);
}

/* libinih reads lines through this function. It removes the indent of a line, which libinih would take as a
 * continuation of the value before. */
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
    /* A line that libinih itself does not understand may come before the first bad value, or after it. */
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
