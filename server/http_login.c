/* Who may read. Where there is a file of users, it takes a token as everywhere: as `Authorization: Bearer TOKEN`, which
 * Prometheus sends, or as the password that a browser asks for, with any name. */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "server/front.h"
#include "server/http_impl.h"
#include "server/log.h"

enum { HTTP_BASIC_MAX = 512, HTTP_BASIC_TEXT_MAX = HTTP_BASIC_MAX / 4 * 3 };

/* The password of "NAME:PASSWORD", for which `text` has room; "" where it is no such thing. */
static const char *http_basic_password(const char *encoded, char text[HTTP_BASIC_TEXT_MAX + 1]) {
    size_t length = strlen(encoded);
    text[0] = 0;
    if (length > HTTP_BASIC_MAX)
        return text;
    int bytes = EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)encoded, (int)length);
    text[bytes > 0 ? bytes : 0] = 0; /* what fills the last block up are zeroes */
    char *colon = strchr(text, ':');
    return colon ? colon + 1 : "";
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

static bool http_login_is(struct http *http, struct MHD_Connection *connection, const char *token) {
    struct peer peer;
    struct login_request request = {.peer = &peer, .token = token};
    struct principal principal;
    struct fault fault;
    http_login_peer(http, connection, &peer);
    if (login_check_now(&http->front->login, &request, &principal, &fault))
        return false;
    return role_check(ROLE_ON_CONTROL, FRAME_GET_STATUS, principal.role, principal.name, &fault) == STATUS_OK;
}

bool http_login_allows(struct http *http, struct MHD_Connection *connection) {
    const char *shown = http->library.lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    char text[HTTP_BASIC_TEXT_MAX + 1];
    if (!http->front->login.users)
        return true;
    bool allowed = false;
    if (shown && !strncasecmp(shown, "Bearer ", 7))
        allowed = http_login_is(http, connection, shown + 7);
    else if (shown && !strncasecmp(shown, "Basic ", 6))
        allowed = http_login_is(http, connection, http_basic_password(shown + 6, text));
    OPENSSL_cleanse(text, sizeof text);
    if (!allowed)
        log_event(LOG_LEVEL_DEBUG, "http_denied", "token", shown ? "wrong" : "none", NULL);
    return allowed;
}
