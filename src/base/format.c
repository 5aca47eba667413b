/* Formats numbers for people. */
#include "base/str.h"

#include <math.h>

#define TEXT_BYTES 32

/* Scales `value` down by `base` until it would print below it, and formats it with one decimal. */
static char *format_scaled(double value, double base, const char *const *units, int unit_count,
                           char *text) {
    int unit = 0;
    while (unit + 1 < unit_count && fabs(value) >= base - (unit ? 0.05 : 0.5)) {
        value /= base;
        unit++;
    }
    const char *blank = units[unit][0] ? " " : "";
    bool huge = fabs(value) >= 1e6;
    tr_snprintf(text, TEXT_BYTES,
                huge   ? "%.3g%s%s"
                : unit ? "%.1f%s%s"
                       : "%.0f%s%s",
                value, blank, units[unit]);
    return text;
}

char *tr_format_bytes(double bytes, char text[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return format_scaled(bytes, 1024, units, 7, text);
}

char *tr_format_count(double count, char text[32]) {
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    return format_scaled(count, 1000, units, 6, text);
}

char *tr_format_duration(double sec, char text[32]) {
    if (!isfinite(sec)) {
        tr_snprintf(text, TEXT_BYTES, "?");
        return text;
    }
    double size = fabs(sec);
    if (size < 0.9995) {
        tr_snprintf(text, TEXT_BYTES, size < 0.00995 ? "%.2f ms" : "%.0f ms", sec * 1e3);
    } else if (size < 59.95) {
        tr_snprintf(text, TEXT_BYTES, "%.1f s", sec);
    } else {
        const char *sign = sec < 0 ? "-" : "";
        double whole = floor(size + 0.5), minutes = floor(whole / 60), hours = floor(whole / 3600);
        if (whole < 3600)
            tr_snprintf(text, TEXT_BYTES, "%s%.0f min %02d s", sign, minutes, (int)fmod(whole, 60));
        else if (whole < 86400)
            tr_snprintf(text, TEXT_BYTES, "%s%.0f h %02d min", sign, hours, (int)fmod(minutes, 60));
        else
            tr_snprintf(text, TEXT_BYTES, "%s%.6g d %02d h", sign, floor(whole / 86400),
                        (int)fmod(hours, 24));
    }
    return text;
}
