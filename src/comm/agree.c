/* Agreement on one status: a single small reduction if all ranks succeeded, otherwise also the
 * message of the failing rank. */
#include "base/mem.h"
#include "world_int.h"
#include <string.h>

static tr_status_t agree_run_worst(MPI_Comm comm, void *arg) {
    TR_MPI(MPI_Allreduce, (MPI_IN_PLACE, arg, 1, MPI_2INT, MPI_MAXLOC, comm));
    return TR_OK;
}

typedef struct {
    char host[64];
    tr_error_t error;
} report_t;

static void agree_fill(report_t *report, const tr_world_t *world, tr_status_t status) {
    memcpy(report->host, world->info.host, sizeof report->host);
    if (tr_error_last()->code == status)
        report->error = *tr_error_last();
    else
        report->error.code = status;
    report->error.origin = TR_ORIGIN_MINE;
}

static tr_status_t agree_adopt(const report_t *report, int rank) {
    const tr_error_t *e = &report->error;
    TR_FAIL(e->code, "rank %d (%s): %s", rank, report->host,
            e->message[0] ? e->message : tr_status_name(e->code));
    tr_error_t mine = *tr_error_last();
    /* set where it happened, not where it was received */
    memcpy(mine.trace, e->trace, sizeof mine.trace);
    memcpy(mine.fault, e->fault, sizeof mine.fault);
    memcpy(mine.node, e->node, sizeof mine.node);
    mine.origin = TR_ORIGIN_PEER;
    return tr_error_set(&mine);
}

tr_status_t tr_world_agree(tr_world_t *world, tr_status_t status) {
    const int rank = world->info.rank;
    const tr_error_t *last = tr_error_last();
    /* who says it again */
    const bool is_of_peer = last->code == status && last->origin == TR_ORIGIN_PEER;
    struct {
        int status, rank;
    } worst = {2 * (int)status + !is_of_peer,
               rank}; /* of equal ones, the error of the rank where it happened */
    TR_TRY(tr_world_run(world, agree_run_worst, &worst));
    if (worst.status / 2 == TR_OK) return TR_OK;
    report_t report = {0};
    if (worst.rank == rank) agree_fill(&report, world, status);
    TR_TRY(tr_world_broadcast(world, &report, sizeof report, worst.rank));
    return worst.rank == rank ? tr_error_set(&report.error) : agree_adopt(&report, worst.rank);
}
