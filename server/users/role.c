#include "server/users/role.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/wire/frame.h"

/* X(frame, least role on a control connection, least role on a device's connection). A connection is opened with Hello,
 * so Hello needs the least role with which the connection is of use. A frame type without a row does not compile. */
#define ROLE_TABLE(X)                                                                                                  \
    X(HELLO, OBSERVE, RUN)                                                                                             \
    X(WELCOME, NOBODY, NOBODY)                                                                                         \
    X(ERROR, NOBODY, NOBODY)                                                                                           \
    X(PING, OBSERVE, RUN)                                                                                              \
    X(PONG, NOBODY, NOBODY)                                                                                            \
    X(BATCH, NOBODY, RUN)                                                                                              \
    X(UPLOAD, NOBODY, RUN)                                                                                             \
    X(UPLOAD_CHUNK, NOBODY, RUN)                                                                                       \
    X(FETCH, NOBODY, RUN)                                                                                              \
    X(FETCH_CHUNK, NOBODY, NOBODY)                                                                                     \
    X(WAIT, NOBODY, RUN)                                                                                               \
    X(SYNC, NOBODY, RUN)                                                                                               \
    X(DONE, NOBODY, NOBODY)                                                                                            \
    X(STREAM_OPEN, NOBODY, RUN)                                                                                        \
    X(STREAM_CLOSE, NOBODY, RUN)                                                                                       \
    X(COPY_OUT, NOBODY, RUN)                                                                                           \
    X(COPY_IN, NOBODY, RUN)                                                                                            \
    X(ACK, NOBODY, NOBODY)                                                                                             \
    X(GOODBYE, NOBODY, RUN)                                                                                            \
    X(KERNEL_COMPILE, NOBODY, RUN)                                                                                     \
    X(KERNEL_COMPILED, NOBODY, NOBODY)                                                                                 \
    X(KERNEL_RELEASE, NOBODY, RUN)                                                                                     \
    X(PROGRAM_DEFINE, NOBODY, RUN)                                                                                     \
    X(PROGRAM_LOOP, NOBODY, RUN)                                                                                       \
    X(PROGRAM_RELEASE, NOBODY, RUN)                                                                                    \
    X(LIST_DEVICES, OBSERVE, NOBODY)                                                                                   \
    X(DEVICE_LIST, NOBODY, NOBODY)                                                                                     \
    X(GET_STATUS, OBSERVE, NOBODY)                                                                                     \
    X(STATUS, NOBODY, NOBODY)                                                                                          \
    X(DRAIN, ADMIN, NOBODY)                                                                                            \
    X(LIST_OPERATIONS, OBSERVE, NOBODY)                                                                                \
    X(OPERATION_LIST, NOBODY, NOBODY)                                                                                  \
    X(KILL_SESSION, ADMIN, NOBODY)                                                                                     \
    X(GET_CONFIG, ADMIN, NOBODY)                                                                                       \
    X(CONFIG, NOBODY, NOBODY)                                                                                          \
    X(LINK_DATA, NOBODY, NOBODY)                                                                                       \
    X(PUBLISH, NOBODY, RUN)                                                                                            \
    X(OPEN_NAME, NOBODY, RUN)                                                                                          \
    X(NAME_OPENED, NOBODY, NOBODY)                                                                                     \
    X(LIST_NAMES, NOBODY, RUN)                                                                                         \
    X(NAME_LIST, NOBODY, NOBODY)                                                                                       \
    X(REMOVE_NAME, NOBODY, RUN)                                                                                        \
    X(MOVE_NAME, NOBODY, RUN)                                                                                          \
    X(TRACE_START, NOBODY, RUN)                                                                                        \
    X(TRACE_DATA, NOBODY, NOBODY)

enum {
#define X(NAME, control, device) ROLE_CONTROL_##NAME = ROLE_##control, ROLE_DEVICE_##NAME = ROLE_##device,
    ROLE_TABLE(X)
#undef X
};

/* Goes through the frame types, not through the rows above: for a type without a row it names a constant that does not
 * exist. */
const uint8_t role_rows[ROLE_TYPES][2] = {
#define X(NAME, value, message, sender) [value] = {ROLE_CONTROL_##NAME, ROLE_DEVICE_##NAME},
    FRAME_TABLE(X)
#undef X
};

static const char *const role_names[] = {
    [ROLE_NONE] = "none", [ROLE_OBSERVE] = "observe", [ROLE_RUN] = "run", [ROLE_ADMIN] = "admin"};

const char *role_name(enum role role) {
    return role <= ROLE_ADMIN ? role_names[role] : role_names[ROLE_NONE];
}

enum role role_parse(const char *text) {
    for (enum role role = ROLE_OBSERVE; role <= ROLE_ADMIN; role++)
        if (!strcmp(text, role_names[role]))
            return role;
    return ROLE_NONE;
}

/* What a message asks for, in words: "drain", "list names", "a session". */
static const char *role_words(enum role_place place, unsigned frame_type, char *text, size_t size) {
    size_t n = 0;
    if (frame_type == FRAME_HELLO)
        return place == ROLE_ON_CONTROL ? "a control connection" : "a session on a device";
    for (const char *name = frame_type_name(frame_type); *name && n + 1 < size; name++)
        text[n++] = *name == '_' ? ' ' : (char)(*name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name);
    text[n] = 0;
    return text;
}

int role_deny(enum role_place place, unsigned frame_type, enum role role, const char *principal, struct fault *fault) {
    enum role least = role_least(place, frame_type);
    const char *where = place == ROLE_ON_CONTROL ? "a control connection" : "a device's connection";
    char what[64];
    if (least == ROLE_NOBODY)
        return fault_set(fault, STATUS_PROTOCOL, "%s is not for a client to send on %s", frame_type_name(frame_type),
                         where);
    return fault_set(fault, STATUS_DENIED, "%s needs the role %s; %s has %s",
                     role_words(place, frame_type, what, sizeof what), role_name(least), principal, role_name(role));
}
