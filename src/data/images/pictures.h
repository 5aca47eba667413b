/* The JPEG and PNG files below a folder. Used by `import images` and the data set of images. */
#ifndef TR_DATA_PICTURES_H
#define TR_DATA_PICTURES_H

#include "base/mem.h"
#include <stdint.h>

typedef struct {
    char *path; /* owned */
    int32_t label;
} tr_picture_t;
typedef TR_VEC(tr_picture_t) tr_pictures_t;

/* What was found beside the pictures: the number of each kind, and the path of the first, or
 * its end. */
enum {
    TR_LEFT_FORMAT,
    TR_LEFT_OTHER,
    TR_LEFT_HIDDEN,
    TR_LEFT_LOOP,
    TR_LEFT_CLASSLESS,
    TR_LEFT_KINDS
};
typedef struct {
    struct {
        int64_t count;
        char first[1024];
    } of[TR_LEFT_KINDS];
} tr_left_out_t;

/*
 * Appends the files of `folder` and of all folders below it with this label, in the order of their
 * names. Links are followed, but not back to a folder that they are in. Hidden entries and those of
 * operating systems (__MACOSX, Thumbs.db, desktop.ini) are left out.
 */
tr_status_t tr_pictures_below(const char *folder, int32_t label, tr_pictures_t *pictures,
                              tr_left_out_t *left);
/* Why an entry of this name is left out: CLASSLESS for one that is named as an image. */
int tr_left_out_kind(const char *name);
void tr_left_out_add(tr_left_out_t *left, int kind, const char *path, int64_t count);
/* Logs what was left out of `folder`, in one line; nothing if nothing was. */
void tr_left_out_say(const tr_left_out_t *left, const char *folder);
/* Decodes every file once, and leaves out those that cannot be, with one warning. TR_ERR_DATA: none
 * of the files in `where`, a name for messages, can be decoded. */
tr_status_t tr_pictures_skip_corrupt(const char *where, tr_pictures_t *pictures);
void tr_pictures_free(tr_pictures_t *pictures);

#endif
