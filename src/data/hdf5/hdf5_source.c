/* Opens the files of data.train, data.valid or data.test. */
#include "hdf5_source.h"
#include "base/host.h"
#include "data/preprocess/preprocess.h"
#include "trainer/log.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES_MIN (64 << 10) /* rows in smaller pieces are fetched by whole chunks */
#define AWAKE_MOST      8          /* files that stay open in the library */
#define DIRECT_MOST     128        /* files that are read with direct I/O */
#define ALIKE_LEAST     8          /* files of a shape from which each may be a sample */

static const char *const split_keys[] = {"data.train", "data.valid", "data.test"};

/* FILE, FILE:GROUP or a glob. A colon is part of the name if a file has that name. */
tr_status_t tr_h5_source_parse(const tr_data_settings_t *settings, tr_split_t split,
                               h5_source_t *out) {
    const char *texts[] = {settings->train, settings->valid, settings->test}, *text = texts[split];
    *out = (h5_source_t){
        .wanted = {.key = split_keys[split], .x = settings->x, .y = settings->y, .split = split}};
    out->wanted.mask = settings->mask ? settings->mask : "";
    out->wanted.tokens = settings->context > 0;
    out->wanted.is_sample = settings->sample == TR_SAMPLE_FILE;
    out->wanted.stored = settings->trained && !settings->trained->decodes;
    if (!*text && split != TR_SPLIT_TRAIN) {
        text = settings->train;
        out->wanted.implied = true;
    }
    if ((size_t)snprintf(out->pattern, sizeof out->pattern, "%s", text) >= sizeof out->pattern)
        return TR_FAIL(TR_ERR_CONFIG, "%s: the name is longer than %zu characters.",
                       out->wanted.key, sizeof out->pattern - 1);
    char *colon = strrchr(out->pattern, ':');
    if (colon && access(out->pattern, F_OK)) {
        *colon = '\0';
        const char *group = colon + 1 + strspn(colon + 1, "/");
        snprintf(out->group, sizeof out->group, "%s", group);
        size_t length = strlen(out->group);
        if (length && out->group[length - 1] == '/') out->group[length - 1] = '\0';
        /* a group of training data contains no other split */
        if (out->wanted.implied) out->pattern[0] = '\0';
    }
    out->wanted.group = out->group;
    return TR_OK;
}

static tr_status_t source_find_y_file(h5_part_t *part, const h5_wanted_t *wanted) {
    char path[4096];
    h5_list_t list;
    if (!tr_h5_labels_path(part->file.path, path) || access(path, F_OK)) return TR_OK;
    TR_TRY(tr_h5_file_open(wanted->key, path, &part->y_file));
    part->y_file.is_sample = wanted->is_sample;
    TR_TRY(tr_h5_list(&part->y_file, &list));
    tr_status_t status = tr_h5_detect_labels(&part->y_file, &list, wanted, part->names);
    if (status == TR_OK && part->names->y[0] && *wanted->mask && !part->names->mask[0])
        status = tr_h5_fail_mask(&part->y_file, &list, wanted);
    tr_h5_list_free(&list);
    return status;
}

/* Finds x and y by name, in the open file or, for y, in the separate file of labels. */
static tr_status_t source_find_arrays(h5_part_t *part, const h5_list_t *list,
                                      const h5_wanted_t *wanted, bool *out_found) {
    TR_TRY(tr_h5_detect(&part->file, list, wanted, part->names, out_found));
    if (*out_found && part->names->y[0] && *wanted->mask && !part->names->mask[0])
        return tr_h5_fail_mask(&part->file, list, wanted);
    if (!*out_found || part->names->y[0] || part->names->is_tokens || wanted->inputs_only)
        return TR_OK;
    TR_TRY(source_find_y_file(part, wanted));
    return part->names->y[0] || !*wanted->y
               ? TR_OK
               : tr_h5_fail_labels(&part->file, list, wanted, part->names);
}

tr_dtype_t tr_h5_part_travels_as(const h5_part_t *part) {
    return part->x_packing.scales ? TR_F32 : tr_h5_travels_as(part->x.dtype);
}

