#include "tests/bench/raw.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/bench/bench.h"

static bool raw_write(int fd, const void *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t sent = send(fd, (const char *)bytes + done, n - done, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        done += (size_t)sent;
    }
    return true;
}

bool bench_raw_send(int fd, unsigned type, uint64_t sequence, const ProtobufCMessage *message) {
    static uint8_t buffer[FRAME_HEADER_BYTES + FRAME_MESSAGE_MAX];
    struct frame_header header = {.type = (uint16_t)type, .sequence = sequence};
    header.message_bytes = (uint32_t)protobuf_c_message_get_packed_size(message);
    frame_header_encode(&header, buffer);
    protobuf_c_message_pack(message, buffer + FRAME_HEADER_BYTES);
    return raw_write(fd, buffer, FRAME_HEADER_BYTES + header.message_bytes);
}

/* -1: nobody listens there. */
static int raw_dial(const char *url) {
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in remote = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool tcp = !strncmp(url, "tcp:", 4);
    if (tcp)
        remote.sin_port = htons((uint16_t)atoi(strrchr(url, ':') + 1));
    else
        snprintf(local.sun_path, sizeof local.sun_path, "%s", url + strlen("unix:"));
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *address = tcp ? (struct sockaddr *)&remote : (struct sockaddr *)&local;
    return fd >= 0 && !connect(fd, address, tcp ? sizeof remote : sizeof local) ? fd : -1;
}

int bench_raw_open(const char *url, uint16_t target) {
    uint8_t preamble[PREAMBLE_BYTES];
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    int fd = raw_dial(url);
    if (fd < 0)
        bench_fail("cannot connect to %s", url);
    preamble_encode(target, preamble);
    hello.version_min = hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "bench";
    if (raw_write(fd, preamble, sizeof preamble) && bench_raw_send(fd, FRAME_HELLO, 1, &hello.base))
        return fd;
    close(fd);
    return -1;
}

static bool raw_drop(int fd, size_t n) {
    uint8_t dropped[4096];
    for (size_t now; n > 0; n -= now) {
        now = n < sizeof dropped ? n : sizeof dropped;
        if (recv(fd, dropped, now, MSG_WAITALL) != (ssize_t)now)
            return false;
    }
    return true;
}

bool bench_raw_receive(int fd, struct frame_header *header, uint8_t *message, size_t room) {
    uint8_t bytes[FRAME_HEADER_BYTES];
    if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes ||
        frame_header_decode(bytes, FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, header, NULL))
        return false;
    size_t kept = header->message_bytes < room ? header->message_bytes : room;
    if (kept && recv(fd, message, kept, MSG_WAITALL) != (ssize_t)kept)
        return false;
    return raw_drop(fd, header->message_bytes - kept + header->payload_bytes);
}
