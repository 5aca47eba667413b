/* CSV files as data sets of a trained model, whose columns they must have, in any order. A table is
 * held in memory. Training reads tables that `import csv` has converted. */
#include "columns.h"
#include "data/preprocess/preprocess.h"
#include "data/shared.h"
#include "trainer/log.h"
#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    tr_dataset_t base;
    tr_columns_t columns;
    tr_csv_table_t file;
    int count;        /* columns of the file */
    tr_names_t names; /* of the columns of the file */
    int *input;       /* [columns.input.count]: index in the file */
    TR_VEC(int) target, carried;
    int64_t width; /* inputs of a sample */
    TR_VEC(float) x, y;
    TR_VEC(int32_t) label;
    TR_VEC(char *) text, text_name;
    tr_column_faults_t *fault; /* [columns.input.count] */
    tr_cells_t *label_fault;   /* [target.count] */
} table_t;

bool tr_table_is_named(const char *path) {
    static const char *const endings[] = {".csv",     ".tsv",     ".csv.gz", ".tsv.gz", ".csv.xz",
                                          ".csv.zst", ".csv.bz2", ".xlsx",   ".parquet"};
    for (size_t i = 0; i < TR_COUNT(endings); i++)
        if (tr_path_ends_in(path, endings[i])) return true;
    return false;
}

static void table_close(tr_dataset_t *dataset) {
    table_t *self = (table_t *)dataset;
    for (size_t i = 0; i < self->text.count; i++) tr_free(&self->text.data[i]);
    tr_vec_free(&self->text);
    tr_vec_free(&self->text_name);
    tr_vec_free(&self->carried);
    tr_vec_free(&self->x);
    tr_vec_free(&self->y);
    tr_vec_free(&self->label);
    for (int list = 0; list < TR_NAMES_LISTS; list++) tr_names_free(&dataset->info.names[list]);
    tr_names_free(&self->names);
    for (size_t i = 0; self->label_fault && i < self->target.count; i++)
        tr_cells_free(&self->label_fault[i]);
    tr_free(&self->label_fault);
    tr_vec_free(&self->target);
    tr_columns_free_faults(&self->columns, &self->fault);
    tr_columns_free(&self->columns);
    tr_csv_close(&self->file.csv);
    tr_free(&self->input);
    tr_free(&self);
}

/* -- the columns ------------------------------------------------------------------------------- */

static tr_status_t table_learn_columns(table_t *self, const tr_preprocess_t *trained) {
    if (!trained)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' is a table; training expects an HDF5 file: `trainer import csv` "
                       "converts it. Only eval and predict of a trained table model read tables.",
                       self->file.path);
    const tr_names_t *names = &trained->names[TR_NAMES_INPUTS];
    if (!trained->columns && names->count == 0)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' is a table, but %s records no names of columns: it was not trained on "
                       "a table that `trainer import csv` wrote. Name an HDF5 file.",
                       self->file.path, trained->origin);
    if (trained->columns)
        return tr_columns_from_json(trained->columns, trained->origin, &self->columns);
    /* The table was imported before the columns were kept: its numbers have names. */
    self->columns = (tr_columns_t){.has_header = true, .delimiter = ',', .decimal = '.'};
    for (int64_t i = 0; i < names->count; i++) {
        TR_TRY(tr_vec_push(&self->columns.input, (tr_column_t){0}));
        TR_TRY(tr_strdup(names->name[i], &self->columns.input.data[i].name));
    }
    return TR_OK;
}

/* *out: the index in the file of a column, -1 if there is none. */
static tr_status_t table_find(const table_t *self, const char *name, int *out) {
    *out = -1;
    for (int i = 0; i < self->count; i++) {
        if (strcmp(self->names.name[i], name) != 0) continue;
        if (*out >= 0)
            return TR_FAIL(TR_ERR_DATA,
                           "'%s', line %lld: expected one column '%.*s', found two, columns %d and "
                           "%d. Rename or remove one of them, also in the training table if it has "
                           "both.",
                           self->file.path, (long long)tr_csv_line(self->file.csv),
                           (int)tr_utf8_bytes(name, 60), name, *out + 1, i + 1);
        *out = i;
    }
    return TR_OK;
}

