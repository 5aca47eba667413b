/* make_epochs CHECKPOINT <STEPS
 *
 * STEPS: a number on each line, of every step that was trained, from 1. Counts how often these
 * steps used each sample in each epoch, by the order of samples that the checkpoint has recorded.
 * Prints, with tabs between them: the epochs that are whole, their samples that were not used
 * exactly once, the samples of the last epoch that were used more than once. Fails if there are any
 * of either.
 */
#include "base/mem.h"
#include "data/sampler.h"
#include "weights/state.h"
#include <stdio.h>
#include <stdlib.h>

typedef TR_VEC(int64_t) counts_t;

static void check(tr_status_t status) {
    if (status == TR_OK) return;
    fprintf(stderr, "make_epochs: %s\n", tr_error_last()->message);
    exit(2);
}

/* uses: [epoch * samples + sample] */
static void count_step(const tr_sampler_t *order, int64_t step, counts_t *uses) {
    const int64_t micro = order->micro_batch, first = (step - 1) * micro;
    int64_t *ids = NULL, unused;
    check(tr_alloc((size_t)micro * sizeof *ids, "samples", &ids));
    for (int64_t slot = 0; slot < tr_sampler_slots(order); slot++) {
        check(tr_sampler_samples(order, slot, first, micro, ids));
        for (int64_t i = 0; i < micro; i++) {
            const int64_t epoch = tr_sampler_epoch(order, slot, first + i, &unused, &unused);
            while (uses->count < (size_t)((epoch + 1) * order->samples))
                check(tr_vec_push(uses, (int64_t)0));
            uses->data[epoch * order->samples + ids[i]]++;
        }
    }
    tr_free(&ids);
}

int main(int argc, char **argv) {
    tr_checkpoint_t *c = NULL;
    tr_sampler_t order;
    counts_t uses = {0};
    long step, last = 0, wrong = 0, repeated = 0;
    if (argc != 2) return 2;
    check(tr_checkpoint_open(argv[1], &c));
    tr_state_order(c->state, &order);
    while (scanf("%ld", &step) == 1) {
        count_step(&order, step, &uses);
        if (step > last) last = step;
    }
    const int64_t epochs = last * order.batch_size / order.samples;
    for (int64_t i = 0; i < (int64_t)uses.count; i++) {
        const bool is_whole = i < epochs * order.samples;
        wrong += is_whole && uses.data[i] != 1;
        repeated += !is_whole && uses.data[i] > 1;
    }
    printf("%ld\t%ld\t%ld\n", (long)epochs, wrong, repeated);
    tr_vec_free(&uses);
    tr_checkpoint_close(&c);
    return last == 0 || wrong + repeated > 0;
}
