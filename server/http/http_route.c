/* The paths: their content, who may read it, and with which headers. */
#include "server/http/http_impl.h"

#include <arpa/inet.h>
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "proto/files/json.h"
#include "proto/files/status_json.h"
#include "server/front/status.h"
#include "server/process/log.h"

/* ---- who may read ---- */

enum { HTTP_BASIC_MAX = 512, HTTP_BASIC_TEXT_MAX = HTTP_BASIC_MAX / 4 * 3 };

/* The password of "NAME:PASSWORD"; `text` has room for both. "": the text has another form, or a NUL byte in it. */
static const char *http_basic_password(const char *encoded, char text[HTTP_BASIC_TEXT_MAX + 1]) {
    size_t length = strlen(encoded);
    text[0] = 0;
    if (!length || length > HTTP_BASIC_MAX)
        return text;
    int bytes = EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)encoded, (int)length);
    text[bytes > 0 ? bytes : 0] = 0;
    for (const char *fill = encoded + length; bytes > 0 && fill > encoded && fill[-1] == '='; fill--)
        bytes--; /* the padding of the last block was decoded as zeros */
    char *colon = strchr(text, ':');
    return colon && bytes > 0 && strlen(text) == (size_t)bytes ? colon + 1 : "";
}

/* Sets the peer, for the log and for counting its failed logins. */
static void http_login_peer(struct http *http, struct MHD_Connection *connection, struct peer *peer) {
    const union MHD_ConnectionInfo *info =
        http->library.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof address;
    *peer = (struct peer){.address = "http"};
    if (info && !getpeername(info->connect_fd, (struct sockaddr *)&address, &length))
        source_find(&peer->source, &address);
}

static unsigned http_login_code(struct http *http, struct MHD_Connection *connection, const char *token,
                                unsigned *wait_s) {
    struct peer peer;
    struct login_request request = {.peer = &peer, .token = token};
    struct principal principal;
    struct fault fault;
    uint64_t wait_ms;
    http_login_peer(http, connection, &peer);
    int error = login_check_now(&http->front->login, &request, &principal, &wait_ms, &fault);
    *wait_s = (unsigned)((wait_ms + 999) / 1000);
    if (!error)
        error = role_check(ROLE_ON_CONTROL, FRAME_GET_STATUS, principal.role, principal.name, &fault);
    http->admin = !error && principal.role == ROLE_ADMIN;
    return !error ? MHD_HTTP_OK : *wait_s ? MHD_HTTP_TOO_MANY_REQUESTS : MHD_HTTP_UNAUTHORIZED;
}

static unsigned http_login_check(struct http *http, struct MHD_Connection *connection, unsigned *wait_s) {
    const char *shown = http->library.lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    char text[HTTP_BASIC_TEXT_MAX + 1];
    unsigned code = MHD_HTTP_UNAUTHORIZED;
    *wait_s = 0;
    if (!http->front->login.users)
        return MHD_HTTP_OK;
    if (shown && !strncasecmp(shown, "Bearer ", 7))
        code = http_login_code(http, connection, shown + 7, wait_s);
    else if (shown && !strncasecmp(shown, "Basic ", 6))
        code = http_login_code(http, connection, http_basic_password(shown + 6, text), wait_s);
    OPENSSL_cleanse(text, sizeof text);
    if (code != MHD_HTTP_OK)
        log_event(LOG_LEVEL_DEBUG, "http_denied", "token", !shown ? "none" : *wait_s ? "not looked at" : "wrong", NULL);
    return code;
}

/* ---- history ---- */

/* Figures as doubles, because readers of JSON use doubles, too. */
struct http_sample {
    double live, reserved, sessions, queue, ops, in, out, busy, utilisation, faults;
};

static const struct http_series {
    const char *name;
    size_t offset;
} http_series[] = {
    {"live", offsetof(struct http_sample, live)},
    {"reserved", offsetof(struct http_sample, reserved)},
    {"sessions", offsetof(struct http_sample, sessions)},
    {"queue_depth", offsetof(struct http_sample, queue)},
    {"ops_per_s", offsetof(struct http_sample, ops)},
    {"bytes_in_per_s", offsetof(struct http_sample, in)},
    {"bytes_out_per_s", offsetof(struct http_sample, out)},
    {"busy_percent", offsetof(struct http_sample, busy)},
    {"utilisation_percent", offsetof(struct http_sample, utilisation)}, /* null: not known */
    {"faults", offsetof(struct http_sample, faults)},                   /* since the daemon's start */
};
enum { HTTP_SERIES = sizeof http_series / sizeof *http_series };

