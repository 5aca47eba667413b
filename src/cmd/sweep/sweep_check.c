/* Plans the members of a sweep before the first of them runs. */
#include "sweep.h"

#include "base/file.h"
#include "base/host.h"
#include "cmd/plan/plan.h"
#include "device/device.h"
#include "session/settings.h"
#include "trainer/log.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the members need. Bytes. */
typedef struct {
    double memory;      /* the most of any; 0: on a GPU, where its own plan checks it */
    double checkpoints; /* of all, kept */
    double largest;     /* one checkpoint, while it is written */
    int members;
    bool uses_gpu;
} sweep_needs_t;

/* jobs 0: the member will run elsewhere, where there may be more memory and a GPU. */
static tr_status_t check_member(const sweep_t *sweep, const sweep_member_t *member, int jobs,
                                sweep_needs_t *needs) {
    tr_checkpoint_settings_t checkpoint;
    tr_config_t *config = NULL;
    tr_session_t *s = NULL;
    tr_status_t status;
    TR_TRY_GOTO(sweep_configure(sweep, member, &config), done);
    const char *device = tr_config_get(config, "device");
    const tr_backend_t *backend;
    if (strcmp(device, "auto") != 0) TR_TRY_GOTO(tr_backend_find(device, &backend), done);
    if (jobs == 0) TR_TRY_GOTO(tr_config_set(config, "device=cpu", "sweep --prepare"), done);
    TR_TRY_GOTO(plan_session(config, 1, jobs == 0, &s), done);
    tr_config_read(config, &tr_checkpoint_config, &checkpoint);
    const tr_memory_plan_t m = tr_graph_memory(s->g);
    const double bytes = (double)(m.params + m.optim_state + m.model_state),
                 kept = (double)checkpoint.keep + (checkpoint.best ? 1 : 0);
    needs->uses_gpu |= !s->device->host_visible;
    if (s->device->host_visible && (double)m.total > needs->memory) needs->memory = (double)m.total;
    if (bytes > needs->largest) needs->largest = bytes;
    needs->checkpoints += kept * bytes;
    needs->members++;
done:
    tr_session_destroy(&s);
    tr_config_destroy(&config);
    return status;
}

static tr_status_t check_gpus(int jobs) {
    const tr_backend_t *backend = NULL;
    int count = 0;
    TR_TRY(tr_backend_find("cuda", &backend));
    if (backend->count) TR_TRY(backend->count(&count));
    if (jobs <= count) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "--jobs %d: each member takes a GPU, and this process sees %d",
                   jobs, count);
}

static tr_status_t check_room(const sweep_t *sweep, int jobs, const sweep_needs_t *needs) {
    const double memory = (double)tr_host_memory_bytes(), disk = (double)tr_free_bytes(sweep->out),
                 wanted = needs->checkpoints + jobs * needs->largest;
    char text[2][32];
    if (memory > 0 && jobs * needs->memory > memory)
        return TR_FAIL(
            TR_ERR_MEMORY,
            "--jobs %d: the members need up to %s each, and this process may use %s: %s", jobs,
            tr_format_bytes(needs->memory, text[0]), tr_format_bytes(memory, text[1]),
            jobs > 1 ? "run fewer at a time" : "`trainer plan` shows what takes the memory");
    if (wanted > disk)
        return TR_FAIL(TR_ERR_IO,
                       "%s: the checkpoints of %d members need %s, and the disk has %s: choose "
                       "another --out, or set checkpoint.best = no",
                       sweep->out, needs->members, tr_format_bytes(wanted, text[0]),
                       tr_format_bytes(disk, text[1]));
    return TR_OK;
}

static const char *member_setting(const sweep_t *sweep, const sweep_member_t *member,
                                  const char *key) {
    const json_t *value = json_object_get(member->settings, key);
    return value ? json_string_value(value) : tr_config_get(sweep->base, key);
}

