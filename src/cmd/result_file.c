/* Prints tables, and writes the files of --json and --svg. */
#include "cmd.h"
#include "base/file.h"
#include "base/str.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool cmd_json_is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

tr_status_t cmd_text_write(const char *option, const char *path, const char *text) {
    struct stat found;
    const bool to_stdout = cmd_json_is_stdout(path);
    if (!to_stdout && (stat(path, &found) != 0 || S_ISREG(found.st_mode))) {
        if (tr_replace_file(path, text, strlen(text), 0) == TR_OK) return TR_OK;
        const tr_error_t error = *tr_error_last();
        return TR_FAIL(error.code, "%s: %s", option, error.message);
    }
    FILE *file = to_stdout ? stdout : fopen(path, "we"); /* a pipe */
    bool written = file && fputs(text, file) != EOF && fflush(file) == 0;
    if (file && file != stdout && fclose(file) != 0) written = false;
    if (written) return TR_OK;
    return TR_FAIL(tr_status_of_errno(errno), "%s %s cannot be written: %s", option, path,
                   strerror(errno));
}

static void table_put(tr_str_t *text) {
    if (text->text) fputs(text->text, stdout);
    tr_str_free(text);
}

void cmd_table_print(const tr_table_t *t, const void *rows, size_t count) {
    tr_str_t text = {0};
    tr_table_text(t, rows, count, 0, &text);
    table_put(&text);
}

void cmd_table_print_head(const tr_table_t *t) {
    tr_str_t text = {0};
    tr_table_head(t, &text);
    table_put(&text);
}

void cmd_table_print_line(const tr_table_t *t, const void *row) {
    tr_str_t text = {0};
    tr_table_line(t, row, &text);
    table_put(&text);
}

void cmd_table_print_csv(const tr_table_t *t, const void *rows, size_t count, bool has_head) {
    tr_str_t text = {0};
    tr_table_csv(t, rows, count, has_head, &text);
    table_put(&text);
}

tr_status_t cmd_svg_write(const char *path, tr_svg_t *charts) {
    tr_str_t text = {0};
    tr_svg_write(charts, true, &text);
    tr_status_t status = text.status;
    if (status == TR_OK && !text.text)
        status = TR_FAIL(TR_ERR_DATA, "--svg %s: there is no point to draw", path);
    if (status == TR_OK) status = cmd_text_write("--svg", path, text.text);
    tr_str_free(&charts->body);
    tr_str_free(&text);
    return status;
}

tr_status_t cmd_plots_write(const char *path, const tr_plot_t *plots, size_t count,
                            const tr_table_t *table, const tr_plot_rows_t *rows, size_t groups) {
    tr_svg_t charts = {0};
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < count; i++)
        TR_TRY_GOTO(tr_plot_add(&plots[i], table, rows, groups, &charts), done);
    return cmd_svg_write(path, &charts);
done:
    tr_str_free(&charts.body);
    return status;
}

tr_status_t cmd_json_write(json_t *object, const char *path) {
    if (!object)
        return TR_FAIL(TR_ERR_INTERNAL, "--json %s: a text in the result is not valid UTF-8", path);
    tr_str_t text = {0};
    char *dump = json_dumps(object, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (!dump)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "--json %s: it contains a number that JSON cannot represent", path);
    tr_str_printf(&text, "%s\n", dump);
    free(dump);
    const tr_status_t status =
        text.status == TR_OK ? cmd_text_write("--json", path, text.text) : text.status;
    tr_str_free(&text);
    return status;
}
