#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/tensorctl/tensorctl.h"
#include "proto/ops/utf8.h"

enum { RUNE_ELLIPSIS = 0x2026, TEXT_UNLIMITED = 1 << 30 };

/* ---- the width ---- */

static unsigned text_width_of_lines = TEXT_COLUMNS;

unsigned text_columns(void) {
    return text_width_of_lines;
}

void text_columns_set(unsigned columns) {
    text_width_of_lines = columns < TEXT_COLUMNS_LEAST ? TEXT_COLUMNS_LEAST : columns;
}

void text_columns_find(int fd) {
    struct winsize size;
    if (!isatty(fd))
        text_columns_set(TEXT_UNLIMITED);
    else
        text_columns_set(ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : TEXT_COLUMNS);
}

/* ---- code points ---- */

struct rune_range {
    uint32_t first, last;
};

static bool rune_in(uint32_t rune, const struct rune_range *ranges, size_t count) {
    for (size_t i = 0; i < count; ++i)
        if (rune >= ranges[i].first && rune <= ranges[i].last)
            return true;
    return false;
}

/* Names come from clients: characters that could move the cursor, hide text or reverse it must not reach an operator's terminal.
 * Each is shown as one column, so that tables stay aligned. */
static uint32_t rune_shown(uint32_t rune) {
    return utf8_is_unsafe(rune) ? '?' : rune;
}

/* The columns that a character takes on a terminal. Combining characters count as 1, so a width may be too large, but never too
 * small. */
static unsigned rune_width(uint32_t rune) {
    static const struct rune_range wide[] = {
        {0x1100, 0x115f}, {0x231a, 0x231b}, {0x23e9, 0x23f3},   {0x25fd, 0x27bf},   {0x2b1b, 0x2b55},
        {0x2e80, 0xa4cf}, {0xa960, 0xa97f}, {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe10, 0xfe6f},
        {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x16fe0, 0x1b2ff}, {0x1f000, 0x1faff}, {0x20000, 0x3fffd}};
    return rune_in(rune, wide, sizeof wide / sizeof *wide) ? 2 : 1;
}

unsigned text_width(const char *text) {
    unsigned width = 0;
    while (*text)
        width += rune_width(rune_shown(utf8_next(&text)));
    return width;
}

/* ---- lines ---- */

unsigned text_fit(char *out, size_t size, const char *text, unsigned columns) {
    bool cut = text_width(text) > columns;
    unsigned width = 0, room = cut && columns ? columns - 1 : columns;
    size_t used = 0;

    while (*text && used + 4 + 3 < size) { /* room for the longest code point and the ellipsis */
        uint32_t rune = rune_shown(utf8_next(&text));
        if (width + rune_width(rune) > room)
            break;
        width += rune_width(rune);
        used += utf8_put(rune, out + used);
    }
    if (*text && width < columns && used + 4 <= size) {
        used += utf8_put(RUNE_ELLIPSIS, out + used);
        ++width;
    }
    out[used] = 0;
    return width;
}

/* The same, printed. */
static unsigned text_print(FILE *out, const char *text, unsigned columns) {
    bool cut = text_width(text) > columns;
    unsigned width = 0, room = cut && columns ? columns - 1 : columns;
    char bytes[4];

    while (*text) {
        uint32_t rune = rune_shown(utf8_next(&text));
        if (width + rune_width(rune) > room)
            break;
        width += rune_width(rune);
        fwrite(bytes, 1, utf8_put(rune, bytes), out);
    }
    if (cut && width < columns) {
        fwrite(bytes, 1, utf8_put(RUNE_ELLIPSIS, bytes), out);
        ++width;
    }
    return width;
}

void text_line(FILE *out, const char *format, ...) {
    char *text;
    va_list arguments;

    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length >= 0)
        text_print(out, text, text_columns());
    fputc('\n', out);
    if (length >= 0)
        free(text);
}

/* The end of the longest piece of `text` that is at most `columns` wide and ends before a space. If a word is longer than that,
 * the piece ends within the word. */
static const char *text_break(const char *text, unsigned columns) {
    const char *space = NULL, *next = text;

    for (unsigned width = 0; *text; text = next) {
        if (*text == ' ')
            space = text;
        width += rune_width(rune_shown(utf8_next(&next)));
        if (width > columns)
            return space ? space : text;
    }
    return text;
}

void text_wrap(FILE *out, const char *head, const char *text) {
    int indent = (int)strlen(head);

    do {
        const char *end = text_break(text, text_columns() - (unsigned)indent);
        text_line(out, "%-*s%.*s", indent, head, (int)(end - text), text);
        text = end + strspn(end, " ");
        head = "";
    } while (*text);
}

/* ---- numbers with units ---- */

/* Three digits and a unit: the first unit for which the number is below `step`, or the last unit. */
static const char *text_scaled(char out[TEXT_UNIT_MAX], double value, double step, const char *const units[],
                               int last) {
    int unit = 0;

    if (!(value > 0)) /* NaN, too */
        value = 0;
    for (; unit < last && value >= step - 0.5; ++unit)
        value /= step;
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(out, TEXT_UNIT_MAX, "%.*f%s", decimals, value, units[unit]);
    return out;
}

const char *text_bytes(char out[TEXT_UNIT_MAX], double bytes) {
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    return text_scaled(out, bytes, 1024, units, 6);
}

const char *text_count(char out[TEXT_UNIT_MAX], double count) {
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    return text_scaled(out, count, 1000, units, 6);
}

