/* Graphs of a replay: on a device that has them (device_async.graph_launch), stretches of steps that follow one another go to the device as one
 * piece of work, so that a run of hundreds of launches costs the host a few calls.
 *
 * The first pass over the steps launches each by itself: a program that runs once needs no graph, and all that a launch needs only
 * once, such as a library's handle and plans, is there afterwards. With the second pass the steps are cut into stretches. A stretch
 * goes to the device as a unit, so that it is no longer than a turn; a step that takes as long is left by itself. When a run has other
 * addresses than the one before, the device exchanges those of the launches that use them. A second graph of the same stretch serves loops,
 * in which addresses change places with every iteration.
 *
 * Launches are made by themselves while their session is traced, since the device tells the times of whole graphs only, and where the device
 * refuses: what it refuses because of one launch is cut in two around it, other refusals are tried again much later. The reason is kept.
 *
 * The submitter's, but for what is said to be others'. */
#pragma once

#include "engine/device/device_impl.h"
#include "engine/order/replay.h"

struct replay_graphs;

/* For people. */
struct replay_graph_figures {
    unsigned graphs;    /* stretches that go to the device as one piece of work, */
    unsigned steps;     /* and the steps in them; the others are launched by themselves */
    uint64_t launched;  /* so often has a graph been put on the device */
    uint64_t captured;  /* so often have all launches of a stretch been taken down for it */
    uint64_t exchanged; /* so many launches have been given other addresses */
    uint64_t refused;   /* so often has the device refused, */
    uint64_t rested;    /* and so often was a stretch left alone for a while, since each run had other addresses */
    char reason[176];   /* of the last refusal, with the operation's name if one was to blame; or why a stretch rests */
};

/* The run's next step is about to be launched: *steps of them have been as one graph; 0: it is to be launched by itself. An error is a failure of
 * the device. */
int replay_graph_launch(struct replay_run *run, struct device *device, struct device_stream *stream, unsigned *steps,
                        struct fault *fault);
/* A pass over the steps has ended, of which none was left out. */
void replay_graphs_pass(struct replay *replay);
/* Other steps are skipped than before: begins anew with the next launch. */
void replay_graphs_forget(struct replay *replay);
/* Any thread. False, and all are 0: there are no graphs. */
bool replay_graph_read(const struct replay *replay, struct replay_graph_figures *figures);
/* Owner thread. Takes NULL. */
void replay_graphs_destroy(struct replay_graphs *graphs);
