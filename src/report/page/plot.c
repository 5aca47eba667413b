/* Takes the numbers of plots from tables. */
#include "plot.h"

#include "base/mem.h"

/* The numbers of a column, times `scale` (0: 1). *out: [count], or NULL if there is no key; tr_free. */
static tr_status_t plot_take(const tr_table_t *t, const tr_plot_rows_t *rows, const char *key,
                             double scale, const double **out) {
    const size_t stride = rows->stride ? rows->stride : 1;
    double *values = NULL;
    *out = NULL;
    if (!key || rows->count == 0) return TR_OK;
    TR_TRY(tr_alloc(rows->count * sizeof *values, "the numbers of a plot", &values));
    for (size_t i = 0; i < rows->count; i++) {
        const void *row = (const char *)rows->data + i * stride * t->row_bytes;
        values[i] = tr_table_number(t, row, key) * (scale != 0 ? scale : 1);
    }
    *out = values;
    return TR_OK;
}

tr_status_t tr_plot_add(const tr_plot_t *plot, const tr_table_t *table, const tr_plot_rows_t *rows,
                        size_t groups, tr_svg_t *out) {
    tr_svg_series_t series[TR_PLOT_SERIES] = {{0}};
    size_t count = 0;
    tr_status_t status = TR_OK;
    for (size_t g = 0; g < groups; g++)
        for (const tr_plot_curve_t *c = plot->curves; c < plot->curves + TR_PLOT_CURVES && c->y;
             c++) {
            if (count == TR_PLOT_SERIES || rows[g].count == 0) continue;
            tr_svg_series_t *s = &series[count++];
            const bool is_of_rows = c->role == TR_SHOWS_ROWS;
            *s = (tr_svg_series_t){.title = c->title ? c->title : rows[g].title,
                                   .role = is_of_rows ? rows[g].role : c->role,
                                   .variant = rows[g].variant,
                                   .kind = c->kind,
                                   .count = rows[g].count,
                                   .is_joined = c->is_joined};
            if (!*s->title) s->title = NULL;
            TR_TRY_GOTO(plot_take(table, &rows[g], plot->x, 1, &s->x), done);
            TR_TRY_GOTO(plot_take(table, &rows[g], c->y, plot->scale, &s->y), done);
            TR_TRY_GOTO(plot_take(table, &rows[g], c->low, plot->scale, &s->low), done);
            TR_TRY_GOTO(plot_take(table, &rows[g], c->high, plot->scale, &s->high), done);
        }
    tr_svg_add(out, &plot->chart, series, count);
    status = out->body.status;
done:
    for (size_t i = 0; i < count; i++) {
        const double **const values[] = {&series[i].x, &series[i].y, &series[i].low,
                                         &series[i].high};
        for (size_t k = 0; k < TR_COUNT(values); k++) tr_free(values[k]);
    }
    return status;
}

void tr_plot_draw(const tr_plot_t *plot, const tr_table_t *table, const tr_plot_rows_t *rows,
                  size_t groups, tr_str_t *out) {
    tr_svg_t svg = {0};
    const tr_status_t status = tr_plot_add(plot, table, rows, groups, &svg);
    if (status != TR_OK) out->status = status;
    tr_svg_write(&svg, false, out);
    tr_str_free(&svg.body);
}
