/* The files of tensors of a checkpoint that several ranks write, each its pieces. */
#include "checkpoint_int.h"
#include "safetensors_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One of the two files. */
typedef struct {
    const char *name, *metadata;
    const tr_named_tensor_t *tensors;
    size_t count;
} shared_file_t;

static shared_file_t shared_file(const tr_checkpoint_content_t *c, int file) {
    if (file == TR_PIECE_MODEL)
        return (shared_file_t){TR_CHECKPOINT_MODEL, c->metadata, c->model, c->model_count};
    return (shared_file_t){TR_CHECKPOINT_OPTIMIZER, NULL, c->optimizer, c->optimizer_count};
}

tr_status_t tr_checkpoint_attempt(const tr_checkpoint_content_t *content, int64_t number,
                                  tr_checkpoint_attempt_t *out) {
    char name[32];
    *out = (tr_checkpoint_attempt_t){.number = number, .step = content->step};
    tr_checkpoint_name(content->step, name);
    /* another one for each attempt: a rank may still write in that of the last */
    snprintf(out->folder, sizeof out->folder, ".tmp-%s-%lld-%d", name, (long long)number,
             (int)getpid());
    for (int i = 0; i < TR_PIECE_FILES; i++) {
        const shared_file_t file = shared_file(content, i);
        tr_str_t header = {0};
        const tr_status_t status =
            tr_safetensors_header(file.tensors, file.count, file.metadata, &header);
        out->start[i] = (int64_t)header.length;
        tr_str_free(&header);
        TR_TRY(status);
    }
    return TR_OK;
}

/* -- writing ----------------------------------------------------------------------------------- */

static tr_status_t shared_write_file(const char *dir, const tr_checkpoint_content_t *c, int number,
                                     uint64_t *checksum) {
    const tr_checkpoint_sharing_t *sharing = c->sharing;
    const shared_file_t file = shared_file(c, number);
    char path[4096];
    tr_str_t header = {0};
    tr_sink_t *sink = NULL;
    tr_status_t status = TR_OK;
    if (file.count == 0) return TR_OK;
    TR_TRY(tr_path_join(dir, file.name, path));
    TR_TRY_GOTO(tr_sink_open_shared(path, &sink), done);
    if (sharing->rank == 0) {
        TR_TRY_GOTO(tr_safetensors_header(file.tensors, file.count, file.metadata, &header), done);
        TR_TRY_GOTO(tr_sink_write(sink, header.text, header.length), done);
    }
    for (size_t i = 0; i < sharing->piece_count; i++) {
        const tr_checkpoint_piece_t *p = &sharing->pieces[i];
        if (p->file != number || p->rank != sharing->rank) continue;
        TR_TRY_GOTO(tr_sink_seek(sink, sharing->attempt.start[number] + p->offset), done);
        TR_TRY_GOTO(tr_sink_write(sink, p->data, (size_t)p->bytes), done);
    }
    TR_TRY_GOTO(tr_sink_commit(sink, checksum, NULL), done);
done:
    tr_sink_close(&sink);
    tr_str_free(&header);
    return status;
}

/* Whichever rank is first creates the folder. */
static tr_status_t shared_write_part(const char *dir, const tr_checkpoint_content_t *c,
                                     tr_checkpoint_part_t *part) {
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) return tr_io_fail("create", dir, errno);
    for (int i = 0; i < TR_PIECE_FILES; i++)
        TR_TRY(shared_write_file(dir, c, i, &part->checksum[i]));
    return TR_OK;
}

/* Writes the pieces of this rank, unless `status` is an error, and exchanges the parts: also after an
 * error, so that nobody writes into the folder when it is removed. */
static tr_status_t shared_write_and_tell(const char *dir, const tr_checkpoint_content_t *c,
                                         tr_status_t status) {
    const tr_checkpoint_sharing_t *sharing = c->sharing;
    tr_checkpoint_part_t *own = &sharing->parts[sharing->rank];
    *own = (tr_checkpoint_part_t){.number = sharing->attempt.number};
    if (status == TR_OK) status = shared_write_part(dir, c, own);
    own->status = status;
    const tr_error_t cause = *tr_error_last();
    const tr_status_t told = sharing->exchange(sharing->self, sharing->parts);
    return status != TR_OK ? tr_error_set(&cause) : told;
}

tr_status_t tr_checkpoint_write_part(const char *dir, const tr_checkpoint_content_t *content) {
    const tr_checkpoint_sharing_t *sharing = content->sharing;
    char temporary[4096];
    const tr_status_t status = tr_path_join(dir, sharing->attempt.folder, temporary);
    return shared_write_and_tell(temporary, content, status);
}

/* -- reading what was written ------------------------------------------------------------------ */

/* A file while it is read. */
typedef struct {
    const tr_checkpoint_sharing_t *sharing;
    int number, fd;
    const char *path;
    tr_checksum_t *whole, **of_rank;
    size_t next; /* piece */
    int64_t at;  /* in the data */
} shared_reader_t;

