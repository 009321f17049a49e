/* The file: every name of the sample configuration, and every way to get one wrong (L8). */
#include "test_config_support.h"

#include "base/suggest.h"

/* The sample of DESIGN.md, word for word. */
static const char *const sample =
    "store: sqlite:/var/lib/belay/belay.db\n"
    "state_store: file:/var/lib/belay/state\n"
    "locking_enabled: true                      # the kill switch; BELAY_DISABLED=1 does the same\n"
    "profiles:\n"
    "  build:   {ttl: 10m, key: \"build-{component}-{environment}\", components: [router, echo, status, "
    "deploy, "
    "all], environments: [plt, dev, prod]}\n"
    "  nightly: {ttl: 4h, heartbeat: 1m, stale_after: 5m, wait: 30s, attempts: 5, reentrant: false}\n"
    "controller: {shared_db_lock_enabled: true, lock_ttl_seconds: 60, lock_max_retries: 3, "
    "quick_status_timeout: 3}\n"
    "databases:                                 # what stopping and starting means, per kind\n"
    "  postgres:\n"
    "    stop:  {command: [pg_ctl, stop, -D, /srv/pg], timeout: 60s, until: {command: [test, \"!\", -e, "
    "/srv/pg/postmaster.pid]}}\n"
    "    start: {command: [pg_ctl, start, -D, /srv/pg], timeout: 60s}\n"
    "  neo4j:   {stop: {ec2: stop}, start: {ec2: start}}\n"
    "server:\n"
    "  listen: 127.0.0.1:7420\n"
    "  tls: {certificate: server.pem, key: server.key}\n"
    "  tokens: [{name: ci, role: locker, keys: [\"build-*\"], sha256: \"\xe2\x80\xa6\"}]\n"
    "audit: {file: /var/log/belay/audit.jsonl}\n"
    "metrics: {emf: stderr}\n";

static void every_name_of_the_sample_is_understood(void **state)
{
    static const struct {
        const char *name;
        const char *value;
        const char *origin;
    } rows[] = {
        { "store", "sqlite:/var/lib/belay/belay.db", "c.yaml:1" },
        { "state_store", "file:/var/lib/belay/state", "c.yaml:2" },
        { "locking_enabled", "true", "c.yaml:3" },
        { "profiles.build.ttl", "10m", "c.yaml:5" },
        { "profiles.build.key", "build-{component}-{environment}", "c.yaml:5" },
        { "profiles.build.components.0", "router", "c.yaml:5" },
        { "profiles.build.components.4", "all", "c.yaml:5" },
        { "profiles.build.environments.2", "prod", "c.yaml:5" },
        { "profiles.nightly.ttl", "4h", "c.yaml:6" },
        { "profiles.nightly.heartbeat", "1m", "c.yaml:6" },
        { "profiles.nightly.stale_after", "5m", "c.yaml:6" },
        { "profiles.nightly.wait", "30s", "c.yaml:6" },
        { "profiles.nightly.attempts", "5", "c.yaml:6" },
        { "profiles.nightly.reentrant", "false", "c.yaml:6" },
        { "profiles.stack.ttl", "1h", "default" },
        { "controller.shared_db_lock_enabled", "true", "c.yaml:7" }, /* S3.8 */
        { "controller.lock_ttl_seconds", "60", "c.yaml:7" },
        { "controller.lock_max_retries", "3", "c.yaml:7" },
        { "controller.quick_status_timeout", "3", "c.yaml:7" },
        { "databases.postgres.stop.command.0", "pg_ctl", "c.yaml:10" },
        { "databases.postgres.stop.command.2", "-D", "c.yaml:10" },
        { "databases.postgres.stop.timeout", "60s", "c.yaml:10" },
        { "databases.postgres.stop.until.command.1", "!", "c.yaml:10" },
        { "databases.postgres.start.command.1", "start", "c.yaml:11" },
        { "databases.neo4j.stop.ec2", "stop", "c.yaml:12" },
        { "databases.neo4j.start.ec2", "start", "c.yaml:12" },
        { "server.listen", "127.0.0.1:7420", "c.yaml:14" },
        { "server.tls.certificate", "server.pem", "c.yaml:15" },
        { "server.tls.key", "server.key", "c.yaml:15" },
        { "server.tokens.0.name", "ci", "c.yaml:16" },
        { "server.tokens.0.role", "locker", "c.yaml:16" },
        { "server.tokens.0.keys.0", "build-*", "c.yaml:16" },
        { "server.tokens.0.sha256", "\xe2\x80\xa6", "c.yaml:16" },
        { "audit.file", "/var/log/belay/audit.jsonl", "c.yaml:17" },
        { "metrics.emf", "stderr", "c.yaml:18" },
    };
    const struct belay_config *config = load_text(*state, sample);

    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_setting(config, rows[i].name, rows[i].value, rows[i].origin);
    }
    assert_null(belay_config_get(config, "profiles.build.components.5"));
    assert_null(belay_config_get(config, "profiles.build"));
}

