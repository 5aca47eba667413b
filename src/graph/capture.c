/*
 * Captured programs. A program is cut into stretches: kernels, and collectives that the engine
 * lets a capture hold. A stretch is one executable for each set of inputs, because a capture keeps
 * the addresses. Collectives of another engine run between the stretches.
 */
#include "graph_int.h"
#include "base/trace.h"
#include "trainer/log.h"

enum { RUNS_BEFORE_CAPTURE = 2 }; /* libraries load and tune kernels in the first runs */

tr_status_t tr_replay_create(tr_graph_t *g, tr_program_t *p) {
    if (!g->device->ops->capture_begin || g->op_by_op || p->nodes.count == 0) return TR_OK;
    return tr_alloc((size_t)g->input_sets * sizeof *p->replay, "captured programs", &p->replay);
}

static void capture_drop_executables(tr_graph_t *g, tr_replay_t *r) {
    for (size_t i = 0; i < r->stretch.count; i++)
        g->device->ops->executable_destroy(g->device, r->stretch.data[i].executable);
    if (r->both.executable) g->device->ops->executable_destroy(g->device, r->both.executable);
    tr_vec_free(&r->stretch);
    *r = (tr_replay_t){0};
}

void tr_replay_destroy(tr_graph_t *g, tr_program_t *p) {
    for (int set = 0; set < g->input_sets && p->replay; set++)
        capture_drop_executables(g, &p->replay[set]);
    tr_free(&p->replay);
}

void tr_graph_drop_captures(tr_graph_t *g) {
    for (size_t i = 0; i < g->programs.count; i++) {
        tr_program_t *p = g->programs.data[i];
        for (int set = 0; set < g->input_sets && p->replay; set++)
            capture_drop_executables(g, &p->replay[set]);
    }
}

void tr_graph_run_op_by_op(tr_graph_t *g) {
    g->op_by_op = true;
}

/* -- stretches --------------------------------------------------------------------------------- */

static bool capture_holds_collectives(const tr_collectives_t *c) {
    return !c || c->size == 1 || c->capturable;
}

static bool capture_is_collective(const tr_program_t *p, size_t i) {
    const tr_op_kind_t kind = p->nodes.data[i]->op.kind;
    return kind == TR_OP_COLLECTIVE || kind == TR_OP_WAIT;
}

/* Ranks have to capture it alike, and to launch the same graph: they agree on its capture. */
static bool replay_is_shared(const tr_program_t *p, const tr_collectives_t *c) {
    if (!c || c->size == 1 || !c->capturable) return false;
    for (size_t i = 0; i < p->nodes.count; i++)
        if (capture_is_collective(p, i)) return true;
    return false;
}

/* Captures records of `p`, and those of `next` if it is not NULL. TR_ERR_CONFIG: this cannot be
 * captured; nothing was done. An error of an op is one of these: one
 * that is not due to the capture comes again when the program runs op by op. */
static tr_status_t replay_record(tr_graph_t *g, const tr_program_t *p, size_t first, size_t end,
                                 const tr_program_t *next, tr_collectives_t *c, tr_stretch_t *out) {
    const tr_device_ops_t *ops = g->device->ops;
    tr_stretch_t stretch = {.first = c ? c->started + 1 : 1};
    tr_ticket_t last = 0, none = 0;
    TR_TRY(ops->capture_begin(g->device, g->stream));
    tr_status_t status = tr_exec_enqueue(g, p, first, end, c, &last);
    if (status == TR_OK && next)
        status = tr_exec_enqueue(g, next, 0, next->nodes.count, NULL, &none);
    if (status != TR_OK) {
        tr_error_t error = *tr_error_last();
        error.code = TR_ERR_CONFIG;
        (void)ops->capture_end(g->device, g->stream, NULL);
        return tr_error_set(&error);
    }
    TR_TRY(ops->capture_end(g->device, g->stream, &stretch.executable));
    stretch.last = c ? c->started : 0;
    *out = stretch;
    return TR_OK;
}

/* As replay_record. Where the capture is shared by ranks, it fails on all or on none. Collective. */
static tr_status_t replay_capture(tr_graph_t *g, const tr_program_t *p, size_t first, size_t end,
                                  const tr_program_t *next, tr_collectives_t *c,
                                  tr_stretch_t *out) {
    tr_stretch_t trial = {0};
    if (!replay_is_shared(p, c)) return replay_record(g, p, first, end, next, c, out);
    /* NCCL may wait for the other ranks inside a capture, so it has to be known before that each
     * rank will come to every collective. */
    tr_status_t mine = replay_record(g, p, first, end, next, NULL, &trial);
    if (mine == TR_OK) g->device->ops->executable_destroy(g->device, trial.executable);
    TR_TRY(c->peers.agree(c->peers.self, mine));
    mine = replay_record(g, p, first, end, next, c, out);
    const tr_status_t status = c->peers.agree(c->peers.self, mine);
    if (status != TR_OK && mine == TR_OK) {
        g->device->ops->executable_destroy(g->device, out->executable);
        out->executable = NULL;
    }
    return status;
}

