#include "proto/ops/status.h"

#include <criterion/criterion.h>

Test(bytes_text, three_digits_with_the_unit_that_fits) {
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {{0, "0 B"},
                {999, "999 B"},
                {1000, "0.98 KiB"},
                {1024, "1.00 KiB"},
                {UINT64_C(512) << 20, "512 MiB"},
                {UINT64_C(4) << 30, "4.00 GiB"},
                {UINT64_C(1526726656), "1.42 GiB"},
                {(UINT64_C(1) << 30) - 1, "1.00 GiB"},
                {UINT64_C(10) << 40, "10.0 TiB"},
                {UINT64_MAX, "16.0 EiB"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[BYTES_TEXT_MAX];
        cr_expect_str_eq(bytes_text(text, rows[i].bytes), rows[i].text);
    }
}
