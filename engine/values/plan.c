#include "engine/values/plan.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine/device/device_impl.h"
#include "engine/order/order.h"

/* ---- order between streams ---- */

int plan_no_memory(struct fault *fault) {
    return fault_set(fault, STATUS_NO_HOST_MEMORY, "no host memory to enqueue an operation");
}

int plan_wait_point(struct stream *stream, struct stream *other, uint64_t number, struct fault *fault) {
    return stream_wait(stream, other, number) == STATUS_OK ? STATUS_OK : plan_no_memory(fault);
}

int plan_wait_users(struct stream *stream, struct uses *uses, struct fault *fault) {
    for (unsigned i = 0; i < uses->count; i++)
        if (stream_wait(stream, uses->use[i].stream, uses->use[i].number) != STATUS_OK)
            return plan_no_memory(fault);
    uses->use[0] = (struct use){stream, stream->enqueued};
    uses->count = 1;
    return STATUS_OK;
}

/* Makes room in a full list: two uses become one use of the joiner, a stream that only waits. The stream that wants the room does not
 * wait for them itself: it may bring what they wait for, such as the rest of an upload. */
static int join_uses(struct stream *stream, struct uses *uses) {
    struct stream **joiner = &stream->group->joiner;
    if (!*joiner)
        *joiner = stream_take(stream->order, stream->group, 0);
    if (!*joiner)
        return STATUS_NO_HOST_MEMORY;
    struct use *use = uses->use; /* the first use is the joiner's, if it has one */
    if ((use[0].stream != *joiner && stream_wait(*joiner, use[0].stream, use[0].number) != STATUS_OK) ||
        stream_wait(*joiner, use[1].stream, use[1].number) != STATUS_OK)
        return STATUS_NO_HOST_MEMORY;
    use[0] = (struct use){*joiner, (*joiner)->enqueued};
    use[1] = use[--uses->count];
    return STATUS_OK;
}

/* Before a launch: makes sure that its use of the storage can be noted. Notes the newest record for now, since the launch may still
 * fail to be enqueued. */
static inline int reserve_use(struct stream *stream, struct storage *storage, struct fault *fault) {
    if (!storage)
        return STATUS_OK;
    struct uses *uses = &storage->uses;
    if (__builtin_expect(uses->count && uses->use[0].stream == stream, 1) || uses_add(uses, stream, stream->enqueued))
        return STATUS_OK;
    if (join_uses(stream, uses) != STATUS_OK)
        return plan_no_memory(fault);
    uses_add(uses, stream, stream->enqueued);
    return STATUS_OK;
}

/* ---- launches ---- */

/* Broadcast views and long reductions could keep a device for years. */
#define LAUNCH_NS_MAX (UINT64_C(4) * 3600 * 1000000000)

enum { TIME_TEXT_MAX = 32 };

/* "350 ms", "90.5 s", "35 minutes", "13 hours"; returns `text`. */
static const char *time_text(char text[TIME_TEXT_MAX], uint64_t ns) {
    static const struct {
        double below_s, unit_s;
        const char *name;
    } units[] = {
        {1, 1e-3, "ms"}, {600, 1, "s"}, {7200, 60, "minutes"}, {172800, 3600, "hours"}, {INFINITY, 86400, "days"}};
    double seconds = (double)ns / 1e9;
    unsigned unit = 0;
    while (seconds >= units[unit].below_s)
        unit++;
    double time = seconds / units[unit].unit_s;
    snprintf(text, TIME_TEXT_MAX, time < 100 ? "%.3g %s" : "%.0f %s", time, units[unit].name);
    return text;
}

/* By the estimate alone: what launches of other clients have taught refuses no launch. On a device that cannot stop launches, the limit
 * of an operation's time is applied here, to all of its launches together. */
static __attribute__((noinline)) int plan_refuse_time(const struct stream *stream, uint64_t weight,
                                                      struct fault *fault) {
    bool stops = stream->order->device->vtable->launch_part;
    uint64_t limit = stops ? 0 : stream->group->share->operation_ns;
    uint64_t estimate = weight + (stream->operation.sequence ? stream->operation.estimated_ns : 0);
    char most[TIME_TEXT_MAX], time[TIME_TEXT_MAX];
    if (limit && estimate > limit)
        return fault_set(
            fault, STATUS_LIMIT,
            "the operation would take about %s; this device cannot stop one, and none may take longer than "
            "%s (operation-time)",
            time_text(time, estimate), time_text(most, limit));
    if (weight > LAUNCH_NS_MAX)
        return fault_set(fault, STATUS_LIMIT, "the operation would take about %s", time_text(time, weight));
    return STATUS_OK;
}

