/* Writes Chrome's trace events. */
#include "trace_file.h"
#include "base/file.h"
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rows of the timeline, by thread id; the threads of the loader follow them. */
enum { TID_STEPS = 1, TID_DEVICE, TID_COMMUNICATION, TID_HOST, TID_COPIES, TID_WRITER, TID_LOADER };
static const char *const tid_names[TID_LOADER] = {
    [TID_STEPS] = "steps",        [TID_DEVICE] = "device", [TID_COMMUNICATION] = "communication",
    [TID_HOST] = "training loop", [TID_COPIES] = "copies", [TID_WRITER] = "checkpoint writer"};

/* number: the name of its argument; NULL: it has none */
static const struct {
    int tid;
    const char *name, *number;
} kinds[TR_SPAN_KINDS] = {
    [TR_SPAN_STEP] = {TID_STEPS, "step", NULL},
    [TR_SPAN_OP] = {TID_DEVICE, "op", NULL},
    [TR_SPAN_WAIT] = {TID_DEVICE, "wait for buckets", NULL},
    [TR_SPAN_COLLECTIVE] = {TID_COMMUNICATION, "bucket", "bucket"},
    [TR_SPAN_PROGRESS] = {TID_HOST, "communication", NULL},
    [TR_SPAN_DATA] = {TID_HOST, "wait for a batch", NULL},
    [TR_SPAN_READ] = {TID_LOADER, "read", "samples"},
    [TR_SPAN_COPY] = {TID_COPIES, "copy to device", NULL},
    [TR_SPAN_VALIDATION] = {TID_HOST, "validation", NULL},
    [TR_SPAN_SNAPSHOT] = {TID_HOST, "snapshot", "checkpoint"},
    [TR_SPAN_CHECKPOINT] = {TID_WRITER, "write checkpoint", "checkpoint"},
};

double tr_trace_clock_error_sec(const tr_trace_clock_t *c) {
    return fmax(c->before.error_sec, c->after.error_sec);
}

/* Microseconds in the file. The offset drifts evenly between the two times it was measured. */
static double trace_clock_us(const tr_trace_clock_t *c, double sec) {
    const double length_sec = c->after.at_sec - c->before.at_sec;
    const double passed = length_sec > 0 ? (sec - c->before.at_sec) / length_sec : 0;
    const double offset_sec =
        c->before.offset_sec + passed * (c->after.offset_sec - c->before.offset_sec);
    return 1e6 * (sec + offset_sec - c->origin_sec);
}

/* As the content of a JSON string. */
static void trace_append_text(tr_str_t *out, const char *text) {
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\')
            tr_str_printf(out, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            tr_str_append_bytes(out, text, 1);
    }
}

static void trace_append_name(const tr_trace_file_t *f, int tid, const char *name, tr_str_t *out) {
    tr_str_printf(out,
                  ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"ts\":0,"
                  "\"args\":{\"name\":\"%s\"}},\n"
                  "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%d,\"tid\":%d,\"ts\":0,"
                  "\"args\":{\"sort_index\":%d}}",
                  f->rank, tid, name, f->rank, tid, tid);
}

static void trace_append_head(const tr_trace_file_t *f, const tr_spans_t *spans, tr_str_t *out) {
    int lanes = 0;
    char name[32];
    for (size_t i = 0; i < spans->count; i++)
        if (spans->data[i].lane >= lanes) lanes = spans->data[i].lane + 1;
    tr_str_printf(out,
                  "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"rank\":%d,"
                  "\"clock_error_us\":%.3f,\"clock_offset_us\":%.3f,\"spans_dropped\":%lld,"
                  "\"ops\":\"%s\"},\n\"traceEvents\":[\n"
                  "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,\"ts\":0,"
                  "\"args\":{\"name\":\"rank %d (",
                  f->rank, 1e6 * tr_trace_clock_error_sec(&f->clock),
                  1e6 * f->clock.before.offset_sec, (long long)spans->dropped,
                  f->is_captured ? "uncaptured" : "as in training", f->rank, f->rank);
    trace_append_text(out, f->host);
    tr_str_append(out, ")\"}}");
    for (int tid = TID_STEPS; tid < TID_LOADER; tid++)
        trace_append_name(f, tid, tid_names[tid], out);
    for (int i = 0; i < lanes; i++) {
        snprintf(name, sizeof name, "loader %d", i);
        trace_append_name(f, TID_LOADER + i, name, out);
    }
}

static void trace_append_span(const tr_trace_file_t *f, const tr_span_t *span, tr_str_t *out) {
    const double begin_us = trace_clock_us(&f->clock, span->begin_sec),
                 end_us = trace_clock_us(&f->clock, span->end_sec);
    /* On an immediate device, the computing thread is the device. */
    const int tid =
        span->kind == TR_SPAN_PROGRESS && f->is_immediate ? TID_DEVICE : kinds[span->kind].tid;
    tr_str_printf(out,
                  ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"",
                  f->rank, tid + span->lane, begin_us, fmax(0, end_us - begin_us));
    trace_append_text(out, span->name ? span->name : kinds[span->kind].name);
    if (span->detail && *span->detail) tr_str_append(out, " ");
    if (span->detail) trace_append_text(out, span->detail);
    if (span->kind == TR_SPAN_STEP) tr_str_printf(out, " %lld", (long long)span->step);
    if (span->kind == TR_SPAN_COLLECTIVE) tr_str_printf(out, " %lld", (long long)span->number);
    tr_str_printf(out, "\",\"cat\":\"%s\",\"args\":{\"step\":%lld", kinds[span->kind].name,
                  (long long)span->step);
    if (kinds[span->kind].number)
        tr_str_printf(out, ",\"%s\":%lld", kinds[span->kind].number, (long long)span->number);
    if (span->bytes > 0) tr_str_printf(out, ",\"bytes\":%lld", (long long)span->bytes);
    if (span->kind == TR_SPAN_OP)
        tr_str_printf(out, ",\"phase\":\"%s\"", tr_op_phase(span->item, &f->programs));
    tr_str_append(out, "}}");
}

tr_status_t tr_trace_file_write(const tr_trace_file_t *f, const tr_spans_t *spans,
                                const char *path) {
    enum { PART_BYTES = 1 << 16 };
    tr_str_t text = {0};
    FILE *file = tr_create_stream(path);
    if (!file) return tr_io_fail("create", path, errno);
    bool is_good = true;
    trace_append_head(f, spans, &text);
    for (size_t i = 0; i <= spans->count && is_good; i++) {
        if (f->is_abandoned && atomic_load(f->is_abandoned)) {
            is_good = false;
            errno = ETIMEDOUT;
            break;
        }
        if (i < spans->count)
            trace_append_span(f, &spans->data[i], &text);
        else
            tr_str_append(&text, "\n]}\n");
        if (text.status != TR_OK || (text.length < PART_BYTES && i < spans->count)) continue;
        is_good = fwrite(text.text, 1, text.length, file) == text.length;
        text.length = 0;
    }
    tr_status_t status = text.status;
    const int error = errno;
    tr_str_free(&text);
    if (fclose(file) != 0 && is_good && status == TR_OK) return tr_io_fail("write", path, errno);
    return status == TR_OK && !is_good ? tr_io_fail("write", path, error) : status;
}
