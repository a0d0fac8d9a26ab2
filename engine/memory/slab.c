#include "engine/memory/slab.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    SLAB_PAGE = 256 << 10, /* and aligned to that, so that an object's address tells its page */
    SLAB_UNUSED = 2,
    SLAB_ALIGNMENT = 16,
};

static void slab_let_go(struct slab *slab) {
    while (slab->kept) {
        void *object = slab_take(slab);
        slab_give_page(slab, object);
    }
}

#if defined(__SANITIZE_ADDRESS__) /* so that it sees when each object is freed */

void slab_init(struct slab *slab, size_t bytes) {
    *slab = (struct slab){.bytes = bytes, .n_kept = SLAB_KEPT}; /* so that no object is ever kept */
}

void slab_finish(struct slab *slab) {
    slab_let_go(slab);
}

void *slab_take_page(struct slab *slab) {
    return malloc(slab->bytes);
}

void slab_give_page(struct slab *slab, void *object) {
    (void)slab;
    free(object);
}

#else

struct slab_page {
    struct slab_page *next, **previous;
    void *free; /* objects that were given back, each with a pointer to the next one */
    unsigned used;
    unsigned fresh; /* objects that have never been used, at the end */
};

void slab_init(struct slab *slab, size_t bytes) {
    *slab = (struct slab){.bytes = (bytes + SLAB_ALIGNMENT - 1) & ~(size_t)(SLAB_ALIGNMENT - 1)};
}

static void page_link(struct slab_page **list, struct slab_page *page) {
    page->next = *list;
    page->previous = list;
    if (page->next)
        page->next->previous = &page->next;
    *list = page;
}

static void page_unlink(struct slab_page *page) {
    *page->previous = page->next;
    if (page->next)
        page->next->previous = page->previous;
}

static size_t slab_head(void) {
    return (sizeof(struct slab_page) + SLAB_ALIGNMENT - 1) & ~(size_t)(SLAB_ALIGNMENT - 1);
}

static struct slab_page *page_create(const struct slab *slab) {
    uint8_t *memory = mmap(NULL, 2 * SLAB_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)memory & (SLAB_PAGE - 1);
    if (before)
        munmap(memory, before);
    munmap(memory + before + SLAB_PAGE, SLAB_PAGE - before);
    struct slab_page *page = (struct slab_page *)(memory + before);
    page->fresh = (unsigned)((SLAB_PAGE - slab_head()) / slab->bytes);
    return page;
}

void slab_finish(struct slab *slab) {
    slab_let_go(slab);
    for (struct slab_page *page = slab->unused, *next; page; page = next) {
        next = page->next;
        munmap(page, SLAB_PAGE);
    }
    *slab = (struct slab){0};
}

/* Another page with room, when no open page is left. */
static struct slab_page *slab_open(struct slab *slab) {
    struct slab_page *page = slab->unused;
    if (page) {
        page_unlink(page);
        slab->n_unused--;
    } else if (!(page = page_create(slab))) {
        return NULL;
    }
    page_link(&slab->open, page);
    return page;
}

void *slab_take_page(struct slab *slab) {
    struct slab_page *page = slab->open ? slab->open : slab_open(slab);
    if (!page)
        return NULL;
    void *object = page->free;
    if (object)
        page->free = *(void **)object;
    else
        object = (uint8_t *)page + SLAB_PAGE - slab->bytes * page->fresh--;
    page->used++;
    if (!page->free && !page->fresh)
        page_unlink(page);
    return object;
}

static void slab_close(struct slab *slab, struct slab_page *page) {
    page_unlink(page);
    if (slab->n_unused == SLAB_UNUSED) {
        munmap(page, SLAB_PAGE);
        return;
    }
    slab->n_unused++;
    page_link(&slab->unused, page);
}

void slab_give_page(struct slab *slab, void *object) {
    struct slab_page *page = (struct slab_page *)((uintptr_t)object & ~(uintptr_t)(SLAB_PAGE - 1));
    if (!page->free && !page->fresh)
        page_link(&slab->open, page);
    *(void **)object = page->free;
    page->free = object;
    if (--page->used == 0)
        slab_close(slab, page);
}

#endif
