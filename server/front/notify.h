/* What systemd wants of a daemon: sd_notify(3) and sd_listen_fds(3), without the library. Main thread, before any other
 * thread and before workers start: both take their variables out of the environment. */
#pragma once

struct notify {
    char path[108]; /* $NOTIFY_SOCKET; empty where nobody wants to know. An abstract name begins with '@'. */
};

void notify_init(struct notify *notify);
/* "READY=1", "STOPPING=1", "STATUS=…". Failures are of no consequence. */
void notify_send(const struct notify *notify, const char *state);

/* Listening sockets passed by the service manager: NOTIFY_FD_FIRST and those after it, made close-on-exec. Returns how
 * many; 0 where there are none for this process. */
enum { NOTIFY_FD_FIRST = 3 };
unsigned notify_listen_fds(void);
