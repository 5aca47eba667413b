/* Periods in steps or seconds. */
#include "interval.h"
#include "base/clock.h"
#include "optim/optim.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

tr_status_t tr_interval_parse(const char *key, const char *text, bool allow_time,
                              int64_t total_steps, double steps_per_epoch, tr_interval_t *out) {
    const size_t length = strlen(text);
    const bool has_unit = length > 0 && isalpha((unsigned char)text[length - 1]);
    *out = (tr_interval_t){.last_sec = tr_clock_sec()};
    if (strcmp(text, "0") == 0 || length == 0) return TR_OK;
    if (tr_parse_steps(text, total_steps, steps_per_epoch, &out->steps) && out->steps > 0)
        return TR_OK;
    if (allow_time && has_unit && tr_parse_duration(text, &out->seconds) && out->seconds > 0)
        return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s = %s: expected steps (500), epochs (1epoch), a share of the run (10%%)%s, or 0", key,
        text, allow_time ? ", a time (10min)" : "");
}

bool tr_interval_is_due(tr_interval_t *due, int64_t step) {
    if (due->steps > 0)
        return floor((double)step / due->steps + 1e-9) >
               floor((double)(step - 1) / due->steps + 1e-9);
    if (due->seconds <= 0 || tr_clock_sec() - due->last_sec < due->seconds) return false;
    due->last_sec = tr_clock_sec();
    return true;
}
