/* trainer predict RUN | CONFIG.ini CHECKPOINT IN.h5 OUT.h5 [--probabilities] [--force] [key=value
 * ...]: writes a model's predictions for each sample. */
#include "open_trained.h"
#include "datatools/datatools.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "infer/score.h"
#include "base/thread.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PROBABILITY_CLASSES = 1000 }; /* written by default up to so many */

typedef struct {
    cmd_trained_params_t trained;
    const char *in, *out;
    bool probabilities, force;
} options_t;

/* The gathered rows of one rank and step: predictions, then probabilities. */
typedef struct {
    cmd_trained_t t;
    const options_t *o;
    bool is_class, wants_probability;
    int64_t width;                              /* of the model's output */
    int64_t rows;                               /* at most one step per rank */
    size_t prediction_bytes, probability_bytes; /* of a row */
    float *output;                              /* (micro_batch, width) */
    /* one block; one per rank, used only by rank 0 */
    char *mine, *all;
    double unclear;              /* rows with a NaN score */
    tr_writer_t *writer;         /* rank 0 */
    int prediction, probability; /* arrays of the writer */
} predict_t;

/* -- arguments --------------------------------------------------------------------------------- */

static tr_status_t parse(int argc, char **argv, options_t *o) {
    cmd_trained_params_t *p = &o->trained;
    *o = (options_t){.trained = {.split = TR_SPLIT_TEST, .prediction = true, .assignments = argv}};
    for (int i = 1; i < argc; i++) {
        const bool is_run = !p->config && !p->weights && cmd_is_folder(argv[i]),
                   has_run = p->weights || is_run;
        const char **place = is_run                   ? &p->weights
                             : !p->config && !has_run ? &p->config
                             : !p->weights            ? &p->weights
                             : !o->in                 ? &o->in
                                                      : &o->out;
        if (strcmp(argv[i], "--probabilities") == 0)
            o->probabilities = true;
        else if (strcmp(argv[i], "--force") == 0)
            o->force = true;
        else if (argv[i][0] == '-')
            return cmd_fail_option("predict", argv[i]);
        else if (!*place)
            *place = argv[i];
        else
            argv[p->count++] = argv[i];
    }
    if (o->out) return TR_OK;
    return TR_FAIL(
        TR_ERR_USAGE,
        "predict requires a run folder (or a configuration file and a checkpoint), the input and "
        "the output file: trainer predict RUN IN.h5 OUT.h5 [key=value ...], or trainer predict "
        "CONFIG.ini CHECKPOINT IN.h5 OUT.h5 [key=value ...]");
}

/* The data are all of IN, regardless of the configuration. Assignments on the command line come
 * later and take precedence. */
static tr_status_t add_assignments(options_t *o, char ***out_list, char **out_test) {
    cmd_trained_params_t *p = &o->trained;
    tr_str_t test = {0};
    tr_str_printf(&test, "data.test=%s", o->in);
    TR_TRY(tr_str_take(&test, out_test));
    char *first[] = {(char *)"data.format=hdf5", (char *)"data.limit=0", *out_test};
    TR_TRY(tr_alloc((TR_COUNT(first) + (size_t)p->count) * sizeof **out_list, "assignments",
                    out_list));
    memcpy(*out_list, first, sizeof first);
    memcpy(*out_list + TR_COUNT(first), p->assignments, (size_t)p->count * sizeof **out_list);
    p->assignments = *out_list;
    p->count += TR_COUNT(first);
    return TR_OK;
}

/* Whether `data`, FILE or FILE:GROUP, is in the file `out`. */
static bool is_in(const char *data, const char *out) {
    char file[4096];
    snprintf(file, sizeof file, "%s", data);
    char *colon = strrchr(file, ':');
    if (colon && access(file, F_OK) != 0) *colon = '\0';
    return tr_is_same_file(file, out);
}

/* --force must not replace data with predictions. */
static tr_status_t check_places(const predict_t *p) {
    const tr_data_settings_t *data = &p->t.s->data;
    const char *const places[] = {p->o->in, data->train, data->valid};
    for (size_t i = 0; i < TR_COUNT(places); i++)
        if (is_in(places[i], p->o->out))
            return TR_FAIL(TR_ERR_USAGE,
                           "%s holds data (%s), which the predictions would overwrite: choose "
                           "another output file",
                           p->o->out,
                           i == 0   ? "the input of predict"
                           : i == 1 ? "data.train"
                                    : "data.valid");
    return TR_OK;
}

/* -- asked to stop ----------------------------------------------------------------------------- */

static sigset_t watched;
static pthread_mutex_t ending =
    PTHREAD_MUTEX_INITIALIZER; /* by a signal, or because the file is complete */

