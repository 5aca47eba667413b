/*
 * Fuzzes the reader of CSV files: any bytes must give rows or a message, and rows written in quotes
 * must read back the same.
 *
 *   clang -g -O1 -std=gnu11 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Iinclude -Isrc
 *   tools/fuzz/fuzz_csv.c
 * src/data/table/csv.c src/base/[a-z]*.c -lz -lm -lpthread -o fuzz_csv
 *   ./fuzz_csv -max_total_time=60 -max_len=4096 [CORPUS]
 */
#include "data/table/csv.h"
#include "base/mem.h"
#include "base/str.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void demand(bool holds) {
    if (!holds) __builtin_trap();
}

static char delimiter;

static tr_csv_t *open_bytes(const void *bytes, size_t count) {
    tr_csv_t *csv = NULL;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    demand(fd >= 0 && write(fd, bytes, count) == (ssize_t)count && lseek(fd, 0, SEEK_SET) == 0);
    demand(tr_csv_open(fd, "fuzz", delimiter, &csv) == TR_OK);
    return csv;
}

static void append_row(tr_str_t *out, char *const *field, int count) {
    for (int i = 0; i < count; i++) {
        if (i) tr_str_append_bytes(out, &delimiter, 1);
        tr_str_append(out, "\"");
        for (const char *c = field[i]; *c; c++) {
            if (*c == '"') tr_str_append(out, "\"");
            tr_str_append_bytes(out, c, 1);
        }
        tr_str_append(out, "\"");
    }
    tr_str_append(out, "\n");
}

/* One row, in quotes, through the reader again. */
static void check_row(char *const *field, int count) {
    tr_str_t text = {0};
    char **again;
    int found;
    append_row(&text, field, count);
    tr_csv_t *csv = open_bytes(text.text, text.length);
    demand(tr_csv_row(csv, &again, &found) == TR_OK);
    /* A single empty field is an empty row. */
    demand(found == count || (count == 1 && !*field[0]));
    for (int i = 0; i < found; i++) demand(strcmp(again[i], field[i]) == 0);
    tr_csv_close(&csv);
    tr_str_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    char **field;
    int fields, rows = 0;
    delimiter = ",;\t "[count % 4];
    tr_csv_t *csv = open_bytes(bytes, count);
    tr_status_t status;
    while ((status = tr_csv_row(csv, &field, &fields)) == TR_OK && fields > 0) {
        demand(tr_csv_line(csv) > 0);
        if (rows++ < 20) check_row(field, fields);
    }
    demand(status == TR_OK || tr_error_last()->message[0] != '\0');
    tr_csv_close(&csv);
    demand(tr_mem_stats().live == 0);
    return 0;
}
