/* trainer eval RUN | CONFIG.ini CHECKPOINT [--split test|valid|train] [--json FILE] [key=value
 * ...]: evaluates the weights of a checkpoint. */
#include "open_trained.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MATRIX_CLASSES = 20, PAIRS = 20, NAME_COLUMNS = 22 };

typedef struct {
    cmd_trained_params_t trained;
    const char *json;
} options_t;

typedef struct {
    cmd_trained_t t;
    tr_split_t split;
    tr_trained_scores_t scores;
    int name_columns; /* width of the first column of tables, at least NAME_COLUMNS */
} eval_t;

/* -- arguments --------------------------------------------------------------------------------- */

static tr_status_t parse_split(const char *text, tr_split_t *out) {
    for (int i = 0; i < 3; i++)
        if (strcmp(text, tr_split_name((tr_split_t)i)) == 0) {
            *out = (tr_split_t)i;
            return TR_OK;
        }
    return TR_FAIL(TR_ERR_USAGE, "--split %s: expected test, valid or train", text);
}

static tr_status_t parse(int argc, char **argv, options_t *o) {
    cmd_trained_params_t *p = &o->trained;
    *o = (options_t){.trained = {.split = TR_SPLIT_TEST, .assignments = argv}};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            o->json = argv[++i];
        else if (strcmp(argv[i], "--split") == 0 && i + 1 < argc)
            TR_TRY(parse_split(argv[++i], &p->split));
        else if (argv[i][0] == '-')
            return cmd_fail_option("eval", argv[i]);
        else if (!p->config && !p->weights && cmd_is_folder(argv[i]))
            p->weights = argv[i]; /* a run, which has a configuration */
        else if (!p->config && !p->weights)
            p->config = argv[i];
        else if (!p->weights)
            p->weights = argv[i];
        else
            argv[p->count++] = argv[i];
    }
    if (p->weights) return TR_OK;
    return TR_FAIL(
        TR_ERR_USAGE,
        "eval requires a run folder, or a configuration file and a checkpoint: trainer "
        "eval RUN [key=value ...], or trainer eval CONFIG.ini CHECKPOINT [key=value ...]");
}

/* -- showing ----------------------------------------------------------------------------------- */

/* A language model has only a loss. */
static bool is_language(const eval_t *e) {
    return e->t.s->info.tokens > 0;
}

/* "3 cat", or "3" if the data set has no names or the names are the numbers. */
static const char *class_text(const eval_t *e, int64_t i, char text[64]) {
    const char *const *names = i < e->t.s->info.classes ? tr_class_names(&e->t.s->info) : NULL;
    snprintf(text, 64, "%lld", (long long)i);
    if (!names || strcmp(names[i], text) == 0) return text;
    snprintf(text, 64, "%lld %.*s", (long long)i, (int)tr_utf8_bytes(names[i], 40), names[i]);
    return text;
}

/* Counts code points; ignores wide and combining characters. */
static int columns_of(const char *text) {
    int columns = 0;
    for (; *text; text++) columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}

static void measure_names(eval_t *e) {
    char text[64];
    e->name_columns = NAME_COLUMNS;
    for (int64_t i = 0; e->scores.classes && i < e->scores.classes->classes; i++) {
        const int columns = columns_of(class_text(e, i, text));
        if (columns > e->name_columns) e->name_columns = columns;
    }
}

static void print_name(const eval_t *e, const char *text) {
    printf("%s%*s", text, e->name_columns - columns_of(text), "");
}

static void print_score(const eval_t *e, const char *name, const tr_class_score_t *score,
                        int64_t support) {
    print_name(e, name);
    printf(" %9.4f %9.4f %9.4f %9lld\n", score->precision, score->recall, score->f1,
           (long long)support);
}

static void print_classes(const eval_t *e) {
    const tr_class_counts_t *c = e->scores.classes;
    const tr_class_score_t macro = tr_class_mean(c, false), weighted = tr_class_mean(c, true);
    char text[64];
    printf("\n%-*s %9s %9s %9s %9s\n", e->name_columns, "class", "precision", "recall", "F1",
           "support");
    for (int64_t i = 0; i < c->classes; i++) {
        const tr_class_score_t score = tr_class_score(c, i);
        if (c->support[i] + c->predicted[i] > 0)
            print_score(e, class_text(e, i, text), &score, c->support[i]);
    }
    print_score(e, "macro average", &macro, (int64_t)e->scores.outcome.terms);
    print_score(e, "weighted average", &weighted, (int64_t)e->scores.outcome.terms);
}

