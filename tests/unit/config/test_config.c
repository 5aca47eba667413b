/* The configuration: types, ranges, sources and their order, problems, round trip, help. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "../../support/names.h"
#include "config/config.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    int64_t batch_size, micro_batch, cache;
    double rate, pause;
    bool shuffle;
    const char *train;
    int order;
} data_settings_t;

static const tr_config_field_t data_fields[] = {
    TR_FIELD_STRING(data_settings_t, train, "", "File of training data. FILE or FILE:GROUP."),
    TR_FIELD_INT(data_settings_t, batch_size, "64", 1, 65536, "Samples per step. Over all ranks."),
    TR_FIELD_AUTO_INT(data_settings_t, micro_batch, "auto", 1, 65536, "Samples per micro-batch."),
    TR_FIELD_BYTES(data_settings_t, cache, "1M", 4096, 1073741824, "Bytes to keep."),
    TR_FIELD_FLOAT(data_settings_t, rate, "0.5", 0, 1, "A rate of 0.5 or so. Between bounds."),
    TR_FIELD_DURATION(data_settings_t, pause, "10min", 1, 86400, "Time between looks."),
    TR_FIELD_BOOL(data_settings_t, shuffle, "yes", "Shuffle."),
    TR_FIELD_ENUM(data_settings_t, order, "forward", "forward|backward|random", "Order."),
};
static const tr_config_table_t data_table = {"data", data_fields, TR_COUNT(data_fields),
                                             sizeof(data_settings_t)};

typedef struct {
    const char *device;
    int64_t seed;
} top_settings_t;

static const tr_config_field_t top_fields[] = {
    TR_FIELD_STRING(top_settings_t, device, "auto", "Device."),
};
static const tr_config_table_t top_table = {"", top_fields, TR_COUNT(top_fields),
                                            sizeof(top_settings_t)};

static const tr_config_field_t train_fields[] = {
    TR_FIELD_INT(top_settings_t, seed, "1", 0, 1e18, "Seed."),
};
static const tr_config_table_t train_table = {"train", train_fields, TR_COUNT(train_fields),
                                              sizeof(top_settings_t)};

typedef struct {
    const char *layers;
    int64_t depth;
} model_settings_t;

static const tr_config_field_t model_fields[] = {
    TR_FIELD_STRING(model_settings_t, layers, "", "Layers, as text.")};
static const tr_config_field_t net_fields[] = {
    TR_FIELD_INT(model_settings_t, depth, "3", 1, 0, "Depth. Any."),
    TR_FIELD_STRING(model_settings_t, layers, "", "The same key again.")};
static const tr_config_table_t model_table = {"model", model_fields, 1, sizeof(model_settings_t)};
static const tr_config_table_t net_table = {"model", net_fields, 2, sizeof(model_settings_t)};

/* The one without a section comes last, to see that it is written first. */
static const tr_config_table_t *const tables[] = {&data_table, &train_table, &model_table,
                                                  &net_table, &top_table};

static tr_config_t *config;

static int set_up(void **state) {
    return tr_config_create(tables, TR_COUNT(tables), &config) != TR_OK;
}

static int tear_down(void **state) {
    tr_config_destroy(&config);
    tr_config_destroy(&config);
    return tr_mem_stats().live != 0;
}

static void load(const char *text) {
    OK(tr_config_load_text(config, "my.ini", text, strlen(text)));
}

static const data_settings_t *data(void) {
    static data_settings_t settings;
    tr_config_read(config, &data_table, &settings);
    return &settings;
}

/* The message of tr_config_check; "" where all is well. */
static const char *problems(void) {
    tr_error_clear();
    tr_status_t status = tr_config_check(config);
    assert_int_equal(status, tr_error_last()->code);
    assert_true(status == TR_OK || status == TR_ERR_CONFIG);
    return tr_error_last()->message;
}

/* One of them, each of which is a line, has these names. */
static void expect_problem(const char *names) {
    if (!names_in_line(problems(), names))
        fail_msg("expected '%s' in a line of: %s", names, problems());
}

