/* JSON: numbers, and files of the program. */
#ifndef TR_BASE_JSON_TEXT_H
#define TR_BASE_JSON_TEXT_H

#include <jansson.h>

/*
 * Shortens JSON text in place: each real number outside strings gets the fewest digits that read
 * back as the same double (0.1, not 0.10000000000000001).
 */
void tr_json_shorten(char *text);
/* `value` rounded to `digits` significant digits. */
double tr_round_digits(double value, int digits);
/* `value` as a JSON number; null if it is not finite. New reference. */
json_t *tr_json_finite(double value);
/* The same of a measured time, rate or fraction, with six significant digits. */
json_t *tr_json_measured(double value);
/* The JSON of a file that the program itself writes; NULL, with *error as json_load_file sets it,
 * if it cannot be read. Does not wait for a pipe; a file of more than 256 MiB is refused. */
json_t *tr_json_load_file(const char *path, json_error_t *error);

#endif
