/* trainer eval RUN | CONFIG.ini CHECKPOINT: evaluates the weights of a checkpoint. */
#include "open_trained.h"
#include "base/json_text.h"
#include "base/mem.h"
#include "data/table/columns.h"
#include "session/eval.h"
#include "trainer/log.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MATRIX_CLASSES = 20, PAIRS = 20, NAME_COLUMNS = 22 };

typedef struct {
    const char *config, *weights, *json;
    cmd_words_t settings;
    int split; /* SPLIT_AUTO, or index of `splits` */
    bool last;
} eval_options_t;
enum { SPLIT_AUTO };
static const tr_split_t splits[] = {TR_SPLIT_TEST, TR_SPLIT_TEST, TR_SPLIT_VALID, TR_SPLIT_TRAIN};

typedef struct {
    cmd_trained_t t;
    tr_split_t split;
    tr_trained_scores_t scores;
    tr_columns_t table;         /* of a regression on an imported table; else empty */
    bool is_selected;           /* the weights were selected on these samples */
    struct class_row *classes;  /* all of them, then their averages; NULL: no classes */
    struct target_row *targets; /* all of them, then their mean; NULL: no targets */
    int name_columns;           /* width of the first column of tables, at least NAME_COLUMNS */
} eval_t;

/* A language model has only a loss. */
static bool eval_is_language(const eval_t *e) {
    return e->t.s->info.tokens > 0;
}

/* "3 cat", or "3" if the data set has no names or the names are the numbers. */
static const char *eval_class_text(const eval_t *e, int64_t i, char text[64]) {
    const char *const *names = i < e->t.s->info.classes ? tr_class_names(&e->t.s->info) : NULL;
    snprintf(text, 64, "%lld", (long long)i);
    if (!names || strcmp(names[i], text) == 0) return text;
    snprintf(text, 64, "%lld %.*s", (long long)i, (int)tr_utf8_bytes(names[i], 40), names[i]);
    return text;
}

/* -- rows -------------------------------------------------------------------------------------- */

/* A class, or behind the classes an average of them. */
typedef struct class_row {
    char text[64];
    int64_t index, support, predicted;
    const char *name;
    tr_class_score_t score;
} class_row_t;
enum { AVERAGES = 2 };

static const tr_table_column_t class_columns[] = {
    TR_COLUMN(class_row_t, NULL, "class", CHARS, text, .is_left = true, .width = NAME_COLUMNS),
    TR_COLUMN(class_row_t, "class", NULL, INT64, index),
    TR_COLUMN(class_row_t, "name", NULL, STRING, name, .is_optional = true),
    TR_COLUMN(class_row_t, "precision", "precision", REAL, score.precision, .format = "%.4f"),
    TR_COLUMN(class_row_t, "recall", "recall", REAL, score.recall, .format = "%.4f", .width = 8),
    TR_COLUMN(class_row_t, "f1", "F1", REAL, score.f1, .format = "%.4f", .width = 8),
    TR_COLUMN(class_row_t, "support", "support", INT64, support, .width = 8),
    TR_COLUMN(class_row_t, "predicted", NULL, INT64, predicted),
    TR_COLUMN(class_row_t, "iou", "IoU", REAL, score.iou, .format = "%.4f", .width = 8),
};
/* Only classes of positions have the last column. */
static tr_table_t eval_class_table(const eval_t *e) {
    tr_table_t table = TR_TABLE(class_columns, class_row_t);
    table.count -= !e->t.s->info.is_dense;
    return table;
}

typedef struct {
    char truth[64], predicted[64];
    int64_t samples;
    double share; /* of the samples of the true class */
} pair_row_t;

static const tr_table_column_t pair_columns[] = {
    TR_COLUMN(pair_row_t, NULL, "true class", CHARS, truth, .is_left = true, .width = NAME_COLUMNS),
    TR_COLUMN(pair_row_t, NULL, "taken for", CHARS, predicted, .is_left = true,
              .width = NAME_COLUMNS),
    TR_COLUMN(pair_row_t, NULL, "samples", INT64, samples, .width = 8),
    TR_COLUMN(pair_row_t, NULL, "of class", REAL, share, .format = "%.1f %%", .scale = 100),
};

