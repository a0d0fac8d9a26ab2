/* The public header and the first example: what a newcomer compiles first. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/command.h"
#include "tests/daemon/daemon.h"

enum { COMPILE_MS = 60000 };

static struct daemon tensord;
static struct command command;
static char directory[64];

static void start(void) {
    daemon_directory_make(directory);
}

static void stop(void) {
    command_finish(&command);
    daemon_directory_remove(directory);
    daemon_stop(&tensord);
}

TestSuite(header, .init = start, .fini = stop, .timeout = 120);

/* A source file of these lines. */
static void compiles(const char *compiler, const char *standard, const char *name, const char *lines) {
    char path[100], include[1000];
    command_run(&command, (const char *const[]){compiler, "--version", NULL}, NULL, COMPILE_MS);
    if (command.code)
        cr_skip_test("%s is not there", compiler);
    command_finish(&command);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    snprintf(include, sizeof include, "-I%s", daemon_program("TENSORD_INCLUDE"));
    FILE *file = fopen(path, "w");
    fputs(lines, file);
    fclose(file);
    command_run(&command,
                (const char *const[]){compiler, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                                      include, path, NULL},
                NULL, COMPILE_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
}

/* The header twice and nothing else. */
static void compiles_alone(const char *compiler, const char *standard, const char *name) {
    compiles(compiler, standard, name,
             "#include <tensord.h>\n#include <tensord.h>\nint answer(void);\nint answer(void) { return TD_OK; }\n");
}

static const char launch[] = "#include <tensord.h>\n"
                             "int launch(td_kernel *kernel, td_tensor *x, td_tensor **y);\n"
                             "int launch(td_kernel *kernel, td_tensor *x, td_tensor **y) {\n"
                             "    return td_kernel_launch(kernel, TD_DIM(4, 2), TD_DIM(256), 0,\n"
                             "                            TD_ARGS(td_arg_out(y, TD_F32, TD_SHAPE(4)), td_arg_in(x),\n"
                             "                                    td_arg_f32(2)));\n"
                             "}\n";

Test(header, kernels_are_launched_from_c) {
    compiles("cc", "-std=c11", "launch.c", launch);
}

Test(header, kernels_are_launched_from_cpp) {
    compiles("c++", "-std=c++11", "launch.cpp", launch);
}

Test(header, compiles_alone_as_c99) {
    compiles_alone("cc", "-std=c99", "alone.c");
}

Test(header, compiles_alone_as_c11) {
    compiles_alone("cc", "-std=c11", "alone.c");
}

Test(header, compiles_alone_as_cpp11) {
    compiles_alone("c++", "-std=c++11", "alone.cpp");
}

Test(header, compiles_alone_as_cpp20) {
    compiles_alone("c++", "-std=c++20", "alone.cpp");
}

/* The first example is C that C++ takes as well. */
Test(header, example_is_pedantic_cpp) {
    char path[1000], include[1000];
    snprintf(path, sizeof path, "%s/client/examples/hello.c", daemon_program("TENSORD_SOURCE"));
    snprintf(include, sizeof include, "-I%s/..", daemon_program("TENSORD_INCLUDE"));
    command_run(&command, (const char *const[]){"c++", "--version", NULL}, NULL, COMPILE_MS);
    if (command.code)
        cr_skip_test("c++ is not there");
    command_finish(&command);
    command_run(&command,
                (const char *const[]){"c++", "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                                      "-fsyntax-only", include, path, NULL},
                NULL, COMPILE_MS);
    cr_assert_eq(command.code, 0, "%s", command.err);
}

static char *read_whole(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file)
        return NULL;
    char *text = calloc(1, 1 << 20);
    size_t n = fread(text, 1, (1 << 20) - 1, file);
    text[n] = 0;
    fclose(file);
    return text;
}

/* The block of C at *readme, behind which that is put. */
static void shows(char **readme, const char *name) {
    char path[1000];
    snprintf(path, sizeof path, "%s/client/examples/%s", daemon_program("TENSORD_SOURCE"), name);
    char *example = read_whole(path), *block = strstr(*readme, "```c\n");
    cr_assert_not_null(example, "%s", path);
    cr_assert_not_null(block, "README.md has no block of C for %s", name);
    block += strlen("```c\n");
    char *end = strstr(block, "```");
    cr_assert_not_null(end);
    *end = 0;
    cr_assert_str_eq(block, example);
    *readme = end + 1;
    free(example);
}

Test(header, readme_shows_the_example_as_it_is) {
    char path[1000];
    snprintf(path, sizeof path, "%s/README.md", daemon_program("TENSORD_SOURCE"));
    char *readme = read_whole(path), *at = readme;
    cr_assert_not_null(readme);
    shows(&at, "hello.c");
    free(readme);
}

Test(header, example_runs) {
    char variable[140];
    daemon_start(&tensord, NULL);
    snprintf(variable, sizeof variable, "TENSORD_URL=%s", tensord.url);
    command_run(&command, (const char *const[]){daemon_program("HELLO_EXE"), NULL},
                (const char *const[]){variable, NULL}, COMPILE_MS);
    cr_assert_eq(command.code, 0, "%d: %s", command.code, command.err);
    cr_assert(command.out_bytes > 0, "it printed nothing");
}

Test(header, example_trains) {
    char variable[140];
    double first, last, weights[3];
    daemon_start(&tensord, NULL);
    snprintf(variable, sizeof variable, "TENSORD_URL=%s", tensord.url);
    command_run(&command, (const char *const[]){daemon_program("TRAIN_EXE"), NULL},
                (const char *const[]){variable, NULL}, COMPILE_MS);
    cr_assert_eq(command.code, 0, "%d: %s", command.code, command.err);
    cr_assert_eq(sscanf(command.out, "loss %lf at first, %lf at the end; weights %lf %lf %lf", &first, &last,
                        &weights[0], &weights[1], &weights[2]),
                 5, "%s", command.out);
    cr_assert(first > 1 && last < 0.01, "%s", command.out);
    for (int i = 0; i < 3; i++)
        cr_assert_float_eq(weights[i], ((const double[]){1, -2, 3})[i], 0.01, "%s", command.out);
}