static tr_status_t replay_launch(tr_graph_t *g, const tr_stretch_t *s, tr_collectives_t *c) {
    TR_TRY(g->device->ops->executable_launch(g->device, s->executable, g->stream));
    if (s->first <= s->last && c->ops->replayed) c->ops->replayed(c, s->first, s->last);
    return TR_OK;
}

static tr_status_t replay_give_up(tr_graph_t *g, tr_program_t *p) {
    TR_WARN("program '%s' runs op by op: %s", p->name, tr_error_last()->message);
    tr_error_clear();
    tr_replay_destroy(g, p);
    return TR_OK;
}

/* The stretch number k; captured first where it is not yet. */
static tr_status_t replay_run(tr_graph_t *g, tr_program_t *p, size_t k, size_t first, size_t end,
                              tr_collectives_t *c, tr_ticket_t *last) {
    tr_replay_t *r = p->replay ? &p->replay[g->input_set] : NULL;
    if (r && k == r->stretch.count) {
        TR_TRY(tr_vec_push(&r->stretch, (tr_stretch_t){0}));
        const tr_status_t status = replay_capture(g, p, first, end, NULL, c, &r->stretch.data[k]);
        if (status != TR_OK) r->stretch.count--;
        if (status == TR_ERR_CONFIG)
            TR_TRY(replay_give_up(g, p));
        else
            TR_TRY(status);
        r = p->replay ? r : NULL;
    }
    return r ? replay_launch(g, &r->stretch.data[k], c)
             : tr_exec_enqueue(g, p, first, end, c, last);
}

/* -- running ----------------------------------------------------------------------------------- */

static tr_status_t replay_run_stretches(tr_graph_t *g, tr_program_t *p, tr_collectives_t *c) {
    const bool is_one = capture_holds_collectives(c);
    const size_t count = p->nodes.count;
    tr_ticket_t last = 0;
    for (size_t first = 0, end = 0, k = 0; first < count; first = end) {
        const bool is_collective = capture_is_collective(p, first);
        while (end < count && (is_one || capture_is_collective(p, end) == is_collective)) end++;
        if (!is_collective || is_one)
            TR_TRY(replay_run(g, p, k++, first, end, c, &last));
        else
            TR_TRY(tr_exec_enqueue(g, p, first, end, c, &last));
        if (last > 0) TR_TRY(c->ops->progress(c));
    }
    return TR_OK;
}

/* NULL where it runs op by op. Executables that hold other collectives are dropped. */
static tr_replay_t *replay_of(tr_graph_t *g, tr_program_t *p, tr_collectives_t *c) {
    for (int set = 0; set < g->input_sets && p->replay && p->replay_with != c; set++)
        capture_drop_executables(g, &p->replay[set]);
    p->replay_with = c;
    return p->replay ? &p->replay[g->input_set] : NULL;
}

static bool replay_is_ready(const tr_replay_t *r) {
    return r && r->runs == RUNS_BEFORE_CAPTURE && !tr_trace_is_on();
}

tr_status_t tr_program_run(tr_graph_t *g, int program, tr_collectives_t *collectives) {
    if (!g->allocated || program < 0 || (size_t)program >= g->programs.count)
        return TR_FAIL(TR_ERR_INTERNAL, "program %d of %zu runs in a graph %s memory", program,
                       g->programs.count, g->allocated ? "with" : "without");
    tr_program_t *p = g->programs.data[program];
    tr_ticket_t last = 0;
    TR_TRY(tr_copies_refresh(g));
    tr_replay_t *r = replay_of(g, p, collectives);
    if (replay_is_ready(r)) return replay_run_stretches(g, p, collectives);
    if (r && r->runs < RUNS_BEFORE_CAPTURE) r->runs++;
    return tr_exec_enqueue(g, p, 0, p->nodes.count, collectives, &last);
}

tr_status_t tr_graph_run(tr_graph_t *g, int program) {
    return tr_program_run(g, program, NULL);
}

tr_status_t tr_program_run_both(tr_graph_t *g, int program, int next,
                                tr_collectives_t *collectives) {
    tr_program_t *p = g->programs.data[program], *q = g->programs.data[next];
    TR_TRY(tr_copies_refresh(g));
    tr_replay_t *r = replay_of(g, p, collectives);
    if (replay_is_ready(r) && replay_is_ready(replay_of(g, q, NULL)) &&
        capture_holds_collectives(collectives)) {
        const tr_status_t status =
            r->both.executable ? TR_OK
                               : replay_capture(g, p, 0, p->nodes.count, q, collectives, &r->both);
        if (status == TR_OK) return replay_launch(g, &r->both, collectives);
        if (status != TR_ERR_CONFIG) return status;
        TR_TRY(replay_give_up(g, p));
    }
    TR_TRY(tr_program_run(g, program, collectives));
    return tr_program_run(g, next, NULL);
}
