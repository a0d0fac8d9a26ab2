/* Who may read. Where there is a file of users, it takes a token as everywhere: as `Authorization: Bearer TOKEN`, which
 * Prometheus sends, or as the password that a browser asks for, with any name. */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "server/http/http_impl.h"
#include "server/process/log.h"

enum { HTTP_BASIC_MAX = 512, HTTP_BASIC_TEXT_MAX = HTTP_BASIC_MAX / 4 * 3 };

/* The password of "NAME:PASSWORD", for which `text` has room; "" where it is no such thing, or has a NUL byte in it. */
static const char *http_basic_password(const char *encoded, char text[HTTP_BASIC_TEXT_MAX + 1]) {
    size_t length = strlen(encoded);
    text[0] = 0;
    if (!length || length > HTTP_BASIC_MAX)
        return text;
    int bytes = EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)encoded, (int)length);
    text[bytes > 0 ? bytes : 0] = 0;
    for (const char *fill = encoded + length; bytes > 0 && fill > encoded && fill[-1] == '='; fill--)
        bytes--; /* what fills the last block up was decoded as a zero */
    char *colon = strchr(text, ':');
    return colon && bytes > 0 && strlen(text) == (size_t)bytes ? colon + 1 : "";
}

/* The other end, for the log and for counting what fails there. */
static void http_login_peer(struct http *http, struct MHD_Connection *connection, struct peer *peer) {
    const union MHD_ConnectionInfo *info =
        http->library.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof address;
    *peer = (struct peer){.address = "http"};
    if (info && !getpeername(info->connect_fd, (struct sockaddr *)&address, &length))
        source_find(&peer->source, &address);
}

static unsigned http_login_code(struct http *http, struct MHD_Connection *connection, const char *token,
                                unsigned *wait_s) {
    struct peer peer;
    struct login_request request = {.peer = &peer, .token = token};
    struct principal principal;
    struct fault fault;
    uint64_t wait_ms;
    http_login_peer(http, connection, &peer);
    int status = login_check_now(&http->front->login, &request, &principal, &wait_ms, &fault);
    *wait_s = (unsigned)((wait_ms + 999) / 1000);
    if (!status)
        status = role_check(ROLE_ON_CONTROL, FRAME_GET_STATUS, principal.role, principal.name, &fault);
    http->admin = !status && principal.role == ROLE_ADMIN;
    return !status ? MHD_HTTP_OK : *wait_s ? MHD_HTTP_TOO_MANY_REQUESTS : MHD_HTTP_UNAUTHORIZED;
}

unsigned http_login_check(struct http *http, struct MHD_Connection *connection, unsigned *wait_s) {
    const char *shown = http->library.lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    char text[HTTP_BASIC_TEXT_MAX + 1];
    unsigned code = MHD_HTTP_UNAUTHORIZED;
    *wait_s = 0;
    if (!http->front->login.users)
        return MHD_HTTP_OK;
    if (shown && !strncasecmp(shown, "Bearer ", 7))
        code = http_login_code(http, connection, shown + 7, wait_s);
    else if (shown && !strncasecmp(shown, "Basic ", 6))
        code = http_login_code(http, connection, http_basic_password(shown + 6, text), wait_s);
    OPENSSL_cleanse(text, sizeof text);
    if (code != MHD_HTTP_OK)
        log_event(LOG_LEVEL_DEBUG, "http_denied", "token", !shown ? "none" : *wait_s ? "not looked at" : "wrong", NULL);
    return code;
}
