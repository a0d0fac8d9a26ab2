#include "server/process/state_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int state_directory_check(const char *directory, struct fault *fault) {
    struct stat stat_now;
    if (stat(directory, &stat_now) || !S_ISDIR(stat_now.st_mode))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "state-dir: %.150s is no directory", directory);
    if (stat_now.st_uid != geteuid())
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "state-dir: %.150s belongs to uid %u, not to the daemon's, %u",
                         directory, stat_now.st_uid, geteuid());
    if (stat_now.st_mode & 077)
        return fault_set(
            fault, STATUS_INVALID_ARGUMENT,
            "state-dir: %.120s has mode %04o, and holds users' data: nobody else may look into it (chmod 700)",
            directory, stat_now.st_mode & 07777);
    if (access(directory, R_OK | W_OK | X_OK))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "state-dir: %.150s: %s", directory, strerror(errno));
    return STATUS_OK;
}

int state_directory_take(const char *directory, struct fault *fault) {
    if (mkdir(directory, 0700) && errno != EEXIST)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "state-dir: %.150s: %s", directory, strerror(errno));
    int error = state_directory_check(directory, fault);
    if (error != STATUS_OK)
        return error;
    char path[STATE_PATH_MAX + sizeof "/.lock"];
    snprintf(path, sizeof path, "%s/.lock", directory); /* not the folder itself, which `tensord user` locks */
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "state-dir: %.150s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return STATUS_OK; /* the descriptor stays open for as long as the process lives */
    error = fault_set(fault, STATUS_INVALID_ARGUMENT, "state-dir: %.150s: %s", directory,
                      errno == EWOULDBLOCK ? "another tensord has it" : strerror(errno));
    close(fd);
    return error;
}
