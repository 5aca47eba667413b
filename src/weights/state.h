/* Saving the state of a graph to checkpoints and restoring it, through a snapshot in host memory.
 * */
#ifndef TR_WEIGHTS_STATE_H
#define TR_WEIGHTS_STATE_H

#include "session/session.h"
#include "checkpoint/checkpoint.h"
#include <jansson.h>

/* Host copies of parameters, model state and optimizer state, and their names in the checkpoint. */
typedef struct tr_snapshot tr_snapshot_t;
/* Where ranks share the optimizer's state (parallel.zero), every rank has a snapshot, with memory for
 * the pieces that it writes. */
tr_status_t tr_snapshot_create(tr_session_t *s, tr_snapshot_t **out);
void tr_snapshot_destroy(tr_snapshot_t **snapshot);
size_t tr_snapshot_bytes(const tr_snapshot_t *snapshot);
/* What the snapshot of rank 0 will have, of a session that was planned. */
size_t tr_snapshot_plan_bytes(const tr_session_t *s);
/* Writes to the host memory on a thread of its own, so that the system provides its pages now and
 * not while the first copy stops training. */
void tr_snapshot_prefault(tr_snapshot_t *snapshot);
/* Copies the current state; waits for the compute stream. */
tr_status_t tr_snapshot_take(tr_snapshot_t *snapshot);
/* tr_snapshot_take in two halves, which overlaps the copies with programs that only read the state.
 * Before _begin the host has waited for the last work that changed the state. The copies run on a
 * separate stream. The next work that changes the state must wait for *out_taken. _end waits for
 * the copies. */
tr_status_t tr_snapshot_begin(tr_snapshot_t *snapshot, tr_event_t **out_taken);
tr_status_t tr_snapshot_end(tr_snapshot_t *snapshot);
/* Fills *out for tr_checkpoint_write, except state_json, with pointers into the snapshot; where ranks
 * share, also out->sharing, except its attempt and its exchange. With
 * optimizer.ema, the tensors of the model are the averages, and the trained weights are stored with
 * the optimizer state as NAME.raw. */
void tr_snapshot_content(const tr_snapshot_t *snapshot, tr_checkpoint_content_t *out);
/* Restores the whole state of the graph from a checkpoint that passed both checks. Where
 * model.freeze, the optimizer's type or its average have changed, the state that is new begins, and
 * the state that has ended is dropped. TR_ERR_CONFIG names any other difference: the shape of
 * samples, or tensors that are missing, unexpected or of another shape. Where ranks share, each calls
 * it and reads what it alone has; rank 0 also the rest, for tr_state_broadcast. So do _load and _init.
 * Not collective. */
tr_status_t tr_snapshot_restore(tr_snapshot_t *snapshot, const tr_checkpoint_t *checkpoint);
/* What a broadcast moves at a time: with MPI, a rank pins so much memory for it. */
#define TR_STATE_PIECE ((size_t)64 << 20)
/* Broadcasts parameters and model state from rank 0; optimizer_too: and optimizer state with its
 * ages, which are otherwise the same on all ranks. Not what each rank has its own part of; if these are
 * parameters, it ends with tr_session_gather. collectives (NULL: none are open): move it from device to
 * device. Collective. */
tr_status_t tr_state_broadcast(tr_session_t *s, tr_collectives_t *collectives, bool optimizer_too);

/* -- trained weights --------------------------------------------------------------------------- */

typedef struct {
    char *path;                  /* of the opened folder or file */
    int64_t step;                /* -1: unknown */
    tr_checkpoint_t *checkpoint; /* NULL for a file */
    tr_safetensors_t *model;
    char *state_json;        /* "" if there is none */
    json_t *state;           /* the same, parsed; NULL: there is none */
    tr_init_layout_t layout; /* order of the dimensions; TR_INIT_LAYOUT_AUTO: not recorded */
    bool is_best, is_last;   /* the links `best` and `latest` beside it name it */
    bool is_complete;        /* a model of another program, all of whose tensors must be used */
} tr_weights_t;
/* Opens weights. path: a checkpoint folder; a run folder or its checkpoints/ (the best checkpoint,
 * else the newest complete one); a Hugging Face folder (huggingface.h); or a .safetensors file,
 * with the state.json in its folder or from its metadata. Not collective. */
tr_status_t tr_weights_open(const char *path, tr_weights_t **out);
/* The same, of a path that another rank has opened: no tensors are read to check them. */
tr_status_t tr_weights_open_checked(const char *path, tr_weights_t **out);
/* The same, but of a run folder or its checkpoints/ the newest complete checkpoint. */
tr_status_t tr_weights_open_last(const char *path, tr_weights_t **out);
/* Opens the newest checkpoint of the folder `dir` that is complete, and warns of damaged ones. *out
 * is NULL if there is none. opener: NULL: tr_checkpoint_open. Not collective. */
