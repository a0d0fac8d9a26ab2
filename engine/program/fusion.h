/* Kernels of fused launches, on devices whose backend writes their sources (struct device_fusion). A plan asks for the kernel of each of its fused
 * launches; launches that do the same share one, whichever sessions they belong to. Until it is compiled and loaded, which takes about a second,
 * and where that fails, runs make the launches one by one. What nobody uses any more stays for a while.
 *
 * The owner of the engine compiles: fusion_take(), a job of it, which compiles and loads as a client's kernel does (kernel.h), fusion_settle().
 *
 * No session pays for them: there are FUSIONS_MAX at most, of some ten kilobytes each, here and on the device. Owner thread. */
#pragma once

#include "engine/device/launch.h"
#include "engine/order/replay.h"
#include "engine/program/kernel.h"

enum { FUSIONS_MAX = 1024, FUSIONS_TENANT_MAX = FUSIONS_MAX / 4 /* that one tenant asked for first */ };

struct fusion;

/* The kernel of a fused launch, for a plan of a session of this tenant (session_tenant_number()); fusion_let_go() gives it back, when the plan's last run
 * is through. NULL: there is no room, or no host memory. */
struct replay_kernel *fusion_hold(struct kernel_store *store, const struct fused_launch *launch, uint64_t tenant);
/* NULL: the kernel is there. "": it is not yet. Else why it cannot be. */
const char *fusion_cause(const struct replay_kernel *kernel);
void fusion_let_go(struct kernel_store *store, struct replay_kernel *kernel);

/* Whether one waits to be compiled. */
bool fusions_wait(const struct kernel_store *store);
/* A kernel that is to be compiled, of one tenant after the other; it stays until it is settled. NULL: there is none. */
struct fusion *fusion_take(struct kernel_store *store);
/* The job that compiles it: kernel_job_compile(), kernel_job_load(), fusion_settle(). STATUS_NO_HOST_MEMORY. */
int fusion_job_init(struct kernel_job *job, struct kernel_store *store, const struct fusion *fusion,
                    struct fault *fault);
/* The kernel is there from now on, or the job has failed. Finishes the job; NULL: it could not begin. */
void fusion_settle(struct kernel_store *store, struct fusion *fusion, struct kernel_job *job);

/* For struct kernel_store. */
void fusions_finish(struct kernel_store *store);
