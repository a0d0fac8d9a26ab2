/* What is remembered of operations, against the rules themselves. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/program/signature.h"
#include "tests/stand_ins/null_device.h"

static struct null_device device;
static struct signatures *signatures;

static uint64_t seed = 88172645463325252u;

static unsigned pick(unsigned below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)(seed >> 11) % below;
}

static void open_signatures(void) {
    null_device_init(&device, 1 << 20);
    memset(device.device.dtypes, 0xff, sizeof device.device.dtypes); /* it has kernels for all of them */
    signatures = signatures_create(&device.device);
    cr_assert(signatures);
}

static void close_signatures(void) {
    free(signatures);
}

/* What the newest numbers stood for when they were first seen. */
static void number_stands_for(uint64_t id, const struct tensor_type *type) {
    static struct {
        uint64_t id;
        struct tensor_type type;
    } seen[1 << 16];
    size_t at = id % (sizeof seen / sizeof seen[0]);
    cr_assert(seen[at].id != id || type_equal(&seen[at].type, type));
    seen[at].id = id;
    seen[at].type = *type;
}

static const struct signature *find(unsigned opcode, unsigned n_inputs, const struct tensor_type *types,
                                    const struct op_attributes *attributes, struct fault *fault) {
    const struct tensor_type *inputs[SIGNATURE_INPUTS];
    uint64_t ids[SIGNATURE_INPUTS] = {0};
    for (unsigned i = 0; i < n_inputs; i++) {
        inputs[i] = &types[i];
        ids[i] = signature_type(signatures, &types[i]);
        number_stands_for(ids[i], &types[i]);
    }
    struct signature *home = signature_home(signatures, opcode, ids, attributes);
    return signature_is(home, opcode, ids, attributes)
               ? home
               : signature_add(signatures, home, &(struct signature_query){opcode, n_inputs, inputs, ids, attributes},
                               fault);
}

static struct tensor_type any_type(void) {
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_BOOL, DTYPE_BF16};
    struct tensor_type type = {.dtype = dtypes[pick(5)], .rank = (int)pick(4)};
    for (int i = 0; i < type.rank; i++)
        type.shape[i] = 1 + pick(3);
    return type;
}

/* Far more types and operations come than there are places, so that each is forgotten and found again many times. */
Test(signature, says_what_the_rules_say, .init = open_signatures, .fini = close_signatures) {
    static const struct {
        unsigned opcode, n_inputs, n_ints;
    } operations[] = {{OP_ADD, 2, 0},  {OP_NEGATIVE, 1, 0},     {OP_WHERE, 3, 0},
                      {OP_LESS, 2, 0}, {OP_MATMUL, 2, 0},       {OP_SUM, 1, 2},
                      {OP_CAST, 1, 1}, {OP_BROADCAST_TO, 1, 2}, {OP_LOGICAL_OR, 2, 0}};
    unsigned allowed = 0, refused = 0;
    for (int step = 0; step < 200000; step++) {
        unsigned which = pick(sizeof operations / sizeof operations[0]), opcode = operations[which].opcode;
        unsigned n_inputs = operations[which].n_inputs;
        struct tensor_type types[SIGNATURE_INPUTS], expected;
        int64_t ints[2] = {pick(3), pick(3)};
        const struct op_attributes attributes = {.ints = ints, .n_ints = operations[which].n_ints};
        const struct tensor_type *inputs[SIGNATURE_INPUTS];
        struct fault fault, words;
        for (unsigned i = 0; i < n_inputs; i++) {
            types[i] = i && pick(2) ? types[0] : any_type();
            inputs[i] = &types[i];
        }
        int code = op_infer(opcode, inputs, n_inputs, &attributes, &expected, &fault);
        const struct signature *signature = find(opcode, n_inputs, types, &attributes, &words);
        if (code != STATUS_OK) {
            cr_assert(!signature);
            cr_assert_eq(words.code, fault.code);
            cr_assert_str_eq(words.message, fault.message);
            refused++;
            continue;
        }
        cr_assert(signature, "%s: %s", op_info(opcode)->name, words.message);
        cr_assert_eq(signature->opcode, opcode);
        cr_assert(type_equal(&signature->type, &expected));
        cr_assert_eq(signature->facts.elements, type_elements(&expected));
        number_stands_for(signature->type_id, &expected);
        bool flat = op_info(opcode)->family == OP_FAMILY_ELEMENTWISE;
        for (unsigned i = 0; i < n_inputs; i++)
            flat = flat && shape_equal(&types[i], &expected) &&
                   (opcode == OP_CAST || op_operand_dtype(opcode, inputs, i, &expected) == types[i].dtype);
        cr_assert_eq(signature->facts.flat, flat);
        allowed++;
    }
    cr_assert_gt(allowed, 20000);
    cr_assert_gt(refused, 20000);
}

/* A number that has been given stands for that type for ever: tensors keep theirs. */
Test(signature, numbers_are_never_given_to_another_type, .init = open_signatures, .fini = close_signatures) {
    enum { TYPES = 5000 };
    static uint64_t ids[TYPES];
    struct tensor_type type = {.dtype = DTYPE_F32, .rank = 1};
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < TYPES; i++) {
            type.shape[0] = i;
            uint64_t id = signature_type(signatures, &type);
            cr_assert(id);
            cr_assert(round == 0 || id == ids[i] || id > ids[TYPES - 1]);
            for (unsigned other = 0; other < 16; other++) {
                unsigned at = pick(TYPES);
                cr_assert(at == i || ids[at] != id);
            }
            ids[i] = id;
        }
}

Test(signature, is_found_again, .init = open_signatures, .fini = close_signatures) {
    const struct tensor_type type = {.dtype = DTYPE_F32, .rank = 2, .shape = {3, 4}};
    const struct tensor_type types[2] = {type, type};
    const struct op_attributes none = {0};
    struct fault fault;
    const struct signature *first = find(OP_ADD, 2, types, &none, &fault);
    cr_assert(first);
    cr_assert_eq(find(OP_ADD, 2, types, &none, &fault), first);
    cr_assert_neq(find(OP_SUBTRACT, 2, types, &none, &fault), first);
    cr_assert_eq(find(OP_ADD, 2, types, &none, &fault), first);
}
