/* Sources that may be compiled, and what the real NVRTC makes of them, which needs no GPU for it. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/cuda/compiler.h"
#include "engine/cuda/formula_text.h"
#include "engine/cuda/fused_text.h"
#include "proto/ops/op.h"

/* ---- what a source may include ---- */

Test(includes, headers_between_brackets_are_fine) {
    static const char *const right[] = {
        "",
        "#include <cuda_fp16.h>\n",
        "  #  include  <cuda/std/complex>  // why\n",
        "/* a */ # /* b */ include /* c */ <mma.h>\n",
        "%:include <cooperative_groups.h>\n",
        "#inc\\\nlude <cuda_bf16.h>\n",
        "#define include_this 1\n#if 0\n#endif\n#pragma unroll\n",
        "// an include \"of\" a word\nint include, import; const char *s = \"include \\\"x\\\"\";\n",
        "#line 7 \"somewhere.cu\"\n",
        "int a = b ? c : d; a %= 3; x = y ?: z;\n",
    };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct fault fault = {0};
        cr_assert_eq(compiler_check_includes(right[i], &fault), STATUS_OK, "%s: %s", right[i], fault.message);
    }
}

Test(includes, files_of_the_host_are_refused) {
    static const char *const wrong[] = {
        "#include \"/etc/passwd\"\n",
        "#include \"x.h\"\n",
        "#include </etc/passwd>\n",
        "#include <../../../etc/passwd>\n",
        "#include <x/../../y>\n",
        "#include <./x>\n",
        "#include < /etc/passwd>\n",
        "#define F \"/etc/passwd\"\n#include F\n",
        "#inc\\\nlude \"/etc/passwd\"\n",
        "#inc\\  \nlude \"/etc/passwd\"\n",
        "#inc\\\r\nlude \"/etc/passwd\"\n",
        "#\\\n \\\ninclude \"/etc/passwd\"\n",
        "# /* \n over lines */ include \"/etc/passwd\"\n",
        "# /**/ /***/ include \"/etc/passwd\"\n",
        "%:include \"/etc/passwd\"\n",
        "%\\\n:include \"/etc/passwd\"\n",
        "\?\?=include \"/etc/passwd\"\n",
        "#inc\?\?/\nlude \"/etc/passwd\"\n",
        "#\\u0069nclude \"/etc/passwd\"\n",
        "#include_next <x.h>\n",
        "#import \"/etc/passwd\"\n",
        "#embed \"/etc/passwd\"\n",
        "const char *s = R\"(\n)\";\n#include \"/etc/passwd\"\n",
        "/* \" */\n#include \"/etc/passwd\"\n",
        "#if __has_include(\"/etc/passwd\")\n#endif\n",
        "#if __has_include_next(<x>)\n#endif\n",
        "#include",
        "#include <",
        "#include <x",
        "#include /*",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct fault fault = {0};
        cr_assert_eq(compiler_check_includes(wrong[i], &fault), STATUS_INVALID_ARGUMENT, "%s", wrong[i]);
        cr_assert(*fault.message);
    }
}

/* ---- the compiler ---- */

struct compiled {
    struct device_code *code;
    char *log;
    struct fault fault;
    int status;
};

static struct compiled compile_for(const char *text, const char *name, uint32_t capability) {
    static const _Atomic bool never = false;
    const struct kernel_source source = {.text = text, .name = name, .target = capability};
    struct compiled compiled = {0};
    compiled.status = compiler_run(&source, &never, &compiled.code, &compiled.log, &compiled.fault);
    if (compiled.status == STATUS_UNSUPPORTED && strstr(compiled.fault.message, "need NVRTC"))
        cr_skip_test("%s", compiled.fault.message);
    return compiled;
}

static void compiled_free(struct compiled *compiled) {
    free(compiled->code);
    free(compiled->log);
}

static bool has_bytes(const uint8_t *data, size_t bytes, const char *text) {
    for (size_t i = 0; i + strlen(text) <= bytes; i++)
        if (!memcmp(data + i, text, strlen(text)))
            return true;
    return false;
}

TestSuite(compiler, .timeout = 300);

