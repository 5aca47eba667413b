/* Lists the image files of a folder and their classes. Private to src/datatools. */
#ifndef TR_DATATOOLS_IMAGE_FOLDER_H
#define TR_DATATOOLS_IMAGE_FOLDER_H

#include "data/images/pictures.h"

enum { TR_PICTURES_TRAIN, TR_PICTURES_VALID, TR_PICTURES_TEST, TR_PICTURES_GROUPS };

typedef struct {
    TR_VEC(char *) class_name; /* sorted by bytes */
    tr_pictures_t group[TR_PICTURES_GROUPS];
} tr_image_folder_t;

/*
 * Lists FOLDER/CLASS/.../FILE as the group TRAIN, or FOLDER/train/CLASS/.../FILE and, if present,
 * the same for the folders of validation and test. Their names are train or training, valid, val,
 * validation or dev, and test or testing, in any case. Logs what is left out. TR_ERR_DATA for a
 * class without images, and if classes and groups cannot be told apart.
 */
tr_status_t tr_image_folder_list(const char *folder, tr_image_folder_t *out);
void tr_image_folder_free(tr_image_folder_t *folder);

#endif
