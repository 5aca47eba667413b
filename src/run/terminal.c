/* What kind of terminal there is, and how wide. */
#include "progress_int.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Name and parent of a process; false if it cannot be inspected. */
static bool terminal_read_process(long pid, char name[32], long *out_parent) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    /* "12 (na me) S 11 ...": the name may contain spaces and parentheses. */
    char *open_bracket = read ? strchr(line, '(') : NULL,
         *close_bracket = read ? strrchr(line, ')') : NULL;
    if (!open_bracket || !close_bracket || sscanf(close_bracket + 1, " %*c %ld", out_parent) != 1)
        return false;
    *close_bracket = '\0';
    snprintf(name, 32, "%s", open_bracket + 1);
    return true;
}

/* The process id of the mpirun that started this rank from the same node, or 0. */
static long terminal_find_launcher(void) {
    static const char *const names[] = {"mpirun", "mpiexec", "orterun", "prterun", "prun"};
    char name[32];
    long parent = 0;
    for (long pid = getppid(); pid > 1 && terminal_read_process(pid, name, &parent); pid = parent)
        for (size_t i = 0; i < TR_COUNT(names); i++)
            if (strcmp(name, names[i]) == 0) return pid;
    return 0;
}

int tr_terminal_open(int fd) {
    const char *term = getenv("TERM");
    if (!term || !*term || strcmp(term, "dumb") == 0) return -1;
    if (!getenv("OMPI_COMM_WORLD_SIZE")) return isatty(fd) ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    char path[64];
    long launcher = terminal_find_launcher();
    if (launcher == 0) return -1;
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", launcher, fd);
    int terminal = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (terminal >= 0 && isatty(terminal)) return terminal;
    if (terminal >= 0) close(terminal);
    return -1;
}

int tr_terminal_width(int terminal) {
    struct winsize size;
    return ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

tr_progress_style_t tr_terminal_style(void) {
    const char *no_color = getenv("NO_COLOR"), *locale = getenv("LC_ALL");
    if (!locale || !*locale) locale = getenv("LC_CTYPE");
    if (!locale || !*locale) locale = getenv("LANG");
    return (tr_progress_style_t){
        .color = !no_color || !*no_color,
        .unicode = locale && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"))};
}
