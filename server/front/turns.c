#include "server/front/turns.h"

static void turns_enqueue(struct turns *turns, struct turn_queue *queue) {
    TAILQ_INSERT_TAIL(&turns->queues, queue, link);
}

void turns_leave(struct turns *turns, struct turn *turn) {
    struct turn_queue *queue = turn->queue;
    if (!queue)
        return;
    turn->queue = NULL;
    TAILQ_REMOVE(&queue->waiting, turn, link);
    if (!--queue->count)
        TAILQ_REMOVE(&turns->queues, queue, link);
    if (TAILQ_EMPTY(&turns->queues))
        uv_idle_stop(&turns->idle);
}

/* One turn of the principal that has waited longest, which is the last one afterwards. */
static void turns_step(struct turns *turns) {
    struct turn_queue *queue = TAILQ_FIRST(&turns->queues);
    struct turn *turn = TAILQ_FIRST(&queue->waiting);
    TAILQ_REMOVE(&turns->queues, queue, link);
    turns_enqueue(turns, queue);
    turns_leave(turns, turn);
    turn->take(turn);
}

static void turns_round(uv_idle_t *idle) {
    struct turns *turns = idle->data;
    budget_begin(&turns->budget, TURNS_NS);
    do
        turns_step(turns);
    while (!TAILQ_EMPTY(&turns->queues) && !budget_look(&turns->budget));
}

void turns_wait(struct turns *turns, struct turn_queue *queue, struct turn *turn) {
    if (turn->queue)
        return;
    if (!queue->count++) {
        TAILQ_INIT(&queue->waiting);
        turns_enqueue(turns, queue);
    }
    turn->queue = queue;
    TAILQ_INSERT_TAIL(&queue->waiting, turn, link);
    uv_idle_start(&turns->idle, turns_round);
}

void turns_init(struct turns *turns, uv_loop_t *loop) {
    TAILQ_INIT(&turns->queues);
    turns->budget = (struct budget){.clock = uv_hrtime};
    uv_idle_init(loop, &turns->idle);
    turns->idle.data = turns;
}

void turns_finish(struct turns *turns) {
    uv_close((uv_handle_t *)&turns->idle, NULL);
}
