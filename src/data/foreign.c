/* The magic numbers of formats, and how to convert them. */
#include "foreign.h"
#include "base/mem.h"
#include <string.h>

#define GZIP 0 /* its row */

static const struct {
    const char *magic;
    size_t bytes;
    const char *what, *remedy; /* remedy: the path and a quote follow */
} formats[] = {
    [GZIP] = {"\x1f\x8b\x08", 3, "compressed with gzip", "Unpack it first: gunzip -k '"},
    {"\x28\xb5\x2f\xfd", 4, "compressed with Zstandard", "Unpack it first: zstd -d '"},
    {"\xfd"
     "7zXZ",
     6, "compressed with xz", "Unpack it first: xz -dk '"},
    {"BZh", 3, "compressed with bzip2", "Unpack it first: bunzip2 -k '"},
    {"PK\3\4", 4, "a ZIP archive", "Unpack it first: unzip '"},
    {"7z\xbc\xaf\x27\x1c", 6, "a 7z archive", "Unpack it first: 7z x '"},
    {"PAR1", 4, "a Parquet file",
     "Convert it to JSON lines first: python3 -c 'import pandas, sys; "
     "pandas.read_parquet(sys.argv[1]).to_json(\"data.jsonl\", orient=\"records\", lines=True)' '"},
    {"ARROW1\0", 8, "an Arrow file",
     "Convert it to JSON lines first: python3 -c 'import pandas, sys; "
     "pandas.read_feather(sys.argv[1]).to_json(\"data.jsonl\", orient=\"records\", lines=True)' '"},
    {"\xff\xff\xff\xff", 4, "an Arrow stream",
     "Convert it to JSON lines first: python3 -c 'import datasets, sys; "
     "datasets.Dataset.from_file(sys.argv[1]).to_json(\"data.jsonl\")' '"},
    {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file", "It needs no import: data.train = '"},
    {"%PDF-", 5, "a PDF file", "Convert it to text first: pdftotext '"},
};

/* The magic numbers of bzip2 and of Arrow streams are short: what follows them is examined, too. */
static bool foreign_goes_on(const char *magic, const unsigned char *b, size_t count) {
    if (*magic == 'B')
        return count >= 10 && b[3] >= '1' && b[3] <= '9' && !memcmp(b + 4, "1AY&SY", 6);
    if (*magic == '\xff')
        return count >= 12 && b[4] % 8 == 0 && b[6] == 0 && b[7] == 0 && b[8] == 16;
    return true;
}

tr_status_t tr_check_foreign(const char *path, const void *bytes, size_t count, bool unpacks_gzip) {
    for (size_t i = unpacks_gzip ? GZIP + 1 : GZIP; i < TR_COUNT(formats); i++)
        if (count >= formats[i].bytes && memcmp(bytes, formats[i].magic, formats[i].bytes) == 0 &&
            foreign_goes_on(formats[i].magic, bytes, count))
            return TR_FAIL(TR_ERR_DATA, "'%s' is %s, by its first bytes. %s%s'.", path,
                           formats[i].what, formats[i].remedy, path);
    return TR_OK;
}
