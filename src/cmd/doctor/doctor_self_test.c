/* The self-test of the ranks' GPUs: the table that device = auto decides by. */
#include "doctor.h"
#include "base/json_text.h"

#include <stdio.h>
#include <string.h>

/* Calls of one kernel and type, with the one that differs most for its tolerance. */
typedef struct {
    const tr_comparison_t *worst;
    int calls;
} group_t;

/* The group of row i; false: an earlier row has shown it. */
static bool group_at(const tr_comparisons_t *rows, size_t i, group_t *out) {
    const tr_comparison_t *first = &rows->data[i];
    *out = (group_t){.worst = first};
    for (size_t k = 0; k < rows->count; k++) {
        const tr_comparison_t *row = &rows->data[k];
        if (row->kernel != first->kernel || row->dtype != first->dtype) continue;
        if (k < i) return false;
        out->calls++;
        if (tr_comparison_is_worse(row, out->worst)) out->worst = row;
    }
    return true;
}

static const char *comparison_verdict(const tr_comparison_t *row) {
    if (row->skipped) return row->skipped;
    return tr_comparison_failed(row) ? "differs" : "agrees";
}

void doctor_print_self_test(const doctor_t *d) {
    const tr_comparisons_t *rows = &d->self_test.rows;
    group_t group;
    if (rows->count == 0) return;
    printf("self-test of rank 0, against the CPU; differences as shares of the largest value\n"
           "  %-24s %-5s %5s %11s %9s  %s\n",
           "kernel", "type", "calls", "difference", "allowed", "");
    for (size_t i = 0; i < rows->count; i++) {
        if (!group_at(rows, i, &group)) continue;
        printf("  %-24s %-5s %5d %11.2g %9.2g  %s\n", tr_kernel_name(group.worst->kernel),
               tr_dtype_name(group.worst->dtype), group.calls, group.worst->difference,
               group.worst->tolerance, comparison_verdict(group.worst));
    }
    printf("\n");
}

json_t *doctor_self_test_json(const doctor_t *d) {
    const tr_comparisons_t *rows = &d->self_test.rows;
    json_t *all = json_array();
    for (size_t i = 0; i < rows->count; i++) {
        const tr_comparison_t *row = &rows->data[i];
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s, s:o, s:f, s:s}", "kernel",
                                             tr_kernel_name(row->kernel), "type",
                                             tr_dtype_name(row->dtype), "op", row->label, "shapes",
                                             row->shapes, "difference",
                                             tr_json_finite(row->difference), "allowed",
                                             row->tolerance, "verdict", comparison_verdict(row)));
    }
    return all;
}

tr_status_t doctor_check_self_test(doctor_t *d) {
    if (!d->s || strcmp(d->device->ops->name, "cuda") != 0) return TR_OK;
    const tr_status_t status =
        tr_world_agree(d->world, tr_self_test_run(d->s, d->device, true, &d->self_test));
    const tr_comparison_t *worst = tr_self_test_worst(&d->self_test);
    if (status != TR_OK) {
        doctor_find_error(d, "self-test");
        tr_error_clear();
        d->has_failed_gpu = true;
    } else if (worst) {
        doctor_find(d, "self-test", DOCTOR_OK, TR_OK, NULL,
                    "%zu kinds of kernel calls agree with the CPU on every rank, %zu were not "
                    "compared, %.1f s; the largest difference for its tolerance on rank 0: %s %s, "
                    "%.2g of %.2g",
                    tr_self_test_compared(&d->self_test),
                    d->self_test.rows.count - tr_self_test_compared(&d->self_test),
                    d->self_test.sec, tr_kernel_name(worst->kernel), tr_dtype_name(worst->dtype),
                    worst->difference, worst->tolerance);
    }
    return TR_OK;
}
