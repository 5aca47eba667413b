/* Shared by the parts of `trainer plan`. Private to src/cmd. */
#ifndef TR_CMD_PLAN_PLAN_H
#define TR_CMD_PLAN_PLAN_H

#include "cmd/cmd.h"
#include "session/session.h"
#include "trainer/log.h"

#include <jansson.h>

/* The modes of modes.def. */
enum {
#define PLAN_MODE(name, ...) PLAN_IS_##name,
#include "modes.def"
#undef PLAN_MODE
    PLAN_MODES
};

typedef struct {
    const char *path, *json;
    cmd_words_t settings;
    cmd_list_t ranks;
    bool ops, verbose;
    bool given[PLAN_MODES]; /* whether the option of a mode is */
    const char *svg;        /* of --stages and --recompute-sweep */
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

/* What a mode has found; zeroed, and freed by its caller. */
typedef struct {
    tr_str_t before, after; /* text around the table, whole lines */
    void *rows;             /* of the mode's table; tr_alloc */
    size_t count;
    json_t *json;    /* what the object of --json has beside kind, config and the rows */
    tr_svg_t charts; /* where o->svg is given */
} plan_result_t;

typedef struct {
    const char *kind;        /* the value of this key in the JSON; NULL: there is no JSON */
    const tr_table_t *table; /* NULL: the text and the JSON have all */
    const char *rows_key;    /* of the rows in the JSON; NULL: "rows" */
    /* May change the configuration. What was found before an error is shown too. */
    tr_status_t (*find)(tr_config_t *config, const plan_options_t *o, plan_result_t *out);
} plan_mode_t;

extern const plan_mode_t plan_mode_memory; /* without an option of a mode */
#define PLAN_MODE(name, ...) extern const plan_mode_t plan_mode_##name;
#include "modes.def"
#undef PLAN_MODE

/* Creates the session to plan, as the last of `ranks` ranks, which has the most slots. any_size:
 * allow more memory than this device has. Not collective. */
tr_status_t plan_session(const tr_config_t *config, int ranks, bool any_size, tr_session_t **out);
/* Tries values: sets the words key=value of the text in the configuration, where they stay, and
 * plans it in any size. origin: what errors call the words. Not collective. */
__attribute__((format(printf, 5, 6))) tr_status_t plan_try(tr_config_t *config, const char *origin,
                                                           int ranks, tr_session_t **out,
                                                           const char *format, ...);
/* A log sink: prints each line once, because several plans say the same about the data. `self`: a
 * tr_str_t of the lines already printed, each with its terminator. */
void plan_say_once(void *self, tr_log_level_t level, const char *line);
/* Appends what ranks pin at the start, besides their batches; nothing on the CPU. */
void plan_append_pinned(const tr_session_t *s, tr_str_t *out);
/* Lines of text: appended behind `indent`, and as an array. */
void plan_append_lines(const char *lines, const char *indent, tr_str_t *out);
json_t *plan_lines_json(const char *lines);

#endif
