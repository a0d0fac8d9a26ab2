/* Rules of random numbers. */
#include "proto/ops/op_rules.h"

#include <inttypes.h>
#include <math.h>

static int check_offset(int64_t offset, struct fault *fault) {
    return offset >= 0 ? STATUS_OK
                       : fault_set(fault, STATUS_INVALID_ARGUMENT, "offset %" PRId64 " is negative", offset);
}

static int random_type(enum dtype dtype, const struct op_ints *shape, int64_t offset, struct tensor_type *out,
                       struct fault *fault) {
    int status = type_make(out, dtype, shape->values, shape->count, fault);
    return status == STATUS_OK ? check_offset(offset, fault) : status;
}

static int check_bound(enum dtype dtype, double bound, struct fault *fault) {
    double largest = dtype_largest(dtype);
    return fabs(bound) <= largest
               ? STATUS_OK
               : fault_set(fault, STATUS_INVALID_ARGUMENT, "%g is out of range of %s, whose largest value is %g", bound,
                           dtype_name(dtype), largest);
}

static int check_distribution(unsigned opcode, enum dtype dtype, double first, double second, struct fault *fault) {
    if (opcode == OP_UNIFORM && !(isfinite(first) && isfinite(second) && isfinite(second - first) && first <= second)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no uniform distribution from %g to %g", first, second);
    }
    if (opcode == OP_NORMAL && !(isfinite(first) && isfinite(second) && second >= 0)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no normal distribution with mean %g and deviation %g", first,
                         second);
    }
    int status = check_bound(dtype, first, fault);
    if (status == STATUS_OK) {
        status = check_bound(dtype, second, fault);
    }
    if (status == STATUS_OK && opcode == OP_UNIFORM && first < second && dtype_not_below(dtype, first) >= second) {
        status = fault_set(fault, STATUS_INVALID_ARGUMENT, "%s has no value from %.17g to below %.17g",
                           dtype_name(dtype), first, second);
    }
    return status;
}

/* uniform and normal have the same attributes, except for the names of the two numbers. */
int op_rule_random(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct uniform_attributes attributes;
    uniform_attributes_read(call->attributes, &attributes);
    int status = random_type(out->dtype, &attributes.shape, attributes.offset, out, fault);
    return status == STATUS_OK ? check_distribution(call->opcode, out->dtype, attributes.low, attributes.high, fault)
                               : status;
}

int op_rule_exponential(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct exponential_attributes attributes;
    exponential_attributes_read(call->attributes, &attributes);
    if (!(attributes.scale >= 0)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "no exponential distribution with scale %g", attributes.scale);
    }
    int status = check_bound(out->dtype, attributes.scale, fault);
    return status == STATUS_OK ? random_type(out->dtype, &attributes.shape, attributes.offset, out, fault) : status;
}

int op_rule_randint(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct randint_attributes attributes;
    randint_attributes_read(call->attributes, &attributes);
    if (attributes.low >= attributes.high) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "there are no integers from %" PRId64 " to below %" PRId64,
                         attributes.low, attributes.high);
    }
    int64_t ends[] = {attributes.low, attributes.high - 1};
    for (int i = 0; i < 2; i++) {
        if (!dtype_holds(out->dtype, ends[i], false)) {
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRId64 " is no value of %s", ends[i],
                             dtype_name(out->dtype));
        }
    }
    return random_type(out->dtype, &attributes.shape, attributes.offset, out, fault);
}

static int check_probability(double probability, struct fault *fault) {
    return probability >= 0 && probability <= 1
               ? STATUS_OK
               : fault_set(fault, STATUS_INVALID_ARGUMENT, "the probability is %g, not between 0 and 1", probability);
}

int op_rule_bernoulli(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct bernoulli_attributes attributes;
    bernoulli_attributes_read(call->attributes, &attributes);
    int status = check_probability(attributes.probability, fault);
    return status == STATUS_OK ? random_type(out->dtype, &attributes.shape, attributes.offset, out, fault) : status;
}

int op_rule_permutation(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct permutation_attributes attributes;
    permutation_attributes_read(call->attributes, &attributes);
    if (attributes.n < 0 || (attributes.n > 0 && !dtype_holds(out->dtype, attributes.n - 1, false))) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s has no %" PRId64 " numbers from 0 on",
                         dtype_name(out->dtype), attributes.n);
    }
    return type_make(out, out->dtype, &attributes.n, 1, fault);
}

int op_rule_draw(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct bernoulli_like_attributes attributes;
    bernoulli_like_attributes_read(call->attributes, &attributes);
    op_copy_shape(out, call->inputs[0]);
    return check_offset(attributes.offset, fault);
}

int op_rule_dropout(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    struct dropout_attributes attributes;
    dropout_attributes_read(call->attributes, &attributes);
    int status = check_probability(attributes.probability, fault);
    return status == STATUS_OK ? op_rule_draw(call, out, fault) : status; /* the integers are the same */
}

int op_rule_multinomial(const struct op_call *call, struct tensor_type *out, struct fault *fault) {
    const struct tensor_type *weights = call->inputs[0];
    struct multinomial_attributes attributes;
    multinomial_attributes_read(call->attributes, &attributes);
    op_copy_shape(out, weights);
    if (weights->rank == 0) {
        return fault_set(fault, STATUS_SHAPE, "the weights have rank 0: they need an axis to draw from");
    }
    int64_t extent = weights->shape[weights->rank - 1];
    if (attributes.samples < 0 || (!attributes.replacement && attributes.samples > extent) ||
        (attributes.samples > 0 && extent == 0)) {
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%" PRId64 " samples of %" PRId64 " positions%s",
                         attributes.samples, extent, attributes.replacement ? "" : " without replacement");
    }
    out->shape[weights->rank - 1] = attributes.samples;
    return check_offset(attributes.offset, fault);
}
