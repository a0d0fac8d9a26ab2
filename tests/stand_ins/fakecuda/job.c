#include "tests/stand_ins/fakecuda/job.h"
#include "tests/stand_ins/launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/program/fusion.h"
#include "engine/program/kernel_impl.h"
#include "engine/program/program.h"
#include "engine/program/recorded_impl.h"

enum { JOB_CHUNK = 1 << 20, JOB_LARGE = (5 << 20) / 4 + 3, JOB_SMALL = 24, JOB_STREAMS = 3, JOB_PARTS = 3 };

static void job_wrong(struct job *job, const char *what, uint64_t number) {
    if (!*job->wrong)
        snprintf(job->wrong, sizeof job->wrong, "%s (%" PRIu64 ")", what, number);
}

/* What may become of work under which a call of CUDA's fails. */
static void job_code(struct job *job, int code, const char *what) {
    if (code == STATUS_OK)
        return;
    job->n_failed++;
    if (code != STATUS_OUT_OF_MEMORY && code != STATUS_NO_HOST_MEMORY && code != STATUS_DEVICE_LOST)
        job_wrong(job, what, (uint64_t)code);
}

/* ---- operations ---- */

static void job_launched(struct job *job, const char *name) {
    if (job->n_launched == JOB_LAUNCHED_MAX)
        return job_wrong(job, "more launches than there is room for", JOB_LAUNCHED_MAX);
    job->launched[job->n_launched].name = name;
    job->launched[job->n_launched++].sequence = job->sequence;
}

/* Whatever its operands are. */
static bool opcode_is_one_launch(unsigned opcode) {
    static const unsigned opcodes[] = {OP_ADD, OP_LESS, OP_WHERE,   OP_CAST,   OP_EXP, OP_COPY, OP_MULTIPLY,
                                       OP_EYE, OP_FULL, OP_UNIFORM, OP_NORMAL, OP_SUM, OP_MEAN, OP_ARGMAX};
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
        if (opcodes[i] == opcode)
            return true;
    return false;
}

