#include "server/front/login.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/process/log.h"

/* ---- the sources of failed logins ---- */

#define LOGIN_MS_NS UINT64_C(1000000)
#define LOGIN_MEMORY_NS (60000 * LOGIN_MS_NS) /* after so long without a failure, all failures are forgotten */

static const struct login_source *login_source_find(const struct login_source_table *table,
                                                    const struct source *source) {
    for (unsigned i = 0; i < table->n_sources; i++)
        if (source_same(&table->sources[i].source, source))
            return &table->sources[i];
    return NULL;
}

/* The entry of a source: a new one, or one with failures that still count. */
static struct login_source *login_source_take(struct login_source_table *table, const struct source *source,
                                              uint64_t now_ns) {
    struct login_source *entry = (struct login_source *)(uintptr_t)login_source_find(table, source);
    if (entry && now_ns - entry->last_ns <= LOGIN_MEMORY_NS)
        return entry;
    if (!entry && table->n_sources < LOGIN_SOURCES_MAX) {
        entry = &table->sources[table->n_sources++];
    } else if (!entry) {
        entry = table->sources;
        for (unsigned i = 1; i < LOGIN_SOURCES_MAX; i++)
            if (table->sources[i].last_ns < entry->last_ns)
                entry = &table->sources[i];
    }
    *entry = (struct login_source){.source = *source};
    return entry;
}

static unsigned login_source_fail(struct login_source_table *table, const struct source *source, uint64_t now_ns) {
    struct login_source *entry = login_source_take(table, source, now_ns);
    entry->last_ns = now_ns;
    entry->failures += entry->failures < UINT32_MAX;
    return entry->failures;
}

static uint64_t login_source_delay_ms(const struct login_source_table *table, const struct source *source,
                                      uint64_t now_ns) {
    const struct login_source *entry = login_source_find(table, source);
    uint64_t delay = LOGIN_DELAY_MS;
    if (!entry || entry->failures < LOGIN_FREE_FAILURES || now_ns - entry->last_ns > LOGIN_MEMORY_NS)
        return 0;
    for (unsigned i = LOGIN_FREE_FAILURES; i < entry->failures && delay < LOGIN_DELAY_MAX_MS; i++)
        delay *= 2;
    return delay < LOGIN_DELAY_MAX_MS ? delay : LOGIN_DELAY_MAX_MS;
}

static uint64_t login_source_left_ms(const struct login_source_table *table, const struct source *source,
                                     uint64_t now_ns) {
    uint64_t delay = login_source_delay_ms(table, source, now_ns);
    uint64_t gone = delay ? (now_ns - login_source_find(table, source)->last_ns) / LOGIN_MS_NS : 0;
    return delay > gone ? delay - gone : 0;
}

/* A failed login whose reply is delayed. */
struct login_waiting {
    struct login *login;
    struct login_request request; /* it points to the copies below */
    struct peer peer;
    char token[TOKEN_TEXT_CHARS + 2];
    uv_timer_t timer;
    LIST_ENTRY(login_waiting) link;
};

/* ---- failures ---- */

static void login_log(const struct login_request *request, const char *cause) {
    char id[TOKEN_ID_CHARS + 1] = "";
    token_text_id(request->token, id); /* the id alone, which is no secret */
    log_event_from(LOG_LEVEL_WARNING, PEER_SOURCE(request->peer), "login_failed", "peer", request->peer->address,
                   "cause", cause, "token", id, NULL);
}

static void login_count_failure(struct login_source_table *sources, const struct login_request *request) {
    unsigned failures = login_source_fail(sources, &request->peer->source, uv_hrtime());
    if (failures == LOGIN_FREE_FAILURES)
        log_event_from(LOG_LEVEL_WARNING, PEER_SOURCE(request->peer), "login_slowed", "peer", request->peer->address,
                       "cause", "repeated failures from there", NULL);
}

static int login_deny(struct login *login, struct login_source_table *sources, const struct login_request *request,
                      enum users_denial denial, struct fault *fault) {
    static const char *const reasons[] = {[USERS_NO_TOKEN] = "no token",
                                          [USERS_MALFORMED] = "not a token",
                                          [USERS_UNKNOWN] = "unknown token",
                                          [USERS_WRONG] = "wrong secret",
                                          [USERS_EXPIRED] = "expired token"};
    uint64_t *const counts[] = {[USERS_NO_TOKEN] = &login->counts.no_token,
                                [USERS_MALFORMED] = &login->counts.malformed,
                                [USERS_UNKNOWN] = &login->counts.unknown,
                                [USERS_WRONG] = &login->counts.wrong,
                                [USERS_EXPIRED] = &login->counts.unknown};
    ++*counts[denial];
    login_log(request, reasons[denial]);
    if (denial == USERS_NO_TOKEN) /* nothing was tried, so there is nothing to slow down */
        return fault_set(fault, STATUS_DENIED,
                         "a token is needed here (TENSORD_TOKEN, TENSORD_TOKEN_FILE, or the client's options)");
    if (denial == USERS_EXPIRED) /* a client with the right secret may know that */
        return fault_set(fault, STATUS_DENIED, "the token has expired");
    login_count_failure(sources, request);
    return fault_set(fault, STATUS_DENIED, "the token is not valid");
}

