/* What a save or a load of many bytes says meanwhile, and in the end. */
#include <stdio.h>
#include <unistd.h>

#include "client/tensorctl/tensorctl.h"
#include "client/tensorctl/tensorctl_device.h"

enum { PROGRESS_LEAST_BYTES = 64 << 20, PROGRESS_STEP_BYTES = 16 << 20 };

void tensorctl_progress_add(struct tensorctl_progress *progress, size_t bytes) {
    char done[TEXT_UNIT_MAX], total[TEXT_UNIT_MAX];
    progress->done += bytes;
    if (progress->total < PROGRESS_LEAST_BYTES || progress->done - progress->shown < PROGRESS_STEP_BYTES ||
        !isatty(STDERR_FILENO))
        return;
    progress->shown = progress->done;
    fprintf(stderr, "\r%s: %s of %s, %.0f %%\033[K", progress->what, text_bytes(done, (double)progress->done),
            text_bytes(total, (double)progress->total), 100 * (double)progress->done / (double)progress->total);
    fflush(stderr);
}

void tensorctl_progress_end(struct tensorctl_progress *progress) {
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = 0;
}

void tensorctl_progress_tell(const struct tensorctl_progress *progress, size_t tensors, const char *done,
                             const char *file) {
    char bytes[TEXT_UNIT_MAX];
    printf("%zu tensor%s, %s, %s %s\n", tensors, tensors == 1 ? "" : "s", text_bytes(bytes, (double)progress->total),
           done, file);
}
