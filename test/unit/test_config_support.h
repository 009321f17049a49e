/*
 * A place of its own for each test of the configuration: an empty folder that is
 * the working directory and the home, and none of the variables that belay reads.
 */
#ifndef TEST_CONFIG_SUPPORT_H
#define TEST_CONFIG_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "belay.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct place {
    char folder[64];
    struct belay_config *config;
    struct belay_error err;
};

static inline int place_enter(void **state)
{
    static const char *const variables[] = {
        "BELAY_STORE",        "BELAY_STATE_STORE", "BELAY_CONFIG",           "BELAY_DISABLED",
        "XDG_STATE_HOME",     "XDG_CONFIG_HOME",   "SHARED_DB_LOCK_ENABLED", "API_GATEWAY_URL",
        "RUNVOY_LOCKS_TABLE",
    };
    struct place *place = calloc(1, sizeof *place);

    if (place == NULL) {
        return -1;
    }
    for (size_t i = 0; i < COUNT(variables); i++) {
        (void)unsetenv(variables[i]);
    }
    (void)umask(022);
    (void)snprintf(place->folder, sizeof place->folder, "/tmp/belay-config-XXXXXX");
    *state = place;
    return mkdtemp(place->folder) == NULL || chdir(place->folder) != 0 ||
                   setenv("HOME", place->folder, 1) != 0
               ? -1
               : 0;
}

static inline int place_leave(void **state)
{
    struct place *place = *state;
    char command[128];

    belay_config_free(place->config);
    belay_error_release(&place->err);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", place->folder);
    if (chdir("/") != 0 || system(command) != 0) {
        return -1;
    }
    free(place);
    return 0;
}

static inline void write_bytes(const char *path, const char *data, size_t n)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static inline void write_file(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

/* Load `path` again (NULL: search for it); a failure ends the test. */
static inline const struct belay_config *load(struct place *place, const char *path)
{
    struct belay_config *config = NULL;

    if (belay_config_load(path, &config, &place->err) != BELAY_OK) {
        fail_msg("load: %s", place->err.text);
    }
    belay_config_free(place->config);
    place->config = config;
    return config;
}

/* Load a file named c.yaml that contains `text`. */
static inline const struct belay_config *load_text(struct place *place, const char *text)
{
    write_file("c.yaml", text);
    return load(place, "c.yaml");
}

/* Loading must fail as a fault of the configuration, with exactly this text, and give nothing. */
static inline void assert_load_fails(struct place *place, const char *path, const char *text)
{
    struct belay_config *config = NULL;
    enum belay_code code = belay_config_load(path, &config, &place->err);

    if (code != BELAY_CONFIG || config != NULL || strcmp(place->err.text, text) != 0) {
        fail_msg("code %s\n  expected '%s'\n  got      '%s'", belay_code_name(code), text, place->err.text);
    }
}

static inline void assert_setting(const struct belay_config *config, const char *name, const char *value,
                                  const char *origin)
{
    for (size_t i = 0; i < belay_config_count(config); i++) {
        struct belay_setting setting = belay_config_setting(config, i);

        if (strcmp(setting.name, name) == 0) {
            assert_string_equal(setting.value, value);
            assert_string_equal(setting.origin, origin);
            assert_string_equal(belay_config_get(config, name), value);
            return;
        }
    }
    fail_msg("there is no setting '%s'", name);
}

#endif