static int count_width(const tr_class_counts_t *c) {
    int64_t largest = c->classes;
    for (int64_t k = 0; k < c->classes * c->classes; k++)
        if (c->pairs[k] > largest) largest = c->pairs[k];
    return snprintf(NULL, 0, "%lld", (long long)largest);
}

static void print_matrix(const eval_t *e) {
    const tr_class_counts_t *c = e->scores.classes;
    const int width = count_width(c);
    char text[64];
    printf("\n"
           "confusion matrix: one row per true class, one column per predicted class\n"
           "%-*s",
           e->name_columns, "");
    for (int64_t k = 0; k < c->classes; k++) printf(" %*lld", width, (long long)k);
    for (int64_t i = 0; i < c->classes; i++) {
        printf("\n");
        print_name(e, class_text(e, i, text));
        for (int64_t k = 0; k < c->classes; k++) {
            const int64_t count = c->pairs[i * c->classes + k];
            if (count > 0)
                printf(" %*lld", width, (long long)count);
            else
                printf(" %*s", width, ".");
        }
    }
    printf("\n");
}

static void print_pairs(const eval_t *e) {
    tr_class_pair_t pairs[PAIRS];
    const size_t count = tr_class_confusions(e->scores.classes, PAIRS, pairs);
    char text[64];
    if (count == 0) return;
    printf("\nmost frequent confusions\n%-*s %-*s %9s %9s\n", e->name_columns, "true class",
           e->name_columns, "taken for", "samples", "of class");
    for (size_t i = 0; i < count; i++) {
        const double share =
            100 * (double)pairs[i].count / (double)e->scores.classes->support[pairs[i].truth];
        print_name(e, class_text(e, pairs[i].truth, text));
        printf(" ");
        print_name(e, class_text(e, pairs[i].predicted, text));
        printf(" %9lld %7.1f %%\n", (long long)pairs[i].count, share);
    }
}

static void print_targets(const eval_t *e) {
    const tr_target_sums_t *t = e->scores.targets;
    printf("\n%-*s %12s %12s %9s\n", e->name_columns, "target", "MSE", "MAE", "R2");
    for (int64_t k = 0; k <= t->targets; k++) {
        const bool is_mean = k == t->targets;
        const tr_target_score_t score = is_mean ? tr_target_mean(t) : tr_target_score(t, k);
        char name[32];
        snprintf(name, sizeof name, "%lld", (long long)k);
        printf("%-*s %12.6g %12.6g", e->name_columns, is_mean ? "mean" : name, fabs(score.mse),
               fabs(score.mae)); /* NaN without its sign */
        if (isnan(score.r2))
            printf(" %9s\n", "-");
        else
            printf(" %9.4f\n", score.r2);
    }
}

static void print_result(eval_t *e) {
    const tr_session_t *s = e->t.s;
    const tr_eval_outcome_t *o = &e->scores.outcome;
    measure_names(e);
    printf("weights   %s", e->t.weights_path);
    if (e->t.step >= 0) printf(" (step %lld)", (long long)e->t.step);
    printf("\n%-9s %s\n%-9s %.0f\nloss      %.6g\n", tr_split_name(e->split), s->info.description,
           is_language(e) ? "tokens" : "samples", o->terms, o->loss);
    if (is_language(e)) {
        printf("perplexity %.6g\n", exp(o->loss));
        return;
    }
    if (!e->scores.classes) {
        if (s->preprocess->target.mean.count > 0)
            printf("          on normalised targets; the scores below are in the units of the "
                   "data\n");
        print_targets(e);
        return;
    }
    printf("accuracy  %.2f %%\n", 100 * o->accuracy);
    if (!isnan(o->topk)) printf("top-%-5lld %.2f %%\n", (long long)s->model.topk, 100 * o->topk);
    if (*e->scores.classes->unclear > 0)
        printf("not finite: the outputs of %lld samples, counted as wrong\n",
               (long long)*e->scores.classes->unclear);
    print_classes(e);
    if (e->scores.classes->classes <= MATRIX_CLASSES)
        print_matrix(e);
    else
        print_pairs(e);
}

/* -- the same as JSON -------------------------------------------------------------------------- */