struct numbers {
    unsigned count;
    int64_t value[16];
};
#define NUMBERS(...)                                                                                                   \
    (struct numbers) {                                                                                                 \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {                                                          \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

/* As the worker does it: what is put off is asked for again after other work. */
static int job_submit(struct job *job, const struct op_request *request) {
    int code;
    while ((code = session_submit(job->session, request)) == STATUS_AGAIN) {
        engine_kick(job->engine);
        engine_poll(job->engine);
    }
    return code;
}

static uint64_t job_do(struct job *job, unsigned opcode, struct numbers inputs, struct numbers ints) {
    static const double floats[4] = {0, 1, 0, 0};
    uint64_t ids[16];
    const struct op_info *info = op_info(opcode);
    for (unsigned i = 0; i < inputs.count; i++)
        ids[i] = (uint64_t)inputs.value[i];
    struct op_request request = {.opcode = opcode,
                                 .stream = job->stream,
                                 .n_inputs = inputs.count,
                                 .inputs = ids,
                                 .n_ints = ints.count,
                                 .ints = ints.value,
                                 .n_floats = (unsigned)info->floats,
                                 .floats = floats,
                                 .sequence = ++job->sequence};
    if (opcode != OP_FREE)
        request.output = ++job->next_id;
    int code = job_submit(job, &request);
    job_code(job, code, info->name);
    if (code == STATUS_OK && opcode_is_one_launch(opcode))
        job_launched(job, info->name);
    return request.output;
}

static const struct numbers nothing = {0};

static uint64_t job_upload(struct job *job, uint32_t words, uint32_t first, bool waitable) {
    struct tensor_type type = {.dtype = DTYPE_I32, .rank = 1, .shape = {words}};
    struct upload upload;
    int64_t bytes = (int64_t)words * 4;
    struct upload_request request = {
        .id = ++job->next_id, .type = &type, .stream = job->stream, .sequence = ++job->sequence, .waitable = waitable};
    int code;
    while ((code = session_upload(job->session, &request, &upload)) == STATUS_AGAIN) {
        engine_kick(job->engine);
        engine_poll(job->engine);
    }
    job_code(job, code, "upload");
    if (code != STATUS_OK)
        return request.id;
    for (int64_t at = 0; at < bytes; at += JOB_CHUNK) {
        int64_t n = bytes - at < JOB_CHUNK ? bytes - at : JOB_CHUNK;
        uint32_t *chunk = (uint32_t *)(void *)upload_chunk(&upload, at, n);
        for (int64_t i = 0; chunk && i < n / 4; i++)
            chunk[i] = first + (uint32_t)(at / 4 + i);
        upload_chunk_done(&upload);
        engine_kick(job->engine);
    }
    upload_finish(&upload, NULL);
    return request.id;
}

/* ---- answers ---- */

static void answer_look(struct job_answer *answer, int64_t offset, int64_t bytes, const uint8_t *data) {
    uint32_t word;
    if (!answer->words)
        return;
    if (answer->fetch.bytes != (int64_t)answer->words * 4)
        job_wrong(answer->job, "a value has not the size it was uploaded with", (uint64_t)answer->fetch.bytes);
    for (int64_t i = 0; i < bytes; i += 4) {
        memcpy(&word, data + i, sizeof word);
        if (word != answer->first + (uint32_t)((offset + i) / 4)) {
            job_wrong(answer->job, "a value is not what was uploaded", word);
            return;
        }
    }
}

static void answer_done(struct fetch *fetch, const struct failure *failure) {
    struct job_answer *answer = (struct job_answer *)fetch;
    if (answer->done)
        job_wrong(answer->job, "a fetch was answered twice", 0);
    answer->done = true;
    answer->code = failure ? (int)failure->code : STATUS_OK;
    answer->job->n_answered++;
    job_code(answer->job, answer->code, "fetch");
}

static void job_fetch(struct job *job, uint64_t id, uint32_t words, uint32_t first) {
    struct job_answer *answer = &job->asked[job->n_asked++];
    *answer = (struct job_answer){.fetch.done = answer_done, .job = job, .words = words, .first = first};
    session_fetch(job->session, id, &answer->fetch);
    engine_kick(job->engine);
}

struct job_part {
    struct fetch_part part;
    bool done;
    int code;
};

static void part_done(struct fetch_part *part, const struct failure *failure) {
    struct job_part *self = (struct job_part *)part;
    self->done = true;
    self->code = failure ? (int)failure->code : STATUS_OK;
}

/* A large value in parts, several at a time. */
static void answer_read(struct job *job, struct job_answer *answer) {
    struct job_part parts[JOB_PARTS];
    int64_t step = answer->fetch.bytes / JOB_PARTS & ~(int64_t)3;
    for (int i = 0; i < JOB_PARTS; i++) {
        int64_t bytes = i < JOB_PARTS - 1 ? step : answer->fetch.bytes - i * step;
        parts[i] = (struct job_part){.part.done = part_done};
        fetch_read(&answer->fetch, i * step, bytes, &parts[i].part);
    }
    for (int i = 0; i < JOB_PARTS; i++) {
        while (!parts[i].done)
            engine_wait(job->engine);
        job_code(job, parts[i].code, "a part of a value");
        if (parts[i].code == STATUS_OK)
            answer_look(answer, i * step, i < JOB_PARTS - 1 ? step : answer->fetch.bytes - i * step,
                        parts[i].part.data);
        fetch_part_release(&parts[i].part);
    }
}

static void job_answers(struct job *job) {
    while (job->n_answered < job->n_asked)
        engine_wait(job->engine);
    for (unsigned i = 0; i < job->n_asked; i++) {
        struct job_answer *answer = &job->asked[i];
        if (answer->code == STATUS_OK && answer->fetch.bytes && answer->fetch.data)
            answer_look(answer, 0, answer->fetch.bytes, answer->fetch.data);
        else if (answer->code == STATUS_OK && answer->fetch.bytes)
            answer_read(job, answer);
        fetch_release(&answer->fetch);
    }
    job->n_asked = job->n_answered = 0;
}

struct job_wait {
    struct wait wait;
    bool done;
    int code;
};

static void wait_done(struct wait *wait, const struct failure *failure) {
    struct job_wait *self = (struct job_wait *)wait;
    self->done = true;
    self->code = failure ? (int)failure->code : STATUS_OK;
}

static void job_sync(struct job *job) {
    struct job_wait wait = {.wait.done = wait_done};
    session_wait(job->session, 0, &wait.wait);
    engine_kick(job->engine);
    while (!wait.done)
        engine_wait(job->engine);
    job_code(job, wait.code, "sync");
}

/* ---- the job ---- */

static void job_elementwise(struct job *job, uint64_t x, uint64_t y) {
    uint64_t sum = job_do(job, OP_ADD, NUMBERS(x, y), nothing);
    uint64_t less = job_do(job, OP_LESS, NUMBERS(sum, x), nothing);
    uint64_t chosen = job_do(job, OP_WHERE, NUMBERS(less, x, sum), nothing);
    uint64_t half = job_do(job, OP_CAST, NUMBERS(chosen), NUMBERS(DTYPE_F16));
    uint64_t power = job_do(job, OP_EXP, NUMBERS(half), nothing);
    job_fetch(job, job_do(job, OP_COPY, NUMBERS(power), nothing), 0, 0);
    job_do(job, OP_FREE, NUMBERS(sum, less, half), nothing);
}

static void job_views(struct job *job, uint64_t x) {
    uint64_t turned = job_do(job, OP_MATRIX_TRANSPOSE, NUMBERS(x), nothing);
    uint64_t cut = job_do(job, OP_SLICE, NUMBERS(turned), NUMBERS(0, OP_SLICE_NONE, 2, 5, OP_SLICE_NONE, -1));
    job_fetch(job, cut, 0, 0);
    job_fetch(job, job_do(job, OP_CONCAT, NUMBERS(x, x), NUMBERS(0)), 0, 0);
    job_fetch(job, job_do(job, OP_STACK, NUMBERS(x, x, x), NUMBERS(1)), 0, 0);
}

/* Reductions of a few long rows share each among many blocks, which takes scratch memory; one of the whole is CUB's. */
static void job_reductions(struct job *job, uint64_t x) {
    uint64_t wide = job_do(job, OP_UNIFORM, nothing, NUMBERS(DTYPE_F32, 7, 0, 2, 1 << 18));
    job_fetch(job, job_do(job, OP_SUM, NUMBERS(wide), NUMBERS(0, 1)), 0, 0);
    job_fetch(job, job_do(job, OP_ARGMAX, NUMBERS(wide), NUMBERS(0, 1)), 0, 0);
    job_fetch(job, job_do(job, OP_SUM, NUMBERS(wide), NUMBERS(0, 0, 1)), 0, 0);
    job_fetch(job, job_do(job, OP_MEAN, NUMBERS(x), NUMBERS(1, 0)), 0, 0);
    job_fetch(job, job_do(job, OP_ANY, NUMBERS(x), NUMBERS(0)), 0, 0);
    job_fetch(job, job_do(job, OP_SOFTMAX, NUMBERS(x), NUMBERS(1)), 0, 0);
    job_do(job, OP_SOFTMAX, NUMBERS(wide), NUMBERS(1));
    job_do(job, OP_FREE, NUMBERS(wide), nothing);
}

/* Of fp8 matrices: as they are, and, where both are e5m2, as f16 ones. */
static void job_products_f8(struct job *job, uint64_t a) {
    uint64_t narrow = job_do(job, OP_CAST, NUMBERS(a), NUMBERS(DTYPE_F8E4M3));
    uint64_t wide = job_do(job, OP_CAST, NUMBERS(a), NUMBERS(DTYPE_F8E5M2));
    uint64_t turned = job_do(job, OP_MATRIX_TRANSPOSE, NUMBERS(wide), nothing);
    job_fetch(job, job_do(job, OP_MATMUL, NUMBERS(narrow, turned), nothing), 0, 0);
    job_fetch(job, job_do(job, OP_MATMUL, NUMBERS(wide, turned), nothing), 0, 0);
    job_do(job, OP_FREE, NUMBERS(narrow, wide, turned), nothing);
}

/* By cublasLt, with an operand that has to be packed first, and by the module's own kernel. */
static void job_products(struct job *job) {
    uint64_t a = job_do(job, OP_NORMAL, nothing, NUMBERS(DTYPE_F32, 1, 0, 64, 512));
    uint64_t b = job_do(job, OP_SLICE, NUMBERS(a), NUMBERS(0, OP_SLICE_NONE, 2, 0, OP_SLICE_NONE, 2));
    uint64_t turned = job_do(job, OP_MATRIX_TRANSPOSE, NUMBERS(b), nothing);
    job_fetch(job, job_do(job, OP_MATMUL, NUMBERS(b, turned), nothing), 0, 0);
    job_products_f8(job, a);
    uint64_t whole = job_do(job, OP_CAST, NUMBERS(a), NUMBERS(DTYPE_I32));
    uint64_t standing = job_do(job, OP_MATRIX_TRANSPOSE, NUMBERS(whole), nothing);
    job_fetch(job, job_do(job, OP_MATMUL, NUMBERS(whole, standing), nothing), 0, 0);
}

/* With bias and activation, by cublasLt; in a pass of the module's own (it knows no float64 with these); without depth. */
static void job_linear(struct job *job) {
    static const unsigned dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_F64};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        uint64_t x = job_do(job, OP_NORMAL, nothing, NUMBERS(dtypes[i], 1, 0, 2, 64, 96));
        uint64_t weight = job_do(job, OP_NORMAL, nothing, NUMBERS(dtypes[i], 1, 0, 32, 96));
        uint64_t bias = job_do(job, OP_FULL, nothing, NUMBERS(dtypes[i], 0, 32));
        job_fetch(job, job_do(job, OP_LINEAR, NUMBERS(x, weight, bias), NUMBERS(OP_ACTIVATION_GELU_TANH)), 0, 0);
        uint64_t none = job_do(job, OP_SLICE, NUMBERS(x), NUMBERS(0, OP_SLICE_NONE, 1, 0, OP_SLICE_NONE, 1, 0, 0, 1));
        uint64_t flat = job_do(job, OP_SLICE, NUMBERS(weight), NUMBERS(0, OP_SLICE_NONE, 1, 0, 0, 1));
        job_do(job, OP_LINEAR, NUMBERS(none, flat, bias), NUMBERS(OP_ACTIVATION_RELU));
        job_do(job, OP_FREE, NUMBERS(x, weight, bias, none, flat), nothing);
    }
}