/* How the values of an open array are decoded. */
static tr_status_t source_find_packing(h5_array_t *array, const h5_wanted_t *wanted, bool is_first,
                                       h5_packing_t *out) {
    const tr_dtype_t stored = array->dtype;
    const tr_status_t status = tr_h5_packing_read(array, out);
    if (!wanted->stored) return status;
    if (status != TR_OK && status != TR_ERR_DATA) return status;
    if (status == TR_OK && !out->scales && !out->has_holes && array->dtype == stored) return TR_OK;
    if (status != TR_OK) tr_error_clear();
    if (is_first)
        TR_WARN(
            "%s: /%s declares missing or packed values (_FillValue, scale_factor, ...), which the "
            "release that trained these weights did not decode: its values are used as stored. "
            "Train anew to use the decoded ones",
            array->file->path, array->name);
    array->dtype = stored;
    *out = (h5_packing_t){.scale = 1};
    return TR_OK;
}

/* The first data set of `first` that the files of `part` do not have; NULL: none. */
static const char *source_find_lack(const h5_part_t *first, const h5_part_t *part,
                                    const h5_file_t **out_file) {
    const char *const name[] = {first->names->x, first->names->y, first->names->mask};
    for (int i = 0; i < 1 + first->has_y + first->has_mask; i++) {
        *out_file = i > 0 && part->y_file.path ? &part->y_file : &part->file;
        if (H5Oexists_by_name((*out_file)->id, name[i], H5P_DEFAULT) <= 0) return name[i];
    }
    return NULL;
}

/* Whether the file has data sets of the names of the first one, so that no search is needed. */
static bool source_has_names(const h5_part_t *first, const h5_part_t *part,
                             const h5_wanted_t *wanted) {
    const h5_file_t *file;
    return !first->y_file.path &&
           (first->has_y || first->names->is_tokens || wanted->inputs_only) &&
           !source_find_lack(first, part, &file);
}

/* The mask, beside y. */
static tr_status_t source_open_mask(h5_part_t *part) {
    h5_array_t *mask = &part->mask;
    part->has_mask = true;
    TR_TRY(tr_h5_array_open(part->y.file, part->names->mask, mask));
    TR_TRY(tr_h5_refuse_unallocated(mask));
    if (tr_dtype_is_float(mask->dtype))
        return TR_FAIL(TR_ERR_DATA, "%s: /%s (data.mask) has the type %s: expected integers.",
                       mask->file->path, mask->name, tr_dtype_name(mask->dtype));
    if (mask->rows == part->x.rows) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "%s: /%s has %lld samples, but /%s (data.mask) has %lld; the numbers must be "
                   "equal.",
                   mask->file->path, part->names->y, (long long)part->y.rows, mask->name,
                   (long long)mask->rows);
}

/* A file of one sample has the names of the first one. */
static tr_status_t source_take_names(h5_part_t *part, const h5_part_t *first,
                                     const h5_wanted_t *wanted) {
    char path[4096];
    if (first->y_file.path && tr_h5_labels_path(part->file.path, path)) {
        TR_TRY(tr_h5_file_open(wanted->key, path, &part->y_file));
        part->y_file.is_sample = true;
    }
    const h5_file_t *file;
    const char *lack = source_find_lack(first, part, &file);
    if (!lack) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "%s has no data set /%s, which %s has: with data.sample = file, all files must "
                   "have the same ones.",
                   file->path, lack, first->file.path);
}

