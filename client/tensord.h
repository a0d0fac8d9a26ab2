/* tensord: the client library.
 *
 * A tensord daemon owns the devices of a host. A program connects, opens a device, and enqueues operations on tensors
 * that live there. Every operation returns a tensor handle at once, with dtype and shape already known; the work is done
 * meanwhile, in order, and a handle may be used as an input right away. Only the functions marked "Blocks" wait.
 *
 *     td_connection *connection;
 *     td_device *device;
 *     if (td_connect(NULL, NULL, &connection) || td_device_open(connection, "cpu:0", &device))
 *         return fprintf(stderr, "%s\n", td_last_error()->message), 1;
 *     float host[2][3] = {{1, 2, 3}, {4, 5, 6}}, result[2][2];
 *     td_tensor *x = td_upload(device, TD_F32, TD_SHAPE(2, 3), host);
 *     td_tensor *y = td_matmul(x, td_transpose(x));
 *     if (td_fetch(y, result, sizeof result))
 *         return fprintf(stderr, "%s\n", td_last_error()->message), 1;
 *     td_close(connection);
 *
 * Errors. Functions that return int return TD_OK (0) or a TD_E_ code. Functions that return a pointer return NULL on
 * failure. Either way td_last_error() tells the calling thread the code, the words, and where it began. NULL as a tensor
 * argument is passed on: the result is NULL, and where the thread's last error is that of a call which gave NULL for a
 * tensor it is kept. So a chain of calls is checked once, at its end. Any other NULL is TD_E_INVALID_ARGUMENT.
 * What only the device can notice (an index out of range, memory used up) poisons the result, and everything computed from
 * it: td_fetch and td_wait on any of those report the first cause, with its operation and label.
 *
 * Ownership. A handle lives until td_release(), or until the td_scope_end() of the scope it was made in, or until
 * its device is closed. Releasing never waits: what was enqueued before still runs.
 *
 * Sending. A thread of the library sends what was enqueued: at once when somebody fetches, waits or syncs, when 32 KiB
 * have come together, and otherwise within 100 µs, so that work starts long before its result is fetched.
 *
 * Threads. All functions may be called from any thread, and several threads may share one connection, its devices and
 * tensors. What one thread enqueues on one stream runs in that order; an operation always comes after those that make its
 * inputs, whatever thread or stream they are of. One handle must not be released while another thread passes it to a
 * call. Closing a device or connection must not overlap with other calls on it; callbacks of its own that are still to
 * come are called before it returns. A child process must not use what its parent opened before the fork().
 *
 * Blocking. The library never exits, aborts, or prints (unless TENSORD_DEBUG=wire is set, which prints every message to
 * stderr), and blocks only in calls marked "Blocks".
 *
 * Connections. One that is lost costs nothing but time: see td_device_link().
 *
 * Names, broadcasting and promotion follow the Python Array API standard; neural-network operations follow PyTorch.
 * Where the standard leaves a mix of kinds open, bool < int < float and the higher kind's dtype wins. The f8 formats
 * promote with nothing, as in PyTorch and JAX: cast first. */
#ifndef TENSORD_H
#define TENSORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TD_API __attribute__((visibility("default")))
#else
#define TD_API
#endif

#define TD_VERSION_MAJOR 0
#define TD_VERSION_MINOR 1
#define TD_VERSION_PATCH 0

typedef struct td_connection td_connection;
typedef struct td_device td_device;
typedef struct td_stream td_stream;
typedef struct td_tensor td_tensor;
typedef struct td_kernel td_kernel;

typedef enum td_dtype {
    TD_BOOL = 1, /* one byte, 0 or 1 */
    TD_U8 = 2,
    TD_I8 = 3,
    TD_I16 = 4,
    TD_I32 = 5,
    TD_I64 = 6,
    TD_F16 = 7,  /* IEEE 754 binary16 */
    TD_BF16 = 8, /* the upper half of a binary32 */
    TD_F32 = 9,
    TD_F64 = 10,
    TD_F8E4M3 = 11, /* OCP FP8 E4M3, PyTorch's float8_e4m3fn: up to 448, NaN, no infinities */
    TD_F8E5M2 = 12  /* OCP FP8 E5M2: the upper half of a binary16 */
} td_dtype;

typedef enum td_status {
    TD_OK = 0,
    TD_E_INVALID_ARGUMENT = 1,
    TD_E_SHAPE = 2,
    TD_E_DTYPE = 3,
    TD_E_UNKNOWN_ID = 4,
    TD_E_DUPLICATE_ID = 5,
    TD_E_DEVICE_MISMATCH = 6,
    TD_E_OUT_OF_MEMORY = 7,
    TD_E_LIMIT = 8,
    TD_E_OUT_OF_RANGE = 9,
    TD_E_UNSUPPORTED = 10,
    TD_E_DEVICE_LOST = 11,
    TD_E_NO_DEVICE = 12,
    TD_E_PROTOCOL = 13,
    TD_E_VERSION = 14,
    TD_E_AGAIN = 15,
    TD_E_TIMED_OUT = 16,
    TD_E_CONNECTION = 17,
    TD_E_NO_HOST_MEMORY = 18,
    TD_E_CANCELLED = 19,
    TD_E_DRAINING = 20,
    TD_E_INTERNAL = 21,
    TD_E_DENIED = 22
} td_status;

