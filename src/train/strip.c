/* Makes pictures of samples of the validation data. */
#include "strip.h"
#include "base/json_text.h"
#include "base/mem.h"
#include "base/stats.h"
#include "data/images/image.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 4, SIDE = 128 /* of a picture, at most */ };

struct tr_strip {
    tr_session_t *s;
    const tr_field_t *x, *y;
    int x_field, y_field;
    int64_t points, slice; /* positions of a sample; the first one that is shown */
    int64_t height, width; /* of what is shown */
    int64_t channels;      /* of the output */
    int64_t step;          /* of the positions of numbers that are taken, in each dimension */
    bool are_classes, has_unlabelled;
    float *output, *row,
        *shown;              /* the slice of an output; a row and the shown channels of x or y */
    tr_image_t taken, small; /* of bytes: the positions that are taken, and the picture */
    json_t *samples;
};

static int64_t strip_scaled(int64_t length, int64_t side, int64_t longest) {
    return length * side / longest > 0 ? length * side / longest : 1;
}

tr_status_t tr_strip_create(tr_session_t *s, tr_strip_t **out) {
    const int x = tr_field_find(&s->info, "x"), y = tr_field_find(&s->info, "y");
    const int positions = x >= 0 ? s->info.field[x].shape.ndim - 1 : 0;
    tr_strip_t *p = NULL;
    *out = NULL;
    if (y < 0 || !s->info.is_dense || positions < 2 || positions > 3 || !tr_png_is_here())
        return TR_OK;
    TR_TRY(tr_alloc(sizeof *p, "pictures of samples", &p));
    *out = p;
    *p = (tr_strip_t){.s = s,
                      .x = &s->info.field[x],
                      .y = &s->info.field[y],
                      .x_field = x,
                      .y_field = y,
                      .are_classes = s->info.classes > 0,
                      .samples = json_array()};
    const int64_t *dim = p->x->shape.dim;
    const tr_shape_t *output = tr_shape_of(s->g, s->result.output);
    p->height = dim[positions - 2];
    p->width = dim[positions - 1];
    p->points = p->height * p->width * (positions == 3 ? dim[0] : 1);
    p->slice = positions == 3 ? dim[0] / 2 * p->height * p->width : 0;
    p->channels = output->dim[output->ndim - 1];
    const int64_t longest = p->height > p->width ? p->height : p->width,
                  side = longest < SIDE ? longest : SIDE,
                  widest = p->channels > dim[positions] ? p->channels : dim[positions];
    p->step = longest > 2 * SIDE ? longest / (2 * SIDE) : 1;
    const int64_t rows = (p->height + p->step - 1) / p->step,
                  columns = (p->width + p->step - 1) / p->step, pixels = p->height * p->width;
    TR_TRY(tr_alloc((size_t)(pixels * p->channels) * sizeof *p->output, "outputs", &p->output));
    TR_TRY(tr_alloc((size_t)(p->width * widest) * sizeof *p->row, "a row", &p->row));
    TR_TRY(tr_alloc((size_t)(3 * rows * columns) * sizeof *p->shown, "a picture", &p->shown));
    TR_TRY(tr_image_make("a sample", rows, columns, 3, false, &p->taken));
    return tr_image_make("a sample", strip_scaled(p->height, side, longest),
                         strip_scaled(p->width, side, longest), 3, false, &p->small);
}

void tr_strip_destroy(tr_strip_t **strip) {
    tr_strip_t *p = *strip;
    if (!p) return;
    tr_free(&p->output);
    tr_free(&p->row);
    tr_free(&p->shown);
    tr_image_free(&p->taken);
    tr_image_free(&p->small);
    json_decref(p->samples);
    tr_free(strip);
}

/* -- pictures ---------------------------------------------------------------------------------- */

/* RFC 4648. */
static void strip_base64(const uint8_t *bytes, size_t count, tr_str_t *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        const size_t left = count - i;
        const uint32_t three = (uint32_t)bytes[i] << 16 |
                               (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (left > 2 ? bytes[i + 2] : 0);
        const char four[] = {digits[three >> 18], digits[three >> 12 & 63],
                             left > 1 ? digits[three >> 6 & 63] : '=',
                             left > 2 ? digits[three & 63] : '='};
        tr_str_append_bytes(out, four, sizeof four);
    }
}

