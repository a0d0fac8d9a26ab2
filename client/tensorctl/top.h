/* tensorctl top: a screen of devices and sessions that is refreshed in place.
 *
 * top.c has the figures, the keys and the loops. top_draw.c makes a frame of the figures, for a canvas that is a terminal
 * (top_terminal.c) or plain text. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/tensorctl/tensorctl.h"
#include "proto/ops/status.h"

struct control;

enum {
    TOP_TIMEOUT_MS = 2000,  /* for a reply: a key may have to wait so long */
    TOP_BATCH_COLUMNS = 200 /* where lines have no limit: room for all columns */
};

struct top_options {
    const char *url;
    double interval_s;
    bool batch;          /* frames as plain text, one after the other */
    unsigned long count; /* number of frames; 0: no limit */
};
/* Runs until the user quits, a signal comes, or in a batch the daemon is gone. Takes over the control connection. */
int top_run(struct control *control, const struct top_options *options, struct fault *fault);

/* ---- figures ---- */

enum top_column {
    TOP_ID,
    TOP_USER,
    TOP_DEVICE,
    TOP_LIVE,
    TOP_PEAK,
    TOP_TENSORS,
    TOP_QUEUED,
    TOP_SHARE,
    TOP_RATE,
    TOP_DONE,
    TOP_FAILED,
    TOP_AGE,
    TOP_PID,
    TOP_PEER,
    TOP_CLIENT,
    TOP_LABEL,
    TOP_COLUMNS
};

enum top_mode { TOP_TABLE, TOP_HELP, TOP_CONFIRM };

/* How busy a device was at the last refreshes, for a line of sparks. */
enum { TOP_TRAIL = 30 };
struct top_trail {
    char device[64];
    float busy[TOP_TRAIL]; /* 0 to 1, the newest last */
};

struct top {
    struct top_trail *trails; /* one for each device, in the order of the status */
    size_t n_trails;
    Tensord__Status *status; /* the newest; its sessions are in the order that is shown. NULL: none yet */
    bool batch;
    char trouble[256]; /* what is wrong with the connection; "": nothing */
    char message[320]; /* the result of the user's last command; "": none */
    enum top_column sort;
    bool reverse;
    uint64_t selected; /* the selected session; 0: none */
    size_t cursor;     /* its place in the list */
    size_t first, first_device;
    size_t page; /* the number of sessions for which the last frame had room */
    enum top_mode mode;
    uint64_t victim; /* TOP_CONFIRM: the session that the user wants to end */
};

/* Takes over the status. False out of memory: the old status stays. */
bool top_take(struct top *top, Tensord__Status *status);
void top_finish(struct top *top);
/* Sorts the sessions; the selected session stays selected. */
void top_sort(struct top *top);

/* ---- columns ---- */

struct top_column_info {
    const char *title;
    char key;           /* the key that sorts by this column */
    unsigned width;     /* 0: the rest of the line */
    unsigned important; /* if a line is too short, the column with the least number is left out first */
    bool right;
};
const struct top_column_info *top_column_info(enum top_column column);
void top_column_text(const Tensord__SessionStatus *session, enum top_column column, char text[TABLE_CELL_MAX]);
int top_column_compare(const Tensord__SessionStatus *a, const Tensord__SessionStatus *b, enum top_column column);

/* ---- a frame ---- */

enum top_style { TOP_PLAIN, TOP_BOLD, TOP_TITLES, TOP_SELECTED, TOP_BAR, TOP_WARNING };

/* top_draw() puts texts from left to right and from top to bottom. They lie within the canvas and are safe to show. */
struct top_canvas {
    unsigned rows, columns;
    void (*put)(void *owner, unsigned row, unsigned column, enum top_style style, const char *text);
    void *owner;
};
void top_draw(struct top *top, const struct top_canvas *canvas);

/* ---- keys ---- */

enum { TOP_KEY_UP = 256, TOP_KEY_DOWN, TOP_KEY_PAGE_UP, TOP_KEY_PAGE_DOWN, TOP_KEY_HOME, TOP_KEY_END };
enum top_wish { TOP_GO_ON, TOP_QUIT, TOP_KILL /* the victim */ };
enum top_wish top_key(struct top *top, int key);

/* ---- the terminal ---- */

enum top_event { TOP_EVENT_KEY, TOP_EVENT_TIME, TOP_EVENT_RESIZE, TOP_EVENT_SIGNAL };

/* Takes over the terminal of standard input and output; the fault says why that is not possible. */
int top_terminal_open(struct fault *fault);
void top_terminal_close(void);
void top_terminal_show(struct top *top);
/* Waits for an event until `deadline_ms`; *what: the key, or the signal that ends the program. */
enum top_event top_terminal_wait(int64_t deadline_ms, int *what);
