#include "engine/order/turns.h"

#include <stdlib.h>

#include "engine/order/order_impl.h"

/* 27 hours. A longer turn is charged no more, so that sums of passes do not overflow. */
#define TURNS_COST_MAX UINT64_C(100000000000000)

static bool share_before(const struct run_share *share, const struct run_share *other) {
    return share->pass < other->pass;
}

/* Searches from the end: a share that has just had its turn belongs there, as a rule. */
static void share_enqueue(struct run_queue *run, struct run_share *share) {
    struct run_share *before = run->last;
    while (before && share_before(share, before))
        before = before->previous;
    share->queued = true;
    share->previous = before;
    share->next = before ? before->next : run->first;
    if (share->next)
        share->next->previous = share;
    else
        run->last = share;
    if (before)
        before->next = share;
    else
        run->first = share;
}

static struct run_share *share_dequeue(struct run_queue *run) {
    struct run_share *share = run->first;
    if (!share)
        return NULL;
    run->first = share->next;
    if (run->first)
        run->first->previous = NULL;
    else
        run->last = NULL;
    share->queued = false;
    return share;
}

static void group_enqueue(struct run_queue *run, struct run_group *group) {
    struct run_share *share = group->share;
    group->next = NULL;
    group->queued = true;
    if (share->last)
        share->last->next = group;
    else
        share->first = group;
    share->last = group;
    if (share->queued || share->running)
        return;
    if (share->pass < run->now)
        share->pass = run->now;
    share_enqueue(run, share);
}

static struct run_group *group_dequeue(struct run_share *share) {
    struct run_group *group = share->first;
    share->first = group->next;
    if (!share->first)
        share->last = NULL;
    group->queued = false;
    return group;
}

static struct stream *group_dequeue_stream(struct run_group *group) {
    for (int i = 0; i < STREAM_PRIORITIES; i++) {
        struct stream *stream = group->first[i];
        if (!stream)
            continue;
        group->first[i] = stream->turns.next;
        if (!group->first[i])
            group->last[i] = NULL;
        return stream;
    }
    return NULL;
}

static bool group_empty(const struct run_group *group) {
    for (int i = 0; i < STREAM_PRIORITIES; i++)
        if (group->first[i])
            return false;
    return true;
}

void turns_enqueue(struct run_queue *run, struct stream *stream) {
    struct run_group *group = stream->group;
    int priority = stream->turns.priority;
    stream->turns.next = NULL;
    stream->turns.runnable = true;
    if (group->last[priority])
        group->last[priority]->turns.next = stream;
    else
        group->first[priority] = stream;
    group->last[priority] = stream;
    if (!group->queued)
        group_enqueue(run, group);
}

void turns_enqueue_first(struct run_queue *run, struct stream *stream) {
    struct run_group *group = stream->group;
    int priority = stream->turns.priority;
    stream->turns.next = group->first[priority];
    stream->turns.runnable = true;
    group->first[priority] = stream;
    if (!group->last[priority])
        group->last[priority] = stream;
    if (!group->queued)
        group_enqueue(run, group);
}

bool turns_wanted(const struct run_queue *run, const struct run_share *share, const struct stream *stream) {
    const struct run_group *group = stream->group;
    if (run->first || (share->first && (share->first != group || group->next)))
        return true;
    for (int i = 0; i < stream->turns.priority; i++)
        if (group->first[i])
            return true;
    return false;
}

struct stream *turns_begin(struct run_queue *run, struct run_share **result) {
    struct run_share *share = share_dequeue(run);
    if (!share)
        return NULL;
    run->now = share->pass;
    share->running = true;
    *result = share;
    struct run_group *group = group_dequeue(share);
    struct stream *stream = group_dequeue_stream(group);
    if (!group_empty(group))
        group_enqueue(run, group);
    return stream;
}

void turns_end(struct run_queue *run, struct run_share *share, uint64_t cost) {
    if (cost > TURNS_COST_MAX)
        cost = TURNS_COST_MAX;
    share->running = false;
    share->pass += cost * SHARE_WEIGHT_MAX / share->weight;
    if (share->first)
        share_enqueue(run, share);
}

void turns_reset(const struct run_queue *run, struct run_share *share, uint32_t weight) {
    share->weight = weight;
    share->operation_ns = 0;
    if (!share->queued && !share->running)
        share->pass = run->now;
}

/* ---- groups and shares, which are recycled ---- */

struct run_group *group_take(struct order *order, struct run_share *share, uint64_t session) {
    struct run_group *group = order->groups_free;
    if (group)
        order->groups_free = group->free_next;
    else if (!(group = calloc(1, sizeof *group)))
        return NULL;
    pthread_mutex_lock(&order->lock);
    group->share = share;
    group->session = session;
    pthread_mutex_unlock(&order->lock);
    return group;
}

void group_give(struct order *order, struct run_group *group) {
    group->free_next = order->groups_free;
    order->groups_free = group;
    if (group->joiner)
        stream_give(group->joiner);
    group->joiner = NULL;
}

struct run_share *share_take(struct order *order, uint32_t weight, uint64_t operation_ns) {
    struct run_share **link = &order->shares_free;
    pthread_mutex_lock(&order->lock);
    while (*link && ((*link)->queued || (*link)->running)) /* for work that its last owner has left */
        link = &(*link)->free_next;
    pthread_mutex_unlock(&order->lock);
    struct run_share *share = *link;
    if (share)
        *link = share->free_next;
    else if (!(share = calloc(1, sizeof *share)))
        return NULL;
    pthread_mutex_lock(&order->lock);
    turns_reset(&order->run, share, weight);
    share->operation_ns = operation_ns;
    pthread_mutex_unlock(&order->lock);
    return share;
}

void share_give(struct order *order, struct run_share *share) {
    share->free_next = order->shares_free;
    order->shares_free = share;
}

void share_set(struct order *order, struct run_share *share, uint32_t weight, uint64_t operation_ns) {
    pthread_mutex_lock(&order->lock);
    share->weight = weight;
    share->operation_ns = operation_ns;
    pthread_mutex_unlock(&order->lock);
}
