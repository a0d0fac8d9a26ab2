/* Two things, one after the other and again, so that clocks and temperature are the same for both. */
#include "tests/bench/cuda/cuda.h"

enum { ROUNDS = 5, COUNT_MAX = 50000 };

/* Until it has run for a while, and how often it runs in the time of one measurement. */
static long side_warm(const struct cuda *cuda, const struct cuda_side *side) {
    const double warm = cuda->tiny ? 0.001 : 0.3, measured = cuda->tiny ? 0.001 : 0.1;
    long count = 1;
    side->run(side->user, count); /* what is loaded with the first one says nothing of the others */
    double begin = bench_now(), seconds = side->run(side->user, count);
    while (bench_now() - begin < warm) {
        double one = seconds / (double)count;
        count = one * 5000 < warm ? count * 4 : (long)(warm / 4 / one) + 1;
        if (count > COUNT_MAX)
            count = COUNT_MAX;
        seconds = side->run(side->user, count);
    }
    double wanted = measured * (double)count / seconds;
    return wanted < 3 ? 3 : wanted > COUNT_MAX ? COUNT_MAX : (long)wanted;
}

void cuda_compare(const struct cuda *cuda, struct cuda_side *ours, struct cuda_side *raw) {
    double ours_seconds[ROUNDS], raw_seconds[ROUNDS];
    long ours_count = side_warm(cuda, ours), raw_count = side_warm(cuda, raw);
    for (int i = 0; i < ROUNDS; i++) {
        raw_seconds[i] = raw->run(raw->user, raw_count) / (double)raw_count;
        ours_seconds[i] = ours->run(ours->user, ours_count) / (double)ours_count;
    }
    ours->seconds = bench_median(ours_seconds, ROUNDS);
    raw->seconds = bench_median(raw_seconds, ROUNDS);
}

static double raw_count(const struct raw *raw, enum raw_kind kind, long count) {
    return raw_ask(raw, &(struct raw_request){.kind = kind, .count = count}).seconds;
}

double cuda_raw_copies(void *user, long count) {
    return raw_count(user, RAW_COPY, count);
}

double cuda_raw_sums(void *user, long count) {
    return raw_count(user, RAW_SUM, count);
}

double cuda_raw_products(void *user, long count) {
    return raw_count(user, RAW_PRODUCT, count);
}

double cuda_raw_launches(void *user, long count) {
    return raw_count(user, RAW_LAUNCHES, count);
}
