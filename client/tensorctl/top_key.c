#include "client/tensorctl/top.h"

static void key_move(struct top *top, int64_t by) {
    size_t count = top->status ? top->status->n_sessions : 0;
    if (!count)
        return;
    int64_t to = (int64_t)top->cursor + by;
    top->cursor = to < 0 ? 0 : to >= (int64_t)count ? count - 1 : (size_t)to;
    top->selected = top->status->sessions[top->cursor]->id;
}

static void key_sort(struct top *top, enum top_column column) {
    top->reverse = column == top->sort ? !top->reverse : false;
    top->sort = column;
    top_sort(top);
}

static void key_step(struct top *top, unsigned by) {
    top->sort = (top->sort + by) % TOP_COLUMNS;
    top->reverse = false;
    top_sort(top);
}

static enum top_wish key_confirm(struct top *top, int key) {
    top->mode = TOP_TABLE;
    return key == 'y' || key == 'Y' ? TOP_KILL : TOP_GO_ON;
}

/* The session that is ended is the one that was selected when the question was asked, wherever it moves meanwhile. */
static void key_kill(struct top *top) {
    if (!top->selected || !top->status || !top->status->n_sessions)
        return;
    top->victim = top->selected;
    top->mode = TOP_CONFIRM;
}

enum top_wish top_key(struct top *top, int key) {
    int64_t page = top->page > 1 ? (int64_t)top->page - 1 : 1;
    top->message[0] = 0;
    if (top->mode == TOP_CONFIRM)
        return key_confirm(top, key);
    if (top->mode == TOP_HELP) {
        top->mode = TOP_TABLE;
        return key == 'q' ? TOP_QUIT : TOP_GO_ON;
    }
    switch (key) {
    case 'q':
        return TOP_QUIT;
    case 'h':
    case '?':
        top->mode = TOP_HELP;
        break;
    case 'k':
        key_kill(top);
        break;
    case 'd':
        top->first_device++;
        break;
    case 'r':
        top->reverse = !top->reverse;
        top_sort(top);
        break;
    case '<':
        key_step(top, TOP_COLUMNS - 1);
        break;
    case '>':
        key_step(top, 1);
        break;
    case TOP_KEY_UP:
        key_move(top, -1);
        break;
    case TOP_KEY_DOWN:
        key_move(top, 1);
        break;
    case TOP_KEY_PAGE_UP:
        key_move(top, -page);
        break;
    case TOP_KEY_PAGE_DOWN:
        key_move(top, page);
        break;
    case TOP_KEY_HOME:
        key_move(top, INT32_MIN);
        break;
    case TOP_KEY_END:
        key_move(top, INT32_MAX);
        break;
    default:
        for (unsigned i = 0; i < TOP_COLUMNS; i++)
            if (top_column_info(i)->key == key)
                key_sort(top, i);
    }
    return TOP_GO_ON;
}
