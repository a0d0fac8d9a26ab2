#include "server/principal.h"

#include <string.h>

void principal_end_texts(struct principal *principal) {
    principal->name[sizeof principal->name - 1] = 0;
    principal->credential[sizeof principal->credential - 1] = 0;
}

bool principal_same_login(const struct principal *a, const struct principal *b) {
    return !strcmp(a->name, b->name) && !strcmp(a->credential, b->credential);
}
