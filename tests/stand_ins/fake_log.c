#include "tests/stand_ins/fake_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void fake_log_note(struct fake_daemon *fake, const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    size_t bytes = n < (int)sizeof line ? (size_t)n : sizeof line - 1;
    pthread_mutex_lock(&fake->lock);
    while (fake->log_bytes + bytes + 1 > fake->log_capacity) {
        fake->log_capacity = fake->log_capacity ? fake->log_capacity * 2 : 4096;
        fake->log = realloc(fake->log, fake->log_capacity);
    }
    memcpy(fake->log + fake->log_bytes, line, bytes + 1);
    fake->log_bytes += bytes;
    pthread_mutex_unlock(&fake->lock);
}

char *fake_daemon_log(struct fake_daemon *fake) {
    pthread_mutex_lock(&fake->lock);
    char *copy = strdup(fake->log ? fake->log : "");
    pthread_mutex_unlock(&fake->lock);
    return copy;
}

/* Takes the lines out that say where a batch begins. */
static void drop_batches(char *log) {
    static const char line[] = "batch stream ";
    char *to = log;
    for (const char *from = log; *from;) {
        size_t bytes = strcspn(from, "\n");
        bytes += from[bytes] == '\n';
        if (strncmp(from, line, strlen(line)) != 0) {
            memmove(to, from, bytes);
            to += bytes;
        }
        from += bytes;
    }
    *to = 0;
}

/* Where a batch begins depends on how fast the client's thread is that sends. */
static bool log_has(char *log, const char *text) {
    char *wanted = strdup(text);
    bool found = strstr(log, text);
    drop_batches(log);
    drop_batches(wanted);
    found = found || strstr(log, wanted);
    free(wanted);
    return found;
}

bool fake_daemon_saw(struct fake_daemon *fake, const char *text) {
    for (int i = 0; i < 30000; i++) {
        char *log = fake_daemon_log(fake);
        bool found = log_has(log, text);
        free(log);
        if (found)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}
