/* oneDNN's convolutions and products of bf16, loaded when the first of them is bound; without it the device gathers and multiplies by itself
 * (convolution.c), and multiplies bf16 as f32 (matmul.c).
 *
 * oneDNN would run on threads of its own, by OpenMP. It is given one, the caller: the device's team shares images out, so that a launch can
 * be stopped between them, obeys the device's number of threads, and gives the same bits whatever that is.
 *
 * A call's memory is the caller's: the scratchpads of primitives and of reorders, and what is reordered. Products inside some convolutions pack
 * blocks into memory that oneDNN takes by itself; the scratch memory has room for these, too, which nobody touches, so that they are charged.
 * What is kept between calls is in no session's account. oneDNN's own cache is off. 128 convolutions and 64 products are kept here, since making
 * one takes some 3 ms: with its reorders and its code a convolution takes some 90 KB (and 1.1 MB of addresses), all of them 12 MB. oneDNN's code
 * for products, made once, takes 4 MB. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ops/convolution.h"

struct dnnl;

/* NULL: there is no oneDNN on this host, or it lacks a function. */
struct dnnl *dnnl_load(void);
/* Takes NULL. */
void dnnl_unload(struct dnnl *dnnl);

enum dnnl_way { DNNL_FORWARD, DNNL_BACK, DNNL_WEIGHT };

/* Some images of a convolution in f32, as oneDNN computes them. Nothing of it changes, so several threads may run it at once. */
struct dnnl_convolution;

/* In what the operands of a piece of an image lie: the extents of x or y, of which its places are some (of x where that is the result,
 * else of y), and, for the weight's gradient, how many of x's channels a group of it has. */
struct dnnl_around {
    int64_t places[CONVOLUTION_AXES], channels;
};

/* Of `images` images; operands as in a launch's normal form. Of a piece of one image, which `around` says (NULL: it is whole), the operand with
 * its places and the weight's gradient have the strides of what they lie in; the other operands are without gaps. The ones that were used
 * last are kept. The caller releases it. NULL: oneDNN has no fast implementation; or there was no memory for one once, then always. Any thread. */
const struct dnnl_convolution *dnnl_convolution_find(struct dnnl *dnnl, enum dnnl_way way,
                                                     const struct convolution *convolution, int64_t images, bool bias,
                                                     const struct dnnl_around *around);
/* Takes NULL. */
void dnnl_convolution_release(const struct dnnl_convolution *convolution);
/* Bytes of the weight in oneDNN's own order, which dnnl_convolution_prepare() makes (0: as it is), and of the scratch memory of either call;
 * both multiples of 64. The weight's gradient needs no preparation. */
size_t dnnl_convolution_weight_bytes(const struct dnnl_convolution *convolution);
size_t dnnl_convolution_scratch_bytes(const struct dnnl_convolution *convolution);
/* Whether the weight as it was prepared for one is so for the other, too, which differs from it in places alone. */
bool dnnl_convolution_same_weight(const struct dnnl_convolution *a, const struct dnnl_convolution *b);
bool dnnl_convolution_prepare(const struct dnnl_convolution *convolution, const void *weight, void *prepared,
                              void *scratch);
/* x and y are the first images' elements. One of x, weight and y is the result; `prepared` is the weight as it was prepared, or its
 * gradient [y's channels, x's of a group, kernel...], to which this call's part is added if `add`. */
bool dnnl_convolution_run(const struct dnnl_convolution *convolution, void *x, void *prepared, const void *bias,
                          void *y, bool add, void *scratch);

/* c[m][n] = a[m][k] · b[k][n], or c += …, with the processor's instructions for bf16: a and b are bf16, c is f32; a and c without gaps, b as
 * dnnl_product_order() says. Sums are in f32, along k, in an order that depends on k alone; subnormal elements and results count as zeros, as these
 * instructions have it. Nothing of it changes, so several threads may run it at once. */
struct dnnl_product;

/* Where the elements of b are. */
struct dnnl_order {
    size_t bytes; /* of all of it, with what fills it up; a multiple of 64 */
    /* 0: row by row without gaps. Else in blocks of DNNL_PAIRED rows and so many columns, filled up with zeros where b ends. A block has its rows
     * by twos, of which each column's two elements lie side by side. */
    int64_t columns;
    int64_t down, across; /* elements from one block to the next */
};
enum { DNNL_PAIRED = 32, DNNL_PAIRED_COLUMNS = 64 /* at most; a multiple of 16 */ };

/* Those that were used last are kept. The caller releases it. NULL: the processor has no such instructions, or there is no oneDNN (dnnl may be
 * NULL); or there was no memory once, then always. Any thread. */
const struct dnnl_product *dnnl_product_find(struct dnnl *dnnl, int64_t m, int64_t n, int64_t k);
/* Takes NULL. */
void dnnl_product_release(const struct dnnl_product *product);
/* Bytes of the scratch memory of a call, a multiple of 64. */
size_t dnnl_product_scratch_bytes(const struct dnnl_product *product);
struct dnnl_order dnnl_product_order(const struct dnnl_product *product);
/* False: there is no memory. */
bool dnnl_product_run(const struct dnnl_product *product, const void *a, const void *b, void *c, bool add,
                      void *scratch);
