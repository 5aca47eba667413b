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
    "set terminal svg size 560,300 noenhanced background rgb 'white' font 'sans-serif,12' name "
    "'plot%d'\n"
    "set encoding utf8\nset decimalsign '.'\nset border 3 lc rgb '#555555'\n"
    "set tics nomirror textcolor rgb '#333333'\nset grid lc rgb '#dddddd' lt 1\n"
    "set key outside top center horizontal samplen 2\nset style fill solid 0.9 noborder\n";

static bool fail(tr_plotter_t *p, const char *what, const char *why) {
    tr_snprintf(p->why, sizeof p->why, "%s: %.*s.", what, (int)strcspn(why, "\n"), why);
    p->is_off = true;
    return false;
}

static void read_all(int fd, tr_str_t *out) {
    char part[4096];
    ssize_t bytes;
    while ((bytes = read(fd, part, sizeof part)) > 0 || (bytes < 0 && errno == EINTR))
        if (bytes > 0) tr_str_append_bytes(out, part, (size_t)bytes);
}

/* Returns 0 or an errno value. */
static int spawn(int script, int output, int errors, pid_t *out_pid) {
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

/* The first line that gnuplot wrote to standard error is the reason of a failure. */
static void first_error(FILE *errors, char out[128]) {
    rewind(errors);
    do
        if (!fgets(out, 128, errors)) strcpy(out, "it drew nothing");
    while (strspn(out, " \t\n^") == strlen(out));
    out[strcspn(out, "\n")] = '\0';
}

static bool run(tr_plotter_t *p, FILE *script, FILE *errors, tr_str_t *out) {
    int ends[2], state = 0;
    pid_t pid;
    char why[128];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail(p, "No plots", strerror(errno));
    const int error = spawn(fileno(script), ends[1], fileno(errors), &pid);
    close(ends[1]);
    if (error == 0) read_all(ends[0], out);
    close(ends[0]);
    if (error == ENOENT)
        return fail(p, "No plots", "gnuplot is not installed; the tables have all numbers");
    if (error != 0) return fail(p, "No plots, gnuplot cannot be started", strerror(error));
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0 && out->text && strstr(out->text, "</svg>"))
        return true;
    first_error(errors, why);
    return fail(p, "No plots, gnuplot failed", why);
}

void tr_plot_draw(tr_plotter_t *p, const char *script, tr_str_t *out) {
    tr_str_t svg = {0}, text = {0};
    FILE *input = NULL, *errors = NULL;
    if (p->is_off) return;
    tr_str_printf(&text, head, p->drawn++);
    tr_str_append(&text, script);
    input = tmpfile();
    errors = tmpfile();
    if (!input || !errors || text.status != TR_OK ||
        fwrite(text.text, 1, text.length, input) != text.length || fflush(input) != 0)
        fail(p, "No plots, a temporary file cannot be written", strerror(errno));
    else if (lseek(fileno(input), 0, SEEK_SET) == 0 && run(p, input, errors, &svg))
        tr_str_append(out, strstr(svg.text, "<svg"));
    if (input) fclose(input);
    if (errors) fclose(errors);
    tr_str_free(&svg);
    tr_str_free(&text);
}
