/* trainer plan CONFIG.ini|RUN [options] [key=value ...]: memory, work and programs of a run,
 * without running it. */
#include "cmd/cmd.h"
#include "plan.h"
#include "trainer/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COUNT = 1000000 };

/* Adds `n`; after "A..", `from`, also A doubled until it reaches n. */
static bool add_counts(plan_counts_t *counts, int64_t from, int64_t n) {
    for (int64_t next = from > 0 ? 2 * from : n; next < n; next *= 2) {
        if (counts->count == PLAN_MAX_COUNTS) return false;
        counts->value[counts->count++] = (int)next;
    }
    if (counts->count == PLAN_MAX_COUNTS || (from > 0 && n <= from)) return false;
    counts->value[counts->count++] = (int)n;
    return true;
}

/* "1,2,4..64" */
static bool read_counts(const char *text, plan_counts_t *counts) {
    char *end;
    int64_t from = 0;
    counts->count = 0;
    for (const char *p = text; *p; p = *end == ',' ? end + 1 : *end ? end + 2 : end) {
        const long n = strtol(p, &end, 10);
        const bool is_range = strncmp(end, "..", 2) == 0 && end[2] && !from;
        if (end == p || n < 1 || n > MAX_COUNT || (*end && *end != ',' && !is_range) ||
            !add_counts(counts, from, n))
            return false;
        from = is_range ? n : 0;
    }
    return counts->count > 0;
}

static tr_status_t parse_counts(const char *option, const char *text, plan_counts_t *counts) {
    if (read_counts(text, counts)) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE,
                   "%s '%s': expected numbers from 1 to %d, at most %d of them, such as 1,2,4 or "
                   "1..64 (1, 2, 4 to 64)",
                   option, text, MAX_COUNT, PLAN_MAX_COUNTS);
}

static const char **text_option(plan_options_t *o, const char *name) {
    const struct {
        const char *name, **value;
    } options[] = {{"--network", &o->network}, {"--network-inside", &o->network_inside},
                   {"--profile", &o->profile}, {"--mode", &o->mode},
                   {"--largest", &o->largest}, {"--json", &o->json},
                   {"--gpu", &o->gpu},         {"--warm", &o->warm}};
    for (size_t i = 0; i < TR_COUNT(options); i++)
        if (strcmp(options[i].name, name) == 0) return options[i].value;
    return NULL;
}

/* An option with the value `value`. */
static tr_status_t parse_valued(const char *name, const char *value, plan_options_t *o) {
    const char **text = text_option(o, name);
    if (text) return *text = value, TR_OK;
    if (strcmp(name, "--ranks") == 0) return parse_counts(name, value, &o->ranks);
    if (strcmp(name, "--nodes") == 0) return parse_counts(name, value, &o->nodes);
    if (strcmp(name, "--memory") == 0)
        return tr_parse_bytes(value, &o->memory) && o->memory > 0
                   ? TR_OK
                   : TR_FAIL(TR_ERR_USAGE, "--memory %s: expected a size such as 16GiB", value);
    if (strcmp(name, "--ranks-per-node") != 0) return cmd_fail_option("plan", name);
    if (!tr_parse_int(value, &o->ranks_per_node) || o->ranks_per_node < 1 ||
        o->ranks_per_node > 1024)
        return TR_FAIL(TR_ERR_USAGE, "%s %s: expected a number from 1 to 1024", name, value);
    return TR_OK;
}

