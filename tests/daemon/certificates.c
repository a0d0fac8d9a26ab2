#include "tests/daemon/certificates.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"

enum { PATH_BYTES = 128, PATHS = 16, ARGUMENTS = 40, OPENSSL_MS = 30000 };

const char *certificates_file(const struct certificates *certificates, const char *name) {
    static char paths[PATHS][PATH_BYTES];
    static unsigned next;
    char *path = paths[next++ % PATHS];
    snprintf(path, PATH_BYTES, "%s/%s", certificates->directory, name);
    return path;
}

static const char *file(const struct certificates *certificates, const char *name, const char *end) {
    char text[64];
    snprintf(text, sizeof text, "%s.%s", name, end);
    return certificates_file(certificates, text);
}

static void openssl(const char *const arguments[]) {
    struct command command;
    command_run(&command, arguments, NULL, OPENSSL_MS);
    cr_assert_eq(command.code, 0, "openssl %s: %s", arguments[1], command.err);
    command_finish(&command);
}

void certificates_add_ca(const struct certificates *certificates, const char *name) {
    char subject[64];
    snprintf(subject, sizeof subject, "/CN=%s", name);
    openssl((const char *const[]){"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                  "-noenc", "-days", "3650", "-subj", subject, "-keyout",
                                  file(certificates, name, "key"), "-out", file(certificates, name, "pem"), NULL});
}

void certificates_add(const struct certificates *certificates, const char *name, const char *ca, const char *subject,
                      const char *san) {
    char extension[128];
    snprintf(extension, sizeof extension, "subjectAltName=%s", san ? san : "");
    openssl((const char *const[]){"openssl",
                                  "req",
                                  "-x509",
                                  "-newkey",
                                  "ec",
                                  "-pkeyopt",
                                  "ec_paramgen_curve:P-256",
                                  "-noenc",
                                  "-days",
                                  "365",
                                  "-CA",
                                  file(certificates, ca, "pem"),
                                  "-CAkey",
                                  file(certificates, ca, "key"),
                                  "-subj",
                                  subject,
                                  "-addext",
                                  "basicConstraints=CA:FALSE",
                                  "-keyout",
                                  file(certificates, name, "key"),
                                  "-out",
                                  file(certificates, name, "pem"),
                                  san ? "-addext" : NULL,
                                  extension,
                                  NULL});
}

static void write_text(const char *path, const char *text) {
    FILE *stream = fopen(path, "we");
    cr_assert(stream && fputs(text, stream) >= 0 && !fclose(stream), "cannot write %s", path);
}

/* `openssl req` dates from now on; `openssl ca` takes any dates, and wants a folder of its own for that. */
void certificates_add_expired(const struct certificates *certificates, const char *name, const char *ca,
                              const char *subject, const char *san) {
    char text[1024];
    snprintf(text, sizeof text,
             "[ca]\ndefault_ca = one\n[one]\ndatabase = %s\nnew_certs_dir = %s\nserial = %s\ndefault_md = sha256\n"
             "policy = any\ncopy_extensions = copy\nunique_subject = no\n[any]\ncommonName = supplied\n",
             certificates_file(certificates, "index"), certificates->directory,
             certificates_file(certificates, "serial"));
    write_text(certificates_file(certificates, "ca.conf"), text);
    write_text(certificates_file(certificates, "index"), "");
    write_text(certificates_file(certificates, "serial"), "1000\n");
    snprintf(text, sizeof text, "subjectAltName=%s", san ? san : "");
    openssl((const char *const[]){"openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                  "-noenc", "-subj", subject, "-keyout", file(certificates, name, "key"), "-out",
                                  file(certificates, name, "csr"), san ? "-addext" : NULL, text, NULL});
    openssl((const char *const[]){"openssl", "ca", "-batch", "-notext", "-config",
                                  certificates_file(certificates, "ca.conf"), "-cert", file(certificates, ca, "pem"),
                                  "-keyfile", file(certificates, ca, "key"), "-in", file(certificates, name, "csr"),
                                  "-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-out",
                                  file(certificates, name, "pem"), NULL});
}

void certificates_replace(const struct certificates *certificates, const char *from, const char *to) {
    for (int i = 0; i < 2; i++) {
        const char *end = i ? "key" : "pem";
        cr_assert(!rename(file(certificates, from, end), file(certificates, to, end)));
    }
}

void certificates_make(struct certificates *certificates) {
    daemon_directory_make(certificates->directory);
    certificates_add_ca(certificates, "ca");
    certificates_add(certificates, "server", "ca", "/CN=localhost", "DNS:localhost,IP:127.0.0.1");
    certificates_add(certificates, "alice", "ca", "/CN=alice", NULL);
}

void certificates_remove(struct certificates *certificates) {
    daemon_directory_remove(certificates->directory);
    certificates->directory[0] = 0;
}

static void set(const char *variable, const char *value) {
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}

void certificates_use(const struct certificates *certificates, const char *ca, const char *client) {
    set("TENSORD_CA_FILE", ca ? file(certificates, ca, "pem") : NULL);
    set("TENSORD_CERT_FILE", client ? file(certificates, client, "pem") : NULL);
    set("TENSORD_KEY_FILE", client ? file(certificates, client, "key") : NULL);
}

void certificates_start(const struct certificates *certificates, struct daemon *daemon, const char *devices,
                        const char *const more[]) {
    const char *flags[ARGUMENTS] = {"--tls-certificate", file(certificates, "server", "pem"), "--tls-key",
                                    file(certificates, "server", "key")};
    for (size_t i = 0; more && more[i]; i++)
        flags[4 + i] = more[i];
    daemon_start(daemon, &(struct daemon_options){.devices = devices, .tcp = "tls://127.0.0.1:0", .flags = flags});
}
