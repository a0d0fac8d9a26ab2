/* Fourier transforms of several axes, and what goes with transforms: compositions of operations. */
#include "client/lib/call.h"
#include "client/lib/tensor.h"

static int64_t extent_of(const td_tensor *x, int axis) {
    return x && axis >= -x->type.rank && axis < x->type.rank ? x->type.shape[axis < 0 ? axis + x->type.rank : axis] : 0;
}

typedef td_tensor *fourier_function(td_tensor *x, int64_t n, int axis, td_fft_norm norm);

/* The axes to transform along, of which there are at least `least`; none: all. -1: refused. */
static int fourier_axes(const td_tensor *x, unsigned opcode, int count, const int64_t *given, int least,
                        int64_t *axes) {
    struct fault fault;
    uint32_t mask;
    if (!call_takes_axes(opcode, count, given))
        return -1;
    int rank = x->type.rank, n = count ? count : rank;
    int code = op_reduced_axes(&(struct op_ints){(unsigned)count, given}, rank, &mask, &fault);
    if (!code && n < least)
        code = fault_set(&fault, STATUS_INVALID_ARGUMENT, "one axis at least is needed");
    if (code) {
        call_refuse(opcode, (enum status)code, "%s", fault.message);
        return -1;
    }
    for (int i = 0; i < n; i++)
        axes[i] = count ? given[i] : i;
    return n;
}

/* Along axes first … end - 1 of the list, the last one first. Takes x over. */
static td_tensor *fourier_along(td_tensor *x, fourier_function *transform, int first, int end, const int64_t *axes,
                                const int64_t *sizes, td_fft_norm norm) {
    for (int i = end - 1; i >= first; i--)
        x = made_of(x, transform(x, sizes ? sizes[i] : 0, (int)axes[i], norm));
    return x;
}

static td_tensor *fourier_full(td_tensor *x, fourier_function *transform, unsigned opcode, int count,
                               const int64_t *given, const int64_t *sizes, td_fft_norm norm) {
    int64_t axes[TD_RANK_MAX];
    if (!x)
        return transform(NULL, 0, 0, norm);
    int n = fourier_axes(x, opcode, count, given, 1, axes);
    if (n < 0)
        return NULL;
    td_tensor *last = transform(x, sizes ? sizes[n - 1] : 0, (int)axes[n - 1], norm);
    return fourier_along(last, transform, 0, n - 1, axes, sizes, norm);
}

td_tensor *td_fftn(td_tensor *x, int count, const int64_t *axes, const int64_t *sizes, td_fft_norm norm) {
    return fourier_full(x, td_fft, OP_FFT, count, axes, sizes, norm);
}

td_tensor *td_ifftn(td_tensor *x, int count, const int64_t *axes, const int64_t *sizes, td_fft_norm norm) {
    return fourier_full(x, td_ifft, OP_IFFT, count, axes, sizes, norm);
}

td_tensor *td_rfftn(td_tensor *x, int count, const int64_t *given, const int64_t *sizes, td_fft_norm norm) {
    int64_t axes[TD_RANK_MAX];
    int n = x ? fourier_axes(x, OP_RFFT, count, given, 1, axes) : 0;
    if (n < 0)
        return NULL;
    td_tensor *last = n ? td_rfft(x, sizes ? sizes[n - 1] : 0, (int)axes[n - 1], norm) : td_rfft(x, 0, 0, norm);
    return fourier_along(last, td_fft, 0, n - 1, axes, sizes, norm);
}