static tr_status_t table_fail_columns(const table_t *self, const tr_names_t *missing) {
    tr_str_t lacks = {0}, has = {0};
    tr_names_say((const char *const *)missing->name, missing->count, &lacks);
    tr_names_say((const char *const *)self->names.name, self->names.count, &has);
    TR_FAIL(TR_ERR_DATA,
            "'%s', line %lld: expected %lld more column%s of the training table: %s. Found the "
            "column%s: %s. The names must be the same, in any order, and the columns separated by "
            "'%s' as in the training table.",
            self->file.path, (long long)tr_csv_line(self->file.csv), (long long)missing->count,
            missing->count == 1 ? "" : "s", lacks.text ? lacks.text : "",
            self->names.count == 1 ? "" : "s", has.text ? has.text : "",
            self->file.delimiter == '\t' ? "tab" : (char[]){self->file.delimiter, '\0'});
    tr_str_free(&lacks);
    tr_str_free(&has);
    return TR_ERR_DATA;
}

/* Finds the inputs and, unless `inputs_only`, the targets among the columns of the file. Columns
 * without names are those with the same numbers, or the inputs alone. */
static tr_status_t table_find_columns(table_t *self, bool inputs_only) {
    const tr_columns_t *c = &self->columns;
    const bool are_inputs = !c->has_header && self->count == (int)c->input.count;
    tr_names_t missing = {0};
    TR_TRY(tr_alloc(c->input.count * sizeof *self->input, "columns", &self->input));
    TR_TRY(tr_alloc((c->input.count + (size_t)c->targets.count) * sizeof *missing.name, "columns",
                    &missing.name));
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < c->input.count && status == TR_OK; i++) {
        self->input[i] = (int)i;
        if (!are_inputs) status = table_find(self, c->input.data[i].name, &self->input[i]);
        if (self->input[i] < 0) missing.name[missing.count++] = c->input.data[i].name;
    }
    for (int64_t i = 0; i < c->targets.count && status == TR_OK && !inputs_only; i++) {
        int at = -1;
        if (!are_inputs) status = table_find(self, c->targets.name[i], &at);
        if (status == TR_OK) status = tr_vec_push(&self->target, at);
        if (at < 0) missing.name[missing.count++] = c->targets.name[i];
    }
    if (status == TR_OK && missing.count > 0) status = table_fail_columns(self, &missing);
    tr_free(&missing.name);
    TR_TRY(status);
    for (int i = 0; i < self->count; i++) {
        bool is_input = !c->has_header;
        for (size_t k = 0; k < c->input.count; k++) is_input = is_input || self->input[k] == i;
        if (c->id ? are_inputs || strcmp(self->names.name[i], c->id) != 0 : is_input) continue;
        TR_TRY(tr_vec_push(&self->carried, i));
        TR_TRY(tr_vec_push(&self->text_name, self->names.name[i]));
    }
    return TR_OK;
}

/* Opens the file. *out_field: its first row of values, none if *out_count is 0. */
static tr_status_t table_open_file(table_t *self, char ***out_field, int *out_count) {
    TR_TRY(tr_csv_table_open(&self->file, out_field, out_count));
    self->count = *out_count;
    TR_TRY(tr_alloc((size_t)self->count * sizeof *self->names.name, "columns", &self->names.name));
    for (int i = 0; i < self->count; i++) {
        char number[16];
        const char *name = (*out_field)[i] + (i ? 0 : strspn((*out_field)[0], "# "));
        snprintf(number, sizeof number, "%d", i + 1);
        TR_TRY(tr_strdup(self->columns.has_header ? name : number, &self->names.name[i]));
        self->names.count++;
    }
    return TR_OK;
}

/* -- the rows ---------------------------------------------------------------------------------- */

/* The class of a text, by its name ("1.0" is also the class "1") or, without names, its number; -1:
 * none. */
static int64_t table_class(const table_t *self, const tr_preprocess_t *trained, const char *text) {
    const tr_names_t *names = &trained->names[TR_NAMES_CLASSES];
    double value, of_name;
    for (int64_t i = 0; i < names->count; i++)
        if (strcmp(names->name[i], text) == 0) return i;
    if (!tr_csv_number(&self->file, text, &value)) return -1;
    for (int64_t i = 0; i < names->count; i++)
        if (tr_parse_float(names->name[i], &of_name) && of_name == value) return i;
    const bool is_class = names->count == 0 && value >= 0 && value < (double)trained->classes &&
                          value == floor(value);
    return is_class ? (int64_t)value : -1;
}

