/* Values that no session owns: when they are there, who pays for them, and what becomes of them when their session goes. */
#include "engine/session/held.h"
#include "engine/memory/tenant.h"
#include "tests/unit/engine_fixture.h"

struct holder {
    struct hold hold;
    int times, code;
};

static struct payer account;

static void holder_done(struct hold *hold, const struct failure *failure) {
    struct holder *holder = (struct holder *)hold;
    holder->times++;
    holder->code = failure ? (int)failure->code : STATUS_OK;
}

static void ask_hold(struct holder *holder, uint64_t id) {
    *holder = (struct holder){.hold.done = holder_done, .code = -1};
    session_hold(session, id, &holder->hold);
}

/* The value, held and paid for by the account. */
static struct held *hold_now(uint64_t id) {
    struct holder holder;
    struct fault fault;
    ask_hold(&holder, id);
    cr_assert(settle(&holder.times));
    cr_assert_eq(holder.code, STATUS_OK);
    cr_assert_eq(held_charge(&holder.hold.held, 1, &account, 0, &fault), STATUS_OK, "%s", fault.message);
    return holder.hold.held;
}

static uint64_t session_live(void) {
    struct session_stats stats;
    session_stats(session, &stats);
    return stats.live;
}

static uint64_t engine_live(void) {
    struct engine_stats stats;
    engine_stats(engine, &stats);
    return stats.memory_live;
}

static int slice(uint64_t id, uint64_t x, int64_t start, int64_t stop) {
    return apply(OP_SLICE, id, 1, &x, 3, (const int64_t[]){start, stop, 1}, 0, 0);
}

Test(engine_held, value_is_held_when_it_is_there_and_not_before) {
    struct holder holder;
    open_engine(64 << 20);
    park(1);
    full(session, 2, 16, 0);
    ask_hold(&holder, 2);
    engine_kick(engine);
    engine_poll(engine);
    cr_assert_eq(holder.times, 0);
    unpark();
    cr_assert(settle(&holder.times));
    cr_assert_eq(holder.code, STATUS_OK);
    cr_assert_eq(held_type(holder.hold.held)->shape[0], 16);
    hold_cancel(&holder.hold);
    close_engine();
}

