#include "engine/order/replay_graph.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GRAPH_NS =
        200 *
        1000, /* of estimated work: a turn's (submitter.c), since others' turns and the end of a cancelled run wait for it */
    GRAPH_STEPS_MOST = 512,
    GRAPH_STEPS_LEAST = 4, /* a graph costs the host about as much as two launches */
    GRAPH_REST = 64,       /* passes for which a stretch is left alone after a refusal */
    /* After so many passes one after another in which most launches have other addresses, or all are captured anew, it rests, too. */
    GRAPH_CHANGES_MOST = 8,
};

/* A graph as it was launched last. */
struct kept_graph {
    struct device_graph *graph; /* NULL: none */
    uint8_t **made;             /* the addresses of the stretch's bases */
};

struct stretch {
    uint32_t first, n; /* steps, skipped ones included */
    uint32_t *bases;   /* those that its launches use */
    unsigned n_bases;
    unsigned n_launches;
    struct device_step *launches; /* [n_launches] */
    uint32_t *steps;              /* of each launch */
    struct kept_graph kept[2];
    unsigned rest;    /* passes */
    unsigned changes; /* passes one after another that count for GRAPH_CHANGES_MOST */
};

struct replay_graphs {
    struct device *device;
    struct device_graph_memory *memory;
    struct stretch *stretches;
    unsigned n, room;
    uint32_t *stretch_at;   /* of each step: the number of the stretch that begins with it, from 1; 0: none does */
    uint32_t *patch_bases;  /* the bases of all patches, in the order of the steps */
    uint32_t *patches_from; /* of each step, and of one more: where its patches begin among them */
    bool *moved;            /* of each base: see stretch_compare() */
    bool changed[GRAPH_STEPS_MOST];
    bool failed; /* there was no host memory */
    bool stale;  /* other steps are skipped than when they were made */
    /* A pass has begun; and one has ended: all launches have been made once, since what they load and allocate then must not be while they
     * are captured. */
    bool begun, passed;
    bool cut;             /* into stretches */
    pthread_mutex_t lock; /* for what follows, which any thread may read */
    struct replay_graph_figures figures;
};

/* ---- making them ---- */

static struct replay_graphs *graphs_create(struct device *device) {
    struct replay_graphs *graphs = calloc(1, sizeof *graphs);
    if (!graphs)
        return NULL;
    graphs->device = device;
    pthread_mutex_init(&graphs->lock, NULL);
    return graphs;
}

static void stretch_free(struct stretch *stretch) {
    for (int k = 0; k < 2; k++)
        free(stretch->kept[k].made);
    free(stretch->bases);
    free(stretch->launches);
    free(stretch->steps);
}

/* While its graphs may run on the stream. An error is a failure of the device. */
static int stretch_retire(struct replay_graphs *graphs, struct stretch *stretch, struct device_stream *stream,
                          struct fault *fault) {
    const struct device_async *async = graphs->device->vtable->async;
    int code = STATUS_OK;
    for (int k = 0; k < 2; k++) {
        struct device_graph *graph = stretch->kept[k].graph;
        int retired = graph ? async->graph_retire(graphs->device, stream, graph, fault) : STATUS_OK;
        code = code == STATUS_OK ? retired : code;
    }
    stretch_free(stretch);
    return code;
}

static void graphs_drop_stretches(struct replay_graphs *graphs) {
    free(graphs->stretches);
    free(graphs->stretch_at);
    free(graphs->patch_bases);
    free(graphs->patches_from);
    free(graphs->moved);
    graphs->stretches = NULL;
    graphs->stretch_at = graphs->patch_bases = graphs->patches_from = NULL;
    graphs->moved = NULL;
    graphs->n = graphs->room = 0;
}

void replay_graphs_destroy(struct replay_graphs *graphs) {
    if (!graphs)
        return;
    for (unsigned i = 0; i < graphs->n; i++) {
        for (int k = 0; k < 2; k++)
            if (graphs->stretches[i].kept[k].graph)
                graphs->device->vtable->async->graph_release(graphs->device, graphs->stretches[i].kept[k].graph);
        stretch_free(&graphs->stretches[i]);
    }
    graphs_drop_stretches(graphs);
    if (graphs->memory)
        graphs->device->vtable->async->graph_memory_release(graphs->device, graphs->memory);
    pthread_mutex_destroy(&graphs->lock);
    free(graphs);
}

