/* Makes text of tokens, and finds its end. */
#include "detokenizer.h"

#include <string.h>

/* Ends the text before the stop string that is complete first, and not before byte `from`. Which one
 * that is does not depend on how the text is cut into tokens. */
static void detokenizer_cut(tr_detokenizer_t *d, size_t from) {
    size_t cut = 0, complete = SIZE_MAX;
    for (size_t i = 0; i < d->stop_count; i++) {
        const size_t length = strlen(d->stops[i]), first = from < length ? 0 : from - length + 1;
        const char *found =
            memmem(d->bytes.text + first, d->bytes.length - first, d->stops[i], length);
        const size_t start = found ? (size_t)(found - d->bytes.text) : 0, end = start + length;
        if (!found || end > complete || (end == complete && start > cut)) continue;
        cut = start;
        complete = end;
    }
    d->is_stopped = complete < SIZE_MAX;
    if (!d->is_stopped) return;
    d->bytes.text[cut] = '\0';
    d->bytes.length = cut;
}

/* Bytes at the end that are the beginning of a character. */
static size_t detokenizer_incomplete(const tr_detokenizer_t *d) {
    const size_t most = d->bytes.length < 3 ? d->bytes.length : 3;
    for (size_t count = 1; count <= most; count++) {
        const unsigned char c = (unsigned char)d->bytes.text[d->bytes.length - count];
        const size_t whole = c >> 5 == 0x06 ? 2 : c >> 4 == 0x0E ? 3 : c >> 3 == 0x1E ? 4 : 0;
        if (c >> 6 != 2) return count < whole ? count : 0;
    }
    return 0;
}

/* Bytes at the end that are the beginning of a stop string. */
static size_t detokenizer_begun_stop(const tr_detokenizer_t *d) {
    size_t most = 0;
    for (size_t i = 0; i < d->stop_count; i++) {
        size_t count = strlen(d->stops[i]) - 1;
        if (count > d->bytes.length) count = d->bytes.length;
        while (count > most &&
               memcmp(d->bytes.text + d->bytes.length - count, d->stops[i], count) != 0)
            count--;
        if (count > most) most = count;
    }
    return most;
}

static tr_status_t detokenizer_show(tr_detokenizer_t *d, size_t end) {
    if (end <= d->settled) return TR_OK;
    tr_str_append_utf8(&d->text, d->bytes.text + d->settled, end - d->settled);
    d->settled = end;
    return d->text.status;
}

tr_status_t tr_detokenizer_add(tr_detokenizer_t *d, int32_t token) {
    const size_t before = d->bytes.length;
    TR_TRY(tr_vec_push(&d->starts, before));
    if (token >= 0 && token < d->tokenizer->vocab_size)
        TR_TRY(tr_tokenizer_decode(d->tokenizer, &token, 1, &d->bytes));
    else
        tr_str_append(&d->bytes, "\xEF\xBF\xBD");
    TR_TRY(d->bytes.status);
    if (d->bytes.length > before) detokenizer_cut(d, before);
    if (d->is_stopped) return tr_detokenizer_finish(d);
    const size_t begun = detokenizer_begun_stop(d), incomplete = detokenizer_incomplete(d);
    TR_TRY(detokenizer_show(d, d->bytes.length - (begun > incomplete ? begun : incomplete)));
    while (d->shown_tokens < d->starts.count &&
           (d->shown_tokens + 1 < d->starts.count ? d->starts.data[d->shown_tokens + 1]
                                                  : d->bytes.length) <= d->settled)
        d->shown_tokens++;
    return TR_OK;
}

tr_status_t tr_detokenizer_finish(tr_detokenizer_t *d) {
    TR_TRY(detokenizer_show(d, d->bytes.length));
    while (d->shown_tokens < d->starts.count &&
           (!d->is_stopped || d->starts.data[d->shown_tokens] < d->bytes.length))
        d->shown_tokens++;
    return TR_OK;
}

void tr_detokenizer_free(tr_detokenizer_t *d) {
    tr_str_free(&d->text);
    tr_str_free(&d->bytes);
    tr_vec_free(&d->starts);
}