static void defaults(void **state) {
    assert_string_equal(problems(), "");
    assert_int_equal(data()->batch_size, 64);
    assert_int_equal(data()->micro_batch, -1);
    assert_int_equal(data()->cache, 1 << 20);
    assert_true(data()->rate == 0.5 && data()->pause == 600 && data()->shuffle);
    assert_string_equal(data()->train, "");
    assert_int_equal(data()->order, 0);
    assert_string_equal(tr_config_get(config, "data.pause"), "10min");
    assert_null(tr_config_get(config, "data.none"));
    assert_false(tr_config_is_set(config, "data.pause"));
}

static void every_type(void **state) {
    load("device = cpu\n[data]\ntrain = a b.h5\nbatch_size = 1_024\nmicro_batch = 8\ncache = "
         "64k\nrate = "
         "1e-3\n"
         "pause = 1h30min\nshuffle = off\norder = random\n[train]\nseed = 9007199254740993\n");
    assert_string_equal(problems(), "");
    assert_int_equal(data()->batch_size, 1024);
    assert_int_equal(data()->micro_batch, 8);
    assert_int_equal(data()->cache, 65536);
    assert_true(data()->rate == 1e-3 && data()->pause == 5400 && !data()->shuffle);
    assert_string_equal(data()->train, "a b.h5");
    assert_int_equal(data()->order, 2);
    assert_true(tr_config_is_set(config, "data.order"));
    top_settings_t top, train;
    tr_config_read(config, &top_table, &top);
    tr_config_read(config, &train_table, &train);
    assert_string_equal(top.device, "cpu");
    assert_true(train.seed == INT64_C(9007199254740993));
}

static void later_sources_win(void **state) {
    static char *environment[] = {"PATH=/bin",
                                  "TRAINER_DATA_BATCH_SIZE=3",
                                  "TRAINER_DEVICE=strict",
                                  "TRAINER_TEST_DATA=/x",
                                  "TRAINER_DATA_RATE=0.25",
                                  NULL};
    load("data.batch_size = 2\ndata.rate = 0.125\ndata.cache = 8k\n");
    OK(tr_config_load_environment(config, environment));
    OK(tr_config_set(config, "data.batch_size = 4 ", "command line"));
    assert_string_equal(problems(), "");
    assert_int_equal(data()->batch_size, 4);
    assert_true(data()->rate == 0.25);
    assert_int_equal(data()->cache, 8192);
    assert_string_equal(tr_config_get(config, "device"), "strict");
    OK(tr_config_set(config, "data.train=a=b # c", "command line"));
    assert_string_equal(data()->train, "a=b # c");
}

static void bad_values_name_all(void **state) {
    load("[data]\nbatch_size = many\nmicro_batch = 0\ncache = 1\nrate = 1.5\npause = 2 "
         "weeks\nshuffle = "
         "maybe\norder = randm\n");
    expect_problem("7");
    expect_problem("my.ini:2 & data.batch_size & 1 & 65536 & 'many' & 64");
    expect_problem("my.ini:3 & data.micro_batch & auto & 1 & 65536 & '0'");
    expect_problem("my.ini:4 & data.cache & 64k & 1.5G & 4k & 1G & '1'");
    expect_problem("my.ini:5 & data.rate & 0 & 1 & '1.5'");
    expect_problem("my.ini:6 & data.pause & 90s & 10min & 2h & 1s & 1d & '2 weeks'");
    expect_problem("my.ini:7 & data.shuffle & yes & no & 'maybe'");
    expect_problem("my.ini:8 & data.order & forward & backward & random & 'randm'");
    assert_int_equal(data()->batch_size, 64); /* values with a problem read as their default */
    assert_string_equal(problems(), problems());
}

static void problems_name_their_source(void **state) {
    static char *environment[] = {"TRAINER_DATA_BATCH_SIZE=x", "TRAINER_DATA_CASHE=1",
                                  "TRAINER_DATA_COLOUR=red",   "TRAINER_DEVCE=x",
                                  "TRAINER_HOME=/opt",         NULL};
    OK(tr_config_load_environment(config, environment));
    OK(tr_config_set(config, "data.batch_size=", "command line"));
    OK(tr_config_set(config, "verbose", "command line"));
    OK(tr_config_set(config, "data.train=a\001b", "command line"));
    expect_problem("7");
    expect_problem("TRAINER_DATA_BATCH_SIZE & data.batch_size & 'x'");
    expect_problem("TRAINER_DATA_CASHE & TRAINER_DATA_CACHE");
    expect_problem("TRAINER_DATA_COLOUR & trainer help");
    expect_problem("TRAINER_DEVCE & TRAINER_DEVICE");
    expect_problem("command line & data.batch_size & 1 & 65536");
    expect_problem("command line & section.key=value & 'verbose'");
    expect_problem("command line & data.train & UTF-8 & 0x01");
}

