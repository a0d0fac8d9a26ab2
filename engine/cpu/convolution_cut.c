/* How an image is cut for oneDNN, which looks at no flag while it computes one: where one call would take too long, into pieces that have some
 * of the groups, or of one group some channels, and some of the places. Each is a convolution of its own, with the same sums; of the weight's
 * gradient the pieces' sums are added up in their order.
 *
 * Along each axis that is cut a piece has its places of the source copied, with what the kernel sees beside them, and zeros where that is
 * padding: so all pieces but the last along a side are the same convolution, which oneDNN has made once. Cuts depend on shapes alone. */
#include <string.h>

#include "engine/cpu/convolution.h"

enum {
    CHANNELS_LEAST = 16, /* of a piece, and a multiple of these: oneDNN computes so many at once */
    RUN_LEAST = 16,      /* places along the last axis */
    WEIGHT_KERNEL =
        64,          /* places of a kernel; with more, pieces of the weight's gradient are slower than blocks by BLAS */
    EVEN_TRIES = 64, /* of the extents of pieces, for one of which all have it */
    ELEMENT_WORK = 32, /* multiplications in the time in which an element is copied or put into another order */
};

/* ---- geometry along an axis ---- */

static int64_t reach(const struct convolution *c, int axis) {
    return (c->kernel[axis] - 1) * c->dilation[axis] + 1;
}

/* The first place of the source that is seen from place `first` on; negative: in the padding. The way back begins at a multiple of the
 * stride, and then at least where padding is not negative. */
static int64_t source_begin(const struct convolution_job *job, int axis, int64_t first) {
    const struct convolution *c = &job->c;
    int64_t stride = c->stride[axis], at = first + c->padding[axis];
    if (job->way != WAY_BACK) {
        return first * stride - c->padding[axis];
    }
    int64_t seen = at - reach(c, axis) + 1;
    return least(seen > 0 ? divided_up(seen, stride) : seen / stride, at / stride);
}

static int64_t source_count(const struct convolution_job *job, int axis, int64_t first, int64_t extent) {
    const struct convolution *c = &job->c;
    if (job->way != WAY_BACK) {
        return (extent - 1) * c->stride[axis] + reach(c, axis);
    }
    return (first + extent - 1 + c->padding[axis]) / c->stride[axis] - source_begin(job, axis, first) + 1;
}

/* ---- what a piece costs ---- */

/* Places of a group of the result or of what is added up, and of the source. */
static void piece_places(const struct convolution_job *job, const int64_t *each, const int64_t *whole, double *places,
                         double *sources) {
    *places = *sources = 1;
    for (int axis = 0; axis < CONVOLUTION_AXES; axis++) {
        int64_t extent = each[SIDE_PLACES + axis];
        bool cut = extent < whole[SIDE_PLACES + axis];
        *places *= (double)extent;
        *sources *= (double)(cut ? source_count(job, axis, 0, extent) : source_extents(job)[axis]);
    }
}

/* As multiplications. */
static double piece_work(const struct convolution_job *job, const int64_t *each, const int64_t *whole) {
    double places, sources, groups = (double)each[SIDE_GROUPS], channels = (double)each[SIDE_CHANNELS];
    double from = (double)each[SIDE_SOURCES], kernel = (double)job->kernel;
    piece_places(job, each, whole, &places, &sources);
    double seen = job->way == WAY_BACK && sources < places ? sources : places;
    double elements = 2 * from * sources + channels * places + channels * from * kernel;
    bool alone =
        channels == 1 && from == 1; /* of such groups oneDNN computes several at once, of other channels some in vain */
    double wide = channels < CHANNELS_LEAST && !alone ? CHANNELS_LEAST : channels;
    return groups * (wide * from * kernel * seen + ELEMENT_WORK * elements);
}

/* ---- the cut ---- */

/* What a piece's extent along a side is a multiple of, and the least one. */
static int64_t side_step(const struct convolution_job *job, int side) {
    int64_t channels = most(job->source_channels, job->result_channels);
    if (side == SIDE_GROUPS) {
        return divided_up(CHANNELS_LEAST, channels);
    }
    return side < SIDE_PLACES ? CHANNELS_LEAST : job->way == WAY_BACK ? job->c.stride[side - SIDE_PLACES] : 1;
}

static int64_t side_least(const struct convolution_job *job, int side) {
    int64_t step = side_step(job, side);
    return side == SIDES - 1 ? divided_up(RUN_LEAST, step) * step : step;
}

