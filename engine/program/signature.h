/* What follows from an operation's opcode, its attributes and the types of its inputs: whether it is allowed, the types of its results,
 * and which kernel runs it. Tensors, memory and streams have no part in it, so it holds for every run of the operation. A job repeats
 * few kinds of operations, so signatures are remembered. Owner thread. */
#pragma once

#include "engine/device/device_impl.h"

enum { SIGNATURE_INPUTS = 3, SIGNATURE_INTS = 8, SIGNATURE_FLOATS = 2 };

/* What bind has to know of an operation besides its types. */
struct signature_facts {
    const struct op_kernel *kernel; /* NULL: it needs none */
    int64_t elements;               /* of its largest result */
    bool large;                     /* it may take long, and so may have to be stopped */
    /* Its family is elementwise, and all operands have one shape and the dtypes that the kernel wants: where they are contiguous, the
     * kernel sees one axis. */
    bool flat;
    bool small; /* and it is a struct flat_launch then, which the device takes */
};

struct signature {
    /* the key */
    uint16_t opcode;
    uint8_t n_ints, n_floats;
    uint64_t inputs[SIGNATURE_INPUTS]; /* the numbers of the inputs' types; 0 behind the last one */
    int64_t ints[SIGNATURE_INTS];
    double floats[SIGNATURE_FLOATS];
    /* what follows from the key */
    struct signature_facts facts;
    uint64_t type_id;        /* of its only result; 0: not known, or it has several */
    struct tensor_type type; /* of its first result */
};

/* Types have numbers. No two types ever have the same number; a type may get a new number after its old one is forgotten. */
struct signature_type {
    uint64_t id;
    struct tensor_type type;
};

enum { SIGNATURES_BITS = 9, SIGNATURE_TYPES_BITS = 9 };

/* The types and signatures that were used lately, each at the place that its hash gives; a new one replaces the old one there. */
struct signatures {
    struct device *device;
    uint64_t last_type;
    struct signature_type types[1 << SIGNATURE_TYPES_BITS];
    struct signature found[1 << SIGNATURES_BITS];
};

struct signatures *signatures_create(struct device *device);

/* The number of a type. */
uint64_t signature_type(struct signatures *signatures, const struct tensor_type *type);

static inline uint64_t signature_hash(uint64_t hash, uint64_t word) {
    return (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
}
/* The place for a hash, of its upper bits, which are mixed best. */
static inline uint64_t signature_place(uint64_t hash, unsigned bits) {
    return signature_hash(hash, hash >> 29) >> (64 - bits);
}

/* A question: the types of the inputs, and the numbers of these types. */
struct signature_query {
    unsigned opcode, n_inputs;
    const struct tensor_type *const *types;
    const uint64_t *ids; /* [SIGNATURE_INPUTS]; 0 behind the last one */
    const struct op_attributes *attributes;
};

/* Checks an operation with one result, and remembers at its place what follows. NULL with `fault`. */
const struct signature *signature_add(struct signatures *signatures, struct signature *place,
                                      const struct signature_query *query, struct fault *fault);
bool signature_same_attributes(const struct signature *signature, const struct op_attributes *attributes);

/* The place of an operation with these inputs and attributes. */
static inline struct signature *signature_home(struct signatures *signatures, unsigned opcode, const uint64_t *ids,
                                               const struct op_attributes *attributes) {
    uint64_t hash = opcode;
    for (unsigned i = 0; i < SIGNATURE_INPUTS; i++)
        hash = signature_hash(hash, ids[i]);
    for (unsigned i = 0; i < attributes->n_ints; i++)
        hash = signature_hash(hash, (uint64_t)attributes->ints[i]);
    return &signatures->found[signature_place(hash, SIGNATURES_BITS)];
}
/* Whether the place is that operation's now. */
static inline bool signature_is(const struct signature *place, unsigned opcode, const uint64_t *ids,
                                const struct op_attributes *attributes) {
    return place->opcode == opcode && place->inputs[0] == ids[0] && place->inputs[1] == ids[1] &&
           place->inputs[2] == ids[2] &&
           (!(attributes->n_ints | attributes->n_floats | place->n_ints | place->n_floats) ||
            signature_same_attributes(place, attributes));
}
/* Whether it may be remembered: the others have too many inputs or attributes. */
static inline bool signature_is_short(unsigned n_inputs, const struct op_attributes *attributes) {
    return n_inputs <= SIGNATURE_INPUTS && attributes->n_ints <= SIGNATURE_INTS &&
           attributes->n_floats <= SIGNATURE_FLOATS;
}
/* The same for any operation, in `room`; `outputs` are set to the types of its `n_outputs` results. False with `fault`. */
bool signature_make(struct signatures *signatures, unsigned opcode, const struct tensor_type *const types[],
                    unsigned n_inputs, const struct op_attributes *attributes, unsigned n_outputs,
                    struct tensor_type *outputs, struct signature *room, struct fault *fault);
