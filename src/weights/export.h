/* Files of a checkpoint that other libraries need to load its weights. */
#ifndef TR_WEIGHTS_EXPORT_H
#define TR_WEIGHTS_EXPORT_H

#include "checkpoint/checkpoint.h"
#include "session/session.h"

/* Appends config.json, generation_config.json where it differs, and the tokenizer's files for Hugging Face transformers; none for models that
 * it does not support. The caller frees *out, also after an error. Not collective. */
tr_status_t tr_export_files(const tr_session_t *s, tr_checkpoint_texts_t *out);

#endif
