/* Prints the kernels of fused_cases.h as one source: for the host with what starts them, and as it is for CUDA's own compilers. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/cuda/formula_text.h"
#include "engine/cuda/fused_text.h"
#include "tests/stand_ins/emulate/fused_cases.h"

int main(void) {
    printf("#ifdef FUSED_ON_HOST\n#include \"tests/stand_ins/emulate/kernel.h\"\n#endif\n%s", number_text);
    for (unsigned i = 0; i < FUSED_CASES; i++) {
        struct fused_case made;
        char name[32];
        snprintf(name, sizeof name, "fused_%u", i);
        fused_case_make(&made, i, NULL);
        char *text = fused_text(made.launch, name);
        if (!text)
            return 1;
        printf("%s", text);
        free(text);
        fused_case_free(&made);
    }
    printf("#ifdef FUSED_ON_HOST\nstatic CUstream_st stream;\n");
    for (unsigned i = 0; i < FUSED_CASES; i++)
        printf("static void start_%u(const void *p, unsigned blocks, unsigned shared) {\n"
               "    emulate(dim3(blocks), dim3(%d), shared, &stream, [](const auto &...a) { fused_%u(a...); })(*(const "
               "fused_%u_arguments *)p);\n"
               "}\n",
               i, FUSED_THREADS, i, i);
    printf("extern \"C\" void (*const fused_starts[])(const void *, unsigned, unsigned);\n"
           "void (*const fused_starts[])(const void *, unsigned, unsigned) = {\n");
    for (unsigned i = 0; i < FUSED_CASES; i++)
        printf("    start_%u,\n", i);
    printf("};\n#endif\n");
    return 0;
}
