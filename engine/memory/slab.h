/* Objects of one size, in pages that go back to the system as soon as no object on them is in use. So a session's memory is back when
 * the session has ended, whatever the state of malloc's heap. For one thread. */
#pragma once

#include <stddef.h>

struct slab_page;

enum { SLAB_KEPT = 32 };

struct slab {
    size_t bytes; /* of an object */
    void *kept;   /* a few objects for quick use, each with a pointer to the next one */
    unsigned n_kept;
    struct slab_page *open;   /* pages with room */
    struct slab_page *unused; /* a few pages without any object in use */
    unsigned n_unused;
};

/* Objects of `bytes`, aligned as by malloc(). */
void slab_init(struct slab *slab, size_t bytes);
/* All objects must have been given back. */
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
