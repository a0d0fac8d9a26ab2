#include "client/lib/secure.h"

#include <stdlib.h>

#include "proto/net/url.h"

static const char *secure_file(const char *given, const char *variable) {
    const char *file = given ? given : getenv(variable);
    return file && *file ? file : NULL;
}

int secure_create(const char *url, const struct secure_files *files, struct tls_context **context,
                  struct fault *fault) {
    struct url parsed;
    int code = url_parse(url, &parsed, fault);
    if (code || parsed.kind != URL_TLS) {
        *context = NULL;
        return code;
    }
    struct tls_client_options options = {
        .host = parsed.host,
        .ca = secure_file(files->ca, "TENSORD_CA_FILE"),
        .certificate = secure_file(files->certificate, "TENSORD_CERT_FILE"),
        .key = secure_file(files->key, "TENSORD_KEY_FILE"),
    };
    return tls_client_create(&options, context, fault);
}