/* By cuDNN, cuFFT and cuSOLVER. */
static void job_libraries(struct job *job) {
    uint64_t images = job_do(job, OP_NORMAL, nothing, NUMBERS(DTYPE_F32, 1, 0, 2, 3, 9, 9));
    uint64_t weight = job_do(job, OP_NORMAL, nothing, NUMBERS(DTYPE_F32, 1, 0, 4, 3, 3, 3));
    job_fetch(job, job_do(job, OP_CONV, NUMBERS(images, weight), NUMBERS(1, OP_LAYOUT_CHANNELS_FIRST, 0, 0)), 0, 0);
    uint64_t lines = job_do(job, OP_NORMAL, nothing, NUMBERS(DTYPE_F32, 1, 0, 8, 64));
    job_fetch(job, job_do(job, OP_RFFT, NUMBERS(lines), NUMBERS(0, 1, OP_FFT_NORM_BACKWARD)), 0, 0);
    uint64_t matrix = job_do(job, OP_NORMAL, nothing, NUMBERS(DTYPE_F64, 1, 0, 160, 160));
    job_fetch(job, job_do(job, OP_INV, NUMBERS(matrix), nothing), 0, 0);
    job_do(job, OP_FREE, NUMBERS(images, weight, lines, matrix), nothing);
}

