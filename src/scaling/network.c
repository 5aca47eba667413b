/* The measured network: tables of all-reduce times, and a link fitted to them. */
#include "forecast_int.h"

#include <math.h>
#include <string.h>

/* -- reading ----------------------------------------------------------------------------------- */

static tr_status_t network_read_table(const tr_source_t *from, const json_t *file,
                                      tr_network_table_t *out) {
    const json_t *sizes, *entry;
    size_t i;
    TR_TRY(tr_source_int(from, file, "ranks", 1, &out->ranks));
    TR_TRY(tr_source_int(from, file, "nodes", 1, &out->nodes));
    TR_TRY(tr_source_list(from, file, "sizes", &sizes));
    json_array_foreach(sizes, i, entry) {
        tr_network_size_t size;
        TR_TRY(tr_source_number(from, entry, "bytes", 1, &size.bytes));
        TR_TRY(tr_source_number(from, entry, "median_us", 0, &size.sec[TR_NETWORK_MEDIAN]));
        TR_TRY(tr_source_number(from, entry, "p90_us", 0, &size.sec[TR_NETWORK_P90]));
        for (int s = 0; s < TR_NETWORK_STATS; s++) size.sec[s] *= 1e-6;
        if (i > 0 && size.bytes <= out->sizes.data[i - 1].bytes)
            return TR_FAIL(TR_ERR_DATA, "%s: the sizes do not ascend at %g bytes", from->path,
                           size.bytes);
        TR_TRY(tr_vec_push(&out->sizes, size));
    }
    return TR_OK;
}

static tr_status_t network_add_file(const char *path, tr_network_t *n) {
    const tr_source_t from = {path, "trainer bench allreduce --json FILE"};
    tr_network_table_t table = {0};
    json_t *file = NULL;
    TR_TRY(tr_source_open(&from, &file));
    tr_status_t status = network_read_table(&from, file, &table);
    const char *engine = json_string_value(json_object_get(file, "engine"));
    n->is_polled |= engine && strstr(engine, "poll");
    if (status == TR_OK) status = tr_vec_push(&n->tables, table);
    if (status != TR_OK) tr_vec_free(&table.sizes);
    json_decref(file);
    return status;
}

void tr_network_free(tr_network_t *n) {
    for (size_t i = 0; i < n->tables.count; i++) tr_vec_free(&n->tables.data[i].sizes);
    tr_vec_free(&n->tables);
}

/* -- the link ---------------------------------------------------------------------------------- */

/* The members of the reduction: nodes, or the ranks of one node. */
static int network_members_of(const tr_network_table_t *table) {
    return table->nodes > 1 ? table->nodes : table->ranks;
}

/* The time of an algorithm is latency * steps + sec_per_byte * bytes. */
typedef struct {
    double steps, bytes;
} cost_t;

static double network_sec_of(const tr_link_t *link, cost_t cost) {
    return link->latency_sec * cost.steps + link->sec_per_byte * cost.bytes;
}

static cost_t network_better_cost(const tr_link_t *link, int ranks, double bytes) {
    const double p = ranks, rounds = ceil(log2(p));
    const cost_t ring = {2 * (p - 1), 2 * (p - 1) / p * bytes}, tree = {rounds, rounds * bytes};
    return network_sec_of(link, ring) < network_sec_of(link, tree) ? ring : tree;
}

double tr_link_allreduce_sec(const tr_link_t *link, int ranks, double bytes) {
    return ranks > 1 ? network_sec_of(link, network_better_cost(link, ranks, bytes)) : 0;
}

/* Least squares of the relative errors, with the algorithm that is faster with `link` for each
 * measurement. */
static tr_link_t network_fit_once(const tr_network_t *n, int stat, const tr_link_t *link) {
    double ss = 0, sb = 0, bb = 0, s1 = 0, b1 = 0;
    for (size_t t = 0; t < n->tables.count; t++) {
        const tr_network_table_t *table = &n->tables.data[t];
        for (size_t i = 0; i < table->sizes.count && network_members_of(table) > 1; i++) {
            const tr_network_size_t *size = &table->sizes.data[i];
            const double sec = fmax(size->sec[stat], 1e-9);
            const cost_t cost = network_better_cost(link, network_members_of(table), size->bytes);
            const double s = cost.steps / sec, b = cost.bytes / sec;
            ss += s * s, sb += s * b, bb += b * b, s1 += s, b1 += b;
        }
    }
    const double det = ss * bb - sb * sb;
    tr_link_t fit = {s1 / ss, b1 / bb};
    if (det > 1e-9 * ss * bb)
        fit = (tr_link_t){(s1 * bb - b1 * sb) / det, (b1 * ss - s1 * sb) / det};
    if (fit.latency_sec < 0) fit = (tr_link_t){0, b1 / bb};
    if (fit.sec_per_byte < 0) fit = (tr_link_t){s1 / ss, 0};
    return fit;
}

