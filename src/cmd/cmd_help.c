/* Help. All of it is generated from the tables and registries, so that it is always current. */
#include "help.h"
#include "base/record_fields.h"
#include "config/elsewhere.h"
#include "data/data.h"
#include "device/device.h"
#include "base/mem.h"
#include "monitor/metric.h"
#include "optim/optim.h"
#include "trainer/session.h"

#include <stdio.h>
#include <string.h>

static bool help_layer_at(size_t i, help_entry_t *out) {
    size_t count;
    const tr_layer_t *const *all = tr_layer_list(&count);
    if (i < count)
        *out = (help_entry_t){.name = all[i]->name, .help = all[i]->help, .layer = all[i]};
    return i < count;
}
static bool help_model_at(size_t i, help_entry_t *out) {
    const tr_model_t *model = tr_model_at(i);
    if (model) *out = (help_entry_t){.name = model->name, .help = model->help};
    return model != NULL;
}
static bool help_optimizer_at(size_t i, help_entry_t *out) {
    const tr_optimizer_t *optimizer = tr_optimizer_at(i);
    if (optimizer) *out = (help_entry_t){.name = optimizer->name, .help = optimizer->help};
    return optimizer != NULL;
}
static bool help_schedule_at(size_t i, help_entry_t *out) {
    const char *help = NULL, *name = tr_schedule_at(i, &help);
    if (name) *out = (help_entry_t){.name = name, .help = help};
    return name != NULL;
}
static bool help_dataset_at(size_t i, help_entry_t *out) {
    const tr_dataset_ops_t *dataset = tr_dataset_at(i);
    if (dataset) *out = (help_entry_t){.name = dataset->name, .help = dataset->help};
    return dataset != NULL;
}
static bool help_device_at(size_t i, help_entry_t *out) {
    size_t count;
    const tr_backend_t *const *all = tr_backend_list(&count);
    if (i < count) *out = (help_entry_t){.name = all[i]->name, .help = all[i]->help};
    return i < count;
}
static bool help_command_at(size_t i, help_entry_t *out) {
    size_t count;
    const cmd_command_t *const *all = cmd_list(&count);
    if (i < count)
        *out = (help_entry_t){.name = all[i]->name, .help = all[i]->summary, .command = all[i]};
    return i < count;
}

static bool help_importer_at(size_t i, help_entry_t *out) {
    size_t count;
    const tr_importer_t *const *all = tr_importer_list(&count);
    if (i < count)
        *out = (help_entry_t){.name = all[i]->name, .help = all[i]->help, .importer = all[i]};
    return i < count;
}

static const help_list_t lists[] = {
    {"commands", "What trainer can do: trainer NAME ...", help_command_at},
    {"layers", "Layers for model.layers, with model.type = sequential", help_layer_at},
    {"models", "model.type", help_model_at},
    {"optimizers", "optimizer.type", help_optimizer_at},
    {"schedules", "schedule.type", help_schedule_at},
    {"datasets", "data.format", help_dataset_at},
    {"devices", "device", help_device_at},
    {"importers", "trainer import NAME ...", help_importer_at},
};

const help_list_t *cmd_help_list_at(size_t index) {
    return index < TR_COUNT(lists) ? &lists[index] : NULL;
}

/* Columns of the terminal within limits; 100 where there is none. */
static int help_width(void) {
    const int columns = cmd_terminal_columns();
    return columns < 40 ? 100 : columns > 120 ? 120 : columns;
}

void cmd_help_print_wrapped(const char *text, int at, int indent) {
    tr_str_t lines = {0};
    tr_text_wrap(text, help_width() - indent, &lines);
    for (const char *line = lines.text; line && *line; at = 0) {
        const int bytes = (int)strcspn(line, "\n");
        printf("%*s%.*s\n", indent - at, "", bytes, line);
        line += bytes + 1;
    }
    tr_str_free(&lines);
}

