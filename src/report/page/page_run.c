/* The section of one run. */
#include "html.h"
#include "report/scaling/losses.h"
#include "page.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* -- facts ------------------------------------------------------------------------------------- */

void tr_page_step_times(const tr_record_t *r, tr_str_t *out) {
    tr_html_fact_number(out, "step time, median", "%.2f ms", r->times.step);
    tr_html_fact_number(out, "step time, 95th percentile", "%.2f ms", r->times.p95);
}

void tr_page_results(const tr_record_t *r, tr_str_t *out) {
    static const struct {
        const char *key, *name, *format;
        double scale;
    } results[] = {{"steps", "steps", "%.0f", 1},
                   {"epochs", "epochs", "%.4g", 1},
                   {"loss", "training loss", "%.4g", 1},
                   {"valid_loss", "validation loss", "%.4g", 1},
                   {"valid_perplexity", "validation perplexity", "%.4g", 1},
                   {"valid_accuracy", "validation accuracy", "%.2f %%", 100},
                   {"valid_iou", "validation IoU", "%.2f %%", 100},
                   {"valid_r2", "validation R\xc2\xb2", "%.4f", 1},
                   {"best_test_loss", "test loss of the best", "%.4g", 1},
                   {"best_test_accuracy", "test accuracy of the best", "%.2f %%", 100},
                   {"best_test_iou", "test IoU of the best", "%.2f %%", 100},
                   {"best_test_r2", "test R\xc2\xb2 of the best", "%.4f", 1},
                   {"test_loss", "test loss of the last", "%.4g", 1},
                   {"test_accuracy", "test accuracy of the last", "%.2f %%", 100},
                   {"test_iou", "test IoU of the last", "%.2f %%", 100},
                   {"test_r2", "test R\xc2\xb2 of the last", "%.4f", 1},
                   {"tokens_per_sec", "tokens/s", "%.0f", 1}};
    tr_str_append(out, "<dl>\n");
    for (size_t i = 0; i < TR_COUNT(results); i++)
        tr_html_fact_number(out, results[i].name, results[i].format,
                            results[i].scale * tr_json_number(r->summary, results[i].key));
    tr_html_fact_number(out, "samples/s", "%.0f", r->times.samples_per_sec);
    tr_page_step_times(r, out);
    tr_str_append(out, "</dl>\n");
}

/* -- tables ------------------------------------------------------------------------------------ */

static void run_append_facts(const tr_record_t *r, tr_str_t *out) {
    static const char *const facts[][2] = {{"model", "model"},
                                           {"parameters", "parameters"},
                                           {"dataset", "data"},
                                           {"ranks", "ranks"},
                                           {"hosts", "nodes"},
                                           {"device_description", "device"},
                                           {"threads", "threads per rank"},
                                           {"precision", "precision"},
                                           {"batch_size", "batch"},
                                           {"micro_batch", "micro-batch"},
                                           {"optimizer", "optimizer"},
                                           {"learning_rate", "learning rate"},
                                           {"seed", "seed"},
                                           {"commit", "trainer"}};
    tr_html_element(out, "h3", "Run");
    tr_str_append(out, "<table>\n");
    for (size_t i = 0; i < TR_COUNT(facts); i++) {
        const json_t *value = json_object_get(r->summary, facts[i][0]);
        if (!value || json_is_null(value)) continue;
        tr_str_append(out, "<tr>");
        tr_html_element(out, "td", facts[i][1]);
        if (json_is_string(value))
            tr_html_element(out, "td class=\"long\"", json_string_value(value));
        else
            tr_str_printf(out, "<td class=\"text\">%.12g</td>", json_number_value(value));
        tr_str_append(out, "</tr>\n");
    }
    tr_str_append(out, "</table>\n");
}

