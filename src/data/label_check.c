/* Labels of data.valid or data.test that do not occur in data.train. */
#include "shared.h"
#include "trainer/log.h"

/* Appends the classes that occur, "0 to 9, 255"; the least and the largest, -1: none. */
static void labels_list(const tr_dataset_info_t *info, tr_str_t *out, int64_t *out_least,
                        int64_t *out_most) {
    enum { SHOWN = 8 };
    int runs = 0;
    *out_least = *out_most = -1;
    for (int64_t c = 0; c < info->classes; c++) {
        const int64_t first = c;
        if (info->label_count[c] == 0) continue;
        while (c + 1 < info->classes && info->label_count[c + 1] > 0) c++;
        if (runs == 0) *out_least = first;
        *out_most = c;
        if (runs++ >= SHOWN) continue;
        tr_str_printf(out, runs > 1 ? ", %lld" : "%lld", (long long)first);
        if (c > first) tr_str_printf(out, c > first + 1 ? " to %lld" : ", %lld", (long long)c);
    }
    if (runs == 0) tr_str_append(out, "none");
    if (runs > SHOWN) tr_str_append(out, ", ...");
}

tr_status_t tr_labels_check(const tr_dataset_info_t *train, const tr_dataset_info_t *held,
                            tr_split_t split, bool are_given) {
    const char *name = tr_split_name(split);
    int64_t all = 0, unseen = 0, least, most, held_least, held_most;
    tr_str_t of_train = {0}, of_held = {0};
    if (!train->label_count || !held->label_count) return TR_OK;
    if (train->is_one_hot && held->is_one_hot && train->classes != held->classes)
        return TR_FAIL(TR_ERR_DATA,
                       "data.%s (%s) has one-hot labels of %lld columns, and data.train (%s) of "
                       "%lld: write the same columns in both, also if a class does not occur",
                       name, held->description, (long long)held->classes, train->description,
                       (long long)train->classes);
    for (int64_t c = 0; c < held->classes; c++) {
        all += held->label_count[c];
        if (c >= train->classes || train->label_count[c] == 0) unseen += held->label_count[c];
    }
    labels_list(train, &of_train, &least, &most);
    labels_list(held, &of_held, &held_least, &held_most);
    /* more classes than the model has outputs are an error anyway */
    const bool is_error = held->classes > train->classes || (split == TR_SPLIT_VALID && !are_given),
               are_shifted = held_least != least && held_least - least == held_most - most,
               are_far = held_most >= 2 * (most + 1), are_many = (double)unseen >= (double)all / 10;
    tr_status_t status = TR_OK;
    if (unseen > 0 && is_error && (are_shifted || are_far || are_many))
        status = TR_FAIL(
            TR_ERR_DATA,
            "data.%s (%s) has the labels %s, but data.train (%s) has %s: %lld of %lld labels do "
            "not occur there. Write the same values in both files (data.label_values may list "
            "them). If they are the same, and data.train lacks classes, set data.classes = %lld",
            name, held->description, of_held.text, train->description, of_train.text,
            (long long)unseen, (long long)all, (long long)max64(train->classes, held->classes));
    else if (unseen > 0)
        TR_WARN("data.%s (%s): %lld of %lld labels do not occur in data.train (%s): nothing is "
                "learned of their classes. The labels are %s here, and %s there",
                name, held->description, (long long)unseen, (long long)all, train->description,
                of_held.text, of_train.text);
    else if (held_least == held_most && least < most && all > 1)
        TR_WARN("data.%s (%s) has only the class %s, and data.train (%s) has %s: shuffle the "
                "samples before you divide them",
                name, held->description, of_held.text, train->description, of_train.text);
    tr_str_free(&of_train);
    tr_str_free(&of_held);
    return status;
}
