/* trainer plan CONFIG --largest KEY --memory SIZE: the largest model or micro-batch that fits. */
#include "plan.h"
#include "base/mem.h"

#include <string.h>

enum { MOST_UNITS = 1 << 20 };

typedef struct {
    tr_config_t *config;
    const plan_options_t *o;
    const char *key; /* "model.n_layer" */
    int64_t unit;    /* values are multiples of it */
    int64_t most;    /* units: no more are tried; of micro_batch also the samples of the data */
} largest_search_t;

typedef struct {
    const char *precision;
    int64_t units, value;     /* the largest, and the value of the key */
    int64_t next_value;       /* one unit more; 0: the data has no more */
    size_t bytes, next_bytes; /* that they need */
    const char *note;
} largest_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(largest_row_t, "precision", "precision", STRING, precision, .is_left = true,
              .width = 10),
    TR_COLUMN(largest_row_t, "value", "largest", INT64, value, .width = 11),
    TR_COLUMN(largest_row_t, "bytes", "needs", SIZE, bytes, .people = tr_format_bytes, .width = 11),
    TR_COLUMN(largest_row_t, NULL, "the next", INT64, next_value, .zero_is_missing = true,
              .width = 11),
    TR_COLUMN(largest_row_t, "next_bytes", "needs", SIZE, next_bytes, .people = tr_format_bytes,
              .zero_is_missing = true, .width = 11),
    TR_COLUMN(largest_row_t, NULL, "", STRING, note, .is_left = true, .missing = ""),
};
static const tr_table_t table = TR_TABLE(columns, largest_row_t);

static const char *const keys[] = {
    [PLAN_N_LAYER] = "model.n_layer",
    [PLAN_N_EMBD] = "model.n_embd",
    [PLAN_MICRO_BATCH] = "data.micro_batch",
};

/* If the micro-batch is searched, there is one micro-batch per rank and step. */
static tr_status_t plan_largest_bytes(largest_search_t *s, const char *precision, int64_t units,
                                      size_t *out) {
    const bool is_micro = s->o->largest == PLAN_MICRO_BATCH;
    const int ranks = s->o->ranks.value[0];
    const long long value = units * s->unit;
    tr_session_t *session = NULL;
    char batch[48] = "";
    if (is_micro) tr_snprintf(batch, sizeof batch, " data.batch_size=%lld", value * ranks);
    TR_TRY(plan_try(s->config, "plan --largest", ranks, &session, "precision=%s %s=%lld%s",
                    precision, s->key, value, batch));
    *out = tr_graph_memory(session->g).total;
    if (is_micro && session->info.samples / ranks < s->most)
        s->most = session->info.samples / ranks;
    tr_session_destroy(&session);
    return TR_OK;
}

/* Doubles until it does not fit, then halves the interval. */
static tr_status_t plan_largest_search(largest_search_t *s, largest_row_t *out) {
    const size_t limit = (size_t)s->o->memory;
    /* batch normalisation may refuse a micro-batch of 1 */
    int64_t fits = 0, too_large = s->o->largest == PLAN_MICRO_BATCH ? 2 : 1;
    size_t bytes;
    char needs[32], has[32];
    for (s->most = MOST_UNITS;; too_large = 2 * fits < s->most ? 2 * fits : s->most) {
        TR_TRY(plan_largest_bytes(s, out->precision, too_large, &bytes));
        if (bytes > limit) break;
        fits = too_large;
        out->bytes = bytes;
        if (fits < s->most) continue;
        if (s->o->largest != PLAN_MICRO_BATCH)
            return TR_FAIL(TR_ERR_USAGE, "--memory: %s = %lld still fits", s->key,
                           (long long)(fits * s->unit));
        out->units = fits;
        return TR_OK;
    }
    out->next_bytes = bytes;
    if (fits == 0)
        return TR_FAIL(TR_ERR_MEMORY, "%s = %lld needs %s; --memory is %s", s->key,
                       (long long)s->unit, tr_format_bytes((double)bytes, needs),
                       tr_format_bytes((double)limit, has));
    while (too_large - fits > 1) {
        const int64_t middle = (fits + too_large) / 2;
        TR_TRY(plan_largest_bytes(s, out->precision, middle, &bytes));
        if (bytes <= limit) {
            fits = middle;
            out->bytes = bytes;
        } else {
            too_large = middle;
            out->next_bytes = bytes;
        }
    }
    out->units = fits;
    return TR_OK;
}

static tr_status_t plan_largest_find(tr_config_t *config, const plan_options_t *o,
                                     plan_result_t *out) {
    largest_search_t s = {.config = config, .o = o};
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    const int ranks = o->ranks.value[0];
    largest_row_t *rows = NULL;
    char memory[32];
    s.key = keys[o->largest];
    s.unit = 1;
    if (o->largest != PLAN_MICRO_BATCH && strcmp(tr_config_get(config, "model.type"), "gpt") != 0)
        return TR_FAIL(TR_ERR_CONFIG, "--largest %s requires model.type = gpt; this one is %s",
                       strchr(s.key, '.') + 1, tr_config_get(config, "model.type"));
    if (o->largest == PLAN_N_EMBD) { /* heads of a multiple of 8 elements: for fast attention */
        int64_t heads = 12;          /* model.n_head = auto */
        (void)tr_parse_int(tr_config_get(config, "model.n_head"), &heads);
        s.unit = 8 * heads;
    }
    TR_TRY(tr_alloc(sizeof *rows * TR_COUNT(precisions), "the largest values", &rows));
    out->rows = rows;
    for (size_t i = 0; i < TR_COUNT(precisions); i++) {
        rows[i] = (largest_row_t){.precision = precisions[i]};
        TR_TRY(plan_largest_search(&s, &rows[i]));
        rows[i].value = rows[i].units * s.unit;
        if (rows[i].next_bytes > 0)
            rows[i].next_value = rows[i].value + s.unit;
        else
            rows[i].note = "(data.train has no more samples)";
    }
    out->count = TR_COUNT(precisions);
    tr_str_printf(&out->before, "the largest %s of %s in %s per rank, on %d rank%s\n", s.key,
                  o->path, tr_format_bytes((double)o->memory, memory), ranks, ranks > 1 ? "s" : "");
    out->json = json_pack("{s:s, s:i, s:I}", "key", s.key, "ranks", ranks, "memory_bytes",
                          (json_int_t)o->memory);
    return TR_OK;
}

const plan_mode_t plan_mode_largest = {
    .kind = "largest", .table = &table, .find = plan_largest_find};