/* A target, or behind the targets their mean. */
typedef struct target_row {
    char text[64];
    const char *name; /* NULL: its table gives none */
    tr_target_score_t score;
    double rmse;
} target_row_t;

static const tr_table_column_t target_columns[] = {
    TR_COLUMN(target_row_t, NULL, "target", CHARS, text, .is_left = true, .width = NAME_COLUMNS),
    TR_COLUMN(target_row_t, "name", NULL, STRING, name, .is_optional = true),
    TR_COLUMN(target_row_t, "mse", "MSE", REAL, score.mse, .format = "%.6g", .missing = "nan",
              .width = 11),
    TR_COLUMN(target_row_t, "mae", "MAE", REAL, score.mae, .format = "%.6g", .missing = "nan",
              .width = 11),
    TR_COLUMN(target_row_t, "r2", "R2", REAL, score.r2, .format = "%.4f", .width = 8),
    TR_COLUMN(target_row_t, "rmse", "RMSE", REAL, rmse, .format = "%.6g", .missing = "nan",
              .width = 11),
    TR_COLUMN(target_row_t, "iou", "IoU", REAL, score.iou, .format = "%.4f", .missing = "nan",
              .width = 8),
    TR_COLUMN(target_row_t, "dice", "Dice", REAL, score.dice, .format = "%.4f", .missing = "nan",
              .width = 8),
};
/* Only targets of positions have the last three columns, and probabilities the last two. */
static tr_table_t eval_target_table(const eval_t *e) {
    tr_table_t table = TR_TABLE(target_columns, target_row_t);
    table.count -= e->t.s->info.is_dense ? tr_session_has_masks(e->t.s) ? 0 : 2 : 3;
    return table;
}

/* Samples, tokens, or positions with a label or a value of the first channel. */
static double eval_counted(const eval_t *e) {
    double sum = 0;
    if (!e->t.s->info.is_dense) return e->scores.outcome.terms;
    if (e->scores.targets) return e->scores.targets->count[0];
    for (int64_t i = 0; i < e->scores.classes->classes; i++)
        sum += (double)e->scores.classes->support[i];
    return sum;
}
static const char *eval_counted_name(const eval_t *e) {
    return eval_is_language(e) ? "tokens" : e->t.s->info.is_dense ? "positions" : "samples";
}

static tr_status_t eval_fill_classes(eval_t *e) {
    const tr_class_counts_t *c = e->scores.classes;
    const char *const *names = tr_class_names(&e->t.s->info);
    class_row_t *row = NULL;
    TR_TRY(tr_alloc((size_t)(c->classes + AVERAGES) * sizeof *row, "scores of classes", &row));
    e->classes = row;
    for (int64_t i = 0; i < c->classes; i++, row++) {
        *row = (class_row_t){.index = i,
                             .support = c->support[i],
                             .predicted = c->predicted[i],
                             .name = names && i < e->t.s->info.classes ? names[i] : NULL,
                             .score = tr_class_score(c, i)};
        eval_class_text(e, i, row->text);
    }
    for (int weighted = 0; weighted < AVERAGES; weighted++, row++)
        *row = (class_row_t){.text = "macro average",
                             .support = (int64_t)eval_counted(e),
                             .score = tr_class_mean(c, weighted)};
    strcpy(row[-1].text, "weighted average");
    return TR_OK;
}

static tr_status_t eval_fill_targets(eval_t *e) {
    const tr_target_sums_t *t = e->scores.targets;
    const bool has_names = e->table.has_header && e->table.targets.count == t->targets;
    TR_TRY(
        tr_alloc((size_t)(t->targets + 1) * sizeof *e->targets, "scores of targets", &e->targets));
    for (int64_t k = 0; k <= t->targets; k++) {
        const bool is_mean = k == t->targets;
        target_row_t *row = &e->targets[k];
        *row = (target_row_t){.name = has_names && !is_mean ? e->table.targets.name[k] : NULL,
                              .score = is_mean ? tr_target_mean(t) : tr_target_score(t, k)};
        row->rmse = sqrt(row->score.mse);
        if (row->name)
            tr_snprintf(row->text, sizeof row->text, "%.*s", (int)tr_utf8_bytes(row->name, 60),
                        row->name);
        else
            tr_snprintf(row->text, sizeof row->text, is_mean ? "mean" : "%lld", (long long)k);
    }
    return TR_OK;
}

