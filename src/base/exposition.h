/*
 * Metrics in the text format of Prometheus, version 0.0.4. Names are without the prefix trainer_, which
 * all of them get. Not collective.
 */
#ifndef TR_BASE_EXPOSITION_H
#define TR_BASE_EXPOSITION_H

#include "str.h"

typedef struct {
    const char *name, *value; /* the value may have any character */
} tr_label_t;

/* Where the text goes, and the labels of every sample. */
typedef struct {
    tr_str_t *out;
    const tr_label_t *labels;
    size_t label_count; /* 1 or more */
} tr_exposition_t;

/* What comes before the samples of a metric. type: "gauge", "counter", "histogram". */
void tr_exposition_family(const tr_exposition_t *e, const char *name, const char *type,
                          const char *help);
/* A sample of NAME and suffix ("", "_sum"). own: one label more; NULL: none. */
void tr_exposition_sample(const tr_exposition_t *e, const char *name, const char *suffix,
                          const tr_label_t *own, double value);
/* Metrics of one sample each, without those that are not finite. */
typedef struct {
    const char *name, *type, *help;
    double value;
} tr_exposed_t;
void tr_exposition_numbers(const tr_exposition_t *e, const tr_exposed_t *numbers, size_t count);

#endif