/* A CA has signed the name, so nobody is guessing, and nothing needs to be slowed down. */
static int login_deny_certificate(struct login *login, const struct login_request *request, struct fault *fault) {
    login->counts.unknown++;
    login_log(request, "a certificate whose name is no user's");
    return fault_set(
        fault, STATUS_DENIED,
        "the certificate's name \"%s\" is no user of this daemon's; add it to the file of users, or show a "
        "token",
        request->peer->certificate);
}

/* ---- logins ---- */

/* Admins have no limit of places by default, so that they can help others; an explicit limit holds for them, too. */
static void login_exempt(struct limits *limits) {
    if (limits->principal_sessions == LIMITS_QUARTER)
        limits->principal_sessions = 0;
    if (limits->principal_connections == LIMITS_QUARTER)
        limits->principal_connections = 0;
}

static bool login_is_admin(const struct login *login, const char *name) {
    struct principal principal = {.role = ROLE_NONE};
    const struct user *user = login->users ? users_find(login->users, name) : NULL;
    unsigned uid;
    if (!user && sscanf(name, "uid:%u", &uid) == 1)
        users_by_uid(login->users, uid, &principal);
    return (user ? user->role : principal.role) == ROLE_ADMIN;
}

void login_limits(const struct login *login, const char *name, struct limits *limits) {
    users_limits(login->users, name, &login->config->limits, limits);
    if (login_is_admin(login, name))
        login_exempt(limits);
}

/* Sets the rights and limits that the configuration and the user's own settings give. */
static void login_allow(const struct login *login, struct principal *principal) {
    principal->user_kernels = principal_is_listed(login->config->user_kernels, principal->name);
    users_limits(login->users, principal->name, &login->config->limits, &principal->limits);
    if (principal->role == ROLE_ADMIN)
        login_exempt(&principal->limits);
}

bool login_strangers(const struct login *login, bool tls) {
    return login->users || (tls && config_wants_certificates(login->config));
}

void login_identify(const struct login *login, struct peer *peer) {
    if (peer->has_uid) {
        users_by_uid(login->users, peer->uid, &peer->principal);
    } else {
        bool stranger = login_strangers(login, peer->tls);
        peer->principal = (struct principal){.role = stranger ? ROLE_NONE : ROLE_RUN};
        snprintf(peer->principal.name, sizeof peer->principal.name, "%s",
                 peer->source.kind == SOURCE_NONE ? "unix" : "tcp");
    }
    login_allow(login, &peer->principal);
}

void login_certify(const struct login *login, struct peer *peer) {
    users_by_certificate(login->users, peer->certificate, &peer->principal);
    login_allow(login, &peer->principal);
}

static int login_turn_away(struct login *login, const struct login_request *request, struct fault *fault) {
    login->counts.turned_away++;
    login_log(request, "too many at once");
    return fault_set(fault, STATUS_LIMIT, "too many failed logins from this address; try again later");
}

/* Checks the token, without counting anything. */
static enum users_denial login_look(struct login *login, const struct login_request *request,
                                    struct principal *principal) {
    enum users_denial denial = users_by_token(login->users, request->token, principal);
    if (denial == USERS_GRANTED) {
        login_allow(login, principal);
        token_use_note(&login->use, principal->credential, time(NULL));
    }
    return denial;
}

/* Denies the login: counts it, logs it and sets the fault. */
static int login_refuse(struct login *login, struct login_source_table *sources, const struct login_request *request,
                        enum users_denial denial, struct fault *fault) {
    if (!*request->token && *request->peer->certificate)
        return login_deny_certificate(login, request, fault);
    return login_deny(login, sources, request, denial, fault);
}

int login_check_now(struct login *login, const struct login_request *request, struct principal *principal,
                    uint64_t *wait_ms, struct fault *fault) {
    enum users_denial denial = login_look(login, request, principal);
    *wait_ms = 0;
    if (denial == USERS_GRANTED)
        return STATUS_OK;
    if (*request->token)
        *wait_ms = login_source_left_ms(&login->http_sources, &request->peer->source, uv_hrtime());
    return *wait_ms ? login_turn_away(login, request, fault)
                    : login_refuse(login, &login->http_sources, request, denial, fault);
}

static void login_waiting_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void login_waiting_end(struct login_waiting *waiting) {
    LIST_REMOVE(waiting, link);
    waiting->login->n_waiting--;
    OPENSSL_cleanse(waiting->token, sizeof waiting->token);
    uv_close((uv_handle_t *)&waiting->timer, login_waiting_closed);
}

