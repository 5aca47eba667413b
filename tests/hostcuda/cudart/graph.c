/* Graphs: nodes with what they need; a replay runs them in a seeded order that keeps to it. */
#include "cudart_int.h"
#include <stdlib.h>

struct CUgraphExec_st {
    graph_t *graph;
    nodes_t *after;   /* [nodes] who waits for this node */
    int users;        /* the program, and each launch that is not complete */
    const void *busy; /* the launch that runs: one at a time */
};
typedef struct CUgraphExec_st exec_t;

typedef struct {
    exec_t *exec;
    int *missing; /* [nodes] needs that are not complete */
    int *ready;   /* nodes that may run */
    bool *started;
    int ready_count, left;
} launch_t;

graph_t *hc_graph_new(void) {
    graph_t *graph = calloc(1, sizeof *graph);
    graph->users = 1;
    return graph;
}
node_t *hc_graph_add(graph_t *graph, work_t *work, const nodes_t *needs) {
    node_t *node = calloc(1, sizeof *node);
    node->work = work;
    node->index = graph->nodes.count;
    hc_nodes_join(&node->needs, needs);
    hc_nodes_add(&graph->nodes, node);
    return node;
}
void hc_graph_drop(graph_t *graph) {
    if (--graph->users) return;
    for (int i = 0; i < graph->nodes.count; i++) {
        node_t *node = graph->nodes.list[i];
        hc_work_drop(node->work);
        hc_nodes_clear(&node->needs);
        free(node);
    }
    hc_nodes_clear(&graph->nodes);
    free(graph);
}

static void exec_drop(exec_t *exec) {
    if (--exec->users) return;
    for (int i = 0; i < exec->graph->nodes.count; i++) hc_nodes_clear(&exec->after[i]);
    free(exec->after);
    hc_graph_drop(exec->graph);
    free(exec);
}

/* -- a replay ------------------------------------------------------------------------------------------------------------ */
static void launch_begin(launch_t *launch) {
    const nodes_t *nodes = &launch->exec->graph->nodes;
    launch->left = nodes->count;
    launch->ready_count = 0;
    for (int i = 0; i < nodes->count; i++) {
        launch->started[i] = false;
        launch->missing[i] = nodes->list[i]->needs.count;
        if (!launch->missing[i]) launch->ready[launch->ready_count++] = i;
    }
}
static void complete(launch_t *launch, int at) {
    const int index = launch->ready[at];
    const nodes_t *after = &launch->exec->after[index];
    launch->ready[at] = launch->ready[--launch->ready_count];
    launch->left--;
    for (int i = 0; i < after->count; i++)
        if (!--launch->missing[after->list[i]->index]) launch->ready[launch->ready_count++] = after->list[i]->index;
}
static hostcuda_state_t launch_run(void *arg, bool first) {
    launch_t *launch = arg;
    exec_t *exec = launch->exec;
    if (exec->busy && exec->busy != launch) {
        launch->left = -1; /* begins when the other has ended */
        return HOSTCUDA_AGAIN;
    }
    if (first || launch->left < 0) launch_begin(launch);
    exec->busy = launch;
    hostcuda_state_t state = HOSTCUDA_AGAIN;
    const int from = launch->ready_count ? (int)(hostcuda_random() % (uint64_t)launch->ready_count) : 0;
    for (int i = 0; i < launch->ready_count && state == HOSTCUDA_AGAIN; i++) {
        const int at = (from + i) % launch->ready_count, index = launch->ready[at];
        const hostcuda_work_t *call = &exec->graph->nodes.list[index]->work->call;
        const bool begins = !launch->started[index];
        launch->started[index] = true;
        const hostcuda_state_t one = call->run(call->arg, begins);
        if (one == HOSTCUDA_AGAIN) continue;
        if (one != HOSTCUDA_PARTLY) complete(launch, at);
        state = HOSTCUDA_PARTLY;
        break;
    }
    if (launch->left) return state;
    exec->busy = NULL;
    return HOSTCUDA_DONE;
}
static void launch_release(void *arg) {
    launch_t *launch = arg;
    if (launch->exec->busy == launch) launch->exec->busy = NULL;
    exec_drop(launch->exec);
    free(launch->missing);
    free(launch->ready);
    free(launch->started);
    free(launch);
}

/* -- entry points -------------------------------------------------------------------------------------------------------- */
EXPORT cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned flags) {
    ENTER("%u", flags);
    *out = hc_graph_new();
    hostcuda_count("graphs", 1);
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    ENTER("%s", "");
    if (!graph) LEAVE(cudaErrorInvalidValue);
    hostcuda_count("graphs", -1);
    hc_graph_drop(graph);
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    ENTER("%s", "");
    if (!graph || !count) LEAVE(cudaErrorInvalidValue);
    for (size_t i = 0; nodes && i < *count && i < (size_t)graph->nodes.count; i++)
        nodes[i] = (cudaGraphNode_t)graph->nodes.list[i];
    *count = (size_t)graph->nodes.count;
    LEAVE(cudaSuccess);
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    ENTER("%llu", flags);
    if (!graph) LEAVE(cudaErrorInvalidValue);
    exec_t *exec = calloc(1, sizeof *exec);
    const nodes_t *nodes = &graph->nodes;
    exec->graph = graph;
    exec->users = 1;
    exec->after = calloc((size_t)nodes->count + 1, sizeof *exec->after);
    for (int i = 0; i < nodes->count; i++)
        for (int k = 0; k < nodes->list[i]->needs.count; k++)
            hc_nodes_add(&exec->after[nodes->list[i]->needs.list[k]->index], nodes->list[i]);
    graph->users++;
    hostcuda_count("executable graphs", 1);
    *out = exec;
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiate(out, graph, flags);
}
EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    ENTER("%s", "");
    if (!exec) LEAVE(cudaErrorInvalidValue);
    hostcuda_count("executable graphs", -1);
    exec_drop(exec);
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    ENTER("%s", "");
    LEAVE(exec && hc_stream(stream) ? cudaSuccess : cudaErrorInvalidValue);
}
EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    ENTER("%s", "");
    stream_t *stream = hc_stream(handle);
    if (!exec || !stream) LEAVE(cudaErrorInvalidResourceHandle);
    const size_t n = (size_t)exec->graph->nodes.count + 1;
    launch_t *launch = calloc(1, sizeof *launch);
    *launch = (launch_t){exec, calloc(n, sizeof(int)), calloc(n, sizeof(int)), calloc(n, sizeof(bool)), 0, -1};
    exec->users++;
    LEAVE(hc_stream_push(stream, hc_work_make(&(hostcuda_work_t){"graph", launch_run, launch_release, launch})));
}
