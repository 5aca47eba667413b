/* The list of importers, and the moments that they leave in the file. */
#include "import_int.h"
#include <math.h>

#define IMPORTER(name) extern const tr_importer_t tr_importer_##name;
#include "importers.def"
#undef IMPORTER

const tr_importer_t *const *tr_importer_list(size_t *out_count) {
    static const tr_importer_t *const list[] = {
#define IMPORTER(name) &tr_importer_##name,
#include "importers.def"
#undef IMPORTER
    };
    *out_count = TR_COUNT(list);
    return list;
}

void tr_moments_add(tr_moments_t *m, tr_dtype_t dtype, const void *values, int64_t count) {
    if (m->channels) tr_stats_add_values(m->of, m->channels, dtype, values, count);
}

tr_status_t tr_moments_write(const tr_moments_t *m, tr_writer_t *writer) {
    double mean[TR_CHANNELS_MAX], std[TR_CHANNELS_MAX];
    for (int c = 0; c < m->channels; c++) {
        const double deviation = tr_stats_deviation(&m->of[c]);
        mean[c] = m->of[c].mean;
        /* less than that is how f32 rounds numbers of this size */
        std[c] = deviation > 1e-6 * hypot(1, mean[c]) ? deviation : 1;
    }
    TR_TRY(tr_writer_numbers(writer, "/", "mean", m->channels, mean));
    return tr_writer_numbers(writer, "/", "std", m->channels, std);
}
