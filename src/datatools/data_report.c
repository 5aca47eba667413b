/* The report of `trainer data`: the contents of a file, the arrays that training would use, how
 * they are read, and their values. */
#include "data/hdf5/hdf5_source.h"
#include "data/preprocess/preprocess.h"
#include "data/sampler.h"
#include "datatools.h"
#include "text/tokenizer.h"
#include "base/stats.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_CLASSES  20
#define NAMED_CHANNELS 8
#define PIECES         64 /* places of the data set from which values are read */

/* What is the same for all splits, or is known from an earlier one. */
typedef struct {
    const tr_data_settings_t *settings;
    int64_t sample_bytes;
    tr_str_t *out, warnings;
    uint64_t fingerprint[3]; /* of each split; 0: none */
    bool rounded[2];         /* x, y: already reported */
    tr_preprocess_t *told;   /* preprocessing that training would use; owned */
} report_t;

/* One split. */
typedef struct {
    tr_split_t split;
    tr_dataset_t *dataset;
    const h5_part_t *part; /* the first file's */
} report_split_t;

static void report_warn(report_t *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void report_warn(report_t *r, const char *format, ...) {
    char text[H5_SENTENCE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    tr_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!r->warnings.text || !strstr(r->warnings.text, text))
        tr_str_printf(&r->warnings, "warning: %s\n", text);
}

/* -- labels ------------------------------------------------------------------------------------ */

static int count_ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Reads all labels: how often each class occurs. */
static tr_status_t report_count_labels(tr_dataset_t *dataset, int64_t *count) {
    enum { AT_ONCE = 1 << 16 };
    int32_t *label = NULL;
    tr_status_t status = tr_alloc(AT_ONCE * sizeof *label, "labels", &label);
    for (int64_t i = 0; i < dataset->info.samples && status == TR_OK; i += AT_ONCE) {
        const int64_t part = min64(AT_ONCE, dataset->info.samples - i);
        void *dst[] = {NULL, label};
        status = dataset->ops->read(dataset, i, part, dst);
        for (int64_t j = 0; j < part && status == TR_OK; j++) count[label[j]]++;
    }
    tr_free(&label);
    return status;
}

/* The line of the labels, behind the name of their array. */
static tr_status_t report_classes(report_t *r, const report_split_t *s) {
    const tr_dataset_info_t *info = &s->dataset->info;
    const char *const *names = tr_class_names(info), *path = s->part->file.path,
                      *y_path = s->part->y_file.path;
    int64_t *count = NULL, empty = 0;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc((size_t)info->classes * sizeof *count, "counts", &count));
    TR_TRY_GOTO(report_count_labels(s->dataset, count), done);
    for (int64_t c = 0; c < info->classes; c++) empty += count[c] == 0;

    /* Integers that may not be classes, or classes that do not start at 0. */
    if (info->label_doubt)
        report_warn(r, "%s", info->label_doubt);
    else if (info->classes > NAMED_CLASSES && empty > info->classes / 2)
        report_warn(
            r,
            "%s: integers from 0 are read as classes, but %lld of these %lld have no samples: if "
            "they are regression targets, set data.classes=0",
            path, (long long)empty, (long long)info->classes);
    else if (info->classes > 1 && count[0] == 0)
        report_warn(r,
                    "%s: no sample has label 0. Classes count from 0: subtract 1 from labels that "
                    "run from 1 to %lld, or give the model %lld outputs; if they are regression "
                    "targets, set data.classes=0",
                    path, (long long)info->classes - 1, (long long)info->classes);
    if (info->classes == 1)
        report_warn(r, "%s: all labels are 0: a model cannot learn from one class", path);
    if (info->is_sorted)
        report_warn(r,
                    "%s: the samples are sorted by label, so shuffling by blocks mixes them "
                    "badly. Shuffle the samples when you create the file, or set data.block = 1",
                    path);

    tr_str_printf(r->out, "  labels     /%s%s%s, %lld class%s:", s->part->names->y,
                  y_path ? " of " : "", y_path ? y_path : "", (long long)info->classes,
                  info->classes == 1 ? "" : "es");
    for (int64_t c = 0; c < info->classes && info->classes <= NAMED_CLASSES; c++) {
        if (names)
            tr_str_printf(r->out, "%s %s: %lld", c ? "," : "", names[c], (long long)count[c]);
        else
            tr_str_printf(r->out, "%s %lld: %lld", c ? "," : "", (long long)c, (long long)count[c]);
    }
    if (info->classes > NAMED_CLASSES) {
        qsort(count, (size_t)info->classes, sizeof *count, count_ascending);
        tr_str_printf(r->out, " %lld to %lld samples each, median %lld", (long long)count[0],
                      (long long)count[info->classes - 1], (long long)count[info->classes / 2]);
    }
    tr_str_append(r->out, "\n");
done:
    tr_free(&count);
    return status;
}

