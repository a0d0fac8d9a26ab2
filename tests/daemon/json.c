#include "tests/daemon/json.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/daemon/command.h"

enum { JSON_MS = 60000 };

void json_expect(const char *document, size_t bytes, const char *expression) {
    char path[] = "/tmp/tensord-test-json-XXXXXX", script[4096];
    struct command python;
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, document, bytes) == (ssize_t)bytes);
    close(fd);
    snprintf(script, sizeof script,
             "import json, sys\n"
             "d = json.load(open(sys.argv[1]))\n"
             "ints = lambda o, keys: all(type(o[k]) is int for k in keys.split())\n"
             "has = lambda o, keys: all(k in o for k in keys.split())\n"
             "no = lambda o, keys: all(o[k] is None for k in keys.split())\n"
             "sys.exit(0 if (%s) else 1)\n",
             expression);
    command_run(&python, (const char *const[]){"python3", "-c", script, path, NULL}, NULL, JSON_MS);
    unlink(path);
    cr_assert_eq(python.code, 0, "not true: %s\n%s\n%s", expression, python.err, document);
    command_finish(&python);
}
