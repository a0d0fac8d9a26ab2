/* Operands: memory for outputs, and inputs as a kernel takes them. */
#include "engine/device/device_impl.h"
#include "engine/program/bind_impl.h"

static void output_layout(struct tensor *out) {
    layout_contiguous(out->type.rank, out->type.shape, out->strides);
    out->contiguous = true;
    out->offset = 0;
}

int bind_allocate(struct binding *binding, struct tensor *out) {
    output_layout(out);
    int64_t bytes = type_bytes(&out->type);
    if (bytes == 0)
        return STATUS_OK;
    int code =
        ledger_storage(&binding->session->ledger, (uint64_t)bytes, binding->stream, &out->storage, &binding->fault);
    if (code != STATUS_OK)
        return code;
    return plan_wait_memory(binding->stream, out->storage, &binding->fault);
}

bool bind_lends(const struct binding *binding, unsigned i) {
    const struct op_request *request = binding->request;
    const struct tensor *in = binding->inputs[i];
    return op_consumes(request->consume, request->consume_more, i) && in->storage && in->references == 1 &&
           in->storage->references == 1 && in->contiguous && in->offset == 0;
}

void bind_take_memory(struct tensor *out, const struct tensor *in) {
    output_layout(out);
    out->storage = storage_ref(in->storage);
}

bool bind_converts(const struct binding *binding, enum dtype from, enum dtype to) {
    const struct device *device = binding->order->device;
    const struct op_kernel *kernel = device->vtable->operations[binding->request->opcode];
    return kernel->converts && kernel->converts(device, binding->request->opcode, from, to);
}

int bind_input(struct binding *binding, unsigned i, struct view *view) {
    view_init(view, binding->inputs[i]);
    enum dtype dtype = op_operand_dtype(binding->request->opcode, binding->types, i, &binding->output->type);
    if (view->dtype == dtype || binding->request->opcode == OP_CAST)
        return STATUS_OK;
    if (bind_converts(binding, view->dtype, dtype)) {
        view->as = dtype;
        return STATUS_OK;
    }
    return view_cast(&binding->session->ledger, binding->stream, view, dtype, &binding->fault);
}
