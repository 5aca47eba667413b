/* Writes the page of a run that trains. */
#include "live_page.h"

#include "base/clock.h"
#include "base/mem.h"
#include "report/page/html.h"
#include "report/page/page.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REFRESH_SEC = 5, MOST_RANKS = 32, LATE_SEC = 30 };

static void live_duration(tr_str_t *out, const char *name, double sec) {
    char text[32];
    if (isfinite(sec)) tr_html_fact(out, name, tr_format_duration(sec, text));
}

static void live_facts(const tr_live_t *live, const tr_newest_t *n, tr_str_t *out) {
    const tr_rows_t *valid = &live->record->validation, *lines = &live->record->training;
    const tr_use_t use = tr_record_use(live->record);
    char text[192];
    tr_str_append(out, "<dl>\n");
    tr_html_fact_number(out, "epoch", "%.2f", n->epoch);
    tr_html_fact_number(out, "training loss", "%.5g", n->loss);
    tr_html_fact_number(out, "validation loss", "%.5g",
                        tr_rows_number(valid, valid->count - 1, "valid_loss"));
    tr_html_fact_number(out, "validation perplexity", "%.4g",
                        tr_rows_number(valid, valid->count - 1, "valid_perplexity"));
    tr_html_fact_number(out, "validation R\xc2\xb2", "%.4f",
                        tr_rows_number(valid, valid->count - 1, "valid_r2"));
    if (isfinite(n->best_loss)) {
        tr_snprintf(text, sizeof text, "%.5g, step %lld", n->best_loss, (long long)n->best_step);
        tr_html_fact(out, "best validation", text);
    }
    tr_html_fact_number(out, "learning rate", "%.3g",
                        tr_rows_number(lines, lines->count - 1, "lr"));
    tr_html_fact_number(out, "samples/s", n->samples_per_sec < 100 ? "%.3g" : "%.0f",
                        n->samples_per_sec);
    tr_html_fact_number(out, "tokens/s", "%.0f",
                        tr_rows_number(lines, lines->count - 1, "tokens_per_sec"));
    tr_page_step_times(live->record, out);
    tr_html_fact_number(out, "data stall", "%.1f %%", 100 * n->data_stall);
    if (live->record->ranks > 1)
        tr_html_fact_number(out, "exposed communication", "%.1f %%", 100 * n->comm_exposed);
    tr_html_fact_number(out, "GPU utilisation", "%.0f %%", 100 * n->gpu_util);
    tr_html_fact_number(out, "cores in use per rank", "%.2g", use.used);
    if (tr_record_shared(live->record) > 0)
        tr_html_fact_number(out, "cores that a rank waits for", "%.2g", use.waited);
    else if (n->slow_rank >= 0) {
        tr_snprintf(text, sizeof text, "%d on %s (%.0f %%)", n->slow_rank,
                    n->slow_host ? n->slow_host : "?", 100 * n->slow_share);
        tr_html_fact(out, "slowest rank (others wait)", text);
    }
    live_duration(out, "time left", n->eta_sec);
    live_duration(out, "last line", fmax(0, tr_clock_unix_sec() - n->unix_sec));
    const size_t starts = json_array_size(live->record->sessions);
    if (starts > 1) tr_html_fact_number(out, "starts", "%.0f", (double)starts);
    if (live->job[0]) tr_html_fact(out, "job", live->job);
    if (live->lost > 0) tr_html_fact_number(out, "lines lost", "%.0f", (double)live->lost);
    tr_str_append(out, "</dl>\n");
}

static int rank_compare(const void *a, const void *b) {
    const tr_rank_times_t *x = *(const tr_rank_times_t *const *)a,
                          *y = *(const tr_rank_times_t *const *)b;
    const double sx = x->compute_sec + x->data_sec, sy = y->compute_sec + y->data_sec;
    return sx != sy ? (sx < sy) - (sx > sy) : (x > y) - (x < y);
}

/* The ranks for which the others wait come first. */
static void live_ranks(const tr_live_t *live, tr_str_t *out) {
    const tr_rank_times_t **order = NULL;
    if (!live->ranks ||
        tr_alloc((size_t)live->rank_count * sizeof *order, "ranks", &order) != TR_OK)
        return;
    for (int i = 0; i < live->rank_count; i++) order[i] = &live->ranks[i];
    qsort(order, (size_t)live->rank_count, sizeof *order, rank_compare);
    tr_html_element(out, "h3", "Ranks of this start, slowest first");
    tr_html_table(out, "rank|<host|compute|data stall|waiting for other ranks");
    for (int i = 0; i < live->rank_count && i < MOST_RANKS; i++) {
        const tr_rank_times_t *t = order[i];
        const double sum = t->compute_sec + t->data_sec + t->wait_sec;
        tr_str_printf(out, "<tr><td>%d</td>", (int)(t - live->ranks));
        tr_html_element(out, "td class=\"text\"", t->host);
        tr_html_percent(out, t->compute_sec / sum);
        tr_html_percent(out, t->data_sec / sum);
        tr_html_percent(out, t->wait_sec / sum);
        tr_str_append(out, "</tr>\n");
    }
    tr_str_append(out, "</table>\n");
    tr_free(&order);
}

void tr_live_page(const tr_live_t *live, tr_str_t *out) {
    const tr_record_t *r = live->record;
    const tr_newest_t n = tr_newest_of(r);
    const double done = n.steps > 0 && n.step > 0 ? (double)n.step / (double)n.steps : 0;
    char duration[32], state[96] = "training";
    if (n.step < 0) strcpy(state, "no step is done yet");
    const bool is_late = !live->is_healthy || live->silent_sec > LATE_SEC;
    if (is_late)
        tr_snprintf(state, sizeof state, "no progress for %s",
                    tr_format_duration(live->silent_sec, duration));
    tr_page_head(tr_page_title(r), state, is_late, REFRESH_SEC, out);
    if (n.steps > 0)
        tr_str_printf(out,
                      "<div class=\"bar\"><div style=\"width: %.2f%%\"></div></div>\n"
                      "<p>step %lld of %lld, %.1f&nbsp;%%</p>\n",
                      fmin(100, 100 * done), (long long)(n.step > 0 ? n.step : 0),
                      (long long)n.steps, 100 * done);
    live_facts(live, &n, out);
    tr_page_run(r, out);
    live_ranks(live, out);
    tr_str_append(out, "<p class=\"note\">trainer ");
    tr_html_text(out, live->version);
    tr_str_printf(out, "; this page is loaded again every %d s.</p></body></html>\n", REFRESH_SEC);
}
