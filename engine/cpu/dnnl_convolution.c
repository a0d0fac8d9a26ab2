#include "engine/cpu/dnnl.h"

#include <stdlib.h>
#include <string.h>

#include "engine/cpu/dnnl_impl.h"

enum {
    KEPT = 128, /* convolutions: a network has some dozens, three ways each */
    /* The largest blocks of oneDNN's products of f32 (2.6: with AVX-512, of 9984 by 384 and 384 by 384), and what they are rounded up to. */
    PACKED_LONG = 10000,
    PACKED_SHORT = 384,
    PACKED_DEPTH = 384,
    PACKED_DEPTH_LEAST = 128,
    PACKED_MULTIPLE = 48,
    PACKED_MORE = 1 << 15, /* bytes, for addresses that are rounded up */
};

struct dnnl_kept {
    enum dnnl_way way;
    bool bias;
    int64_t images;
    struct convolution convolution;
    struct dnnl_around around;
    struct dnnl_convolution *made; /* NULL: there is none */
    unsigned users;
    uint64_t last_use; /* dnnl->uses, then */
};

enum { ROLE_X, ROLE_WEIGHT, ROLE_Y, ROLES };

struct reorder {
    dnnl_primitive_t primitive; /* NULL: there is none */
    dnnl_memory_desc_t scratchpad;
};

struct dnnl_convolution {
    struct dnnl *dnnl;
    enum dnnl_way way;
    bool bias;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    /* Memory as tensord has it, and as the primitive wants it. reorder: from one to the other where they differ, or back for the result; of
     * the weight's gradient it may also add. */
    dnnl_memory_desc_t plain[ROLES], wanted[ROLES], bias_memory, scratchpad;
    struct reorder reorder[ROLES], reorder_add;
    /* In the scratch memory. Primitives run one after another, so they have one place for their scratchpads. At its end is what nobody
     * touches (packed_bytes()). */
    size_t offset[ROLES], scratchpad_offset, scratch;
};

static unsigned result_of(enum dnnl_way way) {
    return way == DNNL_FORWARD ? ROLE_Y : way == DNNL_BACK ? ROLE_X : ROLE_WEIGHT;
}

/* `around`: the extents of what the places lie among. */
static bool plain_image(const struct dnnl *dnnl, const struct convolution *c, int64_t images, int64_t channels,
                        const int64_t *extents, const int64_t *around, dnnl_memory_desc_t *out) {
    dnnl_dims_t dims = {images, channels}, strides;
    int n = 2 + c->axes;
    int64_t stride = 1;
    for (int i = c->axes - 1; i >= 0; i--) {
        int axis = CONVOLUTION_AXES - c->axes + i;
        dims[2 + i] = extents[axis];
        strides[2 + i] = stride;
        stride *= around[axis];
    }
    strides[1] = stride;
    strides[0] = stride * channels;
    return dnnl->memory_desc_init_by_strides(out, n, dims, dnnl_f32, strides) == dnnl_success;
}

/* Of the way back the launch has the weight of each group transposed. `channels`: x's of a group in memory. */
static bool plain_weight(const struct dnnl *dnnl, const struct convolution *c, bool transposed, int64_t channels,
                         dnnl_memory_desc_t *out) {
    int64_t y = c->y_channels / c->groups, x = c->x_channels / c->groups, kernel = convolution_volume(c->kernel);
    dnnl_dims_t dims = {c->groups, y, x}, strides = {y * channels * kernel, transposed ? kernel : channels * kernel,
                                                     transposed ? y * kernel : kernel};
    int n = 3 + c->axes;
    int64_t stride = 1;
    for (int i = c->axes - 1; i >= 0; i--) {
        dims[3 + i] = c->kernel[CONVOLUTION_AXES - c->axes + i];
        strides[3 + i] = stride;
        stride *= dims[3 + i];
    }
    int skip = c->groups == 1;
    return dnnl->memory_desc_init_by_strides(out, n - skip, dims + skip, dnnl_f32, strides + skip) == dnnl_success;
}

