/*
 * The windows of tokens that a run on one rank trains on, in its order.
 *
 *   windows CONTEXT SEED COUNT data.train=FILE [data.valid=FILE] [key=value ...] >FILE
 *
 * Writes for each of the COUNT windows, and then for each window of data.valid in the order of the
 * file, the inputs and the labels: 2 x CONTEXT numbers of 32 bits.
 */
#include "config/config.h"
#include "data/sampler.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        if ((expr) != TR_OK) {                                                                     \
            fprintf(stderr, "windows: %s\n", tr_error_last()->message);                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void read_settings(int argc, char **argv, tr_config_t **config, tr_data_settings_t *out) {
    static const tr_config_table_t *const tables[] = {&tr_data_config};
    MUST(tr_config_create(tables, 1, config));
    for (int i = 0; i < argc; i++) MUST(tr_config_set(*config, argv[i], "argument"));
    MUST(tr_config_check(*config));
    tr_config_read(*config, &tr_data_config, out);
    if (out->micro_batch < 0) out->micro_batch = out->batch_size;
}

/* The samples id[count]; NULL: 0, 1, 2, ... */
static void write_windows(tr_dataset_t *dataset, const int64_t *id, int64_t count) {
    const size_t tokens = (size_t)dataset->info.field[0].shape.dim[0];
    int32_t *window = NULL;
    MUST(tr_alloc(2 * tokens * sizeof *window, "a window", &window));
    for (int64_t i = 0; i < count; i++) {
        MUST(dataset->ops->read(dataset, id ? id[i] : i, 1, (void *[]){window, window + tokens}));
        if (fwrite(window, sizeof *window, 2 * tokens, stdout) != 2 * tokens) exit(1);
    }
    tr_free(&window);
}

static void write_train(const tr_data_settings_t *settings, uint64_t seed, int64_t count) {
    tr_dataset_t *dataset = NULL;
    tr_sampler_t order;
    int64_t *id = NULL;
    MUST(tr_dataset_open(settings, TR_SPLIT_TRAIN, &dataset));
    MUST(tr_sampler_init(settings, &dataset->info, seed, settings->batch_size,
                         settings->micro_batch, &order));
    MUST(tr_alloc((size_t)count * sizeof *id, "the order", &id));
    MUST(tr_sampler_samples(&order, 0, 0, count, id));
    write_windows(dataset, id, count);
    tr_free(&id);
    tr_dataset_close(&dataset);
}

int main(int argc, char **argv) {
    tr_data_settings_t settings;
    tr_config_t *config = NULL;
    tr_dataset_t *valid = NULL;
    if (argc < 5) {
        fprintf(stderr, "usage: windows CONTEXT SEED COUNT data.train=FILE [key=value ...]\n");
        return 2;
    }
    read_settings(argc - 4, argv + 4, &config, &settings);
    settings.context = atoll(argv[1]);
    write_train(&settings, strtoull(argv[2], NULL, 10), atoll(argv[3]));
    MUST(tr_dataset_open(&settings, TR_SPLIT_VALID, &valid));
    if (valid) write_windows(valid, NULL, valid->info.samples);
    tr_dataset_close(&valid);
    tr_config_destroy(&config);
    return 0;
}
