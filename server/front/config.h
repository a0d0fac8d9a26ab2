/* The daemon's configuration: one table of keys, used by the file, the flags and --help alike. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "engine/device/device.h"
#include "server/users/principal.h"

enum { CONFIG_LISTEN_MAX = 16, CONFIG_URL_MAX = 280, CONFIG_DEVICES_MAX = 64, CONFIG_QUARANTINE_MAX = 64 };
enum { CONFIG_PATH_MAX = 256 };
/* The key tls-client-auth. UNSAID: required if there is a CA for clients, otherwise none. */
enum config_client_auth { CONFIG_CLIENT_UNSAID, CONFIG_CLIENT_NONE, CONFIG_CLIENT_OPTIONAL, CONFIG_CLIENT_REQUIRED };

/* Where a value comes from. */
enum config_origin { CONFIG_FROM_DEFAULT, CONFIG_FROM_FILE, CONFIG_FROM_FLAG };
enum { CONFIG_ROWS_MAX = 96, CONFIG_VALUE_MAX = 4096 };

struct config_device {
    char name[32]; /* "cpu:0" */
    char kind[16];
    uint32_t index; /* its worker opens it with this index, which is not always the name's number */
    char environment[DEVICE_ENVIRONMENT_MAX]; /* of its worker, besides the daemon's own: "NAME=value" or "" */
};

struct config {
    char listen[CONFIG_LISTEN_MAX][CONFIG_URL_MAX];
    unsigned n_listen; /* 0: the default socket */
    struct config_device devices[CONFIG_DEVICES_MAX];
    unsigned n_devices;    /* at least 1 */
    bool devices_auto;     /* `devices` was "auto", */
    char devices_why[256]; /* and the reason if that means the CPU */
    /* Lists the devices of a kind other than cpu (as device_list()). NULL: there are none. Set before the file and the
     * flags are read. */
    int (*list_devices)(const char *kind, struct device_place *places, unsigned capacity, unsigned *count,
                        struct fault *fault);
    char http[CONFIG_URL_MAX];             /* serves HTTP on this address and port; "": on none */
    char http_hosts[PRINCIPAL_LIST_BYTES]; /* names of this host in HTTP, with commas between them */
    uint64_t log_level;                    /* enum log_level */
    uint64_t log_format;                   /* enum log_format */
    uint64_t socket_mode;
    uint64_t memory;  /* bytes of each device; 0: automatic */
    uint64_t staging; /* bytes of host memory for copies to and from a device */
    uint64_t threads;
    uint64_t max_connections;
    uint64_t max_sessions;           /* of each device */
    struct limits limits;            /* of everybody */
    char state_dir[CONFIG_PATH_MAX]; /* where named tensors are saved; "": nowhere */
    uint64_t state_sync;             /* when they are saved: struct state, sync_ms */
    uint64_t state_timeout;          /* how long saving may take at the end, in milliseconds */
    /* milliseconds */
    uint64_t hello_timeout, hold_timeout, transfer_timeout, drain_timeout, watchdog_timeout, restart_backoff;
    uint64_t device_timeout;                 /* 0: never */
    uint64_t compile_timeout;                /* 0: never */
    uint64_t compile_memory;                 /* bytes */
    char cache_dir[CONFIG_PATH_MAX];         /* as in code_cache_init() */
    uint64_t heartbeat_timeout;              /* 0: never */
    uint64_t quarantine_after;               /* failures in a minute; 0: never */
    char user_kernels[PRINCIPAL_LIST_BYTES]; /* "none", "all", or principals with commas between them */
    char users[CONFIG_PATH_MAX];             /* the file of users; "": there is none */
    uint64_t allow_plaintext;                /* TCP without TLS to other hosts, tokens and tensors in the clear */
    bool ignore_devices;                     /* the key `devices` is not evaluated */
    char tls_certificate[CONFIG_PATH_MAX], tls_key[CONFIG_PATH_MAX], tls_client_ca[CONFIG_PATH_MAX]; /* PEM files */
    uint64_t tls_client_auth;                                                                        /* as above */
    char file[CONFIG_PATH_MAX];       /* read last; "": none */
    char device_list[256];            /* `devices` as it was written */
    enum config_origin reading;       /* what is being read */
    uint8_t origins[CONFIG_ROWS_MAX]; /* enum config_origin, by row */
};

/* A key as `tensorctl config` shows it. */
struct config_row {
    const char *key;
    char value[CONFIG_VALUE_MAX]; /* as it would stand in the file */
    enum config_origin origin;
    bool reloadable; /* SIGHUP changes it */
};

/* What the command line asks for. */
enum config_action { CONFIG_RUN, CONFIG_HELP, CONFIG_VERSION, CONFIG_CHECK };

/* Every key at its default. */
void config_init(struct config *config);
/* Sets one key; `listen` adds an address. STATUS_INVALID_ARGUMENT names the value and what would be right. */
int config_set(struct config *config, const char *key, const char *value, struct fault *fault);
/* Reads an INI file: `key = value` lines, sections allowed and without meaning. The fault begins with "FILE:LINE: ". */
int config_read(struct config *config, const char *path, struct fault *fault);
/* Reads the command line; first its --config file, wherever it stands, because flags win over the file. The fault
 * begins with "--flag: ". */
int config_read_flags(struct config *config, int count, char **arguments, enum config_action *action,
                      struct fault *fault);
/* Replaces "auto" by the devices that exist: every CUDA device; or one CPU device, and `fault` says why. */
int config_find_devices(struct config *config, struct fault *fault);
/* For a reload: takes from `fresh` the keys that can change while the daemon runs. Calls `changed` for each key with
 * another value, and says whether it was taken. */
void config_take(struct config *config, const struct config *fresh,
                 void (*changed)(void *owner, const char *key, bool taken), void *owner);
/* Whether clients that use TLS must show a certificate. */
bool config_wants_certificates(const struct config *config);
/* Reads a row: first the keys, then the limits. False: there is no such row. */
bool config_row(const struct config *config, unsigned number, struct config_row *row);
/* "default", "flag", or the file's name. */
const char *config_origin_text(const struct config *config, enum config_origin origin);
void config_print_help(FILE *out);
