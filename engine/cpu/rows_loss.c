/* Losses of elements: their sum, in f64, each of them, and their gradients. */
#include "engine/cpu/element_loss.h"
#include "engine/cpu/rows.h"
#include "engine/device/loss_formula.h"

/* The processor's own requests for memory come too late for several arrays that are longer than the caches. So a sum of LOSS_ASKS elements or more,
 * which are part of such arrays, asks for what it reads some bytes ahead, each time for so many elements. */
enum { ASKED = 256, ASKED_AHEAD = 8 << 10, ASKED_LINE = 64 };

/* Asks for as many bytes as there are here, some time ahead. */
static inline void ask(const void *from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += ASKED_LINE) {
        __builtin_prefetch((const char *)from + ASKED_AHEAD + i, 0, 2);
    }
}

/* An input that a way does not have is x, of which its formula does not use it. */
#define LOOP(way, name, T, inputs)                                                                                     \
    static double sum_##way##_##name(int64_t n, const void *const *in, double delta) {                                 \
        const T *x = in[0], *t = in[1], *w = in[inputs > 2 ? 2 : 0], *p = in[inputs > 3 ? 3 : 0], d = (T)delta;        \
        double sum = 0;                                                                                                \
        for (int64_t begin = 0, end; begin < n; begin = end) {                                                         \
            end = n < LOSS_ASKS || n - begin < ASKED ? n : begin + ASKED;                                              \
            for (int k = 0; k < inputs && n >= LOSS_ASKS; k++) {                                                       \
                ask((const T *)in[k] + begin, (end - begin) * (int64_t)sizeof(T));                                     \
            }                                                                                                          \
            CPU_LOOP_SUM(sum)                                                                                          \
            for (int64_t i = begin; i < end; i++) {                                                                    \
                sum += (double)loss_##way##_##name(x[i], t[i], w[i], p[i], d);                                         \
            }                                                                                                          \
        }                                                                                                              \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static void each_##way##_##name(int64_t n, const void *const *in, double delta, void *to) {                        \
        const T *x = in[0], *t = in[1], *w = in[inputs > 2 ? 2 : 0], *p = in[inputs > 3 ? 3 : 0], d = (T)delta;        \
        T *out = to;                                                                                                   \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i] = loss_##way##_##name(x[i], t[i], w[i], p[i], d);                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void back_##way##_##name(int64_t n, const void *const *in, double delta, const void *gradient,              \
                                    double factor, void *to) {                                                         \
        const T *x = in[0], *t = in[1], *w = in[inputs > 2 ? 2 : 0], *p = in[inputs > 3 ? 3 : 0], d = (T)delta;        \
        const T *g = gradient, f = (T)factor;                                                                          \
        T *out = to;                                                                                                   \
        if (!g) {                                                                                                      \
            CPU_LOOP                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                          \
                out[i] = f * loss_##way##_back_##name(x[i], t[i], w[i], p[i], d);                                      \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            out[i] = g[i] * loss_##way##_back_##name(x[i], t[i], w[i], p[i], d);                                       \
        }                                                                                                              \
    }
#define LOOP_f32(way, inputs) LOOP(way, f32, float, inputs)
#define LOOP_f64(way, inputs) LOOP(way, f64, double, inputs)
LOSS_WAYS(LOOP_f32)
LOSS_WAYS(LOOP_f64)

/* [f64][way] */
#define WAY_f32(way, inputs) {sum_##way##_f32, each_##way##_f32, back_##way##_f32},
#define WAY_f64(way, inputs) {sum_##way##_f64, each_##way##_f64, back_##way##_f64},
const struct cpu_loss CPU_NAME(loss)[2 * LOSS_WAY_COUNT] = {LOSS_WAYS(WAY_f32) LOSS_WAYS(WAY_f64)};
