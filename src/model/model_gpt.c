/* gpt: GPT-2 (Radford et al. 2019), on a field x of tokens. Names and layouts of parameters are
 * those of Hugging Face's GPT2LMHeadModel, so weights are compatible. The weight of the head is
 * tied to the token embedding. */
#include "base/mem.h"
#include "model/model.h"
#include "trainer/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPS       1e-5f
#define INIT_STD  0.02
#define MOST_WIDE (1 << 20)

typedef struct {
    int64_t n_layer, n_head, n_embd, context, vocab_size;
    double dropout;
    bool bias;
    int attention;
} gpt_t;
enum { ATTENTION_STANDARD, ATTENTION_FLASH };

static const tr_config_field_t fields[] = {
    TR_FIELD_AUTO_INT(gpt_t, n_layer, "auto", 1, 1000,
                      "type = gpt: blocks of attention and MLP. auto: that of the Hugging Face "
                      "folder in model.init, else 12."),
    TR_FIELD_AUTO_INT(gpt_t, n_head, "auto", 1, 1024,
                      "type = gpt: heads of attention; n_embd is a multiple of it. auto: as for "
                      "n_layer, else 12."),
    TR_FIELD_AUTO_INT(gpt_t, n_embd, "auto", 1, MOST_WIDE,
                      "type = gpt: width of a token's embedding. auto: as for n_layer, else 768."),
    TR_FIELD_AUTO_INT(gpt_t, context, "auto", 1, 1 << 24,
                      "type = gpt: tokens of a sample, which are the positions that the model has. "
                      "auto: as for n_layer, else 1024."),
    TR_FIELD_AUTO_INT(gpt_t, vocab_size, "auto", 2, 1 << 30,
                      "type = gpt: tokens of the vocabulary. auto: as for n_layer, else that of "
                      "the data."),
    TR_FIELD_FLOAT(
        gpt_t, dropout, "0", 0, 0.999,
        "type = gpt: dropout of embeddings, attention and the output of each block's two halves."),
    TR_FIELD_BOOL(gpt_t, bias, "yes",
                  "type = gpt: linear layers and layer normalisation have biases."),
    TR_FIELD_ENUM(gpt_t, attention, "flash", "standard|flash",
                  "type = gpt: standard keeps the probabilities for the gradient, context x "
                  "context for each head; "
                  "flash computes them again, tile by tile.",
                  TR_RESUME_NOTE),
};
static const tr_config_table_t config_table = {"model", fields, TR_COUNT(fields), sizeof(gpt_t)};

/* The sizes that are auto are those of GPT-2's smallest. */
static void read_settings(const tr_config_t *config, gpt_t *out) {
    tr_config_read(config, &config_table, out);
    if (out->n_layer < 0) out->n_layer = 12;
    if (out->n_head < 0) out->n_head = 12;
    if (out->n_embd < 0) out->n_embd = 768;
    if (out->context < 0) out->context = 1024;
}

/* The context of the parts of the model. */
typedef struct {
    tr_graph_t *g;
    const gpt_t *settings;
    const tr_model_batch_t *batch; /* NULL where texts are continued */
    const tr_model_texts_t *texts; /* NULL else */
    const char *freeze;
    int64_t vocab_size;
    int together;       /* blocks that are recomputed from one input; 0: none */
    const char *chosen; /* "0-3,7": blocks that are recomputed, each from its input; NULL: none */
    bool recomputes_attention;
} context_t;

/* -- parameters ----------------------------------------------------------------------------------
 */

static tr_status_t param(const context_t *c, const char *name, tr_dtype_t dtype,
                         const tr_shape_t *shape, tr_init_t init, tr_tensor_t *out) {
    tr_str_t full = {0};
    if (c->texts) return tr_weight(c->g, name, dtype, shape, out);
    tr_str_printf(&full, "%s.%s", tr_scope(c->g), name);
    TR_TRY(full.status);
    const tr_param_spec_t spec = {.init = init,
                                  .trainable = !tr_model_freezes(c->freeze, full.text),
                                  .decay = shape->ndim >= 2,
                                  .lr_factor = 1};
    tr_str_free(&full);
    return tr_param(c->g, name, shape, &spec, out);
}

