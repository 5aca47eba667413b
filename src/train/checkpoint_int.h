/* Private to the checkpoint files: checksummed writing, directories, MANIFEST. */
#ifndef TRAINER_CHECKPOINT_INT_H
#define TRAINER_CHECKPOINT_INT_H

#include "trainer/checkpoint.h"
#include "trainer/mem.h"

#define TR_CHECKPOINT_MODEL     "model.safetensors"
#define TR_CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define TR_CHECKPOINT_STATE     "state.json"
#define TR_CHECKPOINT_MANIFEST  "MANIFEST"
#define TR_TEXT_MAX_BYTES       ((int64_t)256 << 20) /* of a MANIFEST or state.json that is believed */

/* -- files (checkpoint_io.c) ----------------------------------------------------------------------------- */

/* A new file, checksummed (XXH3-64) as it is written; a part of it may be checksummed on its own besides. */
typedef struct tr_sink tr_sink_t;
tr_status_t tr_sink_open(const char *path, tr_sink_t **out);
tr_status_t tr_sink_write(tr_sink_t *sink, const void *bytes, size_t count);
void tr_sink_begin_part(tr_sink_t *sink);
uint64_t tr_sink_end_part(tr_sink_t *sink);
/* fsyncs and closes. A failed fsync is final: what the kernel dropped cannot be written again. */
tr_status_t tr_sink_commit(tr_sink_t *sink, uint64_t *checksum, int64_t *bytes);
/* Removes the file where not committed, frees. */
void tr_sink_close(tr_sink_t **sink);

/* Checksums `bytes` at `offset` of an open file by reading it, so that a bad disk is an error and not a
 * signal. `whole` goes on over calls and may be NULL. */
typedef struct tr_checksum tr_checksum_t;
tr_status_t tr_checksum_create(tr_checksum_t **out);
tr_status_t tr_checksum_read(tr_checksum_t *whole, int fd, const char *path, int64_t offset, int64_t bytes,
                             uint64_t *out_part);
uint64_t tr_checksum_value(const tr_checksum_t *whole);
void tr_checksum_destroy(tr_checksum_t **checksum);
uint64_t tr_checksum_bytes(const void *bytes, size_t count);

/* Records "VERB PATH: system's text" with the code that errno_value means. */
tr_status_t tr_io_fail(const char *verb, const char *path, int errno_value);
/* dir/name; TR_ERR_CONFIG where it is longer than a path may be. */
tr_status_t tr_path_join(const char *dir, const char *name, char out[4096]);
tr_status_t tr_sync_directory(const char *path);
/* Removes a file or a whole directory; absent is fine. Symbolic links are removed, not followed. */
tr_status_t tr_remove_tree(const char *path);
/* A small text file with a terminating zero. */
tr_status_t tr_read_text(const char *path, int64_t max_bytes, char **out_text, int64_t *out_bytes);

/* -- the folder "checkpoints" (checkpoint_dir.c) --------------------------------------------------------- */

typedef TR_VEC(int64_t) tr_steps_t;
/* The steps of the directories step-*, newest first; none where dir is absent. */
tr_status_t tr_checkpoint_list(const char *dir, tr_steps_t *out);
void tr_checkpoint_name(int64_t step, char out[32]);
/* False where `name` is not exactly what tr_checkpoint_name makes. */
bool tr_checkpoint_parse_name(const char *name, int64_t *out_step);
/* Removes .tmp-* and .del-* of dead writers and of this process, which writes none meanwhile (one before it may have had its id); with `all` (the caller
 * holds the run's lock) of any. */
tr_status_t tr_checkpoint_clean(const char *dir, bool all);

/* -- MANIFEST (checkpoint_manifest.c) -------------------------------------------------------------------- */

typedef struct {
    char *name; /* owned */
    int64_t bytes;
    uint64_t checksum;
} tr_manifest_file_t;

typedef struct {
    char *name;  /* owned */
    size_t file; /* index */
    tr_dtype_t dtype;
    tr_shape_t shape;
    int64_t offset; /* in the file's data */
    uint64_t checksum;
} tr_manifest_tensor_t;

typedef struct {
    int64_t step;
    TR_VEC(tr_manifest_file_t) files;
    TR_VEC(tr_manifest_tensor_t) tensors; /* grouped by file, in the files' order */
} tr_manifest_t;

tr_status_t tr_manifest_add_file(tr_manifest_t *m, const char *name, int64_t bytes, uint64_t checksum);
/* Of the file added last. */
tr_status_t tr_manifest_add_tensor(tr_manifest_t *m, const tr_manifest_tensor_t *tensor);
tr_status_t tr_manifest_format(const tr_manifest_t *m, tr_str_t *out);
/* Accepts exactly what tr_manifest_format writes; TR_ERR_DATA names `path` and what is wrong. */
tr_status_t tr_manifest_parse(const char *text, size_t bytes, const char *path, tr_manifest_t *out);
void tr_manifest_free(tr_manifest_t *m);

/* Bytes of a tensor; false where they overflow. */
bool tr_tensor_bytes(tr_dtype_t dtype, const tr_shape_t *shape, int64_t *out);

#endif
