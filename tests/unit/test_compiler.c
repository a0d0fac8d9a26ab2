/* Sources that may be compiled, and what the real NVRTC makes of them, which needs no GPU for it. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/compiler.h"

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

static struct compiled compile_for(const char *source, const char *name, int capability) {
    static const _Atomic bool never = false;
    struct compiler_request request = {.source = source, .name = name, .capability = capability, .cancelled = &never};
    struct compiled compiled = {0};
    compiled.status = compiler_run(&request, &compiled.code, &compiled.log, &compiled.fault);
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

TestSuite(compiler, .timeout = 120);

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
    struct compiler_request request = {.source = endless, .name = "g", .capability = 90, .cancelled = &cancelled};
    struct compiled compiled = {0};
    compiled.status = compiler_run(&request, &compiled.code, &compiled.log, &compiled.fault);
    if (compiled.status == STATUS_UNSUPPORTED || compiled.status == STATUS_OK)
        cr_skip_test("no NVRTC, or one that cannot be stopped");
    cr_assert_eq(compiled.status, STATUS_CANCELLED, "%s", compiled.fault.message);
    compiled_free(&compiled);
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
