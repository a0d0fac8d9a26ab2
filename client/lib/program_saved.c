/* Programs in files and under names: these calls wait. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/lib/call.h"
#include "client/lib/device.h"
#include "client/lib/error.h"
#include "client/lib/names.h"
#include "client/lib/program.h"
#include "client/lib/record.h"
#include "proto/files/crc64.h"
#include "proto/files/file.h"
#include "proto/files/saved_program.h"
#include "proto/ops/cleanup.h"
#include "proto/wire/check.h"

/* ---- what both have ---- */

/* The error says what it is about. */
static int refuse(const char *about, const struct fault *fault) {
    return error_set(fault->code, "%.120s: %s", about, fault->message);
}

/* The head of a program as a file or a name has it. */
static int pack(const td_program *program, enum saved_program_place place, uint64_t publication, uint8_t **head,
                size_t *bytes, struct fault *fault) {
    Tensord__ProgramDefine *definition =
        tensord__program_define__unpack(NULL, program->definition_bytes, program->definition);
    CLEANUP(free) const struct tensor_type **captured = malloc((program->n_captured + 1) * sizeof *captured);
    CLEANUP(free) struct saved_kernel *kernels = malloc((program->n_kernels + 1) * sizeof *kernels);
    int code = definition && captured && kernels ? STATUS_OK
                                                 : fault_set(fault, STATUS_NO_HOST_MEMORY, "no memory for the program");
    for (unsigned i = 0; i < program->n_captured && !code; i++)
        captured[i] = &program->captured[i]->type;
    for (unsigned i = 0; i < program->n_kernels && !code; i++) {
        const td_kernel *kernel = program->kernels[i];
        kernels[i] = (struct saved_kernel){.id = kernel->id, .source = kernel->source, .name = kernel->name};
    }
    if (!code)
        code = saved_program_pack(definition, program->n_captured, captured, program->n_kernels, kernels, place,
                                  publication, head, bytes, fault);
    tensord__program_define__free_unpacked(definition, NULL);
    return code;
}

/* After TD_E_AGAIN: waits until the send queue has room. Whether the call can be repeated. */
static bool room_again(td_device *device, int code) {
    return code == STATUS_AGAIN && !td_wait_room(device, TD_NEVER);
}

/* Captured tensors on their way into a program. */
struct captured {
    unsigned n;
    td_tensor **tensors;
};

static void captured_finish(struct captured *captured) {
    for (unsigned i = 0; i < captured->n && captured->tensors; i++)
        td_release(captured->tensors[i]);
    free(captured->tensors);
}
CLEANUP_FINISH(struct captured, captured_finish)

/* Kernels on their way into a program. */
struct kernel_list {
    unsigned n;
    td_kernel **kernels;
};

static void kernel_list_finish(struct kernel_list *list) {
    for (unsigned i = 0; i < list->n; i++)
        td_kernel_release(list->kernels[i]);
    free(list->kernels);
}
CLEANUP_FINISH(struct kernel_list, kernel_list_finish)

static void program_fill(td_program *program, const struct saved_program *saved, const struct captured *captured,
                         const struct kernel_list *kernels) {
    const Tensord__ProgramDefine *definition = saved->message->definition;
    const struct tensor_type *types = saved->types.types;
    memcpy(program->parameters, types, program->n_parameters * sizeof *types);
    for (unsigned i = 0; i < program->n_results; i++)
        program->results[i] = types[definition->outputs[i] - 1];
    for (unsigned i = 0; i < program->n_consumed; i++)
        program->consumed[i] = definition->consumed[i];
    for (unsigned i = 0; i < captured->n; i++) {
        program->captured[i] = captured->tensors[i];
        definition->captures[i] = captured->tensors[i]->id;
    }
    for (unsigned i = 0; i < kernels->n; i++)
        program->kernels[i] = kernels->kernels[i];
}