td_tensor *td_irfftn(td_tensor *x, int count, const int64_t *given, const int64_t *sizes, td_fft_norm norm) {
    int64_t axes[TD_RANK_MAX];
    int n = x ? fourier_axes(x, OP_IRFFT, count, given, 1, axes) : 0;
    if (n < 0)
        return NULL;
    bool complex_input = x && dtype_kind((enum dtype)x->type.dtype) == DTYPE_KIND_COMPLEX;
    if (n < 2 || !complex_input) /* it refuses real numbers, which the other transforms would take */
        return td_irfft(x, n && sizes ? sizes[0] : 0, n ? (int)axes[0] : 0, norm);
    td_tensor *most = td_ifft(x, sizes ? sizes[n - 2] : 0, (int)axes[n - 2], norm);
    most = fourier_along(most, td_ifft, 0, n - 2, axes, sizes, norm);
    return made_of(most, td_irfft(most, sizes ? sizes[n - 1] : 0, (int)axes[n - 1], norm));
}

/* The norm with which a transform in the other direction is divided by as much. */
static td_fft_norm other_norm(td_fft_norm norm) {
    return norm == TD_FFT_NORM_BACKWARD  ? TD_FFT_NORM_FORWARD
           : norm == TD_FFT_NORM_FORWARD ? TD_FFT_NORM_BACKWARD
                                         : norm;
}

td_tensor *td_hfft(td_tensor *x, int64_t n, int axis, td_fft_norm norm) {
    td_tensor *turned = td_conj(x);
    return made_of(turned, td_irfft(turned, n, axis, other_norm(norm)));
}

td_tensor *td_ihfft(td_tensor *x, int64_t n, int axis, td_fft_norm norm) {
    td_tensor *half = td_rfft(x, n, axis, other_norm(norm));
    return made_of(half, td_conj(half));
}

/* Whether frequencies of n numbers can be given; the failure is linspace's. */
static bool frequencies_refused(int64_t n, double spacing) {
    if (n < 1 || n > INT32_MAX)
        call_refuse(OP_LINSPACE, STATUS_INVALID_ARGUMENT, "n is %lld, not 1 to 2^31 - 1", (long long)n);
    else if (!(spacing != 0))
        call_refuse(OP_LINSPACE, STATUS_INVALID_ARGUMENT, "the spacing is %g", spacing);
    else
        return false;
    return true;
}

td_tensor *td_fftfreq(td_device *device, td_dtype dtype, int64_t n, double spacing) {
    if (frequencies_refused(n, spacing))
        return NULL;
    int64_t positive = (n - 1) / 2, negative = n / 2;
    double whole = (double)n * spacing;
    td_tensor *parts[] = {
        td_linspace(device, dtype, 0, (double)positive / whole, positive + 1, 1),
        td_linspace(device, dtype, -(double)negative / whole, -1 / whole, negative, 1),
    };
    td_tensor *result = parts[0] && parts[1] ? td_concat(parts, 2, 0) : NULL;
    td_release(parts[0]);
    return made_of(parts[1], result);
}

td_tensor *td_rfftfreq(td_device *device, td_dtype dtype, int64_t n, double spacing) {
    if (frequencies_refused(n, spacing))
        return NULL;
    return td_linspace(device, dtype, 0, (double)(n / 2) / ((double)n * spacing), n / 2 + 1, 1);
}

/* x rolled along these axes by half of each, rounded down, or by minus that. */
static td_tensor *shifted(td_tensor *x, int count, const int64_t *given, bool back) {
    int64_t axes[TD_RANK_MAX];
    int n = x ? fourier_axes(x, OP_SLICE, count, given, 0, axes) : 0;
    td_tensor *result = n > 0 ? NULL : n == 0 ? td_reshape(x, x ? x->type.rank : 0, x ? x->type.shape : NULL) : NULL;
    for (int i = 0; i < n; i++) {
        int64_t half = extent_of(x, (int)axes[i]) / 2;
        td_tensor *next = td_roll(i ? result : x, back ? -half : half, (int)axes[i]);
        result = made_of(result, next);
    }
    return result;
}

td_tensor *td_fftshift(td_tensor *x, int count, const int64_t *axes) {
    return shifted(x, count, axes, false);
}

td_tensor *td_ifftshift(td_tensor *x, int count, const int64_t *axes) {
    return shifted(x, count, axes, true);
}
