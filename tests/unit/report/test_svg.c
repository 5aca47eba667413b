/* Charts: axes of any values end. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "report/svg.h"
#include <math.h>
#include <string.h>

static void draw(double first, double second, bool is_log) {
    const double x[] = {1, 2}, y[] = {first, second};
    const tr_svg_series_t series = {"loss", "#000000", x, y, 2, false};
    const tr_svg_chart_t chart = {"step", "loss", NAN, NAN, is_log};
    tr_str_t out = {0};
    tr_svg_draw(&chart, &series, 1, &out);
    OK(out.status);
    assert_in_range(out.length, 200, 8000);
    assert_non_null(strstr(out.text, "</svg>"));
    tr_str_free(&out);
}

static void axes_of_any_values_end(void **state) {
    (void)state;
    draw(1e-2, 1e-10, true);
    draw(1e-300, 1e300, true);
    draw(0.1, nextafter(0.1, 1), false);
    draw(1e15, 1e15 + 1, false);
    draw(-1e-12, 1e-12, false);
    draw(0, 0, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(axes_of_any_values_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