/* A program of the device from a definition that has been checked, whose launches have the ids of the kernels. */
static int define(td_device *device, const struct saved_program *saved, const struct captured *captured,
                  const struct kernel_list *kernels, td_program **out) {
    Tensord__ProgramDefine *definition = saved->message->definition;
    uint64_t gate = 0;
    td_program *program = program_create(device, saved->types.n_parameters, (unsigned)definition->n_outputs,
                                         (unsigned)definition->n_consumed, captured->n, kernels->n);
    if (!program)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a program");
    program_fill(program, saved, captured, kernels);
    for (unsigned i = 0; i < captured->n; i++)
        gate = captured->tensors[i]->gate > gate ? captured->tensors[i]->gate : gate;
    definition->operations->first_sequence = 0;
    definition->operations->stream = 0;
    int code;
    do
        code = program_define(program, definition, gate);
    while (room_again(device, code));
    if (code)
        program_destroy(program);
    else
        *out = program;
    return code;
}

/* ---- saving ---- */

static int save_bytes(struct new_file *file, const void *data, size_t bytes) {
    struct fault fault;
    return new_file_write(file, data, bytes, &fault) ? error_fault(&fault, NULL, NULL) : 0;
}

/* A captured tensor that has failed fails with its cause. */
static int save_captured(struct new_file *file, td_tensor *tensor) {
    size_t bytes = (size_t)type_bytes(&tensor->type);
    CLEANUP(free) void *data = malloc(bytes + 1);
    if (!data)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for a captured tensor of %zu bytes", bytes);
    int code = td_fetch(tensor, data, bytes);
    if (code)
        return code;
    const uint64_t sum = crc64(0, data, bytes);
    code = save_bytes(file, data, bytes);
    return code ? code : save_bytes(file, &sum, sizeof sum);
}

static int save(const td_program *program, const char *path, const uint8_t *head, size_t bytes) {
    struct new_file file;
    struct fault fault;
    if (new_file_open(&file, path, new_file_mode(path), &fault))
        return error_fault(&fault, NULL, NULL);
    int code = save_bytes(&file, head, bytes);
    for (unsigned i = 0; i < program->n_captured && !code; i++)
        code = save_captured(&file, program->captured[i]);
    if (!code && new_file_commit(&file, &fault))
        code = error_fault(&fault, NULL, NULL);
    new_file_abandon(&file);
    return code;
}

int td_program_save(td_program *program, const char *path) {
    struct fault fault;
    CLEANUP(free) uint8_t *head = NULL;
    size_t bytes = 0;
    if (!program || !path)
        return error_set(STATUS_INVALID_ARGUMENT, "%s is NULL", program ? "the path" : "the program");
    int code = record_check("save", program->device, NULL, RECORD_SYNC);
    if (code)
        return code;
    return pack(program, SAVED_PROGRAM_IN_FILE, 0, &head, &bytes, &fault) ? error_fault(&fault, NULL, NULL)
                                                                          : save(program, path, head, bytes);
}

/* ---- loading ---- */

static int load_bytes(int fd, uint64_t at, void *data, size_t bytes, unsigned i, struct fault *fault) {
    uint64_t sum;
    if (!whole_read(fd, data, bytes, at) || !whole_read(fd, &sum, sizeof sum, at + bytes))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "%s",
                         errno ? strerrordesc_np(errno) : "has been cut off meanwhile");
    if (sum != crc64(0, data, bytes))
        return fault_set(fault, STATUS_INVALID_ARGUMENT, "is damaged: the checksum of captured tensor %u is wrong", i);
    return STATUS_OK;
}

/* The upload frees the data when it has been sent. */
static td_tensor *load_upload(td_device *device, const struct tensor_type *type, void *data) {
    td_tensor *tensor;
    do
        tensor = td_upload_borrow(device, (td_dtype)type->dtype, type->rank, type->shape, data, free, data);
    while (!tensor && room_again(device, td_last_error()->code));
    return tensor;
}

