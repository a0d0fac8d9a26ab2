#include "client/tensorctl/top.h"

#include <stdarg.h>
#include <string.h>

#include "proto/files/status_json.h"

/* ---- columns of the table of sessions ---- */

enum top_kind { KIND_NUMBER, KIND_PERCENT, KIND_COUNT, KIND_BYTES, KIND_DURATION, KIND_TEXT, KIND_PROGRAM };

/* ---- what a session has ---- */

static double value_id(const Tensord__SessionStatus *session) {
    return (double)session->id;
}
static double value_live(const Tensord__SessionStatus *session) {
    return (double)session->live;
}
static double value_peak(const Tensord__SessionStatus *session) {
    return (double)session->peak;
}
static double value_tensors(const Tensord__SessionStatus *session) {
    return (double)session->tensors;
}
static double value_queued(const Tensord__SessionStatus *session) {
    return (double)session->ops_queued;
}
static double value_rate(const Tensord__SessionStatus *session) {
    return session->ops_per_s;
}
static double value_done(const Tensord__SessionStatus *session) {
    return (double)session->ops_done;
}
static double value_share(const Tensord__SessionStatus *session) {
    return session->device_ratio * 100;
}
static double value_pid(const Tensord__SessionStatus *session) {
    return session->pid;
}
static double value_failed(const Tensord__SessionStatus *session) {
    double sum = 0;
    for (size_t i = 0; i < session->n_failures; i++)
        sum += (double)session->failures[i]->count;
    return sum;
}
static double value_age(const Tensord__SessionStatus *session) {
    return session->age_s;
}

static const char *text_user(const Tensord__SessionStatus *session) {
    return session->principal;
}
static const char *text_device(const Tensord__SessionStatus *session) {
    return session->device;
}
static const char *text_peer(const Tensord__SessionStatus *session) {
    return *session->host ? session->host : session->peer;
}
static const char *text_client(const Tensord__SessionStatus *session) {
    return session->client;
}
static const char *text_label(const Tensord__SessionStatus *session) {
    return session->label;
}

static const struct {
    struct top_column_info info;
    enum top_kind kind;
    double (*value)(const Tensord__SessionStatus *session);
    const char *(*text)(const Tensord__SessionStatus *session);
} top_columns[TOP_COLUMNS] = {
    [TOP_ID] = {{"ID", 'I', 6, 14, true}, KIND_NUMBER, .value = value_id},
    [TOP_USER] = {{"USER", 'U', 9, 12}, KIND_TEXT, .text = text_user},
    [TOP_DEVICE] = {{"DEVICE", 'V', 8, 10}, KIND_TEXT, .text = text_device},
    [TOP_LIVE] = {{"LIVE", 'L', 8, 13, true}, KIND_BYTES, .value = value_live},
    [TOP_PEAK] = {{"PEAK", 'P', 8, 5, true}, KIND_BYTES, .value = value_peak},
    [TOP_TENSORS] = {{"TENSORS", 'T', 9, 4, true}, KIND_COUNT, .value = value_tensors},
    [TOP_QUEUED] = {{"QUEUED", 'W', 8, 9, true}, KIND_COUNT, .value = value_queued},
    [TOP_SHARE] = {{"TIME", 'M', 6, 15, true}, KIND_PERCENT, .value = value_share},
    [TOP_RATE] = {{"OP/S", 'O', 6, 11, true}, KIND_COUNT, .value = value_rate},
    [TOP_DONE] = {{"DONE", 'D', 6, 6, true}, KIND_COUNT, .value = value_done},
    [TOP_FAILED] = {{"FAILED", 'F', 8, 3, true}, KIND_COUNT, .value = value_failed},
    [TOP_AGE] = {{"AGE", 'A', 8, 7, true}, KIND_DURATION, .value = value_age},
    [TOP_PID] = {{"PID", 'N', 7, 2, true}, KIND_NUMBER, .value = value_pid},
    [TOP_PEER] = {{"FROM", 'E', 15, 1}, KIND_TEXT, .text = text_peer},
    [TOP_CLIENT] = {{"PROGRAM", 'C', 14, 8}, KIND_PROGRAM, .text = text_client},
    [TOP_LABEL] = {{"LABEL", 'B', 0, 2}, KIND_TEXT, .text = text_label},
};

