#include "client/lib/token.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A token is one word of visible ASCII. `whence` is for the fault. */
static int token_take(const char *text, size_t bytes, const char *whence, char token[TOKEN_BYTES_MAX],
                      struct fault *fault) {
    while (bytes && isspace((unsigned char)text[bytes - 1]))
        bytes--;
    while (bytes && isspace((unsigned char)*text))
        text++, bytes--;
    if (!bytes)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.160s is empty", whence);
    if (bytes >= TOKEN_BYTES_MAX)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.160s is no token: it has more than %d bytes", whence,
                         TOKEN_BYTES_MAX - 1);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.160s is no token: byte %zu is no visible character",
                             whence, i + 1);
    memcpy(token, text, bytes);
    token[bytes] = 0;
    return 0;
}

static int token_read(const char *path, char token[TOKEN_BYTES_MAX], struct fault *fault) {
    char text[4096]; /* more is no token, and is said to be too long */
    size_t bytes = 0;
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && bytes < sizeof text && (n = read(fd, text + bytes, sizeof text - bytes)) > 0)
        bytes += (size_t)n;
    int error = n < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    int code =
        error ? fault_set(fault, STATUS_INVALID_ARGUMENT, "the token file %.120s: %s", path, strerrordesc_np(error))
              : token_take(text, bytes, path, token, fault);
    explicit_bzero(text, sizeof text);
    return code;
}

int token_find(const char *given, char token[TOKEN_BYTES_MAX], struct fault *fault) {
    const char *variable = getenv("TENSORD_TOKEN"), *path = getenv("TENSORD_TOKEN_FILE");
    token[0] = 0;
    if (given)
        return *given ? token_take(given, strlen(given), "the option token", token, fault) : 0;
    if (variable && *variable)
        return token_take(variable, strlen(variable), "TENSORD_TOKEN", token, fault);
    return path && *path ? token_read(path, token, fault) : 0;
}
