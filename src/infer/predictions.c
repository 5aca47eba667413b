/* Writes predictions as HDF5 or CSV, or passes them to the writer of PNG files. */
#include "prediction_pictures.h"
#include "data/images/image.h"
#include "data/table/columns.h"
#include "base/file.h"
#include "base/mem.h"
#include "h5/writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct tr_predictions_file {
    tr_predictions_t what;
    char *path, *part;
    int64_t row; /* rows so far */
    tr_prediction_pictures_t *pictures; /* NULL: a file */
    FILE *csv;                          /* NULL: HDF5 */
    tr_writer_t *writer;
    int prediction, probability; /* arrays of the writer */
};

tr_status_t tr_predictions_check(const char *path) {
    static const char *const endings[] = {".csv", ".h5", ".hdf5", ".he5"};
    for (size_t i = 0; i < TR_COUNT(endings); i++)
        if (tr_path_ends_in(path, endings[i]) && !tr_is_folder(path)) return TR_OK;
    if (!tr_prediction_pictures_are_meant(path))
        return TR_FAIL(
            TR_ERR_USAGE,
            "the predictions cannot be written to '%s': expected a name that ends in .csv or .h5, "
            "by which the form of the file is chosen, or in / for a folder of PNG files.",
            path);
    if (tr_png_is_here()) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "'%s' would get PNG files, and this build has no libpng: choose a name that ends "
        "in .h5, or install libpng-dev and run make again.",
        path);
}

/* The names of the classes; NULL: they have none. */
static const char *const *predictions_classes(const tr_predictions_t *what) {
    const tr_names_t *names = &what->t->s->preprocess->names[TR_NAMES_CLASSES];
    return what->is_class && names->count == what->width ? (const char *const *)names->name : NULL;
}

/* -- HDF5 -------------------------------------------------------------------------------------- */

/* The data set of a column: its name, or its number if it has none or another column has the same.
 */
static void predictions_name_text(const tr_dataset_info_t *info, int64_t column, char out[256]) {
    const char *name = info->text_name[column];
    bool is_taken = !*name || strcmp(name, ".") == 0;
    for (int64_t i = 0; i < info->text_count; i++)
        is_taken = is_taken || (i != column && strcmp(info->text_name[i], name) == 0);
    if (is_taken)
        snprintf(out, 256, "columns/column %lld", (long long)column + 1);
    else
        snprintf(out, 256, "columns/%.*s", (int)tr_utf8_bytes(name, 200), name);
    for (char *at = out + strlen("columns/"); *at; at++)
        if (*at == '/') *at = '_';
}

/* The texts that the data set carries along, a data set for each column. */
static tr_status_t predictions_write_texts(tr_predictions_file_t *f) {
    const tr_dataset_info_t *info = &f->what.t->s->info;
    const char **text = NULL;
    tr_status_t status = TR_OK;
    if (info->text_count == 0) return TR_OK;
    TR_TRY(tr_alloc((size_t)info->samples * sizeof *text, "texts", &text));
    for (int64_t c = 0; c < info->text_count && status == TR_OK; c++) {
        char name[256];
        predictions_name_text(info, c, name);
        for (int64_t i = 0; i < info->samples; i++) text[i] = info->text[i * info->text_count + c];
        status = tr_writer_strings(f->writer, name, info->samples, text);
    }
    tr_free(&text);
    return status;
}

static tr_status_t predictions_create_hdf5(tr_predictions_file_t *f, bool force) {
    const tr_predictions_t *w = &f->what;
    const tr_writer_params_t params = {.force = force};
    const int64_t samples = w->t->s->info.samples;
    const char *const attributes[][2] = {
        {"checkpoint", w->t->weights_path}, {"input", w->in}, {"trainer", w->version}};
    TR_TRY(tr_writer_create(f->path, &params, &f->writer));
    for (size_t i = 0; i < TR_COUNT(attributes); i++)
        TR_TRY(tr_writer_texts(f->writer, "/", attributes[i][0], 1, &attributes[i][1]));
    if (predictions_classes(w)) /* the training data had class names */
        TR_TRY(tr_writer_texts(f->writer, "/", tr_names_key(TR_NAMES_CLASSES), w->width,
                               predictions_classes(w)));
    tr_shape_t values = w->positions; /* of a sample */
    values.dim[values.ndim++] = w->width;
    TR_TRY(tr_writer_array(f->writer, "prediction", w->is_class ? w->class_type : TR_F32, samples,
                           w->is_class ? &w->positions : &values, &f->prediction));
    if (w->has_probability)
        TR_TRY(
            tr_writer_array(f->writer, "probability", TR_F32, samples, &values, &f->probability));
    return predictions_write_texts(f);
}

