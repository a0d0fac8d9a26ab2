#include "server/ipc/peer.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* An IPv4 address that is mapped into IPv6, as a socket that listens on both reports it, counts as the IPv4 address. */
static void source_find_ipv6(struct source *source, const struct in6_addr *address) {
    bool mapped = IN6_IS_ADDR_V4MAPPED(address);
    source->kind = mapped ? SOURCE_IPV4 : SOURCE_IPV6;
    memcpy(source->bytes, address->s6_addr + (mapped ? 12 : 0), mapped ? 4 : sizeof source->bytes);
}

void source_find(struct source *source, const struct sockaddr_storage *address) {
    *source = (struct source){.kind = SOURCE_NONE};
    if (address->ss_family == AF_INET6) {
        source_find_ipv6(source, &((const struct sockaddr_in6 *)address)->sin6_addr);
    } else if (address->ss_family == AF_INET) {
        const struct in_addr *in = &((const struct sockaddr_in *)address)->sin_addr;
        source->kind = SOURCE_IPV4;
        memcpy(source->bytes, in, sizeof *in);
    }
}

bool source_same(const struct source *a, const struct source *b) {
    return a->kind == b->kind && !memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

const char *source_text(const struct source *source, char text[SOURCE_TEXT_BYTES]) {
    struct in6_addr network = {.s6_addr = {0}};
    uid_t uid;
    snprintf(text, SOURCE_TEXT_BYTES, "unix");
    if (source->kind == SOURCE_UID) {
        memcpy(&uid, source->bytes, sizeof uid);
        snprintf(text, SOURCE_TEXT_BYTES, "uid:%u", uid);
    } else if (source->kind == SOURCE_IPV4) {
        inet_ntop(AF_INET, source->bytes, text, SOURCE_TEXT_BYTES);
    } else if (source->kind == SOURCE_IPV6) {
        memcpy(network.s6_addr, source->bytes, sizeof source->bytes);
        inet_ntop(AF_INET6, &network, text, INET6_ADDRSTRLEN);
        strcat(text, "/64");
    }
    return text;
}

/* ---- where a client runs ---- */

/* A host's name has few kinds of characters; '?' replaces all others that a client sends. */
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
