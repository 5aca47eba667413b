/* Plans of a training run with other keys. */
#include "remedies.h"
#include "trainer/log.h"
#include "trainer/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const tr_config_t *config;
    int size;
    tr_device_t *device;
    tr_remedies_t *out;
    tr_str_t used; /* the settings of all remedies that are used, separated by blanks */
} remedies_t;

/* -- one plan ---------------------------------------------------------------------------------- */

/* The configuration with settings, separated by blanks. */
static tr_status_t remedies_config(const tr_config_t *from, const char *settings,
                                   tr_config_t **out) {
    const tr_config_table_t *const *tables;
    size_t count;
    tr_str_t text = {0};
    char setting[128];
    tr_status_t status = TR_OK;
    TR_TRY(tr_all_tables(&tables, &count));
    TR_TRY(tr_config_create(tables, count, out));
    TR_TRY_GOTO(tr_config_serialize(from, &text), done);
    TR_TRY_GOTO(tr_config_load_text(*out, "the configuration", text.text, text.length), done);
    for (const char *at = settings + strspn(settings, " "); *at;) {
        const size_t length = strcspn(at, " ");
        tr_snprintf(setting, sizeof setting, "%.*s", (int)length, at);
        TR_TRY_GOTO(tr_config_set(*out, setting, "a remedy"), done);
        at += length;
        at += strspn(at, " ");
    }
    status = tr_config_check(*out);
done:
    tr_str_free(&text);
    return status;
}

static tr_status_t remedies_plan_one(const remedies_t *r, const char *settings,
                                     tr_remedy_plan_t *out) {
    const tr_session_params_t params = {.purpose = TR_SESSION_PLAN,
                                        .any_size = true,
                                        .device = r->device,
                                        .rank = r->size - 1,
                                        .size = r->size};
    tr_config_t *config = NULL;
    tr_session_t *s = NULL;
    tr_status_t status = remedies_config(r->config, settings, &config);
    if (status == TR_OK) status = tr_session_create(config, NULL, &params, &s);
    if (status == TR_OK) {
        const tr_memory_plan_t m = tr_graph_memory(s->g);
        *out = (tr_remedy_plan_t){.bytes = m.total, .moments = m.optim_state};
        for (int i = 0; i < tr_program_op_count(s->g, s->last); i++) {
            const tr_op_t *op = tr_program_op(s->g, s->last, i);
            out->flops += tr_op_flops(s->g, op);
            out->has_batchnorm |= op->row && strncmp(op->row->name, "batchnorm", 9) == 0;
        }
        out->flops /= (double)s->order.micro_batch;
    }
    tr_session_destroy(&s);
    tr_config_destroy(&config);
    return status;
}

/* -- the rows ---------------------------------------------------------------------------------- */

/* Settings that the model or the data do not allow are no remedy. */
static tr_status_t remedies_forgive(tr_status_t status) {
    if (status != TR_ERR_CONFIG) return status;
    tr_error_clear();
    return TR_OK;
}

static tr_status_t remedies_add(remedies_t *r, const char *what, const char *settings) {
    tr_remedy_t row = {.what = what};
    tr_snprintf(row.settings, sizeof row.settings, "%s", settings);
    TR_TRY(remedies_forgive(remedies_plan_one(r, settings, &row.alone)));
    const bool is_smaller = row.alone.bytes > 0 && row.alone.bytes < r->out->now.bytes;
    return is_smaller ? tr_vec_push(&r->out->rows, row) : TR_OK;
}

/* Rows [first, end) exclude each other: the one that takes the least memory alone is used with the rows
 * above, if that is smaller still. */
