/* The configuration from defaults, file and environment, and the effect of a profile on lock options. */
#include <sys/wait.h>

#include "test_config_support.h"

#include "config/config.h"

/* ---- defaults ---------------------------------------------------------- */

static const struct belay_profile builtin[] = {
    { "build", 600000, 0, 0, 0, 0, false, "build-{component}-{environment}", 0 },    /* S0.6 */
    { "deploy", 1800000, 0, 0, 0, 0, false, "deploy-{component}-{environment}", 0 }, /* S0.6 */
    { "execution", 1800000, 1440000, 0, 0, 0, true, NULL, 0 },                       /* S2.5 */
    { "database", 60000, 0, 0, 0, 3, false, NULL, 0 },                               /* S3.1, S3.2 */
    { "stack", 3600000, 30000, 120000, 0, 0, false, NULL, 0 },                       /* S4.6, S4.7 */
};

static void assert_profile(const struct belay_config *config, const struct belay_profile *expected)
{
    struct belay_profile profile;

    assert_int_equal(belay_config_profile(config, expected->name, &profile, NULL), BELAY_OK);
    assert_string_equal(profile.name, expected->name);
    assert_int_equal(profile.ttl_ms, expected->ttl_ms);
    assert_int_equal(profile.heartbeat_ms, expected->heartbeat_ms);
    assert_int_equal(profile.stale_after_ms, expected->stale_after_ms);
    assert_int_equal(profile.wait_ms, expected->wait_ms);
    assert_int_equal(profile.attempts, expected->attempts);
    assert_int_equal(profile.reentrant, expected->reentrant);
    assert_int_equal(profile.key_template == NULL, expected->key_template == NULL);
    if (expected->key_template != NULL) {
        assert_string_equal(profile.key_template, expected->key_template);
    }
}

static void the_built_in_profiles_are_there_without_a_file(void **state)
{
    const struct belay_config *loaded = load(*state, NULL);

    for (size_t i = 0; i < COUNT(builtin); i++) {
        assert_profile(NULL, &builtin[i]);
        assert_profile(loaded, &builtin[i]);
    }
}

static void without_a_configuration_the_defaults_can_be_read(void **state)
{
    const struct belay_config *loaded = load(*state, NULL);

    assert_setting(NULL, "locking_enabled", "true", "default");
    assert_setting(NULL, "profiles.execution.heartbeat", "24m", "default");
    assert_null(belay_config_get(NULL, "store")); /* depends on the environment */
    assert_null(belay_config_get(NULL, "profiles.build"));
    assert_null(belay_config_get(NULL, NULL));
    assert_null(belay_config_setting(NULL, belay_config_count(NULL)).name);
    assert_null(belay_config_setting(loaded, belay_config_count(loaded)).name);
    /* Loading without a file gives the same, plus the store. */
    assert_int_equal(belay_config_count(loaded), belay_config_count(NULL) + 1);
    for (size_t i = 0; i < belay_config_count(NULL); i++) {
        struct belay_setting setting = belay_config_setting(NULL, i);

        assert_setting(loaded, setting.name, setting.value, "default");
    }
    belay_config_free(NULL);
}

static void the_default_store_is_in_the_users_state_folder(void **state)
{
    static const struct {
        const char *xdg;
        const char *home;
        const char *store;
    } rows[] = {
        { NULL, "/home/ann", "sqlite:/home/ann/.local/state/belay/belay.db" },
        { "/state", "/home/ann", "sqlite:/state/belay/belay.db" },
        { "/state/", NULL, "sqlite:/state/belay/belay.db" },
        { "state", "/home/ann", "sqlite:/home/ann/.local/state/belay/belay.db" }, /* not absolute: ignored */
        { "", "/home/ann", "sqlite:/home/ann/.local/state/belay/belay.db" },
        { NULL, "/", "sqlite:/.local/state/belay/belay.db" },
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        (void)(rows[i].xdg == NULL ? unsetenv("XDG_STATE_HOME") : setenv("XDG_STATE_HOME", rows[i].xdg, 1));
        (void)(rows[i].home == NULL ? unsetenv("HOME") : setenv("HOME", rows[i].home, 1));
        assert_setting(load(*state, "/dev/null"), "store", rows[i].store, "default");
    }
}

/* In a child without a home; its exit code tells the failed step. */
static int live_without_a_home(void)
{
    struct belay_config *config = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    int step = 0;

    if (setuid(54321) != 0 || unsetenv("HOME") != 0) {
        step = 1;
    } else if (belay_config_load("/dev/null", &config, &err) != BELAY_OK) {
        step = 2;
    } else if (belay_config_get(config, "store") != NULL) {
        step = 3;
    }
    belay_config_free(config);
    return step;
}

