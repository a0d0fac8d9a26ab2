#include "server/ipc/remote.h"

#include <ctype.h>
#include <string.h>
#include <sys/socket.h>

/* A host's name has few characters; of anything else that a client says, '?' is left. */
static void remote_set_host(struct remote *remote, const char *host) {
    size_t length = strnlen(host, sizeof remote->host - 1);
    for (size_t i = 0; i < length; i++)
        remote->host[i] = isalnum((unsigned char)host[i]) || strchr("-._:", host[i]) ? host[i] : '?';
    remote->host[length] = 0;
}

void remote_find(struct remote *remote, int fd, bool tcp, const Tensord__Hello *hello) {
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    *remote = (struct remote){0};
    if (tcp) {
        remote->pid = hello->process;
        remote->claimed = true;
        remote_set_host(remote, hello->host);
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 && credentials.pid > 0)
        remote->pid = (uint32_t)credentials.pid;
}
