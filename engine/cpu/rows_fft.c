/* Fourier transforms of several lines at once: the lines' elements k lie beside each other, real and imaginary parts apart, so that each step is
 * a loop over lines. */
#include "engine/cpu/fft.h"
#include "engine/cpu/lanes.h"

enum { RESYNC = 16 }; /* steps of a product of roots, until it is computed anew */

/* ---- passes: engine/device/fft.h says what they do ---- */

/* A root of unity of the table: w is e^(-2πi·k/n) for each k, real and imaginary part. */
#define PASS_HEAD(T, radix)                                                                                            \
    for (int64_t p = 0; p < m; p++) {                                                                                  \
        const T *ar = xr + s * p, *ai = xi + s * p;                                                                    \
        T *zr = yr + s * (radix)*p, *zi = yi + s * (radix)*p;
#define ROOT(T, j) const T w##j##r = w[2 * (j)*p * step], w##j##i = w[2 * (j)*p * step + 1]
#define ELEMENT(T, k) const T r##k = ar[q + (k)*m * s], i##k = ai[q + (k)*m * s]
#define RESULT(j, re, im)                                                                                              \
    {                                                                                                                  \
        zr[q + (j)*s] = (re)*w##j##r - (im)*w##j##i;                                                                   \
        zi[q + (j)*s] = (re)*w##j##i + (im)*w##j##r;                                                                   \
    }
#define PLAIN(re, im)                                                                                                  \
    {                                                                                                                  \
        zr[q] = re;                                                                                                    \
        zi[q] = im;                                                                                                    \
    }
#define PASS_ARGUMENTS(T)                                                                                              \
    int64_t m, int64_t s, int64_t step, const T *restrict w, const T *restrict xr, const T *restrict xi,               \
        T *restrict yr, T *restrict yi

#define PASSES(T)                                                                                                      \
    static void pass_2_##T(PASS_ARGUMENTS(T)) {                                                                        \
        PASS_HEAD(T, 2)                                                                                                \
        ROOT(T, 1);                                                                                                    \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < s; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            PLAIN(r0 + r1, i0 + i1)                                                                                    \
            RESULT(1, r0 - r1, i0 - i1)                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    static void pass_3_##T(PASS_ARGUMENTS(T)) {                                                                        \
        const T sine = (T)0.86602540378443864676;                                                                      \
        PASS_HEAD(T, 3)                                                                                                \
        ROOT(T, 1);                                                                                                    \
        ROOT(T, 2);                                                                                                    \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < s; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            ELEMENT(T, 2);                                                                                             \
            const T sr = r1 + r2, si = i1 + i2, dr = (r1 - r2) * sine, di = (i1 - i2) * sine;                          \
            const T hr = r0 - sr * (T)0.5, hi = i0 - si * (T)0.5;                                                      \
            PLAIN(r0 + sr, i0 + si)                                                                                    \
            RESULT(1, hr + di, hi - dr)                                                                                \
            RESULT(2, hr - di, hi + dr)                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    static void pass_4_##T(PASS_ARGUMENTS(T)) {                                                                        \
        PASS_HEAD(T, 4)                                                                                                \
        ROOT(T, 1);                                                                                                    \
        ROOT(T, 2);                                                                                                    \
        ROOT(T, 3);                                                                                                    \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < s; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            ELEMENT(T, 2);                                                                                             \
            ELEMENT(T, 3);                                                                                             \
            const T ar2 = r0 + r2, ai2 = i0 + i2, br = r1 + r3, bi = i1 + i3;                                          \
            const T cr = r0 - r2, ci = i0 - i2, dr = r1 - r3, di = i1 - i3;                                            \
            PLAIN(ar2 + br, ai2 + bi)                                                                                  \
            RESULT(1, cr + di, ci - dr)                                                                                \
            RESULT(2, ar2 - br, ai2 - bi)                                                                              \
            RESULT(3, cr - di, ci + dr)                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    static void pass_5_##T(PASS_ARGUMENTS(T)) {                                                                        \
        const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410;                                       \
        const T s1 = (T)0.95105651629515357212, s2 = (T)0.58778525229247312917;                                        \
        PASS_HEAD(T, 5)                                                                                                \
        ROOT(T, 1);                                                                                                    \
        ROOT(T, 2);                                                                                                    \
        ROOT(T, 3);                                                                                                    \
        ROOT(T, 4);                                                                                                    \
        CPU_LOOP                                                                                                       \
        for (int64_t q = 0; q < s; q++) {                                                                              \
            ELEMENT(T, 0);                                                                                             \
            ELEMENT(T, 1);                                                                                             \
            ELEMENT(T, 2);                                                                                             \
            ELEMENT(T, 3);                                                                                             \
            ELEMENT(T, 4);                                                                                             \
            const T ar1 = r1 + r4, ai1 = i1 + i4, br1 = r1 - r4, bi1 = i1 - i4;                                        \
            const T ar2 = r2 + r3, ai2 = i2 + i3, br2 = r2 - r3, bi2 = i2 - i3;                                        \
            const T cr = r0 + c1 * ar1 + c2 * ar2, ci = i0 + c1 * ai1 + c2 * ai2;                                      \
            const T dr = r0 + c2 * ar1 + c1 * ar2, di = i0 + c2 * ai1 + c1 * ai2;                                      \
            const T er = s1 * br1 + s2 * br2, ei = s1 * bi1 + s2 * bi2;                                                \
            const T fr = s2 * br1 - s1 * br2, fi = s2 * bi1 - s1 * bi2;                                                \
            PLAIN(r0 + ar1 + ar2, i0 + ai1 + ai2)                                                                      \
            RESULT(1, cr + ei, ci - er)                                                                                \
            RESULT(2, dr + fi, di - fr)                                                                                \
            RESULT(3, dr - fi, di + fr)                                                                                \
            RESULT(4, cr - ei, ci + er)                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    }                                                                                                                  \
    /* Any other factor: `turn` elements of the table are an r-th of a turn. */                                        \
    static void pass_any_##T(int64_t r, PASS_ARGUMENTS(T)) {                                                           \
        const int64_t turn = m * step;                                                                                 \
        PASS_HEAD(T, r)                                                                                                \
        for (int64_t j = 0; j < r; j++) {                                                                              \
            T *ur = zr + j * s, *ui = zi + j * s;                                                                      \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < s; q++) {                                                                          \
                ur[q] = ar[q];                                                                                         \
                ui[q] = ai[q];                                                                                         \
            }                                                                                                          \
            for (int64_t k = 1; k < r; k++) {                                                                          \
                const T cr = w[2 * (j * k % r * turn)], ci = w[2 * (j * k % r * turn) + 1];                            \
                const T *br = ar + k * m * s, *bi = ai + k * m * s;                                                    \
                CPU_LOOP                                                                                               \
                for (int64_t q = 0; q < s; q++) {                                                                      \
                    ur[q] += br[q] * cr - bi[q] * ci;                                                                  \
                    ui[q] += br[q] * ci + bi[q] * cr;                                                                  \
                }                                                                                                      \
            }                                                                                                          \
            const T tr = w[2 * j * p * step], ti = w[2 * j * p * step + 1];                                            \
            CPU_LOOP                                                                                                   \
            for (int64_t q = 0; q < s; q++) {                                                                          \
                const T re = ur[q], im = ui[q];                                                                        \
                ur[q] = re * tr - im * ti;                                                                             \
                ui[q] = re * ti + im * tr;                                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    }
PASSES(float)
PASSES(double)

/* `block` has room for the numbers twice; the result is in the half that is returned. */
#define TRANSFORM(T)                                                                                                   \
    static bool transform_##T(const struct fft_length *length, const void *roots, int64_t lanes,                       \
                              struct cpu_fft_block *block) {                                                           \
        int64_t left = length->n, s = lanes, step = 1;                                                                 \
        bool second = false;                                                                                           \
        for (int i = 0; i < length->radices; i++) {                                                                    \
            const int radix = length->radix[i];                                                                        \
            const int64_t m = left / radix;                                                                            \
            const T *xr = block->re[second], *xi = block->im[second];                                                  \
            T *yr = block->re[!second], *yi = block->im[!second];                                                      \
            switch (radix) {                                                                                           \
            case 2:                                                                                                    \
                pass_2_##T(m, s, step, roots, xr, xi, yr, yi);                                                         \
                break;                                                                                                 \
            case 3:                                                                                                    \
                pass_3_##T(m, s, step, roots, xr, xi, yr, yi);                                                         \
                break;                                                                                                 \
            case 4:                                                                                                    \
                pass_4_##T(m, s, step, roots, xr, xi, yr, yi);                                                         \
                break;                                                                                                 \
            case 5:                                                                                                    \
                pass_5_##T(m, s, step, roots, xr, xi, yr, yi);                                                         \
                break;                                                                                                 \
            default:                                                                                                   \
                pass_any_##T(radix, m, s, step, roots, xr, xi, yr, yi);                                                \
            }                                                                                                          \
            left = m;                                                                                                  \
            s *= radix;                                                                                                \
            step *= radix;                                                                                             \
            second = !second;                                                                                          \
        }                                                                                                              \
        return second;                                                                                                 \
    }
