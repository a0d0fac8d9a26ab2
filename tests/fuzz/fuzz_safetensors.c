/* A file of tensors made of arbitrary bytes. What must hold: it is refused with words, or its tensors fill exactly what is
 * behind the header; and what was read can be laid out and read again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/files/safetensors.h"

/* An assertion that no build leaves out. */
#define require(holds)                                                                                                 \
    ((holds) ? (void)0 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds), abort()))

static void check_places(const struct safetensors *file, uint64_t file_bytes) {
    uint64_t end = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        require(entry->begin == end && entry->end - entry->begin == (uint64_t)type_bytes(&entry->type));
        end = entry->end;
    }
    require(file->data + end == file_bytes);
}

static void check_again(struct safetensors *file) {
    struct safetensors again;
    struct fault fault = {0};
    uint8_t *head = NULL;
    size_t head_bytes, length;
    int code = safetensors_lay_out(file->entries, file->count, &head, &head_bytes, &fault);
    if (code == STATUS_LIMIT)
        return;
    require(code == STATUS_OK);
    uint64_t end = file->count ? file->entries[file->count - 1].end : 0;
    require(safetensors_header_bytes(head, head_bytes + end, &length, &fault) == STATUS_OK);
    require(safetensors_parse(&again, (char *)head + SAFETENSORS_LENGTH_BYTES, length, head_bytes + end, &fault) ==
            STATUS_OK);
    require(again.count == file->count);
    check_places(&again, head_bytes + end);
    safetensors_finish(&again);
    free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct safetensors file;
    struct fault fault = {0};
    size_t length;
    if (size < SAFETENSORS_LENGTH_BYTES)
        return 0;
    int code = safetensors_header_bytes(data, size, &length, &fault);
    if (code == STATUS_OK)
        code = safetensors_parse(&file, (const char *)data + SAFETENSORS_LENGTH_BYTES, length, size, &fault);
    if (code != STATUS_OK) {
        require((int)fault.code == code && fault.message[0]);
        return 0;
    }
    check_places(&file, size);
    check_again(&file);
    safetensors_finish(&file);
    return 0;
}
