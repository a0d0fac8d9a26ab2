/* Launches of clients' kernels: inputs become addresses, outputs get memory that is zero or a copy, and what is known of the
 * kernel is held against the arguments, so that the device has little left to refuse. */
#include <inttypes.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/program/kernel_impl.h"
#include "engine/program/program_impl.h"

/* ---- checks ---- */

static int check_arguments(const struct op_ints *arguments, const struct device_kernel *kernel, struct fault *fault) {
    if (arguments->count != kernel->n_parameters)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u arguments, and the kernel takes %u", arguments->count,
                         kernel->n_parameters);
    for (unsigned i = 0; i < arguments->count; i++) {
        int64_t kind = arguments->values[i];
        unsigned bytes = kind == KERNEL_BITS32 ? 4 : 8;
        bool number = kind == KERNEL_BITS32 || kind == KERNEL_BITS64;
        if (bytes != kernel->parameter_bytes[i])
            return fault_set(fault, STATUS_INVALID_ARGUMENT,
                             "argument %u is %s of %u bytes, and the kernel's parameter has %u", i,
                             number ? "a number" : "an address", bytes, kernel->parameter_bytes[i]);
    }
    return STATUS_OK;
}

static int check_extents(const char *what, const int64_t extents[3], const uint32_t most[3], struct fault *fault) {
    for (int i = 0; i < 3; i++)
        if (extents[i] < 1 || extents[i] > most[i])
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "the %s's %c is %" PRId64 "; the device takes 1 to %u",
                             what, "xyz"[i], extents[i], most[i]);
    return STATUS_OK;
}

static int check_launch(const struct kernel_attributes *launch, const struct device_kernel *kernel,
                        struct fault *fault) {
    const int64_t *block = launch->block.values;
    int code = check_arguments(&launch->arguments, kernel, fault);
    if (code == STATUS_OK)
        code = check_extents("grid", launch->grid.values, kernel->grid_max, fault);
    if (code == STATUS_OK)
        code = check_extents("block", block, kernel->block_max, fault);
    if (code != STATUS_OK)
        return code;
    uint64_t threads = (uint64_t)block[0] * (uint64_t)block[1]; /* two of at most 32 bits, */
    if (threads > kernel->threads_max || threads * (uint64_t)block[2] > kernel->threads_max) /* and a small one */
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "blocks of %" PRId64 " x %" PRId64 " x %" PRId64 " threads, and the kernel can have %u",
                         block[0], block[1], block[2], kernel->threads_max);
    if (launch->shared < 0 || launch->shared > kernel->shared_max)
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "%" PRId64 " bytes of shared memory, and the kernel can have %u besides its own",
                         launch->shared, kernel->shared_max);
    return STATUS_OK;
}

int bind_kernel_find(struct step *step) {
    struct kernel_attributes launch;
    kernel_attributes_read(&step->request->attributes, &launch);
    if (step->request->kernels_denied)
        return kernel_refuse(step->request->kernels_denied, step->fault);
    if (!step->planned)
        step->kernel = kernel_table_find(step->session->kernels, (uint64_t)launch.kernel);
    if (!step->kernel)
        return fault_set(step->fault, STATUS_INVALID_ARGUMENT, "no kernel has id %" PRIu64, (uint64_t)launch.kernel);
    return check_launch(&launch, step->kernel->device_kernel, step->fault);
}

/* ---- memory ---- */

/* Zero, so that a kernel that leaves elements out shows nobody what others had in this memory. */
static int output_clear(struct step *step, struct tensor *out) {
    static const int64_t ints[] = {DTYPE_U8, 0};
    static const double floats[] = {0};
    struct view view = {.storage = out->storage, .data = out->storage->data, .dtype = DTYPE_U8, .rank = 1};
    view.shape[0] = type_bytes(&out->type);
    view.strides[0] = 1;
    struct plan plan = {
        .opcode = OP_FULL, .ledger = &step->session->ledger, .out = &view, .attributes = {ints, floats, 2, 1}};
    plan.weight = plan_weight(&step->session->order->cost, &view, NULL);
    return plan_push(step->stream, &plan, step->fault);
}

