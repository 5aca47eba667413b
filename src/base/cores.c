/* Sets of CPU cores as text. */
#include "cores.h"
#include <stdio.h>

int tr_cores_format(const cpu_set_t *set, char *text, size_t bytes) {
    size_t used = 0;
    *text = '\0';
    for (int first = 0, last; first < CPU_SETSIZE; first = last + 1) {
        last = first;
        if (!CPU_ISSET(first, set)) continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) last++;
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, first == last ? "%s%d" : "%s%d-%d",
                                     used ? "," : "", first, last);
    }
    return CPU_COUNT(set);
}