static void job_indices(struct job *job, uint64_t x) {
    uint64_t index = job_do(job, OP_FULL, nothing, NUMBERS(DTYPE_I64, 1, 4));
    uint64_t wide = job_do(job, OP_FULL, nothing, NUMBERS(DTYPE_I64, 0, 1, 6));
    job_fetch(job, job_do(job, OP_TAKE, NUMBERS(x, index), NUMBERS(0)), 0, 0);
    job_fetch(job, job_do(job, OP_TAKE_ALONG_AXIS, NUMBERS(x, wide), NUMBERS(0)), 0, 0);
    job_fetch(job, job_do(job, OP_ONE_HOT, NUMBERS(index), NUMBERS(5, DTYPE_F32)), 0, 0);
}

/* Tensors cross from one stream to others, and their memory is freed and used again. */
static void job_streams(struct job *job, uint64_t x) {
    struct fault fault;
    for (uint32_t i = 1; i <= JOB_STREAMS; i++)
        if (session_stream_open(job->session, i, (int)i - 2, &fault) != STATUS_OK)
            job_wrong(job, "a stream cannot be opened", fault.code);
    uint64_t last = x;
    for (uint32_t i = 0; i < 3 * JOB_STREAMS; i++) {
        job->stream = i % (JOB_STREAMS + 1);
        uint64_t next = job_do(job, OP_MULTIPLY, NUMBERS(last, x), nothing);
        if (last != x)
            job_do(job, OP_FREE, NUMBERS(last), nothing);
        last = next;
        engine_kick(job->engine);
    }
    job->stream = 0;
    job_fetch(job, last, 0, 0);
    session_stream_close(job->session, 2, &fault);
}