static void login_waited(uv_timer_t *timer) {
    struct login_waiting *waiting = timer->data;
    struct login_request request = waiting->request;
    struct principal principal;
    struct fault fault = {0};
    /* Checks again, because the users may have changed meanwhile. */
    enum users_denial denial = login_look(waiting->login, &request, &principal);
    int error = denial ? login_refuse(waiting->login, &waiting->login->sources, &request, denial, &fault) : STATUS_OK;
    waiting->login->counts.granted += error == STATUS_OK;
    login_waiting_end(waiting);
    request.done(request.owner, request.number, error, error ? NULL : &principal, &fault);
}

static unsigned login_count_waiting(const struct login *login, const struct source *source) {
    const struct login_waiting *waiting;
    unsigned count = 0;
    LIST_FOREACH(waiting, &login->waiting, link)
        count += source_same(&waiting->peer.source, source);
    return count;
}

static int login_put_off(struct login *login, const struct login_request *request, uint64_t delay,
                         struct fault *fault) {
    bool full = login->n_waiting >= LOGIN_WAITING_MAX ||
                login_count_waiting(login, &request->peer->source) >= LOGIN_SOURCE_WAITING_MAX;
    struct login_waiting *waiting = full ? NULL : calloc(1, sizeof *waiting);
    if (!waiting)
        return login_turn_away(login, request, fault);
    waiting->login = login;
    waiting->request = *request;
    waiting->peer = *request->peer;
    waiting->request.peer = &waiting->peer;
    /* A longer text is cut, and then it is no token. */
    snprintf(waiting->token, sizeof waiting->token, "%s", request->token);
    waiting->request.token = waiting->token;
    uv_timer_init(login->loop, &waiting->timer);
    waiting->timer.data = waiting;
    uv_timer_start(&waiting->timer, login_waited, delay, 0);
    LIST_INSERT_HEAD(&login->waiting, waiting, link);
    login->n_waiting++;
    login->counts.put_off++;
    return STATUS_AGAIN;
}

int login_check(struct login *login, const struct login_request *request, struct principal *principal,
                struct fault *fault) {
    /* Without a file of users tokens mean nothing, and the peer's principal stays. */
    if (!login->users || (!*request->token && request->peer->principal.role != ROLE_NONE)) {
        *principal = request->peer->principal;
        return STATUS_OK;
    }
    /* A valid token is accepted at once, whatever other clients at its address do: 2^256 secrets cannot be guessed at
     * any speed, so only failures have to wait. */
    enum users_denial denial = login_look(login, request, principal);
    if (denial == USERS_GRANTED) {
        login->counts.granted++;
        return STATUS_OK;
    }
    /* Not longer than Hello may take: otherwise the reply would never come. */
    uint64_t delay = login_source_delay_ms(&login->sources, &request->peer->source, uv_hrtime());
    uint64_t most = *request->token ? login->config->hello_timeout / 2 : 0;
    delay = delay < most ? delay : most;
    return delay ? login_put_off(login, request, delay, fault)
                 : login_refuse(login, &login->sources, request, denial, fault);
}

void login_forget(struct login *login, const void *owner, uint64_t number) {
    struct login_waiting *waiting;
    LIST_FOREACH(waiting, &login->waiting, link) {
        if (waiting->request.owner != owner || waiting->request.number != number)
            continue;
        login_waiting_end(waiting);
        return;
    }
}

/* ---- life ---- */

int login_init(struct login *login, uv_loop_t *loop, const struct config *config, struct fault *fault) {
    login->loop = loop;
    login->config = config;
    LIST_INIT(&login->waiting);
    login->expired = time(NULL);
    if (*config->users)
        token_use_init(&login->use, config->users);
    if (!*config->users)
        return STATUS_OK;
    int error = identities_init(&login->identities, config->state_dir, fault);
    if (!error)
        error = users_read(config->users, &login->users, fault);
    if (!error)
        identities_apply(&login->identities, login->users);
    return error;
}

void login_finish(struct login *login) {
    while (!LIST_EMPTY(&login->waiting))
        login_waiting_end(LIST_FIRST(&login->waiting));
    if (login->users)
        token_use_save(&login->use, login->users, time(NULL), true);
    users_destroy(login->users);
    login->users = NULL;
    token_use_finish(&login->use);
    identities_finish(&login->identities);
}

void login_tick(struct login *login, users_ended *ended, void *owner) {
    int64_t now = time(NULL);
    if (!login->users || now == login->expired)
        return;
    users_expire(login->users, login->expired, now, ended, owner);
    login->expired = now;
    token_use_save(&login->use, login->users, now, false);
    identities_save(&login->identities);
}

struct users *login_replace_users(struct login *login, struct users *users) {
    struct users *before = login->users;
    identities_apply(&login->identities, users);
    login->users = users;
    return before;
}
