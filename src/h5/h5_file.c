/* Opening HDF5 files, listing their contents, and error messages. */
#include "h5.h"
#include "writer.h"
#include "base/file_format.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 16

bool tr_begins_as_hdf5(const void *bytes, size_t count) {
    static const char signature[8] = {'\x89', 'H', 'D', 'F', '\r', '\n', '\x1a', '\n'};
    return count >= sizeof signature && memcmp(bytes, signature, sizeof signature) == 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void tr_h5_lock(void) {
    static bool prepared;
    pthread_mutex_lock(&lock);
    if (prepared) return;
    prepared = true;
    /* Reading needs no file lock, and locking fails on many parallel file systems. Must be set
     * before the library's first call. */
    if (!H5_HAVE_SET_LOCKING) setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void tr_h5_own_process(void) {
    struct rlimit files; /* data in many files need two or three descriptors each */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    H5dont_atexit();
}

void tr_h5_unlock(void) {
    pthread_mutex_unlock(&lock);
}

/* -- messages ---------------------------------------------------------------------------------- */

typedef struct {
    char *text;
    size_t bytes;
} reason_t;

static herr_t reason_innermost(unsigned n, const H5E_error2_t *error, void *self) {
    reason_t *reason = self;
    if (n == 0 && error->desc) snprintf(reason->text, reason->bytes, "%s", error->desc);
    return 0;
}

const char *tr_h5_reason(char *text, size_t bytes) {
    reason_t reason = {text, bytes};
    snprintf(text, bytes, "no reason given");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, reason_innermost, &reason);
    return text;
}

tr_status_t tr_h5_fail(tr_status_t code, const char *file, int line, const char *func,
                       const char *format, ...) {
    char message[1024], reason[256];
    va_list arguments;
    va_start(arguments, format);
    tr_vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return tr_error_record(code, file, line, func, "%s (HDF5: %s)", message,
                           tr_h5_reason(reason, sizeof reason));
}

/* -- opening ----------------------------------------------------------------------------------- */

static tr_status_t file_examine(const char *key, const char *path, h5_file_t *file) {
    struct stat status;
    if (stat(path, &status)) {
        if (errno == EACCES)
            return TR_FAIL(TR_ERR_PERMISSION, "%s: no permission to access '%s'.", key, path);
        return TR_FAIL(errno == ENOENT || errno == ENOTDIR ? TR_ERR_NOINPUT : TR_ERR_IO,
                       "%s: cannot find '%s': %s.", key, path, strerror(errno));
    }
    if (S_ISDIR(status.st_mode))
        return TR_FAIL(
            TR_ERR_NOINPUT,
            "%s: '%s' is a folder; expected an HDF5 file, or a glob of files such as '%s/*.h5'.",
            key, path, path);
    if (!S_ISREG(status.st_mode))
        return TR_FAIL(
            TR_ERR_NOINPUT,
            "%s: '%s' is a pipe or a device; expected a regular HDF5 file: save it to a file.", key,
            path);
    if (status.st_size == 0)
        return TR_FAIL(TR_ERR_DATA, "%s: '%s' is empty; expected an HDF5 file.", key, path);
    file->bytes = status.st_size;
    file->mtime_sec = status.st_mtime;
    return TR_OK;
}

/* What a file is that is not HDF5. */
static tr_status_t file_fail_other(const char *key, const char *path) {
    char begin[TR_FORMAT_BYTES];
    tr_str_t format = {0};
    FILE *file = fopen(path, "rbe");
    const size_t count = file ? fread(begin, 1, sizeof begin, file) : 0;
    if (file) fclose(file);
    if (tr_file_format_of(path, begin, count, TR_WANTS_HDF5, &format))
        TR_FAIL(TR_ERR_DATA, "%s: '%s' is not an HDF5 file, but %s.", key, path,
                format.text ? format.text : "of another format");
    else
        TR_FAIL(TR_ERR_DATA,
                "%s: '%s' is not an HDF5 file. `trainer import` converts MNIST, CIFAR-10, images, "
                "text and CSV files.",
                key, path);
    tr_str_free(&format);
    return TR_ERR_DATA;
}

static tr_status_t file_open_library(const char *key, const char *path, hid_t *out) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
#if H5_HAVE_SET_LOCKING
    H5Pset_file_locking(access, 0, 1);
#endif
    char reason[256] = "";
    *out = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (*out < 0) tr_h5_reason(reason, sizeof reason); /* the next call forgets it */
    H5Pclose(access);
    if (*out >= 0) return TR_OK;
    if (H5Fis_hdf5(path) == 0) return file_fail_other(key, path);
    if (strstr(reason, "h5clear"))
        return TR_FAIL(
            TR_ERR_DATA,
            "%s: '%s' is being written, or its writer ended without closing it. Wait "
            "for the writer; if there is none, `h5clear -s '%s'` makes the file readable, "
            "with what was flushed to it (HDF5: %s).",
            key, path, path, reason);
    if (strstr(reason, "Too many open files"))
        return TR_FAIL(
            TR_ERR_IO,
            "%s: cannot open '%s': too many open files. Raise the limit (ulimit -n), or use fewer, "
            "larger files.",
            key, path);
    if (strstr(reason, "unable to lock file"))
        return TR_FAIL(TR_ERR_IO,
                       "%s: HDF5 could not lock '%s' (%s). Set HDF5_USE_FILE_LOCKING=FALSE in the "
                       "job's environment.",
                       key, path, reason);
    return TR_FAIL(TR_ERR_DATA,
                   "%s: '%s' is an HDF5 file that cannot be opened: it is truncated or damaged, or "
                   "a program is still writing it (HDF5: %s).",
                   key, path, reason);
}

