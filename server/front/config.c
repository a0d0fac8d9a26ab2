#include "server/front/config.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "proto/net/url.h"
#include "proto/ops/cleanup.h"
#include "server/ipc/stats_page.h"
#include "server/process/log.h"
#include "server/users/config_value.h"

/* One key. `minimum` and `maximum` hold for the numeric kinds, in the field's unit. */
struct config_key {
    const char *name;
    enum config_kind {
        CONFIG_URLS,
        CONFIG_DEVICE_LIST,
        CONFIG_LEVEL,
        CONFIG_LOG_FORMAT,
        CONFIG_MODE,
        CONFIG_BYTES,
        CONFIG_COUNT,
        CONFIG_DURATION,
        CONFIG_SYNC,
        CONFIG_PRINCIPALS,
        CONFIG_PATH,
        CONFIG_SWITCH,
        CONFIG_ADDRESS,
        CONFIG_HOSTS,
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
    {"log-format", CONFIG_LOG_FORMAT, CONFIG_FIELD(log_format), "text", 0, 0, "text or json, one event a line"},
    {"socket-mode", CONFIG_MODE, CONFIG_FIELD(socket_mode), "0660", 0, 0777, "mode of Unix sockets, octal"},
    {"memory", CONFIG_BYTES, CONFIG_FIELD(memory), "0", 0, INT64_MAX, "bytes of each device; 0: automatic"},
    {"staging", CONFIG_BYTES, CONFIG_FIELD(staging), "1G", 16u << 20, UINT64_C(1) << 40,
     "host memory for copies to and from a device"},
    {"threads", CONFIG_COUNT, CONFIG_FIELD(threads), "0", 0, 1024, "threads of a CPU device; 0: one a core"},
    {"max-connections", CONFIG_COUNT, CONFIG_FIELD(max_connections), "1024", 1, 65536, "of the whole daemon"},
    {"max-sessions", CONFIG_COUNT, CONFIG_FIELD(max_sessions), "256", 1, STATS_SESSIONS_MAX, "of each device"},
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
     "without progress on its device, or on a stream of it, a worker ends; 0: never"},
    {"heartbeat-timeout", CONFIG_DURATION, CONFIG_FIELD(heartbeat_timeout), "30s", 0, CONFIG_HOUR,
     "without a sign of life a resumable client loses its connection; 0: never"},
    {"restart-backoff", CONFIG_DURATION, CONFIG_FIELD(restart_backoff), "100ms", 0, 5000,
     "before a worker's restart, doubled up to 5s"},
    {"quarantine-after", CONFIG_COUNT, CONFIG_FIELD(quarantine_after), "5", 0, CONFIG_QUARANTINE_MAX,
     "failures of a worker in a minute; 0: never"},
    {"user-kernels", CONFIG_PRINCIPALS, CONFIG_FIELD(user_kernels), "none", 0, 0,
     "who may run CUDA code of their own: none, all, alice,uid:1001"},
    {"compile-timeout", CONFIG_DURATION, CONFIG_FIELD(compile_timeout), "60s", 0, CONFIG_HOUR,
     "for compiling a kernel; 0: as long as it takes"},
    {"compile-memory", CONFIG_BYTES, CONFIG_FIELD(compile_memory), "2G", 256 << 20, UINT64_C(1) << 40,
     "bytes that compiling a kernel may take"},
    {"cache-dir", CONFIG_PATH, CONFIG_FIELD(cache_dir), "", 0, 0,
     "where compiled kernels of programs are kept; else ~/.cache/tensord; none: nowhere"},
    {"users", CONFIG_PATH, CONFIG_FIELD(users), "", 0, 0, "file of users, see tensord user --help"},
    {"allow-plaintext", CONFIG_SWITCH, CONFIG_FIELD(allow_plaintext), "no", 0, 0,
     "TCP to other hosts without TLS: yes or no"},
    {"tls-certificate", CONFIG_PATH, CONFIG_FIELD(tls_certificate), "", 0, 0,
     "PEM file: the daemon's certificate, and the certificates between it and the root"},
    {"tls-key", CONFIG_PATH, CONFIG_FIELD(tls_key), "", 0, 0, "PEM file with its key; else that same file"},
    {"tls-client-ca", CONFIG_PATH, CONFIG_FIELD(tls_client_ca), "", 0, 0,
     "PEM file: who signs certificates of clients"},
    {"tls-client-auth", CONFIG_CLIENT_AUTH, CONFIG_FIELD(tls_client_auth), "", 0, 0,
     "certificates of clients: none, optional, required; else required with tls-client-ca"},
    {"http", CONFIG_ADDRESS, CONFIG_FIELD(http), "", 0, 0, "127.0.0.1:8477: dashboard, metrics and health"},
    {"http-hosts", CONFIG_HOSTS, CONFIG_FIELD(http_hosts), "", 0, 0,
     "names of this host as browsers call it; needed beyond loopback"},
    {"state-dir", CONFIG_PATH, CONFIG_FIELD(state_dir), "", 0, 0, "where named tensors are kept"},
    {"state-sync", CONFIG_SYNC, CONFIG_FIELD(state_sync), "5s", 100, CONFIG_HOUR,
     "when: publish (before the reply), so long after a change, drain"},
    {"state-timeout", CONFIG_DURATION, CONFIG_FIELD(state_timeout), "60s", 0, 24 * CONFIG_HOUR,
     "for saving the last changes at the end, in addition to drain-timeout"},
};
enum { CONFIG_KEYS = sizeof config_keys / sizeof *config_keys };
_Static_assert(CONFIG_KEYS + LIMITS_KEYS <= CONFIG_ROWS_MAX, "an origin for each row");

