/* HDF5 files with the usual names, types and layouts (hdf5_source.h lists the files of this
 * part). */
#include "hdf5_source.h"
#include "trainer/log.h"
#include <stdio.h>
#include <string.h>

#define CONVERT_BYTES (256 << 10)

typedef struct {
    tr_dataset_t base;
    h5_parts_t parts;
    h5_direct_t *direct; /* NULL: reads use the page cache */
    int32_t *label;      /* [samples]; NULL: y holds numbers */
    tr_label_values_t label_values;
    h5_label_notes_t notes;
    h5_dense_t dense; /* y of each position */
    char *columns; /* of an imported table; NULL: none */
    char **text;   /* [text_total]: info.text */
    int64_t text_total;
    const char *text_name[2];
    bool channels_first;                    /* in the file */
    bool converted;                         /* x of some part is converted during the read */
    int64_t channels, points, rows_at_once; /* rows that are converted together */
    h5_fill_t fill;                         /* of missing values; value NULL: not set yet */
    h5_pool_t *pool;
} hdf5_t;

/* Of a sample. */
static int64_t hdf5_elems_of(const tr_field_t *field) {
    return field->sample_bytes / (int64_t)tr_dtype_bytes(field->dtype);
}

/* -- scratch ----------------------------------------------------------------------------------- */

static tr_status_t hdf5_create_pool(hdf5_t *self, int count) {
    size_t rows = 0, converted = 0;
    for (int p = 0; p < self->parts.count; p++) {
        const h5_part_t *part = &self->parts.data[p];
        rows = (size_t)max64((int64_t)rows, self->rows_at_once * part->x.row_bytes);
        if (!part->has_y) continue;
        const int64_t most =
            max64(1, CONVERT_BYTES / part->y.row_bytes); /* that are read together */
        rows = (size_t)max64((int64_t)rows, most * part->y.row_bytes);
        if (part->has_mask)
            rows = (size_t)max64((int64_t)rows, most * (part->y.row_bytes + part->mask.row_bytes));
    }
    if (self->converted && self->channels_first)
        converted = (size_t)(self->rows_at_once * hdf5_elems_of(&self->base.info.field[0])) *
                    sizeof(double);
    if (self->dense.is_on) /* as many rows of y as fit */
        converted = (size_t)max64((int64_t)converted,
                                  max64(self->parts.data[0].y.row_elems, CONVERT_BYTES) *
                                      (int64_t)sizeof(double));
    return tr_h5_pool_create(&self->parts, count, rows, converted, &self->pool);
}

/* -- reading ----------------------------------------------------------------------------------- */

/* `at`: the element, from sample `first` on, that is not finite; -1: none. */
static tr_status_t hdf5_check_finite(const h5_part_t *part, const h5_array_t *array, int64_t first,
                                     int64_t at) {
    const int64_t per_sample = array->row_elems;
    if (at < 0) return TR_OK;
    const bool wide = array->dtype == TR_F64;
    const long long sample = first + at / per_sample;
    char whole[64] = "";
    if (part->first > 0)
        snprintf(whole, sizeof whole, " (%lld of the whole data set)", part->first + sample);
    return TR_FAIL(TR_ERR_DATA,
                   "%s: /%s: sample %lld%s holds NaN or infinity%s at element "
                   "%lld: correct or remove the sample.",
                   array->file->path, array->name, sample, whole,
                   wide ? ", or a number too large for a 32-bit float," : "",
                   (long long)(at % per_sample));
}

static bool hdf5_is_packed(const h5_packing_t *packing) {
    return packing->scales || packing->has_holes;
}

/* Converts stored rows to samples of type `as`. Missing values are NaN in doubles, which are for
 * statistics. *out_bad: the first element that is not finite; -1: none. */
static void hdf5_convert_rows(const hdf5_t *self, const h5_part_t *part, h5_scratch_t *s,
                              int64_t count, tr_dtype_t as, char *out, int64_t *out_bad) {
    const h5_array_t *x = &part->x;
    const size_t bytes = tr_dtype_bytes(as);
    const int64_t elems = count * x->row_elems, sample_bytes = x->row_elems * (int64_t)bytes;
    const bool packed = hdf5_is_packed(&part->x_packing);
    char *rows = s->rows;
    if (x->dtype != as || packed) {
        char *to = !self->channels_first ? out : x->dtype != as ? s->converted : s->rows;
        if (packed)
            *out_bad = tr_h5_unpack(&part->x_packing, x->dtype, rows, elems,
                                    as == TR_F64 || !self->fill.value ? NULL : &self->fill, as, to);
        else
            tr_convert(x->dtype, rows, elems, as, to);
        rows = to;
    }
    for (int64_t i = 0; self->channels_first && i < count; i++)
        tr_channels_last(rows + i * sample_bytes, self->channels, self->points, bytes,
                         out + i * sample_bytes);
    if (!packed) *out_bad = tr_find_not_finite(as, out, elems);
}