static inline int plan_check_time(const struct stream *stream, uint64_t weight, struct fault *fault) {
    bool stops = stream->order->device->vtable->launch_part;
    return __builtin_expect(stops && weight <= LAUNCH_NS_MAX, 1) ? STATUS_OK : plan_refuse_time(stream, weight, fault);
}

/* A launch on its way, with shapes and strides where the views have them. */
union plan_form {
    struct launch launch;
    uint8_t bytes[sizeof(struct launch) + (PLAN_INPUTS_MAX + PLAN_OUTPUTS_MAX - 1) * sizeof(struct operand)];
};

static void form_operand(struct operand *operand, const struct view *view) {
    operand->data = view->data;
    operand->shape = view->shape;
    operand->strides = view->strides;
    operand->dtype = (uint8_t)view->dtype;
    operand->as = (uint8_t)view->as;
    operand->rank = (uint8_t)view->rank;
}

static int plan_workspace(struct stream *stream, const struct plan *plan, uint64_t bytes, struct storage **workspace,
                          struct fault *fault) {
    struct fault why;
    int code = ledger_storage(plan->ledger, bytes, stream, workspace, &why);
    if (code != STATUS_OK)
        return fault_set(fault, code, "for the workspace: %s", why.message);
    code = plan_wait_memory(stream, *workspace, fault);
    if (code == STATUS_OK)
        code = reserve_use(stream, *workspace, fault);
    if (code != STATUS_OK)
        storage_unref(*workspace);
    return code;
}

/* What a kernel says of a launch. */
struct plan_answer {
    struct storage *workspace; /* NULL: none */
    bool scarce;
    uint64_t weight;
};

/* Asks the kernel whether it accepts the launch, what that takes, and for its workspace. Not inlined: plan_push() is on the way of most operations. */
__attribute__((noinline)) static int plan_ask(struct stream *stream, const struct plan *plan,
                                              const struct op_kernel *kernel, struct plan_answer *answer,
                                              struct fault *fault) {
    struct device *device = stream->order->device;
    union plan_form form;
    form.launch = (struct launch){.opcode = (uint16_t)plan->opcode,
                                  .n_inputs = (uint8_t)plan->n_inputs,
                                  .further = (uint8_t)plan->further,
                                  .tf32 = plan->tf32,
                                  .attributes = plan->attributes};
    form_operand(&form.launch.output, plan->out);
    for (unsigned i = 0; i < plan->n_inputs; i++)
        form_operand(&form.launch.inputs[i], plan->inputs[i]);
    for (unsigned i = 0; i < plan->further; i++)
        form_operand(&form.launch.inputs[plan->n_inputs + i], plan->outputs[i]);
    int code = kernel->accepts ? kernel->accepts(device, &form.launch, fault) : STATUS_OK;
    if (code == STATUS_OK && kernel->weight) {
        answer->weight = kernel->weight(device, &form.launch, plan->weight);
        code = plan_check_time(stream, answer->weight, fault);
    }
    if (code != STATUS_OK || !kernel->workspace)
        return code;
    uint64_t bytes = kernel->workspace(device, &form.launch), least;
    if (bytes)
        code = plan_workspace(stream, plan, bytes, &answer->workspace, fault);
    if (code != STATUS_OUT_OF_MEMORY && code != STATUS_LIMIT)
        return code;
    form.launch.scarce = true;
    least = kernel->workspace(device, &form.launch);
    if (least == bytes)
        return code;
    answer->scarce = true;
    answer->workspace = NULL;
    return least ? plan_workspace(stream, plan, least, &answer->workspace, fault) : STATUS_OK;
}

static int64_t *launch_attributes(struct op_attributes *attributes, int64_t *at, const struct op_attributes *given) {
    *attributes = (struct op_attributes){.n_ints = given->n_ints, .n_floats = given->n_floats};
    if (__builtin_expect(given->n_ints != 0, 0)) {
        attributes->ints = memcpy(at, given->ints, given->n_ints * sizeof *at);
        at += given->n_ints;
    }
    if (__builtin_expect(given->n_floats != 0, 0)) {
        attributes->floats = memcpy(at, given->floats, given->n_floats * sizeof(double));
        at += given->n_floats;
    }
    return at;
}

static int64_t *launch_operand(struct operand *operand, int64_t *at, const struct view *view) {
    size_t bytes = (size_t)view->rank * sizeof *at;
    operand->data = view->data;
    operand->dtype = (uint8_t)view->dtype;
    operand->as = (uint8_t)view->as;
    operand->rank = (uint8_t)view->rank;
    operand->shape = memcpy(at, view->shape, bytes);
    operand->strides = memcpy(at + view->rank, view->strides, bytes);
    return at + 2 * view->rank;
}

