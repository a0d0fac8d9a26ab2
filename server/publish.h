/* A Publish on its way: values that are waited for, to be named in one step when all of them are there. Loop thread
 * only. */
#pragma once

#include "proto/tensord.pb-c.h"
#include "server/answer.h"

struct publish;

/* Calls answer_published() when it is over, possibly before it returns. STATUS_NO_HOST_MEMORY without memory for it. */
int publish_start(struct answer *answer, const Tensord__Publish *message, struct publish **publish);
/* Host memory that it takes. */
uint64_t publish_cost(const Tensord__Publish *message);
/* Gives everything back; what has not been named by now is not. Takes NULL. */
void publish_destroy(struct publish *publish);