int http_history_init(struct http_history *history, unsigned n_devices, struct fault *fault) {
    *history = (struct http_history){.n_devices = n_devices};
    history->samples = calloc((size_t)n_devices * HTTP_HISTORY_SAMPLES, sizeof *history->samples);
    return history->samples ? STATUS_OK : fault_set(fault, STATUS_NO_HOST_MEMORY, "http: no memory for a history");
}

void http_history_finish(struct http_history *history) {
    free(history->samples);
    history->samples = NULL;
}

static struct http_sample http_sample_of(const struct worker_slot *slot) {
    const struct stats_device *device = &slot->snapshot.device;
    const struct device_readings *readings = &device->readings;
    return (struct http_sample){
        .live = (double)device->engine.memory_live,
        .reserved = (double)device->engine.memory_reserved,
        .sessions = slot->snapshot.n_sessions,
        .queue = (double)device->engine.queue_depth,
        .ops = device->ops_per_s,
        .in = device->bytes_in_per_s,
        .out = device->bytes_out_per_s,
        .busy = device->busy_ratio * 100,
        .utilisation = device_readings_has(readings, READING_UTILISATION_GPU)
                           ? (double)readings->values[READING_UTILISATION_GPU]
                           : NAN,
        .faults = slot->n_failures,
    };
}

void http_history_sample(struct http_history *history, const struct supervisor *supervisor) {
    for (unsigned i = 0; i < history->n_devices; i++)
        history->samples[i * HTTP_HISTORY_SAMPLES + history->next] = http_sample_of(&supervisor->slots[i]);
    history->next = (history->next + 1) % HTTP_HISTORY_SAMPLES;
    if (history->count < HTTP_HISTORY_SAMPLES)
        history->count++;
}

static void http_history_write_series(const struct http_history *history, unsigned device,
                                      const struct http_series *series, struct json *json) {
    const struct http_sample *samples = history->samples + (size_t)device * HTTP_HISTORY_SAMPLES;
    unsigned first = (history->next + HTTP_HISTORY_SAMPLES - history->count) % HTTP_HISTORY_SAMPLES;
    json_open(json, series->name, '[');
    for (unsigned i = 0; i < history->count; i++) {
        const struct http_sample *sample = &samples[(first + i) % HTTP_HISTORY_SAMPLES];
        json_real(json, NULL, *(const double *)((const char *)sample + series->offset));
    }
    json_close(json, ']');
}

