/* The files of a checkpoint with which other libraries load its weights. */
#ifndef TRAINER_EXPORT_H
#define TRAINER_EXPORT_H

#include "checkpoint/checkpoint.h"
#include "session.h"

/* Appends config.json and the files of the tokenizer, as the library transformers reads them; none
 * for a model that it does not know. The caller frees *out, also after an error. Not collective. */
tr_status_t tr_export_files(const tr_session_t *s, tr_checkpoint_texts_t *out);

#endif
