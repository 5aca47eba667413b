/* trainer generate RUN|CHECKPOINT|FOLDER [--prompt TEXT ...] [--prompts FILE] [options]: continues
 * texts with a trained model. */
#include "open_trained.h"
#include "base/file.h"
#include "infer/generate.h"
#include "base/clock.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 24, MOST_ROWS = 16, PROMPTS_BYTES = 1 << 28 };

typedef struct {
    cmd_trained_params_t trained;
    TR_VEC(const char *) prompts; /* borrowed */
    const char *file, *json;
    char *file_text;
    int64_t tokens, rows; /* rows 0: depends on the number of prompts */
    bool is_bf16;
    tr_sampling_t sampling;
} options_t;

typedef struct {
    const options_t *o;
    cmd_trained_t t;
    tr_generator_t *generator;
    tr_tokenizer_t *tokenizer;
    tr_text_t *texts; /* [count] all texts; this rank computes [first, first + mine) */
    int64_t count, first, mine;
    double load_sec;
    tr_generate_stats_t stats;
} generate_t;

/* -- arguments --------------------------------------------------------------------------------- */

static tr_status_t parse_whole(const char *name, const char *text, int64_t least, int64_t most,
                               int64_t *out) {
    if (tr_parse_int(text, out) && *out >= least && *out <= most) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "%s %s: expected an integer from %lld to %lld", name, text,
                   (long long)least, (long long)most);
}

static tr_status_t parse_number(const char *name, const char *text, double most, double *out) {
    if (tr_parse_float(text, out) && *out >= 0 && *out <= most) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "%s %s: expected a number from 0 to %g", name, text, most);
}

static tr_status_t parse_value(options_t *o, const char *name, const char *value) {
    int64_t seed;
    if (strcmp(name, "--prompt") == 0) return tr_vec_push(&o->prompts, value);
    if (strcmp(name, "--prompts") == 0) return o->file = value, TR_OK;
    if (strcmp(name, "--json") == 0) return o->json = value, TR_OK;
    if (strcmp(name, "--tokens") == 0) return parse_whole(name, value, 1, MOST_TOKENS, &o->tokens);
    if (strcmp(name, "--batch") == 0) return parse_whole(name, value, 1, 4096, &o->rows);
    if (strcmp(name, "--top-k") == 0)
        return parse_whole(name, value, 0, MOST_TOKENS, &o->sampling.top_k);
    if (strcmp(name, "--top-p") == 0) return parse_number(name, value, 1, &o->sampling.top_p);
    if (strcmp(name, "--temperature") == 0)
        return parse_number(name, value, 100, &o->sampling.temperature);
    if (strcmp(name, "--seed") == 0) {
        TR_TRY(parse_whole(name, value, 0, INT64_MAX, &seed));
        return o->sampling.seed = (uint64_t)seed, TR_OK;
    }
    if (strcmp(name, "--weights") != 0) return cmd_fail_option("generate", name);
    o->is_bf16 = strcmp(value, "bf16") == 0;
    if (o->is_bf16 || strcmp(value, "fp32") == 0) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "--weights %s: expected fp32 or bf16", value);
}

static tr_status_t parse(int argc, char **argv, options_t *o) {
    cmd_trained_params_t *p = &o->trained;
    *o = (options_t){.trained = {.assignments = argv},
                     .tokens = 100,
                     .sampling = {.temperature = 0.8, .top_p = 1}};
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0 && i + 1 < argc) {
            TR_TRY(parse_value(o, argv[i], argv[i + 1]));
            i++;
        } else if (argv[i][0] == '-')
            return cmd_fail_option("generate", argv[i]);
        else if (!p->weights)
            p->weights = argv[i];
        else
            argv[p->count++] = argv[i];
    }
    if (p->weights && o->prompts.count > 0 && o->file)
        return TR_FAIL(TR_ERR_USAGE, "--prompt and --prompts: expected one of them");
    if (p->weights) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "generate requires a run folder, a checkpoint or a folder of "
                                 "Hugging Face: trainer generate RUN --prompt TEXT");
}

/* One prompt per line of the file; the text is split in place. */
static tr_status_t read_prompts(options_t *o) {
    int64_t bytes = 0;
    if (!o->file) return o->prompts.count > 0 ? TR_OK : tr_vec_push(&o->prompts, "");
    TR_TRY(tr_read_text(o->file, PROMPTS_BYTES, &o->file_text, &bytes));
    for (char *line = o->file_text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        TR_TRY(tr_vec_push(&o->prompts, line));
    }
    if (o->prompts.count > 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "--prompts %s: expected a prompt on each line, the file is empty",
                   o->file);
}

/* -- setting up -------------------------------------------------------------------------------- */