Test(engine_held, held_value_outlives_its_session_and_is_bound_in_another) {
    struct fault fault;
    open_engine(64 << 20);
    full(session, 1, 16, 0);
    struct held *held = hold_now(1);
    cr_assert(session_live() == 0 && account.bytes == 64 && engine_live() == 64);
    session_destroy(session);
    cr_assert(account.bytes == 64 && engine_live() == 64);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
    cr_assert_eq(session_bind_held(session, 5, held, &fault), STATUS_OK);
    cr_assert_eq(session_bind_held(session, 5, held, &fault), STATUS_DUPLICATE_ID);
    cr_assert_eq(session_bind_held(session, 0, held, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(unary(OP_NEGATIVE, 6, 5, 0), STATUS_OK);
    cr_assert_eq(wait_for(6), STATUS_OK);
    cr_assert_eq(session_live(), 64, "what is opened costs the session nothing");
    held_unref(held);
    cr_assert_eq(account.bytes, 64, "a tensor still has it");
    release(5);
    cr_assert_eq(account.bytes, 0);
    close_engine();
}

Test(engine_held, consumed_input_lends_its_memory_only_when_nobody_holds_it) {
    struct fault fault;
    open_engine(64 << 20);
    full(session, 1, 16, 0);
    struct held *held = hold_now(1);
    struct storage *storage = session_tensor(session, 1)->storage;
    cr_assert_eq(apply(OP_NEGATIVE, 2, 1, (const uint64_t[]){1}, 0, NULL, 1, 0), STATUS_OK);
    cr_assert_neq(session_tensor(session, 2)->storage, storage);
    cr_assert_eq(session_bind_held(session, 3, held, &fault), STATUS_OK);
    cr_assert_eq(apply(OP_NEGATIVE, 4, 1, (const uint64_t[]){3}, 0, NULL, 1, 0), STATUS_OK);
    cr_assert_neq(session_tensor(session, 4)->storage, storage);
    cr_assert_eq(session_bind_held(session, 5, held, &fault), STATUS_OK);
    held_unref(held);
    cr_assert_eq(apply(OP_NEGATIVE, 6, 1, (const uint64_t[]){5}, 0, NULL, 1, 0), STATUS_OK);
    cr_assert_eq(session_tensor(session, 6)->storage, storage, "nobody else had it any more");
    cr_assert_eq(account.bytes, 64, "and who paid for it goes on");
    close_engine();
    cr_assert_eq(account.bytes, 0);
}

Test(engine_held, holding_while_it_is_computed_keeps_it_from_being_overwritten) {
    struct holder holder;
    open_engine(64 << 20);
    park(1);
    full(session, 2, 16, 0);
    struct storage *storage = session_tensor(session, 2)->storage;
    ask_hold(&holder, 2);
    cr_assert_eq(apply(OP_NEGATIVE, 3, 1, (const uint64_t[]){2}, 0, NULL, 1, 0), STATUS_OK);
    cr_assert_neq(session_tensor(session, 3)->storage, storage);
    unpark();
    cr_assert(settle(&holder.times));
    cr_assert_eq(holder.code, STATUS_OK);
    hold_cancel(&holder.hold);
    close_engine();
}

Test(engine_held, cancelled_hold_gives_everything_back) {
    struct holder holder;
    open_engine(64 << 20);
    park(1);
    full(session, 2, 16, 0);
    ask_hold(&holder, 2);
    hold_cancel(&holder.hold);
    release(2);
    cr_assert_eq(session_live(), 8 << 20, "only the parked one is left");
    unpark();
    cr_assert_eq(wait_for(0), STATUS_OK);
    cr_assert_eq(holder.times, 0);
    close_engine();
}

Test(engine_held, failed_and_unknown_tensors_are_not_held) {
    struct holder holder;
    open_engine(64 << 20);
    full(session, 1, 16, 0);
    binary(2, 1, 99, 0, 0);
    ask_hold(&holder, 2);
    cr_assert(holder.times == 1 && holder.code == STATUS_UNKNOWN_ID && !holder.hold.held);
    ask_hold(&holder, 77);
    cr_assert(holder.times == 1 && holder.code == STATUS_UNKNOWN_ID && !holder.hold.held);
    struct upload upload;
    cr_assert_eq(upload_to(100, 2, 2, 0, false, &upload), STATUS_OK);
    ask_hold(&holder, 100);
    cr_assert(holder.times == 1 && holder.code == STATUS_INVALID_ARGUMENT && !holder.hold.held);
    upload_fill(&upload, 1);
    upload_finish(&upload, NULL);
    held_unref(hold_now(100));
    close_engine();
}

Test(engine_held, lost_device_is_told_to_who_waits) {
    struct holder holder;
    const struct fault lost = {.code = STATUS_DEVICE_LOST, .message = "on purpose"};
    open_engine(64 << 20);
    park(1);
    full(session, 2, 16, 0);
    ask_hold(&holder, 2);
    engine_fail(engine, &lost);
    cr_assert(settle(&holder.times));
    cr_assert(holder.code == STATUS_DEVICE_LOST && !holder.hold.held);
    unpark();
    close_engine();
}

Test(engine_held, view_is_copied_where_it_would_keep_what_it_does_not_show) {
    open_engine(64 << 20);
    full(session, 1, 4096, 0); /* 16 KiB */
    struct storage *whole = session_tensor(session, 1)->storage;
    slice(2, 1, 0, 3000);
    slice(3, 1, 100, 200);
    apply(OP_BROADCAST_TO, 4, 1, (const uint64_t[]){1}, 2, (const int64_t[]){2, 4096}, 0, 0);
    struct held *large = hold_now(2), *small = hold_now(3), *broadcast = hold_now(4);
    cr_assert_eq(held_bytes(large), 16384, "it shares");
    cr_assert_eq(whole->payer, &account);
    cr_assert_eq(held_bytes(small), 448);
    cr_assert_eq(held_bytes(broadcast), 32768);
    cr_assert_eq(account.bytes, 16384 + 448 + 32768);
    cr_assert_eq(session_live(), 0);
    held_unref(large);
    held_unref(small);
    held_unref(broadcast);
    cr_assert_eq(account.bytes, 16384, "the tensor itself still has its storage");
    close_engine();
    cr_assert_eq(account.bytes, 0);
}

static uint64_t tenant_live(const struct tenant *tenant) {
    struct tenant_stats stats;
    tenant_stats(tenant, &stats);
    return stats.live;
}

Test(engine_held, tenant_goes_on_paying) {
    struct session_limits mine = limits;
    struct fault fault;
    open_engine(64 << 20);
    cr_assert_eq(tenant_create(engine_memory(engine), "alice", &(struct tenant_limits){.bytes = 200}, &mine.tenant, &fault),
                 STATUS_OK);
    session_destroy(session);
    cr_assert_eq(session_create(engine_sessions(engine), &mine, &session, &fault), STATUS_OK);
    account = (struct payer){.whole = tenant_payer(mine.tenant), .limit = 100};
    full(session, 1, 16, 0);
    full(session, 2, 16, 0);
    struct held *held = hold_now(1);
    struct holder second;
    ask_hold(&second, 2);
    cr_assert(settle(&second.times));
    cr_assert_eq(held_charge(&second.hold.held, 1, &account, 0, &fault), STATUS_LIMIT);
    cr_assert(tenant_live(mine.tenant) == 128 && session_live() == 64 && account.bytes == 64);
    hold_cancel(&second.hold);
    session_destroy(session);
    cr_assert(tenant_live(mine.tenant) == 64 && account.bytes == 64);
    cr_assert_eq(session_create(engine_sessions(engine), &mine, &session, &fault), STATUS_OK);
    cr_assert_eq(full(session, 1, 40, 0), STATUS_LIMIT, "64 of 200 bytes are held");
    held_unref(held);
    cr_assert_eq(tenant_live(mine.tenant), 0);
    cr_assert_eq(full(session, 2, 40, 0), STATUS_OK);
    session_destroy(session);
    tenant_destroy(mine.tenant);
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &session, &fault), STATUS_OK);
    close_engine();
}

