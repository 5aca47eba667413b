/* trainer top [RUNS...]: shows where runs are, again and again on a terminal. */
#include "cmd.h"
#include "report/record/newest.h"
#include "report/top.h"
#include "trainer/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct {
    cmd_words_t runs;
    int64_t interval;
    bool once;
} top_options_t;

static volatile sig_atomic_t top_is_over;

static void top_end(int number) {
    (void)number;
    top_is_over = 1;
}

/* Draws over what is there, and erases what is left of it: nothing flickers. */
static void top_redraw(const tr_str_t *text) {
    fputs("\033[H", stdout);
    for (const char *line = text->text; *line;) {
        const int bytes = (int)strcspn(line, "\n");
        printf("%.*s\033[K\n", bytes, line);
        line += bytes + (line[bytes] == '\n');
    }
    fputs("\033[J", stdout);
    fflush(stdout);
}

static tr_status_t top_show(const top_options_t *o, bool is_terminal) {
    char folder[] = "runs", *all[] = {folder};
    struct winsize size = {0};
    tr_asked_t asked = {.lines = TR_LINES_NEWEST};
    tr_runs_t runs;
    tr_str_t text = {0};
    if (is_terminal) (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    tr_newest_ask(&asked);
    TR_TRY(tr_runs_read(o->runs.count ? o->runs.word : all,
                        o->runs.count ? (size_t)o->runs.count : 1, &asked, &runs));
    tr_status_t status = tr_top(&runs, cmd_terminal_columns(),
                                is_terminal && size.ws_row > 3 ? size.ws_row - 3 : 0, &text);
    if (status == TR_OK && is_terminal)
        top_redraw(&text);
    else if (status == TR_OK)
        fputs(text.text, stdout);
    tr_str_free(&text);
    tr_runs_free(&runs);
    return status;
}

static tr_status_t top_run(void *options) {
    const top_options_t *o = options;
    const bool is_terminal = !o->once && isatty(STDOUT_FILENO);
    const struct sigaction action = {.sa_handler = top_end};
    if (is_terminal) {
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        fputs("\033[2J", stdout);
    }
    TR_TRY(top_show(o, is_terminal));
    tr_log_set_level(TR_LOG_ERROR); /* what was left out was said once */
    while (is_terminal && !top_is_over) {
        sleep((unsigned)o->interval); /* a signal ends it */
        if (!top_is_over) TR_TRY(top_show(o, true));
    }
    return TR_OK;
}

static const cmd_argument_t arguments[] = {
    {"[RUNS...]", offsetof(top_options_t, runs), CMD_WORDS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_INT(top_options_t, interval, "--interval", "SECONDS", "2", 1, 86400,
                   "Time between two tables on a terminal."),
    CMD_OPTION_FLAG(top_options_t, once, "--once",
                    "Prints one table. So does output that is not a terminal."),
};

const cmd_command_t cmd_top = {
    .name = "top",
    .runs = CMD_ON_FIRST,
    .summary = "Shows where runs are: step, loss, speed, time left.",
    .help =
        "RUNS are run folders, or folders of runs; without them, those in the folder runs. Only "
        "the folders are read, so the runs may be on other nodes, and need no port. Runs that "
        "have not ended come first. \"last line\" is the age of the newest line of "
        "metrics.jsonl: much more than that of other runs means a run that hangs. Ctrl-C ends "
        "it. A table that is wider than the terminal lacks its last columns.",
    CMD_ARGUMENTS(top_options_t),
    CMD_OPTIONS,
    .run = top_run,
};