/* Whether all keys are the same that say which samples are read. */
static bool members_share_data(const sweep_t *sweep, const sweep_member_t *a,
                               const sweep_member_t *b) {
    static const char *const begins[] = {"data.",      "model.context", "model.vocab_size",
                                         "model.type", "model.init",    "train.valid_samples"};
    const char *key;
    for (size_t i = 0; (key = tr_config_key(sweep->base, i)); i++)
        for (size_t k = 0; k < TR_COUNT(begins); k++)
            if (strncmp(key, begins[k], strlen(begins[k])) == 0 &&
                strcmp(member_setting(sweep, a, key), member_setting(sweep, b, key)) != 0)
                return false;
    return true;
}

/* The checksums of the data now, to data[]. Results of other data do not compare. */
static tr_status_t check_data(const sweep_t *sweep, uint64_t *data) {
    for (size_t i = 0, k; i < sweep->members.count; i++) {
        const sweep_member_t *member = &sweep->members.data[i];
        tr_config_t *config = NULL;
        for (k = 0; k < i && !members_share_data(sweep, member, &sweep->members.data[k]); k++) {
        }
        data[i] = data[k];
        if (k == i) {
            TR_TRY(sweep_configure(sweep, member, &config));
            data[i] = tr_config_data_checksum(config);
            tr_config_destroy(&config);
        }
        if (member->has_results && member->data && data[i] && member->data != data[i])
            return TR_FAIL(
                TR_ERR_CONFIG,
                "member %03d of %s was trained with other data: the contents of the data "
                "files have changed since. Restore them, or choose another --out",
                member->number, sweep->out);
    }
    return TR_OK;
}

static tr_status_t check_all(const sweep_t *sweep, int jobs, bool *out_uses_gpu) {
    sweep_needs_t needs = {.members = 0};
    for (size_t i = 0; i < sweep->members.count; i++) {
        const sweep_member_t *member = &sweep->members.data[i];
        tr_str_t name = {0};
        if (member->is_done) continue;
        const tr_status_t status = check_member(sweep, member, jobs, &needs);
        if (status == TR_OK) continue;
        const tr_error_t error = *tr_error_last();
        sweep_describe(sweep, member, &name);
        TR_FAIL(status, "member %03d, %s: %s", member->number, name.text ? name.text : "",
                error.message);
        tr_str_free(&name);
        return status;
    }
    *out_uses_gpu = needs.uses_gpu;
    if (needs.uses_gpu) TR_TRY(check_gpus(jobs));
    return check_room(sweep, jobs, &needs);
}

/* In a process of its own: a context on a GPU would stay, and may exclude the members. */
tr_status_t sweep_check(sweep_t *sweep, int jobs, bool *out_uses_gpu) {
    struct {
        bool uses_gpu;
        uint64_t data[SWEEP_MAX_MEMBERS];
    } *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int state = 0;
    fflush(NULL);
    const pid_t pid = found == MAP_FAILED ? -1 : fork();
    if (pid < 0) return TR_FAIL(TR_ERR_IO, "sweep: cannot start a process: %s", strerror(errno));
    if (pid == 0) {
        tr_str_t said = {0};
        tr_log_set_level(TR_LOG_WARN);
        tr_log_set_sink(plan_say_once, &said);
        tr_status_t status = check_data(sweep, found->data);
        if (status == TR_OK) status = check_all(sweep, jobs, &found->uses_gpu);
        if (status != TR_OK) cmd_say_error(status);
        _exit((int)status);
    }
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
    }
    *out_uses_gpu = found->uses_gpu;
    for (size_t i = 0; i < sweep->members.count; i++)
        if (found->data[i]) sweep->members.data[i].data = found->data[i];
    munmap(found, sizeof *found);
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return TR_OK;
    if (!WIFEXITED(state))
        return TR_FAIL(TR_ERR_INTERNAL, "sweep: the process that plans was ended by signal %d",
                       WTERMSIG(state));
    const tr_error_t said = {.code = (tr_status_t)WEXITSTATUS(state), .origin = TR_ORIGIN_LOGGED};
    return tr_error_set(&said);
}
