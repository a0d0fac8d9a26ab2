#include "proto/ops/op.h"

_Static_assert(DTYPE_COUNT <= 32, "a bit for each dtype");

enum { PRESENTED_INPUTS_MAX = 4, PRESENTED_INTS_MAX = 6 /* where the count varies */ };

/* The dtypes of the inputs of a try: all the same, or inputs with a role of their own, such as indices, have the dtype of that role. */
enum presented_inputs { PRESENTED_ALIKE, PRESENTED_ROLES, PRESENTED_WAYS };

struct presented_try {
    unsigned opcode;
    const struct op_info *info;
    enum dtype dtype;
    enum presented_inputs way;
    int rank; /* of the inputs, except indices, which have one axis */
};

static void presented_types(const struct presented_try *this, unsigned n, struct tensor_type *types) {
    for (unsigned i = 0; i < n; i++) {
        bool condition = this->way == PRESENTED_ROLES && (this->info->bool_inputs >> i & 1);
        bool index = this->way == PRESENTED_ROLES && (this->info->index_inputs >> i & 1);
        types[i] = (struct tensor_type){.dtype = condition ? DTYPE_BOOL
                                                 : index   ? DTYPE_I64
                                                           : this->dtype,
                                        .rank = index ? 1 : this->rank};
        for (int axis = 0; axis < types[i].rank; axis++)
            types[i].shape[axis] = 1;
    }
}

/* Tries these attributes: the dtype that is presented then; DTYPE_INVALID if the operation does not take them. */
static enum dtype presented_with(const struct presented_try *this, const int64_t *ints, unsigned n_ints) {
    static const double floats[OP_PACKED_FLOATS] = {0, 1, 1, 1};
    struct tensor_type types[PRESENTED_INPUTS_MAX], out[OP_OUTPUTS_NAMED];
    const struct tensor_type *inputs[PRESENTED_INPUTS_MAX];
    unsigned n = (unsigned)this->info->inputs_min;
    struct op_attributes attributes = {.ints = ints, .n_ints = n_ints, .floats = floats};
    attributes.n_floats = this->info->floats == OP_VARIES ? 0 : (unsigned)this->info->floats;
    presented_types(this, n, types);
    for (unsigned i = 0; i < n; i++)
        inputs[i] = &types[i];
    if (op_infer(this->opcode, inputs, n, &attributes, out, NULL) != STATUS_OK)
        return DTYPE_INVALID;
    return n ? op_operand_dtype(this->opcode, inputs, n - 1, out) : out->dtype;
}

/* Tries several attributes: a dtype first, as creation and cast have it; a dtype second, as one_hot has it; or zeros, which are valid
 * axes and bools. */
static uint32_t presented_try(const struct presented_try *this) {
    const int64_t dtype = (int64_t)this->dtype;
    const int64_t ints[][OP_PACKED_INTS] = {{dtype, 0, 1, 1, 2, 1}, {1, dtype, 1, 1}, {0}};
    int exact = this->info->ints;
    for (unsigned n = exact == OP_VARIES ? 0 : (unsigned)exact; n <= PRESENTED_INTS_MAX; n++) {
        for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
            enum dtype presented = presented_with(this, ints[i], n);
            if (dtype_valid((int)presented))
                return UINT32_C(1) << presented;
        }
        if (exact != OP_VARIES)
            break;
    }
    return 0;
}

/* The dtypes that are presented if the operation gets this dtype in the first `ways`; one bit for each dtype. */
static uint32_t presented_for(unsigned opcode, const struct op_info *info, enum dtype dtype, int ways) {
    struct presented_try this = {.opcode = opcode, .info = info, .dtype = dtype};
    uint32_t found = 0;
    for (int way = 0; way < ways; way++) {
        uint32_t bit = 0;
        for (int rank = 1; rank <= 2 && !bit; rank++) {
            this.way = (enum presented_inputs)way;
            this.rank = rank;
            bit = presented_try(&this);
        }
        found |= bit;
    }
    return found;
}

static bool presented_needs_no_kernel(const struct op_info *info) {
    return info->family == OP_FAMILY_FREE || info->family == OP_FAMILY_VIEW || info->family == OP_FAMILY_JOIN ||
           op_is_clients(info);
}

/* Operations whose inputs have to have more axes than a try gives them, or whose outputs vary. The dtypes alone tell: operands promote to
 * one that the operation takes. */
static uint32_t presented_untried(const struct op_info *info) {
    unsigned last = (unsigned)info->inputs_min - 1;
    bool index = last < 32 && info->index_inputs >> last & 1;
    return info->dtype != OP_DTYPE_PROMOTED ? 0 : index ? UINT32_C(1) << DTYPE_I64 : info->dtypes;
}

uint32_t op_presented(unsigned opcode) {
    const struct op_info *info = op_info(opcode);
    uint32_t found = 0;
    if (!info || presented_needs_no_kernel(info))
        return 0;
    for (int dtype = DTYPE_INVALID + 1; dtype < DTYPE_COUNT && info->inputs_min <= PRESENTED_INPUTS_MAX; dtype++)
        found |= presented_for(opcode, info, (enum dtype)dtype, PRESENTED_WAYS);
    return found ? found : presented_untried(info);
}

uint32_t op_taken(unsigned opcode) {
    const struct op_info *info = op_info(opcode);
    uint32_t taken = 0;
    if (!info)
        return 0;
    /* A single input can only be tried with this dtype itself: otherwise no input would have it. */
    int ways = info->inputs_min == 1 ? 1 : PRESENTED_WAYS;
    bool tried = info->inputs_min <= PRESENTED_INPUTS_MAX;
    for (int dtype = DTYPE_INVALID + 1; dtype < DTYPE_COUNT; dtype++)
        if (presented_needs_no_kernel(info) || (tried && presented_for(opcode, info, (enum dtype)dtype, ways)))
            taken |= UINT32_C(1) << dtype;
    return taken || presented_needs_no_kernel(info) ? taken : presented_untried(info) ? info->dtypes : 0;
}