/* Finds x and y and opens them; *out_found as in tr_h5_detect. first: NULL, or another part. */
static tr_status_t source_open_arrays(h5_part_t *part, const h5_part_t *first,
                                      const h5_wanted_t *wanted, bool *out_found) {
    h5_list_t list;
    *out_found = true;
    if (first && (wanted->is_sample || source_has_names(first, part, wanted)))
        part->names = first->names;
    if (part->names && wanted->is_sample) TR_TRY(source_take_names(part, first, wanted));
    if (!part->names) {
        TR_TRY(tr_alloc(sizeof *part->names, "names of data sets", &part->names));
        TR_TRY(tr_h5_list(&part->file, &list));
        tr_status_t status = source_find_arrays(part, &list, wanted, out_found);
        tr_h5_list_free(&list);
        if (status != TR_OK || !*out_found) return status;
    }
    TR_TRY(tr_h5_array_open(&part->file, part->names->x, &part->x));
    TR_TRY(tr_h5_refuse_unallocated(&part->x));
    if (!part->names->is_tokens)
        TR_TRY(source_find_packing(&part->x, wanted, part->first == 0, &part->x_packing));
    if (!part->names->y[0]) return TR_OK;
    part->has_y = true;
    TR_TRY(tr_h5_array_open(part->y_file.path ? &part->y_file : &part->file, part->names->y,
                            &part->y));
    TR_TRY(tr_h5_refuse_unallocated(&part->y));
    TR_TRY(source_find_packing(&part->y, wanted, part->first == 0, &part->y_packing));
    if (part->y.rows == part->x.rows) return part->names->mask[0] ? source_open_mask(part) : TR_OK;
    char remedy[512];
    tr_h5_foreign_rows(part, remedy);
    if (!*remedy)
        snprintf(remedy, sizeof remedy, " If each file holds one sample, set data.sample = file.");
    return TR_FAIL(TR_ERR_DATA,
                   "%s: /%s has %lld samples, but %s: /%s has %lld; the numbers must be "
                   "equal.%s",
                   part->x.file->path, part->names->x, (long long)part->x.rows, part->y.file->path,
                   part->names->y, (long long)part->y.rows, remedy);
}

/* Whether rows can be joined. Samples that are files have one type: it is known before they are
 * read. */
static bool source_same_rows(const h5_array_t *a, const h5_array_t *b) {
    return a->ndim == b->ndim &&
           !memcmp(a->dim + 1, b->dim + 1, (size_t)(a->ndim - 1) * sizeof *a->dim) &&
           (!a->file->is_sample || a->dtype == b->dtype);
}

/* "(128, 128, 4) f32" */
static void source_say_rows(const h5_array_t *a, char text[160]) {
    tr_shape_t shape = {.ndim = a->ndim - 1};
    char dims[96];
    memcpy(shape.dim, a->dim + 1, (size_t)shape.ndim * sizeof *shape.dim);
    snprintf(text, 160, "%s %s", tr_shape_format(&shape, dims), tr_dtype_name(a->dtype));
}

static tr_status_t source_check_part(const h5_part_t *first, const h5_part_t *part) {
    if (first->has_y && !part->has_y)
        return TR_FAIL(TR_ERR_DATA, "%s has no labels or targets /%s, which %s has.",
                       part->file.path, first->names->y, first->file.path);
    bool same =
        part->has_y == first->has_y && source_same_rows(&part->x, &first->x) &&
        (!first->has_mask || source_same_rows(&part->mask, &first->mask)) &&
        (!part->has_y || (source_same_rows(&part->y, &first->y) &&
                          part->y_packing.scales == first->y_packing.scales)) &&
        part->names->is_tokens == first->names->is_tokens &&
        (part->names->is_tokens || tr_h5_part_travels_as(part) == tr_h5_part_travels_as(first));
    if (same) return TR_OK;
    const h5_array_t *a = &first->x, *b = &part->x; /* those that differ */
    char expected[160], found[160];
    if (source_same_rows(a, b) && first->has_mask && !source_same_rows(&part->mask, &first->mask))
        a = &first->mask, b = &part->mask;
    if (source_same_rows(&part->x, &first->x) && first->has_y && part->has_y &&
        !source_same_rows(&part->y, &first->y))
        a = &first->y, b = &part->y;
    source_say_rows(a, expected);
    source_say_rows(b, found);
    return TR_FAIL(TR_ERR_DATA,
                   "%s and %s cannot be concatenated: their samples or labels differ in shape or "
                   "type: a %s of /%s is %s in the first, and %s in the second. `trainer data` "
                   "shows both.",
                   first->file.path, part->file.path, part->file.is_sample ? "sample" : "row",
                   a->name, expected, found);
}

