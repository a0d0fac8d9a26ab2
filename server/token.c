#include "server/token.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/random.h>

#define TOKEN_PREFIX "tensord_"
enum { TOKEN_PREFIX_CHARS = sizeof TOKEN_PREFIX - 1 };
_Static_assert(TOKEN_TEXT_CHARS == TOKEN_PREFIX_CHARS + TOKEN_ID_CHARS + 1 + TOKEN_SECRET_CHARS, "a token's length");

/* ---- hexadecimal digits ---- */

static const char token_digits[] = "0123456789abcdef";

static void token_hex_write(const uint8_t *bytes, size_t n, char *text) {
    for (size_t i = 0; i < n; i++) {
        text[2 * i] = token_digits[bytes[i] >> 4];
        text[2 * i + 1] = token_digits[bytes[i] & 15];
    }
}

static bool token_is_hex(const char *text, size_t chars) {
    return strspn(text, token_digits) >= chars;
}

/* Of a text that has been checked. */
static void token_hex_read(const char *text, uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < 2 * n; i++) {
        unsigned digit = (unsigned)(strchr(token_digits, text[i]) - token_digits);
        bytes[i / 2] = (uint8_t)(i % 2 ? bytes[i / 2] << 4 | digit : digit);
    }
}

/* ---- the secret ---- */

/* False where OpenSSL cannot: without memory. */
static bool token_hash(const uint8_t salt[TOKEN_SALT_BYTES], const char *secret, uint8_t hash[TOKEN_HASH_BYTES]) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    unsigned bytes = 0;
    bool done = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) &&
                EVP_DigestUpdate(context, salt, TOKEN_SALT_BYTES) &&
                EVP_DigestUpdate(context, secret, TOKEN_SECRET_CHARS) && EVP_DigestFinal_ex(context, hash, &bytes) &&
                bytes == TOKEN_HASH_BYTES;
    EVP_MD_CTX_free(context);
    return done;
}

static int token_random(uint8_t *bytes, size_t n, struct fault *fault) {
    /* Up to 256 bytes come whole, and no signal interrupts them. */
    if (getrandom(bytes, n, 0) != (ssize_t)n)
        return fault_set(fault, STATUS_INTERNAL, "the system gives no random bytes: %s", strerror(errno));
    return STATUS_OK;
}

int token_make(struct token *token, char text[TOKEN_TEXT_CHARS + 1], struct fault *fault) {
    struct {
        uint8_t id[TOKEN_ID_CHARS / 2], salt[TOKEN_SALT_BYTES], secret[TOKEN_SECRET_CHARS / 2];
    } bytes;
    struct token made = {.id = ""};
    int error = token_random((uint8_t *)&bytes, sizeof bytes, fault);
    if (error)
        return error;
    token_hex_write(bytes.id, sizeof bytes.id, made.id);
    memcpy(made.salt, bytes.salt, sizeof made.salt);
    memcpy(text, TOKEN_PREFIX, TOKEN_PREFIX_CHARS);
    memcpy(text + TOKEN_PREFIX_CHARS, made.id, TOKEN_ID_CHARS);
    char *secret = text + TOKEN_PREFIX_CHARS + TOKEN_ID_CHARS;
    *secret++ = '_';
    token_hex_write(bytes.secret, sizeof bytes.secret, secret);
    secret[TOKEN_SECRET_CHARS] = 0;
    OPENSSL_cleanse(&bytes, sizeof bytes);
    if (!token_hash(made.salt, secret, made.hash))
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory to make a token");
    *token = made;
    return STATUS_OK;
}

bool token_is_id(const char *text) {
    return strlen(text) == TOKEN_ID_CHARS && token_is_hex(text, TOKEN_ID_CHARS);
}

bool token_text_id(const char *text, char id[TOKEN_ID_CHARS + 1]) {
    const char *digits = text + TOKEN_PREFIX_CHARS;
    if (strlen(text) != TOKEN_TEXT_CHARS || strncmp(text, TOKEN_PREFIX, TOKEN_PREFIX_CHARS) != 0 ||
        !token_is_hex(digits, TOKEN_ID_CHARS) || digits[TOKEN_ID_CHARS] != '_' ||
        !token_is_hex(digits + TOKEN_ID_CHARS + 1, TOKEN_SECRET_CHARS))
        return false;
    memcpy(id, digits, TOKEN_ID_CHARS);
    id[TOKEN_ID_CHARS] = 0;
    return true;
}

bool token_verify(const struct token *token, const char *text) {
    static const struct token nobody; /* no secret is known that hashes to zeros */
    const struct token *against = token ? token : &nobody;
    uint8_t hash[TOKEN_HASH_BYTES] = {0};
    bool hashed = token_hash(against->salt, text + TOKEN_TEXT_CHARS - TOKEN_SECRET_CHARS, hash);
    bool same = CRYPTO_memcmp(hash, against->hash, sizeof hash) == 0;
    return hashed && same && token;
}

bool token_same(const struct token *a, const struct token *b) {
    return !strcmp(a->id, b->id) && !memcmp(a->salt, b->salt, sizeof a->salt) &&
           !memcmp(a->hash, b->hash, sizeof a->hash);
}

/* ---- the record ---- */

void token_record_write(const struct token *token, char text[TOKEN_RECORD_BYTES]) {
    memcpy(text, token->id, TOKEN_ID_CHARS);
    text += TOKEN_ID_CHARS;
    *text++ = ' ';
    token_hex_write(token->salt, TOKEN_SALT_BYTES, text);
    text += 2 * TOKEN_SALT_BYTES;
    *text++ = ' ';
    token_hex_write(token->hash, TOKEN_HASH_BYTES, text);
    text[2 * TOKEN_HASH_BYTES] = 0;
}

bool token_record_parse(const char *text, struct token *token) {
    struct token read = {.id = ""};
    const char *salt = text + TOKEN_ID_CHARS + 1, *hash = salt + 2 * TOKEN_SALT_BYTES + 1;
    if (strlen(text) != TOKEN_RECORD_BYTES - 1 || !token_is_hex(text, TOKEN_ID_CHARS) || salt[-1] != ' ' ||
        !token_is_hex(salt, 2 * TOKEN_SALT_BYTES) || hash[-1] != ' ' || !token_is_hex(hash, 2 * TOKEN_HASH_BYTES))
        return false;
    memcpy(read.id, text, TOKEN_ID_CHARS);
    token_hex_read(salt, read.salt, sizeof read.salt);
    token_hex_read(hash, read.hash, sizeof read.hash);
    *token = read;
    return true;
}
