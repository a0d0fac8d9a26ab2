/* tensord: the front; with the command "user" the tool for the file of users. The front starts the same program with
 * hidden commands: "worker" is one of its workers, and "count" lists devices. A worker starts it with "compile" to
 * compile a user kernel. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "proto/net/url.h"
#include "server/front/config.h"
#include "server/front/front.h"
#include "server/front/probe.h"
#include "server/http/http.h"
#include "server/process/log.h"
#include "server/process/loop.h"
#include "server/process/state_directory.h"
#include "server/user_command.h"
#include "server/users/users.h"
#include "server/worker/compile_process.h"
#include "server/worker/crash.h"
#include "server/worker/worker.h"

enum { EXIT_USAGE = 2 };

/* `tensord worker DEVICE FRONT-PID`, started by the front alone. */
static int main_worker(char **arguments) {
    char name[16];
    snprintf(name, sizeof name, "tensord %.7s", arguments[2]);
    prctl(PR_SET_NAME, name);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The front may have died before prctl() took effect. */
    if (getppid() != atoi(arguments[3]))
        return EXIT_FAILURE;
    /* A terminal's ^C and a service manager's SIGTERM reach the whole group; only the front acts on them. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    return worker_main(WORKER_CHANNEL_FD, WORKER_PAGE_FD);
}

/* Opens the standard descriptors if they are closed: otherwise a descriptor opened later would become standard
 * error. */
static void main_fill_standard_descriptors(void) {
    int fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = open("/dev/null", O_RDWR);
    if (fd >= 0)
        close(fd);
}

static void main_find_devices(struct config *config) {
    struct fault fault;
    if (!config->devices_auto)
        return;
    if (!probe_worthwhile())
        fault_set(&fault, STATUS_NO_DEVICE, "no NVIDIA driver is loaded");
    else if (config_find_devices(config, &fault) == STATUS_OK)
        return;
    snprintf(config->devices_why, sizeof config->devices_why, "%s", fault.message);
}

/* Checks what a start would check before it listens: the file of users, certificates, addresses, and the directory of
 * named tensors. Opens no socket and writes nothing. */
static int main_check(const struct config *config, struct fault *fault) {
    CLEANUP(users_destroy) struct users *users = NULL;
    struct front_tls_fresh tls;
    int error = *config->users ? users_read(config->users, &users, fault) : STATUS_OK;
    if (error || (error = front_tls_read(config, &tls, fault)))
        return error;
    struct listener_list listeners = {.authenticated = *config->users,
                                      .plaintext = config->allow_plaintext,
                                      .have_certificate = tls.context,
                                      .clients_show_certificates = config_wants_certificates(config)};
    for (unsigned i = 0; i < config->n_listen && !error; i++)
        error = listener_check(&listeners, config->listen[i], fault);
    front_tls_drop(&tls);
    char url[128];
    if (!error && !config->n_listen)
        error = url_default(url, sizeof url, fault);
    if (!error)
        error = http_check(config, fault);
    /* A start would make the directory if it does not exist. */
    if (!error && *config->state_dir && access(config->state_dir, F_OK) == 0)
        error = state_directory_check(config->state_dir, fault);
    return error;
}

static void main_log_init(const struct config *config) {
    log_init((enum log_level)config->log_level, "front");
    log_set_format((enum log_format)config->log_format);
}

int main(int count, char **arguments) {
    static struct config config;
    enum config_action action;
    struct fault fault;
    signal(SIGPIPE, SIG_IGN);
    if (count == 4 && !strcmp(arguments[1], "worker"))
        return main_worker(arguments);
    if (count == 4 && !strcmp(arguments[1], "compile"))
        compile_process_main(arguments[2], arguments[3]);
    if (count == 3 && !strcmp(arguments[1], "count"))
        return probe_main(arguments[2]);
    if (count >= 2 && !strcmp(arguments[1], "user"))
        return user_command(count - 2, arguments + 2);
    config_init(&config);
    config.list_devices = probe_list;
    if (config_read_flags(&config, count, arguments, &action, &fault)) {
        main_log_init(&config); /* as far as it has been read */
        if (action == CONFIG_CHECK)
            fprintf(stderr, "tensord: %s\n", fault.message);
        else
            log_start_failed(fault.message);
        return EXIT_USAGE;
    }
    if (action == CONFIG_HELP) {
        config_print_help(stdout);
        return EXIT_SUCCESS;
    }
    if (action == CONFIG_VERSION) {
        puts("tensord " TENSORD_VERSION);
        return EXIT_SUCCESS;
    }
    if (action == CONFIG_CHECK) {
        if (main_check(&config, &fault)) {
            fprintf(stderr, "tensord: %s\n", fault.message);
            return EXIT_USAGE;
        }
        puts("The configuration is valid.");
        return EXIT_SUCCESS;
    }
    main_find_devices(&config);
    main_fill_standard_descriptors();
    loop_limit_descriptors(config.max_connections);
    main_log_init(&config);
    crash_init();
    return front_run(&config, &http_extension, count, arguments);
}