enum { TD_RANK_MAX = 8, TD_NAME_MAX = 64, TD_LABEL_MAX = 128 };

/* Extents as an argument: TD_SHAPE(2, 3) passes rank and extents, TD_SCALAR a zero-dimensional tensor's. They live until the
 * call has returned. */
#if defined(__cplusplus) && __cplusplus >= 201103L
/* C++ has no compound literals. */
} /* extern "C" */
template <int n> struct td_extents {
    int64_t extents[n];
};
template <typename... T> constexpr td_extents<sizeof...(T)> td_extents_of(T... extents) {
    return td_extents<sizeof...(T)>{{static_cast<int64_t>(extents)...}};
}
extern "C" {
#define TD_SHAPE(...)                                                                                                  \
    static_cast<int>(sizeof(td_extents_of(__VA_ARGS__)) / sizeof(int64_t)), td_extents_of(__VA_ARGS__).extents
#else
#define TD_SHAPE(...)                                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {                                     \
        __VA_ARGS__                                                                                                    \
    }
#endif
#define TD_SCALAR 0, (const int64_t *)NULL
/* A list of axes as an argument; TD_ALL_AXES stands for all of them. */
#define TD_AXES(...) TD_SHAPE(__VA_ARGS__)
#define TD_ALL_AXES 0, (const int64_t *)NULL
/* "No start", "no stop" of a slice, as Python's None. */
#define TD_NONE INT64_MIN

/* ---- errors ---- */

typedef struct td_error {
    int code;                     /* td_status */
    char message[320];            /* one sentence for people, root cause included */
    char operation[32];           /* the operation that failed first, "" where there was none */
    char label[TD_LABEL_MAX + 1]; /* its label with scopes, "forward/logits" */
    uint64_t sequence;            /* its number among the device's operations in this session, from 1; 0: none */
    const char
        *details; /* all that there is to say, where that is more: a compiler's log. "" else; never NULL. It lives
                              until the thread's next failure */
} td_error;

/* The last failure of a call made by this thread; never NULL. Successful calls leave it as it is, the thread's next
 * failure overwrites it. */
TD_API const td_error *td_last_error(void);
/* The general text of a code, also of one that does not exist; never NULL. */
TD_API const char *td_strerror(int code);

/* ---- connections and devices ---- */

typedef struct td_options {
    const char *client_name; /* shown to the operator; NULL: the program's name */
    unsigned timeout_ms;     /* for connecting, each handshake, list of devices, and closing; 0: 10,000 */
    size_t queue_bytes; /* bound of a device's send queue; past it calls fail with TD_E_AGAIN; 0: 4 MiB, about 170,000
                                 small operations; at least 64 KiB */
    bool allow_tf32;    /* lets GPUs round the inputs of float32 products to TF32 (10 bits of mantissa instead of 23),
                                 which is several times faster; otherwise they are IEEE float32. Other devices ignore it */
    const char *token;  /* who the program is, where the daemon asks: "tensord_…". NULL: $TENSORD_TOKEN, else the file
                                 that $TENSORD_TOKEN_FILE names, else none; "": none */
    unsigned
        reconnect_ms; /* for how long a device whose connection was lost tries to get another one; 0: as long as the
                                 daemon keeps the session (its session-lease); TD_NEVER: the device is lost at once */
    unsigned heartbeat_ms; /* a daemon from which nothing has come for so long is taken for gone; 0: 10,000; TD_NEVER:
                                 it may keep silent for ever */
    /* For tls:// URLs, PEM files. NULL: $TENSORD_CA_FILE, $TENSORD_CERT_FILE, $TENSORD_KEY_FILE. */
    const char *ca_file;   /* whose certificates to trust; not there either: the system's */
    const char *cert_file; /* this program's certificate, for a daemon that asks for one; not there either: none */
    const char *key_file;  /* its key, without passphrase; not there either: in the same file */
} td_options;
#define TD_NEVER (~0u)

/* URLs: unix:/path, tcp://host:port, tls://host:port. NULL or "": $TENSORD_URL, else the user's own daemon where its socket
 * is there ($XDG_RUNTIME_DIR/tensord.sock), else the host's (/run/tensord/tensord.sock). Options may be NULL; they are copied. Blocks
 * until the daemon has answered. Over TLS (1.3) the daemon's certificate must be for the URL's host, and signed by who is
 * trusted; further connections resume the first one's session.
 * Errors: TD_E_INVALID_ARGUMENT (the URL, a file), TD_E_CONNECTION (nobody there), TD_E_TIMED_OUT, TD_E_VERSION,
 * TD_E_PROTOCOL (no TLS there), TD_E_DENIED (a certificate is not accepted), or why the daemon refuses: TD_E_LIMIT,
 * TD_E_DRAINING, TD_E_DENIED (it takes a token, this one is not valid, or its user's role does not allow that). */
TD_API int td_connect(const char *url, const td_options *options, td_connection **connection);
/* Closes its devices, whose tensors end with it. What was enqueued is sent first, but not waited for: td_sync() does that.
 * Fetches that are pending end with TD_E_CANCELLED. Takes NULL. Blocks for at most the connection's timeout, or about half a
 * second where the connection is lost and does not come back (the daemon then keeps the sessions for their leases), and must
 * not be called by a callback. A connection that is closed already is left alone, unless another one has its address. */
TD_API void td_close(td_connection *connection);

