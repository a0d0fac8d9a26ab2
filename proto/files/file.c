#include "proto/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/ops/cleanup.h"

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

/* ---- a file in the place of another one ---- */

static int new_file_fault(const struct new_file *file, const char *what, struct fault *fault) {
    const char *reason = strerror(errno);
    return fault_set(fault, STATUS_INVALID_ARGUMENT, "%.150s: %s%s%.60s", file->path, what, *what ? ": " : "", reason);
}

/* The length of the path's directory, with the slash. */
static size_t directory_bytes(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* umask() alone would change the mask for a moment, in which other threads make files. */
static mode_t process_umask(void) {
    char line[256];
    unsigned mask = 022;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "Umask: %o", &mask) == 1)
            break;
    if (status)
        fclose(status);
    return (mode_t)mask;
}

mode_t new_file_mode(const char *path) {
    struct stat old;
    return stat(path, &old) == 0 ? old.st_mode & 0777 : 0666 & ~process_umask();
}

int new_file_open(struct new_file *file, const char *path, mode_t mode, struct fault *fault) {
    size_t directory = directory_bytes(path);
    file->fd = -1;
    int length = snprintf(file->path, sizeof file->path, "%s", path);
    if (length < 0 || (size_t)length >= sizeof file->path - sizeof "..XXXXXX")
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "a path of %d bytes is too long", length);
    if (!path[directory])
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "\"%.150s\" is no file's path", path);
    snprintf(file->temporary, sizeof file->temporary, "%.*s.%s.XXXXXX", (int)directory, file->path,
             file->path + directory);
    file->fd = mkostemp(file->temporary, O_CLOEXEC);
    if (file->fd < 0)
        return new_file_fault(file, "", fault);
    if (fchmod(file->fd, mode)) {
        int code = new_file_fault(file, "", fault);
        new_file_abandon(file);
        return code;
    }
    return STATUS_OK;
}

int new_file_write(struct new_file *file, const void *data, size_t bytes, struct fault *fault) {
    return whole_write(file->fd, data, bytes) ? STATUS_OK : new_file_fault(file, "cannot be written", fault);
}

/* Syncs the directory, so that the rename is on the disk. */
static int sync_directory(struct new_file *file, struct fault *fault) {
    char directory[NEW_FILE_PATH_MAX];
    size_t bytes = directory_bytes(file->path);
    snprintf(directory, sizeof directory, "%.*s", bytes ? (int)bytes : 1, bytes ? file->path : ".");
    CLEANUP(close) int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) ? new_file_fault(file, "its directory", fault) : STATUS_OK;
}

int new_file_commit(struct new_file *file, struct fault *fault) {
    if (fsync(file->fd))
        return new_file_fault(file, "cannot be brought to the disk", fault);
    int fd = file->fd;
    if (rename(file->temporary, file->path))
        return new_file_fault(file, "cannot be put in its place", fault);
    file->fd = -1;
    close(fd);
    return sync_directory(file, fault);
}

void new_file_abandon(struct new_file *file) {
    if (file->fd < 0)
        return;
    close(file->fd);
    file->fd = -1;
    unlink(file->temporary);
}