static void help_print_entry(const help_entry_t *entry) {
    tr_str_t usage = {0};
    if (entry->layer) tr_layer_usage(entry->layer, &usage);
    if (entry->command) cmd_usage(entry->command, 0, &usage);
    if (entry->importer)
        tr_str_printf(&usage, "trainer import %s %s", entry->name, entry->importer->usage);
    cmd_help_print_wrapped(usage.text ? usage.text : entry->name, 0, 2);
    tr_str_free(&usage);
    cmd_help_print_wrapped(entry->help ? entry->help : "", 0, 6);
}

static void help_print_fields(const char *title, const tr_config_field_t *fields, int count) {
    int longest = 0;
    for (int i = 0; i < count; i++)
        if ((int)strlen(fields[i].name) > longest) longest = (int)strlen(fields[i].name);
    if (count) printf("\n%s", title);
    for (int i = 0; i < count; i++) {
        int at = printf("      %-*s  ", longest, fields[i].name);
        cmd_help_print_wrapped(fields[i].help, at, at);
    }
}

static void help_print_common_fields(void) {
    int count;
    const tr_config_field_t *fields = tr_layer_common_fields(&count);
    help_print_fields("  attributes that every layer accepts, as name=value\n", fields, count);
}

/* The fields of every record. */
static void help_print_records(void) {
    for (int kind = 0; kind < TR_RECORD_COUNT; kind++) {
        printf("%s%s\n\n", kind ? "\n" : "", tr_record_titles[kind]);
        for (int i = 0; i < TR_RECORD_FIELD_COUNT; i++) {
            const struct tr_record_field_info *field = &tr_record_fields[i];
            const char *unit = tr_units[field->unit].text, *when = tr_when_texts[field->when];
            const char *metric = NULL;
            char text[512];
            if ((int)field->record != kind) continue;
            for (int m = 0; m < TR_METRIC_COUNT; m++)
                if ((int)tr_metric_list[m].field == i) metric = tr_metric_list[m].name;
            printf("  %s: %s%s%s%s%s\n", field->key, tr_value_types[field->type], *unit ? ", " : "",
                   unit, *when ? "; " : "", when);
            tr_snprintf(text, sizeof text, "%s%s%s%s", field->help,
                        metric ? " Prometheus: trainer_" : "", metric ? metric : "",
                        metric ? "." : "");
            cmd_help_print_wrapped(text, 0, 6);
        }
    }
}

static tr_status_t help_print_overview(void) {
    const tr_config_table_t *const *tables;
    size_t count;
    help_entry_t entry;
    int longest = 0;
    TR_TRY(tr_all_tables(&tables, &count));
    printf("trainer %s: trains neural networks from HDF5 data on one or many nodes\n\n"
           "  mpirun -np 4 trainer configs/mnist_cnn.ini data.train=mnist.h5\n"
           "  srun trainer CONFIG.ini [key=value ...]\n\nCommands\n",
           cmd_version);
    for (size_t i = 0; help_command_at(i, &entry); i++)
        if ((int)strlen(entry.name) > longest) longest = (int)strlen(entry.name);
    for (size_t i = 0; help_command_at(i, &entry); i++) {
        int at = printf("  %-*s  ", longest, entry.name);
        cmd_help_print_wrapped(entry.help, at, at);
    }
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
    printf("\n  trainer help records      the fields of metrics.jsonl, summary.json, "
           "sessions.jsonl\n"
           "  trainer help WORDS        what mentions them; also names that other programs use\n");
    return TR_OK;
}

