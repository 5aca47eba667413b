/*
 * Checkpoints: a directory per step, committed by one rename.
 *
 *   checkpoints/step-00001200/  model.safetensors  optimizer.safetensors  state.json  MANIFEST
 *
 * and the files of tr_checkpoint_content_t.texts, which only other programs read.
 *
 * Protocol: write into checkpoints/.tmp-step-00001200-<pid>, fsync every file, MANIFEST last
 * (length and checksum of every file and tensor), fsync the directory, rename, fsync checkpoints/,
 * then delete old checkpoints. A directory named step-* is therefore complete unless it was damaged
 * later. Loading verifies it, falls back to the newest complete one, and reports what it skipped.
 *
 * Where ranks share the optimizer's state, each writes its pieces of the tensors into the same two
 * files. They have the bytes that one rank would have written, so that nothing that reads a
 * checkpoint knows how many ranks there were.
 *
 * Not collective: rank 0 writes, or the writer threads of all ranks do; every rank may read.
 */
#ifndef TR_CHECKPOINT_CHECKPOINT_H
#define TR_CHECKPOINT_CHECKPOINT_H

#include "base/mem.h"
#include "trainer/status.h"
#include "base/str.h"
#include "trainer/tensor_types.h"
#include <jansson.h>

#define TR_CHECKPOINT_MODEL     "model.safetensors"
#define TR_CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define TR_CHECKPOINT_STATE     "state.json"
#define TR_CHECKPOINT_MANIFEST  "MANIFEST"
/* size limit of MANIFEST and state.json */
#define TR_TEXT_MAX_BYTES ((int64_t)256 << 20)

/* -- safetensors (format: 8-byte little-endian header length, JSON header, data) --------------- */

typedef struct {
    const char *name;
    tr_dtype_t dtype;
    tr_shape_t shape;
    const void *data; /* host, dense; NULL for a tensor of a file: tr_safetensors_read */
} tr_named_tensor_t;

/*
 * Writes a new file (TR_ERR_IO if `path` exists) with `count` tensors in the given order, without
 * gaps, the first 8-byte aligned. metadata: text of a JSON object of strings, or NULL. checksums
 * (may be NULL) gets the XXH3-64 of each tensor, file_checksum that of the whole file. Calls fsync.
 * An incomplete file is removed.
 */
tr_status_t tr_safetensors_write(const char *path, const tr_named_tensor_t *tensors, size_t count,
                                 const char *metadata, uint64_t *checksums, uint64_t *file_checksum,
                                 int64_t *file_bytes);

typedef struct tr_safetensors tr_safetensors_t;
/*
 * Opens a file and checks its header: the tensors must cover the data without overlap or gap.
 * TR_ERR_DATA names the file and the error. BOOL is read as U8.
 */
tr_status_t tr_safetensors_open(const char *path, tr_safetensors_t **out);
/* Opens the shards in `dir` that the JSON file `index` lists (model.safetensors.index.json) as one
 * file, without metadata. */
tr_status_t tr_safetensors_open_shards(const char *dir, const char *index, tr_safetensors_t **out);
void tr_safetensors_close(tr_safetensors_t **file);
size_t tr_safetensors_count(const tr_safetensors_t *file);
/* Owned by the file. */
const tr_named_tensor_t *tr_safetensors_at(const tr_safetensors_t *file, size_t index);
/* NULL if absent. */
const tr_named_tensor_t *tr_safetensors_find(const tr_safetensors_t *file, const char *name);
/* Reads `bytes` of a tensor from its byte `first` on; `tensor` is one that tr_safetensors_at or
 * _find gave. Any thread may read. TR_ERR_DATA if the file has become shorter, TR_ERR_IO. */
tr_status_t tr_safetensors_read(const tr_named_tensor_t *tensor, int64_t first, int64_t bytes,
                                void *out);
/* JSON object text, "{}" if absent. */
const char *tr_safetensors_metadata(const tr_safetensors_t *file);

/* -- one checkpoint ---------------------------------------------------------------------------- */

typedef struct {
    char *name, *text; /* tr_free */
} tr_checkpoint_text_t;
typedef TR_VEC(tr_checkpoint_text_t) tr_checkpoint_texts_t;
void tr_checkpoint_texts_free(tr_checkpoint_texts_t *texts);