/* The label of the stream's operation lies behind the launch. */
static void launch_label(struct record *record, const char *label, size_t offset, size_t length) {
    char *text = (char *)record + offset;
    memcpy(text, label, length);
    text[length] = 0;
    record->label = (uint16_t)offset;
}

int plan_push(struct stream *stream, const struct plan *plan, struct fault *fault) {
    int code = reserve_use(stream, plan->out->storage, fault);
    int dims = plan->out->rank;
    for (unsigned i = 0; i < plan->n_inputs && code == STATUS_OK; i++) {
        code = reserve_use(stream, plan->inputs[i]->storage, fault);
        dims += plan->inputs[i]->rank;
    }
    for (unsigned i = 0; i < plan->further && code == STATUS_OK; i++) {
        code = reserve_use(stream, plan->outputs[i]->storage, fault);
        dims += plan->outputs[i]->rank;
    }
    if (code == STATUS_OK)
        code = plan_check_time(stream, plan->weight, fault);
    const struct op_kernel *kernel = stream->order->device->vtable->operations[plan->opcode];
    struct plan_answer answer = {.weight = plan->weight};
    if (__builtin_expect(kernel->accepts || kernel->workspace, 0) && code == STATUS_OK)
        code = plan_ask(stream, plan, kernel, &answer, fault);
    if (code != STATUS_OK)
        return code;
    stream->operation.estimated_ns += answer.weight;
    size_t head = offsetof(struct record, launch) + sizeof(struct launch) +
                  (plan->n_inputs + plan->further) * sizeof(struct operand);
    size_t words = plan->attributes.n_ints + plan->attributes.n_floats + 2 * (size_t)dims;
    size_t bytes = head + words * sizeof(int64_t);
    size_t label = __builtin_expect(stream->operation.label != NULL, 0)
                       ? strnlen(stream->operation.label, OPERATION_LABEL_MAX)
                       : 0;
    const struct view *last = plan->n_inputs ? plan->inputs[plan->n_inputs - 1] : plan->out;
    uint16_t factor = cost_factor(&stream->order->cost, plan->opcode, (unsigned)last->dtype);
    uint64_t weight = cost_corrected(answer.weight, factor);
    struct record *record = stream_push(stream, RECORD_LAUNCH, bytes + (label ? label + 1 : 0), weight);
    if (!record) {
        storage_unref(answer.workspace);
        return plan_no_memory(fault);
    }
    if (label)
        launch_label(record, stream->operation.label, bytes, label);
    struct launch *launch = &record->launch;
    launch->opcode = (uint16_t)plan->opcode;
    launch->n_inputs = (uint8_t)plan->n_inputs;
    launch->further = (uint8_t)plan->further;
    launch->factor = factor;
    launch->tf32 = plan->tf32;
    launch->report = plan->report ? plan->report : stream->operation.report;
    launch->workspace = answer.workspace ? answer.workspace->data : NULL;
    launch->scarce = answer.scarce;
    int64_t *at = (int64_t *)(launch->inputs + plan->n_inputs + plan->further);
    at = launch_attributes(&launch->attributes, at, &plan->attributes);
    at = launch_operand(&launch->output, at, plan->out);
    for (unsigned i = 0; i < plan->n_inputs; i++)
        at = launch_operand(&launch->inputs[i], at, plan->inputs[i]);
    for (unsigned i = 0; i < plan->further; i++)
        at = launch_operand(&launch->inputs[plan->n_inputs + i], at, plan->outputs[i]);
    plan_note_use(stream, plan->out->storage);
    for (unsigned i = 0; i < plan->n_inputs; i++)
        plan_note_use(stream, plan->inputs[i]->storage);
    for (unsigned i = 0; i < plan->further; i++)
        plan_note_use(stream, plan->outputs[i]->storage);
    if (__builtin_expect(answer.workspace != NULL, 0)) {
        plan_note_use(stream, answer.workspace);
        storage_unref(answer.workspace);
    }
    return STATUS_OK;
}

/* `axis` has the extent, and behind it the stride. */
static inline void flat_operand(struct operand *operand, const struct tensor *tensor, const int64_t *axis) {
    enum dtype dtype = tensor->type.dtype;
    operand->data = tensor_data(tensor);
    operand->shape = axis;
    operand->strides = axis + 1;
    operand->dtype = (uint8_t)dtype;
    operand->as = (uint8_t)dtype;
    operand->rank = 1;
}

/* The output needs none: after plan_wait_memory() the stream is the first of its users. */
static inline int flat_reserve(struct stream *stream, const struct plan_flat *flat, struct fault *fault) {
    int code = STATUS_OK;
    for (unsigned i = 0; i < flat->n_inputs && code == STATUS_OK; i++)
        code = reserve_use(stream, flat->inputs[i]->storage, fault);
    return code;
}