/* Adds p->small to the sample. */
static tr_status_t strip_add_picture(tr_strip_t *p, bool are_classes, const char *key,
                                     json_t *sample) {
    tr_str_t png = {0}, text = {0};
    tr_status_t status = tr_png_write(&p->small, are_classes, NULL, &png);
    if (status == TR_OK) strip_base64((const uint8_t *)png.text, png.length, &text);
    if (status == TR_OK) status = text.status;
    if (status == TR_OK) json_object_set_new(sample, key, json_stringn(text.text, text.length));
    tr_str_free(&png);
    tr_str_free(&text);
    return status;
}

/* The channels of numbers that are shown: three as RGB, else the first as grey. */
static int strip_shown_channels(int64_t channels) {
    return channels == 3 ? 3 : 1;
}

/* Takes the shown channels of a slice to p->shown. */
static void strip_take_numbers(tr_strip_t *p, tr_dtype_t dtype, const void *slice,
                               int64_t channels) {
    const int shown = strip_shown_channels(channels);
    const size_t row_bytes = (size_t)(p->width * channels) * tr_dtype_bytes(dtype);
    const char *from = slice;
    float *to = p->shown;
    for (int64_t h = 0; h < p->height; h += p->step, from += row_bytes * (size_t)p->step) {
        tr_convert(dtype, from, p->width * channels, TR_F32, p->row);
        for (int64_t w = 0; w < p->width; w += p->step)
            for (int c = 0; c < shown; c++) *to++ = p->row[w * channels + c];
    }
}

typedef struct {
    float black, white;
} strip_scale_t;

/* From the least to the largest number of p->shown that is known. */
static strip_scale_t strip_find_scale(const tr_strip_t *p, int64_t channels) {
    const int64_t count = p->taken.height * p->taken.width * strip_shown_channels(channels);
    strip_scale_t scale = {NAN, NAN};
    for (int64_t i = 0; i < count; i++) {
        scale.black = fminf(scale.black, p->shown[i]);
        scale.white = fmaxf(scale.white, p->shown[i]);
    }
    if (scale.black < scale.white) return scale;
    const float only = isnan(scale.black) ? 0 : scale.black;
    return (strip_scale_t){only, only + 1};
}

/* Gives the positions of p->small whose numbers are not known the colour of TR_VALUE_NONE. */
static void strip_paint_unknown(tr_strip_t *p, int shown) {
    uint8_t rgb[3], *to = p->small.pixels;
    tr_class_colour(TR_VALUE_NONE, rgb);
    for (int64_t h = 0; h < p->small.height; h++)
        for (int64_t w = 0; w < p->small.width; w++, to += 3) {
            const float *number =
                p->shown + (h * p->taken.height / p->small.height * p->taken.width +
                            w * p->taken.width / p->small.width) *
                               shown;
            if (isnan(number[0]) || isnan(number[shown / 2]) || isnan(number[shown - 1]))
                memcpy(to, rgb, sizeof rgb);
        }
}

/* Numbers of p->shown as a picture, in colour if some of them are NaN. */
static tr_status_t strip_add_numbers(tr_strip_t *p, int64_t channels, strip_scale_t scale,
                                     const char *key, json_t *sample) {
    const int shown = strip_shown_channels(channels);
    const int64_t pixels = p->taken.height * p->taken.width;
    bool has_unknown = false;
    for (int64_t i = 0; i < pixels * shown; i++) has_unknown |= isnan(p->shown[i]) != 0;
    p->has_unlabelled |= has_unknown;
    p->taken.channels = p->small.channels = has_unknown ? 3 : shown;
    const int64_t count = pixels * p->taken.channels;
    for (int64_t i = 0; i < count; i++) {
        const float number = p->shown[i * shown / p->taken.channels];
        const float at = 255 * (number - scale.black) / (scale.white - scale.black);
        p->taken.pixels[i] = (uint8_t)(fminf(255, fmaxf(0, at)) + 0.5f);
    }
    if (p->small.height < p->taken.height || p->small.width < p->taken.width)
        TR_TRY(tr_image_resize(&p->taken, p->small.height, p->small.width, p->small.pixels));
    else
        memcpy(p->small.pixels, p->taken.pixels, (size_t)count);
    if (has_unknown) strip_paint_unknown(p, shown);
    return strip_add_picture(p, false, key, sample);
}

