/* The stand-in for NVRTC: it reads what code.h says, and knows no C++. A source with #error does not compile. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/fakecuda/code.h"
#include "tests/stand_ins/fakecuda/fakecuda.h"

struct program {
    char *source, *name;
    char log[8192];
    struct code code;
};

enum { OK = 0, OUT_OF_MEMORY = 1, COMPILATION = 6, NO_SUCH_NAME = 10 };

int nvrtcVersion(int *major, int *minor);
int nvrtcGetNumSupportedArchs(int *count);
int nvrtcGetSupportedArchs(int *archs);
const char *nvrtcGetErrorString(int error);
int nvrtcCreateProgram(struct program **program, const char *source, const char *name, int headers,
                       const char *const *texts, const char *const *names);
int nvrtcDestroyProgram(struct program **program);
int nvrtcAddNameExpression(struct program *program, const char *name);
int nvrtcCompileProgram(struct program *program, int n, const char *const *options);
int nvrtcGetLoweredName(struct program *program, const char *name, const char **lowered);
int nvrtcGetProgramLogSize(struct program *program, size_t *bytes);
int nvrtcGetProgramLog(struct program *program, char *log);
int nvrtcGetCUBINSize(struct program *program, size_t *bytes);
int nvrtcGetCUBIN(struct program *program, char *code);
int nvrtcGetPTXSize(struct program *program, size_t *bytes);
int nvrtcGetPTX(struct program *program, char *code);

/* A compiler does not notice what happens to a device. */
static int compiler_call(const char *function, const char *source) {
    const char *at = source ? strstr(source, "fakecuda: fail ") : NULL;
    size_t length = strlen(function);
    if (at && !strncmp(at += strlen("fakecuda: fail "), function, length) && at[length] == ';')
        return OUT_OF_MEMORY;
    return fakecuda_call_of_library(function) == cudaErrorMemoryAllocation ? OUT_OF_MEMORY : OK;
}

int nvrtcVersion(int *major, int *minor) {
    *major = CUDART_VERSION / 1000;
    *minor = CUDART_VERSION % 1000 / 10;
    return OK;
}

int nvrtcGetNumSupportedArchs(int *count) {
    *count = 2;
    return OK;
}

int nvrtcGetSupportedArchs(int *archs) {
    archs[0] = 80;
    archs[1] = 90;
    return OK;
}

const char *nvrtcGetErrorString(int error) {
    return error == OK              ? "NVRTC_SUCCESS"
           : error == OUT_OF_MEMORY ? "NVRTC_ERROR_OUT_OF_MEMORY"
           : error == COMPILATION   ? "NVRTC_ERROR_COMPILATION"
                                    : "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
}

int nvrtcCreateProgram(struct program **program, const char *source, const char *name, int headers,
                       const char *const *texts, const char *const *names) {
    int error = compiler_call(__func__, source);
    (void)name, (void)headers, (void)texts, (void)names;
    if (error)
        return error;
    *program = calloc(1, sizeof **program);
    (*program)->source = strdup(source);
    return OK;
}

int nvrtcDestroyProgram(struct program **program) {
    free((*program)->source);
    free((*program)->name);
    free(*program);
    *program = NULL;
    return OK;
}

int nvrtcAddNameExpression(struct program *program, const char *name) {
    program->name = strdup(name);
    return compiler_call(__func__, program->source);
}

static void read_words(struct program *program) {
    struct code *code = &program->code;
    const char *at = strstr(program->source, "fakecuda: parameters");
    char *end;
    const char *variables = strstr(program->source, "fakecuda: variables ");
    bool torn = strstr(program->source, "fakecuda: torn;");
    code->magic = CODE_MAGIC;
    memcpy(code->header.e_ident, ELFMAG, SELFMAG);
    code->header.e_ident[EI_CLASS] = ELFCLASS64;
    code->header.e_phoff = offsetof(struct code, segment);
    code->header.e_phnum = 1;
    code->header.e_phentsize = sizeof code->segment;
    code->segment.p_type = PT_LOAD;
    code->segment.p_filesz = code->segment.p_memsz = sizeof *code + torn;
    if (variables)
        code->segment.p_memsz += strtoull(variables + strlen("fakecuda: variables "), NULL, 10);
    snprintf(code->symbol, sizeof code->symbol, "_Z_%.50s", program->name);
    for (at = at ? at + strlen("fakecuda: parameters") : ""; code->n_parameters < CODE_PARAMETERS_MAX; at = end) {
        unsigned long bytes = strtoul(at, &end, 10);
        if (end == at)
            break;
        code->parameters[code->n_parameters++] = (uint32_t)bytes;
    }
    if (strstr(program->source, "struct fused_arguments {")) { /* the module's own: one struct */
        const char *data = strstr(program->source, "char *data["),
                   *floats = strstr(program->source, "double parameter[");
        code->n_parameters = 1;
        code->parameters[0] = 24 + 8 * (uint32_t)strtoul(data + strlen("char *data["), NULL, 10);
        if (floats)
            code->parameters[0] += 8 * (uint32_t)strtoul(floats + strlen("double parameter["), NULL, 10);
    }
    code->store = strstr(program->source, "fakecuda: store;") != NULL;
    code->trap = strstr(program->source, "fakecuda: trap;") != NULL;
    code->slow = strstr(program->source, "fakecuda: slow;") != NULL;
}

int nvrtcCompileProgram(struct program *program, int n, const char *const *options) {
    int error = compiler_call(__func__, program->source);
    bool whole = false; /* with what only this architecture has */
    for (int i = 0; i < n; i++)
        whole |= !strcmp(options[i], "--gpu-architecture=sm_90a");
    if (error)
        return error;
    if (!whole)
        snprintf(program->log, sizeof program->log, "kernel.cu(1): error: not compiled for all of Hopper\n");
    if (strstr(program->source, "#error"))
        snprintf(program->log, sizeof program->log, "kernel.cu(1): error: #error directive\n\n1 error detected.\n");
    if (misdeeds(program->source, program->log, sizeof program->log))
        return OUT_OF_MEMORY;
    read_words(program);
    return *program->log ? COMPILATION : OK;
}

int nvrtcGetLoweredName(struct program *program, const char *name, const char **lowered) {
    int error = compiler_call(__func__, program->source);
    *lowered = program->code.symbol;
    return error ? error : strcmp(name, program->name) ? NO_SUCH_NAME : OK;
}

int nvrtcGetProgramLogSize(struct program *program, size_t *bytes) {
    *bytes = strlen(program->log) + 1;
    return compiler_call(__func__, program->source);
}

int nvrtcGetProgramLog(struct program *program, char *log) {
    strcpy(log, program->log);
    return compiler_call(__func__, program->source);
}

int nvrtcGetCUBINSize(struct program *program, size_t *bytes) {
    *bytes = sizeof program->code;
    return compiler_call(__func__, program->source);
}

int nvrtcGetCUBIN(struct program *program, char *code) {
    memcpy(code, &program->code, sizeof program->code);
    return compiler_call(__func__, program->source);
}

int nvrtcGetPTXSize(struct program *program, size_t *bytes) {
    return nvrtcGetCUBINSize(program, bytes);
}

int nvrtcGetPTX(struct program *program, char *code) {
    return nvrtcGetCUBIN(program, code);
}
