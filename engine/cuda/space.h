/* Spaces: how kernels walk over strided operands; the host computes it.
 *
 * A space is the common shape of up to four operands (0: the output) and their strides. One axis is the inner one, along
 * which neighbouring threads lie; the others make rows. A block takes a tile of 2^(width + depth) positions at a time,
 * 2^width along the inner axis by 2^depth rows; index.cuh finds a thread's positions in it. A position is `lanes`
 * elements that lie together, 16 bytes of the widest operand, where all operands allow it, or else one element.
 *
 * Offsets are 64-bit. Rows and tiles are counted in 31 bits, so that dividing by an extent is a multiplication; larger
 * spaces are cut in two and launched in pieces. Includable from C and CUDA C++. */
#pragma once

#include "engine/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SPACE_OPERANDS = 4,
    SPACE_PARAMETERS = 2,
    SPACE_THREADS = 256,
    SPACE_UNROLL = 4,      /* positions that a thread takes from a tile, if a position is one element */
    SPACE_UNROLL_WIDE = 2, /* the same if a position is several elements */
};

/* Division of numbers below 2^31 by an extent of 1 … 2^31 - 1: n / d = (⌊n · m / 2^32⌋ + n) / 2^s with s = ⌈log2 d⌉ and
 * m = ⌊2^32 · (2^s - d) / d⌋ + 1 (Granlund, Montgomery: "Division by invariant integers using multiplication", 1994). */
struct divisor {
    uint32_t extent, magic, shift;
};

/* Division of numbers of any size: if they may have more than 31 bits, by the device's own division. */
struct divisor_wide {
    struct divisor fast;
    int64_t extent;
    bool narrow;
};

struct space_axis {
    struct divisor extent;
    int64_t stride[SPACE_OPERANDS]; /* elements */
};

struct space {
    int64_t inner;                        /* positions along the inner axis */
    int64_t inner_stride[SPACE_OPERANDS]; /* elements from one position to the next */
    uint32_t rows, outer;                 /* rows; axes that make them */
    uint32_t tiles, width, depth;
    struct divisor across;                      /* tiles side by side along the inner axis */
    struct space_axis axis[SHAPE_RANK_MAX - 1]; /* [outer], the fastest first */
};

/* The argument of every kernel over a space. */
struct space_arguments {
    char *data[SPACE_OPERANDS];
    struct space space;
    double parameter[SPACE_PARAMETERS]; /* attributes that a formula takes */
    uint32_t tail;  /* elements after the last position, fewer than `lanes`; if there are any, the space has one row */
    uint32_t dtype; /* enum dtype: of the first input, for kernels that read several */
};
typedef void space_kernel(const struct space_arguments arguments);

/* The same if all operands lie without gaps, which is nearly always so: the number of a position is its place in each operand. So the
 * kernel divides nothing, and a launch has 64 bytes of arguments instead of 464. */
struct flat_arguments {
    char *data[SPACE_OPERANDS];
    int64_t positions;
    double parameter[SPACE_PARAMETERS];
    uint32_t tail, dtype;
};
typedef void flat_kernel(const struct flat_arguments arguments);

/* Three versions of a kernel; `wide` and `flat` take positions of `lanes` elements. NULL: there is no such kernel, and `narrow` takes its
 * place. */
struct space_kernels {
    space_kernel *wide, *narrow;
    flat_kernel *flat;
    int lanes;
};

/* For cuda_kernel_walk: tells of each of these kernels that exists. */
static inline bool space_walk(const struct space_kernels *kernels, bool common, cuda_kernel_seen *seen, void *context) {
    return !kernels->narrow || ((!kernels->flat || seen(context, common, (const void *)kernels->flat)) &&
                                (!kernels->wide || seen(context, common, (const void *)kernels->wide)) &&
                                seen(context, common, (const void *)kernels->narrow));
}

/* Shape and strides of all operands while they are arranged: the inner axis is the last one. */
struct space_plan {
    int operands, rank, lanes;
    uint32_t tail;
    int64_t shape[SHAPE_RANK_MAX];
    int64_t strides[SPACE_OPERANDS][SHAPE_RANK_MAX];
    int64_t size[SPACE_OPERANDS]; /* bytes of an element */
    char *data[SPACE_OPERANDS];
    double parameter[SPACE_PARAMETERS];
    uint32_t dtype;
    bool across; /* an input's neighbours lie along the axis before the inner one */
};

struct divisor divisor_make(uint32_t extent);
/* `limit`: an upper bound of the numbers that will be divided. */
struct divisor_wide divisor_wide_make(int64_t extent, int64_t limit);

/* Takes a launch's operands and puts their axes in order. */
void space_plan_init(struct space_plan *plan, const struct launch *launch);
/* Makes positions of `lanes` elements, where strides and addresses allow it. */
bool space_plan_widen(struct space_plan *plan, int lanes);
/* False: the space is too large and must be cut. */
bool space_make(const struct space_plan *plan, struct space *space);
/* Leaves the first half in `plan` and puts the other half into `second`. */
void space_plan_cut(struct space_plan *plan, struct space_plan *second);

/* The width of a tile of 2^tile positions, as a logarithm, that leaves few of them unused. */
uint32_t space_tile_width(int64_t inner, uint32_t tile);
/* Blocks for `work` tiles or chunks: enough to fill the device several times over, for the rest they loop. */
unsigned space_blocks(const struct cuda *cuda, int64_t work);
/* Launches a kernel that takes one struct, in blocks of SPACE_THREADS threads. */
int space_start(const void *kernel, unsigned blocks, const void *arguments, struct fault *fault, cudaStream_t stream);
/* Launches a kernel over all operands of an elementwise launch, in as many pieces as it takes. */
int space_launch(const struct cuda *cuda, const struct launch *launch, const struct space_kernels *kernels,
                 struct fault *fault, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
