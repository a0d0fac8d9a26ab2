/* Certificates for one test, made by the commands that tensord-team(7) shows. Everything asserts. */
#pragma once

struct certificates {
    char directory[64]; /* has ca.pem, server.pem and server.key (localhost, 127.0.0.1), alice.pem and alice.key */
};

void certificates_make(struct certificates *certificates);
void certificates_remove(struct certificates *certificates);

/* A CA of its own: NAME.pem and NAME.key. */
void certificates_add_ca(const struct certificates *certificates, const char *name);
/* NAME.pem and NAME.key, signed by the CA `ca`. `subject`: "/CN=alice"; `san`: "DNS:localhost", NULL: none. */
void certificates_add(const struct certificates *certificates, const char *name, const char *ca, const char *subject,
                      const char *san);
/* The same, but it ended years ago. */
void certificates_add_expired(const struct certificates *certificates, const char *name, const char *ca,
                              const char *subject, const char *san);
/* Puts the files of `from` in the place of those of `to`, as one that renews certificates does. */
void certificates_replace(const struct certificates *certificates, const char *from, const char *to);

/* The path of a file there; of a ring of texts, so use it at once. */
const char *certificates_file(const struct certificates *certificates, const char *name);

/* In this process's environment, for clients: $TENSORD_CA_FILE is NAME.pem of `ca`, the client's certificate that of
 * `client`; NULL: none. */
void certificates_use(const struct certificates *certificates, const char *ca, const char *client);

/* A daemon on tls://localhost with server.pem, and more flags (NULL-ended; NULL: none). `devices` NULL: "cpu:0". */
struct daemon;
void certificates_start(const struct certificates *certificates, struct daemon *daemon, const char *devices,
                        const char *const more[]);
