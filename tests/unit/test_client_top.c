/* tensorctl top without a terminal: what a frame has room for, how sessions are put in order, and what keys do. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "client/tensorctl/top.h"

enum { DEVICES = 64, SESSIONS = 1000, ROWS_MAX = 300, COLUMNS_MAX = 400 };

#define TEXT_MEAN "\033[2J\x9b\r\nred\xe2\x80\xaetxt"
#define TEXT_WIDE "\xe5\xbc\xa0\xe9\x87\x8f\xe5\xbc\xa0\xe9\x87\x8f"

static char *text_copy(const char *text) {
    char *copy = strdup(text);
    cr_assert_not_null(copy);
    return copy;
}

static Tensord__DeviceStatus *make_device(unsigned number) {
    Tensord__DeviceStatus *device = malloc(sizeof *device);
    Tensord__Device *about = malloc(sizeof *about);
    char name[24];
    snprintf(name, sizeof name, "cuda:%u", number);
    tensord__device_status__init(device);
    tensord__device__init(about);
    about->name = text_copy(name);
    about->state = text_copy(number % 3 ? "ready" : "quarantined");
    about->model = text_copy(TEXT_MEAN);
    device->device = about;
    device->memory_total = number % 2 ? UINT64_MAX : 0;
    device->memory_live = device->memory_reserved = UINT64_MAX;
    device->ops_per_s = number % 2 ? 1e300 : 0;
    device->stalled_s = number % 2 ? 1e300 : 0;
    device->queue_depth = UINT64_MAX;
    device->worker_pid = number % 5;
    device->worker_memory = UINT64_MAX;
    device->worker_cpu_s = 1e300;
    device->last_fault = text_copy(number % 6 != 5 ? "" : TEXT_MEAN TEXT_WIDE TEXT_MEAN);
    if (number % 4 == 0)
        return device;
    device->readings = malloc(sizeof *device->readings);
    tensord__device_readings__init(device->readings);
    Tensord__Reading **readings[] = {&device->readings->utilisation_gpu, &device->readings->temperature,
                                     &device->readings->power_draw, &device->readings->memory_total,
                                     &device->readings->memory_others};
    for (unsigned i = 0; i < 5; i++) {
        *readings[i] = malloc(sizeof **readings[i]);
        tensord__reading__init(*readings[i]);
        (*readings[i])->value = number % 4 == 1 ? UINT64_MAX : number % 4 == 2 ? 50 : 0;
    }
    return device;
}

/* Session `id`, with as many bytes, and hostile texts. */
static Tensord__SessionStatus *make_session(uint64_t id, uint64_t done) {
    Tensord__SessionStatus *session = malloc(sizeof *session);
    tensord__session_status__init(session);
    session->id = id;
    session->live = session->peak = id;
    session->ops_done = done;
    session->ops_queued = 1000 - id;
    session->principal = text_copy(TEXT_WIDE TEXT_WIDE);
    session->peer = text_copy(TEXT_MEAN TEXT_WIDE TEXT_MEAN);
    session->client = text_copy(TEXT_WIDE TEXT_MEAN TEXT_WIDE);
    session->device = text_copy(TEXT_MEAN);
    session->last_failure = text_copy(id % 7 == 3 ? TEXT_MEAN TEXT_WIDE TEXT_MEAN : "");
    session->label = text_copy(TEXT_WIDE TEXT_WIDE TEXT_WIDE TEXT_MEAN TEXT_WIDE TEXT_WIDE TEXT_WIDE);
    return session;
}

static Tensord__Status *make_status(size_t devices, size_t sessions, uint64_t done) {
    Tensord__Status *status = malloc(sizeof *status);
    tensord__status__init(status);
    status->version = text_copy(TEXT_MEAN);
    status->devices = calloc(devices + 1, sizeof *status->devices);
    status->sessions = calloc(sessions + 1, sizeof *status->sessions);
    for (; status->n_devices < devices; status->n_devices++)
        status->devices[status->n_devices] = make_device((unsigned)status->n_devices);
    for (; status->n_sessions < sessions; status->n_sessions++)
        status->sessions[status->n_sessions] = make_session(status->n_sessions + 1, done);
    return status;
}

/* ---- frames ---- */