/* Opens a file and checks that it fits to the first one; *out_found as in tr_h5_detect. */
static tr_status_t source_open_part(const h5_wanted_t *wanted, const char *path, h5_part_t *first,
                                    h5_part_t *part, bool *out_found) {
    const bool is_first = part == first;
    TR_TRY(tr_h5_file_open(wanted->key, path, &part->file));
    part->file.is_sample = wanted->is_sample;
    part->file.is_like_another = !is_first;
    TR_TRY(source_open_arrays(part, is_first ? NULL : first, wanted, out_found));
    if (*out_found) return source_check_part(first, part);
    return is_first ? TR_OK
                    : TR_FAIL(TR_ERR_DATA, "%s: '%s' has a group that '%s' lacks.", wanted->key,
                              first->file.path, path);
}

/* Each file of a set may be one sample, which data.sample does not say: x has as many rows in all of
 * them, and their other dimensions and those of y agree as those of a picture and its mask. */
static void source_warn_samples(const h5_source_t *source, const h5_parts_t *parts) {
    const h5_part_t *first = parts->data;
    if (parts->count < ALIKE_LEAST || source->wanted.is_sample || !first->has_y ||
        first->x.rows < 2 || first->y.ndim < 2 || first->x.ndim < 3 ||
        first->y.dim[1] != first->x.dim[1])
        return;
    for (int p = 1; p < parts->count; p++)
        if (parts->data[p].x.rows != first->x.rows) return;
    if (source->wanted.split == TR_SPLIT_TRAIN)
        TR_WARN(
            "%s: all %d files have %lld rows, which are read as samples. If each file holds one "
            "sample, set data.sample = file",
            source->wanted.key, parts->count, (long long)first->x.rows);
}

static tr_status_t source_open_parts(const h5_source_t *source, char *const *path, size_t count,
                                     h5_parts_t *out) {
    bool found = true;
    TR_TRY(tr_alloc(count * sizeof *out->data, "data files", &out->data));
    for (size_t i = 0; i < count && found; i++) {
        h5_part_t *part = &out->data[out->count++];
        part->first = i > 0 ? part[-1].first + part[-1].x.rows : 0;
        TR_TRY(source_open_part(&source->wanted, path[i], out->data, part, &found));
        part->has_meta = found && tr_h5_has_meta(part);
        if (i == AWAKE_MOST)
            for (int p = 1; p < AWAKE_MOST; p++) tr_h5_part_rest(out, &out->data[p]);
        if (i > 0) tr_h5_part_rest(out, &out->data[i]);
    }
    if (!found) tr_h5_parts_close(out);
    source_warn_samples(source, out);
    return TR_OK;
}

tr_status_t tr_h5_part_wake(h5_part_t *part) {
    TR_TRY(tr_h5_file_wake(&part->file));
    return part->y_file.path ? tr_h5_file_wake(&part->y_file) : TR_OK;
}

void tr_h5_part_rest(const h5_parts_t *parts, h5_part_t *part) {
    if (parts->count <= AWAKE_MOST || part->names->is_tokens) return;
    tr_h5_array_rest(&part->x);
    if (part->has_y) tr_h5_array_rest(&part->y);
    if (part->has_mask) tr_h5_array_rest(&part->mask);
    tr_h5_file_rest(&part->file);
    if (part->y_file.path) tr_h5_file_rest(&part->y_file);
}

static void source_close_part(h5_part_t *part) {
    tr_h5_array_close(&part->mask);
    tr_h5_array_close(&part->y);
    tr_h5_array_close(&part->x);
    if (part->y_file.path) tr_h5_file_close(&part->y_file);
    tr_h5_file_close(&part->file);
}

int64_t tr_h5_parts_samples(const h5_parts_t *parts) {
    const h5_part_t *last = &parts->data[parts->count - 1];
    return last->first + last->x.rows + parts->late_count;
}