static tr_status_t hdf5_read_x(hdf5_t *self, const h5_part_t *part, h5_scratch_t *s, int64_t first,
                               int64_t count, tr_dtype_t as, char *out) {
    /* files may have different types */
    const bool convert =
        self->channels_first || part->x.dtype != as || hdf5_is_packed(&part->x_packing);
    for (int64_t row = first; row < first + count;) {
        int64_t rows = convert ? min64(self->rows_at_once, first + count - row) : count, bad;
        TR_TRY(tr_h5_read_rows(&part->x, s, row, rows, convert ? s->rows : out));
        if (convert)
            hdf5_convert_rows(self, part, s, rows, as, out, &bad);
        else
            bad = tr_find_not_finite(as, out, rows * part->x.row_elems);
        TR_TRY(hdf5_check_finite(part, &part->x, row, bad));
        out += rows * part->x.row_elems * (int64_t)tr_dtype_bytes(as);
        row += rows;
    }
    return TR_OK;
}

static tr_status_t hdf5_read_y(hdf5_t *self, const h5_part_t *part, h5_scratch_t *s, int64_t first,
                               int64_t count, tr_dtype_t as, char *out) {
    const h5_array_t *y = &part->y;
    if (self->label) {
        memcpy(out, self->label + part->first + first, (size_t)count * sizeof *self->label);
        return TR_OK;
    }
    for (int64_t row = first; row < first + count;) {
        int64_t rows = min64(max64(1, CONVERT_BYTES / y->row_bytes), first + count - row);
        int64_t bad;
        if (self->dense.is_on) {
            TR_TRY(tr_h5_dense_read(&self->dense, part, s, row, rows, as, out, &bad));
            TR_TRY(hdf5_check_finite(part, y, row, bad));
            out += rows * hdf5_elems_of(&self->base.info.field[1]) * (int64_t)tr_dtype_bytes(as);
            row += rows;
            continue;
        }
        TR_TRY(tr_h5_read_rows(y, s, row, rows, s->rows));
        if (hdf5_is_packed(&part->y_packing)) /* a missing value is NaN */
            (void)tr_h5_unpack(&part->y_packing, y->dtype, s->rows, rows * y->row_elems, NULL, as,
                               out);
        else
            tr_convert(y->dtype, s->rows, rows * y->row_elems, as, out);
        TR_TRY(hdf5_check_finite(part, y, row, tr_find_not_finite(as, out, rows * y->row_elems)));
        out += rows * y->row_elems * (int64_t)tr_dtype_bytes(as);
        row += rows;
    }
    return TR_OK;
}

/* Converts to x and y of these types; NULL: not requested. */
static tr_status_t hdf5_read_as(hdf5_t *self, int64_t first, int64_t count, tr_dtype_t x_type,
                                char *x, tr_dtype_t y_type, char *y) {
    const tr_field_t *field = self->base.info.field;
    while (count > 0) {
        h5_part_t *part;
        TR_TRY(tr_h5_part_at(&self->parts, first, &part));
        int64_t row = first - part->first, rows = min64(count, part->x.rows - row);
        h5_scratch_t *s = tr_h5_pool_take(self->pool, &part->x, row);
        tr_status_t status = x ? hdf5_read_x(self, part, s, row, rows, x_type, x) : TR_OK;
        if (status == TR_OK && y) status = hdf5_read_y(self, part, s, row, rows, y_type, y);
        tr_h5_pool_give(self->pool, s);
        TR_TRY(status);
        if (x) x += rows * hdf5_elems_of(&field[0]) * (int64_t)tr_dtype_bytes(x_type);
        if (y) y += rows * hdf5_elems_of(&field[1]) * (int64_t)tr_dtype_bytes(y_type);
        first += rows;
        count -= rows;
    }
    return TR_OK;
}

