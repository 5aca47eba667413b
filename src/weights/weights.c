/* Finds the weights at a path. */
#include "base/file.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "huggingface.h"
#include "state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

tr_status_t tr_state_open_newest(const char *dir, const tr_checkpoint_opener_t *opener,
                                 tr_checkpoint_t **out) {
    tr_str_t skipped = {0};
    const tr_status_t status = tr_checkpoint_open_newest(dir, opener, out, &skipped);
    if (skipped.length > 0) TR_WARN("skipped damaged checkpoints:\n%s", skipped.text);
    tr_str_free(&skipped);
    return status;
}

/* How weights are opened. */
typedef struct {
    bool wants_best;
    bool is_checked; /* by another rank: the data of tensors are not read again */
    const tr_checkpoint_opener_t *opener;
} weights_way_t;

/* A folder with checkpoints: the best one if requested, else the newest complete one. A damaged
 * best checkpoint is an error, because another one would give another result. */
static tr_status_t open_chosen(const char *dir, const weights_way_t *way, tr_checkpoint_t **out) {
    const bool wants_best = way->wants_best;
    char best[4096];
    if (wants_best && tr_exists_in(dir, "best", best)) return tr_checkpoint_open(best, out);
    TR_TRY(tr_state_open_newest(dir, way->opener, out));
    if (*out) return TR_OK;
    return TR_FAIL(
        TR_ERR_NOINPUT,
        "%s holds no checkpoint: expected a run folder, its checkpoints/%s one of their "
        "step-NNNNNNNN%s",
        dir, wants_best ? "," : ", or",
        wants_best ? ", a .safetensors file, or a Hugging Face model folder with config.json" : "");
}

static tr_status_t open_checkpoint(const char *path, const weights_way_t *way,
                                   tr_checkpoint_t **out) {
    char inside[4096];
    if (tr_exists_in(path, TR_CHECKPOINT_MANIFEST, inside))
        return way->is_checked ? tr_checkpoint_open_part(path, 1, 1, out)
               : way->opener   ? way->opener->open(way->opener->self, path, out)
                               : tr_checkpoint_open(path, out);
    return open_chosen(tr_exists_in(path, "checkpoints", inside) ? inside : path, way, out);
}

tr_status_t tr_state_open_resume(const char *path, const tr_checkpoint_opener_t *opener,
                                 tr_checkpoint_t **out) {
    struct stat info;
    const bool is_there = stat(path, &info) == 0;
    if (!is_there && errno != ENOENT && errno != ENOTDIR) return tr_io_fail("open", path, errno);
    if (is_there && S_ISDIR(info.st_mode))
        return open_checkpoint(path, &(weights_way_t){.opener = opener}, out);
    return TR_FAIL(
        is_there ? TR_ERR_DATA : TR_ERR_NOINPUT,
        "resume = %s: expected auto, no, a checkpoint folder (checkpoints/step-NNNNNNNN) or a run "
        "folder; %s",
        path,
        is_there ? "this is a file (to start from the weights of a file, set model.init)"
                 : "no folder has this name");
}

/* Whether the link `name` beside a checkpoint points to it. */
static bool weights_is_linked(const char *path, const char *name) {
    char link[4096];
    struct stat own, linked;
    const int length = snprintf(link, sizeof link, "%s/../%s", path, name);
    return length < (int)sizeof link && stat(path, &own) == 0 && stat(link, &linked) == 0 &&
           own.st_dev == linked.st_dev && own.st_ino == linked.st_ino;
}

static tr_status_t open_folder(const char *path, const weights_way_t *way, tr_weights_t *w) {
    if (tr_hf_is_folder(path)) {
        w->is_complete = true;
        TR_TRY(tr_strdup(path, &w->path));
        return tr_hf_open(path, way->is_checked, &w->model, &w->state_json);
    }
    TR_TRY(tr_hf_check_folder(path));
    TR_TRY(open_checkpoint(path, way, &w->checkpoint));
    w->model = w->checkpoint->model;
    w->step = w->checkpoint->step;
    w->layout = TR_INIT_LAYOUT_TRAINER;
    TR_TRY(tr_strdup(w->checkpoint->path, &w->path));
    w->is_best = weights_is_linked(w->path, "best");
    w->is_last = weights_is_linked(w->path, "latest");
    return tr_strdup(w->checkpoint->state_json, &w->state_json);
}

static tr_status_t weights_open_file(const char *path, const weights_way_t *way, tr_weights_t *w) {
    char state[4096];
    struct stat info;
    TR_TRY(tr_safetensors_open(path, &w->model));
    TR_TRY(tr_strdup(path, &w->path));
    w->layout = tr_state_layout(tr_safetensors_metadata(w->model));
    if (w->layout == TR_INIT_LAYOUT_AUTO) {
        TR_TRY(tr_hf_check_names(w->model, path));
        if (!way->is_checked) TR_TRY(tr_hf_check_head(w->model, path, true));
    }
    const int length = snprintf(state, sizeof state, "%.*s%s", (int)(tr_file_name(path) - path),
                                path, TR_CHECKPOINT_STATE);
    if (length >= (int)sizeof state || stat(state, &info) != 0)
        return tr_state_of_metadata(tr_safetensors_metadata(w->model), &w->state_json);
    return tr_read_text(state, TR_TEXT_MAX_BYTES, &w->state_json, &(int64_t){0});
}

static tr_status_t weights_open(const char *path, const weights_way_t *way, tr_weights_t **out) {
    tr_weights_t *w = NULL;
    struct stat info;
    *out = NULL;
    if (stat(path, &info) != 0)
        return TR_FAIL(TR_ERR_NOINPUT,
                       "no checkpoint %s: expected a run folder, a checkpoint folder "
                       "(checkpoints/step-NNNNNNNN), a folder of Hugging Face, or a "
                       ".safetensors file",
                       path);
    TR_TRY(tr_alloc(sizeof *w, "weights", &w));
    w->step = -1;
    const tr_status_t status =
        S_ISDIR(info.st_mode) ? open_folder(path, way, w) : weights_open_file(path, way, w);
    if (w->checkpoint)
        w->state = json_incref(w->checkpoint->state);
    else if (w->state_json)
        w->state = json_loads(w->state_json, 0, NULL);
    if (status != TR_OK) tr_weights_close(&w);
    *out = w;
    return status;
}

tr_status_t tr_weights_open(const char *path, tr_weights_t **out) {
    return weights_open(path, &(weights_way_t){.wants_best = true}, out);
}

tr_status_t tr_weights_open_checked(const char *path, tr_weights_t **out) {
    return weights_open(path, &(weights_way_t){.wants_best = true, .is_checked = true}, out);
}

tr_status_t tr_weights_open_last(const char *path, tr_weights_t **out) {
    char inside[4096];
    TR_TRY(weights_open(path, &(weights_way_t){0}, out));
    if ((*out)->checkpoint && !tr_exists_in(path, TR_CHECKPOINT_MANIFEST, inside)) return TR_OK;
    tr_weights_close(out);
    return TR_FAIL(TR_ERR_CONFIG,
                   "--last expects a run folder, found one checkpoint or one file of weights, %s: "
                   "name the run folder, or leave out --last",
                   path);
}

void tr_weights_close(tr_weights_t **weights) {
    tr_weights_t *w = *weights;
    if (!w) return;
    if (!w->checkpoint) tr_safetensors_close(&w->model);
    tr_checkpoint_close(&w->checkpoint);
    tr_free(&w->path);
    tr_free(&w->state_json);
    json_decref(w->state);
    tr_free(weights);
}
