/* What a front or a worker leaves in the log when a signal ends it. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/client.h"
#include "tests/daemon/daemon.h"
#include "tests/daemon/status.h"

enum { WAIT_MS = 10000 };

static struct daemon tensord;

static void start(void) {
    daemon_start(&tensord, &(struct daemon_options){
                               .devices = "late:0,cpu:0",
                               .environment = (const char *const[]){"TENSORD_LATE_CRASH=tanh", NULL},
                           });
}

static void stop(void) {
    daemon_stop(&tensord);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true }; /* which report such signals themselves */
#else
enum { SANITIZED = false };
#endif

TestSuite(crash, .init = start, .fini = stop, .timeout = 120, .disabled = SANITIZED);

static void expect_log(const char *text) {
    if (daemon_log_has(&tensord, text, WAIT_MS))
        return;
    cr_assert_fail("no \"%s\" in the log:\n%s", text, daemon_log(&tensord));
}

static void expect_fault(const char *device, const char *words) {
    Tensord__Status *status = status_get(tensord.url);
    const Tensord__DeviceStatus *about = status_device(status, device);
    cr_assert(strstr(about->last_fault, words), "%s", about->last_fault);
    status_free(status);
}

Test(crash, in_a_launch_is_reported_with_the_operation_and_others_go_on) {
    struct client victim, bystander;
    char text[128];
    client_open(&victim, tensord.url, "late:0");
    client_open(&bystander, tensord.url, "cpu:0");
    td_tensor *kept = client_ramp(bystander.device, 3, 1);
    td_tensor *x = td_exp(client_ramp(victim.device, 4, 0)); /* operations 1 and 2 */
    cr_assert(!td_wait(x), "%s", td_last_error()->message);
    char *log = daemon_log(&tensord);
    const char *opened = strstr(log, "process=late:0 event=session_open session=");
    unsigned long session = opened ? strtoul(strstr(opened, "session=") + strlen("session="), NULL, 10) : 0;
    free(log);
    td_label("cul=prit\n");
    client_expect_failure(td_tanh(x), TD_E_DEVICE_LOST);

    expect_log("process=late:0 event=crash signal=SIGSEGV cause=\"nothing is at this address\" address=0xdead0 "
               "thread=submitter pid=");
    snprintf(text, sizeof text, "n=0 operation=tanh label=\"cul=prit\\n\" session=%lu sequence=3 state=running\n",
             session);
    expect_log(text);
    snprintf(text, sizeof text, "n=1 operation=exp label=\"\" session=%lu sequence=2 state=done\n", session);
    expect_log(text);
    expect_log("process=late:0 event=crash_device age_ms=");
    expect_log("function=late_crash+0x");
    expect_log("function=submitter_main+0x");
    expect_log("process=late:0 event=crash_end signal=SIGSEGV\n");
    expect_log("event=worker_exit device=late:0");
    snprintf(text, sizeof text, "killed by signal 11 (Segmentation fault); its last operation was tanh of session ");
    expect_fault("late:0", text);
    client_expect(td_add(kept, kept), (float[]){2, 4, 6}, 3);
    status_until(tensord.url, status_device_is, &(struct status_is){"late:0", "ready", 2}, WAIT_MS);
    client_close(&victim);
    client_close(&bystander);
}

Test(crash, signal_from_outside_is_reported_with_its_sender) {
    char text[128];
    kill(status_worker_pid(tensord.url, "cpu:0"), SIGBUS);
    snprintf(text, sizeof text,
             "process=cpu:0 event=crash signal=SIGBUS cause=\"sent by another process\" sender=%d thread=\"tensord ",
             getpid());
    expect_log(text);
    expect_log("process=cpu:0 event=crash_end signal=SIGBUS\n");
    status_until(tensord.url, status_device_is, &(struct status_is){"cpu:0", "ready", 2}, WAIT_MS);
    expect_fault("cpu:0", "killed by signal 7 (Bus error)");
}

Test(crash, of_the_front_is_reported_and_ends_it_by_the_signal) {
    kill(tensord.pid, SIGSEGV);
    int status = daemon_wait(&tensord, WAIT_MS);
    cr_assert(status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "wait status %d", status);
    expect_log("process=front event=crash signal=SIGSEGV");
    expect_log("function=front_run+0x");
    expect_log("process=front event=crash_end");
    daemon_kill(&tensord);
}
