/* matmul and linear: products, bias, fused activations, transpositions and batches, at odd sizes.
 */
#include "../../support/op_harness.h"
#include <math.h>

/* -- linear ------------------------------------------------------------------------------------ */

static tr_status_t build_linear(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                tr_tensor_t *out) {
    return tr_linear(g, in[0], in[1], c->n_in > 2 ? in[2] : TR_NONE, *(const tr_act_t *)c->attr,
                     out);
}

static void linear(const op_case_t *c, const double *const *in, double *y) {
    const tr_shape_t *w = &c->in[1].shape;
    int64_t outputs = w->dim[0], inputs = w->dim[1], rows = tr_shape_elems(&c->out) / outputs;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < outputs; k++) {
            double sum = c->n_in > 2 ? in[2][k] : 0;
            for (int64_t f = 0; f < inputs; f++)
                sum += in[0][r * inputs + f] * in[1][k * inputs + f];
            y[r * outputs + k] = op_act(*(const tr_act_t *)c->attr, sum);
        }
}

static void check_linear(tr_shape_t x, tr_shape_t y, bool bias, tr_act_t act) {
    int64_t inputs = x.dim[x.ndim - 1], outputs = y.dim[y.ndim - 1];
    op_case_t c = {
        "linear",
        bias ? 3 : 2,
        {{"x", x, .half = true}, {"w", TR_SHAPE(outputs, inputs)}, {"b", TR_SHAPE(outputs)}}};
    c.attr = &act;
    c.out = y;
    c.build = build_linear;
    c.reference = linear;
    c.rounds_inside = act > TR_ACT_RELU;
    c.adds_inside = true;
    op_check(&c);
}

static void linear_with_each_activation(void **state) {
    for (tr_act_t act = TR_ACT_NONE; act < TR_ACT_COUNT; act++)
        check_linear(TR_SHAPE(7, 13), TR_SHAPE(7, 5), true, act);
}

static void linear_without_bias(void **state) {
    check_linear(TR_SHAPE(3, 17), TR_SHAPE(3, 9), false, TR_ACT_NONE);
    check_linear(TR_SHAPE(6, 6), TR_SHAPE(6, 6), false, TR_ACT_NONE);
    check_linear(TR_SHAPE(3, 17), TR_SHAPE(3, 9), false, TR_ACT_RELU);
}

static void linear_of_one(void **state) {
    check_linear(TR_SHAPE(1, 1), TR_SHAPE(1, 1), true, TR_ACT_NONE);
    check_linear(TR_SHAPE(1, 31), TR_SHAPE(1, 2), true, TR_ACT_TANH);
    check_linear(TR_SHAPE(19, 1), TR_SHAPE(19, 3), true, TR_ACT_SIGMOID);
}

static void linear_on_sequences(void **state) {
    check_linear(TR_SHAPE(2, 5, 7), TR_SHAPE(2, 5, 3), true, TR_ACT_GELU);
    check_linear(TR_SHAPE(2, 3, 2, 5), TR_SHAPE(2, 3, 2, 4), true, TR_ACT_RELU);
}

/* In eval programs GELU is fused too. */
static void linear_gelu_in_eval(void **state) {
    static const tr_act_t gelu = TR_ACT_GELU;
    op_case_t c = {
        "linear eval",
        3,
        {{"x", TR_SHAPE(6, 11), .half = true}, {"w", TR_SHAPE(4, 11)}, {"b", TR_SHAPE(4)}},
        &gelu};
    c.mode = TR_EVAL;
    c.out = TR_SHAPE(6, 4);
    c.build = build_linear;
    c.reference = linear;
    c.adds_inside = true;
    op_check(&c);
}

/* -- matmul ------------------------------------------------------------------------------------ */

static tr_status_t build_matmul(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                                tr_tensor_t *out) {
    return tr_matmul(g, in[0], in[1], c->attr, out);
}

static double at(const double *matrix, int64_t rows, int64_t columns, bool transposed, int64_t i,
                 int64_t k) {
    return transposed ? matrix[k * rows + i] : matrix[i * columns + k];
}

static void matmul(const op_case_t *c, const double *const *in, double *y) {
    const tr_matmul_attr_t *attr = c->attr;
    const tr_shape_t *a = &c->in[0].shape, *b = &c->in[1].shape;
    int64_t m = c->out.dim[c->out.ndim - 2], n = c->out.dim[c->out.ndim - 1];
    int64_t k = attr->trans_a ? a->dim[a->ndim - 2] : a->dim[a->ndim - 1];
    int64_t batch = tr_shape_elems(a) / (m * k),
            b_step = b->ndim == a->ndim && b->ndim > 2 ? k * n : 0;
    for (int64_t z = 0; z < batch; z++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += at(in[0] + z * m * k, m, k, attr->trans_a, i, l) *
                           at(in[1] + z * b_step, k, n, attr->trans_b, l, j);
                y[(z * m + i) * n + j] =
                    op_act(attr->act, (attr->alpha == 0 ? 1 : attr->alpha) * sum);
            }
}

