/* trainer predict RUN | CONFIG.ini CHECKPOINT IN OUT: writes a model's predictions for each sample. */
#include "open_trained.h"
#include "h5/writer.h"
#include "infer/prediction_pictures.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "base/stats.h"
#include "infer/score.h"
#include "session/eval.h"
#include "base/thread.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PROBABILITY_CLASSES = 1000 }; /* written by default up to so many */

typedef struct {
    const char *config, *weights, *in, *out;
    const char *range; /* "MIN,MAX"; NULL: by the targets */
    cmd_words_t settings;
    bool probabilities, force;
} predict_options_t;

/* The gathered rows of one rank and step: predictions, then probabilities. */
typedef struct {
    cmd_trained_t t;
    const predict_options_t *o;
    bool is_class, wants_probability;
    int64_t width;                              /* of the model's output, of each position */
    int64_t points;                             /* positions of a sample; 1: one output a sample */
    tr_shape_t positions;                       /* () or (S...) */
    tr_dtype_t class_type;                      /* of `prediction` where it is a class */
    bool are_pictures;                          /* a folder of PNG files is written */
    double black, white;                        /* of numbers as pictures */
    int64_t rows;                               /* at most one step per rank */
    size_t prediction_bytes, probability_bytes; /* of a row */
    float *output;                              /* (micro_batch, width) */
    /* one block; one per rank, used only by rank 0 */
    char *mine, *all;
    double unclear;               /* rows with a NaN score */
    tr_predictions_file_t *file;  /* rank 0 */
} predict_t;

/* -- asked to stop ----------------------------------------------------------------------------- */

static sigset_t watched;
static pthread_mutex_t ending =
    PTHREAD_MUTEX_INITIALIZER; /* by a signal, or because the file is complete; else held to write */

/* Removes the partial file, which only rank 0 has; then the signal ends the process. */
static void *predict_end_by_signal(void *self) {
    const char *out = self;
    int number;
    if (sigwait(&watched, &number) != 0) return NULL;
    pthread_mutex_lock(&ending);
    if (tr_predictions_remove_part(out))
        cmd_say_error(TR_FAIL(TR_ERR_RETRY, "predict was stopped (%s): '%s' was not written",
                              strsignal(number), out));
    pthread_sigmask(SIG_UNBLOCK, &watched, NULL);
    raise(number);
    return NULL;
}

/* Called before other threads start, so that they leave these signals to this thread, which may
 * call functions that a handler may not. Ignored signals (nohup, background jobs of scripts) stay
 * ignored. */
static void predict_watch_signals(const char *out) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action;
    pthread_t thread;
    sigemptyset(&watched);
    for (size_t i = 0; i < TR_COUNT(numbers); i++)
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&watched, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &watched, NULL);
    if (tr_thread_start("trainer-signal", predict_end_by_signal, (void *)(uintptr_t)out, &thread) ==
        0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &watched, NULL);
}

/* -- setting up -------------------------------------------------------------------------------- */

/* The numbers that are black and white in pictures: of --range, or else probabilities, or three
 * standard deviations around the mean of the targets. */
static tr_status_t predict_find_range(predict_t *p) {
    const tr_session_t *s = p->t.s;
    const tr_normalize_t *target = &s->preprocess->target;
    float range[2];
    int count;
    p->black = p->white = NAN;
    if (p->t.info->rank == 0) p->are_pictures = tr_prediction_pictures_are_meant(p->o->out);
    TR_TRY(tr_world_broadcast(p->t.world, &p->are_pictures, sizeof p->are_pictures, 0));
    if (p->o->range && (!p->are_pictures || p->is_class))
        return TR_FAIL(TR_ERR_USAGE, "--range is for a folder of PNG files of numbers, and %s",
                       p->is_class ? "the model predicts classes"
                                   : "OUT is not a folder: end its name in /");
    if (p->o->range) {
        if (!tr_parse_floats(p->o->range, 2, range, &count) || count != 2 || range[0] >= range[1])
            return TR_FAIL(TR_ERR_USAGE,
                           "--range: expected two numbers, the smaller one first, such as 0,255, "
                           "found '%s'",
                           p->o->range);
        p->black = (double)range[0], p->white = (double)range[1];
    } else if (s->model.loss == TR_LOSS_BINARY_CROSS_ENTROPY) {
        p->black = 0, p->white = 1;
    }
    for (size_t i = 0; !p->o->range && i < target->mean.count; i++) {
        p->black = fmin(p->black, (double)target->mean.data[i] - 3 * (double)target->std.data[i]);
        p->white = fmax(p->white, (double)target->mean.data[i] + 3 * (double)target->std.data[i]);
    }
    return TR_OK;
}

