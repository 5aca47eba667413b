/*
 * trainer doctor [CONFIG.ini] [--json FILE] [key=value ...]: checks whether training can run here.
 */
#include "doctor.h"
#include "base/cores.h"
#include "session/open_device.h"
#include "trainer/log.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *path, *json;
    cmd_words_t settings;
} doctor_options_t;

/* -- findings ---------------------------------------------------------------------------------- */

void doctor_find(doctor_t *d, const char *check, doctor_verdict_t verdict, tr_status_t code,
                 const char *remedy, const char *format, ...) {
    doctor_finding_t finding = {.check = check, .verdict = verdict, .code = code};
    char text[TR_ERROR_MESSAGE_BYTES];
    va_list args;
    if (d->info ? d->info->rank > 0 : tr_launch_rank() > 0) return;
    va_start(args, format);
    tr_vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (tr_strdup(text, &finding.found) != TR_OK ||
        tr_strdup(remedy ? remedy : "", &finding.remedy) != TR_OK)
        return; /* no memory: the checks that follow tell */
    (void)tr_vec_push(&d->findings, finding);
}

void doctor_find_error(doctor_t *d, const char *check) {
    const tr_error_t error = *tr_error_last();
    doctor_find(d, check, DOCTOR_ERROR, error.code, NULL, "%s", error.message);
    tr_error_set(&error);
}

/* The first error; NULL: none. */
static const doctor_finding_t *doctor_first_error(const doctor_t *d) {
    for (size_t i = 0; i < d->findings.count; i++)
        if (d->findings.data[i].verdict == DOCTOR_ERROR) return &d->findings.data[i];
    return NULL;
}

static int doctor_count(const doctor_t *d, doctor_verdict_t verdict) {
    int count = 0;
    for (size_t i = 0; i < d->findings.count; i++) count += d->findings.data[i].verdict == verdict;
    return count;
}

/* -- showing ----------------------------------------------------------------------------------- */

static const char *const verdict_names[] = {"ok", "warning", "error"};

static const tr_table_column_t columns[] = {
    TR_COLUMN(doctor_rank_t, "rank", "rank", INT, rank, .width = 5),
    TR_COLUMN(doctor_rank_t, "host", "node", CHARS, host, .is_left = true, .width = 12),
    TR_COLUMN(doctor_rank_t, "node", NULL, INT, node),
    TR_COLUMN(doctor_rank_t, "cores", "cores", CHARS, cores_text, .is_left = true, .width = 8),
    TR_COLUMN(doctor_rank_t, "numa", "NUMA", CHARS, numa, .is_left = true),
    TR_COLUMN(doctor_rank_t, "threads", "threads", INT, threads),
    TR_COLUMN(doctor_rank_t, "gflops", "GFLOP/s", REAL, flops, .format = "%.1f", .scale = 1e-9,
              .key_scale = 1e-9, .width = 9),
    TR_COLUMN(doctor_rank_t, "gbs", "GB/s", REAL, bytes, .format = "%.1f", .scale = 1e-9,
              .key_scale = 1e-9, .width = 8),
    TR_COLUMN(doctor_rank_t, "device", "device", CHARS, device, .is_left = true),
    TR_COLUMN(doctor_rank_t, "description", "", CHARS, description, .is_left = true),
    TR_COLUMN(doctor_rank_t, "trainer", NULL, CHARS, trainer),
    TR_COLUMN(doctor_rank_t, "mpi", NULL, CHARS, mpi),
    TR_COLUMN(doctor_rank_t, "hdf5", NULL, CHARS, hdf5),
    TR_COLUMN(doctor_rank_t, "onednn", NULL, CHARS, onednn),
};
static const tr_table_t table = TR_TABLE(columns, doctor_rank_t);

static void doctor_print(const doctor_t *d) {
    const int errors = doctor_count(d, DOCTOR_ERROR), warnings = doctor_count(d, DOCTOR_WARNING);
    if (d->ranks) cmd_table_print(&table, d->ranks, (size_t)d->info->size);
    if (d->ranks) printf("\ndevice of rank 0\n");
    for (const char *line = d->ranks ? d->ranks[0].report : ""; *line;) {
        const int name = (int)strcspn(line, "\t"), whole = (int)strcspn(line, "\n");
        printf("  %-10.*s %.*s\n", name, line, whole - name - 1, line + name + 1);
        line += whole + (line[whole] == '\n');
    }
    if (d->ranks) printf("\n");
    doctor_print_self_test(d);
    for (size_t i = 0; i < d->findings.count; i++) {
        const doctor_finding_t *f = &d->findings.data[i];
        printf("%-8s %-10s %s\n", verdict_names[f->verdict], f->check, f->found);
        if (f->remedy[0]) printf("%-8s %-10s %s\n", "", "remedy:", f->remedy);
    }
    printf("\n%d error%s, %d warning%s\n", errors, errors == 1 ? "" : "s", warnings,
           warnings == 1 ? "" : "s");
}