static int load_captured(td_device *device, const struct saved_program *saved, int fd, const char *path,
                         struct captured *captured) {
    struct fault fault;
    uint64_t at = saved->head_bytes;
    captured->tensors = calloc(saved->n_captured + 1, sizeof(td_tensor *));
    if (!captured->tensors)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for %u captured tensors", saved->n_captured);
    for (; captured->n < saved->n_captured; captured->n++) {
        const struct tensor_type *type = saved_program_captured(saved, captured->n);
        size_t bytes = (size_t)type_bytes(type);
        CLEANUP(free) void *data = malloc(bytes + 1);
        if (!data)
            return error_set(STATUS_NO_HOST_MEMORY, "no memory for a captured tensor of %zu bytes", bytes);
        if (load_bytes(fd, at, data, bytes, captured->n, &fault))
            return refuse(path, &fault);
        td_tensor *tensor = captured->tensors[captured->n] = load_upload(device, type, data);
        if (!tensor)
            return td_last_error()->code;
        (void)TAKE(data);
        at += bytes + SAVED_PROGRAM_SUM_BYTES;
    }
    return 0;
}

/* Compiles the kernels, and puts their ids into the launches. The program holds them later. */
static int load_kernels(td_device *device, struct saved_program *saved, const char *path, struct kernel_list *list) {
    const Tensord__SavedProgram *message = saved->message;
    uint64_t ids[SAVED_PROGRAM_KERNELS_MAX];
    list->kernels = calloc(message->n_kernels + 1, sizeof(td_kernel *));
    if (!list->kernels)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for %zu kernels", message->n_kernels);
    for (; list->n < message->n_kernels; list->n++) {
        const Tensord__KernelCompile *kernel = message->kernels[list->n];
        int code;
        do
            code = td_kernel_compile(device, kernel->source, kernel->name, &list->kernels[list->n]);
        while (room_again(device, code));
        if (code)
            return error_about("%.120s: kernel %.63s", path, kernel->name);
        ids[list->n] = list->kernels[list->n]->id;
    }
    saved_program_bind_kernels(saved, ids);
    return 0;
}

static int load(td_device *device, const char *path, td_program **program) {
    CLEANUP(captured_finish) struct captured captured = {.n = 0};
    CLEANUP(kernel_list_finish) struct kernel_list kernels = {.n = 0};
    struct saved_program saved;
    struct fault fault;
    if (!device || !path || !program)
        return error_set(STATUS_INVALID_ARGUMENT, "%s is NULL",
                         !device ? "the device"
                         : !path ? "the path"
                                 : "the place for the program");
    int code = record_check("load", device, NULL, RECORD_SYNC);
    if (code)
        return code;
    CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fault_set(&fault, STATUS_INVALID_ARGUMENT, "%s", strerrordesc_np(errno));
        return refuse(path, &fault);
    }
    if (saved_program_read(&saved, fd, &fault))
        return refuse(path, &fault);
    code = load_kernels(device, &saved, path, &kernels);
    if (!code)
        code = load_captured(device, &saved, fd, path, &captured);
    if (!code)
        code = define(device, &saved, &captured, &kernels, program);
    saved_program_finish(&saved);
    return code;
}

int td_program_load(td_device *device, const char *path, td_program **program) {
    struct error_kept kept;
    error_keep(&kept);
    return error_kept_end(&kept, load(device, path, program));
}

/* ---- names ----
 *
 * A program is the value of its name, and what it has captured is under names beside it: name/captured/1, name/captured/2, … All are published in one step. Who opens
 * them takes several, so the program is looked at again after its captured tensors, and has a random number that tells whether it is the same. */

enum { OPEN_TRIES = 100 };

struct captured_name {
    char text[NAME_BYTES_MAX + 1];
};

/* False: it is too long. */
static bool captured_name(const char *name, unsigned i, struct captured_name *out) {
    int bytes = snprintf(out->text, sizeof out->text, "%s/captured/%u", name, i + 1);
    return bytes > 0 && (size_t)bytes < sizeof out->text;
}

static int check_name(td_device *device, const char *operation, const char *name) {
    struct fault fault;
    if (!name)
        return error_set(STATUS_INVALID_ARGUMENT, "the name is NULL");
    if (name_check(name, &fault))
        return error_fault(&fault, NULL, NULL);
    return record_check(operation, device, NULL, RECORD_SYNC);
}