const char *text_duration(char out[TEXT_UNIT_MAX], double seconds) {
    static const struct {
        double below, unit;
        const char *name;
    } rows[] = {{1e-3, 1e-6, "µs"}, {0.9995, 1e-3, "ms"}, {119.95, 1, "s"},
                {7195, 60, "min"},  {172620, 3600, "h"},  {1e300, 86400, "d"}};
    unsigned row = 0;

    if (!(seconds > 0)) /* NaN, too */
        return strcpy(out, "0 s");
    while (seconds >= rows[row].below && row + 1 < sizeof rows / sizeof *rows)
        ++row;
    double value = seconds / rows[row].unit;
    snprintf(out, TEXT_UNIT_MAX, value >= 99.95 ? "%.0f %s" : "%.1f %s", value < 1e12 ? value : 1e12, rows[row].name);
    return out;
}

/* ---- tables ---- */

enum { TABLE_LEAST = 10 /* a flexible column stays as wide as this, as long as other columns can be left out */ };

bool table_init(struct table *table, const struct table_column *columns, unsigned n_columns, size_t n_rows) {
    *table = (struct table){.columns = columns, .n_columns = n_columns, .n_rows = n_rows};
    table->cells = calloc(n_rows * n_columns + 1, sizeof *table->cells);
    return table->cells != NULL;
}

void table_finish(struct table *table) {
    for (size_t i = 0; table->cells && i < table->n_rows * table->n_columns; ++i)
        free(table->cells[i]);
    free(table->cells);
    table->cells = NULL;
}

static const char *table_cell(const struct table *table, size_t row, unsigned column) {
    const char *cell = table->cells[row * table->n_columns + column];
    return cell ? cell : "";
}

void table_set(struct table *table, size_t row, unsigned column, const char *text) {
    char **cell = &table->cells[row * table->n_columns + column];
    free(*cell);
    *cell = strdup(text); /* out of memory the cell is empty */
}

static unsigned table_width(const struct table *table) {
    unsigned width = 0, shown = 0;
    for (unsigned i = 0; i < table->n_columns; ++i) {
        width += table->hidden[i] ? 0 : table->widths[i];
        shown += !table->hidden[i];
    }
    return width + (shown - 1) * table->gap;
}

/* Makes the widest flexible column narrower by one; false if none can shrink any more. */
static bool table_shrink(struct table *table, unsigned least) {
    unsigned *widest = NULL;
    for (unsigned i = 0; i < table->n_columns; ++i)
        if (!table->hidden[i] && table->columns[i].flexible && (!widest || table->widths[i] > *widest))
            widest = &table->widths[i];
    if (!widest || *widest <= least)
        return false;
    --*widest;
    return true;
}

/* Leaves out the column that matters least; false: no other column may be left out. */
static bool table_hide(struct table *table) {
    unsigned worst = table->n_columns;
    for (unsigned i = 0; i < table->n_columns; ++i)
        if (!table->hidden[i] && table->columns[i].spare &&
            (worst == table->n_columns || table->columns[i].spare > table->columns[worst].spare))
            worst = i;
    if (worst == table->n_columns)
        return false;
    table->hidden[worst] = true;
    return true;
}

static void table_natural(struct table *table) {
    for (unsigned i = 0; i < table->n_columns; ++i) {
        table->widths[i] = text_width(table->columns[i].title);
        for (size_t row = 0; row < table->n_rows; ++row) {
            unsigned width = text_width(table_cell(table, row, i));
            if (width > table->widths[i])
                table->widths[i] = width;
        }
    }
}

static void table_layout(struct table *table) {
    table->gap = 2;
    table_natural(table);
    if (table_width(table) > text_columns())
        table->gap = 1;
    while (table_width(table) > text_columns()) {
        if (table_shrink(table, TABLE_LEAST))
            continue;
        if (table_hide(table))
            table_natural(table); /* the other columns may have room again */
        else if (!table_shrink(table, 2))
            break;
    }
}

static void table_print(const struct table *table, const char *const cells[], FILE *out) {
    unsigned last = table->n_columns, room = text_columns();
    bool first = true;

    while (last > 0 && table->hidden[last - 1])
        last--;
    for (unsigned i = 0; i < last; ++i) {
        if (table->hidden[i])
            continue;
        unsigned gap = first ? 0 : table->gap, width = text_width(cells[i]);
        unsigned fill = table->widths[i] > width ? table->widths[i] - width : 0;
        unsigned before = gap + (table->columns[i].right ? fill : 0), after = fill + gap - before;
        first = false;
        if (before >= room) /* the line is full, whatever the cells need */
            break;
        fprintf(out, "%*s", (int)before, "");
        room -= before;
        unsigned fits = table->widths[i] < room ? table->widths[i] : room;
        room -= text_print(out, cells[i], fits);
        if (i + 1 < last && after <= room) {
            fprintf(out, "%*s", (int)after, "");
            room -= after;
        }
    }
    fputc('\n', out);
}

void table_head(struct table *table, FILE *out) {
    const char *titles[TABLE_COLUMNS_MAX];
    table_layout(table);
    for (unsigned i = 0; i < table->n_columns; ++i)
        titles[i] = table->columns[i].title;
    table_print(table, titles, out);
}

void table_row(const struct table *table, size_t row, FILE *out) {
    const char *cells[TABLE_COLUMNS_MAX];
    for (unsigned i = 0; i < table->n_columns; ++i)
        cells[i] = table_cell(table, row, i);
    table_print(table, cells, out);
}

void table_write(struct table *table, FILE *out) {
    table_head(table, out);
    for (size_t row = 0; row < table->n_rows; ++row)
        table_row(table, row, out);
    table_finish(table);
}
