/* Short numbers in JSON text. */
#ifndef TR_BASE_JSON_TEXT_H
#define TR_BASE_JSON_TEXT_H

/*
 * Shortens JSON text in place: each real number outside strings gets the fewest digits that read
 * back as the same double (0.1, not 0.10000000000000001).
 */
void tr_json_shorten(char *text);
/* `value` rounded to `digits` significant digits. */
double tr_round_digits(double value, int digits);

#endif
