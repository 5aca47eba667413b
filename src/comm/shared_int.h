/* Memory that the ranks of a node map into each other. Private to src/comm. */
#ifndef TR_COMM_SHARED_INT_H
#define TR_COMM_SHARED_INT_H

#include "world_int.h"
#include <stddef.h>

typedef struct {
    size_t bytes;
    int count, mine; /* ranks of this node; the local rank of this one */
    char **of;       /* [count]; of[mine] is the rank's own memory, the others are mappings of it */
} tr_shared_map_t;

/*
 * Maps `memory`, which is from tr_alloc_shared and has the same size on all ranks, into the other
 * ranks of its node. The files are passed over sockets (SCM_RIGHTS); each side of a connection must
 * say the random token that the other one gave by MPI. All ranks get the same status: after an
 * error, whose message names the rank, nothing is mapped. TR_ERR_RETRY: a rank is lost. Collective.
 */
tr_status_t tr_shared_map(tr_world_t *world, void *memory, size_t bytes, tr_shared_map_t *out);
/* Other ranks may still use their mappings of this rank's memory. Not collective. */
void tr_shared_unmap(tr_shared_map_t *map);

#endif
