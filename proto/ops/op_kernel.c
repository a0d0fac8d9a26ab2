/* The rule for launches of clients' kernels: the arguments give the types of the outputs. */
#include "proto/ops/kernel.h"

#include <inttypes.h>

#include "proto/ops/op_rules.h"

/* How many inputs, numbers and outputs the arguments take. */
struct argument_counts {
    unsigned inputs, numbers, outputs;
};

static int count_arguments(const struct op_ints *arguments, struct argument_counts *counts, struct fault *fault) {
    if (arguments->count < 1 || arguments->count > KERNEL_ARGUMENTS_MAX) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%u arguments, 1 to %d are possible", arguments->count,
                         KERNEL_ARGUMENTS_MAX);
    }
    for (unsigned i = 0; i < arguments->count; i++) {
        int64_t kind = arguments->values[i];
        if (kind < KERNEL_INPUT || kind > KERNEL_BITS64) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "argument %u is of no kind: %" PRId64, i, kind);
        }
        counts->inputs += kernel_reads(kind);
        counts->outputs += kernel_makes(kind);
        counts->numbers += kind == KERNEL_BITS32 || kind == KERNEL_BITS64;
    }
    return STATUS_OK;
}

static int check_counts(const struct op_call *call, const struct kernel_attributes *attributes, struct fault *fault) {
    struct argument_counts counts = {0};
    int status = count_arguments(&attributes->arguments, &counts, fault);
    if (status != STATUS_OK) {
        return status;
    }
    if (attributes->grid.count != 3 || attributes->block.count != 3) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a grid of %u extents and blocks of %u, not 3",
                         attributes->grid.count, attributes->block.count);
    }
    if (counts.inputs != call->n_inputs || counts.numbers != attributes->numbers.count) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT,
                         "arguments for %u inputs and %u numbers, and there are %u and %u", counts.inputs,
                         counts.numbers, call->n_inputs, attributes->numbers.count);
    }
    if (counts.outputs == 0) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a launch without an output has no result");
    }
    if (counts.outputs != call->n_outputs) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "arguments for %u outputs, not %u", counts.outputs,
                         call->n_outputs);
    }
    return STATUS_OK;
}

/* Takes the type of the next new tensor from the list. */
static int take_result(struct op_ints *left, struct tensor_type *out, struct fault *fault) {
    if (left->count < 2 || left->values[1] < 0 || left->values[1] > left->count - 2) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the list results ends within a type");
    }
    unsigned rank = (unsigned)left->values[1];
    int status = type_make(out, left->values[0], left->values + 2, rank, fault);
    left->values += 2 + rank;
    left->count -= 2 + rank;
    return status;
}

int op_rule_kernel(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct kernel_attributes attributes;
    kernel_attributes_read(call->attributes, &attributes);
    struct op_ints left = attributes.results;
    unsigned input = 0;
    int status = check_counts(call, &attributes, fault);
    for (unsigned i = 0; status == STATUS_OK && i < attributes.arguments.count; i++) {
        int64_t kind = attributes.arguments.values[i];
        if (kind == KERNEL_OUTPUT) {
            status = take_result(&left, out++, fault);
        } else if (kind == KERNEL_UPDATE) {
            *out++ = *call->inputs[input];
        }
        input += kernel_reads(kind);
    }
    if (status == STATUS_OK && left.count) {
        status = fault_set(fault, STATUS_INVALID_ARGUMENT, "%u of the list results belong to no type", left.count);
    }
    return status;
}