static tr_status_t open_tokenizer(generate_t *p) {
    const tr_preprocess_t *kept = p->t.preprocess;
    if (kept && kept->tokenizer)
        return tr_tokenizer_from_json(kept->tokenizer, p->t.weights_path, &p->tokenizer);
    return TR_FAIL(TR_ERR_DATA,
                   "%s has no tokenizer: name a checkpoint whose training data `trainer import "
                   "text` made, or a folder with vocab.json and merges.txt",
                   p->t.weights_path);
}

static tr_status_t make_texts(generate_t *p) {
    const int64_t count = (int64_t)p->o->prompts.count, ranks = p->t.info->size,
                  rank = p->t.info->rank;
    TR_TRY(tr_alloc((size_t)count * sizeof *p->texts, "texts", &p->texts));
    p->count = count;
    p->first = count * rank / ranks;
    p->mine = count * (rank + 1) / ranks - p->first;
    for (int64_t i = 0; i < count; i++) {
        tr_text_t *text = &p->texts[i];
        *text = (tr_text_t){.index = (uint64_t)i, .prompt = p->o->prompts.data[i]};
        TR_TRY(tr_tokenizer_encode(p->tokenizer, text->prompt, strlen(text->prompt), &text->ids));
    }
    return TR_OK;
}

/* The vocabulary size is known from the weights, before the programs are built. */
static tr_status_t build(tr_session_t *s, void *self) {
    generate_t *p = self;
    const tr_preprocess_t *kept = s->params.trained_preprocess;
    const int64_t count = (int64_t)p->o->prompts.count;
    const tr_generator_params_t params = {.rows = p->o->rows > 0      ? p->o->rows
                                                  : count < MOST_ROWS ? count
                                                                      : MOST_ROWS,
                                          .weights = p->o->is_bf16 ? TR_BF16 : TR_F32,
                                          .vocab_size = kept ? kept->classes : 0};
    TR_TRY(tr_generator_create(&params, &p->generator));
    return tr_generator_build(s, p->generator);
}

/* -- several ranks ----------------------------------------------------------------------------- */

/* Exchanges the texts of all ranks: how each ended, and its tokens. */
static tr_status_t gather(generate_t *p) {
    const int64_t ranks = p->t.info->size, most = (p->count + ranks - 1) / ranks,
                  width = p->o->tokens + 2;
    const size_t bytes = (size_t)(most * width) * sizeof(int32_t);
    int32_t *mine = NULL, *all = NULL;
    tr_status_t status = TR_OK;
    if (ranks == 1) return TR_OK;
    TR_TRY_GOTO(tr_alloc(bytes, "texts", &mine), done);
    TR_TRY_GOTO(tr_alloc(bytes * (size_t)ranks, "texts of all ranks", &all), done);
    for (int64_t i = 0; i < p->mine; i++) {
        const tr_text_t *text = &p->texts[p->first + i];
        mine[i * width] = (int32_t)text->stop;
        mine[i * width + 1] = (int32_t)text->tokens.count;
        for (size_t k = 0; k < text->tokens.count; k++)
            mine[i * width + 2 + (int64_t)k] = text->tokens.data[k];
    }
    TR_TRY_GOTO(tr_world_allgather(p->t.world, mine, bytes, all), done);
    for (int64_t rank = 0; rank < ranks; rank++) {
        const int64_t first = p->count * rank / ranks, end = p->count * (rank + 1) / ranks;
        for (int64_t i = first; i < end && rank != p->t.info->rank; i++) {
            const int32_t *from = all + (rank * most + i - first) * width;
            p->texts[i].stop = (tr_stop_t)from[0];
            for (int32_t k = 0; k < from[1]; k++)
                TR_TRY_GOTO(tr_vec_push(&p->texts[i].tokens, from[2 + k]), done);
        }
    }
    double sums[] = {(double)p->stats.tokens, (double)p->stats.decoded};
    TR_TRY_GOTO(tr_world_allreduce(p->t.world, sums, 2, TR_REDUCE_SUM), done);
    p->stats.tokens = (int64_t)sums[0], p->stats.decoded = (int64_t)sums[1];
    double times[] = {p->stats.first_sec, p->stats.decode_sec};
    TR_TRY_GOTO(tr_world_allreduce(p->t.world, times, 2, TR_REDUCE_MAX), done);
    p->stats.first_sec = times[0], p->stats.decode_sec = times[1];
done:
    tr_free(&mine);
    tr_free(&all);
    return status;
}

/* -- results ----------------------------------------------------------------------------------- */

static double rate(const generate_t *p) {
    return p->stats.decode_sec > 0 ? (double)p->stats.decoded / p->stats.decode_sec : 0;
}

/* Repeats the prompts, so that a text can be read as a whole. */
static tr_status_t print_texts(const generate_t *p) {
    for (int64_t i = 0; i < p->count; i++) {
        tr_str_t text = {0};
        TR_TRY(tr_tokenizer_decode(p->tokenizer, p->texts[i].tokens.data, p->texts[i].tokens.count,
                                   &text));
        if (i > 0) printf("--------\n");
        fputs(p->texts[i].prompt, stdout);
        fwrite(text.text ? text.text : "", 1, text.length, stdout);
        putchar('\n');
        tr_str_free(&text);
    }
    return TR_OK;
}