typedef struct td_device_info {
    char name[TD_NAME_MAX]; /* "cpu:0" */
    char kind[16];          /* "cpu", "cuda" */
    char state[16];         /* "ready", "starting", "restarting", "lost", "quarantined" */
    char model[128];
    char capability[32];   /* compute capability "9.0"; of a CPU its vector level */
    unsigned processors;   /* multiprocessors, or cores in use */
    uint64_t memory_total; /* bytes */
    char uuid[48];         /* "GPU-…"; "" where a kind has none */
} td_device_info;

/* Writes up to `capacity` devices and the number there are. Where the daemon was restarted, connects anew. Blocks. Errors
 * as td_connect(). */
TD_API int td_devices(td_connection *connection, td_device_info *infos, size_t capacity, size_t *count);
/* Opens a session on a device. NULL: the daemon's first device. An unknown name is TD_E_NO_DEVICE with a message that
 * lists the names there are; nothing is ever substituted. Blocks. Errors else as td_connect(), and TD_E_DEVICE_LOST for a
 * device that is out of order. */
TD_API int td_device_open(td_connection *connection, const char *name, td_device **device);
/* Ends the session: all its tensors are freed, on the device and here, as are its streams. Takes NULL. Blocks as
 * td_close() does. */
TD_API void td_device_close(td_device *device);
/* "cpu:0", also where it was opened as NULL; lives as long as the device. "" for NULL. */
TD_API const char *td_device_name(const td_device *device);
/* Blocks until everything enqueued on the device has run. Tensors carry their own failures: this fails only where the
 * device itself is lost, with TD_E_DEVICE_LOST or what the daemon gave as the cause. From then on every call on the device
 * fails so; td_device_open() opens it again, with no tensor of before. */
TD_API int td_sync(td_device *device);
/* What has become of the device's connection. Where one is lost the session goes on in the daemon: the library connects
 * anew by itself, sends what has not arrived, and each operation takes effect exactly once. Meanwhile calls enqueue until
 * the send queue is full, and those that block keep waiting. Only where the session is gone, because that took longer than
 * its lease or the worker was restarted, is the device lost, and its tensors fail with TD_E_DEVICE_LOST. Does not block. */
typedef struct td_link {
    bool connected;           /* false: it is being connected anew, or is lost */
    uint64_t reconnects;      /* so far */
    uint64_t frames_repeated; /* messages that were sent again by that */
} td_link;
TD_API int td_device_link(td_device *device, td_link *link);
/* Sends what is queued now instead of within 100 µs. Does not block. Fails as td_sync() does. */
TD_API int td_flush(td_device *device);

/* Streams run side by side; a device begins with one. Tensors may cross streams freely, the daemon orders the work. Higher
 * priorities go first, 0 is the default stream's. Does not block. Errors: TD_E_AGAIN, TD_E_NO_HOST_MEMORY, a lost device;
 * beyond the session's limit of streams, what is enqueued on it is poisoned with TD_E_LIMIT. */
TD_API int td_stream_open(td_device *device, int priority, td_stream **stream);
/* What was enqueued on it still runs, and its tensors stay. A thread that has it set gets TD_E_INVALID_ARGUMENT from then
 * on until it sets another. Takes NULL. Does not block. */
TD_API void td_stream_close(td_stream *stream);
/* Makes the calling thread enqueue on this stream of its device; NULL: back to the default stream of `device`. Does not
 * block. Errors: TD_E_DEVICE_MISMATCH for a stream of another device, TD_E_NO_HOST_MEMORY. */
TD_API int td_stream_set(td_device *device, td_stream *stream);

/* ---- labels and scopes (of the calling thread) ---- */

/* Names the next tensor that this thread makes: errors and status show it. The text is copied, as UTF-8, and cut at
 * TD_LABEL_MAX bytes, scopes included. A call that fails for good uses it up; after TD_E_AGAIN it is still there for the
 * next try. NULL: no label after all. */
TD_API void td_label(const char *label);
/* Opens a scope. Labels within it are prefixed with "name/", and handles made within it by this thread are released by its
 * end. Tensors without a label of their own get the scopes' names as theirs. Scopes nest. `name` may be NULL: no prefix.
 * Handles of scopes that a thread leaves open at its end are not released. Neither blocks. */
TD_API void td_scope_begin(const char *name);
TD_API void td_scope_end(void);
/* Moves a handle out of the innermost scope to the one around it (to none from the outermost); returns it. One that is not
 * in the innermost scope stays where it is, as does one for whose move there is no memory. */
TD_API td_tensor *td_keep(td_tensor *tensor);

/* ---- tensors ---- */

/* Frees the handle; the device's memory follows when what was enqueued before has run. Takes NULL. Never fails, never
 * blocks. */
TD_API void td_release(td_tensor *tensor);
/* What is known of a tensor before it is computed; none of these blocks. Of NULL: 0 or NULL. */
TD_API td_dtype td_tensor_dtype(const td_tensor *tensor);
TD_API int td_tensor_rank(const td_tensor *tensor);
/* [rank] extents, which live as long as the handle. */
TD_API const int64_t *td_tensor_shape(const td_tensor *tensor);
/* The size of its elements in host memory: what td_fetch() takes. */
TD_API size_t td_tensor_bytes(const td_tensor *tensor);
TD_API td_device *td_tensor_device(const td_tensor *tensor);
/* Bytes of one element, 0 for what is no dtype; and its name, "f32" or "invalid". */
TD_API size_t td_dtype_size(td_dtype dtype);
TD_API const char *td_dtype_name(td_dtype dtype);

