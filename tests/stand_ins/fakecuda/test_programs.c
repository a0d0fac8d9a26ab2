/* Recorded programs on a daemon with "GPUs": their fused launches run one by one until the daemon has compiled their kernels, and on if it cannot. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/daemon/command.h"
#include "tests/daemon/json.h"
#include "tests/daemon/status.h"
#include "tests/stand_ins/fakecuda/compilers.h"

enum { RUN_MS = 20000, COLUMNS = 100 };

static struct command command;

static void stop(void) {
    command_finish(&command);
    compilers_stop();
}

TestSuite(fakecuda_programs, .fini = stop, .timeout = 60);

/* Nobody may have kernels of their own. */
static void start(const char *fail, const char *option) {
    compilers_start(fail, (const char *const[]){option, NULL});
}

/* A group of elementwise operations for each of `first` and the numbers after it: each other groups. */
static td_program *record(unsigned first, unsigned groups) {
    td_program *program = NULL;
    cr_assert(!td_record_begin(compilers.client.device));
    td_tensor *x = td_parameter(TD_F32, TD_SHAPE(COLUMNS));
    for (unsigned i = 0; i < groups; i++) {
        for (unsigned k = 0; k < 2 + first + i; k++)
            x = td_multiply(td_tanh(x), x);
        x = td_softmax(x, 0);
    }
    cr_assert(!td_record_end(compilers.client.device, 1, &x, &program), "%s", td_last_error()->message);
    return program;
}

static void run(td_program *program) {
    td_tensor *x = td_full(compilers.client.device, TD_F32, TD_SHAPE(COLUMNS), 1), *y;
    float values[COLUMNS];
    cr_assert(!td_program_run(program, 1, &x, 1, &y));
    cr_assert(!td_fetch(y, values, sizeof values), "%s", td_last_error()->message);
    td_release(x);
    td_release(y);
}

static bool waits_for_none(const Tensord__Status *status, const void *argument) {
    (void)argument;
    return status->n_programs == 1 && status->programs[0]->fused && !status->programs[0]->fused_waiting;
}

static bool has_reason(const Tensord__Status *status, const void *argument) {
    return status->n_programs == 1 && strstr(status->programs[0]->fused_reason, argument);
}

static void look(const char *expression) {
    command_finish(&command);
    command_run(&command,
                (const char *const[]){daemon_program("TENSORCTL_EXE"), "--url", compilers.daemon.url, "programs",
                                      "--json", NULL},
                NULL, RUN_MS);
    json_expect(command.out, command.out_bytes, expression);
}

Test(fakecuda_programs, kernels_of_fused_launches_come_while_it_runs) {
    start("FAKECUDA_FAIL", NULL);
    td_program *program = record(0, 3);
    for (int i = 0; i < 3; i++)
        run(program);
    status_until(compilers.daemon.url, waits_for_none, NULL, RUN_MS);
    for (int i = 0; i < 3; i++)
        run(program);
    look("[(p['fused'], p['fused_waiting'], p['fused_reason']) for p in d['programs']] == [(3, 0, None)]");
    td_program_release(program);
    cr_assert_eq(status_worker_pid(compilers.daemon.url, "cuda:0"), compilers.worker);
}

Test(fakecuda_programs, launches_whose_kernel_cannot_be_loaded_stay_single) {
    start("FAKECUDA_FAIL=cuLibraryLoadData:1:2", NULL);
    td_program *program = record(0, 2);
    run(program);
    status_until(compilers.daemon.url, has_reason, "cuLibraryLoadData", RUN_MS);
    run(program);
    look("[(p['fused'], p['fused_reason'] is None) for p in d['programs']] == [(2, False)]");
    cr_assert_eq(status_worker_pid(compilers.daemon.url, "cuda:0"), compilers.worker);
    td_program_release(program);
    program = record(0, 2); /* the next plan asks again, when the last one has gone */
    run(program);
    status_until(compilers.daemon.url, waits_for_none, NULL, RUN_MS);
    run(program);
    td_program_release(program);
}
