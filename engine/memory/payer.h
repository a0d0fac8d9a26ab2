/* Who pays for device memory. Its bytes are counted with those of whom it belongs to. Plain data; owner thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct payer {
    uint64_t bytes, peak;
    uint64_t limit;      /* 0: none of its own */
    struct payer *whole; /* its bytes are this one's, too; NULL: nobody's */
};

static inline void payer_charge(struct payer *payer, uint64_t bytes) {
    for (; payer; payer = payer->whole) {
        payer->bytes += bytes;
        if (payer->bytes > payer->peak)
            payer->peak = payer->bytes;
    }
}

static inline void payer_discharge(struct payer *payer, uint64_t bytes) {
    for (; payer; payer = payer->whole)
        payer->bytes -= bytes;
}

/* Whether it may have so much more, by its own limit. */
static inline bool payer_fits(const struct payer *payer, uint64_t bytes) {
    return !payer->limit || (bytes <= payer->limit && payer->bytes <= payer->limit - bytes);
}
