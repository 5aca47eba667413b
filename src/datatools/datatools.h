/* What the commands data, import and repack need: other formats to HDF5, and what is in a file. Not
 * collective. */
#ifndef DATATOOLS_H
#define DATATOOLS_H

#include "h5/writer.h"
#include "trainer/data.h"

/* -- importing --------------------------------------------------------------------------------- */

typedef struct {
    tr_writer_params_t writer;
    const char
        /* csv: name or number (from 1) of the label column, "none"; NULL: a usual name, else the
         * last */
        *label;
    bool regression;      /* csv: numeric labels are regression targets */
    double test_fraction; /* csv: fraction of the rows that goes to the group test */
    const char *what;     /* synthetic: digits, images, volumes */
    /* synthetic images and volumes: "32x32x3"; images: "64x64", height and width. NULL: depends on
     * `what`, or on the images */
    const char *shape;
    bool grey; /* images: one channel, also for colour images */
    /* synthetic: training samples; a sixth as many for testing. -1: depends on `what` */
    int64_t samples;
    int64_t classes; /* synthetic: 0 for regression; -1: 10 */
    uint64_t seed;
    /* Rows done, of `total` (0: not yet known). Any other status than TR_OK ends the import and is
     * returned. NULL: none */
    tr_status_t (*progress)(void *self, int64_t done, int64_t total);
    void *self;
    /* csv: the delimiter, and '.' or ',' in numbers; 0: ',' and '.' */
    char delimiter, decimal;
    /* text, tokens */
    const char *const *input; /* [input_count]: the files, `in` first */
    int input_count;
    const char *tokenizer; /* as for tr_tokenizer_create; NULL: not given */
    const char *field;     /* text: the member of JSON lines; NULL: by the file's name */
    double valid_fraction; /* fraction of the tokens or images that goes to the group valid */
    tr_str_t *tokens;      /* gets the number of samples of each kind; NULL: not requested */
    /* Gets a description of y: "3 classes (ant, bee, cow)"; nothing if there is none. NULL: not
     * requested */
    tr_str_t *y;
} tr_import_params_t;

typedef struct {
    const char *name, *usage, *help;
    tr_status_t (*run)(const char *in, const char *out,
                       const tr_import_params_t *params); /* in: NULL for synthetic */
    const char *unit;                                     /* of what is counted; NULL: samples */
    bool takes_many;                                      /* files: params->input */
} tr_importer_t;
const tr_importer_t *const *tr_importer_list(size_t *out_count);

/*
 * Writes `out`: the groups, data sets, soft and hard links and attributes of `in`, with numeric
 * data sets in the fast layout and every value unchanged. Object references and external links are
 * left out, with a warning. NAME_y.h5 beside an `in` named NAME_x.h5 without labels is rewritten,
 * too; `out` must then be named NAME_x.h5. Both files appear under their names only when both are
 * complete.
 */
tr_status_t tr_repack(const char *in, const char *out, const tr_import_params_t *params);

/* -- describing -------------------------------------------------------------------------------- */

/* A text about settings->train (FILE, FILE:GROUP): what training would use and how it would be
 * read, with labels counted and the range of values over at most `sample_bytes` of data. */
tr_status_t tr_data_report(const tr_data_settings_t *settings, int64_t sample_bytes, tr_str_t *out);

#endif