Test(compiler, extern_c_kernel_keeps_its_name) {
    struct compiled compiled =
        compile_for("extern \"C\" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }", "twice", 90);
    cr_assert_eq(compiled.status, STATUS_OK, "%s", compiled.fault.message);
    cr_assert_str_eq(compiled.code->symbol, "twice");
    cr_assert(compiled.code->bytes > 100 && !memcmp(compiled.code->code, "\177ELF", 4));
    compiled_free(&compiled);
}

Test(compiler, template_is_made_for_an_expression) {
    struct compiled compiled = compile_for(
        "#include <cuda_fp16.h>\ntemplate <class T> __global__ void scale(T *x, T a) { x[threadIdx.x] *= a; }",
        "scale<__half>", 80);
    cr_assert_eq(compiled.status, STATUS_OK, "%s\n%s", compiled.fault.message, compiled.log ? compiled.log : "");
    cr_assert(strstr(compiled.code->symbol, "scale"));
    cr_assert_neq(strcmp(compiled.code->symbol, "scale<__half>"), 0);
    cr_assert(has_bytes(compiled.code->code, compiled.code->bytes, compiled.code->symbol));
    compiled_free(&compiled);
}

/* A kernel that calls each formula that an elementwise operation has, of the text alone. Numbers of all dtypes come from memory. */
#define CALL_10 "(x));\n"
#define CALL_11 "(x, y));\n"
#define CALL_12 "(x, y, x));\n"
#define CALL_20 CALL_11
#define CALL_30 CALL_12
#define CALL(name, inputs, parameters, dtype, result)                                                                  \
    "    keep(out, formula_" #name "_" #dtype CALL_##inputs##parameters
static const char calls[] =
    "struct anything { const void *at; template <class T> __device__ operator T() const { return *(const T *)at; } };\n"
    "template <class T> __device__ void keep(void *out, T x) { *(T volatile *)out = x; }\n"
    "__device__ void keep(void *out, formula_c64 x) { keep(out, x.re + x.im); }\n"
    "__device__ void keep(void *out, formula_c128 x) { keep(out, x.re + x.im); }\n"
    "extern \"C\" __global__ void formulas(void *out, anything x, anything y) {\n" OP_FORMULAS(CALL) "}\n";

Test(compiler, formulas_compile_without_headers) {
    size_t bytes = strlen(formula_text) + sizeof calls;
    char *text = malloc(bytes);
    snprintf(text, bytes, "%s%s", formula_text, calls);
    cr_assert_null(strstr(text, "#include"));
    struct compiled compiled = compile_for(text, "formulas", 90);
    cr_assert_eq(compiled.status, STATUS_OK, "%s\n%s", compiled.fault.message, compiled.log ? compiled.log : "");
    free(text);
    compiled_free(&compiled);
}

static void expect_compiles(const struct fused_launch *launch) {
    char *kernel = fused_text(launch, "fused");
    char *text = malloc(strlen(number_text) + strlen(kernel) + 1);
    strcpy(text, number_text);
    strcat(text, kernel);
    struct compiled compiled = compile_for(text, "fused", 90);
    cr_assert_eq(compiled.status, STATUS_OK, "%s\n%s", compiled.fault.message, compiled.log ? compiled.log : "");
    cr_assert_str_eq(compiled.code->symbol, "fused");
    free(text);
    free(kernel);
    compiled_free(&compiled);
}

/* The sum of a product and a number, by two operations, and the product in a slot. */
Test(compiler, kernel_of_a_fused_launch_compiles) {
    struct fused_launch *launch = calloc(1, sizeof *launch + 2 * sizeof(struct fused_operation));
    const struct fused_operand number = {.row = FUSED_FLAT, .column = 1, .dtype = DTYPE_F32, .as = DTYPE_F32},
                               slot = {.in_slot = true, .dtype = DTYPE_F32, .as = DTYPE_F32},
                               half = {.row = FUSED_NEXT, .dtype = DTYPE_F16, .as = DTYPE_F16};
    *launch = (struct fused_launch){.rows = 3, .columns = 64, .n = 2, .n_slots = 1};
    launch->operations[0] =
        (struct fused_operation){.opcode = OP_MULTIPLY, .n_inputs = 2, .output = slot, .inputs = {number, number}};
    launch->operations[1] =
        (struct fused_operation){.opcode = OP_ADD, .n_inputs = 2, .output = number, .inputs = {slot, number}};
    expect_compiles(launch);
    launch->operations[0].opcode = OP_CAST;
    launch->operations[0].n_inputs = 1;
    launch->operations[0].inputs[0] = half;
    expect_compiles(launch);
    free(launch);
}