static tr_status_t hdf5_read(tr_dataset_t *dataset, int64_t first, int64_t count,
                             void *const *dst) {
    const tr_field_t *field = dataset->info.field;
    return hdf5_read_as((hdf5_t *)dataset, first, count, field[0].dtype, dst[0], field[1].dtype,
                        dataset->info.field_count > 1 ? dst[1] : NULL);
}

static tr_status_t hdf5_read_exact(tr_dataset_t *dataset, int field, int64_t first, int64_t count,
                                   double *dst) {
    return hdf5_read_as((hdf5_t *)dataset, first, count, TR_F64, field == 0 ? (char *)dst : NULL,
                        TR_F64, field == 1 ? (char *)dst : NULL);
}

static tr_status_t hdf5_fill(tr_dataset_t *dataset, const tr_floats_t *mean) {
    hdf5_t *self = (hdf5_t *)dataset;
    h5_fill_t *fill = &self->fill;
    tr_free(&fill->value);
    TR_TRY(tr_alloc((size_t)self->channels * sizeof *fill->value, "means", &fill->value));
    for (int64_t c = 0; c < self->channels && mean->count > 0; c++)
        fill->value[c] = (double)mean->data[mean->count == 1 ? 0 : c];
    fill->channels = self->channels;
    fill->run = self->channels_first ? self->points : 1;
    tr_h5_fill_round(dataset->info.field[0].dtype, self->channels, fill->value);
    return TR_OK;
}

static void hdf5_expect(tr_dataset_t *dataset, int64_t first, int64_t count) {
    tr_h5_parts_expect(&((hdf5_t *)dataset)->parts, first, count);
}

/* -- opening: what x is ------------------------------------------------------------------------ */

static bool hdf5_few_channels(int64_t channels, const int64_t *spatial, int count) {
    for (int i = 0; i < count; i++)
        if (channels >= spatial[i] ||
            (channels != 1 && channels != 3 && channels != 4 && channels * 4 > spatial[i]))
            return false;
    return true;
}

/* The dimension of a sample (in file order) with the channels: 0 none, 1 the last, -1 the first. */
static int hdf5_channels_at(const int64_t *dim, int ndim, int layout) {
    if (ndim == 1) return 1;
    if (layout == TR_LAYOUT_NHWC) return 1;
    if (layout == TR_LAYOUT_NCHW) return -1;
    if (layout == TR_LAYOUT_NHW || ndim == 2) return 0;
    if (hdf5_few_channels(dim[ndim - 1], dim, ndim - 1)) return 1;
    if (hdf5_few_channels(dim[0], dim + 1, ndim - 1)) return -1;
    return ndim == 3 && dim[0] == dim[1] && dim[1] == dim[2] ? 0 : 1; /* a cube is a volume */
}

static tr_status_t hdf5_describe_x(hdf5_t *self, const tr_data_settings_t *settings) {
    const h5_array_t *x = &self->parts.data[0].x;
    tr_field_t *field = &self->base.info.field[0];
    int ndim = x->ndim - 1, at = ndim ? hdf5_channels_at(x->dim + 1, ndim, settings->layout) : 0;
    int64_t dim[TR_MAX_DIMS + 1] = {0};
    memcpy(dim, x->dim + 1, (size_t)ndim * sizeof *dim);
    if (at < 0) {
        memmove(dim, dim + 1, (size_t)(ndim - 1) * sizeof *dim);
        dim[ndim - 1] = x->dim[1];
    } else if (at == 0) {
        dim[ndim++] = 1;
    }
    if (ndim > TR_MAX_DIMS - 1)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: /%s has %d dimensions per sample; at most three spatial dimensions and "
                       "one for channels are supported.",
                       self->parts.data[0].file.path, x->name, x->ndim - 1);
    snprintf(field->name, sizeof field->name, "x");
    field->dtype = tr_h5_part_travels_as(self->parts.data);
    field->shape.ndim = ndim;
    memcpy(field->shape.dim, dim, (size_t)ndim * sizeof *dim);
    field->sample_bytes = x->row_elems * (int64_t)tr_dtype_bytes(field->dtype);
    self->base.info.is_image_guessed = x->ndim == 3 && settings->layout == TR_LAYOUT_AUTO;
    self->channels = dim[ndim - 1];
    self->points = x->row_elems / self->channels;
    self->channels_first = at < 0 && self->channels > 1 && self->points > 1;
    self->converted = self->channels_first;
    int64_t widest = field->sample_bytes;
    for (int p = 0; p < self->parts.count; p++) {
        const h5_part_t *part = &self->parts.data[p];
        const bool packed = hdf5_is_packed(&part->x_packing);
        self->converted |= part->x.dtype != field->dtype || packed;
        self->base.info.is_rounded[0] |= tr_h5_rounds(part->x.dtype, field->dtype) || packed;
        self->base.info.has_missing |= part->x_packing.has_holes;
        widest = max64(widest, part->x.row_bytes);
    }
    self->rows_at_once = self->converted ? max64(1, CONVERT_BYTES / widest) : 0;
    return TR_OK;
}

