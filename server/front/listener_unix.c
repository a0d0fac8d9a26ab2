#include "server/front/listener_unix.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/process/log.h"

static int listener_unix_refuse(struct fault *fault, const char *path, const char *what, int error) {
    return fault_set(fault, STATUS_CONNECTION, "unix:%s: %s: %s", path, what, strerror(error));
}

enum { LISTENER_LOCK_TRIES = 100, LISTENER_LOCK_PAUSE_MS = 10 };

/* Two daemons that start at once must not both take the same socket for a dead one's. But whoever may read a directory
 * can lock it, and must not keep the daemon from starting: after a second it does without. flock() knows no time limit.
 */
static int listener_unix_lock_directory(int fd) {
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB); tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return errno;
        if (tries == LISTENER_LOCK_TRIES) {
            log_event(LOG_LEVEL_WARNING, "lock_ignored", "cause", "another process keeps the directory locked", NULL);
            return 0;
        }
        poll(NULL, 0, LISTENER_LOCK_PAUSE_MS);
    }
    return 0;
}

static int listener_unix_lock(const char *path, int *lock, struct fault *fault) {
    char directory[128];
    const char *slash = strrchr(path, '/');
    int length = slash && slash != path ? (int)(slash - path) : 1;
    snprintf(directory, sizeof directory, "%.*s", length, path);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return listener_unix_refuse(fault, path, directory, errno);
    int error = listener_unix_lock_directory(fd);
    if (error) {
        close(fd);
        return listener_unix_refuse(fault, path, "cannot lock its directory", error);
    }
    *lock = fd;
    return STATUS_OK;
}

/* A socket that refuses connections is a dead daemon's. */
static bool listener_unix_is_dead(const struct sockaddr_un *address) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    int failed = connect(fd, (const struct sockaddr *)address, sizeof *address);
    bool dead = failed && errno == ECONNREFUSED;
    close(fd);
    return dead;
}

static int listener_unix_clear(const struct sockaddr_un *address, struct fault *fault) {
    struct stat file;
    const char *path = address->sun_path;
    if (lstat(path, &file))
        return errno == ENOENT ? STATUS_OK : listener_unix_refuse(fault, path, "cannot look at it", errno);
    if (!S_ISSOCK(file.st_mode))
        return fault_set(fault, STATUS_CONNECTION, "unix:%s: the file there is no socket", path);
    if (!listener_unix_is_dead(address))
        return fault_set(fault, STATUS_CONNECTION, "unix:%s: already running: another process listens there", path);
    if (unlink(path) && errno != ENOENT)
        return listener_unix_refuse(fault, path, "cannot remove the socket of a dead daemon", errno);
    return STATUS_OK;
}

static int listener_unix_make(const struct sockaddr_un *address, mode_t mode, int *result, struct stat *file,
                              struct fault *fault) {
    const char *path = address->sun_path;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return listener_unix_refuse(fault, path, "socket", errno);
    /* The file must not be open to more than `mode` allows, not even for a moment. */
    mode_t before = umask(0777);
    int failed = bind(fd, (const struct sockaddr *)address, sizeof *address);
    int error = errno;
    umask(before);
    if (!failed && (chmod(path, mode) || listen(fd, SOMAXCONN) || lstat(path, file))) {
        failed = -1;
        error = errno;
        unlink(path);
    }
    if (failed) {
        close(fd);
        return listener_unix_refuse(fault, path, "cannot listen there", error);
    }
    *result = fd;
    return STATUS_OK;
}

int listener_unix_bind(const char *path, mode_t mode, int *fd, struct stat *file, struct fault *fault) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int lock = -1;
    if (strlen(path) >= sizeof address.sun_path)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "unix:%s: the path is too long", path);
    memcpy(address.sun_path, path, strlen(path));
    int error = listener_unix_lock(path, &lock, fault);
    if (error)
        return error;
    error = listener_unix_clear(&address, fault);
    if (!error)
        error = listener_unix_make(&address, mode, fd, file, fault);
    close(lock);
    return error;
}