/* -- text -------------------------------------------------------------------------------------- */

static void eval_print_matrix(const eval_t *e) {
    const tr_class_counts_t *c = e->scores.classes;
    int64_t largest = c->classes;
    char text[64];
    for (int64_t k = 0; k < c->classes * c->classes; k++)
        if (c->pairs[k] > largest) largest = c->pairs[k];
    const int width = snprintf(NULL, 0, "%lld", (long long)largest);
    printf("\n"
           "confusion matrix: one row per true class, one column per predicted class\n"
           "%-*s",
           e->name_columns, "");
    for (int64_t k = 0; k < c->classes; k++) printf(" %*lld", width, (long long)k);
    for (int64_t i = 0; i < c->classes; i++) {
        eval_class_text(e, i, text);
        printf("\n%s%*s", text, e->name_columns - tr_text_columns(text), "");
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

/* The classes, or those of them that occur or were predicted, and their averages. Sets the width of
 * names for this and the next table. */
static tr_status_t eval_print_classes(eval_t *e) {
    const int64_t classes = e->scores.classes->classes;
    class_row_t *shown = NULL;
    size_t count = 0;
    TR_TRY(tr_alloc((size_t)(classes + AVERAGES) * sizeof *shown, "table of classes", &shown));
    for (int64_t i = 0; i < classes + AVERAGES; i++) {
        const class_row_t *row = &e->classes[i];
        if (row->support + row->predicted > 0) shown[count++] = *row;
        if (i < classes && tr_text_columns(row->text) > e->name_columns)
            e->name_columns = tr_text_columns(row->text);
    }
    printf("\n");
    const tr_table_t table = eval_class_table(e);
    cmd_table_print(&table, shown, count);
    tr_free(&shown);
    return TR_OK;
}

/* What is most often taken for what. */
static void eval_print_pairs(const eval_t *e) {
    const tr_table_t table = TR_TABLE(pair_columns, pair_row_t);
    const tr_class_counts_t *c = e->scores.classes;
    tr_class_pair_t pairs[PAIRS];
    pair_row_t rows[PAIRS];
    const size_t count = tr_class_confusions(c, PAIRS, pairs);
    if (count == 0) return;
    for (size_t i = 0; i < count; i++) {
        rows[i] =
            (pair_row_t){.samples = pairs[i].count,
                         .share = (double)pairs[i].count / (double)c->support[pairs[i].truth]};
        eval_class_text(e, pairs[i].truth, rows[i].truth);
        eval_class_text(e, pairs[i].predicted, rows[i].predicted);
    }
    printf("\nmost frequent confusions\n");
    cmd_table_print(&table, rows, count);
}

static tr_status_t eval_print(eval_t *e) {
    const tr_session_t *s = e->t.s;
    const tr_eval_outcome_t *o = &e->scores.outcome;
    printf("weights   %s", e->t.weights_path);
    if (e->t.step >= 0)
        printf("%s%s%s%s(step %lld)", e->t.is_best || e->t.is_last ? ", " : " ",
               e->t.is_best ? "best " : "", e->t.is_best && e->t.is_last ? "and " : "",
               e->t.is_last ? "last " : "", (long long)e->t.step);
    printf("\n%-9s %s\n%-9s %.0f%s\nloss      %.6g", tr_split_name(e->split), s->info.description,
           eval_counted_name(e), eval_counted(e),
           e->is_selected ? " (selected on these samples)" : "", o->loss);
    if (!isnan(o->baseline_loss)) printf(" (predicting the mean: %.6g)", o->baseline_loss);
    printf("\n");
    if (eval_is_language(e)) {
        printf("perplexity %.6g\n", exp(o->loss));
    } else if (e->scores.classes) {
        printf("accuracy  %.2f %%", 100 * o->accuracy);
        if (!isnan(o->baseline_accuracy))
            printf(" (most frequent class: %.2f %%)", 100 * o->baseline_accuracy);
        printf("\n");
        if (!isnan(o->iou)) printf("mean IoU  %.4f\n", o->iou);
        if (!isnan(o->topk))
            printf("top-%-5lld %.2f %%\n", (long long)s->model.topk, 100 * o->topk);
        if (*e->scores.classes->unclear > 0)
            printf("not finite: the outputs of %lld %s, counted as wrong\n",
                   (long long)*e->scores.classes->unclear, eval_counted_name(e));
        TR_TRY(eval_print_classes(e));
        if (e->scores.classes->classes <= MATRIX_CLASSES)
            eval_print_matrix(e);
        else
            eval_print_pairs(e);
    } else {
        if (s->preprocess->target.mean.count > 0)
            printf("          on normalised targets; the scores below are in the units of the "
                   "data\n");
        printf("\n");
        const tr_table_t table = eval_target_table(e);
        cmd_table_print(&table, e->targets, (size_t)e->scores.targets->targets + 1);
    }
    return TR_OK;
}

/* -- JSON -------------------------------------------------------------------------------------- */

static json_t *eval_score_json(const tr_class_score_t *score) {
    return json_pack("{s:f, s:f, s:f}", "precision", score->precision, "recall", score->recall,
                     "f1", score->f1);
}

static void eval_add_classes(const eval_t *e, json_t *out) {
    const tr_class_counts_t *c = e->scores.classes;
    const class_row_t *averages = &e->classes[c->classes];
    json_t *matrix = c->pairs ? json_array() : NULL;
    for (int64_t i = 0; i < c->classes && matrix; i++) {
        json_t *row = json_array();
        for (int64_t k = 0; k < c->classes; k++)
            json_array_append_new(row, json_integer(c->pairs[i * c->classes + k]));
        json_array_append_new(matrix, row);
    }
    json_object_set_new(out, "accuracy", tr_json_finite(e->scores.outcome.accuracy));
    if (!isnan(e->scores.outcome.topk)) {
        json_object_set_new(out, "topk", json_integer(e->t.s->model.topk));
        json_object_set_new(out, "topk_accuracy", tr_json_finite(e->scores.outcome.topk));
    }
    json_object_set_new(out, "not_finite", json_integer(*c->unclear));
    json_object_set_new(out, "macro", eval_score_json(&averages[0].score));
    json_object_set_new(out, "weighted", eval_score_json(&averages[1].score));
    const tr_table_t table = eval_class_table(e);
    if (e->t.s->info.is_dense)
        json_object_set_new(out, "mean_iou", tr_json_finite(e->scores.outcome.iou));
    json_object_set_new(out, "classes", tr_table_json(&table, e->classes, (size_t)c->classes));
    if (matrix) json_object_set_new(out, "confusion", matrix);
}

static tr_status_t eval_write_json(const eval_t *e, const char *path) {
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:I, s:i, s:s, s:o}", "checkpoint", e->t.weights_path, "split",
                  tr_split_name(e->split), "dataset", e->t.s->info.description,
                  eval_counted_name(e), (json_int_t)eval_counted(e), "ranks", e->t.info->size,
                  "version", cmd_version, "loss", tr_json_finite(e->scores.outcome.loss));
    json_object_set_new(o, "step", e->t.step >= 0 ? json_integer(e->t.step) : json_null());
    json_object_set_new(o, "best", json_boolean(e->t.is_best));
    json_object_set_new(o, "last", json_boolean(e->t.is_last));
    json_object_set_new(o, "selected", json_boolean(e->is_selected));
    json_object_set_new(o, "baseline_loss", tr_json_finite(e->scores.outcome.baseline_loss));
    json_object_set_new(o, "baseline_accuracy",
                        tr_json_finite(e->scores.outcome.baseline_accuracy));
    if (eval_is_language(e)) {
        json_object_set_new(o, "perplexity", tr_json_finite(exp(e->scores.outcome.loss)));
    } else if (e->scores.classes) {
        eval_add_classes(e, o);
    } else {
        const size_t targets = (size_t)e->scores.targets->targets;
        const tr_table_t table = eval_target_table(e);
        json_object_set_new(o, "mean", tr_table_object(&table, &e->targets[targets]));
        json_object_set_new(o, "targets", tr_table_json(&table, e->targets, targets));
    }
    return cmd_json_write(o, path);
}

