//TEST np=1
/* Texts that are generated among others, in any row, by any program, on any number of threads, are
 * those that are generated alone: the same tokens and the same bits of log-probabilities. */
#include "infer/generate.h"
#include "base/half.h"
#include "base/rng.h"
#include "trainer/log.h"
#include "trainer/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>
#include "../../support/ok.h"

enum { TEXTS = 40, VISITORS = 8, CONTEXT = 160, VOCAB = 67, MOST = 24, BROKEN = 151 };

static const char settings[] = "[model]\ntype = gpt\nn_layer = 2\nn_head = 2\nn_embd = 40\n"
                               "context = 160\nvocab_size = 67\n";

static tr_world_t *world;
static bool slides; /* texts slide, and no position is BROKEN */
static int text_count = TEXTS;

/* -- a model with random weights --------------------------------------------------------------- */

typedef struct {
    tr_config_t *config;
    tr_session_t *s;
    tr_generator_t *generator;
} model_t;

/* Position BROKEN of every text gives scores that are not finite. Matrices have values of
 * the type `type`, in whichever type they are held. */
static void fill_params(tr_graph_t *g, tr_dtype_t type) {
    uint64_t stream = 0;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_t t = {id};
        if (!tr_is_param(g, t)) continue;
        const tr_tensor_info_t *info = tr_tensor_info(g, t);
        const int64_t count = tr_shape_elems(&info->shape);
        const bool is_norm = strstr(info->name, "ln_") && strstr(info->name, "weight");
        tr_rng_t rng = tr_rng_make(3, TR_RNG_SYNTHETIC, 0, stream++);
        float *values = calloc((size_t)count, sizeof *values);
        for (int64_t i = 0; i < count; i++)
            values[i] = (is_norm ? 1 : 0) + 0.4f * (float)(tr_rng_uniform(&rng) - 0.5);
        const bool is_table = strstr(info->name, "wpe"),
                   is_matrix = info->shape.ndim == 2 && !is_table;
        uint16_t *halves = calloc((size_t)count, sizeof *halves);
        for (int64_t i = 0; is_table && !slides && i < 40; i++) values[BROKEN * 40 + i] = NAN;
        for (int64_t i = 0; i < count && is_matrix && type != TR_F32; i++) {
            halves[i] = type == TR_BF16 ? tr_bf16_of_float(values[i]) : tr_f16_of_float(values[i]);
            values[i] = type == TR_BF16 ? tr_float_of_bf16(halves[i]) : tr_float_of_f16(halves[i]);
        }
        OK(tr_tensor_write(g, t, info->dtype == TR_F32 ? (void *)values : halves));
        free(values);
        free(halves);
    }
}

static model_t open_model(int64_t rows, int threads, tr_dtype_t weights, tr_dtype_t values) {
    const tr_generator_params_t params = {.rows = rows, .weights = weights, .vocab_size = VOCAB};
    const tr_config_table_t *const *tables;
    const char *device = getenv("OP_DEVICE");
    char set[2][64];
    model_t m = {0};
    size_t count;
    OK(tr_generator_create(&params, &m.generator));
    OK(tr_all_tables(&tables, &count));
    OK(tr_config_create(tables, count, &m.config));
    OK(tr_config_load_text(m.config, "test.ini", settings, sizeof settings - 1));
    snprintf(set[0], sizeof set[0], "device=%s", device ? device : "cpu");
    snprintf(set[1], sizeof set[1], "threads=%d", threads);
    for (int i = 0; i < 2; i++) OK(tr_config_set(m.config, set[i], "test"));
    OK(tr_config_check(m.config));
    OK(tr_session_create(m.config, world,
                         &(tr_session_params_t){.purpose = TR_SESSION_BUILD,
                                                .loaded = true,
                                                .build = tr_generator_build,
                                                .build_self = m.generator,
                                                .size = 1},
                         &m.s));
    OK(tr_session_start(m.s, NULL));
    fill_params(m.s->g, values);
    OK(tr_generator_start(m.generator, NULL));
    return m;
}

static void close_model(model_t *m) {
    tr_graph_drop_captures(m->s->g);
    tr_session_destroy(&m->s);
    tr_config_destroy(&m->config);
    tr_generator_destroy(&m->generator);
}

/* -- texts ------------------------------------------------------------------------------------- */

/* Prompts of all lengths around the sizes of the pieces; some texts end at `end`, at the end of the
 * context, or at the position BROKEN. */
