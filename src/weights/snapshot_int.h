/* A snapshot as snapshot.c makes it and load.c fills it. Private to src/weights. */
#ifndef TR_WEIGHTS_SNAPSHOT_INT_H
#define TR_WEIGHTS_SNAPSHOT_INT_H

#include "base/mem.h"
#include "state.h"

#include <pthread.h>

enum { TR_SNAPSHOT_REGIONS = 3 };
/* The roles of the regions: parameters, model state, optimizer state. */
extern const tr_role_t tr_snapshot_roles[TR_SNAPSHOT_REGIONS];

typedef TR_VEC(tr_named_tensor_t) tensor_list_t;

/* The contents of the two tensor files: names are owned, data point into one copy of the regions.
 */
typedef struct {
    tensor_list_t model, optimizer;
} snapshot_files_t;

/* A copy of the regions: in host memory, or that of the graph itself. */
typedef struct {
    char *region[TR_SNAPSHOT_REGIONS];
} snapshot_memory_t;

struct tr_snapshot {
    tr_session_t *s;
    snapshot_memory_t host;
    size_t bytes[TR_SNAPSHOT_REGIONS];
    snapshot_files_t files; /* as they are saved */
    tr_stream_t *stream;    /* of copies while programs run */
    tr_event_t *taken;
    /* where ranks share: of one part in transfer, pinned, and of all ranks' parts; else NULL */
    char *part, *parts;
    int64_t piece;      /* elements of `part` */
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

/* parts.c: the state that ranks share (parallel.zero), between the graphs of all ranks and the
 * snapshot of rank 0. In pieces, for which a rank has at most TR_STATE_PIECE of memory. */
tr_status_t tr_parts_open(tr_snapshot_t *n);
void tr_parts_close(tr_snapshot_t *n);
/* The tensors of the region to the host memory of rank 0. Waits for the stream. Collective. */
tr_status_t tr_parts_gather(tr_snapshot_t *n, int region, tr_stream_t *stream);
/* From it to the parts of each rank. Collective. */
tr_status_t tr_parts_scatter(tr_snapshot_t *n, int region);
/* The states of the region that every rank has, to the host memory, in the order of `stream`. Not
 * collective. */
tr_status_t tr_parts_copy_others(tr_snapshot_t *n, int region, tr_stream_t *stream);

#endif
