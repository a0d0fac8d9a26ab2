#include "engine/cpu/dnnl.h"

#include <stdlib.h>
#include <string.h>

#include "engine/cpu/dnnl_impl.h"

struct dnnl_product {
    struct dnnl *dnnl;
    int64_t m, n, k;
    dnnl_memory_desc_t a, b, c;
    struct {
        dnnl_primitive_t primitive;
        dnnl_memory_desc_t scratchpad;
    } sets, adds;
    size_t scratch;
    struct dnnl_order order;
    /* Under the lock. */
    bool kept;
    unsigned users;
    uint64_t last_use; /* dnnl->uses, then */
};

/* Whether the order of b, which oneDNN has chosen, is one of struct dnnl_order; then that is it. */
static bool order_find(struct dnnl_product *this) {
    const dnnl_blocking_desc_t *blocks = &this->b.format_desc.blocking;
    bool paired = this->b.format_kind == dnnl_blocked && blocks->inner_nblks == 3 && blocks->inner_idxs[0] == 0 &&
                  blocks->inner_idxs[1] == 1 && blocks->inner_idxs[2] == 0 && blocks->inner_blks[2] == 2 &&
                  2 * blocks->inner_blks[0] == DNNL_PAIRED && blocks->inner_blks[1] % 16 == 0 &&
                  blocks->inner_blks[1] <= DNNL_PAIRED_COLUMNS && this->b.offset0 == 0;
    if (paired) {
        this->order = (struct dnnl_order){
            .columns = blocks->inner_blks[1], .down = blocks->strides[0], .across = blocks->strides[1]};
    }
    return paired;
}

/* b becomes what the primitive makes of it. */
static dnnl_status_t primitive_make(struct dnnl_product *this, dnnl_primitive_attr_t attributes, dnnl_primitive_t *out,
                                    dnnl_memory_desc_t *scratchpad) {
    const struct dnnl *dnnl = this->dnnl;
    const char *name = "";
    dnnl_matmul_desc_t product;
    dnnl_primitive_desc_t desc;
    dnnl_status_t status = dnnl->matmul_desc_init(&product, &this->a, &this->b, NULL, &this->c);
    if (status != dnnl_success) {
        return status;
    }
    status = dnnl->primitive_desc_create(&desc, &product, attributes, dnnl->engine, NULL);
    if (status != dnnl_success) {
        return status;
    }
    dnnl->primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    *scratchpad = *dnnl->primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    this->b = *dnnl->primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
    size_t bytes = dnnl_rounded(dnnl->memory_desc_get_size(scratchpad));
    this->scratch = bytes > this->scratch ? bytes : this->scratch;
    /* An implementation with the processor's instructions for bf16 says so in its name. */
    status = strstr(name, "bf16") ? dnnl->primitive_create(out, desc) : dnnl_unimplemented;
    dnnl->primitive_desc_destroy(desc);
    return status;
}

static dnnl_status_t primitive_add(struct dnnl_product *this, bool add) {
    const struct dnnl *dnnl = this->dnnl;
    dnnl_primitive_attr_t attributes = NULL;
    if (dnnl->primitive_attr_create(&attributes) != dnnl_success) {
        return dnnl_out_of_memory;
    }
    dnnl_status_t status = dnnl_out_of_memory;
    if (dnnl_attributes_fill(dnnl, add, attributes)) {
        status = primitive_make(this, attributes, add ? &this->adds.primitive : &this->sets.primitive,
                                add ? &this->adds.scratchpad : &this->sets.scratchpad);
    }
    dnnl->primitive_attr_destroy(attributes);
    return status;
}

static void primitives_destroy(struct dnnl_product *this) {
    if (this->sets.primitive) {
        this->dnnl->primitive_destroy(this->sets.primitive);
    }
    if (this->adds.primitive) {
        this->dnnl->primitive_destroy(this->adds.primitive);
    }
    this->sets.primitive = this->adds.primitive = NULL;
}

static void product_destroy(struct dnnl_product *this) {
    if (this) {
        primitives_destroy(this);
        free(this);
    }
}

/* Both primitives, for b as `tag` says: dnnl_format_tag_any is the order that oneDNN likes best. */
static dnnl_status_t primitives_add(struct dnnl_product *this, dnnl_format_tag_t tag) {
    const struct dnnl *dnnl = this->dnnl;
    dnnl_status_t status = dnnl->memory_desc_init_by_tag(&this->b, 2, (dnnl_dims_t){this->k, this->n}, dnnl_bf16, tag);
    if (status == dnnl_success) {
        status = primitive_add(this, false);
    }
    if (status == dnnl_success && tag == dnnl_format_tag_any && !order_find(this)) {
        status = dnnl_unimplemented;
    }
    if (status == dnnl_success) {
        status = primitive_add(this, true);
    }
    if (status != dnnl_success) {
        primitives_destroy(this);
    }
    return status;
}

