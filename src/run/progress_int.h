/* Parts of the progress line. Private to src/run. */
#ifndef TR_RUN_PROGRESS_INT_H
#define TR_RUN_PROGRESS_INT_H

#include "run.h"

/* What the terminal can show. */
typedef struct {
    bool color;
    bool unicode;
} tr_progress_style_t;

/* tr_progress_format for any style: at most `width` columns, whatever the bytes. */
void tr_progress_compose(const tr_progress_t *state, int width, bool bar, tr_progress_style_t style,
                         char *text, size_t bytes);

/*
 * A descriptor of the terminal that displays `fd`, to query its width; -1 if there is none. Under
 * Open MPI's mpirun the output of a rank is a pseudo terminal even if mpirun's output is a file, so
 * this looks at mpirun's output.
 */
int tr_terminal_open(int fd);
int tr_terminal_width(int terminal);
tr_progress_style_t tr_terminal_style(void);

#endif