static tr_status_t remedies_use(remedies_t *r, size_t first, size_t end) {
    tr_str_t all = {0};
    tr_remedy_t *best = NULL;
    for (size_t i = first; i < end; i++)
        if (!best || r->out->rows.data[i].alone.bytes < best->alone.bytes)
            best = &r->out->rows.data[i];
    if (!best) return TR_OK;
    tr_str_printf(&all, "%s %s", r->used.text ? r->used.text : "", best->settings);
    tr_status_t status = all.status ? all.status : remedies_plan_one(r, all.text, &best->together);
    status = remedies_forgive(status);
    if (status == TR_OK && best->together.bytes > 0 && best->together.bytes < r->out->least.bytes) {
        best->is_used = true;
        r->out->least = best->together;
        tr_str_printf(&r->used, " %s", best->settings);
        status = r->used.status;
    }
    tr_str_free(&all);
    return status;
}

/* Not used with others. */
static tr_status_t remedies_add_batch(remedies_t *r, bool is_two) {
    char settings[96];
    tr_snprintf(settings, sizeof settings, "data.batch_size=%d data.micro_batch=%d",
                (is_two ? 2 : 1) * r->size, is_two ? 2 : 1);
    return remedies_add(r,
                        is_two ? "a batch of two samples per rank; training differs"
                               : "a batch of one sample per rank; training differs",
                        settings);
}

static tr_status_t remedies_add_recompute(remedies_t *r) {
    const bool is_gpt = strcmp(tr_config_get(r->config, "model.type"), "gpt") == 0;
    const size_t first = r->out->rows.count;
    char settings[64];
    int64_t layers = 12; /* of GPT-2, where n_layer = auto */
    (void)tr_parse_int(is_gpt ? tr_config_get(r->config, "model.n_layer") : "64", &layers);
    for (int every = 1; every <= 16 && every < layers; every *= 2) {
        tr_snprintf(settings, sizeof settings,
                    is_gpt && every == 1 ? "model.recompute=block" : "model.recompute=%d", every);
        if (strcmp(tr_config_get(r->config, "model.recompute"), strchr(settings, '=') + 1) == 0)
            continue;
        TR_TRY(remedies_add(r,
                            every > 1 ? "activations computed again in groups"
                                      : "activations computed again in the backward pass",
                            settings));
    }
    return remedies_use(r, first, r->out->rows.count);
}

static tr_status_t remedies_add_if(remedies_t *r, bool applies, const char *what,
                                   const char *settings) {
    const size_t first = r->out->rows.count;
    if (!applies) return TR_OK;
    TR_TRY(remedies_add(r, what, settings));
    return remedies_use(r, first, r->out->rows.count);
}

/* Stage 2 is used if it goes with the rows above, and stage 1 otherwise. Where all gradients fit the
 * windows of two buckets, stage 2 takes more memory. */
static tr_status_t remedies_add_stages(remedies_t *r, int from) {
    const size_t first = r->out->rows.count;
    if (from < 1)
        TR_TRY(remedies_add(r, "optimizer state sharded among the ranks", "parallel.zero=1"));
    const size_t second = r->out->rows.count;
    if (from < 2)
        TR_TRY(remedies_add(r, "optimizer state and gradients sharded among the ranks",
                            "parallel.zero=2"));
    const tr_remedy_t *rows = r->out->rows.data;
    if (r->out->rows.count > second && second > first &&
        rows[second].alone.bytes >= rows[first].alone.bytes)
        r->out->rows.count = second;
    const size_t end = r->out->rows.count;
    TR_TRY(remedies_use(r, second, end));
    return end > second && r->out->rows.data[second].is_used ? TR_OK
                                                             : remedies_use(r, first, second);
}

/* On one rank, the rows are computed from the plans: more ranks would also have fewer samples each. */
static tr_status_t remedies_add_shared(remedies_t *r) {
    const char *zero = tr_config_get(r->config, "parallel.zero");
    if (r->size > 1) return remedies_add_stages(r, strcmp(zero, "none") == 0 ? 0 : atoi(zero));
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        tr_remedy_t row = {.what = "optimizer state sharded among ranks",
                           .shares = ranks,
                           .alone = r->out->now,
                           .together = r->out->least};
        row.alone.bytes -= row.alone.moments - row.alone.moments / (size_t)ranks;
        row.together.bytes -= row.together.moments - row.together.moments / (size_t)ranks;
        TR_TRY(tr_vec_push(&r->out->rows, row));
    }
    return TR_OK;
}

