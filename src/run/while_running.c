/* The list of files that are removed at the end. */
#include "while_running.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 8 };

static struct {
    char path[4096];
    atomic_bool is_set;
} files[MOST];

void tr_while_running_add(const char *path) {
    if (strlen(path) >= sizeof files[0].path) return;
    for (int i = 0; i < MOST; i++) {
        if (atomic_load(&files[i].is_set)) continue;
        strcpy(files[i].path, path);
        atomic_store(&files[i].is_set, true);
        return;
    }
}

void tr_while_running_remove(const char *path) {
    unlink(path);
    for (int i = 0; i < MOST; i++)
        if (atomic_load(&files[i].is_set) && strcmp(files[i].path, path) == 0)
            atomic_store(&files[i].is_set, false);
}

void tr_while_running_end(void) {
    for (int i = 0; i < MOST; i++)
        if (atomic_exchange(&files[i].is_set, false)) unlink(files[i].path);
}