static void make_texts(tr_text_t texts[TEXTS]) {
    static const int lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 79, 80, 81, 128, 140, 150, 0};
    for (int i = 0; i < text_count; i++) {
        tr_rng_t rng = tr_rng_make(5, TR_RNG_SYNTHETIC, 1, (uint64_t)i);
        texts[i] = (tr_text_t){
            .index = (uint64_t)i % 7,
            .sampling = {.temperature = i % 3 ? 0.5 * (i % 3) : 0,
                         .top_p = i % 4 ? 1 : 0.8,
                         .top_k = i % 5 ? 0 : 9,
                         .seed = (uint64_t)i / 9},
            .most = (1 + i * 11 % MOST) * (slides ? 4 : 1),
            .end = slides ? -1 : 7,
            .slide = slides ? 1 + i * 53 % CONTEXT : 0,
            .logprobs = i % 2 ? 5 : -1,
        };
        for (int k = 0; k < (slides ? 12 : 0) + lengths[i % 15]; k++)
            OK(tr_vec_push(&texts[i].ids, (int32_t)(tr_rng_uniform(&rng) * VOCAB)));
    }
}

static void free_texts(tr_text_t *texts, int count) {
    for (int i = 0; i < count; i++) {
        tr_vec_free(&texts[i].ids);
        tr_vec_free(&texts[i].tokens);
        tr_vec_free(&texts[i].scores);
    }
}

/* Counts the texts that have ended, without visitors. */
static void take(void *self, tr_text_t *text) {
    int *ended = self;
    *ended += !text->prompt && text->stop != TR_STOP_NONE;
    assert_true((int64_t)text->tokens.count <= text->most);
}

static void generate_alone(model_t *m, tr_text_t texts[TEXTS]) {
    int ended = 0;
    for (int i = 0; i < text_count; i++) {
        OK(tr_generator_admit(m->generator, &texts[i]));
        while (ended <= i) OK(tr_generator_step(m->generator, take, &ended));
    }
}

static void shuffle(tr_rng_t *rng, int order[TEXTS]) {
    for (int i = 0; i < text_count; i++) order[i] = i;
    for (int i = text_count - 1; i > 0; i--) {
        const int k = (int)(tr_rng_uniform(rng) * (i + 1)), swap = order[i];
        order[i] = order[k], order[k] = swap;
    }
}

/* All texts in a random order, admitted at random moments, among visitors that are dropped. */
static void generate_mixed(model_t *m, tr_text_t texts[TEXTS], uint64_t seed) {
    tr_rng_t rng = tr_rng_make(seed, TR_RNG_SYNTHETIC, 2, 0);
    tr_text_t visitors[VISITORS] = {0};
    int order[TEXTS], next = 0, visits = 0, ended = 0;
    const int64_t rows = tr_generator_free(m->generator);
    shuffle(&rng, order);
    while (ended < text_count) {
        while (next < text_count && tr_generator_free(m->generator) > 0 &&
               tr_rng_uniform(&rng) < 0.7)
            OK(tr_generator_admit(m->generator, &texts[order[next++]]));
        if (visits < VISITORS && tr_generator_free(m->generator) > 0) {
            tr_text_t *visitor = &visitors[visits++];
            *visitor = (tr_text_t){.prompt = "visitor", .most = 1000, .end = 1, .logprobs = -1};
            visitor->sampling = (tr_sampling_t){.temperature = 1, .top_p = 1};
            for (int k = 0; k < 20; k++) OK(tr_vec_push(&visitor->ids, k + visits));
            OK(tr_generator_admit(m->generator, visitor));
        }
        OK(tr_generator_step(m->generator, take, &ended));
        for (int i = 0; i < visits; i++)
            if (tr_rng_uniform(&rng) < 0.3) tr_generator_drop(m->generator, &visitors[i]);
    }
    for (int i = 0; i < visits; i++) tr_generator_drop(m->generator, &visitors[i]);
    assert_int_equal(tr_generator_free(m->generator), rows);
    free_texts(visitors, VISITORS);
}

static void expect_same(const tr_text_t *a, const tr_text_t *b) {
    assert_int_equal(a->stop, b->stop);
    assert_int_equal(a->tokens.count, b->tokens.count);
    assert_int_equal(a->scores.count, a->logprobs < 0 ? 0 : a->tokens.count);
    assert_int_equal(a->scores.count, b->scores.count);
    if (a->tokens.count > 0)
        assert_memory_equal(a->tokens.data, b->tokens.data,
                            a->tokens.count * sizeof *a->tokens.data);
    if (a->scores.count > 0)
        assert_memory_equal(a->scores.data, b->scores.data,
                            a->scores.count * sizeof *a->scores.data);
}

