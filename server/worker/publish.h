/* A Publish on its way: values that are waited for, to be named in one step when all of them are there. Loop thread
 * only. */
#pragma once

#include "proto/wire/tensord.pb-c.h"
#include "server/worker/answer.h"

struct publish;
struct service;

/* Copies what the message says, once: it may be asked for values in many turns. NULL without memory for it. */
struct publish *publish_create(struct answer *answer, const Tensord__Publish *message);
/* Asks for the values, those that it has not asked for before. STATUS_AGAIN: the turn's time is over, or there is no memory yet. */
int publish_hold_some(struct publish *publish);
/* One of what it waits for is there: all have been asked for, or a value has come. With the last of these it goes on, and calls
 * answer_published() when it is over, possibly before this returns. */
void publish_step(struct publish *publish);
/* Goes on with what is being named, as far as the budget goes. */
void publish_turn(struct service *service);
/* Host memory that it takes. */
uint64_t publish_cost(const Tensord__Publish *message);
/* Gives everything back; what has not been named by now is not. Takes NULL. */
void publish_destroy(struct publish *publish);
