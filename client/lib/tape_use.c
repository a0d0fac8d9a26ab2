/* What a tape that lives long still needs. */
#include <stdlib.h>

#include "client/lib/error.h"
#include "client/lib/tape.h"

/* Marks of all slots and all nodes of a tape. */
struct marks {
    struct tape *tape;
    bool *slots, *nodes;
};

static int marks_init(struct marks *marks, td_tape *given) {
    struct tape *tape = (struct tape *)(void *)given;
    *marks = (struct marks){tape, calloc(tape->slots.n + 1, 1), calloc(tape->n_nodes + 1, 1)};
    if (marks->slots && marks->nodes)
        return 0;
    free(marks->slots);
    free(marks->nodes);
    return error_set(STATUS_NO_HOST_MEMORY, "no memory to look through a tape of %zu operations", tape->n_nodes);
}

static void marks_finish(struct marks *marks) {
    free(marks->slots);
    free(marks->nodes);
}

static void mark_tensor(struct marks *marks, const td_tensor *tensor) {
    uint32_t slot;
    if (tape_find(marks->tape, tensor, &slot))
        marks->slots[slot] = true;
}

static bool any_marked(const struct marks *marks, const struct tape_value *values, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (marks->slots[values[i].slot])
            return true;
    return false;
}

static void mark_all(struct marks *marks, const struct tape_value *values, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        marks->slots[values[i].slot] = true;
}

/* Marks all nodes that lead to marked slots, and their inputs. */
static void mark_before(struct marks *marks) {
    for (size_t i = marks->tape->n_nodes; i-- > 0;) {
        const struct tape_node *node = marks->tape->nodes[i];
        marks->nodes[i] = any_marked(marks, node->outputs, node->n_outputs);
        if (marks->nodes[i])
            mark_all(marks, node->inputs, node->n_inputs);
    }
}

/* Marks all nodes that follow from marked slots, and the outputs of all marked nodes. */
static void mark_after(struct marks *marks) {
    for (size_t i = 0; i < marks->tape->n_nodes; i++) {
        const struct tape_node *node = marks->tape->nodes[i];
        marks->nodes[i] = marks->nodes[i] || any_marked(marks, node->inputs, node->n_inputs);
        if (marks->nodes[i])
            mark_all(marks, node->outputs, node->n_outputs);
    }
}

static void unmark_slots(struct marks *marks) {
    for (size_t i = 0; i < marks->tape->slots.n; i++)
        marks->slots[i] = false;
}

static int drop_marked(struct marks *marks) {
    for (size_t i = 0; i < marks->tape->n_nodes; i++)
        marks->nodes[i] = !marks->nodes[i];
    return tape_retain(marks->tape, marks->nodes);
}

int td_tape_has(const td_tape *tape, const td_tensor *tensor) {
    uint32_t slot;
    return tape_find((const struct tape *)(const void *)tape, tensor, &slot);
}

int td_tape_depends(td_tape *tape, td_tensor *y, int count, td_tensor *const *xs, int *depends) {
    struct marks marks;
    uint32_t slot;
    if (marks_init(&marks, tape))
        return td_last_error()->code;
    mark_tensor(&marks, y);
    mark_before(&marks);
    for (int i = 0; i < count; i++)
        depends[i] = tape_find(marks.tape, xs[i], &slot) && marks.slots[slot];
    marks_finish(&marks);
    return 0;
}

int td_tape_keep(td_tape *tape, int count, td_tensor *const *ys) {
    struct marks marks;
    if (marks_init(&marks, tape))
        return td_last_error()->code;
    for (int i = 0; i < count; i++)
        mark_tensor(&marks, ys[i]);
    mark_before(&marks);
    int code = tape_retain(marks.tape, marks.nodes);
    marks_finish(&marks);
    return code;
}

int td_tape_drop_before(td_tape *tape, td_tensor *y) {
    struct marks marks;
    if (marks_init(&marks, tape))
        return td_last_error()->code;
    mark_tensor(&marks, y);
    mark_before(&marks);
    unmark_slots(&marks); /* the first inputs may have other uses */
    mark_after(&marks);
    int code = drop_marked(&marks);
    marks_finish(&marks);
    return code;
}

int td_tape_drop_after(td_tape *tape, td_tensor *x) {
    struct marks marks;
    if (marks_init(&marks, tape))
        return td_last_error()->code;
    mark_tensor(&marks, x);
    mark_after(&marks);
    int code = drop_marked(&marks);
    marks_finish(&marks);
    return code;
}

size_t td_tape_size(const td_tape *given, size_t *bytes) {
    const struct tape *tape = (const struct tape *)(const void *)given;
    *bytes = 0;
    for (size_t i = 0; i < tape->n_nodes; i++)
        for (unsigned k = 0; k < tape->nodes[i]->n_outputs; k++)
            *bytes += (size_t)type_bytes(&tape->nodes[i]->outputs[k].type);
    return tape->n_nodes;
}