TRANSFORM(float)
TRANSFORM(double)

/* ---- between memory and a block ---- */

/* How many of the lanes have element k. Indices grow with the lanes. */
static inline int64_t lanes_within(const struct cpu_fft_lines *lines, int64_t k) {
    int64_t n = lines->lanes;
    while (n > 0 && lines->first[n - 1] + k * lines->step >= lines->limit) {
        n--;
    }
    return n;
}

/* Lanes that lie apart are taken some elements at a time, so that a cache line is read or written once. Where elements lie together, as
 * many lanes as a vector has numbers are turned over in registers. */
enum { TILE = 8, TURN_float = 4, TURN_double = 2, AHEAD = 256 /* bytes */ };

typedef float vector_float __attribute__((vector_size(16), aligned(4), may_alias));
typedef double vector_double __attribute__((vector_size(16), aligned(8), may_alias));

/* Vector j has what was number j of each vector. */
static inline void turn_float(vector_float a[TURN_float]) {
    const vector_float b0 = __builtin_shufflevector(a[0], a[2], 0, 4, 1, 5),
                       b1 = __builtin_shufflevector(a[0], a[2], 2, 6, 3, 7);
    const vector_float b2 = __builtin_shufflevector(a[1], a[3], 0, 4, 1, 5),
                       b3 = __builtin_shufflevector(a[1], a[3], 2, 6, 3, 7);
    a[0] = __builtin_shufflevector(b0, b2, 0, 4, 1, 5);
    a[1] = __builtin_shufflevector(b0, b2, 2, 6, 3, 7);
    a[2] = __builtin_shufflevector(b1, b3, 0, 4, 1, 5);
    a[3] = __builtin_shufflevector(b1, b3, 2, 6, 3, 7);
}

