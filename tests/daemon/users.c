#include "tests/daemon/users.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/command.h"
#include "tests/daemon/deadline.h"

enum { RUN_MS = 30000, WORDS_MAX = 16 };

void users_file_make(struct users_file *file) {
    daemon_directory_make(file->directory);
    snprintf(file->path, sizeof file->path, "%s/users", file->directory);
    users_file_write(file, "# of a test\n");
}

void users_file_remove(struct users_file *file) {
    daemon_directory_remove(file->directory);
}

void users_file_run(const struct users_file *file, const char *const words[], char out[USERS_TOKEN_BYTES]) {
    const char *arguments[WORDS_MAX] = {daemon_program("TENSORD_EXE"), "user"};
    struct command command;
    size_t n = 2;
    while (*words && n < WORDS_MAX - 3)
        arguments[n++] = *words++;
    arguments[n++] = "--users";
    arguments[n++] = file->path;
    command_run(&command, arguments, NULL, RUN_MS);
    cr_assert_eq(command.code, 0, "tensord user %s: %s", arguments[2], command.err);
    if (out)
        snprintf(out, USERS_TOKEN_BYTES, "%.*s", (int)strcspn(command.out, "\n"), command.out);
    command_finish(&command);
}

void users_file_add(const struct users_file *file, const char *name, const char *role, char token[USERS_TOKEN_BYTES]) {
    USERS_RUN(file, token, "add", name, "--role", role);
    cr_assert(!strncmp(token, "tensord_", 8), "no token was printed: \"%s\"", token);
}

void users_file_write(const struct users_file *file, const char *text) {
    int fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

const char *users_token_id(const char *token) {
    static char id[9];
    snprintf(id, sizeof id, "%.8s", token + 8);
    return id;
}

void users_token_spoil(const char *token, char spoilt[USERS_TOKEN_BYTES]) {
    snprintf(spoilt, USERS_TOKEN_BYTES, "%s", token);
    char *last = spoilt + strlen(spoilt) - 1;
    *last = *last == '0' ? '1' : '0';
}

void users_reload(const struct daemon *daemon, const char *event, unsigned times) {
    int64_t deadline = deadline_in(RUN_MS);
    char wanted[64];
    unsigned seen;
    snprintf(wanted, sizeof wanted, "event=%s ", event);
    kill(daemon->pid, SIGHUP);
    do {
        char *log = daemon_log(daemon);
        seen = 0;
        for (const char *at = log; (at = strstr(at, wanted)); at++)
            seen++;
        free(log);
    } while (seen < times && deadline_pause(deadline));
    cr_assert_eq(seen, times, "%s was logged %u times", event, seen);
}

int users_hello(struct wire *wire, const char *token, char *message) {
    Tensord__Hello hello = TENSORD__HELLO__INIT;
    struct wire_frame frame;
    hello.version_min = PROTOCOL_VERSION_MIN;
    hello.version_max = PROTOCOL_VERSION_MAX;
    hello.client = "tests 1";
    hello.token = (char *)token;
    if (!wire_request(wire, FRAME_HELLO, &hello) || wire_receive(wire, &frame, WIRE_TIMEOUT_MS) != WIRE_FRAME)
        return -1;
    int code = frame.header.type == FRAME_WELCOME ? STATUS_OK : -1;
    if (frame.header.type == FRAME_ERROR) {
        Tensord__Error *error = tensord__error__unpack(NULL, frame.header.message_bytes, frame.message);
        cr_assert_not_null(error);
        code = (int)error->code;
        if (message)
            snprintf(message, 256, "%s", error->message);
        tensord__error__free_unpacked(error, NULL);
    }
    wire_frame_finish(&frame);
    return code;
}

int users_open(struct wire *wire, const char *url, uint16_t target, const char *token, char *message) {
    wire_connect(wire, url, target);
    int code = users_hello(wire, token, message);
    if (code)
        wire_close(wire);
    return code;
}