/* Host data is row-major, of the tensor's dtype, and in the host's byte order; bytes of a bool are 0 or 1. Shapes have
 * rank 0 to TD_RANK_MAX and extents from 0 on; an array without elements may be NULL. */

/* A tensor of this dtype and shape from host memory, which may be reused on return. Up to 256 KiB (or a quarter of
 * queue_bytes) are copied and sent later, as long as the send queue is not half full; otherwise the call sends them itself
 * and blocks until the daemon has them. Errors as of operations, below; TD_E_OUT_OF_MEMORY on the device poisons
 * the tensor. */
TD_API td_tensor *td_upload(td_device *device, td_dtype dtype, int rank, const int64_t *shape, const void *data);
/* The same, but borrows the data: it must stay unchanged until `done(user)` is called, once, on the library's I/O thread,
 * when the daemon has it or never will. `done` may be NULL. Does not block. On NULL, `done` is not called. */
TD_API td_tensor *td_upload_borrow(td_device *device, td_dtype dtype, int rank, const int64_t *shape, const void *data,
                                   void (*done)(void *user), void *user);
/* Copies the value to `data`, whose size must be td_tensor_bytes(). Blocks until it is there. Errors:
 * TD_E_INVALID_ARGUMENT (another size), the first cause of a poisoned tensor (td_last_error() has its operation, label and
 * number), a lost device. After an error the contents of `data` are unspecified. */
TD_API int td_fetch(td_tensor *tensor, void *data, size_t bytes);
/* The same without blocking. `data` must stay until `done` is called, once, on the I/O thread, with td_last_error() set for
 * it if `status` is not 0. It may call any function that does not block. The handle may be released at once. Where the call
 * itself fails (also TD_E_AGAIN, TD_E_NO_HOST_MEMORY), `done` is not called. */
TD_API int td_fetch_async(td_tensor *tensor, void *data, size_t bytes, void (*done)(void *user, int status),
                          void *user);
/* The same with a descriptor that becomes readable (poll, epoll) when the fetch has ended; reading it gives a uint64_t,
 * the status plus 1. The caller closes it, not before then. Fails with TD_E_LIMIT where there are no more descriptors. */
TD_API int td_fetch_fd(td_tensor *tensor, void *data, size_t bytes, int *fd);
/* Blocks until the tensor has been computed; reports its failure as td_fetch() does. */
TD_API int td_wait(td_tensor *tensor);
/* 1: computed (or failed, or the device is lost, or NULL). 0: not yet known to be; the first call asks, later ones tell.
 * Never blocks. */
TD_API int td_test(td_tensor *tensor);
/* A copy on another device of the same daemon; the devices move the bytes between themselves. Same dtype and shape. On the
 * tensor's own device it is td_copy(). Does not block. TD_E_UNSUPPORTED between daemons; what becomes of the source, its
 * failure or the loss of its device, is the copy's failure, too. */
TD_API td_tensor *td_copy_to(td_tensor *tensor, td_device *device);

/* ---- operations ----
 *
 * None of them blocks. Inputs must be on one device; the result is there, too. Unless a comment says otherwise, every dtype
 * is taken, but for the f8 formats. These are for storage and products: they are taken by td_full, td_eye, td_cast,
 * td_copy, views, td_where, td_concat, td_stack, td_take, td_take_along_axis, td_one_hot, td_matmul and td_linear. Errors
 * at the call, which then returns NULL and has enqueued nothing:
 *   TD_E_SHAPE              extents do not fit each other, are negative, or exceed rank 8 or 2^63 - 1 bytes
 *   TD_E_DTYPE              a dtype that the operation does not take, or that is none
 *   TD_E_INVALID_ARGUMENT   an axis outside -rank … rank - 1 or named twice, a step of 0, a count or value out of range
 *   TD_E_DEVICE_MISMATCH    inputs on different devices; the message names both
 *   TD_E_AGAIN              the send queue is full: td_wait() on something earlier, then call again
 *   TD_E_NO_HOST_MEMORY, TD_E_DEVICE_LOST (or the cause that ended the session)
 * Failures that poison the result: TD_E_OUT_OF_MEMORY, TD_E_LIMIT (tensors or bytes of the session, or an operation that
 * would take longer than any may), TD_E_UNSUPPORTED, and where noted TD_E_OUT_OF_RANGE. */

/* ---- creation ---- */

/* Every element `value`. For integer dtypes the value is truncated and must then be one of theirs, which NaN and infinities
 * are not; td_full_int takes all of i64. bool: value != 0 (td_full_int: 0 or 1). */
TD_API td_tensor *td_full(td_device *device, td_dtype dtype, int rank, const int64_t *shape, double value);
TD_API td_tensor *td_full_int(td_device *device, td_dtype dtype, int rank, const int64_t *shape, int64_t value);
/* start, start + step, … below stop (above, for a negative step): ceil((stop - start) / step) elements, or none, rank 1.
 * Not bool; for integer dtypes all three are truncated, to integers of i64 and a step that is not 0, and the elements must
 * be the dtype's. */
