/* Opens a table, or says what the file is instead and which command makes a table of it. */
#include "csv.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "h5/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* What a file that is no table begins with. In a command, @ stands for the path. */
static const struct {
    const char *begin;
    size_t bytes;
    const char *what, *command;
} foreign[] = {
    {"\xFD"
     "7zXZ",
     5, "compressed by xz", "xz -dk @"},
    {"\x28\xB5\x2F\xFD", 4, "compressed by zstd", "zstd -d @"},
    {"BZh", 3, "compressed by bzip2", "bunzip2 -k @"},
    {"7z\xBC\xAF", 4, "a 7z archive", "7z x @"},
    {"PK\3\4", 4, "a zip archive", "unzip @"},
    {"\xD0\xCF\x11\xE0", 4, "an Excel workbook", "libreoffice --headless --convert-to csv @"},
    {"PAR1", 4, "a Parquet file",
     "python3 -c \"import pandas; pandas.read_parquet('@').to_csv('table.csv', index=False)\""},
    {"ARROW1", 6, "a Feather file",
     "python3 -c \"import pandas; pandas.read_feather('@').to_csv('table.csv', index=False)\""},
    {"SQLite format 3", 15, "an SQLite database",
     "sqlite3 -csv -header @ 'select * from NAME' >table.csv"},
    {"\xFF\xFE", 2, "text in UTF-16", "iconv -f UTF-16 -t UTF-8 @ >table.csv"},
    {"\xFE\xFF", 2, "text in UTF-16", "iconv -f UTF-16 -t UTF-8 @ >table.csv"},
    {"version https://git-lfs", 23, "a pointer of Git LFS to the file", "git lfs pull"},
};

static tr_status_t csv_fail_foreign(const char *path, const char *what, const char *command) {
    tr_str_t text = {0};
    for (; *command; command++)
        if (*command == '@')
            tr_str_append(&text, path);
        else
            tr_str_append_bytes(&text, command, 1);
    TR_FAIL(TR_ERR_DATA, "'%s' is %s; expected CSV text. This command makes it: %s", path, what,
            text.text ? text.text : "");
    tr_str_free(&text);
    return TR_ERR_DATA;
}

/* Refuses a file that begins as another format. */
static tr_status_t csv_check_begin(const char *path, const char *begin, size_t count) {
    static const char *const workbooks[] = {".xlsx", ".xlsm", ".ods"};
    const char *text = begin + (count >= 3 && !memcmp(begin, "\xEF\xBB\xBF", 3) ? 3 : 0);
    if (tr_begins_as_hdf5(begin, count))
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s' is an HDF5 file; expected CSV text. `trainer data` shows its contents, and "
            "data.train reads it directly.",
            path);
    for (size_t i = 0; i < TR_COUNT(workbooks); i++)
        if (!memcmp(begin, "PK\3\4", 4) && tr_path_ends_in(path, workbooks[i]))
            return csv_fail_foreign(path, "a spreadsheet",
                                    "libreoffice --headless --convert-to csv @");
    for (size_t i = 0; i < TR_COUNT(foreign); i++)
        if (count >= foreign[i].bytes && !memcmp(begin, foreign[i].begin, foreign[i].bytes))
            return csv_fail_foreign(path, foreign[i].what, foreign[i].command);
    if (!strncasecmp(text, "<!doctype html", 14) || !strncasecmp(text, "<html", 5))
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' is a web page; expected CSV text. Download the file that the page "
                       "links to.",
                       path);
    if (!strncasecmp(text, "sep=", 4) && text[4])
        return TR_FAIL(
            TR_ERR_DATA,
            "'%s', line 1: found '%.5s', which tells spreadsheet programs the delimiter; "
            "expected the names of the columns. Remove the line (tail -n +2 %s "
            ">table.csv), and give --delimiter '%c'.",
            path, text, path, text[4]);
    return TR_OK;
}

tr_status_t tr_csv_table_open(tr_csv_table_t *table, char ***out_field, int *out_count) {
    char begin[32] = "";
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
