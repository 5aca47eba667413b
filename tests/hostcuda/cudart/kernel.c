/*
 * Kernels compiled for the host. Blocks run one after the other, in a seeded order, and so do the
 * threads of a block: each until it ends or meets a barrier. A thread that meets one stays on its
 * fiber, and others run; a kernel without barriers needs one fiber and no switch. Shared memory
 * holds poison when a block begins.
 */
#include "cudart_int.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS    1024
#define DEFAULT_SHARED 49152
#define MOST_SHARED    232448

typedef enum { UNBORN, RUNNING, READY, AT_BARRIER, AT_EXCHANGE, ENDED } thread_state_t;
typedef struct {
    thread_state_t state;
    int fiber;
    fiber_stack_t stack;
    const char *file; /* where it waits */
    int line;
    unsigned mask;
    uint64_t value, result;
    uint64_t (*combine)(uint64_t, uint64_t);
    int source, predicate;
    unsigned ballot;
} thread_t;

typedef struct {
    hostcuda_kernel_t kernel;
    dim3 grid, block;
    size_t shared_bytes;
} launch_t;

EXPORT hostcuda_index_t hostcuda_index;

/* The block that runs. */
static const launch_t *launch;
static thread_t threads[MAX_THREADS];
static int count, begun, live, first_thread, stride, current;
static int ready[MAX_THREADS], ready_count;
static int free_fibers[MAX_THREADS], free_count;
static unsigned warp_live[MAX_THREADS / 32], warp_wait[MAX_THREADS / 32];
static bool failed, resume_first, seeded;
static fiber_stack_t scheduler;
static char dynamic_shared[MOST_SHARED] __attribute__((aligned(16)));

EXPORT void *hostcuda_shared_memory(void) {
    return dynamic_shared;
}

/* -- order ------------------------------------------------------------------------------------- */
static uint64_t common_divisor(uint64_t a, uint64_t b) {
    return b ? common_divisor(b, a % b) : a;
}
/* i -> (from + i * step) mod n visits every number below n once. */
static void draw_order(uint64_t n, uint64_t *from, uint64_t *step) {
    *from = 0, *step = 1;
    if (!seeded || n < 2) return;
    *from = hostcuda_random() % n;
    do *step = hostcuda_random() % n;
    while (common_divisor(*step, n) != 1);
}

static uint3 place(uint64_t number, dim3 size) {
    return (uint3){(unsigned)(number % size.x), (unsigned)(number / size.x % size.y),
                   (unsigned)(number / size.x / size.y)};
}
static void enter_thread(int thread) {
    current = thread;
    threads[thread].state = RUNNING;
    hostcuda_index.thread = launch->block.y * launch->block.z == 1
                                ? (uint3){(unsigned)thread, 0, 0}
                                : place((uint64_t)thread, launch->block);
}
static int next_unborn(void) {
    return (int)(((int64_t)first_thread + (int64_t)begun++ * stride) % count);
}

/* -- fibers ------------------------------------------------------------------------------------ */
static void suspend(thread_state_t state) {
    thread_t *t = &threads[current];
    t->state = state;
    hc_fiber_switch(&t->stack, scheduler);
}
static void fail(const char *file, int line, const char *why) {
    hostcuda_fail(cudaErrorLaunchFailure, "kernel %s, block (%u, %u, %u), thread %d, %s:%d: %s",
                  launch->kernel.name, hostcuda_index.block.x, hostcuda_index.block.y,
                  hostcuda_index.block.z, current, file ? file : "?", line, why);
    failed = true;
}

/* A fiber runs thread after thread for as long as they end without waiting. */
static void fiber_main(void) {
    for (;;) {
        launch->kernel.thread(launch->kernel.args);
        const int fiber = threads[current].fiber;
        threads[current].state = ENDED;
        warp_live[current / 32] &= ~(1u << current % 32);
        live--;
        if (begun < count && !(ready_count && resume_first)) {
            enter_thread(next_unborn());
            threads[current].fiber = fiber;
            continue;
        }
        free_fibers[free_count++] = fiber;
        suspend(ENDED);
    }
}

static void make_ready(int thread) {
    threads[thread].state = READY;
    ready[ready_count++] = thread;
}