/* ---- user kernels ---- */

static int job_compile(struct job *job, uint64_t id, const char *source) {
    struct kernel_job compiling;
    struct fault fault;
    int code = kernel_job_init(&compiling, engine_kernels(job->engine), source, "store", &fault);
    if (code != STATUS_OK)
        return code;
    code = session_kernel_id(job->session, id, &fault);
    if (!kernel_job_compiled(&compiling))
        kernel_job_compile(&compiling);
    if (code == STATUS_OK)
        code = kernel_job_charge(&compiling, job->session);
    if (code == STATUS_OK)
        kernel_job_load(&compiling);
    if (code == STATUS_OK)
        code = kernel_job_bind(&compiling, job->session, id, &fault);
    kernel_job_finish(&compiling);
    return code;
}

/* A kernel that fills the first word of its output, from what an upload brought; once more from the cache. */
static void job_kernels(struct job *job, uint64_t x) {
    static const char source[] = "fakecuda: parameters 8 4 8; fakecuda: store;";
    uint64_t turned = job_do(job, OP_MATRIX_TRANSPOSE, NUMBERS(x), nothing);
    for (uint64_t id = 1; id <= JOB_KERNELS; id++) {
        struct fault fault;
        int code = job_compile(job, id, source);
        job_code(job, code, "compile");
        const struct kernel_attributes launch = {
            .kernel = (int64_t)id,
            .grid = LAUNCH_LIST(1, 1, 1),
            .block = LAUNCH_LIST(32, 1, 1),
            .arguments = LAUNCH_LIST(KERNEL_OUTPUT, KERNEL_BITS32, KERNEL_INPUT),
            .numbers = LAUNCH_LIST(4711),
            .results = LAUNCH_LIST(DTYPE_I32, 1, 1),
        };
        struct launch_ints ints;
        launch_ints_write(&ints, &launch);
        struct op_request request = {.opcode = OP_KERNEL,
                                     .n_inputs = 1,
                                     .inputs = &turned,
                                     .n_ints = ints.count,
                                     .ints = ints.values,
                                     .output = ++job->next_id,
                                     .sequence = ++job->sequence};
        if (code == STATUS_OK) {
            int launched = job_submit(job, &request);
            job_code(job, launched, "launch");
            if (launched == STATUS_OK)
                job_launched(job, "store");
        }
        if (code == STATUS_OK)
            job_fetch(job, request.output, 1, 4711);
        if (code == STATUS_OK && id == 2)
            session_kernel_release(job->session, id, &fault);
    }
}

/* ---- recorded programs ---- */

/* What a program of the job takes: words of an upload, numbers, and two matrices whose product has no depth. Values 1 to 4. */
static const struct tensor_type program_takes[] = {
    {.dtype = DTYPE_I32, .rank = 1, .shape = {JOB_SMALL}},
    {.dtype = DTYPE_F32, .rank = 2, .shape = {4, 6}},
    {.dtype = DTYPE_F32, .rank = 2, .shape = {4, 0}},
    {.dtype = DTYPE_F32, .rank = 2, .shape = {0, 6}},
};
enum { PROGRAM_TAKES = sizeof program_takes / sizeof *program_takes, PROGRAM_RUNS = 6, PROGRAM_OPERATIONS = 9 };

struct job_program {
    struct op_request requests[PROGRAM_OPERATIONS];
    uint64_t inputs[PROGRAM_OPERATIONS][2];
    int64_t ints[PROGRAM_OPERATIONS][4];
    unsigned n;
};