static void http_history_write(const struct http_history *history, const struct supervisor *supervisor, FILE *out) {
    struct json json = {.out = out, .first = true};
    json_open(&json, NULL, '{');
    json_real(&json, "step_s", HTTP_HISTORY_STEP_MS / 1e3);
    json_open(&json, "devices", '[');
    for (unsigned i = 0; i < history->n_devices; i++) {
        json_open(&json, NULL, '{');
        json_text(&json, "name", supervisor->slots[i].device.name);
        for (unsigned s = 0; s < HTTP_SERIES; s++)
            http_history_write_series(history, i, &http_series[s], &json);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_close(&json, '}');
    fputc('\n', out);
}

/* ---- health and status ---- */

enum { HTTP_OK = MHD_HTTP_OK, HTTP_UNAVAILABLE = MHD_HTTP_SERVICE_UNAVAILABLE };

static int http_use_status(void *owner, const Tensord__Status *status) {
    status_json_write(owner, status, STATUS_JSON_ALL, true);
    return STATUS_OK;
}

static unsigned http_write_status(struct http *http, FILE *out) {
    static const struct principal admin = {.role = ROLE_ADMIN};
    return status_use(http->front, http->admin ? &admin : NULL, http_use_status, out) == STATUS_OK ? HTTP_OK : 0;
}

static unsigned http_write_history(struct http *http, FILE *out) {
    http_history_write(&http->history, &http->front->supervisor, out);
    return HTTP_OK;
}

/* Responds always: then the front is alive. */
static unsigned http_write_healthz(struct http *http, FILE *out) {
    (void)http;
    fputs("ok\n", out);
    return HTTP_OK;
}

static unsigned http_write_readyz(struct http *http, FILE *out) {
    const struct supervisor *supervisor = &http->front->supervisor;
    bool ready = !http->front->draining;
    if (!ready)
        fputs("the daemon is shutting down\n", out);
    for (unsigned i = 0; i < supervisor->n_slots; i++) {
        const struct worker_slot *slot = &supervisor->slots[i];
        if (slot->state == WORKER_READY)
            continue;
        ready = false;
        /* Not with users: causes may name things that clients do, and this is read without a token. */
        bool told = slot->last_fault[0] && !http->front->login.users;
        fprintf(out, "%s is %s%s%s\n", slot->device.name, worker_state_name(slot->state), told ? ": " : "",
                told ? slot->last_fault : "");
    }
    if (ready)
        fputs("ok\n", out);
    return ready ? HTTP_OK : HTTP_UNAVAILABLE;
}

/* A response is reused for so long. This bounds the cost of a client that asks without a pause. */
#define HTTP_FRESH_NS UINT64_C(100000000)
/* The most bytes of all responses on their way to slow readers; beyond it other clients are told to come back. */
#define HTTP_BODIES_MAX ((size_t)64 << 20)
#define HTTP_TEXT "text/plain; charset=utf-8"

static const struct http_route {
    const char *path, *type;
    http_write *write; /* NULL: the dashboard */
    bool open;         /* also without a token: for programs that watch over others */
} http_routes[] = {
    {"/", "text/html; charset=utf-8", NULL},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", http_write_metrics},
    {"/status.json", "application/json", http_write_status},
    {"/history.json", "application/json", http_write_history},
    {"/healthz", HTTP_TEXT, http_write_healthz, true},
    {"/readyz", HTTP_TEXT, http_write_readyz, true},
};
enum { HTTP_ROUTES = sizeof http_routes / sizeof *http_routes };
_Static_assert(sizeof http_routes / sizeof *http_routes <= (size_t)HTTP_ROUTES_MAX,
               "a response can be kept for each route");

/* ---- hosts ---- */

static bool http_host_is_address(const char *host) {
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

static bool http_host_is_listed(const char *host, const char *hosts) {
    size_t length = strlen(host);
    for (const char *at = hosts; *at;) {
        size_t part = strcspn(at, ",");
        if (part == length && !strncasecmp(at, host, length))
            return true;
        at += part + (at[part] == ',');
    }
    return false;
}

/* Whether the host in a request is this host. A browser that was misled to connect another site's name with this
 * address (DNS rebinding) still sends that name. A name may be an address, localhost, or in `hosts`. */
static bool http_host_is_ours(const char *host, const char *hosts) {
    char name[256];
    bool bracketed = *host == '[';
    host += bracketed;
    size_t length = strcspn(host, bracketed ? "]" : ":");
    if (!length || length >= sizeof name)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)length, host);
    return http_host_is_address(name) || (!bracketed && !strcasecmp(name, "localhost")) ||
           (!bracketed && http_host_is_listed(name, hosts));
}

/* ---- responses ---- */

/* The bytes of a response, which the library frees when the last connection has sent them. */
struct http_body {
    struct http *http;
    size_t bytes;
    char *text;
};

static void http_body_free(void *argument) {
    struct http_body *body = argument;
    body->http->body_bytes -= body->bytes;
    free(body->text);
    free(body);
}

static struct MHD_Response *http_response_of(struct http *http, char *text, size_t bytes) {
    struct http_body *body = malloc(sizeof *body);
    if (!body) {
        free(text);
        return NULL;
    }
    *body = (struct http_body){http, bytes, text};
    http->body_bytes += bytes;
    struct MHD_Response *response =
        http->library.create_response_from_buffer_with_free_callback_cls(bytes, text, http_body_free, body);
    if (!response)
        http_body_free(body);
    return response;
}