static tr_status_t table(const context_t *c, const char *name, tr_dtype_t dtype, int64_t rows,
                         tr_tensor_t *out) {
    tr_scope_push(c->g, name);
    TR_TRY(param(c, "weight", dtype, &TR_SHAPE(rows, c->settings->n_embd),
                 (tr_init_t){TR_INIT_NORMAL, INIT_STD}, out));
    tr_scope_pop(c->g);
    return TR_OK;
}

static tr_status_t model_gpt_product(const context_t *c, tr_tensor_t x, tr_tensor_t w,
                                     tr_tensor_t b, bool trans_w, tr_act_t act, tr_tensor_t *out) {
    if (c->texts) return tr_linear_rows(c->g, x, w, b, trans_w, act, out);
    return trans_w ? tr_linear(c->g, x, w, b, act, out) : tr_linear_in_out(c->g, x, w, b, act, out);
}

/* y = act(x w + b) with w (inputs, outputs). */
static tr_status_t model_gpt_linear(const context_t *c, const char *name, tr_tensor_t x,
                                    int64_t outputs, double std, tr_act_t act, tr_tensor_t *out) {
    const tr_shape_t *shape = tr_shape_of(c->g, x);
    const int64_t inputs = shape->dim[shape->ndim - 1];
    const tr_dtype_t type = c->texts ? c->texts->weights : TR_F32;
    tr_tensor_t w, b = TR_NONE;
    tr_scope_push(c->g, name);
    TR_TRY(
        param(c, "weight", type, &TR_SHAPE(inputs, outputs), (tr_init_t){TR_INIT_NORMAL, std}, &w));
    if (c->settings->bias)
        TR_TRY(param(c, "bias", TR_F32, &TR_SHAPE(outputs), (tr_init_t){TR_INIT_CONST, 0}, &b));
    TR_TRY(model_gpt_product(c, x, w, b, false, act, out));
    tr_scope_pop(c->g);
    return TR_OK;
}

/* x += more, unless that is TR_NONE; then *out = layernorm(x). */
static tr_status_t add_norm(const context_t *c, const char *name, tr_tensor_t *x, tr_tensor_t more,
                            tr_tensor_t *out) {
    const tr_shape_t shape = TR_SHAPE(c->settings->n_embd);
    tr_tensor_t gamma, beta;
    tr_scope_push(c->g, name);
    TR_TRY(param(c, "weight", TR_F32, &shape, (tr_init_t){TR_INIT_CONST, 1}, &gamma));
    if (c->settings->bias)
        TR_TRY(param(c, "bias", TR_F32, &shape, (tr_init_t){TR_INIT_CONST, 0}, &beta));
    else
        TR_TRY(tr_const(c->g, "gpt.no_bias", &shape, 0, &beta));
    if (tr_is_none(more))
        TR_TRY(tr_layernorm(c->g, *x, gamma, beta, EPS, out));
    else
        TR_TRY(tr_residual_layernorm(c->g, *x, more, gamma, beta, EPS, x, out));
    tr_scope_pop(c->g);
    return TR_OK;
}

/* -- blocks --------------------------------------------------------------------------------------
 */

static tr_status_t drop(const context_t *c, tr_tensor_t *x) {
    if (c->texts) return TR_OK;
    return tr_dropout(c->g, *x, c->batch->sample_id, (float)c->settings->dropout, x);
}

/* GPT-2 scales down the initial weights of the two outputs of a block, because n_layer of each are
 * added. */
static double output_std(const gpt_t *s) {
    return INIT_STD / sqrt(2 * (double)s->n_layer);
}

/* Keys and values of the texts so far, (rows, context, n_embd). */
static tr_status_t attend_cached(const context_t *c, tr_tensor_t qkv, tr_tensor_t *out) {
    static const char *const what[] = {"keys", "values"};
    const gpt_t *s = c->settings;
    tr_tensor_t cache[2];
    for (int i = 0; i < 2; i++) {
        tr_str_t name = {0};
        tr_str_printf(&name, "%s.%s", tr_scope(c->g), what[i]);
        const tr_status_t status =
            name.status
                ? name.status
                : tr_cache(c->g, name.text, c->texts->weights,
                           &TR_SHAPE(c->texts->rows, c->texts->context, s->n_embd), &cache[i]);
        tr_str_free(&name);
        TR_TRY(status);
    }
    return tr_attention_cached(c->g, qkv, c->texts->place, cache[0], cache[1], (int)s->n_head, out);
}

