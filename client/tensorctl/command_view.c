/* Commands that show the daemon's status: once, or with --watch again and again. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/tensorctl/command.h"
#include "proto/files/status_json.h"
#include "proto/wire/frame.h"

/* ---- once ---- */

int command_flushed(struct fault *fault) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return fault_set(fault, STATUS_INTERNAL, "cannot write the output: %s", strerror(errno));
}

/* Whether the command line names this device, or no device at all. */
static bool view_wants(const struct tensorctl *ctl, const char *device) {
    for (int i = 0; i < ctl->n_words; i++)
        if (!strcmp(ctl->words[i], device))
            return true;
    return ctl->n_words == 0;
}

static int view_check_names(const struct tensorctl *ctl, const Tensord__Status *status, struct fault *fault) {
    Tensord__Device **devices = calloc(status->n_devices + 1, sizeof(Tensord__Device *));
    if (!devices)
        return fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for a list of devices");
    for (size_t i = 0; i < status->n_devices; i++)
        devices[i] = status->devices[i]->device;
    int error = control_check_names(ctl->words, ctl->n_words, devices, status->n_devices, fault);
    free(devices);
    return error;
}

/* Removes the devices that the command line does not name, if it names any. */
static int view_filter(const struct tensorctl *ctl, Tensord__Status *status, struct fault *fault) {
    int error = view_check_names(ctl, status, fault);
    size_t kept = 0;
    if (error)
        return error;
    for (size_t i = 0; i < status->n_devices; i++) {
        Tensord__DeviceStatus *device = status->devices[i];
        if (view_wants(ctl, device->device->name))
            status->devices[kept++] = device;
        else
            tensord__device_status__free_unpacked(device, NULL);
    }
    status->n_devices = kept;
    return STATUS_OK;
}

static int view_show(struct tensorctl *ctl, struct fault *fault) {
    Tensord__Status *status;
    int error = control_status(ctl->control, &status, fault);
    if (error)
        return error;
    error = view_filter(ctl, status, fault);
    if (error) {
        tensord__status__free_unpacked(status, NULL);
        return error;
    }
    if (ctl->json)
        tensorctl_json_write(stdout, status, ctl->command->view, true);
    else
        tensorctl_status_write(stdout, status, ctl->command->view);
    tensord__status__free_unpacked(status, NULL);
    return command_flushed(fault);
}

/* ---- --watch ---- */

/* Enters the alternate screen, without cursor and without wrapping, and leaves it. */
static const char watch_enter[] = "\033[?1049h\033[?25l\033[?7l", watch_leave[] = "\033[?7h\033[?25h\033[?1049l";

static void watch_end(int signal) {
    ssize_t ignored = write(STDOUT_FILENO, watch_leave, sizeof watch_leave - 1);
    (void)ignored;
    _exit(signal == SIGINT ? EXIT_SUCCESS : 128 + signal);
}

static void watch_begin(void) {
    struct sigaction action = {.sa_handler = watch_end};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGQUIT, &action, NULL);
    fputs(watch_enter, stdout);
}

/* Draws over the old text, line by line, so that nothing flickers. Lines that do not fit on the terminal are left out. */
static void watch_draw(const char *text) {
    struct winsize size;
    int rows = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 ? size.ws_row - 1 : 24;

    fputs("\033[H", stdout);
    for (const char *end; rows > 0 && (end = strchr(text, '\n')); text = end + 1, --rows)
        printf("%.*s\033[K\n", (int)(end - text), text);
    fputs("\033[J", stdout);
}

static int watch_once(struct tensorctl *ctl, bool terminal, struct fault *fault) {
    Tensord__Status *status;
    char *text = NULL;
    size_t size;
    int error = control_status(ctl->control, &status, fault);
    if (error)
        return error;
    text_columns_find(STDOUT_FILENO); /* the terminal's width may have changed */
    FILE *memory = open_memstream(&text, &size);
    if (memory && ctl->json)
        tensorctl_json_write(memory, status, TENSORCTL_STATUS, false);
    else if (memory)
        tensorctl_status_write(memory, status, TENSORCTL_STATUS);
    tensord__status__free_unpacked(status, NULL);
    if (!memory || fclose(memory) != 0)
        error = fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the text");
    else if (terminal)
        watch_draw(text);
    else
        printf("%s%s", text, ctl->json ? "" : "\n");
    free(text);
    return error ? error : command_flushed(fault);
}

/* The daemon is gone, or does not reply. A terminal shows this below the last figures until the daemon is back. Without a
 * terminal the command ends instead. */
static void watch_wait(struct tensorctl *ctl, const struct fault *why) {
    char text[sizeof why->message + 64], shown[sizeof text];
    struct winsize size;
    int row = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 ? size.ws_row : 25;

    snprintf(text, sizeof text, "connection lost, trying again: %s", why->message);
    text_fit(shown, sizeof shown, text, text_columns());
    printf("\033[%d;1H\033[1m%s\033[m\033[K", row, shown);
    fflush(stdout);
    control_close(ctl->control);
    ctl->control = NULL;
}

static int view_watch(struct tensorctl *ctl, struct fault *fault) {
    struct timespec pause = {(time_t)ctl->watch_s, (long)(fmod(ctl->watch_s, 1) * 1e9)};
    bool terminal = isatty(STDOUT_FILENO) && !ctl->json;
    int error = STATUS_OK;

    if (terminal)
        watch_begin();
    for (;;) {
        error = ctl->control ? STATUS_OK : tensorctl_connect(ctl, fault);
        if (!error)
            error = watch_once(ctl, terminal, fault);
        bool lost = error == STATUS_CONNECTION || error == STATUS_PROTOCOL || error == STATUS_TIMED_OUT;
        if (error && !(lost && terminal))
            break;
        if (error)
            watch_wait(ctl, fault);
        nanosleep(&pause, NULL);
    }
    if (terminal) {
        fputs(watch_leave, stdout);
        fflush(stdout);
    }
    return error;
}

int command_view(struct tensorctl *ctl, struct fault *fault) {
    return ctl->watch_s > 0 ? view_watch(ctl, fault) : view_show(ctl, fault);
}

int command_operations(struct tensorctl *ctl, struct fault *fault) {
    if (ctl->n_words) {
        int code = tensorctl_contracts_write(stdout, ctl->words, ctl->n_words, ctl->json, fault);
        return code ? code : command_flushed(fault);
    }
    Tensord__ListOperations request = TENSORD__LIST_OPERATIONS__INIT;
    Tensord__OperationList *list;
    int error = control_call(ctl->control, FRAME_LIST_OPERATIONS, &request.base, FRAME_OPERATION_LIST,
                             (ProtobufCMessage **)&list, fault);
    if (error)
        return error;
    if (ctl->json)
        status_json_write_operations(stdout, list);
    else
        tensorctl_operations_write(stdout, list);
    tensord__operation_list__free_unpacked(list, NULL);
    return command_flushed(fault);
}
