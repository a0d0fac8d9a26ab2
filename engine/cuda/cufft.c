#include "engine/cuda/cufft.h"

#include <stdio.h>
#include <stdlib.h>

/* Lengths with larger prime factors are convolutions with a chirp of up to four times their length. */
enum { FACTOR_MOST = 127 };

static bool has_small_factors(int64_t n) {
    for (int64_t factor = 2; factor <= FACTOR_MOST; factor++)
        while (n % factor == 0)
            n /= factor;
    return n == 1;
}

uint64_t cufft_workspace(const struct cufft_lines *lines) {
    uint64_t bytes = (uint64_t)lines->n * (uint64_t)lines->batch * (lines->wide ? 16 : 8);
    return (has_small_factors(lines->n) ? 2 : 10) * bytes + (UINT64_C(1) << 20);
}

#ifdef CUDA_HAS_CUFFT
#include <cufft.h>

#define CUFFT_FUNCTIONS(X)                                                                                             \
    X(GetVersion)                                                                                                      \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(SetAutoAllocation)                                                                                               \
    X(MakePlanMany64)                                                                                                  \
    X(SetWorkArea)                                                                                                     \
    X(SetStream)                                                                                                       \
    X(ExecC2C)                                                                                                         \
    X(ExecZ2Z)                                                                                                         \
    X(ExecR2C)                                                                                                         \
    X(ExecD2Z)                                                                                                         \
    X(ExecC2R)                                                                                                         \
    X(ExecZ2D)

/* Each has tables on the device, of some KiB to the size of a line. */
enum { KEPT = 64 };

struct cuda_cufft {
    struct cuda_plans *plans;
    const char *call; /* the last one, in words for a refusal */
#define CUFFT_MEMBER(name) __typeof__(&cufft##name) name;
    CUFFT_FUNCTIONS(CUFFT_MEMBER)
#undef CUFFT_MEMBER
};

struct cufft_plan {
    struct cuda_plan base;
    struct cufft_lines key;
    cufftHandle handle; /* if `made` */
    bool made;
};

#define CUFFT_TRY(cufft, name, ...)                                                                                    \
    do {                                                                                                               \
        cufftResult cufft_try_result = (cufft)->name(__VA_ARGS__);                                                     \
        if (cufft_try_result != CUFFT_SUCCESS) {                                                                       \
            (cufft)->call = "cufft" #name;                                                                             \
            return cufft_try_result;                                                                                   \
        }                                                                                                              \
    } while (0)

static void plan_finish(void *context, struct cuda_plan *base) {
    const struct cuda_cufft *cufft = context;
    struct cufft_plan *plan = (struct cufft_plan *)base;
    if (plan->made)
        cufft->Destroy(plan->handle);
    plan->made = plan->base.ready = false;
}

static void cufft_open(struct cuda *cuda) {
    struct cuda_cufft *cufft = calloc(1, sizeof *cufft);
    char text[32];
    int version = 0;
    if (!cufft) {
        cuda_library_put_off(cuda, CUDA_CUFFT, "no host memory");
        return;
    }
#define CUFFT_SYMBOL(name) {"cufft" #name, &cufft->name},
    const struct cuda_symbol symbols[] = {CUFFT_FUNCTIONS(CUFFT_SYMBOL)};
#undef CUFFT_SYMBOL
    snprintf(text, sizeof text, "libcufft.so.%d", CUFFT_VER_MAJOR);
    if (!cuda_library_load(cuda, CUDA_CUFFT, text, symbols, sizeof symbols / sizeof *symbols)) {
        free(cufft);
        return;
    }
    cufft->plans = cuda_plans_create(KEPT, sizeof(struct cufft_plan), offsetof(struct cufft_plan, key),
                                     sizeof(struct cufft_lines), plan_finish, cufft);
    if (!cufft->plans || cufft->GetVersion(&version) != CUFFT_SUCCESS) {
        cuda_library_put_off(cuda, CUDA_CUFFT, cufft->plans ? "cufftGetVersion failed" : "no host memory");
        cuda_plans_destroy(cufft->plans);
        free(cufft);
        return;
    }
    snprintf(text, sizeof text, "%d.%d.%d", version / 1000, version / 100 % 10, version % 100);
    cuda_library_loaded(cuda, CUDA_CUFFT, text);
    cuda->cufft = cufft;
}

void cufft_finish(struct cuda *cuda) {
    if (!cuda->cufft)
        return;
    cuda_plans_destroy(cuda->cufft->plans);
    free(cuda->cufft);
    cuda->cufft = NULL;
}

/* [type][wide] */
static const cufftType types[][2] = {
    [CUFFT_TYPE_C2C] = {CUFFT_C2C, CUFFT_Z2Z},
    [CUFFT_TYPE_R2C] = {CUFFT_R2C, CUFFT_D2Z},
    [CUFFT_TYPE_C2R] = {CUFFT_C2R, CUFFT_Z2D},
};