/* The next `bytes`, which one tensor has and ranks have written in pieces. */
static tr_status_t shared_read_tensor(shared_reader_t *r, int64_t bytes) {
    const tr_checkpoint_sharing_t *sharing = r->sharing;
    const int64_t end = r->at + bytes;
    while (r->at < end) {
        const tr_checkpoint_piece_t *p = &sharing->pieces[r->next];
        const bool is_piece = r->next < sharing->piece_count && p->file == r->number;
        if (!is_piece || p->offset != r->at || p->bytes <= 0 || p->offset + p->bytes > end)
            return TR_FAIL(TR_ERR_INTERNAL,
                           "%s: no rank, or more than one, writes the bytes from %lld on", r->path,
                           (long long)r->at);
        TR_TRY(tr_checksum_read(r->whole, r->of_rank[p->rank], r->fd, r->path,
                                sharing->attempt.start[r->number] + r->at, p->bytes));
        r->at += p->bytes;
        r->next++;
    }
    return TR_OK;
}

/* Lists the file and its tensors. */
static tr_status_t shared_read_tensors(shared_reader_t *r, const shared_file_t *file,
                                       tr_manifest_t *m) {
    const int64_t start = r->sharing->attempt.start[r->number];
    TR_TRY(tr_manifest_add_file(m, file->name, 0, 0));
    TR_TRY(tr_checksum_read(r->whole, r->of_rank[0], r->fd, r->path, 0, start));
    for (size_t i = 0; i < file->count; i++) {
        const tr_named_tensor_t *t = &file->tensors[i];
        tr_manifest_tensor_t row = {
            .name = (char *)t->name, .dtype = t->dtype, .shape = t->shape, .offset = r->at};
        int64_t bytes = 0;
        tr_tensor_bytes(t->dtype, &t->shape, &bytes);
        tr_checksum_begin_part(r->whole);
        TR_TRY(shared_read_tensor(r, bytes));
        row.checksum = tr_checksum_part(r->whole);
        TR_TRY(tr_manifest_add_tensor(m, &row));
    }
    tr_manifest_file_t *listed = &m->files.data[m->files.count - 1];
    listed->bytes = start + r->at;
    listed->checksum = tr_checksum_value(r->whole);
    return TR_OK;
}

static tr_status_t shared_read_file(const char *dir, const tr_checkpoint_content_t *c, int number,
                                    tr_manifest_t *m) {
    const tr_checkpoint_sharing_t *sharing = c->sharing;
    const shared_file_t file = shared_file(c, number);
    char path[4096];
    shared_reader_t r = {.sharing = sharing, .number = number, .fd = -1, .path = path};
    tr_status_t status = TR_OK;
    if (file.count == 0) return TR_OK;
    TR_TRY(tr_path_join(dir, file.name, path));
    while (r.next < sharing->piece_count && sharing->pieces[r.next].file != number) r.next++;
    TR_TRY(tr_alloc((size_t)sharing->ranks * sizeof *r.of_rank, "checksums of ranks", &r.of_rank));
    TR_TRY_GOTO(tr_checksum_create(&r.whole), done);
    for (int i = 0; i < sharing->ranks; i++) TR_TRY_GOTO(tr_checksum_create(&r.of_rank[i]), done);
    r.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r.fd < 0) {
        status = tr_io_fail("open", path, errno);
        goto done;
    }
    TR_TRY_GOTO(shared_read_tensors(&r, &file, m), done);
    for (int i = 0; i < sharing->ranks && status == TR_OK; i++)
        if (tr_checksum_value(r.of_rank[i]) != sharing->parts[i].checksum[number])
            status = TR_FAIL(TR_ERR_IO,
                             "%s does not have the bytes that rank %d wrote: expected the same "
                             "folder on all nodes, on a file system that they share",
                             path, i);
done:
    if (r.fd >= 0) close(r.fd);
    tr_checksum_destroy(&r.whole);
    for (int i = 0; i < sharing->ranks; i++) tr_checksum_destroy(&r.of_rank[i]);
    tr_free(&r.of_rank);
    return status;
}

tr_status_t tr_checkpoint_write_shared(const char *temporary, const tr_checkpoint_content_t *c,
                                       tr_status_t status, tr_manifest_t *m) {
    const tr_checkpoint_sharing_t *sharing = c->sharing;
    status = shared_write_and_tell(temporary, c, status);
    for (int i = 0; i < sharing->ranks && status == TR_OK; i++)
        if (sharing->parts[i].status != TR_OK)
            status = TR_FAIL(TR_ERR_IO,
                             "Rank %d could not write its part; its own message says why.", i);
    for (int i = 0; i < TR_PIECE_FILES && status == TR_OK; i++)
        status = shared_read_file(temporary, c, i, m);
    return status;
}

void tr_checkpoint_abandon(const char *dir, const tr_checkpoint_content_t *content) {
    const tr_error_t cause = *tr_error_last();
    char temporary[4096];
    tr_manifest_t unused = {0};
    if (tr_path_join(dir, content->sharing->attempt.folder, temporary) == TR_OK) {
        (void)tr_checkpoint_write_shared(temporary, content, cause.code, &unused);
        (void)tr_remove_tree(temporary);
    }
    tr_error_set(&cause);
}