static const struct config_key *config_key_find(const char *name) {
    for (const struct config_key *key = config_keys; key < config_keys + CONFIG_KEYS; key++)
        if (!strcmp(key->name, name))
            return key;
    return NULL;
}

/* The row of a key that is in one of the two tables. */
static unsigned config_row_of(const char *name) {
    const struct config_key *key = config_key_find(name);
    return key ? (unsigned)(key - config_keys) : CONFIG_KEYS + limits_number(name);
}

/* Whether one of the two tables has the key. */
static bool config_has(const char *name) {
    return config_key_find(name) || limits_has(name);
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

/* ---- devices: "auto", "cpu", "cuda:0,cuda:1" ---- */

/* The devices of one kind. There are as many CPU devices as names for them: they share the processors. */
struct config_places {
    struct device_place at[DEVICE_PLACES_MAX];
    unsigned count;
};

static int config_list_devices(const struct config *config, const char *kind, struct config_places *places,
                               struct fault *fault) {
    if (strcmp(kind, "cpu") != 0 && !config->list_devices)
        return fault_set(fault, STATUS_NO_DEVICE, "there are CPU devices only");
    if (strcmp(kind, "cpu") != 0)
        return config->list_devices(kind, places->at, DEVICE_PLACES_MAX, &places->count, fault);
    for (places->count = 0; places->count < DEVICE_PLACES_MAX; places->count++)
        places->at[places->count] = (struct device_place){.index = places->count};
    return STATUS_OK;
}

static int config_add_device(struct config *config, const char *kind, const struct config_places *places,
                             unsigned number, struct fault *fault) {
    struct config_device *device = &config->devices[config->n_devices];
    if (config->n_devices == CONFIG_DEVICES_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "more than %d devices", CONFIG_DEVICES_MAX);
    snprintf(device->kind, sizeof device->kind, "%s", kind);
    snprintf(device->name, sizeof device->name, "%s:%u", kind, number);
    device->index = places->at[number].index;
    memcpy(device->environment, places->at[number].environment, sizeof device->environment);
    for (unsigned i = 0; i < config->n_devices; i++)
        if (!strcmp(config->devices[i].name, device->name))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "device \"%s\" is named twice", device->name);
    config->n_devices++;
    return STATUS_OK;
}

