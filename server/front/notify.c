#include "server/front/notify.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { NOTIFY_FDS_MAX = 64 };

void notify_init(struct notify *notify) {
    const char *path = getenv("NOTIFY_SOCKET");
    notify->path[0] = 0;
    if (path && (path[0] == '/' || path[0] == '@') && strlen(path) < sizeof notify->path)
        snprintf(notify->path, sizeof notify->path, "%s", path);
    unsetenv("NOTIFY_SOCKET");
}

void notify_send(const struct notify *notify, const char *state) {
    size_t length = strlen(notify->path);
    if (!length)
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, notify->path, length);
    if (address.sun_path[0] == '@')
        address.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    close(fd);
}

static long notify_number(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return -1;
    long number = strtol(text, &end, 10);
    return *end ? -1 : number;
}

unsigned notify_listen_fds(void) {
    long pid = notify_number("LISTEN_PID"), count = notify_number("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (pid != getpid() || count <= 0 || count > NOTIFY_FDS_MAX)
        return 0;
    for (int fd = NOTIFY_FD_FIRST; fd < NOTIFY_FD_FIRST + count; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    return (unsigned)count;
}
