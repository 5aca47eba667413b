/* Composes the text format of Prometheus. */
#include "exposition.h"

#include <math.h>

void tr_exposition_family(const tr_exposition_t *e, const char *name, const char *type,
                          const char *help) {
    tr_str_printf(e->out, "# HELP trainer_%s %s\n# TYPE trainer_%s %s\n", name, help, name, type);
}

/* Three characters of a value are escaped. */
static void exposition_label(tr_str_t *out, const char *before, const tr_label_t *label) {
    tr_str_printf(out, "%s%s=\"", before, label->name);
    for (const char *at = label->value; *at; at++) {
        if (*at == '\n')
            tr_str_append(out, "\\n");
        else
            tr_str_printf(out, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
    }
    tr_str_append(out, "\"");
}

void tr_exposition_sample(const tr_exposition_t *e, const char *name, const char *suffix,
                          const tr_label_t *own, double value) {
    tr_str_printf(e->out, "trainer_%s%s", name, suffix);
    for (size_t i = 0; i < e->label_count; i++)
        exposition_label(e->out, i ? "," : "{", &e->labels[i]);
    if (own) exposition_label(e->out, ",", own);
    tr_str_printf(e->out, "} %.15g\n", value);
}

void tr_exposition_numbers(const tr_exposition_t *e, const tr_exposed_t *numbers, size_t count) {
    for (const tr_exposed_t *n = numbers; n < numbers + count; n++) {
        if (!isfinite(n->value)) continue;
        tr_exposition_family(e, n->name, n->type, n->help);
        tr_exposition_sample(e, n->name, "", NULL, n->value);
    }
}
