/* Finds the images below a folder, and says what else is there. */
#include "pictures.h"
#include "image.h"
#include "trainer/log.h"
#include "base/file.h"
#include "base/str.h"
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* -- what is left out -------------------------------------------------------------------------- */

int tr_left_out_kind(const char *name) {
    static const char *const hidden[] = {"__MACOSX", "Thumbs.db", "desktop.ini"},
                             *const formats[] = {".webp", ".gif",  ".bmp",  ".tif", ".tiff",
                                                 ".heic", ".heif", ".avif", ".jp2", ".jfif",
                                                 ".ppm",  ".pgm",  ".tga",  ".dcm"};
    if (*name == '.') return TR_LEFT_HIDDEN;
    for (size_t i = 0; i < TR_COUNT(hidden); i++)
        if (strcasecmp(hidden[i], name) == 0) return TR_LEFT_HIDDEN;
    for (size_t i = 0; i < TR_COUNT(formats); i++)
        if (tr_path_ends_in(name, formats[i])) return TR_LEFT_FORMAT;
    return tr_image_is_named(name) ? TR_LEFT_CLASSLESS : TR_LEFT_OTHER;
}

void tr_left_out_add(tr_left_out_t *left, int kind, const char *path, int64_t count) {
    const size_t most = sizeof left->of[kind].first - 1, length = strlen(path);
    if (left->of[kind].count == 0)
        strcpy(left->of[kind].first, path + (length > most ? length - most : 0));
    left->of[kind].count += count;
}

void tr_left_out_say(const tr_left_out_t *left, const char *folder) {
    static const char *const what[TR_LEFT_KINDS] = {
        [TR_LEFT_FORMAT] = "images of other formats than JPEG and PNG",
        [TR_LEFT_OTHER] = "files not named .jpg, .jpeg or .png",
        [TR_LEFT_HIDDEN] = "hidden files and those of operating systems",
        [TR_LEFT_LOOP] = "links to folders that they are in",
        [TR_LEFT_CLASSLESS] = "images not in the folder of a class",
    };
    tr_str_t text = {0};
    for (int kind = 0; kind < TR_LEFT_KINDS; kind++)
        if (left->of[kind].count > 0)
            tr_str_printf(&text, "%s%s (%lld, such as '%s')", text.length ? ", " : "", what[kind],
                          (long long)left->of[kind].count, left->of[kind].first);
    if (left->of[TR_LEFT_FORMAT].count > 0)
        tr_str_printf(
            &text,
            ". ImageMagick converts them: find '%s' -name '*%s' -exec mogrify -format png "
            "{} +",
            folder, strrchr(left->of[TR_LEFT_FORMAT].first, '.'));
    /* Every folder that a Mac has seen has hidden files: they are worth a line, but no warning. */
    const bool is_usual = text.length > 0 && left->of[TR_LEFT_FORMAT].count == 0 &&
                          left->of[TR_LEFT_OTHER].count == 0 && left->of[TR_LEFT_LOOP].count == 0 &&
                          left->of[TR_LEFT_CLASSLESS].count == 0;
    if (text.text)
        tr_log_write(is_usual ? TR_LOG_INFO : TR_LOG_WARN, false, "'%s': left out %s", folder,
                     text.text);
    tr_str_free(&text);
}

/* -- the files below a folder ------------------------------------------------------------------ */

/* A folder, and the one that it is in. */
typedef struct place {
    const struct place *above;
    dev_t device;
    ino_t inode;
} place_t;

typedef struct {
    tr_pictures_t *pictures;
    tr_left_out_t *left;
    int32_t label;
    char path[4096]; /* of the entry that is examined */
} walk_t;

static tr_status_t walk_folder(walk_t *w, const place_t *place);

static tr_status_t walk_entry(walk_t *w, const place_t *place, const char *name) {
    struct stat found;
    const bool is_there = stat(w->path, &found) == 0;
    const int kind = tr_left_out_kind(name);
    if (kind == TR_LEFT_HIDDEN) {
        tr_left_out_add(w->left, kind, w->path, 1);
    } else if (is_there && S_ISDIR(found.st_mode)) {
        const place_t *above = place;
        while (above && (above->device != found.st_dev || above->inode != found.st_ino))
            above = above->above;
        if (!above) return walk_folder(w, &(place_t){place, found.st_dev, found.st_ino});
        tr_left_out_add(w->left, TR_LEFT_LOOP, w->path, 1);
    } else if (kind == TR_LEFT_CLASSLESS && (!is_there || S_ISREG(found.st_mode))) {
        tr_picture_t picture = {.label = w->label};
        TR_TRY(tr_strdup(w->path, &picture.path));
        const tr_status_t status = tr_vec_push(w->pictures, picture);
        if (status != TR_OK) tr_free(&picture.path);
        return status;
    } else {
        tr_left_out_add(w->left, kind == TR_LEFT_FORMAT ? kind : TR_LEFT_OTHER, w->path, 1);
    }
    return TR_OK;
}

