/* The front: accepts connections, gives each to the worker that its preamble names, or answers it itself (control
 * connections), and ends everything in order. One thread. */
#pragma once

#include <uv.h>

#include "server/arrival.h"
#include "server/config.h"
#include "server/control.h"
#include "server/farewell.h"
#include "server/front_tls.h"
#include "server/listener.h"
#include "server/notify.h"
#include "server/supervisor.h"

enum { FRONT_SIGNALS = 3 };

struct front {
    uv_loop_t loop;
    const struct config *config;
    struct notify notify;
    struct supervisor supervisor;
    struct listener_list listeners;
    struct arrival_list arrivals;
    struct control_list controls;
    struct farewell_list farewells;
    struct front_tls tls;
    uv_signal_t signals[FRONT_SIGNALS];
    uv_timer_t leaving;
    unsigned leave_tries;
    uint64_t started_ns;
    bool ready;    /* READY=1 has been sent */
    bool draining; /* no new work */
    bool stopped;  /* all workers have ended */
};

/* Runs the daemon until it has been drained; the exit status: 0, 1 where the system refuses what is asked, 2 where what
 * is asked is wrong. Says why on stderr. */
int front_run(const struct config *config);
/* Begins to end the daemon; `why` is for the log. */
void front_drain(struct front *front, const char *why);