const struct top_column_info *top_column_info(enum top_column column) {
    return &top_columns[column].info;
}

void top_column_text(const Tensord__SessionStatus *session, enum top_column column, char text[TABLE_CELL_MAX]) {
    double value = top_columns[column].value ? top_columns[column].value(session) : 0;
    char unit[TEXT_UNIT_MAX];
    switch (top_columns[column].kind) {
    case KIND_NUMBER:
        snprintf(text, TABLE_CELL_MAX, "%.0f", value);
        return;
    case KIND_PERCENT:
        snprintf(text, TABLE_CELL_MAX, "%.0f%%", value);
        return;
    case KIND_COUNT:
        snprintf(text, TABLE_CELL_MAX, "%s", text_count(unit, value));
        return;
    case KIND_BYTES:
        snprintf(text, TABLE_CELL_MAX, "%s", text_bytes(unit, value));
        return;
    case KIND_DURATION:
        snprintf(text, TABLE_CELL_MAX, "%s", text_duration(unit, value));
        return;
    case KIND_PROGRAM:
        figures_program(session->client, text, TABLE_CELL_MAX);
        return;
    case KIND_TEXT:
        text_fit(text, TABLE_CELL_MAX, top_columns[column].text(session), TABLE_CELL_MAX / 4);
        return;
    }
}

/* The largest number first, texts in alphabetical order; equal values by the session's number. */
int top_column_compare(const Tensord__SessionStatus *a, const Tensord__SessionStatus *b, enum top_column column) {
    int order = 0;
    if (top_columns[column].text) {
        order = strcmp(top_columns[column].text(a), top_columns[column].text(b));
    } else {
        double x = top_columns[column].value(a), y = top_columns[column].value(b);
        order = x > y ? -1 : x < y;
    }
    return order ? order : a->id < b->id ? -1 : a->id > b->id;
}

/* ---- the pen ---- */

enum {
    DRAW_WIDE = 110,     /* with so many columns a device has one line */
    DRAW_PAGE_LEAST = 5, /* with room for fewer sessions, no line is taken from them */
    DRAW_TEXT_MAX = 512,
    DRAW_FIELD_MAX = 128,
    DRAW_BAR_MAX = 24,
};

/* Where the next text goes. */
struct pen {
    const struct top_canvas *canvas;
    unsigned row, column;
};

static void pen_put(struct pen *pen, enum top_style style, const char *text) {
    char safe[DRAW_TEXT_MAX];
    if (pen->row >= pen->canvas->rows || pen->column >= pen->canvas->columns)
        return;
    unsigned width = text_fit(safe, sizeof safe, text, pen->canvas->columns - pen->column);
    if (width)
        pen->canvas->put(pen->canvas->owner, pen->row, pen->column, style, safe);
    pen->column += width;
}