/* -- tests ------------------------------------------------------------------------------------- */

static void alone_and_mixed(tr_dtype_t weights) {
    static const int64_t rows[] = {1, 3, 16};
    tr_text_t alone[TEXTS], mixed[TEXTS];
    int stops[TR_STOP_COUNT] = {0};
    model_t m = open_model(1, 1, weights, weights);
    make_texts(alone);
    generate_alone(&m, alone);
    close_model(&m);
    for (int i = 0; i < text_count; i++) stops[alone[i].stop]++;
    for (int stop = TR_STOP_LENGTH; stop < TR_STOP_COUNT; stop++)
        if (stop != TR_STOP_CONTEXT) assert_true(stops[stop] > 0);
    for (int threads = 1; threads <= (getenv("OP_DEVICE") ? 1 : 2); threads++)
        for (int r = text_count < TEXTS; r < 3; r++) {
            m = open_model(rows[r], threads, weights, weights);
            make_texts(mixed);
            generate_mixed(&m, mixed, (uint64_t)(10 * r + threads));
            close_model(&m);
            for (int i = 0; i < text_count; i++) expect_same(&alone[i], &mixed[i]);
            free_texts(mixed, text_count);
        }
    free_texts(alone, text_count);
}

static void mixed_is_alone_fp32(void **state) {
    alone_and_mixed(TR_F32);
}
static void mixed_is_alone_bf16(void **state) {
    alone_and_mixed(TR_BF16);
}

/* Texts that fill the context once or more, and some prompts longer than it. */
static void mixed_is_alone_sliding(void **state) {
    tr_text_t alone[TEXTS], mixed[TEXTS];
    int past = 0, longer = 0;
    slides = true;
    model_t m = open_model(1, 1, TR_F32, TR_F32);
    make_texts(alone);
    generate_alone(&m, alone);
    close_model(&m);
    m = open_model(7, 1, TR_F32, TR_F32);
    make_texts(mixed);
    generate_mixed(&m, mixed, 5);
    close_model(&m);
    for (int i = 0; i < text_count; i++) {
        assert_int_equal(alone[i].stop, TR_STOP_LENGTH);
        expect_same(&alone[i], &mixed[i]);
        past += alone[i].ids.count + alone[i].tokens.count > CONTEXT + 1;
        longer += alone[i].ids.count > CONTEXT;
    }
    assert_true(past > text_count / 8 && longer > text_count / 30);
    slides = false;
    free_texts(alone, text_count);
    free_texts(mixed, text_count);
}

/* A text that slides by 1 has the tokens of new texts whose prompts are the last CONTEXT tokens. */
static void slide_by_one_is_cropping(void **state) {
    enum { MORE = 20 };
    tr_text_t whole = {.most = MORE, .end = -1, .slide = 1, .logprobs = -1};
    int ended = 0;
    slides = true;
    model_t m = open_model(1, 1, TR_F32, TR_F32);
    for (int k = 0; k < CONTEXT - 3; k++) OK(tr_vec_push(&whole.ids, k * k % VOCAB));
    OK(tr_generator_admit(m.generator, &whole));
    while (ended < 1) OK(tr_generator_step(m.generator, take, &ended));
    assert_int_equal(whole.tokens.count, MORE);
    for (size_t t = 5; t < MORE; t++) {
        tr_text_t one = {.most = 1, .end = -1, .logprobs = -1};
        for (size_t k = whole.ids.count + t - CONTEXT; k < whole.ids.count + t; k++)
            OK(tr_vec_push(&one.ids, k < whole.ids.count ? whole.ids.data[k]
                                                         : whole.tokens.data[k - whole.ids.count]));
        OK(tr_generator_admit(m.generator, &one));
        for (ended = 0; ended < 1;) OK(tr_generator_step(m.generator, take, &ended));
        assert_int_equal(one.tokens.data[0], whole.tokens.data[t]);
        free_texts(&one, 1);
    }
    slides = false;
    close_model(&m);
    free_texts(&whole, 1);
}

/* Halves are held in half the memory, and so are keys and values. These are rounded, so the scores of
 * a first token are near those of the same weights in fp32; what the next tokens are may differ. */
