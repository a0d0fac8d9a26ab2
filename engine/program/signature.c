#include "engine/program/signature.h"

#include <stdlib.h>
#include <string.h>

struct signatures *signatures_create(struct device *device) {
    struct signatures *signatures = calloc(1, sizeof *signatures);
    if (signatures)
        signatures->device = device;
    return signatures;
}

uint64_t signature_type(struct signatures *signatures, const struct tensor_type *type) {
    uint64_t hash = signature_hash((uint64_t)type->dtype, (uint64_t)type->rank);
    for (int i = 0; i < type->rank; i++)
        hash = signature_hash(hash, (uint64_t)type->shape[i]);
    struct signature_type *place = &signatures->types[signature_place(hash, SIGNATURE_TYPES_BITS)];
    if (!place->id || !type_equal(&place->type, type)) {
        place->id = ++signatures->last_type;
        place->type = *type;
    }
    return place->id;
}

/* ---- what follows from opcode, attributes and types ---- */

/* Whether the device has a kernel for it. */
static int signature_supported(const struct signatures *signatures, const struct signature *signature,
                               const struct tensor_type *const types[], unsigned n_inputs, struct fault *fault) {
    struct device *device = signatures->device;
    const struct op_kernel *kernel = signature->facts.kernel;
    if (!kernel || kernel->parts)
        return STATUS_OK;
    enum dtype dtype = signature->type.dtype;
    if (n_inputs)
        dtype = op_operand_dtype(signature->opcode, types, n_inputs - 1, &signature->type);
    return device->dtypes[signature->opcode] >> dtype & 1 ? STATUS_OK
                                                          : device_has_kernel(device, signature->opcode, dtype, fault);
}

static bool signature_flat(const struct signature *signature, const struct tensor_type *const types[],
                           unsigned n_inputs) {
    const struct op_kernel *kernel = signature->facts.kernel;
    if (op_info(signature->opcode)->family != OP_FAMILY_ELEMENTWISE || signature->facts.elements == 0 ||
        kernel->needs || kernel->accepts || kernel->workspace || op_info(signature->opcode)->floats)
        return false;
    for (unsigned i = 0; i < n_inputs; i++)
        if (!shape_equal(types[i], &signature->type) ||
            (signature->opcode != OP_CAST &&
             types[i]->dtype != op_operand_dtype(signature->opcode, types, i, &signature->type)))
            return false;
    return true;
}

/* Whether the operation may take so long that it is stopped: then it needs a guard. (Nothing stops clients' kernels.) A smaller
 * operation ends before any limit of time; for a larger one a guard costs little. Its size is the number of elements that it makes, or
 * its work, as its description says. */
static bool signature_large(const struct signature *signature, const struct tensor_type *const types[]) {
    static const double large_elements = 1 << 20, large_products = 1 << 24;
    const struct op_info *info = op_info(signature->opcode);
    if (op_is_clients(info))
        return false;
    bool products = info->work == OP_WORK_PRODUCTS || info->work >= OP_WORK_ATTENTION;
    return (double)signature->facts.elements >= large_elements ||
           op_work(info, types, &signature->type) >= (products ? large_products : large_elements);
}

bool signature_make(struct signatures *signatures, unsigned opcode, const struct tensor_type *const types[],
                    unsigned n_inputs, const struct op_attributes *attributes, unsigned n_outputs,
                    struct tensor_type *outputs, struct signature *room, struct fault *fault) {
    int code = n_outputs == 1 && op_info(opcode)->n_outputs == 1
                   ? op_infer(opcode, types, n_inputs, attributes, outputs, fault)
                   : op_infer_outputs(opcode, types, n_inputs, attributes, n_outputs, outputs, fault);
    if (code != STATUS_OK)
        return false;
    room->opcode = (uint16_t)opcode;
    room->facts.kernel = signatures->device->vtable->operations[opcode];
    room->type_id = 0;
    room->type = outputs[0];
    room->facts.elements = 0;
    for (unsigned i = 0; i < n_outputs; i++) {
        int64_t elements = type_elements(&outputs[i]);
        room->facts.elements = elements > room->facts.elements ? elements : room->facts.elements;
    }
    if (signature_supported(signatures, room, types, n_inputs, fault) != STATUS_OK)
        return false;
    room->facts.flat = signature_flat(room, types, n_inputs);
    room->facts.small = room->facts.flat && room->facts.elements <= FLAT_ELEMENTS_MAX && opcode != OP_CAST &&
                        signatures->device->vtable->launch_flat;
    room->facts.large = signature_large(room, types);
    return true;
}

/* ---- what was found before ---- */

bool signature_same_attributes(const struct signature *signature, const struct op_attributes *attributes) {
    return signature->n_ints == attributes->n_ints && signature->n_floats == attributes->n_floats &&
           (!signature->n_ints ||
            memcmp(signature->ints, attributes->ints, signature->n_ints * sizeof *signature->ints) == 0) &&
           (!signature->n_floats ||
            memcmp(signature->floats, attributes->floats, signature->n_floats * sizeof *signature->floats) == 0);
}

/* The place belongs to no operation until all of the signature is right. */
const struct signature *signature_add(struct signatures *signatures, struct signature *place,
                                      const struct signature_query *query, struct fault *fault) {
    const struct op_attributes *attributes = query->attributes;
    struct tensor_type type;
    place->opcode = 0; /* no operation has it */
    bool made =
        signature_make(signatures, query->opcode, query->types, query->n_inputs, attributes, 1, &type, place, fault);
    place->opcode = made ? (uint16_t)query->opcode : 0;
    if (!made)
        return NULL;
    place->n_ints = (uint8_t)attributes->n_ints;
    place->n_floats = (uint8_t)attributes->n_floats;
    memcpy(place->inputs, query->ids, sizeof place->inputs);
    if (attributes->n_ints)
        memcpy(place->ints, attributes->ints, attributes->n_ints * sizeof *place->ints);
    if (attributes->n_floats)
        memcpy(place->floats, attributes->floats, attributes->n_floats * sizeof *place->floats);
    place->type_id = signature_type(signatures, &place->type);
    return place;
}