static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *score_json(const tr_class_score_t *score) {
    return json_pack("{s:f, s:f, s:f}", "precision", score->precision, "recall", score->recall,
                     "f1", score->f1);
}

static json_t *class_json(const eval_t *e, int64_t i) {
    const tr_class_counts_t *c = e->scores.classes;
    const char *const *names = tr_class_names(&e->t.s->info);
    const tr_class_score_t score = tr_class_score(c, i);
    json_t *o = score_json(&score);
    json_object_set_new(o, "class", json_integer(i));
    if (names && i < e->t.s->info.classes) json_object_set_new(o, "name", json_string(names[i]));
    json_object_set_new(o, "support", json_integer(c->support[i]));
    json_object_set_new(o, "predicted", json_integer(c->predicted[i]));
    return o;
}

static void add_classes(const eval_t *e, json_t *out) {
    const tr_class_counts_t *c = e->scores.classes;
    const tr_class_score_t macro = tr_class_mean(c, false), weighted = tr_class_mean(c, true);
    json_t *classes = json_array(), *matrix = json_array();
    for (int64_t i = 0; i < c->classes; i++) {
        json_array_append_new(classes, class_json(e, i));
        json_t *row = json_array();
        for (int64_t k = 0; c->pairs && k < c->classes; k++)
            json_array_append_new(row, json_integer(c->pairs[i * c->classes + k]));
        json_array_append_new(matrix, row);
    }
    json_object_set_new(out, "accuracy", number(e->scores.outcome.accuracy));
    if (!isnan(e->scores.outcome.topk)) {
        json_object_set_new(out, "topk", json_integer(e->t.s->model.topk));
        json_object_set_new(out, "topk_accuracy", number(e->scores.outcome.topk));
    }
    json_object_set_new(out, "not_finite", json_integer(*c->unclear));
    json_object_set_new(out, "macro", score_json(&macro));
    json_object_set_new(out, "weighted", score_json(&weighted));
    json_object_set_new(out, "classes", classes);
    if (c->pairs)
        json_object_set_new(out, "confusion", matrix);
    else
        json_decref(matrix);
}

static json_t *target_json(const tr_target_score_t *score) {
    return json_pack("{s:o, s:o, s:o}", "mse", number(score->mse), "mae", number(score->mae), "r2",
                     number(score->r2));
}

static void add_targets(const eval_t *e, json_t *out) {
    const tr_target_score_t mean = tr_target_mean(e->scores.targets);
    json_t *targets = json_array();
    for (int64_t k = 0; k < e->scores.targets->targets; k++) {
        const tr_target_score_t score = tr_target_score(e->scores.targets, k);
        json_array_append_new(targets, target_json(&score));
    }
    json_object_set_new(out, "mean", target_json(&mean));
    json_object_set_new(out, "targets", targets);
}

static tr_status_t write_json(const eval_t *e, const char *path) {
    json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:i, s:s, s:o}", "checkpoint", e->t.weights_path,
                          "split", tr_split_name(e->split), "dataset", e->t.s->info.description,
                          is_language(e) ? "tokens" : "samples",
                          (json_int_t)e->scores.outcome.terms, "ranks", e->t.info->size, "version",
                          cmd_version, "loss", number(e->scores.outcome.loss));
    json_object_set_new(o, "step", e->t.step >= 0 ? json_integer(e->t.step) : json_null());
    if (is_language(e))
        json_object_set_new(o, "perplexity", number(exp(e->scores.outcome.loss)));
    else if (e->scores.classes)
        add_classes(e, o);
    else
        add_targets(e, o);
    return cmd_json_write(o, path);
}

static tr_status_t run(eval_t *e, const options_t *o) {
    tr_status_t status = TR_OK;
    TR_TRY(cmd_trained_open(&o->trained, &e->t));
    TR_TRY(tr_trained_evaluate(&e->t, e->split, &e->scores));
    if (e->t.info->rank == 0) {
        if (!cmd_json_is_stdout(o->json)) print_result(e);
        if (o->json) status = write_json(e, o->json);
    }
    return tr_world_agree(e->t.world, status);
}

tr_status_t cmd_eval(int argc, char **argv) {
    options_t o;
    eval_t e = {0};
    TR_TRY(parse(argc, argv, &o));
    e.split = o.trained.split;
    const tr_status_t status = run(&e, &o);
    tr_trained_scores_free(&e.scores);
    return cmd_trained_close(&e.t, status);
}