static bool describe(struct dnnl_convolution *this, const struct convolution *c, int64_t images,
                     const struct dnnl_around *around) {
    const struct dnnl *dnnl = this->dnnl;
    bool back = this->way == DNNL_BACK;
    dnnl_dims_t channels = {c->y_channels}, one = {1};
    return plain_image(dnnl, c, images, c->x_channels, c->x, back ? around->places : c->x, &this->plain[ROLE_X]) &&
           plain_image(dnnl, c, images, c->y_channels, c->y, back ? c->y : around->places, &this->plain[ROLE_Y]) &&
           plain_weight(dnnl, c, back, around->channels, &this->plain[ROLE_WEIGHT]) &&
           dnnl->memory_desc_init_by_strides(&this->bias_memory, 1, channels, dnnl_f32, one) == dnnl_success;
}

/* The memory that an operand may have in any order, which oneDNN chooses. */
static dnnl_memory_desc_t any(const struct dnnl *dnnl, const dnnl_memory_desc_t *plain) {
    dnnl_memory_desc_t any;
    dnnl->memory_desc_init_by_tag(&any, plain->ndims, plain->dims, dnnl_f32, dnnl_format_tag_any);
    return any;
}

static dnnl_status_t primitive_describe(struct dnnl_convolution *this, const struct convolution *c,
                                        dnnl_primitive_attr_t attributes) {
    const struct dnnl *dnnl = this->dnnl;
    dnnl_convolution_desc_t forward, back;
    dnnl_dims_t stride, dilation, before, after;
    dnnl_memory_desc_t x = any(dnnl, &this->plain[ROLE_X]), w = any(dnnl, &this->plain[ROLE_WEIGHT]);
    dnnl_memory_desc_t y = any(dnnl, &this->plain[ROLE_Y]);
    for (int i = 0; i < c->axes; i++) {
        int axis = CONVOLUTION_AXES - c->axes + i;
        int64_t reach = (c->kernel[axis] - 1) * c->dilation[axis] + 1;
        stride[i] = c->stride[axis];
        dilation[i] = c->dilation[axis] - 1;
        before[i] = c->padding[axis];
        after[i] = (c->y[axis] - 1) * c->stride[axis] + reach - c->x[axis] - c->padding[axis];
    }
    dnnl_prop_kind_t kind = this->way == DNNL_FORWARD ? dnnl_forward_inference : dnnl_forward_training;
    dnnl_status_t status = dnnl->dilated_convolution_forward_desc_init(&forward, kind, dnnl_convolution_direct, &x, &w,
                                                                       this->bias ? &this->bias_memory : NULL, &y,
                                                                       stride, dilation, before, after);
    if (status != dnnl_success) {
        return status;
    }
    if (this->way == DNNL_FORWARD) {
        return dnnl->primitive_desc_create(&this->desc, &forward, attributes, dnnl->engine, NULL);
    }
    dnnl_primitive_desc_t hint;
    status = dnnl->primitive_desc_create(&hint, &forward, NULL, dnnl->engine, NULL);
    if (status != dnnl_success) {
        return status;
    }
    status = this->way == DNNL_BACK
                 ? dnnl->dilated_convolution_backward_data_desc_init(&back, dnnl_convolution_direct, &x, &w, &y, stride,
                                                                     dilation, before, after)
                 : dnnl->dilated_convolution_backward_weights_desc_init(&back, dnnl_convolution_direct, &x, &w, NULL,
                                                                        &y, stride, dilation, before, after);
    if (status == dnnl_success) {
        status = dnnl->primitive_desc_create(&this->desc, &back, attributes, dnnl->engine, hint);
    }
    dnnl->primitive_desc_destroy(hint);
    return status;
}

