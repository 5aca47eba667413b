/* Resizing images: a triangle filter along rows, then along columns. Its width is one pixel of the
 * result, or of the source if the image is enlarged. */
#include "image.h"
#include "base/mem.h"

#include <math.h>

/* The source pixels of a pixel of the result, and their weights. */
typedef struct {
    int64_t first, count;
    float *weight;
} span_t;

/* The spans of all `to` pixels of a line of `from` pixels; one allocation, freed by the caller. */
static tr_status_t resize_spans(int64_t from, int64_t to, span_t **out) {
    const double scale = (double)from / (double)to, reach = fmax(scale, 1);
    const size_t most = 2 * (size_t)ceil(reach) + 1;
    TR_TRY(tr_alloc((size_t)to * (sizeof **out + most * sizeof(float)), "a resize", out));
    float *weights = (float *)(*out + to);
    for (int64_t i = 0; i < to; i++, weights += most) {
        const double centre = ((double)i + 0.5) * scale;
        const int64_t first = (int64_t)fmax(0, floor(centre - reach + 0.5)),
                      last = (int64_t)fmin((double)from, floor(centre + reach + 0.5));
        double sum = 0;
        for (int64_t k = first; k < last; k++)
            sum += weights[k - first] = (float)fmax(0, 1 - fabs((double)k + 0.5 - centre) / reach);
        for (int64_t k = first; k < last; k++)
            weights[k - first] = (float)(weights[k - first] / sum);
        (*out)[i] = (span_t){first, last - first, weights};
    }
    return TR_OK;
}

/* Resizes one row of the source to the width of the result. */
static void resize_row(const uint8_t *row, const span_t *span, int64_t width, int channels,
                       float *out) {
    for (int64_t x = 0; x < width; x++)
        for (int c = 0; c < channels; c++) {
            const uint8_t *from = row + span[x].first * channels + c;
            float sum = 0;
            for (int64_t k = 0; k < span[x].count; k++)
                sum += span[x].weight[k] * (float)from[k * channels];
            out[x * channels + c] = sum;
        }
}

tr_status_t tr_image_resize(const tr_image_t *in, int64_t height, int64_t width, uint8_t *out) {
    const int64_t line = width * in->channels;
    span_t *across = NULL, *down = NULL;
    float *scaled = NULL;
    tr_status_t status;
    TR_TRY_GOTO(resize_spans(in->width, width, &across), done);
    TR_TRY_GOTO(resize_spans(in->height, height, &down), done);
    TR_TRY_GOTO(tr_alloc((size_t)(in->height * line) * sizeof *scaled, "a resize", &scaled), done);
    for (int64_t y = 0; y < in->height; y++)
        resize_row(in->pixels + y * in->width * in->channels, across, width, in->channels,
                   scaled + y * line);
    for (int64_t y = 0; y < height; y++)
        for (int64_t i = 0; i < line; i++) {
            float sum = 0;
            for (int64_t k = 0; k < down[y].count; k++)
                sum += down[y].weight[k] * scaled[(down[y].first + k) * line + i];
            out[y * line + i] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum + 0.5f);
        }
done:
    tr_free(&across);
    tr_free(&down);
    tr_free(&scaled);
    return status;
}
