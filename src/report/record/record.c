/* Reads what a run folder records: its summary, sessions, metrics and verdict. */
#include "base/file.h"
#include "base/json_text.h"
#include "config/ini.h"
#include "record.h"
#include "record_int.h"
#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_TEXT_BYTES (1 << 20)

const char *tr_kind_name(tr_kind_t kind) {
    static const char *const names[] = {"measured", "replay", "predicted"};
    return names[kind];
}

double tr_json_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *tr_record_key(const tr_record_t *r, const char *key) {
    return json_string_value(json_object_get(r->config, key));
}

static int64_t json_integer_of(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

/* Names and messages are written to JSON and HTML, which require UTF-8. */
static tr_status_t copy_utf8(const char *text, char **out) {
    tr_str_t copy = {0};
    while (*text) {
        const size_t good = tr_utf8_bytes(text, strlen(text));
        tr_str_append_bytes(&copy, text, good);
        text += good;
        if (*text) tr_str_append(&copy, "?"), text++;
    }
    return tr_str_take(&copy, out);
}

/* -- summary ----------------------------------------------------------------------------------- */

static tr_status_t record_read_summary(tr_record_t *r) {
    char path[4096];
    json_error_t error;
    struct stat found;
    TR_TRY(tr_path_join(r->path, "summary.json", path));
    if (stat(path, &found) != 0) {
        r->summary = json_object();
        return TR_OK;
    }
    r->summary = tr_json_load_file(path, &error);
    if (!r->summary && error.line < 0) return tr_error_last()->code;
    if (!r->summary) return TR_FAIL(TR_ERR_DATA, "%s, line %d: %s", path, error.line, error.text);
    if (!json_is_object(r->summary))
        return TR_FAIL(TR_ERR_DATA, "%s: expected a JSON object", path);
    return TR_OK;
}

/* -- the resolved configuration ---------------------------------------------------------------- */

static tr_status_t config_take_key(void *config, const char *section, const char *key,
                                   const char *value, int line) {
    char name[256], *copy = NULL;
    (void)line;
    tr_snprintf(name, sizeof name, "%s%s%s", section, *section ? "." : "", key);
    TR_TRY(copy_utf8(value, &copy));
    json_object_set_new(config, name, json_string(copy));
    tr_free(&copy);
    return TR_OK;
}

static tr_status_t config_ignore_problem(void *config, int line, const char *message) {
    (void)config, (void)line, (void)message;
    return TR_OK;
}

static tr_status_t record_read_config(tr_record_t *r) {
    char path[4096], *text = NULL;
    int64_t bytes;
    r->config = json_object();
    const tr_ini_events_t events = {r->config, config_take_key, config_ignore_problem};
    TR_TRY(tr_path_join(r->path, "config.ini", path));
    if (tr_read_text(path, MAX_TEXT_BYTES, &text, &bytes) != TR_OK) return TR_OK;
    const tr_status_t status = tr_ini_parse(text, (size_t)bytes, &events);
    tr_free(&text);
    return status;
}

/* -- verdict ----------------------------------------------------------------------------------- */

/* From the verdict file, the one named by run.verdict or the one in the run folder; without one, from
 * the last session and the summary. */
static tr_status_t record_read_verdict(tr_record_t *r) {
    const char *named = tr_record_key(r, "run.verdict");
    char path[4096], *text = NULL, *reason = NULL;
    int64_t bytes;
    struct stat found;
    const json_t *last = json_array_get(r->sessions, json_array_size(r->sessions) - 1),
                 *end = json_object_get(last, "end");
    const char *status = json_string_value(json_object_get(r->summary, "status")),
               *error = json_string_value(json_object_get(r->summary, "error")),
               *said = json_string_value(json_object_get(end, "verdict"));
    r->code = json_is_object(end) ? (int)json_integer_of(end, "code") : -1;
    tr_snprintf(r->verdict, sizeof r->verdict, "%s",
                said                   ? said
                : json_is_object(last) ? "running or killed"
                                       : "-");
    if (named && *named && strlen(named) < sizeof path && stat(named, &found) == 0)
        strcpy(path, named);
    else
        TR_TRY(tr_path_join(r->path, "verdict", path));
    /* After Ctrl-C under mpirun: the run may have been killed, or goes on. */
    if (tr_read_text(path, MAX_TEXT_BYTES, &text, &bytes) == TR_OK &&
        strncmp(text, "again\nprovisional\n", 18) == 0)
        tr_free(&text);
    if (text) {
        reason = strstr(text, "\nreason ");
        text[strcspn(text, "\n")] = '\0';
        tr_snprintf(r->verdict, sizeof r->verdict, "%.*s", (int)strcspn(text, " "), text);
        if (strcmp(text, "done") == 0) r->code = TR_OK;
        if (strcmp(text, "again") == 0) r->code = TR_ERR_RETRY;
        if (strncmp(text, "no ", 3) == 0) {
            char *after;
            r->code = (int)strtol(text + 3, &after, 10);
            reason = *after ? after + 1 : after;
        } else if (reason) {
            reason += strlen("\nreason ");
        }
        if (reason) reason[strcspn(reason, "\n")] = '\0';
    }
    const tr_status_t copied = copy_utf8(reason ? reason : error ? error : "", &r->reason);
    tr_free(&text);
    TR_TRY(copied);
    r->is_complete = status && strcmp(status, "done") == 0;
    if (r->is_complete && r->verdict[0] == '-') {
        strcpy(r->verdict, "done");
        r->code = TR_OK;
    }
    return TR_OK;
}

/* One that cannot be read is left out. */
void tr_record_read_pictures(const char *folder, tr_record_t *r) {
    char path[4096];
    json_error_t error;
    if (tr_path_join(folder, "samples.json", path) == TR_OK)
        r->pictures = tr_json_load_file(path, &error);
    else
        tr_error_clear();
}

/* -- the whole --------------------------------------------------------------------------------- */

bool tr_is_run(const char *path) {
    static const char *const files[] = {"config.ini", "sessions.jsonl", "metrics.jsonl",
                                        "summary.json", "verdict"};
    char file[4096];
    for (size_t i = 0; i < TR_COUNT(files); i++)
        if (tr_exists_in(path, files[i], file)) return true;
    return false;
}

tr_status_t tr_record_read(const char *path, const tr_asked_t *asked, tr_record_t *out) {
    tr_record_t *r = out;
    char *folder = NULL, profile[4096];
    json_error_t error;
    tr_status_t status;
    *r = (tr_record_t){.path = path};
    TR_TRY_GOTO(tr_strdup(path, &folder), done);
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/';) folder[--n] = '\0';
    const char *name = tr_file_name(folder);
    TR_TRY_GOTO(copy_utf8(*name ? name : folder, &r->name), done);
    TR_TRY_GOTO(record_read_summary(r), done);
    TR_TRY_GOTO(tr_path_join(path, "profile/profile.json", profile), done);
    r->profile = tr_json_load_file(profile, &error); /* one that cannot be read is left out */
    tr_record_read_pictures(path, r);
    TR_TRY_GOTO(record_read_config(r), done);
    const char *batch = tr_record_key(r, "data.batch_size");
    r->batch = json_integer_of(r->summary, "batch_size");
    if (!r->batch && batch) (void)tr_parse_int(batch, &r->batch);
    TR_TRY_GOTO(tr_record_read_lines(r, asked), done);

    /* The facts of the summary; a run that has none yet has some in its last session. */
    const char *kind = json_string_value(json_object_get(r->summary, "kind"));
    const json_t *session = json_array_get(r->sessions, json_array_size(r->sessions) - 1),
                 *start = json_object_get(session, "start");
    r->kind = kind && strcmp(kind, "replay") == 0 ? TR_KIND_REPLAY : TR_KIND_MEASURED;
    r->ranks = json_integer_of(r->summary, "ranks");
    r->nodes = json_integer_of(r->summary, "hosts");
    r->micro_batch = json_integer_of(r->summary, "micro_batch");
    if (!r->ranks) r->ranks = json_integer_of(start, "ranks");
    if (!r->nodes) r->nodes = (int64_t)json_array_size(json_object_get(start, "hosts"));
    r->steps = json_integer_of(start, "steps");
    TR_TRY_GOTO(record_read_verdict(r), done);
done:
    tr_free(&folder);
    if (status != TR_OK) tr_record_free(r);
    return status;
}

void tr_record_free(tr_record_t *r) {
    tr_free(&r->name);
    tr_free(&r->reason);
    json_decref(r->config);
    json_decref(r->summary);
    json_decref(r->profile);
    json_decref(r->pictures);
    json_decref(r->first);
    json_decref(r->last_line);
    json_decref(r->last_validation);
    tr_rows_free(&r->training);
    tr_rows_free(&r->validation);
    tr_vec_free(&r->session_ends);
    json_decref(r->sessions);
    *r = (tr_record_t){0};
}