/* What is predicted, and memory for the rows of a step. */
static tr_status_t predict_prepare(predict_t *p) {
    const tr_session_t *s = p->t.s;
    const tr_shape_t *shape = tr_shape_of(s->g, s->result.output);
    const int64_t micro = s->order.micro_batch, ranks = p->t.info->size, classes = s->data.classes;
    if (s->info.tokens > 0)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "predict does not support model.type = %s: use `trainer generate` for texts, "
            "or `trainer eval` for the loss",
            s->model.type);
    p->points = 1;
    p->class_type = TR_I32;
    if (s->info.is_dense) {
        p->positions = *shape;
        p->positions.ndim -= 2;
        memmove(p->positions.dim, shape->dim + 1, (size_t)p->positions.ndim * sizeof *shape->dim);
        p->points = tr_shape_elems(&p->positions);
        p->class_type = shape->dim[shape->ndim - 1] < UINT8_MAX ? TR_U8 : TR_U16;
    }
    p->width = tr_shape_elems(shape) / micro / p->points;
    TR_TRY(tr_trained_is_classifier(&p->t, &p->is_class));
    if (p->is_class && classes > 0 && classes != p->width)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "the model outputs %lld values per sample, but it was trained on %lld classes "
            "(data.classes)",
            (long long)p->width, (long long)classes);
    if (p->o->probabilities && !p->is_class)
        return TR_FAIL(
            TR_ERR_USAGE,
            "--probabilities: the model predicts numbers and has no classes. With the loss "
            "binary_cross_entropy, they are the probabilities");
    TR_TRY(predict_find_range(p));
    p->wants_probability = p->is_class && (p->o->probabilities ||
                                           (!s->info.is_dense && p->width <= PROBABILITY_CLASSES));
    p->rows = (s->slots + ranks - 1) / ranks * micro;
    const size_t outputs_bytes = (size_t)(p->points * p->width) * sizeof(float);
    p->prediction_bytes =
        p->is_class ? (size_t)p->points * tr_dtype_bytes(p->class_type) : outputs_bytes;
    p->probability_bytes = p->wants_probability ? outputs_bytes : 0;
    const size_t bytes = (size_t)p->rows * (p->prediction_bytes + p->probability_bytes);
    TR_TRY(tr_alloc((size_t)tr_shape_elems(shape) * sizeof *p->output, "outputs", &p->output));
    TR_TRY(tr_alloc(bytes, "predictions", &p->mine));
    return ranks > 1 ? tr_alloc(bytes * (size_t)ranks, "predictions of all ranks", &p->all) : TR_OK;
}

/* Creates the file on rank 0. --force must not replace data with predictions. */
static tr_status_t predict_open_output(predict_t *p) {
    const tr_session_t *s = p->t.s;
    const char *const places[][2] = {{p->o->in, "the input of predict"},
                                     {s->data.train, "data.train"},
                                     {s->data.valid, "data.valid"}};
    if (p->t.info->rank != 0) return TR_OK;
    for (size_t i = 0; i < TR_COUNT(places); i++) {
        char file[4096]; /* of FILE or FILE:GROUP */
        snprintf(file, sizeof file, "%s", places[i][0]);
        char *colon = strrchr(file, ':');
        if (colon && access(file, F_OK) != 0) *colon = '\0';
        if (tr_is_same_file(file, p->o->out))
            return TR_FAIL(TR_ERR_USAGE,
                           "%s holds data (%s), which the predictions would overwrite: choose "
                           "another output file",
                           p->o->out, places[i][1]);
    }
    const tr_predictions_t what = {.t = &p->t,
                                   .in = p->o->in,
                                   .version = cmd_version,
                                   .is_class = p->is_class,
                                   .has_probability = p->wants_probability,
                                   .width = p->width,
                                   .positions = p->positions,
                                   .class_type = p->class_type,
                                   .black = p->black,
                                   .white = p->white};
    return tr_predictions_create(p->o->out, p->o->force, &what, &p->file);
}

/* -- predicting -------------------------------------------------------------------------------- */

