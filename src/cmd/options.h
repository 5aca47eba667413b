/*
 * Commands, and their options and arguments as rows. Parsing, checks of values, the usage line, the
 * list of options in the help, the nearest name for a typo and shell completion follow from a row.
 *
 *   typedef struct { const char *path; int64_t steps; cmd_words_t settings; } bench_step_options_t;
 *   static const cmd_argument_t arguments[] = {
 *       {"CONFIG.ini", offsetof(bench_step_options_t, path), CMD_REQUIRED},
 *       {"[key=value ...]", offsetof(bench_step_options_t, settings), CMD_SETTINGS},
 *   };
 *   static const cmd_option_t options[] = {
 *       CMD_OPTION_INT(bench_step_options_t, steps, "--steps", "N", "50", 1, CMD_NO_LIMIT,
 *                      "Number of steps."),
 *   };
 */
#ifndef TR_CMD_OPTIONS_H
#define TR_CMD_OPTIONS_H

#include "trainer/config.h"
#include "base/mem.h"
#include "trainer/status.h"
#include "base/str.h"

/* Words of the command line, borrowed from argv. */
typedef struct {
    int count;
    char **word;
} cmd_words_t;
/* The values of an option that may be repeated; borrowed from argv. */
typedef TR_VEC(const char *) cmd_texts_t;
/* "1,2,4..32" or "fp32,bf16"; of choices, their indexes. */
enum { CMD_LIST_MAX = 32 };
typedef struct {
    int count, value[CMD_LIST_MAX];
} cmd_list_t;

typedef enum {
    CMD_VALUE,   /* one value of field.type, in the member that include/trainer/config.h says */
    CMD_FLAG,    /* no value; bool */
    CMD_TEXTS,   /* may be repeated; cmd_texts_t */
    CMD_NUMBERS, /* within field.min and field.max; cmd_list_t */
    CMD_CHOICES  /* among field.choices; cmd_list_t */
} cmd_takes_t;

typedef struct {
    /* name: "--steps". fallback NULL: the member is 0. help: sentences; "" if usage and help say it
     * elsewhere. */
    tr_config_field_t field;
    cmd_takes_t takes;
    const char *placeholder; /* of the value: "N" */
    bool required;
    const char *with; /* "--nodes|--stages": the option requires one of these; NULL: none */
} cmd_option_t;

#define CMD_NO_LIMIT 0x1p63 /* the largest value of a number */

/* The last arguments are designated members of cmd_option_t: .required = true. */
#define CMD_OPTION_(S, m, n, T, d, lo, hi, ch, h, k, p, ...)                                       \
    {                                                                                              \
        .field = {n, T, offsetof(S, m), d, lo, hi, ch, h, 0}, .takes = k, .placeholder = p,        \
        __VA_ARGS__                                                                                \
    }
#define CMD_OPTION_FLAG(S, m, n, h, ...)                                                           \
    CMD_OPTION_(S, m, n, TR_TYPE_BOOL, NULL, 1, 0, NULL, h, CMD_FLAG, NULL, __VA_ARGS__)
#define CMD_OPTION_INT(S, m, n, p, d, lo, hi, h, ...)                                              \
    CMD_OPTION_(S, m, n, TR_TYPE_INT, d, lo, hi, NULL, h, CMD_VALUE, p, __VA_ARGS__)
#define CMD_OPTION_AUTO_INT(S, m, n, p, lo, hi, h, ...)                                            \
    CMD_OPTION_(S, m, n, TR_TYPE_AUTO_INT, "auto", lo, hi, NULL, h, CMD_VALUE, p, __VA_ARGS__)
#define CMD_OPTION_FLOAT(S, m, n, p, d, lo, hi, h, ...)                                            \
    CMD_OPTION_(S, m, n, TR_TYPE_FLOAT, d, lo, hi, NULL, h, CMD_VALUE, p, __VA_ARGS__)
#define CMD_OPTION_DURATION(S, m, n, p, d, lo, hi, h, ...)                                         \
    CMD_OPTION_(S, m, n, TR_TYPE_DURATION, d, lo, hi, NULL, h, CMD_VALUE, p, __VA_ARGS__)
#define CMD_OPTION_BYTES(S, m, n, p, d, lo, hi, h, ...)                                            \
    CMD_OPTION_(S, m, n, TR_TYPE_BYTES, d, lo, hi, NULL, h, CMD_VALUE, p, __VA_ARGS__)
