/* The measured step: the file of `bench step --json`. */
#include "forecast_int.h"

static tr_status_t profile_read_ops(const tr_source_t *from, const json_t *file, tr_profile_t *p) {
    const json_t *ops, *buckets, *steps, *entry;
    size_t i;
    double value;
    TR_TRY(tr_source_list(from, file, "ops", &ops));
    json_array_foreach(ops, i, entry) {
        TR_TRY(tr_source_number(from, entry, "sec_median", 0, &value));
        TR_TRY(tr_vec_push(&p->op_sec, value));
    }
    TR_TRY(tr_source_list(from, file, "compute_sec", &steps));
    json_array_foreach(steps, i, entry) {
        value = json_number_value(entry);
        if (value <= 0 || (i > 0 && value < p->compute_sec.data[i - 1]))
            return TR_FAIL(TR_ERR_DATA, "%s: \"compute_sec\" is not positive and ascending",
                           from->path);
        TR_TRY(tr_vec_push(&p->compute_sec, value));
    }
    if (!(buckets = json_object_get(file, "buckets")) || json_array_size(buckets) == 0)
        return TR_FAIL(TR_ERR_DATA,
                       "%s has no buckets; with parallel.reproducible = yes there are none, and "
                       "that reduction cannot be predicted",
                       from->path);
    json_array_foreach(buckets, i, entry) {
        tr_bucket_t bucket;
        TR_TRY(tr_source_int(from, entry, "after_op", -1, &bucket.after_op));
        TR_TRY(tr_source_number(from, entry, "bytes", 0, &bucket.bytes));
        TR_TRY(tr_vec_push(&p->buckets, bucket));
    }
    return TR_OK;
}

static tr_status_t profile_read_sizes(const tr_source_t *from, const json_t *file,
                                      tr_profile_t *p) {
    double batch, micro, slots;
    TR_TRY(tr_source_int(from, file, "ranks", 1, &p->ranks));
    TR_TRY(tr_source_int(from, file, "threads", 0, &p->threads));
    TR_TRY(tr_source_number(from, file, "batch_size", 1, &batch));
    TR_TRY(tr_source_number(from, file, "micro_batch", 1, &micro));
    TR_TRY(tr_source_number(from, file, "slots", 1, &slots));
    TR_TRY(tr_source_number(from, file, "update_sec", 0, &p->update_sec));
    p->batch_size = (int64_t)batch;
    p->micro_batch = (int64_t)micro;
    p->slots = (int64_t)slots;
    p->parameters = json_integer_value(json_object_get(file, "parameters"));
    const char *config = json_string_value(json_object_get(file, "config"));
    return tr_strdup(config ? config : "", &p->config);
}

tr_status_t tr_profile_read(const char *path, tr_profile_t *out) {
    const tr_source_t from = {path, "trainer bench step CONFIG --json FILE"};
    json_t *file = NULL;
    *out = (tr_profile_t){0};
    TR_TRY(tr_source_open(&from, &file));
    tr_status_t status = profile_read_sizes(&from, file, out);
    if (status == TR_OK) status = profile_read_ops(&from, file, out);
    json_decref(file);
    if (status != TR_OK) tr_profile_free(out);
    return status;
}

void tr_profile_free(tr_profile_t *p) {
    tr_vec_free(&p->op_sec);
    tr_vec_free(&p->buckets);
    tr_vec_free(&p->compute_sec);
    tr_free(&p->config);
}