TD_API td_tensor *td_arange(td_device *device, td_dtype dtype, double start, double stop, double step);
/* (rows, columns), ones at (i, i + diagonal), zeros elsewhere. */
TD_API td_tensor *td_eye(td_device *device, td_dtype dtype, int64_t rows, int64_t columns, int64_t diagonal);
/* Floating dtypes. Philox4x32-10 (Salmon et al., SC 2011): the numbers depend on seed and position alone, the same on
 * every device (normal: up to rounding of log and cos). Uniform is in [low, high), and `low` where both are equal; normal
 * has this mean and standard deviation. TD_E_INVALID_ARGUMENT where low > high or the dtype has no value between them, for
 * a negative deviation, and for what is not finite or beyond the dtype's largest value. */
TD_API td_tensor *td_uniform(td_device *device, td_dtype dtype, int rank, const int64_t *shape, uint64_t seed,
                             double low, double high);
TD_API td_tensor *td_normal(td_device *device, td_dtype dtype, int rank, const int64_t *shape, uint64_t seed,
                            double mean, double deviation);

/* x in another dtype, same shape. Float to integer truncates towards zero and saturates, NaN gives 0; anything to bool is
 * != 0. To floats it rounds once, whatever the two dtypes, to nearest, ties to even. What is then out of range becomes an
 * infinity; in f8e4m3, which has none, NaN: that is what is above 464, half-way from 448 to the 480 that would be next. So
 * cast PyTorch, JAX and the OCP's specification where it does not saturate; to saturate, take the minimum and maximum with
 * -448 and 448 before the cast. */
TD_API td_tensor *td_cast(td_tensor *x, td_dtype dtype);
/* A contiguous copy with storage of its own. */
TD_API td_tensor *td_copy(td_tensor *x);

/* ---- views: x's dtype and elements in another shape, sharing its memory ---- */

/* The same elements in row-major order. One extent may be -1: what the others leave. Copies where the layout leaves no
 * other way. */
TD_API td_tensor *td_reshape(td_tensor *x, int rank, const int64_t *shape);
/* (…, m, n) to (…, n, m). */
TD_API td_tensor *td_transpose(td_tensor *x);
/* Axis i of the result is axis axes[i] of x; `axes` names each of x's `rank` axes once. */
TD_API td_tensor *td_permute(td_tensor *x, int rank, const int64_t *axes);
/* x[start:stop:step] along one axis, Python's meaning: bounds below 0 count from the end, those outside are cut. TD_NONE
 * where Python leaves one out. */
TD_API td_tensor *td_slice(td_tensor *x, int axis, int64_t start, int64_t stop, int64_t step);
/* Axes of extent 1, and new leading ones, repeat to fill `shape`. */
TD_API td_tensor *td_broadcast_to(td_tensor *x, int rank, const int64_t *shape);
/* Without these axes, whose extents must be 1; an empty list leaves x as it is. */
TD_API td_tensor *td_squeeze(td_tensor *x, int count, const int64_t *axes);
/* With a new axis of extent 1 at position `axis` of the result. */
TD_API td_tensor *td_expand_dims(td_tensor *x, int axis);

/* ---- elementwise ----
 *
 * The inputs' shapes broadcast as NumPy's do: aligned at the last axis, an extent of 1 repeats. TD_E_SHAPE names shapes
 * that do not. Their dtypes promote to the result's. */