/* Labels of a slice, or where they are NULL the classes of p->output. */
static tr_status_t strip_add_classes(tr_strip_t *p, const int32_t *label, const char *key,
                                     json_t *sample) {
    uint8_t *to = p->small.pixels;
    p->small.channels = 1;
    for (int64_t h = 0; h < p->small.height; h++)
        for (int64_t w = 0; w < p->small.width; w++) {
            const int64_t at =
                h * p->height / p->small.height * p->width + w * p->width / p->small.width;
            const int32_t class =
                label ? label[at] : (int32_t)tr_class_of(p->output + at * p->channels, p->channels);
            p->has_unlabelled = p->has_unlabelled || class < 0;
            *to++ = class < 0 ? TR_CLASS_NONE : (uint8_t)(class % TR_CLASS_NONE);
        }
    return strip_add_picture(p, true, key, sample);
}

/* -- samples ----------------------------------------------------------------------------------- */

static tr_status_t strip_add_sample(tr_strip_t *p, const tr_batch_t *batch, int64_t i,
                                    json_t *sample) {
    const int64_t x_channels = p->x->shape.dim[p->x->shape.ndim - 1];
    const char *x = (const char *)batch->field[p->x_field] +
                    (i * p->points + p->slice) * x_channels * (int64_t)tr_dtype_bytes(p->x->dtype),
               *y = (const char *)batch->field[p->y_field] + i * p->y->sample_bytes;
    strip_take_numbers(p, p->x->dtype, x, x_channels);
    const bool is_picture = p->x->dtype == TR_U8 && (x_channels == 1 || x_channels == 3);
    TR_TRY(strip_add_numbers(p, x_channels,
                             is_picture ? (strip_scale_t){0, 255} : strip_find_scale(p, x_channels),
                             "input", sample));
    TR_TRY(tr_tensor_read_part(p->s->g, p->s->result.output,
                               (i * p->points + p->slice) * p->channels,
                               p->height * p->width * p->channels, p->output));
    if (p->are_classes) {
        TR_TRY(strip_add_classes(p, (const int32_t *)(const void *)y + p->slice, "target", sample));
        return strip_add_classes(p, NULL, "prediction", sample);
    }
    strip_take_numbers(p, TR_F32, (const float *)(const void *)y + p->slice * p->channels,
                       p->channels);
    const strip_scale_t scale = strip_find_scale(p, p->channels);
    json_object_set_new(sample, "black", tr_json_finite((double)scale.black));
    json_object_set_new(sample, "white", tr_json_finite((double)scale.white));
    TR_TRY(strip_add_numbers(p, p->channels, scale, "target", sample));
    strip_take_numbers(p, TR_F32, p->output, p->channels);
    return strip_add_numbers(p, p->channels, scale, "prediction", sample);
}

static tr_status_t strip_add_batch(void *self, tr_session_t *s, const tr_batch_t *batch) {
    tr_strip_t *p = self;
    for (int64_t i = 0; i < batch->valid && json_array_size(p->samples) < SAMPLES; i++) {
        json_t *sample = json_pack("{s:I}", "sample", (json_int_t)batch->sample_id[i]);
        const tr_status_t status = strip_add_sample(p, batch, i, sample);
        json_array_append_new(p->samples, sample);
        TR_TRY(status);
    }
    return TR_OK;
}

tr_eval_each_t tr_strip_begin(tr_strip_t *p) {
    const int64_t micro = p->s->order.micro_batch;
    json_array_clear(p->samples);
    p->has_unlabelled = false;
    return (tr_eval_each_t){strip_add_batch, p, (SAMPLES + micro - 1) / micro};
}

tr_status_t tr_strip_text(const tr_strip_t *p, int64_t step, char **out) {
    const char *const *names = tr_class_names(&p->s->info);
    json_t *o =
        json_pack("{s:I, s:O, s:I, s:b}", "step", (json_int_t)step, "samples", p->samples,
                  "classes", (json_int_t)p->s->info.classes, "unlabelled", p->has_unlabelled);
    json_t *list = names ? json_array() : NULL;
    for (int64_t c = 0; list && c < p->s->info.classes; c++)
        if (json_array_append_new(list, json_string(names[c])) != 0) /* not UTF-8 */
            json_array_append_new(list, json_string("?"));
    if (list) json_object_set_new(o, "class_names", list);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (text) tr_json_shorten(text);
    const tr_status_t status =
        text ? tr_strdup(text, out)
             : TR_FAIL(TR_ERR_MEMORY, "not enough memory for %s", TR_STRIP_FILE);
    free(text);
    return status;
}
