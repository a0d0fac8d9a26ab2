/* How a convolution is computed (convolution.c): its job, and what the files about it share. */
#pragma once

#include "engine/cpu/cpu.h"
#include "engine/cpu/dnnl.h"
#include "proto/ops/convolution.h"

/* Multiplications of one call of a library, or what takes as long: 10 ms where a core does 100 in a nanosecond, and 40 ms on a slow one. It follows
 * from no measured rate, since the order of sums does from it. */
static const double convolution_call_work = 1 << 29;

enum convolution_way {
    WAY_FORWARD, /* from x to y */
    WAY_BACK,    /* from y's gradient to x's */
    WAY_WEIGHT,  /* from x and y's gradient to the weight's */
};

/* Along what an image is cut into pieces. */
enum convolution_side {
    SIDE_GROUPS,
    SIDE_CHANNELS, /* of a group of the result; of the weight's gradient, those of y */
    SIDE_SOURCES,  /* of the weight's gradient: x's channels of a group */
    SIDE_PLACES,   /* and the two that follow: places of the result; of the weight's gradient, those of y */
    SIDES = SIDE_PLACES + CONVOLUTION_AXES,
};

/* The last piece along a side may be smaller than the others, so there are two kinds along each; the number of a kind has one bit for each side. */
enum { CONVOLUTION_KINDS = 1 << SIDES };

struct convolution_cut {
    int64_t whole[SIDES], each[SIDES], count[SIDES];
    int64_t pieces;  /* of an image; 1: it is not cut */
    int64_t weights; /* pieces with different weights: the sides before the places */
    int64_t
        source_bytes; /* of the largest piece's places of the source, if these are copied or of halves; a multiple of 64 */
    int64_t other_bytes; /* of halves, of its places of the result, or of y's gradient; a multiple of 64 */
};

struct convolution_piece {
    int64_t first[SIDES], extent[SIDES];
    unsigned kind;
};

struct convolution_job {
    struct cpu_job base;
    const struct blas *blas;
    enum convolution_way way;
    struct convolution c;
    int64_t size;     /* of an element as it is computed with, */
    int64_t own_size; /* and of the operands */
    bool is_f64;
    cpu_row_function *widen, *narrow; /* of halves, to f32 and back; else NULL */
    const char *source;               /* what is gathered from: x, or y's gradient */
    const char *left;                 /* the weight, or y's gradient */
    const char *bias;                 /* NULL: there is none */
    char *result;
    int64_t source_channels, result_channels; /* of a group; of the weight: y's and x's */
    int64_t places, kernel, source_places;    /* volumes of what the places are of, the kernel, what is gathered from */
    int64_t depth;                            /* rows of all blocks: source channels times kernel */
    int64_t rows, row_blocks;                 /* of a block, and how many of these there are */
    int64_t width, blocks;                    /* places in a block, blocks of one image */
    int64_t strip, strips; /* of y's channels, or of x's for WAY_BACK, that one product has at most */
    bool plain;            /* a kernel of one place: the source itself is the block */
    int64_t units;
    unsigned threads;
    char *workspace;
    double work;
    /* Of halves (convolution_halves.c): at the workspace's beginning are the weight in f32, or its gradient's sums, and the bias. `run` and `again`
     * are those of the rounds in between. */
    const char *own_weight, *own_bias;
    char *own_result;
    int64_t converted_bytes;
    bool (*run)(struct cpu_job *job, struct cpu_lane *lane);
    bool (*again)(struct cpu_job *job);
    /* By oneDNN: units are so many images each, and the last one may have fewer; or they are pieces of an image. Of the weight's gradient a unit is a
     * sum over a slice of the images. In the workspace are the weight in oneDNN's order, the slices but the first, and scratch memory for
     * each thread. */
    const struct dnnl_convolution *some, *last;               /* NULL: by blocks, or in pieces */
    const struct dnnl_convolution *pieces[CONVOLUTION_KINDS]; /* NULL: there is no piece of this kind */
    struct convolution_cut cut;
    int64_t images, slices;
    size_t weight_bytes, slice_bytes, scratch_bytes; /* the weight's: of one of cut.weights */
};

static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t divided_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

/* The extents of what the places are of, and of what is gathered from. */
static inline const int64_t *places_extents(const struct convolution_job *job) {
    return job->way == WAY_BACK ? job->c.x : job->c.y;
}
static inline const int64_t *source_extents(const struct convolution_job *job) {
    return job->way == WAY_BACK ? job->c.y : job->c.x;
}

/* ---- halves (convolution_halves.c) ---- */

/* Makes rounds of the job: one for the weight, those that it has, or these and one for the weight's gradient. */
void convolution_halves_init(struct convolution_job *job);
/* Takes its place in the workspace, before the job's first part. */
void convolution_halves_begin(struct convolution_job *job);
/* n elements that follow one another. */
static inline void convolution_convert(cpu_row_function *cast, int64_t n, const char *from, char *to) {
    cast(&(struct cpu_row){n, {to, (char *)(uintptr_t)from}, {1, 1}});
}

/* ---- pieces of an image (convolution_cut.c) ---- */

/* Into so many pieces that each takes one call's work at most. False: it cannot be cut so, or that would be slow. */
bool convolution_cut_make(const struct convolution_job *job, struct convolution_cut *cut);
struct convolution_piece convolution_piece_at(const struct convolution_cut *cut, int64_t number);
/* The piece as a convolution of its own, and what its operands lie in. Along the axes that are cut it has no padding but zeros that are copied
 * with its places of the source. */
void convolution_of_piece(const struct convolution_job *job, const struct convolution_piece *piece,
                          struct convolution *out, struct dnnl_around *around);
/* Copies a piece's places of the source, channel by channel, with zeros for those that are padding; halves to f32. `c` is from
 * convolution_of_piece(), `source` the image's. */
void convolution_copy_source(const struct convolution_job *job, const struct convolution_piece *piece,
                             const struct convolution *c, const char *source, char *to);

/* Where a piece's places of the result are, or of y's gradient: in elements from an image's beginning on. */
int64_t convolution_piece_result(const struct convolution_job *job, const struct convolution_piece *piece);
/* Of halves: a piece's places of what its places are of, one after another in `dense`, are converted from there to an image, or from the image to
 * there where `cast` widens. */
void convolution_convert_piece(const struct convolution_job *job, const struct convolution_piece *piece,
                               cpu_row_function *cast, char *image, char *dense);

/* ---- by oneDNN (convolution_images.c) ---- */

/* Whether oneDNN computes the launch: then the job's parts are images, slices of them, or pieces. */
bool convolution_images_init(struct convolution_job *job, struct dnnl *dnnl);
/* Bytes of the workspace. */
uint64_t convolution_images_workspace(const struct convolution_job *job);
/* Before the job's first part: the weight in oneDNN's order, where that takes no long. False: there is no memory. */
bool convolution_images_begin(struct convolution_job *job);
/* Of the weight's gradient: where the sums of a slice are. */
char *convolution_slice_sums(const struct convolution_job *job, int64_t slice);
void convolution_images_release(struct convolution_job *job);
