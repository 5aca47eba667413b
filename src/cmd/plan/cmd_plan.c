/* trainer plan CONFIG.ini|RUN [options] [key=value ...]: memory, work and programs of a run,
 * without running it. The modes are in plan_NAME.c. */
#include "plan.h"
#include "device/gpu_kinds.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAX_COUNT = 1000000, OPTIONS_BEFORE_MODES = 2 };

static const plan_mode_t *const modes[PLAN_MODES] = {
#define PLAN_MODE(name, ...) [PLAN_IS_##name] = &plan_mode_##name,
#include "modes.def"
#undef PLAN_MODE
};

static const cmd_argument_t arguments[] = {
    {"CONFIG.ini|RUN", offsetof(plan_options_t, path), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(plan_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_NUMBERS(plan_options_t, ranks, "--ranks", "N,N,...", NULL, 1, MAX_COUNT,
                       "Prints the memory for each number of ranks; 1,4..64 doubles from 4 on. By "
                       "default one rank."),
    CMD_OPTION_FLAG(plan_options_t, ops, "--ops",
                    "Lists every op of every program with its shape, FLOPs and bytes."),
#define PLAN_MODE(name, ...) __VA_ARGS__,
#include "modes.def"
#undef PLAN_MODE
    CMD_OPTION_FLAG(plan_options_t, verbose, "--verbose",
                    "Lists every parameter, instead of one line for those whose names differ only "
                    "in their numbers."),
    CMD_OPTION_TEXT(plan_options_t, svg, "--svg", "FILE", NULL,
                    "Also draws the memory as SVG: by stage and over the ops of a step, or by "
                    "model.recompute; - writes to standard output.",
                    .with = "--stages|--recompute-sweep"),
    CMD_OPTION_BYTES(plan_options_t, memory, "--memory", "SIZE", NULL, 1, CMD_NO_LIMIT,
                     "The memory per rank for --largest, --fixes and --recompute-sweep, such as "
                     "16GiB. --fixes takes that of the device by default.",
                     .with = "--largest|--fixes|--recompute-sweep"),
    CMD_OPTION_TEXT(plan_options_t, warm, "--warm", "DIR", NULL,
                    "Keeps the compiled plans of --gpu in DIR, for runs with cuda.plan_cache = "
                    "DIR.",
                    .with = "--gpu"),
    CMD_OPTION_TEXT(plan_options_t, network, "--network", "FILE", NULL,
                    "Written by `trainer bench allreduce --json FILE` with one rank per node; "
                    "several files, separated by commas, are tables of several numbers of ranks.",
                    .with = "--nodes"),
    CMD_OPTION_TEXT(plan_options_t, network_inside, "--network-inside", "FILE", NULL,
                    "The same, measured on the ranks of one node.", .with = "--nodes"),
    CMD_OPTION_TEXT(plan_options_t, profile, "--profile", "FILE", NULL,
                    "Written by `trainer bench step CONFIG --json FILE`.", .with = "--nodes"),
    CMD_OPTION_INT(plan_options_t, ranks_per_node, "--ranks-per-node", "N", "1", 1, 1024,
                   "More than one requires --network-inside.", .with = "--nodes"),
    CMD_OPTION_ENUM(plan_options_t, mode, "--mode", "weak", "weak|strong",
                    "weak multiplies data.batch_size by the nodes; strong keeps it.",
                    .with = "--nodes"),
    CMD_OPTION_JSON(plan_options_t,
                    "Also writes as JSON what is printed, except the memory table and the ops; - "
                    "writes only JSON to standard output."),
};

static const char *plan_mode_option(int mode) {
    return options[OPTIONS_BEFORE_MODES + mode].field.name;
}

/* Notes the options of modes, for those with a value too. */
static tr_status_t plan_check(void *options_given, const char *option) {
    plan_options_t *o = options_given;
    tr_str_t needed = {0};
    bool has_mode = false;
    for (int i = 0; i < PLAN_MODES; i++) {
        if (strcmp(option, plan_mode_option(i)) == 0) o->given[i] = true;
        has_mode = has_mode || o->given[i];
        tr_str_printf(&needed, "%s%s", i > 0 ? "|" : "", plan_mode_option(i));
    }
    if (strcmp(option, "--memory") == 0 && !o->given[PLAN_IS_largest] && !o->given[PLAN_IS_fixes] &&
        !o->given[PLAN_IS_recompute]) {
        tr_str_free(&needed);
        return TR_FAIL(TR_ERR_USAGE,
                       "plan: --memory is what --largest, --fixes or --recompute-sweep fit the run "
                       "into: add --fixes to see whether it fits, and what makes it smaller");
    }
    const bool is_allowed = has_mode || strcmp(option, "--json") != 0;
    if (!is_allowed) TR_FAIL(TR_ERR_USAGE, "plan: --json requires %s", needed.text);
    tr_str_free(&needed);
    return is_allowed ? TR_OK : TR_ERR_USAGE;
}

/* The mode that the options name. */
static tr_status_t plan_choose_mode(plan_options_t *o, const plan_mode_t **out) {
    const char *chosen = NULL;
    *out = &plan_mode_memory;
    /* --gpu and --price may also add to another mode */
    o->given[PLAN_IS_gpu] = o->gpu && !o->given[PLAN_IS_recompute];
    o->given[PLAN_IS_price] = o->price && !o->gpu;
    for (int i = 0; i < PLAN_MODES; i++) {
        if (!o->given[i]) continue;
        if (chosen)
            return TR_FAIL(TR_ERR_USAGE, "plan %s does not take %s", chosen, plan_mode_option(i));
        chosen = plan_mode_option(i);
        *out = modes[i];
    }
    if (chosen && (o->ops || o->verbose))
        return TR_FAIL(TR_ERR_USAGE, "plan %s does not take %s", chosen,
                       o->ops ? "--ops" : "--verbose");
    if (o->nodes.count > 0 && o->ranks.count > 0)
        return TR_FAIL(TR_ERR_USAGE, "plan --nodes does not take --ranks; use --ranks-per-node");
    if ((o->gpu || o->price) && o->ranks.count > 1)
        return TR_FAIL(TR_ERR_USAGE, "plan %s takes one number of ranks, found %d",
                       o->gpu ? "--gpu" : "--price", o->ranks.count);
    if (o->ranks.count == 0) o->ranks = (cmd_list_t){1, {1}};
    return TR_OK;
}

static tr_status_t plan_write_json(const plan_mode_t *mode, const plan_options_t *o,
                                   plan_result_t *r) {
    json_t *file = r->json;
    r->json = NULL;
    json_object_set_new(file, "kind", json_string(mode->kind));
    json_object_set_new(file, "config", json_string(o->path));
    if (mode->table)
        json_object_set_new(file, mode->rows_key ? mode->rows_key : "rows",
                            tr_table_json(mode->table, r->rows, r->count));
    return cmd_json_write(file, o->json);
}

static tr_status_t plan_show(const plan_mode_t *mode, tr_config_t *config,
                             const plan_options_t *o) {
    plan_result_t r = {0};
    tr_status_t status = mode->find(config, o, &r);
    if (status == TR_OK) status = r.before.status;
    if (status == TR_OK) status = r.after.status;
    if (!cmd_json_is_stdout(o->json)) {
        if (r.before.text) fputs(r.before.text, stdout);
        if (r.count > 0) cmd_table_print(mode->table, r.rows, r.count);
        if (r.after.text) fputs(r.after.text, stdout);
    }
    if (status == TR_OK && o->svg) status = cmd_svg_write(o->svg, &r.charts);
    if (status == TR_OK && o->json) status = plan_write_json(mode, o, &r);
    json_decref(r.json);
    tr_free(&r.rows);
    tr_str_free(&r.charts.body);
    tr_str_free(&r.before);
    tr_str_free(&r.after);
    return status;
}

void plan_say_once(void *self, tr_log_level_t level, const char *line) {
    tr_str_t *said = self;
    for (size_t at = 0; at < said->length; at += strlen(said->text + at) + 1)
        if (strcmp(said->text + at, line) == 0) return;
    tr_str_append_bytes(said, line, strlen(line) + 1);
    fprintf(stderr, "%s\n", line);
}

static tr_status_t plan_run(void *options_given) {
    plan_options_t *o = options_given;
    const plan_mode_t *mode;
    tr_config_t *config = NULL;
    tr_str_t said = {0};
    char path[4096];
    TR_TRY(plan_choose_mode(o, &mode));
    cmd_config_path(o->path, path);
    TR_TRY(cmd_config_load(path, o->settings, &config));
    tr_log_set_sink(plan_say_once, &said);
    const tr_status_t status = plan_show(mode, config, o);
    tr_log_set_sink(NULL, NULL);
    tr_str_free(&said);
    tr_config_destroy(&config);
    return status;
}

/* -- for the modes ----------------------------------------------------------------------------- */

tr_status_t plan_session(const tr_config_t *config, int ranks, bool any_size, tr_session_t **out) {
    const tr_session_params_t params = {
        .purpose = TR_SESSION_PLAN, .any_size = any_size, .rank = ranks - 1, .size = ranks};
    return tr_session_create(config, NULL, &params, out);
}

tr_status_t plan_try(tr_config_t *config, const char *origin, int ranks, tr_session_t **out,
                     const char *format, ...) {
    char text[256], *rest = text, *word;
    va_list args;
    va_start(args, format);
    tr_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    while ((word = strsep(&rest, " "))) TR_TRY(tr_config_set(config, word, origin));
    TR_TRY(tr_config_check(config));
    return plan_session(config, ranks, true, out);
}

void plan_append_lines(const char *lines, const char *indent, tr_str_t *out) {
    for (const char *line = lines; line && *line;) {
        const int length = (int)strcspn(line, "\n");
        tr_str_printf(out, "%s%.*s\n", indent, length, line);
        line += length + 1;
    }
}

json_t *plan_lines_json(const char *lines) {
    json_t *list = json_array();
    for (const char *line = lines; line && *line;) {
        const size_t length = strcspn(line, "\n");
        json_array_append_new(list, json_stringn(line, length));
        line += length + 1;
    }
    return list;
}

const cmd_command_t cmd_plan = {
    .name = "plan",
    .runs = CMD_ON_FIRST,
    .summary = "Shows parameters, memory, work and ops of a run without running it.",
    .help = "RUN is a run folder; its config.ini is used. --ops and the options from --stages to "
            "--nodes exclude each other, but for --gpu with --price or --recompute-sweep.",
    CMD_ARGUMENTS(plan_options_t),
    CMD_OPTIONS,
    .run = plan_run,
    .check = plan_check,
};