static cufftResult plan_make(struct cuda_cufft *cufft, struct cufft_plan *plan) {
    const struct cufft_lines *key = &plan->key;
    size_t bytes = 0;
    long long n = key->n,
              embed = key->n; /* of one axis only `embed` not being NULL counts: strides and distances hold */
    CUFFT_TRY(cufft, Create, &plan->handle);
    plan->made = true;
    CUFFT_TRY(cufft, SetAutoAllocation, plan->handle, 0);
    CUFFT_TRY(cufft, MakePlanMany64, plan->handle, 1, &n, &embed, key->in_stride, key->in_distance, &embed,
              key->out_stride, key->out_distance, types[key->type][key->wide], key->batch, &bytes);
    cufft->call = "more workspace than a launch may have";
    if (bytes > cufft_workspace(key))
        return CUFFT_NOT_SUPPORTED;
    plan->base.ready = true;
    return CUFFT_SUCCESS;
}

static cufftResult plan_execute(struct cuda_cufft *cufft, const struct cufft_plan *plan, void *in, void *out,
                                bool inverse, void *workspace, cudaStream_t stream) {
    const int direction = inverse ? CUFFT_INVERSE : CUFFT_FORWARD;
    CUFFT_TRY(cufft, SetStream, plan->handle, stream);
    CUFFT_TRY(cufft, SetWorkArea, plan->handle, workspace);
    switch (types[plan->key.type][plan->key.wide]) {
    case CUFFT_C2C:
        CUFFT_TRY(cufft, ExecC2C, plan->handle, in, out, direction);
        break;
    case CUFFT_Z2Z:
        CUFFT_TRY(cufft, ExecZ2Z, plan->handle, in, out, direction);
        break;
    case CUFFT_R2C:
        CUFFT_TRY(cufft, ExecR2C, plan->handle, in, out);
        break;
    case CUFFT_D2Z:
        CUFFT_TRY(cufft, ExecD2Z, plan->handle, in, out);
        break;
    case CUFFT_C2R:
        CUFFT_TRY(cufft, ExecC2R, plan->handle, in, out);
        break;
    default:
        CUFFT_TRY(cufft, ExecZ2D, plan->handle, in, out);
    }
    return CUFFT_SUCCESS;
}

/* Of this transform alone, and for good. */
static bool result_lasts(cufftResult result) {
    return result == CUFFT_INVALID_SIZE || result == CUFFT_INVALID_VALUE || result == CUFFT_INVALID_TYPE ||
           result == CUFFT_UNALIGNED_DATA || result == CUFFT_NOT_IMPLEMENTED || result == CUFFT_NOT_SUPPORTED;
}

/* As cufft_transform(), with the library for this thread. */
static int plan_transform(struct cuda *cuda, const struct cufft_lines *key, void *in, void *out, bool inverse,
                          void *workspace, cudaStream_t stream, bool *refused, struct fault *fault) {
    if (!cuda->cufft && cuda_library_due(cuda, CUDA_CUFFT))
        cufft_open(cuda);
    struct cuda_cufft *cufft = cuda->cufft;
    if (!cufft)
        return STATUS_OK;
    bool make;
    struct cufft_plan *plan = (struct cufft_plan *)cuda_plans_find(cufft->plans, key, &make);
    if (!plan)
        return cuda_library_refused(cuda, CUDA_CUFFT, "a plan", "no host memory", fault);
    cufftResult result = make ? plan_make(cufft, plan) : CUFFT_SUCCESS;
    if (result == CUFFT_SUCCESS && !plan->base.ready)
        return cuda_library_refused(cuda, CUDA_CUFFT, "", NULL, fault);
    if (result == CUFFT_SUCCESS)
        result = plan_execute(cufft, plan, in, out, inverse, workspace, stream);
    *refused = result != CUFFT_SUCCESS;
    if (!*refused)
        return STATUS_OK;
    char text[32];
    snprintf(text, sizeof text, "status %d", (int)result);
    plan_finish(cufft, &plan->base);
    plan->base.put_off = !result_lasts(result);
    return cuda_library_refused(cuda, CUDA_CUFFT, cufft->call, text, fault);
}

int cufft_transform(struct cuda *cuda, const struct cufft_lines *key, void *in, void *out, bool inverse,
                    void *workspace, cudaStream_t stream, bool *refused, struct fault *fault) {
    *refused = true;
    cuda_library_begin(CUDA_CUFFT);
    int code = plan_transform(cuda, key, in, out, inverse, workspace, stream, refused, fault);
    cuda_library_end(CUDA_CUFFT);
    return code;
}

bool cufft_ready(const struct cuda *cuda, const struct cufft_lines *key) {
    return !cuda_library_is_aside(cuda, CUDA_CUFFT) && cuda->cufft && cuda_plans_has(cuda->cufft->plans, key);
}

#else

bool cufft_ready(const struct cuda *cuda, const struct cufft_lines *key) {
    (void)cuda, (void)key;
    return true;
}

int cufft_transform(struct cuda *cuda, const struct cufft_lines *key, void *in, void *out, bool inverse,
                    void *workspace, cudaStream_t stream, bool *refused, struct fault *fault) {
    (void)key, (void)in, (void)out, (void)inverse, (void)workspace, (void)stream, (void)fault;
    if (cuda_library_due(cuda, CUDA_CUFFT))
        cuda_library_missing(cuda, CUDA_CUFFT, "this module was built without cuFFT's headers");
    *refused = true;
    return STATUS_OK;
}

void cufft_finish(struct cuda *cuda) {
    (void)cuda;
}

#endif
