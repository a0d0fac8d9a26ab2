#include "server/front/operation_list.h"

#include <stdlib.h>

#include "proto/wire/frame.h"
#include "server/front/worker_slot.h"
#include "server/process/packet.h"

/* All that the message points to; what one operation needs of it is [n_slots] long. */
struct operations_message {
    Tensord__OperationList list;
    char *dtypes[DTYPE_COUNT];
    Tensord__OperationDevice *devices, **device_pointers;
    Tensord__Operation *operations, **operation_pointers;
    Tensord__OperationSupport *support, **support_pointers;
    uint32_t *numbers; /* of dtypes: each operation's, and each device's of it */
    size_t n_numbers;
};

/* Masks of dtypes. The same until the program ends; found out when they are asked for first. */
struct operations_masks {
    uint32_t presented, taken;
};

static struct operations_masks operations_masks(unsigned opcode) {
    static struct operations_masks masks[OP_CODE_MAX];
    static bool known;
    for (unsigned i = 0; !known && i < OP_CODE_MAX; i++)
        masks[i] = (struct operations_masks){op_presented(i), op_taken(i)};
    known = true;
    return masks[opcode];
}

/* A mask as a list. */
static size_t operations_dtypes(struct operations_message *message, uint32_t mask, uint32_t **numbers) {
    size_t n = 0;
    *numbers = message->numbers + message->n_numbers;
    for (uint32_t dtype = DTYPE_INVALID + 1; dtype < DTYPE_COUNT; dtype++)
        if (mask >> dtype & 1)
            (*numbers)[n++] = dtype;
    message->n_numbers += n;
    return n;
}

static void operations_fill_devices(struct operations_message *message, const struct supervisor *supervisor) {
    for (unsigned i = 0; i < supervisor->n_slots; i++) {
        const struct worker_slot *slot = &supervisor->slots[i];
        Tensord__OperationDevice *device = &message->devices[i];
        tensord__operation_device__init(device);
        device->name = (char *)slot->device.name;
        device->known = slot->operations_known;
        if (!device->known)
            device->reason = slot->last_fault[0] ? (char *)slot->last_fault : "its worker is not ready yet";
        message->device_pointers[i] = device;
    }
    message->list.n_devices = supervisor->n_slots;
    message->list.devices = message->device_pointers;
}

static void operations_fill(struct operations_message *message, const struct supervisor *supervisor, unsigned opcode) {
    size_t row = message->list.n_operations++, n_slots = supervisor->n_slots;
    Tensord__Operation *operation = &message->operations[row];
    struct operations_masks masks = operations_masks(opcode);
    tensord__operation__init(operation);
    operation->opcode = opcode;
    operation->name = (char *)op_info(opcode)->name;
    operation->n_dtypes = operations_dtypes(message, masks.presented, &operation->dtypes);
    operation->n_taken = operations_dtypes(message, masks.taken, &operation->taken);
    operation->n_support = n_slots;
    operation->support = &message->support_pointers[row * n_slots];
    for (size_t i = 0; i < n_slots; i++) {
        const struct stats_operation *of = &supervisor->slots[i].operations->rows[opcode];
        Tensord__OperationSupport *support = &message->support[row * n_slots + i];
        tensord__operation_support__init(support);
        support->n_dtypes = operations_dtypes(message, of->supported & masks.presented, &support->dtypes);
        if (of->reason[0])
            support->reason = (char *)of->reason;
        operation->support[i] = support;
    }
    message->operation_pointers[row] = operation;
}

static bool operations_allocate(struct operations_message *message, size_t n, size_t n_slots) {
    message->devices = calloc(n_slots, sizeof *message->devices);
    message->device_pointers = calloc(n_slots, sizeof(Tensord__OperationDevice *));
    message->operations = calloc(n, sizeof *message->operations);
    message->operation_pointers = calloc(n, sizeof(Tensord__Operation *));
    message->support = calloc(n * n_slots, sizeof *message->support);
    message->support_pointers = calloc(n * n_slots, sizeof(Tensord__OperationSupport *));
    message->numbers = calloc(n * (n_slots + 2) * DTYPE_COUNT, sizeof *message->numbers);
    return message->devices && message->device_pointers && message->operations && message->operation_pointers &&
           message->support && message->support_pointers && message->numbers;
}

static void operations_free(struct operations_message *message) {
    free(message->devices);
    free(message->device_pointers);
    free(message->operations);
    free(message->operation_pointers);
    free(message->support);
    free(message->support_pointers);
    free(message->numbers);
}

/* Whether devices answer for it by their table of kernels. A client's kernel is answered for when it is compiled. */
static bool operations_listed(unsigned opcode) {
    const struct op_info *info = op_info(opcode);
    return info && info->family != OP_FAMILY_KERNEL;
}

int operation_list_append(struct front *front, uint64_t sequence, uint8_t **bytes, size_t *size) {
    const struct supervisor *supervisor = &front->supervisor;
    struct operations_message message = {.list = TENSORD__OPERATION_LIST__INIT};
    size_t n = 0;
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++)
        n += operations_listed(opcode);
    if (!operations_allocate(&message, n, supervisor->n_slots)) {
        operations_free(&message);
        return STATUS_NO_HOST_MEMORY;
    }
    operations_fill_devices(&message, supervisor);
    message.list.operations = message.operation_pointers;
    for (unsigned opcode = 0; opcode < OP_CODE_MAX; opcode++)
        if (operations_listed(opcode))
            operations_fill(&message, supervisor, opcode);
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        message.dtypes[dtype] = (char *)dtype_name((enum dtype)dtype);
    message.list.n_dtypes = DTYPE_COUNT;
    message.list.dtypes = message.dtypes;
    int error = packet_append(bytes, size, FRAME_OPERATION_LIST, sequence, &message.list.base);
    operations_free(&message);
    return error;
}
