/* A status with more than a message can carry. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "server/front/status_fit.h"

enum { MOST = 1 << 20 };

static char text[449];

struct made {
    Tensord__Status status;
    Tensord__SessionStatus *rows, **pointers;
};

static void status_make(struct made *made, size_t sessions, size_t text_bytes) {
    memset(text, 'x', sizeof text - 1);
    tensord__status__init(&made->status);
    made->rows = calloc(sessions, sizeof *made->rows);
    made->pointers = calloc(sessions, sizeof *made->pointers);
    for (size_t i = 0; i < sessions; i++) {
        tensord__session_status__init(&made->rows[i]);
        made->rows[i].id = 1 + i;
        made->rows[i].live = i * 1000;
        made->rows[i].label = made->rows[i].last_failure = text + sizeof text - 1 - text_bytes;
        made->rows[i].client = text + sizeof text - 1 - 63;
        made->pointers[i] = &made->rows[i];
    }
    made->status.version = (char *)(uintptr_t) "1";
    made->status.sessions = made->pointers;
    made->status.n_sessions = sessions;
}

static void status_unmake(struct made *made) {
    free(made->rows);
    free(made->pointers);
}

Test(status_fit, sessions_and_programs_of_one_principal_are_kept_alone) {
    struct made made;
    static Tensord__ProgramStatus rows[3];
    Tensord__ProgramStatus *programs[] = {&rows[0], &rows[1], &rows[2]};
    status_make(&made, 9, 0);
    for (size_t i = 0; i < 9; i++)
        made.rows[i].principal = i % 3 == 1 ? (char *)"alice" : (char *)"bob";
    for (size_t i = 0; i < 3; i++) {
        tensord__program_status__init(&rows[i]);
        rows[i].principal = i == 2 ? (char *)"alice" : (char *)"bob";
    }
    made.status.programs = programs;
    made.status.n_programs = 3;
    status_keep(&made.status, "alice");
    cr_assert_eq(made.status.n_sessions, 3);
    for (size_t i = 0; i < 3; i++)
        cr_assert_eq(made.status.sessions[i]->id, 2 + 3 * i);
    cr_assert_eq(made.status.n_programs, 1);
    cr_assert_eq(made.status.programs[0], &rows[2]);
    status_unmake(&made);
}

Test(status_fit, what_fits_stays_as_it_is) {
    struct made made;
    status_make(&made, 100, 448);
    size_t before = tensord__status__get_packed_size(&made.status);
    status_fit(&made.status, MOST);
    cr_assert_eq(tensord__status__get_packed_size(&made.status), before);
    cr_assert_eq(made.status.sessions_left_out, 0);
    status_unmake(&made);
}

Test(status_fit, texts_go_first) {
    struct made made;
    status_make(&made, 2000, 448);
    cr_assert_gt(tensord__status__get_packed_size(&made.status), MOST);
    status_fit(&made.status, MOST);
    cr_assert_leq(tensord__status__get_packed_size(&made.status), MOST);
    cr_assert_eq(made.status.n_sessions, 2000);
    cr_assert_str_eq(made.status.sessions[7]->label, "");
    cr_assert_str_eq(made.status.sessions[7]->last_failure, "");
    status_unmake(&made);
}

Test(status_fit, sessions_with_most_memory_stay) {
    struct made made;
    status_make(&made, 40000, 448);
    status_fit(&made.status, MOST);
    cr_assert_leq(tensord__status__get_packed_size(&made.status), MOST);
    cr_assert_gt(tensord__status__get_packed_size(&made.status),
                 MOST - MOST / 8); /* and not fewer than there is room for */
    cr_assert_eq(made.status.n_sessions + made.status.sessions_left_out, 40000);
    cr_assert_eq(made.status.sessions[0]->id, 40000);
    for (size_t i = 1; i < made.status.n_sessions; i++)
        cr_assert_lt(made.status.sessions[i]->live, made.status.sessions[i - 1]->live);
    status_unmake(&made);
}
