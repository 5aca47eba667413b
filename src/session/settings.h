/* The keys that belong to no other module. */
#ifndef TR_SESSION_SETTINGS_H
#define TR_SESSION_SETTINGS_H

#include "config/config.h"

typedef struct {
    int64_t epochs, steps; /* steps > 0 takes precedence over epochs */
    int64_t seed;
    int on_nan;              /* tr_on_nan_t */
    const char *valid_every; /* "1epoch", steps, "10%" of the run */
    int64_t valid_samples;   /* per validation; 0: all */
    /* stop after so many validations without a new best; 0: never */
    int64_t patience;
} tr_train_settings_t; /* train.* */
typedef enum { TR_ON_NAN_STOP, TR_ON_NAN_SKIP } tr_on_nan_t;
extern const tr_config_table_t tr_train_config;

typedef struct {
    const char *device; /* auto, cpu, strict, cuda */
    int precision;      /* tr_precision_t; never AUTO once the session is created */
    const char *resume; /* auto, no, PATH */
    int64_t threads;    /* -1 auto */
    bool winograd;      /* convolutions may use Winograd's algorithm */
    bool capture;       /* capture programs if the device supports it */
    bool fuse;          /* merge groups of operations if the device has kernels for them */
} tr_main_settings_t;   /* without a section */
extern const tr_config_table_t tr_main_config;

typedef enum { TR_CUDA_DEBUG_NO, TR_CUDA_DEBUG_SYNC, TR_CUDA_DEBUG_NVTX } tr_cuda_debug_t;
typedef struct {
    double memory_limit;    /* fraction of the memory that is free after the context is created */
    int debug;              /* tr_cuda_debug_t */
    bool share;             /* ranks of a node may share a GPU */
    bool tune;              /* algorithms are chosen by time */
    const char *plan_cache; /* auto, none, FOLDER */
    bool measure_peak;
    bool deterministic; /* `tune` leaves out what is not bit-reproducible */
} tr_cuda_settings_t; /* cuda.* */
extern const tr_config_table_t tr_cuda_config;

typedef struct {
    int64_t every;
} tr_log_settings_t; /* log.* */
extern const tr_config_table_t tr_log_config;

typedef struct {
    const char *every; /* steps, "1epoch", "10min"; "0": only at the end */
    int64_t keep;
    bool best;
    int best_by;            /* tr_best_by_t */
    double patience;        /* seconds */
} tr_checkpoint_settings_t; /* checkpoint.* */
typedef enum { TR_BEST_BY_LOSS, TR_BEST_BY_ACCURACY, TR_BEST_BY_IOU } tr_best_by_t;
extern const tr_config_table_t tr_checkpoint_config;

#endif
