#include "client/audit_trail.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "json/json_read.h"

#define READ_MAX (64L << 20)

const char *audit_trail_path(const struct belay_config *config)
{
    static const char *const daemons[] = { "", "stderr", "syslog", "journald" };
    const char *path = config == NULL ? NULL : belay_config_get(config, "audit.file");

    for (size_t i = 0; path != NULL && i < sizeof daemons / sizeof daemons[0]; i++) {
        path = strcmp(path, daemons[i]) == 0 ? NULL : path;
    }
    return path;
}

/* Only a regular file: reading a pipe would take data from its reader. */
static enum belay_code open_audit_file(const char *path, FILE **out_file, struct belay_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat about;

    if (fd < 0 || fstat(fd, &about) != 0) {
        (void)error_set(err, BELAY_CONFIG, "audit.file: cannot read '%.200s': %s", path, strerror(errno));
    } else if (!S_ISREG(about.st_mode)) {
        (void)error_set(err, BELAY_NOT_FOUND, "audit.file: '%.200s' is not a file that can be read again",
                        path);
    } else if ((*out_file = fdopen(fd, "r")) == NULL) {
        (void)error_no_memory(err);
    } else {
        if (about.st_size > READ_MAX) {
            (void)fseeko(*out_file, (off_t)(about.st_size - READ_MAX), SEEK_SET);
        }
        return BELAY_OK;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return err == NULL ? BELAY_CONFIG : err->code;
}

/*
 * The longest part of a key that JSON writes as it is: only lines that have it
 * are worth parsing.
 */
static size_t plain_part(const char *key, const char **out_part)
{
    size_t longest = 0;
    size_t n = 0;

    *out_part = key;
    for (size_t i = 0; key[i] != '\0'; i++) {
        bool is_plain = key[i] > ' ' && key[i] <= '~' && strchr("\"\\/", key[i]) == NULL;

        n = is_plain ? n + 1 : 0;
        if (n > longest) {
            longest = n;
            *out_part = key + i + 1 - n;
        }
    }
    return longest;
}

/* Add the line if it is an event of the key; of a line that was cut short, or is not ours, nothing. */
static bool read_audit_line(json_t *found, size_t limit, const char *line, size_t len, const char *key)
{
    json_t *event = json_loadb(line, len, 0, NULL);
    const char *of = json_string_value(json_object_get(event, "lock_key"));
    bool is_ours = of != NULL && strcmp(of, key) == 0 && json_is_string(json_object_get(event, "event"));
    bool done = !is_ours || json_array_append(found, event) == 0;

    if (limit != 0 && json_array_size(found) > limit) {
        (void)json_array_remove(found, 0);
    }
    json_decref(event);
    return done;
}

static enum belay_code read_audit_lines(FILE *file, const char *key, size_t limit, json_t *found,
                                        struct belay_error *err)
{
    const char *part;
    size_t part_len = plain_part(key, &part);
    size_t capacity = 0;
    char *line = NULL;
    bool done = true;
    ssize_t n;

    while (done && (n = getline(&line, &capacity, file)) > 0) {
        if (memmem(line, (size_t)n, part, part_len) != NULL) {
            done = read_audit_line(found, limit, line, (size_t)n, key);
        }
    }
    free(line);
    return done ? BELAY_OK : error_no_memory(err);
}

enum belay_code audit_trail_read(const char *path, const char *key, size_t limit, belay_event_fn fn,
                                 void *context, struct belay_error *err)
{
    json_t *found = json_array();
    FILE *file = NULL;
    enum belay_code code = found == NULL ? error_no_memory(err) : open_audit_file(path, &file, err);
    bool go_on = true;
    uint64_t id;

    if (code == BELAY_OK) {
        code = read_audit_lines(file, key, limit, found, err);
        (void)fclose(file);
    }
    for (size_t i = 0; code == BELAY_OK && go_on && i < json_array_size(found); i++) {
        (void)json_read_event(json_array_get(found, i), fn, context, &go_on, &id);
    }
    json_decref(found);
    return code;
}