/* -- opening: the whole ------------------------------------------------------------------------ */

static void hdf5_close(tr_dataset_t *dataset) {
    hdf5_t *self = (hdf5_t *)dataset;
    tr_h5_direct_close(&self->direct);
    tr_h5_lock();
    tr_h5_parts_close(&self->parts);
    tr_h5_unlock();
    tr_h5_pool_destroy(&self->pool);
    for (int list = 0; list < TR_NAMES_LISTS; list++) tr_names_free(&dataset->info.names[list]);
    tr_vec_free(&dataset->info.mean);
    tr_vec_free(&dataset->info.std);
    tr_free(&self->label);
    tr_free(&self->notes.count);
    tr_free(&self->columns);
    tr_free(&self->fill.value);
    for (int64_t i = 0; i < self->text_total; i++) tr_free(&self->text[i]);
    tr_free(&self->text);
    tr_free(&self);
}

static tr_status_t hdf5_describe_y(hdf5_t *self, const tr_data_settings_t *settings) {
    tr_dataset_info_t *info = &self->base.info;
    tr_field_t *field = &info->field[1];
    const h5_array_t *y = &self->parts.data[0].y;
    info->field_count = 1 + self->parts.data[0].has_y;
    if (!self->parts.data[0].has_y) return TR_OK;
    tr_h5_lock();
    int64_t classes =
        settings->classes >= 0 ? settings->classes : tr_h5_attribute_classes(self->parts.data);
    tr_h5_unlock();
    if (self->label_values.count > 0 && settings->classes != 0) classes = self->label_values.count;
    info->is_regression = classes == 0;
    h5_scratch_t *scratch = tr_h5_pool_take(self->pool, y, 0);
    tr_status_t status =
        self->dense.is_on
            ? tr_h5_dense_scan(&self->dense, &self->parts, classes, scratch, &self->notes, info)
            : tr_h5_labels(&self->parts, classes, &self->label_values, scratch, &self->label,
                           &self->notes, info);
    tr_h5_pool_give(self->pool, scratch);
    TR_TRY(status);
    snprintf(field->name, sizeof field->name, "y");
    info->is_dense = self->dense.is_on;
    if (self->dense.are_labels) {
        field->kind = TR_FIELD_LABELS;
        field->dtype = TR_I32;
        field->shape = info->field[0].shape;
        field->shape.ndim--;
        field->sample_bytes = self->dense.points * 4;
        return TR_OK;
    }
    if (self->label) {
        field->kind = TR_FIELD_LABELS;
        field->dtype = TR_I32;
        field->sample_bytes = 4;
        return TR_OK;
    }
    field->dtype = TR_F32;
    field->shape.ndim = y->ndim > 1 ? y->ndim - 1 : 1;
    field->shape.dim[0] = 1;
    for (int d = 1; d < y->ndim; d++) field->shape.dim[d - 1] = y->dim[d];
    if (self->dense.is_on) {
        field->shape = info->field[0].shape;
        field->shape.dim[field->shape.ndim - 1] = self->dense.channels;
    }
    field->sample_bytes = y->row_elems * 4;
    for (int p = 0; p < self->parts.count; p++)
        info->is_rounded[1] |= tr_h5_rounds(self->parts.data[p].y.dtype, TR_F32) ||
                               self->parts.data[p].y_packing.scales;
    return TR_OK;
}

static void hdf5_describe(hdf5_t *self) {
    tr_dataset_info_t *info = &self->base.info;
    const h5_part_t *part = &self->parts.data[0];
    const char *path = part->file.path, *name = part->names->x;
    char shape[96], more[32] = "";
    const int others = self->parts.count + self->parts.late_count - 1;
    if (others > 0) snprintf(more, sizeof more, " and %d more", others);
    snprintf(info->description, sizeof info->description, "%.*s%s:/%.*s, x %s %.40s %.50s, %s%s",
             (int)tr_utf8_bytes(path, 70), path, more, (int)tr_utf8_bytes(name, 50), name,
             tr_dtype_name(part->x.dtype), tr_shape_format(&info->field[0].shape, shape),
             part->x.storage, tr_h5_way_text(&part->x),
             part->file.direct ? " with direct I/O" : "");
    info->read_unit = tr_h5_parts_read_unit(&self->parts);
}