/* Each reduction of each dtype that has one, of a sum in a slot, which is read once more with the result; and the softmax of that sum. */
Test(compiler, kernels_of_fused_reductions_compile) {
    static const unsigned opcodes[] = {OP_SUM, OP_MEAN, OP_PROD, OP_MAX,         OP_MIN,
                                       OP_ANY, OP_ALL,  OP_VAR,  OP_VECTOR_NORM, OP_LOGSUMEXP};
    enum { OPCODES = sizeof opcodes / sizeof *opcodes };
    struct fused_launch *launch = calloc(1, sizeof *launch + (3 * OPCODES + 1) * sizeof(struct fused_operation));
    unsigned reductions = 0;
    for (unsigned dtype = DTYPE_BOOL; dtype < DTYPE_COUNT; dtype++) {
        const struct fused_operand number = {.row = FUSED_FLAT,
                                             .column = 1,
                                             .dtype = (uint8_t)dtype,
                                             .as = (uint8_t)dtype},
                                   wide = {.column = 1, .in_slot = true, .dtype = (uint8_t)dtype, .as = (uint8_t)dtype},
                                   narrow = {.in_slot = true, .slot = 1, .dtype = (uint8_t)dtype, .as = (uint8_t)dtype};
        unsigned sum = dtype == DTYPE_BOOL ? OP_LOGICAL_AND : OP_ADD;
        *launch = (struct fused_launch){.rows = 3, .columns = 1000, .n_slots = 2, .whole_rows = true};
        for (unsigned i = 0; i < OPCODES; i++) {
            if (!fused_text_reduces(opcodes[i], (enum dtype)dtype))
                continue;
            struct fused_operation *operations = &launch->operations[launch->n];
            operations[0] = (struct fused_operation){
                .opcode = (uint16_t)sum, .n_inputs = 2, .output = wide, .inputs = {number, number}};
            operations[1] = (struct fused_operation){.opcode = (uint16_t)opcodes[i],
                                                     .kernel = fused_lanes(64),
                                                     .n_inputs = 1,
                                                     .n_floats = op_info(opcodes[i])->floats ? 1 : 0,
                                                     .reduces = true,
                                                     .output = narrow,
                                                     .inputs = {wide}};
            operations[2] = (struct fused_operation){
                .opcode = (uint16_t)sum, .n_inputs = 2, .output = number, .inputs = {wide, narrow}};
            launch->n += 3;
            reductions++;
        }
        if (launch->n && dtype_kind((enum dtype)dtype) == DTYPE_KIND_FLOAT)
            launch->operations[launch->n++] = (struct fused_operation){.opcode = OP_SOFTMAX,
                                                                       .kernel = fused_lanes(128),
                                                                       .n_inputs = 1,
                                                                       .softmax = true,
                                                                       .output = number,
                                                                       .inputs = {wide}};
        if (launch->n)
            expect_compiles(launch);
    }
    free(launch);
    cr_assert_gt(reductions, 40);
}

Test(compiler, says_which_one_it_is) {
    char words[KERNEL_COMPILER_MAX];
    compiler_words(words);
    cr_assert(!strncmp(words, "NVRTC ", 6) && strstr(words, " bytes"), "%s", words);
}

Test(compiler, wrong_source_has_a_log) {
    struct compiled compiled = compile_for("__global__ void f(int *x) {\n  *x = y;\n}\n", "f", 90);
    cr_assert_eq(compiled.status, STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(compiled.log, "kernel.cu(2)") && strstr(compiled.log, "\"y\""), "%s", compiled.log);
    cr_assert(strstr(compiled.fault.message, "kernel.cu(2)"), "%s", compiled.fault.message);
    cr_assert_null(compiled.code);
    compiled_free(&compiled);
}

Test(compiler, wrong_name_is_an_error) {
    static const char *const names[] = {"g", "f<int>", "f(", "1", "x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct compiled compiled = compile_for("__global__ void f(int *x) { *x = 1; }\n", names[i], 90);
        cr_assert_eq(compiled.status, STATUS_INVALID_ARGUMENT, "%s: %d %s", names[i], compiled.status,
                     compiled.fault.message);
        compiled_free(&compiled);
    }
}