/* Removes the partial file, which only rank 0 has; then the signal ends the process. */
static void *end_by_signal(void *self) {
    const char *out = self;
    int number;
    if (sigwait(&watched, &number) != 0) return NULL;
    pthread_mutex_lock(&ending);
    if (tr_writer_remove_part(out))
        cmd_say_error(TR_FAIL(TR_ERR_RETRY, "predict was stopped (%s): '%s' was not written",
                              strsignal(number), out));
    pthread_sigmask(SIG_UNBLOCK, &watched, NULL);
    raise(number);
    return NULL;
}

/* Called before other threads start, so that they leave these signals to this thread, which may
 * call functions that a handler may not. Ignored signals (nohup, background jobs of scripts) stay
 * ignored. */
static void watch_signals(const char *out) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action;
    pthread_t thread;
    sigemptyset(&watched);
    for (size_t i = 0; i < TR_COUNT(numbers); i++)
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&watched, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &watched, NULL);
    if (tr_thread_start("trainer-signal", end_by_signal, (void *)(uintptr_t)out, &thread) == 0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &watched, NULL);
}

/* -- setting up -------------------------------------------------------------------------------- */

static tr_status_t decide_kind(predict_t *p) {
    const int64_t classes = p->t.s->data.classes;
    TR_TRY(tr_trained_is_classifier(&p->t, &p->is_class));
    if (p->is_class && classes > 0 && classes != p->width)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "the model outputs %lld values per sample, but it was trained on %lld classes "
            "(data.classes)",
            (long long)p->width, (long long)classes);
    p->wants_probability = p->is_class && (p->o->probabilities || p->width <= PROBABILITY_CLASSES);
    if (p->o->probabilities && !p->is_class)
        return TR_FAIL(TR_ERR_USAGE,
                       "--probabilities: the model is a regression and has no classes");
    return TR_OK;
}

static tr_status_t prepare(predict_t *p) {
    const tr_session_t *s = p->t.s;
    const tr_shape_t *shape = tr_shape_of(s->g, s->result.output);
    const int64_t micro = s->order.micro_batch, ranks = p->t.info->size;
    if (s->info.tokens > 0)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "predict does not support model.type = %s: use `trainer generate` for texts, "
            "or `trainer eval` for the loss",
            s->model.type);
    p->width = tr_shape_elems(shape) / micro;
    TR_TRY(decide_kind(p));
    p->rows = (s->slots + ranks - 1) / ranks * micro;
    p->prediction_bytes = p->is_class ? sizeof(int32_t) : (size_t)p->width * sizeof(float);
    p->probability_bytes = p->wants_probability ? (size_t)p->width * sizeof(float) : 0;
    const size_t bytes = (size_t)p->rows * (p->prediction_bytes + p->probability_bytes);
    TR_TRY(tr_alloc((size_t)tr_shape_elems(shape) * sizeof *p->output, "outputs", &p->output));
    TR_TRY(tr_alloc(bytes, "predictions", &p->mine));
    return ranks > 1 ? tr_alloc(bytes * (size_t)ranks, "predictions of all ranks", &p->all) : TR_OK;
}

/* If the training data had class names. */
static tr_status_t write_class_names(predict_t *p) {
    const tr_names_t *names = &p->t.s->preprocess->names[TR_NAMES_CLASSES];
    if (!p->is_class || names->count != p->width) return TR_OK;
    return tr_writer_texts(p->writer, "/", tr_names_key(TR_NAMES_CLASSES), names->count,
                           (const char *const *)names->name);
}

static tr_status_t open_output(predict_t *p) {
    const tr_session_t *s = p->t.s;
    const tr_writer_params_t params = {.force = p->o->force};
    const char *const attributes[][2] = {
        {"checkpoint", p->t.weights_path}, {"input", p->o->in}, {"trainer", cmd_version}};
    if (p->t.info->rank != 0) return TR_OK;
    TR_TRY(check_places(p));
    TR_TRY(tr_writer_create(p->o->out, &params, &p->writer));
    for (size_t i = 0; i < TR_COUNT(attributes); i++)
        TR_TRY(tr_writer_texts(p->writer, "/", attributes[i][0], 1, &attributes[i][1]));
    TR_TRY(write_class_names(p));
    TR_TRY(tr_writer_array(p->writer, "prediction", p->is_class ? TR_I32 : TR_F32, s->info.samples,
                           p->is_class ? &(tr_shape_t){0} : &TR_SHAPE(p->width), &p->prediction));
    if (!p->wants_probability) return TR_OK;
    return tr_writer_array(p->writer, "probability", TR_F32, s->info.samples, &TR_SHAPE(p->width),
                           &p->probability);
}

/* -- predicting -------------------------------------------------------------------------------- */

