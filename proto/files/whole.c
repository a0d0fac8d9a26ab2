#include "proto/files/whole.h"

#include <errno.h>
#include <unistd.h>

bool whole_write(int fd, const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t written = write(fd, (const char *)data + done, bytes - done);
        if (written < 0 && errno != EINTR)
            return false;
        done += written > 0 ? (size_t)written : 0;
    }
    return true;
}

bool whole_read(int fd, void *to, size_t bytes, uint64_t at) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got ? errno : 0;
            return false;
        }
        done += (size_t)got;
    }
    return true;
}