/* "cpu" is cpu:0; another kind without a number means all its devices. */
static int config_add_devices(struct config *config, const char *text, struct fault *fault) {
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    char kind[sizeof config->devices->kind] = "";
    struct config_places places;
    uint64_t number = 0;
    struct fault why;
    if (length < sizeof kind)
        snprintf(kind, sizeof kind, "%.*s", (int)length, text);
    if (!*kind || kind[strspn(kind, "abcdefghijklmnopqrstuvwxyz")] || !strcmp(kind, "auto"))
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "no device \"%s\": a device is a kind and a number, such as cpu:0; or the list is auto", text);
    if (config_list_devices(config, kind, &places, &why) != STATUS_OK)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no device \"%s\": %s", text, why.message);
    if (colon && config_value_count(colon + 1, 0, places.count - 1, &number, NULL))
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "no device \"%s\" here: the number after \"%s:\" goes from 0 to %u", text, kind,
                         places.count - 1);
    if (colon || !strcmp(kind, "cpu"))
        return config_add_device(config, kind, &places, (unsigned)number, fault);
    int error = STATUS_OK;
    for (unsigned i = 0; i < places.count && !error; i++)
        error = config_add_device(config, kind, &places, i, fault);
    return error;
}

static int config_set_devices(struct config *config, const char *text, struct fault *fault) {
    struct config found = *config;
    char copy[CONFIG_DEVICES_MAX * 16];
    found.devices_auto = !strcmp(text, "auto");
    found.n_devices = 0;
    if (strlen(text) >= sizeof copy)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list is longer than %zu bytes", sizeof copy - 1);
    snprintf(copy, sizeof copy, "%s", found.devices_auto ? "cpu:0" : text);
    char *rest = copy;
    for (char *part; (part = strsep(&rest, ","));) {
        int error = config_add_devices(&found, config_value_trim(part), fault);
        if (error)
            return error;
    }
    *config = found;
    return STATUS_OK;
}

int config_find_devices(struct config *config, struct fault *fault) {
    struct config found = *config;
    struct config_places places;
    int error = config_list_devices(config, "cuda", &places, fault);
    if (!config->devices_auto || error)
        return error;
    found.n_devices = 0;
    for (unsigned i = 0; i < places.count && i < CONFIG_DEVICES_MAX; i++)
        config_add_device(&found, "cuda", &places, i, fault);
    *config = found;
    return STATUS_OK;
}

/* ---- keys ---- */

static int config_set_level(uint64_t *field, const char *value, struct fault *fault) {
    int level = log_level_parse(value);
    if (level < 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%s\" is none of debug, info, warning, error", value);
    *field = (uint64_t)level;
    return STATUS_OK;
}

static int config_set_log_format(uint64_t *field, const char *value, struct fault *fault) {
    bool json = !strcmp(value, "json");
    if (!json && strcmp(value, "text") != 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%s\" is neither text nor json", value);
    *field = json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
    return STATUS_OK;
}

static int config_set_client_auth(uint64_t *field, const char *text, struct fault *fault) {
    static const char *const names[] = {
        [CONFIG_CLIENT_NONE] = "none", [CONFIG_CLIENT_OPTIONAL] = "optional", [CONFIG_CLIENT_REQUIRED] = "required"};
    for (unsigned i = CONFIG_CLIENT_NONE; i <= CONFIG_CLIENT_REQUIRED; i++)
        if (!strcmp(text, names[i])) {
            *field = i;
            return STATUS_OK;
        }
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is none of none, optional, required", text);
}
static int config_key_set(struct config *config, const struct config_key *key, const char *value, struct fault *fault) {
    uint64_t *number = (uint64_t *)((char *)config + key->offset);
    switch (key->kind) {
    case CONFIG_URLS:
        return config_set_urls(config, value, fault);
    case CONFIG_DEVICE_LIST:
        snprintf(config->device_list, sizeof config->device_list, "%s", value);
        return config->ignore_devices ? STATUS_OK : config_set_devices(config, value, fault);
    case CONFIG_LEVEL:
        return config_set_level(number, value, fault);
    case CONFIG_LOG_FORMAT:
        return config_set_log_format(number, value, fault);
    case CONFIG_MODE:
        return config_value_octal(value, key->maximum, number, fault);
    case CONFIG_BYTES:
        return config_value_bytes(value, key->minimum, key->maximum, number, fault);
    case CONFIG_COUNT:
        return config_value_count(value, key->minimum, key->maximum, number, fault);
    case CONFIG_DURATION:
        return config_value_duration(value, key->minimum, key->maximum, number, fault);
    case CONFIG_SYNC:
        return config_value_sync(value, key->minimum, key->maximum, number, fault);
    case CONFIG_PRINCIPALS:
        return config_value_principals(value, (char *)number, fault);
    case CONFIG_PATH:
        return config_value_path(value, (char *)number, CONFIG_PATH_MAX, fault);
    case CONFIG_SWITCH:
        return config_value_switch(value, number, fault);
    case CONFIG_ADDRESS:
        return config_value_address(value, (char *)number, CONFIG_URL_MAX, fault);
    case CONFIG_HOSTS:
        return config_value_hosts(value, (char *)number, fault);
    case CONFIG_CLIENT_AUTH:
        return config_set_client_auth(number, value, fault);
    }
    return fault_set(fault, STATUS_INTERNAL, "the key %s has no kind", key->name);
}

