/*
 * Fuzzes the configuration: any bytes as an ini file must give values or problems, and what is then
 * written
 * must read back the same. Bytes up to the first 0xFF go through tr_config_set instead, so that
 * values no
 * file can hold are tried too.
 *
 *   clang -g -O1 -std=gnu11 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -Iinclude
 *   tools/fuzz/fuzz_ini.c
 * src/base/[a-z]*.c src/config/[a-z]*.c -lm -lpthread -o fuzz_ini
 *   ./fuzz_ini -max_total_time=60 -max_len=4096 -dict=tools/fuzz/ini.dict [CORPUS]
 */
#include "config/config.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

typedef struct {
    int64_t whole, sized, automatic;
    double number, time;
    bool flag;
    const char *text, *layers;
    int choice;
} settings_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_INT(settings_t, whole, "1", -100, 1e18, "Whole."),
    TR_FIELD_BYTES(settings_t, sized, "64k", 0, 1e12, "Bytes."),
    TR_FIELD_AUTO_INT(settings_t, automatic, "auto", 1, 9, "Auto."),
    TR_FIELD_FLOAT(settings_t, number, "0.5", -1e300, 1e300, "Number."),
    TR_FIELD_DURATION(settings_t, time, "90s", 0, 1e9, "Time."),
    TR_FIELD_BOOL(settings_t, flag, "no", "Flag."),
    TR_FIELD_STRING(settings_t, text, "", "Text."),
    TR_FIELD_ENUM(settings_t, choice, "a", "a|b|long-one", "Choice."),
};
static const tr_config_field_t loose_fields[] = {
    TR_FIELD_STRING(settings_t, layers, "", "Layers.")};
static const tr_config_table_t table = {"s", fields, TR_COUNT(fields), sizeof(settings_t)};
static const tr_config_table_t loose = {"", loose_fields, TR_COUNT(loose_fields),
                                        sizeof(settings_t)};
static const tr_config_table_t *const tables[] = {&table, &loose};

static void demand(bool holds) {
    if (!holds) __builtin_trap();
}

static tr_config_t *fresh(void) {
    tr_config_t *config = NULL;
    demand(tr_config_create(tables, TR_COUNT(tables), &config) == TR_OK);
    return config;
}

static void set_from_bytes(tr_config_t *config, const uint8_t *bytes, size_t count) {
    tr_str_t assignment = {0};
    tr_str_append_bytes(&assignment, (const char *)bytes, count);
    demand(tr_config_set(config, assignment.text, "command line") == TR_OK);
    tr_str_free(&assignment);
}

static void check_ranges(const tr_config_t *config) {
    settings_t s;
    tr_config_read(config, &table, &s);
    demand(s.whole >= -100 && s.sized >= 0 && s.automatic >= -1 && s.automatic <= 9 &&
           s.automatic != 0);
    demand(isfinite(s.number) && s.time >= 0 && s.time <= 1e9 && s.choice >= 0 && s.choice <= 2 &&
           s.text);
}

static void check_round_trip(const tr_config_t *config) {
    tr_str_t text = {0}, again = {0};
    tr_config_t *copy = fresh();
    demand(tr_config_serialize(config, &text) == TR_OK);
    demand(tr_config_load_text(copy, "copy", text.text, text.length) == TR_OK);
    demand(tr_config_check(copy) == TR_OK);
    demand(strcmp(tr_config_get(copy, "s.text"), tr_config_get(config, "s.text")) == 0);
    demand(strcmp(tr_config_get(copy, "layers"), tr_config_get(config, "layers")) == 0);
    demand(tr_config_serialize(copy, &again) == TR_OK && strcmp(text.text, again.text) == 0);
    tr_config_destroy(&copy);
    tr_str_free(&text);
    tr_str_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    int64_t live = tr_mem_stats().live;
    tr_config_t *config = fresh();
    const uint8_t *mark = bytes ? memchr(data, 0xFF, bytes) : NULL;
    if (mark) {
        set_from_bytes(config, data, (size_t)(mark - data));
        bytes -= (size_t)(mark + 1 - data);
        data = mark + 1;
    }
    demand(tr_config_load_text(config, "fuzz.ini", (const char *)data, bytes) == TR_OK);
    tr_status_t status = tr_config_check(config);
    demand(status == TR_OK || status == TR_ERR_CONFIG);
    check_ranges(config);
    check_round_trip(config);
    tr_config_destroy(&config);
    demand(tr_mem_stats().live == live);
    return 0;
}