/* A piece of a tensor of a checkpoint that several ranks write. */
typedef struct {
    int rank, file;        /* that writes it; TR_PIECE_* */
    int64_t offset, bytes; /* in the file's data */
    const void *data;      /* host; NULL: another rank has it */
} tr_checkpoint_piece_t;
enum { TR_PIECE_MODEL, TR_PIECE_OPTIMIZER, TR_PIECE_FILES };

/* What a rank says of its pieces. */
typedef struct {
    int64_t number;                    /* of the attempt */
    int64_t status;                    /* tr_status_t */
    uint64_t checksum[TR_PIECE_FILES]; /* of its bytes of each file, in their order */
} tr_checkpoint_part_t;

/* What rank 0 gives to all ranks before they write a checkpoint: tr_checkpoint_attempt. */
typedef struct {
    int64_t number, step;
    int64_t start[TR_PIECE_FILES]; /* of the data in each file */
    char folder[64];               /* in which they write */
} tr_checkpoint_attempt_t;

typedef struct {
    int rank, ranks;
    const tr_checkpoint_piece_t *pieces; /* in the files' order: on rank 0 all, else its own */
    size_t piece_count;
    tr_checkpoint_attempt_t attempt;
    /* [ranks]; memory of the caller: a writer that had to allocate it, and could not, would tell the
     * others nothing */
    tr_checkpoint_part_t *parts;
    /* Called once by each writer, with parts[rank] of its own. On rank 0 it waits until it has
     * those of the other ranks; an error names a rank that will never have one. */
    tr_status_t (*exchange)(void *self, tr_checkpoint_part_t *parts);
    void *self;
} tr_checkpoint_sharing_t;

typedef struct {
    int64_t step;
    const tr_named_tensor_t *model;
    size_t model_count;
    const tr_named_tensor_t *optimizer;
    size_t optimizer_count;
    /* written unchanged: step, sample position, seed, config, versions, best, ... */
    const char *state_json;
    const char *metadata;              /* of model.safetensors; may be NULL */
    const tr_checkpoint_text_t *texts; /* additional files: config.json, ... */
    size_t text_count;
    /* NULL: this rank has all tensors. Else the data of the tensors above are NULL. */
    const tr_checkpoint_sharing_t *sharing;
} tr_checkpoint_content_t;

/*
 * Writes and commits one checkpoint under `dir` (the folder "checkpoints"). Replaces a checkpoint
 * of the same step. On failure, committed checkpoints are unchanged and the temporary directory is
 * removed; TR_ERR_IO names the file, the cause, and the space required. Blocks.
 */
tr_status_t tr_checkpoint_write(const char *dir, const tr_checkpoint_content_t *content,
                                char **out_path /* tr_free, may be NULL */);
/* For content with `sharing`, in which *out is then set. Rank 0. */
tr_status_t tr_checkpoint_attempt(const tr_checkpoint_content_t *content, int64_t number,
                                  tr_checkpoint_attempt_t *out);
/* What the ranks above 0 do of tr_checkpoint_write: their pieces. Rank 0 is told how it ended. */
tr_status_t tr_checkpoint_write_part(const char *dir, const tr_checkpoint_content_t *content);
/* Rank 0, instead of tr_checkpoint_write: waits until the other ranks have written their pieces, and
 * removes them. The last error stays. */
void tr_checkpoint_abandon(const char *dir, const tr_checkpoint_content_t *content);
/* TR_ERR_IO with both figures if the file system of `dir` has less free space than `count` such
 * checkpoints require. OK if the free space is unknown. */
tr_status_t tr_checkpoint_room(const char *dir, const tr_checkpoint_content_t *content,
                               int64_t count);
/* Deletes checkpoints except the newest `keep` (0: keep all) and those that the links keep_paths
 * ("best") point to. Each is renamed before it is deleted. Also deletes temporary directories of
 * dead writers and of this process. */
tr_status_t tr_checkpoint_retain(const char *dir, int64_t keep, const char *const *keep_paths,
                                 size_t keep_count);
/*
 * Renames the checkpoints of steps after `newest` to skipped-step-N, with a warning. When a run
 * resumes from an older checkpoint, they no longer belong to it, and one that was only temporarily
 * unreadable would later be used as the newest.
 */
tr_status_t tr_checkpoint_set_aside(const char *dir, int64_t newest);
/* Points the symbolic link dir/`name` ("best", "latest") at step-N, atomically. */
tr_status_t tr_checkpoint_link(const char *dir, const char *name, int64_t step);