/* Requires the lock. */
static tr_status_t source_open_late(h5_parts_t *parts, int index, h5_part_t **out) {
    const h5_part_t *first = parts->data;
    h5_part_t *part = NULL;
    bool found;
    TR_TRY(tr_alloc(sizeof *part, "data files", &part));
    part->first = parts->count + index;
    tr_status_t status =
        source_open_part(&parts->wanted, parts->paths.path[part->first], parts->data, part, &found);
    if (status == TR_OK && part->x_packing.has_holes && !first->x_packing.has_holes)
        status = TR_FAIL(TR_ERR_DATA,
                         "%s: /%s has an attribute for missing values, which %s lacks: with "
                         "data.sample = file, all files must have it.",
                         part->file.path, part->names->x, first->file.path);
    if (status == TR_OK) {
        tr_h5_part_rest(parts, part);
        *out = part;
        return TR_OK;
    }
    source_close_part(part);
    tr_free(&part);
    return status;
}

tr_status_t tr_h5_part_at(h5_parts_t *parts, int64_t sample, h5_part_t **out) {
    int low = 0, high = parts->count - 1;
    if (sample >= parts->count && parts->late_count > 0) {
        h5_part_t **late = &parts->late[sample - parts->count], *part = NULL;
        tr_status_t status = TR_OK;
        *out = __atomic_load_n(late, __ATOMIC_ACQUIRE);
        if (*out) return TR_OK;
        tr_h5_lock();
        if (!*late) status = source_open_late(parts, (int)(sample - parts->count), &part);
        if (part) __atomic_store_n(late, part, __ATOMIC_RELEASE);
        *out = *late;
        tr_h5_unlock();
        return status;
    }
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (parts->data[middle].first <= sample)
            low = middle;
        else
            high = middle - 1;
    }
    *out = &parts->data[low];
    return TR_OK;
}

void tr_h5_parts_expect(h5_parts_t *parts, int64_t first, int64_t count) {
    while (count > 0) {
        h5_part_t *part;
        int64_t rows = 1;
        if (first >= parts->count && parts->late_count > 0 &&
            !__atomic_load_n(&parts->late[first - parts->count], __ATOMIC_ACQUIRE)) {
            tr_h5_expect_file(parts->paths.path[first]);
        } else if (tr_h5_part_at(parts, first, &part) == TR_OK) {
            rows = min64(count, part->first + part->x.rows - first);
            tr_h5_expect_rows(&part->x, first - part->first, rows);
        }
        first += rows;
        count -= rows;
    }
}

tr_status_t tr_h5_paths(const h5_source_t *source, h5_paths_t *out) {
    *out = (h5_paths_t){.plain = {(char *)source->pattern}, .count = 1};
    bool is_glob = strpbrk(source->pattern, "*?[") && access(source->pattern, F_OK);
    int result = is_glob ? glob(source->pattern, 0, NULL, &out->found) : 0;
    if (result == GLOB_NOMATCH)
        return TR_FAIL(TR_ERR_NOINPUT, "%s: no file matches '%s'.", source->wanted.key,
                       source->pattern);
    if (result)
        return TR_FAIL(TR_ERR_IO, "%s: cannot search for '%s'.", source->wanted.key,
                       source->pattern);
    out->path = is_glob ? out->found.gl_pathv : out->plain;
    if (is_glob) out->count = out->found.gl_pathc;
    return TR_OK;
}

void tr_h5_paths_free(h5_paths_t *paths) {
    if (paths->path != paths->plain) globfree(&paths->found);
}

tr_status_t tr_h5_parts_open(const h5_source_t *source, h5_parts_t *out) {
    h5_paths_t paths;
    TR_TRY(tr_h5_paths(source, &paths));
    const size_t early =
        source->wanted.is_sample && paths.count > H5_EARLY ? H5_EARLY : paths.count;
    tr_status_t status = source_open_parts(source, paths.path, early, out);
    if (status == TR_OK && out->count > 0 && early < paths.count) {
        out->late_count = (int)(paths.count - early);
        out->paths = paths;
        out->wanted = source->wanted;
        out->wanted.group = out->wanted.x = out->wanted.y = ""; /* those of the first file */
        return tr_alloc((size_t)out->late_count * sizeof *out->late, "data files", &out->late);
    }
    tr_h5_paths_free(&paths);
    return status;
}

