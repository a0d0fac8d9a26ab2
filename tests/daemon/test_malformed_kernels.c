/* Launches and other requests of user kernels that make no sense, on a device that takes none: what breaks the protocol ends the
 * connection, what is merely wrong fails by itself. */
#include <criterion/criterion.h>
#include <string.h>

#include "proto/ops/kernel.h"
#include "tests/daemon/hostile.h"
#include "tests/stand_ins/launch.h"

TestSuite(malformed_kernels, .timeout = 240);

enum { NEXT = HOSTILE_NEXT };

/* A launch whose parts rows change. */
struct launch {
    struct wire_op op;
    struct kernel_attributes attributes;
    uint64_t inputs[KERNEL_ARGUMENTS_MAX + 10];
    int64_t grid[4], block[4], kinds[KERNEL_ARGUMENTS_MAX + 10], numbers[4], results[4 * KERNEL_ARGUMENTS_MAX];
};

static void launch_begin(struct launch *launch) {
    memset(launch, 0, sizeof *launch);
    for (int i = 0; i < 4; i++)
        launch->grid[i] = launch->block[i] = 1;
    for (int i = 0; i < KERNEL_ARGUMENTS_MAX; i++) /* of rank 1 */
        memcpy(launch->results + 3 * i, (int64_t[]){DTYPE_F32, 1, 4}, 3 * sizeof(int64_t));
    launch->kinds[0] = KERNEL_OUTPUT;
    launch->kinds[1] = KERNEL_INPUT;
    launch->inputs[0] = HOSTILE_KEPT;
    launch->attributes.kernel = 1;
    launch->attributes.grid = (struct op_ints){3, launch->grid};
    launch->attributes.block = (struct op_ints){3, launch->block};
    launch->attributes.arguments = (struct op_ints){2, launch->kinds};
    launch->attributes.numbers = (struct op_ints){0, launch->numbers};
    launch->attributes.results = (struct op_ints){3, launch->results};
    launch->op.opcode = OP_KERNEL;
    launch->op.output = launch->op.sequence = NEXT;
    launch->op.n_inputs = launch->op.n_outputs = 1;
    launch->op.inputs = launch->inputs;
}

static void launch_send(struct wire *wire, struct launch *launch) {
    struct launch_ints ints;
    launch_ints_write(&ints, &launch->attributes);
    launch->op.n_ints = ints.count;
    launch->op.ints = ints.values;
    wire_op(wire, &launch->op);
}

#define LAUNCH(name, ...)                                                                                              \
    static void name(struct wire *wire) {                                                                              \
        struct launch launch;                                                                                          \
        launch_begin(&launch);                                                                                         \
        __VA_ARGS__;                                                                                                   \
        launch_send(wire, &launch);                                                                                    \
    }

LAUNCH(unknown_kernel, (void)0)
LAUNCH(kernel_zero, launch.attributes.kernel = 0)
LAUNCH(unknown_stream, launch.op.stream = 77)
LAUNCH(unknown_input, launch.inputs[0] = 999)
LAUNCH(foreign_input, launch.inputs[0] = HOSTILE_FOREIGN)
LAUNCH(own_output_as_input, launch.inputs[0] = NEXT)
LAUNCH(negative_extent, launch.results[2] = -1)
LAUNCH(extents_that_overflow, launch.attributes.results.count = 4; launch.results[1] = 2;
       launch.results[2] = launch.results[3] = INT64_C(1) << 32)
LAUNCH(rank_nine, launch.attributes.results.count = 11; launch.results[1] = 9)
LAUNCH(rank_negative, launch.results[1] = -1)
LAUNCH(rank_beyond_the_list, launch.results[1] = 2)
LAUNCH(type_cut, launch.attributes.results.count = 1)
LAUNCH(no_dtype, launch.results[0] = 99)
LAUNCH(empty_grid, launch.grid[1] = 0)
LAUNCH(huge_block, launch.block[0] = launch.block[1] = launch.block[2] = INT64_MAX)
LAUNCH(negative_block, launch.block[0] = launch.block[1] = INT64_MIN)
LAUNCH(huge_shared, launch.attributes.shared = UINT32_MAX)
LAUNCH(negative_shared, launch.attributes.shared = -1)
LAUNCH(sixty_four_outputs, {
    launch.attributes.arguments.count = launch.op.n_outputs = KERNEL_ARGUMENTS_MAX;
    launch.attributes.results.count = 3 * KERNEL_ARGUMENTS_MAX;
    launch.op.n_inputs = 0;
    for (int i = 0; i < KERNEL_ARGUMENTS_MAX; i++)
        launch.kinds[i] = KERNEL_OUTPUT;
})
LAUNCH(consumes_its_own_output, launch.kinds[1] = KERNEL_UPDATE; launch.inputs[0] = NEXT; launch.op.consume = 1;
       launch.op.n_outputs = 2)
LAUNCH(consumes_one_twice, launch.kinds[0] = launch.kinds[1] = KERNEL_UPDATE; launch.attributes.results.count = 0;
       launch.op.n_inputs = launch.op.n_outputs = 2; launch.op.consume = 3;
       launch.inputs[0] = launch.inputs[1] = HOSTILE_SPARE)
LAUNCH(no_arguments, launch.attributes.arguments.count = launch.attributes.results.count = 0; launch.op.n_inputs = 0)
LAUNCH(no_output, launch.kinds[0] = KERNEL_INPUT; launch.attributes.results.count = 0; launch.op.n_inputs = 2;
       launch.inputs[1] = HOSTILE_KEPT)
