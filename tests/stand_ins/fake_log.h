/* What the daemon for tests of the client has been sent, as text: fake_daemon_log() and fake_daemon_saw() look at it. */
#pragma once

#include "tests/stand_ins/fake_daemon.h"

/* Appends to the log; any thread. */
__attribute__((format(printf, 2, 3))) void fake_log_note(struct fake_daemon *fake, const char *format, ...);
