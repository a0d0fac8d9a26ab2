/* Plans in readable form, for TENSORD_DEBUG=program: what is not needed, the launches in their order with the memory that they use, and the arena. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/order/order_impl.h"
#include "engine/program/recorded_planner.h"
#include "proto/ops/utf8.h"

/* ---- operands ---- */

static void print_shape(FILE *out, const struct operand *operand) {
    fprintf(out, " %s", dtype_name((enum dtype)operand->dtype));
    if (operand->as != operand->dtype)
        fprintf(out, " as %s", dtype_name((enum dtype)operand->as));
    fputs(" (", out);
    for (unsigned i = 0; i < operand->rank; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "", operand->shape[i]);
    fputc(')', out);
}

/* "parameter 0", "captured 1 +64", "slot 2", "arena +128" */
static void print_memory(FILE *out, const struct planner *planner, const struct planned_launch *planned,
                         unsigned operand, const void *data) {
    const struct recorded_body *body = planner->body;
    const struct draft_piece *piece = data ? draft_find(&planner->draft, data) : NULL;
    if (!piece) {
        fputs("nothing", out);
        return;
    }
    unsigned slot = planner_slot(planner, planned, operand, piece);
    uint64_t offset = (uint64_t)((const uint8_t *)data - piece->storage.data);
    uint32_t base = piece->base, captured = body->n_parameters, result = captured + body->n_captures;
    if (slot)
        fprintf(out, "slot %u", slot - 1);
    else if (base < captured)
        fprintf(out, "parameter %" PRIu32, base);
    else if (base < result)
        fprintf(out, "captured %" PRIu32, base - captured);
    else if (base < result + body->n_results)
        fprintf(out, "result %" PRIu32, base - result);
    else
        fprintf(out, "arena +%" PRIu64, piece->offset + offset);
    if (offset && (slot || base < result + body->n_results))
        fprintf(out, " +%" PRIu64, offset);
}

/* 0: the output; then the inputs, and the further outputs. */
static void print_operand(FILE *out, const struct planner *planner, const struct planned_launch *planned, unsigned i) {
    const struct launch *launch = &planned->record->launch;
    const struct operand *operand = i == 0 ? &launch->output : &launch->inputs[i - 1];
    print_memory(out, planner, planned, i, operand->data);
    print_shape(out, operand);
}

/* ---- launches ---- */

static void print_label(FILE *out, const char *label) {
    char shown[4 * OPERATION_LABEL_MAX + 1];
    if (!label)
        return;
    utf8_clean(shown, sizeof shown, label);
    fprintf(out, " [%s]", shown);
}

/* "add [net]: result 0 f32 (3) = parameter 0 f32 (3), captured 0 f32 ()" */
static void print_launch(FILE *out, const struct planner *planner, const struct planned_launch *planned) {
    const struct launch *launch = &planned->record->launch;
    uint64_t operation = planned->record->sequence;
    fputs(op_info(launch->opcode)->name, out);
    if (operation)
        print_label(out, planner->body->operations[operation - 1].request.label);
    else
        fputs(" to a result", out);
    fputs(": ", out);
    print_operand(out, planner, planned, 0);
    for (unsigned i = 1; i <= launch->further; i++) {
        fputs(", ", out);
        print_operand(out, planner, planned, launch->n_inputs + i);
    }
    for (unsigned i = 1; i <= launch->n_inputs; i++) {
        fputs(i > 1 ? ", " : " = ", out);
        print_operand(out, planner, planned, i);
    }
    if (launch->workspace) {
        fputs("; workspace ", out);
        print_memory(out, planner, planned, 0, launch->workspace);
    }
    fputs(launch->report ? "; reports\n" : "\n", out);
}

/* Returns how many launches are in it. */
static size_t print_step(FILE *out, const struct planner *planner, const struct replay_step *step,
                         const struct planned_launch *first) {
    const struct replay *replay = planner->plan->replay;
    if (step->kind == REPLAY_KERNEL) {
        fprintf(out, "  kernel of a client, %s", replay->names[step->name].operation);
        print_label(out, replay->names[step->name].label[0] ? replay->names[step->name].label : NULL);
        fputc('\n', out);
        return 1;
    }
    if (step->kind == REPLAY_LAUNCH) {
        fputs("  launch ", out);
        print_launch(out, planner, first);
        return 1;
    }
    size_t n = step->kind == REPLAY_FUSED ? first->fused : step->n;
    if (step->kind == REPLAY_FUSED) {
        const struct fused_launch *fused = (const struct fused_launch *)(const void *)(replay->launches + step->at);
        fprintf(out, "  fused, %zu on %" PRId64 " x %" PRId64 " elements%s, %" PRIu32 " slots\n", n, fused->rows,
                fused->columns,
                fused->whole_rows ? " by rows"
                : fused->segments ? " in segments"
                                  : "",
                fused->n_slots);
    } else {
        fprintf(out, "  flat, %zu\n", n);
    }
    for (size_t i = 0; i < n; i++) {
        fputs("    ", out);
        print_launch(out, planner, &first[i]);
    }
    return n;
}