static void http_set_headers(struct http *http, struct MHD_Response *response, const struct http_route *route) {
    const char *const headers[][2] = {
        {"Content-Type", route ? route->type : HTTP_TEXT},
        {"Content-Security-Policy", route && !route->write ? http_dashboard_policy : "default-src 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},
        {"Cache-Control", "no-store"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        http->library.add_response_header(response, headers[i][0], headers[i][1]);
}

static enum MHD_Result http_send(struct http *http, struct MHD_Connection *connection, struct MHD_Response *response,
                                 unsigned code) {
    http->requests[code / 100]++;
    return http->library.queue_response(connection, code, response);
}

/* `text` is constant. `wait_s`: after so many seconds the client may come again; 0: not said. */
static enum MHD_Result http_send_text_for(struct http *http, struct MHD_Connection *connection, unsigned code,
                                          const char *text, unsigned wait_s) {
    char seconds[16];
    struct MHD_Response *response =
        http->library.create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    http_set_headers(http, response, NULL);
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        http->library.add_response_header(response, "Allow", "GET, HEAD");
    if (code == MHD_HTTP_UNAUTHORIZED)
        http->library.add_response_header(response, "WWW-Authenticate", "Basic realm=\"tensord\", charset=\"UTF-8\"");
    snprintf(seconds, sizeof seconds, "%u", wait_s);
    if (wait_s)
        http->library.add_response_header(response, "Retry-After", seconds);
    enum MHD_Result result = http_send(http, connection, response, code);
    http->library.destroy_response(response);
    return result;
}

static enum MHD_Result http_send_text(struct http *http, struct MHD_Connection *connection, unsigned code,
                                      const char *text) {
    return http_send_text_for(http, connection, code, text, code == MHD_HTTP_SERVICE_UNAVAILABLE);
}

static enum MHD_Result http_deny(struct http *http, struct MHD_Connection *connection, unsigned code, unsigned wait_s) {
    return http_send_text_for(http, connection, code,
                              code == MHD_HTTP_TOO_MANY_REQUESTS
                                  ? "too many wrong tokens came from this address; try again later\n"
                                  : "a token is needed, as Bearer or as the password of any name\n",
                              wait_s);
}

static struct MHD_Response *http_make(struct http *http, const struct http_route *route, unsigned *code) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    *code = route->write(http, out);
    bool whole = !ferror(out);
    if (fclose(out) || !whole || !*code) {
        free(text);
        return NULL;
    }
    struct MHD_Response *response = http_response_of(http, text, bytes);
    if (response)
        http_set_headers(http, response, route);
    return response;
}

static void http_response_drop(struct http *http, struct http_response *response) {
    if (response->response)
        http->library.destroy_response(response->response);
    response->response = NULL;
}

void http_route_finish(struct http *http) {
    for (int i = 0; i < HTTP_ROUTES; i++)
        for (int admin = 0; admin < 2; admin++)
            http_response_drop(http, &http->responses[i][admin]);
}

static enum MHD_Result http_send_route(struct http *http, struct MHD_Connection *connection,
                                       const struct http_route *route) {
    struct http_response *response = &http->responses[route - http_routes][http->admin];
    uint64_t now = uv_hrtime();
    uint64_t fresh = route->open ? 0 : HTTP_FRESH_NS; /* health is short, and programs act on it, so it must be fresh */
    if (!response->response || now - response->made_ns >= fresh) {
        http_response_drop(http, response);
        if (http->body_bytes > HTTP_BODIES_MAX)
            return http_send_text(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                                  "too many responses are on their way\n");
        response->response = http_make(http, route, &response->code);
        response->made_ns = now;
    }
    if (!response->response)
        return http_send_text(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory for a response\n");
    return http_send(http, connection, response->response, response->code);
}

static enum MHD_Result http_send_dashboard(struct http *http, struct MHD_Connection *connection,
                                           const struct http_route *route) {
    struct MHD_Response *response =
        http->library.create_response_from_buffer(http_dashboard_bytes, (void *)http_dashboard, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    http_set_headers(http, response, route);
    enum MHD_Result result = http_send(http, connection, response, MHD_HTTP_OK);
    http->library.destroy_response(response);
    return result;
}

enum MHD_Result http_route_respond(struct http *http, struct MHD_Connection *connection, const char *path,
                                   const char *method) {
    const char *host = http->library.lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    const struct http_route *route = http_routes, *end = http_routes + HTTP_ROUTES;
    while (route < end && strcmp(route->path, path) != 0)
        route++;
    if (!host)
        return http_send_text(http, connection, MHD_HTTP_BAD_REQUEST, "the request names no host\n");
    if (!http_host_is_ours(host, http->front->config->http_hosts))
        return http_send_text(http, connection, MHD_HTTP_FORBIDDEN,
                              "this is not a name of this host; the daemon's key http-hosts lists its names\n");
    if (route == end)
        return http_send_text(http, connection, MHD_HTTP_NOT_FOUND,
                              "there are: / /metrics /status.json /history.json /healthz /readyz\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return http_send_text(http, connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    if (!route->open && http_is_busy(http))
        return http_send_text(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE, "too many responses are on their way\n");
    http->admin = false;
    unsigned wait_s = 0, login = route->open ? MHD_HTTP_OK : http_login_check(http, connection, &wait_s);
    if (login != MHD_HTTP_OK)
        return http_deny(http, connection, login, wait_s);
    return route->write ? http_send_route(http, connection, route) : http_send_dashboard(http, connection, route);
}
