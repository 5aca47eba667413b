/* The life of a profile: from profile.steps to its files. */
#include "profiler.h"
#include "base/background.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/host.h"
#include "base/json_text.h"
#include "base/stats.h"
#include "device/device_trace.h"
#include "trace_file.h"
#include "trainer/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_SPANS = 1 << 20,
    STEP_SPANS = 1024,
    UNTRACED_STEPS = 20,
    WRITER_NICE = 10,
    STOP_SEC = 60
};

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(
        tr_profiler_settings_t, steps, "",
        "Trace these steps, as FIRST:LAST, and write profile/ in the run folder: a timeline of "
        "each rank for Perfetto, a table of ops, and what limits the speed. Empty: none. Results "
        "are the same.",
        TR_RESUME_FREE),
};
const tr_config_table_t tr_profiler_config =
    TR_CONFIG_TABLE("profile", fields, tr_profiler_settings_t);

typedef enum { PROFILER_WAITS, PROFILER_TRACES, PROFILER_IS_OVER } profiler_state_t;

struct tr_profiler {
    tr_profiler_params_t params;
    tr_step_programs_t programs;
    profiler_state_t state;
    int64_t begin; /* the first traced step: one before the profile, if there is one, to warm up */
    int64_t done;  /* the last step */
    double ended_sec; /* of it; 0: there is none */
    double untraced[UNTRACED_STEPS];
    int untraced_count;
    tr_trace_clock_t clock;
    double from_sec, cpu_sec, cores_wait_sec; /* when the trace began */
    tr_step_profile_t profile;
    tr_spans_t spans; /* of the thread, once it has the job */
    tr_background_t *background;
    atomic_bool is_abandoned; /* the files: a write hangs */
};

/* -- creation ---------------------------------------------------------------------------------- */

/* may_end: LAST may be behind the end of the run. */
static tr_status_t profiler_parse(const char *text, int64_t most, bool may_end, int64_t *first,
                                  int64_t *last) {
    char number[32] = "";
    const char *colon = strchr(text, ':');
    if (colon && colon - text < (ptrdiff_t)sizeof number)
        memcpy(number, text, (size_t)(colon - text));
    if (colon && tr_parse_int(number, first) && tr_parse_int(colon + 1, last) && *first >= 1 &&
        *first <= *last && (*last <= most || may_end))
        return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "profile.steps: expected FIRST:LAST, two steps of this run with 1 <= FIRST <= "
                   "LAST <= %lld, found '%s'. For example profile.steps = %lld:%lld",
                   (long long)most, text, (long long)(most > 30 ? 20 : 1),
                   (long long)(most > 30 ? 30 : most));
}

static void profiler_describe(const tr_profiler_params_t *params, tr_step_profile_t *p) {
    const tr_device_t *device = params->device;
    const char *engine = params->collectives ? params->collectives->engine : NULL;
    p->peak_flops = p->peak_bytes = p->untraced_sec = NAN;
    p->is_immediate = device->immediate;
    p->is_captured =
        device->ops->capture_begin && strcmp(tr_config_get(params->config, "capture"), "yes") == 0;
    p->overlaps = strcmp(tr_config_get(params->config, "parallel.overlap"), "yes") == 0;
    p->polls = engine && strcmp(engine, "poll") == 0;
    p->may_use_bf16 = params->dtype == TR_F32 && device->fast_bf16;
    p->workers = params->workers;
    p->prefetch = params->prefetch;
    p->micro_batch = params->micro_batch;
    p->batch_size = params->batch_size;
}

tr_status_t tr_profiler_create(const tr_profiler_params_t *params, tr_profiler_t **out) {
    tr_profiler_settings_t settings;
    tr_profiler_t *p = NULL;
    int64_t first = 0, last = 0;
    *out = NULL;
    tr_config_read(params->config, &tr_profiler_config, &settings);
    if (!settings.steps[0]) return TR_OK;
    TR_TRY(
        profiler_parse(settings.steps, params->total_steps, params->steps_done > 0, &first, &last));
    if (!tr_device_trace_can(params->device))
        return TR_FAIL(TR_ERR_CONFIG,
                       "profile.steps = %s needs a device that measures time; device = %s does not",
                       settings.steps, params->device->ops->name);
    if (first <= params->steps_done) first = params->steps_done + 1;
    if (last > params->total_steps) last = params->total_steps;
    if (first > last) {
        TR_INFO("profile.steps = %s: nothing to profile, %lld steps of %lld are done",
                settings.steps, (long long)params->steps_done, (long long)params->total_steps);
        return TR_OK;
    }
    TR_TRY(tr_alloc(sizeof *p, "profiler", &p));
    p->params = *params;
    p->programs = (tr_step_programs_t){params->g, params->last, params->update};
    p->profile.first = first;
    p->begin = first > params->steps_done + 1 ? first - 1 : first;
    p->profile.last = last;
    profiler_describe(params, &p->profile);
    *out = p;
    return TR_OK;
}

/* -- the trace --------------------------------------------------------------------------------- */