static tr_status_t walk_folder(walk_t *w, const place_t *place) {
    const size_t length = strlen(w->path);
    const char *slash = length > 0 && w->path[length - 1] == '/' ? "" : "/";
    tr_entries_t entries = {0};
    tr_status_t status = tr_entries_read(w->path, &entries);
    for (int i = 0; i < entries.count && status == TR_OK; i++) {
        const char *name = entries.entry[i]->d_name;
        const int bytes =
            tr_snprintf(w->path + length, sizeof w->path - length, "%s%s", slash, name);
        if (bytes >= (int)(sizeof w->path - length))
            status = TR_FAIL(TR_ERR_DATA, "'%.200s...': a path below it has more than %zu bytes.",
                             w->path, sizeof w->path - 1);
        else
            status = walk_entry(w, place, name);
        w->path[length] = '\0';
    }
    tr_entries_free(&entries);
    return status;
}

tr_status_t tr_pictures_below(const char *folder, int32_t label, tr_pictures_t *pictures,
                              tr_left_out_t *left) {
    enum { ABOVE = 64 };
    place_t
        place[ABOVE]; /* the folder and those that it is in, up to the root of the file system */
    walk_t w = {.pictures = pictures, .left = left, .label = label};
    struct stat found;
    tr_snprintf(w.path, sizeof w.path, "%s", folder);
    for (int i = 0; i < ABOVE && strlen(w.path) + 4 < sizeof w.path; i++) {
        if (stat(w.path, &found) != 0) { /* folders above need not be readable */
            if (i > 0) break;
            return tr_io_fail("read the folder", w.path, errno);
        }
        place[i] = (place_t){NULL, found.st_dev, found.st_ino};
        if (i > 0) place[i - 1].above = &place[i];
        strcat(w.path, "/..");
    }
    tr_snprintf(w.path, sizeof w.path, "%s", folder);
    return walk_folder(&w, place);
}

void tr_pictures_free(tr_pictures_t *pictures) {
    for (size_t i = 0; i < pictures->count; i++) tr_free(&pictures->data[i].path);
    tr_vec_free(pictures);
}

/* -- files that cannot be decoded -------------------------------------------------------------- */

tr_status_t tr_pictures_skip_corrupt(const char *where, tr_pictures_t *pictures) {
    enum { SAID = 3 };
    const int64_t count = (int64_t)pictures->count;
    tr_picture_t *picture = pictures->data;
    size_t kept = 0;
    tr_str_t names = {0};
    tr_status_t *found = NULL, status = TR_OK;
    if (count == 0) return TR_OK;
    TR_TRY(tr_alloc((size_t)count * sizeof *found, "images", &found));
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < count; i++) {
        tr_image_t image;
        found[i] = tr_image_read(picture[i].path, 0, &image);
        if (found[i] == TR_OK) tr_image_free(&image);
        tr_error_clear();
    }
    for (int64_t i = 0, bad = 0; i < count; i++) {
        if (found[i] == TR_OK) {
            picture[kept++] = picture[i];
            continue;
        }
        /* a build without the library, too little memory, the disk: not the file's fault */
        if (status == TR_OK &&
            (found[i] == TR_ERR_CONFIG || found[i] == TR_ERR_MEMORY || found[i] == TR_ERR_IO))
            status = TR_FAIL(found[i], "'%s' could not be read.", picture[i].path);
        if (bad++ < SAID)
            tr_str_printf(&names, "%s'%s'", names.length ? ", " : "", picture[i].path);
        tr_free(&picture[i].path);
    }
    pictures->count = kept;
    if (status == TR_OK && kept == 0)
        status = TR_FAIL(TR_ERR_DATA, "'%s': none of its %lld images can be decoded.", where,
                         (long long)count);
    else if (names.text)
        TR_WARN("'%s': left out %lld of %lld images, which cannot be decoded: %s%s", where,
                (long long)(count - (int64_t)kept), (long long)count, names.text,
                count - (int64_t)kept > SAID ? ", ..." : "");
    tr_str_free(&names);
    tr_free(&found);
    return status;
}
