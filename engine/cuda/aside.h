/* Launches whose calls take long, by threads of their own (device_async.launch_aside): some of cuSOLVER's, which look at the device's results in
 * the middle, or compute a part on the host; and those for which a library is loaded, or cuDNN or cuFFT makes a plan. Each library has threads of
 * its own, so that a plan of a convolution, which takes milliseconds, does not wait for decompositions, which take seconds. A thread makes one
 * call at a time; when all have one, further calls wait for the first that returns. So of large decompositions at most ASIDES_MOST are under
 * way on a device, and small work goes on beside them; cuDNN and cuFFT have one thread each, since they are called by one at a time. */
#pragma once

#include <pthread.h>

#include "engine/device/device_impl.h"

enum { ASIDES_MOST = 4 };

/* Of one library. */
struct asides {
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under the lock */
    struct device_aside *first, **last; /* calls that no thread has taken */
    unsigned waiting;                   /* how many those are */
    unsigned idle;                      /* threads that have nothing to do */
    bool stopping;
    /* the submitter's; the owner's at the end */
    unsigned n_threads, most;
    pthread_t threads[ASIDES_MOST];
};

/* `most`: threads, at most ASIDES_MOST. */
void asides_init(struct asides *asides, unsigned most);
/* All calls have returned, and their outcomes were asked for. */
void asides_finish(struct asides *asides);
/* device_async.launch_aside, of a CUDA device. Where there is no memory or no thread for it, the call is made here. */
int cuda_launch_aside(struct device *device, struct device_stream *stream, const struct launch *launch,
                      void (*moved)(void *context), void *context, struct device_aside **aside, struct fault *fault);