static tr_shape_t matrix(tr_shape_t lead, int64_t rows, int64_t columns, bool transposed) {
    lead.dim[lead.ndim++] = transposed ? columns : rows;
    lead.dim[lead.ndim++] = transposed ? rows : columns;
    return lead;
}

static void check_matmul(tr_shape_t lead, bool shared_b, tr_matmul_attr_t attr) {
    const int64_t m = 5, n = 7, k = 3;
    tr_shape_t none = {0};
    op_case_t c = {"matmul",
                   2,
                   {{"a", matrix(lead, m, k, attr.trans_a), .half = true},
                    {"b", matrix(shared_b ? none : lead, k, n, attr.trans_b), .half = true}}};
    c.attr = &attr;
    c.out = matrix(lead, m, n, false);
    c.build = build_matmul;
    c.reference = matmul;
    c.adds_inside = true;
    op_check(&c);
}

static void matmul_in_all_transpositions(void **state) {
    for (int t = 0; t < 4; t++)
        check_matmul((tr_shape_t){0}, false,
                     (tr_matmul_attr_t){.trans_a = t & 1, .trans_b = t & 2, .alpha = 0.5f});
}

static void matmul_in_batches(void **state) {
    for (int t = 0; t < 4; t++)
        check_matmul(TR_SHAPE(2, 3), false,
                     (tr_matmul_attr_t){.trans_a = t & 1, .trans_b = t & 2, .alpha = 1});
}

static void matmul_of_a_batch_with_one_matrix(void **state) {
    check_matmul(TR_SHAPE(4), true, (tr_matmul_attr_t){.alpha = 2});
    check_matmul(TR_SHAPE(4), true, (tr_matmul_attr_t){.trans_b = true}); /* alpha 0 is 1 */
}

static void matmul_with_activation(void **state) {
    check_matmul((tr_shape_t){0}, false, (tr_matmul_attr_t){.alpha = -1, .act = TR_ACT_SIGMOID});
    check_matmul(TR_SHAPE(2), false, (tr_matmul_attr_t){.alpha = 1, .act = TR_ACT_GELU});
}

/* -- one weight, two uses ---------------------------------------------------------------------- */

static tr_status_t build_twice(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                               tr_tensor_t *out) {
    tr_tensor_t hidden;
    TR_TRY(tr_linear(g, in[0], in[1], TR_NONE, TR_ACT_TANH, &hidden));
    return tr_linear(g, hidden, in[1], TR_NONE, TR_ACT_NONE, out);
}

static void twice(const op_case_t *c, const double *const *in, double *y) {
    double hidden[3 * 4];
    for (int layer = 0; layer < 2; layer++)
        for (int r = 0; r < 3; r++)
            for (int k = 0; k < 4; k++) {
                double sum = 0;
                for (int f = 0; f < 4; f++)
                    sum += (layer ? hidden : in[0])[r * 4 + f] * in[1][k * 4 + f];
                if (layer)
                    y[r * 4 + k] = sum;
                else
                    hidden[r * 4 + k] = tanh(sum);
            }
}

static void a_shared_weight_gets_both_gradients(void **state) {
    op_case_t c = {
        "shared weight", 2, {{"x", TR_SHAPE(3, 4), .half = true}, {"w", TR_SHAPE(4, 4)}}};
    c.out = TR_SHAPE(3, 4);
    c.build = build_twice;
    c.reference = twice;
    c.rounds_inside = true;
    c.adds_inside = true;
    op_check(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_with_each_activation),
        cmocka_unit_test(linear_without_bias),
        cmocka_unit_test(linear_of_one),
        cmocka_unit_test(linear_on_sequences),
        cmocka_unit_test(linear_gelu_in_eval),
        cmocka_unit_test(matmul_in_all_transpositions),
        cmocka_unit_test(matmul_in_batches),
        cmocka_unit_test(matmul_of_a_batch_with_one_matrix),
        cmocka_unit_test(matmul_with_activation),
        cmocka_unit_test(a_shared_weight_gets_both_gradients),
    };
    return cmocka_run_group_tests_name("ops: matmul", tests, NULL, NULL);
}
