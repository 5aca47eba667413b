/* trainer generate RUN|CHECKPOINT|FOLDER: continues texts with a trained model. */
#include "open_trained.h"
#include "base/file.h"
#include "infer/generate.h"
#include "base/clock.h"
#include "base/mem.h"
#include "trainer/log.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 24, MOST_ROWS = 16, PROMPTS_BYTES = 1 << 28 };

typedef struct {
    const char *weights, *file, *json;
    cmd_words_t settings;
    cmd_texts_t prompts;
    int64_t tokens, rows; /* rows 0: depends on the number of prompts */
    int64_t slide;        /* 0: half of the context */
    bool no_slide;
    int type; /* of the weights, a tr_dtype_t */
    tr_sampling_t sampling;
} generate_options_t;

typedef struct {
    const generate_options_t *o;
    cmd_trained_t t;
    tr_generator_t *generator;
    tr_tokenizer_t *tokenizer;
    tr_text_t *texts; /* [count] all texts; this rank computes [first, first + mine) */
    int64_t count, first, mine;
    double load_sec;
    tr_generate_stats_t stats;
} generate_t;

/* The vocabulary size is known from the weights, before the programs are built. */
static tr_status_t generate_build(tr_session_t *s, void *self) {
    generate_t *p = self;
    const tr_preprocess_t *kept = s->params.trained_preprocess;
    const int64_t count = (int64_t)p->o->prompts.count;
    const tr_generator_params_t params = {.rows = p->o->rows > 0      ? p->o->rows
                                                  : count < MOST_ROWS ? count
                                                                      : MOST_ROWS,
                                          .weights = (tr_dtype_t)p->o->type,
                                          .vocab_size = kept ? kept->classes : 0};
    TR_TRY(tr_generator_create(&params, &p->generator));
    return tr_generator_build(s, p->generator);
}

static void generate_note_cropped(const generate_t *p) {
    const size_t context = (size_t)tr_generator_context(p->generator);
    int64_t cropped = 0;
    for (int64_t i = 0; i < p->count; i++) cropped += p->texts[i].ids.count > context;
    if (cropped > 0 && !p->o->no_slide)
        TR_WARN("%lld of %lld prompts have more tokens than the context of the model, %zu "
                "(model.context): the model reads the last %zu of them",
                (long long)cropped, (long long)p->count, context, context);
}

/* The tokenizer, and the tokens of all prompts. */
static tr_status_t generate_make_texts(generate_t *p) {
    const tr_preprocess_t *kept = p->t.preprocess;
    const int64_t count = (int64_t)p->o->prompts.count, ranks = p->t.info->size,
                  rank = p->t.info->rank;
    const int64_t context = tr_generator_context(p->generator),
                  slide = p->o->no_slide    ? 0 /* how many tokens leave a full context */
                          : p->o->slide > 0 ? p->o->slide
                                            : (context + 1) / 2;
    if (slide > context)
        return TR_FAIL(
            TR_ERR_USAGE,
            "--slide %lld: expected at most %lld, the context of the model (model.context)",
            (long long)slide, (long long)context);
    if (!kept || !kept->tokenizer)
        return TR_FAIL(TR_ERR_DATA,
                       "%s has no tokenizer: name a checkpoint whose training data `trainer import "
                       "text` made, or a folder with vocab.json and merges.txt",
                       p->t.weights_path);
    TR_TRY(tr_tokenizer_from_json(kept->tokenizer, p->t.weights_path, &p->tokenizer));
    TR_TRY(tr_alloc((size_t)count * sizeof *p->texts, "texts", &p->texts));
    p->count = count;
    p->first = count * rank / ranks;
    p->mine = count * (rank + 1) / ranks - p->first;
    for (int64_t i = 0; i < count; i++) {
        tr_text_t *text = &p->texts[i];
        *text = (tr_text_t){.index = (uint64_t)i,
                            .prompt = p->o->prompts.data[i],
                            .sampling = p->o->sampling,
                            .most = p->o->tokens,
                            .end = p->tokenizer->end,
                            .ends = p->tokenizer->ends,
                            .slide = slide,
                            .logprobs = -1};
        TR_TRY(tr_tokenizer_encode(p->tokenizer, text->prompt, strlen(text->prompt), &text->ids));
    }
    generate_note_cropped(p);
    return TR_OK;
}