/* By what they cost: the same results at once, for more FLOPs, with fewer digits, with another
 * optimizer or batch. */
static tr_status_t remedies_add_all(remedies_t *r) {
    const char *precision = tr_config_get(r->config, "precision"),
               *type = tr_config_get(r->config, "optimizer.type"),
               *attention = tr_config_get(r->config, "model.attention");
    const bool is_wide = strcmp(precision, "fp32") == 0 || strcmp(precision, "tf32") == 0,
               is_standard = strcmp(tr_config_get(r->config, "model.type"), "gpt") == 0 &&
                             attention && strcmp(attention, "standard") == 0;
    TR_TRY(remedies_plan_one(r, "", &r->out->now));
    r->out->least = r->out->now;
    const bool is_two = r->out->now.has_batchnorm; /* statistics of one sample are no statistics */
    TR_TRY(remedies_add_if(r, true,
                           is_two ? "micro-batches of 2, their gradients accumulated"
                                  : "micro-batches of 1, their gradients accumulated",
                           is_two ? "data.micro_batch=2" : "data.micro_batch=1"));
    TR_TRY(remedies_add_if(r, is_standard, "attention without a table of all pairs of tokens",
                           "model.attention=flash"));
    TR_TRY(remedies_add_shared(r));
    TR_TRY(remedies_add_recompute(r));
    TR_TRY(remedies_add_if(r, is_wide, "activations in two bytes", "precision=bf16"));
    TR_TRY(remedies_add_if(r, strcmp(type, "sgd") != 0 || r->out->now.moments > 0,
                           "an optimizer without moments; training differs",
                           "optimizer.type=sgd optimizer.momentum=0 optimizer.nesterov=no"));
    return remedies_add_batch(r, is_two);
}

tr_status_t tr_remedies_plan(const tr_config_t *config, int size, tr_device_t *device,
                             tr_remedies_t *out) {
    remedies_t r = {.config = config, .size = size, .device = device, .out = out};
    const tr_log_level_t level = tr_log_set_level(TR_LOG_ERROR); /* of what is only tried */
    const tr_status_t status = remedies_add_all(&r);
    tr_log_set_level(level);
    tr_str_free(&r.used);
    return status;
}

void tr_remedies_free(tr_remedies_t *remedies) {
    tr_vec_free(&remedies->rows);
}

double tr_remedies_extra(const tr_remedies_t *remedies, const tr_remedy_plan_t *plan) {
    return 100 * (plan->flops / remedies->now.flops - 1);
}

/* -- naming them ------------------------------------------------------------------------------- */

static void remedies_name_one(const tr_remedies_t *remedies, const char *settings,
                              const tr_remedy_plan_t *plan, tr_str_t *out) {
    char bytes[32];
    const double extra = tr_remedies_extra(remedies, plan);
    tr_str_printf(out, "\n  %s: %s", settings, tr_format_bytes((double)plan->bytes, bytes));
    if (extra > 0.5) tr_str_printf(out, ", %.0f %% more FLOPs", extra);
}

void tr_remedies_name(const tr_remedies_t *remedies, size_t limit, tr_str_t *out) {
    tr_str_t together = {0};
    int fit = 0;
    for (size_t i = 0; i < remedies->rows.count; i++) {
        const tr_remedy_t *row = &remedies->rows.data[i];
        if (row->is_used)
            tr_str_printf(&together, "%s%s", together.length > 0 ? " " : "", row->settings);
        if (row->shares > 0 || row->alone.bytes > limit) continue;
        if (fit++ == 0) tr_str_append(out, "\nBy its plan, the run fits with one of");
        remedies_name_one(remedies, row->settings, &row->alone, out);
    }
    if (fit == 0 && together.length > 0) {
        tr_str_append(out, remedies->least.bytes <= limit
                               ? "\nBy its plan, the run fits with all of"
                               : "\nNo setting makes it fit. By its plan, it still needs this "
                                 "memory with all of");
        remedies_name_one(remedies, together.text, &remedies->least, out);
    }
    tr_str_free(&together);
}
