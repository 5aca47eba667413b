/* Help. All of it is generated from the tables and registries, so that it is always current. */
#include "cmd.h"
#include "trainer/data.h"
#include "device/device.h"
#include "base/mem.h"
#include "trainer/model.h"
#include "trainer/optim.h"
#include "trainer/session.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct {
    const char *name, *usage, *help;
    const tr_layer_t *layer; /* its arguments are also shown; NULL: not a layer */
} entry_t;

/* A registry; `at` returns false after the last entry. */
typedef struct {
    const char *topic, *title;
    bool (*at)(size_t index, entry_t *out);
} list_t;

static bool layer_at(size_t i, entry_t *out) {
    size_t count;
    const tr_layer_t *const *all = tr_layer_list(&count);
    if (i < count) *out = (entry_t){all[i]->name, NULL, all[i]->help, all[i]};
    return i < count;
}
static bool model_at(size_t i, entry_t *out) {
    const tr_model_t *model = tr_model_at(i);
    if (model) *out = (entry_t){model->name, NULL, model->help, NULL};
    return model != NULL;
}
static bool optimizer_at(size_t i, entry_t *out) {
    const tr_optimizer_t *optimizer = tr_optimizer_at(i);
    if (optimizer) *out = (entry_t){optimizer->name, NULL, optimizer->help, NULL};
    return optimizer != NULL;
}
static bool schedule_at(size_t i, entry_t *out) {
    const char *help = NULL, *name = tr_schedule_at(i, &help);
    if (name) *out = (entry_t){name, NULL, help, NULL};
    return name != NULL;
}
static bool dataset_at(size_t i, entry_t *out) {
    const tr_dataset_ops_t *dataset = tr_dataset_at(i);
    if (dataset) *out = (entry_t){dataset->name, NULL, dataset->help, NULL};
    return dataset != NULL;
}
static bool device_at(size_t i, entry_t *out) {
    size_t count;
    const tr_backend_t *const *all = tr_backend_list(&count);
    if (i < count) *out = (entry_t){all[i]->name, NULL, all[i]->help, NULL};
    return i < count;
}
static bool command_at(size_t i, entry_t *out) {
    size_t count;
    const cmd_command_t *all = cmd_list(&count);
    if (i < count) *out = (entry_t){all[i].name, all[i].usage, all[i].help, NULL};
    return i < count;
}

static const list_t lists[] = {
    {"commands", "What trainer can do: trainer NAME ...", command_at},
    {"layers", "Layers for model.layers, with model.type = sequential", layer_at},
    {"models", "model.type", model_at},
    {"optimizers", "optimizer.type", optimizer_at},
    {"schedules", "schedule.type", schedule_at},
    {"datasets", "data.format", dataset_at},
    {"devices", "device", device_at},
};

static int width(void) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 40) return 100;
    return size.ws_col > 120 ? 120 : size.ws_col;
}

/* Wraps `text` to `columns`, with each line indented by `indent`; the first line starts at column
 * `at`. */
static void print_wrapped(const char *text, int at, int indent, int columns) {
    bool first = at >= indent;
    printf("%*s", first ? 0 : indent - at, "");
    at = first ? at : indent;
    for (bool word_before = false; *text;) {
        int length = (int)strcspn(text, " \n");
        if (word_before && at + 1 + length > columns) {
            printf("\n%*s", indent, "");
            at = indent;
            word_before = false;
        }
        at += printf("%s%.*s", word_before ? " " : "", length, text);
        word_before = length > 0 || word_before;
        text += length;
        if (*text == '\n' && text[1]) {
            printf("\n%*s", indent, "");
            at = indent;
            word_before = false;
        }
        if (*text) text++;
    }
    printf("\n");
}

static void print_usage(const entry_t *entry) {
    tr_str_t usage = {0};
    if (entry->layer)
        tr_layer_usage(entry->layer, &usage);
    else
        tr_str_printf(&usage, "%s%s%s", entry->name, entry->usage && *entry->usage ? " " : "",
                      entry->usage ? entry->usage : "");
    printf("  %s\n", usage.text ? usage.text : entry->name);
    tr_str_free(&usage);
}

static void print_fields(const char *title, const tr_config_field_t *fields, int count,
                         int columns) {
    int longest = 0;
    for (int i = 0; i < count; i++)
        if ((int)strlen(fields[i].name) > longest) longest = (int)strlen(fields[i].name);
    if (count) printf("\n%s", title);
    for (int i = 0; i < count; i++) {
        int at = printf("      %-*s  ", longest, fields[i].name);
        print_wrapped(fields[i].help, at, at, columns);
    }
}

static void print_common_fields(int columns) {
    int count;
    const tr_config_field_t *fields = tr_layer_common_fields(&count);
    print_fields("  attributes that every layer accepts, as name=value\n", fields, count, columns);
}

static void print_entry(const entry_t *entry, int columns) {
    print_usage(entry);
    print_wrapped(entry->help ? entry->help : "", 0, 6, columns);
}

static void print_list(const list_t *list) {
    entry_t entry;
    printf("%s\n\n", list->title);
    for (size_t i = 0; list->at(i, &entry); i++) print_entry(&entry, width());
    if (list->at == layer_at) print_common_fields(width());
}