__attribute__((format(printf, 3, 4))) static void pen_print(struct pen *pen, enum top_style style, const char *format,
                                                            ...) {
    char text[DRAW_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pen_put(pen, style, text);
}

static void pen_line(struct pen *pen) {
    pen->row++;
    pen->column = 0;
}

/* Puts a text into a field of this width, and a space behind it. */
static void pen_field(struct pen *pen, enum top_style style, const char *text, unsigned width, bool right) {
    char line[DRAW_TEXT_MAX + DRAW_FIELD_MAX], cell[DRAW_TEXT_MAX];
    if (width >= DRAW_FIELD_MAX)
        width = DRAW_FIELD_MAX - 1;
    size_t fill = width - text_fit(cell, sizeof cell, text, width), bytes = strlen(cell), before = right ? fill : 0;
    memset(line, ' ', sizeof line);
    memcpy(line + before, cell, bytes);
    line[bytes + fill + 1] = 0;
    pen_put(pen, style, line);
}

/* ---- devices ---- */

static double reading(const Tensord__Reading *reading, double otherwise) {
    return reading ? (double)reading->value : otherwise;
}

/* "[####==oo....]": '#' is in tensors, '=' is reserved by the pool and unused, 'o' is used by other processes, '.' is free. */
static void draw_memory_bar(struct pen *pen, const Tensord__DeviceStatus *device, unsigned width) {
    const Tensord__DeviceReadings *readings = device->readings;
    double others = readings ? reading(readings->memory_others, 0) : 0;
    double total =
        readings ? reading(readings->memory_total, (double)device->memory_total) : (double)device->memory_total;
    char bar[DRAW_BAR_MAX + 1];
    if (!(total > 0))
        total = 1;
    double live = (double)device->memory_live / total * width, kept = (double)device->memory_reserved / total * width,
           end = kept + others / total * width;
    if (live > 0 && live < 1)
        live = 1; /* any live memory shows */
    for (unsigned i = 0; i < width; i++)
        bar[i] = i + 0.5 < live ? '#' : i + 0.5 < kept ? '=' : i + 0.5 < end ? 'o' : '.';
    bar[width] = 0;
    pen_put(pen, TOP_PLAIN, "[");
    pen_put(pen, TOP_BAR, bar);
    pen_put(pen, TOP_PLAIN, "] ");
}

static void draw_load_bar(struct pen *pen, double percent, unsigned width) {
    char bar[DRAW_BAR_MAX + 1];
    for (unsigned i = 0; i < width; i++)
        bar[i] = i + 0.5 < percent / 100 * width ? '#' : '.';
    bar[width] = 0;
    pen_put(pen, TOP_PLAIN, "[");
    pen_put(pen, TOP_BAR, bar);
    pen_print(pen, TOP_PLAIN, "] %3.0f%% ", percent);
}

static void draw_memory(struct pen *pen, const Tensord__DeviceStatus *device, unsigned width) {
    char live[TEXT_UNIT_MAX], total[TEXT_UNIT_MAX], text[2 * TEXT_UNIT_MAX + 4];
    draw_memory_bar(pen, device, width);
    snprintf(text, sizeof text, "%s/%s", text_bytes(live, (double)device->memory_live),
             text_bytes(total, (double)device->memory_total));
    pen_field(pen, TOP_PLAIN, text, 17, true);
}

/* Readings of NVML; nothing for a CPU. */
static void draw_readings(struct pen *pen, const Tensord__DeviceStatus *device, unsigned width) {
    const Tensord__DeviceReadings *readings = device->readings;
    if (!readings)
        return;
    if (readings->utilisation_gpu) {
        pen_put(pen, TOP_PLAIN, "gpu ");
        draw_load_bar(pen, reading(readings->utilisation_gpu, 0), width);
    }
    if (readings->temperature)
        pen_print(pen, TOP_PLAIN, "%.0f°C ", reading(readings->temperature, 0));
    if (readings->power_draw)
        pen_print(pen, TOP_PLAIN, "%.0f W ", reading(readings->power_draw, 0) / 1e3);
}

/* "▁▁▃█": how busy the device was at the last refreshes. */
static void draw_trail(struct pen *pen, const struct top_trail *trail) {
    static const char *const sparks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    char line[TOP_TRAIL * 3 + 1] = "";
    for (int i = 0; i < TOP_TRAIL; i++) {
        double busy = trail->busy[i] > 1 ? 1 : trail->busy[i] > 0 ? trail->busy[i] : 0;
        int level = (int)(busy * 8 + 0.5);
        strcat(line, sparks[level || busy < 0.005 ? level : 1]);
    }
    pen_put(pen, TOP_BAR, line);
    pen_put(pen, TOP_PLAIN, " ");
}

static void draw_work(struct pen *pen, const Tensord__DeviceStatus *device) {
    char rate[TEXT_UNIT_MAX], queue[TEXT_UNIT_MAX], age[TEXT_UNIT_MAX];
    pen_print(pen, TOP_PLAIN, "busy %3.0f%% %s op/s %s queued", device->busy_ratio * 100,
              text_count(rate, device->ops_per_s), text_count(queue, (double)device->queue_depth));
    if (device->stalled_s >= 1)
        pen_print(pen, TOP_WARNING, " stalled for %s", text_duration(age, device->stalled_s));
    if (device->names_unsaved)
        pen_print(pen, *device->names_save_fault ? TOP_WARNING : TOP_PLAIN, " %s name%s unsaved for %s",
                  text_count(queue, (double)device->names_unsaved), device->names_unsaved == 1 ? "" : "s",
                  text_duration(age, device->names_unsaved_s));
}

/* Only as a whole: a number that is cut would be another number. */
static void draw_worker(struct pen *pen, const Tensord__DeviceStatus *device) {
    char text[4 * TEXT_UNIT_MAX], memory[TEXT_UNIT_MAX], cpu[TEXT_UNIT_MAX];
    if (!device->worker_pid)
        return;
    snprintf(text, sizeof text, "  worker %s, cpu %s", text_bytes(memory, (double)device->worker_memory),
             text_duration(cpu, device->worker_cpu_s));
    if (pen->column + text_width(text) <= pen->canvas->columns)
        pen_put(pen, TOP_PLAIN, text);
}

/* The last failure of the device, on a line of its own, or behind the rest of its line. */
static void draw_fault(struct pen *pen, const Tensord__DeviceStatus *device, bool apart) {
    char age[TEXT_UNIT_MAX];
    if (*device->last_fault)
        pen_print(pen, TOP_WARNING, "  fault %s ago: %s", text_duration(age, device->last_fault_age_s),
                  device->last_fault);
    if (*device->last_fault && apart)
        pen_line(pen);
}

static void draw_device(struct pen *pen, const struct top *top, size_t number, unsigned lines, bool fault_apart) {
    const Tensord__DeviceStatus *device = top->status->devices[number];
    static const Tensord__Device unknown = TENSORD__DEVICE__INIT;
    const Tensord__Device *about = device->device ? device->device : &unknown;
    unsigned columns = pen->canvas->columns, bar = columns >= 70 ? DRAW_BAR_MAX : columns >= 50 ? 12 : 6;
    bool well = strcmp(about->state, "ready") == 0;
    pen_field(pen, TOP_BOLD, about->name, columns >= 50 ? 8 : 7, false);
    if (lines == 1) {
        if (!well)
            pen_field(pen, TOP_WARNING, about->state, 11, false);
        draw_memory(pen, device, columns >= DRAW_WIDE ? DRAW_BAR_MAX : bar);
        draw_readings(pen, device, 10);
        if (columns >= DRAW_WIDE)
            draw_trail(pen, &top->trails[number]);
        draw_work(pen, device);
        if (!fault_apart)
            draw_fault(pen, device, false);
        draw_worker(pen, device);
        pen_line(pen);
        if (fault_apart)
            draw_fault(pen, device, true);
        return;
    }
    pen_field(pen, well ? TOP_PLAIN : TOP_WARNING, about->state, 11, false);
    draw_work(pen, device);
    pen_print(pen, TOP_PLAIN, "  %s", about->model);
    pen_line(pen);
    pen_put(pen, TOP_PLAIN, columns >= 50 ? "  mem " : "");
    draw_memory(pen, device, bar);
    draw_readings(pen, device, 10);
    draw_worker(pen, device);
    pen_line(pen);
    draw_fault(pen, device, true);
}

/* Draws the devices, in at most half of the screen; if there are too many, the ones from first_device on. */
static void draw_devices(struct pen *pen, struct top *top) {
    size_t count = top->status->n_devices, room = pen->canvas->rows > 3 ? (pen->canvas->rows - 2) / 2 : 0;
    size_t faults = 0;
    for (size_t i = 0; i < count; i++)
        faults += *top->status->devices[i]->last_fault != 0;
    unsigned lines = pen->canvas->columns >= DRAW_WIDE || count * 2 + faults > room ? 1 : 2;
    bool all = count * lines <= room, fault_apart = count * lines + faults <= room;
    size_t shown = all ? count : room > 1 ? room - 1 : 0;
    if (all || top->first_device >= count)
        top->first_device = 0;
    for (size_t i = 0; i < shown; i++)
        draw_device(pen, top, (top->first_device + i) % count, lines, fault_apart);
    if (!all && room) {
        pen_print(pen, TOP_PLAIN, "%zu more device%s: d", count - shown, count - shown == 1 ? "" : "s");
        pen_line(pen);
    }
}

/* ---- sessions ---- */

struct draw_layout {
    bool shown[TOP_COLUMNS];
    unsigned width[TOP_COLUMNS];
};

/* Drops the least important columns until a line has room for the others. The column that sorts the sessions stays. */
static void draw_lay_out(const struct top *top, unsigned columns, struct draw_layout *layout) {
    unsigned sum = 0;
    for (unsigned i = 0; i < TOP_COLUMNS; i++) {
        layout->shown[i] = true;
        layout->width[i] = top_column_info(i)->width ? top_column_info(i)->width : 8;
        sum += layout->width[i] + 1;
    }
    for (unsigned importance = 1; sum > columns && importance < TOP_COLUMNS; importance++)
        for (unsigned i = 0; i < TOP_COLUMNS; i++)
            if (top_column_info(i)->important == importance && i != (unsigned)top->sort) {
                layout->shown[i] = false;
                sum -= layout->width[i] + 1;
            }
    if (layout->shown[TOP_LABEL] && columns > sum)
        layout->width[TOP_LABEL] += columns - sum;
}

static void draw_titles(struct pen *pen, const struct top *top, const struct draw_layout *layout) {
    char title[32];
    for (unsigned i = 0; i < TOP_COLUMNS; i++) {
        const struct top_column_info *info = top_column_info(i);
        bool sorts = i == (unsigned)top->sort;
        snprintf(title, sizeof title, "%s%s", info->title, !sorts ? "" : top->reverse ? " ▲" : " ▼");
        if (layout->shown[i])
            pen_field(pen, sorts ? TOP_SELECTED : TOP_TITLES, title, layout->width[i], info->right);
    }
    pen_line(pen);
}

static void draw_session(struct pen *pen, const struct top *top, const Tensord__SessionStatus *session,
                         const struct draw_layout *layout) {
    enum top_style style = session->id == top->selected && !top->batch ? TOP_SELECTED : TOP_PLAIN;
    char cell[TABLE_CELL_MAX];
    for (unsigned i = 0; i < TOP_COLUMNS; i++) {
        if (!layout->shown[i])
            continue;
        top_column_text(session, i, cell);
        pen_field(pen, style, cell, layout->width[i], top_column_info(i)->right);
    }
    pen_line(pen);
}

/* The session whose last failure a screen shows: the selected one, or the first one that has any. NULL: none has. */
static const Tensord__SessionStatus *draw_failed(const struct top *top) {
    const Tensord__SessionStatus *found = NULL;
    for (size_t i = 0; i < top->status->n_sessions; i++) {
        const Tensord__SessionStatus *session = top->status->sessions[i];
        if (*session->last_failure && (!found || session->id == top->selected))
            found = session;
    }
    return found;
}

static void draw_failure(struct pen *pen, const Tensord__SessionStatus *session) {
    pen_print(pen, TOP_WARNING, "session %llu of %s failed last: %s", (unsigned long long)session->id,
              session->principal, session->last_failure);
    pen_line(pen);
}

static void draw_sessions(struct pen *pen, struct top *top) {
    size_t count = top->status->n_sessions;
    unsigned above = pen->row + 1;
    const Tensord__SessionStatus *failed = top->batch ? NULL : draw_failed(top);
    struct draw_layout layout;
    draw_lay_out(top, pen->canvas->columns, &layout);
    draw_titles(pen, top, &layout);
    top->page = pen->canvas->rows > above ? pen->canvas->rows - above : 1;
    if (failed && top->page >= DRAW_PAGE_LEAST) /* the last line is for its failure */
        top->page--;
    else
        failed = NULL;
    if (top->cursor < top->first)
        top->first = top->cursor;
    if (top->cursor >= top->first + top->page)
        top->first = top->cursor - top->page + 1;
    if (count <= top->page)
        top->first = 0;
    for (size_t i = top->first; i < count && i < top->first + top->page; i++)
        draw_session(pen, top, top->status->sessions[i], &layout);
    if (!count) {
        pen_put(pen, TOP_PLAIN, "no sessions");
        pen_line(pen);
    }
    if (failed) {
        pen->row = pen->canvas->rows - 1;
        draw_failure(pen, failed);
    }
    for (size_t i = 0; top->batch && i < count; i++)
        if (*top->status->sessions[i]->last_failure)
            draw_failure(pen, top->status->sessions[i]);
}

/* ---- the rest ---- */

static void draw_help(struct pen *pen) {
    static const char *const lines[] = {
        "Up Down PgUp PgDn Home End   select a session",
        "< >   sort by the column before, after",
        "r     the other way round",
        "d     other devices, where not all have room",
        "k     end the selected session",
        "q     quit",
        "",
        "memory: # in tensors  = reserved, unused  o others'  . free",
        "Sort by:",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        pen_put(pen, TOP_PLAIN, lines[i]);
        pen_line(pen);
    }
    for (unsigned i = 0; i < TOP_COLUMNS; i++)
        pen_print(pen, TOP_PLAIN, "%s%c %s", i ? "  " : "", top_column_info(i)->key, top_column_info(i)->title);
    pen_line(pen);
}

static void draw_head(struct pen *pen, const struct top *top) {
    const Tensord__Status *status = top->status;
    char text[DRAW_TEXT_MAX] = "tensord";
    if (status)
        tensorctl_head(text, sizeof text, status);
    pen_put(pen, TOP_BOLD, text);
    pen_line(pen);
}

static void draw_foot(struct pen *pen, const struct top *top) {
    const Tensord__SessionStatus *victim = NULL;
    for (size_t i = 0; top->status && i < top->status->n_sessions; i++)
        if (top->status->sessions[i]->id == top->victim)
            victim = top->status->sessions[i];
    if (top->mode == TOP_CONFIRM)
        pen_print(pen, TOP_WARNING, "End session %llu of %s (%s)? y/n ", (unsigned long long)top->victim,
                  victim ? victim->principal : "?", victim ? victim->client : "?");
    else if (*top->trouble)
        pen_print(pen, TOP_WARNING, "%s", top->trouble);
    else if (*top->message)
        pen_put(pen, TOP_PLAIN, top->message);
    else
        pen_put(pen, TOP_TITLES, "q quit  k kill  < > r sort  h help");
}

void top_draw(struct top *top, const struct top_canvas *canvas) {
    bool foot = !top->batch && canvas->rows > 1; /* the last line is for the foot alone */
    struct top_canvas above = {canvas->rows - foot, canvas->columns, canvas->put, canvas->owner};
    struct pen pen = {.canvas = &above}, last = {.canvas = canvas, .row = canvas->rows - 1};
    draw_head(&pen, top);
    if (top->mode == TOP_HELP) {
        draw_help(&pen);
    } else if (top->status) {
        draw_devices(&pen, top);
        draw_sessions(&pen, top);
    }
    if (foot)
        draw_foot(&last, top);
}
