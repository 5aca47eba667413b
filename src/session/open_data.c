/* Opens the data sets of a session, checks that they match, and resolves their preprocessing. */
#include "base/mem.h"
#include "inputs.h"
#include "open_data.h"
#include "text/tokenizer.h"
#include "trainer/log.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Puts the key of the split before an error about its files, which may have the names of others. */
static tr_status_t session_name_split(tr_split_t split) {
    tr_error_t error = *tr_error_last();
    char key[16];
    snprintf(key, sizeof key, "data.%s", tr_split_name(split));
    if (!strstr(error.message, key))
        snprintf(error.message, sizeof error.message, "%s: %.4000s", key, tr_error_last()->message);
    return tr_error_set(&error);
}

/* "x u8 (8, 8, 1), y i32 () of 3 classes" */
static void session_say_fields(const tr_dataset_info_t *info, tr_str_t *out) {
    for (int f = 0; f < info->field_count; f++) {
        const tr_field_t *field = &info->field[f];
        char shape[96];
        tr_str_printf(out, "%s%s %s %s", f ? ", " : "", field->name, tr_dtype_name(field->dtype),
                      tr_shape_format(&field->shape, shape));
        if (field->kind == TR_FIELD_LABELS)
            tr_str_printf(out, " of %lld classes", (long long)info->classes);
    }
}

static tr_status_t session_fail_unlike(const tr_session_t *s, tr_split_t split,
                                       tr_split_t main_split) {
    const tr_dataset_info_t *info = &s->dataset[split]->info,
                            *wanted = &s->dataset[main_split]->info;
    const bool is_of_y = (info->classes > 0) != (wanted->classes > 0);
    tr_str_t found = {0}, expected = {0};
    session_say_fields(info, &found);
    session_say_fields(wanted, &expected);
    TR_FAIL(TR_ERR_DATA,
            "data.%s (%s) does not match data.%s (%s): a sample is %s in data.%s, and %s in "
            "data.%s. %s",
            tr_split_name(split), info->description, tr_split_name(main_split), wanted->description,
            found.text ? found.text : "", tr_split_name(split), expected.text ? expected.text : "",
            tr_split_name(main_split),
            is_of_y ? "If y has classes, correct the values that are no class numbers; if it has "
                      "numbers to predict, set data.classes = 0"
                    : "Write both files with the same types and shapes");
    tr_str_free(&found);
    tr_str_free(&expected);
    return TR_ERR_DATA;
}

static tr_status_t session_check_split(const tr_session_t *s, tr_split_t split,
                                       tr_split_t main_split) {
    const tr_dataset_info_t *info = &s->dataset[split]->info, *wanted = &s->info;
    bool same = info->field_count == wanted->field_count && info->is_dense == wanted->is_dense;
    if (info->field_count + wanted->field_count == 3) { /* inputs with labels, and only inputs */
        const bool lacks = info->field_count == 1;
        return TR_FAIL(
            TR_ERR_DATA,
            "data.%s (%s) has no labels or targets, but data.%s has: set data.y, or put them into "
            "a file NAME_y.h5 beside NAME_x.h5",
            tr_split_name(lacks ? split : main_split),
            lacks ? info->description : wanted->description,
            tr_split_name(lacks ? main_split : split));
    }
    for (int f = 0; same && f < wanted->field_count; f++)
        same = tr_shape_equal(&info->field[f].shape, &wanted->field[f].shape) &&
               info->field[f].dtype == wanted->field[f].dtype;
    for (int list = 0; same && list < TR_NAMES_LISTS; list++)
        if (tr_names_check(list, &wanted->names[list], &info->names[list]) != TR_OK)
            return session_name_split(split);
    if (!same) return session_fail_unlike(s, split, main_split);
    if (s->params.trained_preprocess) return TR_OK; /* the run has begun with them */
    if (info->tokenizer && wanted->tokenizer &&
        !tr_tokenizer_is_same(info->tokenizer, wanted->tokenizer))
        return TR_FAIL(TR_ERR_DATA,
                       "the tokens of data.%s (%s) come from another tokenizer than those of "
                       "data.%s (%s): import this text with --tokenizer and the file of data.%s",
                       tr_split_name(split), info->description, tr_split_name(main_split),
                       wanted->description, tr_split_name(main_split));
    const bool are_given =
        s->data.classes > 0 || s->data.label_values[0] || info->names[TR_NAMES_CLASSES].count > 0;
    return tr_labels_check(&s->dataset[main_split]->info, info, split, are_given);
}

