/* Named tensors on disk: a worker saves them when it has drained, and restores them when it starts. There is one file for
 * each principal on each device, "cpu:0@uid%3A1000.safetensors", which is replaced in one step. One that cannot be restored,
 * for whatever reason, is put aside as "….refused" and never written over. Loop thread only. */
#pragma once

#include <dirent.h>

#include "server/names.h"
#include "server/principal.h"

struct service;

enum { STATE_PATH_MAX = 256, STATE_NAME_MAX = 255, STATE_CHUNK_BYTES = 1 << 20 };

struct state {
    char directory[STATE_PATH_MAX];
    struct service *service;
    /* Lets the loop turn once, so that the engine gets on and the front hears of this process; waits for something to happen
     * if told to. */
    void (*turn)(void *owner, bool wait);
    void *owner;
    bool sealed; /* a file could be neither restored nor put aside: nothing is saved over what is there */
};

/* For the front, at its start: makes the directory where there is none, with mode 0700, and refuses one that others can
 * look into, or that another daemon has: two would write over each other's files. It is this process's until that ends.
 * STATUS_INVALID_ARGUMENT says why not. */
int state_take_directory(const char *directory, struct fault *fault);

/* Whether a directory that is there may serve. */
int state_check_directory(const char *directory, struct fault *fault);

/* Before the first connection. What goes wrong is logged, and told by names->fault. */
void state_restore(struct state *state);
/* After the last one. What goes wrong is logged, and the old files stay. */
void state_save(struct state *state);

/* ---- for these files ---- */

/* The file's name for a principal on this worker's device. */
void state_file_name(const struct state *state, const char *principal, char name[STATE_NAME_MAX + 1]);
/* The principal whose file it is; false: it is not one of this device's. */
bool state_file_principal(const struct state *state, const char *name, char principal[PRINCIPAL_NAME_BYTES]);
void state_path(const struct state *state, const char *name, char *path, size_t size);
