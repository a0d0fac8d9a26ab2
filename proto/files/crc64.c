#include "proto/files/crc64.h"

#include <pthread.h>
#include <string.h>

#define CRC64_POLYNOMIAL UINT64_C(0xc96c5795d7870f42)

/* tables[k][b]: the checksum of byte b with k zero bytes behind it. So eight bytes take eight look-ups, and no loop over bits. */
static uint64_t tables[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void tables_init(void) {
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? CRC64_POLYNOMIAL : 0);
        tables[0][byte] = sum;
    }
    for (unsigned k = 1; k < 8; k++)
        for (unsigned byte = 0; byte < 256; byte++)
            tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 0xff];
}

uint64_t crc64(uint64_t before, const void *data, size_t bytes) {
    const uint8_t *at = data;
    uint64_t sum = ~before, word;
    pthread_once(&once, tables_init);
    for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word); /* little-endian: proto/ops/op.h */
        sum ^= word;
        uint64_t next = 0;
        for (unsigned k = 0; k < 8; k++)
            next ^= tables[7 - k][sum >> 8 * k & 0xff];
        sum = next;
    }
    for (; bytes; bytes--)
        sum = sum >> 8 ^ tables[0][(sum ^ *at++) & 0xff];
    return ~sum;
}
