/* The safetensors format: what is written, what is read, and everything that can be wrong with a file. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/files/safetensors.h"

static struct safetensors file;
static struct fault fault;

static int parse(const char *header, uint64_t data_bytes) {
    return safetensors_parse(&file, header, strlen(header), SAFETENSORS_LENGTH_BYTES + strlen(header) + data_bytes,
                             &fault);
}

/* ---- reading ---- */

Test(safetensors, header_is_read) {
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[1,25]},"
                         "\"a\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[0,1]},"
                         "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[25,25]}}   ";
    cr_assert_eq(parse(header, 25), STATUS_OK, "%s", fault.message);
    cr_assert_eq(file.count, 3);
    cr_assert_eq(file.data, SAFETENSORS_LENGTH_BYTES + strlen(header));
    cr_assert_str_eq(file.entries[0].name, "a");
    cr_assert(file.entries[0].type.dtype == DTYPE_BOOL && file.entries[0].type.rank == 0);
    cr_assert_str_eq(file.entries[1].name, "b");
    cr_assert(file.entries[1].type.rank == 2 && file.entries[1].type.shape[1] == 3 && file.entries[1].end == 25);
    cr_assert_eq(file.entries[2].type.shape[0], 0);
    safetensors_finish(&file);
}

Test(safetensors, no_tensors_are_a_file_too) {
    cr_assert_eq(parse("{}", 0), STATUS_OK);
    cr_assert_eq(file.count, 0);
    safetensors_finish(&file);
}

#define TENSOR(name, dtype, shape, offsets)                                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE "{" TENSOR("x", "U8", "[4]", "[0,4]") "}"

static const struct {
    const char *header, *words;
    uint64_t data_bytes;
} malformed[] = {
    {"", "not JSON", 0},
    {"{", "not JSON", 0},
    {"[]", "no JSON object", 0},
    {"7", "not JSON", 0},
    {ONE "x", "not JSON", 4},
    {"{\"x\":{\"dtype\":\"U8\",}}", "not JSON", 0},
    {"{\"\xff\":1}", "not JSON", 0},
    {"{\"a\\u0000b\":1}", "not JSON", 0},
    {"{" TENSOR("x", "U8", "[4]", "[0,4]") "," TENSOR("x", "U8", "[4]", "[4,8]") "}", "duplicate", 8},
    {"{\"x\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "duplicate", 4},
    {"{\"x\":7}", "no object", 0},
    {"{\"x\":{\"shape\":[4],\"data_offsets\":[0,4]}}", "no dtype", 4},
    {"{\"x\":{\"dtype\":9,\"shape\":[4],\"data_offsets\":[0,4]}}", "no dtype", 4},
    {"{\"x\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", "no shape", 4},
    {"{" TENSOR("x", "F8_E8M0", "[4]", "[0,4]") "}", "F8_E8M0", 4},
    {"{" TENSOR("x", "f32", "[1]", "[0,4]") "}", "f32", 4},
    {"{" TENSOR("x", "invalid", "[1]", "[0,4]") "}", "invalid", 4},
    {"{" TENSOR("x", "U8", "[1,1,1,1,1,1,1,1,4]", "[0,4]") "}", "9 axes", 4},
    {"{" TENSOR("x", "U8", "[-4]", "[0,4]") "}", "numbers from 0 on", 4},
    {"{" TENSOR("x", "U8", "[4.0]", "[0,4]") "}", "numbers from 0 on", 4},
    {"{" TENSOR("x", "U8", "[\"4\"]", "[0,4]") "}", "numbers from 0 on", 4},
    {"{" TENSOR("x", "U8", "[4294967296,4294967296]", "[0,0]") "}", "x", 0},
    {"{" TENSOR("x", "F64", "[2305843009213693952]", "[0,0]") "}", "x", 0},
    {"{" TENSOR("x", "U8", "[99999999999999999999]", "[0,4]") "}", "not JSON", 4},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4]}}", "data_offsets", 4},
    {"{" TENSOR("x", "U8", "[4]", "[0]") "}", "data_offsets", 4},
    {"{" TENSOR("x", "U8", "[4]", "[0,4,4]") "}", "data_offsets", 4},
    {"{" TENSOR("x", "U8", "[4]", "[-4,0]") "}", "data_offsets", 4},
    {"{" TENSOR("x", "U8", "[4]", "[4,0]") "}", "needs 4 bytes", 4},
    {"{" TENSOR("x", "U8", "[4]", "[0,5]") "}", "needs 4 bytes", 5},
    {"{" TENSOR("x", "F32", "[4]", "[0,4]") "}", "needs 16 bytes", 4},
    {"{" TENSOR("x", "U8", "[4]", "[1,5]") "}", "begins at 1", 5},
    {"{" TENSOR("x", "U8", "[4]", "[0,4]") "," TENSOR("y", "U8", "[4]", "[5,9]") "}", "begins at 5", 9},
    {"{" TENSOR("x", "U8", "[4]", "[0,4]") "," TENSOR("y", "U8", "[4]", "[3,7]") "}", "begins at 3", 7},
    {"{" TENSOR("x", "U8", "[4]", "[0,4]") "," TENSOR("y", "U8", "[4]", "[0,4]") "}", "begins at 0", 4},
    {"{" TENSOR("x", "U8", "[4]", "[0,4]") "," TENSOR("y", "U8", "[0]", "[2,2]") "}", "begins at 2", 4},
    {ONE, "cut off", 3},
    {ONE, "cut off", 0},
    {ONE, "longer", 5},
    {"{}", "longer", 1},
    {"{" TENSOR("", "U8", "[4]", "[0,4]") "}", "name has 1 to 255", 4},
    {"{" TENSOR("a\\nb", "U8", "[4]", "[0,4]") "}", "control character", 4},
    {"{\"__metadata__\":7}", "no object", 0},
    {"{\"__metadata__\":{\"a\":7}}", "no text", 0},
};