/* Writes the scores of one sample to row `row` of this rank's block. */
static void put_row(predict_t *p, const float *scores, int64_t row) {
    char *prediction = p->mine + (size_t)row * p->prediction_bytes;
    char *probability =
        p->mine + (size_t)p->rows * p->prediction_bytes + (size_t)row * p->probability_bytes;
    if (!p->is_class) {
        memcpy(prediction, scores, p->prediction_bytes);
        return;
    }
    const int32_t found = (int32_t)tr_class_of(scores, p->width);
    memcpy(prediction, &found, sizeof found);
    if (p->wants_probability)
        tr_class_probabilities(scores, p->width, (float *)(void *)probability);
}

/* The rows of a step are consecutive in the data set, in rank order. */
static tr_status_t write_step(predict_t *p, int64_t step) {
    const tr_session_t *s = p->t.s;
    const size_t bytes = (size_t)p->rows * (p->prediction_bytes + p->probability_bytes);
    for (int rank = 0; rank < p->t.info->size; rank++) {
        const char *block = p->all ? p->all + bytes * (size_t)rank : p->mine;
        int64_t first, count;
        tr_sampler_slots_of_rank(s->slots, rank, p->t.info->size, &first, &count);
        int64_t rows = s->info.samples - (step * s->slots + first) * s->order.micro_batch;
        if (rows > count * s->order.micro_batch) rows = count * s->order.micro_batch;
        if (rows <= 0) continue;
        TR_TRY(tr_writer_append(p->writer, p->prediction, rows, block));
        if (p->wants_probability)
            TR_TRY(tr_writer_append(p->writer, p->probability, rows,
                                    block + (size_t)p->rows * p->prediction_bytes));
    }
    return TR_OK;
}

/* All ranks complete their last micro-batch of a step in the same step, so that they gather
 * together. */
static tr_status_t add_batch(void *self, tr_session_t *s, const tr_batch_t *batch) {
    predict_t *p = self;
    const int64_t micro = s->order.micro_batch, slot = batch->slot - s->first_slot;
    const size_t bytes = (size_t)p->rows * (p->prediction_bytes + p->probability_bytes);
    TR_TRY(tr_tensor_read(s->g, s->result.output, p->output));
    for (int64_t i = 0; i < batch->valid; i++) {
        const float *scores = p->output + i * p->width;
        put_row(p, scores, slot * micro + i);
        p->unclear += tr_class_of(scores, p->width) < 0;
    }
    if (slot + 1 < s->slot_count) return TR_OK;
    if (p->all) TR_TRY(tr_world_allgather(p->t.world, p->mine, bytes, p->all));
    return p->writer ? write_step(p, batch->step) : TR_OK;
}

static void print_result(const predict_t *p) {
    printf("%lld samples of %s\nweights %s", (long long)p->t.s->info.samples,
           p->t.s->info.description, p->t.weights_path);
    if (p->t.step >= 0) printf(" (step %lld)", (long long)p->t.step);
    printf("\n%s: prediction ", p->o->out);
    if (p->is_class)
        printf("(class of %lld)%s\n", (long long)p->width,
               p->wants_probability ? ", probability" : "");
    else
        printf("(%lld number%s)\n", (long long)p->width, p->width == 1 ? "" : "s");
}

static tr_status_t run(predict_t *p) {
    tr_eval_outcome_t outcome;
    TR_TRY(cmd_trained_open(&p->o->trained, &p->t));
    TR_TRY(prepare(p));
    TR_TRY(tr_world_agree(p->t.world, open_output(p)));
    TR_TRY(tr_session_evaluate(p->t.s, TR_SPLIT_TEST, add_batch, p, NULL, &outcome));
    TR_TRY(tr_world_allreduce(p->t.world, &p->unclear, 1, TR_REDUCE_SUM));
    if (p->writer) pthread_mutex_lock(&ending);
    TR_TRY(tr_world_agree(p->t.world, p->writer ? tr_writer_commit(p->writer) : TR_OK));
    if (p->unclear > 0)
        TR_WARN("the outputs of %.0f samples are not finite%s", p->unclear,
                p->is_class ? ": their class is -1" : "");
    if (p->t.info->rank == 0) print_result(p);
    return TR_OK;
}

tr_status_t cmd_predict(int argc, char **argv) {
    options_t o;
    predict_t p = {.o = &o};
    char **list = NULL, *test = NULL;
    TR_TRY(parse(argc, argv, &o));
    watch_signals(o.out);
    tr_status_t status = add_assignments(&o, &list, &test);
    if (status == TR_OK) status = run(&p);
    tr_writer_destroy(&p.writer);
    tr_free(&p.output);
    tr_free(&p.mine);
    tr_free(&p.all);
    tr_free(&list);
    tr_free(&test);
    return cmd_trained_close(&p.t, status);
}