static void lists_keep_their_order_beyond_ten(void **state)
{
    const struct belay_config *config =
        load_text(*state, "profiles: {build: {components: [a, b, c, d, e, f, g, h, i, j, k, l]}}");
    struct belay_error err = BELAY_ERROR_INIT;

    assert_setting(config, "profiles.build.components.11", "l", "c.yaml:1");
    assert_int_equal(belay_key_check(config, "build", "build-x-y", &err), BELAY_INVALID);
    assert_string_equal(err.text, "Invalid component: x. Valid options: a, b, c, d, e, f, g, h, i, j, k, l");
    belay_error_release(&err);
}

static void a_file_may_begin_with_a_byte_order_mark_and_have_windows_lines(void **state)
{
    assert_setting(load_text(*state, "\xef\xbb\xbfstore: sqlite:x\r\nlocking_enabled: no\r\n"),
                   "locking_enabled", "false", "c.yaml:2");
}

static void an_argument_of_a_command_may_be_anything(void **state)
{
    const struct belay_config *config = load_text(
        *state, "databases:\n  pg:\n    stop:\n      command:\n        - sh\n        - -c\n        - "
                "|\n          one\n          two\n        - ''\n");

    assert_setting(config, "databases.pg.stop.command.2", "one\ntwo\n", "c.yaml:7");
    assert_setting(config, "databases.pg.stop.command.3", "", "c.yaml:10");
}

/* ---- what is wrong ----------------------------------------------------- */

struct fault_row {
    const char *text;
    const char *error;
};

static void check_faults(struct place *place, const struct fault_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        write_file("c.yaml", rows[i].text);
        assert_load_fails(place, "c.yaml", rows[i].error);
    }
}

static void an_unknown_name_gets_the_nearest_known_one(void **state)
{
    static const struct fault_row rows[] = {
        { "\nstroe: sqlite:x", "c.yaml:2: the file has no 'stroe'; did you mean 'store'?" },
        { "profile: {}", "c.yaml:1: the file has no 'profile'; did you mean 'profiles'?" },
        { "Store: sqlite:x", "c.yaml:1: the file has no 'Store'; did you mean 'store'?" },
        { "locking_enable: no",
          "c.yaml:1: the file has no 'locking_enable'; did you mean 'locking_enabled'?" },
        { "profiles:\n  build:\n    tll: 5m", "c.yaml:3: profiles.build has no 'tll'; did you mean 'ttl'?" },
        { "profiles: {x: {staleafter: 5m}}",
          "c.yaml:1: profiles.x has no 'staleafter'; did you mean 'stale_after'?" },
        { "profiles: {x: {hartbeat: 5m}}",
          "c.yaml:1: profiles.x has no 'hartbeat'; did you mean 'heartbeat'?" },
        { "controller: {lock_ttl_second: 6}",
          "c.yaml:1: controller has no 'lock_ttl_second'; did you mean 'lock_ttl_seconds'?" },
        { "databases: {pg: {stopp: {}}}", "c.yaml:1: databases.pg has no 'stopp'; did you mean 'stop'?" },
        { "databases: {pg: {stop: {comand: [x]}}}",
          "c.yaml:1: databases.pg.stop has no 'comand'; did you mean 'command'?" },
        { "databases: {pg: {stop: {until: {ec2: x}}}}",
          "c.yaml:1: databases.pg.stop.until has no 'ec2'; it can have command, http, every" },
        { "server: {tls: {cert: x}}", "c.yaml:1: server.tls has no 'cert'; it can have certificate, key" },
        { "server: {tokens: [{nam: x}]}", "c.yaml:1: server.tokens.0 has no 'nam'; did you mean 'name'?" },
        { "audit: {path: x}", "c.yaml:1: audit has no 'path'; it can have file" },
        { "metrics: {emv: x}", "c.yaml:1: metrics has no 'emv'; did you mean 'emf'?" },
        { "ttl: 5m", "c.yaml:1: the file has no 'ttl'; it can have store, state_store, state, "
                     "locking_enabled, auth_file, "
                     "ca_file, profiles, controller, databases, layouts, server, notify, audit, metrics" },
        { "<<: {}", "c.yaml:1: the file has no '<<'; it can have store, state_store, state, locking_enabled, "
                    "auth_file, "
                    "ca_file, profiles, controller, databases, layouts, server, notify, audit, metrics" },
    };

    check_faults(*state, rows, COUNT(rows));
}

