/* Directories, for the program and for device libraries. */
#ifndef TR_BASE_FOLDERS_H
#define TR_BASE_FOLDERS_H

#include <stdbool.h>

/* Makes a directory and those above it, where they are missing. False: errno says why. */
bool tr_make_folders(const char *path);

#endif