static void print_stats(const generate_t *p) {
    int64_t stops[3] = {0};
    for (int64_t i = 0; i < p->count; i++) stops[p->texts[i].stop]++;
    fprintf(stderr, "loaded in %.2f s; first token after %.3f s; %lld tokens, %.1f tokens/s\n",
            p->load_sec, p->stats.first_sec, (long long)p->stats.tokens, rate(p));
    for (int i = TR_STOP_END_OF_TEXT; i <= TR_STOP_CONTEXT; i++)
        if (stops[i] > 0)
            fprintf(stderr, "%lld of %lld text%s stopped at the %s\n", (long long)stops[i],
                    (long long)p->count, p->count > 1 ? "s" : "", tr_stop_name((tr_stop_t)i));
}

/* JSON requires UTF-8: invalid bytes become U+FFFD. The tokens are exact. */
static json_t *json_text(const char *text, size_t bytes) {
    tr_str_t clean = {0};
    for (size_t at = 0; at < bytes;) {
        const size_t good = tr_utf8_bytes(text + at, bytes - at);
        tr_str_append_bytes(&clean, text + at, good);
        at += good;
        if (at < bytes) tr_str_append(&clean, "\xEF\xBF\xBD"), at++;
    }
    json_t *result = json_stringn(clean.text ? clean.text : "", clean.length);
    tr_str_free(&clean);
    return result;
}

static json_t *json_of(const generate_t *p, const tr_text_t *text) {
    tr_str_t decoded = {0};
    json_t *tokens = json_array();
    (void)tr_tokenizer_decode(p->tokenizer, text->tokens.data, text->tokens.count, &decoded);
    for (size_t k = 0; k < text->tokens.count; k++)
        json_array_append_new(tokens, json_integer(text->tokens.data[k]));
    json_t *o = json_pack(
        "{s:o, s:o, s:o, s:I, s:s}", "prompt", json_text(text->prompt, strlen(text->prompt)),
        "text", json_text(decoded.text ? decoded.text : "", decoded.length), "tokens", tokens,
        "prompt_tokens", (json_int_t)text->ids.count, "stop", tr_stop_name(text->stop));
    tr_str_free(&decoded);
    return o;
}

static tr_status_t write_json(const generate_t *p) {
    json_t *texts = json_array();
    for (int64_t i = 0; i < p->count; i++) json_array_append_new(texts, json_of(p, &p->texts[i]));
    return cmd_json_write(json_pack("{s:s, s:f, s:f, s:f, s:I, s:o}", "weights", p->t.weights_path,
                                    "load_sec", p->load_sec, "first_token_sec", p->stats.first_sec,
                                    "tokens_per_sec", rate(p), "tokens",
                                    (json_int_t)p->stats.tokens, "texts", texts),
                          p->o->json);
}

static tr_status_t run(generate_t *p) {
    const double begin = tr_clock_sec();
    cmd_trained_params_t params = p->o->trained;
    params.build = build, params.build_self = p;
    TR_TRY(cmd_trained_open(&params, &p->t));
    tr_status_t status = open_tokenizer(p);
    if (status == TR_OK) status = make_texts(p);
    TR_TRY(tr_world_agree(p->t.world, status));
    TR_TRY(tr_generator_start(p->generator));
    p->load_sec = tr_clock_sec() - begin;
    status = tr_generator_run(p->generator, p->texts + p->first, p->mine, p->o->tokens,
                              p->tokenizer->end, &p->o->sampling, &p->stats);
    TR_TRY(tr_world_agree(p->t.world, status));
    TR_TRY(gather(p));
    if (p->t.info->rank != 0) return TR_OK;
    if (!cmd_json_is_stdout(p->o->json)) {
        TR_TRY(print_texts(p));
        print_stats(p);
    }
    return p->o->json ? write_json(p) : TR_OK;
}

tr_status_t cmd_generate(int argc, char **argv) {
    options_t o;
    generate_t p = {.o = &o};
    tr_status_t status = parse(argc, argv, &o);
    if (status == TR_OK) status = read_prompts(&o);
    if (status == TR_OK) status = run(&p);
    for (int64_t i = 0; i < p.count; i++) {
        tr_vec_free(&p.texts[i].ids);
        tr_vec_free(&p.texts[i].tokens);
    }
    tr_free(&p.texts);
    tr_tokenizer_destroy(&p.tokenizer);
    tr_generator_destroy(&p.generator);
    tr_vec_free(&o.prompts);
    tr_free(&o.file_text);
    return cmd_trained_close(&p.t, status);
}