/* Once, for the training data; `trainer data` reports the rest. */
static tr_status_t hdf5_warn(const hdf5_t *self, const tr_data_settings_t *settings) {
    const h5_array_t *x = &self->parts.data[0].x;
    char sentence[H5_SENTENCE_BYTES], text[512];
    int64_t block = settings->block > 0
                        ? settings->block
                        : max64(self->base.info.read_unit, max64(1, (256 << 10) / x->row_bytes));
    if (tr_h5_costly(x, min64(block, max64(1, x->rows)), sentence)) TR_WARN("%s", sentence);
    if (self->base.info.field_count == 1 && tr_h5_labels_are_text(self->parts.data[0].names, text))
        TR_WARN("%s: %s", self->parts.data[0].file.path, text);
    tr_h5_lock();
    const tr_status_t status =
        tr_h5_doubtful_moments(&self->parts, self->channels, settings, sentence);
    tr_h5_unlock();
    if (status == TR_OK && *sentence) TR_WARN("%s", sentence);
    return status;
}

/* Joined files must have the same names; the longest list is kept. If labels are not read, the
 * session compares their names. Requires the lock. */
static tr_status_t hdf5_add_names(tr_dataset_info_t *info, const h5_part_t *part,
                                  bool inputs_only) {
    for (int list = 0; list < TR_NAMES_LISTS; list++) {
        const bool of_classes = list == TR_NAMES_CLASSES;
        tr_names_t found = {0}, *names = &info->names[list];
        if (of_classes && info->classes == 0 && !inputs_only) continue;
        tr_status_t status = tr_h5_names(part, list, &found);
        if (status == TR_OK && !(of_classes && inputs_only))
            status = tr_names_check(list, names, &found);
        if (status == TR_OK && found.count > names->count) {
            const tr_names_t shorter = *names;
            *names = found;
            found = shorter;
        }
        tr_names_free(&found);
        TR_TRY(status);
    }
    return TR_OK;
}

static tr_status_t hdf5_add_all_names(hdf5_t *self, bool inputs_only) {
    for (int p = 0; p < self->parts.count; p++) {
        h5_part_t *part = &self->parts.data[p];
        if (!part->has_meta) continue;
        TR_TRY(tr_h5_part_wake(part));
        const tr_status_t status = hdf5_add_names(&self->base.info, part, inputs_only);
        if (p > 0) tr_h5_part_rest(&self->parts, part);
        TR_TRY(status);
    }
    const bool are_values = inputs_only || self->base.info.classes == self->label_values.count;
    return are_values ? tr_label_values_name(&self->label_values, self->parts.data->file.path,
                                             &self->base.info.names[TR_NAMES_CLASSES])
                      : TR_OK;
}

/* The ids of a table and the files of images, as `import` writes them, for predictions. Requires
 * the lock, and that no file is late. */
static tr_status_t hdf5_read_texts(hdf5_t *self) {
    static const char *const usual[] = {"id", "file"};
    tr_dataset_info_t *info = &self->base.info;
    int64_t count = 0;
    for (size_t i = 0; i < TR_COUNT(usual); i++) {
        bool in_all = true;
        for (int p = 0; p < self->parts.count && in_all; p++) {
            TR_TRY(tr_h5_part_wake(&self->parts.data[p]));
            in_all = tr_h5_has_texts(&self->parts.data[p], usual[i]);
            if (p > 0) tr_h5_part_rest(&self->parts, &self->parts.data[p]);
        }
        if (in_all) self->text_name[count++] = usual[i];
    }
    if (count == 0) return TR_OK;
    TR_TRY(tr_alloc((size_t)(info->samples * count) * sizeof *self->text, "texts", &self->text));
    self->text_total = info->samples * count;
    for (int64_t c = 0; c < count; c++)
        for (int p = 0; p < self->parts.count; p++) {
            h5_part_t *part = &self->parts.data[p];
            TR_TRY(tr_h5_part_wake(part));
            TR_TRY(tr_h5_read_texts(part, self->text_name[c], count,
                                    self->text + part->first * count + c));
            if (p > 0) tr_h5_part_rest(&self->parts, part);
        }
    info->text_count = count;
    info->text_name = self->text_name;
    info->text = (const char *const *)self->text;
    return TR_OK;
}