static tr_status_t model_gpt_attend(const context_t *c, tr_tensor_t qkv, tr_tensor_t *out) {
    const gpt_t *s = c->settings;
    if (c->texts) return attend_cached(c, qkv, out);
    if (c->recomputes_attention) tr_recompute_begin(c->g);
    TR_TRY(tr_attention(c->g, qkv, (int)s->n_head, c->batch->sample_id, (float)s->dropout,
                        s->attention == ATTENTION_STANDARD, out));
    if (c->recomputes_attention) tr_recompute_end(c->g);
    return TR_OK;
}

static tr_status_t attention(const context_t *c, tr_tensor_t x, tr_tensor_t *out) {
    const gpt_t *s = c->settings;
    tr_tensor_t y;
    tr_scope_push(c->g, "attn");
    TR_TRY(model_gpt_linear(c, "c_attn", x, 3 * s->n_embd, INIT_STD, TR_ACT_NONE, &y));
    TR_TRY(model_gpt_attend(c, y, &y));
    TR_TRY(model_gpt_linear(c, "c_proj", y, s->n_embd, output_std(s), TR_ACT_NONE, &y));
    TR_TRY(drop(c, &y));
    tr_scope_pop(c->g);
    return *out = y, TR_OK;
}

static tr_status_t mlp(const context_t *c, tr_tensor_t x, tr_tensor_t *out) {
    const gpt_t *s = c->settings;
    tr_tensor_t y;
    tr_scope_push(c->g, "mlp");
    TR_TRY(model_gpt_linear(c, "c_fc", x, 4 * s->n_embd, INIT_STD, TR_ACT_GELU_TANH, &y));
    TR_TRY(model_gpt_linear(c, "c_proj", y, s->n_embd, output_std(s), TR_ACT_NONE, &y));
    TR_TRY(drop(c, &y));
    tr_scope_pop(c->g);
    return *out = y, TR_OK;
}

/* One block. In and out: x, and *more, which must still be added to x (or TR_NONE). */
static tr_status_t block(const context_t *c, int64_t index, tr_tensor_t *x, tr_tensor_t *more) {
    char name[32];
    tr_tensor_t y;
    snprintf(name, sizeof name, "%lld", (long long)index);
    tr_scope_push(c->g, name);
    TR_TRY(add_norm(c, "ln_1", x, *more, &y));
    TR_TRY(attention(c, y, more));
    TR_TRY(add_norm(c, "ln_2", x, *more, &y));
    TR_TRY(mlp(c, y, more));
    tr_scope_pop(c->g);
    return TR_OK;
}

/* Reads the next "3" or "0-3" of a list of blocks below `count`, and moves *list behind it. */
static bool model_gpt_next_blocks(const char **list, int64_t count, int64_t *first, int64_t *last) {
    const size_t length = strcspn(*list, ",");
    char text[64], *dash;
    if (length >= sizeof text) return false;
    tr_snprintf(text, sizeof text, "%.*s", (int)length, *list);
    *list += length + ((*list)[length] == ',');
    dash = strchr(text, '-');
    if (dash) *dash = '\0';
    return tr_parse_int(text, first) && tr_parse_int(dash ? dash + 1 : text, last) && 0 <= *first &&
           *first <= *last && *last < count;
}

/* Whether block `index` is in a list that has been checked. */
static bool model_gpt_lists(const char *list, int64_t index, int64_t count) {
    int64_t first, last;
    while (list && *list && model_gpt_next_blocks(&list, count, &first, &last))
        if (first <= index && index <= last) return true;
    return false;
}

static tr_status_t blocks(const context_t *c, tr_tensor_t *x, tr_tensor_t *more) {
    const int64_t count = c->settings->n_layer;
    tr_scope_push(c->g, "h");
    for (int64_t i = 0; i < count; i++) {
        const bool is_chosen = model_gpt_lists(c->chosen, i, count);
        if (is_chosen || (c->together > 0 && i % c->together == 0)) tr_recompute_begin(c->g);
        TR_TRY(block(c, i, x, more));
        if (is_chosen || (c->together > 0 && ((i + 1) % c->together == 0 || i + 1 == count)))
            tr_recompute_end(c->g);
    }
    tr_scope_pop(c->g);
    return TR_OK;
}

/* -- the whole -----------------------------------------------------------------------------------
 */

