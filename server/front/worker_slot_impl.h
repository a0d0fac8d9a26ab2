/* Between the files of a slot: worker_slot.c has its process's life, worker_slot_watch.c looks at it. Front thread only. */
#pragma once

#include "server/front/worker_slot.h"

/* worker_slot.c */
/* Counts what the page said of `taken` a tick ago. */
void worker_slot_catch_up(struct worker_slot *slot);
