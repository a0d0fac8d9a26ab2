/* Loaded into a daemon: counts what the disk's thread of a worker asks of the disk, and has one of these calls fail, or the
 * process die in its place. TENSORD_DISK_FAULT: "kill:7", "fail:7", the seventh of them; "hold:PATH": each of them waits for
 * as long as there is a file PATH. Thread-safe, for one thread asks. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* True: this call is to fail. */
static int disk_fault(void) {
    static int calls;
    char thread[16] = "";
    const char *how = getenv("TENSORD_DISK_FAULT");
    if (!how || prctl(PR_GET_NAME, thread) || strcmp(thread, "tensord disk") != 0)
        return 0;
    if (!strncmp(how, "hold:", 5)) {
        while (!access(how + 5, F_OK))
            usleep(1000);
        return 0;
    }
    if (++calls != atoi(how + strlen("kill:")))
        return 0;
    if (*how == 'k')
        kill(getpid(), SIGKILL);
    errno = ENOSPC;
    return 1;
}

#define NEXT(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t bytes) {
    return disk_fault() ? -1 : NEXT(write)(fd, data, bytes);
}

int fsync(int fd) {
    return disk_fault() ? -1 : NEXT(fsync)(fd);
}

int fdatasync(int fd) {
    return disk_fault() ? -1 : NEXT(fdatasync)(fd);
}

int rename(const char *from, const char *to) {
    return disk_fault() ? -1 : NEXT(rename)(from, to);
}

int unlinkat(int folder, const char *name, int flags) {
    return disk_fault() ? -1 : NEXT(unlinkat)(folder, name, flags);
}

int unlink(const char *name) {
    return disk_fault() ? -1 : NEXT(unlink)(name);
}

int rmdir(const char *name) {
    return disk_fault() ? -1 : NEXT(rmdir)(name);
}

int mkdir(const char *name, mode_t mode) {
    return disk_fault() ? -1 : NEXT(mkdir)(name, mode);
}
