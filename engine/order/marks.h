/* Marks: how far a stream has come on a device whose launches run later, event by event. Under the order's lock. */
#pragma once

#include <stdint.h>

struct device_event;
struct record;

/* The records that were put on the device between two events: if the device gets stuck, an error names them. The records stay
 * as long as the event does. */
struct stream_span {
    const struct record *first, *last; /* launches */
    const struct record *wait;         /* the last wait for another stream */
    unsigned launches;
    uint64_t weight;
};

/* Records up to `number` have run when the event is reached. */
struct stream_mark {
    struct device_event *event; /* NULL: none of them is on the device */
    uint64_t number;
    struct stream_span span;
    uint64_t began_ns;      /* when the first of it was put on the device */
    uint32_t sample_weight; /* it is one launch, whose time is taken, and stands for so many; 0: it is none */
};

enum { STREAM_MARKS = 64 };

/* A ring. The reaper removes the oldest mark when its records have run. */
struct stream_marks {
    struct stream_mark ring[STREAM_MARKS];
    unsigned first, count;
};

/* The oldest mark is number 0. Its place is there when there is no mark, too. */
static inline const struct stream_mark *marks_at(const struct stream_marks *marks, unsigned i) {
    return &marks->ring[(marks->first + i) % STREAM_MARKS];
}

/* There must be room. */
static inline void marks_add(struct stream_marks *marks, const struct stream_mark *mark) {
    marks->ring[(marks->first + marks->count++) % STREAM_MARKS] = *mark;
}

/* The oldest one. */
static inline void marks_drop(struct stream_marks *marks) {
    marks->first = (marks->first + 1) % STREAM_MARKS;
    marks->count--;
}
