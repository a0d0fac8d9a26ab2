/* Objects of one size, in pages that go back to the system as soon as nothing on them is in use: what a session had is back when
 * it has ended, however the allocator's heap looks. For one thread. */
#pragma once

#include <stddef.h>

struct slab_page;

struct slab {
    size_t bytes;             /* of an object */
    struct slab_page *open;   /* with room */
    struct slab_page *unused; /* with nothing on them, a few of which are kept */
    unsigned n_unused;
};

/* Objects of `bytes`, aligned as by malloc(). */
void slab_init(struct slab *slab, size_t bytes);
/* Every object has been given back. */
void slab_finish(struct slab *slab);
/* Not zeroed; NULL out of memory. */
void *slab_take(struct slab *slab);
void slab_give(struct slab *slab, void *object);
