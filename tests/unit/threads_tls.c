/* One TLS connection used by four threads at once, two at each end: one reads while the other writes. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/tls_pair.h"

enum { BYTES = 24 << 20, PIECE = 200000, WAIT_MS = 60000 };

static uint8_t value(size_t at, unsigned seed) {
    return (uint8_t)((at * 131 + (at >> 11) + seed) & 0xff);
}

struct way {
    struct transport *transport;
    unsigned seed;
    bool writes;
    const char *failure;
};

static bool wait_for(struct way *way, short events) {
    struct pollfd entry = {.fd = way->transport->fd, .events = events};
    if (poll(&entry, 1, WAIT_MS) > 0)
        return true;
    way->failure = "nothing moves";
    return false;
}

static void *write_all(struct way *way) {
    uint8_t *piece = malloc(PIECE);
    for (size_t at = 0; at < BYTES;) {
        size_t n = PIECE < BYTES - at ? PIECE : BYTES - at, done = 0;
        for (size_t i = 0; i < n; i++)
            piece[i] = value(at + i, way->seed);
        while (done < n) {
            struct iovec part = {piece + done, n - done};
            ssize_t taken = transport_write(way->transport, &part, 1);
            if (taken < 0 && errno != EAGAIN)
                way->failure = "write";
            if ((taken < 0 && errno != EAGAIN) || (taken < 0 && !wait_for(way, POLLOUT)))
                goto out;
            done += taken > 0 ? (size_t)taken : 0;
        }
        at += n;
    }
    while (transport_flush(way->transport) == EAGAIN && wait_for(way, POLLOUT))
        ;
out:
    free(piece);
    return NULL;
}

static void *read_all(struct way *way) {
    uint8_t *piece = malloc(PIECE);
    for (size_t at = 0; at < BYTES && !way->failure;) {
        ssize_t got = transport_read(way->transport, piece, PIECE < BYTES - at ? PIECE : BYTES - at);
        if (got < 0 && errno == EAGAIN) {
            wait_for(way, POLLIN);
            continue;
        }
        if (got <= 0)
            way->failure = "read";
        for (ssize_t i = 0; i < got; i++)
            if (piece[i] != value(at + (size_t)i, way->seed))
                way->failure = "other bytes than were sent";
        at += got > 0 ? (size_t)got : 0;
    }
    free(piece);
    return NULL;
}

static void *run(void *argument) {
    struct way *way = argument;
    return way->writes ? write_all(way) : read_all(way);
}

int main(void) {
    struct tls_pair pair;
    pthread_t threads[4];
    int failures = 0;
    tls_pair_make(&pair, 0);
    tls_pair_shake(&pair);
    struct way ways[4] = {
        {.transport = &pair.client, .seed = 1, .writes = true},
        {.transport = &pair.server, .seed = 1},
        {.transport = &pair.server, .seed = 2, .writes = true},
        {.transport = &pair.client, .seed = 2},
    };
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, run, &ways[i]))
            return EXIT_FAILURE;
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        if (ways[i].failure)
            fprintf(stderr, "way %d: %s\n", i, ways[i].failure);
        failures += ways[i].failure != NULL;
    }
    tls_pair_finish(&pair);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
