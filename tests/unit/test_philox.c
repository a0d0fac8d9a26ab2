/* The generator against the known answers that its authors publish (Random123, philox4x32 with 10 rounds), and the maps
 * from lanes to numbers at their ends. */
#include <criterion/criterion.h>

#include "engine/device/philox.h"

struct answer {
    uint32_t counter[4], key[2], lanes[4];
};

static const struct answer answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

Test(philox, gives_the_known_answers) {
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const uint32_t *c = answers[i].counter, *k = answers[i].key;
        uint32_t lanes[4];
        philox4x32_10(c[0], c[1], c[2], c[3], k[0], k[1], &lanes[0], &lanes[1], &lanes[2], &lanes[3]);
        for (int lane = 0; lane < 4; lane++) {
            cr_assert_eq(lanes[lane], answers[i].lanes[lane], "answer %zu, lane %d: %08x", i, lane, lanes[lane]);
        }
    }
}

Test(philox, a_block_is_the_counter_split_in_two_lanes_and_the_seed_in_the_key) {
    uint32_t block[4], lanes[4];
    philox_block(0x299f31d0a4093822, 0x85a308d3243f6a88, &block[0], &block[1], &block[2], &block[3]);
    philox4x32_10(0x243f6a88, 0x85a308d3, 0, 0, 0xa4093822, 0x299f31d0, &lanes[0], &lanes[1], &lanes[2], &lanes[3]);
    cr_assert_arr_eq(block, lanes, sizeof lanes);
}

Test(philox, units_reach_zero_and_stay_below_one) {
    cr_assert_eq(philox_unit_float(0), 0.0f);
    cr_assert_eq(philox_unit_float(UINT32_MAX), 1.0f - 0x1p-24f);
    cr_assert_eq(philox_unit_double(0, 0), 0.0);
    cr_assert_eq(philox_unit_double(UINT32_MAX, UINT32_MAX), 1.0 - 0x1p-53);
}

Test(philox, a_threshold_counts_lanes) {
    cr_assert_eq(philox_threshold(0), 0);
    cr_assert_eq(philox_threshold(0x1p-40), 1);
    cr_assert_eq(philox_threshold(0x1p-32), 1);
    cr_assert_eq(philox_threshold(0.5), UINT64_C(1) << 31);
    cr_assert_eq(philox_threshold(1), UINT64_C(1) << 32);
}

Test(philox, a_permutation_has_each_number_once) {
    for (uint64_t n = 1; n < 300; n = n * 3 / 2 + 1) {
        struct philox_permutation permutation;
        bool seen[300] = {false};
        philox_permutation_init(&permutation, n, n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t at = philox_permuted(&permutation, i);
            cr_assert(at < n && !seen[at]);
            seen[at] = true;
        }
    }
}
