/* Convolutions of one to three spatial dimensions, as products with gathered patches. Dense order: N, C, spatial. */
#include "dnn_int.h"
#include <stdlib.h>

/* Spatial extents with leading ones, so that three loops do for all. */
typedef struct {
    int64_t n, groups, c, k; /* c, k: channels of one group */
    int64_t in[3], kernel[3], out[3], pre[3], step[3], dilation[3];
    int64_t in_size, kernel_size, out_size, patch; /* patch: c * kernel_size */
} geometry_t;

static geometry_t geometry(const op_t *op, const dense_t *x, const dense_t *w, const dense_t *y) {
    geometry_t g = {.n = x->dim[0], .groups = x->dim[1] / w->dim[1], .c = w->dim[1], .in_size = 1, .kernel_size = 1, .out_size = 1};
    const int lead = 3 - op->spatial;
    g.k = w->dim[0] / g.groups;
    for (int i = 0; i < 3; i++) {
        const bool real = i >= lead;
        const int d = i - lead;
        g.in[i] = real ? x->dim[2 + d] : 1, g.kernel[i] = real ? w->dim[2 + d] : 1, g.out[i] = real ? y->dim[2 + d] : 1;
        g.pre[i] = real ? op->pre[d] : 0, g.step[i] = real ? op->step[d] : 1, g.dilation[i] = real ? op->dilation[d] : 1;
        g.in_size *= g.in[i], g.kernel_size *= g.kernel[i], g.out_size *= g.out[i];
    }
    g.patch = g.c * g.kernel_size;
    return g;
}

/* Goes through one channel of one image: patches[(kernel place) * along + (output place) * across] <-> image. */
static void patches(const geometry_t *g, float *image, float *matrix, int64_t along, int64_t across, bool gather) {
    for (int64_t q = 0; q < g->kernel_size; q++) {
        const int64_t kd = q / (g->kernel[1] * g->kernel[2]), kh = q / g->kernel[2] % g->kernel[1], kw = q % g->kernel[2];
        int64_t o = 0;
        for (int64_t d = 0; d < g->out[0]; d++)
            for (int64_t h = 0; h < g->out[1]; h++)
                for (int64_t w = 0; w < g->out[2]; w++, o++) {
                    const int64_t id = d * g->step[0] - g->pre[0] + kd * g->dilation[0];
                    const int64_t ih = h * g->step[1] - g->pre[1] + kh * g->dilation[1];
                    const int64_t iw = w * g->step[2] - g->pre[2] + kw * g->dilation[2];
                    const bool inside = id >= 0 && id < g->in[0] && ih >= 0 && ih < g->in[1] && iw >= 0 && iw < g->in[2];
                    float *element = &matrix[q * along + o * across];
                    const int64_t at = (id * g->in[1] + ih) * g->in[2] + iw;
                    if (gather) *element = inside ? image[at] : 0;
                    else if (inside) image[at] += *element;
                }
    }
}

/* Images are taken several at a time, so that products are wide. */
static int64_t images_at_once(const geometry_t *g) {
    const int64_t wanted = (512 + g->out_size - 1) / g->out_size;
    return wanted < g->n ? wanted : g->n;
}

typedef struct {
    const geometry_t *g;
    int64_t image, images, group;
} part_t;

static int64_t x_place(const part_t *p, int64_t image, int64_t c) {
    return ((p->image + image) * p->g->groups * p->g->c + p->group * p->g->c + c) * p->g->in_size;
}
static int64_t y_place(const part_t *p, int64_t image, int64_t k) {
    return ((p->image + image) * p->g->groups * p->g->k + p->group * p->g->k + k) * p->g->out_size;
}
/* matrix (k, images * out) <-> y */
static void rows_of_y(const part_t *p, float *matrix, float *y, bool read, float scale) {
    const geometry_t *g = p->g;
    for (int64_t k = 0; k < g->k; k++)
        for (int64_t i = 0; i < p->images; i++)
            for (int64_t o = 0; o < g->out_size; o++) {
                float *element = &matrix[(k * p->images + i) * g->out_size + o];
                if (read) *element = y[y_place(p, i, k) + o];
                else y[y_place(p, i, k) + o] += scale * *element;
            }
}