struct sheet {
    struct top_canvas canvas;
    unsigned row, column; /* where the last text ended */
    char text[ROWS_MAX][4 * COLUMNS_MAX];
    unsigned selected; /* rows with a selected text that begins in the first column */
};

static void sheet_put(void *owner, unsigned row, unsigned column, enum top_style style, const char *text) {
    struct sheet *sheet = owner;
    cr_assert(row < sheet->canvas.rows && column + text_width(text) <= sheet->canvas.columns,
              "%u, %u: \"%s\" on %u, %u", row, column, text, sheet->canvas.rows, sheet->canvas.columns);
    cr_assert(row > sheet->row || (row == sheet->row && column >= sheet->column), "not from left to right");
    for (const char *c = text; *c; c++)
        cr_assert((unsigned char)*c >= ' ' && *c != 0x7f, "control character %d", *c);
    cr_assert(!strstr(text, "\xe2\x80\xae") && !strstr(text, "\x9b"), "\"%s\"", text);
    sheet->row = row;
    sheet->column = column + text_width(text);
    if (row < ROWS_MAX)
        strcat(sheet->text[row], text);
    sheet->selected += style == TOP_SELECTED && !column;
}

static struct sheet sheet;

static void draw(struct top *top, unsigned rows, unsigned columns) {
    memset(&sheet, 0, sizeof sheet);
    sheet.canvas = (struct top_canvas){rows, columns, sheet_put, &sheet};
    top_draw(top, &sheet.canvas);
}

Test(top, frames_of_every_size_keep_within_the_canvas) {
    static const size_t devices[] = {0, 1, 3, DEVICES}, sessions[] = {0, 1, SESSIONS};
    for (size_t d = 0; d < 4; d++)
        for (size_t s = 0; s < 3; s++) {
            struct top top = {.sort = TOP_LIVE};
            cr_assert(top_take(&top, make_status(devices[d], sessions[s], 1)));
            for (unsigned mode = TOP_TABLE; mode <= TOP_CONFIRM; mode++)
                for (unsigned rows = 0; rows < 80; rows += rows < 12 ? 1 : 17)
                    for (unsigned columns = 0; columns < 300; columns += columns < 12 ? 1 : 19) {
                        top.mode = mode;
                        draw(&top, rows, columns);
                    }
            top_finish(&top);
        }
}

Test(top, wide_terminal_shows_how_busy_a_device_has_been) {
    static const double busy[] = {0, 0.5, 1, 0.01, 1e300, -1};
    struct top top = {.sort = TOP_LIVE};
    for (int i = 0; i < 6; i++) {
        Tensord__Status *status = make_status(2, 1, 1);
        status->devices[1]->busy_ratio = busy[i];
        cr_assert(top_take(&top, status));
    }
    draw(&top, 10, 290);
    cr_assert(strstr(sheet.text[2], " ▄█▁█  "), "%s", sheet.text[2]);
    cr_assert_not(strstr(sheet.text[1], "█"), "%s", sheet.text[1]);
    top_finish(&top);
}

Test(top, names_that_are_not_saved_are_told_with_their_age) {
    struct top top = {.sort = TOP_LIVE};
    Tensord__Status *status = make_status(4, 1, 1);
    status->devices[2]->names_unsaved = 3;
    status->devices[2]->names_unsaved_s = 120;
    cr_assert(top_take(&top, status));
    draw(&top, 12, 290);
    cr_assert(strstr(sheet.text[3], " 3 names unsaved for 2.0 min"), "%s", sheet.text[3]);
    cr_assert_not(strstr(sheet.text[2], "unsaved") || strstr(sheet.text[1], "unsaved"));
    top_finish(&top);
}

/* A status of devices that are well, for a test to change. */
static Tensord__Status *make_plain(size_t devices, size_t sessions) {
    Tensord__Status *status = make_status(devices, sessions, 1);
    for (size_t i = 0; i < devices; i++) {
        Tensord__DeviceStatus *device = status->devices[i];
        free(device->last_fault);
        device->last_fault = text_copy("");
        device->stalled_s = device->ops_per_s = 0;
        device->worker_pid = 0;
    }
    for (size_t i = 0; i < sessions; i++) {
        free(status->sessions[i]->last_failure);
        status->sessions[i]->last_failure = text_copy("");
    }
    return status;
}