tr_status_t tr_state_open_newest(const char *dir, const tr_checkpoint_opener_t *opener,
                                 tr_checkpoint_t **out);
/* Opens the checkpoint of `resume` = `path`: a checkpoint folder, or the newest complete checkpoint
 * of a run folder or its checkpoints/. Not collective. */
tr_status_t tr_state_open_resume(const char *path, const tr_checkpoint_opener_t *opener,
                                 tr_checkpoint_t **out);
void tr_weights_close(tr_weights_t **weights);
/* Sets all parameters and model state. TR_ERR_CONFIG names tensors that are missing, unexpected or
 * of another shape. With optimizer.ema these are the averages, as used in evaluations. Not
 * collective. */
tr_status_t tr_snapshot_load(tr_snapshot_t *snapshot, const tr_weights_t *weights);

/* As tr_snapshot_load, for tensors that match by name and shape (fine-tuning). Logs the parameters
 * that keep their initial values. */
tr_status_t tr_snapshot_init(tr_snapshot_t *snapshot, const tr_weights_t *weights);

/* -- state.json -------------------------------------------------------------------------------- */

/* The state.json of `step`: the progress of the run and the settings that must match on resume. New
 * reference; NULL: no memory, or a text that is not UTF-8. */
json_t *tr_state_json(const tr_session_t *s, int64_t step);
/* Metadata for model.safetensors: the part of state.json that the weights need without their run,
 * and the format key that Hugging Face transformers requires. The same for every step and number of
 * ranks. For free(); NULL: no memory. */
char *tr_state_metadata(const json_t *state);
/* The same with the layout of the weights, for an exported file. state: NULL if unknown. */
char *tr_state_metadata_with_layout(const json_t *state, tr_init_layout_t layout);
/* The layout recorded in the metadata of a file. Files of trainer without a record have its own
 * layout. TR_INIT_LAYOUT_AUTO: unknown. */
tr_init_layout_t tr_state_layout(const char *metadata);
/* The part of state.json in the metadata of a file; "" if there is none. For tr_free. */
tr_status_t tr_state_of_metadata(const char *metadata, char **out);
/* TR_ERR_CONFIG with every key, including those of the model, that must be as in the checkpoint and
 * is not. Before a session, in which keys that are auto would take the checkpoint's values. */
tr_status_t tr_state_check_keys(const tr_config_t *config, const tr_checkpoint_t *checkpoint);
/* The same with the resolved values of the session: the order of samples and the preprocessing.
 * Warns if the training data are others. */
tr_status_t tr_state_check(const tr_session_t *s, const tr_checkpoint_t *checkpoint);
/* Whether the data of `split` have another checksum than those of the checkpoint; false if one is
 * unknown. */
bool tr_state_has_other_data(const tr_session_t *s, const json_t *state, tr_split_t split);
/* The preprocessing recorded in `state`; `origin` names the checkpoint. Returns TR_OK with
 * *out NULL if there is none. */
tr_status_t tr_state_preprocess(const json_t *state, const char *origin, tr_preprocess_t **out);
/* The order of samples recorded in `state`; -1 for unknown members. */
void tr_state_order(const json_t *state, tr_sampler_t *out);
/* The configuration of the run, for tr_config_destroy; NULL if it is unknown. */
tr_config_t *tr_state_config(const json_t *state);
/* Sets updates_before of every trained parameter, as recorded in `state`. */
void tr_state_ages(tr_graph_t *g, const json_t *state);
/* The precision recorded in `state`; AUTO: unknown. */
tr_precision_t tr_state_precision(const json_t *state);
/* Appends "\n  KEY: A in the checkpoint, B now" for each key of [model] that differs between
 * `state` and `config`; for model.layers, the first layer that differs. Appends nothing if
 * `state` is NULL. Not collective. */
void tr_state_compare_model(const json_t *state, const tr_config_t *config, tr_str_t *out);
/* The same for keys of other sections that must match (TR_RESUME_MATCH). */
void tr_state_compare_keys(const json_t *state, const tr_config_t *config, tr_str_t *out);
/* For the keys listed in `out` that were auto or compute in the checkpoint's run, appends the
 * source of their value. */
void tr_state_say_origin(const json_t *state, const tr_config_t *config, tr_str_t *out);
/* Appends "KEY A -> B, ..." for changed keys that may affect the result (TR_RESUME_NOTE); nothing
 * if `state` does not record them. Not collective. */
void tr_state_changes(const json_t *state, const tr_config_t *config, tr_str_t *out);

#endif
