/* tensorctl's views of figures that no daemon of today has: long names, huge numbers, many devices. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tensorctl/tensorctl.h"
#include "proto/files/status_json.h"

enum { DEVICES = 64, SESSIONS = 200 };

static Tensord__Device about[DEVICES];
static Tensord__DeviceStatus devices[DEVICES], *device_list[DEVICES];
static Tensord__ProgramStatus programs[5], *program_list[5];
static Tensord__SessionStatus sessions[SESSIONS], *session_list[SESSIONS];
static Tensord__FailureCount failures[3], *failure_list[3];
static Tensord__PrincipalStatus principals[5], *principal_list[5];
static Tensord__PrincipalDevice shares[5], *share_list[5];
static Tensord__LimitCount met[20], *met_list[20];

#define TEXT_63 "a-device-whose-name-is-as-long-as-names-of-devices-may-be:65535"
#define TEXT_WIDE "\xe5\xbc\xa0\xe9\x87\x8f"
#define TEXT_MEAN "\033[2J\x9b\r\nred\xe2\x80\xaetxt"
#define TEXT_LONG TEXT_63 " " TEXT_63 " " TEXT_63 TEXT_63 TEXT_63

static Tensord__DeviceReadings readings;
static Tensord__Reading most = TENSORD__READING__INIT;

static Tensord__DeviceReadings *fill_readings(void) {
    readings = (Tensord__DeviceReadings)TENSORD__DEVICE_READINGS__INIT;
    most.value = UINT64_MAX;
    readings.utilisation_gpu = readings.utilisation_memory = readings.temperature = &most;
    readings.power_draw = readings.power_limit = readings.clock_sm = readings.clock_memory = &most;
    readings.ecc_enabled = readings.ecc_corrected = readings.ecc_uncorrected = readings.xid = &most;
    readings.memory_total = readings.memory_free = readings.memory_others = &most;
    readings.age_s = readings.xid_age_s = 1e300;
    return &readings;
}

static void fill_device(Tensord__DeviceStatus *device, Tensord__Device *of, char *name) {
    *of = (Tensord__Device)TENSORD__DEVICE__INIT;
    *device = (Tensord__DeviceStatus)TENSORD__DEVICE_STATUS__INIT;
    of->name = name;
    of->kind = "cuda";
    of->state = "quarantined";
    of->model = TEXT_63;
    of->capability = of->uuid = of->bus = of->driver = of->runtime = of->driver_version = TEXT_63;
    of->processors = UINT32_MAX;
    of->memory_total = of->memory_device = UINT64_MAX;
    device->device = of;
    device->n_limits_met = sizeof met / sizeof *met;
    device->limits_met = met_list;
    device->readings = (of - about) & 1 ? NULL : fill_readings();
    device->worker_pid = device->restarts = UINT32_MAX;
    device->epoch = UINT64_MAX;
    device->last_fault = TEXT_LONG;
    device->last_fault_age_s = 1e300;
    device->memory_total = device->memory_reserved = device->memory_live = UINT64_MAX;
    device->memory_peak = device->memory_largest_free = device->queue_depth = UINT64_MAX;
    device->ops_total = device->bytes_in = device->bytes_out = UINT64_MAX;
    device->ops_per_s = 1e300;
    device->bytes_in_per_s = INFINITY;
    device->bytes_out_per_s = NAN;
    device->data_age_ms = device->stalled_s = 1e300;
    device->workspaces = device->workspaces_limit = device->workspace_growths = UINT64_MAX;
    device->staging_total = device->staging_reserved = device->staging_held = device->staging_waiting = UINT64_MAX;
    device->reservations = device->releases = device->pinnings = device->unpinnings = UINT64_MAX;
}

static void fill_session(Tensord__SessionStatus *session, char *text) {
    *session = (Tensord__SessionStatus)TENSORD__SESSION_STATUS__INIT;
    session->id = UINT64_MAX;
    session->principal = session->peer = session->client = session->device = text;
    session->age_s = 1e300;
    session->tensors = session->live = session->peak = session->ops_queued = session->ops_done = UINT64_MAX;
    session->n_failures = sizeof failures / sizeof *failures;
    session->failures = failure_list;
    session->last_failure = TEXT_LONG;
    session->label = text;
}

static void fill_principal(unsigned i, char *text) {
    Tensord__PrincipalStatus *principal = principal_list[i] = &principals[i];
    Tensord__PrincipalDevice *share = share_list[i] = &shares[i];
    *principal = (Tensord__PrincipalStatus)TENSORD__PRINCIPAL_STATUS__INIT;
    *share = (Tensord__PrincipalDevice)TENSORD__PRINCIPAL_DEVICE__INIT;
    principal->name = share->device = text;
    principal->connections = principal->connections_limit = principal->sessions = UINT32_MAX;
    principal->sessions_limit = principal->weight = share->connections = share->sessions = UINT32_MAX;
    principal->rate_limit = share->live = share->live_limit = share->peak = UINT64_MAX;
    share->ops_queued = share->ops_limit = share->staging = share->staging_limit = share->bytes = UINT64_MAX;
    share->bytes_per_s = principal->idle_timeout_s = principal->session_lease_s = i % 2 ? 1e300 : INFINITY;
    principal->n_devices = 1;
    principal->devices = &share_list[i];
}

static void fill_program(Tensord__ProgramStatus *program, unsigned i, char *text) {
    *program = (Tensord__ProgramStatus)TENSORD__PROGRAM_STATUS__INIT;
    program->session = program->id = UINT64_MAX;
    program->principal = program->device = program->label = program->cause = program->graph_reason =
        program->fused_reason = text;
    program->loops = program->planned = i % 2;
    program->operations = program->operations_kept = program->launches = program->fused = UINT32_MAX;
    program->fused_launches = UINT32_MAX;
    program->arena = program->arena_least = program->runs = program->iterations = program->runs_timed = UINT64_MAX;
    program->mean_run_s = 1e300;
    program->last_run_s = i % 2 ? NAN : INFINITY;
}

static void fill_limits_met(char *key) {
    for (unsigned i = 0; i < sizeof met / sizeof *met; i++) {
        met[i] = (Tensord__LimitCount)TENSORD__LIMIT_COUNT__INIT;
        met[i].key = key;
        met[i].count = UINT64_MAX;
        met[i].held = i % 2;
        met_list[i] = &met[i];
    }
}

static Tensord__Status status_of(size_t n_devices, size_t n_sessions) {
    static char *const texts[] = {TEXT_63, TEXT_WIDE, TEXT_MEAN, TEXT_LONG, ""};
    Tensord__Status status = TENSORD__STATUS__INIT;
    for (uint32_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        failures[i] = (Tensord__FailureCount)TENSORD__FAILURE_COUNT__INIT;
        failures[i].code = i * 1000;
        failures[i].count = UINT64_MAX;
        failure_list[i] = &failures[i];
    }
    for (size_t i = 0; i < n_devices; i++)
        fill_device(device_list[i] = &devices[i], &about[i], texts[i % 5]);
    for (size_t i = 0; i < n_sessions; i++)
        fill_session(session_list[i] = &sessions[i], texts[i % 5]);
    fill_limits_met(n_sessions ? TEXT_LONG : TEXT_MEAN);
    for (unsigned i = 0; n_sessions && i < sizeof principals / sizeof *principals; i++)
        fill_principal(i, texts[i]);
    for (unsigned i = 0; i < sizeof programs / sizeof *programs; i++)
        fill_program(program_list[i] = &programs[i], i, texts[i]);
    status.n_programs = n_sessions ? sizeof programs / sizeof *programs : 0;
    status.programs = program_list;
    status.n_principals = n_sessions ? sizeof principals / sizeof *principals : 0;
    status.principals = principal_list;
    status.n_limits_met = sizeof met / sizeof *met;
    status.limits_met = met_list;
    status.version = "tensord 0.1.0";
    status.uptime_s = 1e300;
    status.n_devices = n_devices;
    status.devices = device_list;
    status.n_sessions = n_sessions;
    status.sessions = session_list;
    return status;
}

static char *shown(const Tensord__Status *status, enum tensorctl_view view) {
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    tensorctl_status_write(file, status, view);
    fclose(file);
    return text;
}

static void every_line_fits(char *text) {
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        cr_expect_leq(text_width(line), text_columns(), "%u columns: %s", text_columns(), line);
        for (const char *c = line; *c; c++)
            cr_expect((unsigned char)*c >= 0x20 && *c != 0x7f, "a control character in: %s", line);
    }
    free(text);
}

Test(client_tensorctl, long_names_and_huge_numbers_fit_any_width) {
    static const unsigned widths[] = {40, 60, 80, 100, 160, 400};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        text_columns_set(widths[i]);
        Tensord__Status status = status_of(DEVICES, SESSIONS);
        for (enum tensorctl_view view = TENSORCTL_STATUS; view <= TENSORCTL_PROGRAMS; view++)
            every_line_fits(shown(&status, view));
        status = status_of(0, 0);
        for (enum tensorctl_view view = TENSORCTL_STATUS; view <= TENSORCTL_PROGRAMS; view++)
            every_line_fits(shown(&status, view));
    }
}

/* A session of an ordinary program, with all that is known of it. */
static Tensord__Status ordinary(void) {
    Tensord__Status status = status_of(1, 1);
    static Tensord__SessionStatus session;
    static Tensord__SessionStatus *list[] = {&session};
    tensord__session_status__init(&session);
    session.id = 123456;
    session.principal = "alice-of-the-team";
    session.client = "fashion_mnist_with_a_long_name libtensord/0.1.0";
    session.pid = 4194304;
    session.host = "gpu-client-17.example.org";
    session.peer = "192.0.2.117:40212";
    session.device = "cuda:0";
    session.device_ratio = 0.974;
    session.ops_per_s = 17300;
    session.live = session.peak = 3 << 20;
    session.last_failure = session.label = "";
    status.sessions = list;
    return status;
}