static void set_text(char **text, const char *to) {
    free(*text);
    *text = text_copy(to);
}

/* The row with this text; none: the number of rows. */
static unsigned row_with(const char *text) {
    unsigned row = 0;
    while (row < sheet.canvas.rows && !strstr(sheet.text[row], text))
        row++;
    return row;
}

Test(top, fault_of_a_device_stands_below_it) {
    static const unsigned columns[] = {80, 200};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        struct top top = {.sort = TOP_LIVE};
        Tensord__Status *status = make_plain(2, 1);
        set_text(&status->devices[0]->last_fault, "killed by signal 9");
        status->devices[0]->last_fault_age_s = 120;
        cr_assert(top_take(&top, status));
        draw(&top, 24, columns[i]);
        unsigned row = row_with("fault 2.0 min ago: killed by signal 9");
        cr_expect(row == row_with("cuda:1") - 1 && !strncmp(sheet.text[row], "  fault", 7), "%u columns, row %u: %s",
                  columns[i], row, sheet.text[row]);
        top_finish(&top);
    }
}

Test(top, fault_of_one_of_many_devices_stands_in_its_line) {
    struct top top = {.sort = TOP_LIVE};
    Tensord__Status *status = make_plain(10, 1);
    set_text(&status->devices[4]->last_fault, "killed by signal 9");
    cr_assert(top_take(&top, status));
    draw(&top, 23, 200); /* a line for each device and no more */
    cr_assert(strstr(sheet.text[5], "cuda:4 ") && strstr(sheet.text[5], "killed by signal 9"), "%s", sheet.text[5]);
    cr_assert(strstr(sheet.text[10], "cuda:9"), "%s", sheet.text[10]);
    top_finish(&top);
}

Test(top, memory_and_processor_time_of_a_worker_are_whole_or_not_there) {
    struct top top = {.sort = TOP_LIVE};
    Tensord__Status *status = make_plain(2, 1);
    unsigned seen = 0;
    status->devices[0]->worker_pid = 7;
    status->devices[0]->worker_memory = 45 << 20;
    status->devices[0]->worker_cpu_s = 3.25;
    cr_assert(top_take(&top, status));
    for (unsigned columns = 20; columns < 300; columns++) {
        draw(&top, 24, columns);
        unsigned row = row_with("  worker 45.0 MiB, cpu 3.2");
        seen += row < 24;
        cr_expect(row_with("worke") == row, "%u columns: %s", columns, sheet.text[row_with("worke")]);
        cr_expect(row < 24 || (columns != 80 && columns != 200), "%u columns have room for it", columns);
    }
    cr_assert_gt(seen, 0);
    top_finish(&top);
}

Test(top, line_above_the_foot_has_the_failure_of_the_selected_session) {
    struct top top = {.sort = TOP_ID, .reverse = true};
    Tensord__Status *status = make_plain(1, 30);
    set_text(&status->sessions[2]->last_failure, "matmul: shapes do not fit");
    set_text(&status->sessions[1]->last_failure, "take: index 9 of 4");
    cr_assert(top_take(&top, status));
    draw(&top, 24, 120);
    cr_assert(strstr(sheet.text[22], "session 2 of ") && strstr(sheet.text[22], "failed last: take: index 9 of 4"),
              "the first one that has any: %s", sheet.text[22]);
    top_key(&top, TOP_KEY_DOWN);
    top_key(&top, TOP_KEY_DOWN);
    draw(&top, 24, 120);
    cr_assert(strstr(sheet.text[22], "session 3 of ") && strstr(sheet.text[22], "matmul: shapes do not fit"), "%s",
              sheet.text[22]);
    top_key(&top, TOP_KEY_END);
    draw(&top, 24, 120);
    cr_assert(strstr(sheet.text[21], "30 ") && strstr(sheet.text[22], "failed last"), "the selected one is above: %s",
              sheet.text[21]);
    cr_assert(strstr(sheet.text[23], "q quit"), "%s", sheet.text[23]);
    top_finish(&top);
}

Test(top, without_a_failure_the_lines_are_for_sessions) {
    struct top top = {.sort = TOP_ID, .reverse = true};
    cr_assert(top_take(&top, make_plain(1, 30)));
    draw(&top, 24, 120);
    cr_assert_eq(row_with("failed last"), 24);
    cr_assert(strstr(sheet.text[22], "20 "), "%s", sheet.text[22]);
    top_finish(&top);
}