static tr_status_t hdf5_set_up(hdf5_t *self, const tr_data_settings_t *settings, tr_split_t split,
                               bool inputs_only) {
    self->base.info.samples = tr_h5_parts_samples(&self->parts);
    self->base.info.is_file_each = settings->sample == TR_SAMPLE_FILE;
    TR_TRY(hdf5_describe_x(self, settings));
    TR_TRY(tr_label_values_read(settings, &self->label_values));
    TR_TRY(tr_h5_dense_find(&self->parts, settings, &self->base.info.field[0], self->channels_first,
                            &self->label_values, &self->dense));
    self->dense.is_training = split == TR_SPLIT_TRAIN;
    TR_TRY(hdf5_create_pool(self, tr_h5_pool_size(settings)));
    TR_TRY(hdf5_describe_y(self, settings));
    tr_h5_lock();
    tr_status_t status = tr_h5_moments(self->parts.data, self->channels, &self->base.info);
    if (status == TR_OK) status = tr_h5_attribute_text(self->parts.data, "columns", &self->columns);
    if (status == TR_OK && inputs_only && !self->parts.late_count) status = hdf5_read_texts(self);
    if (status == TR_OK) status = hdf5_add_all_names(self, inputs_only);
    tr_h5_unlock();
    TR_TRY(status);
    self->base.info.columns = self->columns;
    TR_TRY(tr_h5_parts_open_direct(&self->parts, settings, &self->direct));
    self->base.info.fingerprint = tr_h5_parts_fingerprint(&self->parts);
    hdf5_describe(self);
    if (split == TR_SPLIT_TRAIN && !settings->is_again) TR_TRY(hdf5_warn(self, settings));
    tr_h5_lock();
    tr_h5_part_rest(&self->parts, self->parts.data);
    tr_h5_unlock();
    return TR_OK;
}

/* Prediction reads a file, not a split: for a file with several splits, the log says which one is
 * used. */
static void hdf5_say_choice(const hdf5_t *self, const h5_source_t *source) {
    const h5_part_t *part = self->parts.data;
    if (source->wanted.inputs_only && !source->group[0] && part->names->scope[0])
        TR_INFO("the inputs are /%s of %s; FILE:GROUP selects another group", part->names->x,
                part->file.path);
}

static tr_status_t hdf5_open_source(const tr_data_settings_t *settings, tr_split_t split,
                                    bool inputs_only, tr_dataset_t **out) {
    hdf5_t *self = NULL;
    h5_source_t source;
    TR_TRY(tr_h5_source_parse(settings, split, &source));
    source.wanted.inputs_only = inputs_only;
    if (inputs_only) source.wanted.key = "the input of predict"; /* named without a key */
    if (!source.pattern[0]) return TR_OK;
    TR_TRY(tr_alloc(sizeof *self, "HDF5 data set", &self));
    tr_h5_lock();
    tr_status_t status = tr_h5_parts_open(&source, &self->parts);
    tr_h5_unlock();
    if (status == TR_OK && self->parts.count && self->parts.data[0].names->is_tokens) {
        status = tr_tokens_open(&self->parts, settings, out); /* takes them over */
        hdf5_close(&self->base);
        return status;
    }
    if (status == TR_OK && self->parts.count)
        status = hdf5_set_up(self, settings, split, inputs_only);
    if (status == TR_OK && self->parts.count) hdf5_say_choice(self, &source);
    if (status != TR_OK || !self->parts.count) {
        hdf5_close(&self->base);
        return status;
    }
    *out = &self->base;
    return TR_OK;
}

static tr_status_t hdf5_open(const tr_data_settings_t *settings, tr_split_t split,
                             tr_dataset_t **out) {
    return hdf5_open_source(settings, split, false, out);
}

static tr_status_t hdf5_open_inputs(const tr_data_settings_t *settings, tr_split_t split,
                                    tr_dataset_t **out) {
    return hdf5_open_source(settings, split, true, out);
}

const tr_dataset_ops_t tr_dataset_hdf5_ops = {.name = "hdf5",
                                              .help = "HDF5 files",
                                              .open = hdf5_open,
                                              .open_inputs = hdf5_open_inputs,
                                              .close = hdf5_close,
                                              .read = hdf5_read,
                                              .expect = hdf5_expect,
                                              .read_exact = hdf5_read_exact,
                                              .set_fill = hdf5_fill};
