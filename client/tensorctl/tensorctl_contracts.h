/* What each operation of this version takes and gives, in words: made from the descriptions in proto/ops/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct fault;

/* Texts; a list has "; " between its entries, and none is "". */
struct operation_contract {
    const char *name;
    unsigned number;
    const char *family, *since;
    const char *prototypes;
    const char *inputs, *outputs, *attributes;
    const char *dtypes, *result;
    const char *cost;
    const char *contract;
};
extern const struct operation_contract operation_contracts[];
extern const size_t operation_contracts_count;

/* Writes those of these names, for people or as a JSON array. STATUS_INVALID_ARGUMENT for a name that there is not. */
int tensorctl_contracts_write(FILE *out, const char *const names[], int n_names, bool json, struct fault *fault);
