/*
 * Forecasts the step time on more ranks than a measurement had: a timeline over the measured op
 * times of one step, with the communication that `bench allreduce` measured.
 *
 * The model, and where its formulas come from:
 *
 *   timeline   The ops run one after another. A bucket is ready after its op; one communication
 *              stream reduces the buckets in order. Communication after the last op is exposed.
 *   ranks      A step takes as long as its slowest rank. The steps of the ranks vary independently,
 *              as the steps of the profile do: the maximum of N has the quantile q where the
 *              profile has q^(1/N).
 *   network    Measured times where the number of ranks was measured, interpolated between sizes.
 *              Elsewhere the better of ring and tree, with latency a and time per byte b (Hockney,
 *              "The communication challenge for MPP", 1994), for n bytes on p ranks (Thakur,
 *              Rabenseifner, Gropp, "Optimization of collective communication operations in
 *              MPICH", 2005):
 *                  ring  2 (p - 1) a + 2 (p - 1) / p n b
 *                  tree  ceil(log2 p) (a + n b)          (recursive doubling)
 *              On several ranks of several nodes: the time inside a node plus that between nodes.
 *
 * Times are in seconds. Not collective; no global state.
 */
#ifndef TR_SCALING_FORECAST_H
#define TR_SCALING_FORECAST_H

#include "base/mem.h"
#include "base/str.h"

/* -- a measured step: the file of `bench step --json` ------------------------------------------ */

typedef struct {
    int after_op; /* index of the op that completes it; -1: before the first */
    double bytes;
} tr_bucket_t;

typedef struct {
    int ranks, threads;
    int64_t batch_size, micro_batch, slots; /* slots: micro-batches per rank and step */
    int64_t parameters;                     /* 0: unknown */
    double update_sec;                      /* after the reduction */
    TR_VEC(double) op_sec;                  /* medians, in order; of one micro-batch */
    TR_VEC(tr_bucket_t) buckets;
    TR_VEC(double) compute_sec; /* steps without exposed communication, ascending; not empty */
    char *config;               /* ini text */
} tr_profile_t;

/* TR_ERR_NOINPUT: no such file; TR_ERR_DATA: it is not what `bench step --json` writes. */
tr_status_t tr_profile_read(const char *path, tr_profile_t *out);
void tr_profile_free(tr_profile_t *profile);

/* -- a measured network: files of `bench allreduce --json` ------------------------------------- */

typedef enum { TR_NETWORK_MEDIAN, TR_NETWORK_P90, TR_NETWORK_STATS } tr_network_stat_t;

typedef struct {
    double bytes, sec[TR_NETWORK_STATS];
} tr_network_size_t;

typedef struct {
    int ranks, nodes;
    TR_VEC(tr_network_size_t) sizes; /* ascending, not empty */
} tr_network_table_t;

typedef struct {
    double latency_sec, sec_per_byte;
} tr_link_t;

typedef struct {
    TR_VEC(tr_network_table_t) tables;
    tr_link_t link[TR_NETWORK_STATS]; /* fitted to all tables */
    double error;   /* root mean square of the relative errors of the fitted medians */
    bool is_polled; /* the engine uses the computing thread: nothing is hidden */
} tr_network_t;

/* Reads `paths`, separated by commas, and fits the link. Errors as tr_profile_read. */
tr_status_t tr_network_read(const char *paths, tr_network_t *out);
void tr_network_free(tr_network_t *network);

/* The better of ring and tree; 0 on one rank. */
double tr_link_allreduce_sec(const tr_link_t *link, int ranks, double bytes);
/* Between `members` nodes with one rank each, or ranks of one node: from the table with that number
 * of ranks, or else from the link. *out_measured: which. */
double tr_network_allreduce_sec(const tr_network_t *network, int members, double bytes,
                                tr_network_stat_t stat, bool *out_measured);
/* From the table with these ranks and nodes; false if there is none. */
bool tr_network_measured_sec(const tr_network_t *network, int ranks, int nodes, double bytes,
                             tr_network_stat_t stat, double *out_sec);

/* -- the timeline ------------------------------------------------------------------------------ */

typedef struct {
    double compute_sec; /* end of the last op */
    double end_sec;     /* end of the last op and of the last bucket */
    double exposed_sec; /* end_sec - compute_sec */
} tr_timeline_t;

/* The timeline of one micro-batch with its buckets. op_sec: time of each op, multiplied by `scale`.
 * bucket_sec: time of each bucket's reduction. With is_polled, reductions use the computing thread.
 * */
tr_timeline_t tr_timeline(const double *op_sec, int ops, double scale, const tr_bucket_t *buckets,
                          const double *bucket_sec, int bucket_count, bool is_polled);

/* -- the forecast ------------------------------------------------------------------------------ */

typedef enum { TR_SCALING_WEAK, TR_SCALING_STRONG } tr_scaling_t;

typedef struct {
    const tr_profile_t *profile;
    const tr_network_t *between; /* nodes */
    const tr_network_t *inside;  /* a node; NULL if each node has one rank */
    int ranks_per_node;
    tr_scaling_t mode;
    int64_t batch_size; /* of one node (weak), of all nodes (strong) */
    /* parallel.zero = 2: the gradients of every micro-batch are reduce-scattered, which takes half as
     * long as the all-reduce that the last one has with the gather of the parameters */
    bool shards_gradients;
} tr_forecast_setup_t;

/* low: all ranks vary together, so no rank waits for a slower one; network at its median. expected:
 * ranks vary independently; the median. high: the 95th percentile; network at its 90th. */
typedef struct {
    double low, expected, high;
} tr_band_t;

typedef enum { TR_ORIGIN_NONE, TR_ORIGIN_MEASURED, TR_ORIGIN_FITTED } tr_network_origin_t;

typedef struct {
    int nodes, ranks;
    int64_t batch_size, micro_batch, slots; /* slots: most of any rank */
    tr_band_t step_sec, exposed_sec;
    tr_band_t efficiency; /* relative to the expected step of one node; 1 is ideal */
    tr_network_origin_t network;
} tr_forecast_t;

/* TR_ERR_CONFIG: the batch cannot be divided among the ranks. */
tr_status_t tr_forecast(const tr_forecast_setup_t *setup, int nodes, tr_forecast_t *out);

/* Appends the assumptions of the forecast, one per line. */
void tr_forecast_assumptions(const tr_forecast_setup_t *setup, tr_str_t *out);

#endif