void cmd_help_command(const cmd_command_t *command) {
    enum { MOST_NAME = 30 }; /* a longer option has a line of its own */
    int width = 0;
    tr_str_t text = {0};
    cmd_usage(command, help_width(), &text);
    printf("%s\n\n", text.text ? text.text : command->name);
    cmd_help_print_wrapped(command->summary, 0, 0);
    if (command->help) cmd_help_print_wrapped(command->help, 0, 0);
    for (size_t i = 0; i < command->option_count; i++) {
        const cmd_option_t *o = &command->options[i];
        const int length =
            (int)strlen(o->field.name) + (o->placeholder ? 1 + (int)strlen(o->placeholder) : 0);
        if (*o->field.help && length > width && length <= MOST_NAME) width = length;
    }
    for (size_t i = 0; i < command->option_count; i++) {
        const cmd_option_t *o = &command->options[i];
        if (!*o->field.help) continue;
        if (i == 0) printf("\n");
        int at = printf("  %s%s%s", o->field.name, o->placeholder ? " " : "",
                        o->placeholder ? o->placeholder : "");
        if (at > width + 2) printf("\n"), at = 0;
        tr_str_free(&text);
        tr_str_printf(&text, "%s", o->field.help);
        if (o->field.fallback && strcmp(o->field.fallback, "auto") != 0)
            tr_str_printf(&text, " Default: %s.", o->field.fallback);
        cmd_help_print_wrapped(text.text ? text.text : "", at, width + 4);
    }
    tr_str_free(&text);
    help_entry_t entry;
    for (size_t i = 0; command == &cmd_import && help_importer_at(i, &entry); i++) {
        printf("\n");
        help_print_entry(&entry);
    }
    for (size_t i = 0; command->targets && command->targets[i]; i++) {
        printf("\n");
        cmd_help_command(command->targets[i]);
    }
}

static void help_print_elsewhere(void) {
    const tr_elsewhere_t *row;
    printf("Names in other programs, and what they are here\n\n");
    for (size_t i = 0; (row = tr_elsewhere_at(i)) != NULL; i++) {
        cmd_help_print_wrapped(row->names, 0, 2);
        if (row->key) printf("      here: %s\n", row->key);
        if (*row->text) cmd_help_print_wrapped(row->text, 0, 6);
    }
}

/* What nothing here has as its name: that of another program, words of some text, a typing error.
 * The error record is that of tr_config_help. */
static tr_status_t help_print_other(const char *name) {
    const tr_elsewhere_t *other = tr_elsewhere_find(name);
    const char *const layer = tr_layer_elsewhere(name), *names[256];
    size_t known = 0;
    help_entry_t entry;
    int count;
    if (layer || (other && other->key)) {
        printf("%s is %s here.\n", name, layer ? layer : other->key);
        if (!layer && *other->text) cmd_help_print_wrapped(other->text, 0, 0);
        printf("\n");
        return cmd_help_print(layer ? layer : other->key);
    }
    if (other) cmd_help_print_wrapped(other->text, 0, 0);
    TR_TRY(cmd_help_search(name, &count));
    if (count > 0 || other) return TR_OK;
    for (size_t l = 0; l < TR_COUNT(lists); l++) {
        names[known++] = lists[l].topic;
        for (size_t i = 0; known < TR_COUNT(names) - TR_COUNT(lists) && lists[l].at(i, &entry); i++)
            names[known++] = entry.name;
    }
    const char *nearest = tr_nearest(name, names, known);
    if (!nearest) return tr_error_last()->code; /* from tr_config_help, with the nearest key */
    return TR_FAIL(TR_ERR_USAGE, "no help on '%s'; did you mean '%s'?", name, nearest);
}

/* The keys of a name; NULL: all. */
static tr_status_t help_print_keys(const char *name) {
    const tr_config_table_t *const *tables;
    size_t count;
    tr_str_t text = {0};
    TR_TRY(tr_all_tables(&tables, &count));
    tr_status_t status = tr_config_help(tables, count, name, &text);
    if (status == TR_OK) status = text.status;
    for (char *line = text.text, *end; status == TR_OK && line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = '\0';
        const int indent = (int)strspn(line, " ");
        if (indent < 4)
            puts(line);
        else
            cmd_help_print_wrapped(line + indent, 0, indent);
    }
    tr_str_free(&text);
    return status == TR_ERR_USAGE ? help_print_other(name) : status;
}