static void unknown_keys_get_a_hint(void **state) {
    load("[data]\nbach_size = 1\nseed = 2\ndevice = cpu\nwhatever_this_is = 3\n[dta]\nrate = "
         "1\n[train]\nbatch_size = 1\n"
         "data.rate = 1\n");
    expect_problem("my.ini:2 & 'data.bach_size' & data.batch_size");
    expect_problem("my.ini:3 & 'data.seed' & train.seed");
    expect_problem("my.ini:4 & 'data.device' & device?");
    expect_problem("my.ini:5 & 'data.whatever_this_is' & trainer help");
    expect_problem("my.ini:7 & 'dta.rate' & data.rate");
    expect_problem("my.ini:9 & 'train.batch_size' & data.batch_size");
    expect_problem("my.ini:10 & 'train.data.rate' & data.rate?");
}

static void doubles_are_found_in_one_file_only(void **state) {
    load("data.batch_size = 1\n[data]\nbatch_size = 2\n");
    load("[data]\nbatch_size = 3\n");
    expect_problem("1");
    expect_problem("my.ini:3 & data.batch_size & 1");
    assert_int_equal(data()->batch_size, 3);
}

static void swallowed_lines_are_explained(void **state) {
    load("[data]\nbatch_size = 1\n  rate = 0.1\n");
    expect_problem("my.ini:2 & data.batch_size & 1 & 65536 & '1\\nrate = 0.1'");
}

static void values_have_a_limit(void **state) {
    enum { LIMIT = 120000 };
    static char text[LIMIT + 64] = "data.train = \"";
    size_t start = strlen(text);
    memset(text + start, 'q', LIMIT + 1);
    text[start + LIMIT + 1] = '"';
    load(text);
    expect_problem("my.ini:1 & data.train & 120001 & 120000");
    assert_string_equal(data()->train, "");
}

static void many_problems_are_counted(void **state) {
    tr_str_t text = {0};
    for (int i = 0; i < 5000; i++) tr_str_printf(&text, "there_is_no_such_key_%d = 1\n", i);
    load(text.text);
    tr_str_free(&text);
    expect_problem("5000");
    expect_problem("my.ini:1 & 'there_is_no_such_key_0'");
    const char *rest = strrchr(problems(), '\n');
    assert_non_null(rest);
    rest += strcspn(rest, "0123456789");
    assert_true(atoi(rest) > 4900 && atoi(rest) < 5000);
}

static void tables_may_share_section_and_key(void **state) {
    load("[model]\nlayers = linear 10\ndepth = -7\n");
    assert_string_equal(problems(), "");
    model_settings_t a, b;
    tr_config_read(config, &model_table, &a);
    tr_config_read(config, &net_table, &b);
    assert_string_equal(a.layers, "linear 10");
    assert_string_equal(b.layers, "linear 10");
    assert_int_equal(b.depth, -7);
}

static void a_table_not_given_reads_as_defaults(void **state) {
    tr_config_t *empty = NULL;
    data_settings_t settings;
    OK(tr_config_create(NULL, 0, &empty));
    tr_config_read(empty, &data_table, &settings);
    assert_int_equal(settings.batch_size, 64);
    assert_string_equal(settings.train, "");
    tr_config_destroy(&empty);
}

static void bad_tables_are_refused(void **state) {
    static const tr_config_field_t bad_default[] = {
        TR_FIELD_INT(data_settings_t, batch_size, "0", 1, 8, "")};
    static const tr_config_field_t other_range[] = {
        TR_FIELD_INT(data_settings_t, batch_size, "64", 1, 8192, "")};
    const tr_config_table_t bad = {"data", bad_default, 1, sizeof(data_settings_t)};
    const tr_config_table_t other = {"data", other_range, 1, sizeof(data_settings_t)};
    tr_config_t *refused = NULL;
    const tr_config_table_t *const one[] = {&bad};
    assert_int_equal(tr_config_create(one, 1, &refused), TR_ERR_INTERNAL);
    assert_error_names("data.batch_size & '0'");
    const tr_config_table_t *const two[] = {&data_table, &other};
    assert_int_equal(tr_config_create(two, 2, &refused), TR_ERR_INTERNAL);
    assert_error_names("data.batch_size");
    assert_null(refused);
}

