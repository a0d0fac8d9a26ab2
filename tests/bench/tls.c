/* Large transfers over TLS, against what AES-GCM and a raw copy over TCP leave. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"

enum { TLS_RECORD = 16 << 10 };

/* Bytes per second of `openssl speed`, on the cores that this process has; 0: it could not be run. */
static double aes_rate(bool decrypt) {
    char command[160], line[512];
    double kilobytes = 0;
    /* The suite that is negotiated, TLS_AES_128_GCM_SHA256, in the records that are sent. */
    snprintf(command, sizeof command, "openssl speed -elapsed -seconds %d -bytes %d %s -evp aes-128-gcm 2>/dev/null",
             bench_quick ? 1 : 3, TLS_RECORD, decrypt ? "-decrypt" : "");
    FILE *stream = popen(command, "r");
    while (stream && fgets(line, sizeof line, stream))
        if (strncmp(line, "AES-128-GCM", 11) == 0)
            kilobytes = atof(line + 11);
    if (stream)
        pclose(stream);
    return kilobytes * 1e3;
}

bool bench_certificate(const char *path) {
    char command[768];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2 -subj /CN=localhost "
             "-addext subjectAltName=IP:127.0.0.1 -keyout %s.key -out %s.pem 2>/dev/null && "
             "umask 077 && cat %s.key %s.pem >%s && rm %s.key %s.pem",
             path, path, path, path, path, path, path);
    return system(command) == 0;
}

/* The daemon at work, and its rows. On one core both ends' work adds up: each byte is encrypted once, decrypted once, and
 * copied through the socket. On two, one end encrypts while the other one decrypts, and the slower of the two counts. */
static void tls_rows(const struct bench_placement *placement, const struct bench_daemon *daemon, double encrypt,
                     double decrypt) {
    const size_t bytes = bench_quick ? 4 << 20 : 64 << 20;
    const char *const kinds[] = {"upload", "fetch"};
    char *data = malloc(bytes), name[96];
    double rates[2], slower = encrypt < decrypt ? encrypt : decrypt;
    memset(data, 2, bytes);
    double raw = bench_raw_rate(true, data, bytes);
    double aes = placement->cores == 1 ? 1 / (1 / encrypt + 1 / decrypt) : slower;
    double limit = 1 / (1 / aes + 1 / raw);
    bench_bulk_rates(daemon->tls, bytes, &rates[0], &rates[1]);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s of 64 MiB, TLS (%s)", kinds[i], placement->name);
        bench_row(name, rates[i] / 1e9, "GB/s", limit / 1e9, rates[i] / limit, BENCH_HIGHER, 0.8);
        bench_note("AES-128-GCM %.2f GB/s, decrypting %.2f, TCP %.2f; to AES alone %.2f", encrypt / 1e9, decrypt / 1e9,
                   raw / 1e9, rates[i] / aes);
    }
    free(data);
}

void bench_tls(const struct bench_placement *placement) {
    char path[64];
    double encrypt = aes_rate(false), decrypt = aes_rate(true);
    struct bench_daemon daemon;
    snprintf(path, sizeof path, "/tmp/tensord-bench-%d.pem", (int)getpid());
    if (encrypt <= 0 || decrypt <= 0 || !bench_certificate(path)) {
        bench_not_run("transfers of 64 MiB, TLS", "GB/s", BENCH_HIGHER, 0.8, "openssl cannot be run");
        return;
    }
    bench_daemon_certificate = path;
    setenv("TENSORD_CA_FILE", path, 1);
    bench_daemon_start(&daemon);
    bench_daemon_certificate = NULL;
    tls_rows(placement, &daemon, encrypt, decrypt);
    bench_daemon_stop(&daemon);
    unlink(path);
}