/* The rows of a step are consecutive in the data set, in rank order. */
static tr_status_t predict_write_step(predict_t *p, int64_t step) {
    const tr_session_t *s = p->t.s;
    const size_t bytes = (size_t)p->rows * (p->prediction_bytes + p->probability_bytes);
    for (int rank = 0; rank < p->t.info->size; rank++) {
        const char *block = p->all ? p->all + bytes * (size_t)rank : p->mine;
        int64_t first, count;
        tr_sampler_slots_of_rank(s->slots, rank, p->t.info->size, &first, &count);
        int64_t rows = s->info.samples - (step * s->slots + first) * s->order.micro_batch;
        if (rows > count * s->order.micro_batch) rows = count * s->order.micro_batch;
        if (rows <= 0) continue;
        pthread_mutex_lock(&ending);
        const tr_status_t status = tr_predictions_append(
            p->file, rows, block, block + (size_t)p->rows * p->prediction_bytes);
        pthread_mutex_unlock(&ending);
        TR_TRY(status);
    }
    return TR_OK;
}

/* The class of a position, in the type of the file; the largest number is none. */
static void predict_put_class(const predict_t *p, char *prediction, int64_t point, int32_t found) {
    if (p->class_type == TR_U8)
        ((uint8_t *)prediction)[point] = (uint8_t)found;
    else if (p->class_type == TR_U16)
        ((uint16_t *)(void *)prediction)[point] = (uint16_t)found;
    else
        ((int32_t *)(void *)prediction)[point] = found;
}

/* All ranks complete their last micro-batch of a step in the same step, so that they gather
 * together. */
static tr_status_t predict_add_batch(void *self, tr_session_t *s, const tr_batch_t *batch) {
    predict_t *p = self;
    const int64_t micro = s->order.micro_batch, slot = batch->slot - s->first_slot;
    const size_t bytes = (size_t)p->rows * (p->prediction_bytes + p->probability_bytes);
    TR_TRY(tr_tensor_read(s->g, s->result.output, p->output));
    for (int64_t i = 0; i < batch->valid; i++) {
        const size_t row = (size_t)(slot * micro + i);
        const float *scores = p->output + i * p->points * p->width;
        char *prediction = p->mine + row * p->prediction_bytes;
        float *probability = (float *)(void *)(p->mine + (size_t)p->rows * p->prediction_bytes +
                                               row * p->probability_bytes);
        if (!p->is_class) memcpy(prediction, scores, p->prediction_bytes);
        for (int64_t k = 0; k < p->points; k++, scores += p->width, probability += p->width) {
            const int32_t class = (int32_t)tr_class_of(scores, p->width);
            if (p->is_class) predict_put_class(p, prediction, k, class);
            if (p->wants_probability) tr_class_probabilities(scores, p->width, probability);
            p->unclear += class < 0;
        }
    }
    if (slot + 1 < s->slot_count) return TR_OK;
    if (p->all) TR_TRY(tr_world_allgather(p->t.world, p->mine, bytes, p->all));
    return p->file ? predict_write_step(p, batch->step) : TR_OK;
}

static void predict_print(const predict_t *p) {
    char range[96] = "";
    if (p->are_pictures)
        snprintf(range, sizeof range, "; %.6g is black, %.6g is white", p->black, p->white);
    printf("%lld samples of %s\nweights %s", (long long)p->t.s->info.samples,
           p->t.s->info.description, p->t.weights_path);
    if (p->t.step >= 0) printf(" (step %lld)", (long long)p->t.step);
    printf("\n%s: prediction ", p->o->out);
    if (p->is_class)
        printf("(class of %lld)%s\n", (long long)p->width,
               p->wants_probability ? ", probability" : "");
    else
        printf("(%lld number%s%s)\n", (long long)p->width, p->width == 1 ? "" : "s", range);
}

