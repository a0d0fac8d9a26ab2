/* What a kernel is asked when a launch is bound: whether it takes it, and what memory it needs besides; and what is told where there is no more
 * memory. */
#include <stdio.h>

#include "tests/unit/engine_fixture.h"

enum { N = 64, WORKSPACE = 1 << 20 };

static int matrix(uint64_t id) {
    int64_t ints[4] = {DTYPE_F32, 0, N, N};
    double value = 0;
    return submit_in(session,
                     (struct op_request){
                         .opcode = OP_FULL, .n_ints = 4, .ints = ints, .n_floats = 1, .floats = &value, .output = id});
}

static int product(uint64_t id, uint64_t a, uint64_t b) {
    return apply(OP_MATMUL, id, 2, (const uint64_t[]){a, b}, 0, NULL, 0, 0);
}

/* What a fetch of the id is told. */
static char told[256];

static void tell(struct fetch *fetch, const struct failure *failure) {
    snprintf(told, sizeof told, "%s", failure ? failure->message : "nothing is wrong");
    fetch_release(fetch);
}

static const char *failure_of(uint64_t id) {
    static struct fetch fetch;
    fetch = (struct fetch){.done = tell};
    told[0] = 0;
    session_fetch(session, id, &fetch);
    while (!told[0]) {
        engine_kick(engine);
        engine_wait(engine);
    }
    return told;
}

/* ---- accepts ---- */

static int no_transposed(const struct launch *launch, struct fault *fault) {
    const struct operand *b = &launch->inputs[1];
    cr_assert_eq(launch->opcode, OP_MATMUL);
    cr_assert_eq(launch->n_inputs, 2);
    cr_assert_eq(b->rank, 2);
    cr_assert_eq(b->shape[0], N);
    cr_assert_eq(b->dtype, DTYPE_F32);
    cr_assert_eq(launch->output.strides[0], N);
    return b->strides[1] == 1 ? STATUS_OK : fault_set(fault, STATUS_UNSUPPORTED, "rows of b must be contiguous");
}

Test(engine_workspace, a_kernel_sees_layouts_and_says_what_it_does_not_take) {
    open_engine(1 << 30);
    device.accepts = no_transposed;
    cr_assert_eq(matrix(1), STATUS_OK);
    cr_assert_eq(apply(OP_MATRIX_TRANSPOSE, 2, 1, (const uint64_t[]){1}, 0, NULL, 0, 0), STATUS_OK);
    cr_assert_eq(product(3, 1, 1), STATUS_OK);
    cr_assert_eq(product(4, 1, 2), STATUS_UNSUPPORTED);
    cr_assert_str_eq(failure_of(3), "nothing is wrong");
    cr_assert_str_eq(failure_of(4), "rows of b must be contiguous");
    close_engine();
}

/* ---- workspace ---- */

static struct {
    unsigned count;
    uint8_t *workspace[4], *operands[4][3];
} seen;

static int look(struct null_device *null, const struct launch *launch) {
    (void)null;
    if (launch->opcode != OP_MATMUL) {
        cr_assert_null(launch->workspace);
        return 0;
    }
    seen.workspace[seen.count] = launch->workspace;
    seen.operands[seen.count][0] = launch->output.data;
    for (int i = 0; i < 2; i++)
        seen.operands[seen.count][i + 1] = launch->inputs[i].data;
    seen.count++;
    return 0;
}

Test(engine_workspace, it_is_the_launchs_own_and_the_next_ones_on_its_stream) {
    open_engine(1 << 30);
    memset(&seen, 0, sizeof seen);
    device.hook = look;
    device.workspace = WORKSPACE;
    cr_assert_eq(matrix(1), STATUS_OK);
    for (uint64_t id = 2; id < 5; id++)
        cr_assert_eq(product(id, id - 1, id - 1), STATUS_OK);
    cr_assert_str_eq(failure_of(4), "nothing is wrong");
    cr_assert_eq(seen.count, 3);
    for (int k = 0; k < 3; k++) {
        cr_assert_not_null(seen.workspace[k]);
        cr_assert_eq(seen.workspace[k], seen.workspace[0], "what comes later on a stream may have the same memory");
        for (int i = 0; i < 3; i++)
            cr_assert(seen.operands[k][i] + N * N * 4 <= seen.workspace[k] ||
                      seen.operands[k][i] >= seen.workspace[k] + WORKSPACE);
    }
    device.workspace = 0;
    cr_assert_eq(product(5, 1, 1), STATUS_OK);
    cr_assert_str_eq(failure_of(5), "nothing is wrong");
    cr_assert_null(seen.workspace[3]);
    close_engine();
}

Test(engine_workspace, it_is_charged_to_the_session) {
    struct session_limits least = limits;
    struct session_stats figures;
    least.bytes = WORKSPACE;
    open_limited(1 << 30, &least);
    cr_assert_eq(matrix(1), STATUS_OK);
    cr_assert_eq(product(2, 1, 1), STATUS_OK, "it wants none");
    device.workspace = WORKSPACE / 2;
    cr_assert_eq(product(3, 1, 1), STATUS_OK);
    session_stats(session, &figures);
    cr_assert_eq(figures.live, 3 * N * N * 4);
    cr_assert_eq(figures.peak, 3 * N * N * 4 + WORKSPACE / 2);
    device.workspace = WORKSPACE;
    cr_assert_eq(product(4, 1, 1), STATUS_LIMIT);
    cr_assert_str_eq(failure_of(4),
                     "for the workspace: the session's limit of 1.00 MiB is reached: 1.00 MiB asked, 64.0 KiB live");
    session_stats(session, &figures);
    cr_assert_eq(figures.live, 3 * N * N * 4, "a product that is refused holds nothing");
    close_engine();
}

/* ---- when there is no more ---- */

/* The session holds 8 MiB, another one 16, and between them 4 MiB are free again. The session asks for 50 more. */
static void expect_no_memory(const char *words) {
    enum { MIB = 1 << 20 };
    struct session *other, *own = session;
    struct fault fault;
    cr_assert_eq(session_create(engine_sessions(engine), &limits, &other, &fault), STATUS_OK);
    cr_assert_eq(full_of(own, DTYPE_U8, 1, 8 * MIB, 0), STATUS_OK);
    cr_assert_eq(full_of(own, DTYPE_U8, 2, 4 * MIB, 0), STATUS_OK);
    cr_assert_eq(full_of(other, DTYPE_U8, 1, 16 * MIB, 0), STATUS_OK);
    cr_assert_eq(release(2), STATUS_OK);
    cr_assert_eq(wait_for(0), STATUS_OK);
    cr_assert_eq(full_of(own, DTYPE_U8, 3, 50 * MIB, 0), STATUS_OUT_OF_MEMORY);
    cr_assert_str_eq(failure_of(3), words);
    session_destroy(other);
}

Test(engine_workspace, no_memory_is_told_with_the_device_s_and_the_session_s_figures) {
    open_engine(64 << 20);
    expect_no_memory(
        "out of device memory: 50.0 MiB asked, 40.0 MiB free of 64.0 MiB; you hold 8.00 MiB, others 16.0 MiB; the "
        "largest free block has 32.0 MiB");
    close_engine();
}

Test(engine_workspace, workspaces_are_told_where_there_is_no_memory) {
    open_engine(64 << 20);
    device.workspaces = 3 << 20;
    expect_no_memory(
        "out of device memory: 50.0 MiB asked, 40.0 MiB free of 64.0 MiB; you hold 8.00 MiB, others 16.0 MiB; the "
        "largest free block has 32.0 MiB, workspaces take 3.00 MiB");
    close_engine();
}