static void a_wrong_value_is_answered_with_the_right_form(void **state)
{
    static const struct fault_row rows[] = {
        { "profiles:\n  build:\n    ttl: 10x",
          "c.yaml:3: profiles.build.ttl: '10x' is not a duration; write it as 30s, 10m or 1h30m" },
        { "profiles: {b: {ttl: 600}}",
          "c.yaml:1: profiles.b.ttl: '600' is not a duration; write it as 30s, 10m or 1h30m" },
        { "profiles: {b: {ttl: 99ms}}",
          "c.yaml:1: profiles.b.ttl: '99ms' is too short; it must be at least 100ms" },
        { "profiles: {b: {ttl: 0}}",
          "c.yaml:1: profiles.b.ttl: '0' is too short; it must be at least 100ms" },
        { "profiles: {b: {ttl: 366d1ms}}",
          "c.yaml:1: profiles.b.ttl: '366d1ms' is too long; it must be at most 366d" },
        { "profiles: {b: {wait: forever}}",
          "c.yaml:1: profiles.b.wait: 'forever' is not a duration; write it as 30s, 10m or 1h30m" },
        { "profiles: {b: {attempts: -1}}", "c.yaml:1: profiles.b.attempts: '-1' is not valid; write a "
                                           "whole number from 0 to 1000000" },
        { "profiles: {b: {attempts: 1000001}}",
          "c.yaml:1: profiles.b.attempts: '1000001' is not valid; write a whole number from 0 to 1000000" },
        { "profiles: {b: {attempts: 99999999999999999999}}",
          "c.yaml:1: profiles.b.attempts: '99999999999999999999' is not valid; write a whole "
          "number "
          "from 0 to 1000000" },
        { "profiles: {b: {attempts: 1.5}}", "c.yaml:1: profiles.b.attempts: '1.5' is not valid; write "
                                            "a whole number from 0 to 1000000" },
        { "profiles: {b: {reentrant: maybe}}", "c.yaml:1: profiles.b.reentrant: 'maybe' is not a switch; "
                                               "write 1, true, yes or on, or 0, false, no or off" },
        { "profiles: {b: {key: '{stack}-x'}}",
          "c.yaml:1: profiles.b.key: '{stack}-x' has braces that are neither "
          "{component} nor {environment}" },
        { "profiles: {b: {components: [a, 'b:c']}}",
          "c.yaml:1: profiles.b.components.1: 'b:c' has a ':', which separates the parts of a key" },
        { "profiles: {b: {components: ['']}}",
          "c.yaml:1: profiles.b.components.0: '' is empty; give it a value or remove it" },
        { "profiles: {b: {environments: [\"a\\nb\"]}}",
          "c.yaml:1: profiles.b.environments.0: '(unprintable or "
          "long)' is not one line of UTF-8 without control "
          "characters" },
        { "locking_enabled: perhaps", "c.yaml:1: locking_enabled: 'perhaps' is not a switch; write 1, true, "
                                      "yes or on, or 0, false, no or off" },
        { "store: belay.db", "c.yaml:1: store: 'belay.db' is not a store; write it as KIND:WHERE, such as "
                             "sqlite:/var/lib/belay/belay.db" },
        { "store: 'sqlite:'", "c.yaml:1: store: 'sqlite:' is not a store; write it as KIND:WHERE, such as "
                              "sqlite:/var/lib/belay/belay.db" },
        { "controller: {lock_ttl_seconds: 60s}", "c.yaml:1: controller.lock_ttl_seconds: '60s' is not valid; "
                                                 "write a whole number from 1 to 31622400" },
        { "databases: {pg: {stop: {timeout: soon}}}",
          "c.yaml:1: databases.pg.stop.timeout: 'soon' is not a duration; write it as 30s, 10m or 1h30m" },
        { "store: \"sqlite:a\\0b\"", "c.yaml:1: a text contains a NUL character" },
    };

    check_faults(*state, rows, COUNT(rows));
}

