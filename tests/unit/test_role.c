/* Roles: every frame type, every role, both kinds of connection. */
#include "server/users/role.h"

#include <criterion/criterion.h>
#include <string.h>

#include "proto/wire/frame.h"

static const unsigned types[] = {
#define X(name, value, message, sender) value,
    FRAME_TABLE(X)
#undef X
};
static const char *const senders[] = {
#define X(name, value, message, sender) sender,
    FRAME_TABLE(X)
#undef X
};
enum { TYPES = sizeof types / sizeof *types };

/* What is no run's business, and what no client's: written down here a second time. A new type that is left to its
 * sender's word below is one that a client may send on one of the two connections with the role run. */
static enum role expected(enum role_place place, unsigned type) {
    switch (type) {
    case FRAME_HELLO:
    case FRAME_PING:
        return place == ROLE_ON_CONTROL ? ROLE_OBSERVE : ROLE_RUN;
    case FRAME_LIST_DEVICES:
    case FRAME_GET_STATUS:
    case FRAME_LIST_OPERATIONS:
        return place == ROLE_ON_CONTROL ? ROLE_OBSERVE : ROLE_NOBODY;
    case FRAME_DRAIN:
    case FRAME_GET_CONFIG:
    case FRAME_KILL_SESSION:
        return place == ROLE_ON_CONTROL ? ROLE_ADMIN : ROLE_NOBODY;
    case FRAME_TRACE_START:
    case FRAME_BATCH:
    case FRAME_UPLOAD:
    case FRAME_UPLOAD_CHUNK:
    case FRAME_FETCH:
    case FRAME_WAIT:
    case FRAME_SYNC:
    case FRAME_STREAM_OPEN:
    case FRAME_STREAM_CLOSE:
    case FRAME_COPY_OUT:
    case FRAME_COPY_IN:
    case FRAME_KERNEL_COMPILE:
    case FRAME_KERNEL_RELEASE:
    case FRAME_PROGRAM_DEFINE:
    case FRAME_PROGRAM_LOOP:
    case FRAME_PROGRAM_RELEASE:
    case FRAME_PUBLISH:
    case FRAME_OPEN_NAME:
    case FRAME_LIST_NAMES:
    case FRAME_REMOVE_NAME:
    case FRAME_MOVE_NAME:
        return place == ROLE_ON_DEVICE ? ROLE_RUN : ROLE_NOBODY;
    default:
        return ROLE_NONE;
    }
}

Test(role, every_message_takes_the_role_that_it_is_meant_to) {
    for (unsigned i = 0; i < TYPES; i++) {
        bool client = !strcmp(senders[i], "client");
        for (enum role_place place = ROLE_ON_CONTROL; place <= ROLE_ON_DEVICE; place++) {
            enum role least = role_least(place, types[i]), want = expected(place, types[i]);
            if (!client)
                cr_expect_eq(least, ROLE_NOBODY, "%s may be sent by clients", frame_type_name(types[i]));
            else if (want != ROLE_NONE)
                cr_expect_eq(least, want, "%s", frame_type_name(types[i]));
        }
        if (client)
            cr_expect(role_least(ROLE_ON_CONTROL, types[i]) != ROLE_NOBODY ||
                          role_least(ROLE_ON_DEVICE, types[i]) != ROLE_NOBODY,
                      "nobody may send %s anywhere", frame_type_name(types[i]));
    }
}

Test(role, a_role_may_what_those_before_it_may_and_nothing_above) {
    struct fault fault;
    for (unsigned i = 0; i < TYPES; i++)
        for (enum role_place place = ROLE_ON_CONTROL; place <= ROLE_ON_DEVICE; place++)
            for (enum role role = ROLE_NONE; role <= ROLE_NOBODY; role++) {
                enum role least = role_least(place, types[i]);
                int want = least == ROLE_NOBODY                   ? STATUS_PROTOCOL
                           : role >= least && role != ROLE_NOBODY ? STATUS_OK
                                                                  : STATUS_DENIED;
                cr_expect_eq(role_check(place, types[i], role, "alice", &fault), want, "%s as %s",
                             frame_type_name(types[i]), role_name(role));
            }
}

Test(role, a_denial_names_who_what_and_the_role_that_it_takes) {
    struct fault fault;
    cr_assert_eq(role_check(ROLE_ON_CONTROL, FRAME_DRAIN, ROLE_OBSERVE, "alice", &fault), STATUS_DENIED);
    cr_assert_str_eq(fault.message, "drain needs the role admin; alice has observe");
}

Test(role, what_is_no_type_may_nobody_send) {
    static const unsigned wrong[] = {0, 6, 15, 1000, 0xffff, 0xffffffff};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_eq(role_least(ROLE_ON_DEVICE, wrong[i]), ROLE_NOBODY, "%u", wrong[i]);
}

Test(role, names_are_parsed_as_they_are_written) {
    for (enum role role = ROLE_OBSERVE; role <= ROLE_ADMIN; role++)
        cr_assert_eq(role_parse(role_name(role)), role);
    static const char *const wrong[] = {"", "none", "Admin", "root", "run ", "observer"};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_eq(role_parse(wrong[i]), ROLE_NONE, "%s", wrong[i]);
}