Test(engine_held, limit_charges_all_or_nothing) {
    struct holder holders[3];
    struct held *values[3];
    struct fault fault;
    open_engine(64 << 20);
    account.limit = 200;
    for (uint64_t i = 0; i < 3; i++) {
        full(session, i + 1, 16, 0);
        ask_hold(&holders[i], i + 1);
        cr_assert(settle(&holders[i].times));
        values[i] = holders[i].hold.held;
    }
    struct held *twice[4] = {values[0], values[1], values[2], values[0]};
    cr_assert_eq(held_charge(values, 3, &account, 0, &fault), STATUS_OK, "192 of 200");
    cr_assert(account.bytes == 192 && session_live() == 0);
    full(session, 10, 16, 0);
    struct holder more;
    ask_hold(&more, 10);
    cr_assert(settle(&more.times));
    cr_assert_eq(held_charge(&more.hold.held, 1, &account, 0, &fault), STATUS_LIMIT);
    cr_assert_str_eq(fault.message, "the limit of 200 B in named tensors is reached: 64 B asked, 192 B named");
    cr_assert(account.bytes == 192 && session_live() == 64, "it is the session's again");
    cr_assert_eq(held_charge(twice, 4, &account, 0, &fault), STATUS_OK, "these are paid for");
    cr_assert_eq(held_free_bytes(values[0]), 0);
    release(1);
    cr_assert_eq(held_free_bytes(values[0]), 64);
    cr_assert_eq(held_charge(&more.hold.held, 1, &account, 64, &fault), STATUS_OK, "it takes that one's place");
    cr_assert_eq(session_live(), 0);
    for (int i = 0; i < 3; i++)
        hold_cancel(&holders[i].hold);
    hold_cancel(&more.hold);
    close_engine();
    cr_assert_eq(account.bytes, 0);
}

Test(engine_held, alias_lies_within_the_value_and_costs_nothing) {
    struct tensor_type type;
    struct held *alias = NULL;
    struct fault fault;
    const int64_t ten = 10, most = 1 << 20;
    open_engine(64 << 20);
    full(session, 1, 100, 0);
    struct held *held = hold_now(1);
    release(1);
    uint64_t bytes = account.bytes;
    const struct held_place place = held_place(held);
    cr_assert_eq(type_make(&type, DTYPE_F32, &ten, 1, &fault), STATUS_OK);
    cr_assert_eq(held_alias(held, &type, place.begin + 40, &alias, &fault), STATUS_OK, "%s", fault.message);
    cr_assert_eq(held_place(alias).storage, place.storage);
    cr_assert(held_place(alias).begin == place.begin + 40 && held_place(alias).end == place.begin + 80);
    cr_assert_eq(account.bytes, bytes);
    held_unref(alias);
    cr_assert_neq(held_alias(held, &type, place.begin + 2, &alias, &fault), STATUS_OK, "between two elements");
    cr_assert_neq(held_alias(held, &type, -4, &alias, &fault), STATUS_OK);
    type_make(&type, DTYPE_F32, &most, 1, &fault);
    cr_assert_neq(held_alias(held, &type, place.begin, &alias, &fault), STATUS_OK, "beyond its storage");
    held_unref(held);
    cr_assert_eq(account.bytes, 0);
    close_engine();
}

Test(engine_held, charge_goes_to_another_account_once) {
    struct payer other = {.bytes = 0};
    open_engine(64 << 20);
    full(session, 1, 100, 0);
    struct held *held = hold_now(1);
    release(1);
    uint64_t bytes = account.bytes;
    cr_assert_gt(bytes, 0);
    held_transfer(held, &account, &other);
    held_transfer(held, &account, &other);
    cr_assert(account.bytes == 0 && other.bytes == bytes);
    held_unref(held);
    cr_assert_eq(other.bytes, 0);
    close_engine();
}
