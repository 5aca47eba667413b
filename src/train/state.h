/* Between the graph and checkpoints: a snapshot in host memory, and putting one back. */
#ifndef TRAINER_STATE_H
#define TRAINER_STATE_H

#include "session.h"
#include "checkpoint/checkpoint.h"
#include <jansson.h>

/* Host copies of parameters, model and optimizer state, and the names under which they are saved.
 */
typedef struct tr_snapshot tr_snapshot_t;
tr_status_t tr_snapshot_create(tr_session_t *s, tr_snapshot_t **out);
void tr_snapshot_destroy(tr_snapshot_t **snapshot);
size_t tr_snapshot_bytes(const tr_snapshot_t *snapshot);
/* Copies the state as it is now; waits for the compute stream. */
tr_status_t tr_snapshot_take(tr_snapshot_t *snapshot);
/* The same in two halves: the host has waited for the work that changed the state last, the copies
 * are made on a stream of their own while programs run that only read it, and work that changes it
 * next must wait for *out_taken. _end waits for the copies. */
tr_status_t tr_snapshot_begin(tr_snapshot_t *snapshot, tr_event_t **out_taken);
tr_status_t tr_snapshot_end(tr_snapshot_t *snapshot);
/* What tr_checkpoint_write wants; points into the snapshot. state_json is left NULL. With
 * optimizer.ema the model's tensors are the averages, and what is trained is among the optimizer's
 * as NAME.raw. */
void tr_snapshot_content(const tr_snapshot_t *snapshot, tr_checkpoint_content_t *out);
/* Fills the graph from a checkpoint that tr_state_check took, all of it. TR_ERR_CONFIG names what
 * differs: the samples' shape or keys of [optimizer], else tensors missing, left over, of another
 * shape. Not collective. */
tr_status_t tr_snapshot_restore(tr_snapshot_t *snapshot, const tr_checkpoint_t *checkpoint);
/* Parameters, model and optimizer state of rank 0 to all. Collective. */
tr_status_t tr_state_broadcast(tr_session_t *s);

/* -- weights of a training, to evaluate them --------------------------------------------------- */

typedef struct {
    char *path;                  /* of the folder or file that was opened */
    int64_t step;                /* -1: not known */
    tr_checkpoint_t *checkpoint; /* NULL for a file */
    tr_safetensors_t *model;
    char *state_json;        /* "" where there is none */
    tr_init_layout_t layout; /* order of the dimensions; TR_INIT_LAYOUT_AUTO: not recorded */
    bool is_complete;        /* another program's model, of which no tensor may be left out */
} tr_weights_t;
/* `path`: a step's folder, a run's folder or its checkpoints/ (of these the best, else the newest
 * that is whole), a folder of Hugging Face (huggingface.h), or a .safetensors file, with the state.json beside it if there is one, else what
 * its metadata have of it. Not collective. */
tr_status_t tr_weights_open(const char *path, tr_weights_t **out);
/* The checkpoint that `resume` = `path` means: a step's folder, or the newest that is whole of a
 * run's folder or its checkpoints/. Not collective. */
tr_status_t tr_state_open_resume(const char *path, tr_checkpoint_t **out);
void tr_weights_close(tr_weights_t **weights);
/* Fills parameters and model state, all of them: TR_ERR_CONFIG names what is missing, left over or
 * of another shape. Of a training with optimizer.ema these are the averages: what its evaluations
 * used. Not collective. */
tr_status_t tr_snapshot_load(tr_snapshot_t *snapshot, const tr_weights_t *weights);

/* The same for what fits by name and shape (fine-tuning); says in the log what was left as
 * initialised. */
tr_status_t tr_snapshot_init(tr_snapshot_t *snapshot, const tr_weights_t *weights);

/* -- state.json -------------------------------------------------------------------------------- */

/* state.json of step `step`: where the run stands and what must agree to go on. New reference;
 * NULL: no memory, or a text in it that is not UTF-8. */
json_t *tr_state_json(const tr_session_t *s, int64_t step);
/* The part of it that weights need which are taken away from their run, and the format that the
 * library transformers asks for: metadata for the model's file, for free(); NULL: no memory. It is the same for every step and number of ranks. */
char *tr_state_metadata(const json_t *state);
/* The same with a record of the weights' order, for an exported file; state "" where it is not
 * known. */
char *tr_state_metadata_with_layout(const char *state_json, tr_init_layout_t layout);
/* The order that a file's metadata record. Files without a record that trainer wrote have its own;
 * TR_INIT_LAYOUT_AUTO: not known. */
tr_init_layout_t tr_state_layout(const char *metadata);
/* And back: from a file's metadata that part of state.json; "" where it has none. For tr_free. */
tr_status_t tr_state_of_metadata(const char *metadata, char **out);
/* TR_ERR_CONFIG naming every key in which the checkpoint's run differs from this one so that it
 * cannot be continued exactly, its model's included. Warns where the data are another file. */
tr_status_t tr_state_check(const tr_session_t *s, const tr_checkpoint_t *checkpoint);
/* What the model was told about its data in the training of `state_json`; `origin` names the
 * checkpoint. *out is NULL with TR_OK where state_json ("") does not say. */
tr_status_t tr_state_preprocess(const char *state_json, const char *origin, tr_preprocess_t **out);
/* The order of samples in the run of `state_json`; -1 in members that are not known. */
void tr_state_order(const char *state_json, tr_sampler_t *out);
/* Appends "\n  KEY: A in the checkpoint, B now" for keys of [model] in which the training of
 *              `state_json` differs from `config`, of model.layers the
 * first layer that does; nothing where they agree, or state_json ("") does not say. Not collective.
 */
void tr_state_compare_model(const char *state_json, const tr_config_t *config, tr_str_t *out);
/* The same for keys of other sections that must be as in the checkpoint (TR_RESUME_MATCH), and for
 * those of [optimizer] in which both differ. */
void tr_state_compare_keys(const char *state_json, const tr_config_t *config, tr_str_t *out);
void tr_state_compare_optimizer(const char *state_json, const tr_config_t *config, tr_str_t *out);
/* Appends, for keys of which `out` has a line and that were auto or compute in the checkpoint's
 * run, where their value came from. */
void tr_state_say_origin(const char *state_json, const tr_config_t *config, tr_str_t *out);
/* Appends "KEY A -> B, ..." for keys that may change what is trained (TR_RESUME_NOTE) and have
 * another value now; nothing where state_json does not say. Not collective. */
void tr_state_changes(const char *state_json, const tr_config_t *config, tr_str_t *out);

#endif