/* Mean times of a step: on rank 0, and of several ranks those with the least and the most. */
static void run_append_times(const tr_record_t *r, tr_str_t *out) {
    const tr_step_times_t *t = &r->times;
    const tr_spread_t *s = &r->spread;
    const bool has_ranks = isfinite(s->wait_min);
    const struct {
        const char *name;
        double on_rank_0, least, most;
    } rows[] = {{"compute", t->compute, s->compute_min, s->compute_max},
                {"exposed communication", t->comm_exposed, s->wait_min, s->wait_max},
                {"data stall", t->data_stall, s->data_stall_min, s->data_stall_max},
                {"checkpoint", t->checkpoint, NAN, NAN}};
    double whole = 0;
    if (!isfinite(t->compute)) return;
    tr_str_append(out, "<div>");
    tr_html_element(out, "h3", "Mean time of a step (ms)");
    tr_html_table(out, has_ranks ? "|rank 0|rank with the least|rank with the most" : "|rank 0");
    for (size_t i = 0; i < TR_COUNT(rows); i++) {
        tr_str_append(out, "<tr>");
        tr_html_element(out, "td", rows[i].name);
        tr_html_number(out, rows[i].on_rank_0, 2);
        if (has_ranks) tr_html_number(out, rows[i].least, 2);
        if (has_ranks) tr_html_number(out, rows[i].most, 2);
        tr_str_append(out, "</tr>\n");
        if (isfinite(rows[i].on_rank_0)) whole += rows[i].on_rank_0;
    }
    tr_str_append(out, "<tr class=\"best\"><td>whole step</td>");
    tr_html_number(out, whole, 2);
    tr_str_append(out, has_ranks ? "<td></td><td></td></tr></table>\n" : "</tr></table>\n");
    if (has_ranks && r->slowest.rank >= 0) {
        tr_str_printf(out, "<p>The slowest rank waits least for the others. That was rank %d on ",
                      r->slowest.rank);
        tr_html_text(out, r->slowest.host);
        tr_str_printf(out, " in %d of %d line%s of metrics.jsonl.</p>\n", r->slowest.lines,
                      r->slowest.of_lines, r->slowest.of_lines == 1 ? "" : "s");
    }
    tr_str_append(out, "</div>\n");
}

static void run_append_profile_op(const json_t *op, tr_str_t *out) {
    static const char *const words[] = {"op", "layer", "phase"};
    tr_str_append(out, "<tr>");
    for (size_t i = 0; i < TR_COUNT(words); i++) {
        const char *word = json_string_value(json_object_get(op, words[i]));
        tr_html_element(out, "td class=\"text\"", word ? word : "-");
    }
    tr_html_number(out, tr_json_number(op, "ms"), 3);
    tr_html_number(out, tr_json_number(op, "calls"), 0);
    tr_html_percent(out, tr_json_number(op, "share"));
    tr_html_number(out, tr_json_number(op, "gflops"), 1);
    tr_html_number(out, tr_json_number(op, "gbytes_per_sec"), 1);
    tr_html_number(out, tr_json_number(op, "ms") / tr_json_number(op, "floor_ms"), 1);
    tr_str_append(out, "</tr>\n");
}

/* The table and the advice of profile.json. */
static void run_append_profile(const tr_record_t *r, tr_str_t *out) {
    enum { TOP_OPS = 10 };
    const json_t *ops = json_object_get(r->profile, "ops"),
                 *advice = json_object_get(r->profile, "advice"), *entry;
    size_t i;
    if (!r->profile) return;
    tr_html_element(out, "h3", "Profile (rank 0)");
    tr_str_printf(
        out,
        "<p>Steps %.0f to %.0f: %.3f ms a step; the device computes for %.1f %% of it. Below "
        "%.0f %% it waits for something.</p>\n",
        tr_json_number(r->profile, "first_step"), tr_json_number(r->profile, "last_step"),
        tr_json_number(r->profile, "step_ms"), 100 * tr_json_number(r->profile, "utilisation"),
        100 * tr_json_number(r->profile, "utilisation_mark"));
    json_array_foreach(advice, i, entry) {
        const char *text = json_string_value(json_object_get(entry, "text"));
        if (!text || !*text) continue;
        tr_str_printf(out, "<p class=\"words\">%c", toupper((unsigned char)*text));
        tr_html_text(out, text + 1);
        tr_str_append(out, ".</p>\n");
    }
    tr_html_table(out,
                  "<op|<layer|<phase|ms per step|calls|of the step|GFLOP/s|GB/s|times its floor");
    json_array_foreach(ops, i, entry) {
        if (i < TOP_OPS) run_append_profile_op(entry, out);
    }
    tr_str_append(out, "</table>\n");
}

