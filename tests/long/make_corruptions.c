/* make_corruptions DIR COUNT SEED
 *
 * Damages the newest checkpoint of DIR/checkpoints in COUNT ways, one at a time, and opens it.
 * DIR/kept is a copy of DIR/checkpoints that stays whole. None of the damaged may be accepted,
 * unless every tensor and the state that it gives are those of the copy (without effect); and of
 * the folder the checkpoint before it must serve, with its own contents. Prints a line for each
 * kind of damage: KIND TAB cases TAB refused TAB without effect TAB accepted
 */
#include "../support/tensor_data.h"
#include "checkpoint/checkpoint_int.h"
#include "base/str.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 4, MOST_STEPS = 2 };
static const char *const names[FILES] = {"model.safetensors", "optimizer.safetensors", "state.json",
                                         "MANIFEST"};

typedef struct {
    char *bytes;
    int64_t size;
} content_t;

/* whole[0]: the newest checkpoint, [1]: the one before it */
static content_t whole[MOST_STEPS][FILES];
static tr_checkpoint_t *kept[MOST_STEPS];
static char newest[4096]; /* the folder that is damaged */
static uint64_t random_state;

static uint64_t draw(int64_t below) { /* splitmix64, Steele et al. 2014 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % (uint64_t)(below > 0 ? below : 1);
}

static void die(const char *what) {
    fprintf(stderr, "make_corruptions: %s: %s\n", what, tr_error_last()->message);
    exit(1);
}

/* -- files ------------------------------------------------------------------------------------- */

static const char *path_of(int file) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", newest, names[file]);
    return path;
}

static void put(const char *path, const char *bytes, int64_t size) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, (size_t)size, f) != (size_t)size || fclose(f) != 0) die(path);
}

static void restore(void) {
    for (int i = 0; i < FILES; i++) {
        rmdir(path_of(i));
        put(path_of(i), whole[0][i].bytes, whole[0][i].size);
    }
}

static void load_kept(const char *dir, int which, int64_t step) {
    char folder[4096], path[4200];
    snprintf(folder, sizeof folder, "%s/kept/step-%08lld", dir, (long long)step);
    if (tr_checkpoint_open(folder, &kept[which]) != TR_OK) die(folder);
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (tr_read_text(path, 1 << 28, &whole[which][i].bytes, &whole[which][i].size) != TR_OK)
            die(path);
    }
}

/* -- ways to damage a file; false: as it happens, nothing changed ------------------------------ */