/* Exchanges the texts of all ranks: how each ended, and its tokens. */
static tr_status_t generate_gather(generate_t *p) {
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

static double generate_rate(const generate_t *p) {
    return p->stats.decode_sec > 0 ? (double)p->stats.decoded / p->stats.decode_sec : 0;
}

/* Repeats the prompts, so that a text can be read as a whole. */
static tr_status_t generate_print(const generate_t *p) {
    int64_t stops[TR_STOP_COUNT] = {0};
    for (int64_t i = 0; i < p->count; i++) {
        tr_str_t text = {0};
        TR_TRY(tr_tokenizer_decode(p->tokenizer, p->texts[i].tokens.data, p->texts[i].tokens.count,
                                   &text));
        if (i > 0) printf("--------\n");
        fputs(p->texts[i].prompt, stdout);
        fwrite(text.text ? text.text : "", 1, text.length, stdout);
        putchar('\n');
        tr_str_free(&text);
        stops[p->texts[i].stop]++;
    }
    fprintf(stderr, "loaded in %.2f s; first token after %.3f s; %lld tokens, %.1f tokens/s\n",
            p->load_sec, p->stats.first_sec, (long long)p->stats.tokens, generate_rate(p));
    for (int i = TR_STOP_END_OF_TEXT; i <= TR_STOP_CONTEXT; i++)
        if (stops[i] > 0)
            fprintf(stderr, "%lld of %lld text%s stopped at the %s\n", (long long)stops[i],
                    (long long)p->count, p->count > 1 ? "s" : "", tr_stop_name((tr_stop_t)i));
    return TR_OK;
}

/* JSON requires UTF-8: invalid bytes become U+FFFD. The tokens are exact. */
static json_t *generate_json_text(const char *text, size_t bytes) {
    tr_str_t clean = {0};
    tr_str_append_utf8(&clean, text, bytes);
    json_t *result = json_stringn(clean.text ? clean.text : "", clean.length);
    tr_str_free(&clean);
    return result;
}

static tr_status_t generate_write_json(const generate_t *p) {
    json_t *texts = json_array();
    for (int64_t i = 0; i < p->count; i++) {
        const tr_text_t *text = &p->texts[i];
        tr_str_t decoded = {0};
        json_t *tokens = json_array();
        (void)tr_tokenizer_decode(p->tokenizer, text->tokens.data, text->tokens.count, &decoded);
        for (size_t k = 0; k < text->tokens.count; k++)
            json_array_append_new(tokens, json_integer(text->tokens.data[k]));
        json_array_append_new(
            texts, json_pack("{s:o, s:o, s:o, s:I, s:s}", "prompt",
                             generate_json_text(text->prompt, strlen(text->prompt)), "text",
                             generate_json_text(decoded.text ? decoded.text : "", decoded.length),
                             "tokens", tokens, "prompt_tokens", (json_int_t)text->ids.count, "stop",
                             tr_stop_name(text->stop)));
        tr_str_free(&decoded);
    }
    return cmd_json_write(json_pack("{s:s, s:f, s:f, s:f, s:I, s:o}", "weights", p->t.weights_path,
                                    "load_sec", p->load_sec, "first_token_sec", p->stats.first_sec,
                                    "tokens_per_sec", generate_rate(p), "tokens",
                                    (json_int_t)p->stats.tokens, "texts", texts),
                          p->o->json);
}

/* Appends one prompt per line of the file; `text` is split in place. */
static tr_status_t generate_read_prompts(generate_options_t *o, char **text) {
    int64_t bytes = 0;
    TR_TRY(tr_read_text(o->file, PROMPTS_BYTES, text, &bytes));
    for (char *line = *text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        TR_TRY(tr_vec_push(&o->prompts, line));
    }
    if (o->prompts.count > 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "--prompts %s: expected a prompt on each line, the file is empty",
                   o->file);
}

static tr_status_t generate_run(void *options) {
    generate_options_t *o = options;
    generate_t p = {.o = o};
    const cmd_trained_params_t params = {.settings = o->settings,
                                         .model = {.weights = o->weights,
                                                   .purpose = TR_SESSION_BUILD,
                                                   .build = generate_build,
                                                   .build_self = &p}};
    char *file_text = NULL;
    tr_status_t status = TR_OK;
    if (o->prompts.count > 0 && o->file)
        return TR_FAIL(TR_ERR_USAGE, "--prompt and --prompts: expected one of them");
    if (o->slide > 0 && o->no_slide)
        return TR_FAIL(TR_ERR_USAGE, "--slide and --no-slide: expected one of them");
    if (o->file)
        TR_TRY_GOTO(generate_read_prompts(o, &file_text), done);
    else if (o->prompts.count == 0)
        TR_TRY_GOTO(tr_vec_push(&o->prompts, ""), done);

    const double begin = tr_clock_sec();
    TR_TRY_GOTO(cmd_trained_open(&params, &p.t), done);
    TR_TRY_GOTO(tr_world_agree(p.t.world, generate_make_texts(&p)), done);
    TR_TRY_GOTO(tr_generator_start(p.generator, p.tokenizer), done);
    p.load_sec = tr_clock_sec() - begin;
    status = tr_generator_run(p.generator, p.texts + p.first, p.mine, &p.stats);
    TR_TRY_GOTO(tr_world_agree(p.t.world, status), done);
    TR_TRY_GOTO(generate_gather(&p), done);
    if (p.t.info->rank != 0) goto done;
    if (!cmd_json_is_stdout(o->json)) TR_TRY_GOTO(generate_print(&p), done);
    if (o->json) TR_TRY_GOTO(generate_write_json(&p), done);
done:
    for (int64_t i = 0; i < p.count; i++) {
        tr_vec_free(&p.texts[i].ids);
        tr_vec_free(&p.texts[i].tokens);
    }
    tr_free(&p.texts);
    tr_tokenizer_destroy(&p.tokenizer);
    tr_generator_destroy(&p.generator);
    tr_free(&file_text);
    return cmd_trained_close(&p.t, status);
}

static const cmd_argument_t arguments[] = {
    {"RUN|CHECKPOINT|FOLDER", offsetof(generate_options_t, weights), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(generate_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_TEXTS(generate_options_t, prompts, "--prompt", "TEXT",
                     "A prompt; may be repeated. Without a prompt the text begins after the "
                     "end-of-text token."),
    CMD_OPTION_TEXT(generate_options_t, file, "--prompts", "FILE", NULL,
                    "Reads a prompt from each line of FILE."),
    CMD_OPTION_INT(generate_options_t, tokens, "--tokens", "N", "100", 1, MOST_TOKENS,
                   "The largest number of new tokens. A text also stops at the end-of-text "
                   "token."),
    CMD_OPTION_INT(generate_options_t, slide, "--slide", "N", NULL, 1, MOST_TOKENS,
                   "When a text fills model.context, its first N tokens leave the context, the "
                   "others are processed again, and the text goes on; by default half of the "
                   "context. 1 gives the model as many earlier tokens as possible, and processes "
                   "all of them for each token."),
    CMD_OPTION_FLAG(generate_options_t, no_slide, "--no-slide",
                    "Ends a text that fills model.context, and refuses longer prompts."),
    CMD_OPTION_FLOAT(generate_options_t, sampling.temperature, "--temperature", "T", "0.8", 0, 100,
                     "0 takes the best token each time; another one draws from the probabilities "
                     "at this temperature."),
    CMD_OPTION_INT(generate_options_t, sampling.top_k, "--top-k", "K", NULL, 0, MOST_TOKENS,
                   "Keeps the K best tokens."),
    CMD_OPTION_FLOAT(generate_options_t, sampling.top_p, "--top-p", "P", "1", 0, 1,
                     "Keeps the best tokens whose probabilities sum to P."),
    CMD_OPTION_INT(generate_options_t, sampling.seed, "--seed", "N", "0", 0, CMD_NO_LIMIT,
                   "Selects the random numbers."),
    CMD_OPTION_INT(generate_options_t, rows, "--batch", "N", NULL, 1, 4096,
                   "Texts at once, by default up to 16."),
    CMD_OPTION_ENUM(generate_options_t, type, "--weights", "fp32", CMD_WEIGHT_TYPES,
                    "The type in which matrices, and the keys and values of earlier tokens, are "
                    "held. bf16 and fp16 take half the memory and read half as many bytes for "
                    "each token."),
    CMD_OPTION_JSON(generate_options_t,
                    "Also writes texts, times and tokens/s as JSON; - writes only JSON to standard "
                    "output."),
};

const cmd_command_t cmd_generate = {
    .name = "generate",
    .runs = CMD_ON_RANKS,
    .summary = "Continues texts with a model of type gpt.",
    .help = "RUN is a run folder or one of its checkpoints. FOLDER is a GPT-2 of Hugging Face: "
            "config.json, model.safetensors, vocab.json and merges.txt. A text depends on its "
            "prompt, its number and the options, not on --batch or the number of ranks, among "
            "which the prompts are divided. The text goes to standard output, times and tokens/s "
            "to standard error.",
    CMD_ARGUMENTS(generate_options_t),
    CMD_OPTIONS,
    .run = generate_run,
};