/* `from` NULL: zero. */
static int output_make(struct step *step, struct tensor *out, const struct tensor *from) {
    struct view to, view;
    int code = bind_allocate(step, out);
    if (code != STATUS_OK || !out->storage)
        return code;
    if (!from)
        return output_clear(step, out);
    view_init(&to, out);
    view_init(&view, from);
    return view_copy(&step->session->ledger, step->stream, to, view, step->fault);
}

static int output_update(struct step *step, struct tensor *out, unsigned input) {
    struct tensor *in = step->inputs[input];
    bool lends = bind_lends(step, input);
    for (unsigned i = 0; i < step->request->n_inputs && lends; i++)
        lends = i == input || step->inputs[i] != in;
    if (!lends)
        return output_make(step, out, in);
    bind_take_memory(out, in);
    return plan_wait_memory(step->stream, out->storage, step->fault);
}

static int input_make(struct step *step, const struct tensor *in, struct view *view) {
    view_init(view, in);
    return view_make_contiguous(&step->session->ledger, step->stream, view, view->dtype, step->fault);
}

/* ---- the launch ---- */

static void launch_fill(const struct step *step, const struct kernel_attributes *from, const struct view *views,
                        struct kernel_launch *launch) {
    const int64_t *number = from->numbers.values;
    unsigned output = 0;
    launch->kernel = step->kernel->device_kernel;
    launch->name = step->kernel->name;
    launch->report = step->guard->report;
    for (int i = 0; i < 3; i++) {
        launch->grid[i] = (uint32_t)from->grid.values[i];
        launch->block[i] = (uint32_t)from->block.values[i];
    }
    launch->shared = (uint32_t)from->shared;
    launch->n_arguments = from->arguments.count;
    for (unsigned i = 0; i < from->arguments.count; i++) {
        int64_t kind = from->arguments.values[i];
        if (kind == KERNEL_INPUT) {
            launch->arguments[i] = (uintptr_t)views++->data;
        } else if (kernel_makes(kind)) {
            const struct storage *storage = step->outputs[output++]->storage;
            launch->arguments[i] = storage ? (uintptr_t)storage->data : 0;
        } else {
            launch->arguments[i] = (uint64_t)*number++;
        }
    }
}

static int launch_push(struct step *step, const struct kernel_attributes *launch, const struct view *views,
                       unsigned n_views) {
    struct storage *storages[2 * KERNEL_ARGUMENTS_MAX];
    unsigned n = 0;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < step->n_outputs; i++)
        if (step->outputs[i]->storage)
            storages[n++] = step->outputs[i]->storage;
    for (unsigned i = 0; i < n_views; i++)
        if (views[i].storage)
            storages[n++] = views[i].storage;
    for (unsigned i = 0; i < n; i++)
        bytes += storages[i]->bytes;
    struct record *record;
    int code = plan_push_kernel(step->stream, storages, n, launch->arguments.count,
                                1000 + cost_pass(&step->session->order->cost, (double)bytes), &record, step->fault);
    if (code != STATUS_OK)
        return code;
    launch_fill(step, launch, views, &record->kernel);
    if (!step->planned) /* else each run uses it */
        kernel_use(step->kernel, step->stream, step->stream->enqueued);
    return STATUS_OK;
}

int bind_kernel(struct step *step) {
    struct kernel_attributes launch;
    struct view views[KERNEL_ARGUMENTS_MAX]; /* of KERNEL_INPUT, as the kernel shall see them */
    unsigned n_views = 0, input = 0, output = 0;
    int code = bind_wait(step);
    kernel_attributes_read(&step->request->attributes, &launch);
    for (unsigned i = 0; i < launch.arguments.count && code == STATUS_OK; i++) {
        int64_t kind = launch.arguments.values[i];
        if (kind == KERNEL_INPUT)
            code = input_make(step, step->inputs[input], &views[n_views++]);
        else if (kind == KERNEL_OUTPUT)
            code = output_make(step, step->outputs[output], NULL);
        else if (kind == KERNEL_UPDATE)
            code = output_update(step, step->outputs[output], input);
        input += kernel_reads(kind);
        output += kernel_makes(kind);
    }
    if (code == STATUS_OK)
        code = launch_push(step, &launch, views, n_views);
    bind_finish_views(views, n_views);
    return code;
}