Test(client_tensorctl, nothing_is_cut_or_left_out_in_a_pipe) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    text_columns_find(ends[1]);
    Tensord__Status status = ordinary();
    char *text = shown(&status, TENSORCTL_SESSIONS);
    cr_expect(strstr(text, "alice-of-the-team  fashion_mnist_with_a_long_name  4194304  "
                           "gpu-client-17.example.org (192.0.2.117:40212)  cuda:0"),
              "%s", text);
    cr_expect(strstr(text, "97 %  17.3k"), "%s", text);
    cr_expect(strstr(text, "TENSORS"), "%s", text);
    cr_expect_not(strstr(text, "…"), "%s", text);
    free(text);
}

Test(client_tensorctl, narrow_table_keeps_what_matters_most) {
    static const struct {
        unsigned columns;
        const char *shown, *left_out;
    } rows[] = {{60, "TIME", "PID"}, {80, "PID", "PEAK"}, {160, "TENSORS", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        text_columns_set(rows[i].columns);
        Tensord__Status status = ordinary();
        char *text = shown(&status, TENSORCTL_SESSIONS);
        cr_expect(strstr(text, "123456"), "%s", text);
        cr_expect(strstr(text, rows[i].shown), "%u columns: %s", rows[i].columns, text);
        cr_expect(!rows[i].left_out || !strstr(text, rows[i].left_out), "%u columns: %s", rows[i].columns, text);
        free(text);
    }
}

Test(client_tensorctl, programs_show_what_is_known) {
    Tensord__Status status = status_of(1, 1);
    Tensord__ProgramStatus *program = &programs[0];
    tensord__program_status__init(program);
    status.n_programs = 1;
    sessions[0].programs = 4;
    program->session = 12;
    program->id = 3;
    program->principal = "alice";
    program->device = "cpu:0";
    program->label = "net\x1b[31m";
    program->operations = 40;
    program->operations_kept = 36;
    text_columns_set(200);
    char *text = shown(&status, TENSORCTL_PROGRAMS);
    cr_expect(strstr(text, "40 (36)") && strstr(text, "\nand 3 more\n") && !strchr(text, '\x1b'), "%s", text);
    cr_expect(!strstr(text, " B") && !strstr(text, " s "), "%s", text);
    free(text);
    program->planned = program->loops = true;
    program->launches = 9;
    program->fused = 2;
    program->fused_launches = 14;
    program->arena = 3 << 20;
    program->arena_least = 2 << 20;
    program->runs = program->runs_timed = 1500;
    program->iterations = 3000;
    program->mean_run_s = 0.0021;
    program->last_run_s = 0.0035;
    text = shown(&status, TENSORCTL_PROGRAMS);
    cr_expect(strstr(text, "3 loop") && strstr(text, "2 (14)") && strstr(text, "3.00 MiB  2.00 MiB"), "%s", text);
    cr_expect(strstr(text, "1.50k") && strstr(text, "3.00k") && strstr(text, "2.1 ms  3.5 ms"), "%s", text);
    free(text);
}

/* Bucket i is up to 2^i us. */
Test(client_tensorctl, percentiles_of_too_few_samples_are_unknown) {
    uint64_t counts[28] = {[1] = 900, [7] = 100};
    Tensord__Histogram times = TENSORD__HISTOGRAM__INIT;
    times.n_counts = 28;
    times.counts = counts;
    times.samples = 69;
    Tensord__Status status = status_of(1, 0);
    devices[0].run_time = &times;
    devices[0].queue_time = NULL;
    char *text = shown(&status, TENSORCTL_STATUS);
    cr_expect(strstr(text, "  times   run p50 ≤ 2.0 µs, p99 unknown (69 samples)\n"), "%s", text);
    free(text);
    times.samples = 400;
    text = shown(&status, TENSORCTL_STATUS);
    cr_expect(strstr(text, "  times   run p50 ≤ 2.0 µs, p99 ≤ 128 µs\n"), "%s", text);
    free(text);
    times.samples = 3;
    cr_expect(isnan(figures_quantile(&times, 0.5)));
    cr_expect(isnan(figures_quantile(NULL, 0.5)));
}

Test(client_tensorctl, principals_show_what_they_have_of_what_they_may) {
    Tensord__Status status = TENSORD__STATUS__INIT;
    fill_principal(0, "uid:1000");
    fill_limits_met("principal-bytes");
    principals[0].connections = 3;
    principals[0].connections_limit = 64;
    principals[0].sessions = 2;
    principals[0].sessions_limit = 0;
    principals[0].weight = 400;
    shares[0].device = "cpu:0";
    shares[0].live = 3 << 20;
    shares[0].live_limit = 1 << 30;
    shares[0].ops_queued = 12;
    shares[0].ops_limit = 0;
    shares[0].ops_per_s = 1500;
    shares[0].device_ratio = 0.25;
    shares[0].failures = 3;
    shares[0].staging = 0;
    shares[0].bytes_per_s = 2048;
    met[0].count = 7;
    met[1].count = 8;
    status.version = "0.1.0";
    status.n_principals = 1;
    status.principals = principal_list;
    status.n_limits_met = 2;
    status.limits_met = met_list;
    char *text = shown(&status, TENSORCTL_STATUS);
    cr_expect(strstr(text, "\nuid:1000 3/64    2    400 cpu:0  3.00 MiB/1.00 GiB 25 % 1.50k     12      3\n"), "%s",
              text);
    cr_expect(strstr(text, "limits met: principal-bytes 7, principal-bytes 8 (held)\n"), "%s", text);
    free(text);
}

Test(client_tensorctl, a_long_name_hides_no_fact) {
    Tensord__Status status = status_of(1, 1);
    char *text = shown(&status, TENSORCTL_STATUS);
    static const char *const FACTS[] = {TEXT_63,
                                        "quarantined",
                                        "cuda",
                                        "process 4294967295",
                                        "epoch 18446744073709551615",
                                        "4294967295 restarts",
                                        "16.0 EiB live",
                                        "16.0 EiB reserved",
                                        "16.0 EiB peak",
                                        "largest free block 16.0 EiB"};
    for (size_t i = 0; i < sizeof FACTS / sizeof *FACTS; i++)
        cr_expect(strstr(text, FACTS[i]), "\"%s\" is not in:\n%s", FACTS[i], text);
    free(text);
}

/* The figures of an ordinary device take one line each. */
Test(client_tensorctl, an_ordinary_device_takes_five_lines) {
    Tensord__Status status = status_of(1, 0);
    char *text, *after;
    about[0].name = "cpu:0";
    about[0].kind = "cpu";
    about[0].uuid = "";
    about[0].state = "restarting";
    devices[0].worker_pid = 123456;
    devices[0].epoch = devices[0].restarts = 12;
    devices[0].data_age_ms = 34.1;
    devices[0].last_fault = "";
    text = shown(&status, TENSORCTL_STATUS);
    after = strstr(text, "\ncpu:0  restarting  cpu, epoch 12, 12 restarts, data 34.1 ms old\n  memory ");
    cr_expect(after, "%s", text);
    free(text);
}

Test(client_tensorctl, sessions_without_room_are_counted) {
    static const struct {
        uint32_t left_out;
        const char *line;
    } rows[] = {{1, "and 1 session with less memory\n"}, {2, "and 2 sessions with less memory\n"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Tensord__Status status = status_of(1, 1);
        status.sessions_left_out = rows[i].left_out;
        char *text = shown(&status, TENSORCTL_SESSIONS);
        cr_expect(strstr(text, rows[i].line), "%s", text);
        free(text);
    }
}

/* ---- how to start a daemon ---- */

static char *advice(const char *url, const char *root) {
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    tensorctl_advice_write(file, url, root);
    fclose(file);
    return text;
}

static void make_folders(const char *root, const char *const folders[]) {
    char path[128];
    for (size_t i = 0; folders[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        cr_assert(!mkdir(path, 0700));
    }
}

/* A folder with a socket's place, and one that has a service besides. */
Test(client_tensorctl, advice_is_for_a_socket_of_this_host_alone_and_knows_the_service) {
    char bare[] = "/tmp/tensord-advice.XXXXXX", service[] = "/tmp/tensord-advice.XXXXXX", url[64], unit[128], told[128];
    cr_assert(mkdtemp(bare) && mkdtemp(service));
    make_folders(service, (const char *const[]){"usr", "usr/lib", "usr/lib/systemd", "usr/lib/systemd/system", NULL});
    snprintf(unit, sizeof unit, "%s/usr/lib/systemd/system/tensord.service", service);
    fclose(fopen(unit, "we"));
    snprintf(url, sizeof url, "unix:%s/s", bare);
    snprintf(told, sizeof told, "To start a daemon there: tensord --listen %s\n", url);
    const struct {
        const char *url, *root, *told;
    } rows[] = {
        {url, bare, told},
        {url, service, "To start the daemon that is installed here: systemctl start tensord\n"},
        {"unix:/nowhere/s", bare, ""},
        {"tcp://127.0.0.1:1", bare, ""},
        {"tcp://127.0.0.1:1", service, ""},
        {"tls://127.0.0.1:1", bare, ""},
        {"tls://127.0.0.1:1", service, ""},
        {"nonsense", service, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = advice(rows[i].url, rows[i].root);
        cr_expect_str_eq(text, rows[i].told, "row %zu: %s", i, text);
        free(text);
    }
    unlink(unit);
    for (char *end = strrchr(unit, '/'); end > unit + strlen(service) - 1; end = strrchr(unit, '/')) {
        *end = 0;
        rmdir(unit);
    }
    rmdir(bare);
}

/* Numbers that JSON has no form for are null; control characters are escaped. */
Test(client_tensorctl, json_is_json_for_any_text_and_number) {
    Tensord__Status status = status_of(DEVICES, SESSIONS);
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    tensorctl_json_write(file, &status, TENSORCTL_STATUS, false);
    fclose(file);
    cr_expect(strstr(text, "\"bytes_in_per_s\": null"));
    cr_expect(strstr(text, "\"epoch\": 18446744073709551615"));
    cr_expect(strstr(text, "\\u001b[2J"));
    for (size_t i = 0; i + 1 < size; i++)
        cr_expect((unsigned char)text[i] >= 0x20);
    free(text);
}

/* ---- operations ---- */

enum { OPERATIONS = 3 };

static char *dtype_names[] = {"invalid", "bool", "i32", "f16", "bf16", "f32"};
static uint32_t numbers[] = {1, 2, 3, 4, 5, 6000};

static void fill_operation(Tensord__Operation *operation, char *name, uint32_t *dtypes, size_t n,
                           Tensord__OperationSupport **support) {
    *operation = (Tensord__Operation)TENSORD__OPERATION__INIT;
    operation->name = name;
    operation->dtypes = dtypes;
    operation->n_dtypes = n;
    operation->taken = n ? dtypes - (n == 3) : NULL; /* it takes i32, too: kernels get that cast */
    operation->n_taken = n + (n == 3);
    operation->support = support;
    operation->n_support = DEVICES;
}

static char *operations_shown(const Tensord__OperationList *list, bool json) {
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    (json ? status_json_write_operations : tensorctl_operations_write)(file, list);
    fclose(file);
    return text;
}

Test(client_tensorctl, what_a_device_lacks_is_told_with_the_reason) {
    Tensord__OperationList list = TENSORD__OPERATION_LIST__INIT;
    static Tensord__OperationDevice about_devices[DEVICES], *device_pointers[DEVICES];
    static Tensord__OperationSupport support[DEVICES], *support_pointers[DEVICES];
    static Tensord__Operation operations[OPERATIONS], *operation_pointers[OPERATIONS];
    for (size_t i = 0; i < DEVICES; i++) {
        about_devices[i] = (Tensord__OperationDevice)TENSORD__OPERATION_DEVICE__INIT;
        about_devices[i].name = i == 0 ? "cuda:0" : i == 1 ? "cuda:1" : TEXT_63;
        about_devices[i].known = i != 1;
        about_devices[i].reason = TEXT_LONG;
        device_pointers[i] = &about_devices[i];
        support[i] = (Tensord__OperationSupport)TENSORD__OPERATION_SUPPORT__INIT;
        support[i].dtypes = numbers + 4;
        support[i].n_dtypes = 1;
        support[i].reason = "no kernel for f16";
        support_pointers[i] = &support[i];
        list.devices = device_pointers;
    }
    fill_operation(&operations[0], "exp", numbers + 2, 3, support_pointers);
    fill_operation(&operations[1], "view", NULL, 0, support_pointers);
    fill_operation(&operations[2], TEXT_MEAN, numbers, 6, support_pointers); /* a dtype of tomorrow */
    for (size_t i = 0; i < OPERATIONS; i++)
        operation_pointers[i] = &operations[i];
    list.operations = operation_pointers;
    list.n_operations = OPERATIONS;
    list.n_devices = 2;
    list.dtypes = dtype_names;
    list.n_dtypes = sizeof dtype_names / sizeof *dtype_names;
    char *text = operations_shown(&list, false);
    cr_expect(strstr(text, "  all but bool     cuda:0: no f16 bf16\n"), "%s", text);
    cr_expect(strstr(text, "cuda:0: 2 missing, or not with every dtype\n    exp with f16 bf16: no kernel for f16\n"),
              "%s", text);
    cr_expect(strstr(text, "cuda:1: not known:"), "%s", text);
    every_line_fits(text);
    list.n_devices = DEVICES;
    every_line_fits(operations_shown(&list, false));
    free(operations_shown(&list, true));
    text = operations_shown(&(Tensord__OperationList)TENSORD__OPERATION_LIST__INIT, false);
    every_line_fits(text);
}
