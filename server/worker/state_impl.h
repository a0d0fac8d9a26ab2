/* Between the files about names on disk. */
#pragma once

#include "server/users/principal.h"
#include "server/worker/state.h"

/* Bytes that are on the disk: a stretch of a storage's memory, as a tensor in a file. Its fields never change. */
struct saved_value {
    unsigned references; /* entries of names that lie in it. Loop thread */
    uint64_t file;       /* the number of the file */
    int64_t begin, end;  /* bytes of the storage */
    struct tensor_type type;
    char key[]; /* of the tensor in the file */
};
/* With one reference. NULL: no memory. */
struct saved_value *saved_value_create(uint64_t file, const char *key, const struct tensor_type *type, int64_t begin);

struct state_file {
    uint64_t number, bytes; /* of tensors */
};

/* What of an owner's names is on the disk, and what is not. */
struct state_owner {
    uint64_t revision, saved; /* changes so far, and those that are on the disk */
    unsigned bound, unbound;  /* names that were bound, or went, and are not saved as such */
    uint64_t bytes;           /* about so many are to be written */
    uint64_t since_ns,
        saving_since_ns;      /* the first change that no save has taken up, and of the one under way; 0: none */
    struct state_file *files; /* that names.json needs */
    size_t n_files;
    uint64_t next_file;
    struct name_owner *behind; /* whose changes go first, up to */
    uint64_t behind_revision;
    bool hurried;      /* it is to be saved before its time */
    struct save *save; /* under way; NULL: none */
    struct state_wait *waits;
    uint64_t retry_ns; /* after a failure: not before */
    unsigned failures; /* in a row */
    char fault[200];   /* of the last of them; "": it was none */
    uint64_t told_ns;  /* when that was logged */
};

/* So many more owners, or fewer, have changes that are not on the disk. */
void state_count_dirty(struct state *state, int more);

/* ---- names of files (state_folder.c) ---- */

/* The folder's name for an owner's names on this worker's device. */
void state_folder_name(const struct state *state, const char *principal, char name[STATE_NAME_MAX + 1]);
/* Whose folder it is; false: it is none of this device's. */
bool state_folder_principal(const struct state *state, const char *name, char principal[PRINCIPAL_NAME_BYTES]);
void state_path(const struct state *state, const char *name, char *path, size_t size);
void state_index_path(const char *folder, char path[STATE_FILE_MAX]);
void state_file_path(const char *folder, uint64_t number, char path[STATE_FILE_MAX]);
/* The number of a file of values; 0: it is none. */
uint64_t state_file_number(const char *name);
/* So that what has been made, renamed or removed in it is on the disk. */
int state_sync_folder(const char *folder, struct fault *fault);
/* Removes what lies in an owner's folder and is none of these files: what a save that was interrupted left behind, or the
 * last one did not need any more. `files` NULL: the index, too, and the folder itself where nothing else is left. */
void state_sweep_folder(const char *folder, const struct state_file *files, size_t n_files);

/* ---- names.json (state_folder.c) ---- */

/* One name in it. */
struct index_name {
    char *name, *key;
    uint64_t file; /* 0: it has no bytes */
    int64_t begin; /* bytes, from the beginning of the tensor `key` */
    struct tensor_type type;
    size_t value; /* of the reader */
};
struct index {
    struct index_name *names;
    size_t count;
};
/* The text of a file for these names; malloc'ed, NULL without memory. Any thread. */
char *index_print(const char *device, const struct index_name *names, size_t count, size_t *bytes);
/* Reads one. STATUS_INVALID_ARGUMENT says what is wrong with it. */
int index_read(struct index *index, const char *path, struct fault *fault);
void index_finish(struct index *index);

/* ---- one save (state_plan.c) ---- */

/* What a save writes: decided on the disk's thread, from values that do not change. */
struct save_plan {
    /* given */
    const char *device;
    char folder[STATE_PATH_MAX + STATE_NAME_MAX + 2];
    struct name_entry **entries; /* in the order of their names */
    size_t count;
    const struct state_file *files; /* those that there are */
    size_t n_files;
    uint64_t number; /* for a new one */
    /* made */
    struct saved_value **values; /* of each entry; NULL: it has no bytes. New ones have as many references */
    struct save_write *writes;   /* new ones, in the order of the file */
    size_t n_writes;
    uint64_t bytes;          /* of these, with what comes before them */
    struct state_file *keep; /* the files that are needed afterwards, with the new one */
    size_t n_keep;
    int fd;         /* of the new file; -1: none */
    bool committed; /* names.json is the new one */
};
struct save_write {
    struct saved_value *value;
    const struct name_entry *entry; /* in whose storage it lies */
};
/* Decides, makes the folder, and begins the new file. */
int save_plan_make(struct save_plan *plan, struct fault *fault);
/* All bytes have been written: brings everything to the disk, and puts it in the place of what was there. */
int save_plan_commit(struct save_plan *plan, struct fault *fault);
/* After a failure: removes what has been written. */
void save_plan_abandon(struct save_plan *plan);
void save_plan_finish(struct save_plan *plan);