/* NVRTC makes a line of it. */
Test(compiler, name_cannot_add_lines_to_the_source) {
    static const char *const wrong[] = {
        "f\n#include \"/etc/passwd\"\n", "f\r#include </etc/passwd>", "f\\", "f#", "f\"", "f\x7f", "f\xc3\xa4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct compiled compiled = compile_for("__global__ void f(int *x) { *x = 1; }", wrong[i], 90);
        cr_assert_eq(compiled.status, STATUS_INVALID_ARGUMENT, "%s", wrong[i]);
        cr_assert(strstr(compiled.fault.message, "of the kernel's name"), "%s", compiled.fault.message);
        cr_assert_null(compiled.log);
        compiled_free(&compiled);
    }
}

Test(compiler, device_newer_than_the_compiler_gets_ptx) {
    struct compiled compiled = compile_for("extern \"C\" __global__ void f() {}", "f", 990);
    cr_assert_eq(compiled.status, STATUS_OK, "%s", compiled.fault.message);
    cr_assert(has_bytes(compiled.code->code, compiled.code->bytes, ".entry f"));
    cr_assert_eq(compiled.code->code[compiled.code->bytes - 1], 0);
    compiled_free(&compiled);
}

Test(compiler, device_older_than_any_is_unsupported) {
    struct compiled compiled = compile_for("extern \"C\" __global__ void f() {}", "f", 10);
    cr_assert_eq(compiled.status, STATUS_UNSUPPORTED, "%d", compiled.status);
    cr_assert(strstr(compiled.fault.message, "1.0"), "%s", compiled.fault.message);
}

/* Constant expressions that would take for ever. */
static const char endless[] =
    "constexpr unsigned long f(unsigned long n) { return n < 2 ? n : f(n - 1) + f(n - 2); }\n"
    "template <int N> struct deep { static constexpr int v = deep<N - 1>::v + deep<N - 2>::v; };\n"
    "template <> struct deep<0> { static constexpr int v = 0; };\n"
    "template <> struct deep<1> { static constexpr int v = 1; };\n"
    "extern \"C\" __global__ void g(int *x) { *x = deep<40>::v; }\n";

Test(compiler, cancelled_one_is_not_begun_or_given_up) {
    static const _Atomic bool cancelled = true;
    const struct kernel_source source = {.text = endless, .name = "g", .target = 90};
    struct compiled compiled = {0};
    compiled.status = compiler_run(&source, &cancelled, &compiled.code, &compiled.log, &compiled.fault);
    if (compiled.status == STATUS_UNSUPPORTED || compiled.status == STATUS_OK)
        cr_skip_test("no NVRTC, or one that cannot be stopped");
    cr_assert_eq(compiled.status, STATUS_CANCELLED, "%s", compiled.fault.message);
    compiled_free(&compiled);
}

#ifndef __SANITIZE_ADDRESS__
/* Not as a mistake in the source, which is what the compiler says of it. */
Test(compiler, want_of_memory_is_called_so) {
    struct compiled first = compile_for("extern \"C\" __global__ void f() {}", "f", 90); /* with its libraries loaded */
    struct rlimit limit = {128 << 20, 128 << 20};
    cr_assert(!setrlimit(RLIMIT_DATA, &limit));
    struct compiled compiled = compile_for("#include <cuda/std/tuple>\n#include <cub/cub.cuh>\n", "f", 90);
    cr_assert_eq(compiled.status, STATUS_NO_HOST_MEMORY, "%s", compiled.fault.message);
    cr_assert(strstr(compiled.fault.message, "out of memory"), "%s", compiled.fault.message);
    compiled_free(&first);
    compiled_free(&compiled);
}
#endif

/* ---- what the code takes of a device ---- */

static const char with_variables[] =
    "__device__ char large[5 << 20]; __device__ double few[4][1000]; __constant__ int c;\n"
    "extern \"C\" __global__ void f(char *x) {"
    "    __shared__ char s[30000];"
    "    s[threadIdx.x] = large[*x] + (char)few[*x][1] + (char)c;"
    "    *x = s[*x];"
    "}";

static uint64_t measured(const struct device_code *code) {
    struct fault fault = {0};
    uint64_t bytes = 0;
    cr_assert_eq(compiler_measure(code, &bytes, &fault), STATUS_OK, "%s", fault.message);
    return bytes;
}

