/* Runs the generator for the requests in the queue. */
#include "engine.h"

#include "base/clock.h"
#include <string.h>

void tr_text_engine_open(tr_text_engine_t *e, int64_t waiting) {
    tr_queue_open(&e->queue, e->slots + waiting);
}

void tr_text_engine_close(tr_text_engine_t *e) {
    tr_queue_close(&e->queue);
}

void tr_generation_free(tr_generation_t *g) {
    for (size_t i = 0; i < g->count; i++) {
        tr_choice_t *c = &g->choices[i];
        tr_vec_free(&c->text.ids);
        tr_vec_free(&c->text.tokens);
        tr_vec_free(&c->text.scores);
        tr_vec_free(&c->tokens);
        tr_vec_free(&c->scores);
        tr_detokenizer_free(&c->out);
    }
    tr_free(&g->choices);
    g->count = 0;
}

/* Takes the slots of a request and ends it. */
static void engine_finish(tr_text_engine_t *e, tr_generation_t *g, int status, const char *why) {
    const double now = tr_clock_sec();
    int64_t prompt = 0, generated = 0;
    bool is_cut = false;
    for (size_t i = 0; i < g->admitted; i++) {
        const tr_choice_t *c = &g->choices[i];
        tr_generator_drop(e->generator, &c->text);
        prompt += (int64_t)c->text.ids.count;
        generated += (int64_t)c->tokens.count;
        is_cut |= c->finish_reason && strcmp(c->finish_reason, "length") == 0;
        if (c->finish_reason && c->tokens.count > 1)
            tr_serve_metrics_time(e->metrics, TR_TIME_TOKEN,
                                  (c->last_sec - c->first_sec) / (double)(c->tokens.count - 1));
    }
    tr_serve_metrics_tokens(e->metrics, prompt, generated);
    tr_serve_metrics_time(e->metrics, TR_TIME_REQUEST, now - g->job.since_sec);
    tr_serve_metrics_ended(e->metrics, status == 200   ? is_cut ? TR_ENDED_LENGTH : TR_ENDED_STOP
                                       : status == 500 ? TR_ENDED_ERROR
                                                       : TR_ENDED_ABORT);
    tr_queue_done(&e->queue, &g->job, status, why);
}

/* Ends requests that failed in the last step, and those whose client has left. */
static void engine_sweep(tr_text_engine_t *e) {
    for (tr_job_t *job = e->queue.first, *next; job; job = next) {
        next = job->next;
        if (job->status != 200)
            engine_finish(e, (tr_generation_t *)job, job->status, NULL);
        else if (tr_job_is_left(job))
            engine_finish(e, (tr_generation_t *)job, TR_CLIENT_LEFT, "the client has left");
    }
}

/* When a request got its last slot, or else came. */
static double generation_turn(const tr_generation_t *g) {
    return g->admitted > 0 ? g->turn_sec : g->job.since_sec;
}

/* The request whose next text gets a free slot; NULL: none has one. */
static tr_generation_t *engine_next(const tr_text_engine_t *e) {
    tr_generation_t *next = NULL;
    for (tr_job_t *job = e->queue.first; job; job = job->next) {
        tr_generation_t *g = (tr_generation_t *)job;
        if (g->admitted < g->count && (!next || generation_turn(g) < generation_turn(next)))
            next = g;
    }
    return next;
}

static void engine_admit(tr_text_engine_t *e) {
    tr_generation_t *g;
    while (tr_generator_free(e->generator) > 0 && (g = engine_next(e))) {
        if (g->admitted == 0)
            tr_serve_metrics_time(e->metrics, TR_TIME_QUEUE, tr_clock_sec() - g->job.since_sec);
        g->turn_sec = tr_clock_sec();
        if (tr_generator_admit(e->generator, &g->choices[g->admitted].text) == TR_OK)
            g->admitted++;
        else
            engine_finish(e, g, 400, tr_error_last()->message);
    }
}

