#include <openssl/crypto.h>
#include <string.h>

#include "server/front/front.h"
#include "server/process/log.h"

/* From here on the connection counts for whom it has turned out to be. */
static int front_count_login(struct front *front, uint64_t session, const struct principal *principal,
                             struct fault *fault) {
    int error = roster_identify(&front->roster, session, principal->name, &principal->limits, fault);
    if (error == STATUS_LIMIT)
        front->refusals[strstr(fault->message, "principal-sessions") ? REFUSAL_PRINCIPAL_SESSIONS
                                                                     : REFUSAL_PRINCIPAL_CONNECTIONS]++;
    return error;
}

static void front_answer_login(void *owner, uint64_t session, int status, const struct principal *principal,
                               const struct fault *fault) {
    struct worker_slot *slot = owner;
    struct front *front = slot->owner;
    struct channel_message message;
    struct fault over;
    if (!status && (status = front_count_login(front, session, principal, &over)))
        fault = &over;
    memset(&message, 0, sizeof message);
    message.type = status ? CHANNEL_DENIED : CHANNEL_GRANTED;
    message.login.session = session;
    if (status)
        message.login.fault = *fault;
    else
        message.login.principal = *principal;
    /* Where the worker is another one by now, or takes no more, the connection is gone or its time for Hello runs out. */
    worker_slot_send(slot, &message, -1);
}

void front_login(void *owner, struct worker_slot *slot, const struct channel_message *message) {
    struct front *front = owner;
    struct peer peer = message->login.peer;
    struct principal principal;
    struct fault fault = {0};
    char token[sizeof message->login.token];
    memcpy(token, message->login.token, sizeof token);
    token[sizeof token - 1] = 0;
    peer.address[sizeof peer.address - 1] = 0;
    principal_end_texts(&peer.principal);
    peer.certificate[sizeof peer.certificate - 1] = 0;
    if (peer.tls && *peer.certificate)
        login_certify(&front->login, &peer);
    struct login_request request = {
        .peer = &peer,
        .token = token,
        .done = front_answer_login,
        .owner = slot,
        .number = message->login.session,
    };
    int status = login_check(&front->login, &request, &principal, &fault);
    if (status != STATUS_AGAIN)
        front_answer_login(slot, request.number, status, &principal, &fault);
    OPENSSL_cleanse(token, sizeof token);
}

void front_revoke(void *owner, const struct principal *was, const struct principal *is) {
    struct front *front = owner;
    bool same = is && !strcmp(is->name, was->name);
    if (same)
        log_event(LOG_LEVEL_INFO, "role_changed", "principal", was->name, "credential", was->credential, "from",
                  role_name(was->role), "to", role_name(is->role), NULL);
    else
        log_event(LOG_LEVEL_INFO, "revoked", "principal", was->name, "credential", was->credential,
                  is ? "means_now" : NULL, is ? is->name : NULL, NULL);
    supervisor_revoke(&front->supervisor, was);
    control_revoke(front, was);
}