Test(top, batch_has_the_failure_of_each_session_below_the_table) {
    struct top top = {.sort = TOP_ID, .batch = true};
    Tensord__Status *status = make_plain(1, 3);
    set_text(&status->sessions[0]->last_failure, "matmul: shapes do not fit");
    set_text(&status->sessions[2]->last_failure, "take: index 9 of 4");
    cr_assert(top_take(&top, status));
    draw(&top, 50, 200);
    unsigned first = row_with("session 3 of ");
    cr_assert(first < 50 && strstr(sheet.text[first], "failed last: take: index 9 of 4"));
    cr_assert(strstr(sheet.text[first + 1], "session 1 of ") && strstr(sheet.text[first + 1], "matmul"), "%s",
              sheet.text[first + 1]);
    top_finish(&top);
}

Test(top, small_terminal_shows_devices_and_sessions) {
    struct top top = {.sort = TOP_LIVE};
    cr_assert(top_take(&top, make_status(DEVICES, SESSIONS, 1)));
    draw(&top, 10, 40);
    cr_assert(strstr(sheet.text[1], "cuda:0"), "%s", sheet.text[1]);
    cr_assert(strstr(sheet.text[3], "62 more devices"), "%s", sheet.text[3]);
    cr_assert(strstr(sheet.text[4], "LIVE ▼"), "%s", sheet.text[4]);
    cr_assert(strstr(sheet.text[5], "1000") && strstr(sheet.text[8], "997"), "%s", sheet.text[5]);
    cr_assert(strstr(sheet.text[9], "q quit"), "%s", sheet.text[9]);
    for (int i = 0; i < 10; i++)
        top_key(&top, 'd');
    draw(&top, 10, 40);
    cr_assert(strstr(sheet.text[1], "cuda:10"), "%s", sheet.text[1]);
    top_finish(&top);
}

Test(top, without_figures_there_is_the_trouble) {
    struct top top = {.trouble = "connection lost"};
    draw(&top, 10, 40);
    cr_assert_str_eq(sheet.text[9], "connection lost");
    for (int key = 0; key < 512; key++)
        if (key != 'q')
            cr_assert_eq(top_key(&top, key), TOP_GO_ON);
}

/* ---- order ---- */

static void expect_order(const struct top *top, uint64_t first, uint64_t last) {
    cr_assert_eq(top->status->sessions[0]->id, first);
    cr_assert_eq(top->status->sessions[top->status->n_sessions - 1]->id, last);
}

Test(top, sessions_are_put_in_order_by_any_column_either_way) {
    struct top top = {.sort = TOP_LIVE};
    cr_assert(top_take(&top, make_status(1, SESSIONS, 1)));
    expect_order(&top, SESSIONS, 1);
    top_key(&top, 'r');
    expect_order(&top, 1, SESSIONS);
    top_key(&top, 'W'); /* queued */
    expect_order(&top, 1, SESSIONS);
    top_key(&top, 'W');
    expect_order(&top, SESSIONS, 1);
    top_key(&top, 'C'); /* all the same: by number */
    expect_order(&top, 1, SESSIONS);
    for (unsigned i = 0; i < TOP_COLUMNS; i++)
        top_key(&top, '>');
    cr_assert_eq(top.sort, TOP_CLIENT, "a round does not end where it began");
    top_key(&top, '<');
    cr_assert_eq(top.sort, TOP_CLIENT - 1);
    top_finish(&top);
}

Test(top, the_column_that_orders_is_shown_however_narrow_the_screen) {
    struct top top = {.sort = TOP_LIVE};
    cr_assert(top_take(&top, make_status(1, 10, 1)));
    for (unsigned i = 0; i < TOP_COLUMNS; i++, top_key(&top, '>')) {
        draw(&top, 12, 45);
        bool found = false;
        for (unsigned row = 0; row < 12; row++)
            found =
                found || (strstr(sheet.text[row], "ID") && strstr(sheet.text[row], top_column_info(top.sort)->title));
        cr_assert(found, "%s", top_column_info(top.sort)->title);
    }
    top_finish(&top);
}