static json_t *doctor_ranks_json(const doctor_t *d) {
    json_t *all = json_array();
    for (int r = 0; d->ranks && r < d->info->size; r++) {
        const doctor_rank_t *rank = &d->ranks[r];
        json_t *report = json_object();
        char name[128], value[512];
        for (const char *line = rank->report; *line;) {
            const int split = (int)strcspn(line, "\t"), whole = (int)strcspn(line, "\n");
            snprintf(name, sizeof name, "%.*s", split, line);
            snprintf(value, sizeof value, "%.*s", whole - split - 1, line + split + 1);
            json_object_set_new(report, name, json_string(value));
            line += whole + (line[whole] == '\n');
        }
        json_t *object = tr_table_object(&table, rank);
        json_object_set_new(object, "report", report);
        json_array_append_new(all, object);
    }
    return all;
}

static tr_status_t doctor_write_json(const doctor_t *d, const char *path) {
    const doctor_finding_t *error = doctor_first_error(d);
    json_t *findings = json_array(), *links = json_array();
    for (size_t i = 0; i < d->findings.count; i++) {
        const doctor_finding_t *f = &d->findings.data[i];
        json_array_append_new(findings, json_pack("{s:s, s:s, s:i, s:s, s:s}", "check", f->check,
                                                  "verdict", verdict_names[f->verdict], "code",
                                                  f->verdict == DOCTOR_ERROR ? (int)f->code : 0,
                                                  "found", f->found, "remedy", f->remedy));
    }
    for (int i = 0; i < d->link_count; i++)
        json_array_append_new(links, json_pack("{s:i, s:i, s:f, s:f}", "from", d->links[i].from,
                                               "to", d->links[i].to, "latency_us",
                                               d->links[i].small_sec * 1e6, "mb_per_sec",
                                               TR_PROBE_LARGE_BYTES / d->links[i].large_sec / 1e6));
    return cmd_json_write(json_pack("{s:s, s:i, s:o, s:o, s:o, s:o}", "kind", "doctor", "code",
                                    error ? (int)error->code : 0, "ranks", doctor_ranks_json(d),
                                    "findings", findings, "links", links, "self_test",
                                    doctor_self_test_json(d)),
                          path);
}

/* -- examining --------------------------------------------------------------------------------- */

static tr_status_t doctor_examine(doctor_t *d, const doctor_options_t *o) {
    const tr_world_info_t *info = d->info;
    const tr_session_params_t params = {
        .purpose = TR_SESSION_PLAN, .rank = info->rank, .size = info->size};
    if (tr_launch_exists())
        doctor_find(d, "launch", DOCTOR_OK, TR_OK, NULL,
                    "%d rank%s on %d node%s, MPI started in %.2f s", info->size,
                    info->size > 1 ? "s" : "", info->nodes, info->nodes > 1 ? "s" : "",
                    info->open_sec);
    else
        doctor_find(d, "launch", DOCTOR_OK, TR_OK, NULL,
                    "1 process, started without a launcher: it does not need MPI");
    if (cmd_config_load_all(d->world, o->path, o->settings, &d->config) != TR_OK) {
        doctor_find_error(d, "config");
        return TR_OK; /* all ranks agree on it */
    }
    tr_config_read(d->config, &tr_parallel_config, &d->parallel);
    tr_config_read(d->config, &tr_run_config, &d->run);
    tr_config_read(d->config, &tr_checkpoint_config, &d->checkpoint);

    /* With CONFIG a session opens the data and plans the memory, as training does. */
    if (d->path &&
        tr_world_agree(d->world, tr_session_create(d->config, d->world, &params, &d->s)) != TR_OK) {
        doctor_find_error(d, "config");
        tr_error_clear();
        tr_session_destroy(&d->s);
    }
    if (d->s) {
        d->device = d->s->device;
        doctor_find(d, "config", DOCTOR_OK, TR_OK, NULL, "%s can be planned on %d rank%s; data: %s",
                    d->path, info->size, info->size > 1 ? "s" : "", d->s->info.description);
    } else {
        if (tr_world_agree(d->world, tr_open_device(d->config, NULL, 0, false, d->world,
                                                    &d->own_device)) != TR_OK) {
            doctor_find_error(d, "device");
            return TR_OK;
        }
        d->device = d->own_device;
    }
    TR_TRY(doctor_gather_ranks(d));
    doctor_check_cores(d);
    doctor_check_gpus(d);
    doctor_check_versions(d);
    doctor_check_speed(d);
    doctor_check_namespaces(d);
    TR_TRY(doctor_check_self_test(d));
    TR_TRY(doctor_check_folder(d));
    return d->has_failed_gpu ? TR_OK : doctor_check_network(d);
}