/* -- CSV --------------------------------------------------------------------------------------- */

/* A field, in quotes if it would not be read back the same. */
static void predictions_csv_put_text(tr_str_t *out, const char *text) {
    const size_t length = strlen(text);
    const bool has_blanks =
        length > 0 && (strchr(" \t", text[0]) || strchr(" \t", text[length - 1]));
    if (!has_blanks && !strpbrk(text, ",\"\r\n")) {
        tr_str_append(out, text);
        return;
    }
    tr_str_append(out, "\"");
    for (const char *at = text; *at; at++) {
        if (*at == '"') tr_str_append(out, "\"");
        tr_str_append_bytes(out, at, 1);
    }
    tr_str_append(out, "\"");
}

/* "prediction" for one output; "prediction_NAME", or its number without names, for several. */
static void predictions_csv_put_heading(tr_str_t *out, const char *what, const char *const *names,
                                        int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        tr_str_t name = {0};
        tr_str_append(&name, what);
        if (names)
            tr_str_printf(&name, "_%s", names[i]);
        else if (count > 1)
            tr_str_printf(&name, "_%lld", (long long)i);
        if (i > 0) tr_str_append(out, ",");
        predictions_csv_put_text(out, name.text ? name.text : "");
        if (name.status != TR_OK) out->status = name.status;
        tr_str_free(&name);
    }
}

static tr_status_t predictions_csv_write(tr_predictions_file_t *f, tr_str_t *text) {
    TR_TRY(text->status);
    if (fwrite(text->text, 1, text->length, f->csv) == text->length) return TR_OK;
    return tr_io_fail("write", f->path, errno);
}

static tr_status_t predictions_csv_write_header(tr_predictions_file_t *f) {
    const tr_predictions_t *w = &f->what;
    const tr_dataset_info_t *info = &w->t->s->info;
    const char *columns = w->t->s->preprocess->columns;
    tr_columns_t table = {0};
    tr_str_t text = {0};
    tr_status_t status = TR_OK;
    if (columns && !w->is_class) status = tr_columns_from_json(columns, w->t->weights_path, &table);
    for (int64_t c = 0; c < info->text_count; c++) {
        predictions_csv_put_text(&text, info->text_name[c]); /* may be empty */
        tr_str_append(&text, ",");
    }
    const bool has_targets = w->width > 1 && table.targets.count == w->width;
    predictions_csv_put_heading(&text, "prediction",
                                has_targets ? (const char *const *)table.targets.name : NULL,
                                w->is_class ? 1 : w->width);
    if (w->has_probability) {
        tr_str_append(&text, ",");
        predictions_csv_put_heading(&text, "probability", predictions_classes(w), w->width);
    }
    tr_str_append(&text, "\n");
    if (status == TR_OK) status = predictions_csv_write(f, &text);
    tr_columns_free(&table);
    tr_str_free(&text);
    return status;
}

static tr_status_t predictions_create_csv(tr_predictions_file_t *f, bool force) {
    tr_str_t part = {0};
    if (f->what.positions.ndim > 0)
        return TR_FAIL(TR_ERR_USAGE,
                       "the model predicts each position of a sample, which a .csv cannot hold: "
                       "'%s' must end in .h5, or in / for a folder of PNG files",
                       f->path);
    if (!force && access(f->path, F_OK) == 0)
        return TR_FAIL(TR_ERR_CONFIG, "'%s' already exists; --force replaces it.", f->path);
    tr_str_printf(&part, "%s.part-%ld", f->path, (long)getpid()); /* as tr_writer_remove_part */
    TR_TRY(tr_str_take(&part, &f->part));
    f->csv = tr_create_stream(f->part);
    if (!f->csv) return tr_io_fail("create", f->path, errno);
    return predictions_csv_write_header(f);
}

