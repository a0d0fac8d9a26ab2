/* Frames of user kernels that make no sense, on a device that takes none: what breaks the protocol ends the connection, what
 * is merely wrong fails by itself. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "proto/ops/kernel.h"
#include "tests/daemon/hostile.h"

TestSuite(malformed_kernels, .timeout = 60);

enum { NEXT = HOSTILE_NEXT };

/* A launch whose parts rows change. */
struct launch {
    Tensord__KernelLaunch message;
    Tensord__KernelOutput output, *outputs[KERNEL_ARGUMENTS_MAX + 10];
    uint32_t grid[4], block[4], kinds[KERNEL_ARGUMENTS_MAX + 10];
    uint64_t values[KERNEL_ARGUMENTS_MAX + 10];
    int64_t shape[20];
};

static void launch_begin(struct launch *launch) {
    memset(launch, 0, sizeof *launch);
    tensord__kernel_launch__init(&launch->message);
    tensord__kernel_output__init(&launch->output);
    for (size_t i = 0; i < sizeof launch->outputs / sizeof *launch->outputs; i++)
        launch->outputs[i] = &launch->output;
    for (size_t i = 0; i < 4; i++)
        launch->grid[i] = launch->block[i] = 1;
    launch->output.dtype = DTYPE_F32;
    launch->output.n_shape = 1;
    launch->output.shape = launch->shape;
    launch->shape[0] = 4;
    launch->kinds[0] = KERNEL_OUTPUT;
    launch->kinds[1] = KERNEL_INPUT;
    launch->values[1] = HOSTILE_KEPT;
    launch->message.kernel = 1;
    launch->message.first_output = launch->message.sequence = NEXT;
    launch->message.n_grid = launch->message.n_block = 3;
    launch->message.grid = launch->grid;
    launch->message.block = launch->block;
    launch->message.n_arguments = launch->message.n_values = 2;
    launch->message.arguments = launch->kinds;
    launch->message.values = launch->values;
    launch->message.n_outputs = 1;
    launch->message.outputs = launch->outputs;
}

static void launch_send(struct wire *wire, struct launch *launch) {
    wire_send(wire, FRAME_KERNEL_LAUNCH, &launch->message, NULL, 0);
}

#define LAUNCH(name, ...)                                                                                              \
    static void name(struct wire *wire) {                                                                              \
        struct launch launch;                                                                                          \
        launch_begin(&launch);                                                                                         \
        __VA_ARGS__;                                                                                                   \
        launch_send(wire, &launch);                                                                                    \
    }

LAUNCH(unknown_kernel, (void)0)
LAUNCH(kernel_zero, launch.message.kernel = 0)
LAUNCH(unknown_stream, launch.message.stream = 77)
LAUNCH(unknown_input, launch.values[1] = 999)
LAUNCH(foreign_input, launch.values[1] = HOSTILE_FOREIGN)
LAUNCH(own_output_as_input, launch.values[1] = NEXT)
LAUNCH(negative_extent, launch.shape[0] = -1)
LAUNCH(extents_that_overflow, launch.output.n_shape = 2; launch.shape[0] = launch.shape[1] = INT64_C(1) << 32)
LAUNCH(rank_nine, launch.output.n_shape = 9)
LAUNCH(no_dtype, launch.output.dtype = 99)
LAUNCH(empty_grid, launch.grid[1] = 0)
LAUNCH(huge_block, launch.block[0] = launch.block[1] = launch.block[2] = UINT32_MAX)
LAUNCH(huge_shared, launch.message.shared = UINT32_MAX)
LAUNCH(sixty_four_outputs, {
    launch.message.n_arguments = launch.message.n_values = launch.message.n_outputs = KERNEL_ARGUMENTS_MAX;
    for (int i = 0; i < KERNEL_ARGUMENTS_MAX; i++)
        launch.kinds[i] = KERNEL_OUTPUT;
})
LAUNCH(consumes_its_own_output, launch.kinds[1] = KERNEL_CONSUME; launch.values[1] = NEXT)
LAUNCH(consumes_one_twice, launch.kinds[0] = launch.kinds[1] = KERNEL_CONSUME; launch.message.n_outputs = 0;
       launch.values[0] = launch.values[1] = HOSTILE_SPARE)
LAUNCH(no_arguments, launch.message.n_arguments = launch.message.n_values = launch.message.n_outputs = 0)
LAUNCH(output_used_before, launch.message.first_output = 1)
LAUNCH(output_zero, launch.message.first_output = 0)
LAUNCH(too_many_arguments, launch.message.n_arguments = launch.message.n_values = KERNEL_ARGUMENTS_MAX + 1;
       memset(launch.kinds, 0, sizeof launch.kinds))
LAUNCH(fewer_values, launch.message.n_values = 1)
LAUNCH(more_outputs, launch.message.n_outputs = 2)
LAUNCH(fewer_outputs, launch.message.n_outputs = 0)
LAUNCH(kind_zero, launch.kinds[1] = 0)
LAUNCH(kind_unknown, launch.kinds[1] = 7)
LAUNCH(kind_huge, launch.kinds[1] = UINT32_MAX)
LAUNCH(two_extents, launch.message.n_grid = 2)
LAUNCH(four_extents, launch.message.n_block = 4)
LAUNCH(no_extents, launch.message.n_grid = launch.message.n_block = 0)
LAUNCH(wrong_sequence, launch.message.sequence++)
LAUNCH(long_label, {
    static char label[200];
    memset(label, 'x', sizeof label - 1);
    launch.message.label = label;
})
LAUNCH(ids_that_wrap, launch.message.first_output = UINT64_MAX; launch.kinds[1] = KERNEL_OUTPUT;
       launch.message.n_outputs = 2)