#define CMD_OPTION_TEXT(S, m, n, p, d, h, ...)                                                     \
    CMD_OPTION_(S, m, n, TR_TYPE_STRING, d, 1, 0, NULL, h, CMD_VALUE, p, __VA_ARGS__)
#define CMD_OPTION_ENUM(S, m, n, d, choices, h, ...)                                               \
    CMD_OPTION_(S, m, n, TR_TYPE_ENUM, d, 1, 0, choices, h, CMD_VALUE, choices, __VA_ARGS__)
#define CMD_OPTION_TEXTS(S, m, n, p, h, ...)                                                       \
    CMD_OPTION_(S, m, n, TR_TYPE_STRING, NULL, 1, 0, NULL, h, CMD_TEXTS, p, __VA_ARGS__)
#define CMD_OPTION_NUMBERS(S, m, n, p, d, lo, hi, h, ...)                                          \
    CMD_OPTION_(S, m, n, TR_TYPE_INT, d, lo, hi, NULL, h, CMD_NUMBERS, p, __VA_ARGS__)
#define CMD_OPTION_CHOICES(S, m, n, p, d, choices, h, ...)                                         \
    CMD_OPTION_(S, m, n, TR_TYPE_ENUM, d, 1, 0, choices, h, CMD_CHOICES, p, __VA_ARGS__)
/* Of a struct with a member `json`. */
#define CMD_OPTION_JSON(S, h, ...) CMD_OPTION_TEXT(S, json, "--json", "FILE", NULL, h, __VA_ARGS__)

typedef enum {
    CMD_REQUIRED,   /* const char * */
    CMD_OPTIONAL,   /* the same; a word with '=' is not this argument */
    CMD_NOT_FOLDER, /* the same; a folder is not this argument, but the next one */
    CMD_WORDS,      /* cmd_words_t: all other words; the command checks how many */
    CMD_SETTINGS    /* cmd_words_t: all other words, which the configuration checks */
} cmd_argument_kind_t;

typedef struct {
    const char *name; /* in the usage: "CONFIG.ini"; "": not there */
    size_t offset;    /* of the member in the struct of options */
    cmd_argument_kind_t kind;
    const char *choices; /* for completion: "bash|zsh"; NULL: files */
} cmd_argument_t;

/* In the definition of a command: its rows, named `arguments` and `options`, and their struct S. */
#define CMD_ARGUMENTS(S)                                                                           \
    .arguments = arguments, .argument_count = TR_COUNT(arguments), .options_bytes = sizeof(S)
#define CMD_OPTIONS .options = options, .option_count = TR_COUNT(options)

typedef enum { CMD_ON_RANKS, CMD_ON_FIRST } cmd_runs_t;

typedef struct cmd_command cmd_command_t;
struct cmd_command {
    const char *name;    /* of a target, with its command: "bench step" */
    cmd_runs_t runs;     /* on all ranks of a launch, or only on rank 0 */
    const char *summary; /* one sentence; of a target, all of its help */
    const char *help;    /* what `trainer NAME --help` adds to it; NULL: nothing */
    const cmd_argument_t *arguments;
    size_t argument_count;
    const cmd_option_t *options;
    size_t option_count;  /* at most 64 */
    size_t options_bytes; /* of the struct that the rows describe */
    /* Gets the struct, which it may change. Prints results to stdout. */
    tr_status_t (*run)(void *options);
    /* Refuses an option that was given, by what else was; NULL: accepts all. */
    tr_status_t (*check)(void *options, const char *option);
    /* "bench step", "bench allreduce", ..., NULL: instead of rows and a function. */
    const cmd_command_t *const *targets;
};

/*
 * Fills the zeroed struct `options` from the words after the name of the command, argv[0]; moves
 * words of argv. After the word -- there are no options. TR_ERR_USAGE: an unknown option, a bad value, or a missing or surplus argument.
 * Call cmd_options_free also after an error.
 */
tr_status_t cmd_options_parse(const cmd_command_t *command, int argc, char **argv, void *options);
void cmd_options_free(const cmd_command_t *command, void *options);
/* The usage error: `missing` is not among the arguments. */
tr_status_t cmd_fail_missing(const cmd_command_t *command, const char *missing);
/* Appends "trainer NAME ARGUMENTS", in lines of at most `columns` (0: in one line). */
void cmd_usage(const cmd_command_t *command, int columns, tr_str_t *out);

/* Writes `a` and then `b` to *out; out->word: tr_free. */
tr_status_t cmd_words_join(cmd_words_t a, cmd_words_t b, cmd_words_t *out);

#endif