static tr_status_t eval_run(void *options) {
    const eval_options_t *o = options;
    const cmd_trained_params_t params = {.config = o->config,
                                         .settings = o->settings,
                                         .model = {.weights = o->weights,
                                                   .last = o->last,
                                                   .purpose = TR_SESSION_EVALUATE,
                                                   .split = splits[o->split],
                                                   .or_valid = o->split == SPLIT_AUTO}};
    eval_t e = {.name_columns = NAME_COLUMNS};
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(cmd_trained_open(&params, &e.t), done);
    e.split = e.t.s->params.split;
    if (e.split != params.model.split)
        TR_WARN("There are no test data (data.test is not set): these are the scores of the "
                "validation data.");
    TR_TRY_GOTO(tr_trained_evaluate(&e.t, e.split, &e.scores), done);
    if (e.t.info->rank == 0) {
        const char *columns = e.t.s->preprocess->columns;
        e.is_selected = tr_trained_is_selected_on(&e.t, e.split);
        if (e.scores.targets && columns)
            status = tr_columns_from_json(columns, e.t.weights_path, &e.table);
        if (status == TR_OK && e.scores.classes) status = eval_fill_classes(&e);
        if (status == TR_OK && e.scores.targets) status = eval_fill_targets(&e);
        if (status == TR_OK && !cmd_json_is_stdout(o->json)) status = eval_print(&e);
        if (status == TR_OK && o->json) status = eval_write_json(&e, o->json);
    }
    status = tr_world_agree(e.t.world, status);
done:
    tr_trained_scores_free(&e.scores);
    tr_columns_free(&e.table);
    tr_free(&e.classes);
    tr_free(&e.targets);
    return cmd_trained_close(&e.t, status);
}

