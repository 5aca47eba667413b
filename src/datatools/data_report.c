/* The report of `trainer data`: the contents of a file, the arrays that training would use, how
 * they are read, and their values. */
#include "data/hdf5_source.h"
#include "data/preprocess.h"
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

typedef struct {
    const tr_data_settings_t *settings;
    tr_split_t split;
    int64_t sample_bytes;
    tr_str_t *out, warnings;
    const h5_part_t *part; /* the first file's */
    tr_dataset_t *dataset;
    int64_t block;
    bool rounded[2];       /* x, y: already reported */
    tr_preprocess_t *told; /* preprocessing that training would use; owned */
} report_t;

/* -- how it is read ---------------------------------------------------------------------------- */

static void add_warning(report_t *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_warning(report_t *r, const char *format, ...) {
    char text[H5_SENTENCE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    tr_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!r->warnings.text || !strstr(r->warnings.text, text))
        tr_str_printf(&r->warnings, "warning: %s\n", text);
}

static void report_reading(report_t *r) {
    const h5_array_t *x = &r->part->x;
    char bytes[32];
    h5_cost_t block = tr_h5_cost(x, r->block), one = tr_h5_cost(x, 1);
    tr_str_printf(r->out,
                  "  reading    %s; a block of %lld sample%s (%s) takes %lld read%s of %.2f times "
                  "its bytes, a single sample %.2f times\n",
                  tr_h5_way_text(x), (long long)r->block, r->block == 1 ? "" : "s",
                  tr_format_bytes((double)(r->block * x->row_bytes), bytes), (long long)block.reads,
                  block.reads == 1 ? "" : "s", block.amplification, one.amplification);
    char costly[H5_SENTENCE_BYTES];
    if (tr_h5_costly(x, r->block, costly))
        add_warning(r, "%s", costly);
    else if (!x->checksum_only)
        tr_str_printf(
            r->out,
            "             no checksums: damaged bytes are not detected (`trainer repack` adds "
            "checksums)\n");
}

/* -- labels ------------------------------------------------------------------------------------ */

static int by_count(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void report_counts(report_t *r, int64_t *count) {
    const tr_dataset_info_t *info = &r->dataset->info;
    const char *const *names = tr_class_names(info);
    for (int64_t c = 0; c < info->classes && info->classes <= NAMED_CLASSES; c++) {
        if (names)
            tr_str_printf(r->out, "%s %s: %lld", c ? "," : "", names[c], (long long)count[c]);
        else
            tr_str_printf(r->out, "%s %lld: %lld", c ? "," : "", (long long)c, (long long)count[c]);
    }
    if (info->classes > NAMED_CLASSES) {
        qsort(count, (size_t)info->classes, sizeof *count, by_count);
        tr_str_printf(r->out, " %lld to %lld samples each, median %lld", (long long)count[0],
                      (long long)count[info->classes - 1], (long long)count[info->classes / 2]);
    }
    tr_str_append(r->out, "\n");
}

static void report_y(report_t *r) {
    const char *file = r->part->y_file.path;
    tr_str_printf(r->out, "/%s%s%s, ", r->part->names.y, file ? " of " : "", file ? file : "");
}

/* Integers that may not be classes, or classes that do not start at 0. */
static void warn_classes(report_t *r, const int64_t *count) {
    const tr_dataset_info_t *info = &r->dataset->info;
    int64_t empty = 0;
    for (int64_t c = 0; c < info->classes; c++) empty += count[c] == 0;
    if (info->classes > NAMED_CLASSES && empty > info->classes / 2)
        add_warning(
            r,
            "%s: integers from 0 are read as classes, but %lld of these %lld have no samples: if "
            "they are regression targets, set data.classes=0",
            r->part->file.path, (long long)empty, (long long)info->classes);
    else if (info->classes > 1 && count[0] == 0)
        add_warning(r,
                    "%s: no sample has label 0. Classes count from 0: subtract 1 from labels that "
                    "run from 1 to %lld, or give the model %lld outputs; if they are regression "
                    "targets, set data.classes=0",
                    r->part->file.path, (long long)info->classes - 1, (long long)info->classes);
    if (info->classes == 1)
        add_warning(r, "%s: all labels are 0: a model cannot learn from one class",
                    r->part->file.path);
}

/* Whether far fewer neighbours differ than in random order, where n - sum count^2 / n of n - 1
 * pairs differ. This number is small if one class is rare. */
static bool is_sorted(const tr_dataset_info_t *info, const int64_t *count, int64_t changes) {
    const double samples = (double)info->samples;
    double expected = samples;
    for (int64_t c = 0; c < info->classes; c++)
        expected -= (double)count[c] * ((double)count[c] / samples);
    return info->samples > 10 * info->classes && (double)changes < expected / 4;
}

static tr_status_t report_classes(report_t *r) {
    const tr_dataset_info_t *info = &r->dataset->info;
    int64_t *count = NULL, changes = 0, at_once = 1 << 16;
    int32_t *label = NULL, last = -1;
    tr_status_t status = tr_alloc((size_t)info->classes * sizeof *count, "counts", &count);
    if (status == TR_OK) status = tr_alloc((size_t)at_once * sizeof *label, "labels", &label);
    for (int64_t i = 0; i < info->samples && status == TR_OK; i += at_once) {
        int64_t part = min64(at_once, info->samples - i);
        void *dst[] = {NULL, label};
        status = r->dataset->ops->read(r->dataset, i, part, dst);
        for (int64_t j = 0; j < part && status == TR_OK; j++) {
            count[label[j]]++;
            changes += i + j > 0 && label[j] != last;
            last = label[j];
        }
    }
    if (status == TR_OK) {
        tr_str_append(r->out, "  labels     ");
        report_y(r);
        tr_str_printf(r->out, "%lld class%s:", (long long)info->classes,
                      info->classes == 1 ? "" : "es");
        warn_classes(r, count);
        if (is_sorted(info, count, changes))
            add_warning(
                r,
                "%s: the samples are sorted by label, so shuffling by blocks mixes them "
                "badly. Shuffle the samples when you create the file, or set data.block = 1",
                r->part->file.path);
        report_counts(r, count); /* sorts them */
    }
    tr_free(&label);
    tr_free(&count);
    return status;
}

/* -- values ------------------------------------------------------------------------------------ */

static void print_stats(report_t *r, const char *what, const tr_sample_stats_t *s, const char *of) {
    for (int64_t c = 0; c < s->channels && c < NAMED_CHANNELS; c++) {
        const tr_stats_t *one = &s->of[c];
        char name[48] = "";
        if (s->channels > 1) snprintf(name, sizeof name, "%lld: ", (long long)c);
        tr_str_printf(r->out, "  %-9s  %smin %.6g, max %.6g, mean %.6g, std %.6g%s\n",
                      c ? "" : what, name, one->min, one->max, one->mean, tr_stats_deviation(one),
                      c ? "" : of);
    }
    if (s->channels > NAMED_CHANNELS)
        tr_str_printf(r->out, "             and %lld more\n",
                      (long long)(s->channels - NAMED_CHANNELS));
}

/* For the first split with such values; the others are alike. */
static void warn_rounded(report_t *r, int field, const tr_sample_stats_t *s) {
    char text[640];
    if (r->rounded[field]) return;
    r->rounded[field] = tr_is_rounded_away(s->of, s->channels, field == 1, text);
    if (r->rounded[field]) add_warning(r, "%s", text);
}

static void warn_inputs(report_t *r, const tr_sample_stats_t *s) {
    tr_str_t text = {0};
    tr_preprocess_check(r->told, s, &text);
    if (text.text) add_warning(r, "%s", text.text);
    tr_str_free(&text);
}

static tr_status_t stats_of(report_t *r, int field, const char *what) {
    const tr_field_t *f = &r->dataset->info.field[field];
    const int64_t samples = r->dataset->info.samples;
    tr_sample_stats_t s;
    char of[96], rate[32];
    const tr_status_t status =
        tr_dataset_sample(r->dataset, field, r->sample_bytes, PIECES, INFINITY, &s);
    const double bytes = (double)s.samples * (double)f->sample_bytes;
    const int used = s.samples >= samples
                         ? snprintf(of, sizeof of, " (all samples")
                         : snprintf(of, sizeof of, " (%lld samples", (long long)s.samples);
    snprintf(of + used, sizeof of - (size_t)used, ", read at %s/s)",
             tr_format_bytes(s.read_sec > 0 ? bytes / s.read_sec : 0, rate));
    if (status == TR_OK) {
        print_stats(r, what, &s, of);
        warn_rounded(r, field, &s);
        if (field == 0 && r->split == TR_SPLIT_TRAIN) warn_inputs(r, &s);
    }
    tr_free(&s.of);
    return status;
}

static void report_moments(tr_str_t *out, const char *before, const tr_floats_t *v) {
    for (size_t c = 0; c < v->count && c < NAMED_CHANNELS; c++)
        tr_str_printf(out, "%s %.6g", c ? "," : before, (double)v->data[c]);
}

/* The preprocessing that training would use. */
static tr_status_t resolve_told(report_t *r) {
    const tr_preprocess_sources_t sources = {.settings = r->settings,
                                             .info = &r->dataset->info,
                                             .classes = r->dataset->info.classes,
                                             .squares = true,
                                             .train = r->dataset};
    return tr_preprocess_resolve(&sources, &r->told);
}

/* Whether the numbers of the data are used or overridden by the key. */
static bool are_alike(const char *key, const tr_floats_t *own, const tr_floats_t *used,
                      float none) {
    if (strcmp(key, "auto") != 0) return true;
    for (size_t c = 0; c < own->count; c++) {
        const float value = used->count == 0 ? none : used->data[used->count == 1 ? 0 : c];
        if (own->data[c] != value) return false;
    }
    return true;
}

/* All splits, with the normalisation of the training data, the first split. */
static void report_normalisation(report_t *r) {
    const tr_dataset_info_t *info = &r->dataset->info;
    const tr_normalize_t *input = &r->told->input;
    const bool alike = are_alike(r->settings->mean, &info->mean, &input->mean, 0) &&
                       are_alike(r->settings->std, &info->std, &input->std, 1);
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
                      r->part->file.path);
}

/* -- splits ------------------------------------------------------------------------------------ */

static void report_names(report_t *r, const tr_names_t *names) {
    for (int64_t i = 0; i < names->count && i < NAMED_CLASSES; i++)
        tr_str_printf(r->out, "%s%s", i ? ", " : "             named ", names->name[i]);
    if (names->count) tr_str_append(r->out, names->count > NAMED_CLASSES ? ", ...\n" : "\n");
}

/* -- tokens ------------------------------------------------------------------------------------ */

/* Counts in `seen` (vocabulary) how often each id occurs in the first `most` tokens; a window has
 * one token. */
static tr_status_t count_tokens(report_t *r, int64_t most, int64_t *seen) {
    enum { AT_ONCE = 65536 };
    int32_t *ids = NULL;
    tr_status_t status = tr_alloc(AT_ONCE * sizeof *ids, "tokens", &ids);
    for (int64_t i = 0; i < most && status == TR_OK; i += AT_ONCE) {
        const int64_t count = min64(AT_ONCE, most - i);
        void *dst[TR_DATASET_MAX_FIELDS] = {ids};
        status = r->dataset->ops->read(r->dataset, i, count, dst);
        for (int64_t j = 0; j < count && status == TR_OK; j++) seen[ids[j]]++;
    }
    tr_free(&ids);
    return status;
}

static tr_status_t report_vocabulary(report_t *r) {
    const tr_dataset_info_t *info = &r->dataset->info;
    const int64_t most = min64(info->samples, max64(1, r->sample_bytes / r->part->x.row_bytes));
    int64_t *seen = NULL, used = 0;
    tr_tokenizer_t *tokenizer = NULL;
    if (info->tokenizer)
        TR_TRY(tr_tokenizer_from_json(info->tokenizer, r->part->file.path, &tokenizer));
    tr_status_t status = tr_alloc((size_t)info->classes * sizeof *seen, "counts of tokens", &seen);
    if (status == TR_OK) status = count_tokens(r, most, seen);
    for (int64_t id = 0; id < info->classes && status == TR_OK; id++) used += seen[id] > 0;
    if (status == TR_OK)
        tr_str_printf(r->out, "  vocabulary %lld ids, %s; %lld occur in %s%lld tokens\n",
                      (long long)info->classes,
                      tokenizer ? tr_tokenizer_name(tokenizer) : "no tokenizer", (long long)used,
                      most < info->samples ? "the first " : "", (long long)most);
    tr_tokenizer_destroy(&tokenizer);
    tr_free(&seen);
    return status;
}

static tr_status_t report_tokens(report_t *r) {
    const h5_array_t *x = &r->part->x;
    char costly[H5_SENTENCE_BYTES];
    tr_str_printf(r->out, "\n%s: %lld tokens\n", tr_split_name(r->split),
                  (long long)r->dataset->info.tokens);
    tr_str_printf(r->out, "  inputs     /%s, %s, %s, %s\n", x->name, tr_dtype_name(x->dtype),
                  x->storage, tr_h5_way_text(x));
    if (tr_h5_costly(x, min64(1 << 16, max64(1, x->rows)), costly)) add_warning(r, "%s", costly);
    return report_vocabulary(r);
}

/* Whether the file has the channels before the spatial dimensions. */
static bool is_channels_first(const h5_array_t *x, const tr_shape_t *shape) {
    return x->ndim - 1 == shape->ndim &&
           memcmp(x->dim + 1, shape->dim, (size_t)shape->ndim * sizeof *shape->dim) != 0;
}

static tr_status_t report_dataset(report_t *r) {
    const tr_dataset_info_t *info = &r->dataset->info;
    if (info->tokens > 0) return report_tokens(r);
    const h5_array_t *x = &r->part->x;
    tr_sampler_t order;
    char shape[96], text[512];
    TR_TRY(tr_sampler_init(r->settings, info, 0, r->settings->batch_size, r->settings->batch_size,
                           &order));
    r->block = order.block;
    tr_str_printf(r->out, "\n%s: %lld samples\n", tr_split_name(r->split),
                  (long long)info->samples);
    tr_str_printf(
        r->out, "  inputs     /%s, %s %s%s%s, %s\n", x->name, tr_dtype_name(info->field[0].dtype),
        tr_shape_format(&info->field[0].shape, shape),
        x->dtype != info->field[0].dtype ? " converted" : "",
        is_channels_first(x, &info->field[0].shape) ? " stored channels first" : "", x->storage);
    if (r->split == TR_SPLIT_TRAIN && info->is_image_guessed)
        tr_str_printf(r->out, "             %s\n",
                      tr_image_guess_text(&info->field[0].shape, text));
    report_names(r, &info->names[TR_NAMES_INPUTS]);
    report_reading(r);
    if (info->classes)
        TR_TRY(report_classes(r));
    else if (info->field_count == 1 && tr_h5_labels_are_text(&r->part->names, text))
        tr_str_printf(r->out, "  labels     none: %s\n", text);
    else if (info->field_count == 1)
        tr_str_append(
            r->out, "  labels     none with a common name (y, labels, targets, ...); set data.y\n");
    if (!info->classes && info->field_count > 1) {
        tr_str_append(r->out, "  targets    ");
        report_y(r);
        tr_str_printf(r->out, "%s\n", tr_shape_format(&info->field[1].shape, shape));
        TR_TRY(stats_of(r, 1, ""));
        if (*info->label_doubt) add_warning(r, "%s", info->label_doubt);
    }
    if (!r->told) TR_TRY(resolve_told(r));
    TR_TRY(stats_of(r, 0, "values"));
    report_normalisation(r);
    return TR_OK;
}

/* Warns about validation data that are part of the training files. */
static bool is_part(const tr_data_settings_t *settings, tr_split_t split) {
    return split == TR_SPLIT_VALID && settings->valid_fraction > 0;
}

/* `parts` are opened in addition to the data set, to inspect the storage of its files. */
static tr_status_t report_split(report_t *r, uint64_t *fingerprints) {
    h5_source_t source;
    h5_parts_t parts = {0};
    char sentence[H5_SENTENCE_BYTES];
    TR_TRY(tr_dataset_open(r->settings, r->split, &r->dataset));
    if (!r->dataset) return TR_OK;
    fingerprints[r->split] = r->dataset->info.fingerprint;
    tr_status_t status = TR_OK;
    for (int s = 0; s < (int)r->split; s++)
        if (fingerprints[s] == fingerprints[r->split] && fingerprints[s]) {
            tr_str_printf(r->out, "\n%s: the same as %s\n", tr_split_name(r->split),
                          tr_split_name((tr_split_t)s));
            tr_dataset_close(&r->dataset);
            return TR_OK;
        }
    tr_h5_lock();
    status = tr_h5_source_parse(
        r->settings, is_part(r->settings, r->split) ? TR_SPLIT_TRAIN : r->split, &source);
    if (status == TR_OK) status = tr_h5_parts_open(&source, &parts);
    tr_h5_unlock();
    r->part = parts.data;
    if (status == TR_OK && parts.count) status = report_dataset(r);
    tr_h5_lock();
    if (status == TR_OK && parts.count && r->split == TR_SPLIT_TRAIN) {
        status = tr_h5_doubtful_moments(&parts, tr_field_channels(&r->dataset->info.field[0]),
                                        r->settings, sentence);
        if (status == TR_OK && *sentence) add_warning(r, "%s", sentence);
    }
    tr_h5_parts_close(&parts);
    tr_h5_unlock();
    tr_dataset_close(&r->dataset);
    return status;
}

/* -- the list ---------------------------------------------------------------------------------- */

static void report_entry(const h5_file_t *file, const h5_entry_t *entry, tr_str_t *out) {
    h5_array_t array;
    tr_str_printf(out, "  %s", entry->text);
    if (!tr_h5_has_numbers(entry)) {
        tr_str_append(out, "\n");
        return;
    }
    tr_status_t status = tr_h5_array_open(file, entry->path, &array);
    tr_str_printf(out, ", %s", status == TR_OK ? array.storage : tr_error_last()->message);
    const h5_unallocated_t *unallocated = &array.unallocated;
    if (status == TR_OK && unallocated->rows)
        tr_str_printf(out, ", %lld of %lld samples never written", (long long)unallocated->rows,
                      (long long)unallocated->of);
    tr_str_append(out, "\n");
    tr_h5_array_close(&array);
}

/* The data sets of the first file. Requires the lock. */
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
    for (size_t i = 0; i < list.count && i < 100; i++) report_entry(&file, &list.data[i], out);
    if (list.count > 100) tr_str_printf(out, "  and %zu more\n", list.count - 100);
    tr_h5_list_free(&list);
    tr_h5_file_close(&file);
    return status;
}

