/* The style sheet of charts: a class for each role, and their parts, in a light and a dark scheme. */
#include "svg.h"

typedef struct {
    const char *name, *light, *dark;
} role_style_t;
static const role_style_t roles[] = {
#define SVG_ROLE(NAME, class, light, dark, variant) {#class, light, dark},
#include "svg_roles.def"
#undef SVG_ROLE
};

static const char parts[] =
    ".plot { font: 12px system-ui, 'DejaVu Sans', sans-serif; }\n"
    ".plot text { fill: #333; } .plot .title { font-weight: 600; }\n"
    ".plot .ground { fill: #fff; } .plot .grid { stroke: #ddd; } "
    ".plot .frame { stroke: #777; fill: none; }\n"
    ".plot .line { stroke: currentColor; stroke-width: 2; fill: none; stroke-linejoin: round; }\n"
    ".plot .thin { stroke: currentColor; stroke-width: 1; fill: none; opacity: .5; }\n"
    ".plot .error { stroke: currentColor; stroke-width: 1.5; fill: none; }\n"
    ".plot .area, .plot .mark, .plot circle { fill: currentColor; }\n"
    ".plot .area { stroke: #fff; stroke-width: .5; }\n"
    ".plot .band { fill: currentColor; fill-opacity: .22; stroke: currentColor; "
    "stroke-opacity: .22; stroke-width: 1; }\n";
static const char dark_parts[] =
    ".plot text { fill: #d6dade; } .plot .ground { fill: #14171a; } .plot .grid { stroke: #33383e; "
    "} .plot .frame { stroke: #8a929b; } .plot .area { stroke: #14171a; }\n";

void tr_svg_style(tr_str_t *out) {
    tr_str_append(out, parts);
    for (int i = 0; i < TR_SHOWS_COUNT; i++)
        tr_str_printf(out, ".p-%s { color: %s; }\n", roles[i].name, roles[i].light);
    tr_str_append(out, "@media (prefers-color-scheme: dark) {\n");
    tr_str_append(out, dark_parts);
    for (int i = 0; i < TR_SHOWS_COUNT; i++)
        tr_str_printf(out, ".p-%s { color: %s; }\n", roles[i].name, roles[i].dark);
    tr_str_append(out, "}\n");
}