/* -- files ------------------------------------------------------------------------------------- */

static tr_status_t load_bytes(const char *bytes, size_t count) {
    char path[] = "/tmp/trainer-config-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
    tr_status_t status = tr_config_load_file(config, path);
    unlink(path);
    return status;
}

static void files_load(void **state) {
    assert_int_equal(load_bytes("data.rate = 0.75 # c\r\n", 22), TR_OK);
    assert_true(data()->rate == 0.75);
    assert_int_equal(load_bytes("", 0), TR_OK);
    assert_string_equal(problems(), "");
    assert_int_equal(load_bytes("data.rate = 7", 13), TR_OK);
    expect_problem("/tmp/trainer-config-");
    expect_problem(":1 & data.rate & 0 & 1 & '7'");
}

static void wrong_files_are_told_apart(void **state) {
    assert_int_equal(tr_config_load_file(config, "/nonexistent/my.ini"), TR_ERR_NOINPUT);
    assert_error_names("/nonexistent/my.ini");
    assert_int_equal(tr_config_load_file(config, "/dev/null/my.ini"), TR_ERR_NOINPUT);
    assert_int_equal(tr_config_load_file(config, "/tmp"), TR_ERR_CONFIG);
    assert_error_names("/tmp");
    assert_int_equal(load_bytes("\x89HDF\r\n\x1a\n", 8), TR_ERR_CONFIG);
    assert_error_names("/tmp/trainer-config- & data.train");
    assert_int_equal(tr_config_load_file(config, "/dev/zero"), TR_ERR_CONFIG);
    assert_string_equal(problems(), "");
}

static void a_run_folder_names_its_config(void **state) {
    char folder[] = "/tmp/trainer-config-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.ini", folder);
    fclose(fopen(path, "w"));
    assert_int_equal(tr_config_load_file(config, folder), TR_ERR_CONFIG);
    assert_error_names(path);
    unlink(path);
    rmdir(folder);
}

/* -- text out ---------------------------------------------------------------------------------- */

static void serialized_text_loads_the_same(void **state) {
    load(
        "device = strict\n[data]\nbatch_size = 1_000\npause = 2 h\n[model]\nlayers = conv 32 5,\n  "
        "relu,\n\n  linear 10\ndepth = 5\n");
    assert_int_equal(
        tr_config_set(config, "data.train= \"odd\" # name\n[x]\ny = 1", "command line"), TR_OK);
    tr_str_t text = {0}, again = {0};
    OK(tr_config_serialize(config, &text));
    assert_int_equal(strncmp(text.text, "device = strict\n\n[data]\n", 24), 0);
    assert_non_null(strstr(text.text, "\nlayers = conv 32 5,\n    relu,\n    linear 10\n"));
    tr_config_t *copy = NULL;
    OK(tr_config_create(tables, TR_COUNT(tables), &copy));
    OK(tr_config_load_text(copy, "copy", text.text, text.length));
    OK(tr_config_check(copy));
    static const char *const keys[] = {"device",          "train.seed", "data.train",
                                       "data.batch_size", "data.pause", "data.rate",
                                       "model.layers",    "model.depth"};
    for (size_t i = 0; i < TR_COUNT(keys); i++) {
        assert_string_equal(tr_config_get(copy, keys[i]), tr_config_get(config, keys[i]));
        assert_int_equal(tr_config_is_set(copy, keys[i]), tr_config_is_set(config, keys[i]));
    }
    OK(tr_config_serialize(copy, &again));
    assert_string_equal(again.text, text.text);
    tr_config_destroy(&copy);
    tr_str_free(&text);
    tr_str_free(&again);
}

static tr_status_t help(const char *key, tr_str_t *text) {
    tr_str_free(text);
    return tr_config_help(tables, TR_COUNT(tables), key, text);
}

