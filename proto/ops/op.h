/* Operations: what there is, how many inputs and attributes each takes, and the rules that give the results' dtypes and
 * shapes. The client applies them to know a result before it exists; the server applies them again and trusts nobody.
 *
 * Each operation is described once, in a file of proto/ops/ (README.md there says how). The numbers, the rows and a
 * struct of named attributes for each operation are made from that: proto/ops/operations.h.
 *
 * On the wire attributes travel in two columns, integers and floats: the single ones first, in the order of the
 * description, then the lists. Of the lists of integers each but the last has its count before it; there is one list of floats.
 * A string is a list of integers: its bytes, eight in each integer, the first one the lowest, and 1 to 8 zero bytes at the end.
 * It is UTF-8 of at most OP_STRING_MAX bytes. Axes may count from the end (shape_axis). */
#pragma once

#include <string.h>

#include "proto/ops/shape.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors and strings lie in memory as on the wire, which is little-endian"
#endif

enum {
    /* So many make an operation of some milliseconds for the thread that binds it, which serves others meanwhile. */
    OP_INPUTS_MAX = 8192,
    OP_OUTPUTS_MAX = 8192,
    OP_OUTPUTS_NAMED = 16, /* that a description names */
    OP_INTS_MAX = 1024,
    OP_FLOATS_MAX = 1024,
    OP_PACKED_INTS = 32, /* slice of rank 8 takes 24 */
    OP_PACKED_FLOATS = 4,
    OP_LIST_MAX = 128,    /* what a function in C takes in a list of integers or floats */
    OP_STRING_MAX = 1023, /* bytes */
    OP_VARIES = -1,       /* a count that the rule itself checks */
};

/* How the result's dtype follows from the dtype to which the operands promote; DTYPE_RULES in proto/ops/describe.py has
 * the words. */
enum op_dtype_rule {
    OP_DTYPE_NONE,
    OP_DTYPE_ATTRIBUTE,
    OP_DTYPE_SAME,
    OP_DTYPE_PROMOTED,
    OP_DTYPE_FLOATING,
    OP_DTYPE_COMPARED,
    OP_DTYPE_LOGICAL,
    OP_DTYPE_ACCUMULATED,
    OP_DTYPE_POSITION,
    OP_DTYPE_PRODUCT,
    OP_DTYPE_RULE,
};

/* What an operation's arithmetic grows with; op_work() counts it. */
enum op_work {
    OP_WORK_NONE,
    OP_WORK_RESULT,   /* elements of the result */
    OP_WORK_INPUT,    /* of the first input */
    OP_WORK_PRODUCTS, /* of the result, times the extent of the first input's last axis, over which it sums */
};

enum op_attribute_type {
    OP_ATTRIBUTE_INT,
    OP_ATTRIBUTE_AXIS,
    OP_ATTRIBUTE_BOOL,
    OP_ATTRIBUTE_DTYPE,
    OP_ATTRIBUTE_SEED,
    OP_ATTRIBUTE_ENUM,
    OP_ATTRIBUTE_SCALAR, /* a value of the result's dtype: an integer and a float, of which the dtype takes one */
    OP_ATTRIBUTE_FLOAT,
    OP_ATTRIBUTE_FLOATS,
    OP_ATTRIBUTE_SHAPE, /* a list of extents; this one and what follows are lists of integers */
    OP_ATTRIBUTE_AXES,
    OP_ATTRIBUTE_INTS,
    OP_ATTRIBUTE_STRING,
};

struct op_attribute {
    const char *name;
    enum op_attribute_type type;
    const char *const *values; /* an enumeration's names by number */
    unsigned n_values;
};

#define OP_SLICE_NONE INT64_MIN

struct op_attributes {
    const int64_t *ints;
    const double *floats;
    unsigned n_ints, n_floats;
};

/* The same with room of its own, for whoever makes those of an operation that has few, */
struct op_packed {
    int64_t ints[OP_PACKED_INTS];
    double floats[OP_PACKED_FLOATS];
    unsigned n_ints, n_floats;
};
/* and of one that may have many. */
struct op_packed_long {
    int64_t ints[OP_INTS_MAX];
    double floats[OP_FLOATS_MAX];
    unsigned n_ints, n_floats;
};

/* Values of attributes: lists, which lie where they were read from, as strings do, and a value of any dtype. */
struct op_ints {
    unsigned count;
    const int64_t *values;
};
struct op_floats {
    unsigned count;
    const double *values;
};
struct op_scalar {
    int64_t i;
    double f;
};

/* Whether an operation releases its input `i`: by its masks for the first 16 inputs and for the others, in words of 64 (NULL: it
 * releases none of them). */
static inline bool op_consumes(uint16_t first, const uint64_t *others, unsigned i) {
    if (i < 16)
        return first >> i & 1;
    return others && (others[(i - 16) / 64] >> (i - 16) % 64 & 1);
}

/* They write a list, which must fit, and return the number of its entries. */
static inline unsigned op_ints_write(int64_t *out, const struct op_ints *list) {
    for (unsigned i = 0; i < list->count; i++)
        out[i] = list->values[i];
    return list->count;
}
static inline unsigned op_floats_write(double *out, const struct op_floats *list) {
    for (unsigned i = 0; i < list->count; i++)
        out[i] = list->values[i];
    return list->count;
}
static inline unsigned op_string_ints(const char *string) {
    return (unsigned)(strlen(string) / sizeof(int64_t)) + 1;
}
static inline unsigned op_string_write(int64_t *out, const char *string) {
    unsigned count = op_string_ints(string);
    out[count - 1] = 0;
    memcpy(out, string, strlen(string));
    return count;
}

