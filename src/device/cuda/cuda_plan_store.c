/* Keeps compiled plans and timed choices in a folder. */
#include "cuda_plan_store.h"
#include "trainer/log.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/mem.h"
#include "base/str.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Of a file, before the text: format, hash of what follows, bytes of the text; then the key. */
#define HEAD_FORMAT "trainer-plan 1 %016" PRIx64 " %zu\n"
enum { MAX_FILE_BYTES = 64 << 20 };

typedef struct {
    char *key, *text;
} entry_t;

struct cuda_plan_store {
    char *prefix, *folder; /* folder "": none */
    TR_VEC(entry_t) entries;
    bool warned_read, warned_write;
    cuda_plan_counts_t counts;
};

static tr_status_t copy_text(const char *text, char **out) {
    TR_TRY(tr_alloc(strlen(text) + 1, "the plans of cuDNN", out));
    strcpy(*out, text);
    return TR_OK;
}

tr_status_t tr_cuda_plan_store_create(const char *prefix, const char *folder,
                                      cuda_plan_store_t **out) {
    cuda_plan_store_t *store = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *store, "the plans of cuDNN", &store));
    TR_TRY_GOTO(copy_text(prefix, &store->prefix), fail);
    TR_TRY_GOTO(copy_text(folder ? folder : "", &store->folder), fail);
    *out = store;
    return TR_OK;
fail:
    tr_cuda_plan_store_destroy(&store);
    return status;
}

static void cuda_plan_store_free_entry(entry_t *e) {
    tr_free(&e->key);
    tr_free(&e->text);
}

void tr_cuda_plan_store_destroy(cuda_plan_store_t **store) {
    cuda_plan_store_t *s = *store;
    if (!s) return;
    for (size_t i = 0; i < s->entries.count; i++) cuda_plan_store_free_entry(&s->entries.data[i]);
    tr_vec_free(&s->entries);
    tr_free(&s->prefix);
    tr_free(&s->folder);
    tr_free(store);
}

cuda_plan_counts_t *tr_cuda_plan_store_counts(cuda_plan_store_t *store) {
    return &store->counts;
}

const char *tr_cuda_plan_store_folder(const cuda_plan_store_t *store) {
    return store->folder;
}

/* -- memory ------------------------------------------------------------------------------------ */

static entry_t *find_entry(cuda_plan_store_t *store, const char *key) {
    for (size_t i = 0; i < store->entries.count; i++)
        if (strcmp(store->entries.data[i].key, key) == 0) return &store->entries.data[i];
    return NULL;
}

static tr_status_t store_keep(cuda_plan_store_t *store, const char *key, const char *text) {
    entry_t *known = find_entry(store, key), e = {0};
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(copy_text(key, &e.key), fail);
    TR_TRY_GOTO(copy_text(text, &e.text), fail);
    if (known) {
        cuda_plan_store_free_entry(known);
        *known = e;
        return TR_OK;
    }
    TR_TRY_GOTO(tr_vec_push(&store->entries, e), fail);
    return TR_OK;
fail:
    cuda_plan_store_free_entry(&e);
    return status;
}

/* -- files ------------------------------------------------------------------------------------- */

/* One warning for each direction: many files of a folder fail for one reason. */
static void warn_once(bool *warned, const char *path, const char *problem) {
    if (*warned) return;
    *warned = true;
    TR_WARN("cuda.plan_cache: %s %s; the choice is made again", path, problem);
}

static bool path_of(const cuda_plan_store_t *store, const char *key, char path[PATH_MAX]) {
    return *store->folder && snprintf(path, PATH_MAX, "%s/%016" PRIx64 ".plan", store->folder,
                                      tr_hash_name(key)) < PATH_MAX;
}

/* "KEY\nTEXT" of a whole file; NULL: not there, or damaged. */
static char *read_file(cuda_plan_store_t *store, const char *path) {
    uint64_t hash = 0;
    size_t bytes = 0;
    struct stat about;
    char *content = NULL, head[64];
    FILE *file = fopen(path, "rbe");
    if (!file) return NULL;
    if (fstat(fileno(file), &about) == 0 && about.st_size < MAX_FILE_BYTES &&
        fgets(head, sizeof head, file) && sscanf(head, HEAD_FORMAT, &hash, &bytes) == 2 &&
        bytes < MAX_FILE_BYTES && tr_alloc(bytes + 1, "the plans of cuDNN", &content) == TR_OK &&
        (fread(content, 1, bytes, file) != bytes || tr_hash_name(content) != hash))
        tr_free(&content);
    if (!content) warn_once(&store->warned_read, path, "is damaged");
    fclose(file);
    return content;
}

