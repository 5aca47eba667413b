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

void tr_moments_add_u8(tr_moments_t *m, const uint8_t *values, int64_t count) {
    for (int c = 0; c < m->channels; c++) {
        uint64_t sum = 0, squares = 0;
        for (int64_t i = c; i < count; i += m->channels) {
            sum += values[i];
            squares += (uint64_t)values[i] * values[i];
        }
        m->sum[c] += (double)sum;
        m->squares[c] += (double)squares;
        m->values[c] += count / m->channels;
    }
}

void tr_moments_add(tr_moments_t *m, int channel, double value) {
    m->sum[channel] += value;
    m->squares[channel] += value * value;
    m->values[channel]++;
}

tr_status_t tr_moments_write(const tr_moments_t *m, tr_writer_t *writer) {
    double mean[TR_CHANNELS_MAX], std[TR_CHANNELS_MAX];
    for (int c = 0; c < m->channels; c++) {
        mean[c] = m->values[c] ? m->sum[c] / (double)m->values[c] : 0;
        double variance = m->values[c] ? m->squares[c] / (double)m->values[c] - mean[c] * mean[c] : 1;
        std[c] = variance > 1e-12 * (1 + mean[c] * mean[c]) ? sqrt(variance) : 1;
    }
    TR_TRY(tr_writer_numbers(writer, "/", "mean", m->channels, mean));
    return tr_writer_numbers(writer, "/", "std", m->channels, std);
}
