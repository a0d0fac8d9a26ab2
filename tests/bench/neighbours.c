/* Bad neighbours: what one client's round trip becomes while another one does what costs the worker most. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/wire/batch.h"
#include "tests/bench/bench.h"
#include "tests/bench/raw.h"

/* ---- a client that does what the library does not ---- */

static void send_frame(int fd, unsigned type, uint64_t sequence, const ProtobufCMessage *message) {
    if (!bench_raw_send(fd, type, sequence, message))
        _exit(0); /* the daemon has ended it */
}

static int raw_open(const char *url) {
    int fd = bench_raw_open(url, 0);
    if (fd < 0)
        _exit(0);
    return fd;
}

/* `count` operations without inputs, with these heads; the columns are as large as the heads say. */
static void raw_batch(int fd, uint64_t first, uint64_t head, size_t count, int64_t ints[3]) {
    Tensord__Batch batch = TENSORD__BATCH__INIT;
    bool full = (head & 0xffff) == OP_FULL;
    uint64_t *heads = malloc(count * sizeof *heads);
    int64_t *columns = malloc(3 * count * sizeof *columns);
    double *floats = calloc(count, sizeof *floats);
    for (size_t i = 0; i < count; i++) {
        heads[i] = head;
        memcpy(columns + 3 * i, ints, 3 * sizeof *ints);
    }
    batch.first_output = batch.first_sequence = first;
    batch.n_heads = count;
    batch.heads = heads;
    batch.n_ints = full ? 3 * count : 0;
    batch.ints = columns;
    batch.n_floats = full ? count : 0;
    batch.floats = floats;
    send_frame(fd, FRAME_BATCH, 0, &batch.base);
    free(heads), free(columns), free(floats);
}

static uint64_t raw_fulls(int fd, uint64_t first, size_t count, int64_t elements) {
    enum { BATCH = 20000 };
    int64_t ints[3] = {DTYPE_U8, 0, elements};
    for (size_t left = count; left > 0;) {
        size_t now = left < BATCH ? left : BATCH;
        raw_batch(fd, first, batch_head(OP_FULL, 0, 3, 1, 0, 0), now, ints);
        first += now;
        left -= now;
    }
    return first;
}

/* The end of all that was sent before. */
static void raw_sync(int fd) {
    Tensord__Sync sync = TENSORD__SYNC__INIT;
    struct frame_header header = {0};
    send_frame(fd, FRAME_SYNC, 7, &sync.base);
    while (header.type != FRAME_DONE)
        if (!bench_raw_receive(fd, &header, NULL, 0))
            _exit(0);
}

/* ---- the neighbours; each goes on until it is killed ---- */

static void out_of_memory(const struct bench_daemon *daemon) {
    int fd = raw_open(daemon->url);
    for (uint64_t id = raw_fulls(fd, 1, bench_quick ? 2000 : 130000, 1024);;)
        id = raw_fulls(fd, id, 20000, bench_quick ? INT64_C(1) << 40 : 1024);
}

static void failing_batches(const struct bench_daemon *daemon) {
    int64_t none[3] = {0};
    int fd = raw_open(daemon->url);
    for (uint64_t first = 1;; first += 131000)
        raw_batch(fd, first, 0, 131000, none);
}

static void closing_sessions(const struct bench_daemon *daemon) {
    for (;;) {
        int fd = raw_open(daemon->url);
        raw_fulls(fd, 1, bench_quick ? 2000 : 250000, 1);
        raw_sync(fd);
        close(fd);
    }
}

static void unread_replies(const struct bench_daemon *daemon) {
    int fds[16];
    Tensord__Fetch fetch = TENSORD__FETCH__INIT;
    Tensord__Wait wait = TENSORD__WAIT__INIT;
    fetch.id = wait.id = 1;
    for (;;) {
        for (int i = 0; i < 16; i++) {
            fds[i] = raw_open(daemon->url);
            raw_fulls(fds[i], 1, 1, 1 << 20); /* more than a socket holds */
            send_frame(fds[i], FRAME_FETCH, 1, &fetch.base);
            for (uint64_t k = 2; k < 4000; k++)
                send_frame(fds[i], FRAME_WAIT, k, &wait.base);
        }
        for (int i = 0; i < 16; i++)
            close(fds[i]);
    }
}