static void a_value_of_the_wrong_type_is_refused(void **state)
{
    static const struct fault_row rows[] = {
        { "just words", "c.yaml:1: the file must be a map (NAME: VALUE)" },
        { "\n- store", "c.yaml:2: the file must be a map (NAME: VALUE)" },
        { "store: [sqlite:x]", "c.yaml:1: store must be a single value, not a list or a map" },
        { "store: {sqlite: x}", "c.yaml:1: store must be a single value, not a list or a map" },
        { "store:", "c.yaml:1: store has no value; give it one or remove it" },
        { "store: ~", "c.yaml:1: store has no value; give it one or remove it" },
        { "profiles: build", "c.yaml:1: profiles must be a map (NAME: VALUE)" },
        { "profiles:\n  build: 10m", "c.yaml:2: profiles.build must be a map (NAME: VALUE)" },
        { "profiles: {x: {components: a}}",
          "c.yaml:1: profiles.x.components must be a list, such as [a, b]" },
        { "profiles: {x: {components: []}}",
          "c.yaml:1: profiles.x.components is an empty list; add an item or remove it" },
        { "profiles: {x: {components: }}", "c.yaml:1: profiles.x.components must be a list, such as [a, b]" },
        { "profiles: {x: {components: [[a]]}}",
          "c.yaml:1: profiles.x.components.0 must be a single value, not a list or a map" },
        { "profiles:\n  x:\n  y: {ttl: 1m}", "c.yaml:2: profiles.x is empty; add a setting or remove it" },
        { "profiles: {x: {}}", "c.yaml:1: profiles.x is empty; add a setting or remove it" },
        { "profiles: {a.b: {ttl: 1m}}",
          "c.yaml:1: profiles: invalid name 'a.b'; use at most 64 letters, digits, '_' and '-'" },
        { "profiles: {-x: {ttl: 1m}}",
          "c.yaml:1: profiles: invalid name '-x'; use at most 64 letters, digits, '_' and '-'" },
        { "? [a]\n: b", "c.yaml:1: a name must be a text, not a list or a map" },
        { "'': b", "c.yaml:1: a name is empty, too long, or has control characters" },
        { "server: {tokens: [ci]}", "c.yaml:1: server.tokens.0 must be a map (NAME: VALUE)" },
    };

    check_faults(*state, rows, COUNT(rows));
}

static void yaml_features_that_a_configuration_does_not_need_are_refused(void **state)
{
    static const struct fault_row rows[] = {
        { "store: sqlite:a\nlocking_enabled: no\nstore: sqlite:b",
          "c.yaml:3: duplicate name 'store'; the first is in line 1" },
        { "profiles:\n  x: {ttl: 1m}\n  x: {ttl: 2m}",
          "c.yaml:3: duplicate name 'x'; the first is in line 2" },
        { "store: &a sqlite:x", "c.yaml:1: anchors (&) and aliases (*) are not supported; write the value" },
        { "audit: {file: x}\nstore: *a",
          "c.yaml:2: anchors (&) and aliases (*) are not supported; write the value" },
        { "profiles: &p {}", "c.yaml:1: anchors (&) and aliases (*) are not supported; write the value" },
        { "profiles: {x: {components: &c [a]}}",
          "c.yaml:1: anchors (&) and aliases (*) are not supported; write the value" },
        { "&a store: sqlite:x", "c.yaml:1: anchors (&) and aliases (*) are not supported; write the value" },
        { "store: !!str sqlite:x", "c.yaml:1: tags (!) are not supported; write the value alone" },
        { "--- {}\n--- {}\n", "c.yaml:2: a second document begins; only one is supported" },
        { "store: sqlite:x\n...\n---\nstore: sqlite:y",
          "c.yaml:3: a second document begins; only one is supported" },
        { "store: \xff", "c.yaml:1: not UTF-8 text: invalid leading UTF-8 octet" },
        { "a: b\n# \xc3(\n", "c.yaml:2: not UTF-8 text: invalid trailing UTF-8 octet" },
        { "a: b\n\n\x01", "c.yaml:3: not UTF-8 text: control characters are not allowed" },
        { "store: [", "c.yaml:1: not YAML: did not find expected node content while parsing a flow node" },
        { "\n\nstore: 'x",
          "c.yaml:3: not YAML: found unexpected end of stream while scanning a quoted scalar" },
        { "profiles:\n\tbuild: x", "c.yaml:2: a tab: YAML is indented with spaces" },
        { "x: [[[[[[[[[[[[[[[[[[[[[[[[", "c.yaml:1: nested too deeply" },
    };

    check_faults(*state, rows, COUNT(rows));
}