/* The value of a name, which should be a program. */
static int fetch_head(td_device *device, const char *name, uint8_t **out, size_t *bytes) {
    td_tensor *tensor = td_open(device, name);
    if (!tensor)
        return td_last_error()->code;
    char shape[SHAPE_TEXT_MAX];
    struct tensor_type type = tensor->type;
    bool fits = type.dtype == DTYPE_U8 && type.rank == 1 &&
                type.shape[0] <= SAVED_PROGRAM_START_BYTES + SAVED_PROGRAM_MESSAGE_MAX + SAVED_PROGRAM_SUM_BYTES;
    *bytes = fits ? (size_t)type.shape[0] : 0;
    CLEANUP(free) uint8_t *head = fits ? malloc(*bytes + 1) : NULL;
    int code = 0;
    if (!fits)
        code = error_set(STATUS_INVALID_ARGUMENT, "\"%.100s\" is no program: its value is %s %s", name,
                         dtype_name(type.dtype), shape_text(&type, shape));
    else if (!head)
        code = error_set(STATUS_NO_HOST_MEMORY, "no memory for a program of %zu bytes", *bytes);
    else
        code = td_fetch(tensor, head, *bytes);
    td_release(tensor);
    if (!code)
        *out = TAKE(head);
    return code;
}

static int parse_head(const char *name, const uint8_t *head, size_t bytes, struct saved_program *saved) {
    struct fault fault;
    int code = saved_program_parse(saved, head, bytes, bytes, &fault);
    if (!code && saved->place != SAVED_PROGRAM_UNDER_NAMES) {
        code = fault_set(&fault, STATUS_INVALID_ARGUMENT, "it is a file's");
        saved_program_finish(saved);
    }
    return code ? error_set(fault.code, "the value of \"%.100s\" %s", name, fault.message) : 0;
}

/* What the names of captured tensors begin with. False: it is too long. */
static bool captured_prefix(const char *name, struct captured_name *out) {
    int bytes = snprintf(out->text, sizeof out->text, "%s/captured/", name);
    return bytes > 0 && (size_t)bytes < sizeof out->text;
}

/* Publishes the head and all captured tensors in one step, in which those of an earlier program go. */
static int publish_all(const td_program *program, const char *name, td_tensor *head) {
    size_t n = program->n_captured;
    CLEANUP(free) struct captured_name *texts = malloc((n + 1) * sizeof *texts);
    CLEANUP(free) const char **names = malloc((n + 1) * sizeof *names);
    CLEANUP(free) td_tensor **tensors = malloc((n + 1) * sizeof *tensors);
    struct captured_name beneath;
    if (!texts || !names || !tensors)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for %zu names", n + 1);
    tensors[0] = head;
    names[0] = name;
    for (unsigned i = 0; i < n; i++) {
        tensors[i + 1] = program->captured[i];
        names[i + 1] = texts[i].text;
        if (!captured_name(name, i, &texts[i]))
            return error_set(STATUS_INVALID_ARGUMENT,
                             "the name has no room for \"/captured/%u\" behind it, in the %d bytes of a name", i + 1,
                             NAME_BYTES_MAX);
    }
    return names_publish(n + 1, tensors, names, false, captured_prefix(name, &beneath) ? beneath.text : NULL);
}

static int publish(td_program *program, const char *name) {
    CLEANUP(free) uint8_t *head = NULL;
    struct fault fault;
    uint64_t publication;
    size_t bytes = 0;
    if (!program)
        return error_set(STATUS_INVALID_ARGUMENT, "the program is NULL");
    td_device *device = program->device;
    int code = check_name(device, "publish", name);
    if (code)
        return code;
    if (getrandom(&publication, sizeof publication, 0) != sizeof publication)
        return error_set(STATUS_INTERNAL, "no random number for the publication");
    if (pack(program, SAVED_PROGRAM_UNDER_NAMES, publication, &head, &bytes, &fault))
        return error_fault(&fault, NULL, NULL);
    td_tensor *tensor;
    do
        tensor = td_upload(device, TD_U8, TD_SHAPE((int64_t)bytes), head);
    while (!tensor && room_again(device, td_last_error()->code));
    if (!tensor)
        return td_last_error()->code;
    do
        code = publish_all(program, name, tensor);
    while (room_again(device, code));
    td_release(tensor);
    return code;
}

