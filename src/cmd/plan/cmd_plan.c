/* trainer plan CONFIG.ini|RUN [options] [key=value ...]: memory, work and programs of a run,
 * without running it. */
#include "cmd/cmd.h"
#include "plan.h"
#include "device/gpu_kinds.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "weights/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COUNT = 1000000 };

/* -- printing ---------------------------------------------------------------------------------- */

static void plan_print_parameters(const tr_session_t *s) {
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

static void plan_print_ops(const tr_session_t *s, int program) {
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

static double plan_program_sum(const tr_session_t *s, int program,
                               double (*of)(const tr_graph_t *, const tr_op_t *)) {
    double sum = 0;
    for (int i = 0; i < tr_program_op_count(s->g, program); i++)
        sum += of(s->g, tr_program_op(s->g, program, i));
    return sum;
}

static void plan_print_work(const tr_session_t *s) {
    const double n = (double)s->order.micro_batch,
                 flops = plan_program_sum(s, s->last, tr_op_flops);
    printf("work      %.4g MFLOP per sample, forward and backward; %.4g MB of memory traffic per "
           "sample, without fusion or caching\n",
           flops / n / 1e6, plan_program_sum(s, s->last, tr_op_bytes) / n / 1e6);
    printf("ops       %d forward and backward, %d update, %d evaluation\n",
           tr_program_op_count(s->g, s->last), tr_program_op_count(s->g, s->update),
           tr_program_op_count(s->g, s->eval));
    printf("data      %s; %lld samples, %.6g steps per epoch at batch size %lld; %lld steps in "
           "total\n"
           "\n",
           s->info.description, (long long)s->info.samples, s->steps_per_epoch,
           (long long)s->order.batch_size, (long long)s->total_steps);
}

tr_status_t plan_session(const tr_config_t *config, int ranks, bool any_size, tr_session_t **out) {
    const tr_session_params_t params = {.training = true,
                                        .evaluation = true,
                                        .plans_only = true,
                                        .any_size = any_size,
                                        .split = TR_SPLIT_TRAIN,
                                        .rank = ranks - 1,
                                        .size = ranks};
    return tr_session_create(config, NULL, &params, out);
}

void plan_print_pinned(const tr_session_t *s) {
    const tr_memory_plan_t m = tr_graph_memory(s->g);
    char checkpoint[32], piece[32];
    if (s->device->host_visible) return;
    printf(
        "pinned host memory at the start, without batches: %s on rank 0 for checkpoints; at most "
        "%s on each rank where MPI broadcasts the weights, none where NCCL does\n",
        tr_format_bytes((double)(m.params + m.optim_state + m.model_state), checkpoint),
        tr_format_bytes((double)TR_STATE_PIECE, piece));
}

static tr_status_t plan_print(const tr_config_t *config, const plan_options_t *o) {
    for (int i = 0; i < o->ranks.count; i++) {
        tr_session_t *s = NULL;
        char text[32], slots[48];
        int64_t first, least;
        TR_TRY(plan_session(config, o->ranks.value[i], false, &s));
        if (i == 0) {
            plan_print_parameters(s);
            for (int p = 0; o->ops && p < tr_graph_program_count(s->g); p++) plan_print_ops(s, p);
            plan_print_work(s);
            printf("memory per rank on device %s (slots: micro-batches per rank and step)\n",
                   s->device->ops->name);
            printf("%6s %6s %6s %12s %12s %12s %12s %12s %12s %12s\n", "ranks", "slots", "micro",
                   "parameters", "gradients", "optimizer", "model state", "activations", "inputs",
                   "total");
        }
        const tr_memory_plan_t m = tr_graph_memory(s->g);
        const size_t bytes[] = {
            m.params + m.copies, m.reduced, m.optim_state, m.model_state, m.arena,
            m.inputs + m.consts, m.total};
        tr_sampler_slots_of_rank(s->slots, 0, s->params.size, &first, &least);
        int used = 0;
        if (least < s->slot_count) used = snprintf(slots, sizeof slots, "%lld-", (long long)least);
        snprintf(slots + used, sizeof slots - (size_t)used, "%lld", (long long)s->slot_count);
        printf("%6d %6s %6lld", s->params.size, slots, (long long)s->order.micro_batch);
        for (size_t k = 0; k < TR_COUNT(bytes); k++)
            printf(" %12s", tr_format_bytes((double)bytes[k], text));
        printf("\n");
        if (i == o->ranks.count - 1) plan_print_pinned(s);
        tr_session_destroy(&s);
    }
    return TR_OK;
}

void plan_say_once(void *self, tr_log_level_t level, const char *line) {
    tr_str_t *said = self;
    for (size_t at = 0; at < said->length; at += strlen(said->text + at) + 1)
        if (strcmp(said->text + at, line) == 0) return;
    tr_str_append_bytes(said, line, strlen(line) + 1);
    fprintf(stderr, "%s\n", line);
}

static tr_status_t plan_run(void *options) {
    plan_options_t *o = options;
    const struct {
        const char *name;
        bool is_given;
    } modes[] = {{"--nodes", o->nodes.count > 0},
                 {"--stages", o->stages},
                 {"--largest", o->memory > 0 && !o->fixes && !o->recompute_sweep},
                 {"--fixes", o->fixes},
                 {"--recompute-sweep", o->recompute_sweep},
                 {"--gpu", o->gpu && !o->recompute_sweep},
                 {"--price without --gpu", o->price && !o->gpu},
                 {"--ops", o->ops}};
    const char *mode = NULL;
    tr_config_t *config = NULL;
    tr_str_t said = {0};
    char path[4096];
    for (size_t i = 0; i < TR_COUNT(modes); i++) {
        if (mode && modes[i].is_given)
            return TR_FAIL(TR_ERR_USAGE, "plan %s does not take %s", mode, modes[i].name);
        if (modes[i].is_given) mode = modes[i].name;
    }
    if (o->nodes.count > 0 && o->ranks.count > 0)
        return TR_FAIL(TR_ERR_USAGE, "plan --nodes does not take --ranks; use --ranks-per-node");
    if ((o->gpu || o->price) && o->ranks.count > 1)
        return TR_FAIL(TR_ERR_USAGE, "plan %s takes one number of ranks, found %d",
                       o->gpu ? "--gpu" : "--price", o->ranks.count);
    if (o->ranks.count == 0) o->ranks = (cmd_list_t){1, {1}};
    cmd_config_path(o->path, path);
    TR_TRY(cmd_config_load(path, o->settings, &config));
    tr_log_set_sink(plan_say_once, &said);
    const tr_status_t status = o->nodes.count > 0   ? plan_nodes(config, o)
                               : o->stages          ? plan_stages(config, o)
                               : o->fixes           ? plan_fixes(config, o)
                               : o->recompute_sweep ? plan_recompute(config, o)
                               : o->memory > 0      ? plan_largest(config, o)
                               : o->gpu             ? plan_gpu(config, o)
                               : o->price           ? plan_prices(config, o)
                                                    : plan_print(config, o);
    tr_log_set_sink(NULL, NULL);
    tr_str_free(&said);
    tr_config_destroy(&config);
    return status;
}

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
    CMD_OPTION_FLAG(
        plan_options_t, stages, "--stages",
        "Prints the memory when the model is loaded, at the end of the forward pass, "
        "at the peak of the backward pass, in the update and in evaluation, by kind of "
        "tensor, in fp32, bf16 and fp16. It works without the memory that it plans for."),
    CMD_OPTION_ENUM(plan_options_t, largest, "--largest", NULL, "n_layer|n_embd|micro_batch",
                    "Finds the largest value of this key that fits in --memory per rank, in fp32, "
                    "bf16 and fp16. It works without the memory that it plans for.",
                    .with = "--memory"),
    CMD_OPTION_FLAG(plan_options_t, fixes, "--fixes",
                    "Prints the memory and the extra FLOPs of each setting that makes the run "
                    "smaller, alone and with the settings above it, and which fit in --memory. It "
                    "works without the memory that it plans for."),
    CMD_OPTION_FLAG(plan_options_t, recompute_sweep, "--recompute-sweep",
                    "Prints the memory and the predicted step time for several values of "
                    "model.recompute, and names the best: the fastest that fits in --memory, "
                    "without it the smallest. The time is predicted for the GPU of --gpu, by "
                    "default an h100."),
    CMD_OPTION_TEXT(plan_options_t, svg, "--svg", "FILE", NULL,
                    "Also draws the memory as SVG: by stage and over the ops of a step, or by "
                    "model.recompute; - writes to standard output.",
                    .with = "--stages|--recompute-sweep"),
    CMD_OPTION_BYTES(plan_options_t, memory, "--memory", "SIZE", NULL, 1, CMD_NO_LIMIT,
                     "The memory per rank for --largest, --fixes and --recompute-sweep, such as "
                     "16GiB. --fixes takes that of the device by default.",
                     .with = "--largest|--fixes|--recompute-sweep"),
    CMD_OPTION_(
        plan_options_t, gpu, "--gpu", TR_TYPE_STRING, NULL, 1, 0, TR_GPU_KINDS,
        "Plans for a GPU that need not be in this machine: the exact device memory with "
        "the workspaces of cuDNN (9.11 or later; an upper bound with older versions), and "
        "the engine that cuDNN takes for each convolution and attention. Predicts the step by "
        "published peaks.",
        CMD_VALUE, TR_GPU_KINDS, ),
    CMD_OPTION_TEXT(plan_options_t, warm, "--warm", "DIR", NULL,
                    "Keeps the compiled plans of --gpu in DIR, for runs with cuda.plan_cache = "
                    "DIR.",
                    .with = "--gpu"),
    CMD_OPTION_TEXT(plan_options_t, price, "--price", "PRICE|GPU=PRICE,...", NULL,
                    "The price of a GPU hour, in any currency: 3.50 for the GPU of --gpu, or, "
                    "without --gpu, those of several kinds (l4=0.80,h100=3.50). Prints the "
                    "predicted time and cost of all steps on --ranks GPUs, and whether a CPU is "
                    "enough."),
    CMD_OPTION_NUMBERS(plan_options_t, nodes, "--nodes", "N,N,...", NULL, 1, MAX_COUNT,
                       "Predicts step time, exposed communication and efficiency on these numbers "
                       "of nodes (4..1024 doubles), as a band with its assumptions. Requires "
                       "--network and --profile."),
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
                    "Also writes what --stages, --largest, --fixes, --recompute-sweep, --gpu, "
                    "--price and --nodes print as JSON; - writes only JSON to standard output.",
                    .with = "--nodes|--stages|--largest|--fixes|--recompute-sweep|--gpu|--price"),
};

const cmd_command_t cmd_plan = {
    .name = "plan",
    .runs = CMD_ON_FIRST,
    .summary = "Shows parameters, memory, work and ops of a run without running it.",
    .help = "RUN is a run folder; its config.ini is used. --ops, --stages, --largest, --fixes, "
            "--recompute-sweep, --gpu and --nodes exclude each other.",
    CMD_ARGUMENTS(plan_options_t),
    CMD_OPTIONS,
    .run = plan_run,
};
