#include "server/users/token.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "proto/ops/utf8.h"
#include "server/process/log.h"
#include "server/users/users.h"

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

/* The text must have been checked. */
static void token_hex_read(const char *text, uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < 2 * n; i++) {
        unsigned digit = (unsigned)(strchr(token_digits, text[i]) - token_digits);
        bytes[i / 2] = (uint8_t)(i % 2 ? bytes[i / 2] << 4 | digit : digit);
    }
}

/* ---- the secret ---- */

/* False: OpenSSL has no memory. */
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

bool token_expired(const struct token *token, int64_t now) {
    return token->expires && now >= token->expires;
}

void token_time_write(int64_t seconds, char text[TOKEN_TIME_BYTES]) {
    time_t when = (time_t)seconds;
    struct tm utc;
    text[0] = 0;
    if (gmtime_r(&when, &utc))
        strftime(text, TOKEN_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

int64_t token_time_parse(const char *text) {
    struct tm utc = {.tm_isdst = 0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    time_t when = end && !*end ? timegm(&utc) : -1;
    return when > 0 ? (int64_t)when : -1;
}

bool token_is_comment(const char *text) {
    const char *at = text;
    if (!*text || strlen(text) > TOKEN_COMMENT_MAX || strpbrk(text, ";#") || *text == ' ' ||
        text[strlen(text) - 1] == ' ')
        return false;
    while (*at) {
        const char *before = at;
        uint32_t rune = utf8_next(&at);
        if (utf8_is_unsafe(rune) || (rune == 0xfffd && at == before + 1))
            return false;
    }
    return true;
}

void token_record_write(const struct token *token, char text[TOKEN_RECORD_BYTES]) {
    char expires[TOKEN_TIME_BYTES], salt[2 * TOKEN_SALT_BYTES + 1] = "", hash[2 * TOKEN_HASH_BYTES + 1] = "";
    token_hex_write(token->salt, TOKEN_SALT_BYTES, salt);
    token_hex_write(token->hash, TOKEN_HASH_BYTES, hash);
    int n = snprintf(text, TOKEN_RECORD_BYTES, "%s %s %s", token->id, salt, hash);
    token_time_write(token->expires, expires);
    if (token->expires)
        n += snprintf(text + n, (size_t)(TOKEN_RECORD_BYTES - n), " expires=%s", expires);
    if (*token->comment)
        snprintf(text + n, (size_t)(TOKEN_RECORD_BYTES - n), " comment=%s", token->comment);
}

/* Reads the text behind the hash. */
static bool token_record_parse_rest(const char *text, struct token *token) {
    char expires[TOKEN_TIME_BYTES] = "";
    if (!strncmp(text, " expires=", 9)) {
        text += 9;
        size_t length = strcspn(text, " ");
        if (length >= sizeof expires)
            return false;
        memcpy(expires, text, length);
        token->expires = token_time_parse(expires);
        text += length;
        if (token->expires < 0)
            return false;
    }
    if (!strncmp(text, " comment=", 9)) {
        if (!token_is_comment(text + 9))
            return false;
        strcpy(token->comment, text + 9);
        return true;
    }
    return !*text;
}

bool token_record_parse(const char *text, struct token *token) {
    struct token read = {.id = ""};
    const char *salt = text + TOKEN_ID_CHARS + 1, *hash = salt + 2 * TOKEN_SALT_BYTES + 1;
    if (strlen(text) < TOKEN_SECRET_RECORD_CHARS || !token_is_hex(text, TOKEN_ID_CHARS) || salt[-1] != ' ' ||
        !token_is_hex(salt, 2 * TOKEN_SALT_BYTES) || hash[-1] != ' ' || !token_is_hex(hash, 2 * TOKEN_HASH_BYTES) ||
        !token_record_parse_rest(text + TOKEN_SECRET_RECORD_CHARS, &read))
        return false;
    memcpy(read.id, text, TOKEN_ID_CHARS);
    token_hex_read(salt, read.salt, sizeof read.salt);
    token_hex_read(hash, read.hash, sizeof read.hash);
    *token = read;
    return true;
}

/* ---- when each token was last used ---- */

enum { TOKEN_USE_STEP_S = 60 };

static struct token_use_entry *token_use_find(const struct token_use *use, const char *id) {
    for (unsigned i = 0; i < use->count; i++)
        if (!strcmp(use->entries[i].id, id))
            return &use->entries[i];
    return NULL;
}

static void token_use_set(struct token_use *use, const char *id, int64_t at) {
    struct token_use_entry *entry = token_use_find(use, id);
    if (!entry && use->count == use->capacity) {
        unsigned capacity = use->capacity ? 2 * use->capacity : 16;
        struct token_use_entry *grown =
            use->count < USERS_TOKENS_MAX ? realloc(use->entries, capacity * sizeof *grown) : NULL;
        if (!grown)
            return;
        use->entries = grown;
        use->capacity = capacity;
    }
    if (!entry) {
        entry = &use->entries[use->count++];
        memcpy(entry->id, id, sizeof entry->id);
    }
    entry->at = at;
}

void token_use_init(struct token_use *use, const char *users) {
    char line[64], id[TOKEN_ID_CHARS + 1], text[TOKEN_TIME_BYTES];
    *use = (struct token_use){.count = 0};
    if (snprintf(use->path, sizeof use->path, "%s.used", users) >= (int)sizeof use->path - 8)
        use->path[0] = 0;
    FILE *file = fopen(use->path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%8s %20s", id, text) == 2 && token_is_id(id) && token_time_parse(text) > 0)
            token_use_set(use, id, token_time_parse(text));
    if (file)
        fclose(file);
}

void token_use_finish(struct token_use *use) {
    free(use->entries);
    *use = (struct token_use){.count = 0};
}

int64_t token_use_of(const struct token_use *use, const char *id) {
    const struct token_use_entry *entry = token_use_find(use, id);
    return entry ? entry->at : 0;
}

void token_use_note(struct token_use *use, const char *id, int64_t now) {
    token_use_set(use, id, now);
    use->changed = true;
}

static int token_use_write(const struct token_use *use, const char *temporary) {
    char text[TOKEN_TIME_BYTES];
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file)
        return errno;
    for (unsigned i = 0; i < use->count; i++) {
        token_time_write(use->entries[i].at, text);
        fprintf(file, "%s %s\n", use->entries[i].id, text);
    }
    bool wrong = ferror(file);
    return fclose(file) || wrong || rename(temporary, use->path) ? errno ? errno : EIO : 0;
}

/* Drops the times of revoked tokens, which would fill the table in the end. */
static void token_use_forget(struct token_use *use, const struct users *users) {
    unsigned kept = 0;
    for (unsigned i = 0; i < use->count; i++)
        if (users_find_token(users, use->entries[i].id))
            use->entries[kept++] = use->entries[i];
    use->count = kept;
}

void token_use_save(struct token_use *use, const struct users *users, int64_t now, bool at_once) {
    char temporary[sizeof use->path + 8];
    if (!use->changed || !*use->path || (!at_once && now - use->written < TOKEN_USE_STEP_S))
        return;
    snprintf(temporary, sizeof temporary, "%s.new", use->path);
    use->written = now;
    token_use_forget(use, users);
    int error = token_use_write(use, temporary);
    if (error)
        unlink(temporary);
    use->changed = error;
    if (error && !use->complained)
        log_event(LOG_LEVEL_WARNING, "last_use_not_written", "file", use->path, "cause", strerror(error), NULL);
    use->complained = error;
}
