/* What a worker and the process that compiles for it (compile_process.h, compile_child.h) tell each other. Both are
 * the same program on the same host, so these are plain structs; but the source that is compiled may have taken over
 * the process that replies, so all of a reply is checked before it is used. */
#pragma once

#include <stdint.h>

#include "proto/ops/kernel.h"
#include "proto/ops/status.h"

enum {
    COMPILE_REPLY_FD = 3,    /* a pipe; the request is a file, standard input */
    COMPILE_NO_REPLY = 120,  /* exit statuses: the child could not even reply; it crashed, */
    COMPILE_NO_MEMORY = 121, /* and had taken most of the memory that it may have */
    COMPILE_CODE_MAX = 256 << 20,
    COMPILE_SYMBOL_MAX = 1 << 20,
    COMPILE_MAGIC = 0x6b637274,
};

/* Followed by the source and the kernel's name, each with its zero. */
struct compile_request {
    uint32_t magic, target;
    uint64_t text_bytes, name_bytes; /* with the zeros */
    uint64_t memory;                 /* the compiler may have; 0: any */
    uint32_t seconds;                /* of processor time; 0: any */
    uint32_t unused;
};

/* Followed by the code, its symbol and the log; texts without a zero. */
struct compile_reply {
    uint32_t magic, status;
    uint64_t code_bytes;
    uint32_t symbol_bytes, log_bytes;
    char message[sizeof((struct fault *)0)->message];
};
