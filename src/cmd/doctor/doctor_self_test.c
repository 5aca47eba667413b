/* The self-test of the ranks' GPUs: the table that device = auto decides by. */
#include "doctor.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* A kind of calls. In the text: all those of a kernel and type, as the one that differs most for its
 * tolerance. */
typedef struct {
    const char *kernel, *type, *op, *shapes, *verdict;
    int calls;
    double difference, allowed;
} self_test_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(self_test_row_t, "kernel", "kernel", STRING, kernel, .is_left = true, .width = 23),
    TR_COLUMN(self_test_row_t, "type", "type", STRING, type, .is_left = true, .width = 4),
    TR_COLUMN(self_test_row_t, "op", NULL, STRING, op),
    TR_COLUMN(self_test_row_t, "shapes", NULL, STRING, shapes),
    TR_COLUMN(self_test_row_t, NULL, "calls", INT, calls),
    TR_COLUMN(self_test_row_t, "difference", "difference", REAL, difference, .format = "%.2g",
              .missing = "nan"),
    TR_COLUMN(self_test_row_t, "allowed", "allowed", REAL, allowed, .format = "%.2g", .width = 8),
    TR_COLUMN(self_test_row_t, "verdict", "", STRING, verdict, .is_left = true),
};
static const tr_table_t table = TR_TABLE(columns, self_test_row_t, .indent = 2);

static self_test_row_t self_test_row(const tr_comparison_t *c) {
    return (self_test_row_t){.kernel = tr_kernel_name(c->kernel),
                             .type = tr_dtype_name(c->dtype),
                             .op = c->label,
                             .shapes = c->shapes,
                             .verdict = c->skipped                ? c->skipped
                                        : tr_comparison_failed(c) ? "differs"
                                                                  : "agrees",
                             .difference = c->difference,
                             .allowed = c->tolerance};
}

/* The row of all calls of row i's kernel and type; false: an earlier row has shown it. */
static bool self_test_group(const tr_comparisons_t *all, size_t i, self_test_row_t *out) {
    const tr_comparison_t *first = &all->data[i], *worst = first;
    int calls = 0;
    for (size_t k = 0; k < all->count; k++) {
        const tr_comparison_t *call = &all->data[k];
        if (call->kernel != first->kernel || call->dtype != first->dtype) continue;
        if (k < i) return false;
        calls++;
        if (tr_comparison_is_worse(call, worst)) worst = call;
    }
    *out = self_test_row(worst);
    out->calls = calls;
    return true;
}

void doctor_print_self_test(const doctor_t *d) {
    const tr_comparisons_t *all = &d->self_test.rows;
    self_test_row_t *rows = NULL;
    size_t count = 0;
    if (all->count == 0 || tr_alloc(all->count * sizeof *rows, "self-test", &rows) != TR_OK) return;
    for (size_t i = 0; i < all->count; i++) count += self_test_group(all, i, &rows[count]);
    printf("self-test of rank 0, against the CPU; differences as shares of the largest value\n");
    cmd_table_print(&table, rows, count);
    printf("\n");
    tr_free(&rows);
}

json_t *doctor_self_test_json(const doctor_t *d) {
    json_t *list = json_array();
    for (size_t i = 0; i < d->self_test.rows.count; i++) {
        const self_test_row_t row = self_test_row(&d->self_test.rows.data[i]);
        json_array_append_new(list, tr_table_object(&table, &row));
    }
    return list;
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
