/* The lines that training writes to sessions.jsonl: one start of the program, and its end. */
#include "history.h"
#include "run/starts.h"
#include "run/verdict.h"
#include "base/clock.h"
#include "base/record_fields.h"
#include "trainer/log.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tr_status_t tr_history_hosts(loop_t *l) {
    char(*hosts)[sizeof l->info->host] = NULL;
    TR_TRY(tr_world_agree(l->world,
                          tr_alloc((size_t)l->info->size * sizeof *hosts, "host names", &hosts)));
    tr_status_t status = tr_world_allgather(l->world, l->info->host, sizeof *hosts, hosts);
    l->start.hosts = json_array();
    for (int r = 0; status == TR_OK && r < l->info->size; r++) {
        size_t i = 0;
        while (i < json_array_size(l->start.hosts) &&
               strcmp(json_string_value(json_array_get(l->start.hosts, i)), hosts[r]) != 0)
            i++;
        if (i == json_array_size(l->start.hosts))
            json_array_append_new(l->start.hosts, json_string(hosts[r]));
    }
    tr_free(&hosts);
    return status;
}

tr_status_t tr_history_open(loop_t *l) {
    tr_starts_t earlier;
    TR_TRY(tr_starts_read(tr_run_dir(l->run), &earlier));
    l->start.number = earlier.count + 1;
    l->saving.slowest_write_sec = earlier.slowest_write_sec;
    return TR_OK;
}

/* Seconds to the microsecond. */
static double round_usec(double sec) {
    return round(1e6 * sec) / 1e6;
}

/* What both lines have. */
static json_t *history_line(const loop_t *l, const char *event) {
    const char *job = getenv("SLURM_JOB_ID"), *restart = getenv("SLURM_RESTART_COUNT");
    char now[32];
    tr_clock_iso8601(now);
    json_t *line = json_object();
    tr_record_text(line, TR_SESSION_event, event);
    tr_record_number(line, TR_SESSION_session, (double)l->start.number);
    tr_record_text(line, TR_SESSION_utc, now);
    tr_record_number(line, TR_SESSION_unix_time, round_usec(tr_clock_unix_sec()));
    tr_record_text(line, TR_SESSION_job, job);
    tr_record_number(line, TR_SESSION_restart, restart ? atoi(restart) : 0);
    return line;
}

static void history_append(const loop_t *l, json_t *line) {
    if (tr_starts_append(l->run_dir, line) != TR_OK)
        TR_WARN("sessions.jsonl lacks a line: %s", tr_error_last()->message);
}

void tr_history_begin(loop_t *l) {
    const double set_up_sec = tr_clock_since_exec_sec();
    json_t *line = history_line(l, "start");
    l->start.first_step = l->state.step + 1;
    tr_record_json(line, TR_START_hosts, json_incref(l->start.hosts));
    tr_record_number(line, TR_START_ranks, l->info->size);
    tr_record_number(line, TR_START_first_step, (double)l->start.first_step);
    tr_record_number(line, TR_START_steps, (double)l->s->total_steps);
    const double mpi_sec = l->info->open_sec;
    json_t *times = json_object();
    tr_record_number(times, TR_STARTUP_exec_sec, round_usec(l->start.entered_sec - mpi_sec));
    tr_record_number(times, TR_STARTUP_mpi_sec, round_usec(mpi_sec));
    tr_record_number(times, TR_STARTUP_data_sec, round_usec(l->s->data_sec));
    tr_record_number(times, TR_STARTUP_plan_sec, round_usec(l->s->plan_sec));
    tr_record_number(times, TR_STARTUP_resume_sec, round_usec(l->start.resume_sec));
    tr_record_number(times, TR_STARTUP_whole_sec, round_usec(set_up_sec));
    tr_record_json(line, TR_START_startup, times);
    history_append(l, line);
    l->start.has_begun = true;
}

