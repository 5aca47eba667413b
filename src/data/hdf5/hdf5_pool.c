/* Scratch memory for the threads that read a data set. */
#include "hdf5_source.h"
#include "base/mem.h"

#define AUTO_WORKERS 4 /* the limit of tr_loader_workers */

struct h5_pool {
    pthread_mutex_t lock; /* guards scratch[].busy */
    pthread_cond_t free;
    int count;
    h5_scratch_t *scratch; /* [count] */
};

int tr_h5_pool_size(const tr_data_settings_t *settings) {
    return settings->workers > 0 ? (int)settings->workers : AUTO_WORKERS;
}

static tr_status_t hdf5_pool_allocate(h5_pool_t *self, const h5_parts_t *parts, size_t rows_bytes,
                                      size_t converted_bytes) {
    size_t raw = 0, chunk_row = 0;
    for (int p = 0; p < parts->count; p++) {
        tr_h5_scratch_sizes(&parts->data[p].x, &raw, &chunk_row);
        if (parts->data[p].has_y) tr_h5_scratch_sizes(&parts->data[p].y, &raw, &chunk_row);
        if (parts->data[p].has_mask) tr_h5_scratch_sizes(&parts->data[p].mask, &raw, &chunk_row);
    }
    TR_TRY(
        tr_alloc((size_t)self->count * sizeof *self->scratch, "reading buffers", &self->scratch));
    for (int i = 0; i < self->count; i++) {
        h5_scratch_t *s = &self->scratch[i];
        TR_TRY(tr_h5_scratch_reserve(s, raw, chunk_row));
        TR_TRY(tr_alloc_aligned(rows_bytes, 64, "rows to convert", &s->rows));
        TR_TRY(tr_alloc_aligned(converted_bytes, 64, "converted rows", &s->converted));
    }
    return TR_OK;
}

tr_status_t tr_h5_pool_create(const h5_parts_t *parts, int count, size_t rows_bytes,
                              size_t converted_bytes, h5_pool_t **out) {
    h5_pool_t *self = NULL;
    TR_TRY(tr_alloc(sizeof *self, "reading buffers", &self));
    self->count = count;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->free, NULL);
    tr_status_t status = hdf5_pool_allocate(self, parts, rows_bytes, converted_bytes);
    if (status != TR_OK) tr_h5_pool_destroy(&self);
    *out = self;
    return status;
}

void tr_h5_pool_destroy(h5_pool_t **pool) {
    h5_pool_t *self = *pool;
    *pool = NULL;
    if (!self) return;
    for (int i = 0; self->scratch && i < self->count; i++) tr_h5_scratch_free(&self->scratch[i]);
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->free);
    tr_free(&self->scratch);
    tr_free(&self);
}

/* A free one, preferably one that holds the requested chunk row. */
h5_scratch_t *tr_h5_pool_take(h5_pool_t *self, const h5_array_t *array, int64_t row) {
    h5_scratch_t *found = NULL;
    pthread_mutex_lock(&self->lock);
    while (!found) {
        for (int i = 0; i < self->count; i++) {
            h5_scratch_t *s = &self->scratch[i];
            if (s->busy) continue;
            bool holds = array->way == H5_CHUNK_ROWS && s->chunk_row_of == array &&
                         s->chunk_row_index == row / array->chunk_rows;
            if (!found || holds) found = s;
        }
        if (!found) pthread_cond_wait(&self->free, &self->lock);
    }
    found->busy = true;
    pthread_mutex_unlock(&self->lock);
    return found;
}

void tr_h5_pool_give(h5_pool_t *self, h5_scratch_t *s) {
    pthread_mutex_lock(&self->lock);
    s->busy = false;
    pthread_cond_signal(&self->free);
    pthread_mutex_unlock(&self->lock);
}
