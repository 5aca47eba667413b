/* Groups and ranks runs. */
#include "comparison.h"
#include "comparison_int.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- keys -------------------------------------------------------------------------------------- */

static const char *const seed_keys[] = {"train.seed", "data.fold"};

static bool key_is_seed(const char *key) {
    return strcmp(key, seed_keys[0]) == 0 || strcmp(key, seed_keys[1]) == 0;
}

/* Keys that say only where things are and how often they are written. */
static bool key_is_place(const char *key) {
    static const char *const keys[] = {"cuda.plan_cache", "resume", "checkpoint.every",
                                       "checkpoint.keep", "checkpoint.patience"};
    for (size_t i = 0; i < TR_COUNT(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return strncmp(key, "run.", 4) == 0 || strncmp(key, "log.", 4) == 0;
}

/* Older versions lack some keys: those count as equal. */
bool tr_entry_is_equal(const tr_entry_t *a, const tr_entry_t *b, const char *key) {
    const char *of_a = tr_record_key(a->record, key), *of_b = tr_record_key(b->record, key);
    double x, y;
    return !of_a || !of_b || strcmp(of_a, of_b) == 0 ||
           (tr_parse_float(of_a, &x) && tr_parse_float(of_b, &y) && x == y);
}

static bool entry_is_alike(const tr_entry_t *a, const tr_entry_t *b) {
    const char *key;
    json_t *value;
    if (!json_object_size(a->record->config) || !json_object_size(b->record->config)) return false;
    json_object_foreach(a->record->config, key, value) {
        if (!key_is_place(key) && !key_is_seed(key) && !tr_entry_is_equal(a, b, key)) return false;
    }
    return true;
}

/* Keys with several values, in the order of config.ini; those of seeds apart. */
static tr_status_t comparison_find_keys(tr_comparison_t *c) {
    const tr_entry_t *first = NULL;
    const char *key;
    json_t *value;
    for (size_t i = 0; i < c->entries.count && !first; i++)
        if (json_object_size(c->entries.data[i].record->config)) first = &c->entries.data[i];
    if (!first) return TR_OK;
    json_object_foreach(first->record->config, key, value) {
        bool differs = false;
        for (size_t i = 0; i < c->entries.count; i++)
            differs = differs || !tr_entry_is_equal(first, &c->entries.data[i], key);
        if (!differs || key_is_place(key)) continue;
        if (key_is_seed(key))
            TR_TRY(tr_vec_push(&c->seeds, key));
        else
            TR_TRY(tr_vec_push(&c->keys, key));
    }
    return TR_OK;
}

const char *tr_comparison_short(const tr_comparison_t *c, const char *key) {
    const char *dot = strchr(key, '.'), *name = dot ? dot + 1 : key;
    static const char *const vague[] = {"steps", "type", "every", "train",
                                        "valid", "test", "x",     "y"};
    for (size_t i = 0; i < TR_COUNT(vague); i++)
        if (strcmp(name, vague[i]) == 0) return key;
    for (size_t i = 0; i < c->keys.count; i++) {
        const char *other = c->keys.data[i], *at = strchr(other, '.');
        if (strcmp(other, key) != 0 && strcmp(at ? at + 1 : other, name) == 0) return key;
    }
    for (int f = 0; f < c->figures; f++)
        if (strcmp(c->figure[f], name) == 0) return key;
    return name;
}

/* The bytes at the start that all values of a key share, to the end of a word. */
static size_t value_shared_bytes(const tr_comparison_t *c, const char *key, const char *text) {
    size_t shared = strlen(text);
    for (size_t i = 0; i < c->entries.count; i++) {
        const char *other = tr_record_key(c->entries.data[i].record, key);
        size_t same = 0;
        while (other && other[same] && same < shared && other[same] == text[same]) same++;
        if (other) shared = same;
    }
    while (shared > 0 && !strchr(" ,/\n", text[shared - 1])) shared--;
    return shared;
}

void tr_comparison_value(const tr_comparison_t *c, const tr_entry_t *entry, const char *key,
                         tr_str_t *out) {
    enum { LONG = 24 };
    const char *text = tr_record_key(entry->record, key);
    char plain[32], brief[32];
    double number;
    if (!text || !*text) {
        tr_str_append(out, text ? "\"\"" : "-");
    } else if (tr_parse_float(text, &number)) {
        int digits = 0;
        tr_snprintf(plain, sizeof plain, "%.6g", number);
        do /* 3e-4, not 3.000000e-04 */
            tr_snprintf(brief, sizeof brief, "%.*e", digits, number);
        while (tr_strtod(brief, NULL) != tr_strtod(plain, NULL) && ++digits < 7);
        char *e = strchr(brief, 'e');
        const int power = atoi(e + 1);
        tr_snprintf(e, sizeof brief - (size_t)(e - brief), "e%d", power);
        tr_str_append(out, fabs(number) < 1 && strlen(brief) < strlen(plain) ? brief : plain);
    } else {
        const size_t shared = strlen(text) > LONG ? value_shared_bytes(c, key, text) : 0;
        const size_t shown = tr_utf8_bytes(text + shared, LONG);
        tr_str_append(out, shared ? ".." : "");
        for (size_t i = 0; i < shown; i++)
            tr_str_append_bytes(out, text[shared + i] == '\n' ? " " : text + shared + i, 1);
        tr_str_append(out, text[shared + shown] ? ".." : "");
    }
}

/* -- runs -------------------------------------------------------------------------------------- */

/* The others that the table shows. */
static void comparison_add_figures(tr_comparison_t *c) {
    static const char *const keys[] = {
        "valid_loss",     "valid_accuracy", "valid_r2",           "loss",
        "best_test_loss", "test_loss",      "best_test_accuracy", "test_accuracy",
        "best_test_r2",   "test_r2",        "samples_per_sec"};
    for (size_t i = 0; i < TR_COUNT(keys); i++) {
        const bool best_is_shown = i > 0 && strncmp(keys[i], "test_", 5) == 0 && c->figures > 0 &&
                                   strcmp(c->figure[c->figures - 1], keys[i - 1]) == 0;
        bool is_shown = best_is_shown || !tr_comparison_has(c, keys[i]);
        for (int f = 0; f < c->figures; f++) is_shown |= strcmp(c->figure[f], keys[i]) == 0;
        if (!is_shown) c->figure[c->figures++] = keys[i];
    }
}

/* A session that was killed counts until its last line. */
static double entry_sec(const tr_record_t *r, const tr_run_state_t *state) {
    const json_t *session;
    double sec = 0;
    size_t i;
    json_array_foreach(r->sessions, i, session) {
        const bool runs = state->kind == TR_RUN_RUNNING && i + 1 == json_array_size(r->sessions);
        const double wall = tr_json_number(json_object_get(session, "end"), "wall_sec"),
                     begin = tr_json_number(json_object_get(session, "start"), "unix_time"),
                     end = runs ? tr_clock_unix_sec()
                                : tr_record_session_end(r, tr_json_number(session, "session"));
        if (isfinite(wall))
            sec += wall;
        else if (end > begin)
            sec += end - begin;
    }
    return i > 0 ? sec : tr_json_number(r->summary, "wall_sec");
}

static void entry_count_steps(tr_entry_t *e) {
    const tr_record_t *r = e->record;
    const json_t *session = json_array_get(r->sessions, json_array_size(r->sessions) - 1);
    const char *steps = tr_record_key(r, "train.steps"), *epochs = tr_record_key(r, "train.epochs");
    const double step = r->last_step, epoch = r->last_epoch;
    double all;
    e->steps = fmax(step, tr_json_number(json_object_get(session, "end"), "last_step"));
    if (isnan(e->steps)) e->steps = tr_json_number(r->summary, "steps");
    e->of_steps = NAN;
    if (steps && tr_parse_float(steps, &all) && all > 0)
        e->of_steps = all;
    else if (epochs && tr_parse_float(epochs, &all) &&
             epoch > 0) /* full steps: the last one, too */
        e->of_steps = ceil(all * step / epoch - 1e-6);
}

static tr_status_t comparison_add(tr_comparison_t *c, const tr_record_t *r) {
    tr_entry_t e = {.record = r, .state = tr_run_state(r)};
    char path[4096];
    json_error_t error;
    if (tr_exists_in(r->path, "checkpoints/latest/state.json", path)) {
        json_t *state = tr_json_load_file(path, &error);
        e.learned = json_incref(json_object_get(state, "data"));
        json_decref(state);
    }
    e.sec = entry_sec(r, &e.state);
    entry_count_steps(&e);
    const tr_status_t status = tr_vec_push(&c->entries, e);
    if (status != TR_OK) json_decref(e.learned);
    return status;
}

static tr_status_t comparison_group(tr_comparison_t *c) {
    for (size_t i = 0; i < c->entries.count; i++) {
        size_t g = 0;
        while (
            g < c->groups.count &&
            !entry_is_alike(&c->entries.data[c->groups.data[g].runs.data[0]], &c->entries.data[i]))
            g++;
        if (g == c->groups.count) {
            const tr_group_t none = {.counted = 0};
            TR_TRY(tr_vec_push(&c->groups, none));
        }
        TR_TRY(tr_vec_push(&c->groups.data[g].runs, i));
    }
    return TR_OK;
}

bool tr_group_counts(const tr_comparison_t *c, const tr_group_t *g, const tr_entry_t *entry) {
    for (size_t i = 0; i < g->runs.count; i++)
        if (c->entries.data[g->runs.data[i]].state.kind == TR_RUN_DONE)
            return entry->state.kind == TR_RUN_DONE;
    return true;
}

/* The best run of a group comes first: it gives the row its name. */
static void group_put_best_first(const tr_comparison_t *c, tr_group_t *g) {
    size_t best = 0;
    for (size_t i = 1; i < g->runs.count; i++) {
        const double value = c->entries.data[g->runs.data[i]].figure[0],
                     so_far = c->entries.data[g->runs.data[best]].figure[0];
        if (isfinite(value) && (!isfinite(so_far) || (c->is_up ? value > so_far : value < so_far)))
            best = i;
    }
    const size_t run = g->runs.data[best];
    for (; best > 0; best--) g->runs.data[best] = g->runs.data[best - 1];
    g->runs.data[0] = run;
}

static void group_finish(tr_comparison_t *c, tr_group_t *g) {
    if (c->is_ranked) group_put_best_first(c, g);
    for (int f = 0; f < c->figures; f++) {
        tr_stats_t stats = {0};
        for (size_t i = 0; i < g->runs.count; i++) {
            const tr_entry_t *e = &c->entries.data[g->runs.data[i]];
            if (isfinite(e->figure[f]) && tr_group_counts(c, g, e))
                tr_stats_add(&stats, 1, &e->figure[f], 1);
        }
        if (f == 0) g->counted = (int)stats.count;
        g->mean[f] = stats.count ? stats.mean : NAN;
        g->deviation[f] = stats.count > 1 ? sqrt(stats.squares / (double)(stats.count - 1)) : NAN;
    }
}

/* Insertion: it is stable, and there are few groups. */
static void comparison_rank(tr_comparison_t *c) {
    tr_group_t *g = c->groups.data;
    for (size_t i = 1; i < c->groups.count && c->figures > 0; i++)
        for (size_t k = i; k > 0; k--) {
            const double a = g[k - 1].mean[0], b = g[k].mean[0];
            if (!isfinite(b) || (isfinite(a) && (c->is_up ? a >= b : a <= b))) break;
            const tr_group_t swapped = g[k];
            g[k] = g[k - 1];
            g[k - 1] = swapped;
        }
    for (size_t i = 0; i < c->groups.count; i++)
        for (size_t k = 0; k < g[i].runs.count; k++) c->entries.data[g[i].runs.data[k]].group = i;
}

tr_status_t tr_comparison_make(const tr_record_t *records, size_t count, const char *by,
                               bool is_strict, tr_comparison_t *out) {
    tr_comparison_t *c = out;
    tr_status_t status;
    *c = (tr_comparison_t){0};
    for (size_t i = 0; i < count; i++) TR_TRY_GOTO(comparison_add(c, &records[i]), done);
    TR_TRY_GOTO(comparison_find_keys(c), done);
    TR_TRY_GOTO(comparison_group(c), done);
    TR_TRY_GOTO(tr_comparison_choose(c, by, is_strict), done);
    c->is_ranked = c->figures > 0;
    comparison_add_figures(c);
    for (size_t i = 0; i < count; i++) {
        tr_entry_t *e = &c->entries.data[i];
        double step;
        for (int f = 0; f < c->figures; f++)
            e->figure[f] =
                tr_record_figure(e->record, c->figure[f], f == 0 ? &e->best_step : &step);
    }
    for (size_t i = 0; i < c->groups.count; i++) group_finish(c, &c->groups.data[i]);
    if (c->is_ranked) comparison_rank(c);
done:
    if (status != TR_OK) tr_comparison_free(c);
    return status;
}

void tr_comparison_free(tr_comparison_t *c) {
    for (size_t i = 0; i < c->entries.count; i++) json_decref(c->entries.data[i].learned);
    for (size_t i = 0; i < c->groups.count; i++) tr_vec_free(&c->groups.data[i].runs);
    tr_vec_free(&c->entries);
    tr_vec_free(&c->groups);
    tr_vec_free(&c->keys);
    tr_vec_free(&c->seeds);
}
