/* The roofline model and its shares of the peaks. */
#include "roofline.h"
#include "forecast.h"

enum { NODE_GPUS = 8 };

typedef enum {
    SHARE_PRODUCT,
    SHARE_FILL,
    SHARE_ATTENTION,
    SHARE_CORES,
    SHARE_COPY,
    SHARE_LINK,
    GRAPH_SEC,
    EAGER_SEC,
    HOP_SEC,
    HOP_NETWORK_SEC
} share_t;

/* One set for all GPUs and models. */
static const struct {
    double value;
    const char *text, *source;
} shares[] = {
    [SHARE_PRODUCT] = {0.73, "products reach 73 % of the peak",
                       "cuBLAS in bf16 on an H100: 720 of 989 TFLOP/s (SemiAnalysis, MI300X vs "
                       "H100 vs H200, 2024)"},
    [SHARE_FILL] = {256, "and of that n / (n + 256) for sums of n terms",
                    "assumed: filling the pipeline and writing the result of a tile take as long "
                    "as 256 terms"},
    [SHARE_ATTENTION] = {0.28,
                         "fused attention reaches 28 % of the peak, masked scores not counted",
                         "cuDNN 9 on an H100, causal, 64 channels, 1,024 tokens: 288 TFLOP/s "
                         "forward (Shah et al., FlashAttention-3, 2024)"},
    [SHARE_CORES] = {0.08, "attention without tensor cores reaches 8 % of the fp32 peak",
                     "assumed; no measurement is known"},
    [SHARE_COPY] = {0.84, "memory is read and written at 84 % of its bandwidth",
                    "BabelStream 5.0, triad, on an H100 NVL: 3,304 of 3,938 GB/s"},
    [SHARE_LINK] = {0.82, "all-reduce uses 82 % of a link",
                    "nccl-tests, rings on 8 H100: 370 of 450 GB/s"},
    [GRAPH_SEC] = {0.5e-6, "a kernel in a CUDA graph costs 0.5 us",
                   "NVIDIA, Getting Started with CUDA Graphs: 3.4 us for a kernel of 2.9 us"},
    [EAGER_SEC] = {0.9e-6, "a kernel launched alone costs 0.9 us",
                   "the same: 3.8 us for a kernel of 2.9 us"},
    [HOP_SEC] = {3.4e-6, "a hop of a ring takes 3.4 us by NVLink, twice that by PCIe",
                 "NCCL's tuner, ring, protocol Simple"},
    [HOP_NETWORK_SEC] = {14e-6, "and 14 us by the network", "the same"},
};

static double roofline_share(share_t which) {
    return shares[which].value;
}

/* In FLOP/s. */
static double unit_rate(const tr_roofline_t *r, const tr_step_op_t *op) {
    switch (op->unit) {
    case TR_UNIT_PRODUCT:
        return r->peak * roofline_share(SHARE_PRODUCT) * op->terms /
               (op->terms + roofline_share(SHARE_FILL));
    case TR_UNIT_ATTENTION: return r->peak * roofline_share(SHARE_ATTENTION);
    case TR_UNIT_CORES: return r->gpu->fp32 * roofline_share(SHARE_CORES);
    default: return 0;
    }
}

double tr_roofline_op_sec(const tr_roofline_t *r, const tr_step_op_t *op) {
    const double rate = unit_rate(r, op), computing = rate > 0 ? op->flops / rate : 0,
                 moving = op->bytes / (r->gpu->bandwidth * roofline_share(SHARE_COPY)),
                 launching = op->launches * roofline_share(r->eager ? EAGER_SEC : GRAPH_SEC);
    return launching + (computing > moving ? computing : moving);
}

double tr_roofline_allreduce_sec(const tr_roofline_t *r, int ranks, double bytes) {
    const tr_gpu_kind_t *gpu = r->gpu;
    const tr_link_t inside = {roofline_share(HOP_SEC) * (gpu->has_nvlink ? 1 : 2),
                              1 / (gpu->link * roofline_share(SHARE_LINK))},
                    network = {roofline_share(HOP_NETWORK_SEC),
                               1 / (gpu->network * roofline_share(SHARE_LINK))};
    const int in_node = ranks < NODE_GPUS ? ranks : NODE_GPUS,
              nodes = (ranks + NODE_GPUS - 1) / NODE_GPUS;
    return tr_link_allreduce_sec(&inside, in_node, bytes) +
           tr_link_allreduce_sec(&network, nodes, bytes / in_node);
}

const char *tr_step_group_name(int group) {
    static const char *const names[TR_STEP_GROUPS] = {
        [TR_KERNEL_PRODUCT] = "products",   [TR_KERNEL_ATTENTION] = "attention",
        [TR_KERNEL_NORM] = "normalisation", [TR_KERNEL_ACTIVATION] = "activations, sums",
        [TR_KERNEL_HEAD] = "head",          [TR_KERNEL_OPTIMIZER] = "optimizer",
        [TR_KERNEL_OTHER] = "other",        [TR_STEP_COMMUNICATION] = "communication, exposed"};
    return names[group];
}

void tr_roofline_assumptions(const tr_roofline_t *r, tr_str_t *out) {
    const tr_gpu_kind_t *g = r->gpu;
    tr_str_printf(out,
                  "%s: products at most %.4g TFLOP/s, fp32 %.4g TFLOP/s, memory %.4g GB/s, %s %.4g "
                  "GB/s one way (%s); network %.4g GB/s for each GPU\n",
                  g->title, r->peak / 1e12, g->fp32 / 1e12, g->bandwidth / 1e9,
                  g->has_nvlink ? "NVLink" : "PCIe", g->link / 1e9, g->source, g->network / 1e9);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        tr_str_printf(out, "%s (%s)\n", shares[i].text, shares[i].source);
}
