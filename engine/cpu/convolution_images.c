/* Convolutions by oneDNN: some images at a time, or pieces of an image that takes long. The gradient by the weight is a sum of slices of the
 * images. */
#include <string.h>

#include "engine/cpu/convolution.h"

enum {
    IMAGES_WORK = 1 << 23, /* multiplications of the images that oneDNN computes at a time */
    KINDS_MOST = 8,   /* of pieces: oneDNN takes some milliseconds for each, by the thread that serves all sessions */
    IMAGES_LEAST = 4, /* of a batch: fewer would keep few threads busy */
    SLICES_MOST = 8,
    SLICES_ELEMENTS = 1 << 24, /* of all slices */
};

static size_t weights_bytes(const struct convolution_job *job) {
    return (size_t)job->cut.weights * job->weight_bytes;
}

static size_t slices_bytes(const struct convolution_job *job) {
    return job->slices > 1 ? (size_t)(job->slices - 1) * job->slice_bytes : 0;
}

static char *images_scratch(const struct convolution_job *job, unsigned lane) {
    return job->workspace + weights_bytes(job) + slices_bytes(job) + lane * job->scratch_bytes;
}

char *convolution_slice_sums(const struct convolution_job *job, int64_t slice) {
    return slice == 0 ? job->result : job->workspace + (size_t)(slice - 1) * job->slice_bytes;
}

/* Of a thread's scratch memory, before oneDNN's. */
static int64_t copies_bytes(const struct convolution_job *job) {
    return job->cut.source_bytes + job->cut.other_bytes;
}

/* Units of images, or images of which each has several pieces. */
static int64_t image_units(const struct convolution_job *job) {
    return divided_up(job->c.batch, job->images);
}

/* Pieces with the same weight. */
static int64_t pieces_each(const struct convolution_job *job) {
    return job->cut.pieces / job->cut.weights;
}

/* ---- whole images ---- */

static bool run_images(const struct convolution_job *job, int64_t unit, char *sums, char *scratch, bool add) {
    int64_t image = unit * job->images, images = least(job->images, job->c.batch - image), size = job->own_size;
    int64_t sources = job->c.groups * job->source_channels * job->source_places;
    int64_t results = job->c.groups * job->result_channels * job->places;
    const struct dnnl_convolution *convolution = unit + 1 < image_units(job) ? job->some : job->last;
    char *from = (char *)(uintptr_t)job->source + image * sources * size;
    char *own = (job->way == WAY_WEIGHT ? (char *)(uintptr_t)job->left : job->result) + image * results * size;
    char *other = job->widen ? scratch + job->cut.source_bytes : own;
    if (job->widen) {
        convolution_convert(job->widen, images * sources, from, scratch);
        from = scratch;
    }
    if (job->widen && job->way == WAY_WEIGHT) {
        convolution_convert(job->widen, images * results, own, other);
    }
    void *weight = sums ? sums : job->weight_bytes ? job->workspace : (void *)(uintptr_t)job->left;
    bool back = job->way == WAY_BACK,
         right = dnnl_convolution_run(convolution, back ? other : from, weight, job->bias, back ? from : other, add,
                                      scratch + copies_bytes(job));
    if (job->narrow && job->way != WAY_WEIGHT) {
        convolution_convert(job->narrow, images * results, other, own);
    }
    return right;
}

/* ---- pieces ---- */

int64_t convolution_piece_result(const struct convolution_job *job, const struct convolution_piece *piece) {
    const int64_t *extent = places_extents(job), *first = &piece->first[SIDE_PLACES];
    int64_t channel = piece->first[SIDE_GROUPS] * job->result_channels + piece->first[SIDE_CHANNELS];
    return channel * job->places + (first[0] * extent[1] + first[1]) * extent[2] + first[2];
}

/* The place of a piece in the weight, or in its gradient. */
static int64_t piece_weight(const struct convolution_job *job, const struct convolution_piece *piece) {
    int64_t channel = piece->first[SIDE_GROUPS] * job->result_channels + piece->first[SIDE_CHANNELS];
    return channel * job->depth + piece->first[SIDE_SOURCES] * job->kernel;
}