bool tr_profiler_drains(const tr_profiler_t *p, int64_t step) {
    return p && p->state != PROFILER_IS_OVER && (step == p->begin - 1 || step == p->profile.last);
}

static size_t profiler_room(const tr_profiler_t *p) {
    const int64_t steps = p->profile.last - p->begin + 1,
                  ops = tr_program_op_count(p->params.g, p->params.last) * p->params.slot_count +
                        tr_program_op_count(p->params.g, p->params.update);
    const int64_t each = 2 * ops + STEP_SPANS; /* collectives and their progress between ops */
    return steps > MOST_SPANS / each ? MOST_SPANS : (size_t)(steps * each);
}

/* Without peaks there are no floors, which is no error. */
static void profiler_measure_peak(tr_profiler_t *p) {
    tr_device_t *device = p->params.device;
    double flops = 0, bytes = 0;
    if (!p->params.measures_peak || !device->ops->measure_peak) return;
    if (device->ops->measure_peak(device, p->params.dtype, &flops, &bytes) == TR_OK && flops > 0 &&
        bytes > 0) {
        p->profile.peak_flops = flops;
        p->profile.peak_bytes = bytes;
    } else {
        tr_error_clear();
    }
}

static tr_status_t profiler_start(tr_profiler_t *p) {
    tr_world_t *world = p->params.world;
    tr_device_t *device = p->params.device;
    tr_status_t status = tr_background_start("profiler", 1, &p->background);
    if (status == TR_OK) status = tr_trace_start(profiler_room(p));
    if (status == TR_OK)
        status = tr_device_trace_start(device, tr_graph_stream(p->params.g), p->params.collectives);
    status = tr_world_agree(world, status);
    if (status == TR_OK) {
        TR_TRY(tr_world_clock_offset(world, &p->clock.before));
        p->clock.origin_sec = p->clock.before.at_sec;
        p->state = PROFILER_TRACES;
        p->from_sec = tr_clock_sec();
        p->cpu_sec = tr_host_cpu_sec();
        p->cores_wait_sec = tr_host_cores_wait_sec();
        return tr_world_broadcast(world, &p->clock.origin_sec, sizeof p->clock.origin_sec, 0);
    }
    if (status == TR_ERR_RETRY) return status; /* a peer is lost */
    TR_WARN("no step will be profiled, training continues: %s", tr_error_last()->message);
    tr_error_clear();
    tr_device_trace_stop();
    tr_spans_t spans = tr_trace_stop();
    tr_free(&spans.data);
    p->state = PROFILER_IS_OVER;
    return TR_OK;
}

tr_status_t tr_profiler_before(tr_profiler_t *p, int64_t step) {
    return p && p->state == PROFILER_WAITS && step == p->begin ? profiler_start(p) : TR_OK;
}

/* -- files: on the thread ---------------------------------------------------------------------- */

static tr_status_t profiler_write_profile(tr_profiler_t *p, const char *folder) {
    char path[4096];
    json_t *profile = tr_step_profile_json(&p->profile);
    char *text = profile ? json_dumps(profile, JSON_INDENT(1)) : NULL;
    json_decref(profile);
    if (!text) return TR_FAIL(TR_ERR_MEMORY, "not enough memory for the profile");
    tr_json_shorten(text);
    tr_status_t status = tr_path_join(folder, "profile.json", path);
    if (status == TR_OK) status = tr_replace_file(path, text, strlen(text), TR_REPLACE_LINKED);
    free(text);
    return status;
}

static tr_status_t profiler_write_files(tr_profiler_t *p) {
    const tr_world_info_t *info = tr_world_info(p->params.world);
    const tr_trace_file_t file = {.rank = info->rank,
                                  .host = info->host,
                                  .is_captured = p->profile.is_captured,
                                  .is_immediate = p->profile.is_immediate,
                                  .clock = p->clock,
                                  .programs = p->programs,
                                  .is_abandoned = &p->is_abandoned};
    char folder[4096], path[4096], name[32];
    snprintf(name, sizeof name, "trace-r%04d.json", info->rank);
    TR_TRY(tr_path_join(p->params.run_dir, "profile", folder));
    TR_TRY(tr_path_join(folder, name, path));
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return tr_io_fail("create", folder, errno);
    TR_TRY(tr_trace_file_write(&file, &p->spans, path));
    if (info->rank > 0) return TR_OK;
    TR_TRY(profiler_write_profile(p, folder));
    TR_INFO("profile: the timelines are %s/trace-r*.json; open them at https://ui.perfetto.dev",
            folder);
    return TR_OK;
}

static void profiler_report(void *self, void *item) {
    tr_profiler_t *p = self;
    tr_status_t status = TR_OK;
    (void)item;
    setpriority(PRIO_PROCESS, (id_t)gettid(), WRITER_NICE); /* training has priority */
    if (tr_world_info(p->params.world)->rank == 0) {
        status = tr_step_profile_take_ops(&p->profile, &p->spans, &p->programs);
        if (status == TR_OK) tr_step_profile_log(&p->profile);
    }
    if (status == TR_OK) status = profiler_write_files(p);
    if (status != TR_OK)
        TR_WARN_ALL("the profile is not written, training continues: %s", tr_error_last()->message);
    tr_free(&p->spans.data);
}

