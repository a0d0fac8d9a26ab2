#include <stddef.h>

#include "proto/ops/op.h"
#include "tests/daemon/autograd_cases.h"

static td_tensor *dropped(td_tensor **x) {
    return td_dropout(td_square(x[0]), 0.4, 77);
}
static const struct autograd_case dropped_case = {OP_DROPOUT, "some of many", dropped, -2, 2, true, 1, {2}, {{5, 8}}};

const struct autograd_case *const autograd_random_cases[] = {&dropped_case, NULL};
