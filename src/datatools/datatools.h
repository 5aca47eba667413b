/* The commands data, import and repack: converting other formats to HDF5, and describing files. Not
 * collective. */
#ifndef TR_DATATOOLS_DATATOOLS_H
#define TR_DATATOOLS_DATATOOLS_H

#include "h5/writer.h"
#include "data/data.h"

/* -- importing --------------------------------------------------------------------------------- */

typedef enum {
    TR_MISSING_REFUSED,
    TR_MISSING_MEAN,
    TR_MISSING_MEDIAN,
    TR_MISSING_ZERO
} tr_import_missing_t;

typedef enum { TR_HEADER_AUTO, TR_HEADER_YES, TR_HEADER_NO } tr_import_header_t;

typedef struct {
    tr_writer_params_t writer;
    tr_import_header_t header; /* csv: whether the first row has the names of the columns */
    /* csv: name or number (from 1) of the label column, or "none"; NULL: a column with a usual
     * name, else the last one */
    const char *label;
    /* csv: names or numbers of columns, separated by commas; NULL: none. target: regression targets,
     * instead of a label; drop: left out; id: one column, kept as texts; ordinal, one_hot:
     * categories, also of numbers */
    const char *target, *drop, *id, *ordinal, *one_hot;
    tr_import_missing_t missing;             /* csv: what replaces missing numbers */
    bool missing_indicator, refuses_unknown; /* csv */
    bool regression;                         /* csv: numeric labels are regression targets */
    double test_fraction;                    /* csv: fraction of the rows for the group test */
    const char *what;                        /* synthetic: digits, shapes, images, volumes */
    /* synthetic shapes, images and volumes: "32x32x3"; images: "64x64", height and width. NULL: depends on
     * `what`, or on the images */
    const char *shape;
    bool grey;         /* images: convert to one channel */
    bool in_order;     /* images: not shuffled */
    bool skip_corrupt; /* images: leaves out files that cannot be decoded */
    /* synthetic: training samples, and a sixth as many for testing; -1: depends on `what` */
    int64_t samples;
    int64_t classes; /* synthetic: 0: regression; -1: depends on `what` */
    uint64_t seed;
    /* Reports rows done of `total` (0: unknown). Any status but TR_OK ends the import and is
     * returned. May be NULL. */
    tr_status_t (*progress)(void *self, int64_t done, int64_t total);
    void *self;
    /* csv: the delimiter, and '.' or ',' in numbers; 0: ',' and '.' */
    char delimiter, decimal;
    /* text, tokens */
    const char *const *input; /* [input_count]: the files, `in` first */
    int input_count;
    const char *tokenizer; /* spec for tr_tokenizer_create; NULL: not given */
    const char *ids;       /* tokens: how ids without a header are stored; NULL: not given */
    const char *field;     /* text: member of JSON lines; NULL: depends on the file name */
    double valid_fraction; /* fraction of the tokens, images or rows for the group valid */
    bool is_valid_given;   /* csv: also without test_fraction, which else decides */
    tr_str_t *tokens;      /* output: number of samples of each kind; may be NULL */
    /* output: description of y, "3 classes (ant, bee, cow)", nothing without y; may be NULL */
    tr_str_t *y;
} tr_import_params_t;

typedef struct {
    const char *name, *usage, *help;
    tr_status_t (*run)(const char *in, const char *out,
                       const tr_import_params_t *params); /* in: NULL for synthetic */
    const char *unit;                                     /* unit of the progress; NULL: samples */
    bool takes_many;                                      /* several input files: params->input */
} tr_importer_t;
const tr_importer_t *const *tr_importer_list(size_t *out_count);
/* TR_ERR_USAGE if the output, an HDF5 file that is not the input, has the name of a table or a text. */
tr_status_t tr_import_check_name(const char *in, const char *out);

/*
 * Copies the groups, data sets, soft and hard links and attributes of `in` to `out`, with numeric
 * data sets in the fast layout and all values unchanged. Object references and external links are
 * skipped with a warning. If `in` is named NAME_x.h5 and has no labels, NAME_y.h5 in the same
 * folder is copied, too; `out` must then be named NAME_x.h5. Both files get their names only when
 * both are complete.
 */
tr_status_t tr_repack(const char *in, const char *out, const tr_import_params_t *params);

/* -- describing -------------------------------------------------------------------------------- */

/* Describes settings->train (FILE or FILE:GROUP): the arrays that training would use, how they are
 * read, the counts of labels, and the range of values over at most `sample_bytes` of data. */
tr_status_t tr_data_report(const tr_data_settings_t *settings, int64_t sample_bytes, tr_str_t *out);

#endif