/* -- exchanges within a warp ------------------------------------------------------------------- */
/* The lanes that this exchange consists of, or 0 while some have not come. */
static unsigned meeting(int warp, const thread_t *one) {
    const unsigned lanes = one->mask & warp_live[warp];
    if ((warp_wait[warp] & lanes) != lanes) return 0;
    for (int lane = 0; lane < 32; lane++) {
        const thread_t *t = &threads[warp * 32 + lane];
        if (lanes >> lane & 1 &&
            (t->mask != one->mask || t->line != one->line || t->file != one->file))
            return 0;
    }
    return lanes;
}
static void exchange(int warp, unsigned lanes) {
    thread_t *w = &threads[warp * 32];
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; lane++)
        if (lanes >> lane & 1 && w[lane].predicate) ballot |= 1u << lane;
    for (int lane = 0; lane < 32; lane++) {
        if (!(lanes >> lane & 1)) continue;
        thread_t *t = &w[lane];
        t->ballot = ballot;
        t->result = t->source >= 0 && t->source < 32 && lanes >> t->source & 1 ? w[t->source].value
                                                                               : UINT64_MAX;
        if (!t->combine) continue;
        bool any = false;
        for (int k = 0; k < 32; k++)
            if (lanes >> k & 1)
                t->result = any ? t->combine(t->result, w[k].value) : w[k].value, any = true;
    }
    warp_wait[warp] &= ~lanes;
}

static void meet(unsigned mask, uint64_t value, int source, int predicate,
                 uint64_t (*combine)(uint64_t, uint64_t), const char *file, int line) {
    const int warp = current / 32, lane = current % 32;
    thread_t *t = &threads[current];
    t->file = file, t->line = line, t->mask = mask, t->value = value, t->source = source,
    t->predicate = predicate;
    t->combine = combine;
    if (!(mask >> lane & 1)) {
        fail(file, line, "the mask of an exchange lacks the lane that calls it");
        suspend(ENDED);
    }
    warp_wait[warp] |= 1u << lane;
    const unsigned lanes = meeting(warp, t);
    if (!lanes) {
        suspend(AT_EXCHANGE);
        return;
    }
    exchange(warp, lanes);
    for (int k = 0; k < 32; k++)
        if (k != lane && lanes >> k & 1) make_ready(warp * 32 + k);
}
EXPORT unsigned hostcuda_exchange(unsigned mask, uint64_t *value, int source, int predicate,
                                  const char *file, int line) {
    thread_t *t = &threads[current];
    meet(mask, *value, source, predicate, NULL, file, line);
    *value = t->result;
    return t->ballot;
}
EXPORT uint64_t hostcuda_reduce(unsigned mask, uint64_t value,
                                uint64_t (*combine)(uint64_t, uint64_t), const char *file,
                                int line) {
    thread_t *t = &threads[current];
    meet(mask, value, current % 32, 0, combine, file, line);
    return t->result;
}

/* -- barriers of the block --------------------------------------------------------------------- */
EXPORT int hostcuda_barrier(hostcuda_vote_t vote, int predicate, const char *file, int line) {
    thread_t *t = &threads[current];
    t->file = file, t->line = line, t->predicate = predicate != 0;
    suspend(AT_BARRIER);
    const int sum = (int)t->result, all = (int)t->value;
    return vote == HOSTCUDA_SUM ? sum : vote == HOSTCUDA_ANY ? sum > 0 : sum == all;
}
EXPORT void hostcuda_trap(const char *file, int line) {
    fail(file, line, "trap");
    suspend(ENDED);
}

/* Nothing can run: the barrier is complete, or an exchange is now that others have ended, or the
 * kernel is wrong. */
static void unblock(void) {
    int waiting = 0, sum = 0;
    const thread_t *one = NULL;
    for (int i = 0; i < count; i++) {
        thread_t *t = &threads[i];
        if (t->state == AT_EXCHANGE) {
            const unsigned lanes = meeting(i / 32, t);
            if (!lanes) continue;
            exchange(i / 32, lanes);
            for (int k = 0; k < 32; k++)
                if (lanes >> k & 1) make_ready(i / 32 * 32 + k);
            return;
        }
        if (t->state != AT_BARRIER) continue;
        waiting++;
        sum += t->predicate;
        current = i;
        if (one && (one->line != t->line || one->file != t->file)) {
            fail(t->file, t->line, "threads of one block wait at different barriers");
            return;
        }
        one = t;
    }
    if (waiting < live) {
        for (int i = 0; i < count; i++)
            if (threads[i].state == AT_EXCHANGE) current = i;
        fail(threads[current].file, threads[current].line,
             "a lane waits for others of its mask that never come here");
        return;
    }
    for (int i = 0; i < count; i++) {
        if (threads[i].state != AT_BARRIER) continue;
        threads[i].result = (uint64_t)sum;
        threads[i].value = (uint64_t)waiting;
        make_ready(i);
    }
}

/* -- blocks and launches ----------------------------------------------------------------------- */
static void begin_block(bool poison) {
    uint64_t from, step;
    count = live = (int)(launch->block.x * launch->block.y * launch->block.z);
    begun = ready_count = free_count = 0;
    draw_order((uint64_t)count, &from, &step);
    first_thread = (int)from, stride = (int)step;
    resume_first = seeded && hostcuda_random() & 1;
    failed = false;
    for (int i = 0; i < count; i++) threads[i].state = UNBORN;
    for (int i = count - 1; i >= 0; i--) free_fibers[free_count++] = i;
    for (int w = 0; w * 32 < count; w++) {
        warp_live[w] = count - w * 32 >= 32 ? ~0u : (1u << (count - w * 32)) - 1;
        warp_wait[w] = 0;
    }
    if (!poison) return;
    memset(dynamic_shared, 0xff, launch->shared_bytes);
    if (launch->kernel.shared)
        memset(launch->kernel.shared, 0xff,
               (size_t)(launch->kernel.shared_end - launch->kernel.shared));
}

