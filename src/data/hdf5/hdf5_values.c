/* The shares of classes, and labels that are probably no class numbers. */
#include "hdf5_source.h"
#include <stdio.h>
#include <string.h>

void tr_h5_label_shares(const tr_label_values_t *v, const int64_t *count, int64_t classes,
                        h5_label_notes_t *notes, tr_dataset_info_t *info) {
    enum { SHOWN = 20, ROOM = 64 };
    double all = 0;
    size_t used = 0;
    for (int64_t c = -1; c < classes; c++) all += (double)count[1 + c];
    for (int64_t c = 0; c < classes && c < SHOWN; c++) {
        char value[24] = "";
        if (v->count > 0) tr_snprintf(value, sizeof value, " (%.16g)", v->value[c]);
        used += (size_t)tr_snprintf(notes->shares + used, ROOM, "%s%lld%s: %.3g %%", c ? ", " : "",
                                    (long long)c, value, 100 * (double)count[1 + c] / all);
    }
    if (count[0] > 0)
        tr_snprintf(notes->shares + used, ROOM, ", none: %.3g %%", 100 * (double)count[0] / all);
    info->label_shares = notes->shares;
}

bool tr_h5_labels_have_gaps(const int64_t *count, int64_t largest, h5_gaps_t *out) {
    enum { SHOWN = 8 };
    size_t used = 0;
    *out = (h5_gaps_t){.different = 0};
    for (int64_t c = 0; c <= largest; c++) {
        if (count[1 + c] == 0) continue;
        const char *comma = out->different++ > 0 ? "," : "";
        if (out->different <= SHOWN)
            used += (size_t)snprintf(out->list + used, 24, "%s%lld", comma, (long long)c);
        else
            strcpy(out->list + used, ",...");
    }
    out->is_mapping = out->different > 1 && out->different <= TR_LABEL_VALUES_MAX;
    return out->different > 0 && largest >= 4 * out->different;
}
