/* The folder that --out names. Not collective. */
#ifndef TR_REPORT_OUT_FOLDER_H
#define TR_REPORT_OUT_FOLDER_H

#include "base/str.h"

/* TR_ERR_USAGE for a run folder: the files of a run must not be replaced. */
tr_status_t tr_out_folder_check(const char *dir);
/* Creates the folder and its parents if missing. TR_ERR_USAGE for a file; TR_ERR_IO. */
tr_status_t tr_out_folder_make(const char *dir);
/* Replaces dir/name by a rename. TR_ERR_IO, and the status of `text`. */
tr_status_t tr_out_folder_write(const char *dir, const char *name, const tr_str_t *text);

#endif
