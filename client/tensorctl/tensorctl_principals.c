#include <inttypes.h>
#include <string.h>

#include "client/tensorctl/tensorctl.h"

/* "3/64", or "3" where there is no limit. */
static const char *principals_of(char out[2 * TEXT_UNIT_MAX], const char *used, const char *limit, uint64_t of) {
    snprintf(out, 2 * TEXT_UNIT_MAX, "%s%s%s", used, of ? "/" : "", of ? limit : "");
    return out;
}

static const char *principals_counts(char out[2 * TEXT_UNIT_MAX], uint64_t used, uint64_t limit) {
    char a[TEXT_UNIT_MAX], b[TEXT_UNIT_MAX];
    return principals_of(out, text_count(a, (double)used), text_count(b, (double)limit), limit);
}

static const char *principals_bytes(char out[2 * TEXT_UNIT_MAX], uint64_t used, uint64_t limit) {
    char a[TEXT_UNIT_MAX], b[TEXT_UNIT_MAX];
    return principals_of(out, text_bytes(a, (double)used), text_bytes(b, (double)limit), limit);
}

static void principals_row(struct table *table, size_t row, const Tensord__PrincipalStatus *principal,
                           const Tensord__PrincipalDevice *device) {
    char text[2 * TEXT_UNIT_MAX], rate[TEXT_UNIT_MAX];

    table_set(table, row, 0, principal->name);
    table_set(table, row, 1, principals_counts(text, principal->connections, principal->connections_limit));
    table_set(table, row, 2, principals_counts(text, principal->sessions, principal->sessions_limit));
    table_set(table, row, 3, principals_counts(text, principal->weight, 0));
    table_set(table, row, 4, device->device);
    table_set(table, row, 5, principals_bytes(text, device->live, device->live_limit));
    snprintf(text, sizeof text, "%.0f %%", device->device_ratio * 100);
    table_set(table, row, 6, text);
    table_set(table, row, 7, text_count(rate, device->ops_per_s));
    table_set(table, row, 8, principals_counts(text, device->ops_queued, device->ops_limit));
    table_set(table, row, 9, text_count(rate, (double)device->failures));
    table_set(table, row, 10, text_bytes(rate, (double)device->staging + (double)device->host_bytes));
    snprintf(text, sizeof text, "%s/s", text_bytes(rate, device->bytes_per_s));
    table_set(table, row, 11, text);
}

/* Those that only ask for a status have no row. */
void tensorctl_principals_write(FILE *out, const Tensord__Status *status) {
    static const struct table_column columns[] = {{"USER", .flexible = true},
                                                  {"CONN", .right = true, .spare = 3},
                                                  {"SESS", .right = true},
                                                  {"WEIGHT", .right = true, .spare = 4},
                                                  {"DEVICE", .flexible = true},
                                                  {"LIVE", .right = true},
                                                  {"TIME", .right = true},
                                                  {"OP/S", .right = true},
                                                  {"QUEUED", .right = true, .spare = 2},
                                                  {"FAILED", .right = true, .spare = 1},
                                                  {"HOST", .right = true, .spare = 6},
                                                  {"IN+OUT", .right = true, .spare = 5}};
    struct table table;
    size_t count = 0, row = 0;

    for (size_t i = 0; i < status->n_principals; ++i)
        count += status->principals[i]->n_devices;
    if (count == 0)
        return;
    fputc('\n', out);
    if (!table_init(&table, columns, sizeof columns / sizeof *columns, count))
        return text_line(out, "out of memory");
    for (size_t i = 0; i < status->n_principals; ++i)
        for (size_t d = 0; d < status->principals[i]->n_devices; ++d)
            principals_row(&table, row++, status->principals[i], status->principals[i]->devices[d]);
    table_head(&table, out);
    for (size_t i = 0; i < count; ++i)
        table_row(&table, i, out);
    table_finish(&table);
}

/* "principal-bytes 3, session-operations 12 (held)" */
void tensorctl_limits_write(FILE *out, const char *head, Tensord__LimitCount *const *limits, size_t n) {
    char text[1024], count[TEXT_UNIT_MAX];
    size_t used = 0;

    for (size_t i = 0; i < n && used < sizeof text / 2; ++i)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.64s %s%s", i ? ", " : "", limits[i]->key,
                                 text_count(count, (double)limits[i]->count), limits[i]->held ? " (held)" : "");
    if (used > 0)
        text_wrap(out, head, text);
}