static const char *implementation(const struct dnnl_convolution *this) {
    const char *name = "";
    this->dnnl->primitive_desc_query(this->desc, dnnl_query_impl_info_str, 0, &name);
    return name;
}

/* Whether the implementation is one of the fast ones: "ref:any" is a loop without any care. */
static bool is_fast(const struct dnnl_convolution *this) {
    return !strstr(implementation(this), "ref");
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Implementations by products of matrices copy blocks of these into memory that oneDNN takes for each product and gives back: it is in no
 * scratchpad. So many bytes at most, by each thread. */
static size_t packed_bytes(const struct dnnl_convolution *this, const struct convolution *c) {
    int64_t y = c->y_channels / c->groups, seen = c->x_channels / c->groups * convolution_volume(c->kernel);
    int64_t places = convolution_volume(c->y), m = places, n = y, k = seen;
    if (!strstr(implementation(this), "gemm")) {
        return 0;
    }
    if (this->way == DNNL_BACK) {
        n = seen;
        k = y;
    } else if (this->way == DNNL_WEIGHT) {
        m = seen;
        k = places;
    }
    int64_t rows = least(most(m, n), PACKED_LONG) + least(least(m, n), PACKED_SHORT) + 2 * PACKED_MULTIPLE;
    return sizeof(float) * (size_t)(rows * most(least(k, PACKED_DEPTH), PACKED_DEPTH_LEAST)) + PACKED_MORE;
}

/* Makes room for a scratchpad, if there is less. */
static void scratchpad_fit(struct dnnl_convolution *this, dnnl_primitive_desc_t desc, dnnl_memory_desc_t *scratchpad,
                           size_t *bytes) {
    *scratchpad = *this->dnnl->primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    size_t needed = dnnl_rounded(this->dnnl->memory_desc_get_size(scratchpad));
    *bytes = needed > *bytes ? needed : *bytes;
}

/* A reorder that may add to what is there. */
static bool reorder_create(struct dnnl_convolution *this, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                           bool add, struct reorder *out, size_t *scratchpad_bytes) {
    const struct dnnl *dnnl = this->dnnl;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t desc = NULL;
    bool made =
        dnnl->primitive_attr_create(&attributes) == dnnl_success && dnnl_attributes_fill(dnnl, add, attributes) &&
        dnnl->reorder_primitive_desc_create(&desc, from, dnnl->engine, to, dnnl->engine, attributes) == dnnl_success;
    if (made) {
        scratchpad_fit(this, desc, &out->scratchpad, scratchpad_bytes);
        made = dnnl->primitive_create(&out->primitive, desc) == dnnl_success;
        dnnl->primitive_desc_destroy(desc);
    }
    if (attributes) {
        dnnl->primitive_attr_destroy(attributes);
    }
    return made;
}

/* What the primitive wants to have in another order, with places for it in the scratch memory. */
static bool reorders_create(struct dnnl_convolution *this, const struct convolution *c) {
    static const dnnl_query_t queries[3][ROLES] = {
        [DNNL_FORWARD] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        [DNNL_BACK] = {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
        [DNNL_WEIGHT] = {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md},
    };
    const struct dnnl *dnnl = this->dnnl;
    unsigned result = result_of(this->way);
    size_t scratchpad = 0;
    for (unsigned role = 0; role < ROLES; role++) {
        this->wanted[role] = *dnnl->primitive_desc_query_md(this->desc, queries[this->way][role], 0);
        bool sums = this->way == DNNL_WEIGHT && role == ROLE_WEIGHT; /* always from its own memory, to be added up */
        if (dnnl->memory_desc_equal(&this->wanted[role], &this->plain[role]) && !sums) {
            continue;
        }
        const dnnl_memory_desc_t *from = &this->plain[role], *to = &this->wanted[role];
        if (!reorder_create(this, role == result ? to : from, role == result ? from : to, false, &this->reorder[role],
                            &scratchpad)) {
            return false;
        }
        if (role != ROLE_WEIGHT || sums) { /* of other ways the caller has room for the weight */
            this->offset[role] = this->scratch;
            this->scratch += dnnl_rounded(dnnl->memory_desc_get_size(to));
        }
    }
    if (this->way == DNNL_WEIGHT && !reorder_create(this, &this->wanted[ROLE_WEIGHT], &this->plain[ROLE_WEIGHT], true,
                                                    &this->reorder_add, &scratchpad)) {
        return false;
    }
    scratchpad_fit(this, this->desc, &this->scratchpad, &scratchpad);
    this->scratchpad_offset = this->scratch;
    this->scratch += scratchpad + dnnl_rounded(packed_bytes(this, c));
    return true;
}

static void convolution_destroy(struct dnnl_convolution *this) {
    if (!this) {
        return;
    }
    const struct dnnl *dnnl = this->dnnl;
    for (unsigned role = 0; role < ROLES; role++) {
        if (this->reorder[role].primitive) {
            dnnl->primitive_destroy(this->reorder[role].primitive);
        }
    }
    if (this->reorder_add.primitive) {
        dnnl->primitive_destroy(this->reorder_add.primitive);
    }
    if (this->primitive) {
        dnnl->primitive_destroy(this->primitive);
    }
    if (this->desc) {
        dnnl->primitive_desc_destroy(this->desc);
    }
    free(this);
}

static struct dnnl_convolution *convolution_create(struct dnnl *dnnl, enum dnnl_way way,
                                                   const struct convolution *convolution, int64_t images, bool bias,
                                                   const struct dnnl_around *around) {
    struct dnnl_convolution *this = calloc(1, sizeof *this);
    dnnl_primitive_attr_t attributes = NULL;
    if (!this) {
        dnnl->failed = true;
        return NULL;
    }
    this->dnnl = dnnl;
    this->way = way;
    this->bias = bias;
    dnnl->set_threads(1); /* of the calling thread, which need not be the one that has loaded the library */
    dnnl_status_t status = dnnl_out_of_memory;
    if (dnnl->primitive_attr_create(&attributes) == dnnl_success && dnnl_attributes_fill(dnnl, false, attributes) &&
        describe(this, convolution, images, around)) {
        status = primitive_describe(this, convolution, attributes);
    }
    if (status == dnnl_success && !is_fast(this)) {
        status = dnnl_unimplemented;
    }
    if (status == dnnl_success &&
        (!reorders_create(this, convolution) || dnnl->primitive_create(&this->primitive, this->desc) != dnnl_success)) {
        status = dnnl_out_of_memory;
    }
    if (attributes) {
        dnnl->primitive_attr_destroy(attributes);
    }
    if (status == dnnl_success) {
        return this;
    }
    dnnl->failed = dnnl->failed || status == dnnl_out_of_memory;
    convolution_destroy(this);
    return NULL;
}

static bool same(const struct dnnl_kept *kept, enum dnnl_way way, const struct convolution *c, int64_t images,
                 bool bias, const struct dnnl_around *around) {
    const struct convolution *other = &kept->convolution;
    size_t bytes = sizeof c->x;
    return kept->way == way && kept->images == images && kept->bias == bias && other->axes == c->axes &&
           other->groups == c->groups && other->x_channels == c->x_channels && other->y_channels == c->y_channels &&
           !memcmp(other->x, c->x, bytes) && !memcmp(other->y, c->y, bytes) &&
           !memcmp(other->kernel, c->kernel, bytes) && !memcmp(other->stride, c->stride, bytes) &&
           !memcmp(other->padding, c->padding, bytes) && !memcmp(other->dilation, c->dilation, bytes) &&
           kept->around.channels == around->channels && !memcmp(kept->around.places, around->places, bytes);
}

/* The one whose last use is longest ago; NULL: all are in use. */
static struct dnnl_kept *kept_oldest(struct dnnl *dnnl) {
    struct dnnl_kept *oldest = NULL;
    for (unsigned i = 0; i < dnnl->n_kept; i++) {
        struct dnnl_kept *kept = &dnnl->kept[i];
        if (kept->users == 0 && (!oldest || kept->last_use < oldest->last_use)) {
            oldest = kept;
        }
    }
    return oldest;
}

/* A place for a convolution that is not kept yet: a new one, or the oldest one's. NULL: there is no memory. */
static struct dnnl_kept *kept_place(struct dnnl *dnnl) {
    struct dnnl_kept *oldest = dnnl->n_kept >= KEPT ? kept_oldest(dnnl) : NULL;
    if (oldest) {
        convolution_destroy(oldest->made);
        return oldest;
    }
    if (dnnl->n_kept == dnnl->room) {
        struct dnnl_kept *more = realloc(dnnl->kept, 2 * (size_t)dnnl->room * sizeof *more);
        dnnl->failed = !more;
        if (!more) {
            return NULL;
        }
        dnnl->kept = more;
        dnnl->room *= 2;
    }
    return &dnnl->kept[dnnl->n_kept++];
}

const struct dnnl_convolution *dnnl_convolution_find(struct dnnl *dnnl, enum dnnl_way way,
                                                     const struct convolution *convolution, int64_t images, bool bias,
                                                     const struct dnnl_around *around) {
    struct dnnl_kept *kept = NULL;
    struct dnnl_around whole = {.channels = convolution->x_channels / convolution->groups};
    memcpy(whole.places, way == DNNL_BACK ? convolution->x : convolution->y, sizeof whole.places);
    around = around ? around : &whole;
    pthread_mutex_lock(&dnnl->lock);
    for (unsigned i = 0; i < dnnl->n_kept && !kept; i++) {
        kept = same(&dnnl->kept[i], way, convolution, images, bias, around) ? &dnnl->kept[i] : NULL;
    }
    if (dnnl->failed) {
        kept = NULL;
    } else if (!kept && (kept = kept_place(dnnl))) {
        *kept = (struct dnnl_kept){
            .way = way, .bias = bias, .images = images, .convolution = *convolution, .around = *around};
        kept->made = convolution_create(dnnl, way, convolution, images, bias, around);
    }
    const struct dnnl_convolution *found = kept ? kept->made : NULL;
    if (kept) {
        kept->users += found != NULL;
        kept->last_use = dnnl->uses++;
    }
    pthread_mutex_unlock(&dnnl->lock);
    return found;
}

void dnnl_convolution_release(const struct dnnl_convolution *this) {
    if (!this) {
        return;
    }
    struct dnnl *dnnl = this->dnnl;
    pthread_mutex_lock(&dnnl->lock);
    for (unsigned i = 0; i < dnnl->n_kept; i++) {
        dnnl->kept[i].users -= dnnl->kept[i].made == this;
    }
    /* There are more than are to be kept if all have been in use at once. */
    struct dnnl_kept *oldest = dnnl->n_kept > KEPT ? kept_oldest(dnnl) : NULL;
    if (oldest) {
        convolution_destroy(oldest->made);
        *oldest = dnnl->kept[--dnnl->n_kept];
    }
    pthread_mutex_unlock(&dnnl->lock);
}

bool dnnl_convolutions_init(struct dnnl *dnnl) {
    dnnl->kept = calloc(KEPT, sizeof *dnnl->kept);
    dnnl->room = KEPT;
    return dnnl->kept;
}

void dnnl_convolutions_finish(struct dnnl *dnnl) {
    for (unsigned i = 0; i < dnnl->n_kept; i++) {
        convolution_destroy(dnnl->kept[i].made);
    }
    free(dnnl->kept);
}

size_t dnnl_convolution_weight_bytes(const struct dnnl_convolution *this) {
    bool own = this->way != DNNL_WEIGHT && this->reorder[ROLE_WEIGHT].primitive;
    return own ? dnnl_rounded(this->dnnl->memory_desc_get_size(&this->wanted[ROLE_WEIGHT])) : 0;
}

size_t dnnl_convolution_scratch_bytes(const struct dnnl_convolution *this) {
    return this->scratch;
}

bool dnnl_convolution_same_weight(const struct dnnl_convolution *a, const struct dnnl_convolution *b) {
    return a->dnnl->memory_desc_equal(&a->wanted[ROLE_WEIGHT], &b->wanted[ROLE_WEIGHT]);
}

/* ---- execution, by the calling thread ---- */

static bool call_reorder(struct dnnl_call *call, const struct reorder *reorder, const dnnl_memory_desc_t *from,
                         const void *source, const dnnl_memory_desc_t *to, const void *target, const void *scratchpad) {
    dnnl_call_add(call, DNNL_ARG_FROM, from, source);
    dnnl_call_add(call, DNNL_ARG_TO, to, target);
    dnnl_call_add(call, DNNL_ARG_SCRATCHPAD, &reorder->scratchpad, scratchpad);
    return dnnl_call_run(call, reorder->primitive);
}

bool dnnl_convolution_prepare(const struct dnnl_convolution *this, const void *weight, void *prepared, void *scratch) {
    struct dnnl_call call;
    if (!dnnl_call_begin(&call, this->dnnl)) {
        return false;
    }
    bool right = call_reorder(&call, &this->reorder[ROLE_WEIGHT], &this->plain[ROLE_WEIGHT], weight,
                              &this->wanted[ROLE_WEIGHT], prepared, (char *)scratch + this->scratchpad_offset);
    dnnl_call_end(&call);
    return right;
}

static bool convolution_execute(const struct dnnl_convolution *this, struct dnnl_call *call, void *const *operands,
                                const void *bias, char *scratch) {
    static const int names[3][ROLES] = {
        [DNNL_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
        [DNNL_BACK] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
        [DNNL_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
    };
    for (unsigned role = 0; role < ROLES; role++) {
        bool moved = this->reorder[role].primitive && (role != ROLE_WEIGHT || this->way == DNNL_WEIGHT);
        dnnl_call_add(call, names[this->way][role], &this->wanted[role],
                      moved ? scratch + this->offset[role] : operands[role]);
    }
    if (this->bias) {
        dnnl_call_add(call, DNNL_ARG_BIAS, &this->bias_memory, bias);
    }
    dnnl_call_add(call, DNNL_ARG_SCRATCHPAD, &this->scratchpad, scratch + this->scratchpad_offset);
    return dnnl_call_run(call, this->primitive);
}

bool dnnl_convolution_run(const struct dnnl_convolution *this, void *x, void *prepared, const void *bias, void *y,
                          bool add, void *scratch) {
    struct dnnl_call call;
    void *const operands[ROLES] = {x, prepared, y};
    unsigned result = result_of(this->way);
    char *memory = scratch;
    if (!dnnl_call_begin(&call, this->dnnl)) {
        return false;
    }
    bool right = true;
    for (unsigned role = 0; role < ROLES && right; role++) {
        if (role != result && role != ROLE_WEIGHT && this->reorder[role].primitive) {
            right = call_reorder(&call, &this->reorder[role], &this->plain[role], operands[role], &this->wanted[role],
                                 memory + this->offset[role], memory + this->scratchpad_offset);
        }
    }
    right = right && convolution_execute(this, &call, operands, bias, memory);
    if (right && this->reorder[result].primitive) {
        right = call_reorder(&call, add ? &this->reorder_add : &this->reorder[result], &this->wanted[result],
                             memory + this->offset[result], &this->plain[result], operands[result],
                             memory + this->scratchpad_offset);
    }
    dnnl_call_end(&call);
    return right;
}