static void copies_in(const struct bench_daemon *daemon) {
    for (;;) {
        int fd = raw_open(daemon->url);
        for (uint64_t id = 1; id < 1000; id++) { /* with more it would not be read */
            Tensord__CopyIn copy = TENSORD__COPY_IN__INIT;
            int64_t shape[] = {1};
            uint64_t ticket[2] = {id, (uint64_t)getpid()};
            copy.id = copy.sequence = id;
            copy.dtype = DTYPE_U8;
            copy.n_shape = 1;
            copy.shape = shape;
            copy.ticket = (ProtobufCBinaryData){sizeof ticket, (uint8_t *)ticket};
            send_frame(fd, FRAME_COPY_IN, 0, &copy.base);
        }
        raw_sync(fd);
        close(fd);
    }
}

static void tls_handshakes(const struct bench_daemon *daemon) {
    for (;;) {
        td_connection *connection;
        td_device *device;
        if (td_connect(daemon->tls, NULL, &connection) == TD_OK) {
            td_device_open(connection, "cpu:0", &device);
            td_close(connection);
        }
    }
}

static void many_connections(const struct bench_daemon *daemon) {
    for (;;)
        close(raw_open(daemon->url));
}

enum { NAMES_SESSIONS = 16, NAMES_MANY = 4096 };

static void send_publish(int fd, uint64_t sequence, uint64_t n, char *const names[]) {
    Tensord__Publish publish = TENSORD__PUBLISH__INIT;
    uint64_t *ids = malloc(n * sizeof *ids);
    for (uint64_t i = 0; i < n; i++)
        ids[i] = i + 1;
    publish.n_ids = publish.n_names = n;
    publish.ids = ids;
    publish.names = (char **)(uintptr_t)names;
    send_frame(fd, FRAME_PUBLISH, sequence, &publish.base);
    free(ids);
}

static void receive_replies(int fd, unsigned n) {
    struct frame_header header;
    while (n--)
        if (!bench_raw_receive(fd, &header, NULL, 0))
            _exit(0);
}

/* Changes that are sent without waiting for the disk, of as many sessions as one process has. */
static void changes_of_names(const struct bench_daemon *daemon) {
    enum { CHANGES = 4000 }; /* with many more it would not be read */
    int fds[NAMES_SESSIONS];
    for (int i = 0; i < NAMES_SESSIONS; i++) {
        fds[i] = raw_open(daemon->url);
        raw_fulls(fds[i], 1, 1, 1);
    }
    for (uint64_t sequence = 2;; sequence += CHANGES) {
        for (int i = 0; i < NAMES_SESSIONS; i++)
            for (unsigned k = 0; k < CHANGES; k += 2) {
                char text[32], *name = text;
                Tensord__RemoveName remove = TENSORD__REMOVE_NAME__INIT;
                snprintf(text, sizeof text, "%d-%d-%u", (int)getpid(), i, k % 16);
                remove.name = text;
                send_publish(fds[i], sequence + k, 1, &name);
                send_frame(fds[i], FRAME_REMOVE_NAME, sequence + k + 1, &remove.base);
            }
        for (int i = 0; i < NAMES_SESSIONS; i++)
            receive_replies(fds[i], CHANGES);
    }
}

/* As many names as a principal may have: they are listed, and removed and published again together. */
static void lists_of_names(const struct bench_daemon *daemon) {
    enum { LISTS = 20 };
    static char texts[NAMES_MANY][32];
    static char *names[NAMES_MANY];
    const Tensord__ListNames list = TENSORD__LIST_NAMES__INIT;
    Tensord__RemoveName remove = TENSORD__REMOVE_NAME__INIT;
    int fd = raw_open(daemon->url);
    remove.all = true;
    raw_fulls(fd, 1, NAMES_MANY, 1);
    for (int i = 0; i < NAMES_MANY; i++) {
        names[i] = texts[i];
        snprintf(texts[i], sizeof texts[i], "layers.%d.attention.weight", i);
    }
    for (uint64_t sequence = 2;; sequence += LISTS + 2) {
        send_publish(fd, sequence, NAMES_MANY, names);
        for (unsigned k = 0; k < LISTS; k++)
            send_frame(fd, FRAME_LIST_NAMES, sequence + 1 + k, &list.base);
        send_frame(fd, FRAME_REMOVE_NAME, sequence + 1 + LISTS, &remove.base);
        receive_replies(fd, LISTS + 2);
    }
}

/* Over TCP it is another principal than the client that is measured. Each process asks on eight connections for all that
 * their sockets hold. */
static void ask_the_front(const struct bench_daemon *daemon, unsigned type, const ProtobufCMessage *message) {
    enum { CONNECTIONS = 8, AHEAD = 8 };
    struct frame_header header;
    int fds[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        if ((fds[i] = bench_raw_open(daemon->tcp, PREAMBLE_TARGET_CONTROL)) < 0)
            _exit(0);
        for (uint64_t k = 0; k < AHEAD; k++)
            send_frame(fds[i], type, k, message);
    }
    for (uint64_t k = AHEAD;; k++)
        for (int i = 0; i < CONNECTIONS; i++) {
            if (!bench_raw_receive(fds[i], &header, NULL, 0))
                _exit(0);
            send_frame(fds[i], type, k, message);
        }
}