static void forward(const part_t *p, float *x, const float *w, float *y, float alpha) {
    const geometry_t *g = p->g;
    const int64_t width = p->images * g->out_size;
    float *cols = malloc((size_t)(g->patch * width) * sizeof *cols), *sums = calloc((size_t)(g->k * width), sizeof *sums);
    for (int64_t i = 0; i < p->images; i++)
        for (int64_t c = 0; c < g->c; c++)
            patches(g, x + x_place(p, i, c), cols + c * g->kernel_size * width + i * g->out_size, width, 1, true);
    num_gemm(g->k, width, g->patch, w + p->group * g->k * g->patch, cols, sums);
    rows_of_y(p, sums, y, false, alpha);
    free(cols);
    free(sums);
}

static void backward_data(const part_t *p, float *dx, const float *w, float *dy, float alpha) {
    const geometry_t *g = p->g;
    const int64_t width = p->images * g->out_size;
    float *cols = calloc((size_t)(g->patch * width), sizeof *cols), *rows = malloc((size_t)(g->k * width) * sizeof *rows);
    float *turned = malloc((size_t)(g->patch * g->k) * sizeof *turned); /* w of this group, (patch, k) */
    for (int64_t k = 0; k < g->k; k++)
        for (int64_t q = 0; q < g->patch; q++) turned[q * g->k + k] = alpha * w[(p->group * g->k + k) * g->patch + q];
    rows_of_y(p, rows, dy, true, 1);
    num_gemm(g->patch, width, g->k, turned, rows, cols);
    for (int64_t i = 0; i < p->images; i++)
        for (int64_t c = 0; c < g->c; c++)
            patches(g, dx + x_place(p, i, c), cols + c * g->kernel_size * width + i * g->out_size, width, 1, false);
    free(cols);
    free(rows);
    free(turned);
}

static void backward_filter(const part_t *p, float *x, float *dw, float *dy, float alpha) {
    const geometry_t *g = p->g;
    const int64_t width = p->images * g->out_size;
    float *cols = malloc((size_t)(g->patch * width) * sizeof *cols), *rows = malloc((size_t)(g->k * width) * sizeof *rows);
    for (int64_t i = 0; i < p->images; i++)
        for (int64_t c = 0; c < g->c; c++)
            patches(g, x + x_place(p, i, c), cols + i * g->out_size * g->patch + c * g->kernel_size, 1, g->patch, true);
    rows_of_y(p, rows, dy, true, 1);
    for (int64_t i = 0; alpha != 1 && i < g->k * width; i++) rows[i] *= alpha;
    num_gemm(g->k, g->patch, width, rows, cols, dw + p->group * g->k * g->patch);
    free(cols);
    free(rows);
}

void run_convolution(const op_t *op, const dense_t *const in[], dense_t *const out[]) {
    const bool data = op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const bool filter = op->kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    const dense_t *x = data ? out[0] : in[0], *w = filter ? out[0] : in[1], *y = data ? in[0] : filter ? in[1] : out[0];
    const geometry_t g = geometry(op, x, w, y);
    const int64_t at_once = images_at_once(&g);
    for (int64_t i = 0; i < out[0]->count; i++) out[0]->data[i] *= (float)op->beta;
    for (int64_t group = 0; group < g.groups; group++)
        for (int64_t image = 0; image < g.n; image += at_once) {
            const part_t part = {&g, image, g.n - image < at_once ? g.n - image : at_once, group};
            if (data) backward_data(&part, x->data, w->data, y->data, (float)op->alpha);
            else if (filter) backward_filter(&part, x->data, w->data, y->data, (float)op->alpha);
            else forward(&part, x->data, w->data, y->data, (float)op->alpha);
        }
}