const char *tr_cuda_plan_store_find(cuda_plan_store_t *store, const char *key) {
    tr_str_t whole = {0};
    char path[PATH_MAX], *content = NULL;
    tr_str_printf(&whole, "%s %s", store->prefix, key);
    const entry_t *known = whole.text ? find_entry(store, whole.text) : NULL;
    if (!known && whole.text && path_of(store, whole.text, path) &&
        (content = read_file(store, path)) != NULL) {
        /* another key may have the same hash */
        if (strncmp(content, whole.text, whole.length) == 0 && content[whole.length] == '\n' &&
            store_keep(store, whole.text, content + whole.length + 1) == TR_OK)
            known = find_entry(store, whole.text);
        tr_free(&content);
    }
    tr_str_free(&whole);
    return known ? known->text : NULL;
}

static tr_status_t write_entry(cuda_plan_store_t *store, const char *path, const char *key,
                               const char *text) {
    tr_str_t content = {0}, file = {0};
    tr_str_printf(&content, "%s\n%s", key, text);
    if (content.text)
        tr_str_printf(&file, HEAD_FORMAT "%s", tr_hash_name(content.text), content.length,
                      content.text);
    const tr_status_t status = content.status ? content.status : file.status;
    if (status == TR_OK && !store->warned_write) {
        (void)tr_make_folders(store->folder);
        if (tr_replace_file(path, file.text, file.length, TR_REPLACE_OFTEN) != TR_OK) {
            TR_WARN("cuda.plan_cache: plans are not kept: %s", tr_error_last()->message);
            tr_error_clear();
            store->warned_write = true;
        }
    }
    tr_str_free(&content);
    tr_str_free(&file);
    return status;
}

tr_status_t tr_cuda_plan_store_add(cuda_plan_store_t *store, const char *key, const char *text,
                                   bool lasts) {
    tr_str_t whole = {0};
    char path[PATH_MAX];
    tr_str_printf(&whole, "%s %s", store->prefix, key);
    tr_status_t status = whole.status ? whole.status : store_keep(store, whole.text, text);
    if (status == TR_OK && lasts && path_of(store, whole.text, path))
        status = write_entry(store, path, whole.text, text);
    tr_str_free(&whole);
    return status;
}

void tr_cuda_plan_store_drop(cuda_plan_store_t *store, const char *key, const char *problem) {
    tr_str_t whole = {0};
    char path[PATH_MAX] = "the choice of rank 0";
    tr_str_printf(&whole, "%s %s", store->prefix, key);
    for (size_t i = 0; i < store->entries.count && whole.text; i++) {
        if (strcmp(store->entries.data[i].key, whole.text) != 0) continue;
        cuda_plan_store_free_entry(&store->entries.data[i]);
        store->entries.data[i] = store->entries.data[--store->entries.count];
        (void)path_of(store, whole.text, path);
        warn_once(&store->warned_read, path, problem);
    }
    tr_str_free(&whole);
}

/* -- choices ----------------------------------------------------------------------------------- */

tr_status_t tr_cuda_plan_store_each(tr_device_t *device, tr_choice_fn each, void *self) {
    const cuda_plan_store_t *store = cuda_self(device)->plans;
    for (size_t i = 0; store && i < store->entries.count; i++)
        TR_TRY(each(self, store->entries.data[i].key, store->entries.data[i].text,
                    strlen(store->entries.data[i].text) + 1));
    return TR_OK;
}

tr_status_t tr_cuda_plan_store_take(tr_device_t *device, const char *key, const void *value,
                                    size_t bytes) {
    cuda_plan_store_t *store = cuda_self(device)->plans;
    const size_t prefix = store ? strlen(store->prefix) : 0;
    const char *text = value;
    char path[PATH_MAX];
    if (!store || bytes == 0 || text[bytes - 1] != '\0') return TR_OK;
    if (strncmp(key, store->prefix, prefix) != 0 || key[prefix] != ' ') return TR_OK;
    TR_TRY(store_keep(store, key, text));
    /* a node with a folder of its own; elsewhere rank 0 has written the file */
    if (!path_of(store, key, path)) return TR_OK;
    char *content = read_file(store, path);
    const tr_status_t status = content ? TR_OK : write_entry(store, path, key, text);
    tr_free(&content);
    return status;
}