/* Sixteen bits are no way around: a UTF-16 file is refused too. */
static void another_encoding_is_refused(void **state)
{
    write_bytes("c.yaml", "\xff\xfes\0t\0o\0r\0e\0", 12);
    assert_load_fails(*state, "c.yaml", "c.yaml:1: not UTF-8 text: invalid leading UTF-8 octet");
    write_bytes("c.yaml", "a: b\n\0", 6);
    assert_load_fails(*state, "c.yaml", "c.yaml:2: not UTF-8 text: control characters are not allowed");
}

static void a_file_that_is_too_large_is_refused(void **state)
{
    static const char beginning[] = { 'x', ':', ' ', '[' };
    const size_t limit = 1 << 20;
    char *data = malloc(limit + 1);

    assert_non_null(data);
    memset(data, '#', limit + 1);
    write_bytes("c.yaml", data, limit);
    (void)load(*state, "c.yaml");
    write_bytes("c.yaml", data, limit + 1);
    assert_load_fails(*state, "c.yaml", "'c.yaml' is larger than 1048576 bytes");

    /* Within the size, but of too many values. */
    for (size_t i = 0; i + 1 < limit; i += 2) {
        data[i] = 'a';
        data[i + 1] = ',';
    }
    memcpy(data, beginning, sizeof beginning);
    write_bytes("c.yaml", data, limit - 1);
    assert_load_fails(*state, "c.yaml", "c.yaml:1: too many values");
    free(data);
}

/* ---- trust ------------------------------------------------------------- */

static void a_file_that_others_may_write_is_refused(void **state)
{
    static const mode_t modes[] = { 0664, 0646, 0666, 0620, 0602 };

    write_file("c.yaml", "profiles: {p: {ttl: 1m}}");
    for (size_t i = 0; i < COUNT(modes); i++) {
        assert_int_equal(chmod("c.yaml", modes[i]), 0);
        assert_load_fails(*state, "c.yaml", "'c.yaml' is writable by other users; run 'chmod go-w c.yaml'");
    }
    assert_int_equal(rename("c.yaml", "belay.yaml"), 0);
    assert_load_fails(*state, NULL,
                      "'./belay.yaml' is writable by other users; run 'chmod go-w ./belay.yaml'");
    assert_int_equal(chmod("belay.yaml", 0644), 0);
    (void)load(*state, NULL);
}

/* A checkout must not run code, redirect locks or receive credentials by being entered. */
static void a_file_found_in_the_working_directory_may_define_profiles_only(void **state)
{
    static const char *const others[] = {
        "store: sqlite:x",
        "state_store: file:x",
        "state: {keep_snapshots: 1}",
        "locking_enabled: false",
        "auth_file: x",
        "ca_file: x",
        "controller:",
        "databases:",
        "layouts: {l: {key: k}}",
        "server: {listen: x}",
        "audit: {file: .bashrc}",
        "metrics: {emf: x}",
    };

    for (size_t i = 0; i < COUNT(others); i++) {
        char text[128];
        char expected[400];

        (void)snprintf(text, sizeof text, "profiles: {p: {ttl: 1m}}\n%s\n", others[i]);
        write_file("belay.yaml", text);
        (void)snprintf(expected, sizeof expected,
                       "./belay.yaml:2: '%.*s' is not permitted in a file found in the working directory, "
                       "which may only define profiles; if you trust the file, name it with --config "
                       "./belay.yaml or BELAY_CONFIG",
                       (int)strcspn(others[i], ":"), others[i]);
        assert_load_fails(*state, NULL, expected);

        /* A file that was named is trusted. */
        (void)load(*state, "./belay.yaml");
        (void)setenv("BELAY_CONFIG", "./belay.yaml", 1);
        (void)load(*state, NULL);
        (void)unsetenv("BELAY_CONFIG");
    }
    write_file("belay.yaml", "profile: {p: {ttl: 1m}}");
    assert_load_fails(*state, NULL, "./belay.yaml:1: the file has no 'profile'; did you mean 'profiles'?");
}

