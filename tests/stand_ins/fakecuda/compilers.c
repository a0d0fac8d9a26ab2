#include "tests/stand_ins/fakecuda/compilers.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/deadline.h"
#include "tests/daemon/status.h"

struct compilers compilers;

void compilers_start(const char *fail, const char *const *flags) {
    daemon_start(&compilers.daemon, &(struct daemon_options){.devices = "cuda:0",
                                                             .tcp = "tcp://127.0.0.1:0",
                                                             .flags = flags,
                                                             .environment = (const char *const[]){fail, NULL}});
    client_open(&compilers.client, compilers.daemon.url, "cuda:0");
    compilers.worker = status_worker_pid(compilers.daemon.url, "cuda:0");
}
void compilers_stop(void) {
    client_close(&compilers.client);
    daemon_stop(&compilers.daemon);
}

int compilers_compile(const char *source) {
    td_kernel *kernel;
    int code = td_kernel_compile(compilers.client.device, source, "store", &kernel);
    if (!code)
        td_kernel_release(kernel);
    return code;
}

void compilers_expect(int code, int want, const char *words) {
    cr_assert_eq(code, want, "%d: %s", code, td_last_error()->message);
    cr_assert(strstr(td_last_error()->message, words), "%s", td_last_error()->message);
}

void compilers_expect_good(const char *source) {
    td_kernel *kernel;
    td_tensor *y;
    int32_t got = 0;
    cr_assert(!td_kernel_compile(compilers.client.device, source, "store", &kernel), "%s", td_last_error()->message);
    td_kernel_launch(kernel, TD_DIM(1), TD_DIM(1), 0, TD_ARGS(td_arg_out(&y, TD_I32, TD_SCALAR), td_arg_i32(4711)));
    cr_assert(!td_fetch(y, &got, sizeof got), "%s", td_last_error()->message);
    cr_assert_eq(got, 4711);
    td_kernel_release(kernel);
    td_release(y);
}

/* As good as the other one, and another one. */
static const char *another(char source[100]) {
    static unsigned n;
    snprintf(source, 100, "%s // %u", COMPILERS_GOOD, n++);
    return source;
}

void compilers_expect_unharmed(void) {
    char source[100];
    cr_assert_eq(status_worker_pid(compilers.daemon.url, "cuda:0"), compilers.worker);
    compilers_expect_good(another(source));
}

bool compilers_read_file(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    for (ssize_t i = 0; i + 1 < n; i++)
        text[i] = text[i] ? text[i] : ' ';
    return n > 0;
}

unsigned compilers_find(pid_t found[COMPILERS_MAX]) {
    char line[64], path[64], text[128];
    unsigned n = 0;
    DIR *processes = opendir("/proc");
    snprintf(line, sizeof line, "tensord compile cuda %d", compilers.worker);
    for (struct dirent *entry; (entry = readdir(processes));) {
        snprintf(path, sizeof path, "/proc/%.20s/cmdline", entry->d_name);
        if (isdigit((unsigned char)*entry->d_name) && compilers_read_file(path, text, sizeof text) &&
            !strcmp(text, line) && n < COMPILERS_MAX)
            found[n++] = atoi(entry->d_name);
    }
    closedir(processes);
    return n;
}

void compilers_expect_running(unsigned want) {
    pid_t found[COMPILERS_MAX];
    int64_t deadline = deadline_in(COMPILERS_SOON_MS);
    unsigned n;
    do
        n = compilers_find(found);
    while (n != want && deadline_pause(deadline));
    cr_assert_eq(n, want, "%u compilers, not %u", n, want);
}

void compilers_ask(struct wire *wire, uint64_t kernel, const char *source, const char *name) {
    Tensord__KernelCompile message = TENSORD__KERNEL_COMPILE__INIT;
    message.kernel = kernel;
    message.source = (char *)(uintptr_t)source;
    message.name = (char *)(uintptr_t)name;
    cr_assert(wire_request(wire, FRAME_KERNEL_COMPILE, &message));
}

int compilers_answered(struct wire *wire) {
    struct wire_frame frame;
    cr_assert_eq(wire_receive(wire, &frame, COMPILERS_SOON_MS), WIRE_FRAME);
    cr_assert_eq(frame.header.type, FRAME_KERNEL_COMPILED);
    Tensord__KernelCompiled *message =
        tensord__kernel_compiled__unpack(NULL, frame.header.message_bytes, frame.message);
    int code = message->error ? (int)message->error->code : TD_OK;
    tensord__kernel_compiled__free_unpacked(message, NULL);
    wire_frame_finish(&frame);
    return code;
}