void tr_history_end(loop_t *l, tr_status_t status) {
    const tr_error_t error = *tr_error_last();
    const char *verdict = status == TR_OK ? "done" : status == TR_ERR_RETRY ? "again" : "no";
    if (!l->start.has_begun) return;
    const tr_checkpointer_stats_t saves = tr_checkpointer_stats(l->saving.checkpointer);
    json_t *line = history_line(l, "end");
    tr_record_text(line, TR_END_verdict, verdict);
    tr_record_number(line, TR_END_code, status);
    tr_record_number(line, TR_END_first_step, (double)l->start.first_step);
    tr_record_number(line, TR_END_last_step, (double)l->state.step);
    tr_record_number(line, TR_END_first_step_sec, round_usec(l->metrics.first_step_sec));
    tr_record_number(line, TR_END_wall_sec, round_usec(tr_clock_since_exec_sec()));
    tr_record_number(line, TR_END_checkpoints, (double)saves.saved);
    tr_record_number(line, TR_END_checkpoint_stall_sec, round_usec(l->metrics.save_sec));
    tr_record_number(line, TR_END_checkpoint_write_sec, round_usec(saves.slowest_write_sec));
    tr_record_number(line, TR_END_checkpoint_bytes, (double)saves.last_bytes);
    history_append(l, line);
    tr_error_set(&error);
}

static void history_append_fault(const loop_t *l, const tr_starts_fault_t *fault) {
    json_t *line = history_line(l, "fault");
    tr_record_text(line, TR_FAULT_fault, fault->name);
    tr_record_text(line, TR_FAULT_node, fault->node);
    tr_record_number(line, TR_FAULT_rank, l->info->rank);
    tr_record_number(line, TR_FAULT_step, (double)fault->step);
    tr_record_text(line, TR_FAULT_message, tr_error_last()->message);
    history_append(l, line);
}

tr_status_t tr_history_fault(loop_t *l, tr_status_t status, bool has_begun) {
    tr_error_t error = *tr_error_last();
    const bool is_of_replicas = strcmp(error.fault, TR_REPLICAS_FAULT) == 0;
    tr_starts_fault_t mine = {.session = l->start.number, .step = l->state.step};
    struct {
        bool is_there;
        tr_starts_fault_t fault;
    } earlier = {0};
    if (status != TR_ERR_RETRY || !l->run_dir || !(error.node[0] || is_of_replicas)) return status;
    memcpy(mine.name, error.fault, sizeof mine.name);
    memcpy(mine.node, error.node, sizeof mine.node);
    if (error.origin != TR_ORIGIN_PEER) {
        if (!is_of_replicas)
            TR_FAIL(status, "rank %d, after step %lld: %s", l->info->rank, (long long)mine.step,
                    error.message);
        memcpy(error.message, tr_error_last()->message, sizeof error.message);
        history_append_fault(l, &mine);
    }
    /* Of a step: starts that fail alike on two nodes are a matter of the nodes. Where replicas
     * differ, the fault may be of any step before. */
    mine.at_any_step = is_of_replicas;
    const bool is_of_step = has_begun && (strncmp(mine.name, "cuda", 4) == 0 || is_of_replicas);
    if (is_of_step && (!is_of_replicas || tr_loop_is_root(l)))
        earlier.is_there = tr_starts_had_fault(l->run_dir, &mine, &earlier.fault);
    /* All ranks have this error: they end with the code that follows from what rank 0 reads. */
    if (is_of_replicas && tr_world_broadcast(l->world, &earlier, sizeof earlier, 0) != TR_OK)
        tr_error_clear();
    if (earlier.is_there) {
        error.code = TR_FAIL(TR_ERR_INTERNAL, "%s. %s%s had %s at step %lld in session %lld%s%s",
                             error.message, earlier.fault.node[0] ? "Node " : "The run",
                             earlier.fault.node, earlier.fault.name, (long long)earlier.fault.step,
                             (long long)earlier.fault.session,
                             earlier.fault.node[0] && mine.node[0]
                                 ? ", so that this is no fault of one node: report it as a bug"
                                 : ", and which node is at fault is unknown: test the memory of "
                                   "the nodes, and report it as a bug if that is sound",
                             is_of_replicas ? ". Nodes with processors or libraries of different "
                                              "kinds may also compute different bits: then set "
                                              "parallel.check = 0"
                                            : "");
        memcpy(error.message, tr_error_last()->message, sizeof error.message);
        error.node[0] = '\0';
    }
    tr_error_set(&error);
    if (!is_of_replicas || tr_loop_is_root(l))
        tr_verdict_write((int)error.code, error.message, error.node);
    return error.code;
}