int td_program_publish(td_program *program, const char *name) {
    struct error_kept kept;
    error_keep(&kept);
    return error_kept_end(&kept, publish(program, name));
}

/* What the program has captured, under the names that belong to it. TD_E_UNKNOWN_ID: one is missing. */
static int open_captured(td_device *device, const char *name, const struct saved_program *saved,
                         struct captured *captured) {
    struct captured_name text;
    captured->tensors = calloc(saved->n_captured + 1, sizeof(td_tensor *));
    if (!captured->tensors)
        return error_set(STATUS_NO_HOST_MEMORY, "no memory for %u captured tensors", saved->n_captured);
    for (; captured->n < saved->n_captured; captured->n++) {
        if (!captured_name(name, captured->n, &text))
            return error_set(STATUS_INVALID_ARGUMENT, "the name is too long for a program that has captured tensors");
        td_tensor *tensor = captured->tensors[captured->n] = td_open(device, text.text);
        if (!tensor)
            return td_last_error()->code;
        if (!type_equal(&tensor->type, saved_program_captured(saved, captured->n)))
            return error_set(STATUS_UNKNOWN_ID, "the value of \"%.120s\" is not what the program has captured",
                             text.text);
    }
    return 0;
}

/* One try; *changed: the name has got another program meanwhile. */
static int open_once(td_device *device, const char *name, bool *changed, td_program **program) {
    CLEANUP(captured_finish) struct captured captured = {.n = 0};
    CLEANUP(free) uint8_t *head = NULL, *again = NULL;
    struct saved_program saved;
    size_t bytes, bytes_again;
    *changed = false;
    int code = fetch_head(device, name, &head, &bytes);
    if (!code)
        code = parse_head(name, head, bytes, &saved);
    if (code)
        return code;
    code = open_captured(device, name, &saved, &captured);
    if (saved.n_captured && (!code || code == STATUS_UNKNOWN_ID)) {
        td_error why = *td_last_error();
        int found = fetch_head(device, name, &again, &bytes_again);
        *changed = !found && (bytes_again != bytes || memcmp(again, head, bytes) != 0);
        if (code && !*changed)
            error_set((enum status)code, "%s", why.message);
        code = code ? code : found;
    }
    if (!code && !*changed)
        code = define(device, &saved, &captured, &(struct kernel_list){.n = 0}, program);
    saved_program_finish(&saved);
    return code;
}

static int open_named(td_device *device, const char *name, td_program **program) {
    bool changed = true;
    if (!device || !program)
        return error_set(STATUS_INVALID_ARGUMENT, "%s is NULL", device ? "the place for the program" : "the device");
    int code = check_name(device, "open", name);
    for (int i = 0; i < OPEN_TRIES && !code && changed; i++) {
        code = open_once(device, name, &changed, program);
        if (changed)
            code = 0;
    }
    return code || !changed ? code : error_set(STATUS_AGAIN, "\"%.100s\" gets one new program after the other", name);
}

int td_program_open(td_device *device, const char *name, td_program **program) {
    struct error_kept kept;
    error_keep(&kept);
    return error_kept_end(&kept, open_named(device, name, program));
}

static int unpublish(td_device *device, const char *name) {
    CLEANUP(free) uint8_t *head = NULL;
    struct captured_name beneath;
    struct saved_program saved;
    size_t bytes;
    if (!device)
        return error_set(STATUS_INVALID_ARGUMENT, "the device is NULL");
    int code = check_name(device, "unpublish", name);
    if (!code)
        code = fetch_head(device, name, &head, &bytes);
    if (!code)
        code = parse_head(name, head, bytes, &saved);
    if (code)
        return code;
    saved_program_finish(&saved);
    return names_remove(device, NULL, name, captured_prefix(name, &beneath) ? beneath.text : NULL);
}

int td_program_unpublish(td_device *device, const char *name) {
    struct error_kept kept;
    error_keep(&kept);
    return error_kept_end(&kept, unpublish(device, name));
}