Test(safetensors, malformed_headers_are_refused_with_the_reason) {
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        fault = (struct fault){0};
        cr_expect_eq(parse(malformed[i].header, malformed[i].data_bytes), STATUS_INVALID_ARGUMENT, "%zu: %s", i,
                     malformed[i].header);
        cr_expect(strstr(fault.message, malformed[i].words), "%zu: \"%s\" does not say \"%s\"", i, fault.message,
                  malformed[i].words);
    }
}

Test(safetensors, deep_nesting_is_refused) {
    enum { DEPTH = 1 << 20 };
    char *header = malloc(DEPTH + 1);
    memset(header, '[', DEPTH);
    header[DEPTH] = 0;
    cr_assert_eq(parse(header, 0), STATUS_INVALID_ARGUMENT);
    free(header);
}

Test(safetensors, impossible_lengths_of_the_header_are_refused) {
    static const struct {
        uint8_t length[8];
        uint64_t file_bytes;
    } rows[] = {
        {{3}, 10},                                                /* of 2 bytes that are there */
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1000}, /* plus 8 would be 7 */
        {{1, 0, 0, 1}, UINT64_C(1) << 40},                        /* one above the limit */
        {{0}, 7},
    };
    size_t bytes = 77;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(safetensors_header_bytes(rows[i].length, rows[i].file_bytes, &bytes, &fault),
                     STATUS_INVALID_ARGUMENT, "%zu", i);
    cr_assert_eq(bytes, 77);
    cr_assert_eq(safetensors_header_bytes((const uint8_t[8]){2, 1}, 8 + 258, &bytes, &fault), STATUS_OK);
    cr_assert_eq(bytes, 258);
}

/* ---- writing ---- */

static void entry(struct safetensors_entry *to, const char *name, enum dtype dtype, int rank, int64_t a, int64_t b) {
    *to = (struct safetensors_entry){.name = (char *)(uintptr_t)name,
                                     .type = {.dtype = dtype, .rank = rank, .shape = {a, b}}};
}

Test(safetensors, what_is_laid_out_is_read_again) {
    static const char *const names[DTYPE_COUNT] = {0,     "bool", "u8",   "i\"8\\", "i16", "Ω",   "i64", "f16", "bf16",
                                                   "f32", "f64",  "f8e4", "f8e5m2", "u16", "u32", "u64", "c64"};
    enum { DTYPES = DTYPE_C64 }; /* all but c128 */
    struct safetensors_entry entries[DTYPES];
    uint8_t *head;
    size_t head_bytes, length;
    for (int i = 1; i <= DTYPES; i++)
        entry(&entries[i - 1], names[i], (enum dtype)i, i % 3, i % 4, 3);
    cr_assert_eq(safetensors_lay_out(entries, DTYPES, &head, &head_bytes, &fault), STATUS_OK, "%s", fault.message);
    uint64_t end = entries[DTYPES - 1].end;
    cr_assert_eq(head_bytes % 8, 0);
    cr_assert_eq(safetensors_header_bytes(head, head_bytes + end, &length, &fault), STATUS_OK);
    cr_assert_eq(length, head_bytes - 8);
    cr_assert_eq(safetensors_parse(&file, (char *)head + 8, length, head_bytes + end, &fault), STATUS_OK, "%s",
                 fault.message);
    cr_assert_eq(file.count, DTYPES);
    for (size_t i = 0; i < file.count; i++) {
        cr_assert_eq(entries[i].begin % dtype_size(entries[i].type.dtype), 0, "%s is not aligned", entries[i].name);
        if (entries[i].begin == entries[i].end)
            continue; /* where two are empty, either may come first */
        cr_assert_str_eq(file.entries[i].name, entries[i].name);
        cr_assert(type_equal(&file.entries[i].type, &entries[i].type));
    }
    safetensors_finish(&file);
    free(head);
}

