/* What tests of recorded programs share: a look into the plan, and a comparison. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct session;
struct suite;
struct tensor_type;

/* How many launches a run of the program makes, which has run; 0: there is no such program, or its device fuses nothing. */
unsigned recorded_steps(struct session *session, uint64_t id);
/* Fails unless the two tensors of this type, result number `result` of the operations one by one and of the recorded ones, have the same bits. But which
 * of two NaNs an operation passes on, and so its result's sign, is up to the processor's instructions. */
void recorded_compare(struct suite *suite, uint64_t eager, uint64_t recorded, const struct tensor_type *type,
                      unsigned result);
/* The same of all bits. `what` and `number` name the result, which begins so many bytes within the recorded tensor. */
void recorded_compare_bits(struct suite *suite, uint64_t eager, uint64_t recorded, const struct tensor_type *type,
                           size_t offset, const char *what, unsigned number);