static void status_requests(const struct bench_daemon *daemon) {
    Tensord__GetStatus message = TENSORD__GET_STATUS__INIT;
    ask_the_front(daemon, FRAME_GET_STATUS, &message.base);
}

static void lists_of_operations(const struct bench_daemon *daemon) {
    Tensord__ListOperations message = TENSORD__LIST_OPERATIONS__INIT;
    ask_the_front(daemon, FRAME_LIST_OPERATIONS, &message.base);
}

/* A program of some thousand operations is recorded, runs, as a loop, too, and is released, again and again. */
static void recorded_programs(const struct bench_daemon *daemon) {
    struct bench_client client;
    const int64_t elements = 16;
    const td_carry carried[] = {{0, 0}};
    const td_loop loop = {1, carried, 0, NULL, 0, NULL};
    int operations = bench_quick ? 50 : 4000;
    bench_client_open(&client, daemon->url, &(td_options){.reconnect_ms = TD_NEVER});
    td_tensor *x = bench_vector16(client.device, 1);
    for (;;) {
        td_program *program;
        td_tensor *result;
        bench_check(td_record_begin(client.device), "td_record_begin");
        td_tensor *parameter = td_parameter(TD_F32, 1, &elements),
                  *last = bench_made(td_add(parameter, parameter), "add");
        for (int i = 1; i < operations; i++) {
            td_tensor *next = bench_made(i % 2 ? td_multiply(last, parameter) : td_tanh(last), "an operation");
            td_release(last);
            last = next;
        }
        bench_check(td_record_end(client.device, 1, &last, &program), "td_record_end");
        td_release(parameter), td_release(last);
        if (!td_program_run(program, 1, &x, 1, &result))
            td_release(result);
        if (!td_program_repeat(program, 10, &loop, 1, &x, 1, &result))
            td_release(result);
        td_program_release(program);
        td_sync(client.device);
    }
}

static void work_long(const struct bench_daemon *daemon, const struct bench_long *work) {
    struct bench_client client;
    bench_client_open(&client, daemon->url, &(td_options){.reconnect_ms = TD_NEVER});
    bench_long_keep_busy(work, client.device, -1);
    bench_fail("%s: its session has ended", work->name);
}

static const struct {
    const char *name;
    void (*run)(const struct bench_daemon *daemon);
    int processes;
} neighbours[] = {
    {"nobody", NULL, 0},
    {"out of memory with 130,000 tensors", out_of_memory, 2},
    {"failing batches", failing_batches, 8},
    {"closing sessions of 250,000 tensors", closing_sessions, 4},
    {"replies that nobody reads", unread_replies, 4},
    {"copies that never come", copies_in, 4},
    {"TLS handshakes", tls_handshakes, 8},
    {"connections", many_connections, 8},
    {"lists of 4,096 names", lists_of_names, 8},
    {"recorded programs", recorded_programs, 4},
    {"status requests", status_requests, 8},
    {"lists of operations", lists_of_operations, 8},
};

/* ---- the client whose round trips count ---- */

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { TRIPS_MAX = 1 << 20 };

static void report_trips(const char *what, const char *name, double *trips, size_t n) {
    char row[128];
    qsort(trips, n, sizeof *trips, compare);
    double median = trips[n / 2], most = trips[n - 1 - n / 100];
    snprintf(row, sizeof row, "%s beside %s, median", what, name);
    bench_row(row, median, "ms", 5, median / 5, BENCH_LOWER, 1);
    snprintf(row, sizeof row, "%s beside %s, 99 %%", what, name);
    bench_row(row, most, "ms", 50, most / 50, BENCH_LOWER, 1);
    bench_note("%zu of them, the longest took %.1f ms", n, trips[n - 1]);
}

static void measure(const char *name, td_tensor *x) {
    double *trips = malloc(TRIPS_MAX * sizeof *trips), end = bench_now() + (bench_quick ? 0.05 : 5);
    float got[16];
    size_t n = 0;
    while (bench_now() < end && n < TRIPS_MAX) {
        double begin = bench_now();
        td_tensor *sum = bench_made(td_add(x, x), "add");
        bench_check(td_fetch(sum, got, sizeof got), "fetch");
        td_release(sum);
        trips[n++] = (bench_now() - begin) * 1e3;
        usleep(500); /* a client that has something to do by itself */
    }
    report_trips("round trip", name, trips, n);
    free(trips);
}