/* Returns the number of its result. */
static uint64_t program_add(struct job_program *program, unsigned opcode, struct numbers inputs, struct numbers ints) {
    unsigned k = program->n++;
    for (unsigned i = 0; i < inputs.count; i++)
        program->inputs[k][i] = (uint64_t)inputs.value[i];
    memcpy(program->ints[k], ints.value, ints.count * sizeof(int64_t));
    program->requests[k] = (struct op_request){.opcode = opcode,
                                               .n_inputs = inputs.count,
                                               .inputs = program->inputs[k],
                                               .n_ints = ints.count,
                                               .ints = program->ints[k]};
    return PROGRAM_TAKES + program->n;
}

/* A copy of the words, which is the first result, and what else a graph may have: kernels of the module's own and of a library's, memory that is
 * set, and a launch of several of these. `plain`: only what can be exchanged one by one. */
static bool job_define(struct job *job, uint64_t id, bool plain, unsigned *n_results) {
    struct job_program program = {.n = 0};
    uint64_t words = program_add(&program, OP_COPY, NUMBERS(1), nothing);
    uint64_t sum = program_add(&program, OP_ADD, NUMBERS(2, 2), nothing);
    uint64_t power = program_add(&program, OP_EXP, NUMBERS((int64_t)sum), nothing);
    uint64_t zeros = program_add(&program, OP_MATMUL, NUMBERS(3, 4), nothing);
    uint64_t last = program_add(&program, OP_MULTIPLY, NUMBERS((int64_t)power, (int64_t)zeros), nothing);
    uint64_t results[] = {program_add(&program, OP_COPY, NUMBERS((int64_t)words), nothing), zeros, last};
    if (!plain) {
        uint64_t one = program_add(&program, OP_EYE, nothing, NUMBERS(DTYPE_F32, 4, 6, 0));
        uint64_t turned = program_add(&program, OP_MATRIX_TRANSPOSE, NUMBERS(2), nothing);
        results[1] = program_add(&program, OP_MATMUL, NUMBERS((int64_t)last, (int64_t)turned), nothing);
        results[2] = one;
    }
    *n_results = 3;
    const struct recorded_definition definition = {.id = id,
                                                   .parameters = program_takes,
                                                   .consumed = (const bool[PROGRAM_TAKES]){false},
                                                   .n_parameters = PROGRAM_TAKES,
                                                   .requests = program.requests,
                                                   .n_requests = program.n,
                                                   .results = results,
                                                   .n_results = *n_results};
    struct fault fault;
    int code = session_program_define(job->session, &definition, &fault);
    job_code(job, code, "a program");
    return code == STATUS_OK;
}

/* Each run has other words, at other addresses, and has to bring back its own. */
static void job_program(struct job *job, uint64_t id, int64_t times, const uint64_t *inputs, unsigned n_results,
                        uint32_t first) {
    uint64_t output = job->next_id + 1;
    struct op_request run = {.opcode = OP_PROGRAM,
                             .stream = job->stream,
                             .n_inputs = PROGRAM_TAKES,
                             .inputs = inputs,
                             .ints = (const int64_t[]){(int64_t)id, times},
                             .n_ints = 2,
                             .further = (uint16_t)(n_results - 1),
                             .output = output,
                             .sequence = ++job->sequence};
    job->next_id += n_results;
    job_code(job, job_submit(job, &run), "a run");
    job_fetch(job, output, JOB_SMALL, first);
    for (unsigned r = 1; r < n_results; r++)
        job_fetch(job, output + r, 0, 0);
}

/* The kernels of fused launches, as a daemon does. */
static void job_fused(struct job *job) {
    struct kernel_store *store = engine_kernels(job->engine);
    struct kernel_job compiling;
    struct fusion *fusion;
    struct fault fault;
    while ((fusion = fusion_take(store))) {
        int code = fusion_job_init(&compiling, store, fusion, &fault);
        job_code(job, code, "a fused launch's source");
        if (code == STATUS_OK)
            kernel_job_compile(&compiling);
        if (code == STATUS_OK && compiling.status == STATUS_OK)
            kernel_job_load(&compiling);
        if (code == STATUS_OK && compiling.status != STATUS_OK)
            job->n_failed++;
        fusion_settle(store, fusion, code == STATUS_OK ? &compiling : NULL);
    }
}

