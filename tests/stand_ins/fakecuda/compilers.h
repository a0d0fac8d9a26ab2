/* A daemon on the stand-ins whose user kernels are compiled by misbehaving compilers (code.h), with a client; for tests of
 * what becomes of both. One of them at a time. Everything asserts. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/wire.h"

enum { COMPILERS_MAX = 16, COMPILERS_SOON_MS = 5000 };

/* A source that compiles to a kernel without fault. */
#define COMPILERS_GOOD "fakecuda: parameters 8 4; fakecuda: store;"

struct compilers {
    struct daemon daemon; /* on a Unix socket, and on TCP */
    struct client client;
    int worker; /* its process */
};
extern struct compilers compilers;

/* `fail`: "FAKECUDA_FAIL=…", or without a value. */
void compilers_start(const char *fail, const char *const *flags);
#define COMPILERS_START(...)                                                                                           \
    compilers_start("FAKECUDA_FAIL", (const char *const[]){"--user-kernels=all", __VA_ARGS__, NULL})
void compilers_stop(void);

/* The client compiles, and releases what it gets. */
int compilers_compile(const char *source);
/* The code of the client's last call, and words of its message. */
void compilers_expect(int code, int want, const char *words);
/* The client's kernel is compiled, launched and right. */
void compilers_expect_good(const char *source);
/* The same of a source that nobody has compiled; and the worker is the one that it was. */
void compilers_expect_unharmed(void);

/* The processes that compile for the worker now, by their command line. */
unsigned compilers_find(pid_t found[COMPILERS_MAX]);
/* Waits until there are so many. */
void compilers_expect_running(unsigned want);

/* A request to compile, by hand; and the code of the next answer to one. */
void compilers_ask(struct wire *wire, uint64_t kernel, const char *source, const char *name);
int compilers_answered(struct wire *wire);

/* What a file of /proc holds, zeros as spaces; false where it cannot be read. */
bool compilers_read_file(const char *path, char *text, size_t size);