/* The step to which the place in `launches` belongs. */
static uint32_t step_at(const struct replay *replay, uint32_t at) {
    uint32_t low = 0, high = replay->n_steps;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (replay->steps[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static void graphs_find_patches(struct replay_graphs *graphs, const struct replay *replay) {
    uint32_t *from = graphs->patches_from;
    for (unsigned i = 0; i < replay->n_patches; i++)
        from[step_at(replay, replay->patches[i].at) + 2]++;
    for (unsigned i = 0; i < replay->n_steps; i++)
        from[i + 2] += from[i + 1];
    for (unsigned i = 0; i < replay->n_patches; i++) /* then from[i + 1] is where the next step's begin */
        graphs->patch_bases[from[step_at(replay, replay->patches[i].at) + 1]++] = replay->patches[i].base;
}

static bool graphs_grow(struct replay_graphs *graphs) {
    if (graphs->n < graphs->room)
        return true;
    unsigned room = graphs->room ? 2 * graphs->room : 8;
    struct stretch *grown = realloc(graphs->stretches, room * sizeof *grown);
    if (!grown)
        return false;
    graphs->stretches = grown;
    graphs->room = room;
    return true;
}

static bool step_is_launched(const struct replay_step *step) {
    return !step->skipped && (step->kind == REPLAY_LAUNCH || step->kind == REPLAY_FUSED);
}

static struct device_step step_of(const struct replay *replay, const struct replay_step *step) {
    const void *at = replay->launches + step->at;
    if (step->kind == REPLAY_LAUNCH)
        return (struct device_step){.launch = at};
    return (struct device_step){.fused = at,
                                .kernel = atomic_load_explicit(&step->kernel->kernel, memory_order_acquire)};
}

/* The bases that the stretch's launches use; of skipped ones, too. Leaves graphs->moved as it was: all false. */
static unsigned stretch_find_bases(struct replay_graphs *graphs, struct stretch *stretch) {
    uint32_t from = graphs->patches_from[stretch->first], to = graphs->patches_from[stretch->first + stretch->n];
    unsigned n = 0;
    for (uint32_t i = from; i < to; i++) {
        uint32_t base = graphs->patch_bases[i];
        if (!graphs->moved[base] && stretch->bases)
            stretch->bases[n] = base;
        n += !graphs->moved[base];
        graphs->moved[base] = true;
    }
    for (uint32_t i = from; i < to; i++)
        graphs->moved[graphs->patch_bases[i]] = false;
    return n;
}

/* False: no host memory. */
static bool graphs_add(struct replay_graphs *graphs, const struct replay *replay, uint32_t first, uint32_t n) {
    struct stretch stretch = {.first = first, .n = n};
    for (uint32_t i = 0; i < n; i++)
        stretch.n_launches += step_is_launched(&replay->steps[first + i]);
    if (stretch.n_launches < GRAPH_STEPS_LEAST)
        return true;
    if (!graphs_grow(graphs))
        return false;
    size_t n_bases = stretch_find_bases(graphs, &stretch) + 1;
    stretch.bases = malloc(n_bases * sizeof *stretch.bases);
    stretch.launches = malloc(stretch.n_launches * sizeof *stretch.launches);
    stretch.steps = malloc(stretch.n_launches * sizeof *stretch.steps);
    for (int k = 0; k < 2; k++)
        stretch.kept[k].made = malloc(n_bases * sizeof(uint8_t *));
    if (!stretch.bases || !stretch.launches || !stretch.steps || !stretch.kept[0].made || !stretch.kept[1].made) {
        stretch_free(&stretch);
        return false;
    }
    stretch.n_bases = stretch_find_bases(graphs, &stretch);
    for (uint32_t i = 0, to = 0; i < n; i++) {
        if (!step_is_launched(&replay->steps[first + i]))
            continue;
        stretch.launches[to] = step_of(replay, &replay->steps[first + i]);
        stretch.steps[to++] = first + i;
    }
    graphs->stretches[graphs->n++] = stretch;
    graphs->stretch_at[first] = graphs->n;
    return true;
}

static bool graphs_cut(struct replay_graphs *graphs, const struct replay *replay) {
    uint64_t weight = 0;
    uint32_t first = replay->n_once;
    bool room = true;
    graphs->stretch_at = calloc(replay->n_steps + 1, sizeof *graphs->stretch_at);
    graphs->patches_from = calloc(replay->n_steps + 2, sizeof *graphs->patches_from);
    graphs->patch_bases = malloc((replay->n_patches + 1) * sizeof *graphs->patch_bases);
    graphs->moved = calloc(replay->n_bases, sizeof *graphs->moved);
    if (!graphs->stretch_at || !graphs->patches_from || !graphs->patch_bases || !graphs->moved)
        return false;
    graphs_find_patches(graphs, replay);
    for (uint32_t i = first; i < replay->n_steps && room; i++) {
        const struct replay_step *step = &replay->steps[i];
        bool takes = step->skipped || (step_is_launched(step) && step->weight < GRAPH_NS);
        uint64_t more = step->skipped ? 0 : step->weight;
        if (!takes || weight + more > GRAPH_NS || i - first == GRAPH_STEPS_MOST) {
            room = graphs_add(graphs, replay, first, i - first);
            first = takes ? i : i + 1;
            weight = 0;
        }
        weight += takes ? more : 0;
    }
    return room && graphs_add(graphs, replay, first, replay->n_steps - first);
}

/* ---- addresses ---- */

/* Fills graphs->changed with the launches that use bases which have moved since the graph was launched. Returns how many. */
static unsigned stretch_compare(struct replay_graphs *graphs, const struct stretch *stretch,
                                const struct kept_graph *kept, uint8_t *const *bases) {
    unsigned moved = 0, changed = 0;
    for (unsigned i = 0; i < stretch->n_bases; i++)
        moved += graphs->moved[stretch->bases[i]] = kept->made[i] != bases[stretch->bases[i]];
    if (!moved)
        return 0;
    for (uint32_t i = 0; i < stretch->n_launches; i++) {
        bool any = false;
        uint32_t step = stretch->steps[i];
        for (uint32_t k = graphs->patches_from[step]; k < graphs->patches_from[step + 1]; k++)
            any |= graphs->moved[graphs->patch_bases[k]];
        changed += graphs->changed[i] = any;
    }
    for (unsigned i = 0; i < stretch->n_bases; i++)
        graphs->moved[stretch->bases[i]] = false;
    return changed;
}

/* The graph in which fewest launches have to go to other addresses; a second one is made if in the first that is a good part of them. */
static struct kept_graph *stretch_choose(struct replay_graphs *graphs, struct stretch *stretch, uint8_t *const *bases,
                                         unsigned *changed) {
    struct kept_graph *kept = stretch->kept;
    *changed = 0;
    if (!kept[0].graph && !kept[1].graph)
        return &kept[0];
    struct kept_graph *first = kept[0].graph ? &kept[0] : &kept[1], *second = first == kept ? &kept[1] : &kept[0];
    *changed = stretch_compare(graphs, stretch, first, bases);
    if (!*changed || (!second->graph && *changed * 4 < stretch->n_launches))
        return first;
    if (!second->graph) {
        *changed = 0;
        return second;
    }
    unsigned others = stretch_compare(graphs, stretch, second, bases);
    if (others < *changed) {
        *changed = others;
        return second;
    }
    stretch_compare(graphs, stretch, first, bases);
    return first;
}

/* ---- launches ---- */

/* The stretch ends before the launch that is refused, and what follows is one of its own. */
static int stretch_split(struct replay_graphs *graphs, const struct replay *replay, unsigned number, unsigned refused,
                         struct device_stream *stream, struct fault *fault) {
    struct stretch stretch = graphs->stretches[number];
    uint32_t at = stretch.steps[refused], behind = at + 1;
    graphs->stretch_at[stretch.first] = 0;
    graphs->stretches[number] = (struct stretch){0};
    int code = stretch_retire(graphs, &stretch, stream, fault);
    if (!graphs_add(graphs, replay, stretch.first, at - stretch.first) ||
        !graphs_add(graphs, replay, behind, stretch.first + stretch.n - behind))
        graphs->failed = true;
    return code;
}

static void graphs_count(struct replay_graphs *graphs) {
    struct replay_graph_figures *figures = &graphs->figures;
    figures->graphs = figures->steps = 0;
    for (unsigned i = 0; i < graphs->n; i++) {
        const struct stretch *stretch = &graphs->stretches[i];
        bool there = stretch->kept[0].graph || stretch->kept[1].graph;
        figures->graphs += there;
        figures->steps += there ? stretch->n_launches : 0;
    }
}

/* What became of a launch of the stretch, for people. */
static void graphs_note(struct replay_graphs *graphs, const struct replay *replay, const struct stretch *stretch,
                        const struct device_graph_outcome *outcome) {
    struct replay_graph_figures *figures = &graphs->figures;
    bool named = *outcome->refusal && outcome->refused < stretch->n_launches;
    pthread_mutex_lock(&graphs->lock);
    figures->launched += !*outcome->refusal;
    figures->captured += outcome->captured;
    figures->exchanged += outcome->exchanged;
    if (*outcome->refusal) {
        const char *name = named ? replay->names[replay->steps[stretch->steps[outcome->refused]].name].operation : "";
        figures->refused++;
        snprintf(figures->reason, sizeof figures->reason, "%s%s%s", name, *name ? ": " : "", outcome->refusal);
    }
    if (*outcome->refusal || outcome->captured)
        graphs_count(graphs);
    pthread_mutex_unlock(&graphs->lock);
}

/* To give so many launches other addresses costs more than to make them. */
static void stretch_rest(struct replay_graphs *graphs, struct stretch *stretch) {
    struct replay_graph_figures *figures = &graphs->figures;
    stretch->changes = 0;
    stretch->rest = GRAPH_REST;
    pthread_mutex_lock(&graphs->lock);
    figures->rested++;
    if (!*figures->reason)
        snprintf(figures->reason, sizeof figures->reason, "each run has other addresses");
    pthread_mutex_unlock(&graphs->lock);
}

static int stretch_launch(struct replay_graphs *graphs, struct replay_run *run, unsigned number,
                          struct device_stream *stream, unsigned *steps, struct fault *fault) {
    const struct replay *replay = run->replay;
    struct stretch *stretch = &graphs->stretches[number];
    uint8_t *const *bases = replay_bases(run);
    struct device_graph_outcome outcome = {.refused = stretch->n_launches};
    unsigned changed;
    struct kept_graph *kept = stretch_choose(graphs, stretch, bases, &changed);
    bool most = changed * 2 > stretch->n_launches;
    if (stretch->changes + most >= GRAPH_CHANGES_MOST) {
        stretch_rest(graphs, stretch);
        return STATUS_OK;
    }
    int code = graphs->device->vtable->async->graph_launch(graphs->device, stream, &graphs->memory, &kept->graph,
                                                           stretch->launches, stretch->n_launches,
                                                           changed ? graphs->changed : NULL, &outcome, fault);
    if (code != STATUS_OK)
        return code;
    stretch->changes = most || (changed && outcome.captured) ? stretch->changes + 1 : 0;
    graphs_note(graphs, replay, stretch, &outcome);
    if (!*outcome.refusal) {
        for (unsigned i = 0; i < stretch->n_bases; i++)
            kept->made[i] = bases[stretch->bases[i]];
        *steps = stretch->n;
    } else if (outcome.refused < stretch->n_launches) {
        code = stretch_split(graphs, replay, number, outcome.refused, stream, fault);
    } else {
        stretch->rest = GRAPH_REST;
    }
    return code;
}

/* Other steps are skipped now: the graphs are none of theirs. */
static int graphs_renew(struct replay_graphs *graphs, struct device_stream *stream, struct fault *fault) {
    int code = STATUS_OK;
    for (unsigned i = 0; i < graphs->n; i++) {
        int retired = stretch_retire(graphs, &graphs->stretches[i], stream, fault);
        code = code == STATUS_OK ? retired : code;
    }
    graphs_drop_stretches(graphs);
    graphs->stale = graphs->failed = graphs->begun = graphs->passed = graphs->cut = false;
    pthread_mutex_lock(&graphs->lock);
    graphs_count(graphs);
    pthread_mutex_unlock(&graphs->lock);
    return code;
}

int replay_graph_launch(struct replay_run *run, struct device *device, struct device_stream *stream, unsigned *steps,
                        struct fault *fault) {
    struct replay *replay = run->replay;
    struct replay_graphs *graphs = atomic_load_explicit(&replay->graphs, memory_order_relaxed);
    *steps = 0;
    if (!graphs) {
        if (!device->vtable->async || !device->vtable->async->graph_launch || !(graphs = graphs_create(device)))
            return STATUS_OK;
        atomic_store_explicit(&replay->graphs, graphs, memory_order_release);
    }
    int code = graphs->stale ? graphs_renew(graphs, stream, fault) : STATUS_OK;
    if (code != STATUS_OK)
        return code;
    graphs->begun |= run->step == replay->n_once;
    if (run->step == replay->n_once && graphs->passed && !graphs->cut) {
        graphs->cut = true;
        graphs->failed = !graphs_cut(graphs, replay);
    }
    if (!graphs->cut || graphs->failed)
        return STATUS_OK;
    uint32_t number = graphs->stretch_at[run->step];
    if (!number)
        return STATUS_OK;
    struct stretch *stretch = &graphs->stretches[number - 1];
    if (stretch->rest) {
        stretch->rest--;
        return STATUS_OK;
    }
    return stretch_launch(graphs, run, number - 1, stream, steps, fault);
}

void replay_graphs_pass(struct replay *replay) {
    struct replay_graphs *graphs = atomic_load_explicit(&replay->graphs, memory_order_relaxed);
    if (graphs)
        graphs->passed |= graphs->begun;
}

void replay_graphs_forget(struct replay *replay) {
    struct replay_graphs *graphs = atomic_load_explicit(&replay->graphs, memory_order_relaxed);
    if (graphs)
        graphs->stale = true;
}

bool replay_graph_read(const struct replay *replay, struct replay_graph_figures *figures) {
    struct replay_graphs *graphs = atomic_load_explicit(&replay->graphs, memory_order_acquire);
    *figures = (struct replay_graph_figures){0};
    if (!graphs)
        return false;
    pthread_mutex_lock(&graphs->lock);
    *figures = graphs->figures;
    pthread_mutex_unlock(&graphs->lock);
    return true;
}