LAUNCH(output_used_before, launch.op.output = 1)
LAUNCH(output_zero, launch.op.output = 0)
LAUNCH(too_many_arguments, launch.attributes.arguments.count = KERNEL_ARGUMENTS_MAX + 1)
LAUNCH(number_missing, launch.kinds[1] = KERNEL_BITS32; launch.op.n_inputs = 0)
LAUNCH(number_left_over, launch.attributes.numbers.count = 1)
LAUNCH(input_missing, launch.op.n_inputs = 0)
LAUNCH(input_left_over, launch.op.n_inputs = 2; launch.inputs[1] = HOSTILE_KEPT)
LAUNCH(more_outputs, launch.op.n_outputs = 2)
LAUNCH(fewer_outputs, launch.kinds[1] = KERNEL_OUTPUT; launch.op.n_inputs = 0)
LAUNCH(type_missing, launch.attributes.results.count = 0)
LAUNCH(type_left_over, launch.attributes.results.count = 6)
LAUNCH(kind_zero, launch.kinds[1] = 0)
LAUNCH(kind_unknown, launch.kinds[1] = KERNEL_BITS64 + 1)
LAUNCH(kind_huge, launch.kinds[1] = INT64_MAX)
LAUNCH(two_extents, launch.attributes.grid.count = 2)
LAUNCH(four_extents, launch.attributes.block.count = 4)
LAUNCH(no_extents, launch.attributes.grid.count = launch.attributes.block.count = 0)
LAUNCH(wrong_sequence, launch.op.sequence++)
LAUNCH(long_label, {
    static char label[200];
    memset(label, 'x', sizeof label - 1);
    launch.op.label = label;
})
LAUNCH(ids_that_wrap, launch.op.output = UINT64_MAX; launch.kinds[1] = KERNEL_OUTPUT; launch.op.n_inputs = 0;
       launch.op.n_outputs = 2; launch.attributes.results.count = 6)

/* Attributes that are no launch at all. */
#define INTS(name, ...)                                                                                                \
    static void name(struct wire *wire) {                                                                              \
        wire_op(wire,                                                                                                  \
                &(struct wire_op){.opcode = OP_KERNEL, .output = NEXT, .sequence = NEXT, WIRE_INTS(__VA_ARGS__)});     \
    }
INTS(kernel_alone, 1)
INTS(lists_missing, 1, 0)
INTS(list_too_long, 1, 0, 100, 1, 1)
INTS(list_too_long_by_far, 1, 0, INT64_MAX, 1, 1)
INTS(list_of_less_than_none, 1, 0, 3, 1, 1, 1, -3, 1, 1, 1)

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
    FAILS(negative_block, 0),
    FAILS(negative_shared, 0),
    FAILS(no_arguments, STATUS_INVALID_ARGUMENT),
    FAILS(no_output, STATUS_INVALID_ARGUMENT),
    FAILS(too_many_arguments, STATUS_INVALID_ARGUMENT),
    FAILS(number_missing, STATUS_INVALID_ARGUMENT),
    FAILS(number_left_over, STATUS_INVALID_ARGUMENT),
    FAILS(input_missing, STATUS_INVALID_ARGUMENT),
    FAILS(input_left_over, STATUS_INVALID_ARGUMENT),
    FAILS(more_outputs, STATUS_INVALID_ARGUMENT),
    FAILS(fewer_outputs, STATUS_INVALID_ARGUMENT),
    FAILS(type_missing, STATUS_INVALID_ARGUMENT),
    FAILS(type_left_over, STATUS_INVALID_ARGUMENT),
    FAILS(type_cut, STATUS_INVALID_ARGUMENT),
    FAILS(rank_negative, STATUS_INVALID_ARGUMENT),
    FAILS(rank_beyond_the_list, STATUS_INVALID_ARGUMENT),
    FAILS(kind_zero, STATUS_INVALID_ARGUMENT),
    FAILS(kind_unknown, STATUS_INVALID_ARGUMENT),
    FAILS(kind_huge, STATUS_INVALID_ARGUMENT),
    FAILS(two_extents, STATUS_INVALID_ARGUMENT),
    FAILS(four_extents, STATUS_INVALID_ARGUMENT),
    FAILS(no_extents, STATUS_INVALID_ARGUMENT),
    FAILS(kernel_alone, STATUS_INVALID_ARGUMENT),
    FAILS(lists_missing, STATUS_INVALID_ARGUMENT),
    FAILS(list_too_long, STATUS_INVALID_ARGUMENT),
    FAILS(list_too_long_by_far, STATUS_INVALID_ARGUMENT),
    FAILS(list_of_less_than_none, STATUS_INVALID_ARGUMENT),
    LIVES(output_used_before),
    LIVES(output_zero),
    LIVES(ids_that_wrap),
    CLOSES(wrong_sequence),
    CLOSES(long_label),
    CLOSES(compile),
    CLOSES(compiled_by_a_client),
    LIVES(release_of_nothing),
    {"compile before Hello", HOSTILE_PREAMBLE, compile, HOSTILE_CLOSES, STATUS_PROTOCOL, 0, NULL},
    {"compile on a control connection", HOSTILE_CONTROL, compile, HOSTILE_CLOSES, STATUS_PROTOCOL, 0, NULL},
};

Test(malformed_kernels, every_row) {
    static const char *const LEAVE[] = {"--user-kernels", "all", NULL};
    hostile_run(rows, sizeof rows / sizeof *rows, LEAVE);
}

Test(malformed_kernels, without_leave) {
    hostile_run(&(struct hostile_row)LIVES(compile_asked), 1, NULL);
}