static bool ask_for_status(const struct bench_daemon *daemon) {
    Tensord__GetStatus status = TENSORD__GET_STATUS__INIT;
    struct frame_header header = {0};
    int fd = bench_raw_open(daemon->url, PREAMBLE_TARGET_CONTROL);
    bool came = fd >= 0 && bench_raw_send(fd, FRAME_GET_STATUS, 1, &status.base);
    while (came && header.type != FRAME_STATUS)
        came = bench_raw_receive(fd, &header, NULL, 0) && header.type != FRAME_ERROR;
    if (fd >= 0)
        close(fd);
    return came;
}

/* A new connection, and a status: what an operator waits for. One that is refused comes again. */
static void measure_front(const char *name, const struct bench_daemon *daemon) {
    double *trips = malloc(TRIPS_MAX * sizeof *trips), end = bench_now() + (bench_quick ? 0.05 : 5);
    size_t n = 0;
    while (bench_now() < end && n < TRIPS_MAX) {
        double begin = bench_now();
        while (!ask_for_status(daemon))
            usleep(500);
        trips[n++] = (bench_now() - begin) * 1e3;
        usleep(500);
    }
    report_trips("a connection and its status", name, trips, n);
    free(trips);
}

/* The neighbour's processes run until they are killed. */
static void measure_beside(const struct bench_daemon *daemon, const char *name,
                           void (*run)(const struct bench_daemon *daemon), const struct bench_long *work,
                           int processes) {
    struct bench_client client;
    pid_t pids[8];
    bench_client_open(&client, daemon->url, NULL);
    /* Before a neighbour has all memory; it also leaves room for the sum, because the rest is no multiple of what the
     * neighbour takes. */
    td_tensor *x = bench_vector16(client.device, 1);
    bench_check(td_wait(x), "td_wait");
    for (int k = 0; k < processes; k++) {
        pids[k] = fork();
        if (pids[k] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (work)
                work_long(daemon, work);
            run(daemon);
        }
    }
    if (processes)
        usleep(bench_quick ? 20000 : work ? 1000000 : 3000000); /* until it is at its worst */
    measure(name, x);
    if (!work)
        measure_front(name, daemon);
    for (int k = 0; k < processes; k++)
        kill(pids[k], SIGKILL);
    for (int k = 0; k < processes; k++) {
        int status;
        if (waitpid(pids[k], &status, 0) == pids[k] && work && WIFEXITED(status))
            bench_fail("%s: the work ended while it was measured", name);
    }
    td_release(x);
    bench_client_close(&client);
}

static void measure_saved(void) {
    char state[] = "/tmp/tensord-bench-state-XXXXXX", command[64];
    const char *const flags[] = {"--state-dir", state, "--state-sync", "publish", NULL};
    struct bench_daemon daemon;
    if (!mkdtemp(state))
        bench_fail("no folder for names");
    bench_daemon_flags = flags;
    bench_daemon_start(&daemon);
    bench_daemon_flags = NULL;
    measure_beside(&daemon, "changes of names with state-sync = publish", changes_of_names, NULL, 4);
    bench_daemon_kill(&daemon);
    snprintf(command, sizeof command, "rm -r %s", state);
    if (system(command))
        bench_fail("%s is left", state);
}

void bench_neighbours(void) {
    char path[64];
    struct bench_daemon daemon;
    snprintf(path, sizeof path, "/tmp/tensord-bench-%d.pem", (int)getpid());
    if (!bench_certificate(path)) {
        bench_not_run("round trips beside bad neighbours", "ms", BENCH_LOWER, 1, "openssl cannot be run");
        return;
    }
    bench_daemon_certificate = path;
    bench_daemon_memory = "256M";
    setenv("TENSORD_CA_FILE", path, 1);
    bench_daemon_start(&daemon);
    bench_daemon_certificate = NULL;
    for (size_t i = 0; i < sizeof neighbours / sizeof *neighbours; i++)
        measure_beside(&daemon, neighbours[i].name, neighbours[i].run, NULL, neighbours[i].processes);
    bench_daemon_kill(&daemon);
    unlink(path);
    measure_saved();
}

void bench_long_neighbours(void) {
    struct bench_daemon daemon;
    bench_daemon_memory = "512M";
    bench_daemon_start(&daemon);
    bench_daemon_memory = NULL;
    for (size_t i = 0; i < bench_longs_count; i++)
        measure_beside(&daemon, bench_longs[i].name, NULL, &bench_longs[i], 1);
    bench_daemon_kill(&daemon);
}
