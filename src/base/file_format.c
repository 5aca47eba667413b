/* The magic numbers of formats, and how to convert them. */
#include "file_format.h"
#include "file.h"
#include "mem.h"

#include <string.h>

#define SAME(remedy)                                                                               \
    { remedy, remedy, remedy, remedy }
#define UNPACK(command) SAME("Unpack it first: " command " @")
#define SHEET           SAME("libreoffice --headless --convert-to csv @ converts it to CSV")
#define JSON_LINES      "to_json('data.jsonl', orient='records', lines=True)"
#define CSV             "to_csv('table.csv', index=False)"
#define PANDAS(read)                                                                               \
    {                                                                                              \
        "In Python: pandas." read "(@)." JSON_LINES, "In Python: pandas." read "(@)." CSV,         \
            "In Python: pandas." read "(@)." JSON_LINES,                                           \
            "In Python: pandas." read "(@)." CSV ", then `trainer import csv`"                     \
    }
#define DATASET "In Python: datasets.Dataset.from_file(@)."
#define UTF16   "iconv -f UTF-16 -t UTF-8 @ >text.txt converts it"
#define TO_HDF5 "data.train reads it without an import; `trainer data` shows its contents"

/* @: the path in quotes. A remedy that is NULL: the reader takes the format, or may meet the bytes
 * in what it takes. */
static const struct {
    const char *magic;
    size_t bytes;
    const char *extension, *what, *remedy[TR_WANTS]; /* text, table, tokens, HDF5 */
} formats[] = {
    {"\x1f\x8b\x08",
     3,
     NULL,
     "compressed with gzip",
     {NULL, NULL, "Unpack it first: gunzip -k @", "Unpack it first: gunzip -k @"}},
    {"\x28\xb5\x2f\xfd", 4, NULL, "compressed with Zstandard", UNPACK("zstd -d")},
    {"\xfd"
     "7zXZ",
     5, NULL, "compressed with xz", UNPACK("xz -dk")},
    {"BZh", 3, NULL, "compressed with bzip2", UNPACK("bunzip2 -k")},
    {"7z\xbc\xaf\x27\x1c", 6, NULL, "a 7z archive", UNPACK("7z x")},
    {"PK\3\4", 4, ".xlsx", "a spreadsheet", SHEET},
    {"PK\3\4", 4, ".xlsm", "a spreadsheet", SHEET},
    {"PK\3\4", 4, ".ods", "a spreadsheet", SHEET},
    {"PK\3\4",
     4,
     ".npz",
     "an archive of NumPy",
     {"Unpack it first: unzip @", "Unpack it first: unzip @", "Unpack it first: unzip @",
      "In Python: g = h5py.File('OUT.h5', 'w'); a = numpy.load(@); g['x'] = a['x']; "
      "g['y'] = a['y']"}},
    {"PK\3\4", 4, NULL, "a ZIP archive", UNPACK("unzip")},
    {"\xd0\xcf\x11\xe0", 4, NULL, "an Excel workbook", SHEET},
    {"PAR1", 4, NULL, "a Parquet file", PANDAS("read_parquet")},
    {"ARROW1\0", 8, NULL, "an Arrow file (Feather)", PANDAS("read_feather")},
    {"\xff\xff\xff\xff",
     4,
     NULL,
     "an Arrow stream",
     {DATASET "to_json('data.jsonl')", DATASET "to_csv('table.csv')",
      DATASET "to_json('data.jsonl')", DATASET "to_csv('table.csv'), then `trainer import csv`"}},
    {"SQLite format 3", 15, NULL, "an SQLite database",
     SAME("sqlite3 -csv -header @ 'select * from NAME' >table.csv writes one of its tables")},
    {"\x89HDF\r\n\x1a\n", 8, NULL, "an HDF5 file", {TO_HDF5, TO_HDF5, TO_HDF5, NULL}},
    {"\xff\xfe", 2, NULL, "text in UTF-16; expected UTF-8", {UTF16, UTF16, NULL, UTF16}},
    {"\xfe\xff", 2, NULL, "text in UTF-16; expected UTF-8", {UTF16, UTF16, NULL, UTF16}},
    {"%PDF-", 5, NULL, "a PDF file", SAME("pdftotext @ converts it")},
    {"version https://git-lfs", 23, NULL, "a pointer of Git LFS to the file",
     SAME("Run git lfs pull")},
    {"CDF",
     3,
     NULL,
     "a file of netCDF-3",
     {NULL, NULL, NULL, "nccopy -k nc4 @ OUT.nc converts it"}},
    {"\x0e\x03\x13\x01",
     4,
     NULL,
     "a file of HDF4",
     {NULL, NULL, NULL, "h4toh5convert @ OUT.h5 converts it"}},
    {"MATLAB 5.0",
     10,
     NULL,
     "a MAT-file of version 5 to 7",
     {NULL, NULL, NULL,
      "Save it in MATLAB with save(..., '-v7.3'), with the samples in the last dimension"}},
    {"\x93NUMPY",
     6,
     NULL,
     "an array of NumPy",
     {"In Python: numpy.savetxt('text.txt', numpy.load(@))",
      "In Python: numpy.savetxt('table.csv', numpy.load(@), delimiter=',')", NULL,
      "In Python: h5py.File('OUT.h5', 'w')['x'] = numpy.load(@)"}},
};

/* The magic numbers of bzip2 and Parquet, which are text, and of Arrow streams are short: what
 * follows them is examined, too. */
static bool format_goes_on(const char *magic, const unsigned char *b, size_t count) {
    if (*magic == 'B')
        return count >= 10 && b[3] >= '1' && b[3] <= '9' && !memcmp(b + 4, "1AY&SY", 6);
    if (strcmp(magic, "PAR1") == 0) return count < 5 || b[4] < ' ';
    if (magic[0] == '\xff' && magic[1] == '\xff')
        return count >= 12 && b[4] % 8 == 0 && b[6] == 0 && b[7] == 0 && b[8] == 16;
    return true;
}

bool tr_file_format_of(const char *path, const void *bytes, size_t count, tr_wants_t wants,
                       tr_str_t *out) {
    for (size_t i = 0; i < TR_COUNT(formats); i++) {
        const char *remedy = formats[i].remedy[wants], *extension = formats[i].extension;
        if (!remedy || count < formats[i].bytes ||
            memcmp(bytes, formats[i].magic, formats[i].bytes))
            continue;
        if (extension && !tr_path_ends_in(path, extension)) continue;
        if (!format_goes_on(formats[i].magic, bytes, count)) continue;
        tr_str_printf(out, "%s. ", formats[i].what);
        for (; *remedy; remedy++)
            if (*remedy == '@')
                tr_str_printf(out, "'%s'", path);
            else
                tr_str_append_bytes(out, remedy, 1);
        return true;
    }
    return false;
}

tr_status_t tr_file_format_check(const char *path, const void *bytes, size_t count,
                                 tr_wants_t wants) {
    tr_str_t text = {0};
    if (!tr_file_format_of(path, bytes, count, wants, &text)) return TR_OK;
    TR_FAIL(TR_ERR_DATA, "'%s' is %s.", path, text.text ? text.text : "of another format");
    tr_str_free(&text);
    return TR_ERR_DATA;
}
