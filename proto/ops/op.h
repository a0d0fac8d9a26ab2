/* Operations: the numbers of inputs and attributes that each takes, and the rules that give the results' dtypes and shapes.
 * The client applies these rules to know a result before it exists; the server applies them again, because it does not trust
 * clients.
 *
 * Each operation is described once, in a file of proto/ops/ (README.md there says how). The numbers, the rows and a
 * struct of named attributes for each operation are generated from the descriptions: proto/ops/operations.h.
 *
 * On the wire attributes are in two columns, integers and floats: first the single attributes, in the order of the
 * description, then the lists. Each list of integers except the last one has its count before it; there is at most one list
 * of floats. A string is a list of integers: its bytes, eight in each integer, the first byte the lowest, and 1 to 8 zero bytes
 * at the end. It is UTF-8 of at most OP_STRING_MAX bytes. Axes may count from the end (shape_axis). */
#pragma once

#include <string.h>

#include "proto/ops/shape.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors and strings lie in memory as on the wire, which is little-endian"
#endif

enum {
    /* The thread that binds an operation with so many inputs is busy for some milliseconds, while other sessions wait. */
    OP_INPUTS_MAX = 8192,
    OP_OUTPUTS_MAX = 8192,
    OP_OUTPUTS_NAMED = 16, /* outputs that a description can name */
    OP_INTS_MAX = 1024,
    OP_FLOATS_MAX = 1024,
    OP_PACKED_INTS = 32, /* slice of rank 8 takes 24 */
    OP_PACKED_FLOATS = 6,
    OP_LIST_MAX = 128,                 /* entries that a function in C takes in a list of integers or floats */
    OP_STRING_MAX = 1023,              /* bytes */
    OP_VARIES = -1,                    /* the count varies, and the rule itself checks it */
    OP_PROGRAM_OPERATIONS_MAX = 16384, /* in a recorded program */
    OP_PROGRAM_VALUES_MAX = 4096,      /* its parameters, captured tensors and results together */
};

/* How the result's dtype follows from the dtype to which the operands promote; DTYPE_RULES in proto/ops/describe.py
 * explains each rule. */
enum op_dtype_rule {
    OP_DTYPE_NONE,
    OP_DTYPE_ATTRIBUTE,
    OP_DTYPE_SAME,
    OP_DTYPE_PROMOTED,
    OP_DTYPE_FLOATING,
    OP_DTYPE_REAL,
    OP_DTYPE_MAGNITUDE,
    OP_DTYPE_COMPLEX,
    OP_DTYPE_COMPARED,
    OP_DTYPE_LOGICAL,
    OP_DTYPE_TESTED,
    OP_DTYPE_ACCUMULATED,
    OP_DTYPE_POSITION,
    OP_DTYPE_SEARCHED,
    OP_DTYPE_PRODUCT,
    OP_DTYPE_COMPUTED,
    OP_DTYPE_RULE,
};

/* Whether results can be differentiated by inputs. */
enum op_derivative {
    OP_DERIVATIVE_MISSING, /* there is no rule: asking through the operation is an error */
    OP_DERIVATIVE_NONE,    /* results are constants: positions, comparisons, random numbers */
    OP_DERIVATIVE_RULE,    /* in client/autograd */
};

/* The quantity with which an operation's arithmetic grows; op_work() counts it. */
enum op_work {
    OP_WORK_NONE,
    OP_WORK_RESULT,    /* elements of the result */
    OP_WORK_INPUT,     /* elements of the first input */
    OP_WORK_PRODUCTS,  /* elements of the result, times the extent of the first input's last axis, over which it sums */
    OP_WORK_CUBES,     /* elements of the first input, times the lesser extent of its last two axes */
    OP_WORK_ATTENTION, /* elements of the first input, times the number of keys */
    /* Products of a convolution: elements of what has the weight's first axis as channels, times the weight's elements for each of these.
     * The former is the result, the first input, or the second input; and then the result is the weight. */
    OP_WORK_CONVOLUTION,
    OP_WORK_CONVOLUTION_OF_X,
    OP_WORK_CONVOLUTION_OF_GRADIENT,
};

