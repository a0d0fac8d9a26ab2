#include "client/tensorctl/top.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/lib/control.h"
#include "proto/wire/frame.h"

/* ---- figures ---- */

/* Adds the newest figures to the trails. A daemon's devices do not change while it runs; with another daemon the trails begin
 * again. */
static bool top_follow(struct top *top, const Tensord__Status *status) {
    if (top->n_trails != status->n_devices) {
        struct top_trail *trails = calloc(status->n_devices + 1, sizeof *trails);
        if (!trails)
            return false;
        free(top->trails);
        top->trails = trails;
        top->n_trails = status->n_devices;
    }
    for (size_t i = 0; i < status->n_devices; i++) {
        const char *name = status->devices[i]->device ? status->devices[i]->device->name : "";
        struct top_trail *trail = &top->trails[i];
        if (strncmp(trail->device, name, sizeof trail->device - 1) != 0) {
            *trail = (struct top_trail){0};
            strncpy(trail->device, name, sizeof trail->device - 1);
        }
        memmove(trail->busy, trail->busy + 1, sizeof trail->busy - sizeof *trail->busy);
        trail->busy[TOP_TRAIL - 1] = (float)status->devices[i]->busy_ratio;
    }
    return true;
}

bool top_take(struct top *top, Tensord__Status *status) {
    if (!top_follow(top, status))
        return false;
    if (top->status)
        tensord__status__free_unpacked(top->status, NULL);
    top->status = status;
    top_sort(top);
    return true;
}

void top_finish(struct top *top) {
    if (top->status)
        tensord__status__free_unpacked(top->status, NULL);
    free(top->trails);
    *top = (struct top){0};
}

static int compare_sessions(const void *a, const void *b, void *owner) {
    const struct top *top = owner;
    int order = top_column_compare(*(Tensord__SessionStatus *const *)a, *(Tensord__SessionStatus *const *)b, top->sort);
    return top->reverse ? -order : order;
}

void top_sort(struct top *top) {
    Tensord__Status *status = top->status;
    if (!status || !status->n_sessions) {
        top->cursor = 0;
        top->selected = 0;
        return;
    }
    qsort_r(status->sessions, status->n_sessions, sizeof *status->sessions, compare_sessions, top);
    for (size_t i = 0; i < status->n_sessions; i++)
        if (status->sessions[i]->id == top->selected) {
            top->cursor = i;
            return;
        }
    if (top->cursor >= status->n_sessions) /* the selected session has ended: select the one at its place */
        top->cursor = status->n_sessions - 1;
    top->selected = status->sessions[top->cursor]->id;
}

/* ---- keys ---- */

static void key_move(struct top *top, int64_t by) {
    size_t count = top->status ? top->status->n_sessions : 0;
    if (!count)
        return;
    int64_t to = (int64_t)top->cursor + by;
    top->cursor = to < 0 ? 0 : to >= (int64_t)count ? count - 1 : (size_t)to;
    top->selected = top->status->sessions[top->cursor]->id;
}

static void key_step(struct top *top, unsigned by) {
    top->sort = (top->sort + by) % TOP_COLUMNS;
    top->reverse = false;
    top_sort(top);
}

/* The victim is the session that is selected when the question is asked, even if the selection moves before the user's reply. */
static void key_kill(struct top *top) {
    if (!top->selected || !top->status || !top->status->n_sessions)
        return;
    top->victim = top->selected;
    top->mode = TOP_CONFIRM;
}

enum top_wish top_key(struct top *top, int key) {
    int64_t page = top->page > 1 ? (int64_t)top->page - 1 : 1;
    top->message[0] = 0;
    if (top->mode == TOP_CONFIRM) {
        top->mode = TOP_TABLE;
        return key == 'y' || key == 'Y' ? TOP_KILL : TOP_GO_ON;
    }
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
        for (unsigned i = 0; i < TOP_COLUMNS; i++) {
            if (top_column_info(i)->key != key)
                continue;
            top->reverse = i == (unsigned)top->sort && !top->reverse;
            top->sort = i;
            top_sort(top);
        }
    }
    return TOP_GO_ON;
}

/* ---- the connection ---- */

struct link {
    struct control *control; /* NULL: lost */
    const char *url;
    struct tls_context *tls;
};

static void link_lose(struct link *link) {
    control_close(link->control);
    link->control = NULL;
}

static int link_fetch(struct link *link, Tensord__Status **status, struct fault *fault) {
    int error = STATUS_OK;
    if (!link->control)
        error = control_open(link->url, link->tls, TOP_TIMEOUT_MS, "tensorctl " TENSORD_VERSION, NULL, &link->control,
                             fault);
    if (!error)
        error = control_status(link->control, status, fault);
    if (error)
        link_lose(link);
    return error;
}