static tr_status_t report_files(const tr_data_settings_t *settings, tr_str_t *out) {
    h5_source_t source;
    h5_paths_t paths;
    TR_TRY(tr_h5_source_parse(settings, TR_SPLIT_TRAIN, &source));
    TR_TRY(tr_h5_paths(&source, &paths));
    tr_h5_lock();
    tr_status_t status = report_file(paths.path[0], out);
    tr_h5_unlock();
    if (paths.count > 1)
        tr_str_printf(out, "  and %zu similar file%s, up to %s\n", paths.count - 1,
                      paths.count == 2 ? "" : "s", paths.path[paths.count - 1]);
    tr_h5_paths_free(&paths);
    return status;
}

/* A stream of tokens is opened as windows of one token. */
static tr_status_t look_for_tokens(tr_data_settings_t *settings) {
    h5_source_t source;
    h5_parts_t parts = {0};
    TR_TRY(tr_h5_source_parse(settings, TR_SPLIT_TRAIN, &source));
    tr_h5_lock();
    tr_status_t status = tr_h5_parts_open(&source, &parts);
    settings->context = status == TR_OK && parts.count && parts.data[0].names.is_tokens;
    tr_h5_parts_close(&parts);
    tr_h5_unlock();
    return status;
}

tr_status_t tr_data_report(const tr_data_settings_t *given, int64_t sample_bytes, tr_str_t *out) {
    uint64_t fingerprints[3] = {0};
    tr_data_settings_t settings = *given;
    report_t r = {.settings = &settings, .sample_bytes = sample_bytes, .out = out};
    TR_TRY(report_files(&settings, out));
    tr_status_t status = look_for_tokens(&settings);
    for (int split = 0; split < 3 && status == TR_OK; split++) {
        r.split = (tr_split_t)split;
        status = report_split(&r, fingerprints);
    }
    if (r.warnings.text) tr_str_printf(out, "\n%s", r.warnings.text);
    if (r.warnings.status != TR_OK && status == TR_OK) status = r.warnings.status;
    tr_str_free(&r.warnings);
    tr_preprocess_destroy(&r.told);
    return status != TR_OK ? status : out->status;
}
