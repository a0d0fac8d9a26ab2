#include "proto/net/url.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

_Static_assert(sizeof(((struct url *)0)->path) == sizeof(((struct sockaddr_un *)0)->sun_path), "a path fits a socket");

static int refuse(const char *text, const char *why, struct fault *fault) {
    return fault_set(fault, STATUS_INVALID_ARGUMENT,
                     "address \"%.100s\": %s (use unix:/path, tcp://host:port or tls://host:port)", text, why);
}

static int parse_unix(const char *text, const char *path, struct url *url, struct fault *fault) {
    struct url parsed = {.kind = URL_UNIX};
    if (path[0] != '/') {
        return refuse(text, "the path does not begin with /", fault);
    }
    if (strlen(path) >= sizeof(parsed.path)) {
        return refuse(text, "the path has more than 107 bytes", fault);
    }
    memcpy(parsed.path, path, strlen(path) + 1);
    *url = parsed;
    return STATUS_OK;
}

static bool parse_port(const char *text, uint16_t *port) {
    unsigned value = 0;
    size_t length = strlen(text);
    if (length == 0 || length > 5 || strspn(text, "0123456789") != length) {
        return false;
    }
    for (; *text; text++) {
        value = value * 10 + (unsigned)(*text - '0');
    }
    *port = (uint16_t)value;
    return value <= UINT16_MAX;
}

/* Finds the host in "host:port" or "[host]:port"; returns the text after its colon, or NULL if there is no colon. */
static const char *split_host(const char *rest, const char **host, size_t *host_length) {
    const char *end;
    if (rest[0] == '[') {
        *host = rest + 1;
        end = strchr(rest, ']');
        *host_length = end ? (size_t)(end - *host) : 0;
        return end && end[1] == ':' ? end + 2 : NULL;
    }
    *host = rest;
    end = strchr(rest, ':');
    *host_length = end ? (size_t)(end - rest) : 0;
    return end ? end + 1 : NULL;
}

static int parse_tcp(const char *text, const char *rest, struct url *url, struct fault *fault) {
    struct url parsed = {.kind = URL_TCP};
    const char *host;
    size_t length;
    const char *port = split_host(rest, &host, &length);
    if (!port) {
        return refuse(text, "there is no port", fault);
    }
    if (length == 0 || length >= sizeof(parsed.host)) {
        return refuse(text, "the host is empty or too long", fault);
    }
    memcpy(parsed.host, host, length);
    if (strpbrk(parsed.host, "/@?# \t") || (rest[0] == '[') != (strchr(parsed.host, ':') != NULL)) {
        return refuse(text, "this is no host", fault);
    }
    if (rest[0] != '[' && strchr(port, ':')) {
        return refuse(text, "an IPv6 host needs brackets", fault);
    }
    if (!parse_port(port, &parsed.port)) {
        return refuse(text, "the port is not a number from 0 to 65535", fault);
    }
    *url = parsed;
    return STATUS_OK;
}

int url_parse(const char *text, struct url *url, struct fault *fault) {
    if (strncmp(text, "unix:", 5) == 0) {
        return parse_unix(text, text + 5, url, fault);
    }
    if (strncmp(text, "tcp://", 6) == 0) {
        return parse_tcp(text, text + 6, url, fault);
    }
    if (strncmp(text, "tls://", 6) == 0) {
        int code = parse_tcp(text, text + 6, url, fault);
        url->kind = code ? url->kind : URL_TLS;
        return code;
    }
    return refuse(text, "the scheme is not known", fault);
}

int url_default(char *text, size_t size, struct fault *fault) {
    const char *directory = getenv("XDG_RUNTIME_DIR");
    if (!directory || directory[0] != '/') { /* the XDG specification says that a relative path must be ignored */
        directory = geteuid() == 0 ? "/run/tensord" : NULL;
    }
    if (!directory) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "no default address: XDG_RUNTIME_DIR is not set; name one, such as unix:/tmp/tensord.sock");
    }
    int length = snprintf(text, size, "unix:%s/tensord.sock", directory);
    if (length < 0 || (size_t)length >= size) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "XDG_RUNTIME_DIR is too long: %.100s", directory);
    }
    return STATUS_OK;
}

static bool is_there(const char *path) {
    struct stat status;
    return !stat(path, &status) || errno == EACCES;
}

int url_find(const char *system, char *text, size_t size, struct fault *fault) {
    bool own = !url_default(text, size, NULL);
    if (own && is_there(text + strlen("unix:"))) {
        return STATUS_OK;
    }
    if (own && !is_there(system)) {
        return STATUS_OK;
    }
    int length = snprintf(text, size, "unix:%s", system);
    return length >= 0 && (size_t)length < size
               ? STATUS_OK
               : fault_set(fault, STATUS_INVALID_ARGUMENT, "the path is too long: %.100s", system);
}

static void resolve_unix(const struct url *url, struct url_address *address) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, url->path, sizeof(name.sun_path));
    memset(address, 0, sizeof(*address));
    memcpy(&address->address, &name, sizeof(name));
    address->length = sizeof(name);
}

static int resolve_tcp(const struct url *url, bool passive, struct url_address *addresses, size_t capacity,
                       size_t *count, struct fault *fault) {
    struct addrinfo *found = NULL, hints = {.ai_family = AF_UNSPEC,
                                            .ai_socktype = SOCK_STREAM,
                                            .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0)};
    char port[8];
    snprintf(port, sizeof(port), "%u", url->port);
    int error = getaddrinfo(url->host, port, &hints, &found);
    if (error != 0) {
        return fault_set(fault, STATUS_CONNECTION, "cannot resolve host %s: %s", url->host,
                         error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    }
    *count = 0;
    for (const struct addrinfo *next = found; next && *count < capacity; next = next->ai_next) {
        struct url_address *address = &addresses[(*count)++];
        memset(address, 0, sizeof(*address));
        memcpy(&address->address, next->ai_addr, next->ai_addrlen);
        address->length = next->ai_addrlen;
    }
    freeaddrinfo(found);
    return STATUS_OK;
}

int url_resolve(const struct url *url, bool passive, struct url_address *addresses, size_t capacity, size_t *count,
                struct fault *fault) {
    if (capacity == 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no room for an address");
    }
    if (url->kind != URL_UNIX) {
        return resolve_tcp(url, passive, addresses, capacity, count, fault);
    }
    resolve_unix(url, addresses);
    *count = 1;
    return STATUS_OK;
}

bool url_is_loopback(const struct url_address *address) {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    switch (address->address.ss_family) {
    case AF_UNIX:
        return true;
    case AF_INET:
        memcpy(&v4, &address->address, sizeof(v4));
        return ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    case AF_INET6:
        memcpy(&v6, &address->address, sizeof(v6));
        return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    default:
        return false;
    }
}