static const cmd_argument_t arguments[] = {
    {"RUN|CONFIG.ini", offsetof(eval_options_t, config), CMD_NOT_FOLDER, NULL},
    {"CHECKPOINT", offsetof(eval_options_t, weights), CMD_REQUIRED, NULL}, /* or RUN */
    {"[key=value ...]", offsetof(eval_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_ENUM(eval_options_t, split, "--split", "auto", "auto|test|valid|train",
                    "The data to evaluate on. auto: the test data, or the validation data where "
                    "there are none."),
    CMD_OPTION_FLAG(eval_options_t, last, "--last",
                    "Of a run folder, evaluates the last checkpoint instead of the best."),
    CMD_OPTION_JSON(eval_options_t,
                    "Also writes the results and the whole confusion matrix as JSON; - writes only "
                    "JSON to standard output."),
};

const cmd_command_t cmd_eval = {
    .name = "eval",
    .runs = CMD_ON_RANKS,
    .summary = "Evaluates a trained model on data.test, data.valid or data.train.",
    .help =
        "Runs alone or under mpirun, with the same result. RUN is a run folder or one of its "
        "checkpoints; its own config.ini is used, including the data settings. CHECKPOINT is a run "
        "folder (its best checkpoint, or the newest if there is no best or with --last), a folder "
        "checkpoints/step-NNNNNNNN, or a .safetensors file.\n"
        "The first line says which checkpoint it is, and its step. The share of the most frequent "
        "class, or the loss of predicting the mean of the targets, is what a model without inputs "
        "would reach. `selected on these samples` means that the best checkpoint or the early stop "
        "was chosen by them: other data give an honest score.\n"
        "For classes it prints the loss, the accuracy, the top-k accuracy (model.topk), precision, "
        "recall and F1 of every class with their averages, and the confusion matrix (over 20 "
        "classes: the most frequent confusions). For a regression it prints MSE, MAE and R2 of "
        "every target.\n"
        "The data is normalised as in training, unless data.mean and data.std are set.",
    CMD_ARGUMENTS(eval_options_t),
    CMD_OPTIONS,
    .run = eval_run,
};
