/* Files of tensors in the safetensors format: 8 bytes with the header's length (little-endian); the header, which is a JSON
 * object from names to {"dtype", "shape", "data_offsets"}; and the tensors' bytes, row-major, one tensor after the other
 * without holes. https://github.com/huggingface/safetensors describes the format.
 *
 * Everything in a file is checked before any of it is used. A file may only have tensors that tensord can have: its dtypes,
 * up to SHAPE_RANK_MAX axes, names as in proto/wire/check.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ops/shape.h"

enum {
    SAFETENSORS_LENGTH_BYTES = 8,
    /* The reference implementation accepts 100 MB. This limit is enough for 16384 tensors with the longest names, and bounds
     * the memory of a parsed header, which is some ten times as large. */
    SAFETENSORS_HEADER_MAX = 16 << 20,
};

struct safetensors_entry {
    char *name;
    struct tensor_type type;
    uint64_t begin, end; /* bytes, from the start of the data */
    void *tensor;        /* for the caller */
};

struct safetensors {
    struct safetensors_entry *entries; /* in the order of the file */
    size_t count;
    uint64_t data; /* where the data begins in the file */
};

/* The header's length in a file of `file_bytes`; STATUS_INVALID_ARGUMENT if this length is impossible. */
int safetensors_header_bytes(const uint8_t length[SAFETENSORS_LENGTH_BYTES], uint64_t file_bytes, size_t *bytes,
                             struct fault *fault);
/* Parses a header. STATUS_INVALID_ARGUMENT says what is wrong with it, or with the file's size. */
int safetensors_parse(struct safetensors *file, const char *header, size_t bytes, uint64_t file_bytes,
                      struct fault *fault);
/* Reads and parses the header of an open file. */
int safetensors_read(struct safetensors *file, int fd, struct fault *fault);
void safetensors_finish(struct safetensors *file);

/* Whether files have this dtype: c128 is missing. */
bool safetensors_has(enum dtype dtype);

/* Lays tensors out for a file. Names and types of the entries are set. Sorts the entries into the order of the data, largest
 * elements first, so that all are aligned; sets begin and end; and makes *head: the header's length and the header, malloc'ed.
 * STATUS_LIMIT if that is too large for a file, STATUS_INVALID_ARGUMENT for two entries with the same name. */
int safetensors_lay_out(struct safetensors_entry *entries, size_t count, uint8_t **head, size_t *head_bytes,
                        struct fault *fault);
