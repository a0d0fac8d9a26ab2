#include "server/config.h"

#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "proto/url.h"
#include "server/config_value.h"
#include "server/log.h"
#include "server/stats_page.h"

enum { CONFIG_LINE_MAX = 199 }; /* what libinih takes in one line */

/* One key. `minimum` and `maximum` hold for the numeric kinds, in the field's unit. */
struct config_key {
    const char *name;
    enum config_kind {
        CONFIG_URLS,
        CONFIG_DEVICE_LIST,
        CONFIG_LEVEL,
        CONFIG_MODE,
        CONFIG_BYTES,
        CONFIG_COUNT,
        CONFIG_DURATION,
        CONFIG_PRINCIPALS,
        CONFIG_PATH,
        CONFIG_CLIENT_AUTH
    } kind;
    size_t offset;
    const char *initial;
    uint64_t minimum, maximum;
    const char *help;
};

#define CONFIG_FIELD(field) offsetof(struct config, field)
#define CONFIG_HOUR UINT64_C(3600000)

static const struct config_key config_keys[] = {
    {"listen", CONFIG_URLS, CONFIG_FIELD(listen), "", 0, 0,
     "unix:/path, tcp://host:port, tls://host:port; may be repeated"},
    {"devices", CONFIG_DEVICE_LIST, CONFIG_FIELD(devices), "auto", 0, 0, "auto, cpu, cuda, cpu:0,cuda:1"},
    {"log-level", CONFIG_LEVEL, CONFIG_FIELD(log_level), "info", 0, 0, "debug, info, warning or error"},
    {"socket-mode", CONFIG_MODE, CONFIG_FIELD(socket_mode), "0660", 0, 0777, "mode of Unix sockets, octal"},
    {"memory", CONFIG_BYTES, CONFIG_FIELD(memory), "0", 0, INT64_MAX, "bytes of each device; 0: automatic"},
    {"staging", CONFIG_BYTES, CONFIG_FIELD(staging), "1G", 16u << 20, UINT64_C(1) << 40,
     "host memory for copies to and from a device"},
    {"threads", CONFIG_COUNT, CONFIG_FIELD(threads), "0", 0, 1024, "threads of a CPU device; 0: one a core"},
    {"max-connections", CONFIG_COUNT, CONFIG_FIELD(max_connections), "1024", 1, 65536, "of the whole daemon"},
    {"max-sessions", CONFIG_COUNT, CONFIG_FIELD(max_sessions), "256", 1, STATS_SESSIONS_MAX, "of each device"},
    {"session-bytes", CONFIG_BYTES, CONFIG_FIELD(session_bytes), "0", 0, INT64_MAX,
     "live bytes of a session; 0: the device's"},
    {"session-tensors", CONFIG_COUNT, CONFIG_FIELD(session_tensors), "1048576", 1, 1u << 30,
     "live tensors of a session"},
    {"session-streams", CONFIG_COUNT, CONFIG_FIELD(session_streams), "64", 1, 65536, "open streams of a session"},
    {"session-operations", CONFIG_COUNT, CONFIG_FIELD(session_operations), "65536", 1, 1u << 30,
     "operations in flight of a session"},
    {"session-out-bytes", CONFIG_BYTES, CONFIG_FIELD(session_out_bytes), "16M", 1u << 20, UINT64_C(1) << 40,
     "reply bytes in flight of a session"},
    {"hello-timeout", CONFIG_DURATION, CONFIG_FIELD(hello_timeout), "5s", 10, CONFIG_HOUR,
     "for a new connection to say Hello"},
    {"hold-timeout", CONFIG_DURATION, CONFIG_FIELD(hold_timeout), "10s", 0, CONFIG_HOUR,
     "for a connection to wait for its device's restart"},
    {"transfer-timeout", CONFIG_DURATION, CONFIG_FIELD(transfer_timeout), "30s", 10, CONFIG_HOUR,
     "for a copy between devices to begin"},
    {"drain-timeout", CONFIG_DURATION, CONFIG_FIELD(drain_timeout), "30s", 0, CONFIG_HOUR,
     "for queued work to finish at the end"},
    {"watchdog-timeout", CONFIG_DURATION, CONFIG_FIELD(watchdog_timeout), "10s", 0, CONFIG_HOUR,
     "without a sign of life a worker is killed; 0: never"},
    {"device-timeout", CONFIG_DURATION, CONFIG_FIELD(device_timeout), "300s", 0, 24 * CONFIG_HOUR,
     "without progress on its device a worker ends; 0: never"},
    {"restart-backoff", CONFIG_DURATION, CONFIG_FIELD(restart_backoff), "100ms", 0, 5000,
     "before a worker's restart, doubled up to 5s"},
    {"quarantine-after", CONFIG_COUNT, CONFIG_FIELD(quarantine_after), "5", 0, CONFIG_QUARANTINE_MAX,
     "failures of a worker in a minute; 0: never"},
    {"user-kernels", CONFIG_PRINCIPALS, CONFIG_FIELD(user_kernels), "none", 0, 0,
     "who may run CUDA code of their own: none, all, uid:1000,uid:1001"},
    {"tls-certificate", CONFIG_PATH, CONFIG_FIELD(tls_certificate), "", 0, 0,
     "PEM file: the daemon's certificate and those that lead from it to the root"},
    {"tls-key", CONFIG_PATH, CONFIG_FIELD(tls_key), "", 0, 0, "PEM file with its key; else that same file"},
    {"tls-client-ca", CONFIG_PATH, CONFIG_FIELD(tls_client_ca), "", 0, 0,
     "PEM file: who signs certificates of clients"},
    {"tls-client-auth", CONFIG_CLIENT_AUTH, CONFIG_FIELD(tls_client_auth), "", 0, 0,
     "certificates of clients: none, optional, required; else required with tls-client-ca"},
};
enum { CONFIG_KEYS = sizeof config_keys / sizeof *config_keys };