static bool session_has_data(const tr_session_t *s, tr_split_t split) {
    tr_dataset_t *dataset = NULL;
    if (tr_dataset_open(&s->data, split, &dataset) != TR_OK) tr_error_clear();
    const bool found = dataset != NULL;
    tr_dataset_close(&dataset);
    return found;
}

/* For a score, the user may have meant another split. */
static tr_status_t session_fail_no_data(const tr_session_t *s, tr_split_t wanted) {
    static const tr_split_t order[] = {TR_SPLIT_VALID, TR_SPLIT_TEST, TR_SPLIT_TRAIN};
    const bool scores = s->params.purpose == TR_SESSION_EVALUATE;
    char other[64] = "";
    for (int i = 0; i < 3 && scores && !*other; i++)
        if (order[i] != wanted && session_has_data(s, order[i]))
            snprintf(other, sizeof other, ", or evaluate data.%s with --split %s",
                     tr_split_name(order[i]), tr_split_name(order[i]));
    return TR_FAIL(TR_ERR_CONFIG,
                   "data.%s is not set: set it to an HDF5 file (`trainer import` creates one, "
                   "`trainer data FILE` shows its contents)%s",
                   tr_split_name(wanted), other);
}

static tr_status_t session_open_split(tr_session_t *s, tr_split_t split) {
    const tr_preprocess_t *trained = s->params.trained_preprocess;
    if (tr_session_predicts(s)) return tr_dataset_open_inputs(&s->data, split, &s->dataset[split]);
    const tr_status_t status = tr_dataset_open(&s->data, split, &s->dataset[split]);
    if (status == TR_ERR_DATA && tr_session_trains(s) && split != TR_SPLIT_TRAIN)
        return session_name_split(split);
    if (status != TR_ERR_DATA || !trained || tr_session_trains(s)) return status;
    /* Unsuitable labels are refused first, and would hide that this is another table than that of
     * the training. */
    const tr_error_t error = *tr_error_last();
    tr_dataset_t *inputs = NULL;
    tr_status_t match = TR_OK;
    if (tr_dataset_open_inputs(&s->data, split, &inputs) == TR_OK && inputs)
        match = tr_preprocess_match(trained, &inputs->info, true);
    tr_dataset_close(&inputs);
    return match == TR_ERR_DATA ? match : tr_error_set(&error);
}

static bool text_is_number(const char *text, double number) {
    double value;
    return tr_parse_float(text, &value) && value == number;
}

/* Refuses keys that would have no effect, because they are for another loss. A run of an earlier
 * version that has them goes on. */