/* Prints on rank 0. The error of the first finding that is one, the same on all ranks. */
static tr_status_t doctor_conclude(doctor_t *d, const doctor_options_t *o) {
    const doctor_finding_t *error = doctor_first_error(d);
    const int errors = doctor_count(d, DOCTOR_ERROR);
    tr_status_t status = TR_OK;
    if (d->info ? d->info->rank == 0 : tr_launch_rank() == 0) {
        if (!cmd_json_is_stdout(o->json)) doctor_print(d);
        if (o->json) status = doctor_write_json(d, o->json);
        if (status == TR_OK && error)
            status =
                TR_FAIL(error->code, "doctor found %d error%s, %s check '%s'", errors,
                        errors > 1 ? "s" : "", errors > 1 ? "the first in" : "in", error->check);
    }
    return d->world ? tr_world_agree(d->world, status) : status;
}

static void doctor_close(doctor_t *d) {
    for (size_t i = 0; i < d->findings.count; i++) {
        tr_free(&d->findings.data[i].found);
        tr_free(&d->findings.data[i].remedy);
    }
    tr_vec_free(&d->findings);
    tr_self_test_free(&d->self_test);
    tr_free(&d->links);
    tr_free(&d->ranks);
    tr_session_destroy(&d->s);
    tr_device_close(&d->own_device);
    tr_config_destroy(&d->config);
}

static tr_status_t doctor_run(void *options) {
    const doctor_options_t *o = options;
    doctor_t d = {.path = o->path};
    tr_status_t status = doctor_try_temporary();
    if (status != TR_OK) { /* MPI would end this process */
        if (tr_launch_rank() > 0) return status;
        doctor_find_error(&d, "temporary");
        status = doctor_conclude(&d, o);
        doctor_close(&d);
        return status;
    }
    status = cmd_world_open(&d.world);
    if (status != TR_OK) {
        /* MPI cannot connect the tasks: each of them is here alone, and the first one reports. */
        tr_error_t error = *tr_error_last();
        doctor_find_error(&d, "launch");
        error.origin = TR_ORIGIN_PEER;
        status = tr_launch_rank() == 0 ? doctor_conclude(&d, o) : tr_error_set(&error);
        doctor_close(&d);
        return status;
    }
    d.info = tr_world_info(d.world);
    TR_TRY(doctor_examine(&d, o)); /* other ranks may wait in a collective: main ends them */
    status = doctor_conclude(&d, o);
    doctor_close(&d);
    cmd_world_leave(&d.world, status);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"[CONFIG.ini]", offsetof(doctor_options_t, path), CMD_OPTIONAL, NULL},
    {"[key=value ...]", offsetof(doctor_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_JSON(doctor_options_t,
                    "Also writes the results as JSON; - writes only JSON to standard output."),
};

const cmd_command_t cmd_doctor = {
    .name = "doctor",
    .runs = CMD_ON_RANKS,
    .summary = "Checks whether training can run here, and names what is wrong and its remedy.",
    .help =
        "Start it as training is started: alone, with mpirun or with srun. It prints a table of "
        "the ranks (node, cores, NUMA, threads, device, measured rates) and a verdict for each "
        "check: whether MPI connects the ranks; shared or idle cores; versions that differ among "
        "ranks; user namespaces that differ on a node; a folder for temporary files; the run "
        "folder (run.dir): writing, fsync, rename, locks, free space; and the network: a timed "
        "all-reduce and the links between nodes, with the name of a slow node. With CONFIG.ini it "
        "also opens the data on every rank, plans the memory, and compares the free space with the "
        "size of a checkpoint; and with device = cuda it compares each kind of kernel call of the "
        "configuration with the CPU. Nothing is trained, and no files are left behind.\n"
        "The exit code is 0 without errors (warnings are allowed), else that of the first error: "
        "78 for the launch or the configuration, 74 for the disk, 77 where it may not be written.",
    CMD_ARGUMENTS(doctor_options_t),
    CMD_OPTIONS,
    .run = doctor_run,
};