tr_status_t tr_h5_file_open(const char *key, const char *path, h5_file_t *out) {
    *out = (h5_file_t){.id = -1, .fd = -1, .direct_fd = -1};
    TR_TRY(file_examine(key, path, out));
    if (access(path, R_OK))
        return TR_FAIL(errno == EACCES ? TR_ERR_PERMISSION : TR_ERR_IO, "%s: cannot open '%s': %s.",
                       key, path, strerror(errno));
    tr_status_t status;
    TR_TRY_GOTO(file_open_library(key, path, &out->id), failed);
    TR_TRY_GOTO(tr_strdup(path, &out->path), failed);
    return TR_OK;
failed:
    tr_h5_file_close(out);
    return status;
}

void tr_h5_file_close(h5_file_t *file) {
    tr_h5_file_rest(file);
    tr_h5_file_forget(file);
    if (file->direct_fd >= 0) close(file->direct_fd);
    file->direct_fd = -1;
    tr_free(&file->path);
}

void tr_h5_file_rest(h5_file_t *file) {
    if (file->id > 0) H5Fclose(file->id);
    file->id = -1;
}

tr_status_t tr_h5_file_check(const h5_file_t *file, const struct stat *now) {
    if (now->st_size == file->bytes && now->st_mtime == file->mtime_sec) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s' was changed after the data were opened: start again when it is complete.",
                   file->path);
}

tr_status_t tr_h5_file_wake(h5_file_t *file) {
    struct stat now;
    if (file->id >= 0) return TR_OK;
    TR_TRY(file_open_library("data", file->path, &file->id));
    const tr_status_t status = stat(file->path, &now) == 0 ? tr_h5_file_check(file, &now) : TR_OK;
    if (status != TR_OK) tr_h5_file_rest(file);
    return status;
}

/* -- contents ---------------------------------------------------------------------------------- */

typedef struct {
    h5_list_t *list;
    const char *prefix;
    int depth;
    tr_status_t status;
} visit_t;

static tr_status_t h5_list_add_dataset(visit_t *visit, hid_t id, const char *path) {
    h5_entry_t entry = {0};
    hid_t space = H5Dget_space(id), type = H5Dget_type(id);
    if (space >= 0 && type >= 0) {
        entry.ndim = H5Sget_simple_extent_dims(space, entry.dim, NULL);
        entry.type = H5Tget_class(type);
        tr_status_t status = tr_strdup(path, &entry.path);
        if (status == TR_OK && entry.ndim >= 0) {
            char text[32];
            const size_t room = sizeof entry.text;
            size_t used = (size_t)snprintf(entry.text, room, "%.100s (", path);
            for (int d = 0; d < entry.ndim && used < room; d++)
                used += (size_t)snprintf(entry.text + used, room - used, "%s%llu", d ? ", " : "",
                                         (unsigned long long)entry.dim[d]);
            if (used < room)
                snprintf(entry.text + used, room - used, ") %s", tr_h5_type_text(type, text));
            status = tr_vec_push(visit->list, entry);
        }
        if (status != TR_OK || entry.ndim < 0) tr_free(&entry.path);
        visit->status = status;
    }
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return visit->status;
}

/* It exists but cannot be read here: the message says why. */
static tr_status_t h5_list_add_unusable(visit_t *visit, const char *path, const char *why) {
    h5_entry_t entry = {.ndim = -1, .type = H5T_NO_CLASS};
    tr_status_t status = tr_strdup(path, &entry.path);
    snprintf(entry.text, sizeof entry.text, "%.*s (%.*s)", (int)tr_utf8_bytes(path, 60), path,
             (int)tr_utf8_bytes(why, 95), why);
    if (status == TR_OK) status = tr_vec_push(visit->list, entry);
    if (status != TR_OK) tr_free(&entry.path);
    return visit->status = status;
}

