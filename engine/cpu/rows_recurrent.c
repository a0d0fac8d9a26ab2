/* Cells of recurrent layers, for units that lie one after another. */
#include "engine/cpu/rows.h"
#include "engine/device/recurrent_formula.h"

/* The numbers of each gate lie `step` elements behind those of the one before. */
#define RECURRENT(name, T)                                                                                             \
    static void lstm_##name(int64_t n, void *kept, int64_t step, const void *c_before, void *c_after, void *h_after) { \
        T *k = kept, *c = c_after, *h = h_after;                                                                       \
        const T *before = c_before;                                                                                    \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T gates[4] = {k[i], k[step + i], k[2 * step + i], k[3 * step + i]};                                        \
            recurrent_lstm_##name(gates, before[i], &c[i], &h[i]);                                                     \
            k[i] = gates[0];                                                                                           \
            k[step + i] = gates[1];                                                                                    \
            k[2 * step + i] = gates[2];                                                                                \
            k[3 * step + i] = gates[3];                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void gru_##name(int64_t n, void *kept, int64_t step, const void *h_before, void *h_after) {                 \
        T *k = kept, *h = h_after;                                                                                     \
        const T *before = h_before;                                                                                    \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T gates[4] = {k[i], k[step + i], k[2 * step + i], k[3 * step + i]};                                        \
            recurrent_gru_##name(gates, before[i], &h[i]);                                                             \
            k[i] = gates[0];                                                                                           \
            k[step + i] = gates[1];                                                                                    \
            k[2 * step + i] = gates[2];                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void lstm_back_##name(int64_t n, const void *kept, int64_t step, const void *c_before, const void *c_after, \
                                 const void *by_h, void *by_c, void *slopes) {                                         \
        const T *k = kept, *before = c_before, *c = c_after, *dh = by_h;                                               \
        T *dc = by_c, *out = slopes;                                                                                   \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T gates[4] = {k[i], k[step + i], k[2 * step + i], k[3 * step + i]};                                  \
            T s[4];                                                                                                    \
            recurrent_lstm_back_##name(gates, before[i], c[i], dh[i], &dc[i], s);                                      \
            out[i] = s[0];                                                                                             \
            out[step + i] = s[1];                                                                                      \
            out[2 * step + i] = s[2];                                                                                  \
            out[3 * step + i] = s[3];                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void gru_back_##name(int64_t n, const void *kept, int64_t step, const void *h_before, void *by_h,           \
                                void *slopes) {                                                                        \
        const T *k = kept, *before = h_before;                                                                         \
        T *dh = by_h, *out = slopes;                                                                                   \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const T gates[4] = {k[i], k[step + i], k[2 * step + i], k[3 * step + i]};                                  \
            T s[4];                                                                                                    \
            recurrent_gru_back_##name(gates, before[i], &dh[i], s);                                                    \
            out[i] = s[0];                                                                                             \
            out[step + i] = s[1];                                                                                      \
            out[2 * step + i] = s[2];                                                                                  \
            out[3 * step + i] = s[3];                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void add_##name(int64_t n, void *to, const void *from) {                                                    \
        T *x = to;                                                                                                     \
        const T *y = from;                                                                                             \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            x[i] += y[i];                                                                                              \
        }                                                                                                              \
    }                                                                                                                  \
    static void collect_##name(int64_t n, double *sums, const void *from) {                                            \
        const T *x = from;                                                                                             \
        CPU_LOOP                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            sums[i] += (double)x[i];                                                                                   \
        }                                                                                                              \
    }
RECURRENT(f32, float)
RECURRENT(f64, double)

const struct cpu_recurrent CPU_NAME(recurrent)[2] = {
    {lstm_f32, gru_f32, lstm_back_f32, gru_back_f32, add_f32, collect_f32},
    {lstm_f64, gru_f64, lstm_back_f64, gru_back_f64, add_f64, collect_f64},
};
