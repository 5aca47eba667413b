/* Lists the image files of a folder and their classes. Private to src/datatools. */
#ifndef TR_DATATOOLS_IMAGE_FOLDER_H
#define TR_DATATOOLS_IMAGE_FOLDER_H

#include "base/mem.h"
#include "trainer/status.h"

typedef struct {
    char *path;
    int label; /* index of its class */
} tr_picture_t;

enum { TR_PICTURES_TRAIN, TR_PICTURES_VALID, TR_PICTURES_TEST, TR_PICTURES_GROUPS };

typedef struct {
    TR_VEC(char *) class_name; /* sorted by bytes */
    TR_VEC(tr_picture_t) group[TR_PICTURES_GROUPS];
} tr_pictures_t;

/*
 * Lists FOLDER/CLASS/FILE as the group TRAIN, or FOLDER/train/CLASS/FILE and, if present, the same
 * for the folders valid, val or validation, and test. Skips files not named .jpg, .jpeg or .png,
 * with a warning. TR_ERR_DATA for a class without images.
 */
tr_status_t tr_pictures_list(const char *folder, tr_pictures_t *out);
void tr_pictures_free(tr_pictures_t *pictures);

#endif
