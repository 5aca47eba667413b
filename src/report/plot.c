/* Draws plots with gnuplot. */
#include "plot.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* noenhanced: no character of a label is markup. */
static const char head[] =
    "set terminal svg size %d,%d noenhanced background rgb 'white' font 'sans-serif,12' name "
    "'plot%d'\n"
    "set encoding utf8\nset decimalsign '.'\nset border 3 lc rgb '#555555'\n"
    "set tics nomirror textcolor rgb '#333333'\nset grid lc rgb '#dddddd' lt 1\n"
    "set key outside top center horizontal samplen 2\nset style fill solid 0.9 noborder\n";

static bool plot_fail(tr_plotter_t *p, const char *what, const char *why) {
    tr_snprintf(p->why, sizeof p->why, "%s: %.*s.", what, (int)strcspn(why, "\n"), why);
    p->is_off = true;
    return false;
}

/* Returns 0 or an errno value. */
static int plot_spawn(int script, int output, int errors, pid_t *out_pid) {
    char *const argv[] = {(char[]){"gnuplot"}, (char[]){"-d"}, NULL}; /* without ~/.gnuplot */
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
    const int error = posix_spawnp(out_pid, "gnuplot", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static bool plot_run(tr_plotter_t *p, FILE *script, FILE *errors, tr_str_t *out) {
    int ends[2], state = 0;
    pid_t pid;
    char why[128], part[4096];
    ssize_t bytes = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) return plot_fail(p, "No plots", strerror(errno));
    const int error = plot_spawn(fileno(script), ends[1], fileno(errors), &pid);
    close(ends[1]);
    while (error == 0 &&
           ((bytes = read(ends[0], part, sizeof part)) > 0 || (bytes < 0 && errno == EINTR)))
        if (bytes > 0) tr_str_append_bytes(out, part, (size_t)bytes);
    close(ends[0]);
    if (error == ENOENT)
        return plot_fail(p, "No plots", "gnuplot is not installed; the tables have all numbers");
    if (error != 0) return plot_fail(p, "No plots, gnuplot cannot be started", strerror(error));
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0 && out->text && strstr(out->text, "</svg>"))
        return true;
    /* The first line that gnuplot wrote to standard error is the reason. */
    rewind(errors);
    do
        if (!fgets(why, sizeof why, errors)) strcpy(why, "it drew nothing");
    while (strspn(why, " \t\n^") == strlen(why));
    why[strcspn(why, "\n")] = '\0';
    return plot_fail(p, "No plots, gnuplot failed", why);
}

void tr_plot_draw(tr_plotter_t *p, const char *script, tr_str_t *out) {
    tr_str_t svg = {0}, text = {0};
    FILE *input = NULL, *errors = NULL;
    if (p->is_off) return;
    tr_str_printf(&text, head, p->width ? p->width : 560, p->height ? p->height : 300, p->drawn++);
    tr_str_append(&text, script);
    input = tmpfile();
    errors = tmpfile();
    if (!input || !errors || text.status != TR_OK ||
        fwrite(text.text, 1, text.length, input) != text.length || fflush(input) != 0)
        plot_fail(p, "No plots, a temporary file cannot be written", strerror(errno));
    else if (lseek(fileno(input), 0, SEEK_SET) == 0 && plot_run(p, input, errors, &svg))
        tr_str_append(out, strstr(svg.text, "<svg"));
    if (input) fclose(input);
    if (errors) fclose(errors);
    tr_str_free(&svg);
    tr_str_free(&text);
}