static void predictions_csv_put_numbers(tr_str_t *out, const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        tr_str_printf(out, "%s%.9g", i ? "," : "", (double)values[i]);
}

static tr_status_t predictions_csv_append(tr_predictions_file_t *f, int64_t rows,
                                          const void *prediction, const float *probability) {
    const tr_predictions_t *w = &f->what;
    const tr_dataset_info_t *info = &w->t->s->info;
    const char *const *classes = predictions_classes(w);
    tr_str_t text = {0};
    for (int64_t i = 0; i < rows; i++, f->row++) {
        for (int64_t c = 0; c < info->text_count; c++) {
            predictions_csv_put_text(&text, info->text[f->row * info->text_count + c]);
            tr_str_append(&text, ",");
        }
        if (!w->is_class) {
            predictions_csv_put_numbers(&text, (const float *)prediction + i * w->width, w->width);
        } else {
            const int32_t class = ((const int32_t *)prediction)[i];
            if (!classes)
                tr_str_printf(&text, "%d", (int)class);
            else if (class >= 0)
                predictions_csv_put_text(&text, classes[class]);
        }
        if (w->has_probability) {
            tr_str_append(&text, ",");
            predictions_csv_put_numbers(&text, probability + i * w->width, w->width);
        }
        tr_str_append(&text, "\n");
    }
    const tr_status_t status = rows > 0 ? predictions_csv_write(f, &text) : TR_OK;
    tr_str_free(&text);
    return status;
}

/* -- all --------------------------------------------------------------------------------------- */

tr_status_t tr_predictions_create(const char *path, bool force, const tr_predictions_t *what,
                                  tr_predictions_file_t **out) {
    tr_predictions_file_t *f = NULL;
    TR_TRY(tr_alloc(sizeof *f, "predictions", &f));
    f->what = *what;
    tr_status_t status = tr_strdup(path, &f->path);
    if (status == TR_OK && tr_prediction_pictures_are_meant(path))
        status = tr_prediction_pictures_create(path, force, what, &f->pictures);
    else if (status == TR_OK)
        status = (tr_path_ends_in(path, ".csv") ? predictions_create_csv
                                                : predictions_create_hdf5)(f, force);
    if (status != TR_OK) tr_predictions_destroy(&f);
    *out = f;
    return status;
}

tr_status_t tr_predictions_append(tr_predictions_file_t *f, int64_t rows, const void *prediction,
                                  const void *probability) {
    if (f->pictures) return tr_prediction_pictures_append(f->pictures, rows, prediction);
    if (f->csv) return predictions_csv_append(f, rows, prediction, probability);
    TR_TRY(tr_writer_append(f->writer, f->prediction, rows, prediction));
    return f->what.has_probability ? tr_writer_append(f->writer, f->probability, rows, probability)
                                   : TR_OK;
}

tr_status_t tr_predictions_commit(tr_predictions_file_t *f) {
    if (f->pictures) return tr_prediction_pictures_commit(f->pictures);
    if (!f->csv) return tr_writer_commit(f->writer);
    if (fflush(f->csv) != 0 || fsync(fileno(f->csv)) != 0)
        return tr_io_fail("write", f->path, errno);
    return tr_replace_by(f->part, f->path, true);
}

void tr_predictions_destroy(tr_predictions_file_t **file) {
    tr_predictions_file_t *f = *file;
    *file = NULL;
    if (!f) return;
    tr_writer_destroy(&f->writer);
    tr_prediction_pictures_destroy(&f->pictures);
    if (f->csv) fclose(f->csv);
    if (f->part) unlink(f->part);
    tr_free(&f->path);
    tr_free(&f->part);
    tr_free(&f);
}

bool tr_predictions_remove_part(const char *path) {
    return tr_prediction_pictures_remove_part(path) || tr_writer_remove_part(path);
}