static tr_status_t session_check_unused(const tr_session_t *s) {
    const tr_model_settings_t *m = &s->model;
    const char *mean = s->data.target_mean, *std = s->data.target_std,
               *name = tr_config_get(s->config, "model.loss");
    const bool is_gpt = strcmp(m->type, "gpt") == 0, has_classes = s->info.classes > 0;
    if (m->loss == TR_LOSS_AUTO) name = has_classes ? "cross_entropy" : "mse";
    const bool is_cross = strcmp(name, "cross_entropy") == 0,
               has_cross = is_cross || m->loss == TR_LOSS_DICE_CE;
    const struct {
        const char *key, *of;
        bool is_set, is_used;
    } keys[] = {
        {"data.label_values", "labels", s->data.label_values && *s->data.label_values, !is_gpt},
        {"model.loss", "other models", m->loss != TR_LOSS_AUTO && !is_cross, !is_gpt},
        {"model.label_smoothing", "cross_entropy", m->label_smoothing > 0, has_cross && !is_gpt},
        {"model.class_weights", "cross_entropy", *m->class_weights, has_cross && !is_gpt},
        {"model.topk", "cross_entropy", m->topk > 1, is_cross && !is_gpt},
        {"model.huber_delta", "huber", m->huber_delta != 1, m->loss == TR_LOSS_HUBER && !is_gpt},
        {"data.target_mean", "numbers to predict",
         !tr_data_is_auto(mean) && !text_is_number(mean, 0), !has_classes},
        {"data.target_std", "numbers to predict", !tr_data_is_auto(std) && !text_is_number(std, 1),
         !has_classes},
    };
    if (!tr_session_trains(s) || s->params.purpose == TR_SESSION_PLAN ||
        s->params.trained_preprocess)
        return TR_OK;
    for (size_t i = 0; i < TR_COUNT(keys); i++)
        if (keys[i].is_set && !keys[i].is_used)
            return TR_FAIL(
                TR_ERR_CONFIG,
                "%s = %s would have no effect: it is for %s, and the loss of this run is "
                "%s. Remove it, or change the loss",
                keys[i].key, tr_config_get(s->config, keys[i].key), keys[i].of,
                is_gpt ? "that of model.type = gpt" : name);
    return TR_OK;
}

tr_status_t tr_session_open_data(tr_session_t *s) {
    tr_split_t main_split = tr_session_trains(s) ? TR_SPLIT_TRAIN : s->params.split;
    const tr_model_t *model;
    /* A language model determines how its data are divided into samples. */
    TR_TRY(tr_model_find(s->model.type, &model));
    if (model->tokens) model->tokens(s->config, &s->data.context, &s->data.vocab_size);
    if (s->params.inputs) return s->info = *s->params.inputs, TR_OK;
    for (int split = 0; split < 3; split++)
        if (tr_session_trains(s) || split == (int)main_split)
            TR_TRY(session_open_split(s, (tr_split_t)split));
    if (s->params.or_valid && main_split == TR_SPLIT_TEST && !s->dataset[main_split]) {
        TR_TRY(session_open_split(s, TR_SPLIT_VALID));
        if (s->dataset[TR_SPLIT_VALID]) s->params.split = main_split = TR_SPLIT_VALID;
    }
    const tr_dataset_t *shapes = s->dataset[main_split];
    if (!shapes) return session_fail_no_data(s, main_split);
    s->info = shapes->info;
    if (tr_session_predicts(s)) {
        s->info.classes = s->data.classes > 0 ? s->data.classes : 0;
        s->info.is_dense = s->data.targets == TR_TARGETS_POSITION;
    }
    for (int split = 0; split < 3; split++) {
        const tr_dataset_t *d = s->dataset[split];
        if (!d) continue;
        if (d->info.classes > s->info.classes) {
            s->info.classes = d->info.classes;
            s->info.label_note = d->info.label_note;
            s->info.counts_from_1 = d->info.counts_from_1;
        }
        if (split != (int)main_split) TR_TRY(session_check_split(s, (tr_split_t)split, main_split));
    }
    const tr_preprocess_t *trained = s->params.trained_preprocess;
    if (trained) TR_TRY(tr_preprocess_match(trained, &s->info, tr_session_predicts(s)));
    return session_check_unused(s);
}

/* -- preprocessing ----------------------------------------------------------------------------- */

static tr_status_t session_resolve_preprocess(tr_session_t *s) {
    const bool squares =
        !tr_loss_has_classes(s->model.loss) && s->model.loss != TR_LOSS_BINARY_CROSS_ENTROPY;
    const tr_preprocess_sources_t sources = {
        .settings = &s->data,
        .info = &s->info,
        .classes = s->info.classes,
        .squares = squares && s->info.classes == 0,
        .balances = !tr_session_predicts(s) && strcmp(s->model.class_weights, "balanced") == 0,
        .train = tr_session_trains(s) ? s->dataset[TR_SPLIT_TRAIN] : NULL,
        .kept = s->params.trained_preprocess,
        .init = s->params.init_preprocess};
    TR_TRY(tr_preprocess_resolve(&sources, &s->preprocess));
    return tr_inputs_check(s);
}