/* For bool add is or, multiply is and; subtract and pow take no two bools. Integers wrap around. */
TD_API td_tensor *td_add(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_subtract(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_multiply(td_tensor *a, td_tensor *b);
/* True division: integers and bools divide as f32. */
TD_API td_tensor *td_divide(td_tensor *a, td_tensor *b);
/* Integers: exact modulo 2^bits; a negative exponent gives 0 unless the base is 1 or -1. */
TD_API td_tensor *td_pow(td_tensor *a, td_tensor *b);
/* NaN if either is. */
TD_API td_tensor *td_maximum(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_minimum(td_tensor *a, td_tensor *b);
/* Comparisons, in the promoted dtype, and logical operations give bool; logical ones take any dtype as != 0. */
TD_API td_tensor *td_equal(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_not_equal(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_less(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_less_equal(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_greater(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_greater_equal(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_logical_and(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_logical_or(td_tensor *a, td_tensor *b);
TD_API td_tensor *td_logical_not(td_tensor *x);
/* These two and relu keep the dtype and take no bool. */
TD_API td_tensor *td_negative(td_tensor *x);
TD_API td_tensor *td_abs(td_tensor *x);
/* exp to sigmoid give floats: integers and bool compute as f32. Sigmoid is 1 / (1 + exp(-x)), relu max(x, 0). */
TD_API td_tensor *td_exp(td_tensor *x);
TD_API td_tensor *td_log(td_tensor *x);
TD_API td_tensor *td_sqrt(td_tensor *x);
TD_API td_tensor *td_tanh(td_tensor *x);
TD_API td_tensor *td_sigmoid(td_tensor *x);
TD_API td_tensor *td_relu(td_tensor *x);
/* a where the condition (bool) is true, else b; all three broadcast, a and b promote. */
TD_API td_tensor *td_where(td_tensor *condition, td_tensor *a, td_tensor *b);

/* ---- reductions over a list of axes, TD_AXES(0, -1) or TD_ALL_AXES ----
 *
 * The result has the other axes; keepdims leaves the reduced ones, too, with extent 1. */

/* Integers and bool sum and multiply in i64, floats keep their dtype; f16 and bf16 accumulate in f32. Of nothing: 0, 1. */
TD_API td_tensor *td_sum(td_tensor *x, int count, const int64_t *axes, int keepdims);
TD_API td_tensor *td_prod(td_tensor *x, int count, const int64_t *axes, int keepdims);
/* Integers and bool as f32, floats keep their dtype. The mean of nothing is NaN. */
TD_API td_tensor *td_mean(td_tensor *x, int count, const int64_t *axes, int keepdims);
/* In x's dtype; a NaN wins. An element of nothing: TD_E_SHAPE. */
TD_API td_tensor *td_max(td_tensor *x, int count, const int64_t *axes, int keepdims);
TD_API td_tensor *td_min(td_tensor *x, int count, const int64_t *axes, int keepdims);
/* bool: whether any, or each, is != 0. Of nothing: false, true. */
TD_API td_tensor *td_any(td_tensor *x, int count, const int64_t *axes, int keepdims);
TD_API td_tensor *td_all(td_tensor *x, int count, const int64_t *axes, int keepdims);
/* Position along one axis, or with TD_ALL_AXES in the flattened tensor; the first of equals, a NaN wins; i64. Of
 * nothing, also where there are no results: TD_E_SHAPE. */
TD_API td_tensor *td_argmax(td_tensor *x, int count, const int64_t *axes, int keepdims);
TD_API td_tensor *td_argmin(td_tensor *x, int count, const int64_t *axes, int keepdims);

/* exp(x - max) / sum(exp(x - max)) along an axis, and its logarithm. Floating dtypes; x's dtype and shape. */
TD_API td_tensor *td_softmax(td_tensor *x, int axis);
TD_API td_tensor *td_log_softmax(td_tensor *x, int axis);

/* ---- products, joining, indexing ---- */

/* NumPy's matmul: (…, m, k) by (…, k, n) is (…, m, n), leading axes broadcast; rank 1 stands for a row on the left and a
 * column on the right, whose axis the result lacks. Dtypes promote, but not to bool; f16 and bf16 accumulate in f32.
 * Two f8 operands, of one format or of both, also accumulate in f32, and the result is f32, since tensors carry no scales and
 * f8e4m3 would overflow at 448: PyTorch's torch._scaled_mm with scales of 1 and out_dtype float32. Multiply the result by the
 * operands' scales. The fp8 tensor cores of GPUs add a few products at a time with some 14 bits, and these sums in f32. */
TD_API td_tensor *td_matmul(td_tensor *a, td_tensor *b);

typedef enum td_activation {
    TD_ACTIVATION_NONE = 0,
    TD_ACTIVATION_RELU = 1, /* max(y, 0); a NaN stays one */
    TD_ACTIVATION_GELU_TANH = 2 /* y/2 · (1 + tanh(√(2/π) · (y + 0.044715 y³))): torch's gelu(y, approximate='tanh') */
} td_activation;

/* A layer: activation(x · weightᵀ + bias), after torch.nn.functional.linear. x is (…, k), weight (n, k) or (k), bias (n),
 * or () with a weight (k); the result is (…, n), or (…). Dtypes promote, all three of them, but not to bool; two f8 tensors
 * make f32, as in td_matmul; GELU takes floats. f16 and bf16 are computed in f32, bias and activation included, and
 * rounded once. Integers wrap around before relu. GPUs do all of it in one kernel where their library can; transposing the
 * weight costs nothing. TD_E_SHAPE, TD_E_DTYPE, TD_E_INVALID_ARGUMENT: an unknown activation.
 *
 * `bias` NULL: none. So here NULL is not passed on: where the bias comes out of a call that may fail, check that first. */
TD_API td_tensor *td_linear(td_tensor *x, td_tensor *weight, td_tensor *bias, td_activation activation);
/* 1 to 255 tensors, dtypes promoted. concat: one after another along an axis, the other extents equal. stack: of equal
 * shapes, along a new axis at position `axis` of the result. */
TD_API td_tensor *td_concat(td_tensor *const *tensors, int count, int axis);
TD_API td_tensor *td_stack(td_tensor *const *tensors, int count, int axis);

/* Indices are integers from 0 to extent - 1; any other one poisons the result with TD_E_OUT_OF_RANGE. (Of an axis without
 * elements none is right: that is the call's error.) */

/* x's slices at rank-1 indices along an axis: x's dtype and shape, with as many as there are indices on that axis. */
TD_API td_tensor *td_take(td_tensor *x, td_tensor *indices, int axis);
/* One element of x for each index: indices have x's rank, and the other axes broadcast. */
TD_API td_tensor *td_take_along_axis(td_tensor *x, td_tensor *indices, int axis);
/* A new last axis of extent `classes` (1 to 2^31 - 1), 1 at the index, 0 elsewhere. */
TD_API td_tensor *td_one_hot(td_tensor *indices, int64_t classes, td_dtype dtype);

/* ---- user kernels ----
 *
 * Kernels of your own, in CUDA C++, on a CUDA device whose operator allows it (the daemon's setting user-kernels):
 *
 *     static const char source[] =
 *         "extern \"C\" __global__ void saxpy(float *z, const float *x, const float *y, float a, int n) {"
 *         "    int i = blockIdx.x * blockDim.x + threadIdx.x;"
 *         "    if (i < n) z[i] = a * x[i] + y[i];"
 *         "}";
 *     if (td_kernel_compile(device, source, "saxpy", &saxpy))
 *         return fprintf(stderr, "%s\n%s\n", td_last_error()->message, td_last_error()->details), 1;
 *     td_kernel_launch(saxpy, TD_DIM((n + 255) / 256), TD_DIM(256), 0,
 *                      TD_ARGS(td_arg_out(&z, TD_F32, TD_SHAPE(n)), td_arg_in(x), td_arg_in(y), td_arg_f32(2),
 *                              td_arg_i32(n)));
 *
 * A kernel runs in the daemon's process for the device, with the rights of that: what it reads and writes outside of its
 * arguments is not checked. An address that is not there costs the device: its worker ends with everybody's tensors on it,
 * and td_sync() and td_fetch() report TD_E_DEVICE_LOST with the kernel's name. */

/* Compiles `name` of a source: an extern "C" kernel, or an expression such as "scale<float>" of a template that the
 * source has (at most 255 bytes; the source, at most 1 MiB less a few bytes). C++17; of headers it may include CUDA's
 * own, by names between angle brackets: <cuda_fp16.h>. The daemon remembers what it compiled lately. Sources may have
 * __device__ variables, which begin anew in each kernel. What a kernel takes of the device, its variables included, counts
 * among the session's bytes until it is released. Kernels end with their device, too. Blocks, for a tenth of a second to
 * several, and while others have their turns at the compiler. Errors: TD_E_DENIED (the operator does not allow it),
 * TD_E_UNSUPPORTED (a device that takes none, a host without NVRTC or with a driver older than CUDA 12.4's),
 * TD_E_INVALID_ARGUMENT (the source: td_last_error()->details is the compiler's log, up to 256 KiB of it), TD_E_LIMIT
 * (256 kernels in a session, 64 parameters, the limits of bytes, 8 compilations of a session at a time or 64 of a user, and
 * more memory than the daemon's compile-memory lets the compiler have), TD_E_TIMED_OUT (more than its compile-timeout),
 * TD_E_INTERNAL (the source crashes the compiler), TD_E_OUT_OF_MEMORY (of the device), TD_E_AGAIN, TD_E_NO_HOST_MEMORY, a
 * lost device. */
TD_API int td_kernel_compile(td_device *device, const char *source, const char *name, td_kernel **kernel);
/* Launches that were enqueued still run. Takes NULL. Does not block. */
TD_API void td_kernel_release(td_kernel *kernel);

/* Extents along x, y and z: TD_DIM(256) is 256 by 1 by 1. Those left out, and 0 for y and z, are 1. */
typedef struct td_dim {
    int64_t x, y, z;
} td_dim;
#define TD_DIM(...) td_dim_of((const int64_t[4]){__VA_ARGS__})
static inline td_dim td_dim_of(const int64_t extents[4]) {
    td_dim dim;
    dim.x = extents[0];
    dim.y = extents[1] ? extents[1] : 1;
    dim.z = extents[2] ? extents[2] : 1;
    return dim;
}

/* What a parameter is given; made by the functions below. */
typedef struct td_kernel_arg {
    int kind;
    int rank;
    td_dtype dtype;
    const int64_t *shape; /* borrowed */
    td_tensor *input;
    td_tensor **output;
    uint64_t bits;
} td_kernel_arg;
#define TD_ARGS(...)                                                                                                   \
    (int)(sizeof((td_kernel_arg[]){__VA_ARGS__}) / sizeof(td_kernel_arg)), (const td_kernel_arg[]) {                   \
        __VA_ARGS__                                                                                                    \
    }

/* The address of x's elements, which lie there one after the other in row-major order: where x is a view of another
 * layout, a copy of it. Aligned to the dtype's size at least. The kernel must not write there: x, and all that shares
 * its memory, would change. NULL for a tensor without elements. */
TD_API td_kernel_arg td_arg_in(td_tensor *x);
/* The address of a new tensor's elements, all of them 0 in the beginning (clearing them costs the time of writing them
 * once); its handle is put into *y. */
TD_API td_kernel_arg td_arg_out(td_tensor **y, td_dtype dtype, int rank, const int64_t *shape);
/* The address of a new tensor's elements, in the beginning a copy of x; for kernels that change only some. x stays. */
TD_API td_kernel_arg td_arg_update(td_tensor **y, td_tensor *x);
/* The same, and x is released by a launch that does not fail at the call: if nobody else uses its memory, as another
 * handle or a view would, the new tensor has that, and nothing is copied. y may be the place of x itself. */
TD_API td_kernel_arg td_arg_consume(td_tensor **y, td_tensor *x);
/* Numbers. */
TD_API td_kernel_arg td_arg_i32(int32_t value);
TD_API td_kernel_arg td_arg_u32(uint32_t value);
TD_API td_kernel_arg td_arg_i64(int64_t value);
TD_API td_kernel_arg td_arg_u64(uint64_t value);
TD_API td_kernel_arg td_arg_f32(float value);
TD_API td_kernel_arg td_arg_f64(double value);

/* Enqueues a launch over a grid of blocks, with so many bytes of dynamic shared memory for each; arguments (1 to 64)
 * in the order of the kernel's parameters, at least one of them an output. On failure all outputs are NULL (but for
 * the place of a consumed input, which stays). Does not block. It is an operation like others: it runs in the order of
 * its stream, after those that make its inputs, and one cause poisons all of its outputs. Errors at the call:
 * TD_E_INVALID_ARGUMENT, TD_E_SHAPE, TD_E_DTYPE, and as of operations. Failures that poison: TD_E_INVALID_ARGUMENT
 * (another number of arguments than the kernel has parameters, or of other sizes; a grid or a block that the device
 * does not take), TD_E_OUT_OF_MEMORY, TD_E_LIMIT. printf() in a kernel goes to the daemon's output. */
TD_API int td_kernel_launch(td_kernel *kernel, td_dim grid, td_dim block, size_t shared_bytes, int count,
                            const td_kernel_arg *args);

/* ---- named tensors ----
 *
 * A name stands for a value that outlives the session that made it. It belongs to the caller's principal on one device:
 * other clients of that principal open it there, and nobody else sees it. What is published counts against the principal's
 * limits for named tensors, and no more against the session's, until the last tensor that shares its memory has gone. Names
 * last as long as the daemon, and beyond where the operator lets it save them (the daemon's settings state-dir and
 * state-sync: with `publish` the calls below return when the change is on the disk, else a crash may lose the changes of
 * the last seconds). A name has 1 to 255 bytes of UTF-8 without control characters, and
 * "__metadata__" is none. */

enum { TD_TENSOR_NAME_MAX = 255, TD_OWNER_MAX = 79 };

/* Binds the name to the tensor's value, in the place of what it stood for before. Blocks until the tensor has been
 * computed: then all at once, whoever opens the name gets the new value, and got the old one before. On failure the name
 * stays what it was. The handle stays the caller's. Errors: the first cause of a poisoned tensor; TD_E_LIMIT (bytes or
 * names of the principal), TD_E_INVALID_ARGUMENT (the name), TD_E_AGAIN, TD_E_NO_HOST_MEMORY, a lost device. */
TD_API int td_publish(td_tensor *tensor, const char *name);
/* The same for several tensors of one device under names that differ: all of them in one step, or none. With `only_new`
 * it fails with TD_E_DUPLICATE_ID where one of the names is taken. TD_E_LIMIT also where the names are more than one
 * message holds, 1 MiB. */
TD_API int td_publish_all(size_t count, td_tensor *const *tensors, const char *const *names, bool only_new);
/* A tensor of this session that is the value for which the name stands now, sharing its memory; a later td_publish() does
 * not change it. Blocks for a round trip, since only the daemon knows dtype and shape. NULL with TD_E_UNKNOWN_ID: there
 * is no such name. */
TD_API td_tensor *td_open(td_device *device, const char *name);
/* Removes the name. Tensors that have been opened by it stay. Blocks for a round trip. TD_E_UNKNOWN_ID as above. */
TD_API int td_unpublish(td_device *device, const char *name);

typedef struct td_name_info {
    char name[TD_TENSOR_NAME_MAX + 1];
    td_dtype dtype;
    int rank;
    int64_t shape[TD_RANK_MAX];
    uint64_t bytes; /* of device memory; what names share is told for each of them */
    double age_s;   /* since it was published */
    bool unsaved;   /* it is not on the disk yet; false where the daemon does not save names */
    /* Of td_names_all(): whose it is, in words, and without doubt: a user's name and id. `orphan`: of a user that there is
     * not any more; then both are the latter. */
    char user[TD_OWNER_MAX + 1], owner[TD_OWNER_MAX + 1];
    bool orphan;
} td_name_info;

/* Writes up to `capacity` of the principal's names on the device, in the order of their bytes, and the number there are.
 * Blocks. */
TD_API int td_names(td_device *device, td_name_info *infos, size_t capacity, size_t *count);
/* The same of all owners, in the order of `owner` and then of the names. TD_E_DENIED without the role admin. */
TD_API int td_names_all(td_device *device, td_name_info *infos, size_t capacity, size_t *count);
/* Renames a tensor, or gives it to somebody else, in one step: `new_name` and `new_owner` may be NULL, for what they are now.
 * `owner` NULL: the caller's own; otherwise a user's name or what td_names_all() tells, and like a new owner only with the
 * role admin. `name` NULL: all that the owner has, which keep their names. Blocks. Errors: TD_E_UNKNOWN_ID;
 * TD_E_DUPLICATE_ID where the new name is taken; TD_E_INVALID_ARGUMENT where other names that stay share the memory, or there
 * is no such user; TD_E_DENIED without the role admin; TD_E_LIMIT (bytes or names of the new owner, or owners of the device);
 * TD_E_AGAIN where an earlier move of one of the owners is not on the disk yet: nothing has changed, call again soon;
 * TD_E_INTERNAL where it is done but could not be saved, and will be tried again; TD_E_NO_HOST_MEMORY, a lost device. */
TD_API int td_names_move(td_device *device, const char *owner, const char *name, const char *new_owner,
                         const char *new_name);
/* Removes one, or all (`name` NULL), of the caller's or of another owner's, as above. Blocks. Errors: TD_E_UNKNOWN_ID,
 * TD_E_INVALID_ARGUMENT (the name), TD_E_DENIED, TD_E_AGAIN (the send queue is full), TD_E_INTERNAL as above,
 * TD_E_NO_HOST_MEMORY, a lost device. */
TD_API int td_names_remove(td_device *device, const char *owner, const char *name);

/* The library's version, "0.1.0". */
TD_API const char *td_version(void);

#ifdef __cplusplus
}
#endif

#endif