static tr_tensor_t model_gpt_field_of(const tr_model_batch_t *batch, const char *name) {
    for (int i = 0; i < batch->count; i++)
        if (strcmp(batch->name[i], name) == 0) return batch->tensor[i];
    return TR_NONE;
}

static tr_status_t model_gpt_read_recompute(context_t *c, const char *text) {
    const int64_t blocks = c->settings->n_layer;
    const char *list = text;
    int64_t count = 0, first, last;
    bool is_list = text[strcspn(text, ",-")] != '\0';
    if (strcmp(text, "none") == 0) return TR_OK;
    if (strcmp(text, "attention") == 0) return c->recomputes_attention = true, TR_OK;
    if (strcmp(text, "block") == 0) return c->together = 1, TR_OK;
    if (is_list) {
        while (*list && is_list) is_list = model_gpt_next_blocks(&list, blocks, &first, &last);
        if (is_list) return c->chosen = text, TR_OK;
    } else if (tr_parse_int(text, &count) && count >= 1 && count <= blocks) {
        return c->together = (int)count, TR_OK;
    }
    return TR_FAIL(TR_ERR_CONFIG,
                   "model.recompute: expected none, attention, block, a number of blocks from 1 to "
                   "model.n_layer = %lld, or a list of blocks from 0 to %lld, such as 0-3,7; found "
                   "'%s'",
                   (long long)blocks, (long long)blocks - 1, text);
}

static tr_status_t model_gpt_check(context_t *c, tr_tensor_t x) {
    const gpt_t *s = c->settings;
    char text[96];
    if (s->n_embd % s->n_head != 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.n_embd = %lld is not a multiple of model.n_head = %lld",
                       (long long)s->n_embd, (long long)s->n_head);
    if (tr_is_none(x) || tr_shape_of(c->g, x)->ndim != 2 ||
        tr_dtype_is_float(tr_tensor_info(c->g, x)->dtype))
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.type = gpt expects a field x of tokens, found %s; `trainer import "
                       "text` makes a file "
                       "of them",
                       tr_is_none(x) ? "none" : tr_shape_format(tr_shape_of(c->g, x), text));
    if (tr_shape_of(c->g, x)->dim[1] > s->context)
        return TR_FAIL(TR_ERR_CONFIG, "a sample has %lld tokens, but model.context = %lld",
                       (long long)tr_shape_of(c->g, x)->dim[1], (long long)s->context);
    c->vocab_size = s->vocab_size > 0 ? s->vocab_size : c->batch->classes;
    if (c->vocab_size < c->batch->classes || c->vocab_size < 2)
        return TR_FAIL(TR_ERR_CONFIG, "model.vocab_size = %lld, but the data have %lld tokens",
                       (long long)c->vocab_size, (long long)c->batch->classes);
    return TR_OK;
}

/* The loss of each token; without labels (prediction) the logits. */
static tr_status_t head(const context_t *c, tr_tensor_t x, tr_tensor_t wte,
                        tr_model_result_t *out) {
    const tr_tensor_t y = model_gpt_field_of(c->batch, "y");
    if (tr_is_none(y)) {
        TR_TRY(tr_linear(c->g, x, wte, TR_NONE, TR_ACT_NONE, &x));
        return tr_cast(c->g, x, TR_F32, &out->output);
    }
    TR_TRY(tr_model_loss_seed(c->g, c->batch, tr_shape_elems(tr_shape_of(c->g, y)), &out->seed));
    return tr_head_loss(c->g, x, wte, y, c->batch->weight, out->seed, &out->loss, &out->terms);
}

static tr_status_t model_gpt_build(tr_graph_t *g, const tr_config_t *config,
                                   const tr_model_batch_t *batch, tr_model_result_t *out) {
    gpt_t settings;
    tr_model_settings_t common;
    read_settings(config, &settings);
    tr_config_read(config, &tr_model_config, &common);
    context_t c = {.g = g, .settings = &settings, .batch = batch, .freeze = common.freeze};
    tr_tensor_t ids = model_gpt_field_of(batch, "x"), wte, wpe, x, more = TR_NONE;
    TR_TRY(model_gpt_check(&c, ids));
    TR_TRY(model_gpt_read_recompute(&c, common.recompute));
    tr_scope_push(g, "transformer");
    TR_TRY(table(&c, "wte", TR_F32, c.vocab_size, &wte));
    TR_TRY(table(&c, "wpe", TR_F32, settings.context, &wpe));
    TR_TRY(tr_embedding(g, ids, wte, wpe, batch->dtype, &x));
    TR_TRY(drop(&c, &x));
    TR_TRY(blocks(&c, &x, &more));
    TR_TRY(add_norm(&c, "ln_f", &x, more, &x));
    TR_TRY(head(&c, x, wte, out));
    tr_scope_pop(g);
    return TR_OK;
}

