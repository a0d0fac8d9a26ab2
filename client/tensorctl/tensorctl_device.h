/* tensorctl's commands that open a session on a device: those about named tensors. They speak through the client library,
 * as any program does. */
#pragma once

#include <stdbool.h>

#include "client/tensord.h"
#include "proto/ops/status.h"

struct tensorctl_device {
    const char *url; /* NULL: as td_connect() takes it */
    const char *device;
    const char *file;
    const char *const *names; /* of save; none: all */
    int n_names;
    bool replace;   /* of load */
    bool json;      /* of names and bench */
    double seconds; /* of bench, for each row; 0: not said */
    /* Of names: */
    bool all;
    const char *owner, *to; /* NULL: not said */
    const char *const *words;
    int n_words;
};

/* Each returns STATUS_OK, or a code with its words. */
int tensorctl_names(const struct tensorctl_device *about, struct fault *fault);
int tensorctl_save(const struct tensorctl_device *about, struct fault *fault);
int tensorctl_load(const struct tensorctl_device *about, struct fault *fault);
int tensorctl_bench(const struct tensorctl_device *about, struct fault *fault);

/* ---- for these commands' files ---- */

/* Opens about->device. On failure *connection is NULL, which td_close() takes. */
int tensorctl_open(const struct tensorctl_device *about, td_connection **connection, td_device **device,
                   struct fault *fault);
/* All names on the device, malloc'ed; to be freed also after a failure. */
int tensorctl_list_names(td_device *device, td_name_info **infos, size_t *count, struct fault *fault);
/* How far a transfer is, in one line of a terminal that is written over; nothing elsewhere, or where it is small. */
struct tensorctl_progress {
    const char *what; /* "saving" */
    uint64_t total, done, shown;
};
void tensorctl_progress_add(struct tensorctl_progress *progress, size_t bytes);
/* The line goes. */
void tensorctl_progress_end(struct tensorctl_progress *progress);
/* "16 tensors, 1.30 KiB, saved to FILE" */
void tensorctl_progress_tell(const struct tensorctl_progress *progress, size_t tensors, const char *done,
                             const char *file);
/* The library's last error as a fault. */
int tensorctl_library_fault(struct fault *fault);