/* A piece's places of the source. */
static char *piece_source(const struct convolution_job *job, const struct convolution_piece *piece, int64_t image,
                          char *scratch) {
    int64_t size = job->own_size, channels = job->c.groups * job->source_channels;
    char *source = (char *)(uintptr_t)job->source + image * channels * job->source_places * size;
    if (pieces_each(job) > 1) {
        struct convolution c;
        struct dnnl_around around;
        convolution_of_piece(job, piece, &c, &around);
        convolution_copy_source(job, piece, &c, source, scratch);
        return scratch;
    }
    source +=
        (piece->first[SIDE_GROUPS] * job->source_channels + piece->first[SIDE_SOURCES]) * job->source_places * size;
    if (!job->widen) {
        return source;
    }
    int64_t own = piece->extent[SIDE_GROUPS] * piece->extent[SIDE_SOURCES];
    convolution_convert(job->widen, own * job->source_places, source, scratch);
    return scratch;
}

static bool run_piece(const struct convolution_job *job, int64_t image, int64_t number, char *sums, char *scratch,
                      bool add) {
    struct convolution_piece piece = convolution_piece_at(&job->cut, number);
    const struct dnnl_convolution *convolution = job->pieces[piece.kind];
    int64_t size = job->size;
    char *source = piece_source(job, &piece, image, scratch), *weight = sums;
    char *own = job->way == WAY_WEIGHT ? (char *)(uintptr_t)job->left : job->result;
    own += image * job->c.groups * job->result_channels * job->places * job->own_size;
    char *other = job->widen ? scratch + job->cut.source_bytes : own + convolution_piece_result(job, &piece) * size;
    if (job->widen && job->way == WAY_WEIGHT) {
        convolution_convert_piece(job, &piece, job->widen, own, other);
    }
    int64_t at = piece_weight(job, &piece);
    if (weight) {
        weight += at * size;
    } else if (dnnl_convolution_weight_bytes(convolution)) {
        weight = job->workspace + (size_t)(number / pieces_each(job)) * job->weight_bytes;
    } else {
        weight = (char *)(uintptr_t)job->left + at * size;
    }
    const char *bias = job->bias ? job->bias + at / job->depth * size : NULL;
    bool back = job->way == WAY_BACK,
         right = dnnl_convolution_run(convolution, back ? other : source, weight, bias, back ? source : other, add,
                                      scratch + copies_bytes(job));
    if (job->narrow && job->way != WAY_WEIGHT) {
        convolution_convert_piece(job, &piece, job->narrow, own, other);
    }
    return right;
}

/* The weight of some pieces in oneDNN's order. */
static bool prepare_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct convolution_job *job = (struct convolution_job *)base;
    int64_t begin = cpu_part_begin(job->cut.weights, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->cut.weights, lane->part + 1, base->parts);
    for (int64_t number = begin + lane->position; number < end; number++) {
        struct convolution_piece piece = convolution_piece_at(&job->cut, number * pieces_each(job));
        const struct dnnl_convolution *convolution = job->pieces[piece.kind];
        if (dnnl_convolution_weight_bytes(convolution) &&
            !dnnl_convolution_prepare(convolution, job->left + piece_weight(job, &piece) * job->size,
                                      job->workspace + (size_t)number * job->weight_bytes,
                                      images_scratch(job, lane->number) + copies_bytes(job))) {
            cpu_job_fail(base);
        }
        if (number + 1 < end && cpu_job_stops(base)) {
            lane->position = number + 1 - begin;
            return false;
        }
    }
    return true;
}

/* ---- parts ---- */

static bool run_unit(const struct convolution_job *job, int64_t image, int64_t piece, char *sums, char *scratch,
                     bool add) {
    return job->some ? run_images(job, image, sums, scratch, add) : run_piece(job, image, piece, sums, scratch, add);
}

