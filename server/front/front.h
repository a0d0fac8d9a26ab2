/* The front: accepts connections, hands each to the worker that its preamble names, or serves it itself (control
 * connections), and ends everything in order. One thread, except for TLS handshakes (handshake.h). */
#pragma once

#include <uv.h>

#include "server/front/arrival.h"
#include "server/front/config.h"
#include "server/front/control.h"
#include "server/front/front_tls.h"
#include "server/front/listener.h"
#include "server/front/login.h"
#include "server/front/roster.h"
#include "server/front/supervisor.h"
#include "server/front/turns.h"
#include "server/ipc/stats_page.h"
#include "server/process/farewell.h"

enum { FRONT_SIGNALS = 3 };

/* The socket of the service manager (sd_notify(3)). */
struct notify {
    char path[108]; /* "": there is none. The name of an abstract socket begins with '@' */
};

struct front;

/* A part of the daemon that the front does not know, while the part knows the front: HTTP (server/http/http.h). */
struct front_extension {
    /* Called when the listeners are open; `*state` is passed to `stop`. It may start nothing. */
    int (*start)(struct front *front, void **state, struct fault *fault);
    /* Called at the end: closes handles, and then the loop runs until they are closed. Not called if `start` was
     * not. */
    void (*stop)(void *state);
};

struct front {
    uv_loop_t loop;
    struct config *config;
    int n_arguments; /* the command line, which a reload reads again */
    char **arguments;
    struct notify notify;
    struct supervisor supervisor;
    struct listener_list listeners;
    struct arrival_list arrivals;
    struct control_list controls;
    struct turns turns;           /* of control connections */
    struct handshakes handshakes; /* of control connections */
    struct farewell_list farewells;
    struct front_tls tls;
    struct roster roster;
    uint64_t refusals[REFUSAL_COUNT]; /* that the front itself decided; workers count their own */
    struct login login;
    int users; /* a descriptor with what workers know of the users (front_tell_users()); -1: nothing */
    const struct front_extension *extension;
    void *extension_state;
    uv_signal_t signals[FRONT_SIGNALS];
    uv_timer_t leaving;
    unsigned leave_tries;
    uint64_t started_ns;
    uint64_t accepted, rejections[STATUS_COUNT]; /* connections accepted, and those refused by the front, by code */
    bool ready;                                  /* READY=1 has been sent */
    bool draining;                               /* the daemon takes no new work */
    bool stopped;                                /* all workers have ended */
};

/* Runs the daemon until it has been drained. Returns the exit status: 0, 1 if the system refuses something, 2 if the
 * configuration is wrong; standard error says why. */
int front_run(struct config *config, const struct front_extension *extension, int count, char **arguments);
/* Begins the end of the daemon; `why` is for the log. */
void front_drain(struct front *front, const char *why);