#include "proto/ops/operations.h"

/* An operation as a client asks for it, with ids for its tensors. All pointers are the asker's. */
struct op_request {
    unsigned opcode;
    unsigned n_inputs, n_ints, n_floats;
    unsigned further;             /* outputs after the first, with the ids that follow */
    uint16_t consume;             /* bit i: input i is released by this operation; */
    const uint64_t *consume_more; /* the inputs from 16 on, 64 in a word; NULL: none of them */
    const uint64_t *inputs;
    const int64_t *ints;
    const double *floats;
    const char *label;          /* NULL: it has none */
    uint32_t stream;            /* the client's number for it */
    uint64_t output;            /* the id of its first output; ignored by `free` */
    uint64_t sequence;          /* of the operation in its session, for error reports */
    const char *kernels_denied; /* the principal who may not launch kernels of its own; NULL: the session may */
};


struct op_call;
typedef int op_rule(const struct op_call *call, struct tensor_type *out, struct fault *fault);

struct op_info {
    const char *name;
    enum op_family family;
    enum op_dtype_rule dtype;
    uint32_t dtypes; /* that it computes in, or gives; bit DTYPE_F32 set: f32 */
    op_rule *shape;  /* op_rules.h */
    uint32_t keeps;  /* inputs of one type, with one of these dtypes, give a result of that type */
    enum op_work work;
    uint16_t flop; /* for each that op_work() counts */
    /* So many passes over its operands in memory it is estimated to take, before launches have shown it. */
    uint8_t passes;
    int inputs_min, inputs_max;
    unsigned n_outputs;                /* 0 for free alone */
    bool outputs_vary;                 /* there may be more: op_infer_outputs() says so */
    const enum op_dtype_rule *further; /* [n_outputs - 1]: of the outputs after the first */
    uint32_t index_inputs,
        bool_inputs;  /* bit i set: input i is integers, or bool, and does not promote with the others */
    int ints, floats; /* counts of attributes; OP_VARIES: ints_min or floats_min, and lists */
    unsigned ints_min, floats_min;
    unsigned dtype_at; /* where the result's dtype stands among the integers, for OP_DTYPE_ATTRIBUTE */
    const struct op_attribute *attributes; /* [n_attributes], in the order of the wire */
    unsigned n_attributes;
};

/* By opcode; one without a name is no operation. */
extern const struct op_info op_rows[OP_CODE_MAX];

/* How many ids it takes. */
static inline unsigned op_request_outputs(const struct op_request *request) {
    return request->opcode == OP_FREE ? 0 : 1 + request->further;
}

/* NULL for a number that is no operation. */
static inline const struct op_info *op_info(unsigned opcode) {
    return opcode < OP_CODE_MAX && op_rows[opcode].name ? &op_rows[opcode] : NULL;
}

/* Checks counts, attributes and inputs of an operation and gives the types of its outputs: `out` has room for as many as the
 * operation has (op_info.n_outputs; OP_OUTPUTS_NAMED is enough for any). Nothing is assumed of the arguments but that the pointers
 * are readable. FREE has no result and leaves `out` alone; so does a failure. */
int op_infer(unsigned opcode, const struct tensor_type *const inputs[], unsigned n_inputs,
             const struct op_attributes *attributes, struct tensor_type *out, struct fault *fault);

/* The same for an operation that is said to have `n_outputs` (1 to OP_OUTPUTS_MAX), which it may not. After a failure `out` is
 * undefined. */
int op_infer_outputs(unsigned opcode, const struct tensor_type *const inputs[], unsigned n_inputs,
                     const struct op_attributes *attributes, unsigned n_outputs, struct tensor_type *out,
                     struct fault *fault);

/* How much there is to do for a checked operation whose (first) result is `out`: in elements, or in products of two. */
double op_work(const struct op_info *info, const struct tensor_type *const inputs[], const struct tensor_type *out);

/* The dtype in which input `i` must be presented to a kernel, given the checked result: the engine casts where the
 * input's own dtype differs. Comparisons promote their inputs; take's indices are i64; logical operations take bool. */
enum dtype op_operand_dtype(unsigned opcode, const struct tensor_type *const inputs[], unsigned i,
                            const struct tensor_type *out);

/* The dtypes that a kernel of this operation may find presented (bit DTYPE_F32 set: f32): those of its last input as
 * op_operand_dtype() gives it, or the result's where there is none. 0 for what needs no kernel of its own on any
 * device: free, views, and joins, which are copies. Found by trying op_infer() on small inputs: some 10 µs. */
uint32_t op_presented(unsigned opcode);
/* The dtypes that the operation takes as inputs (or as its result, if it has no inputs). The inputs are cast to the
 * dtypes of op_presented(). Views and joins take all dtypes. */
uint32_t op_taken(unsigned opcode);

/* Python's slice.indices(): gives the first index, the step and the number of elements along one axis. Where there is
 * no first element `start` is 0, where there is no second one `step` is 1, so that both may be multiplied with strides.
 */
struct op_slice {
    int64_t start, step, count;
};
int op_slice(int64_t extent, int64_t start, int64_t stop, int64_t step, struct op_slice *out, struct fault *fault);

/* Bit i set: axis i is reduced. An empty list stands for all. */
int op_reduced_axes(const struct op_ints *axes, int rank, uint32_t *mask, struct fault *fault);