/* Refuses options of another mode, which would be ignored, then sets defaults. */
static tr_status_t check_mode(plan_options_t *o) {
    const char *mode = o->nodes.count > 0 ? "--nodes"
                       : o->stages        ? "--stages"
                       : o->largest       ? "--largest"
                       : o->gpu           ? "--gpu"
                                          : "";
    const struct {
        const char *name;
        bool is_given;
        const char *modes; /* "": without any */
    } options[] = {{"--stages", o->stages, "--stages"},
                   {"--largest", o->largest, "--largest"},
                   {"--memory", o->memory > 0, "--largest"},
                   {"--network", o->network, "--nodes"},
                   {"--network-inside", o->network_inside, "--nodes"},
                   {"--profile", o->profile, "--nodes"},
                   {"--mode", o->mode, "--nodes"},
                   {"--ranks-per-node", o->ranks_per_node > 0, "--nodes"},
                   {"--gpu", o->gpu, "--gpu"},
                   {"--warm", o->warm, "--gpu"},
                   {"--json", o->json, "--nodes, --stages, --largest or --gpu"}};
    for (size_t i = 0; i < TR_COUNT(options); i++) {
        if (!options[i].is_given || (*mode && strstr(options[i].modes, mode))) continue;
        return *mode ? TR_FAIL(TR_ERR_USAGE, "plan %s does not take %s", mode, options[i].name)
                     : TR_FAIL(TR_ERR_USAGE, "plan: %s requires %s", options[i].name,
                               options[i].modes);
    }
    if (*mode && o->ops) return TR_FAIL(TR_ERR_USAGE, "plan %s does not take --ops", mode);
    if (o->nodes.count > 0 && o->ranks.count > 0)
        return TR_FAIL(TR_ERR_USAGE, "plan --nodes does not take --ranks; use --ranks-per-node");
    if (o->gpu && o->ranks.count > 1)
        return TR_FAIL(TR_ERR_USAGE, "plan --gpu takes one number of ranks, found %d",
                       o->ranks.count);
    if (o->ranks.count == 0) o->ranks = (plan_counts_t){1, {1}};
    if (o->ranks_per_node == 0) o->ranks_per_node = 1;
    if (!o->mode) o->mode = "weak";
    return TR_OK;
}

static tr_status_t parse(int argc, char **argv, plan_options_t *o) {
    int kept = 0;
    *o = (plan_options_t){.assignment = argv};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--ops") == 0)
            o->ops = true;
        else if (strcmp(argv[i], "--stages") == 0)
            o->stages = true;
        else if (argv[i][0] == '-' && i + 1 == argc)
            return cmd_fail_option("plan", argv[i]);
        else if (argv[i][0] == '-') {
            TR_TRY(parse_valued(argv[i], argv[i + 1], o));
            i++;
        } else if (!o->path)
            o->path = argv[i];
        else
            argv[kept++] = argv[i];
    }
    o->assignments = kept;
    if (!o->path)
        return TR_FAIL(TR_ERR_USAGE,
                       "plan requires a configuration file or a run folder: trainer plan "
                       "CONFIG.ini|RUN [key=value ...]");
    return check_mode(o);
}

/* -- printing ---------------------------------------------------------------------------------- */

