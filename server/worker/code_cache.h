/* Compiled kernels on disk, so that a daemon that starts again need not compile what it has compiled before (cache-dir). Each has a file, which names
 * all that decides what the code is: the source in full, the device's architecture and the compiler. What is damaged, or of another compiler,
 * is as if it were not there. When the files are too large together, those that were used longest ago go. Several processes may share a folder. Any
 * thread. */
#pragma once

#include "engine/device/device_kernels.h"

enum { CODE_CACHE_PATH_MAX = 256, CODE_CACHE_BYTES = 128 << 20, CODE_CACHE_FILE_MAX = 16 << 20 };

struct code_cache {
    char folder[CODE_CACHE_PATH_MAX]; /* "": nothing is kept */
    uint64_t most;                    /* bytes of all files; 0: CODE_CACHE_BYTES */
};

/* The folder for a setting: a path as it is, "none", or "" for the first of these that is known: $CACHE_DIRECTORY, which systemd sets,
 * $XDG_CACHE_HOME/tensord, ~/.cache/tensord. Makes the folder, with mode 0700. If that cannot be, or others may write there, nothing is
 * kept: false, and the fault says why. */
bool code_cache_init(struct code_cache *cache, const char *setting, struct fault *fault);
/* `compiler` "": it is not known, and then nothing is there. *code is one block of malloc(). */
bool code_cache_find(const struct code_cache *cache, const char *compiler, const struct kernel_source *source,
                     struct device_code **code);
/* What cannot be written is not kept. */
void code_cache_keep(const struct code_cache *cache, const char *compiler, const struct kernel_source *source,
                     const struct device_code *code);
/* The code that was found is of no use. */
void code_cache_forget(const struct code_cache *cache, const char *compiler, const struct kernel_source *source);