/* -- values ------------------------------------------------------------------------------------ */

/* The lines of the values of a field, which begin with `what`. */
static tr_status_t report_values(report_t *r, const report_split_t *split, int field,
                                 const char *what) {
    const tr_dataset_info_t *info = &split->dataset->info;
    tr_sample_stats_t s;
    char of[96], rate[32], rounding[640];
    tr_str_t text = {0};
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(tr_dataset_sample(split->dataset, field, r->sample_bytes, PIECES, INFINITY, &s),
                done);

    /* How many were read, and how fast. */
    const double bytes = (double)s.samples * (double)info->field[field].sample_bytes;
    tr_format_bytes(s.read_sec > 0 ? bytes / s.read_sec : 0, rate);
    if (s.samples >= info->samples)
        snprintf(of, sizeof of, " (all samples, read at %s/s)", rate);
    else
        snprintf(of, sizeof of, " (%lld samples, read at %s/s)", (long long)s.samples, rate);
    for (int64_t c = 0; c < s.channels && c < NAMED_CHANNELS; c++) {
        const tr_stats_t *one = &s.of[c];
        char name[48] = "";
        if (s.channels > 1) snprintf(name, sizeof name, "%lld: ", (long long)c);
        tr_str_printf(r->out, "  %-9s  %smin %.6g, max %.6g, mean %.6g, std %.6g%s\n",
                      c ? "" : what, name, one->min, one->max, one->mean, tr_stats_deviation(one),
                      c ? "" : of);
    }
    if (s.channels > NAMED_CHANNELS)
        tr_str_printf(r->out, "             and %lld more\n",
                      (long long)(s.channels - NAMED_CHANNELS));

    if (s.missing > 0)
        tr_str_printf(r->out, "             %s\n",
                      tr_missing_text(&s, &info->field[field], rounding));

    if (split->split == TR_SPLIT_TRAIN && tr_has_sentinel(&s, &info->field[field], rounding))
        report_warn(r, "%s", rounding);
    /* Said for the first split with such values; the others are alike. */
    if (!r->rounded[field]) {
        r->rounded[field] = tr_is_rounded_away(s.of, s.channels, field == 1, rounding);
        if (r->rounded[field]) report_warn(r, "%s", rounding);
    }
    if (field == 0 && split->split == TR_SPLIT_TRAIN)
        tr_preprocess_check(r->told, &s, TR_CHECK_TRAINING_INPUTS, &text);
    if (field == 1 && split->split == TR_SPLIT_TRAIN)
        status = tr_targets_doubt(split->dataset, &text);
    if (text.text) report_warn(r, "%s", text.text);
done:
    tr_str_free(&text);
    tr_free(&s.of);
    return status;
}

static void report_moments(tr_str_t *out, const char *before, const tr_floats_t *v) {
    for (size_t c = 0; c < v->count && c < NAMED_CHANNELS; c++)
        tr_str_printf(out, "%s %.6g", c ? "," : before, (double)v->data[c]);
}

/* Whether the numbers of the data are used or overridden by the key. */
static bool moments_alike(const char *key, const tr_floats_t *own, const tr_floats_t *used,
                          float none) {
    if (strcmp(key, "auto") != 0) return true;
    for (size_t c = 0; c < own->count; c++) {
        const float value = used->count == 0 ? none : used->data[used->count == 1 ? 0 : c];
        if (own->data[c] != value) return false;
    }
    return true;
}

/* All splits, with the normalisation of the training data, the first split. */
static void report_normalisation(report_t *r, const report_split_t *s) {
    const tr_dataset_info_t *info = &s->dataset->info;
    const tr_normalize_t *input = &r->told->input;
    const bool alike = moments_alike(r->settings->mean, &info->mean, &input->mean, 0) &&
                       moments_alike(r->settings->std, &info->std, &input->std, 1);
    if (input->mean.count > 0) {
        report_moments(r->out, "  normalised with mean", &input->mean);
        report_moments(r->out, " and std", &input->std);
        tr_str_printf(r->out, "%s%s\n", input->mean.count > NAMED_CHANNELS ? ", ..." : "",
                      alike ? "" : ", like the training data");
    }
    if (!alike)
        tr_str_printf(r->out,
                      "             not with the mean and std of %s, which training does "
                      "not use\n",
                      s->part->file.path);
}