/* The variables, and some for the code; also as a text that the driver translates. */
Test(compiler, variables_count_to_what_code_takes) {
    static const uint32_t capabilities[] = {90, 990};
    for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++) {
        struct compiled large = compile_for(with_variables, "f", capabilities[i]);
        struct compiled small = compile_for("extern \"C\" __global__ void f() {}", "f", capabilities[i]);
        cr_assert(large.status == STATUS_OK && small.status == STATUS_OK, "%s", large.fault.message);
        uint64_t bytes = (5 << 20) + 4 * 1000 * 8 + 4, got = measured(large.code);
        cr_assert(got >= bytes && got < bytes + (64 << 10), "%llu of %llu", (unsigned long long)got,
                  (unsigned long long)bytes);
        got = measured(small.code);
        cr_assert(got > 100 && got < 64 << 10, "%llu", (unsigned long long)got);
        compiled_free(&large);
        compiled_free(&small);
    }
}

/* Cut anywhere: refused, or within what there is (a sanitizer would tell). */
Test(compiler, cut_code_is_refused) {
    struct compiled compiled = compile_for(with_variables, "f", 90);
    size_t bytes = compiled.code->bytes;
    for (size_t left = 0; left < bytes; left += left < 80 ? 1 : 61) {
        struct device_code *cut = malloc(sizeof *cut + left);
        struct fault fault = {0};
        uint64_t takes;
        cut->bytes = left;
        memcpy(cut->code, compiled.code->code, left);
        cr_assert_eq(compiler_measure(cut, &takes, &fault), STATUS_INVALID_ARGUMENT, "%zu of %zu bytes", left, bytes);
        cr_assert(*fault.message);
        free(cut);
    }
    compiled_free(&compiled);
}

Test(compiler, texts_that_boast_are_more_than_any_device_has) {
    static const char *const texts[] = {
        ".global .align 1 .b8 x[18446744073709551615];",
        ".global .align 16 .b128 x[4294967296][4294967296][4294967296];",
        ".const .b8 x[9223372036854775807]; .global .b8 y[9223372036854775807]; .global .b8 z[9223372036854775807];",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct device_code *code = malloc(sizeof *code + strlen(texts[i]) + 1);
        code->bytes = strlen(texts[i]) + 1;
        strcpy((char *)code->code, texts[i]);
        cr_assert(measured(code) >= UINT64_MAX / 4);
        free(code);
    }
}

/* Each would take hours, read anew from each beginning; and what is neither ELF nor a text is not for the driver. */
Test(compiler, texts_are_read_once) {
    static const char *const pieces[] = {".global ", ".const .b8 ", ".global .align "};
    enum { BYTES = 16 << 20 };
    struct device_code *code = malloc(sizeof *code + BYTES);
    struct fault fault;
    uint64_t bytes;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t piece = strlen(pieces[i]);
        for (size_t at = 0; at + 1 < BYTES; at++)
            code->code[at] = (uint8_t)pieces[i][at % piece];
        code->code[BYTES - 1] = 0;
        code->bytes = BYTES;
        cr_assert_geq(measured(code), BYTES);
    }
    code->code[7] = 0;
    cr_assert_eq(compiler_measure(code, &bytes, &fault), STATUS_INVALID_ARGUMENT);
    free(code);
}

Test(compiler, no_file_is_read_by_other_ways) {
    static const char *const sources[] = {
        "#pragma GCC dependency \"/etc/hostname\"\nextern \"C\" __global__ void f() {}",
        "#pragma include_alias(\"a\", \"/etc/hostname\")\nextern \"C\" __global__ void f() {}",
        "#line 1 \"/etc/hostname\"\nextern \"C\" __global__ void f() { y; }",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char host[256] = "?";
        FILE *file = fopen("/etc/hostname", "r");
        if (!file || !fgets(host, sizeof host, file))
            cr_skip_test("no /etc/hostname");
        fclose(file);
        host[strcspn(host, "\n")] = 0;
        struct compiled compiled = compile_for(sources[i], "f", 90);
        cr_assert(!compiled.log || !strstr(compiled.log, host), "%s", compiled.log);
        compiled_free(&compiled);
    }
}