static bool images_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct convolution_job *job = (struct convolution_job *)base;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts);
    for (int64_t unit = begin + lane->position; unit < end; unit++) {
        if (!run_unit(job, unit / job->cut.pieces, unit % job->cut.pieces, NULL, images_scratch(job, lane->number),
                      false)) {
            cpu_job_fail(base);
        }
        if (unit + 1 < end && cpu_job_stops(base)) {
            lane->position = unit + 1 - begin;
            return false;
        }
    }
    return true;
}

/* A slice of the images, for some elements of the weight. */
static bool slices_part(struct cpu_job *base, struct cpu_lane *lane) {
    struct convolution_job *job = (struct convolution_job *)base;
    int64_t images = image_units(job), each = pieces_each(job), all = (images + 1) * each;
    int64_t begin = cpu_part_begin(job->units, lane->part, base->parts);
    int64_t end = cpu_part_begin(job->units, lane->part + 1, base->parts), position = lane->position % all;
    for (int64_t unit = begin + lane->position / all; unit < end; unit++) {
        int64_t slice = unit / job->cut.weights, weight = unit % job->cut.weights;
        int64_t first = cpu_part_begin(images, slice, (unsigned)job->slices);
        int64_t steps = (cpu_part_begin(images, slice + 1, (unsigned)job->slices) - first) * each;
        while (position < steps) {
            if (!run_unit(job, first + position / each, weight * each + position % each,
                          convolution_slice_sums(job, slice), images_scratch(job, lane->number), position > 0)) {
                cpu_job_fail(base);
            }
            position++;
            if ((position < steps || unit + 1 < end) && cpu_job_stops(base)) {
                lane->position = (unit - begin) * all + position;
                return false;
            }
        }
        position = 0;
    }
    return true;
}

static void slices_end(struct cpu_job *base) {
    struct convolution_job *job = (struct convolution_job *)base;
    int64_t elements = job->c.y_channels * job->depth;
    float *result = (void *)job->result;
    for (int64_t slice = 1; slice < job->slices; slice++) {
        const float *part = (const void *)convolution_slice_sums(job, slice);
        for (int64_t i = 0; i < elements; i++) {
            result[i] += part[i];
        }
    }
}

static bool images_again(struct cpu_job *base) {
    if (base->run != prepare_part) {
        return false;
    }
    base->run = images_part;
    return true;
}

static void images_done(struct cpu_job *base) {
    convolution_images_release((struct convolution_job *)base);
}

/* ---- the job ---- */

static const enum dnnl_way ways[] = {[WAY_FORWARD] = DNNL_FORWARD, [WAY_BACK] = DNNL_BACK, [WAY_WEIGHT] = DNNL_WEIGHT};

static void fit(size_t needed, size_t *bytes) {
    *bytes = needed > *bytes ? needed : *bytes;
}

static bool find_images(struct convolution_job *job, struct dnnl *dnnl) {
    const struct convolution *c = &job->c;
    double work = (double)c->y_channels * (double)(c->x_channels / c->groups) * (double)job->kernel *
                  (double)convolution_volume(c->y);
    job->images = work < IMAGES_WORK ? least((int64_t)(IMAGES_WORK / work), c->batch) : 1;
    int64_t rest = c->batch - (image_units(job) - 1) * job->images;
    job->some = dnnl_convolution_find(dnnl, ways[job->way], c, job->images, job->bias != NULL, NULL);
    job->last = dnnl_convolution_find(dnnl, ways[job->way], c, rest, job->bias != NULL, NULL);
    if (!job->some || !job->last) {
        return false;
    }
    job->cut.source_bytes *= job->images; /* of halves */
    job->cut.other_bytes *= job->images;
    fit((size_t)copies_bytes(job) + dnnl_convolution_scratch_bytes(job->some), &job->scratch_bytes);
    fit((size_t)copies_bytes(job) + dnnl_convolution_scratch_bytes(job->last), &job->scratch_bytes);
    job->weight_bytes = dnnl_convolution_weight_bytes(job->some);
    return dnnl_convolution_weight_bytes(job->last) == job->weight_bytes;
}

