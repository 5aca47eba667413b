/* Directories. */
#include "folders.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

bool tr_make_folders(const char *folder) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path)
        return errno = ENAMETOOLONG, false;
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        (void)mkdir(path, 0777);
        *p = '/';
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}
