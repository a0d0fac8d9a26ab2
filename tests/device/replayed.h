/* Operations of the suite that run as recorded programs of one operation each. */
#pragma once

#include "engine/engine.h"
#include "engine/order/replay_graph.h"
#include "engine/program/program.h"

enum { REPLAYED_INPUTS = 64, REPLAYED_OUTPUTS = 64 }; /* operations with more run as they are */

/* Whether the environment asks for it. */
bool replayed_wanted(void);
/* As session_submit(). `program`: an id that the session has not used. */
int replayed_submit(struct session *session, const struct op_request *request, uint64_t program);
/* Compiles and loads the kernels of fused launches that wait, as a daemon does; returns how many. On devices that compile none: 0. */
unsigned replayed_compile(struct engine *engine);
/* Does not compile those that wait; returns how many. *own: those that belong to the session's tenant. */
unsigned replayed_give_up(struct engine *engine, const struct session *session, unsigned *own);
/* How many fused launches of the program have a kernel, or wait for one; *ready: those that run as it. */
unsigned replayed_fused(struct session *session, uint64_t program, unsigned *ready);
/* How many reductions and softmaxes are in those that run as their kernel. */
unsigned replayed_by_rows(struct session *session, uint64_t program);
/* What the session's program, which has run, says of its graphs. False: the device has none, or they are switched off. */
bool replayed_graphs(struct session *session, uint64_t program, struct replay_graph_figures *figures);
