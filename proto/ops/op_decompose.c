/* Shapes of decompositions and linear equations: the last two axes are matrices. */
#include "proto/ops/op_rules.h"

static int64_t rows_of(const struct tensor_type *type) {
    return type->shape[type->rank - 2];
}

static int64_t columns_of(const struct tensor_type *type) {
    return type->shape[type->rank - 1];
}

static int check_matrix(const struct tensor_type *a, struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    return a->rank >= 2 ? STATUS_OK : fault_set(fault, STATUS_SHAPE, "%s is no matrix", shape_text(a, text));
}

static int check_square(const struct tensor_type *a, struct fault *fault) {
    char text[SHAPE_TEXT_MAX];
    int status = check_matrix(a, fault);
    if (status == STATUS_OK && rows_of(a) != columns_of(a)) {
        return fault_set(fault, STATUS_SHAPE, "the matrices of %s are not square", shape_text(a, text));
    }
    return status;
}

/* The input's batches of matrices with so many rows and columns. */
static void matrices(struct tensor_type *out, const struct tensor_type *a, int64_t rows, int64_t columns) {
    op_copy_shape(out, a);
    out->shape[out->rank - 2] = rows;
    out->shape[out->rank - 1] = columns;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

int op_rule_square(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = check_square(call->inputs[0], fault);
    if (status == STATUS_OK) {
        op_copy_shape(out, call->inputs[0]);
    }
    return status;
}

int op_rule_lu(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *a = call->inputs[0];
    int status = check_matrix(a, fault);
    if (status == STATUS_OK) {
        int64_t m = rows_of(a), n = columns_of(a), k = least(m, n);
        matrices(&out[0], a, m, m);
        matrices(&out[1], a, m, k);
        matrices(&out[2], a, k, n);
    }
    return status;
}

int op_rule_qr(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *a = call->inputs[0];
    struct qr_attributes attributes;
    qr_attributes_read(call->attributes, &attributes);
    int status = check_matrix(a, fault);
    if (status == STATUS_OK) {
        int64_t m = rows_of(a), n = columns_of(a);
        int64_t k = attributes.mode == OP_QR_MODE_COMPLETE ? m : least(m, n);
        matrices(&out[0], a, m, k);
        matrices(&out[1], a, k, n);
    }
    return status;
}

int op_rule_det(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = check_square(call->inputs[0], fault);
    if (status == STATUS_OK) {
        op_copy_shape(out, call->inputs[0]);
        out->rank -= 2;
    }
    return status;
}

int op_rule_slogdet(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = op_rule_det(call, &out[0], fault);
    if (status == STATUS_OK) {
        op_copy_shape(&out[1], &out[0]);
    }
    return status;
}

/* The input's batches of vectors with so many elements. */
static void vectors(struct tensor_type *out, const struct tensor_type *a, int64_t elements) {
    op_copy_shape(out, a);
    out->shape[--out->rank - 1] = elements;
}

int op_rule_eigvalsh(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = check_square(call->inputs[0], fault);
    if (status == STATUS_OK) {
        vectors(out, call->inputs[0], columns_of(call->inputs[0]));
    }
    return status;
}

int op_rule_eigh(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = op_rule_eigvalsh(call, &out[0], fault);
    if (status == STATUS_OK) {
        op_copy_shape(&out[1], call->inputs[0]);
    }
    return status;
}

int op_rule_svdvals(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *a = call->inputs[0];
    int status = check_matrix(a, fault);
    if (status == STATUS_OK) {
        vectors(out, a, least(rows_of(a), columns_of(a)));
    }
    return status;
}

int op_rule_svd(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *a = call->inputs[0];
    struct svd_attributes attributes;
    svd_attributes_read(call->attributes, &attributes);
    int status = op_rule_svdvals(call, &out[1], fault);
    if (status == STATUS_OK) {
        int64_t m = rows_of(a), n = columns_of(a), k = least(m, n);
        matrices(&out[0], a, m, attributes.full_matrices ? m : k);
        matrices(&out[2], a, attributes.full_matrices ? n : k, n);
    }
    return status;
}

/* A solution of a · x = b: x has a's columns, and b's own axes behind. */
static int equations(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *a = call->inputs[0], *b = call->inputs[1];
    char a_text[SHAPE_TEXT_MAX], b_text[SHAPE_TEXT_MAX];
    if (b->rank == 0 || (b->rank == 1 ? b->shape[0] : rows_of(b)) != rows_of(a)) {
        return fault_set(fault, STATUS_SHAPE, "%s has not the rows of %s", shape_text(b, b_text),
                         shape_text(a, a_text));
    }
    struct tensor_type a_batch = *a, b_batch = *b;
    a_batch.rank -= 2;
    b_batch.rank = b->rank > 2 ? b->rank - 2 : 0;
    if (shape_broadcast(out, &a_batch, &b_batch, NULL) != STATUS_OK) {
        return fault_set(fault, STATUS_SHAPE, "the batches of %s and %s do not broadcast", shape_text(a, a_text),
                         shape_text(b, b_text));
    }
    out->shape[out->rank++] = columns_of(a);
    if (b->rank > 1) {
        out->shape[out->rank++] = columns_of(b);
    }
    return STATUS_OK;
}

int op_rule_solve(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = check_square(call->inputs[0], fault);
    return status == STATUS_OK ? equations(call, out, fault) : status;
}

int op_rule_lstsq(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    int status = check_matrix(call->inputs[0], fault);
    return status == STATUS_OK ? equations(call, out, fault) : status;
}