static tr_status_t predict_run(void *options) {
    const predict_options_t *o = options;
    predict_t p = {.o = o};
    cmd_trained_params_t params = {
        .config = o->config,
        .model = {.weights = o->weights, .purpose = TR_SESSION_PREDICT, .split = TR_SPLIT_TEST}};
    tr_str_t test = {0};
    tr_eval_outcome_t outcome;
    tr_status_t status = TR_OK;
    predict_watch_signals(o->out);
    /* The data are all of IN, regardless of the configuration. Settings on the command line come
     * later and take precedence. */
    tr_str_printf(&test, "data.test=%s", o->in);
    TR_TRY(test.status);
    char *first[] = {(char *)"data.format=hdf5", (char *)"data.limit=0", test.text};
    TR_TRY_GOTO(
        cmd_words_join((cmd_words_t){TR_COUNT(first), first}, o->settings, &params.settings), done);
    TR_TRY_GOTO(cmd_trained_open(&params, &p.t), done);
    /* the folder of OUT is one that rank 0 sees; others may have disks of their own */
    TR_TRY_GOTO(
        tr_world_agree(p.t.world, p.t.info->rank == 0 ? tr_predictions_check(o->out) : TR_OK),
        done);
    TR_TRY_GOTO(predict_prepare(&p), done);
    TR_TRY_GOTO(tr_world_agree(p.t.world, predict_open_output(&p)), done);
    TR_TRY_GOTO(tr_session_evaluate(p.t.s, TR_SPLIT_TEST,
                                    &(tr_eval_each_t){predict_add_batch, &p, INT64_MAX}, NULL,
                                    &outcome),
                done);
    TR_TRY_GOTO(tr_world_allreduce(p.t.world, &p.unclear, 1, TR_REDUCE_SUM), done);
    if (p.file) pthread_mutex_lock(&ending);
    TR_TRY_GOTO(tr_world_agree(p.t.world, p.file ? tr_predictions_commit(p.file) : TR_OK), done);
    if (p.unclear > 0)
        TR_WARN("the outputs of %.0f %s are not finite%s", p.unclear,
                p.positions.ndim > 0 ? "positions" : "samples",
                !p.is_class              ? ""
                : p.class_type == TR_U8  ? ": their class is 255"
                : p.class_type == TR_U16 ? ": their class is 65535"
                                         : ": their class is -1");
    if (p.t.info->rank == 0) predict_print(&p);
done:
    tr_predictions_destroy(&p.file);
    tr_free(&p.output);
    tr_free(&p.mine);
    tr_free(&p.all);
    tr_free(&params.settings.word);
    tr_str_free(&test);
    return cmd_trained_close(&p.t, status);
}

static const cmd_argument_t arguments[] = {
    {"RUN|CONFIG.ini", offsetof(predict_options_t, config), CMD_NOT_FOLDER, NULL},
    {"CHECKPOINT", offsetof(predict_options_t, weights), CMD_REQUIRED, NULL}, /* or RUN */
    {"IN", offsetof(predict_options_t, in), CMD_REQUIRED, NULL},
    {"OUT", offsetof(predict_options_t, out), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(predict_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_FLAG(predict_options_t, probabilities, "--probabilities",
                    "Writes `probability` for any number of classes."),
    CMD_OPTION_TEXT(predict_options_t, range, "--range", "MIN,MAX", NULL,
                    "Of numbers as PNG files: those that are black and white. Default: 0,1 for "
                    "probabilities, else three standard deviations around the mean of the "
                    "training targets."),
    CMD_OPTION_FLAG(predict_options_t, force, "--force", "Replaces an existing OUT."),
};

const cmd_command_t cmd_predict = {
    .name = "predict",
    .runs = CMD_ON_RANKS,
    .summary = "Runs a trained model on IN and writes its predictions to OUT.",
    .help =
        "Runs alone or under mpirun. IN is FILE.h5 or FILE.h5:GROUP; FILE.csv with the columns of "
        "the imported training table, in any order; an image file, a folder of them, or a .txt "
        "list of them. It needs no labels. OUT ends in .h5 or .csv, and has one row per sample, in "
        "the order of the input; a model of positions writes a .h5. For such a model of images, "
        "OUT may also be a folder: it exists, or its name ends in /. It gets a PNG file for each "
        "sample, 000000.png and so on: of classes in a palette (that of PASCAL VOC; 255 if an "
        "output is not finite), or grey or RGB of 1 or 3 numbers. `prediction` holds the class (-1 "
        "if an output is not finite; in a .csv its name, or nothing) or the numbers of a "
        "regression. Of a model of positions it has the size of the input, and its classes are u8 "
        "or u16, with the largest number for outputs that are not finite. `probability` holds the "
        "softmax of the outputs; it is written for up to 1000 classes, or with --probabilities; "
        "for positions with --probabilities alone. The column that was imported with --id, or all "
        "columns of a table that are not inputs, and the names of image files are copied to OUT; "
        "so are the data sets `id` and `file` of an imported HDF5 file. The attribute class_names "
        "comes from the training data. RUN, CHECKPOINT and the normalisation are as for eval.",
    CMD_ARGUMENTS(predict_options_t),
    CMD_OPTIONS,
    .run = predict_run,
};
