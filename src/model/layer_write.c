/* The normal form of a list of layers. */
#include "layer_int.h"

#define MAX_LINES 10000 /* repeats written out: limits the cost of a typing error in a repeat */

typedef struct {
    tr_str_t *out;
    int lines;
} writer_t;

static void write_list(writer_t *w, const tr_layer_spec_t *specs, int count);

/* The number of repetitions of its block; 0: not a repeat, or one with options, which apply to all
 * its layers. */
static int times_of(const tr_layer_spec_t *spec) {
    double times = 0;
    if (tr_layer_find(spec->name) != &tr_layer_repeat || spec->word_count != 1) return 0;
    return tr_parse_float(spec->words[0].value, &times) ? (int)times : 0;
}

static void write_one(writer_t *w, const tr_layer_spec_t *spec) {
    tr_layer_write(spec, w->out);
    for (int b = 0; b < spec->block_count; b++) {
        tr_str_append(w->out, b ? "} {\n" : " {\n");
        write_list(w, spec->blocks[b].specs, spec->blocks[b].count);
    }
    tr_str_append(w->out, spec->block_count ? "}\n" : "\n");
    w->lines++;
}

static void write_list(writer_t *w, const tr_layer_spec_t *specs, int count) {
    for (int i = 0; i < count && w->lines < MAX_LINES; i++) {
        const int times = times_of(&specs[i]);
        for (int k = 0; k < times && w->lines < MAX_LINES; k++)
            write_list(w, specs[i].blocks[0].specs, specs[i].blocks[0].count);
        if (times == 0) write_one(w, &specs[i]);
    }
}

void tr_layers_write(const tr_layer_spec_t *specs, int count, tr_str_t *out) {
    write_list(&(writer_t){.out = out}, specs, count);
}
