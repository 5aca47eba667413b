/* A snapshot as snapshot.c makes it and load.c fills it. Private to src/weights. */
#ifndef TR_WEIGHTS_SNAPSHOT_INT_H
#define TR_WEIGHTS_SNAPSHOT_INT_H

#include "base/mem.h"
#include "state.h"

#include <pthread.h>

enum { TR_SNAPSHOT_REGIONS = 3 };
/* The roles of the regions: parameters, model state, optimizer state. */
extern const tr_role_t tr_snapshot_roles[TR_SNAPSHOT_REGIONS];

/* Where a tensor begins in the whole of a region (tr_whole_offset_bytes). */
typedef struct {
    int region;
    size_t at;
} tr_place_t;

typedef struct {
    tr_named_tensor_t *data; /* as a TR_VEC */
    size_t count, capacity;
    TR_VEC(tr_place_t) places;
} tensor_list_t;

/* The contents of the two tensor files: names are owned, data point into one copy of the regions,
 * or are NULL where ranks share.
 */
typedef struct {
    tensor_list_t model, optimizer;
} snapshot_files_t;

/* A copy of the regions: in host memory, or that of the graph itself. */
typedef struct {
    char *region[TR_SNAPSHOT_REGIONS];
} snapshot_memory_t;

/* Bytes of a region that a rank has. */
typedef struct {
    int region;
    size_t at;     /* in the whole of the region */
    size_t device; /* in the region of the rank's graph */
    size_t host;   /* in the memory of its snapshot */
    size_t bytes;
} tr_range_t;
typedef struct {
    TR_VEC(tr_range_t) list; /* in the order of `at` in each region */
    size_t host_bytes[TR_SNAPSHOT_REGIONS];
} tr_ranges_t;
typedef TR_VEC(tr_checkpoint_piece_t) tr_pieces_t;

/* Where ranks share, `host` has the ranges that this rank writes, one behind the other. */
struct tr_snapshot {
    tr_session_t *s;
    snapshot_memory_t host;
    size_t bytes[TR_SNAPSHOT_REGIONS];
    snapshot_files_t files; /* as they are saved */
    tr_stream_t *stream;    /* of copies while programs run */
    tr_event_t *taken;
    tr_ranges_t writes, reads; /* where ranks share */
    tr_pieces_t pieces;
    tr_checkpoint_sharing_t sharing;
    pthread_t prefault; /* provides the pages of `host` */
    bool is_prefaulting;
};

/* With optimizer.ema, the model's file has the averages, which are used in validation, and the
 * optimizer's file the trained weights as NAME.raw. In older checkpoints it is the other way round,
 * with the averages as NAME.ema. */
#define TR_RAW_SUFFIX "raw"
typedef enum { TR_AVERAGES_FIRST, TR_TRAINED_FIRST } snapshot_kind_t;

/* Adds the names of all saved tensors, with their places in the copy `at`, to *out, which is freed
 * with tr_snapshot_files_free also after an error. */
tr_status_t tr_snapshot_name_tensors(const tr_graph_t *g, const snapshot_memory_t *at,
                                     snapshot_kind_t kind, snapshot_files_t *out);
void tr_snapshot_files_free(snapshot_files_t *files);

/* parts.c, where ranks share (parallel.zero). Not collective. */
/* The ranges that `rank` writes: all ranks together write every element of a tensor once. Or those that
 * it reads: its parts, and what it has besides them of the regions that are cut into parts; rank 0 also
 * the other regions. `device` holds for the rank's own. Free *out also after an error. */
tr_status_t tr_ranges(const tr_graph_t *g, int rank, bool reads, tr_ranges_t *out);
void tr_ranges_free(tr_ranges_t *ranges);
/* What a range has of a tensor of `bytes` bytes at `place`: *count bytes from byte *first of it on.
 * False: nothing. */
bool tr_range_common(const tr_range_t *range, const tr_place_t *place, size_t bytes, size_t *first,
                     size_t *count);
/* The pieces of the tensors of n->files that this rank writes, on rank 0 those of all ranks. */
tr_status_t tr_pieces(const tr_snapshot_t *n, tr_pieces_t *out);

#endif
