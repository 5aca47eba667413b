/* The table of names that other programs use. */
#include "elsewhere.h"
#include "base/mem.h"
#include "base/str.h"

#include <string.h>

#define ELSEWHERE(names, key, text) {names, key, text},
static const tr_elsewhere_t elsewhere[] = {
#include "elsewhere.def"
};
#undef ELSEWHERE

const tr_elsewhere_t *tr_elsewhere_at(size_t index) {
    return index < TR_COUNT(elsewhere) ? &elsewhere[index] : NULL;
}

const tr_elsewhere_t *tr_elsewhere_find(const char *name) {
    char word[64];
    name += strspn(name, "-");
    if (!*name || strlen(name) >= sizeof word) return NULL;
    for (size_t i = 0; i <= strlen(name); i++)
        word[i] = name[i] == '-' || name[i] == ' ' ? '_' : name[i];
    const char *const dot = strrchr(word, '.'), *const last = dot ? dot + 1 : word;
    const char *const tries[] = {word, last};
    for (size_t t = 0; t < TR_COUNT(tries) && *tries[t]; t++)
        for (size_t i = 0; i < TR_COUNT(elsewhere); i++)
            if (tr_has_word(elsewhere[i].names, tries[t])) return &elsewhere[i];
    return NULL;
}