static double network_relative_error(const tr_network_t *n) {
    double squares = 0, count = 0;
    for (size_t t = 0; t < n->tables.count; t++) {
        const tr_network_table_t *table = &n->tables.data[t];
        for (size_t i = 0; i < table->sizes.count && network_members_of(table) > 1; i++, count++) {
            const tr_network_size_t *size = &table->sizes.data[i];
            const double sec = fmax(size->sec[TR_NETWORK_MEDIAN], 1e-9);
            const double fitted = tr_link_allreduce_sec(&n->link[TR_NETWORK_MEDIAN],
                                                        network_members_of(table), size->bytes);
            squares += (fitted / sec - 1) * (fitted / sec - 1);
        }
    }
    return sqrt(squares / count);
}

static tr_status_t network_fit(tr_network_t *n) {
    bool found = false;
    for (size_t t = 0; t < n->tables.count; t++) found |= n->tables.data[t].ranks > 1;
    if (!found)
        return TR_FAIL(TR_ERR_DATA, "the network tables are of one rank: run `trainer bench "
                                    "allreduce --json FILE` on two ranks or more");
    for (int stat = 0; stat < TR_NETWORK_STATS; stat++) {
        n->link[stat] = (tr_link_t){1e-6, 1e-9};
        for (int i = 0; i < 20; i++) n->link[stat] = network_fit_once(n, stat, &n->link[stat]);
    }
    n->error = network_relative_error(n);
    return TR_OK;
}

tr_status_t tr_network_read(const char *paths, tr_network_t *out) {
    char *list = NULL, *rest = NULL;
    tr_status_t status = TR_OK;
    *out = (tr_network_t){0};
    TR_TRY(tr_strdup(paths, &list));
    for (char *path = strtok_r(list, ",", &rest); path && status == TR_OK;
         path = strtok_r(NULL, ",", &rest))
        status = network_add_file(path, out);
    tr_free(&list);
    if (status == TR_OK) status = network_fit(out);
    if (status != TR_OK) tr_network_free(out);
    return status;
}

/* -- the time of a size ------------------------------------------------------------------------ */

/* Linear interpolation between sizes; below the first size its time, above the last size its
 * bandwidth. */
static double network_interpolate(const tr_network_table_t *table, double bytes, int stat) {
    const tr_network_size_t *size = table->sizes.data, *last = &size[table->sizes.count - 1];
    if (bytes <= size->bytes) return size->sec[stat];
    if (bytes >= last->bytes) return last->sec[stat] * bytes / last->bytes;
    while (size[1].bytes < bytes) size++;
    const double part = (bytes - size[0].bytes) / (size[1].bytes - size[0].bytes);
    return size[0].sec[stat] + part * (size[1].sec[stat] - size[0].sec[stat]);
}

double tr_network_allreduce_sec(const tr_network_t *n, int members, double bytes,
                                tr_network_stat_t stat, bool *out_measured) {
    const tr_network_table_t *found = NULL;
    for (size_t t = 0; t < n->tables.count; t++)
        if (n->tables.data[t].ranks == members && network_members_of(&n->tables.data[t]) == members)
            found = &n->tables.data[t];
    *out_measured = found || members == 1;
    if (members == 1) return 0;
    return found ? network_interpolate(found, bytes, stat)
                 : tr_link_allreduce_sec(&n->link[stat], members, bytes);
}

bool tr_network_measured_sec(const tr_network_t *n, int ranks, int nodes, double bytes,
                             tr_network_stat_t stat, double *out_sec) {
    for (size_t t = 0; t < n->tables.count; t++) {
        if (n->tables.data[t].ranks != ranks || n->tables.data[t].nodes != nodes) continue;
        *out_sec = network_interpolate(&n->tables.data[t], bytes, stat);
        return true;
    }
    return false;
}