/* Half of it, as a multiple of the step. */
static int64_t side_half(const struct convolution_job *job, int side, int64_t each) {
    int64_t step = side_step(job, side), half = divided_up(each, 2);
    return most(divided_up(half, step) * step, side_least(job, side));
}

/* Whether a side may be cut further: channels of a single group alone, since all channels of several groups lie together; and an axis where
 * those before are cut as far as they can be. */
static bool side_open(const struct convolution_job *job, const int64_t *each, int side) {
    if (side == SIDE_SOURCES && job->way != WAY_WEIGHT) {
        return false;
    }
    if ((side == SIDE_CHANNELS || side == SIDE_SOURCES) && each[SIDE_GROUPS] > 1) {
        return false;
    }
    for (int before = SIDE_PLACES; before < side; before++) {
        if (side_half(job, before, each[before]) < each[before]) {
            return false;
        }
    }
    return side_half(job, side, each[side]) < each[side];
}

/* Halves the side that makes pieces dearer the least. False: there is none. */
static bool cut_once(const struct convolution_job *job, int64_t *each, const int64_t *whole) {
    int best = SIDES;
    double best_work = 0;
    for (int side = 0; side < SIDES; side++) {
        if (!side_open(job, each, side)) {
            continue;
        }
        int64_t before = each[side];
        each[side] = side_half(job, side, before);
        double work = piece_work(job, each, whole) * (double)before / (double)each[side];
        each[side] = before;
        if (best == SIDES || work < best_work) {
            best = side;
            best_work = work;
        }
    }
    if (best < SIDES) {
        each[best] = side_half(job, best, each[best]);
    }
    return best < SIDES;
}

/* Pieces of one size along a side, if they are not much smaller for that. */
static void side_even(const struct convolution_job *job, struct convolution_cut *cut, int side) {
    int64_t step = side_step(job, side), each = cut->each[side];
    int tries = EVEN_TRIES;
    for (int64_t even = each; even >= side_least(job, side) && even > each / 4 * 3 && tries--; even -= step) {
        if (cut->whole[side] % even == 0) {
            cut->each[side] = even;
            break;
        }
    }
    cut->count[side] = divided_up(cut->whole[side], cut->each[side]);
}

bool convolution_cut_make(const struct convolution_job *job, struct convolution_cut *cut) {
    int64_t places = 1;
    double each, sources;
    *cut = (struct convolution_cut){
        .whole = {job->c.groups, job->result_channels, job->source_channels}, .pieces = 1, .weights = 1};
    memcpy(&cut->whole[SIDE_PLACES], places_extents(job), CONVOLUTION_AXES * sizeof *cut->whole);
    memcpy(cut->each, cut->whole, sizeof cut->each);
    bool blocks = job->way == WAY_WEIGHT && job->kernel > WEIGHT_KERNEL &&
                  least(job->source_channels, job->result_channels) >= CHANNELS_LEAST;
    while (piece_work(job, cut->each, cut->whole) > convolution_call_work) {
        if (blocks || !cut_once(job, cut->each, cut->whole)) {
            return false;
        }
    }
    for (int side = 0; side < SIDES; side++) {
        cut->count[side] = 1;
        if (cut->each[side] < cut->whole[side]) {
            side_even(job, cut, side);
        }
        cut->pieces *= cut->count[side];
        places *= side < SIDE_PLACES ? 1 : cut->count[side];
    }
    cut->weights = cut->pieces / places;
    piece_places(job, cut->each, cut->whole, &each, &sources);
    if (places > 1 || job->widen) {
        cut->source_bytes =
            (cut->each[SIDE_GROUPS] * cut->each[SIDE_SOURCES] * (int64_t)sources * job->size + 63) & ~INT64_C(63);
    }
    if (job->widen) {
        cut->other_bytes =
            (cut->each[SIDE_GROUPS] * cut->each[SIDE_CHANNELS] * (int64_t)each * job->size + 63) & ~INT64_C(63);
    }
    return true;
}

/* ---- pieces ---- */

struct convolution_piece convolution_piece_at(const struct convolution_cut *cut, int64_t number) {
    struct convolution_piece piece = {.kind = 0};
    for (int side = SIDES - 1; side >= 0; side--) {
        piece.first[side] = number % cut->count[side] * cut->each[side];
        piece.extent[side] = least(cut->each[side], cut->whole[side] - piece.first[side]);
        piece.kind |= (unsigned)(piece.extent[side] < cut->each[side]) << side;
        number /= cut->count[side];
    }
    return piece;
}

