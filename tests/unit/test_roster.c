/* Who is connected: what a principal may have, wherever its connections are. */
#include <criterion/criterion.h>
#include <string.h>

#include "server/front/roster.h"

static struct roster roster;
static const struct worker_slot *const first = (const void *)&roster, *const second = (const void *)&first;
static const struct limits two = {.principal_connections = 2, .principal_sessions = 2}, any = {0};

static void begin(void) {
    roster_init(&roster);
    roster.places = 8;
    roster.session_places = 12;
}

static void end(void) {
    roster_finish(&roster);
    cr_assert(LIST_EMPTY(&roster.entries), "somebody is still counted");
}

TestSuite(roster, .init = begin, .fini = end);

static struct roster_entry *join(const char *name, const struct limits *limits, int expected) {
    struct roster_entry *entry = NULL;
    struct fault fault = {0};
    cr_assert_eq(roster_join(&roster, name, limits, &entry, &fault), expected, "%s", fault.message);
    return entry;
}

static void host(const char *name, const struct limits *limits, uint64_t session, const struct worker_slot *slot) {
    struct roster_entry *entry = join(name, NULL, STATUS_OK);
    struct fault fault = {0};
    cr_assert_eq(roster_host(&roster, &entry, limits, session, slot, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_null(entry);
}

static void has(const char *name, unsigned connections, unsigned sessions) {
    const struct roster_entry *entry = roster_find(&roster, name);
    cr_assert_eq(entry ? entry->connections : 0, connections, "%s", name);
    cr_assert_eq(entry ? entry->sessions : 0, sessions, "%s", name);
}

Test(roster, connections_are_limited_for_each_principal) {
    struct roster_entry *a = join("a", &two, STATUS_OK), *b;
    join("a", &two, STATUS_OK);
    join("a", &two, STATUS_LIMIT);
    b = join("b", &two, STATUS_OK);
    roster_leave(a);
    join("a", &two, STATUS_OK);
    has("a", 2, 0), has("b", 1, 0), has("c", 0, 0);
    roster_leave(a), roster_leave(a), roster_leave(b);
    has("a", 0, 0);
}

Test(roster, sessions_are_counted_over_all_workers) {
    struct fault fault;
    host("a", &two, 1, first), host("a", &two, 2, second);
    struct roster_entry *third = join("a", &any, STATUS_OK);
    cr_assert_eq(roster_host(&roster, &third, &two, 3, first, &fault), STATUS_LIMIT);
    cr_assert_str_eq(fault.message, "a has 2 sessions, and may have no more (principal-sessions)");
    has("a", 3, 2);
    roster_gone(&roster, second, 2);
    cr_assert_eq(roster_host(&roster, &third, &two, 3, first, &fault), STATUS_OK);
    has("a", 2, 2);
}

Test(roster, a_worker_that_ends_takes_its_guests_along) {
    for (uint64_t session = 1; session <= 3000; session++)
        host(session % 3 ? "a" : "b", &any, session, session % 2 ? first : second);
    roster_gone(&roster, first, 0);
    has("a", 1000, 1000), has("b", 500, 500);
    roster_gone(&roster, first, 2); /* of another worker's: a message that came late */
    has("a", 1000, 1000);
    roster_gone(&roster, second, 0);
    has("a", 0, 0), has("b", 0, 0);
}

Test(roster, a_guest_may_turn_out_to_be_somebody_else) {
    struct fault fault;
    host("tcp", &any, 1, first), host("ann", &any, 2, first), host("ann", &any, 3, first);
    cr_assert_eq(roster_identify(&roster, 1, "ann", &two, &fault), STATUS_LIMIT);
    has("tcp", 1, 1), has("ann", 2, 2);
    cr_assert_eq(roster_identify(&roster, 1, "bob", &two, &fault), STATUS_OK);
    has("tcp", 0, 0), has("bob", 1, 1);
    cr_assert_eq(roster_identify(&roster, 3, "ann", &two, &fault), STATUS_OK, "who it is already");
    cr_assert_eq(roster_identify(&roster, 9, "bob", &two, &fault), STATUS_CONNECTION);
}

Test(roster, one_that_was_not_handed_over_is_the_callers_again) {
    host("a", &any, 7, first);
    struct roster_entry *entry = roster_take_back(&roster, 7);
    has("a", 1, 0);
    cr_assert_null(roster_take_back(&roster, 7));
    roster_leave(entry);
}

Test(roster, by_default_a_principal_has_a_quarter) {
    static const struct limits quarter = {.principal_connections = LIMITS_QUARTER,
                                          .principal_sessions = LIMITS_QUARTER};
    struct roster_entry *a = join("a", &quarter, STATUS_OK), *b;
    struct fault fault;
    join("a", &quarter, STATUS_OK);
    join("a", &quarter, STATUS_LIMIT);
    b = join("b", &quarter, STATUS_OK);
    roster_leave(a), roster_leave(a), roster_leave(b);
    for (uint64_t session = 1; session <= 3; session++)
        host("a", &quarter, session, first);
    a = join("a", NULL, STATUS_OK);
    cr_assert_eq(roster_host(&roster, &a, &quarter, 4, first, &fault), STATUS_LIMIT);
    roster_leave(a);
    roster_gone(&roster, first, 0);
}

/* ---- those who have not said Hello ---- */

static struct source source_of(uint8_t last) {
    return (struct source){SOURCE_IPV4, {192, 0, 2, last}};
}

Test(roster, the_oldest_that_has_not_said_hello_gives_its_place_up) {
    struct source one = source_of(1), two_ = source_of(2);
    uint64_t session;
    for (uint64_t i = 1; i <= 4; i++) {
        host("a", NULL, i, first);
        roster_await(&roster, i, i == 2 ? &two_ : &one, i == 2);
    }
    cr_assert_eq(lobby_count(&roster.lobby, &one), 3);
    roster_greet(&roster, first, 1);
    struct lobby_entry *oldest = lobby_oldest(&roster.lobby, &one, LOBBY_NOT_HERE);
    cr_assert(oldest && roster_evict(&roster, oldest, &session) == first && session == 3);
    oldest = lobby_oldest(&roster.lobby, NULL, LOBBY_NOT_HERE);
    cr_assert(oldest && roster_evict(&roster, oldest, &session) == first && session == 2);
    cr_assert(roster.n_evicted == 2 && roster.n_ordinary_evicted == 1);
    cr_assert_eq(roster_find(&roster, "a")->evicted, 2);
    roster_greet(&roster, first, 3); /* its Hello had come before it was told */
    roster_gone(&roster, first, 2);
    cr_assert(!roster.n_evicted && !roster.n_ordinary_evicted && !roster_find(&roster, "a")->evicted);
    roster_gone(&roster, first, 0);
    cr_assert_null(lobby_oldest(&roster.lobby, NULL, LOBBY_NOT_HERE));
}
