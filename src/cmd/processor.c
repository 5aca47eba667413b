/* Ends the process on a processor that the program is not compiled for, before an instruction does
 * that it does not have. Like cpu_isa.c, this file is compiled for any processor. */
#include "device/isa.h"
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void processor_check(void) {
    char why[256];
    if (tr_isa_suffices(why, sizeof why)) return;
    dprintf(STDERR_FILENO, "trainer: error: %s\n", why);
    _exit(TR_ERR_CONFIG);
}
