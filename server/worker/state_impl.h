/* What the files about names on disk share. */
#pragma once

#include "engine/session/session.h"
#include "server/users/principal.h"
#include "server/worker/state.h"

/* Bytes that are on the disk: a range of a storage's memory, as a tensor in a file. Its fields never change. */
struct saved_value {
    unsigned references; /* entries whose values lie in it. Loop thread */
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

/* Which of an owner's names and changes are on the disk. */
struct state_owner {
    uint64_t revision, saved; /* the number of changes so far, and of changes on the disk */
    unsigned bound, unbound;  /* names that were bound, and names that were removed, since the last save */
    uint64_t bytes;           /* to be written, about */
    /* When the first change came that no save includes, and the first change that the present save includes; 0:
     * none. */
    uint64_t since_ns, saving_since_ns;
    struct state_file *files; /* the files that names.json needs */
    size_t n_files;
    uint64_t next_file;
    struct name_owner *behind; /* this owner's changes, up to behind_revision, are saved first; NULL: none */
    uint64_t behind_revision;
    bool hurried;                              /* it is saved as soon as possible */
    struct save *save;                         /* in progress; NULL: none */
    TAILQ_HEAD(state_waits, state_wait) waits; /* the oldest first; those that are over come before the others */
    uint64_t waited;                           /* the number of the newest wait so far */
    /* Waits up to this number, for changes up to this revision, are over although these may not be on the disk: then
     * the verdict says why. */
    uint64_t failed_wait, failed_revision;
    struct fault verdict;
    bool due; /* in state->due */
    TAILQ_ENTRY(state_owner) due_link;
    uint64_t retry_ns; /* after a failure: no save before this time */
    unsigned failures; /* in a row */
    char fault[200];   /* why the last save failed; "": it did not */
    uint64_t told_ns;  /* when the failure was logged */
};

/* ---- the disk's thread ---- */

/* Call it while the disk is not busy. The job must stay at its address until it is done. */
void disk_start(struct disk *disk, struct disk_job *job);

/* Adds to the number of owners with changes that are not on the disk; `more` may be negative. */
void state_count_dirty(struct state *state, int more);

/* Gives the disk its next job, if it has nothing to do. */
void state_go(struct state *state);
/* A save has ended, and disk->saved says how far: turns will call those who waited for it. */
void state_saved(struct state *state, const struct name_owner *owner);
/* A save of the changes up to this revision has failed. */
void state_not_saved(struct state *state, const struct name_owner *owner, uint64_t revision, const struct fault *fault);
void state_log_unsaved(const struct name_owner *owner, const char *reason);

/* ---- names of files (state_folder.c) ---- */

/* The folder's name for an owner's names on this worker's device. */
void state_folder_name(const struct state *state, const char *principal, char name[STATE_NAME_MAX + 1]);
/* The owner of a folder; false: the folder is not one of this device. */
bool state_folder_principal(const struct state *state, const char *name, char principal[PRINCIPAL_NAME_BYTES]);
void state_path(const struct state *state, const char *name, char *path, size_t size);
void state_index_path(const char *folder, char path[STATE_FILE_MAX]);
void state_file_path(const char *folder, uint64_t number, char path[STATE_FILE_MAX]);
/* The number of a file of values; 0: the name is not that of such a file. */
uint64_t state_file_number(const char *name);
/* Flushes the folder: then files that were made, renamed or removed in it are so on the disk, too. */
int state_sync_folder(const char *folder, struct fault *fault);
/* Removes all files from an owner's folder except `files`: an interrupted save may have left some, and the last save
 * may have made some superfluous. `files` NULL: removes the index, too, and the folder itself if nothing else is
 * left. */
void state_sweep_folder(const char *folder, const struct state_file *files, size_t n_files);

/* ---- names.json (state_folder.c) ---- */

/* One name in the index. */
struct index_name {
    char *name, *key;
    uint64_t file; /* 0: it has no bytes */
    int64_t begin; /* bytes, from the beginning of the tensor `key` */
    struct tensor_type type;
    size_t value; /* index in the reader's values */
};
struct index {
    struct index_name *names;
    size_t count;
};
/* The text of a file for these names; malloc'ed, NULL without memory. Any thread. */
char *index_print(const char *device, const struct index_name *names, size_t count, size_t *bytes);
/* Reads an index. STATUS_INVALID_ARGUMENT: the fault says what is wrong with it. */
int index_read(struct index *index, const char *path, struct fault *fault);
void index_finish(struct index *index);

/* ---- one save (state_plan.c) ---- */

/* What a save writes. The disk's thread decides it, from values that do not change. */
struct save_plan {
    /* given */
    const char *device;
    char folder[STATE_PATH_MAX + STATE_NAME_MAX + 2];
    struct name_entry **entries; /* in the order of their names */
    size_t count;
    const struct state_file *files; /* the present files */
    size_t n_files;
    uint64_t number; /* for a new file */
    /* made */
    /* Of each entry; NULL: it has no bytes. A new value has a reference for each of its entries. */
    struct saved_value **values;
    struct save_write *writes; /* the new values, in the order of the file */
    size_t n_writes;
    uint64_t bytes;          /* of the new file */
    struct state_file *keep; /* the files that are needed afterwards, with the new one */
    size_t n_keep;
    int fd;         /* of the new file; -1: none */
    bool committed; /* names.json is the new one */
};
struct save_write {
    struct saved_value *value;
    const struct name_entry *entry; /* the value lies in its storage */
};
/* Decides what to write, makes the folder, and begins the new file. */
int save_plan_make(struct save_plan *plan, struct fault *fault);
/* All bytes have been written: flushes the file, and replaces names.json. */
int save_plan_commit(struct save_plan *plan, struct fault *fault);
/* After a failure: removes the new file. */
void save_plan_abandon(struct save_plan *plan);
void save_plan_finish(struct save_plan *plan);

/* ---- a save (state_save.c) ---- */

/* One save of one owner's names. Values are read through a session of the worker's own, as a client reads them, so that
 * this works on every device; the disk's thread does the work that a disk may delay. */
struct save {
    struct disk_job job;
    struct state *state;
    struct name_owner *owner;
    enum { SAVE_PLAN, SAVE_WRITE, SAVE_COMMIT, SAVE_ABANDON } phase; /* the disk's next job, */
    bool ready;                                                      /* which can begin */
    bool inside;                                                     /* save_advance() is running */
    uint64_t revision, began_ns, left;                               /* bytes still to be written */
    unsigned bound, unbound;                                         /* changes of the owner that it saves */
    struct save_plan plan;
    struct fault fault;
    /* the value being read */
    struct session *session;
    size_t at;
    bool opened, came, asked, part_came;
    struct held *alias;
    struct fetch fetch;
    struct fetch_part part;
    struct failure failure;
    int64_t offset;
    /* the piece being written */
    const uint8_t *data;
    size_t bytes, unsynced;
    uint8_t *gathered; /* SAVE_GATHER_BYTES */
    size_t n_gathered, values_gathered;
};

/* Begins a save of the owner's present names. NULL without memory: it is tried again later. */
struct save *save_create(struct state *state, struct name_owner *owner);