/* The first piece of a kind; false: there is none. */
static bool kind_first(const struct convolution_cut *cut, unsigned kind, struct convolution_piece *piece) {
    int64_t number = 0;
    for (int side = 0; side < SIDES; side++) {
        number = number * cut->count[side] + (kind >> side & 1 ? cut->count[side] - 1 : 0);
    }
    *piece = convolution_piece_at(cut, number);
    return piece->kind == kind;
}

static bool find_pieces(struct convolution_job *job, struct dnnl *dnnl) {
    const unsigned weights = (1 << SIDE_PLACES) - 1;
    struct convolution_piece piece;
    unsigned kinds = 0;
    job->images = 1;
    for (unsigned kind = 0; kind < CONVOLUTION_KINDS; kind++) {
        kinds += kind_first(&job->cut, kind, &piece);
    }
    if (kinds > KINDS_MOST) {
        return false;
    }
    for (unsigned kind = 0; kind < CONVOLUTION_KINDS; kind++) {
        struct convolution c;
        struct dnnl_around around;
        if (!kind_first(&job->cut, kind, &piece)) {
            continue;
        }
        convolution_of_piece(job, &piece, &c, &around);
        if (job->widen) { /* its places lie together */
            memcpy(around.places, job->way == WAY_BACK ? c.x : c.y, sizeof around.places);
        }
        const struct dnnl_convolution *made =
            dnnl_convolution_find(dnnl, ways[job->way], &c, 1, job->bias != NULL, &around);
        job->pieces[kind] = made;
        /* All places have the weight in one order. */
        if (!made || (job->way != WAY_WEIGHT && !dnnl_convolution_same_weight(job->pieces[kind & weights], made))) {
            return false;
        }
        fit((size_t)copies_bytes(job) + dnnl_convolution_scratch_bytes(made), &job->scratch_bytes);
        fit(dnnl_convolution_weight_bytes(made), &job->weight_bytes);
    }
    return true;
}

bool convolution_images_init(struct convolution_job *job, struct dnnl *dnnl) {
    const struct convolution *c = &job->c;
    if (!dnnl || job->is_f64 || c->batch < IMAGES_LEAST || (job->bias && job->way != WAY_FORWARD) ||
        !convolution_cut_make(job, &job->cut)) {
        return false;
    }
    if (!(job->cut.pieces == 1 ? find_images : find_pieces)(job, dnnl)) {
        return false;
    }
    job->units = image_units(job) * job->cut.pieces;
    job->base.run = images_part;
    job->base.done = images_done;
    if (job->way == WAY_WEIGHT) {
        int64_t elements = c->y_channels * job->depth;
        job->slices = least(least(image_units(job), SLICES_MOST), most(SLICES_ELEMENTS / elements, 1));
        job->slice_bytes = ((size_t)elements * sizeof(float) + 63) & ~(size_t)63;
        job->units = job->slices * job->cut.weights;
        job->base.run = slices_part;
        job->base.end = slices_end;
    } else if (job->cut.pieces > 1 && job->weight_bytes) {
        job->base.run = prepare_part;
        job->base.again = images_again;
    }
    return true;
}

uint64_t convolution_images_workspace(const struct convolution_job *job) {
    return weights_bytes(job) + slices_bytes(job) + (uint64_t)job->scratch_bytes * job->threads;
}

bool convolution_images_begin(struct convolution_job *job) {
    return !job->some || !job->weight_bytes ||
           dnnl_convolution_prepare(job->some, job->left, job->workspace, images_scratch(job, 0) + copies_bytes(job));
}

void convolution_images_release(struct convolution_job *job) {
    dnnl_convolution_release(job->some);
    dnnl_convolution_release(job->last);
    job->some = job->last = NULL;
    for (unsigned kind = 0; kind < CONVOLUTION_KINDS; kind++) {
        dnnl_convolution_release(job->pieces[kind]);
        job->pieces[kind] = NULL;
    }
}