/* NULL: there is no fast implementation, or (dnnl->failed) no memory. */
static struct dnnl_product *product_create(struct dnnl *dnnl, int64_t m, int64_t n, int64_t k) {
    struct dnnl_product *this = calloc(1, sizeof *this);
    if (!this) {
        dnnl->failed = true;
        return NULL;
    }
    *this = (struct dnnl_product){.dnnl = dnnl, .m = m, .n = n, .k = k};
    dnnl->set_threads(1); /* of the calling thread, which need not be the one that has loaded the library */
    dnnl_status_t status = dnnl_unimplemented;
    if (dnnl->memory_desc_init_by_tag(&this->a, 2, (dnnl_dims_t){m, k}, dnnl_bf16, dnnl_ab) == dnnl_success &&
        dnnl->memory_desc_init_by_tag(&this->c, 2, (dnnl_dims_t){m, n}, dnnl_f32, dnnl_ab) == dnnl_success) {
        status = primitives_add(this, dnnl_format_tag_any);
        if (status != dnnl_success && status != dnnl_out_of_memory) {
            this->order = (struct dnnl_order){0};
            status = primitives_add(this, dnnl_ab);
        }
    }
    if (status == dnnl_success) {
        this->order.bytes = dnnl_rounded(dnnl->memory_desc_get_size(&this->b));
        return this;
    }
    dnnl->failed |= status == dnnl_out_of_memory;
    product_destroy(this);
    return NULL;
}

/* The place where to keep another one: an empty one, or that of the one whose last use is longest ago. NULL: all are in use. */
static struct dnnl_product **place_find(struct dnnl *dnnl) {
    struct dnnl_product **oldest = NULL;
    for (unsigned i = 0; i < DNNL_PRODUCTS; i++) {
        struct dnnl_product **place = &dnnl->products[i];
        if (!*place) {
            return place;
        }
        if ((*place)->users == 0 && (!oldest || (*place)->last_use < (*oldest)->last_use)) {
            oldest = place;
        }
    }
    return oldest;
}

static struct dnnl_product *product_add(struct dnnl *dnnl, int64_t m, int64_t n, int64_t k) {
    struct dnnl_product *made = dnnl->failed ? NULL : product_create(dnnl, m, n, k);
    struct dnnl_product **place = made ? place_find(dnnl) : NULL;
    if (place) {
        product_destroy(*place);
        *place = made;
        made->kept = true;
    }
    return made;
}

const struct dnnl_product *dnnl_product_find(struct dnnl *dnnl, int64_t m, int64_t n, int64_t k) {
    struct dnnl_product *found = NULL;
    if (!dnnl || !dnnl->has_products) {
        return NULL;
    }
    pthread_mutex_lock(&dnnl->lock);
    for (unsigned i = 0; i < DNNL_PRODUCTS && !found; i++) {
        struct dnnl_product *product = dnnl->products[i];
        found = product && product->m == m && product->n == n && product->k == k ? product : NULL;
    }
    found = dnnl->failed ? NULL : found ? found : product_add(dnnl, m, n, k);
    if (found) {
        found->users++;
        found->last_use = dnnl->uses++;
    }
    pthread_mutex_unlock(&dnnl->lock);
    return found;
}

void dnnl_product_release(const struct dnnl_product *product) {
    struct dnnl_product *this = (struct dnnl_product *)(uintptr_t)product;
    if (!this) {
        return;
    }
    struct dnnl *dnnl = this->dnnl;
    pthread_mutex_lock(&dnnl->lock);
    bool last = --this->users == 0 && !this->kept;
    pthread_mutex_unlock(&dnnl->lock);
    if (last) {
        product_destroy(this);
    }
}

size_t dnnl_product_scratch_bytes(const struct dnnl_product *this) {
    return this->scratch;
}

struct dnnl_order dnnl_product_order(const struct dnnl_product *this) {
    return this->order;
}

bool dnnl_product_run(const struct dnnl_product *this, const void *a, const void *b, void *c, bool add, void *scratch) {
    struct dnnl_call call;
    if (!dnnl_call_begin(&call, this->dnnl)) {
        return false;
    }
    dnnl_call_add(&call, DNNL_ARG_SRC, &this->a, a);
    dnnl_call_add(&call, DNNL_ARG_WEIGHTS, &this->b, b);
    dnnl_call_add(&call, DNNL_ARG_DST, &this->c, c);
    dnnl_call_add(&call, DNNL_ARG_SCRATCHPAD, add ? &this->adds.scratchpad : &this->sets.scratchpad, scratch);
    bool right = dnnl_call_run(&call, add ? this->adds.primitive : this->sets.primitive);
    dnnl_call_end(&call);
    return right;
}

void dnnl_products_init(struct dnnl *dnnl) {
    struct dnnl_product *some = product_create(dnnl, 64, 64, 64);
    dnnl->has_products = some;
    product_destroy(some);
}

void dnnl_products_finish(struct dnnl *dnnl) {
    for (unsigned i = 0; i < DNNL_PRODUCTS; i++) {
        product_destroy(dnnl->products[i]);
    }
}