void tr_h5_parts_close(h5_parts_t *parts) {
    for (int p = parts->count - 1; p >= 0; p--) {
        h5_part_t *part = &parts->data[p];
        source_close_part(part);
        if (p == 0 || part->names != parts->data->names) tr_free(&part->names);
    }
    for (int p = 0; parts->late && p < parts->late_count; p++) {
        if (parts->late[p]) source_close_part(parts->late[p]);
        tr_free(&parts->late[p]);
    }
    if (parts->late_count > 0) tr_h5_paths_free(&parts->paths);
    tr_free(&parts->late);
    tr_free(&parts->data);
    *parts = (h5_parts_t){0};
}

/* -- common properties of the parts ------------------------------------------------------------ */

static uint64_t source_mix(uint64_t hash, uint64_t value) {
    return (hash ^ value) * 1099511628211u ^ value >> 29;
}

uint64_t tr_h5_parts_fingerprint(const h5_parts_t *parts) {
    uint64_t hash = 14695981039346656037u;
    for (int p = 0; p < parts->count; p++) {
        const h5_part_t *part = &parts->data[p];
        hash = source_mix(hash, tr_hash_name(tr_file_name(part->file.path)));
        hash = source_mix(source_mix(hash, tr_hash_name(part->names->x)),
                          tr_hash_name(part->names->y));
        if (part->has_mask) hash = source_mix(hash, tr_hash_name(part->names->mask));
        hash = source_mix(source_mix(hash, (uint64_t)part->file.bytes),
                          (uint64_t)part->file.mtime_sec);
        hash = source_mix(source_mix(hash, (uint64_t)part->y_file.bytes),
                          (uint64_t)part->y_file.mtime_sec);
        for (int d = 0; d < part->x.ndim; d++) hash = source_mix(hash, (uint64_t)part->x.dim[d]);
        hash = source_mix(hash, part->x.dtype);
    }
    for (int p = 0; p < parts->late_count; p++)
        hash = source_mix(hash, tr_hash_name(tr_file_name(parts->paths.path[parts->count + p])));
    return hash;
}

int64_t tr_h5_parts_read_unit(const h5_parts_t *parts) {
    int64_t unit = 1;
    for (int p = 0; p < parts->count; p++) {
        const h5_array_t *x = &parts->data[p].x;
        bool decoded = x->way == H5_LIBRARY || (x->way == H5_CHUNK_ROWS && !x->verified);
        bool pieces = x->way == H5_CHUNKS && x->chunk_row_bytes < PIECE_BYTES_MIN && !x->whole_rows;
        bool together = x->layout == H5D_CHUNKED && (decoded || pieces);
        if (together) unit = max64(unit, min64(x->chunk_rows, max64(1, x->rows)));
    }
    return unit;
}

/* Files larger than the page cache would only pass through it; the rest of the memory is needed for
 * other purposes. */
static bool source_wants_direct(const h5_parts_t *parts, const tr_data_settings_t *settings) {
    double bytes = 0, memory = (double)tr_host_memory_bytes();
    for (int p = 0; p < parts->count; p++) bytes += (double)parts->data[p].file.bytes;
    return settings->direct_io == TR_DIRECT_YES ||
           (settings->direct_io == TR_DIRECT_AUTO && memory > 0 && bytes > 0.75 * memory);
}

/* If a file cannot be opened for direct reads, which some file systems do not support, the page
 * cache is used. */
tr_status_t tr_h5_parts_open_direct(h5_parts_t *parts, const tr_data_settings_t *settings,
                                    h5_direct_t **out) {
    *out = NULL;
    if (!source_wants_direct(parts, settings)) return TR_OK;
    if (parts->count > DIRECT_MOST) {
        TR_INFO(
            "%d files are read through the page cache, because direct I/O keeps each file open; "
            "it is used for at most %d",
            parts->count + parts->late_count, DIRECT_MOST);
        return TR_OK;
    }
    TR_TRY(tr_h5_direct_open(out));
    for (int p = 0; p < parts->count; p++) {
        h5_file_t *file = &parts->data[p].file;
        file->direct_fd = open(file->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (file->direct_fd >= 0) file->direct = *out;
    }
    return TR_OK;
}