/* It is an error only if the default is needed: --store must still work. */
static void without_a_home_there_is_no_default_store(void **state)
{
    int status = -1;
    pid_t child;

    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    child = fork();
    if (child == 0) {
        _exit(live_without_a_home());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- which file -------------------------------------------------------- */

static void the_first_file_found_is_read(void **state)
{
    struct place *place = *state;
    char path[200], origin[220];

    assert_int_equal(mkdir(".config", 0755), 0);
    assert_int_equal(mkdir(".config/belay", 0755), 0);
    write_file(".config/belay/config.yaml", "store: sqlite:home");
    (void)snprintf(origin, sizeof origin, "%s/.config/belay/config.yaml:1", place->folder);
    assert_setting(load(place, NULL), "store", "sqlite:home", origin);

    assert_int_equal(mkdir("xdg", 0755), 0);
    assert_int_equal(mkdir("xdg/belay", 0755), 0);
    write_file("xdg/belay/config.yaml", "\nstore: sqlite:xdg");
    (void)snprintf(path, sizeof path, "%s/xdg", place->folder);
    (void)snprintf(origin, sizeof origin, "%s/belay/config.yaml:2", path);
    (void)setenv("XDG_CONFIG_HOME", path, 1);
    assert_setting(load(place, NULL), "store", "sqlite:xdg", origin);

    /* A file in the working directory adds its profiles, and hides nothing. */
    write_file("belay.yaml", "profiles: {nightly: {ttl: 4h}}");
    assert_setting(load(place, NULL), "store", "sqlite:xdg", origin);
    assert_setting(load(place, NULL), "profiles.nightly.ttl", "4h", "./belay.yaml:1");

    write_file("named.yaml", "store: sqlite:named");
    (void)setenv("BELAY_CONFIG", "named.yaml", 1);
    assert_setting(load(place, NULL), "store", "sqlite:named", "named.yaml:1");

    write_file("flag.yaml", "store: sqlite:flag");
    assert_setting(load(place, "flag.yaml"), "store", "sqlite:flag", "flag.yaml:1");
}

static void a_missing_file_counts_as_an_empty_one(void **state)
{
    size_t n = belay_config_count(load(*state, NULL));

    assert_int_equal(belay_config_count(load_text(*state, "")), n);
    assert_int_equal(belay_config_count(load_text(*state, "# only words\n---\n")), n);
    assert_int_equal(belay_config_count(load_text(*state, "profiles:\ncontroller: ~\nserver: {}\n")), n);
    assert_int_equal(belay_config_count(load(*state, "/dev/null")), n);
}

/* ---- precedence -------------------------------------------------------- */

static void the_environment_beats_the_file_beats_the_defaults(void **state)
{
    static const char *const text = "store: sqlite:file\nstate_store: file:file\nlocking_enabled: true\n"
                                    "controller: {shared_db_lock_enabled: true}\n";
    const struct belay_config *config = load_text(*state, text);

    assert_setting(config, "store", "sqlite:file", "c.yaml:1");
    assert_setting(config, "state_store", "file:file", "c.yaml:2");
    assert_setting(config, "locking_enabled", "true", "c.yaml:3");

    (void)setenv("BELAY_STORE", "sqlite:env", 1);
    (void)setenv("BELAY_STATE_STORE", "s3://b/p", 1);
    (void)setenv("BELAY_DISABLED", "1", 1);
    (void)setenv("SHARED_DB_LOCK_ENABLED", "false", 1); /* S3.8 */
    (void)setenv("API_GATEWAY_URL", "https://gw.example/prod", 1);
    config = load_text(*state, text);
    assert_setting(config, "store", "sqlite:env", "environment BELAY_STORE");
    assert_setting(config, "state_store", "s3://b/p", "environment BELAY_STATE_STORE");
    assert_setting(config, "locking_enabled", "false", "environment BELAY_DISABLED");
    assert_setting(config, "controller.shared_db_lock_enabled", "false",
                   "environment SHARED_DB_LOCK_ENABLED");
    assert_setting(config, "controller.api_gateway_url", "https://gw.example/prod",
                   "environment API_GATEWAY_URL");
}

/* S2.10 */
static void the_table_of_the_execution_locks_is_below_belay_store(void **state)
{
    (void)setenv("RUNVOY_LOCKS_TABLE", "runvoy-locks", 1);
    assert_setting(load_text(*state, "store: sqlite:file"), "store", "dynamodb:runvoy-locks?layout=runvoy",
                   "environment RUNVOY_LOCKS_TABLE");
    (void)setenv("BELAY_STORE", "sqlite:env", 1);
    assert_setting(load(*state, NULL), "store", "sqlite:env", "environment BELAY_STORE");
}

/* S0.9: the kill switch, and that it is not guessed. */
static void the_kill_switch_is_yes_or_no(void **state)
{
    static const struct {
        const char *value;
        const char *enabled; /* by a file that says true, and by one that says false */
        const char *enabled_else;
    } rows[] = {
        { "1", "false", "false" },   { "true", "false", "false" }, { "yes", "false", "false" },
        { "on", "false", "false" },  { "YES", "false", "false" },  { "0", "true", "true" },
        { "false", "true", "true" }, { "no", "true", "true" },     { "off", "true", "true" },
        { "", "true", "false" }, /* an empty variable says nothing */
    };
    static const char *const wrong[] = { "2", "y", "disable", " ", "truee", "nein", "-1" };

    for (size_t i = 0; i < COUNT(rows); i++) {
        (void)setenv("BELAY_DISABLED", rows[i].value, 1);
        assert_string_equal(belay_config_get(load_text(*state, "locking_enabled: yes"), "locking_enabled"),
                            rows[i].enabled);
        assert_string_equal(belay_config_get(load_text(*state, "locking_enabled: off"), "locking_enabled"),
                            rows[i].enabled_else);
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char expected[200];

        (void)setenv("BELAY_DISABLED", wrong[i], 1);
        (void)snprintf(expected, sizeof expected,
                       "environment BELAY_DISABLED: '%s' is not a switch; write 1, true, yes or on, or 0, "
                       "false, no or off",
                       wrong[i]);
        assert_load_fails(*state, NULL, expected);
    }
}

/* L8 */
static void a_variable_that_is_wrong_is_named(void **state)
{
    static const struct {
        const char *name;
        const char *value;
        const char *text;
    } rows[] = {
        { "BELAY_STORE", "/var/lib/belay.db",
          "environment BELAY_STORE: '/var/lib/belay.db' is not a store; write it as KIND:WHERE, such as "
          "sqlite:/var/lib/belay/belay.db" },
        { "BELAY_STORE", "sqlite:/x.db ",
          "environment BELAY_STORE: 'sqlite:/x.db ' begins or ends with a space; remove it" },
        { "BELAY_STATE_STORE", " file:/x",
          "environment BELAY_STATE_STORE: ' file:/x' begins or ends with a space; remove it" },
        { "BELAY_STORE", "sqlite:a\nb",
          "environment BELAY_STORE: '(unprintable or long)' is not one line of UTF-8 without control "
          "characters" },
        { "API_GATEWAY_URL", "gw.example",
          "environment API_GATEWAY_URL: 'gw.example' is not a URL; write it as https://HOST/PATH" },
        { "SHARED_DB_LOCK_ENABLED", "maybe",
          "environment SHARED_DB_LOCK_ENABLED: 'maybe' is not a switch; write 1, true, yes or on, or "
          "0, "
          "false, no or off" },
        { "RUNVOY_LOCKS_TABLE", "t?layout=x",
          "environment RUNVOY_LOCKS_TABLE: 't?layout=x' is not the name of a DynamoDB table; use 3 to 255 "
          "letters, "
          "digits, '_', '.' and '-'" },
        { "BELAY_CONFIG", "/nowhere/c.yaml",
          "cannot open '/nowhere/c.yaml' (named by BELAY_CONFIG): No such file or directory" },
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        (void)setenv(rows[i].name, rows[i].value, 1);
        assert_load_fails(*state, NULL, rows[i].text);
        (void)unsetenv(rows[i].name);
    }
}

/* ---- profiles ---------------------------------------------------------- */

static void a_file_changes_what_it_names_of_a_profile_and_keeps_the_rest(void **state)
{
    const struct belay_config *config =
        load_text(*state, "profiles:\n"
                          "  build: {ttl: 5m}\n"
                          "  nightly: {ttl: 4h, heartbeat: 1m, stale_after: 5m, wait: 30s, attempts: 5, "
                          "reentrant: false}\n"
                          "  minimal: {reentrant: yes}\n");
    static const struct belay_profile rows[] = {
        { "build", 300000, 0, 0, 0, 0, false, "build-{component}-{environment}", 0 },
        { "nightly", 14400000, 60000, 300000, 30000, 5, false, NULL, 0 },
        { "minimal", 0, 0, 0, 0, 0, true, NULL, 0 },
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_profile(config, &rows[i]);
    }
    assert_profile(config, &builtin[1]);
    assert_setting(config, "profiles.build.ttl", "5m", "c.yaml:2");
    assert_setting(config, "profiles.build.key", "build-{component}-{environment}", "default");
}

/* S2.5: renewed at 80 % whatever the ttl; a default heartbeat must never become an error. */
static void a_default_heartbeat_fits_the_ttl_that_a_file_sets(void **state)
{
    const struct belay_config *config =
        load_text(*state, "profiles: {execution: {ttl: 10m}, stack: {ttl: 20s}}");
    static const struct belay_profile rows[] = {
        { "execution", 600000, 480000, 0, 0, 0, true, NULL, 0 },
        { "stack", 20000, 5000, 120000, 0, 0, false, NULL, 0 },
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_profile(config, &rows[i]);
    }
    assert_setting(config, "profiles.execution.heartbeat", "8m", "default");
    assert_profile(load_text(*state, "profiles: {stack: {ttl: 2h}}"),
                   &(struct belay_profile){ "stack", 7200000, 30000, 120000, 0, 0, false, NULL, 0 });
    assert_profile(load_text(*state, "profiles: {stack: {heartbeat: 0, stale_after: 0}}"),
                   &(struct belay_profile){ "stack", 3600000, 0, 0, 0, 0, false, NULL, 0 });
}

static void values_of_a_profile_that_contradict_each_other_are_refused(void **state)
{
    static const struct {
        const char *text;
        const char *error;
    } rows[] = {
        { "profiles:\n  a: {ttl: 1m, heartbeat: 1m}",
          "c.yaml:2: profiles.a.heartbeat: 1m must be less than ttl, which is 1m" },
        { "profiles:\n  build:\n    heartbeat: 20m",
          "c.yaml:3: profiles.build.heartbeat: 20m must be less than ttl, which is 10m by default" },
        { "profiles:\n  a: {ttl: 1h, heartbeat: 1m, stale_after: 59s}",
          "c.yaml:2: profiles.a.stale_after: 59s must be at least heartbeat, which is 1m" },
        { "profiles:\n  stack: {stale_after: 10s}",
          "c.yaml:2: profiles.stack.stale_after: 10s must be at least heartbeat, which is 30s by default" },
        { "profiles:\n  stack: {heartbeat: 5m}",
          "c.yaml:2: profiles.stack.stale_after: 2m must be at least heartbeat, which is 5m" },
    };

    for (size_t i = 0; i < COUNT(rows); i++) {
        write_file("c.yaml", rows[i].text);
        assert_load_fails(*state, "c.yaml", rows[i].error);
    }
}

/* L8 */
static void a_profile_that_is_not_there_says_which_are(void **state)
{
    struct belay_profile profile = { .name = "untouched" };
    struct belay_error err = BELAY_ERROR_INIT;

    (void)state;
    assert_int_equal(belay_config_profile(NULL, "bild", &profile, &err), BELAY_INVALID);
    assert_string_equal(err.text,
                        "unknown profile 'bild'; known profiles: build, database, deploy, execution, stack");
    assert_int_equal(belay_config_profile(NULL, "buil", &profile, &err), BELAY_INVALID);
    assert_int_equal(belay_config_profile(NULL, "build.ttl", &profile, &err), BELAY_INVALID);
    assert_int_equal(belay_config_profile(NULL, "", &profile, &err), BELAY_INVALID);
    assert_int_equal(belay_config_profile(NULL, NULL, &profile, &err), BELAY_INVALID);
    assert_string_equal(profile.name, "untouched");
    belay_error_release(&err);
}

static void profiles_whose_names_begin_alike_are_kept_apart(void **state)
{
    const struct belay_config *config =
        load_text(*state, "profiles: {a: {ttl: 1m}, a1: {ttl: 2m}, a10: {ttl: 3m}, a-b: {ttl: 4m}, a_b: "
                          "{ttl: 5m}, A: {ttl: 6m}}");
    static const char *const names[] = { "a", "a1", "a10", "a-b", "a_b", "A" };
    size_t n;

    for (size_t i = 0; i < COUNT(names); i++) {
        struct belay_profile profile;

        assert_int_equal(belay_config_profile(config, names[i], &profile, NULL), BELAY_OK);
        assert_int_equal(profile.ttl_ms, (int64_t)(i + 1) * 60000);
    }
    (void)config_profiles(config, &n);
    assert_int_equal(n, 5 + COUNT(names));
}

/* ---- applying a profile ------------------------------------------------ */

static void a_profile_fills_what_is_not_set(void **state)
{
    static const struct belay_profile profile = { "p", 600000, 60000, 300000, 30000, 5, true, NULL, 0 };
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;

    (void)state;
    belay_profile_apply(&profile, &options);
    assert_int_equal(options.ttl_ms, 600000);
    assert_int_equal(options.heartbeat_ms, 60000);
    assert_int_equal(options.stale_after_ms, 300000);
    assert_int_equal(options.wait_ms, 30000);
    assert_int_equal(options.attempts, 5);
    assert_true(options.reentrant);
    assert_false(options.stepped_backoff);
    belay_profile_apply(NULL, &options);
    belay_profile_apply(&profile, NULL);
}

static void a_profile_leaves_what_is_set(void **state)
{
    static const struct belay_profile profile = { "p", 600000, 60000, 300000, 30000, 5, false, NULL, 0 };
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;

    (void)state;
    options.ttl_ms = 900000;
    options.heartbeat_ms = 1000;
    options.stale_after_ms = 2000;
    options.wait_ms = BELAY_WAIT_FOREVER;
    options.attempts = 1;
    options.reentrant = true;
    belay_profile_apply(&profile, &options);
    assert_int_equal(options.ttl_ms, 900000);
    assert_int_equal(options.heartbeat_ms, 1000);
    assert_int_equal(options.stale_after_ms, 2000);
    assert_int_equal(options.wait_ms, BELAY_WAIT_FOREVER);
    assert_int_equal(options.attempts, 1);
    assert_true(options.reentrant);
}

/* S2.5, S4.6: the ttl is per call, and the heartbeat goes with it. */
static void the_heartbeat_of_a_profile_fits_the_ttl_of_the_call(void **state)
{
    static const struct {
        const char *profile;
        int64_t ttl_ms, heartbeat_ms;             /* given */
        int64_t new_heartbeat_ms, stale_after_ms; /* filled */
    } rows[] = {
        { "execution", 0, 0, 1440000, 0 },
        { "execution", 600000, 0, 480000, 0 },
        { "execution", 7200000, 0, 5760000, 0 },
        { "stack", 0, 0, 30000, 120000 },
        { "stack", 7200000, 0, 30000, 120000 },
        { "stack", 10000, 0, 2500, 120000 },
        { "stack", 0, 300000, 300000, 0 }, /* 2m would flag every holder; 0 is four heartbeats */
        { "build", 1000, 0, 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
        struct belay_profile profile;

        assert_int_equal(belay_config_profile(NULL, rows[i].profile, &profile, NULL), BELAY_OK);
        options.ttl_ms = rows[i].ttl_ms;
        options.heartbeat_ms = rows[i].heartbeat_ms;
        belay_profile_apply(&profile, &options);
        assert_int_equal(options.heartbeat_ms, rows[i].new_heartbeat_ms);
        assert_int_equal(options.stale_after_ms, rows[i].stale_after_ms);
        assert_true(options.heartbeat_ms < options.ttl_ms);
    }
}

/* S4.9 */
static void only_the_profile_of_stacks_retries_as_the_document_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(builtin); i++) {
        struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;

        belay_profile_apply(&builtin[i], &options);
        assert_int_equal(options.stepped_backoff, strcmp(builtin[i].name, "stack") == 0);
    }
}

#define PLACED(test) cmocka_unit_test_setup_teardown(test, place_enter, place_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACED(the_built_in_profiles_are_there_without_a_file),
        PLACED(without_a_configuration_the_defaults_can_be_read),
        PLACED(the_default_store_is_in_the_users_state_folder),
        PLACED(without_a_home_there_is_no_default_store),
        PLACED(the_first_file_found_is_read),
        PLACED(a_missing_file_counts_as_an_empty_one),
        PLACED(the_environment_beats_the_file_beats_the_defaults),
        PLACED(the_table_of_the_execution_locks_is_below_belay_store),
        PLACED(the_kill_switch_is_yes_or_no),
        PLACED(a_variable_that_is_wrong_is_named),
        PLACED(a_file_changes_what_it_names_of_a_profile_and_keeps_the_rest),
        PLACED(a_default_heartbeat_fits_the_ttl_that_a_file_sets),
        PLACED(values_of_a_profile_that_contradict_each_other_are_refused),
        PLACED(a_profile_that_is_not_there_says_which_are),
        PLACED(profiles_whose_names_begin_alike_are_kept_apart),
        PLACED(a_profile_fills_what_is_not_set),
        PLACED(a_profile_leaves_what_is_set),
        PLACED(the_heartbeat_of_a_profile_fits_the_ttl_of_the_call),
        PLACED(only_the_profile_of_stacks_retries_as_the_document_says),
    };

    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
