/* The folder of a sweep: sweep.json, and the run folders of its members. */
#include "sweep.h"

#include "base/file.h"
#include "base/folders.h"
#include "base/json_text.h"
#include "config/field.h"
#include "report/record/run_state.h"
#include "trainer/log.h"
#include "trainer/session.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char file_name[] = "sweep.json", lock_name[] = "sweep.lock";

/* Keys of [run] are the sweep's own. */
static bool key_is_free(const char *key) {
    return strncmp(key, "run.", 4) == 0;
}

/* The first key whose values differ; NULL: none. Both have all keys. */
static const char *sweep_difference(const tr_config_t *a, const tr_config_t *b) {
    const char *key;
    for (size_t i = 0; (key = tr_config_key(a, i)); i++)
        if (!key_is_free(key) &&
            !tr_config_same_value(tr_config_field(a, key), tr_config_get(a, key),
                                  tr_config_get(b, key)))
            return key;
    return NULL;
}

/* -- sweep.json -------------------------------------------------------------------------------- */

/* A configuration from {"key": "value", ...} alone. */
static tr_status_t sweep_config_of(const json_t *values, const char *origin, tr_config_t **out) {
    const tr_config_table_t *const *tables;
    size_t n;
    const char *key;
    json_t *value;
    tr_str_t word = {0};
    tr_status_t status;
    TR_TRY(tr_all_tables(&tables, &n));
    TR_TRY(tr_config_create(tables, n, out));
    json_object_foreach((json_t *)values, key, value) {
        word.length = 0;
        tr_str_printf(&word, "%s=%s", key, json_is_string(value) ? json_string_value(value) : "");
        TR_TRY_GOTO(word.status, done);
        TR_TRY_GOTO(tr_config_set(*out, word.text, origin), done);
    }
    status = tr_config_check(*out);
done:
    tr_str_free(&word);
    if (status != TR_OK) tr_config_destroy(out);
    return status;
}

static tr_status_t sweep_read_members(const json_t *list, const char *path, sweep_t *sweep) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *settings = json_object_get(json_array_get(list, i), "settings");
        const char *data = json_string_value(json_object_get(json_array_get(list, i), "data"));
        const sweep_member_t member = {.number = (int)i + 1,
                                       .settings = settings,
                                       .best = NAN,
                                       .data = data ? strtoull(data, NULL, 16) : 0};
        if (!json_is_object(settings))
            return TR_FAIL(TR_ERR_DATA,
                           "%s: member %zu has no settings; restore the file, or choose "
                           "another --out",
                           path, i + 1);
        TR_TRY(tr_vec_push(&sweep->members, member));
        json_incref(settings);
    }
    return TR_OK;
}

/* The values of CONFIG must be those that the members were trained with. */
static tr_status_t sweep_check_base(const sweep_t *sweep, const json_t *values, const char *path) {
    tr_config_t *stored = NULL;
    TR_TRY(sweep_config_of(values, path, &stored));
    const char *key = sweep_difference(sweep->base, stored);
    tr_status_t status = TR_OK;
    if (key)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "%s: %s = %s, but the members of %s have %s; change it back, or choose "
                         "another --out",
                         sweep->config_path, key, tr_config_get(sweep->base, key), path,
                         tr_config_get(stored, key));
    tr_config_destroy(&stored);
    return status;
}

/* A folder with runs of others is no place for members. */
static tr_status_t sweep_check_place(const char *out) {
    char path[4096];
    struct dirent **entries = NULL;
    bool has_runs = tr_is_run(out);
    const int count = scandir(out, &entries, NULL, versionsort);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (!has_runs && name[0] != '.' && tr_path_join(out, name, path) == TR_OK && tr_is_run(path))
            has_runs = true;
        free(entries[i]);
    }
    free(entries);
    return has_runs ? TR_FAIL(TR_ERR_CONFIG,
                              "--out %s: it %s, but no %s; choose a new folder for the sweep", out,
                              tr_is_run(out) ? "is the folder of a run" : "has runs", file_name)
                    : TR_OK;
}