Test(top, every_column_has_a_key_of_its_own) {
    for (unsigned i = 0; i < TOP_COLUMNS; i++) {
        struct top top = {.sort = i ? 0 : 1};
        cr_assert(!strchr("qhkdr?<>", top_column_info(i)->key));
        top_key(&top, top_column_info(i)->key);
        cr_assert_eq(top.sort, i);
    }
}

/* Also in the first frame, where there is nothing to compare with. */
Test(top, rate_of_a_session_is_the_daemons) {
    struct top top = {.sort = TOP_RATE};
    Tensord__Status *status = make_status(1, 3, 1000);
    char text[TABLE_CELL_MAX];
    status->sessions[1]->ops_per_s = 4960;
    cr_assert(top_take(&top, status));
    expect_order(&top, 2, 3);
    top_column_text(top.status->sessions[0], TOP_RATE, text);
    cr_assert_str_eq(text, "4.96k");
    top_column_text(top.status->sessions[1], TOP_RATE, text);
    cr_assert_str_eq(text, "0");
    top_finish(&top);
}

/* ---- selection ---- */

Test(top, selected_session_stays_selected_while_others_come_and_go) {
    struct top top = {.sort = TOP_ID, .reverse = true, .page = 10};
    cr_assert(top_take(&top, make_status(1, 20, 1)));
    for (int i = 0; i < 6; i++)
        top_key(&top, TOP_KEY_DOWN);
    cr_assert_eq(top.selected, 7);
    top_key(&top, 'r');
    cr_assert_eq(top.selected, 7);
    cr_assert_eq(top.cursor, 13);
    cr_assert(top_take(&top, make_status(1, 30, 1)));
    cr_assert_eq(top.selected, 7);
    cr_assert(top_take(&top, make_status(1, 5, 1)));
    cr_assert_eq(top.cursor, 4, "it ended: the last one is selected");
    cr_assert(top_take(&top, make_status(1, 0, 1)));
    cr_assert_eq(top.selected, 0);
    cr_assert_eq(top_key(&top, 'k'), TOP_GO_ON);
    cr_assert_eq(top.mode, TOP_TABLE, "there is nothing to end");
    top_finish(&top);
}

Test(top, selection_scrolls_and_stays_on_the_screen) {
    static const int keys[] = {TOP_KEY_END, TOP_KEY_PAGE_UP, TOP_KEY_UP,  TOP_KEY_HOME, TOP_KEY_PAGE_DOWN,
                               TOP_KEY_END, TOP_KEY_DOWN,    TOP_KEY_END, TOP_KEY_HOME, TOP_KEY_UP};
    struct top top = {.sort = TOP_ID};
    cr_assert(top_take(&top, make_status(2, SESSIONS, 1)));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        draw(&top, 24, 80);
        cr_assert_eq(sheet.selected, 1 + (top.sort == TOP_ID), "key %zu: the selected session is not to be seen", i);
        top_key(&top, keys[i]);
    }
    cr_assert_eq(top.cursor, 0);
    top_finish(&top);
}

Test(top, session_that_was_asked_about_is_the_one_that_ends) {
    struct top top = {.sort = TOP_ID, .reverse = true};
    cr_assert(top_take(&top, make_status(1, 20, 1)));
    top_key(&top, TOP_KEY_DOWN);
    cr_assert_eq(top_key(&top, 'k'), TOP_GO_ON);
    cr_assert_eq(top.mode, TOP_CONFIRM);
    cr_assert(top_take(&top, make_status(1, 1, 1))); /* it has gone, and another one is selected */
    draw(&top, 24, 80);
    cr_assert(strstr(sheet.text[23], "End session 2 of"), "%s", sheet.text[23]);
    cr_assert_eq(top_key(&top, 'y'), TOP_KILL);
    cr_assert_eq(top.victim, 2);
    top_finish(&top);
}

Test(top, anything_but_yes_is_no) {
    struct top top = {.sort = TOP_ID};
    cr_assert(top_take(&top, make_status(1, 2, 1)));
    for (int key = 0; key < 512; key++) {
        top_key(&top, 'k');
        cr_assert_eq(top.mode, TOP_CONFIRM);
        cr_assert_eq(top_key(&top, key), key == 'y' || key == 'Y' ? TOP_KILL : TOP_GO_ON);
        cr_assert_eq(top.mode, TOP_TABLE);
    }
    top_finish(&top);
}
