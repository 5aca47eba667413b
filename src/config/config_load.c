/* Sources of values: file, text, environment, command line. */
#include "config_int.h"
#include "ini.h"
#include "trainer/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE_BYTES (4 << 20)

typedef struct {
    tr_config_t *config;
    const char *origin;
} config_source_t;

static tr_status_t config_on_key(void *self, const char *section, const char *name,
                                 const char *value, int line) {
    const config_source_t *source = self;
    tr_str_t key = {0};
    tr_str_printf(&key, "%s%s%s", section, *section ? "." : "", name);
    TR_TRY(key.status);
    tr_status_t status = tr_config_assign(source->config, key.text, value, source->origin, line);
    tr_str_free(&key);
    return status;
}

static tr_status_t config_on_problem(void *self, int line, const char *message) {
    const config_source_t *source = self;
    char where[WHERE_BYTES];
    tr_config_where(source->origin, line, where);
    tr_config_note(source->config, where, "%s", message);
    return TR_OK;
}

tr_status_t tr_config_load_text(tr_config_t *config, const char *origin, const char *text,
                                size_t bytes) {
    config->loads++;
    config_source_t source = {config, origin};
    return tr_ini_parse(text, bytes, &(tr_ini_events_t){&source, config_on_key, config_on_problem});
}

/* -- file -------------------------------------------------------------------------------------- */

static tr_status_t config_refuse_folder(const char *path) {
    char inside[4096];
    snprintf(inside, sizeof inside, "%s/config.ini", path);
    if (access(inside, R_OK) == 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "Expected a configuration file, found the folder %s; did you mean %s?", path,
                       inside);
    return TR_FAIL(
        TR_ERR_CONFIG,
        "Expected a configuration file, found the folder %s; name a file, such as one of configs/.",
        path);
}

tr_status_t tr_config_load_file(tr_config_t *config, const char *path) {
    tr_status_t status = TR_OK;
    tr_str_t text = {0};
    struct stat info;
    char chunk[8192];
    int line, byte;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return TR_FAIL(TR_ERR_NOINPUT, "No configuration file %s; check the path.", path);
    if (fd < 0)
        return TR_FAIL(tr_status_of_errno(errno), "Cannot open the configuration %s: %s.", path,
                       strerror(errno));
    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        status = config_refuse_folder(path);
        goto done;
    }
    /* To the end, or one byte past the limit; works for pipes, too. */
    tr_str_append(&text, "");
    while (text.length <= MAX_FILE_BYTES && text.status == TR_OK) {
        const ssize_t count = read(fd, chunk, sizeof chunk);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) {
            status =
                TR_FAIL(TR_ERR_IO, "Cannot read the configuration %s: %s.", path, strerror(errno));
            goto done;
        }
        if (count == 0) break;
        tr_str_append_bytes(&text, chunk, (size_t)count);
    }
    status = text.status;
    if (status != TR_OK) goto done;
    if (text.length > MAX_FILE_BYTES)
        status =
            TR_FAIL(TR_ERR_CONFIG, "%s is larger than %d MiB, too large for a configuration file.",
                    path, MAX_FILE_BYTES >> 20);
    else if (!tr_ini_is_text(text.text, text.length, &line, &byte))
        status =
            TR_FAIL(TR_ERR_CONFIG,
                    "Expected a configuration file (UTF-8 text), found a binary file: %s has "
                    "the byte 0x%02x in line %d. Data files are set by keys: data.train = FILE.",
                    path, byte, line);
    else
        status = tr_config_load_text(config, path, text.text, text.length);
done:
    tr_str_free(&text);
    close(fd);
    return status;
}

/* -- environment and command line -------------------------------------------------------------- */

/* Text with control bytes is refused at once. */
static tr_status_t config_assign_from_outside(tr_config_t *config, const char *key,
                                              const char *value, const char *origin) {
    int line, byte;
    if (tr_ini_is_text(value, strlen(value), &line, &byte))
        return tr_config_assign(config, key, value, origin, 0);
    tr_config_note(config, origin,
                   "%.200s: expected text (UTF-8), found the byte 0x%02x in the value", key, byte);
    return TR_OK;
}

