/* Sorts the elements of rows: argsort.cu. CUDA C++ only. */
#pragma once

#include "engine/cuda/key.cuh"

/* x [outer, n, inner] has outer · inner rows of n elements, n below 2^32, and any strides. */
struct sort_rows {
    const char *x;
    struct key_type type;
    int64_t rows, n, inner, strides[3];
    char *memory; /* sort_rows_bytes() */
};

/* An element in order: its key, above its position on the axis. Elements of 8 bytes have wide items, unless they are indices below 2^32. */
typedef uint64_t sort_item;
struct alignas(16) sort_item_wide {
    uint64_t key, position;
};

static inline bool sort_is_wide(const struct key_type &type) {
    return type.size == 8 && type.kind != KEY_INDEX;
}
uint64_t sort_rows_bytes(const struct key_type &type, int64_t rows, int64_t n);
/* Puts the kernels on the stream that leave the items of row r in order at *sorted, from item r · n on. */
int sort_rows_run(const struct cuda *cuda, const struct sort_rows *sort, const char **sorted, struct fault *fault,
                  cudaStream_t stream);
bool sort_rows_walk(cuda_kernel_seen *seen, void *context);