typedef struct {
    char *path;
    int64_t step;
    uint64_t checksum;                   /* of its MANIFEST */
    tr_safetensors_t *model, *optimizer; /* optimizer NULL if absent */
    char *state_json;
    json_t *state; /* the same, parsed; NULL: not JSON */
} tr_checkpoint_t;
/* Opens and verifies one checkpoint directory: MANIFEST, lengths, checksums. TR_ERR_DATA names the
 * file that fails. */
tr_status_t tr_checkpoint_open(const char *path, tr_checkpoint_t **out);
/* The same, of one that several ranks verify together: of the data of tensors, this one reads part
 * `part` of `parts`, of nearly equal sizes; none if part = parts. The metadata in the headers of files of
 * tensors are not verified then. */
tr_status_t tr_checkpoint_open_part(const char *path, int part, int parts, tr_checkpoint_t **out);
/* What opens a checkpoint instead of tr_checkpoint_open. */
typedef struct {
    tr_status_t (*open)(void *self, const char *path, tr_checkpoint_t **out);
    void *self;
} tr_checkpoint_opener_t;
/*
 * Opens the newest complete checkpoint under `dir`; *out is NULL if dir is missing or empty.
 * Skipped checkpoints are appended to `skipped`, one per line. TR_ERR_DATA if there are checkpoints
 * but none verifies: training never silently restarts from scratch. opener: NULL: tr_checkpoint_open.
 */
tr_status_t tr_checkpoint_open_newest(const char *dir, const tr_checkpoint_opener_t *opener,
                                      tr_checkpoint_t **out, tr_str_t *skipped);
void tr_checkpoint_close(tr_checkpoint_t **checkpoint);

/* -- the folder "checkpoints" ------------------------------------------------------------------ */

typedef TR_VEC(int64_t) tr_steps_t;
/* The steps of the directories step-*, newest first; none if dir is missing. */
tr_status_t tr_checkpoint_list(const char *dir, tr_steps_t *out);
/*
 * Removes .tmp-* and .del-* of dead writers and of this process id, which an earlier process may
 * have had; this process must not be writing. With `all`, for which the caller holds the run's
 * lock, removes those of any process.
 */
tr_status_t tr_checkpoint_clean(const char *dir, bool all);

/* -- the writer thread ------------------------------------------------------------------------- */

typedef struct tr_checkpointer tr_checkpointer_t;
typedef struct {
    const char *dir;
    int64_t keep;
    /* Called by the writer thread before it writes a checkpoint, which fails if this does; NULL:
     * nothing. */
    tr_status_t (*before)(void *self);
    void *self;
    bool writes_part; /* a rank above 0, which writes its pieces; rank 0 does the rest */
} tr_checkpointer_params_t;
typedef struct {
    int64_t saved, failed;
    double last_write_sec; /* of the writer thread */
    double slowest_write_sec;
    int64_t last_bytes, last_step;
    tr_error_t last_error; /* of the last failure; code TR_OK if the newest attempt succeeded */
} tr_checkpointer_stats_t;

/*
 * Starts the writer thread. Creates `dir` if missing and tests it with a write, fsync, rename and
 * unlink (TR_ERR_PERMISSION, TR_ERR_IO). The caller holds the run's lock: temporary directories of
 * all other writers are removed. With writes_part it does nothing of this.
 */
tr_status_t tr_checkpointer_create(const tr_checkpointer_params_t *params, tr_checkpointer_t **out);
/* Submits `content`, whose names, data and text must not change until the writer is idle. "latest"
 * will point to it. TR_ERR_INTERNAL while the writer is busy. */
tr_status_t tr_checkpointer_submit(tr_checkpointer_t *c, const tr_checkpoint_content_t *content);
/* Declares the newest checkpoint, of `step`, the best: once it is written, "best" points to it, and
 * it is not deleted. Has no effect if it could not be written. Does not wait. */
void tr_checkpointer_best(tr_checkpointer_t *c, int64_t step);
bool tr_checkpointer_busy(const tr_checkpointer_t *c);
/* Waits until the writer is idle; returns the status of its last attempt. */
tr_status_t tr_checkpointer_wait(tr_checkpointer_t *c);
tr_checkpointer_stats_t tr_checkpointer_stats(const tr_checkpointer_t *c);
void tr_checkpointer_destroy(tr_checkpointer_t **c); /* waits */

#endif