static const struct config_key *config_key_find(const char *name) {
    for (const struct config_key *key = config_keys; key < config_keys + CONFIG_KEYS; key++)
        if (!strcmp(key->name, name))
            return key;
    return NULL;
}

static int config_set_url(struct config *config, const char *text, struct fault *fault) {
    struct url url;
    int error = url_parse(text, &url, fault);
    if (error)
        return error;
    if (config->n_listen == CONFIG_LISTEN_MAX)
        return fault_set(fault, STATUS_LIMIT, "more than %d addresses to listen on", CONFIG_LISTEN_MAX);
    if (strlen(text) >= CONFIG_URL_MAX)
        return fault_set(fault, STATUS_LIMIT, "an address is longer than %d bytes", CONFIG_URL_MAX - 1);
    snprintf(config->listen[config->n_listen++], CONFIG_URL_MAX, "%s", text);
    return STATUS_OK;
}

static int config_set_urls(struct config *config, const char *value, struct fault *fault) {
    char text[CONFIG_URL_MAX * 4];
    if (strlen(value) >= sizeof text)
        return fault_set(fault, STATUS_LIMIT, "the value is longer than %zu bytes", sizeof text - 1);
    snprintf(text, sizeof text, "%s", value);
    char *rest = text;
    for (char *part; (part = strsep(&rest, ","));) {
        int error = config_set_url(config, config_value_trim(part), fault);
        if (error)
            return error;
    }
    return STATUS_OK;
}

static int config_set_level(uint64_t *field, const char *value, struct fault *fault) {
    int level = log_level_parse(value);
    if (level < 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%s\" is none of debug, info, warning, error", value);
    *field = (uint64_t)level;
    return STATUS_OK;
}