tr_status_t cmd_help_print(const char *name) {
    const cmd_command_t *command = cmd_find(name);
    const tr_config_table_t *const *tables;
    size_t count;
    help_entry_t entry;
    bool is_found = command != NULL, is_section = false;
    if (!*name) return help_print_overview();
    if (strcmp(name, "records") == 0) return help_print_records(), TR_OK;
    if (strcmp(name, "elsewhere") == 0) return help_print_elsewhere(), TR_OK;
    TR_TRY(tr_all_tables(&tables, &count));
    for (size_t i = 0; i < count; i++) is_section |= strcmp(tables[i]->section, name) == 0;
    if (command) cmd_help_command(command);
    for (size_t l = 0; l < TR_COUNT(lists) && !command; l++) {
        if (strcmp(lists[l].topic, name) != 0) continue;
        printf("%s\n\n", lists[l].title);
        for (size_t i = 0; lists[l].at(i, &entry); i++) help_print_entry(&entry);
        if (lists[l].at == help_layer_at) help_print_common_fields();
        return TR_OK;
    }
    /* The entries of that name: "conv", "adamw"; "linear" is a layer and a schedule. */
    for (size_t l = 1; l < TR_COUNT(lists) && !command; l++)
        for (size_t i = 0; lists[l].at(i, &entry); i++) {
            if (strcmp(entry.name, name) != 0) continue;
            printf("%s%s\n\n", is_found ? "\n" : "", lists[l].title);
            help_print_entry(&entry);
            is_found = true;
            if (!entry.layer) continue;
            help_print_fields("", entry.layer->fields, entry.layer->field_count);
            help_print_common_fields();
        }
    /* "data" is a command and a section, "cuda" a device and a section. */
    if (is_found && !is_section) return TR_OK;
    if (is_found) printf("\n");
    return help_print_keys(strcmp(name, "keys") == 0 ? NULL : name);
}

/* "bench step" and "import csv": a command and what belongs to it. */
static bool help_print_part(const cmd_command_t *command, const char *name) {
    help_entry_t entry;
    const cmd_command_t *target = cmd_find_target(command, name);
    if (target) return cmd_help_command(target), true;
    for (size_t i = 0; command == &cmd_import && help_importer_at(i, &entry); i++)
        if (strcmp(entry.name, name) == 0) return help_print_entry(&entry), true;
    return false;
}

typedef struct {
    cmd_words_t words;
} help_options_t;

static tr_status_t help_run(void *options) {
    const cmd_words_t words = ((const help_options_t *)options)->words;
    const cmd_command_t *command = words.count == 2 ? cmd_find(words.word[0]) : NULL;
    tr_str_t name = {0};
    if (command && help_print_part(command, words.word[1])) return TR_OK;
    for (int i = 0; i < words.count; i++)
        tr_str_printf(&name, "%s%s", i > 0 ? " " : "", words.word[i]);
    const tr_status_t status =
        name.status == TR_OK ? cmd_help_print(name.text ? name.text : "") : name.status;
    tr_str_free(&name);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"[NAME ...]", offsetof(help_options_t, words), CMD_WORDS, NULL},
};

const cmd_command_t cmd_help = {
    .name = "help",
    .runs = CMD_ON_FIRST,
    .summary =
        "Explains a command, a key, a section, or a list such as layers; or searches for words.",
    .help = "NAME is a command (info, bench step, import csv), a key (data.batch_size), a section "
            "(data), `keys` for all keys, `records` for the fields of the records of a run, a list "
            "(layers, models, optimizers, schedules, datasets, devices, importers), an entry of a "
            "list (conv), or the name that another program has for it (early_stopping; `elsewhere` "
            "lists these). Any other NAME is searched for in keys, lists, options, records, the "
            "headings of docs/ and configs/. Without NAME it prints the overview.",
    CMD_ARGUMENTS(help_options_t),
    .run = help_run,
};