/* The row of session i. */
static void run_append_session(const tr_record_t *r, size_t i, tr_str_t *out) {
    const json_t *session = json_array_get(r->sessions, i),
                 *start = json_object_get(session, "start"), *end = json_object_get(session, "end");
    const char *utc = json_string_value(json_object_get(start, "utc")),
               *job = json_string_value(json_object_get(start, "job")),
               *verdict = json_string_value(json_object_get(end, "verdict"));
    const double launched = tr_json_number(start, "unix_time") -
                            tr_json_number(json_object_get(start, "startup"), "whole_sec");
    const bool is_running =
        i + 1 == json_array_size(r->sessions) && strcmp(r->verdict, "running") == 0;
    double ended = NAN; /* the session before: its end, or its last line in the metrics */
    if (i > 0) {
        const json_t *before = json_array_get(r->sessions, i - 1);
        ended = tr_json_number(json_object_get(before, "end"), "unix_time");
        if (!isfinite(ended)) ended = tr_record_session_end(r, tr_json_number(before, "session"));
    }
    tr_str_printf(out, "<tr><td>%lld</td>",
                  (long long)json_integer_value(json_object_get(session, "session")));
    tr_html_element(out, "td class=\"text\"", utc ? utc : "-");
    tr_html_element(out, "td class=\"text\"", job ? job : "-");
    tr_html_number(out, tr_json_number(start, "ranks"), 0);
    tr_html_number(out, tr_json_number(start, "first_step"), 0);
    tr_html_number(out, tr_json_number(end, "last_step"), 0);
    tr_html_element(out, "td class=\"text\"",
                    verdict      ? verdict
                    : is_running ? "running"
                                 : "no end recorded");
    tr_html_number(out, tr_json_number(end, "code"), 0);
    tr_html_number(out, tr_json_number(end, "wall_sec"), 1);
    tr_html_number(out, tr_record_first_step_sec(r, i), 1);
    tr_html_number(out, tr_json_number(end, "checkpoint_stall_sec"), 2);
    tr_html_number(out, launched - ended, 1);
    tr_str_append(out, "</tr>\n");
}

static void run_append_sessions(const tr_record_t *r, tr_str_t *out) {
    const size_t count = json_array_size(r->sessions);
    tr_html_element(out, "h3", "Sessions");
    if (count == 0) {
        tr_html_element(out, "p", "This run recorded no sessions.");
        return;
    }
    tr_html_table(out, "session|<set up (UTC)|<job|ranks|first step|last step|<verdict|code|length "
                       "(s)|until first step (s)|checkpoint stall (s)|lost before (s)");
    for (size_t i = 0; i < count; i++) run_append_session(r, i, out);
    tr_str_append(out, "</table>\n");
    if (count > 1)
        tr_html_element(out, "p class=\"note\"",
                        "Lost before: from the end of the session before to the launch of this "
                        "one. If that end was not recorded, from its last line of metrics.jsonl "
                        "that was kept, so that steps that were repeated count as lost.");
}

void tr_page_run(const tr_record_t *r, tr_str_t *out) {
    tr_str_t words = {0};
    tr_losses_explain_run(r, &words);
    if (words.text) tr_html_element(out, "p class=\"words\"", words.text);
    tr_str_free(&words);
    tr_str_append(out, "<div class=\"plots\">\n");
    tr_page_plots(r, out);
    run_append_times(r, out);
    tr_str_append(out, "</div>\n");
    tr_page_strip(r, out);
    run_append_profile(r, out);
    run_append_sessions(r, out);
    run_append_facts(r, out);
}
