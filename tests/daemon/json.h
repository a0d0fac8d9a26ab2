/* Claims about JSON, in Python. */
#pragma once

#include <stddef.h>

/* Asserts that the Python expression is true of the document, which is bound to `d`. It may use ints(object, "key key"):
 * these are integers; has(object, "key key"): it has these; and no(object, "key key"): these are null. */
void json_expect(const char *document, size_t bytes, const char *expression);