/* Only rank 0 reads samples for it. */
static tr_status_t session_share_preprocess(tr_session_t *s) {
    const bool is_root = tr_world_info(s->world)->rank == 0;
    json_t *data = is_root ? tr_preprocess_json(s->preprocess) : NULL;
    char *dumped = data ? json_dumps(data, JSON_COMPACT) : NULL, *text = NULL;
    tr_status_t status = TR_OK;
    if (is_root)
        status = dumped ? tr_strdup(dumped, &text)
                        : TR_FAIL(TR_ERR_MEMORY, "not enough memory for the data section");
    free(dumped);
    json_decref(data);
    TR_TRY(tr_world_agree(s->world, status));
    TR_TRY(tr_world_broadcast_text(s->world, &text, 0));
    if (!is_root) {
        data = json_loads(text, 0, NULL);
        status = tr_preprocess_from_json(data, "rank 0", &s->preprocess);
        json_decref(data);
    }
    tr_free(&text);
    return tr_world_agree(s->world, status);
}

tr_status_t tr_session_set_fill(const tr_session_t *s, const tr_floats_t *mean) {
    for (int split = 0; split < 3; split++) {
        tr_dataset_t *d = s->dataset[split];
        if (d && d->info.has_missing && d->ops->set_fill) TR_TRY(d->ops->set_fill(d, mean));
    }
    return TR_OK;
}

/* Missing values become the mean, which is 0 after normalisation. */
static tr_status_t session_fill_missing(const tr_session_t *s) {
    const tr_floats_t *mean = &s->preprocess->input.mean;
    TR_TRY(tr_session_set_fill(s, mean));
    for (int split = 0; split < 3; split++) {
        const tr_dataset_t *d = s->dataset[split];
        if (d && d->info.has_missing && mean->count == 0)
            TR_WARN("%s: values that are declared missing become 0, because the inputs are not "
                    "normalised: set data.mean and data.std in training",
                    d->info.description);
    }
    return TR_OK;
}

tr_status_t tr_session_open_preprocess(tr_session_t *s) {
    const bool is_root = !s->world || tr_world_info(s->world)->rank == 0;
    const tr_status_t status = is_root ? session_resolve_preprocess(s) : TR_OK;
    TR_TRY(s->world ? tr_world_agree(s->world, status) : status);
    if (s->world && tr_world_info(s->world)->size > 1) TR_TRY(session_share_preprocess(s));
    const tr_status_t filled = session_fill_missing(s);
    return s->world ? tr_world_agree(s->world, filled) : filled;
}

tr_status_t tr_session_check_alike(const tr_session_t *s) {
    tr_str_t text = {0};
    for (int split = 0; split < 3; split++) {
        if (!s->dataset[split]) continue;
        const tr_dataset_info_t *info = &s->dataset[split]->info;
        char shape[96];
        tr_str_printf(&text, "%lld %lld", (long long)info->samples, (long long)info->classes);
        for (int f = 0; f < info->field_count; f++)
            tr_str_printf(&text, " %s %s %s", info->field[f].name,
                          tr_dtype_name(info->field[f].dtype),
                          tr_shape_format(&info->field[f].shape, shape));
        tr_str_append(&text, "\n");
    }
    tr_str_append(&text, s->device->ops->name);
    tr_status_t status = tr_world_same(s->world, "the contents of the data files, and the device",
                                       text.text ? text.text : "", text.length);
    tr_str_free(&text);
    if (status == TR_ERR_INTERNAL) {
        tr_error_t error = *tr_error_last();
        error.code = TR_ERR_DATA;
        status = tr_error_set(&error);
    }
    return tr_world_agree(s->world, status);
}
