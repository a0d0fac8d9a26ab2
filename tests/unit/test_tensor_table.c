/* The table from ids to tensors, against a plain set. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "engine/values/tensor.h"

enum { IDS = 3000 };

static uint64_t seed = 88172645463325252u;

static uint64_t pick(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Ids as clients choose them: dense, in clusters, at equal distances, at the end of the range. */
static uint64_t id_of(unsigned pattern, unsigned i) {
    switch (pattern) {
    case 0:
        return i + 1;
    case 1:
        return ((uint64_t)(i / 16) << 40) + i % 16 + 1;
    case 2:
        return ((uint64_t)i + 1) << 32;
    default:
        return UINT64_MAX - i;
    }
}

static void walk(unsigned pattern) {
    struct tensor_table table;
    static struct tensor tensors[IDS];
    static bool in[IDS];
    size_t count = 0;
    memset(in, 0, sizeof in);
    cr_assert_eq(tensor_table_init(&table), STATUS_OK);
    for (int step = 0; step < 60000; step++) {
        unsigned i = (unsigned)(pick() % IDS);
        uint64_t id = id_of(pattern, i);
        bool grow = step / 15000 % 2 == 0; /* mostly in, then mostly out */
        cr_assert_eq(tensor_table_find(&table, id), in[i] ? &tensors[i] : NULL);
        if (in[i] && (!grow || pick() % 8 == 0)) {
            cr_assert_eq(tensor_table_remove(&table, id), &tensors[i]);
            in[i] = false;
            count--;
        } else if (!in[i] && (grow || pick() % 8 == 0)) {
            tensors[i].id = id;
            cr_assert_eq(tensor_table_reserve(&table), STATUS_OK);
            tensor_table_insert(&table, &tensors[i]);
            in[i] = true;
            count++;
        } else if (!in[i]) {
            cr_assert_null(tensor_table_remove(&table, id));
        }
        cr_assert_eq(table.count, count);
        cr_assert_leq(table.count, table.capacity / 2);
    }
    for (unsigned i = 0; i < IDS; i++)
        cr_assert_eq(tensor_table_find(&table, id_of(pattern, i)), in[i] ? &tensors[i] : NULL);
    tensor_table_finish(&table);
}

Test(tensor_table, behaves_as_a_set) {
    for (unsigned pattern = 0; pattern < 4; pattern++)
        walk(pattern);
}

Test(tensor_table, behaves_as_a_set_where_everything_collides) {
    struct tensor_table table;
    static struct tensor tensors[200];
    cr_assert_eq(tensor_table_init(&table), STATUS_OK);
    table.factor = 1; /* small ids all begin in slot 0 */
    for (uint64_t i = 0; i < 200; i++) {
        tensors[i].id = i + 1;
        cr_assert_eq(tensor_table_reserve(&table), STATUS_OK);
        tensor_table_insert(&table, &tensors[i]);
    }
    for (uint64_t i = 0; i < 200; i += 3)
        cr_assert_eq(tensor_table_remove(&table, i + 1), &tensors[i]);
    for (uint64_t i = 0; i < 200; i++)
        cr_assert_eq(tensor_table_find(&table, i + 1), i % 3 ? &tensors[i] : NULL);
    tensor_table_finish(&table);
}

/* More than half of the slots are taken: there are more now, and the tensors have not gone there all at once. */
Test(tensor_table, an_insert_that_finds_it_full_does_not_move_all) {
    enum { FULL = 1 << 15 };
    struct tensor_table table;
    struct tensor *tensors = calloc(FULL + 1, sizeof *tensors);
    bool *met = calloc(FULL + 1, sizeof *met);
    cr_assert_eq(tensor_table_init(&table), STATUS_OK);
    size_t before = 0, places = 0;
    for (uint64_t i = 0; i <= FULL; i++) {
        tensors[i].id = i + 1;
        before = table.capacity;
        cr_assert_eq(tensor_table_reserve(&table), STATUS_OK);
        tensor_table_insert(&table, &tensors[i]);
    }
    cr_assert_gt(table.capacity, before);
    cr_assert_gt(tensor_table_slots(&table), table.capacity);
    for (size_t place = 0; place < tensor_table_slots(&table); place++) {
        struct tensor *tensor = tensor_table_slot(&table, place);
        if (tensor) {
            cr_assert_not(met[tensor - tensors]);
            met[tensor - tensors] = true;
            places++;
        }
    }
    cr_assert_eq(places, FULL + 1, "each is met once");
    for (uint64_t i = 0; i <= FULL; i++)
        cr_assert_eq(tensor_table_find(&table, i + 1), &tensors[i]);
    tensor_table_finish(&table);
    free(tensors);
    free(met);
}
