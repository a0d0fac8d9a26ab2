/* Objects of one size, in pages that go back to the system as soon as nothing on them is in use: what a session had is back when
 * it has ended, however the allocator's heap looks. For one thread. */
#pragma once

#include <stddef.h>

struct slab_page;

enum { SLAB_KEPT = 32 };

struct slab {
    size_t bytes; /* of an object */
    void *kept;   /* a few objects at hand, each with a pointer to the next one */
    unsigned n_kept;
    struct slab_page *open;   /* with room */
    struct slab_page *unused; /* with nothing on them, a few of which are kept */
    unsigned n_unused;
};

/* Objects of `bytes`, aligned as by malloc(). */
void slab_init(struct slab *slab, size_t bytes);
/* Every object has been given back. */
void slab_finish(struct slab *slab);

/* Private: from a page, and back to it. */
void *slab_take_page(struct slab *slab);
void slab_give_page(struct slab *slab, void *object);

/* Not zeroed; NULL out of memory. */
static inline void *slab_take(struct slab *slab) {
    void *object = slab->kept;
    if (!object)
        return slab_take_page(slab);
    slab->kept = *(void **)object;
    slab->n_kept--;
    return object;
}

static inline void slab_give(struct slab *slab, void *object) {
    if (slab->n_kept == SLAB_KEPT) {
        slab_give_page(slab, object);
        return;
    }
    *(void **)object = slab->kept;
    slab->kept = object;
    slab->n_kept++;
}
