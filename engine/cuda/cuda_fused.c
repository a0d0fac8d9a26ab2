/* Whose activations cublasLt may apply by itself.
 *
 * What NVIDIA's epilogues do with a NaN, and how exact their GELU is, is written nowhere: a ReLU that is max(x, 0) without
 * care makes 0 of a NaN, and the hardware's tanh is off by 5e-4. So none is used before somebody has looked: bench-cuda's row
 * "first" tries both for each dtype and prints what may be set, and the conformance suite run with that set tries all shapes
 * of LINEAR. What has passed both goes into the table here; TENSORD_CUDA_FUSED=relu_f16,gelu_f32 (or all, or none) sets
 * something else. Not decided by the device itself when it is opened: one product of one shape says nothing of the other
 * algorithms' epilogues, and results must not depend on whether such a trial has ended. */
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/cuda.h"

static const struct {
    const char *name;
    unsigned activation;
    enum dtype dtype;
    bool right; /* found out on a device */
} fused_table[] = {
    {"relu_f16", OP_ACTIVATION_RELU, DTYPE_F16, false},        {"relu_bf16", OP_ACTIVATION_RELU, DTYPE_BF16, false},
    {"relu_f32", OP_ACTIVATION_RELU, DTYPE_F32, false},        {"gelu_f16", OP_ACTIVATION_GELU_TANH, DTYPE_F16, false},
    {"gelu_bf16", OP_ACTIVATION_GELU_TANH, DTYPE_BF16, false}, {"gelu_f32", OP_ACTIVATION_GELU_TANH, DTYPE_F32, false},
};

/* Whether a list of words with commas between them has this one. */
static bool fused_listed(const char *list, const char *word) {
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
            list && *list ? fused_listed(list, fused_table[i].name) || fused_listed(list, "all") : fused_table[i].right;
        if (set)
            cuda->fused[fused_table[i].activation] |= (uint16_t)(1u << fused_table[i].dtype);
    }
}