static tr_status_t generate(tr_graph_t *g, const tr_config_t *config, const tr_model_texts_t *texts,
                            tr_tensor_t *out_logits) {
    gpt_t settings;
    read_settings(config, &settings);
    const context_t c = {.g = g, .settings = &settings, .texts = texts};
    tr_tensor_t wte, wpe, x, at, more = TR_NONE;
    tr_scope_push(g, "transformer");
    TR_TRY(table(&c, "wte", texts->weights, texts->vocab_size, &wte));
    TR_TRY(table(&c, "wpe", TR_F32, settings.context, &wpe));
    TR_TRY(tr_embedding(g, texts->id, wte, TR_NONE, TR_F32, &x));
    TR_TRY(tr_embedding(g, texts->position, wpe, TR_NONE, TR_F32, &at));
    TR_TRY(tr_add(g, x, at, TR_ACT_NONE, &x));
    TR_TRY(blocks(&c, &x, &more));
    TR_TRY(add_norm(&c, "ln_f", &x, more, &x));
    /* x (B, T, C) -> the rows (B, C) of the texts' last tokens */
    const tr_shape_t shape = *tr_shape_of(g, x);
    TR_TRY(tr_reshape(g, x, &TR_SHAPE(shape.dim[0] * shape.dim[1], shape.dim[2]), &x));
    TR_TRY(tr_embedding(g, texts->last, x, TR_NONE, TR_F32, &x));
    TR_TRY(tr_reshape(g, x, &TR_SHAPE(shape.dim[0], shape.dim[2]), &x));
    TR_TRY(model_gpt_product(&c, x, wte, TR_NONE, true, TR_ACT_NONE, out_logits));
    tr_scope_pop(g);
    return TR_OK;
}

static void tokens(const tr_config_t *config, int64_t *out_context, int64_t *out_vocab_size) {
    gpt_t settings;
    read_settings(config, &settings);
    *out_context = settings.context;
    *out_vocab_size = settings.vocab_size > 0 ? settings.vocab_size : 0;
}

static double cache_bytes(const tr_config_t *config, tr_dtype_t weights) {
    gpt_t s;
    read_settings(config, &s);
    return 2.0 * (double)tr_dtype_bytes(weights) * (double)s.n_layer * (double)s.n_embd;
}

static void model_gpt_describe(const tr_config_t *config, int64_t vocab_size, int64_t end,
                               tr_str_t *out) {
    gpt_t s;
    read_settings(config, &s);
    tr_str_printf(out,
                  "{\n"
                  "  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
                  "  \"vocab_size\": %lld,\n  \"n_positions\": %lld,\n  \"n_embd\": %lld,\n"
                  "  \"n_layer\": %lld,\n  \"n_head\": %lld,\n"
                  "  \"activation_function\": \"gelu_new\",\n  \"layer_norm_epsilon\": 1e-05,\n"
                  "  \"embd_pdrop\": %g,\n  \"attn_pdrop\": %g,\n  \"resid_pdrop\": %g,\n"
                  "  \"initializer_range\": %g,\n  \"tie_word_embeddings\": true,\n",
                  (long long)vocab_size, (long long)s.context, (long long)s.n_embd,
                  (long long)s.n_layer, (long long)s.n_head, s.dropout, s.dropout, s.dropout,
                  INIT_STD);
    if (end >= 0)
        tr_str_printf(out, "  \"bos_token_id\": %lld,\n  \"eos_token_id\": %lld,\n", (long long)end,
                      (long long)end);
    else
        tr_str_append(out, "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n");
    tr_str_append(out, "  \"torch_dtype\": \"float32\"\n}\n");
}

extern const tr_model_t tr_model_gpt;
const tr_model_t tr_model_gpt = {
    .name = "gpt",
    .help = "GPT-2: predicts each token of a text from those before it.",
    .config = &config_table,
    .tokens = tokens,
    .cache_bytes = cache_bytes,
    .describe = model_gpt_describe,
    .generate = generate,
    .build = model_gpt_build,
};
