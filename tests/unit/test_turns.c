/* Turns of control connections: how many requests of whom are handled before others have theirs. */
#include <criterion/criterion.h>
#include <stddef.h>

#include "server/front/turns.h"

enum { LONG_NS = TURNS_NS / 4, CLIENTS = 8 };

static uv_loop_t loop;
static struct turns turns;
static uint64_t now_ns;
static char taken[4096]; /* whose requests were handled, in order */
static unsigned n_taken;

/* A connection of a principal, with so many requests. */
struct client {
    struct turn turn;
    struct turn_queue *queue;
    char name;
    unsigned requests;
};

static uint64_t clock_of_the_test(void) {
    return now_ns;
}

/* Each request takes LONG_NS. */
static void take(struct turn *turn) {
    struct client *client = (struct client *)((char *)turn - offsetof(struct client, turn));
    cr_assert_null(turn->queue, "it has its turn");
    now_ns += LONG_NS;
    taken[n_taken++] = client->name;
    if (--client->requests)
        turns_wait(&turns, client->queue, turn);
}

static void begin(void) {
    uv_loop_init(&loop);
    turns_init(&turns, &loop);
    turns.budget.clock = clock_of_the_test;
}

static void end(void) {
    turns_finish(&turns);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0, "a handle was left");
}

TestSuite(turns, .init = begin, .fini = end, .timeout = 60);

static void ask(struct client *client, struct turn_queue *queue, char name, unsigned requests) {
    *client = (struct client){{.take = take}, queue, name, requests};
    turns_wait(&turns, queue, &client->turn);
    turns_wait(&turns, queue, &client->turn); /* which changes nothing */
}

/* The requests handled in the next round of the loop. */
static const char *round_of_the_loop(void) {
    n_taken = 0;
    uv_run(&loop, UV_RUN_NOWAIT);
    taken[n_taken] = 0;
    return taken;
}

Test(turns, a_round_ends_when_its_time_is_over) {
    struct turn_queue queue = {0};
    struct client clients[CLIENTS];
    unsigned all = 0, rounds = 0;
    for (int i = 0; i < CLIENTS; i++)
        ask(&clients[i], &queue, 'a', 100);
    for (; all < CLIENTS * 100; rounds++) {
        round_of_the_loop();
        cr_assert(n_taken <= TURNS_NS / LONG_NS, "%u requests in a round", n_taken);
        all += n_taken;
    }
    cr_assert_eq(rounds, CLIENTS * 100 / (TURNS_NS / LONG_NS));
    cr_assert_str_eq(round_of_the_loop(), "");
    cr_assert_not(uv_is_active((uv_handle_t *)&turns.idle), "where nobody waits the loop may sleep");
}

Test(turns, a_principal_with_many_connections_has_one_turn_of_all_principals) {
    struct turn_queue flooder = {0}, other = {0};
    struct client clients[CLIENTS], one;
    for (int i = 0; i < CLIENTS; i++)
        ask(&clients[i], &flooder, 'f', 100);
    round_of_the_loop();
    ask(&one, &other, 'o', 3);
    cr_assert_str_eq(round_of_the_loop(), "fofo", "the other one's request is behind one request at most");
    cr_assert_str_eq(round_of_the_loop(), "foff");
    for (int i = 0; i < CLIENTS; i++)
        turns_leave(&turns, &clients[i].turn);
}

Test(turns, connections_of_a_principal_take_turns) {
    struct turn_queue queue = {0};
    struct client clients[3];
    for (int i = 0; i < 3; i++)
        ask(&clients[i], &queue, (char)('a' + i), 2);
    cr_assert_str_eq(round_of_the_loop(), "abca");
    turns_leave(&turns, &clients[2].turn);
    turns_leave(&turns, &clients[2].turn); /* which changes nothing */
    cr_assert_str_eq(round_of_the_loop(), "b", "one that has gone has no turn");
}