Test(safetensors, c128_is_no_dtype_of_files) {
    struct safetensors_entry entries[1];
    uint8_t *head;
    size_t head_bytes;
    entry(&entries[0], "z", DTYPE_C128, 1, 3, 0);
    cr_assert_eq(safetensors_lay_out(entries, 1, &head, &head_bytes, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "\"z\" is c128, which safetensors files do not have"), "%s", fault.message);
}

Test(safetensors, larger_elements_come_first_so_that_all_are_aligned) {
    struct safetensors_entry entries[3];
    uint8_t *head;
    size_t head_bytes;
    entry(&entries[0], "a", DTYPE_U8, 1, 3, 0);
    entry(&entries[1], "b", DTYPE_F16, 1, 3, 0);
    entry(&entries[2], "c", DTYPE_F64, 1, 1, 0);
    cr_assert_eq(safetensors_lay_out(entries, 3, &head, &head_bytes, &fault), STATUS_OK);
    cr_assert(!strcmp(entries[0].name, "c") && entries[0].begin == 0);
    cr_assert(!strcmp(entries[1].name, "b") && entries[1].begin == 8);
    cr_assert(!strcmp(entries[2].name, "a") && entries[2].begin == 14 && entries[2].end == 17);
    free(head);
}

Test(safetensors, impossible_tensors_are_not_laid_out) {
    struct safetensors_entry entries[3];
    uint8_t *head;
    size_t head_bytes;
    entry(&entries[0], "a", DTYPE_U8, 1, 1, 0);
    entry(&entries[1], "b", DTYPE_U8, 1, 1, 0);
    entry(&entries[2], "a", DTYPE_F32, 1, 1, 0);
    cr_assert_eq(safetensors_lay_out(entries, 3, &head, &head_bytes, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "twice"));
    for (int i = 0; i < 3; i++)
        entry(&entries[i], (const char *[]){"a", "b", "c"}[i], DTYPE_U8, 1, INT64_MAX, 0);
    cr_assert_eq(safetensors_lay_out(entries, 3, &head, &head_bytes, &fault), STATUS_LIMIT);
}

/* ---- files of the reference implementation (tests/unit/safetensors/make.py) ---- */

static int read_fixture(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/unit/safetensors/%s", getenv("TENSORD_SOURCE"), name);
    int fd = open(path, O_RDONLY);
    cr_assert(fd >= 0, "%s", path);
    int code = safetensors_read(&file, fd, &fault);
    close(fd);
    return code;
}

Test(safetensors, file_of_the_reference_implementation_is_read) {
    unsigned seen = 0;
    cr_assert_eq(read_fixture("reference.safetensors"), STATUS_OK, "%s", fault.message);
    for (size_t i = 0; i < file.count; i++)
        seen |= 1u << file.entries[i].type.dtype;
    cr_assert_eq(seen, ((1u << DTYPE_COUNT) - 2) & ~(1u << DTYPE_C128), "it has every dtype that files have");
    safetensors_finish(&file);
    cr_assert_eq(read_fixture("none.safetensors"), STATUS_OK, "%s", fault.message);
    cr_assert_eq(file.count, 0);
    safetensors_finish(&file);
    cr_assert_eq(read_fixture("e8m0.safetensors"), STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(fault.message, "F8_E8M0"), "%s", fault.message);
}

Test(safetensors, what_is_no_ordinary_file_is_refused) {
    int fd = open("/dev/zero", O_RDONLY), directory = open("/tmp", O_RDONLY | O_DIRECTORY);
    cr_assert_eq(safetensors_read(&file, fd, &fault), STATUS_INVALID_ARGUMENT);
    cr_assert_eq(safetensors_read(&file, directory, &fault), STATUS_INVALID_ARGUMENT);
    close(fd);
    close(directory);
}
