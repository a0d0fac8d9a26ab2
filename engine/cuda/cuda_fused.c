/* The activations and dtypes that cublasLt may apply by itself.
 *
 * NVIDIA does not document what its epilogues do with a NaN, nor how exact their GELU is: a ReLU that is a plain max(x, 0) makes 0 of a
 * NaN, and the hardware's tanh is off by 5e-4. So no epilogue is used before it has been tested: bench-cuda's row "first" tries both
 * activations for each dtype and prints what may be set, and the conformance suite, run with that setting, tries all shapes of
 * LINEAR. What has passed both goes into the table here. TENSORD_CUDA_FUSED=relu_f16,gelu_f32 (or all, or none) overrides the table.
 * Why the device does not test this when it is opened: a product of one shape says nothing about the epilogues of other algorithms,
 * and results must not depend on whether such a test has ended. */
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/cuda.h"

static const struct {
    const char *name;
    unsigned activation;
    enum dtype dtype;
    bool right; /* has passed both tests on a device */
} fused_table[] = {
    {"relu_f16", OP_ACTIVATION_RELU, DTYPE_F16, false},        {"relu_bf16", OP_ACTIVATION_RELU, DTYPE_BF16, false},
    {"relu_f32", OP_ACTIVATION_RELU, DTYPE_F32, false},        {"gelu_f16", OP_ACTIVATION_GELU_TANH, DTYPE_F16, false},
    {"gelu_bf16", OP_ACTIVATION_GELU_TANH, DTYPE_BF16, false}, {"gelu_f32", OP_ACTIVATION_GELU_TANH, DTYPE_F32, false},
};

bool cuda_listed(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && !strncmp(at, word, length))
            return true;
    return false;
}

void cuda_fused_init(struct cuda *cuda) {
    const char *list = getenv("TENSORD_CUDA_FUSED");
    memset(cuda->fused, 0, sizeof cuda->fused);
    for (size_t i = 0; i < sizeof fused_table / sizeof *fused_table; i++) {
        bool set =
            list && *list ? cuda_listed(list, fused_table[i].name) || cuda_listed(list, "all") : fused_table[i].right;
        if (set)
            cuda->fused[fused_table[i].activation] |= (uint16_t)(1u << fused_table[i].dtype);
    }
}
