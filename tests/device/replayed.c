/* Operations by way of recorded programs: with TENSORD_TEST_REPLAY=1 the suite makes a program of each operation, with its inputs as parameters, runs that
 * in its place, and so compares programs with the reference, too. */
#include "tests/device/replayed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/program/fusion.h"
#include "engine/program/recorded_impl.h"
#include "engine/session/session_impl.h"

bool replayed_wanted(void) {
    const char *text = getenv("TENSORD_TEST_REPLAY");
    return text && atoi(text);
}

/* Whether the operation is one that a program may have, with inputs that have values. What is refused is left as it is: its words name ids. */
static bool replayed_takes(struct session *session, const struct op_request *request, struct tensor_type *types) {
    const struct op_info *info = op_info(request->opcode);
    if (!info || request->opcode == OP_FREE || op_is_clients(info) || request->n_inputs > REPLAYED_INPUTS)
        return false;
    const struct tensor_type *inputs[REPLAYED_INPUTS];
    struct tensor_type outputs[REPLAYED_OUTPUTS];
    struct fault fault;
    for (unsigned i = 0; i < request->n_inputs; i++) {
        const struct tensor *tensor = session_tensor(session, request->inputs[i]);
        if (!tensor || tensor->failure || tensor->uploading)
            return false;
        types[i] = tensor->type;
        inputs[i] = &types[i];
    }
    unsigned n_outputs = 1 + request->further;
    if (n_outputs > REPLAYED_OUTPUTS)
        return false;
    return op_infer_outputs(request->opcode, inputs, request->n_inputs, &request->attributes, n_outputs, outputs,
                            &fault) == STATUS_OK;
}

int replayed_submit(struct session *session, const struct op_request *request, uint64_t program) {
    struct tensor_type types[REPLAYED_INPUTS];
    bool consumed[REPLAYED_INPUTS];
    uint64_t inputs[REPLAYED_INPUTS], results[REPLAYED_OUTPUTS];
    struct fault fault;
    if (!replayed_takes(session, request, types))
        return session_submit(session, request);
    for (unsigned i = 0; i < request->n_inputs; i++) {
        inputs[i] = i + 1;
        consumed[i] = op_consumes(request->consume, request->consume_more, i);
    }
    for (unsigned i = 0; i <= request->further; i++)
        results[i] = request->n_inputs + 1 + i;
    struct op_request recorded = *request;
    recorded.inputs = inputs;
    recorded.consume = 0;
    recorded.consume_more = NULL;
    const struct recorded_definition definition = {.id = program,
                                                   .parameters = types,
                                                   .consumed = consumed,
                                                   .n_parameters = request->n_inputs,
                                                   .requests = &recorded,
                                                   .n_requests = 1,
                                                   .results = results,
                                                   .n_results = 1 + request->further};
    struct op_request run = *request;
    run.opcode = OP_PROGRAM;
    run.ints = (const int64_t[]){(int64_t)program, 1};
    run.n_ints = 2;
    run.n_floats = 0;
    run.label = NULL;
    if (session_program_define(session, &definition, &fault) != STATUS_OK)
        return session_submit(session, request);
    int code = session_submit(session, &run);
    session_program_release(session, program, &fault);
    return code;
}

unsigned replayed_compile(struct engine *engine) {
    struct kernel_store *store = engine_kernels(engine);
    struct fusion *fusion;
    struct kernel_job job;
    struct fault fault;
    unsigned n = 0;
    for (; (fusion = fusion_take(store)); n++) {
        if (fusion_job_init(&job, store, fusion, &fault) != STATUS_OK)
            abort();
        kernel_job_compile(&job);
        if (job.status == STATUS_OK)
            kernel_job_load(&job);
        if (job.status != STATUS_OK)
            fprintf(stderr, "a fused kernel: %s\n%s\n", job.fault.message, job.log ? job.log : "");
        fusion_settle(store, fusion, &job);
    }
    return n;
}

unsigned replayed_give_up(struct engine *engine, const struct session *session, unsigned *own) {
    struct kernel_store *store = engine_kernels(engine);
    struct fusion *fusion;
    unsigned n = 0;
    for (*own = 0; (fusion = fusion_take(store)); n++) {
        *own += store->fusion_tenant == session->ledger.tenant->number;
        fusion_settle(store, fusion, NULL);
    }
    return n;
}

unsigned replayed_fused(struct session *session, uint64_t program, unsigned *ready) {
    const struct op_request run = {.opcode = OP_PROGRAM, .ints = (const int64_t[]){(int64_t)program, 1}, .n_ints = 2};
    struct fault fault;
    const struct recorded *recorded = recorded_find(session, &run, &fault);
    *ready = recorded->plan.replay->n_ready;
    return recorded->plan.replay->n_compiled;
}

unsigned replayed_by_rows(struct session *session, uint64_t program) {
    const struct op_request run = {.opcode = OP_PROGRAM, .ints = (const int64_t[]){(int64_t)program, 1}, .n_ints = 2};
    struct fault fault;
    const struct replay *replay = recorded_find(session, &run, &fault)->plan.replay;
    unsigned n = 0;
    for (unsigned i = 0; i < replay->n_steps; i++) {
        const struct replay_step *step = &replay->steps[i];
        const struct fused_launch *launch = (const struct fused_launch *)(const void *)(replay->launches + step->at);
        for (uint32_t k = 0; step->kernel && !step->skipped && k < launch->n; k++)
            n += launch->operations[k].reduces || launch->operations[k].softmax;
    }
    return n;
}

bool replayed_graphs(struct session *session, uint64_t program, struct replay_graph_figures *figures) {
    const struct op_request run = {.opcode = OP_PROGRAM, .ints = (const int64_t[]){(int64_t)program, 1}, .n_ints = 2};
    const struct device_async *async = session->order->device->vtable->async;
    struct fault fault;
    const struct recorded *recorded = recorded_find(session, &run, &fault);
    *figures = (struct replay_graph_figures){0};
    const char *off = getenv("TENSORD_CUDA_GRAPHS");
    return recorded && replay_graph_read(recorded->plan.replay, figures) && async && async->graph_launch &&
           !(off && !strcmp(off, "none"));
}
