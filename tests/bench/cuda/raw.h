/* The process that calls CUDA directly: what tensord is held against. It has a context of its own on the same GPU, and
 * does nothing while it is not asked; requests come over a socket, one at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct raw {
    pid_t pid;
    int fd;
};

enum raw_kind {
    RAW_CONTEXT,      /* makes the context, and says how much memory is free on the GPU */
    RAW_LAUNCHES,     /* `count` launches of a kernel that adds 16 floats, one after another, and a synchronisation */
    RAW_GRAPH,        /* `count` launches of a graph of n of these, and a synchronisation */
    RAW_COPY_OPEN,    /* memory for copies of `bytes` on the device */
    RAW_COPY,         /* `count` of these, and a synchronisation */
    RAW_SUM,          /* `count` sums of what is copied, as floats, by CUB, and a synchronisation */
    RAW_PRODUCT_OPEN, /* random matrices of `type` and n rows and columns, and cublasLt's first choice for their product */
    RAW_PRODUCT,      /* `count` of these, and a synchronisation */
    RAW_CHAIN,        /* the same, but each product is the next one's left factor */
    RAW_ALLOCATE,     /* `count` blocks of raw_block_bytes(), up to `bytes`, taken and, RAW_BLOCKS later, given back */
    RAW_CLOSE,        /* frees what has been opened */
    RAW_KINDS
};

/* Of the factors; the product is of the same type, but for FP8, where it is float32. FP8 is computed with the first factor
 * of cublasLt transposed and the second not, which is the one form that it has. */
enum raw_type { RAW_F32, RAW_TF32, RAW_BF16, RAW_F16, RAW_FP8, RAW_TYPES };

struct raw_request {
    uint32_t kind, type;
    int64_t n, count;
    uint64_t bytes;
};

struct raw_reply {
    double seconds; /* from the first call to the end of the synchronisation */
    uint64_t free_bytes;
    char error[200]; /* "": it went well */
};

/* Sizes of memory such as a job asks for: as many below as above each power of two. */
enum { RAW_BLOCKS = 64, RAW_BLOCK_MAX = 64 << 20, RAW_SEED = 1 };
static inline size_t raw_block_bytes(uint64_t *random, size_t most) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    uint64_t bits = *random >> 33, scale = (bits & 0xff) * 18 >> 8; /* 256 bytes to 32 MiB, and up to twice that */
    size_t bytes = (size_t)((UINT64_C(256) << scale) * (256 + (bits >> 8 & 0xff)) / 256);
    return bytes < most ? bytes : most;
}

/* Starts one; exits where that fails. */
void raw_start(struct raw *raw, int ordinal);
/* At once, whatever it does. Takes one that has not been started. */
void raw_stop(struct raw *raw);
/* False where the process failed, or is gone; reply->error says how. */
bool raw_try(const struct raw *raw, const struct raw_request *request, struct raw_reply *reply);
/* The same; exits where it fails. */
struct raw_reply raw_ask(const struct raw *raw, const struct raw_request *request);

/* The process itself: main() of `bench-cuda --raw FD ORDINAL`. */
int raw_main(int fd, int ordinal);
