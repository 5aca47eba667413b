/*
 * The loader against the same bytes by pread.
 *
 *   loader make FILE.h5 MIB CHUNK_BYTES     images of 64 x 64 x 3 bytes with labels, MIB of them;
 *   CHUNK_BYTES 0: contiguous
 *   loader time FILE.h5 [cold] [key=value ...]
 *
 * `time` alternates between one epoch through the loader, shuffled, whose batches nobody looks at,
 * and the file's bytes by pread in requests of 1 MiB
 * by as many threads: into one buffer of 1 MiB each, which stays in the cache, and around in as
 * much memory as the loader has, which does not.
 * An epoch is the second, as all but one are: the first has touched the loader's memory. `cold`
 * drops the file from the page cache before each and
 * takes the first, with opening the file. The best of the rounds: "loader SEC pread SEC memory SEC
 * bytes N threads N".
 */
#include "device/device.h"
#include "base/clock.h"
#include "config/config.h"
#include "data/loader.h"
#include "base/mem.h"

#include <fcntl.h>
#include <hdf5.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROUNDS      4
#define PIECE_BYTES (1 << 20)
#define HUGE_PAGE   (2 << 20)
#define IMAGE_BYTES (64 * 64 * 3)
#define MAX_THREADS 64

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        if ((expr) != TR_OK) {                                                                     \
            fprintf(stderr, "loader: %s\n", tr_error_last()->message);                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void refuse(const char *what) {
    fprintf(stderr, "loader: %s failed\n", what);
    exit(1);
}

/* -- make -------------------------------------------------------------------------------------- */

static void write_images(hid_t group, hsize_t samples, hsize_t chunk_rows) {
    const hsize_t size[4] = {samples, 64, 64, 3}, chunk[4] = {chunk_rows, 64, 64, 3},
                  count[4] = {1, 64, 64, 3};
    hid_t space = H5Screate_simple(4, size, NULL), row = H5Screate_simple(4, count, NULL),
          list = H5Pcreate(H5P_DATASET_CREATE);
    unsigned char *image = malloc(IMAGE_BYTES);
    if (chunk_rows) H5Pset_chunk(list, 4, chunk);
    hid_t x = H5Dcreate2(group, "x", H5T_NATIVE_UCHAR, space, H5P_DEFAULT, list, H5P_DEFAULT);
    for (hsize_t i = 0; i < samples; i++) {
        const hsize_t start[4] = {i, 0, 0, 0};
        for (size_t k = 0; k < IMAGE_BYTES; k++) image[k] = (unsigned char)(i * 31 + k * (k + 7));
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        if (H5Dwrite(x, H5T_NATIVE_UCHAR, row, space, H5P_DEFAULT, image) < 0)
            refuse("writing images");
    }
    free(image);
    H5Dclose(x);
    H5Pclose(list);
    H5Sclose(row);
    H5Sclose(space);
}

static void write_labels(hid_t group, hsize_t samples) {
    hid_t space = H5Screate_simple(1, &samples, NULL);
    hid_t y = H5Dcreate2(group, "y", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    int *label = malloc(samples * sizeof *label);
    for (hsize_t i = 0; i < samples; i++) label[i] = (int)(i % 10);
    if (H5Dwrite(y, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, label) < 0)
        refuse("writing labels");
    free(label);
    H5Dclose(y);
    H5Sclose(space);
}

static int make(const char *path, double mib, hsize_t chunk_bytes) {
    const hsize_t samples = (hsize_t)(mib * 1048576 / IMAGE_BYTES);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (file < 0) refuse("making the file");
    hid_t group = H5Gcreate2(file, "train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    write_images(group, samples, chunk_bytes / IMAGE_BYTES);
    write_labels(group, samples);
    H5Gclose(group);
    return H5Fclose(file) < 0;
}

/* -- time -------------------------------------------------------------------------------------- */

typedef struct {
    const char *path;
    int threads;
    bool cold;
    int64_t file_bytes;
    _Atomic int64_t next;
    size_t loader_bytes; /* what the loader had allocated */
    size_t room;         /* of a thread, for what it reads by pread */
    char *memory;        /* [threads][room] */
    _Atomic int readers;
    tr_data_settings_t data;
    tr_device_t *device;
} bench_t;

static void drop_from_cache(const char *path) {
    const int fd = open(path, O_RDONLY);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static void *read_pieces(void *self) {
    bench_t *b = self;
    const int fd = open(b->path, O_RDONLY);
    char *room = b->memory + (size_t)atomic_fetch_add(&b->readers, 1) * b->room;
    for (size_t to = 0;; to = to + 2 * PIECE_BYTES <= b->room ? to + PIECE_BYTES : 0) {
        const int64_t at = atomic_fetch_add(&b->next, PIECE_BYTES);
        if (at >= b->file_bytes) break;
        if (pread(fd, room + to, PIECE_BYTES, at) <= 0) refuse("pread");
    }
    close(fd);
    return NULL;
}

/* The file into `room` bytes a thread, which are there before the clock starts. */
static double time_pread(bench_t *b, size_t room) {
    pthread_t thread[MAX_THREADS];
    b->next = b->readers = 0;
    b->room = room;
    if (posix_memalign((void **)&b->memory, HUGE_PAGE, room * (size_t)b->threads))
        refuse("allocating memory");
    madvise(b->memory, room * (size_t)b->threads, MADV_HUGEPAGE);
    memset(b->memory, 1, room * (size_t)b->threads);
    if (b->cold) drop_from_cache(b->path);
    const double start = tr_clock_sec();
    for (int i = 0; i < b->threads; i++)
        if (pthread_create(&thread[i], NULL, read_pieces, b)) refuse("starting a thread");
    for (int i = 0; i < b->threads; i++) pthread_join(thread[i], NULL);
    const double sec = tr_clock_sec() - start;
    free(b->memory);
    return sec;
}

static void run_epoch(const bench_t *b, int64_t samples, tr_loader_t *loader) {
    for (int64_t i = 0; i < samples / b->data.micro_batch; i++) {
        tr_batch_t *batch;
        MUST(tr_loader_next(loader, &batch));
        MUST(tr_loader_release(loader, batch));
    }
}

static double time_loader(bench_t *b) {
    tr_dataset_t *dataset = NULL;
    tr_loader_t *loader = NULL;
    tr_loader_params_t p = {.workers = b->threads, .prefetch = (int)b->data.prefetch};
    if (b->cold) drop_from_cache(b->path);
    double start = tr_clock_sec();
    MUST(tr_dataset_open(&b->data, TR_SPLIT_TRAIN, &dataset));
    MUST(tr_sampler_init(&b->data, &dataset->info, 1, b->data.batch_size, b->data.micro_batch,
                         &p.order));
    p.slot_count = tr_sampler_slots(&p.order);
    if (p.prefetch < p.slot_count) p.prefetch = (int)p.slot_count;
    MUST(tr_loader_create(dataset, b->device, &p, &loader));
    if (!b->cold) {
        run_epoch(b, dataset->info.samples, loader);
        start = tr_clock_sec();
    }
    run_epoch(b, dataset->info.samples, loader);
    const double sec = tr_clock_sec() - start;
    b->loader_bytes = tr_loader_bytes(loader);
    tr_loader_destroy(&loader);
    tr_dataset_close(&dataset);
    return sec;
}

static int time_all(bench_t *b) {
    double loader = INFINITY, raw = INFINITY, memory = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        loader = fmin(loader, time_loader(b));
        raw = fmin(raw, time_pread(b, PIECE_BYTES));
        memory = fmin(memory, time_pread(b, b->loader_bytes / (size_t)b->threads + PIECE_BYTES));
    }
    printf("loader %.6f pread %.6f memory %.6f bytes %lld threads %d\n", loader, raw, memory,
           (long long)b->file_bytes, b->threads);
    return 0;
}

static int time_file(int argc, char **argv) {
    static const tr_config_table_t *const tables[] = {&tr_data_config};
    char train[4096];
    struct stat info;
    bench_t b = {.path = argv[-1], .cold = argc > 0 && strcmp(argv[0], "cold") == 0};
    tr_config_t *config = NULL;
    MUST(tr_config_create(tables, 1, &config));
    snprintf(train, sizeof train, "data.train=%s", b.path);
    MUST(tr_config_set(config, train, "argument"));
    for (int i = b.cold; i < argc; i++) MUST(tr_config_set(config, argv[i], "argument"));
    MUST(tr_config_check(config));
    tr_config_read(config, &tr_data_config, &b.data);
    if (b.data.micro_batch < 0) b.data.micro_batch = b.data.batch_size;
    if (stat(b.path, &info)) refuse("finding the file");
    b.file_bytes = info.st_size;
    b.threads = tr_loader_workers(&b.data, (int)sysconf(_SC_NPROCESSORS_ONLN));
    if (b.threads > MAX_THREADS) b.threads = MAX_THREADS;
    MUST(tr_device_open("cpu", NULL, &b.device));
    const int status = time_all(&b);
    tr_device_close(&b.device);
    tr_config_destroy(&config);
    return status;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "make") == 0)
        return make(argv[2], atof(argv[3]), (hsize_t)atoll(argv[4]));
    if (argc >= 3 && strcmp(argv[1], "time") == 0) return time_file(argc - 3, argv + 3);
    fprintf(stderr, "usage: loader make FILE.h5 MIB CHUNK_BYTES | loader time FILE.h5 [cold] "
                    "[key=value ...]\n");
    return 2;
}
