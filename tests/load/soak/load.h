/* Clients that put load on a daemon, each in a process of its own, until they are told to end or are killed. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Shared with all clients. */
struct load_board {
    atomic_bool end;
    atomic_uint_fast64_t rounds;
    char url[108];
    char words[512]; /* of a client that found something wrong; it ends with LOAD_WRONG */
};

enum { LOAD_WRONG = 3 };

/* What a client does, over and over. All check what they get back. Where a row says so, cpu:1 may be lost meanwhile. */
enum load_kind {
    LOAD_UPLOAD,  /* tensors up and back, of 4 bytes to 6 MiB */
    LOAD_CHAIN,   /* many small operations, one fetch */
    LOAD_STREAMS, /* operations that cross streams */
    LOAD_COPY,    /* from cpu:0 to cpu:1 and back; cpu:1 may be lost */
    LOAD_ERRORS,  /* operations that fail, and what is computed from them */
    LOAD_LOST,    /* on cpu:1, which may be lost */
    LOAD_LEAVE,   /* leaves in the middle of an upload, of replies, of a frame */
    LOAD_SLOW,    /* reads large replies in small bites */
    LOAD_GARBAGE, /* frames that are none */
    LOAD_STATUS,  /* control connections */
    LOAD_KINDS
};

/* A board that processes share. */
struct load_board *load_board_make(const char *url);
pid_t load_start(struct load_board *board, enum load_kind kind);
/* Waits for it after the board said the end, or kills it first. False where it found something wrong. */
bool load_join(pid_t pid, bool kill_first);
