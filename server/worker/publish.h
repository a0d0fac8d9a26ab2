/* A Publish in progress: it waits for its values, and binds their names in one step when all values are computed. Loop
 * thread only. */
#pragma once

#include "proto/wire/tensord.pb-c.h"
#include "server/worker/pending_reply.h"

struct publish;
struct service;

/* Copies the message. NULL without memory. */
struct publish *publish_create(struct pending_reply *pending, const Tensord__Publish *message);
/* Asks the engine for values that it has not asked for before. STATUS_AGAIN: the turn's time is over, or there is no
 * memory yet. */
int publish_hold_some(struct publish *publish);
/* The Publish waits for several steps, and one is done: all values have been asked for, or one value is computed. After
 * the last step it binds the names, and then calls pending_reply_done(), possibly before this returns. */
void publish_step(struct publish *publish);
/* Continues to bind names, as far as the budget allows. */
void publish_turn(struct service *service);
/* The host memory that a Publish takes. */
uint64_t publish_cost(const Tensord__Publish *message);
/* Frees the Publish; names that are not bound by now will not be. Takes NULL. */
void publish_destroy(struct publish *publish);