/* -- splits ------------------------------------------------------------------------------------ */

/* A stream of tokens, opened as windows of one token. */
static tr_status_t report_tokens(report_t *r, const report_split_t *s) {
    enum { AT_ONCE = 65536 };
    const tr_dataset_info_t *info = &s->dataset->info;
    const h5_array_t *x = &s->part->x;
    const int64_t most = min64(info->samples, max64(1, r->sample_bytes / x->row_bytes));
    char costly[H5_SENTENCE_BYTES];
    int64_t *seen = NULL, used = 0;
    int32_t *ids = NULL;
    tr_tokenizer_t *tokenizer = NULL;
    tr_status_t status = TR_OK;
    tr_str_printf(r->out, "\n%s: %lld tokens\n", tr_split_name(s->split), (long long)info->tokens);
    tr_str_printf(r->out, "  inputs     /%s, %s, %s, %s\n", x->name, tr_dtype_name(x->dtype),
                  x->storage, tr_h5_way_text(x));
    if (tr_h5_costly(x, min64(1 << 16, max64(1, x->rows)), costly)) report_warn(r, "%s", costly);

    /* How many ids occur in the first `most` tokens. */
    if (info->tokenizer)
        TR_TRY_GOTO(tr_tokenizer_from_json(info->tokenizer, s->part->file.path, &tokenizer), done);
    TR_TRY_GOTO(tr_alloc((size_t)info->classes * sizeof *seen, "counts of tokens", &seen), done);
    TR_TRY_GOTO(tr_alloc(AT_ONCE * sizeof *ids, "tokens", &ids), done);
    for (int64_t i = 0; i < most; i += AT_ONCE) {
        const int64_t count = min64(AT_ONCE, most - i);
        void *dst[TR_DATASET_MAX_FIELDS] = {ids};
        TR_TRY_GOTO(s->dataset->ops->read(s->dataset, i, count, dst), done);
        for (int64_t j = 0; j < count; j++) used += seen[ids[j]]++ == 0;
    }
    tr_str_printf(r->out, "  vocabulary %lld ids, %s; %lld occur in %s%lld tokens\n",
                  (long long)info->classes,
                  tokenizer ? tr_tokenizer_name(tokenizer) : "no tokenizer", (long long)used,
                  most < info->samples ? "the first " : "", (long long)most);
done:
    tr_tokenizer_destroy(&tokenizer);
    tr_free(&seen);
    tr_free(&ids);
    return status;
}

static void report_packing(tr_str_t *out, const h5_packing_t *packing) {
    tr_str_t text = {0};
    tr_h5_packing_text(packing, &text);
    if (text.text) tr_str_printf(out, "             %s\n", text.text);
    tr_str_free(&text);
}

/* The array of inputs, and the cost of reading it in blocks of `block` samples. */
static void report_inputs(report_t *r, const report_split_t *s, int64_t block) {
    const tr_dataset_info_t *info = &s->dataset->info;
    const tr_field_t *field = &info->field[0];
    const h5_array_t *x = &s->part->x;
    const tr_names_t *names = &info->names[TR_NAMES_INPUTS];
    const h5_cost_t cost = tr_h5_cost(x, block), one = tr_h5_cost(x, 1);
    const bool channels_first = x->ndim - 1 == field->shape.ndim &&
                                memcmp(x->dim + 1, field->shape.dim,
                                       (size_t)field->shape.ndim * sizeof *field->shape.dim) != 0;
    char shape[96], guess[512], bytes[32], costly[H5_SENTENCE_BYTES];
    tr_str_printf(r->out, "\n%s: %lld samples\n", tr_split_name(s->split),
                  (long long)info->samples);
    tr_str_printf(r->out, "  inputs     /%s, %s %s%s%s, %s\n", x->name, tr_dtype_name(field->dtype),
                  tr_shape_format(&field->shape, shape),
                  x->dtype != field->dtype ? " converted" : "",
                  channels_first ? " stored channels first" : "", x->storage);
    report_packing(r->out, &s->part->x_packing);
    if (s->split == TR_SPLIT_TRAIN && info->is_image_guessed)
        tr_str_printf(r->out, "             %s\n", tr_image_guess_text(&field->shape, guess));
    for (int64_t i = 0; i < names->count && i < NAMED_CLASSES; i++)
        tr_str_printf(r->out, "%s%s", i ? ", " : "             named ", names->name[i]);
    if (names->count) tr_str_append(r->out, names->count > NAMED_CLASSES ? ", ...\n" : "\n");
    tr_str_printf(r->out,
                  "  reading    %s; a block of %lld sample%s (%s) takes %lld read%s of %.2f times "
                  "its bytes, a single sample %.2f times\n",
                  tr_h5_way_text(x), (long long)block, block == 1 ? "" : "s",
                  tr_format_bytes((double)(block * x->row_bytes), bytes), (long long)cost.reads,
                  cost.reads == 1 ? "" : "s", cost.amplification, one.amplification);
    if (tr_h5_costly(x, block, costly))
        report_warn(r, "%s", costly);
    else if (!x->checksum_only)
        tr_str_printf(
            r->out,
            "             no checksums: damaged bytes are not detected (`trainer repack` adds "
            "checksums)\n");
}