void config_init(struct config *config) {
    *config = (struct config){.n_devices = 0};
    for (const struct config_key *key = config_keys; key < config_keys + CONFIG_KEYS; key++)
        if (*key->initial)
            config_key_set(config, key, key->initial, NULL);
    limits_init(&config->limits);
}

bool config_wants_certificates(const struct config *config) {
    return config->tls_client_auth == CONFIG_CLIENT_REQUIRED ||
           (config->tls_client_auth == CONFIG_CLIENT_UNSAID && *config->tls_client_ca);
}

int config_set(struct config *config, const char *name, const char *value, struct fault *fault) {
    const struct config_key *key = config_key_find(name);
    if (!config_has(name))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "unknown key \"%s\"", name);
    if (!*value)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%s\" has no value", name);
    int error = key ? config_key_set(config, key, value, fault) : limits_set(&config->limits, name, value, fault);
    if (!error)
        config->origins[config_row_of(name)] = (uint8_t)config->reading;
    return error;
}

/* ---- a change while the daemon runs ---- */

/* Keys whose new value counts when it is next used. The values of all others have gone to workers and sockets. */
static const char *const config_reloadable[] = {
    "max-connections",  "hold-timeout", "watchdog-timeout", "restart-backoff",
    "quarantine-after", "user-kernels", "http-hosts",
};

static bool config_key_reloadable(const struct config_key *key) {
    for (size_t i = 0; i < sizeof config_reloadable / sizeof *config_reloadable; i++)
        if (!strcmp(config_reloadable[i], key->name))
            return true;
    return false;
}

static bool config_same_urls(const struct config *a, const struct config *b) {
    bool same = a->n_listen == b->n_listen;
    for (unsigned i = 0; same && i < a->n_listen; i++)
        same = !strcmp(a->listen[i], b->listen[i]);
    return same;
}

static bool config_key_same(const struct config_key *key, const struct config *a, const struct config *b) {
    const char *x = (const char *)a + key->offset, *y = (const char *)b + key->offset;
    switch (key->kind) {
    case CONFIG_URLS:
        return config_same_urls(a, b);
    case CONFIG_DEVICE_LIST:
        return true; /* not compared: finding devices again would mean opening them again */
    case CONFIG_PRINCIPALS:
    case CONFIG_PATH:
    case CONFIG_ADDRESS:
    case CONFIG_HOSTS:
        return !strcmp(x, y);
    case CONFIG_LEVEL:
    case CONFIG_LOG_FORMAT:
    case CONFIG_MODE:
    case CONFIG_BYTES:
    case CONFIG_COUNT:
    case CONFIG_DURATION:
    case CONFIG_SYNC:
    case CONFIG_SWITCH:
    case CONFIG_CLIENT_AUTH:
        break;
    }
    return *(const uint64_t *)x == *(const uint64_t *)y;
}