static void run_block(void) {
    while (live && !failed) {
        if (ready_count && (resume_first || begun == count)) {
            const int at = seeded ? (int)((hostcuda_random() >> 32) * (uint64_t)ready_count >> 32)
                                  : ready_count - 1;
            const int thread = ready[at];
            ready[at] = ready[--ready_count];
            enter_thread(thread);
            hc_fiber_switch(&scheduler, threads[thread].stack);
        } else if (begun < count) {
            const int fiber = free_fibers[--free_count];
            enter_thread(next_unborn());
            threads[current].fiber = fiber;
            hc_fiber_switch(&scheduler, hc_fiber_new(fiber, fiber_main));
        } else
            unblock();
    }
}

static hostcuda_state_t launch_run(void *arg, bool first) {
    const launch_t *l = launch = arg;
    const uint64_t blocks = (uint64_t)l->grid.x * l->grid.y * l->grid.z;
    uint64_t from, step;
    (void)first;
    seeded = hostcuda_env("HOSTCUDA_SEED", 1) != 0;
    hostcuda_index.block_dim = l->block;
    hostcuda_index.grid_dim = l->grid;
    draw_order(blocks, &from, &step);
    for (uint64_t i = 0; i < blocks; i++) {
        hostcuda_index.block =
            place((uint64_t)(((unsigned __int128)i * step + from) % blocks), l->grid);
        begin_block(i < 4 || i % 61 == 0);
        run_block();
        if (failed) return HOSTCUDA_FAILED;
    }
    return HOSTCUDA_DONE;
}
static void launch_release(void *arg) {
    launch_t *l = arg;
    l->kernel.release(l->kernel.args);
    free(l);
}

static struct {
    const void *function;
    size_t most_shared;
} attributes[512];

static size_t most_shared(const void *function) {
    for (size_t i = 0; i < COUNT(attributes) && attributes[i].function; i++)
        if (attributes[i].function == function) return attributes[i].most_shared;
    return DEFAULT_SHARED;
}

static cudaError_t check(const hostcuda_kernel_t *kernel, dim3 grid, dim3 block,
                         size_t shared_bytes, const stream_t *stream) {
    if (!stream || stream->device != hc_current()) return cudaErrorInvalidResourceHandle;
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z)
        return cudaErrorInvalidConfiguration;
    if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (block.x > 1024 || block.y > 1024 || block.z > 64 ||
        (uint64_t)block.x * block.y * block.z > MAX_THREADS)
        return cudaErrorInvalidConfiguration;
    return shared_bytes > most_shared(kernel->function) ? cudaErrorInvalidValue : cudaSuccess;
}

EXPORT cudaError_t hostcuda_launch(const hostcuda_kernel_t *kernel, dim3 grid, dim3 block,
                                   size_t shared_bytes, cudaStream_t handle) {
    cudaError_t error =
        hc_enter("launch", false, "%s grid %u %u %u block %u %u %u shared %zu", kernel->name,
                 grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
    if (error) return kernel->release(kernel->args), error;
    stream_t *stream = hc_stream(handle);
    error = check(kernel, grid, block, shared_bytes, stream);
    if (error) {
        kernel->release(kernel->args);
        LEAVE(error);
    }
    launch_t *l = malloc(sizeof *l);
    *l = (launch_t){*kernel, grid, block, shared_bytes};
    LEAVE(hc_stream_push(
        stream, hc_work_make(&(hostcuda_work_t){kernel->name, launch_run, launch_release, l})));
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute,
                                        int value) {
    ENTER("%d %d", (int)attribute, value);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) LEAVE(cudaSuccess);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > MOST_SHARED)
        LEAVE(cudaErrorInvalidValue);
    for (size_t i = 0; i < COUNT(attributes); i++) {
        if (attributes[i].function && attributes[i].function != function) continue;
        attributes[i].function = function;
        attributes[i].most_shared = (size_t)value;
        LEAVE(cudaSuccess);
    }
    LEAVE(cudaErrorInvalidValue);
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *function, int block_size, size_t shared_bytes, unsigned flags) {
    (void)function;
    ENTER("%d %zu %u", block_size, shared_bytes, flags);
    if (block_size < 1 || block_size > MAX_THREADS) LEAVE(cudaErrorInvalidValue);
    *blocks = 2048 / block_size < 32 ? 2048 / block_size : 32;
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                                 int block_size,
                                                                 size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                                  shared_bytes, 0);
}