/* Makes OUT, and takes its lock: another process may be about to add members. */
static tr_status_t sweep_take_lock(sweep_t *sweep) {
    char path[4096];
    struct stat info;
    size_t length = strlen(sweep->out);
    if (length == 0 || length >= sizeof path)
        return TR_FAIL(TR_ERR_USAGE, "--out: expected the name of a folder");
    /* the part of the path that is there before */
    for (strcpy(path, sweep->out); length > 0 && stat(path, &info) != 0; path[length] = '\0')
        while (length > 0 && path[--length] != '/') {
        }
    sweep->there_bytes = length;
    if (!tr_make_folders(sweep->out)) return tr_io_fail("create the folder", sweep->out, errno);
    TR_TRY(tr_path_join(sweep->out, lock_name, path));
    sweep->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (sweep->lock_fd < 0) return tr_io_fail("open", path, errno);
    if (flock(sweep->lock_fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return TR_OK;
    TR_WARN("another sweep plans its members in %s: waiting for it", sweep->out);
    while (flock(sweep->lock_fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    return TR_OK;
}

/* Leaves nothing of a sweep that was refused. */
static void sweep_remove_new(const sweep_t *sweep) {
    char path[4096];
    if (tr_path_join(sweep->out, file_name, path) != TR_OK || access(path, F_OK) == 0) return;
    if (tr_path_join(sweep->out, lock_name, path) == TR_OK) unlink(path);
    strcpy(path, sweep->out);
    for (size_t length = strlen(path); length > sweep->there_bytes; path[length] = '\0') {
        if (rmdir(path) != 0) break;
        while (length > 0 && path[--length] != '/') {
        }
    }
}

tr_status_t sweep_open(const char *out, const char *config_path, bool reads_only, sweep_t *sweep) {
    char path[4096];
    json_error_t error;
    json_t *file = NULL;
    tr_status_t status = TR_OK;
    *sweep = (sweep_t){.out = out, .lock_fd = -1};
    if (!reads_only) TR_TRY_GOTO(sweep_take_lock(sweep), done);
    if (tr_exists_in(out, file_name, path) && !(file = tr_json_load_file(path, &error)))
        TR_TRY_GOTO(TR_FAIL(TR_ERR_DATA,
                            "%s:%d: expected JSON: %s; restore the file, or choose another --out",
                            path, error.line, error.text),
                    done);
    if (!file) TR_TRY_GOTO(sweep_check_place(out), done);
    const char *stored = json_string_value(json_object_get(file, "config"));
    if (!config_path && !stored)
        TR_TRY_GOTO(
            TR_FAIL(TR_ERR_USAGE, "sweep: expected CONFIG.ini, because there is no %s", path),
            done);
    TR_TRY_GOTO(tr_strdup(config_path ? config_path : stored, &sweep->config_path), done);
    if (!config_path && access(stored, F_OK) != 0)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_NOINPUT,
                            "%s names the configuration %s, as seen from the folder where the sweep "
                            "began: run the command there, or name the configuration",
                            path, stored),
                    done);
    TR_TRY_GOTO(cmd_config_load(sweep->config_path, (cmd_words_t){0}, &sweep->base), done);
    if (!file) goto done;
    TR_TRY_GOTO(sweep_check_base(sweep, json_object_get(file, "values"), path), done);
    TR_TRY_GOTO(sweep_read_members(json_object_get(file, "members"), path, sweep), done);
done:
    json_decref(file);
    if (status != TR_OK) sweep_close(sweep);
    return status;
}

tr_status_t sweep_save(sweep_t *sweep) {
    char path[4096], *text;
    const char *key;
    TR_TRY(tr_path_join(sweep->out, file_name, path));
    json_t *values = json_object(), *members = json_array();
    for (size_t i = 0; (key = tr_config_key(sweep->base, i)); i++)
        if (tr_config_is_set(sweep->base, key) && !key_is_free(key))
            json_object_set_new(values, key, json_string(tr_config_get(sweep->base, key)));
    for (size_t i = 0; i < sweep->members.count; i++) {
        const sweep_member_t *member = &sweep->members.data[i];
        char data[32];
        tr_snprintf(data, sizeof data, "%016llx", (unsigned long long)member->data);
        json_array_append_new(members, json_pack("{s:O, s:s*}", "settings", member->settings,
                                                 "data", member->data ? data : NULL));
    }
    json_t *file = json_pack("{s:s, s:o, s:o}", "config", sweep->config_path, "values", values,
                             "members", members);
    text = json_dumps(file, JSON_INDENT(1));
    json_decref(file);
    const tr_status_t status = text ? tr_replace_file(path, text, strlen(text), TR_REPLACE_LINKED)
                                    : TR_FAIL(TR_ERR_USAGE, "%s: expected names in UTF-8", path);
    free(text);
    if (status == TR_OK && sweep->lock_fd >= 0) {
        close(sweep->lock_fd);
        sweep->lock_fd = -1;
    }
    return status;
}

void sweep_members_free(sweep_members_t *members) {
    for (size_t i = 0; i < members->count; i++) json_decref(members->data[i].settings);
    tr_vec_free(members);
}

void sweep_close(sweep_t *sweep) {
    if (sweep->lock_fd >= 0) {
        sweep_remove_new(sweep);
        close(sweep->lock_fd);
    }
    sweep->lock_fd = -1;
    sweep_members_free(&sweep->members);
    tr_config_destroy(&sweep->base);
    tr_free(&sweep->config_path);
}

/* -- members ----------------------------------------------------------------------------------- */

/* Whether all keys that `a` sets have the same value in `b`, where the base has the others. */
static bool member_agrees(const sweep_t *sweep, const json_t *a, const json_t *b) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value) {
        const tr_config_field_t *field = tr_config_field(sweep->base, key);
        const char *other = json_string_value(json_object_get(b, key));
        if (!other) other = tr_config_get(sweep->base, key);
        if (field && !tr_config_same_value(field, json_string_value(value), other)) return false;
    }
    return true;
}