static void config_key_copy(const struct config_key *key, struct config *to, const struct config *from) {
    bool list = key->kind == CONFIG_PRINCIPALS || key->kind == CONFIG_HOSTS;
    size_t bytes = list ? PRINCIPAL_LIST_BYTES : sizeof(uint64_t);
    memcpy((char *)to + key->offset, (const char *)from + key->offset, bytes);
}

/* Takes all limits: they can change while the daemon runs. */
static void config_take_limits(struct config *config, const struct config *fresh,
                               void (*changed)(void *owner, const char *key, bool taken), void *owner) {
    const char *key, *unit;
    uint64_t was, is;
    for (unsigned row = 0; limits_row(&config->limits, row, &key, &was, &unit); row++)
        if (limits_row(&fresh->limits, row, &key, &is, &unit) && is != was)
            changed(owner, key, true);
    memcpy(config->origins + CONFIG_KEYS, fresh->origins + CONFIG_KEYS, LIMITS_KEYS);
    config->limits = fresh->limits;
}

void config_take(struct config *config, const struct config *fresh,
                 void (*changed)(void *owner, const char *key, bool taken), void *owner) {
    for (const struct config_key *key = config_keys; key < config_keys + CONFIG_KEYS; key++) {
        if (config_key_same(key, config, fresh))
            continue;
        bool taken = config_key_reloadable(key);
        if (taken) {
            config_key_copy(key, config, fresh);
            config->origins[key - config_keys] = fresh->origins[key - config_keys];
        }
        changed(owner, key->name, taken);
    }
    config_take_limits(config, fresh, changed, owner);
}

/* ---- the file ---- */

static int config_file_pair(void *owner, const char *key, const char *value, struct fault *fault) {
    return config_set(owner, key, value, fault);
}

int config_read(struct config *config, const char *path, struct fault *fault) {
    static const struct ini_file_events events = {.pair = config_file_pair};
    CLEANUP(fclose) FILE *stream = fopen(path, "re");
    if (!stream)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
    snprintf(config->file, sizeof config->file, "%s", path);
    config->reading = CONFIG_FROM_FILE;
    int error = ini_file_read(stream, path, &events, config, fault);
    config->reading = CONFIG_FROM_DEFAULT;
    return error;
}

/* ---- the flags ---- */

/* One flag of the command line: `--name=value`, or `--name value` over two arguments. */
struct config_flag {
    char name[64];
    const char *value; /* NULL: none was given */
    int width;         /* number of arguments that it takes */
};

static int config_flag_split(struct config_flag *flag, int count, char **arguments, struct fault *fault) {
    const char *text = arguments[0], *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    if (strncmp(text, "--", 2) != 0 || length - 2 >= sizeof flag->name)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.100s\" is no flag; see tensord --help", text);
    snprintf(flag->name, sizeof flag->name, "%.*s", (int)length - 2, text + 2);
    bool alone = !strcmp(flag->name, "help") || !strcmp(flag->name, "version") || !strcmp(flag->name, "check-config");
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
    if (!config_has(flag->name))
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
    else if (config_asks(count, arguments, "--check-config"))
        *action = CONFIG_CHECK;
    if (*action == CONFIG_HELP || *action == CONFIG_VERSION)
        return STATUS_OK;
    int error = config_read_file_flag(config, count, arguments, fault);
    bool listens = false;
    struct config_flag flag = {.width = 1};
    for (int i = 1; !error && i < count; i += flag.width) {
        error = config_flag_split(&flag, count - i, arguments + i, fault);
        if (error || !strcmp(flag.name, "config") || !strcmp(flag.name, "check-config"))
            continue;
        config->reading = CONFIG_FROM_FLAG;
        error = config_flag_set(config, &flag, &listens, fault);
        config->reading = CONFIG_FROM_DEFAULT;
    }
    return error;
}

/* ---- values as text ---- */

static void config_urls_text(const struct config *config, char *out, size_t size) {
    size_t used = 0;
    *out = 0;
    for (unsigned i = 0; i < config->n_listen && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "," : "", config->listen[i]);
}