/* Names and first sentences in two columns. */
static void print_brief(const list_t *list) {
    entry_t entry;
    int longest = 0, columns = width();
    for (size_t i = 0; list->at(i, &entry); i++)
        if ((int)strlen(entry.name) > longest) longest = (int)strlen(entry.name);
    for (size_t i = 0; list->at(i, &entry); i++) {
        char sentence[256];
        snprintf(sentence, sizeof sentence, "%.*s", (int)strcspn(entry.help, "\n"), entry.help);
        int at = printf("  %-*s  ", longest, entry.name);
        print_wrapped(sentence, at, at, columns);
    }
}

static tr_status_t print_overview(void) {
    const tr_config_table_t *const *tables;
    size_t count;
    TR_TRY(tr_all_tables(&tables, &count));
    printf("trainer %s: trains neural networks from HDF5 data on one or many nodes\n\n"
           "  mpirun -np 4 trainer configs/mnist_cnn.ini data.train=mnist.h5\n"
           "  srun trainer CONFIG.ini [key=value ...]\n\nCommands\n",
           cmd_version);
    print_brief(&lists[0]);
    printf("\n"
           "Help\n"
           "  trainer COMMAND --help    arguments and options of a command\n"
           "  trainer help KEY          a key such as data.batch_size\n"
           "  trainer help SECTION      all keys of a section:");
    for (size_t i = 0; i < count; i++) {
        bool repeated = !*tables[i]->section;
        for (size_t j = 0; j < i; j++)
            repeated = repeated || strcmp(tables[j]->section, tables[i]->section) == 0;
        if (!repeated) printf(" %s", tables[i]->section);
    }
    printf("\n  trainer help keys         all keys\n  trainer help LIST         one of:");
    for (size_t i = 1; i < TR_COUNT(lists); i++) printf(" %s", lists[i].topic);
    printf("\n");
    return TR_OK;
}

void cmd_help_command(const cmd_command_t *command) {
    printf("trainer %s%s%s\n\n", command->name, *command->usage ? " " : "", command->usage);
    print_wrapped(command->help, 0, 0, width());
    if (command->run != cmd_import) return;
    tr_str_t list = {0};
    cmd_import_list(&list);
    printf("%s\n", list.text ? list.text : "");
    tr_str_free(&list);
}

static void print_whole(const list_t *list, const entry_t *entry) {
    printf("%s\n\n", list->title);
    print_entry(entry, width());
    if (!entry->layer) return;
    print_fields("", entry->layer->fields, entry->layer->field_count, width());
    print_common_fields(width());
}

/* The entries of that name: "conv", "adamw"; "linear" is a layer and a schedule. */
static bool print_named(const char *name) {
    bool found = false;
    entry_t entry;
    for (size_t l = 1; l < TR_COUNT(lists); l++)
        for (size_t i = 0; lists[l].at(i, &entry); i++)
            if (strcmp(entry.name, name) == 0) {
                if (found) printf("\n");
                print_whole(&lists[l], &entry);
                found = true;
            }
    return found;
}

static tr_status_t fail_unknown(const char *name) {
    const char *names[256];
    size_t count = 0;
    entry_t entry;
    for (size_t l = 0; l < TR_COUNT(lists); l++) {
        names[count++] = lists[l].topic;
        for (size_t i = 0; count < TR_COUNT(names) - TR_COUNT(lists) && lists[l].at(i, &entry); i++)
            names[count++] = entry.name;
    }
    const char *nearest = tr_nearest(name, names, count);
    if (!nearest) return tr_error_last()->code; /* from tr_config_help, with the nearest key */
    return TR_FAIL(TR_ERR_USAGE, "no help on '%s'; did you mean '%s'?", name, nearest);
}

static tr_status_t print_keys(const char *name) {
    const tr_config_table_t *const *tables;
    size_t count;
    tr_str_t text = {0};
    TR_TRY(tr_all_tables(&tables, &count));
    tr_status_t status = tr_config_help(tables, count, name, &text);
    if (status == TR_OK && text.text) fputs(text.text, stdout);
    if (status == TR_OK) status = text.status;
    tr_str_free(&text);
    return status == TR_ERR_USAGE ? fail_unknown(name) : status;
}

static bool is_section(const char *name) {
    const tr_config_table_t *const *tables;
    size_t count;
    if (tr_all_tables(&tables, &count) != TR_OK) return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(tables[i]->section, name) == 0) return true;
    return false;
}

tr_status_t cmd_help_print(const char *name) {
    if (!*name) return print_overview();
    const cmd_command_t *command = cmd_find(name);
    if (command) {
        cmd_help_command(command);
        if (!is_section(name)) return TR_OK; /* "data" and "train" are both */
        printf("\n");
        return print_keys(name);
    }
    for (size_t l = 0; l < TR_COUNT(lists); l++)
        if (strcmp(lists[l].topic, name) == 0) {
            print_list(&lists[l]);
            return TR_OK;
        }
    if (print_named(name)) {
        if (!is_section(name)) return TR_OK; /* "cuda" is both */
        printf("\n");
    }
    TR_TRY(print_keys(strcmp(name, "keys") == 0 ? NULL : name));
    return TR_OK;
}

tr_status_t cmd_help(int argc, char **argv) {
    if (argc > 2) return TR_FAIL(TR_ERR_USAGE, "trainer help takes one name, found %d", argc - 1);
    return cmd_help_print(argc == 2 ? argv[1] : "");
}