/* If nothing has failed, the runs have used them. */
static void job_fused_look(struct job *job, uint64_t id) {
    const struct op_request run = {.opcode = OP_PROGRAM, .ints = (const int64_t[]){(int64_t)id, 1}, .n_ints = 2};
    struct fault fault;
    const struct recorded *recorded = recorded_find(job->session, &run, &fault);
    if (job->n_failed || !recorded || engine_kernels(job->engine)->fusions_off)
        return;
    const struct replay *replay = recorded->plan.replay;
    if (!replay->n_compiled || replay->n_ready != replay->n_compiled)
        job_wrong(job, "fused launches are not made", replay->n_ready);
}

static void job_programs(struct job *job) {
    struct fault fault;
    uint64_t ones = job_do(job, OP_FULL, nothing, NUMBERS(DTYPE_F32, 0, 4, 6));
    uint64_t tall = job_do(job, OP_SLICE, NUMBERS(ones), NUMBERS(0, OP_SLICE_NONE, 1, 0, 0, 1));
    uint64_t wide = job_do(job, OP_SLICE, NUMBERS(ones), NUMBERS(0, 0, 1, 0, OP_SLICE_NONE, 1));
    for (uint64_t id = 1; id <= 3; id += 2) {
        unsigned n_results;
        uint64_t loop = id + 1; /* it carries the words, which go from one memory to another and back */
        if (!job_define(job, id, id == 1, &n_results))
            continue;
        job_code(job,
                 session_program_loop(job->session,
                                      &(struct recorded_loop){
                                          .id = loop, .body = id, .carried = (const uint32_t[]){0, 0}, .n_carried = 2},
                                      &fault),
                 "a loop");
        for (uint32_t run = 0; run < PROGRAM_RUNS; run++) {
            uint64_t words = job_upload(job, JOB_SMALL, 1000 * run, false);
            const uint64_t inputs[PROGRAM_TAKES] = {words, ones, tall, wide};
            job_program(job, id, 1, inputs, n_results, 1000 * run);
            if (run == 2)
                job_program(job, loop, 4, inputs, n_results, 1000 * run);
            if (run == 2)
                job_answers(job); /* there are graphs now, */
            if (run == 3)
                job_fused(job); /* and one of them runs while the kernels come */
        }
        job_answers(job);
        job_fused_look(job, id);
        session_program_release(job->session, id, &fault);
        session_program_release(job->session, loop, &fault);
    }
}

static void job_work(struct job *job) {
    uint64_t small = job_upload(job, JOB_SMALL, 100, false), large = job_upload(job, JOB_LARGE, 7, false);
    uint64_t late = job_upload(job, JOB_SMALL, 5, true), wide = job_upload(job, JOB_LARGE, 9, true);
    uint64_t x =
        job_do(job, OP_CAST, NUMBERS(job_do(job, OP_RESHAPE, NUMBERS(small), NUMBERS(4, 6))), NUMBERS(DTYPE_F32));
    uint64_t y = job_do(job, OP_EYE, nothing, NUMBERS(DTYPE_F32, 4, 6, 0));
    job_do(job, OP_ARANGE, nothing, NUMBERS(DTYPE_I64, 0, 9, 1));
    job_fetch(job, small, JOB_SMALL, 100);
    job_fetch(job, large, JOB_LARGE, 7);
    job_fetch(job, late, JOB_SMALL, 5);
    job_elementwise(job, x, y);
    job_views(job, x);
    job_answers(job);
    job_reductions(job, x);
    job_products(job);
    job_linear(job);
    job_libraries(job);
    job_indices(job, x);
    job_kernels(job, x);
    job_programs(job);
    job_streams(job, x);
    job_fetch(job, wide, JOB_LARGE, 9);
    job_sync(job);
    job_do(job, OP_FREE, NUMBERS(large, wide), nothing);
    job_answers(job);
}

void job_run(struct job *job, struct engine *engine) {
    struct fault fault;
    struct session_limits limits = {.tensors = 1 << 20, .streams = 16};
    memset(job, 0, sizeof *job);
    job->engine = engine;
    if (session_create(engine_sessions(engine), &limits, &job->session, &fault) != STATUS_OK) {
        job_wrong(job, "no session", fault.code);
        return;
    }
    job_work(job);
    session_destroy(job->session);
}
