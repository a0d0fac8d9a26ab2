#include "engine/cpu/blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void blas_prepare(void) {
#if defined(__x86_64__)
    /* OpenBLAS knows processors by model number, and takes a processor newer than itself for a Pentium 4 (0.3.21 does so on a Xeon of
     * 2023, at a third of the speed). Its kernels depend on the processor's instructions alone, so these choose. */
    __builtin_cpu_init();
    const char *core = NULL;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        core = "SkylakeX";
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        core = __builtin_cpu_is("amd") ? "Zen" : "Haswell";
    }
    if (core) {
        setenv("OPENBLAS_CORETYPE", core, 0);
    }
#endif
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
}

static const float ones_f32[] = {1, 0}, zeros_f32[] = {0, 0}, less_f32[] = {-1, 0};
static const double ones_f64[] = {1, 0}, zeros_f64[] = {0, 0}, less_f64[] = {-1, 0};

/* The functions for the dtype of this letter; returns the name of one that is missing, in `name`, or NULL. */
static const char *lapack_load(void *library, char letter, struct lapack *lapack, char name[static 16]) {
    bool has_parts = letter == 'c' || letter == 'z', wide = letter == 'd' || letter == 'z';
    lapack->transposed = has_parts ? "C" : "T";
    lapack->one = wide ? (const void *)ones_f64 : ones_f32;
    lapack->less = wide ? (const void *)less_f64 : less_f32;
    lapack->nothing = wide ? (const void *)zeros_f64 : zeros_f32;
#define LOAD(member, real_name, complex_name)                                                                          \
    snprintf(name, 16, "%c%s", letter, has_parts ? complex_name : real_name);                                          \
    lapack->member = (__typeof__(lapack->member))dlsym(library, name);                                                 \
    if (!lapack->member) {                                                                                             \
        return name;                                                                                                   \
    }
    LAPACK_FUNCTIONS(LOAD)
    return NULL;
}

int blas_load(struct blas *blas, struct fault *fault) {
    if (blas->library) {
        return STATUS_OK;
    }
    void *library = dlopen(CPU_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return fault_set(fault, STATUS_UNSUPPORTED, "cannot load OpenBLAS: %s", dlerror());
    }
    const char *missing = NULL;
#define X(type, member, name)                                                                                          \
    blas->member = (__typeof__(blas->member))dlsym(library, name);                                                     \
    missing = blas->member ? missing : name;
    BLAS_FUNCTIONS(X)
#undef X
    char name[16];
    static const char letters[] = "sdcz";
    for (int i = 0; i < LAPACK_DTYPES && !missing; i++) {
        missing = lapack_load(library, letters[i], &blas->lapack[i], name);
    }
    void (*set_threads)(int) = (void (*)(int))dlsym(library, "openblas_set_num_threads");
    missing = set_threads ? missing : "openblas_set_num_threads";
    if (missing) {
        dlclose(library);
        return fault_set(fault, STATUS_UNSUPPORTED, CPU_OPENBLAS " has no function %s", missing);
    }
    set_threads(1);
    blas->library = library; /* never unloaded: it has handlers registered with the process */
    return STATUS_OK;
}

void blas_multiply_matrices(const struct blas *blas, const struct blas_product *p) {
    if (p->dtype == DTYPE_F32) {
        blas->sgemm(CblasRowMajor, p->a_transpose, p->b_transpose, p->m, p->n, p->k, 1, p->a, p->a_stride, p->b,
                    p->b_stride, p->add ? 1 : 0, p->c, p->c_stride);
    } else if (p->dtype == DTYPE_F64) {
        blas->dgemm(CblasRowMajor, p->a_transpose, p->b_transpose, p->m, p->n, p->k, 1, p->a, p->a_stride, p->b,
                    p->b_stride, p->add ? 1 : 0, p->c, p->c_stride);
    } else if (p->dtype == DTYPE_C64) {
        blas->cgemm(CblasRowMajor, p->a_transpose, p->b_transpose, p->m, p->n, p->k, ones_f32, p->a, p->a_stride, p->b,
                    p->b_stride, p->add ? ones_f32 : zeros_f32, p->c, p->c_stride);
    } else {
        blas->zgemm(CblasRowMajor, p->a_transpose, p->b_transpose, p->m, p->n, p->k, ones_f64, p->a, p->a_stride, p->b,
                    p->b_stride, p->add ? ones_f64 : zeros_f64, p->c, p->c_stride);
    }
}

void blas_multiply_vector(const struct blas *blas, const struct blas_product *p) {
    if (p->dtype == DTYPE_F32) {
        blas->sgemv(CblasRowMajor, p->a_transpose, p->m, p->n, 1, p->a, p->a_stride, p->b, p->b_stride, p->add ? 1 : 0,
                    p->c, p->c_stride);
    } else if (p->dtype == DTYPE_F64) {
        blas->dgemv(CblasRowMajor, p->a_transpose, p->m, p->n, 1, p->a, p->a_stride, p->b, p->b_stride, p->add ? 1 : 0,
                    p->c, p->c_stride);
    } else if (p->dtype == DTYPE_C64) {
        blas->cgemv(CblasRowMajor, p->a_transpose, p->m, p->n, ones_f32, p->a, p->a_stride, p->b, p->b_stride,
                    p->add ? ones_f32 : zeros_f32, p->c, p->c_stride);
    } else {
        blas->zgemv(CblasRowMajor, p->a_transpose, p->m, p->n, ones_f64, p->a, p->a_stride, p->b, p->b_stride,
                    p->add ? ones_f64 : zeros_f64, p->c, p->c_stride);
    }
}