/* The file with `cut` bytes at `at` replaced by `size` others */
static bool splice(int file, int64_t at, int64_t cut, const char *with, int64_t size) {
    const content_t *c = &whole[0][file];
    const int64_t total = c->size - cut + size;
    char *bytes = malloc((size_t)total + 1);
    if (!bytes) die("no memory");
    memcpy(bytes, c->bytes, (size_t)at);
    memcpy(bytes + at, with, (size_t)size);
    memcpy(bytes + at + size, c->bytes + at + cut, (size_t)(c->size - at - cut));
    const bool changed = total != c->size || memcmp(bytes, c->bytes, (size_t)total) != 0;
    put(path_of(file), bytes, total);
    free(bytes);
    return changed;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static const char *noise(int64_t size) {
    static char bytes[4096];
    for (int64_t i = 0; i < size; i++) bytes[i] = (char)draw(256);
    return bytes;
}

static bool flip_bit(int file) {
    const int64_t at = (int64_t)draw(whole[0][file].size);
    const char byte = (char)(whole[0][file].bytes[at] ^ (1 << draw(8)));
    return splice(file, at, 1, &byte, 1);
}
static bool overwrite(int file) {
    const int64_t at = (int64_t)draw(whole[0][file].size);
    const int64_t size = 1 + (int64_t)draw(least(64, whole[0][file].size - at));
    return splice(file, at, size, noise(size), size);
}
static bool lose_page(int file) { /* a block that never reached the disk reads as zeros */
    static const char zeros[4096];
    const int64_t at = (int64_t)draw((whole[0][file].size + 511) / 512) * 512;
    const int64_t size = least(512 << draw(4), whole[0][file].size - at);
    return splice(file, at, size, zeros, size);
}
static bool cut_short(int file) {
    const int64_t at = (int64_t)draw(whole[0][file].size);
    return splice(file, at, whole[0][file].size - at, "", 0);
}
static bool extend(int file) {
    const int64_t size = 1 + (int64_t)draw(4096);
    return splice(file, whole[0][file].size, 0, noise(size), size);
}
static bool extend_blank(int file) { /* what a text's reader might pass over */
    return splice(file, whole[0][file].size, 0, draw(2) ? "\n" : " ", 1);
}
static bool leave_out(int file) {
    const int64_t at = (int64_t)draw(whole[0][file].size);
    return splice(file, at, 1 + (int64_t)draw(least(64, whole[0][file].size - at)), "", 0);
}
static bool insert(int file) {
    const int64_t size = 1 + (int64_t)draw(64);
    return splice(file, (int64_t)draw(whole[0][file].size), 0, noise(size), size);
}
static bool removed(int file) {
    return unlink(path_of(file)) == 0;
}
static bool become_folder(int file) {
    return removed(file) && mkdir(path_of(file), 0700) == 0;
}
static bool of_step_before(int file) {
    put(path_of(file), whole[1][file].bytes, whole[1][file].size);
    return whole[0][file].size != whole[1][file].size ||
           memcmp(whole[0][file].bytes, whole[1][file].bytes, (size_t)whole[0][file].size) != 0;
}
static bool all_of_step_before(int file) {
    for (int i = 0; i < FILES; i++) of_step_before(i);
    return true;
}
static bool all_but_one_of_step_before(int file) {
    all_of_step_before(file);
    put(path_of(file), whole[0][file].bytes, whole[0][file].size);
    return true;
}
static bool swap(int file) {
    const int other = (file + 1 + (int)draw(FILES - 1)) % FILES;
    put(path_of(file), whole[0][other].bytes, whole[0][other].size);
    put(path_of(other), whole[0][file].bytes, whole[0][file].size);
    return true;
}

static const struct {
    const char *name;
    int weight; /* share of the cases */
    bool (*damage)(int file);
} kinds[] = {
    {"one bit flipped", 40, flip_bit},
    {"up to 64 bytes overwritten", 15, overwrite},
    {"a block of 512 to 4096 bytes lost (zeros)", 10, lose_page},
    {"cut short", 10, cut_short},
    {"up to 4096 bytes appended", 5, extend},
    {"a blank or a new line appended", 2, extend_blank},
    {"up to 64 bytes left out", 5, leave_out},
    {"up to 64 bytes inserted", 5, insert},
    {"a file removed", 2, removed},
    {"a file become a folder", 1, become_folder},
    {"a file of the checkpoint before", 2, of_step_before},
    {"all files of the checkpoint before", 1, all_of_step_before},
    {"all files but one of the checkpoint before", 1, all_but_one_of_step_before},
    {"two files swapped", 1, swap},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* -- judging ----------------------------------------------------------------------------------- */

static bool same_tensors(const tr_safetensors_t *a, const tr_safetensors_t *b) {
    if (!a || !b || tr_safetensors_count(a) != tr_safetensors_count(b)) return a == b;
    for (size_t i = 0; i < tr_safetensors_count(a); i++) {
        const tr_named_tensor_t *x = tr_safetensors_at(a, i), *y = tr_safetensors_find(b, x->name);
        if (!y || x->dtype != y->dtype || !tr_shape_equal(&x->shape, &y->shape)) return false;
        void *a_data = tensor_data(x), *b_data = tensor_data(y);
        const size_t bytes = (size_t)tr_shape_elems(&x->shape) * tr_dtype_bytes(x->dtype);
        const bool is_same = memcmp(a_data, b_data, bytes) == 0;
        free(a_data);
        free(b_data);
        if (!is_same) return false;
    }
    return true;
}

static bool same(const tr_checkpoint_t *a, const tr_checkpoint_t *b) {
    return a->step == b->step && strcmp(a->state_json, b->state_json) == 0 &&
           same_tensors(a->model, b->model) && same_tensors(a->optimizer, b->optimizer);
}

enum { REFUSED, NO_EFFECT, ACCEPTED, OUTCOMES };

static int judge_one(void) {
    tr_checkpoint_t *c = NULL;
    const tr_status_t status = tr_checkpoint_open(newest, &c);
    if (status == TR_ERR_INTERNAL) return ACCEPTED;
    if (status != TR_OK) return REFUSED;
    const int outcome = same(c, kept[0]) ? NO_EFFECT : ACCEPTED;
    tr_checkpoint_close(&c);
    return outcome;
}

/* The folder's newest is the other one now, and it is said why. */
static bool falls_back(const char *checkpoints) {
    tr_checkpoint_t *c = NULL;
    tr_str_t skipped = {0};
    const bool good = tr_checkpoint_open_newest(checkpoints, NULL, &c, &skipped) == TR_OK && c &&
                      same(c, kept[1]) && skipped.length > 0;
    tr_checkpoint_close(&c);
    tr_str_free(&skipped);
    return good;
}

static int one(const char *checkpoints, int kind, int file, int64_t number) {
    while (!kinds[kind].damage(file)) restore();
    int outcome = judge_one();
    if (outcome == REFUSED && !falls_back(checkpoints)) outcome = ACCEPTED;
    if (outcome != REFUSED)
        printf("# %s: case %lld, %s, %s\n", outcome == ACCEPTED ? "ACCEPTED" : "without effect",
               (long long)number, kinds[kind].name, names[file]);
    restore();
    return outcome;
}

static int kind_of(int64_t number) {
    int at = (int)(number % 100), kind = 0;
    while (at >= kinds[kind].weight) at -= kinds[kind++].weight;
    return kind;
}

static int64_t damage_all(const char *checkpoints, int64_t count) {
    static int64_t counts[KINDS][OUTCOMES];
    int64_t sum[OUTCOMES] = {0};
    for (int64_t i = 0; i < count; i++)
        counts[kind_of(i)][one(checkpoints, kind_of(i), (int)draw(FILES), i)]++;
    for (int k = 0; k < KINDS; k++) {
        const int64_t *n = counts[k];
        printf("%s\t%lld\t%lld\t%lld\t%lld\n", kinds[k].name, (long long)(n[0] + n[1] + n[2]),
               (long long)n[REFUSED], (long long)n[NO_EFFECT], (long long)n[ACCEPTED]);
        for (int o = 0; o < OUTCOMES; o++) sum[o] += n[o];
    }
    printf("all\t%lld\t%lld\t%lld\t%lld\n", (long long)count, (long long)sum[REFUSED],
           (long long)sum[NO_EFFECT], (long long)sum[ACCEPTED]);
    return sum[ACCEPTED];
}

int main(int argc, char **argv) {
    tr_checkpoint_t *c = NULL;
    char checkpoints[4096 - 16];
    if (argc != 4) return 2;
    random_state = strtoull(argv[3], NULL, 10);
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", argv[1]);
    if (tr_checkpoint_open_newest(checkpoints, NULL, &c, NULL) != TR_OK || !c) die(checkpoints);
    const int64_t step = c->step;
    snprintf(newest, sizeof newest, "%s/step-%08lld", checkpoints, (long long)step);
    tr_checkpoint_close(&c);
    load_kept(argv[1], 0, step);
    load_kept(argv[1], 1, step / 2);
    return damage_all(checkpoints, strtoll(argv[2], NULL, 10)) != 0;
}
