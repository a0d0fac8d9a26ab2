/* The name of a client by its certificate. */
#include <openssl/x509v3.h>
#include <string.h>

#include "proto/net/tls_impl.h"

/* Lists of principals have commas between them; logs and tables show names. */
static bool usable(const unsigned char *text, size_t bytes) {
    if (bytes == 0 || bytes > TLS_NAME_MAX || text[0] == ' ' || text[bytes - 1] == ' ') {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < 0x20 || text[i] == 0x7f || text[i] == ',') {
            return false;
        }
    }
    return true;
}

/* False: the text is no name that can be used. */
static bool take(const ASN1_STRING *string, const char *kind, char name[TLS_NAME_MAX + 1]) {
    unsigned char *text = NULL;
    int bytes = string ? ASN1_STRING_to_UTF8(&text, string) : -1;
    size_t before = strlen(kind);
    bool good = bytes > 0 && usable(text, (size_t)bytes) && before + (size_t)bytes <= TLS_NAME_MAX;
    if (good) {
        memcpy(name, kind, before);
        memcpy(name + before, text, (size_t)bytes);
        name[before + (size_t)bytes] = 0;
    }
    OPENSSL_free(text);
    return good;
}

static bool take_alternative(X509 *certificate, char name[TLS_NAME_MAX + 1]) {
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool found = false;
    for (int i = 0; !found && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *entry = sk_GENERAL_NAME_value(names, i);
        const char *kind = entry->type == GEN_DNS     ? "dns:"
                           : entry->type == GEN_EMAIL ? "email:"
                           : entry->type == GEN_URI   ? "uri:"
                                                      : NULL;
        if (kind) {
            found = take(entry->d.ia5, kind, name);
        }
    }
    GENERAL_NAMES_free(names);
    return found;
}

/* Of several CNs the last one is the most specific (RFC 4514 writes it first). */
bool tls_certificate_name(X509 *certificate, char name[TLS_NAME_MAX + 1]) {
    X509_NAME *subject = X509_get_subject_name(certificate);
    int at = -1;
    for (int next; (next = X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
        at = next;
    }
    name[0] = 0;
    if (at < 0) {
        return take_alternative(certificate, name);
    }
    return take(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), "", name);
}
