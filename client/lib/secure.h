/* TLS as the options and the environment ask for it. */
#pragma once

#include "proto/net/tls.h"

/* PEM files. Where one is NULL, $TENSORD_CA_FILE, $TENSORD_CERT_FILE or $TENSORD_KEY_FILE stands in for it. */
struct secure_files {
    const char *ca, *certificate, *key;
};

/* What connections to this URL share; NULL for one without TLS. The caller releases it. */
int secure_create(const char *url, const struct secure_files *files, struct tls_context **context, struct fault *fault);