static tr_status_t h5_list_add_external(visit_t *visit, hid_t group, const char *name,
                                        const char *path) {
    char link[4096], why[96];
    const char *file = "another file", *object;
    H5L_info_t info;
    if (H5Lget_info(group, name, &info, H5P_DEFAULT) >= 0 && info.u.val_size <= sizeof link &&
        H5Lget_val(group, name, link, sizeof link, H5P_DEFAULT) >= 0)
        H5Lunpack_elink_val(link, info.u.val_size, NULL, &file, &object);
    snprintf(why, sizeof why, "an external link: use %.*s directly", (int)tr_utf8_bytes(file, 50),
             file);
    return h5_list_add_unusable(visit, path, why);
}

static tr_status_t h5_list_add_unreadable(visit_t *visit, const char *path) {
    unsigned major, minor, release;
    char why[96];
    H5get_libversion(&major, &minor, &release);
    snprintf(why, sizeof why, "damaged, or newer than HDF5 %u.%u.%u, which cannot open it", major,
             minor, release);
    return h5_list_add_unusable(visit, path, why);
}

/* A link may lead into another file with other bytes. */
static bool h5_is_in_file_of(hid_t group, hid_t id) {
    char here[4096] = "", there[4096] = "";
    H5Fget_name(group, here, sizeof here);
    H5Fget_name(id, there, sizeof there);
    return strcmp(here, there) == 0;
}

static herr_t h5_list_visit_link(hid_t group, const char *name, const H5L_info_t *info, void *self);

/* `path` has space for a slash. */
static tr_status_t h5_list_visit_group(visit_t *visit, hid_t id, char *path) {
    if (visit->depth == MAX_DEPTH)
        return h5_list_add_unusable(visit, path, "groups are nested too deeply");
    char *end = strchr(path, '\0');
    strcpy(end, "/");
    visit_t inner = {visit->list, path, visit->depth + 1, TR_OK};
    const herr_t result =
        H5Literate(id, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, h5_list_visit_link, &inner);
    *end = '\0';
    return inner.status == TR_OK && result < 0
               ? h5_list_add_unusable(visit, path, "a damaged group")
               : inner.status;
}

static herr_t h5_list_visit_link(hid_t group, const char *name, const H5L_info_t *info,
                                 void *self) {
    visit_t *visit = self;
    char path[512];
    const bool hard = info->type == H5L_TYPE_HARD, soft = info->type == H5L_TYPE_SOFT;
    if (visit->list->count >= H5_LIST_MAX) return 0;
    if ((size_t)snprintf(path, sizeof path, "%s%s", visit->prefix, name) >= sizeof path - 1)
        return h5_list_add_unusable(visit, path, "its name is too long") == TR_OK ? 0 : -1;
    if (info->type == H5L_TYPE_EXTERNAL)
        return h5_list_add_external(visit, group, name, path) == TR_OK ? 0 : -1;
    hid_t id = H5Oopen(group, name, H5P_DEFAULT);
    if (id < 0) return soft || h5_list_add_unreadable(visit, path) == TR_OK ? 0 : -1;
    if (H5Iget_type(id) == H5I_DATASET)
        visit->status =
            hard || h5_is_in_file_of(group, id)
                ? h5_list_add_dataset(visit, id, path)
                : h5_list_add_unusable(visit, path, "a link into another file: name that file");
    if (hard && H5Iget_type(id) == H5I_GROUP) visit->status = h5_list_visit_group(visit, id, path);
    H5Oclose(id);
    return visit->status == TR_OK ? 0 : -1;
}

static int entry_by_path(const void *a, const void *b) {
    return strcmp(((const h5_entry_t *)a)->path, ((const h5_entry_t *)b)->path);
}

tr_status_t tr_h5_list(const h5_file_t *file, h5_list_t *out) {
    visit_t visit = {out, "", 0, TR_OK};
    *out = (h5_list_t){0};
    herr_t result =
        H5Literate(file->id, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, h5_list_visit_link, &visit);
    if (visit.status == TR_OK && result < 0)
        visit.status =
            H5_FAIL(TR_ERR_DATA, "'%s': cannot list its contents; the file is damaged", file->path);
    if (visit.status != TR_OK) tr_h5_list_free(out);
    if (out->count) qsort(out->data, out->count, sizeof *out->data, entry_by_path);
    return visit.status;
}

void tr_h5_list_free(h5_list_t *list) {
    for (size_t i = 0; i < list->count; i++) tr_free(&list->data[i].path);
    tr_vec_free(list);
}

void tr_h5_list_text(const h5_list_t *list, size_t most, tr_str_t *out) {
    if (!list->count) tr_str_append(out, "no data sets");
    for (size_t i = 0; i < list->count && i < most; i++)
        tr_str_printf(out, "%s%s", i ? "; " : "", list->data[i].text);
    if (list->count > most) tr_str_printf(out, "; and %zu more", list->count - most);
}

bool tr_h5_labels_path(const char *path, char out[4096]) {
    if (snprintf(out, 4096, "%s", path) >= 4096) return false;
    char *dot = strrchr(out, '.');
    if (!dot || strchr(dot, '/') || dot - out < 2 || dot[-2] != '_' || dot[-1] != 'x') return false;
    dot[-1] = 'y';
    return true;
}