static void config_key_text(const struct config *config, const struct config_key *key, char *out, size_t size) {
    static const char *const switches[] = {"no", "yes"};
    static const char *const levels[] = {"debug", "info", "warning", "error"};
    static const char *const auths[] = {"", "none", "optional", "required"};
    const char *text = (const char *)config + key->offset;
    uint64_t number;
    memcpy(&number, text, sizeof number); /* only for kinds that are numbers */
    switch (key->kind) {
    case CONFIG_URLS:
        config_urls_text(config, out, size);
        return;
    case CONFIG_DEVICE_LIST:
        text = config->device_list;
        break;
    case CONFIG_LEVEL:
        text = levels[number % 4];
        break;
    case CONFIG_LOG_FORMAT:
        text = number == LOG_FORMAT_JSON ? "json" : "text";
        break;
    case CONFIG_MODE:
        snprintf(out, size, "%04llo", (unsigned long long)number);
        return;
    case CONFIG_BYTES:
        config_value_bytes_text(number, out, size);
        return;
    case CONFIG_COUNT:
        snprintf(out, size, "%llu", (unsigned long long)number);
        return;
    case CONFIG_DURATION:
        config_value_duration_text(number, out, size);
        return;
    case CONFIG_SYNC:
        config_value_sync_text(number, out, size);
        return;
    case CONFIG_SWITCH:
        text = switches[number % 2];
        break;
    case CONFIG_CLIENT_AUTH:
        text = auths[number % 4];
        break;
    case CONFIG_PRINCIPALS:
    case CONFIG_PATH:
    case CONFIG_ADDRESS:
    case CONFIG_HOSTS:
        break;
    }
    snprintf(out, size, "%s", text);
}

bool config_row(const struct config *config, unsigned number, struct config_row *row) {
    const char *unit;
    uint64_t value;
    if (number >= CONFIG_KEYS + LIMITS_KEYS)
        return false;
    row->origin = (enum config_origin)config->origins[number];
    row->reloadable = number >= CONFIG_KEYS || config_key_reloadable(&config_keys[number]);
    if (number < CONFIG_KEYS) {
        row->key = config_keys[number].name;
        config_key_text(config, &config_keys[number], row->value, sizeof row->value);
        return true;
    }
    limits_row(&config->limits, number - CONFIG_KEYS, &row->key, &value, &unit);
    if (!strcmp(unit, "ms"))
        config_value_duration_text(value, row->value, sizeof row->value);
    else if (*unit)
        config_value_bytes_text(value, row->value, sizeof row->value);
    else if (value == LIMITS_QUARTER)
        snprintf(row->value, sizeof row->value, "quarter");
    else
        snprintf(row->value, sizeof row->value, "%llu", (unsigned long long)value);
    return true;
}

const char *config_origin_text(const struct config *config, enum config_origin origin) {
    static const char *const texts[] = {[CONFIG_FROM_DEFAULT] = "default", [CONFIG_FROM_FLAG] = "flag"};
    return origin == CONFIG_FROM_FILE ? config->file : texts[origin];
}

void config_print_help(FILE *out) {
    fputs("tensord: a daemon that runs tensor operations on the devices of this host\n\n"
          "usage: tensord [--config FILE] [--listen URL]... [--devices LIST] [--KEY VALUE]...\n"
          "       tensord user COMMAND      maintains the file of users; see tensord user --help\n\n"
          "  --config FILE             read `KEY = VALUE` lines first; flags win over them\n"
          "  --check-config            say what is wrong with all of it, and start nothing\n"
          "  --help                    show this\n"
          "  --version                 show the version\n\n"
          "keys, in the file and as flags:\n",
          out);
    for (const struct config_key *key = config_keys; key < config_keys + CONFIG_KEYS; key++)
        fprintf(out, "  --%-21s %-8s %s\n", key->name, *key->initial ? key->initial : "-", key->help);
    fputs("\nlimits, of each session and each principal:\n", out);
    limits_print_help(out);
    fputs("\nSizes take K, M, G or T (powers of 1024); durations end in ms, s, m, h or d. Without `listen` there is "
          "one socket,\n"
          "$XDG_RUNTIME_DIR/tensord.sock, or /run/tensord/tensord.sock for root.\n",
          out);
}
