#ifndef TR_PROGRESS_INT_H
#define TR_PROGRESS_INT_H

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
 * The terminal that shows what is written to `fd`: a descriptor to ask for its width, or -1 where
 * there is none. Under Open MPI's mpirun a rank's own output is a pseudo terminal even where
 * mpirun's goes to a file, so it is mpirun's that is looked at.
 */
int tr_terminal_open(int fd);
int tr_terminal_width(int terminal);
tr_progress_style_t tr_terminal_style(void);

#endif