static tr_status_t table_add_row(table_t *self, const tr_preprocess_t *trained, char *const *field,
                                 int count) {
    if (count != self->count)
        return TR_FAIL(TR_ERR_DATA, "'%s', line %lld: %d column%s, but the first row has %d.",
                       self->file.path, (long long)tr_csv_line(self->file.csv), count,
                       count == 1 ? "" : "s", self->count);
    TR_TRY(tr_vec_reserve_(&self->x.data, &self->x.capacity, self->x.count + (size_t)self->width,
                           sizeof *self->x.data));
    TR_TRY(tr_columns_encode(&self->columns, &self->file, field, self->input, self->fault,
                             self->x.data + self->x.count));
    self->x.count += (size_t)self->width;
    for (size_t i = 0; i < self->target.count; i++) {
        const char *text = field[self->target.data[i]];
        double value = 0;
        const int64_t class = trained->classes > 0 ? table_class(self, trained, text) : -1;
        if (trained->classes > 0
                ? class < 0
                : !tr_csv_number(&self->file, text, &value) || !isfinite((float)value))
            TR_TRY(tr_cells_add(&self->label_fault[i], &self->file, text));
        if (trained->classes > 0)
            TR_TRY(tr_vec_push(&self->label, (int32_t) class));
        else
            TR_TRY(tr_vec_push(&self->y, (float)value));
    }
    for (size_t i = 0; i < self->carried.count; i++) {
        char *copy = NULL;
        TR_TRY(tr_strdup(field[self->carried.data[i]], &copy));
        TR_TRY(tr_vec_push(&self->text, copy));
    }
    self->base.info.samples++;
    return TR_OK;
}

static void table_say_labels(const table_t *self, const tr_preprocess_t *trained, tr_str_t *out) {
    const tr_names_t *names = &trained->names[TR_NAMES_CLASSES];
    for (size_t i = 0; i < self->target.count; i++) {
        if (self->label_fault[i].count == 0) continue;
        tr_str_printf(out, " Column %d ('%s'): expected ", self->target.data[i] + 1,
                      self->columns.targets.name[i]);
        if (trained->classes == 0)
            tr_str_append(out, "a number in the range of a 32-bit float");
        else
            tr_str_printf(out, "one of the %lld classes of the training data (",
                          (long long)trained->classes);
        if (names->count > 0)
            tr_names_say((const char *const *)names->name, names->count, out);
        else if (trained->classes > 0)
            tr_str_append(out, "numbers from 0");
        if (trained->classes > 0) tr_str_append(out, ")");
        tr_cells_say(&self->label_fault[i], out);
        tr_str_append(out, ". Correct the labels or remove the rows.");
    }
}

/* After the last row: refuses cells that do not fit, and warns of unknown categories. */
static tr_status_t table_check(const table_t *self, const tr_preprocess_t *trained) {
    const tr_columns_t *columns = &self->columns;
    tr_str_t text = {0};
    tr_columns_say_faults(columns, self->input, self->fault, &text);
    table_say_labels(self, trained, &text);
    if (text.text && !columns->has_header)
        tr_str_append(&text,
                      " The training table has no header: if this table has one, remove it.");
    const bool fits = !text.text;
    if (!fits) TR_FAIL(TR_ERR_DATA, "'%s':%s", self->file.path, text.text);
    for (size_t i = 0; fits && i < columns->input.count; i++) {
        const tr_cells_t *unknown = &self->fault[i].unknown;
        if (unknown->count == 0) continue;
        tr_str_printf(&text, "%s column %d ('%s') in %lld of %lld rows, first '%.*s' in line %lld",
                      text.text ? ";" : "", self->input[i] + 1, columns->input.data[i].name,
                      (long long)unknown->count, (long long)self->base.info.samples,
                      (int)tr_utf8_bytes(unknown->text, 60), unknown->text,
                      (long long)unknown->line);
    }
    if (fits && text.text)
        TR_WARN("'%s' has categories that the training rows lack:%s. The model knows nothing of "
                "them: they are read as no category",
                self->file.path, text.text);
    tr_str_free(&text);
    return fits ? TR_OK : TR_ERR_DATA;
}

/* -- the data set ------------------------------------------------------------------------------ */

