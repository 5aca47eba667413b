/* The list of importers, the mean and standard deviation that they write, and their description of
 * y. */
#include "import_int.h"
#include "base/file.h"
#include "trainer/log.h"
#include <math.h>
#include <sys/stat.h>

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

bool tr_is_same_file(const char *a, const char *b) {
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
           of_a.st_ino == of_b.st_ino;
}

tr_status_t tr_import_check_name(const char *in, const char *out) {
    const char *const dot = strrchr(tr_file_name(out), '.');
    const bool is_other = tr_table_is_named(out) || tr_path_ends_in(out, ".txt");
    if (!is_other || tr_is_same_file(in, out))
        return TR_OK; /* the importer refuses the same file */
    return TR_FAIL(TR_ERR_USAGE,
                   "the output '%s' would be an HDF5 file with the name of another format: name it "
                   "'%.*s.h5'.",
                   out, (int)(dot - out), out);
}

tr_status_t tr_import_check_place(const char *in, const char *out) {
    if (!tr_is_same_file(in, out)) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE,
                   "'%s' is the same file as the input '%s': choose another output file.", out, in);
}

tr_status_t tr_moments_begin(tr_moments_t *m, int64_t channels) {
    enum { CHANNELS_MAX = 4096 };
    m->channels = channels <= CHANNELS_MAX ? (int)channels : 0;
    if (m->channels < channels)
        TR_WARN("the attributes mean and std, which normalise inputs, are not written: they are "
                "limited to %d numbers, and there are %lld. Train with data.mean=compute "
                "data.std=compute",
                CHANNELS_MAX, (long long)channels);
    return tr_alloc((size_t)m->channels * sizeof *m->of, "statistics", &m->of);
}

void tr_moments_free(tr_moments_t *m) {
    tr_free(&m->of);
}

void tr_moments_add(tr_moments_t *m, tr_dtype_t dtype, const void *values, int64_t count) {
    if (m->channels) tr_stats_add_values(m->of, m->channels, dtype, values, count);
}

tr_status_t tr_moments_write(const tr_moments_t *m, tr_writer_t *writer) {
    double *mean = NULL, *std;
    if (m->channels == 0) return TR_OK;
    TR_TRY(tr_alloc(2 * (size_t)m->channels * sizeof *mean, "statistics", &mean));
    std = mean + m->channels;
    for (int c = 0; c < m->channels; c++) {
        const double deviation = tr_stats_deviation(&m->of[c]);
        mean[c] = m->of[c].mean;
        /* smaller values are only f32 rounding at this magnitude */
        std[c] = deviation > 1e-6 * hypot(1, mean[c]) ? deviation : 1;
    }
    tr_status_t status = tr_writer_numbers(writer, "/", "mean", m->channels, mean);
    if (status == TR_OK) status = tr_writer_numbers(writer, "/", "std", m->channels, std);
    tr_free(&mean);
    return status;
}

void tr_import_say_classes(const tr_import_params_t *params, int64_t count,
                           const char *const *names) {
    if (!params->y) return;
    tr_str_printf(params->y, "%lld class%s (", (long long)count, count == 1 ? "" : "es");
    if (names)
        tr_names_say(names, count, params->y);
    else
        tr_str_printf(params->y, count > 1 ? "0 to %lld" : "%lld", (long long)count - 1);
    tr_str_append(params->y, ")");
}

void tr_import_say_numbers(const tr_import_params_t *params, int64_t count,
                           const tr_stats_t *stats) {
    if (!params->y) return;
    if (count > 1)
        tr_str_printf(params->y, "%lld regression targets", (long long)count);
    else
        tr_str_printf(params->y, "a regression target, mean %.6g, std %.6g", stats->mean,
                      tr_stats_deviation(stats));
}