/* Takes the new tokens of a text. */
static tr_status_t engine_extend(tr_choice_t *c) {
    const tr_text_t *text = &c->text;
    while (c->tokens.count < text->tokens.count && !c->out.is_stopped) {
        const size_t at = c->tokens.count;
        TR_TRY(tr_vec_push(&c->tokens, text->tokens.data[at]));
        if (text->logprobs >= 0) TR_TRY(tr_vec_push(&c->scores, text->scores.data[at]));
        TR_TRY(tr_detokenizer_add(&c->out, text->tokens.data[at]));
    }
    return text->stop != TR_STOP_NONE && !c->out.is_stopped ? tr_detokenizer_finish(&c->out)
                                                            : TR_OK;
}

/* Called in a step, for a new token or the end of a text. */
static void engine_take(void *self, tr_text_t *text) {
    tr_text_engine_t *e = self;
    tr_choice_t *c = (tr_choice_t *)text;
    tr_generation_t *g = c->generation;
    pthread_mutex_lock(&e->queue.lock);
    if (g->first_sec == 0) {
        g->first_sec = tr_clock_sec();
        tr_serve_metrics_time(e->metrics, TR_TIME_FIRST_TOKEN, g->first_sec - g->job.since_sec);
    }
    c->last_sec = tr_clock_sec();
    if (c->first_sec == 0) c->first_sec = c->last_sec;
    if (text->stop == TR_STOP_NOT_FINITE || engine_extend(c) != TR_OK) {
        g->job.status = 500; /* engine_sweep ends it */
        tr_snprintf(g->job.why, sizeof g->job.why, "%s",
                    text->stop == TR_STOP_NOT_FINITE ? "the scores of the next token are not finite"
                                                     : tr_error_last()->message);
    } else if (c->out.is_stopped || text->stop != TR_STOP_NONE) {
        tr_generator_drop(e->generator, text);
        c->finish_reason =
            c->out.is_stopped || text->stop == TR_STOP_END_OF_TEXT ? "stop" : "length";
        if (++g->ended == g->count) engine_finish(e, g, 200, NULL);
    }
    if (g->is_streamed) pthread_cond_signal(&g->job.changed);
    pthread_mutex_unlock(&e->queue.lock);
}

tr_status_t tr_text_engine_run(tr_text_engine_t *e) {
    tr_status_t status = TR_OK;
    pthread_mutex_lock(&e->queue.lock);
    while (status == TR_OK && tr_queue_wait(&e->queue)) {
        engine_sweep(e);
        engine_admit(e);
        pthread_mutex_unlock(&e->queue.lock);
        status = tr_generator_step(e->generator, engine_take, e);
        pthread_mutex_lock(&e->queue.lock);
    }
    while (e->queue.first)
        engine_finish(e, (tr_generation_t *)e->queue.first, 503,
                      status == TR_OK ? "the server is shutting down" : tr_error_last()->message);
    tr_queue_end(&e->queue,
                 status == TR_OK ? "the server is shutting down" : tr_error_last()->message);
    pthread_mutex_unlock(&e->queue.lock);
    return status;
}

tr_serve_load_t tr_text_engine_load(tr_text_engine_t *e) {
    tr_serve_load_t load = {0};
    double tokens = 0;
    pthread_mutex_lock(&e->queue.lock);
    for (const tr_job_t *job = e->queue.first; job; job = job->next) {
        const tr_generation_t *g = (const tr_generation_t *)job;
        load.running += g->admitted > 0;
        load.waiting += g->admitted == 0;
        for (size_t i = 0; i < g->admitted; i++)
            if (!g->choices[i].finish_reason)
                tokens += (double)(g->choices[i].text.ids.count + g->choices[i].tokens.count);
    }
    pthread_mutex_unlock(&e->queue.lock);
    load.cache_share = tokens / (double)(e->slots * e->context);
    return load;
}
