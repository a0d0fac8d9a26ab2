/* The recorded programs of all sessions, for people. */
#include <inttypes.h>

#include "client/tensorctl/tensorctl.h"

enum program_column {
    PROGRAM_SESSION,
    PROGRAM_USER,
    PROGRAM_DEVICE,
    PROGRAM_ID,
    PROGRAM_LABEL,
    PROGRAM_OPERATIONS,
    PROGRAM_LAUNCHES,
    PROGRAM_FUSED,
    PROGRAM_ARENA,
    PROGRAM_LEAST,
    PROGRAM_RUNS,
    PROGRAM_ITERATIONS,
    PROGRAM_TIME,
    PROGRAM_LAST,
    PROGRAM_COLUMNS
};

/* "120 (8)": all, and a part of them. */
static void set_counts(struct table *table, size_t row, unsigned column, uint64_t all, uint64_t part) {
    char text[2 * TEXT_UNIT_MAX], a[TEXT_UNIT_MAX], b[TEXT_UNIT_MAX];
    snprintf(text, sizeof text, "%s (%s)", text_count(a, (double)all), text_count(b, (double)part));
    table_set(table, row, column, text);
}

static void program_plan(struct table *table, size_t row, const Tensord__ProgramStatus *program) {
    char unit[TEXT_UNIT_MAX];
    if (!program->planned)
        return;
    table_set(table, row, PROGRAM_LAUNCHES, text_count(unit, program->launches));
    set_counts(table, row, PROGRAM_FUSED, program->fused, program->fused_launches);
    table_set(table, row, PROGRAM_ARENA, text_bytes(unit, (double)program->arena));
    table_set(table, row, PROGRAM_LEAST, text_bytes(unit, (double)program->arena_least));
}

static void program_row(struct table *table, size_t row, const Tensord__ProgramStatus *program) {
    char text[2 * TEXT_UNIT_MAX], unit[TEXT_UNIT_MAX];
    snprintf(text, sizeof text, "%" PRIu64, program->session);
    table_set(table, row, PROGRAM_SESSION, text);
    table_set(table, row, PROGRAM_USER, program->principal);
    table_set(table, row, PROGRAM_DEVICE, program->device);
    snprintf(text, sizeof text, "%" PRIu64 "%s", program->id, program->loops ? " loop" : "");
    table_set(table, row, PROGRAM_ID, text);
    table_set(table, row, PROGRAM_LABEL, program->label);
    set_counts(table, row, PROGRAM_OPERATIONS, program->operations, program->operations_kept);
    program_plan(table, row, program);
    table_set(table, row, PROGRAM_RUNS, text_count(unit, (double)program->runs));
    table_set(table, row, PROGRAM_ITERATIONS, text_count(unit, (double)program->iterations));
    if (!program->runs_timed)
        return;
    table_set(table, row, PROGRAM_TIME, text_duration(unit, program->mean_run_s));
    table_set(table, row, PROGRAM_LAST, text_duration(unit, program->last_run_s));
}

/* Programs beyond those that the daemon lists. */
static uint64_t programs_further(const Tensord__Status *status) {
    uint64_t all = 0;
    for (size_t i = 0; i < status->n_sessions; i++)
        all += status->sessions[i]->programs;
    return all > status->n_programs ? all - status->n_programs : 0;
}

void tensorctl_programs_write(FILE *out, const Tensord__Status *status) {
    static const struct table_column columns[PROGRAM_COLUMNS] = {
        [PROGRAM_SESSION] = {"SESSION", .right = true, .flexible = true},
        [PROGRAM_USER] = {"USER", .flexible = true, .spare = 6},
        [PROGRAM_DEVICE] = {"DEVICE", .flexible = true, .spare = 7},
        [PROGRAM_ID] = {"ID", .right = true, .flexible = true},
        [PROGRAM_LABEL] = {"LABEL", .flexible = true, .spare = 5},
        [PROGRAM_OPERATIONS] = {"OPERATIONS (KEPT)", .right = true},
        [PROGRAM_LAUNCHES] = {"LAUNCHES", .right = true, .spare = 1},
        [PROGRAM_FUSED] = {"FUSED (OF)", .right = true},
        [PROGRAM_ARENA] = {"ARENA", .right = true},
        [PROGRAM_LEAST] = {"AT ONCE", .right = true, .spare = 3},
        [PROGRAM_RUNS] = {"RUNS", .right = true},
        [PROGRAM_ITERATIONS] = {"ITERATIONS", .right = true, .spare = 2},
        [PROGRAM_TIME] = {"TIME", .right = true},
        [PROGRAM_LAST] = {"LAST", .right = true, .spare = 4},
    };
    struct table table;
    char count[TEXT_UNIT_MAX];
    uint64_t further = programs_further(status);
    if (status->n_programs == 0)
        return text_line(out, "no recorded programs");
    if (!table_init(&table, columns, sizeof columns / sizeof *columns, status->n_programs))
        return text_line(out, "out of memory");
    for (size_t i = 0; i < status->n_programs; i++)
        program_row(&table, i, status->programs[i]);
    table_head(&table, out);
    for (size_t i = 0; i < status->n_programs; i++) {
        const Tensord__ProgramStatus *program = status->programs[i];
        table_row(&table, i, out);
        if (*program->cause)
            text_wrap(out, "    fails: ", program->cause);
        if (*program->graph_reason)
            text_wrap(out, "    no graph: ", program->graph_reason);
        if (*program->fused_reason)
            text_wrap(out, "    not fused: ", program->fused_reason);
        else if (program->fused_waiting)
            text_line(out, "    %u of %u fused launches wait for their kernels", program->fused_waiting,
                      program->fused);
    }
    table_finish(&table);
    if (further)
        text_line(out, "and %s more", text_count(count, (double)further));
}