int plan_push_flat(struct stream *stream, const struct plan_flat *flat, struct fault *fault) {
    unsigned n_inputs = flat->n_inputs, opcode = flat->opcode;
    const struct tensor *out = flat->out, *last = n_inputs ? flat->inputs[n_inputs - 1] : out;
    const struct cost *cost = &stream->order->cost;
    uint64_t weight = cost_pass(cost, (double)(2 * flat->elements * (int64_t)dtype_size(out->type.dtype)));
    int code = flat_reserve(stream, flat, fault);
    if (code == STATUS_OK)
        code = plan_check_time(stream, weight, fault);
    if (code != STATUS_OK)
        return code;
    stream->operation.estimated_ns += weight;
    size_t bytes = offsetof(struct record, launch.inputs) + n_inputs * sizeof(struct operand) + 2 * sizeof(int64_t);
    size_t label = __builtin_expect(stream->operation.label != NULL, 0)
                       ? strnlen(stream->operation.label, OPERATION_LABEL_MAX)
                       : 0;
    uint16_t factor = cost_factor(cost, opcode, (unsigned)last->type.dtype);
    struct record *record =
        stream_push(stream, RECORD_LAUNCH, bytes + (label ? label + 1 : 0), cost_corrected(weight, factor));
    if (!record)
        return plan_no_memory(fault);
    if (label)
        launch_label(record, stream->operation.label, bytes, label);
    struct launch *launch = &record->launch;
    int64_t *axis = (int64_t *)(launch->inputs + n_inputs);
    axis[0] = flat->elements;
    axis[1] = 1;
    launch->opcode = (uint16_t)opcode;
    launch->n_inputs = (uint8_t)n_inputs;
    launch->further = 0;
    launch->factor = factor;
    launch->tf32 = false;
    launch->report = stream->operation.report;
    launch->attributes = (struct op_attributes){0};
    launch->workspace = NULL;
    launch->scarce = false;
    flat_operand(&launch->output, out, axis);
    plan_note_use(stream, out->storage);
    for (unsigned i = 0; i < n_inputs; i++) {
        flat_operand(&launch->inputs[i], flat->inputs[i], axis);
        plan_note_use(stream, flat->inputs[i]->storage);
    }
    return STATUS_OK;
}

int plan_push_kernel(struct stream *stream, struct storage *const storages[], unsigned n, unsigned n_arguments,
                     uint64_t weight, struct record **record, struct fault *fault) {
    size_t bytes = offsetof(struct record, kernel) + sizeof(struct kernel_launch) + n_arguments * sizeof(uint64_t);
    size_t label = stream->operation.label ? strnlen(stream->operation.label, OPERATION_LABEL_MAX) : 0;
    int code = STATUS_OK;
    for (unsigned i = 0; i < n && code == STATUS_OK; i++)
        code = reserve_use(stream, storages[i], fault);
    if (code != STATUS_OK)
        return code;
    bytes = bytes > sizeof **record ? bytes : sizeof **record;
    *record = stream_push(stream, RECORD_KERNEL, bytes + (label ? label + 1 : 0), weight);
    if (!*record)
        return plan_no_memory(fault);
    if (label)
        launch_label(*record, stream->operation.label, bytes, label);
    for (unsigned i = 0; i < n; i++)
        plan_note_use(stream, storages[i]);
    return STATUS_OK;
}

int plan_push_replay(struct stream *stream, struct storage *const storages[], unsigned n, size_t run_bytes,
                     uint64_t weight, uint64_t times, struct record **record, struct fault *fault) {
    size_t bytes = offsetof(struct record, replay) + run_bytes;
    int code = plan_check_time(stream, weight, fault);
    for (unsigned i = 0; i < n && code == STATUS_OK; i++)
        code = reserve_use(stream, storages[i], fault);
    if (code != STATUS_OK)
        return code;
    uint64_t total;
    if (__builtin_mul_overflow(weight, times, &total) || total > UINT64_MAX / 64)
        total = UINT64_MAX / 64;
    *record = stream_push(stream, RECORD_REPLAY, bytes > sizeof **record ? bytes : sizeof **record, total);
    if (!*record)
        return plan_no_memory(fault);
    for (unsigned i = 0; i < n; i++)
        plan_note_use(stream, storages[i]);
    return STATUS_OK;
}

/* About what a pass over these operands costs, in nanoseconds. */
uint64_t plan_weight(const struct cost *cost, const struct view *out, const struct view *in) {
    double bytes = (double)view_elements(out) * (double)dtype_size(out->dtype);
    if (in)
        bytes += (double)view_elements(in) * (double)dtype_size(in->dtype);
    return cost_pass(cost, bytes); /* so that callers may multiply it by up to 8 */
}