enum op_attribute_type {
    OP_ATTRIBUTE_INT,
    OP_ATTRIBUTE_AXIS,
    OP_ATTRIBUTE_BOOL,
    OP_ATTRIBUTE_DTYPE,
    OP_ATTRIBUTE_SEED,
    OP_ATTRIBUTE_ENUM,
    OP_ATTRIBUTE_SCALAR, /* a value of the result's dtype: an integer and a float; the dtype takes one of them */
    OP_ATTRIBUTE_FLOAT,
    OP_ATTRIBUTE_FLOATS,
    OP_ATTRIBUTE_SHAPE, /* a list of extents; this type and all types after it are lists of integers */
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

/* Attributes with their own memory, for code that makes them: for an operation with few attributes, */
struct op_packed {
    int64_t ints[OP_PACKED_INTS];
    double floats[OP_PACKED_FLOATS];
    unsigned n_ints, n_floats;
};
/* and for an operation that may have many. */
struct op_packed_long {
    int64_t ints[OP_INTS_MAX];
    double floats[OP_FLOATS_MAX];
    unsigned n_ints, n_floats;
};

/* Values of attributes: lists, which stay where they were read from (so do strings), and a value of any dtype. */
struct op_ints {
    unsigned count;
    const int64_t *values;
};
struct op_floats {
    unsigned count;
    const double *values;
};
/* The integer is `i`, or for u64 also i + 2^64: where i is negative and f is not. Floats take f. Of a complex number f is the real part,
 * and `i` the bits of the imaginary part as an f64. */
struct op_scalar {
    int64_t i;
    double f;
};
static inline bool op_scalar_above(const struct op_scalar *scalar, enum dtype dtype) {
    return dtype == DTYPE_U64 && scalar->i < 0 && scalar->f > 0;
}

/* Whether an operation releases its input `i`. `first` is the mask for the first 16 inputs, `others` the masks for the other inputs,
 * 64 in each (NULL: it releases none of these). */
static inline bool op_consumes(uint16_t first, const uint64_t *others, unsigned i) {
    if (i < 16)
        return first >> i & 1;
    return others && (others[(i - 16) / 64] >> (i - 16) % 64 & 1);
}

/* These functions write a list, which must fit, and return the number of its entries. */
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

/* An operation as a client requests it, with ids for its tensors. All pointers are borrowed. */
struct op_request {
    unsigned opcode;
    unsigned n_inputs;
    union {
        struct op_attributes attributes;
        struct { /* the same, by the names of the columns */
            const int64_t *ints;
            const double *floats;
            unsigned n_ints, n_floats;
        };
    };
    unsigned further; /* outputs after the first, with the ids that follow */
    uint16_t consume; /* bit i: this operation releases input i; */
    const uint64_t
        *consume_more; /* the same for the inputs from 16 on, 64 in each word; NULL: it releases none of them */
    const uint64_t *inputs;
    const char *label;          /* NULL: none */
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
    uint32_t dtypes; /* the dtypes in which it computes, or that it gives; bit DTYPE_F32 set: f32 */
    op_rule *shape;  /* op_rules.h */
    uint32_t keeps;  /* if all inputs have one type, with one of these dtypes, the result has that type */
    enum op_derivative derivative;
    /* Bits of the inputs and outputs that its rule reads; bit 31 stands for all from number 31 on. */
    uint32_t derivative_inputs, derivative_outputs;
    enum op_work work;
    uint16_t flop; /* for each unit that op_work() counts */
    /* The estimate of a launch's time, in passes over its operands in memory, until launches have been measured. */
    uint8_t passes;
    int inputs_min, inputs_max;
    unsigned n_outputs;                /* 0 only for free */
    bool outputs_vary;                 /* the operation may have more outputs; op_infer_outputs() gives their types */
    const enum op_dtype_rule *further; /* [n_outputs - 1]: the rules for the outputs after the first */
    /* Bit i set: input i does not promote with the others: it is integers, bool, or has a dtype that the rule checks. */
    uint32_t index_inputs, bool_inputs, own_inputs;
    int ints, floats; /* counts of attributes; OP_VARIES: ints_min or floats_min single attributes, and lists */
    unsigned ints_min, floats_min;
    unsigned dtype_at;                     /* OP_DTYPE_ATTRIBUTE: the place of the result's dtype among the integers */
    const struct op_attribute *attributes; /* [n_attributes], in the order of the wire */
    unsigned n_attributes;
};

/* By opcode; a row without a name is no operation. */
extern const struct op_info op_rows[OP_CODE_MAX];

/* Its place among the operations of its family, below OP_PLACES_<FAMILY>. */
extern const uint8_t op_places[OP_CODE_MAX];
static inline unsigned op_place(unsigned opcode) {
    return op_places[opcode];
}

/* The number of ids that the operation uses up. */
static inline unsigned op_request_outputs(const struct op_request *request) {
    return request->opcode == OP_FREE ? 0 : 1 + request->further;
}

/* NULL if no operation has this number. */
static inline const struct op_info *op_info(unsigned opcode) {
    return opcode < OP_CODE_MAX && op_rows[opcode].name ? &op_rows[opcode] : NULL;
}

/* Whether the operation runs what a client has brought: a kernel or a program of its own. */
static inline bool op_is_clients(const struct op_info *info) {
    return info->family == OP_FAMILY_KERNEL || info->family == OP_FAMILY_PROGRAM;
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

/* The amount of work of a checked operation whose (first) result is `out`: in elements, or in products of two numbers. */
double op_work(const struct op_info *info, const struct tensor_type *const inputs[], const struct tensor_type *out);

/* The dtype in which a kernel gets input `i`, for a checked result: the engine casts the input if its own dtype differs.
 * Comparisons promote their inputs; take's indices are i64; logical operations take bool. */
enum dtype op_operand_dtype(unsigned opcode, const struct tensor_type *const inputs[], unsigned i,
                            const struct tensor_type *out);

/* The dtypes that a kernel of this operation may get (bit DTYPE_F32 set: f32): the dtypes of the last input as
 * op_operand_dtype() gives them, or the result's dtypes if there is no input. 0 for an operation that needs no kernel of its
 * own on any device: free, views, and joins, which are copies. It tries op_infer() on small inputs: some 10 µs. */
uint32_t op_presented(unsigned opcode);
/* The dtypes that the operation takes as inputs (or as its result, if it has no inputs). The inputs are cast to the
 * dtypes of op_presented(). Views and joins take all dtypes. */
uint32_t op_taken(unsigned opcode);

/* Python's slice.indices(): gives the first index, the step and the number of elements along one axis. If there is no first
 * element, `start` is 0; if there is no second element, `step` is 1: so both can be multiplied by strides. */
struct op_slice {
    int64_t start, step, count;
};
int op_slice(int64_t extent, int64_t start, int64_t stop, int64_t step, struct op_slice *out, struct fault *fault);

/* Bit i of *mask: axis i is reduced. An empty list stands for all axes. */
int op_reduced_axes(const struct op_ints *axes, int rank, uint32_t *mask, struct fault *fault);