static int config_key_set(struct config *config, const struct config_key *key, const char *value, struct fault *fault) {
    uint64_t *number = (uint64_t *)((char *)config + key->offset);
    switch (key->kind) {
    case CONFIG_URLS:
        return config_set_urls(config, value, fault);
    case CONFIG_DEVICE_LIST:
        return config_value_devices(config, value, fault);
    case CONFIG_LEVEL:
        return config_set_level(number, value, fault);
    case CONFIG_MODE:
        return config_value_octal(value, key->maximum, number, fault);
    case CONFIG_BYTES:
        return config_value_bytes(value, key->minimum, key->maximum, number, fault);
    case CONFIG_COUNT:
        return config_value_count(value, key->minimum, key->maximum, number, fault);
    case CONFIG_DURATION:
        return config_value_duration(value, key->minimum, key->maximum, number, fault);
    case CONFIG_PRINCIPALS:
        return config_value_principals(value, (char *)number, fault);
    case CONFIG_PATH:
        return config_value_path(value, (char *)number, fault);
    case CONFIG_CLIENT_AUTH:
        return config_value_client_auth(value, number, fault);
    }
    return fault_set(fault, STATUS_INTERNAL, "the key %s has no kind", key->name);
}

void config_init(struct config *config) {
    *config = (struct config){.n_devices = 0};
    for (const struct config_key *key = config_keys; key < config_keys + CONFIG_KEYS; key++)
        if (*key->initial)
            config_key_set(config, key, key->initial, NULL);
}

int config_set(struct config *config, const char *name, const char *value, struct fault *fault) {
    const struct config_key *key = config_key_find(name);
    if (!key)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "unknown key \"%s\"", name);
    if (!*value)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%s\" has no value", name);
    return config_key_set(config, key, value, fault);
}

/* ---- the file ---- */

struct config_file {
    struct config *config;
    FILE *stream;
    int line;       /* of the text that libinih has now */
    int error_line; /* first wrong one; 0: none */
    struct fault fault;
};

static void config_file_fail(struct config_file *file, const struct fault *fault) {
    if (file->error_line)
        return;
    file->error_line = file->line;
    file->fault = *fault;
}

/* libinih reads through this: it does not tell its handler the line, and it takes an indented line for more of the
 * value before, which nobody means here. */
static char *config_file_line(char *text, int size, void *stream) {
    struct config_file *file = stream;
    if (!fgets(text, size, file->stream))
        return NULL;
    file->line++;
    size_t length = strlen(text);
    if (length && text[length - 1] != '\n' && !feof(file->stream)) {
        struct fault fault;
        fault_set(&fault, STATUS_LIMIT, "the line is longer than %d bytes", CONFIG_LINE_MAX);
        config_file_fail(file, &fault);
        return NULL;
    }
    size_t indent = strspn(text, " \t");
    memmove(text, text + indent, length - indent + 1);
    return text;
}

static int config_file_pair(void *user, const char *section, const char *name, const char *value) {
    struct config_file *file = user;
    struct fault fault;
    (void)section;
    if (!config_set(file->config, name, value ? value : "", &fault))
        return 1;
    config_file_fail(file, &fault);
    return 0;
}

int config_read(struct config *config, const char *path, struct fault *fault) {
    struct config_file file = {.config = config, .stream = fopen(path, "re")};
    if (!file.stream)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
    int line = ini_parse_stream(config_file_line, &file, config_file_pair, &file);
    int unread = ferror(file.stream);
    fclose(file.stream);
    /* What libinih itself does not understand may come before the first bad value, or after it. */
    if (line > 0 && (!file.error_line || line < file.error_line))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s:%d: neither \"key = value\" nor \"[section]\"", path,
                         line);
    if (file.error_line)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s:%d: %s", path, file.error_line, file.fault.message);
    if (line < 0 || unread)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: cannot be read", path);
    return STATUS_OK;
}

/* ---- the flags ---- */

/* One flag of the command line: `--name=value`, or `--name value` over two arguments. */
struct config_flag {
    char name[64];
    const char *value; /* NULL: none was given */
    int width;         /* arguments that it takes up */
};