tr_status_t tr_config_set(tr_config_t *config, const char *assignment, const char *origin) {
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment) {
        tr_str_t found = {0};
        tr_config_quote(assignment, &found);
        if (found.status == TR_OK)
            tr_config_note(config, origin, "expected section.key=value, found %s", found.text);
        tr_status_t status = found.status;
        tr_str_free(&found);
        return status;
    }
    static const char blanks[] = " \t\r\n";
    const char *value = equals + 1 + strspn(equals + 1, blanks);
    size_t bytes = strlen(value);
    while (bytes > 0 && strchr(blanks, value[bytes - 1])) bytes--;
    const char *key_end = equals;
    while (key_end > assignment && strchr(blanks, key_end[-1])) key_end--;
    assignment += strspn(assignment, blanks);
    tr_str_t key = {0}, text = {0};
    tr_str_append_bytes(&key, assignment,
                        key_end > assignment ? (size_t)(key_end - assignment) : 0);
    tr_str_append_bytes(&text, value, bytes);
    tr_status_t status = key.status != TR_OK ? key.status : text.status;
    if (status == TR_OK) status = config_assign_from_outside(config, key.text, text.text, origin);
    tr_str_free(&key);
    tr_str_free(&text);
    return status;
}

#define PREFIX "TRAINER_"

/* data.batch_size: TRAINER_DATA_BATCH_SIZE */
static void config_variable_name(const char *key, char name[KEY_BYTES + sizeof PREFIX]) {
    size_t used = sizeof PREFIX - 1;
    memcpy(name, PREFIX, used);
    for (; *key; key++)
        name[used++] = isalnum((unsigned char)*key) ? (char)toupper((unsigned char)*key) : '_';
    name[used] = '\0';
}

/* Other programs may use variables with this prefix: only one in a section of ours, or close to a
 * key, is a typing error. */
static void config_note_unknown_variable(tr_config_t *config, const char *name) {
    char known[KEY_BYTES + sizeof PREFIX], best[KEY_BYTES + sizeof PREFIX] = PREFIX;
    const char *const pair[] = {best + sizeof PREFIX - 1, known + sizeof PREFIX - 1};
    const char *rest = name + sizeof PREFIX - 2; /* with the _ before it */
    const size_t rest_bytes = strlen(rest);
    char longer[KEY_BYTES + sizeof PREFIX] = "";
    bool in_section = false;
    if (strcmp(name, PREFIX "CUDA_LIBRARY") == 0) return; /* no key: src/device/device_cuda.c */
    for (size_t i = 0; i < config->entries.count; i++) {
        size_t section_bytes = strlen(config->entries.data[i].section);
        config_variable_name(config->entries.data[i].key, known);
        in_section |= section_bytes > 0 && strncmp(name, known, sizeof PREFIX + section_bytes) == 0;
        const size_t bytes = strlen(known);
        if (bytes > rest_bytes && strcmp(known + bytes - rest_bytes, rest) == 0)
            memcpy(longer, known, sizeof longer);
        if (tr_nearest(name + sizeof PREFIX - 1, pair, 2) == pair[1])
            memcpy(best, known, sizeof best);
    }
    if (best[sizeof PREFIX - 1] != '\0')
        tr_config_note(config, "environment", "unknown key %.200s; did you mean %s?", name, best);
    else if (in_section)
        tr_config_note(config, "environment", "unknown key %.200s; `trainer help` lists all keys",
                       name);
    else if (longer[0])
        TR_WARN("unknown environment variable %.200s; did you mean %s?", name, longer);
}

tr_status_t tr_config_load_environment(tr_config_t *config, char *const *environment) {
    for (; environment && *environment; environment++) {
        const char *equals = strchr(*environment, '=');
        if (!equals || strncmp(*environment, PREFIX, sizeof PREFIX - 1) != 0) continue;
        char name[512], known[KEY_BYTES + sizeof PREFIX], origin[sizeof name + 32];
        snprintf(name, sizeof name, "%.*s", (int)(equals - *environment), *environment);
        snprintf(origin, sizeof origin, "environment variable %s", name);
        bool is_key = false;
        for (size_t i = 0; i < config->entries.count && !is_key; i++) {
            config_variable_name(config->entries.data[i].key, known);
            is_key = strcmp(known, name) == 0;
            if (is_key)
                TR_TRY(config_assign_from_outside(config, config->entries.data[i].key, equals + 1,
                                                  origin));
        }
        if (!is_key) config_note_unknown_variable(config, name);
    }
    return TR_OK;
}
