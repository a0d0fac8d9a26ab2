#include "engine/cpu/dnnl.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "engine/cpu/dnnl_impl.h"

struct dnnl *dnnl_load(void) {
    void *library = dlopen(CPU_DNNL, RTLD_NOW | RTLD_LOCAL); /* never unloaded: OpenMP may have threads */
    struct dnnl *dnnl = library ? calloc(1, sizeof *dnnl) : NULL;
    if (!dnnl) {
        return NULL;
    }
    bool whole = true;
#define DNNL_FIND(name)                                                                                                \
    dnnl->name = (__typeof__(dnnl->name))dlsym(library, "dnnl_" #name);                                                \
    whole = whole && dnnl->name;
    DNNL_FUNCTIONS(DNNL_FIND)
#undef DNNL_FIND
    dnnl->set_threads = (void (*)(int))dlsym(library, "omp_set_num_threads"); /* of a library that it needs */
    if (whole && dnnl->set_threads) {
        dnnl->set_threads(1);
        dnnl->set_primitive_cache_capacity(0); /* it would keep what is not kept here */
        if (dnnl_convolutions_init(dnnl) && dnnl->engine_create(&dnnl->engine, dnnl_cpu, 0) == dnnl_success) {
            pthread_mutex_init(&dnnl->lock, NULL);
            dnnl_products_init(dnnl);
            return dnnl;
        }
        dnnl_convolutions_finish(dnnl);
    }
    free(dnnl);
    return NULL;
}

void dnnl_unload(struct dnnl *dnnl) {
    if (!dnnl) {
        return;
    }
    dnnl_convolutions_finish(dnnl);
    dnnl_products_finish(dnnl);
    dnnl->engine_destroy(dnnl->engine);
    pthread_mutex_destroy(&dnnl->lock);
    free(dnnl);
}

bool dnnl_attributes_fill(const struct dnnl *dnnl, bool add, dnnl_primitive_attr_t attributes) {
    dnnl_post_ops_t sum = NULL;
    bool made = dnnl->primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) == dnnl_success;
    if (add) {
        made = made && dnnl->post_ops_create(&sum) == dnnl_success &&
               dnnl->post_ops_append_sum(sum, 1) == dnnl_success &&
               dnnl->primitive_attr_set_post_ops(attributes, sum) == dnnl_success;
    }
    if (sum) {
        dnnl->post_ops_destroy(sum);
    }
    return made;
}

/* ---- execution ---- */

void dnnl_call_add(struct dnnl_call *call, int argument, const dnnl_memory_desc_t *desc, const void *data) {
    dnnl_memory_t memory = NULL;
    call->right = call->right &&
                  call->dnnl->memory_create(&memory, desc, call->dnnl->engine, (void *)(uintptr_t)data) == dnnl_success;
    call->arguments[call->n++] = (dnnl_exec_arg_t){argument, memory};
}

bool dnnl_call_run(struct dnnl_call *call, dnnl_primitive_t primitive) {
    call->right = call->right &&
                  call->dnnl->primitive_execute(primitive, call->stream, call->n, call->arguments) == dnnl_success &&
                  call->dnnl->stream_wait(call->stream) == dnnl_success;
    for (int i = 0; i < call->n; i++) {
        if (call->arguments[i].memory) {
            call->dnnl->memory_destroy(call->arguments[i].memory);
        }
    }
    call->n = 0;
    return call->right;
}

bool dnnl_call_begin(struct dnnl_call *call, const struct dnnl *dnnl) {
    *call = (struct dnnl_call){.dnnl = dnnl, .right = true};
    dnnl->set_threads(1);
    return dnnl->stream_create(&call->stream, dnnl->engine, dnnl_stream_default_flags) == dnnl_success;
}

void dnnl_call_end(struct dnnl_call *call) {
    call->dnnl->stream_destroy(call->stream);
}