static void print_parameters(const tr_session_t *s) {
    char text[96], count[32];
    printf("parameters\n");
    for (int32_t id = 1; id <= tr_graph_tensor_count(s->g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(s->g, (tr_tensor_t){id});
        if (!tr_is_param(s->g, (tr_tensor_t){id})) continue;
        printf("  %-40s %-20s %12lld%s%s\n", info->name, tr_shape_format(&info->shape, text),
               (long long)tr_shape_elems(&info->shape), info->param.trainable ? "" : "  frozen",
               info->param.decay ? "" : "  no decay");
    }
    printf("  %-40s %-20s %12lld  (%s)\n\n", "in all", "", (long long)s->parameters,
           tr_format_count((double)s->parameters, count));
}

static void print_ops(const tr_session_t *s, int program) {
    const char *fused;
    char text[96];
    printf("program %s\n", tr_program_name(s->g, program));
    for (int i = 0; i < tr_program_op_count(s->g, program); i++) {
        const tr_op_t *op = tr_program_op(s->g, program, i);
        if (op->kind == TR_OP_COLLECTIVE)
            printf("  %4d  all-reduce bucket %d: %lld elements\n", i, op->bucket,
                   (long long)op->collective.count);
        else if (op->kind == TR_OP_WAIT)
            printf("  %4d  wait for the all-reduces\n", i);
        else if (op->kind == TR_OP_ZERO)
            printf("  %4d  zero the sums\n", i);
        else
            printf("  %4d  %-18s %-28s %-22s %10.3f MFLOP %10.3f MB\n", i, op->row->name, op->label,
                   op->n_out > 0 && op->out[0].id
                       ? tr_shape_format(tr_shape_of(s->g, op->out[0]), text)
                       : "",
                   tr_op_flops(s->g, op) / 1e6, tr_op_bytes(s->g, op) / 1e6);
    }
    for (int k = 0, count; (fused = tr_program_fused(s->g, program, k, &count)); k++)
        if (count > 0) printf("  fused: %s (%d times)\n", fused, count);
    printf("\n");
}

static double program_sum(const tr_session_t *s, int program,
                          double (*of)(const tr_graph_t *, const tr_op_t *)) {
    double sum = 0;
    for (int i = 0; i < tr_program_op_count(s->g, program); i++)
        sum += of(s->g, tr_program_op(s->g, program, i));
    return sum;
}

static void print_work(const tr_session_t *s) {
    const double n = (double)s->order.micro_batch, flops = program_sum(s, s->last, tr_op_flops);
    printf("work      %.4g MFLOP per sample, forward and backward; %.4g MB of memory traffic per "
           "sample, without fusion or caching\n",
           flops / n / 1e6, program_sum(s, s->last, tr_op_bytes) / n / 1e6);
    printf("ops       %d forward and backward, %d update, %d evaluation\n",
           tr_program_op_count(s->g, s->last), tr_program_op_count(s->g, s->update),
           tr_program_op_count(s->g, s->eval));
    printf("data      %s; %lld samples, %.6g steps per epoch at batch size %lld; %lld steps in "
           "total\n"
           "\n",
           s->info.description, (long long)s->info.samples, s->steps_per_epoch,
           (long long)s->order.batch_size, (long long)s->total_steps);
}

static void print_memory_row(const tr_session_t *s) {
    const tr_memory_plan_t m = tr_graph_memory(s->g);
    const size_t bytes[] = {m.params + m.copies, m.reduced, m.optim_state, m.model_state, m.arena,
                            m.inputs + m.consts, m.total};
    char text[32], slots[48];
    int64_t first, least;
    tr_sampler_slots_of_rank(s->slots, 0, s->params.size, &first, &least);
    int used = least < s->slot_count ? snprintf(slots, sizeof slots, "%lld-", (long long)least) : 0;
    snprintf(slots + used, sizeof slots - (size_t)used, "%lld", (long long)s->slot_count);
    printf("%6d %6s %6lld", s->params.size, slots, (long long)s->order.micro_batch);
    for (size_t i = 0; i < TR_COUNT(bytes); i++)
        printf(" %12s", tr_format_bytes((double)bytes[i], text));
    printf("\n");
}

tr_status_t plan_session(const tr_config_t *config, int ranks, bool any_size, tr_session_t **out) {
    const tr_session_params_t params = {.training = true,
                                        .evaluation = true,
                                        .any_size = any_size,
                                        .split = TR_SPLIT_TRAIN,
                                        .rank = ranks - 1,
                                        .size = ranks};
    return tr_session_create(config, NULL, &params, out);
}

static tr_status_t print_plans(const tr_config_t *config, const plan_options_t *o) {
    for (int i = 0; i < o->ranks.count; i++) {
        tr_session_t *s = NULL;
        TR_TRY(plan_session(config, o->ranks.value[i], false, &s));
        if (i == 0) {
            print_parameters(s);
            if (o->ops)
                for (int p = 0; p < tr_graph_program_count(s->g); p++) print_ops(s, p);
            print_work(s);
            printf("memory per rank on device %s (slots: micro-batches per rank and step)\n",
                   s->device->ops->name);
            printf("%6s %6s %6s %12s %12s %12s %12s %12s %12s %12s\n", "ranks", "slots", "micro",
                   "parameters", "gradients", "optimizer", "model state", "activations", "inputs",
                   "total");
        }
        print_memory_row(s);
        tr_session_destroy(&s);
    }
    return TR_OK;
}

/* Messages about the data are the same for every number of ranks. `self` has the lines already
 * printed, each with its newline. */
static void say_once(void *self, tr_log_level_t level, const char *line) {
    tr_str_t *said = self;
    for (size_t at = 0; at < said->length; at += strlen(said->text + at) + 1)
        if (strcmp(said->text + at, line) == 0) return;
    tr_str_append_bytes(said, line, strlen(line) + 1);
    fprintf(stderr, "%s\n", line);
}

tr_status_t cmd_plan(int argc, char **argv) {
    plan_options_t o;
    tr_config_t *config = NULL;
    tr_str_t said = {0};
    char path[4096];
    TR_TRY(parse(argc, argv, &o));
    cmd_config_path(o.path, path);
    TR_TRY(cmd_config_load(path, o.assignments, o.assignment, &config));
    tr_log_set_sink(say_once, &said);
    const tr_status_t status = o.nodes.count > 0 ? plan_nodes(config, &o)
                               : o.stages        ? plan_stages(config, &o)
                               : o.largest       ? plan_largest(config, &o)
                               : o.gpu           ? plan_gpu(config, &o)
                                                 : print_plans(config, &o);
    tr_log_set_sink(NULL, NULL);
    tr_str_free(&said);
    tr_config_destroy(&config);
    return status;
}
