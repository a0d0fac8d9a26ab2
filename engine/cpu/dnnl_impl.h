/* oneDNN's functions, and how they are called: for dnnl.c, dnnl_convolution.c and dnnl_product.c. */
#pragma once

#include <pthread.h>

#include <oneapi/dnnl/dnnl.h>

#include "engine/cpu/dnnl.h"

/* The functions of oneDNN that are used. */
#define DNNL_FUNCTIONS(X)                                                                                              \
    X(set_primitive_cache_capacity)                                                                                    \
    X(engine_create)                                                                                                   \
    X(engine_destroy)                                                                                                  \
    X(stream_create)                                                                                                   \
    X(stream_destroy)                                                                                                  \
    X(stream_wait)                                                                                                     \
    X(memory_desc_init_by_strides)                                                                                     \
    X(memory_desc_init_by_tag)                                                                                         \
    X(memory_desc_equal)                                                                                               \
    X(memory_desc_get_size)                                                                                            \
    X(memory_create)                                                                                                   \
    X(memory_destroy)                                                                                                  \
    X(matmul_desc_init)                                                                                                \
    X(dilated_convolution_forward_desc_init)                                                                           \
    X(dilated_convolution_backward_data_desc_init)                                                                     \
    X(dilated_convolution_backward_weights_desc_init)                                                                  \
    X(primitive_desc_create)                                                                                           \
    X(primitive_desc_destroy)                                                                                          \
    X(primitive_desc_query)                                                                                            \
    X(primitive_desc_query_md)                                                                                         \
    X(reorder_primitive_desc_create)                                                                                   \
    X(primitive_create)                                                                                                \
    X(primitive_destroy)                                                                                               \
    X(primitive_execute)                                                                                               \
    X(primitive_attr_create)                                                                                           \
    X(primitive_attr_destroy)                                                                                          \
    X(primitive_attr_set_scratchpad_mode)                                                                              \
    X(primitive_attr_set_post_ops)                                                                                     \
    X(post_ops_create)                                                                                                 \
    X(post_ops_destroy)                                                                                                \
    X(post_ops_append_sum)

struct dnnl_kept;
enum { DNNL_PRODUCTS = 64 };

struct dnnl {
    pthread_mutex_t lock; /* for all that is kept */
    bool has_products;
    unsigned n_kept, room;
    struct dnnl_kept *kept;                       /* convolutions: [room], of which n_kept are taken */
    struct dnnl_product *products[DNNL_PRODUCTS]; /* those that were used last; NULL: none yet */
    uint64_t uses;
    /* There was no memory for a primitive: from then on there are no new ones, as launches rely on finding again what they found. */
    bool failed;
    dnnl_engine_t engine;
    void (*set_threads)(int); /* OpenMP's, of the calling thread */
#define DNNL_MEMBER(name) __typeof__(&dnnl_##name) name;
    DNNL_FUNCTIONS(DNNL_MEMBER)
#undef DNNL_MEMBER
};

bool dnnl_convolutions_init(struct dnnl *dnnl);
void dnnl_convolutions_finish(struct dnnl *dnnl);
void dnnl_products_init(struct dnnl *dnnl);
void dnnl_products_finish(struct dnnl *dnnl);

/* The attributes of every primitive: its scratchpad is the caller's memory, and its result may be added to what is there. */
bool dnnl_attributes_fill(const struct dnnl *dnnl, bool add, dnnl_primitive_attr_t attributes);

static inline size_t dnnl_rounded(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/* Executions of primitives, by the calling thread. */
struct dnnl_call {
    const struct dnnl *dnnl;
    dnnl_stream_t stream;
    dnnl_exec_arg_t arguments[6];
    int n;
    bool right;
};

bool dnnl_call_begin(struct dnnl_call *call, const struct dnnl *dnnl);
void dnnl_call_add(struct dnnl_call *call, int argument, const dnnl_memory_desc_t *desc, const void *data);
/* Runs the primitive on the arguments added so far, and forgets them. False: there is no memory. */
bool dnnl_call_run(struct dnnl_call *call, dnnl_primitive_t primitive);
void dnnl_call_end(struct dnnl_call *call);