tr_status_t sweep_add(sweep_t *sweep, sweep_members_t *points) {
    for (size_t i = 0; i < points->count; i++) {
        sweep_member_t *point = &points->data[i];
        bool is_known = false;
        for (size_t k = 0; k < sweep->members.count && !is_known; k++) {
            const json_t *known = sweep->members.data[k].settings;
            is_known = member_agrees(sweep, point->settings, known) &&
                       member_agrees(sweep, known, point->settings);
        }
        if (is_known) continue;
        if (sweep->members.count == SWEEP_MAX_MEMBERS)
            return TR_FAIL(TR_ERR_USAGE, "%s has %d members, the most that a sweep may have",
                           sweep->out, SWEEP_MAX_MEMBERS);
        point->number = (int)sweep->members.count + 1;
        TR_TRY(tr_vec_push(&sweep->members, *point));
        point->settings = NULL;
    }
    return TR_OK;
}

tr_status_t sweep_path(const sweep_t *sweep, const sweep_member_t *member, const char *rest,
                       char path[4096]) {
    char name[64];
    tr_snprintf(name, sizeof name, "%03d%s", member->number, rest);
    return tr_path_join(sweep->out, name, path);
}

void sweep_describe(const sweep_t *sweep, const sweep_member_t *member, tr_str_t *out) {
    const char *key;
    json_t *value;
    const size_t before = out->length;
    json_object_foreach(member->settings, key, value) {
        bool is_common = sweep->members.count > 1; /* all members have the same value */
        for (size_t i = 0; i < sweep->members.count && is_common; i++)
            is_common = json_equal(value, json_object_get(sweep->members.data[i].settings, key));
        if (!is_common)
            tr_str_printf(out, "%s%s=%s", out->length > before ? " " : "", key,
                          json_string_value(value));
    }
}

static tr_status_t words_add(sweep_words_t *words, const char *key, const char *value) {
    tr_str_t text = {0};
    char *own = NULL;
    tr_str_printf(&text, value ? "%s=%s" : "%s", key, value);
    TR_TRY(tr_str_take(&text, &own));
    const tr_status_t status = tr_vec_push(words, own);
    if (status != TR_OK) tr_free(&own);
    return status;
}

