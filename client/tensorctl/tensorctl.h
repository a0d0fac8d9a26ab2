/* What tensorctl shows: the daemon's messages as text, and functions for texts and tables. One thread; no function keeps a
 * pointer after its call. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/wire/tensord.pb-c.h"

enum tensorctl_view { TENSORCTL_STATUS, TENSORCTL_DEVICES, TENSORCTL_SESSIONS, TENSORCTL_PROGRAMS };

/* For people: lines that fit text_columns(), with units. */
void tensorctl_status_write(FILE *out, const Tensord__Status *status, enum tensorctl_view view);
/* For programs: one JSON value and a newline, over several indented lines if `pretty`. Bytes are integers. */
void tensorctl_json_write(FILE *out, const Tensord__Status *status, enum tensorctl_view view, bool pretty);
/* The table of operations and what each device has of it; as JSON: status_json_write_operations(). */
void tensorctl_operations_write(FILE *out, const Tensord__OperationList *list);
/* "tensord 0.1.0, up 2.2 s, 1 device, 1 session" */
void tensorctl_head(char *text, size_t size, const Tensord__Status *status);
/* One device as a block of lines, and all devices as a table. */
void tensorctl_device_write(FILE *out, const Tensord__DeviceStatus *device);
void tensorctl_devices_write(FILE *out, const Tensord__Status *status);
/* The sessions' recorded programs, as a table. */
void tensorctl_programs_write(FILE *out, const Tensord__Status *status);
/* The limits that were met, and how often, after `head`; nothing if there are none. */
void tensorctl_limits_write(FILE *out, const char *head, Tensord__LimitCount *const *limits, size_t n);

/* ---- contracts: what each operation of this version takes and gives, generated from proto/ops/ ---- */

/* The members are texts; a list has "; " between its entries, and an empty list is "". */
struct operation_contract {
    const char *name;
    unsigned number;
    const char *family, *since;
    const char *prototypes;
    const char *inputs, *outputs, *attributes;
    const char *dtypes, *result;
    const char *derivative;
    const char *cost;
    const char *contract;
};
extern const struct operation_contract operation_contracts[];
extern const size_t operation_contracts_count;

struct fault;
/* Writes the contracts of these operations, for people or as a JSON array. STATUS_INVALID_ARGUMENT for an unknown name. */
int tensorctl_contracts_write(FILE *out, const char *const names[], int n_names, bool json, struct fault *fault);

/* ---- advice (tensorctl_advice.c) ---- */

/* Nobody listens at the URL. Tells the user how to start a daemon, if the socket is on this host and the user may start one.
 * `root` is what stands before the folders in which a service is looked for: "", but in tests. */
void tensorctl_advice_write(FILE *out, const char *url, const char *root);

/* ---- traces ---- */

struct control;
struct trace_wish {
    double seconds;
    uint64_t session; /* only this session; 0: all */
    const char *path; /* "-": standard output */
};
/* Records what runs on these devices (none named: all that are ready) for some seconds, and writes a file for Perfetto. */
int tensorctl_trace(struct control *control, const char *url, const struct trace_wish *wish,
                    const char *const devices[], int n_devices, struct fault *fault);

/* ---- text (tensorctl_text.c). Nothing depends on the locale: all text is UTF-8. ---- */

enum { TEXT_COLUMNS = 80, TEXT_COLUMNS_LEAST = 40, TEXT_UNIT_MAX = 32 };

/* How wide lines may be: TEXT_COLUMNS, until text_columns_find() has found out where they go. On a terminal it is the
 * terminal's width. In a pipe or a file lines are neither cut nor broken. */
unsigned text_columns(void);
void text_columns_find(int fd);
void text_columns_set(unsigned columns);

/* Copies `text` to `out` so that it is safe to show and at most `columns` wide: control characters become '?', and "…"
 * replaces the part that does not fit. Returns the width. */
unsigned text_fit(char *out, size_t size, const char *text, unsigned columns);
unsigned text_width(const char *text);
/* Prints one line, cut at text_columns(). */
void text_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints `text`, broken at spaces into lines of text_columns(). The first line begins with `head` (short, ASCII), the others
 * are indented by as many columns. */
void text_wrap(FILE *out, const char *head, const char *text);

/* These write to `out` and return it: "12.5 MiB", "3.2 min", "1.23M" (units of thousands: k, M, G). */
const char *text_bytes(char out[TEXT_UNIT_MAX], double bytes);
const char *text_duration(char out[TEXT_UNIT_MAX], double seconds);
const char *text_count(char out[TEXT_UNIT_MAX], double count);

/* A table whose columns are as wide as their cells need. If the line is too short for that, the widest flexible columns shrink;
 * if that is not enough, the columns that matter least are left out. */
enum { TABLE_COLUMNS_MAX = 16, TABLE_CELL_MAX = 96 };

struct table_column {
    const char *title;
    bool right;     /* aligned to the right */
    bool flexible;  /* its cells may be cut */
    unsigned spare; /* the column may be left out, the one with the greatest number first; 0: never */
};
struct table {
    const struct table_column *columns; /* borrowed */
    unsigned n_columns, gap;
    size_t n_rows;
    char **cells; /* [n_rows][n_columns]; NULL: empty */
    unsigned widths[TABLE_COLUMNS_MAX];
    bool hidden[TABLE_COLUMNS_MAX];
};

/* All cells are empty at first. False out of memory. */
bool table_init(struct table *table, const struct table_column *columns, unsigned n_columns, size_t n_rows);
void table_finish(struct table *table);
void table_set(struct table *table, size_t row, unsigned column, const char *text);
/* Fixes the widths and prints the titles; then rows are printed in any order. */
void table_head(struct table *table, FILE *out);
void table_row(const struct table *table, size_t row, FILE *out);
/* Prints the titles and all rows, and finishes the table. */
void table_write(struct table *table, FILE *out);