static void print_steps(FILE *out, const struct planner *planner) {
    const struct replay *replay = planner->plan->replay;
    size_t at = 0;
    for (unsigned i = 0; i < replay->n_steps && at < planner->n_launches;
         i++) { /* those that are made singly are the same */
        if (i == 0 && replay->n_once)
            fprintf(out, "  %u in the first run alone:\n", replay->n_once);
        if (i == replay->n_once)
            fprintf(out, "  %u in each run:\n", replay->n_steps - replay->n_once);
        at += print_step(out, planner, &replay->steps[i], &planner->launches[at]);
        i += replay->steps[i].singly;
    }
}

/* ---- the rest ---- */

static void print_dropped(FILE *out, const struct recorded_body *body) {
    for (unsigned k = 0; k < body->n_operations; k++) {
        const struct recorded_operation *operation = &body->operations[k];
        if (!operation->dead)
            continue;
        fprintf(out, "  operation %u, %s", k + 1, op_info(operation->request.opcode)->name);
        print_label(out, operation->request.label);
        if (operation->same)
            fprintf(out, ", is %s operation %" PRIu32 "\n",
                    operation->request.opcode == body->operations[operation->same - 1].request.opcode ? "the same as"
                                                                                                      : "a part of",
                    operation->same);
        else
            fputs(", is not needed\n", out);
    }
}

static int piece_order(const void *a, const void *b) {
    const struct draft_piece *x = *(struct draft_piece *const *)a, *y = *(struct draft_piece *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

static void print_arena(FILE *out, const struct planner *planner) {
    const struct recorded_plan *plan = planner->plan;
    struct draft_piece **pieces = malloc((planner->draft.count + 1) * sizeof(struct draft_piece *));
    size_t count = 0;
    fprintf(out, "  arena: %" PRIu64 " bytes, at most %" PRIu64 " in use at one time\n", plan->arena_bytes,
            plan->least_bytes);
    for (size_t i = 0; pieces && i < planner->draft.count; i++)
        if (planner->draft.pieces[i]->base == plan->replay->first_report - 1 && !planner->draft.pieces[i]->slot)
            pieces[count++] = planner->draft.pieces[i];
    if (pieces)
        qsort(pieces, count, sizeof *pieces, piece_order);
    for (size_t i = 0; i < count; i++) {
        const struct draft_piece *piece = pieces[i];
        fprintf(out, "    +%" PRIu64 ": %" PRIu64 " bytes, ", piece->offset, piece->bytes);
        if (piece->kept)
            fputs("kept from the first run on\n", out);
        else if (piece->to == piece->from)
            fputs("unused\n", out);
        else
            fprintf(out, "in launches %" PRIu64 " to %" PRIu64 "\n", piece->from + 1, piece->to);
    }
    free(pieces);
}

static void print_loop(FILE *out, const struct recorded *recorded) {
    for (unsigned i = 0; i < recorded->n_carries; i++)
        fprintf(out, "  result %" PRIu32 " is carried to parameter %" PRIu32 "\n", recorded->carries[i].result,
                recorded->carries[i].parameter);
    for (unsigned i = 0; recorded->loops && i < recorded->body->n_parameters; i++)
        if (recorded->sliced[i])
            fprintf(out, "  parameter %u is sliced\n", i);
    for (unsigned i = 0; recorded->loops && i < recorded->body->n_results; i++)
        if (recorded->stacked[i])
            fprintf(out, "  result %u is stacked\n", i);
}

static void print_plan(FILE *out, const struct planner *planner) {
    const struct recorded *recorded = planner->recorded;
    const struct recorded_body *body = recorded->body;
    fprintf(out,
            "%s %" PRIu64 " of session %" PRIu64
            ": %u operations, %u needed; %u parameters, %u captured tensors, %u results\n",
            recorded->loops ? "loop" : "program", recorded->id, planner->session->limits.number, body->n_operations,
            body->n_live, body->n_parameters, body->n_captures, body->n_results);
    print_dropped(out, body);
    print_steps(out, planner);
    for (unsigned r = 0; r < body->n_results; r++)
        if (recorded->plan.lender[r] != RECORDED_NONE)
            fprintf(out, "  result %u is in the memory of parameter %" PRIu32 "\n", r, recorded->plan.lender[r]);
    print_loop(out, recorded);
    print_arena(out, planner);
}

void recorded_print(const struct planner *planner, FILE *out) {
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size); /* one write: the log has other lines, too */
    if (!memory)
        return;
    print_plan(memory, planner);
    if (fclose(memory) == 0)
        fwrite(text, 1, size, out);
    free(text);
}