static void help_tells(void **state) {
    tr_str_t text = {0};
    assert_int_equal(help(NULL, &text), TR_OK);
    assert_non_null(strstr(text.text, "[data]\n"));
    assert_non_null(strstr(text.text, "data.batch_size"));
    assert_non_null(strstr(text.text, "A rate of 0.5 or so\n"));
    assert_null(strstr(text.text, "Over all ranks"));
    assert_ptr_equal(strstr(text.text, "[model]"),
                     strrchr(text.text, '[')); /* shared by two tables, shown once, last */
    assert_int_equal(help("data", &text), TR_OK);
    assert_non_null(
        strstr(text.text, "data.batch_size = 64\n    Samples per step. Over all ranks.\n"));
    assert_true(names_in_line(text.text, "1 & 65536"));
    assert_true(names_in_line(text.text, "forward & backward & random"));
    assert_null(strstr(text.text, "train.seed"));
    assert_int_equal(help("data.rate", &text), TR_OK);
    static const char rate[] = "data.rate = 0.5\n    A rate of 0.5 or so. Between bounds.\n    ";
    assert_memory_equal(text.text, rate, sizeof rate - 1);
    assert_true(names_in_line(text.text + sizeof rate - 1, "0 & 1"));
    assert_int_equal(help("train.seed", &text), TR_OK);
    assert_names(text.text, "train.seed & 1 & 0");
    assert_int_equal(help("model.depth", &text), TR_OK);
    assert_null(strpbrk(strchr(text.text, '\n'), "0123456789")); /* it has no bounds */
    assert_int_equal(help("batch_size", &text), TR_OK);
    assert_ptr_equal(strstr(text.text, "data.batch_size = 64\n"), text.text);
    assert_int_equal(help("batch_siz", &text), TR_ERR_USAGE);
    assert_error_names("batch_siz & data.batch_size");
    assert_int_equal(help("", &text), TR_ERR_USAGE);
    tr_str_free(&text);
}

/* -- want of memory ---------------------------------------------------------------------------- */

/* Each allocation fails once: an error or a lost hint, never a leak or a crash. */
static void memory_runs_out_cleanly(void **state) {
    static const char text[] = "device = cpu\n[data]\nbatch_size = x\nbach_size = 1\npause = 1h\n";
    enum { ATTEMPTS = 120 };
    int64_t live = tr_mem_stats().live, calls = 0;
    int failed = 0;
    for (int nth = 1; nth <= ATTEMPTS; nth++) {
        tr_config_t *tried = NULL;
        tr_str_t out = {0};
        calls = tr_mem_stats().calls;
        tr_mem_fail_at(nth);
        tr_status_t status = tr_config_create(tables, TR_COUNT(tables), &tried);
        if (status == TR_OK) status = tr_config_load_text(tried, "t", text, sizeof text - 1);
        if (status == TR_OK) status = tr_config_set(tried, "data.cache=8k", "command line");
        if (status == TR_OK) status = tr_config_serialize(tried, &out);
        if (status == TR_OK) status = tr_config_check(tried);
        tr_mem_fail_at(0);
        calls = tr_mem_stats().calls - calls;
        tr_config_destroy(&tried);
        tr_str_free(&out);
        assert_true(status == TR_ERR_MEMORY || status == TR_ERR_CONFIG);
        failed += status == TR_ERR_MEMORY;
        assert_int_equal(tr_mem_stats().live, live);
    }
    assert_true(failed > 30);
    assert_true(calls <
                /* the last attempts had nothing to fail: all allocations have been tried */
                ATTEMPTS);
}

#define CONFIG_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(defaults),
        CONFIG_TEST(every_type),
        CONFIG_TEST(later_sources_win),
        CONFIG_TEST(bad_values_name_all),
        CONFIG_TEST(problems_name_their_source),
        CONFIG_TEST(unknown_keys_get_a_hint),
        CONFIG_TEST(doubles_are_found_in_one_file_only),
        CONFIG_TEST(swallowed_lines_are_explained),
        CONFIG_TEST(values_have_a_limit),
        CONFIG_TEST(many_problems_are_counted),
        CONFIG_TEST(tables_may_share_section_and_key),
        CONFIG_TEST(a_table_not_given_reads_as_defaults),
        CONFIG_TEST(bad_tables_are_refused),
        CONFIG_TEST(files_load),
        CONFIG_TEST(wrong_files_are_told_apart),
        CONFIG_TEST(a_run_folder_names_its_config),
        CONFIG_TEST(serialized_text_loads_the_same),
        CONFIG_TEST(help_tells),
        CONFIG_TEST(memory_runs_out_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
