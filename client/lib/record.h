/* Recordings: the operations that a thread enqueues on a device between td_record_begin() and td_record_end() become a program.
 *
 * A thread has one recording at most. Its tensors are handles like others, and have ids that say whose they are:
 *   TENSOR_RECORDED | the recording's serial << 32 | RECORD_PARAMETER, of parameters | their number, from 1
 * The daemon never gets them: their releases are not sent, and td_record_end() gives all tensors of the program the numbers of its definition.
 *
 * A recording belongs to its thread. Others see two things: the captured handles, which are under their device's lock, and the list of all recordings,
 * through which a device that closes takes these handles back. That is under the recordings' lock, which comes before the device's. */
#pragma once

#include "client/lib/batch.h"
#include "client/lib/tensor.h"

#define RECORD_PARAMETER (UINT64_C(1) << 31)

struct recording;

/* As the scopes' state, for the same reason. */
extern _Thread_local __attribute__((tls_model("initial-exec"))) struct recording *record_current;

/* Whether record_admit() has to look at an operation, by the bits of its inputs' ids. */
static inline bool record_concerns(uint64_t ids) {
    return record_current || ids & TENSOR_RECORDED;
}
/* *recording: the one that takes the operation; NULL: it is enqueued as usual. An error's code if it is neither. */
int record_admit(td_device *device, const struct batch_entry *call, unsigned n_consumed, td_tensor *const *consumed,
                 struct recording **recording);
/* Under the device's lock: takes an operation that was admitted, and makes its outputs. On failure nothing has changed. */
int record_push(struct recording *recording, const struct batch_entry *call, unsigned n_outputs,
                const struct tensor_type *types, td_tensor **outputs);
/* Whether the thread records on the device. */
bool record_is_on(const td_device *device);
/* The same for the inputs of a program's run whose operations the thread's recording will take; 0 or the error's code. */
int record_admit_run(td_device *device, unsigned n_inputs, td_tensor *const *inputs, unsigned n_consumed,
                     td_tensor *const *consumed);
/* How many operations, and bytes of them, the thread's recording still takes. */
void record_room(unsigned *operations, uint64_t *bytes);

/* What the program can do instead of fetches and waits. */
#define RECORD_RUN "name it as a result of td_record_end(), run the program, and ask for what the run gives"
/* Instead of waiting for the device. */
#define RECORD_SYNC "do it before td_record_begin() or after td_record_end()"
/* What it can do instead of bringing values to the device. */
#define RECORD_BRING                                                                                                   \
    "do it before td_record_begin(), and the tensor is captured; or make it a parameter, which each run fills"

/* For calls that cannot be recorded. 0, or the error's code if the tensor (NULL: there is none) is recorded, or if the thread records on the device.
 * `instead` says what the program can do; for a tensor that is not recorded, that is RECORD_SYNC. */
int record_refuse(const char *operation, const td_device *device, const td_tensor *tensor, const char *instead);
static inline int record_check(const char *operation, const td_device *device, const td_tensor *tensor,
                               const char *instead) {
    bool concerns = record_current || (tensor && tensor_is_recorded(tensor));
    return __builtin_expect(concerns, 0) ? record_refuse(operation, device, tensor, instead) : 0;
}

/* A closing device takes its handles back, and ends its recordings. Without the device's lock. */
void record_forget_device(td_device *device);