static tr_status_t report_samples(report_t *r, const report_split_t *s) {
    const tr_data_settings_t *settings = r->settings;
    const tr_dataset_info_t *info = &s->dataset->info;
    const char *y_path = s->part->y_file.path;
    tr_sampler_t order;
    char text[512], shape[96];
    TR_TRY(tr_sampler_init(settings, info, 0, settings->batch_size, settings->batch_size, &order));
    report_inputs(r, s, order.block);
    if (info->classes && info->is_dense) {
        tr_str_printf(r->out, "  labels     /%s, one of %lld class%s for each position %s: %s\n",
                      s->part->names->y, (long long)info->classes, info->classes == 1 ? "" : "es",
                      tr_shape_format(&info->field[1].shape, shape), info->label_shares);
    } else if (info->classes) {
        TR_TRY(report_classes(r, s));
    } else if (info->field_count > 1) {
        tr_str_printf(r->out, "  targets    /%s%s%s, %s\n", s->part->names->y, y_path ? " of " : "",
                      y_path ? y_path : "", tr_shape_format(&info->field[1].shape, shape));
        report_packing(r->out, &s->part->y_packing);
        TR_TRY(report_values(r, s, 1, ""));
        if (info->label_doubt) report_warn(r, "%s", info->label_doubt);
    } else if (tr_h5_labels_are_text(s->part->names, text)) {
        tr_str_printf(r->out, "  labels     none: %s\n", text);
    } else {
        tr_str_append(
            r->out, "  labels     none with a common name (y, labels, targets, ...); set data.y\n");
    }
    if (!r->told) { /* the preprocessing that training would use */
        const tr_preprocess_sources_t sources = {.settings = settings,
                                                 .info = info,
                                                 .classes = info->classes,
                                                 .squares = true,
                                                 .train = s->dataset};
        TR_TRY(tr_preprocess_resolve(&sources, &r->told));
    }
    TR_TRY(report_values(r, s, 0, "values"));
    report_normalisation(r, s);
    return TR_OK;
}

static tr_status_t report_split(report_t *r, tr_split_t split) {
    /* Validation data may be part of the training files. */
    const bool is_part = split == TR_SPLIT_VALID && r->settings->valid_fraction > 0;
    report_split_t s = {.split = split};
    h5_source_t source;
    h5_parts_t parts = {0}; /* opened in addition to the data set, to inspect its storage */
    char sentence[H5_SENTENCE_BYTES];
    TR_TRY(tr_dataset_open(r->settings, split, &s.dataset));
    if (!s.dataset) return TR_OK;
    r->fingerprint[split] = s.dataset->info.fingerprint;
    for (int other = 0; other < (int)split; other++)
        if (r->fingerprint[other] == r->fingerprint[split] && r->fingerprint[other]) {
            tr_str_printf(r->out, "\n%s: the same as %s\n", tr_split_name(split),
                          tr_split_name((tr_split_t)other));
            tr_dataset_close(&s.dataset);
            return TR_OK;
        }
    tr_h5_lock();
    tr_status_t status = tr_h5_source_parse(r->settings, is_part ? TR_SPLIT_TRAIN : split, &source);
    if (status == TR_OK) status = tr_h5_parts_open(&source, &parts);
    tr_h5_unlock();
    for (int64_t i = parts.count; i < parts.count + parts.late_count && status == TR_OK; i++) {
        h5_part_t *part; /* each file is checked */
        status = tr_h5_part_at(&parts, i, &part);
    }
    if (status == TR_OK && parts.count) {
        s.part = parts.data;
        status = s.dataset->info.tokens > 0 ? report_tokens(r, &s) : report_samples(r, &s);
    }
    tr_h5_lock();
    if (status == TR_OK && parts.count && split == TR_SPLIT_TRAIN) {
        status = tr_h5_doubtful_moments(&parts, tr_field_channels(&s.dataset->info.field[0]),
                                        r->settings, sentence);
        if (status == TR_OK && *sentence) report_warn(r, "%s", sentence);
    }
    tr_h5_parts_close(&parts);
    tr_h5_unlock();
    tr_dataset_close(&s.dataset);
    return status;
}