static tr_status_t table_describe(table_t *self, const tr_preprocess_t *trained, bool inputs_only) {
    tr_dataset_info_t *info = &self->base.info;
    tr_field_t *x = &info->field[0], *y = &info->field[1];
    char shape[96];
    struct stat found;
    *x = (tr_field_t){.name = "x",
                      .dtype = TR_F32,
                      .shape = TR_SHAPE(self->width),
                      .sample_bytes = self->width * (int64_t)sizeof(float)};
    *y = (tr_field_t){.name = "y", .dtype = TR_F32};
    if (trained->classes > 0) {
        y->kind = TR_FIELD_LABELS;
        y->dtype = TR_I32;
        y->sample_bytes = sizeof(int32_t);
    } else {
        y->shape = TR_SHAPE((int64_t)self->target.count);
        y->sample_bytes = (int64_t)(self->target.count * sizeof(float));
    }
    info->field_count = inputs_only ? 1 : 2;
    info->classes = inputs_only ? 0 : trained->classes;
    info->columns = trained->columns;
    info->text_count = (int64_t)self->carried.count;
    info->text_name = (const char *const *)self->text_name.data;
    info->text = (const char *const *)self->text.data;
    info->fingerprint = tr_hash_name(self->file.path);
    if (stat(self->file.path, &found) == 0)
        info->fingerprint ^= (uint64_t)found.st_size * 0x9E3779B97F4A7C15u ^
                             (uint64_t)found.st_mtime * 1099511628211u;
    snprintf(info->description, sizeof info->description, "%.*s, x f32 %s, table",
             (int)tr_utf8_bytes(self->file.path, 150), self->file.path,
             tr_shape_format(&x->shape, shape));
    const tr_names_t *classes = &trained->names[TR_NAMES_CLASSES];
    tr_names_t *names = info->names;
    TR_TRY(tr_columns_names(&self->columns, &names[TR_NAMES_INPUTS]));
    names[TR_NAMES_INPUTS].from = self->file.path;
    if (inputs_only) return TR_OK;
    return tr_names_copy(classes, self->file.path, &names[TR_NAMES_CLASSES]);
}

static tr_status_t table_open_split(const tr_data_settings_t *settings, tr_split_t split,
                                    bool inputs_only, tr_dataset_t **out) {
    const char *const paths[] = {settings->train, settings->valid, settings->test};
    const tr_preprocess_t *trained = settings->trained;
    table_t *self = NULL;
    char **field;
    int count;
    tr_status_t status = TR_OK;
    if (!*paths[split]) return TR_OK;
    TR_TRY(tr_alloc(sizeof *self, "table", &self));
    self->file.path = paths[split];
    TR_TRY_GOTO(table_learn_columns(self, trained), fail);
    const tr_columns_t *c = &self->columns;
    self->file.delimiter = c->delimiter;
    self->file.decimal = c->decimal;
    self->file.is_fixed = true;
    for (size_t i = 0; i < c->input.count; i++) self->width += tr_column_width(&c->input.data[i]);
    if (!inputs_only && c->targets.count == 0)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_DATA,
                            "'%s': %s does not record which column is the label: `trainer import "
                            "csv` converts the table, and an HDF5 file can be evaluated.",
                            self->file.path, trained->origin),
                    fail);
    TR_TRY_GOTO(table_open_file(self, &field, &count), fail);
    TR_TRY_GOTO(table_find_columns(self, inputs_only), fail);
    TR_TRY_GOTO(tr_alloc(c->input.count * sizeof *self->fault, "columns", &self->fault), fail);
    TR_TRY_GOTO(
        tr_alloc(self->target.count * sizeof *self->label_fault, "columns", &self->label_fault),
        fail);
    if (c->has_header) TR_TRY_GOTO(tr_csv_row(self->file.csv, &field, &count), fail);
    while (count > 0) {
        TR_TRY_GOTO(table_add_row(self, trained, field, count), fail);
        TR_TRY_GOTO(tr_csv_row(self->file.csv, &field, &count), fail);
    }
    if (self->base.info.samples == 0)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_DATA, "'%s' has no rows.", self->file.path), fail);
    TR_TRY_GOTO(table_check(self, trained), fail);
    tr_csv_close(&self->file.csv);
    TR_TRY_GOTO(table_describe(self, trained, inputs_only), fail);
    *out = &self->base;
    return TR_OK;
fail:
    table_close(&self->base);
    return status;
}

static tr_status_t table_open_samples(const tr_data_settings_t *settings, tr_split_t split,
                                      tr_dataset_t **out) {
    return table_open_split(settings, split, false, out);
}

static tr_status_t table_open_inputs(const tr_data_settings_t *settings, tr_split_t split,
                                     tr_dataset_t **out) {
    return table_open_split(settings, split, true, out);
}

static tr_status_t table_read(tr_dataset_t *dataset, int64_t first, int64_t count,
                              void *const *dst) {
    const table_t *self = (const table_t *)dataset;
    const tr_field_t *field = dataset->info.field;
    const void *const from[] = {self->x.data, self->label.count ? (const void *)self->label.data
                                                                : (const void *)self->y.data};
    for (int f = 0; f < dataset->info.field_count; f++)
        if (dst[f])
            memcpy(dst[f], (const char *)from[f] + first * field[f].sample_bytes,
                   (size_t)(count * field[f].sample_bytes));
    return TR_OK;
}

const tr_dataset_ops_t tr_dataset_table_ops = {.name = "table",
                                               .help = "CSV files, for eval and predict",
                                               .open = table_open_samples,
                                               .open_inputs = table_open_inputs,
                                               .close = table_close,
                                               .read = table_read};