static void halves_are_near_their_values(void **state) {
    const tr_model_t *gpt;
    OK(tr_model_find("gpt", &gpt));
    for (tr_dtype_t type = TR_BF16; type <= TR_F16; type++) {
        tr_text_t half[TEXTS], wide[TEXTS];
        size_t bytes[2];
        double worst = 0;
        for (int is_wide = 0; is_wide < 2; is_wide++) {
            model_t m = open_model(1, 1, is_wide ? TR_F32 : type, type);
            make_texts(is_wide ? wide : half);
            generate_alone(&m, is_wide ? wide : half);
            const tr_dtype_t held = is_wide ? TR_F32 : type;
            const tr_memory_plan_t memory = tr_graph_memory(m.s->g);
            bytes[is_wide] = memory.params;
            assert_int_equal(memory.copies, 0);
            assert_int_equal(memory.caches, 2 * 2 * 40 * CONTEXT * tr_dtype_bytes(held));
            assert_true((double)memory.caches == CONTEXT * gpt->cache_bytes(m.config, held));
            close_model(&m);
        }
        for (int i = 0; i < text_count; i++) {
            assert_int_equal(wide[i].scores.count > 0, half[i].scores.count > 0);
            for (int k = 0; wide[i].scores.count > 0 && k < TR_TEXT_LOGPROBS; k++)
                worst = fmax(worst,
                             fabs(wide[i].scores.data[0].best[k] - half[i].scores.data[0].best[k]));
        }
        assert_true(worst > 0 && worst < (type == TR_BF16 ? 0.02 : 0.002));
        assert_true(bytes[0] < bytes[1] * 6 / 10); /* vectors and positions stay wide */
        free_texts(half, text_count);
        free_texts(wide, text_count);
    }
}

/* The log-probabilities against sums in double precision. */
static void scores_of_tokens(void **state) {
    static const float scores[] = {1, -2, 3.5f, 0, 3.5f, -40, 2, 1};
    static const int32_t best[] = {2, 4, 6, 0, 7};
    double sum = 0;
    tr_token_score_t score;
    for (int i = 0; i < 8; i++) sum += exp(scores[i]);
    tr_token_score(scores, 8, 5, &score);
    assert_true(fabs(score.own - (-40 - log(sum))) < 1e-5);
    for (int i = 0; i < TR_TEXT_LOGPROBS; i++) {
        assert_int_equal(score.id[i], best[i]);
        assert_true(fabs(score.best[i] - (scores[best[i]] - log(sum))) < 1e-6);
    }
    tr_token_score(scores, 2, 0, &score);
    assert_int_equal(score.id[1], 1);
    assert_int_equal(score.id[2], -1);
}

static void refused_texts(void **state) {
    model_t m = open_model(1, 1, TR_F32, TR_F32);
    tr_text_t empty = {.most = 1, .end = -1}, longest = {.most = 9, .end = -1, .logprobs = -1};
    int ended = 0;
    assert_int_equal(tr_generator_admit(m.generator, &empty), TR_ERR_DATA);
    for (int k = 0; k < BROKEN; k++) OK(tr_vec_push(&longest.ids, 0));
    OK(tr_generator_admit(m.generator, &longest));
    assert_int_equal(tr_generator_admit(m.generator, &longest), TR_ERR_INTERNAL);
    while (!ended) OK(tr_generator_step(m.generator, take, &ended));
    assert_int_equal(longest.stop, TR_STOP_NOT_FINITE);
    assert_int_equal(longest.tokens.count, 1); /* whose place is BROKEN */
    while (longest.ids.count <= CONTEXT) OK(tr_vec_push(&longest.ids, 0));
    assert_int_equal(tr_generator_admit(m.generator, &longest), TR_ERR_DATA);
    close_model(&m);
    free_texts(&longest, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_is_alone_fp32),
        cmocka_unit_test(mixed_is_alone_bf16),
        cmocka_unit_test(mixed_is_alone_sliding),
        cmocka_unit_test(slide_by_one_is_cropping),
        cmocka_unit_test(halves_are_near_their_values),
        cmocka_unit_test(scores_of_tokens),
        cmocka_unit_test(refused_texts),
    };
    tr_log_set_level(TR_LOG_WARN);
    if (getenv("OP_DEVICE") && !getenv("TEST_ALL")) text_count = 15; /* the fakes are slow */
    if (tr_world_open(NULL, &world) != TR_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tr_world_close(&world);
    return failed;
}
