/* Shared by the parts of `trainer plan`. Private to src/cmd. */
#ifndef TR_CMD_PLAN_PLAN_H
#define TR_CMD_PLAN_PLAN_H

#include "cmd/cmd.h"
#include "session/session.h"
#include "trainer/log.h"

typedef struct {
    const char *path, *json;
    cmd_words_t settings;
    cmd_list_t ranks;
    bool ops, stages, fixes, recompute_sweep;
    const char *svg; /* of --stages and --recompute-sweep */
    /* --nodes */
    cmd_list_t nodes;
    int64_t ranks_per_node;
    const char *network, *network_inside, *profile;
    int mode;               /* tr_scaling_t */
    int largest;            /* --largest: plan_largest_t */
    int64_t memory;         /* of --largest, --fixes and others, bytes; 0: not given */
    const char *gpu, *warm; /* --gpu MODEL, --warm FOLDER */
    const char *price;      /* --price 3.50, or --price l4=0.80,h100=3.50 */
} plan_options_t;

typedef enum { PLAN_N_LAYER, PLAN_N_EMBD, PLAN_MICRO_BATCH } plan_largest_t;

/* Creates the session to plan, as the last of `ranks` ranks, which has the most slots. any_size:
 * allow more memory than this device has. Not collective. */
tr_status_t plan_session(const tr_config_t *config, int ranks, bool any_size, tr_session_t **out);

/* A log sink: prints each line once, because several plans say the same about the data. `self`: a
 * tr_str_t of the lines already printed, each with its terminator. */
void plan_say_once(void *self, tr_log_level_t level, const char *line);
/* Prints what ranks pin at the start, besides their batches; nothing on the CPU. */
void plan_print_pinned(const tr_session_t *s);
/* plan --nodes: prints the predicted step times, or writes them to o->json. */
tr_status_t plan_nodes(const tr_config_t *config, const plan_options_t *o);
/* plan --stages: the memory of each stage of a step, in fp32, bf16 and fp16. Sets precision. */
tr_status_t plan_stages(tr_config_t *config, const plan_options_t *o);
/* plan --largest: the largest o->largest that fits in o->memory, in fp32, bf16 and fp16. Sets that key
 * and precision. */
tr_status_t plan_largest(tr_config_t *config, const plan_options_t *o);
/* plan --fixes: what makes the run smaller, and by how much. */
tr_status_t plan_fixes(const tr_config_t *config, const plan_options_t *o);
/* plan --recompute-sweep: memory and predicted time by model.recompute, which it sets. */
tr_status_t plan_recompute(tr_config_t *config, const plan_options_t *o);
/* plan --gpu: the memory on a GPU that need not be in this machine, what cuDNN plans for it, and the
 * predicted step.
 * Sets cuda.plan_cache to o->warm. */
tr_status_t plan_gpu(tr_config_t *config, const plan_options_t *o);
/* plan --price GPU=PRICE,...: the time and the cost on each of these GPUs. Sets cuda.plan_cache. */
tr_status_t plan_prices(tr_config_t *config, const plan_options_t *o);

#endif
