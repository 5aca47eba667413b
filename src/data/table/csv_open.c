/* Opens a table, or says what the file is instead and which command makes a table of it. */
#include "csv.h"
#include "base/file.h"
#include "base/file_format.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Refuses a file that begins as another format. */
static tr_status_t csv_check_begin(const char *path, const char *begin, size_t count) {
    const char *text = begin + (count >= 3 && !memcmp(begin, "\xEF\xBB\xBF", 3) ? 3 : 0);
    TR_TRY(tr_file_format_check(path, begin, count, TR_WANTS_TABLE));
    if (!strncasecmp(text, "<!doctype html", 14) || !strncasecmp(text, "<html", 5))
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' is a web page; expected CSV text. Download the file that the page "
                       "links to.",
                       path);
    if (!strncasecmp(text, "sep=", 4) && text[4])
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s', line 1: found '%.5s', which tells spreadsheet programs the delimiter; "
            "expected the names of the columns. Remove the line (tail -n +2 '%s' "
            ">table.csv), and give --delimiter '%c'%s.",
            path, text, path, text[4],
            text[4] == ',' ? "" : ", and --decimal , if its numbers have decimal commas");
    return TR_OK;
}

tr_status_t tr_csv_table_open(tr_csv_table_t *table, char ***out_field, int *out_count) {
    char begin[TR_FORMAT_BYTES + 1] = "";
    tr_csv_close(&table->csv);
    TR_TRY(tr_check_regular(table->path, "a table is read more than once"));
    int fd = open(table->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return TR_FAIL(errno == ENOENT ? TR_ERR_NOINPUT : TR_ERR_IO, "cannot open '%s': %s.",
                       table->path, strerror(errno));
    const ssize_t count = pread(fd, begin, sizeof begin - 1, 0);
    const tr_status_t status = csv_check_begin(table->path, begin, count > 0 ? (size_t)count : 0);
    if (status != TR_OK) {
        close(fd);
        return status;
    }
    TR_TRY(tr_csv_open(fd, table->path, table->delimiter, &table->csv));
    TR_TRY(tr_csv_row(table->csv, out_field, out_count));
    if (*out_count > 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "'%s' is empty: expected rows of values, found %s. Write it again, or name "
                   "another file.",
                   table->path, count > 0 ? "only line ends" : "no bytes");
}