/* -- the end of the trace ---------------------------------------------------------------------- */

/* The times of all ranks, and of each bucket the least that any rank was exposed to it. Collective.
 */
static tr_status_t profiler_gather(tr_profiler_t *p, const tr_rank_profile_t *mine) {
    tr_world_t *world = p->params.world;
    tr_step_profile_t *to = &p->profile;
    const size_t size = (size_t)tr_world_info(world)->size;
    TR_VEC(double) exposed = {0};
    tr_status_t status =
        tr_vec_reserve_(&to->ranks.data, &to->ranks.capacity, size, sizeof *to->ranks.data);
    if (status == TR_OK) status = tr_step_profile_take_buckets(to, &p->spans, &p->programs);
    for (size_t i = 0; i < to->buckets.count && status == TR_OK; i++)
        status = tr_vec_push(&exposed, to->buckets.data[i].exposed_sec);
    TR_TRY_GOTO(tr_world_agree(world, status), done);
    TR_TRY_GOTO(tr_world_allgather(world, mine, sizeof *mine, to->ranks.data), done);
    to->ranks.count = size;
    if (exposed.count > 0)
        TR_TRY_GOTO(tr_world_allreduce(world, exposed.data, (int)exposed.count, TR_REDUCE_MIN),
                    done);
    for (size_t i = 0; i < exposed.count; i++) to->buckets.data[i].exposed_sec = exposed.data[i];
done:
    tr_vec_free(&exposed);
    return status;
}

static tr_status_t profiler_end(tr_profiler_t *p, int64_t last) {
    const tr_world_info_t *info = tr_world_info(p->params.world);
    const double sec = tr_clock_sec() - p->from_sec, used = (tr_host_cpu_sec() - p->cpu_sec) / sec,
                 waited = (tr_host_cores_wait_sec() - p->cores_wait_sec) / sec;
    tr_rank_profile_t mine = {0};
    p->state = PROFILER_IS_OVER;
    p->profile.last = last;
    tr_device_trace_stop();
    p->spans = tr_trace_stop();
    size_t count = 0; /* without the step before the profile */
    for (size_t i = 0; i < p->spans.count; i++)
        if (p->spans.data[i].step == 0 || p->spans.data[i].step >= p->profile.first)
            p->spans.data[count++] = p->spans.data[i];
    p->spans.count = count;
    TR_TRY(tr_world_clock_offset(p->params.world, &p->clock.after));
    profiler_measure_peak(p);
    if (p->untraced_count > 0) {
        tr_sort(p->untraced, p->untraced_count);
        p->profile.untraced_sec = p->untraced[p->untraced_count / 2];
    }
    const bool has_steps = tr_rank_profile_take(&p->spans, &mine);
    memcpy(mine.host, info->host, sizeof mine.host);
    mine.cores_used = used;
    mine.cores_waited = waited < 0 ? 0 : waited; /* threads that have ended are missing */
    mine.clock_error_sec = tr_trace_clock_error_sec(&p->clock);
    const tr_status_t status = profiler_gather(p, &mine);
    if (status == TR_ERR_RETRY) return status; /* a peer is lost */
    if (status != TR_OK) {
        TR_WARN("the profile is not written, training continues: %s", tr_error_last()->message);
        tr_error_clear();
        return TR_OK;
    }
    if (!has_steps) { /* it had room for none */
        TR_WARN("the profile has no complete step");
        return TR_OK;
    }
    (void)tr_background_post(p->background, profiler_report, p, NULL);
    return TR_OK;
}

tr_status_t tr_profiler_after(tr_profiler_t *p, int64_t step) {
    if (!p || p->state == PROFILER_IS_OVER) return TR_OK;
    p->done = step;
    if (p->state == PROFILER_TRACES) return step == p->profile.last ? profiler_end(p, step) : TR_OK;
    const double now_sec = tr_clock_sec();
    if (p->ended_sec > 0 && step >= p->begin - UNTRACED_STEPS)
        p->untraced[p->untraced_count++] = now_sec - p->ended_sec;
    p->ended_sec = now_sec;
    return TR_OK;
}

tr_status_t tr_profiler_finish(tr_profiler_t *p) {
    if (!p || p->state != PROFILER_TRACES) return TR_OK;
    return profiler_end(p, p->done);
}

void tr_profiler_destroy(tr_profiler_t **destroying, bool in_haste) {
    tr_profiler_t *p = *destroying;
    *destroying = NULL;
    if (!p) return;
    if (p->state == PROFILER_TRACES) {
        tr_device_trace_stop();
        p->spans = tr_trace_stop();
    }
    if (p->background && !tr_background_wait(p->background, in_haste ? 0 : STOP_SEC))
        atomic_store(&p->is_abandoned, true);
    if (!tr_background_stop(&p->background, in_haste ? 1 : STOP_SEC + 1))
        return; /* the thread uses it */
    tr_free(&p->spans.data);
    tr_step_profile_free(&p->profile);
    tr_free(&p);
}