static void compile(struct wire *wire) {
    Tensord__KernelCompile message = TENSORD__KERNEL_COMPILE__INIT;
    message.kernel = 1;
    message.source = "extern \"C\" __global__ void f() {}";
    message.name = "f";
    wire_send(wire, FRAME_KERNEL_COMPILE, &message, NULL, 0);
}
static void compile_asked(struct wire *wire) {
    Tensord__KernelCompile message = TENSORD__KERNEL_COMPILE__INIT;
    struct wire_frame frame;
    message.kernel = 1;
    message.source = "";
    message.name = "f";
    wire_request(wire, FRAME_KERNEL_COMPILE, &message);
    cr_assert_eq(wire_receive(wire, &frame, WIRE_TIMEOUT_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_KERNEL_COMPILED);
    Tensord__KernelCompiled *compiled =
        tensord__kernel_compiled__unpack(NULL, frame.header.message_bytes, frame.message);
    cr_assert(compiled && compiled->error);
    cr_assert_eq(compiled->error->code, STATUS_DENIED, "%s", compiled->error->message);
    tensord__kernel_compiled__free_unpacked(compiled, NULL);
    wire_frame_finish(&frame);
}
static void compiled_by_a_client(struct wire *wire) {
    Tensord__KernelCompiled message = TENSORD__KERNEL_COMPILED__INIT;
    wire_send(wire, FRAME_KERNEL_COMPILED, &message, NULL, 0);
}
static void release_of_nothing(struct wire *wire) {
    Tensord__KernelRelease message = TENSORD__KERNEL_RELEASE__INIT;
    wire_send(wire, FRAME_KERNEL_RELEASE, &message, NULL, 0);
    message.kernel = UINT64_MAX;
    wire_send(wire, FRAME_KERNEL_RELEASE, &message, NULL, 0);
}
static void launch_with_payload(struct wire *wire) {
    struct launch launch;
    launch_begin(&launch);
    wire_send(wire, FRAME_KERNEL_LAUNCH, &launch.message, "data", 4);
}

#define FAILS(row, code)                                                                                               \
    { #row, HOSTILE_SESSION, row, HOSTILE_FAILS, code, NEXT, NULL }
#define LIVES(row)                                                                                                     \
    { #row, HOSTILE_SESSION, row, HOSTILE_LIVES, 0, 0, NULL }
#define CLOSES(row)                                                                                                    \
    { #row, HOSTILE_SESSION, row, HOSTILE_CLOSES, STATUS_PROTOCOL, 0, NULL }

static const struct hostile_row rows[] = {
    FAILS(unknown_kernel, STATUS_INVALID_ARGUMENT),
    FAILS(kernel_zero, STATUS_INVALID_ARGUMENT),
    FAILS(unknown_stream, 0),
    FAILS(unknown_input, 0),
    FAILS(foreign_input, 0),
    FAILS(own_output_as_input, 0),
    FAILS(negative_extent, STATUS_SHAPE),
    FAILS(extents_that_overflow, STATUS_SHAPE),
    FAILS(rank_nine, STATUS_SHAPE),
    FAILS(no_dtype, STATUS_DTYPE),
    FAILS(empty_grid, 0),
    FAILS(huge_block, 0),
    FAILS(huge_shared, 0),
    FAILS(sixty_four_outputs, STATUS_INVALID_ARGUMENT),
    FAILS(consumes_its_own_output, 0),
    FAILS(consumes_one_twice, 0),
    LIVES(no_arguments),
    LIVES(output_used_before),
    LIVES(output_zero),
    LIVES(ids_that_wrap),
    CLOSES(too_many_arguments),
    CLOSES(fewer_values),
    CLOSES(more_outputs),
    CLOSES(fewer_outputs),
    CLOSES(kind_zero),
    CLOSES(kind_unknown),
    CLOSES(kind_huge),
    CLOSES(two_extents),
    CLOSES(four_extents),
    CLOSES(no_extents),
    CLOSES(wrong_sequence),
    CLOSES(long_label),
    CLOSES(launch_with_payload),
    CLOSES(compile),
    LIVES(compile_asked),
    CLOSES(compiled_by_a_client),
    LIVES(release_of_nothing),
    {"compile before Hello", HOSTILE_PREAMBLE, compile, HOSTILE_CLOSES, STATUS_PROTOCOL, 0, NULL},
    {"compile on a control connection", HOSTILE_CONTROL, compile, HOSTILE_CLOSES, STATUS_PROTOCOL, 0, NULL},
};

ParameterizedTestParameters(malformed_kernels, row) {
    static int numbers[sizeof rows / sizeof *rows];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        numbers[i] = (int)i;
    return cr_make_param_array(int, numbers, sizeof rows / sizeof *rows);
}

ParameterizedTest(int *number, malformed_kernels, row) {
    static const char *const leave[] = {"--user-kernels", "all", NULL};
    struct hostile_row row = rows[*number];
    row.flags = row.act == compile_asked ? NULL : leave; /* that one asks without it */
    hostile_run(&row);
}
