/* Recorded programs on a daemon with "GPUs": their fused launches run one by one until the daemon has compiled their kernels, and on if it cannot. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
static void start(const char *fail, const char *folder) {
    char option[128];
    snprintf(option, sizeof option, "--cache-dir=%s", folder);
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
    start("FAKECUDA_FAIL", "none");
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
    start("FAKECUDA_FAIL=cuLibraryLoadData:1:2", "none");
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

static bool has_graph_reason(const Tensord__Status *status, const void *argument) {
    return status->n_programs == 1 && strstr(status->programs[0]->graph_reason, argument);
}

/* The device's memory is not used up for graphs: a launch whose kernel cannot be loaded then would end the worker. */
Test(fakecuda_programs, no_graph_is_made_when_little_memory_is_left) {
    start("FAKECUDA_MEMORY=419430400", "none");
    td_program *program = record(0, 3);
    for (int i = 0; i < 4; i++)
        run(program);
    status_until(compilers.daemon.url, has_graph_reason, "little memory of the device is left for graphs", RUN_MS);
    look("[p['graphs'] for p in d['programs']] == [0]");
    cr_assert_eq(status_worker_pid(compilers.daemon.url, "cuda:0"), compilers.worker);
    td_program_release(program);
}

enum { KEPT_MAX = 8 };

/* The files' numbers on their disk: another one is another file, since they stay open until the test ends. Returns how many there are. */
static unsigned kept(const char *folder, ino_t files[KEPT_MAX]) {
    DIR *directory = opendir(folder);
    struct dirent *entry;
    unsigned n = 0;
    cr_assert(directory);
    while ((entry = readdir(directory)))
        if (*entry->d_name != '.' && n < KEPT_MAX) {
            struct stat now;
            int fd = openat(dirfd(directory), entry->d_name, O_RDONLY | O_CLOEXEC);
            cr_assert(fd >= 0 && fstat(fd, &now) == 0);
            files[n++] = now.st_ino;
        }
    closedir(directory);
    return n;
}

static void damage(const char *folder) {
    char line[160];
    snprintf(line, sizeof line, "for f in %s/*; do printf x | dd of=$f bs=1 seek=100 conv=notrunc 2>/dev/null; done",
             folder);
    cr_assert_eq(system(line), 0);
}

static bool is_there(ino_t file, const ino_t *files, unsigned n) {
    while (n && files[n - 1] != file)
        n--;
    return n;
}

/* A daemon that starts again finds them; what is damaged it compiles again. */
Test(fakecuda_programs, kernels_are_kept_on_disk) {
    char folder[] = "/tmp/kernels-XXXXXX", command_line[64];
    ino_t files[3][KEPT_MAX];
    cr_assert(mkdtemp(folder));
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            damage(folder);
        if (i)
            compilers_stop();
        start("FAKECUDA_FAIL", folder);
        td_program *program = record(0, 3);
        run(program);
        status_until(compilers.daemon.url, waits_for_none, NULL, RUN_MS);
        td_program_release(program);
        cr_assert_eq(kept(folder, files[i]), 3);
    }
    for (unsigned k = 0; k < 3; k++) {
        cr_assert(is_there(files[1][k], files[0], 3), "written again");
        cr_assert(!is_there(files[2][k], files[1], 3), "damaged, and not written again");
    }
    snprintf(command_line, sizeof command_line, "rm -r %s", folder);
    cr_assert_eq(system(command_line), 0);
}
