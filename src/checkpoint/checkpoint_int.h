/* Private to src/checkpoint: checksummed files, directories, MANIFEST. */
#ifndef TR_CHECKPOINT_CHECKPOINT_INT_H
#define TR_CHECKPOINT_CHECKPOINT_INT_H

#include "base/file.h"
#include "checkpoint.h"
#include "base/mem.h"

/* -- files (checkpoint_io.c) ------------------------------------------------------------------- */

/* A new file that is checksummed (XXH3-64) while it is written. A part of it can be checksummed
 * separately. */
typedef struct tr_sink tr_sink_t;
tr_status_t tr_sink_open(const char *path, tr_sink_t **out);
/* The same for a file that other ranks also open and write. The checksum is of what this rank
 * writes, and nothing is removed. */
tr_status_t tr_sink_open_shared(const char *path, tr_sink_t **out);
/* Goes to a place in a shared file. */
tr_status_t tr_sink_seek(tr_sink_t *sink, int64_t offset);
tr_status_t tr_sink_write(tr_sink_t *sink, const void *bytes, size_t count);
void tr_sink_begin_part(tr_sink_t *sink);
uint64_t tr_sink_end_part(tr_sink_t *sink);
/* Calls fsync and closes. A failed fsync is final: data that the kernel dropped cannot be written
 * again. */
tr_status_t tr_sink_commit(tr_sink_t *sink, uint64_t *checksum, int64_t *bytes);
/* Removes the file unless it was committed; frees. */
void tr_sink_close(tr_sink_t **sink);

/* The checksum of all that was read, and of a part of it: what was read since _begin_part. */
typedef struct tr_checksum tr_checksum_t;
tr_status_t tr_checksum_create(tr_checksum_t **out);
void tr_checksum_begin_part(tr_checksum_t *c);
/* Reads `bytes` at `offset` of an open file. `also` (may be NULL) gets the same bytes. */
tr_status_t tr_checksum_read(tr_checksum_t *c, tr_checksum_t *also, int fd, const char *path,
                             int64_t offset, int64_t bytes);
uint64_t tr_checksum_part(const tr_checksum_t *c);
uint64_t tr_checksum_value(const tr_checksum_t *c);
void tr_checksum_destroy(tr_checksum_t **checksum);
uint64_t tr_checksum_bytes(const void *bytes, size_t count);

/* -- the folder "checkpoints" (checkpoint_dir.c) ----------------------------------------------- */

void tr_checkpoint_name(int64_t step, char out[32]);
/* Returns false unless `name` is exactly a result of tr_checkpoint_name. */
bool tr_checkpoint_parse_name(const char *name, int64_t *out_step);

/* -- MANIFEST (checkpoint_manifest.c) ---------------------------------------------------------- */

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

tr_status_t tr_manifest_add_file(tr_manifest_t *m, const char *name, int64_t bytes,
                                 uint64_t checksum);
/* Adds a tensor of the file added last. */
tr_status_t tr_manifest_add_tensor(tr_manifest_t *m, const tr_manifest_tensor_t *tensor);
tr_status_t tr_manifest_format(const tr_manifest_t *m, tr_str_t *out);
/* Accepts exactly the output of tr_manifest_format. TR_ERR_DATA names `path` and the error. */
tr_status_t tr_manifest_parse(const char *text, size_t bytes, const char *path, tr_manifest_t *out);
void tr_manifest_free(tr_manifest_t *m);

/* -- checkpoints that several ranks write (checkpoint_shared.c) --------------------------------- */

/* Rank 0: writes its pieces into the folder `temporary`, waits for the other ranks, and reads the
 * files for the manifest. `status`: an error that came before; nothing is written then. TR_ERR_IO
 * names a rank whose pieces are missing. */
tr_status_t tr_checkpoint_write_shared(const char *temporary, const tr_checkpoint_content_t *c,
                                       tr_status_t status, tr_manifest_t *m);

/* Size of a tensor in bytes; false on overflow. */
bool tr_tensor_bytes(tr_dtype_t dtype, const tr_shape_t *shape, int64_t *out);

#endif