static void a_profile_of_the_working_directory_takes_the_place_of_the_installed_one(void **state)
{
    const struct place *place = *state;
    const struct belay_config *config;

    (void)setenv("XDG_CONFIG_HOME", place->folder, 1);
    assert_int_equal(mkdir("belay", 0755), 0);
    write_file("belay/config.yaml", "locking_enabled: false\n"
                                    "profiles: {build: {ttl: 1h, components: [a, b, c]}, deploy: {ttl: 1h},"
                                    " own: {ttl: 1h}}");
    write_file("belay.yaml", "profiles: {build: {components: [x]}, deploy: {wait: 1m}}");
    config = load(*state, NULL);
    assert_string_equal(belay_config_get(config, "locking_enabled"), "false");
    assert_string_equal(belay_config_get(config, "profiles.build.components.0"), "x");
    assert_null(belay_config_get(config, "profiles.build.components.1"));
    assert_setting(config, "profiles.build.ttl", "10m", "default");
    assert_setting(config, "profiles.deploy.ttl", "30m", "default");
    assert_string_equal(belay_config_get(config, "profiles.own.ttl"), "1h");
    assert_non_null(strstr(belay_config_path(config), "belay/config.yaml"));
}

static void a_file_of_another_user_in_the_working_directory_is_refused(void **state)
{
    if (geteuid() != 0) {
        skip();
    }
    write_file("belay.yaml", "locking_enabled: no");
    assert_int_equal(chown("belay.yaml", 54321, (gid_t)-1), 0);
    assert_load_fails(
        *state, NULL,
        "'./belay.yaml' belongs to another user (uid 54321), who may change it; name it with --config "
        "to use it anyway");
    assert_setting(load(*state, "belay.yaml"), "locking_enabled", "false", "belay.yaml:1");
}

static void a_path_that_is_not_a_file_is_refused(void **state)
{
    assert_int_equal(mkdir("belay.yaml", 0755), 0);
    assert_load_fails(*state, NULL, "'./belay.yaml' is not a regular file");
    assert_load_fails(*state, "nowhere.yaml", "cannot open 'nowhere.yaml': No such file or directory");
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_load_fails(*state, "fifo", "'fifo' is not a regular file");
    assert_load_fails(*state, "/dev/zero", "'/dev/zero' is not a regular file");
    assert_load_fails(*state, "", "cannot open '': No such file or directory");
}

/* ---- the nearest name -------------------------------------------------- */

static void the_nearest_name_takes_the_fewest_changes(void **state)
{
    static const char *const names[] = { "ttl", "wait", "attempts", "heartbeat", "stale_after" };
    static const struct {
        const char *typed;
        const char *nearest;
    } rows[] = {
        { "ttl", "ttl" },
        { "tlt", "ttl" },
        { "tl", "ttl" },
        { "tttl", "ttl" },
        { "wiat", "wait" },
        { "waits", "wait" },
        { "attempt", "attempts" },
        { "atempts", "attempts" },
        { "heart_beat", "heartbeat" },
        { "stale-after", "stale_after" },
        { "staleAfter", "stale_after" },
        { "retries", NULL },
        { "", NULL },
        { "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", NULL },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *nearest = suggest_name(rows[i].typed, names, COUNT(names));

        if ((nearest == NULL) != (rows[i].nearest == NULL) ||
            (nearest != NULL && strcmp(nearest, rows[i].nearest) != 0)) {
            fail_msg("'%s' is near '%s'", rows[i].typed, nearest == NULL ? "nothing" : nearest);
        }
    }
    assert_null(suggest_name("x", names, 0));
}

#define PLACED(test) cmocka_unit_test_setup_teardown(test, place_enter, place_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACED(every_name_of_the_sample_is_understood),
        PLACED(lists_keep_their_order_beyond_ten),
        PLACED(a_file_may_begin_with_a_byte_order_mark_and_have_windows_lines),
        PLACED(an_argument_of_a_command_may_be_anything),
        PLACED(an_unknown_name_gets_the_nearest_known_one),
        PLACED(a_wrong_value_is_answered_with_the_right_form),
        PLACED(a_value_of_the_wrong_type_is_refused),
        PLACED(yaml_features_that_a_configuration_does_not_need_are_refused),
        PLACED(another_encoding_is_refused),
        PLACED(a_file_that_is_too_large_is_refused),
        PLACED(a_file_that_others_may_write_is_refused),
        PLACED(a_file_found_in_the_working_directory_may_define_profiles_only),
        PLACED(a_profile_of_the_working_directory_takes_the_place_of_the_installed_one),
        PLACED(a_file_of_another_user_in_the_working_directory_is_refused),
        PLACED(a_path_that_is_not_a_file_is_refused),
        PLACED(the_nearest_name_takes_the_fewest_changes),
    };

    return cmocka_run_group_tests_name("config file", tests, NULL, NULL);
}
