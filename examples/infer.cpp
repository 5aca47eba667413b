/*
 * Predicts with a trained run from C++.
 *
 *     c++ -std=c++17 infer.cpp $(pkg-config --cflags --libs trainer) -o infer
 *     ./infer RUN <samples
 *
 * RUN is a run folder of `trainer`. `samples` are input samples, dense, of the type and shape of the
 * training data. The program prints one line per sample: the probability of each class, or the
 * targets.
 */
#include <trainer.h>

#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

/* Errors of the library as exceptions, with the exit code. */
struct failure : std::runtime_error {
    tr_status_t code;
    explicit failure(tr_status_t status)
        : std::runtime_error(tr_error_last()->message), code(status) {}
};
static void check(tr_status_t status) {
    if (status != TR_OK) throw failure(status);
}

/* Closed in the reverse order, also after an error. */
struct session {
    tr_world_t *world = nullptr;
    tr_config_t *config = nullptr;
    tr_predictor_t *predictor = nullptr;

    explicit session(const std::string &run) {
        try {
            open(run);
        } catch (...) {
            close();
            throw;
        }
    }
    session(const session &) = delete;
    session &operator=(const session &) = delete;
    ~session() { close(); }

  private:
    void open(const std::string &run) {
        const tr_config_table_t *const *tables;
        size_t count;
        check(tr_world_open(nullptr, &world));
        check(tr_all_tables(&tables, &count));
        check(tr_config_create(tables, count, &config));
        check(tr_config_load_file(config, (run + "/config.ini").c_str()));
        check(tr_config_check(config));
        check(tr_predictor_open(config, world, run.c_str(), &predictor));
    }
    void close() {
        if (predictor) tr_predictor_close(&predictor);
        if (config) tr_config_destroy(&config);
        if (world) tr_world_close(&world);
    }
};

static void predict(const std::string &run) {
    session s(run);
    const tr_predictor_info_t *info = tr_predictor_info(s.predictor);
    std::vector<char> sample(static_cast<size_t>(info->sample_bytes));
    std::vector<float> out(static_cast<size_t>(info->outputs));
    while (std::fread(sample.data(), 1, sample.size(), stdin) == sample.size()) {
        check(tr_predictor_run(s.predictor, sample.data(), 1, out.data()));
        for (float value : out) std::printf("%g ", value);
        std::printf("\n");
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: infer RUN <samples\n";
        return TR_ERR_USAGE;
    }
    try {
        tr_log_set_level(TR_LOG_WARN);
        predict(argv[1]);
    } catch (const failure &error) {
        std::cerr << "infer: " << error.what() << "\n";
        return error.code;
    }
    return 0;
}
