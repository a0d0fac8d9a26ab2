/* Compiled code before it is given to the driver: how much device memory it will take, and whether it may be given to the driver at all.
 * The driver is not told the code's size, and reads wherever the offsets in the code lead. */
#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/compiler.h"

/* Whether a table or a segment lies within the code. */
static bool image_holds(const struct device_code *code, uint64_t offset, uint64_t bytes) {
    return offset <= code->bytes && bytes <= code->bytes - offset;
}

static int image_torn(struct fault *fault, const char *what) {
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "the compiler's code is damaged: %s beyond its end", what);
}

/* The device's memory is that of the segments to be loaded, which are larger there if they have variables that begin as 0. */
static int image_measure_segments(const struct device_code *code, const Elf64_Ehdr *header, uint64_t *bytes,
                                  struct fault *fault) {
    Elf64_Phdr segment;
    *bytes = 0;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        memcpy(&segment, code->code + header->e_phoff + i * sizeof segment, sizeof segment);
        if (!image_holds(code, segment.p_offset, segment.p_filesz))
            return image_torn(fault, "a segment");
        if (segment.p_type == PT_LOAD && __builtin_add_overflow(*bytes, segment.p_memsz, bytes))
            return fault_set(fault, STATUS_INVALID_ARGUMENT, "the compiler's code is damaged: too large to be true");
    }
    return STATUS_OK;
}

/* It is not documented which sections of CUDA's own types have a place in the file, so all are checked. */
static int image_check_sections(const struct device_code *code, const Elf64_Ehdr *header, struct fault *fault) {
    Elf64_Shdr section;
    for (unsigned i = 0; i < header->e_shnum; i++) {
        memcpy(&section, code->code + header->e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type < SHT_LOPROC && section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
            !image_holds(code, section.sh_offset, section.sh_size))
            return image_torn(fault, "a section");
    }
    return STATUS_OK;
}

/* Counts that are too large for their fields would be in section 0, which is not read here: so such code is refused. */
static bool image_counts_valid(const Elf64_Ehdr *header) {
    bool segments = !header->e_phnum || header->e_phentsize == sizeof(Elf64_Phdr);
    bool sections = header->e_shnum ? header->e_shentsize == sizeof(Elf64_Shdr) && header->e_shstrndx < header->e_shnum
                                    : !header->e_shoff;
    return segments && sections && header->e_phnum != PN_XNUM;
}

static int image_measure_cubin(const struct device_code *code, uint64_t *bytes, struct fault *fault) {
    Elf64_Ehdr header;
    if (code->bytes < sizeof header)
        return image_torn(fault, "its header");
    memcpy(&header, code->code, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || !image_counts_valid(&header))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the compiler's code is no code for a GPU");
    if (!image_holds(code, header.e_phoff, (uint64_t)header.e_phnum * sizeof(Elf64_Phdr)) ||
        !image_holds(code, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr)))
        return image_torn(fault, "a table");
    int status = image_check_sections(code, &header, fault);
    return status == STATUS_OK ? image_measure_segments(code, &header, bytes, fault) : status;
}

/* ---- PTX ---- */

/* The bytes of a variable: the extents in its declaration in PTX, "[1000]" or "[2][3]", times the bytes of an element. Moves *text past
 * them. All functions here do so: thus even a text made of beginnings of declarations is read only once. */
static uint64_t image_extents(const char **text, uint64_t bytes) {
    const char *at = *text;
    for (; *at && *at != ';' && *at != '='; at++) {
        if (*at != '[' || bytes == UINT64_MAX)
            continue;
        uint64_t extent = strtoull(at + 1, NULL, 10);
        if (__builtin_mul_overflow(bytes, extent ? extent : 1, &bytes))
            bytes = UINT64_MAX; /* an overflow: more than any device has */
    }
    *text = at;
    return bytes;
}

/* The bytes of ".global .align 4 .b8 name[1000];", from after ".global"; 0 for an instruction such as "ld.global.f32". */
static uint64_t image_variable(const char **text) {
    const char *at = *text;
    uint64_t bits = 0;
    while (*at == ' ' || *at == '\t')
        at++;
    while (*at == '.') { /* qualifiers; the last one is the type */
        size_t word = strcspn(at + 1, " \t\n;[");
        bits = word > 1 && strchr("bsuf", at[1]) ? strtoull(at + 2, NULL, 10) : 0;
        at += 1 + word;
        while (*at == ' ' || *at == '\t' || isdigit((unsigned char)*at)) /* the number of an alignment */
            at++;
    }
    *text = at;
    return bits >= 8 && bits <= 128 ? image_extents(text, bits / 8) : 0;
}

/* The driver translates PTX: the code is about as large as the text, and the variables' sizes are in their declarations. */
static int image_measure_text(const struct device_code *code, uint64_t *bytes, struct fault *fault) {
    static const char *const spaces[] = {".global ", ".const "};
    if (!code->bytes || memchr(code->code, 0, code->bytes) != code->code + code->bytes - 1)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "the compiler's code is damaged: neither ELF nor a text");
    *bytes = code->bytes;
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        for (const char *at = (const char *)code->code; (at = strstr(at, spaces[i]));) {
            at += strlen(spaces[i]);
            if (__builtin_add_overflow(*bytes, image_variable(&at), bytes))
                *bytes = UINT64_MAX;
            if (*bytes == UINT64_MAX)
                return STATUS_OK;
        }
    return STATUS_OK;
}

int compiler_measure(const struct device_code *code, uint64_t *bytes, struct fault *fault) {
    bool cubin = code->bytes >= SELFMAG && !memcmp(code->code, ELFMAG, SELFMAG);
    return cubin ? image_measure_cubin(code, bytes, fault) : image_measure_text(code, bytes, fault);
}
