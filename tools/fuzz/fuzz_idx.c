/*
 * Fuzzes the reader of MNIST's files: any bytes, gzip or not, must give values or a message.
 *
 *   clang -g -O1 -std=gnu11 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Iinclude -Isrc
 *   tools/fuzz/fuzz_idx.c
 * src/datatools/idx.c src/base/[a-z]*.c -lz -lm -lpthread -o fuzz_idx
 *   ./fuzz_idx -max_total_time=60 -max_len=4096 [CORPUS]
 */
#include "datatools/import_int.h"

#include <sys/mman.h>
#include <unistd.h>

static void demand(bool holds) {
    if (!holds) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    tr_idx_t *idx = NULL;
    if (count < 1) return 0;
    int ndim = 1 + bytes[0] % 4, fd = memfd_create("fuzz", MFD_CLOEXEC);
    demand(fd >= 0 && write(fd, bytes + 1, count - 1) == (ssize_t)(count - 1) &&
           lseek(fd, 0, SEEK_SET) == 0);
    tr_status_t status = tr_idx_open(fd, "fuzz", ndim, &idx);
    demand((status == TR_OK) == (idx != NULL));
    if (idx) {
        char part[1000];
        for (int d = 0; d < ndim; d++) demand(tr_idx_dims(idx)[d] > 0);
        while ((status = tr_idx_read(idx, part, sizeof part)) == TR_OK)
            ;
        demand(tr_error_last()->message[0] != '\0');
        tr_idx_at_end(idx);
        tr_idx_close(&idx);
    }
    demand(tr_mem_stats().live == 0);
    return 0;
}
