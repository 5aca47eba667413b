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
    double piece[4096];
    const int64_t width = m->channels, rows = width ? (int64_t)TR_COUNT(piece) / width : 0;
    for (int64_t i = 0; i < count && width; i += rows * width) {
        const int64_t part = min64(rows * width, count - i);
        tr_convert(dtype, (const char *)values + i * (int64_t)tr_dtype_bytes(dtype), part, TR_F64, piece);
        tr_stats_add(m->of, width, piece, part / width);
    }
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