tr_status_t sweep_words(const sweep_t *sweep, const sweep_member_t *member, sweep_words_t *out) {
    static const char keep[] = "checkpoint.keep";
    char folder[4096];
    const char *key;
    json_t *value;
    TR_TRY(sweep_path(sweep, member, "", folder));
    TR_TRY(words_add(out, sweep->config_path, NULL));
    json_object_foreach(member->settings, key, value)
        TR_TRY(words_add(out, key, json_string_value(value)));
    /* Many runs are kept at the same time. */
    if (!tr_config_is_given(sweep->base, keep) && !json_object_get(member->settings, keep))
        TR_TRY(words_add(out, keep, "1"));
    return words_add(out, "run.dir", folder);
}

void sweep_words_free(sweep_words_t *words) {
    for (size_t i = 0; i < words->count; i++) tr_free(&words->data[i]);
    tr_vec_free(words);
}

tr_status_t sweep_configure(const sweep_t *sweep, const sweep_member_t *member, tr_config_t **out) {
    sweep_words_t words = {0};
    tr_status_t status;
    TR_TRY_GOTO(sweep_words(sweep, member, &words), done);
    status = cmd_config_load(sweep->config_path,
                             (cmd_words_t){(int)words.count - 1, words.data + 1}, out);
done:
    sweep_words_free(&words);
    return status;
}

/* Refuses a run folder of other settings. */
static tr_status_t member_check_folder(const sweep_t *sweep, const sweep_member_t *member,
                                       const char *folder, const char *config_path) {
    const tr_config_table_t *const *tables;
    tr_config_t *mine = NULL, *found = NULL;
    size_t n;
    tr_status_t status;
    TR_TRY(tr_all_tables(&tables, &n));
    TR_TRY_GOTO(tr_config_create(tables, n, &found), done);
    TR_TRY_GOTO(tr_config_load_file(found, config_path), done);
    TR_TRY_GOTO(sweep_configure(sweep, member, &mine), done);
    const char *key = sweep_difference(mine, found);
    if (key)
        status =
            TR_FAIL(TR_ERR_CONFIG,
                    "%s holds a run with %s = %s; this member has %s: choose another --out, or "
                    "move that folder away",
                    folder, key, tr_config_get(found, key), tr_config_get(mine, key));
done:
    tr_config_destroy(&mine);
    tr_config_destroy(&found);
    return status;
}

tr_status_t sweep_look(const sweep_t *sweep, sweep_member_t *member) {
    static const char *const figures[] = {"best_valid_loss", "valid_loss", "loss"};
    const tr_asked_t asked = {.lines = TR_LINES_NEWEST};
    char folder[4096], path[4096];
    tr_record_t record;
    member->is_done = member->is_elsewhere = member->has_results = false;
    member->best = NAN;
    member->reason[0] = '\0';
    TR_TRY(sweep_path(sweep, member, "", folder));
    if (access(folder, F_OK) != 0) return TR_OK;
    if (tr_exists_in(folder, "config.ini", path))
        TR_TRY(member_check_folder(sweep, member, folder, path));
    TR_TRY(tr_record_read(folder, &asked, &record));
    const tr_run_state_t state = tr_run_state(&record);
    member->is_elsewhere = state.kind == TR_RUN_RUNNING || state.kind == TR_RUN_UNKNOWN;
    tr_snprintf(member->reason, sizeof member->reason, "%s", record.reason);
    /* Diverged: it would diverge again. */
    member->is_done = strcmp(record.verdict, "done") == 0 ||
                      (strcmp(record.verdict, "no") == 0 && record.code == TR_ERR_STOP);
    member->has_results = member->is_done || tr_exists_in(folder, "checkpoints/latest", path);
    for (size_t i = 0; i < TR_COUNT(figures) && isnan(member->best); i++)
        member->best = tr_json_number(record.summary, figures[i]);
    tr_record_free(&record);
    return TR_OK;
}
