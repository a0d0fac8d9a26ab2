/* Rows of a part that are sorted one after another. */
#pragma once

#include "engine/cpu/job.h"

/* Sorts the rows of a part, of n elements each, with sort(base, row, room), and looks after rows of more than `most` elements, together, whether to
 * stop. */
static inline bool sort_rows(struct cpu_job *base, struct cpu_lane *lane, int64_t rows, int64_t n, int64_t most,
                             void sort(const struct cpu_job *base, int64_t row, char *room), char *room) {
    int64_t begin = cpu_part_begin(rows, lane->part, base->parts);
    int64_t end = cpu_part_begin(rows, lane->part + 1, base->parts), since = 0;
    for (int64_t row = begin + lane->position; row < end; row++) {
        sort(base, row, room);
        since += n;
        if (since > most && row + 1 < end && cpu_job_stops(base)) {
            lane->position = row + 1 - begin;
            return false;
        }
        since = since > most ? 0 : since;
    }
    return true;
}