/* -- the list ---------------------------------------------------------------------------------- */

/* The data sets of the file. Requires the lock. */
static tr_status_t report_file(const char *path, tr_str_t *out) {
    h5_file_t file;
    h5_list_t list = {0};
    char bytes[32];
    TR_TRY(tr_h5_file_open("data", path, &file));
    tr_status_t status = tr_h5_list(&file, &list);
    if (status == TR_OK)
        tr_str_printf(out, "%s: HDF5, %s, %zu data set%s\n", path,
                      tr_format_bytes((double)file.bytes, bytes), list.count,
                      list.count == 1 ? "" : "s");
    for (size_t i = 0; i < list.count && i < 100; i++) {
        const h5_entry_t *entry = &list.data[i];
        h5_array_t array;
        tr_str_printf(out, "  %s", entry->text);
        if (tr_h5_has_numbers(entry)) {
            const bool opened = tr_h5_array_open(&file, entry->path, &array) == TR_OK;
            const h5_unallocated_t *unallocated = &array.unallocated;
            tr_str_printf(out, ", %s", opened ? array.storage : tr_error_last()->message);
            if (opened && unallocated->rows)
                tr_str_printf(out, ", %lld of %lld samples never written",
                              (long long)unallocated->rows, (long long)unallocated->of);
            tr_h5_array_close(&array);
        }
        tr_str_append(out, "\n");
    }
    if (list.count > 100) tr_str_printf(out, "  and %zu more\n", list.count - 100);
    tr_h5_list_free(&list);
    tr_h5_file_close(&file);
    return status;
}

/* Lists the files of training data, and opens them to see whether they are a stream of tokens. */
static tr_status_t report_files(const tr_data_settings_t *settings, tr_str_t *out,
                                bool *out_are_tokens) {
    h5_source_t source;
    h5_paths_t paths;
    h5_parts_t parts = {0};
    TR_TRY(tr_h5_source_parse(settings, TR_SPLIT_TRAIN, &source));
    TR_TRY(tr_h5_paths(&source, &paths));
    tr_h5_lock();
    tr_status_t status = report_file(paths.path[0], out);
    if (paths.count > 1)
        tr_str_printf(out, "  and %zu similar file%s, up to %s\n", paths.count - 1,
                      paths.count == 2 ? "" : "s", paths.path[paths.count - 1]);
    if (status == TR_OK) status = tr_h5_parts_open(&source, &parts);
    *out_are_tokens = status == TR_OK && parts.count && parts.data[0].names->is_tokens;
    tr_h5_parts_close(&parts);
    tr_h5_unlock();
    tr_h5_paths_free(&paths);
    return status;
}

tr_status_t tr_data_report(const tr_data_settings_t *given, int64_t sample_bytes, tr_str_t *out) {
    tr_data_settings_t settings = *given;
    report_t r = {.settings = &settings, .sample_bytes = sample_bytes, .out = out};
    bool are_tokens = false;
    TR_TRY(report_files(&settings, out, &are_tokens));
    settings.context = are_tokens; /* opened as windows of one token */
    tr_status_t status = TR_OK;
    for (int split = 0; split < 3 && status == TR_OK; split++)
        status = report_split(&r, (tr_split_t)split);
    if (r.warnings.text) tr_str_printf(out, "\n%s", r.warnings.text);
    if (r.warnings.status != TR_OK && status == TR_OK) status = r.warnings.status;
    tr_str_free(&r.warnings);
    tr_preprocess_destroy(&r.told);
    return status != TR_OK ? status : out->status;
}
