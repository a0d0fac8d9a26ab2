#include <ctype.h>
#include <string.h>

#include "engine/cuda/compiler.h"

/* Skips backslashes that are followed by a newline, as the language requires, and by white space and a newline, as some compilers do. */
static const char *includes_splice(const char *at) {
    while (*at == '\\') {
        const char *end = at + 1 + strspn(at + 1, " \t\f\v\r");
        if (*end != '\n')
            break;
        at = end + 1;
    }
    return at;
}

/* The next character of the source; moves *at to the character after it. */
static int includes_next(const char **at) {
    const char *here = includes_splice(*at);
    int c = (unsigned char)*here;
    *at = c ? includes_splice(here + 1) : here;
    return c;
}

static int includes_peek(const char *at) {
    return includes_next(&at);
}

/* Skips blanks and comments within a line. */
static const char *includes_blank(const char *at) {
    for (;;) {
        const char *next = at;
        int c = includes_next(&next);
        if (c == ' ' || c == '\t' || c == '\f' || c == '\v' || c == '\r') {
            at = next;
            continue;
        }
        if (c != '/' || includes_next(&next) != '*')
            return at;
        for (int before = 0; (c = includes_next(&next)) && !(before == '*' && c == '/');)
            before = c;
        at = next;
    }
}

static const char *includes_word(const char *at, char *word, size_t size) {
    size_t n = 0;
    for (int c; (c = includes_peek(at)) && (isalnum(c) || c == '_' || c >= 0x80 || c == '\\');) {
        if (n + 1 < size)
            word[n++] = (char)c;
        includes_next(&at);
    }
    word[n] = 0;
    return at;
}

static int includes_refuse(struct fault *fault, const char *what) {
    return fault_set(fault, STATUS_INVALID_ARGUMENT,
                     "%s: a kernel's source includes headers of CUDA alone, as #include <cuda_fp16.h>", what);
}

/* Checks the operand of #include. */
static int includes_operand(const char *at, struct fault *fault) {
    char name[128];
    size_t n = 0;
    at = includes_blank(at);
    if (includes_next(&at) != '<')
        return includes_refuse(fault, "an #include without <>");
    for (int c; (c = includes_next(&at)) != '>';) {
        if (n + 1 >= sizeof name || !(isalnum(c) || (c && strchr("_-./", c))))
            return includes_refuse(fault, "an #include of something else than a header's name");
        name[n++] = (char)c;
    }
    name[n] = 0;
    if (name[0] == '/' || name[0] == '.' || strstr(name, ".."))
        return includes_refuse(fault, "an #include of a path");
    return STATUS_OK;
}

/* Checks a directive's name and operand. It is called for each #, also in a string or a comment, where that does no harm. */
static int includes_directive(const char *at, struct fault *fault) {
    char word[32];
    at = includes_word(includes_blank(at), word, sizeof word);
    if (!strcmp(word, "include"))
        return includes_operand(at, fault);
    if (strchr(word, '\\'))
        return includes_refuse(fault, "a directive with a backslash in its name");
    if (!strcmp(word, "include_next") || !strcmp(word, "import") || !strcmp(word, "embed"))
        return includes_refuse(fault, "a directive that reads a file");
    return STATUS_OK;
}

int compiler_check_includes(const char *source, struct fault *fault) {
    const char *at = source;
    int code = STATUS_OK;
    if (strstr(source, "?\?/")) /* a backslash for some compilers */
        return includes_refuse(fault, "a trigraph");
    for (int c, before = 0; code == STATUS_OK && (c = includes_peek(at)); before = c) {
        const char *next = at;
        char word[32];
        includes_next(&next);
        if (c == '#' || (c == ':' && before == '%') || (c == '=' && before == '?')) /* %: and ??= mean # */
            code = includes_directive(next, fault);
        if (isalpha(c) || c == '_' || c == '\\') {
            next = includes_word(at, word, sizeof word);
            if (!strncmp(word, "__has_include", 13) || !strcmp(word, "__has_embed"))
                code = includes_refuse(fault, "a question whether there is a file");
            if (next == at)
                includes_next(&next);
        }
        at = next;
    }
    return code;
}