static void top_refresh(struct top *top, struct link *link) {
    Tensord__Status *status;
    struct fault fault = {0};
    top->trouble[0] = 0;
    if (link_fetch(link, &status, &fault))
        snprintf(top->trouble, sizeof top->trouble, "connection lost, trying again: %.200s", fault.message);
    else if (!top_take(top, status))
        tensord__status__free_unpacked(status, NULL);
}

static void top_kill(struct top *top, struct link *link) {
    struct fault fault = {0};
    unsigned long long session = top->victim;
    int error = link->control ? control_kill(link->control, top->victim, "ended from tensorctl top", &fault)
                              : fault_set(&fault, STATUS_CONNECTION, "there is no connection");
    if (error)
        snprintf(top->message, sizeof top->message, "session %llu: %s", session, fault.message);
    else
        snprintf(top->message, sizeof top->message, "session %llu ends", session);
    if (error == STATUS_CONNECTION || error == STATUS_PROTOCOL || error == STATUS_TIMED_OUT)
        link_lose(link); /* a late reply would be taken for the reply to another request */
    top_refresh(top, link);
}

/* ---- loops ---- */

/* Returns the signal that ended the program; 0: the user quit. */
static int top_interact(struct top *top, struct link *link, double interval_s) {
    int64_t interval_ms = (int64_t)(interval_s * 1e3), next_ms = 0;
    for (int what = 0;;) {
        if (control_now_ms() >= next_ms) {
            top_refresh(top, link);
            next_ms = control_now_ms() + interval_ms;
        }
        top_terminal_show(top);
        switch (top_terminal_wait(next_ms, &what)) {
        case TOP_EVENT_SIGNAL:
            return what;
        case TOP_EVENT_KEY: {
            enum top_wish wish = top_key(top, what);
            if (wish == TOP_QUIT)
                return 0;
            if (wish == TOP_KILL)
                top_kill(top, link);
            break;
        }
        case TOP_EVENT_TIME:
        case TOP_EVENT_RESIZE:
            break;
        }
    }
}

/* Plain text: line by line, with spaces before each text. */
struct sheet {
    unsigned row, column;
};

static void sheet_put(void *owner, unsigned row, unsigned column, enum top_style style, const char *text) {
    struct sheet *sheet = owner;
    (void)style;
    for (; sheet->row < row; sheet->row++, sheet->column = 0)
        putchar('\n');
    printf("%*s%s", (int)(column - sheet->column), "", text);
    sheet->column = column + text_width(text);
}

static int top_print(struct top *top, struct fault *fault) {
    struct sheet sheet = {0};
    size_t lines = 6 * top->status->n_devices + 2 * top->status->n_sessions + 16; /* room for all that there can be */
    struct top_canvas canvas = {
        (unsigned)lines, text_columns() < TOP_BATCH_COLUMNS ? text_columns() : TOP_BATCH_COLUMNS, sheet_put, &sheet};
    top_draw(top, &canvas);
    fputs("\n\n", stdout);
    if (fflush(stdout) || ferror(stdout))
        return fault_set(fault, STATUS_INTERNAL, "cannot write the output: %s", strerror(errno));
    return STATUS_OK;
}

static int top_batch(struct top *top, struct link *link, const struct top_options *options, struct fault *fault) {
    struct timespec pause = {(time_t)options->interval_s,
                             (long)((options->interval_s - (double)(time_t)options->interval_s) * 1e9)};
    int error = STATUS_OK;
    for (unsigned long i = 0; !error && (!options->count || i < options->count); i++) {
        Tensord__Status *status;
        if (i)
            nanosleep(&pause, NULL);
        error = link_fetch(link, &status, fault);
        if (!error && !top_take(top, status)) {
            error = fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for %zu sessions", status->n_sessions);
            tensord__status__free_unpacked(status, NULL);
        }
        if (!error)
            error = top_print(top, fault);
    }
    return error;
}

int top_run(struct control *control, const struct top_options *options, struct fault *fault) {
    struct top top = {.sort = TOP_LIVE, .batch = options->batch};
    struct tls_context *tls = control_tls(control);
    struct link link = {control, options->url, tls ? tls_context_hold(tls) : NULL};
    int number = 0, error = options->batch ? top_batch(&top, &link, options, fault) : top_terminal_open(fault);
    if (!error && !options->batch)
        number = top_interact(&top, &link, options->interval_s);
    top_terminal_close();
    top_finish(&top);
    control_close(link.control);
    tls_context_release(link.tls);
    if (number && number != SIGINT) { /* ends as if there were no signal handler */
        signal(number, SIG_DFL);
        raise(number);
        exit(128 + number);
    }
    return error;
}
