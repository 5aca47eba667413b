/* Samples the next token. */
#include "generate.h"
#include "base/rng.h"

#include <math.h>

/* Tokens by score, sorted lazily: heap[0 .. left) is a heap, followed by the best tokens in
 * ascending order. */
typedef struct {
    const float *scores;
    int32_t *heap;
    int64_t count, left;
} ranking_t;

static bool sample_is_better(const ranking_t *r, int32_t a, int32_t b) {
    return r->scores[a] != r->scores[b] ? r->scores[a] > r->scores[b] : a < b;
}

static void sample_sift(ranking_t *r, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < r->left; at = child) {
        if (child + 1 < r->left && sample_is_better(r, r->heap[child + 1], r->heap[child])) child++;
        if (!sample_is_better(r, r->heap[child], r->heap[at])) return;
        const int32_t token = r->heap[at];
        r->heap[at] = r->heap[child], r->heap[child] = token;
    }
}

/* The n-th best token, counted from 0. */
static int32_t sample_nth(ranking_t *r, int64_t n) {
    while (r->count - r->left <= n) {
        const int32_t best = r->heap[0];
        r->heap[0] = r->heap[--r->left];
        sample_sift(r, 0);
        r->heap[r->left] = best;
    }
    return r->heap[r->count - 1 - n];
}

static int32_t sample_best_of(const float *scores, int64_t count) {
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}

static double sample_uniform_of(const tr_sampling_t *s, uint64_t text, uint64_t position) {
    tr_rng_t rng = tr_rng_make(s->seed, TR_RNG_SAMPLE, 0, text);
    rng.b = position;
    return tr_rng_uniform(&rng);
}

/* Without top_k and top_p the tokens need no order but that of their ids. */
static int32_t sample_draw_of_all(const tr_sampling_t *s, uint64_t text, uint64_t position,
                                  const float *scores, int64_t count) {
    const double best = scores[sample_best_of(scores, count)],
                 drawn = sample_uniform_of(s, text, position);
    double mass = 0, sum = 0;
    for (int64_t i = 0; i < count; i++) mass += exp((scores[i] - best) / s->temperature);
    for (int32_t i = 0; i < count; i++) {
        sum += exp((scores[i] - best) / s->temperature);
        if (sum > drawn * mass) return i;
    }
    return sample_best_of(scores, count);
}

int32_t tr_sample(const tr_sampling_t *s, uint64_t text, uint64_t position, const float *scores,
                  int64_t count, int32_t *order) {
    if (s->temperature <= 0) return sample_best_of(scores, count);
    if (s->top_p >= 1 && (s->top_k <= 0 || s->top_k >= count))
        return sample_draw_of_all(s, text, position, scores, count);
    ranking_t r = {scores, order, count, count};
    for (int64_t i = 0; i < count; i++) order[i] = (int32_t)i;
    for (int64_t i = count / 2; i-- > 0;) sample_sift(&r, i);
    const double best = scores[sample_nth(&r, 0)];
    int64_t kept = s->top_k > 0 && s->top_k < count ? s->top_k : count;
    double mass = 0, sum = 0;
#define WEIGHT(score) exp(((score)-best) / s->temperature) /* of a probability */
    for (int64_t i = 0; i < kept; i++)
        mass += WEIGHT(scores[kept == count ? (int32_t)i : sample_nth(&r, i)]);
    if (s->top_p < 1) {
        const double wanted = s->top_p * mass;
        int64_t n = 0;
        for (mass = 0; n < kept && (n == 0 || mass < wanted); n++)
            mass += WEIGHT(scores[sample_nth(&r, n)]);
        kept = n;
    }
    const double drawn = sample_uniform_of(s, text, position) * mass;
    for (int64_t i = 0; i < kept; i++) {
        sum += WEIGHT(scores[sample_nth(&r, i)]);
        if (sum > drawn) return sample_nth(&r, i);
    }
#undef WEIGHT
    while (kept > 1 && scores[sample_nth(&r, kept - 1)] == -INFINITY) kept--;
    return sample_nth(&r, kept - 1);
}

void tr_token_score(const float *scores, int64_t count, int32_t token, tr_token_score_t *out) {
    int found = 0;
    for (int32_t i = 0; i < count; i++) {
        int at = found < TR_TEXT_LOGPROBS ? found : TR_TEXT_LOGPROBS - 1;
        if (found == TR_TEXT_LOGPROBS && scores[i] <= out->best[at]) continue;
        for (; at > 0 && out->best[at - 1] < scores[i]; at--)
            out->best[at] = out->best[at - 1], out->id[at] = out->id[at - 1];
        out->best[at] = scores[i], out->id[at] = i;
        if (found < TR_TEXT_LOGPROBS) found++;
    }
    const double best = out->best[0];
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += exp(scores[i] - best);
    const double all = best + log(sum);
    out->own = (float)(scores[token] - all);
    for (int i = 0; i < found; i++) out->best[i] = (float)(out->best[i] - all);
    for (int i = found; i < TR_TEXT_LOGPROBS; i++) out->best[i] = -INFINITY, out->id[i] = -1;
}