static int config_flag_split(struct config_flag *flag, int count, char **arguments, struct fault *fault) {
    const char *text = arguments[0], *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    if (strncmp(text, "--", 2) != 0 || length - 2 >= sizeof flag->name)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is no flag; see tensord --help", text);
    snprintf(flag->name, sizeof flag->name, "%.*s", (int)length - 2, text + 2);
    bool alone = !strcmp(flag->name, "help") || !strcmp(flag->name, "version");
    if (equals)
        flag->value = equals + 1;
    else
        flag->value = !alone && count > 1 ? arguments[1] : NULL;
    flag->width = !equals && flag->value ? 2 : 1;
    if (alone && equals)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "--%s: takes no value", flag->name);
    return STATUS_OK;
}

static int config_flag_set(struct config *config, const struct config_flag *flag, bool *listens, struct fault *fault) {
    struct fault cause;
    if (!config_key_find(flag->name))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "--%s: no such flag; see tensord --help", flag->name);
    if (!strcmp(flag->name, "listen") && !*listens) {
        *listens = true; /* addresses on the command line replace those of the file */
        config->n_listen = 0;
    }
    if (!flag->value)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "--%s: has no value", flag->name);
    if (config_set(config, flag->name, flag->value, &cause))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "--%s: %s", flag->name, cause.message);
    return STATUS_OK;
}

static int config_read_file_flag(struct config *config, int count, char **arguments, struct fault *fault) {
    struct config_flag flag = {.width = 1};
    for (int i = 1; i < count; i += flag.width) {
        int error = config_flag_split(&flag, count - i, arguments + i, fault);
        if (error)
            return error;
        if (strcmp(flag.name, "config") != 0)
            continue;
        error = flag.value ? config_read(config, flag.value, fault)
                           : fault_set(fault, STATUS_INVALID_ARGUMENT, "--config: has no value");
        if (error)
            return error;
    }
    return STATUS_OK;
}

static bool config_asks(int count, char **arguments, const char *flag) {
    for (int i = 1; i < count; i++)
        if (!strcmp(arguments[i], flag))
            return true;
    return false;
}

int config_read_flags(struct config *config, int count, char **arguments, enum config_action *action,
                      struct fault *fault) {
    *action = CONFIG_RUN;
    if (config_asks(count, arguments, "--help"))
        *action = CONFIG_HELP;
    else if (config_asks(count, arguments, "--version"))
        *action = CONFIG_VERSION;
    if (*action != CONFIG_RUN)
        return STATUS_OK;
    int error = config_read_file_flag(config, count, arguments, fault);
    bool listens = false;
    struct config_flag flag = {.width = 1};
    for (int i = 1; !error && i < count; i += flag.width) {
        error = config_flag_split(&flag, count - i, arguments + i, fault);
        if (!error && strcmp(flag.name, "config") != 0)
            error = config_flag_set(config, &flag, &listens, fault);
    }
    return error;
}

void config_print_help(FILE *out) {
    fputs("tensord: a daemon that runs tensor operations on the devices of this host\n\n"
          "usage: tensord [--config FILE] [--listen URL]... [--devices LIST] [--KEY VALUE]...\n\n"
          "  --config FILE             read `KEY = VALUE` lines first; flags win over them\n"
          "  --help                    show this\n"
          "  --version                 show the version\n\n"
          "keys, in the file and as flags:\n",
          out);
    for (const struct config_key *key = config_keys; key < config_keys + CONFIG_KEYS; key++)
        fprintf(out, "  --%-20s %-8s %s\n", key->name, *key->initial ? key->initial : "-", key->help);
    fputs("\nSizes take K, M or G (powers of 1024); durations end in ms or s. Without `listen` there is one socket,\n"
          "$XDG_RUNTIME_DIR/tensord.sock, or /run/tensord/tensord.sock for root.\n",
          out);
}