void convolution_of_piece(const struct convolution_job *job, const struct convolution_piece *piece,
                          struct convolution *out, struct dnnl_around *around) {
    const struct convolution *c = &job->c;
    bool back = job->way == WAY_BACK;
    int64_t groups = piece->extent[SIDE_GROUPS], channels = groups * piece->extent[SIDE_CHANNELS],
            from = groups * piece->extent[SIDE_SOURCES];
    *out = *c;
    out->batch = 1;
    out->groups = groups;
    out->x_channels = back ? channels : from;
    out->y_channels = back ? from : channels;
    *around =
        (struct dnnl_around){.channels = job->way == WAY_WEIGHT ? job->source_channels : out->x_channels / groups};
    memcpy(around->places, places_extents(job), sizeof around->places);
    for (int axis = 0; axis < CONVOLUTION_AXES; axis++) {
        int64_t first = piece->first[SIDE_PLACES + axis], extent = piece->extent[SIDE_PLACES + axis];
        if (job->cut.count[SIDE_PLACES + axis] == 1) {
            continue;
        }
        int64_t count = source_count(job, axis, first, extent), begin = source_begin(job, axis, first);
        out->x[axis] = back ? extent : count;
        out->y[axis] = back ? count : extent;
        out->padding[axis] = back ? c->padding[axis] + first - begin * c->stride[axis] : 0;
    }
}

/* A row of n places from `begin` on, of which some may be beyond the row's ends. */
static void copy_row(const struct convolution_job *job, int64_t n, int64_t begin, int64_t extent, const char *row,
                     char *to) {
    int64_t size = job->size;
    int64_t before = least(most(-begin, 0), n), end = least(most(extent - begin, before), n);
    memset(to, 0, (size_t)(before * size));
    if (end > before && job->widen) {
        convolution_convert(job->widen, end - before, row + (begin + before) * job->own_size, to + before * size);
    } else if (end > before) {
        memcpy(to + before * size, row + (begin + before) * size, (size_t)((end - before) * size));
    }
    memset(to + end * size, 0, (size_t)((n - end) * size));
}

void convolution_copy_source(const struct convolution_job *job, const struct convolution_piece *piece,
                             const struct convolution *c, const char *source, char *to) {
    const int64_t *count = job->way == WAY_BACK ? c->y : c->x, *extent = source_extents(job);
    int64_t begin[CONVOLUTION_AXES], size = job->size, row = count[2] * size;
    int64_t channel = piece->first[SIDE_GROUPS] * job->source_channels + piece->first[SIDE_SOURCES];
    for (int axis = 0; axis < CONVOLUTION_AXES; axis++) {
        bool cut = job->cut.count[SIDE_PLACES + axis] > 1;
        begin[axis] = cut ? source_begin(job, axis, piece->first[SIDE_PLACES + axis]) : 0;
    }
    for (int64_t i = 0; i < piece->extent[SIDE_GROUPS] * piece->extent[SIDE_SOURCES]; i++) {
        const char *from = source + (channel + i) * job->source_places * job->own_size;
        for (int64_t z = begin[0]; z < begin[0] + count[0]; z++) {
            for (int64_t y = begin[1]; y < begin[1] + count[1]; y++, to += row) {
                if (z >= 0 && z < extent[0] && y >= 0 && y < extent[1]) {
                    copy_row(job, count[2], begin[2], extent[2], from + (z * extent[1] + y) * extent[2] * job->own_size,
                             to);
                } else {
                    memset(to, 0, (size_t)row);
                }
            }
        }
    }
}

void convolution_convert_piece(const struct convolution_job *job, const struct convolution_piece *piece,
                               cpu_row_function *cast, char *image, char *dense) {
    const int64_t *whole = places_extents(job), *extent = &piece->extent[SIDE_PLACES];
    int64_t channels = piece->extent[SIDE_GROUPS] * piece->extent[SIDE_CHANNELS];
    image += convolution_piece_result(job, piece) * job->own_size;
    for (int64_t i = 0; i < channels; i++, image += job->places * job->own_size) {
        for (int64_t z = 0; z < extent[0]; z++) {
            for (int64_t y = 0; y < extent[1]; y++, dense += extent[2] * job->size) {
                char *row = image + (z * whole[1] + y) * whole[2] * job->own_size;
                bool widens = cast == job->widen;
                convolution_convert(cast, extent[2], widens ? row : dense, widens ? dense : row);
            }
        }
    }
}