static inline void turn_double(vector_double a[TURN_double]) {
    const vector_double first = a[0];
    a[0] = __builtin_shufflevector(first, a[1], 0, 2);
    a[1] = __builtin_shufflevector(first, a[1], 1, 3);
}

/* Whether elements k to k + TILE - 1 of the lanes from v on can be turned over: all are there, and follow one another. */
static inline bool tile_turns(const struct cpu_fft_lines *lines, int64_t v, int64_t width, int64_t k) {
    return lines->stride == 1 && lines->step == 1 && v + width <= lines->lanes &&
           lines->first[v + width - 1] + k + TILE <= lines->limit;
}

#define LOAD(T)                                                                                                        \
    /* Elements k to end - 1 of a lane that lies by itself. */                                                         \
    static inline void load_lane_##T(const struct cpu_fft_lines *lines, enum fft_form form, int64_t v, int64_t k,      \
                                     int64_t end, T *re, T *im) {                                                      \
        const T *x = (const T *)(const void *)lines->base[v];                                                          \
        const int64_t s = lines->lanes;                                                                                \
        int64_t own = lines->first[v] + k * lines->step;                                                               \
        for (; k < end; k++, own += lines->step) {                                                                     \
            const bool turned = form == FFT_HERMITIAN && 2 * own > lines->n;                                           \
            const int64_t from = turned ? lines->n - own : own;                                                        \
            T a = 0, b = 0;                                                                                            \
            if (from >= turned && from < lines->limit) { /* element n is beyond the line */                            \
                a = form == FFT_REAL ? x[from * lines->stride] : x[2 * from * lines->stride];                          \
                b = form == FFT_REAL ? 0 : x[2 * from * lines->stride + 1];                                            \
            }                                                                                                          \
            if (form == FFT_HERMITIAN) {                                                                               \
                b = from == 0 || 2 * from == lines->n ? 0 : turned ? -b : b;                                           \
            }                                                                                                          \
            re[k * s + v] = a;                                                                                         \
            im[k * s + v] = b;                                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void load_tile_##T(const struct cpu_fft_lines *lines, bool whole, int64_t v, int64_t k, T *re,       \
                                     T *im) {                                                                          \
        const int64_t s = lines->lanes, parts = whole ? 2 : 1;                                                         \
        const T *x[TURN_##T];                                                                                          \
        for (int i = 0; i < TURN_##T; i++) {                                                                           \
            x[i] = (const T *)(const void *)lines->base[v + i] + parts * (lines->first[v + i] + k);                    \
            __builtin_prefetch(x[i] + AHEAD / sizeof(T));                                                              \
        }                                                                                                              \
        re += k * s + v;                                                                                               \
        im += k * s + v;                                                                                               \
        for (int64_t tile = 0; tile < TILE * parts; tile += TURN_##T) {                                                \
            vector_##T a[TURN_##T];                                                                                    \
            for (int i = 0; i < TURN_##T; i++) {                                                                       \
                a[i] = *(const vector_##T *)(const void *)(x[i] + tile);                                               \
            }                                                                                                          \
            turn_##T(a);                                                                                               \
            for (int j = 0; j < TURN_##T; j++) {                                                                       \
                const int64_t to = (tile + j) / parts * s;                                                             \
                *(vector_##T *)(void *)((whole && j % 2 ? im : re) + to) = a[j];                                       \
                if (!whole) {                                                                                          \
                    *(vector_##T *)(void *)(im + to) = (vector_##T){0};                                                \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void load_apart_##T(const struct cpu_fft_lines *lines, enum fft_form form, int64_t n, T *re,         \
                                      T *im) {                                                                         \
        for (int64_t k = 0; k < n; k += TILE) {                                                                        \
            const int64_t end = n - k < TILE ? n : k + TILE;                                                           \
            for (int64_t v = 0, next; v < lines->lanes; v = next) {                                                    \
                next = v + TURN_##T < lines->lanes ? v + TURN_##T : lines->lanes;                                      \
                bool turns = end == k + TILE && tile_turns(lines, v, TURN_##T, k);                                     \
                if (turns && form == FFT_HERMITIAN) { /* elements between 0 and the middle are as they are */          \
                    turns = lines->first[v] + k > 0 && 2 * (lines->first[next - 1] + end - 1) < lines->n;              \
                }                                                                                                      \
                if (turns) {                                                                                           \
                    load_tile_##T(lines, form != FFT_REAL, v, k, re, im);                                              \
                    continue;                                                                                          \
                }                                                                                                      \
                for (int64_t u = v; u < next; u++) {                                                                   \
                    load_lane_##T(lines, form, u, k, end, re, im);                                                     \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void load_##T(const struct cpu_fft_lines *lines, enum fft_form form, bool swap, int64_t n, void *real,      \
                         void *imaginary) {                                                                            \
        const int64_t s = lines->lanes;                                                                                \
        const T *x = (const T *)(const void *)lines->base[0];                                                          \
        T *re = swap ? imaginary : real, *im = swap ? real : imaginary;                                                \
        if (form == FFT_HERMITIAN) {                                                                                   \
            load_apart_##T(lines, FFT_HERMITIAN, n, re, im);                                                           \
        } else if (!lines->beside) {                                                                                   \
            form == FFT_REAL ? load_apart_##T(lines, FFT_REAL, n, re, im)                                              \
                             : load_apart_##T(lines, FFT_COMPLEX, n, re, im);                                          \
        } else {                                                                                                       \
            for (int64_t k = 0; k < n; k++, re += s, im += s) {                                                        \
                const int64_t within = lanes_within(lines, k);                                                         \
                const T *e = x + (lines->first[0] + k * lines->step) * lines->stride * (form == FFT_REAL ? 1 : 2);     \
                CPU_LOOP                                                                                               \
                for (int64_t v = 0; v < within; v++) {                                                                 \
                    re[v] = form == FFT_REAL ? e[v] : e[2 * v];                                                        \
                    im[v] = form == FFT_REAL ? 0 : e[2 * v + 1];                                                       \
                }                                                                                                      \
                for (int64_t v = within; v < s; v++) {                                                                 \
                    re[v] = im[v] = 0;                                                                                 \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
LOAD(float)
LOAD(double)

#define STORE(T)                                                                                                       \
    static inline void store_tile_##T(const struct cpu_fft_lines *lines, bool whole, int64_t v, int64_t k, T factor,   \
                                      const T *re, const T *im) {                                                      \
        const int64_t s = lines->lanes, parts = whole ? 2 : 1;                                                         \
        T *x[TURN_##T];                                                                                                \
        for (int i = 0; i < TURN_##T; i++) {                                                                           \
            x[i] = (T *)(void *)lines->base[v + i] + parts * (lines->first[v + i] + k);                                \
        }                                                                                                              \
        re += k * s + v;                                                                                               \
        im += k * s + v;                                                                                               \
        for (int64_t tile = 0; tile < TILE * parts; tile += TURN_##T) {                                                \
            vector_##T a[TURN_##T];                                                                                    \
            for (int j = 0; j < TURN_##T; j++) {                                                                       \
                const T *from = (whole && j % 2 ? im : re) + (tile + j) / parts * s;                                   \
                a[j] = *(const vector_##T *)(const void *)from * factor;                                               \
            }                                                                                                          \
            turn_##T(a);                                                                                               \
            for (int i = 0; i < TURN_##T; i++) {                                                                       \
                *(vector_##T *)(void *)(x[i] + tile) = a[i];                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void store_lane_##T(const struct cpu_fft_lines *lines, bool whole, int64_t v, int64_t k,             \
                                      int64_t end, T factor, const T *re, const T *im) {                               \
        const int64_t s = lines->lanes;                                                                                \
        T *x = (T *)(void *)lines->base[v];                                                                            \
        int64_t own = lines->first[v] + k * lines->step;                                                               \
        for (; k < end && own < lines->limit; k++, own += lines->step) {                                               \
            if (whole) {                                                                                               \
                x[2 * own * lines->stride] = re[k * s + v] * factor;                                                   \
                x[2 * own * lines->stride + 1] = im[k * s + v] * factor;                                               \
            } else {                                                                                                   \
                x[own * lines->stride] = re[k * s + v] * factor;                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static inline void store_apart_##T(const struct cpu_fft_lines *lines, bool whole, int64_t n, T factor,             \
                                       const T *re, const T *im) {                                                     \
        for (int64_t k = 0; k < n; k += TILE) {                                                                        \
            const int64_t end = n - k < TILE ? n : k + TILE;                                                           \
            for (int64_t v = 0, next; v < lines->lanes; v = next) {                                                    \
                next = v + TURN_##T < lines->lanes ? v + TURN_##T : lines->lanes;                                      \
                if (end == k + TILE && tile_turns(lines, v, TURN_##T, k)) {                                            \
                    store_tile_##T(lines, whole, v, k, factor, re, im);                                                \
                    continue;                                                                                          \
                }                                                                                                      \
                for (int64_t u = v; u < next; u++) {                                                                   \
                    store_lane_##T(lines, whole, u, k, end, factor, re, im);                                           \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    static void store_##T(const struct cpu_fft_lines *lines, enum fft_form form, bool swap, int64_t n, double scale,   \
                          const void *real, const void *imaginary) {                                                   \
        const T *re = swap ? imaginary : real, *im = swap ? real : imaginary, factor = (T)scale;                       \
        T *x = (T *)(void *)lines->base[0];                                                                            \
        if (!lines->beside) {                                                                                          \
            form == FFT_REAL ? store_apart_##T(lines, false, n, factor, re, im)                                        \
                             : store_apart_##T(lines, true, n, factor, re, im);                                        \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t k = 0; k < n; k++, re += lines->lanes, im += lines->lanes) {                                      \
            const int64_t within = lanes_within(lines, k);                                                             \
            T *e = x + (lines->first[0] + k * lines->step) * lines->stride * (form == FFT_REAL ? 1 : 2);               \
            if (form == FFT_REAL) {                                                                                    \
                CPU_LOOP                                                                                               \
                for (int64_t v = 0; v < within; v++) {                                                                 \
                    e[v] = re[v] * factor;                                                                             \
                }                                                                                                      \
                continue;                                                                                              \
            }                                                                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t v = 0; v < within; v++) {                                                                     \
                e[2 * v] = re[v] * factor;                                                                             \
                e[2 * v + 1] = im[v] * factor;                                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }
STORE(float)
STORE(double)

/* ---- products ---- */

/* Each element by that of its index in a table. */
#define MULTIPLY(T)                                                                                                    \
    static void multiply_##T(const struct cpu_fft_lines *lines, const void *table, int64_t n, void *real,              \
                             void *imaginary) {                                                                        \
        const int64_t s = lines->lanes;                                                                                \
        const T *w = table;                                                                                            \
        T *re = real, *im = imaginary;                                                                                 \
        for (int64_t k = 0; k < n; k++, re += s, im += s) {                                                            \
            const int64_t within = lanes_within(lines, k);                                                             \
            for (int64_t v = 0; v < within; v++) {                                                                     \
                const T *root = w + 2 * (lines->first[v] + k * lines->step);                                           \
                const T a = re[v], b = im[v];                                                                          \
                re[v] = a * root[0] - b * root[1];                                                                     \
                im[v] = a * root[1] + b * root[0];                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }
MULTIPLY(float)
MULTIPLY(double)

/* e^(-2πi·a/(rows · columns)) of two tables of doubles. */
static inline void root_of(const double *high, const double *low, int64_t columns, int64_t a, double *re, double *im) {
    const double *h = high + 2 * (a / columns), *l = low + 2 * (a % columns);
    *re = h[0] * l[0] - h[1] * l[1];
    *im = h[0] * l[1] + h[1] * l[0];
}

/* Element k of a column by e^(-2πi·k·column/(rows · columns)). */
#define TWIDDLE(T)                                                                                                     \
    static void twiddle_##T(const double *high, const double *low, int64_t rows, int64_t columns, int64_t column,      \
                            int64_t s, void *real, void *imaginary) {                                                  \
        double cr[CPU_FFT_LANES], ci[CPU_FFT_LANES], sr[CPU_FFT_LANES], si[CPU_FFT_LANES];                             \
        T *re = real, *im = imaginary;                                                                                 \
        for (int64_t v = 0; v < s; v++) {                                                                              \
            root_of(high, low, columns, column + v, &sr[v], &si[v]);                                                   \
        }                                                                                                              \
        for (int64_t k = 0; k < rows; k++, re += s, im += s) {                                                         \
            if (k % RESYNC == 0) {                                                                                     \
                for (int64_t v = 0; v < s; v++) {                                                                      \
                    root_of(high, low, columns, (column + v) * k, &cr[v], &ci[v]);                                     \
                }                                                                                                      \
            }                                                                                                          \
            CPU_LOOP                                                                                                   \
            for (int64_t v = 0; v < s; v++) {                                                                          \
                const T wr = (T)cr[v], wi = (T)ci[v], a = re[v], b = im[v];                                            \
                const double next = cr[v] * sr[v] - ci[v] * si[v];                                                     \
                re[v] = a * wr - b * wi;                                                                               \
                im[v] = a * wi + b * wr;                                                                               \
                ci[v] = cr[v] * si[v] + ci[v] * sr[v];                                                                 \
                cr[v] = next;                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
TWIDDLE(float)
TWIDDLE(double)

/* ---- real numbers as half as many complex ones: elements 2j and 2j + 1 are the parts of number j ---- */

/* From the transform Z of these h numbers the transform X of the 2h real ones, h + 1 elements: X[k] = E + w^k · O with the transforms of the
 * even and the odd elements, E = (Z[k] + conj(Z[h-k])) / 2 and O = (Z[k] - conj(Z[h-k])) / 2i. */
#define UNFOLD(T)                                                                                                       \
    static void unfold_##T(int64_t h, int64_t s, const void *roots, const void *real, const void *imaginary, void *to,  \
                           void *to_imaginary) {                                                                        \
        const T *w = roots, *zr = real, *zi = imaginary;                                                                \
        T *re = to, *im = to_imaginary;                                                                                 \
        for (int64_t k = 0; k <= h; k++, re += s, im += s) {                                                            \
            const int64_t a = k % h * s, b = (h - k) % h * s;                                                           \
            const T wr = w[2 * k], wi = w[2 * k + 1];                                                                   \
            CPU_LOOP                                                                                                    \
            for (int64_t v = 0; v < s; v++) {                                                                           \
                const T er = (zr[a + v] + zr[b + v]) * (T)0.5, ei = (zi[a + v] - zi[b + v]) * (T)0.5;                   \
                const T ur = (zi[a + v] + zi[b + v]) * (T)0.5, ui = (zr[b + v] - zr[a + v]) * (T)0.5;                   \
                re[v] = er + (ur * wr - ui * wi);                                                                       \
                im[v] = ei + (ur * wi + ui * wr);                                                                       \
            }                                                                                                           \
        }                                                                                                               \
    }                                                                                                                   \
    /* And back, times two: Z = (X[k] + conj(X[h-k])) + i · conj(w^k) · (X[k] - conj(X[h-k])), with parts swapped. */ \
    static void fold_##T(int64_t h, int64_t s, const void *roots, const void *real, const void *imaginary, void *to,    \
                         void *to_imaginary) {                                                                          \
        const T *w = roots, *xr = real, *xi = imaginary;                                                                \
        T *re = to_imaginary, *im = to;                                                                                 \
        for (int64_t k = 0; k < h; k++, re += s, im += s) {                                                             \
            const int64_t a = k * s, b = (h - k) * s;                                                                   \
            const T wr = w[2 * k], wi = -w[2 * k + 1];                                                                  \
            CPU_LOOP                                                                                                    \
            for (int64_t v = 0; v < s; v++) {                                                                           \
                const T dr = xr[a + v] - xr[b + v], di = xi[a + v] + xi[b + v];                                         \
                re[v] = (xr[a + v] + xr[b + v]) - (dr * wi + di * wr);                                                  \
                im[v] = (xi[a + v] - xi[b + v]) + (dr * wr - di * wi);                                                  \
            }                                                                                                           \
        }                                                                                                               \
    }
UNFOLD(float)
UNFOLD(double)

#define FUNCTIONS(T)                                                                                                   \
    { transform_##T, load_##T, store_##T, multiply_##T, twiddle_##T, unfold_##T, fold_##T }
const struct cpu_fft CPU_NAME(fft_f32) = FUNCTIONS(float);
const struct cpu_fft CPU_NAME(fft_f64) = FUNCTIONS(double);
