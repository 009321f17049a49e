/* The keys of locks: their parts, invalid keys, and the hierarchy. */
#include "test_config_support.h"

#include "config/key_forms.h"

static const char *const lists = "profiles:\n"
                                 "  build:\n"
                                 "    components: [router, echo, status, deploy, all]\n"
                                 "    environments: [plt, dev, prod, eu-prod]\n"
                                 "  env-first: {key: 'x/{environment}-{component}', ttl: 1m}\n"
                                 "  by-env: {key: 'freeze {environment}', ttl: 1m}\n"
                                 "  constant: {key: the-one, ttl: 1m}\n"
                                 "  nightly: {ttl: 1m}\n";

/* ---- making ------------------------------------------------------------ */

struct make_row {
    struct belay_key_parts parts; /* profile, stack, environment, service, component */
    const char *key;              /* NULL: refused */
    const char *text;             /* with this text */
};

static void check_make(const struct belay_config *config, const struct make_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct belay_error err = BELAY_ERROR_INIT;
        char *key = NULL;
        enum belay_code code = belay_key_make(config, &rows[i].parts, &key, &err);

        if (rows[i].key == NULL) {
            if (code != BELAY_INVALID || key != NULL || strcmp(err.text, rows[i].text) != 0) {
                fail_msg("row %zu: %s\n  expected '%s'\n  got      '%s'", i, belay_code_name(code),
                         rows[i].text, err.text);
            }
        } else if (code != BELAY_OK || strcmp(key, rows[i].key) != 0) {
            fail_msg("row %zu: expected '%s', got '%s' (%s)", i, rows[i].key, key == NULL ? "" : key,
                     err.text);
        }
        free(key);
        belay_error_release(&err);
    }
}

/* S4.5 */
static void a_stack_with_its_parts_names_a_lock(void **state)
{
    static const struct make_row rows[] = {
        { { NULL, "user-platform", "production", NULL, NULL }, "stack:user-platform:env:production", NULL },
        { { NULL, "s", "e", "user-service", NULL }, "stack:s:env:e:service:user-service", NULL },
        { { NULL, "s", "e", NULL, "user-service/api" }, "stack:s:env:e:component:user-service/api", NULL },
        { { NULL, "s", "e", NULL, "vpc" }, "stack:s:env:e:component:vpc", NULL },
        { { NULL, "org/project", "e", NULL, NULL }, "stack:org/project:env:e", NULL },
        { { "stack", "s", "e", NULL, NULL }, "stack:s:env:e", NULL },
        { { "database", "s", "e", NULL, NULL }, "stack:s:env:e", NULL },
    };

    (void)state;
    check_make(NULL, rows, COUNT(rows));
}

/* L8 */
static void parts_of_a_stack_that_are_wrong_are_named(void **state)
{
    static const struct make_row rows[] = {
        { { NULL, "s", NULL, NULL, NULL }, NULL, "--stack needs --environment" },
        { { NULL, "", "e", NULL, NULL }, NULL, "--stack is empty" },
        { { NULL, "s", "", NULL, NULL }, NULL, "--environment is empty" },
        { { NULL, "s", "e", "", NULL }, NULL, "--service is empty" },
        { { NULL, "s", "e", NULL, "" }, NULL, "--component is empty" },
        { { NULL, "a:b", "e", NULL, NULL },
          NULL,
          "--stack: 'a:b' has a ':', which separates the parts of a key" },
        { { NULL, "s", "e:f", NULL, NULL },
          NULL,
          "--environment: 'e:f' has a ':', which separates the parts of a key" },
        { { NULL, "s", "e", "v:w", NULL },
          NULL,
          "--service: 'v:w' has a ':', which separates the parts of a key" },
        { { NULL, "s", "e", NULL, "v/c:d" },
          NULL,
          "--component: 'v/c:d' has a ':', which separates the parts of a key" },
        { { NULL, "s", "e", "v/w", NULL },
          NULL,
          "--service: 'v/w' has a '/', which separates service and component" },
        { { NULL, "s", "e", NULL, "v/" }, NULL, "--component: 'v/' is not SERVICE/COMPONENT, nor one name" },
        { { NULL, "s", "e", NULL, "/c" }, NULL, "--component: '/c' is not SERVICE/COMPONENT, nor one name" },
        { { NULL, "s", "e", NULL, "a/b/c" },
          NULL,
          "--component: 'a/b/c' is not SERVICE/COMPONENT, nor one name" },
        { { NULL, "s", "e", "v", "c" },
          NULL,
          "--service and --component exclude each other; a component of a service is --component "
          "SERVICE/COMPONENT" },
        { { NULL, "s\n", "e", NULL, NULL },
          NULL,
          "--stack is longer than 512 bytes, not UTF-8, or has control characters" },
        { { NULL, "s", "\xff", NULL, NULL },
          NULL,
          "--environment is longer than 512 bytes, not UTF-8, or has control characters" },
        { { "build", "s", "e", NULL, NULL },
          NULL,
          "--stack and profile 'build' exclude each other: the profile makes its keys from its template "
          "(build-{component}-{environment})" },
    };

    (void)state;
    check_make(NULL, rows, COUNT(rows));
}

/* S0.4, and what is built in holds without a configuration. */
static void a_profile_with_a_template_names_a_lock(void **state)
{
    static const struct make_row rows[] = {
        { { "build", NULL, "plt", NULL, "router" }, "build-router-plt", NULL },
        { { "build", NULL, "prod", NULL, "all" }, "build-all-prod", NULL },
        { { "deploy", NULL, "prod", NULL, "api" }, "deploy-api-prod", NULL },
        { { "deploy", NULL, "prod", NULL, "user-api" }, "deploy-user-api-prod", NULL },
    };

    (void)state;
    check_make(NULL, rows, COUNT(rows));
}

static void a_template_takes_the_parts_that_it_names_and_no_other(void **state)
{
    static const struct make_row rows[] = {
        { { "env-first", NULL, "prod", NULL, "my-api" }, "x/prod-my-api", NULL },
        { { "by-env", NULL, "prod", NULL, NULL }, "freeze prod", NULL },
        { { "constant", NULL, NULL, NULL, NULL }, "the-one", NULL },
        { { "by-env", NULL, "prod", NULL, "c" },
          NULL,
          "--component: the keys of profile 'by-env' (freeze {environment}) have no place for it" },
        { { "constant", NULL, "e", NULL, NULL },
          NULL,
          "--environment: the keys of profile 'constant' (the-one) have no place for it" },
        { { "build", NULL, "prod", NULL, NULL },
          NULL,
          "the keys of profile 'build' (build-{component}-{environment}) need --component" },
        { { "build", NULL, NULL, NULL, "router" },
          NULL,
          "the keys of profile 'build' (build-{component}-{environment}) need --environment" },
        { { "nightly", NULL, "prod", NULL, "router" },
          NULL,
          "profile 'nightly' has no key template: add --stack, or give the whole key" },
        { { "build", NULL, "prod", "v", "router" }, NULL, "--service needs --stack" },
        { { "bild", NULL, "prod", NULL, "router" },
          NULL,
          "unknown profile 'bild'; known profiles: build, by-env, constant, database, deploy, env-first, "
          "execution, nightly, stack" },
    };

    check_make(load_text(*state, lists), rows, COUNT(rows));
}

static void parts_that_name_no_lock_say_what_to_add(void **state)
{
    static const struct make_row rows[] = {
        { { NULL, NULL, "prod", NULL, "router" },
          NULL,
          "--component alone does not name a lock: add --stack, or --profile with a key template" },
        { { NULL, NULL, "prod", NULL, NULL },
          NULL,
          "--environment alone does not name a lock: add --stack, or --profile with a key template" },
        { { NULL, NULL, "prod", "v", NULL }, NULL, "--service needs --stack" },
        { { NULL, NULL, NULL, NULL, NULL }, NULL, "no lock given: give its key or its parts" },
        { { "build", NULL, "pr:od", NULL, "router" },
          NULL,
          "--environment: 'pr:od' has a ':', which separates the parts of a key" },
        { { "build", NULL, "prod", NULL, "" }, NULL, "--component is empty" },
    };
    char *key = NULL;

    (void)state;
    check_make(NULL, rows, COUNT(rows));
    assert_int_equal(belay_key_make(NULL, NULL, &key, NULL), BELAY_INVALID);
    assert_null(key);
}

/* S0.5, word for word. */
static void a_component_or_environment_that_is_not_listed_is_refused(void **state)
{
    static const struct make_row rows[] = {
        { { "build", NULL, "prod", NULL, "echo" }, "build-echo-prod", NULL },
        { { "build", NULL, "prod", NULL, "api" },
          NULL,
          "Invalid component: api. Valid options: router, echo, status, deploy, all" },
        { { "build", NULL, "qa", NULL, "echo" },
          NULL,
          "Invalid environment: qa. Valid options: plt, dev, prod, eu-prod" },
        { { "build", NULL, "qa", NULL, "api" },
          NULL,
          "Invalid component: api. Valid options: router, echo, status, deploy, all" },
        { { "build", NULL, "prod", NULL, "Router" },
          NULL,
          "Invalid component: Router. Valid options: router, echo, status, deploy, all" },
        { { "deploy", NULL, "qa", NULL, "api" }, "deploy-api-qa", NULL }, /* has no lists */
    };

    check_make(load_text(*state, lists), rows, COUNT(rows));
}

/* ---- ambiguity --------------------------------------------------------- */

static void a_key_that_would_be_read_otherwise_is_not_made(void **state)
{
    static const struct make_row plain[] = {
        { { "build", NULL, "c", NULL, "a-b" }, "build-a-b-c", NULL },
        { { "build", NULL, "b-c", NULL, "a" },
          NULL,
          "the key 'build-a-b-c' would be parsed as component 'a-b' and environment 'c' of profile 'build'; "
          "list "
          "'b-c' under profiles.build.environments" },
    };
    static const struct make_row listed[] = {
        { { "build", NULL, "eu-prod", NULL, "echo" }, "build-echo-eu-prod", NULL },
        { { "build", NULL, "prod", NULL, "echo" }, "build-echo-prod", NULL },
    };
    static const struct make_row two[] = {
        { { "build", NULL, "b-c", NULL, "a" }, "build-a-b-c", NULL },
        { { "build", NULL, "c", NULL, "a-b" },
          NULL,
          "the key 'build-a-b-c' would be parsed as component 'a' and environment 'b-c' of profile 'build'" },
        { { "any", NULL, "c", NULL, "x" }, "x-c", NULL },
        { { "any", NULL, "c", NULL, "build-x" },
          NULL,
          "the key 'build-x-c' would be parsed as component 'x' and environment 'c' of profile 'build'" },
    };

    static const struct make_row like_stacks[] = {
        { { "odd", NULL, "prod", NULL, "shop" }, "shop:a:env:prod", NULL },
        { { "odd", NULL, "prod", NULL, "stack" },
          NULL,
          "the key 'stack:a:env:prod' would be one of profile 'stack': choose another --component, or change "
          "the "
          "key template of profile 'odd'" },
        { { "build", NULL, "prod", NULL, "stack" }, "build-stack-prod", NULL },
    };

    check_make(NULL, plain, COUNT(plain));
    check_make(load_text(*state, lists), listed, COUNT(listed));
    check_make(load_text(*state, "profiles: {odd: {key: '{component}:a:env:{environment}', ttl: 1m}}"),
               like_stacks, COUNT(like_stacks));
    check_make(load_text(*state, "profiles: {build: {environments: [c, b-c]}, any: {key: "
                                 "'{component}-{environment}', ttl: 1m}}"),
               two, COUNT(two));
}

static void a_key_is_read_by_the_longest_listed_environment_or_the_last_dash(void **state)
{
    static const char *const environments[] = { "prod", "eu-prod", "b-c" };
    static const char *const components[] = { "a", "a-eu" };
    static const char *const template = "build-{component}-{environment}";
    static const struct {
        struct key_scheme scheme;
        const char *key;
        const char *component; /* NULL: does not fit */
        const char *environment;
    } rows[] = {
        { { "p", template, NULL, 0, NULL, 0 }, "build-a-b-c", "a-b", "c" },
        { { "p", template, NULL, 0, NULL, 0 }, "build-a-b", "a", "b" },
        { { "p", template, NULL, 0, NULL, 0 }, "build-a--b", "a-", "b" },
        { { "p", template, NULL, 0, NULL, 0 }, "build-a", NULL, NULL },
        { { "p", template, NULL, 0, NULL, 0 }, "build--b", NULL, NULL },
        { { "p", template, NULL, 0, NULL, 0 }, "build-a-", NULL, NULL },
        { { "p", template, NULL, 0, NULL, 0 }, "build--", NULL, NULL },
        { { "p", template, NULL, 0, NULL, 0 }, "rebuild-a-b", NULL, NULL },
        { { "p", template, NULL, 0, NULL, 0 }, "build-a:x-b", NULL, NULL },
        { { "p", template, NULL, 0, environments, 3 }, "build-a-b-c", "a", "b-c" },
        { { "p", template, NULL, 0, environments, 3 }, "build-a-eu-prod", "a", "eu-prod" },
        { { "p", template, NULL, 0, environments, 3 }, "build-eu-prod", "eu", "prod" },
        { { "p", template, NULL, 0, environments, 3 }, "build-a-c", NULL, NULL },
        { { "p", template, components, 2, environments, 1 }, "build-a-eu-prod", "a-eu", "prod" },
        { { "p", template, components, 2, environments, 2 }, "build-a-eu-prod", "a", "eu-prod" },
        { { "p", template, components, 2, NULL, 0 }, "build-a-x-y", "a", "x-y" },
        { { "p", template, components, 2, NULL, 0 }, "build-b-x", NULL, NULL },
        { { "p", "{environment}-{component}", NULL, 0, NULL, 0 }, "prod-my-api", "my-api", "prod" },
        { { "p", "{environment}-{component}", NULL, 0, environments, 3 }, "eu-prod-api", "api", "eu-prod" },
        { { "p", "{component}--{environment}.lock", NULL, 0, NULL, 0 }, "a-b--c-d.lock", "a-b", "c-d" },
        { { "p", "{component}--{environment}.lock", NULL, 0, NULL, 0 }, "a-b--c-d", NULL, NULL },
        { { "p", "job {component}", NULL, 0, NULL, 0 }, "job nightly-x", "nightly-x", NULL },
        { { "p", NULL, NULL, 0, NULL, 0 }, "build-a-b", NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct key_names names = { { NULL, 0 }, { NULL, 0 } };
        bool is_allowed = false;
        bool fits = key_read_form(&rows[i].scheme, rows[i].key, &names, &is_allowed) && is_allowed;
        char component[64], environment[64];

        (void)snprintf(component, sizeof component, "%.*s", (int)names.component.len,
                       names.component.at == NULL ? "" : names.component.at);
        (void)snprintf(environment, sizeof environment, "%.*s", (int)names.environment.len,
                       names.environment.at == NULL ? "" : names.environment.at);
        if (fits != (rows[i].component != NULL) || (fits && strcmp(component, rows[i].component) != 0) ||
            (fits && rows[i].environment != NULL && strcmp(environment, rows[i].environment) != 0)) {
            fail_msg("row %zu: '%s' was read as '%s' and '%s'", i, rows[i].key, component, environment);
        }
    }
}

/* Whatever is made is read back as what it was made of: all short names over a mean alphabet. */
static void a_key_that_was_made_is_read_back(void **state)
{
    static const char *const names[] = { "a", "-", "a-", "-a", "a-a", "--", "all", "a-all", "all-a", "aa" };
    const struct belay_config *configs[2] = { NULL, load_text(*state, "profiles: {build: {environments: "
                                                                      "[a, a-a, all-a, '-']}}") };
    size_t n_made = 0;

    for (size_t i = 0; i < 2 * COUNT(names) * COUNT(names); i++) {
        const struct belay_config *config = configs[i % 2];
        const char *component = names[i / 2 % COUNT(names)];
        const char *environment = names[i / 2 / COUNT(names)];
        const struct belay_key_parts parts = { "build", NULL, environment, NULL, component };
        char *above[BELAY_ANCESTORS_MAX] = { NULL, NULL };
        char expected[64];
        char *key = NULL;
        size_t n;

        if (belay_key_make(config, &parts, &key, NULL) != BELAY_OK) {
            continue;
        }
        n_made++;
        (void)snprintf(expected, sizeof expected, "build-all-%s", environment);
        n = belay_key_ancestors(config, key, above);
        assert_int_equal(n, strcmp(component, "all") == 0 ? 0 : 1);
        if (n > 0) {
            assert_string_equal(above[0], expected);
        }
        free(above[0]);
        free(key);
    }
    assert_true(n_made > 30);
}

/* ---- ancestors --------------------------------------------------------- */

struct above_row {
    const char *key;
    const char *above[BELAY_ANCESTORS_MAX];
};

static void check_above(const struct belay_config *config, const struct above_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *above[BELAY_ANCESTORS_MAX] = { NULL, NULL };
        size_t n_expected = rows[i].above[0] == NULL ? 0 : rows[i].above[1] == NULL ? 1 : 2;
        size_t n_above = belay_key_ancestors(config, rows[i].key, above);

        if (n_above != n_expected) {
            fail_msg("'%s' has %zu keys above it", rows[i].key, n_above);
        }
        for (size_t k = 0; k < n_above; k++) {
            assert_string_equal(above[k], rows[i].above[k]);
            free(above[k]);
        }
    }
}

/* S4.5: nearest first. */
static void a_component_stands_below_its_service_and_its_stack(void **state)
{
    static const struct above_row rows[] = {
        { "stack:s:env:e:component:v/c", { "stack:s:env:e:service:v", "stack:s:env:e" } },
        { "stack:s:env:e:component:c", { "stack:s:env:e", NULL } },
        { "stack:s:env:e:service:v", { "stack:s:env:e", NULL } },
        { "stack:s:env:e", { NULL, NULL } },
        { "stack:env:env:env:service:service", { "stack:env:env:env", NULL } },
        { "stack:a:env:", { NULL, NULL } },
        { "stack:s:env:e:component:a/b/c", { NULL, NULL } },
    };

    (void)state;
    check_above(NULL, rows, COUNT(rows));
}

/* S0.4: `all` excludes each single component of that command and environment; build and deploy do not meet. */
static void a_component_stands_below_all_of_its_command_and_environment(void **state)
{
    static const struct above_row rows[] = {
        { "build-router-plt", { "build-all-plt", NULL } },
        { "build-user-api-plt", { "build-all-plt", NULL } },
        { "deploy-router-plt", { "deploy-all-plt", NULL } },
        { "build-all-plt", { NULL, NULL } },
        { "build-router", { NULL, NULL } },
        { "terraform-prod", { NULL, NULL } },
        { "x", { NULL, NULL } },
        { "", { NULL, NULL } },
    };
    char *above[BELAY_ANCESTORS_MAX];

    (void)state;
    check_above(NULL, rows, COUNT(rows));
    assert_int_equal(belay_key_ancestors(NULL, NULL, above), 0);
}

static void a_key_that_the_lists_no_longer_allow_is_released_with_the_keys_above_it(void **state)
{
    static const struct above_row rows[] = {
        { "build-router-eu-prod", { "build-all-eu-prod", NULL } },
        { "build-router-prod", { "build-all-prod", NULL } },
        { "build-api-prod", { "build-all-prod", NULL } },
        { "build-router-qa", { "build-all-qa", NULL } },
        { "deploy-api-qa", { "deploy-all-qa", NULL } },
        { "x/prod-my-api", { "x/prod-all", NULL } },
        { "x/prod-all", { NULL, NULL } },
        { "freeze prod", { NULL, NULL } },
        { "the-one", { NULL, NULL } },
    };

    check_above(load_text(*state, lists), rows, COUNT(rows));
}

/* Of two templates the more specific one: all clients must agree. */
static void a_key_that_fits_two_templates_is_read_by_the_longer(void **state)
{
    static const struct above_row rows[] = {
        { "build-x-c", { "build-all-c", NULL } },
        { "test-x-c", { "all-c", NULL } },
        { "nightly-test-x-c", { "nightly-test-all-c", NULL } },
    };

    check_above(load_text(*state, "profiles:\n"
                                  "  a: {key: '{component}-{environment}'}\n"
                                  "  z: {key: 'nightly-test-{component}-{environment}'}\n"
                                  "  b: {key: 'nightly-{component}-{environment}'}\n"),
                rows, COUNT(rows));
}

/* ---- checking ---------------------------------------------------------- */

struct check_row {
    const char *profile;
    const char *key;
    const char *text; /* NULL: right */
};

static void check_check(const struct belay_config *config, const struct check_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct belay_error err = BELAY_ERROR_INIT;
        enum belay_code code = belay_key_check(config, rows[i].profile, rows[i].key, &err);

        if (code != (rows[i].text == NULL ? BELAY_OK : BELAY_INVALID) ||
            (rows[i].text != NULL && strcmp(err.text, rows[i].text) != 0)) {
            fail_msg("row %zu: %s\n  expected '%s'\n  got      '%s'", i, belay_code_name(code),
                     rows[i].text == NULL ? "" : rows[i].text, err.text);
        }
        belay_error_release(&err);
    }
}

struct profile_row {
    const char *named;
    const char *key;
    const char *profile; /* NULL: none */
    const char *text;    /* NULL: right */
};

static void check_profiles(const struct belay_config *config, const struct profile_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct belay_error err = BELAY_ERROR_INIT;
        struct belay_profile profile = { 0 };
        enum belay_code code = belay_key_profile(config, rows[i].named, rows[i].key, &profile, &err);

        if (rows[i].text != NULL) {
            assert_int_equal(code, BELAY_INVALID);
            assert_string_equal(err.text, rows[i].text);
        } else if (code != BELAY_OK || (rows[i].profile == NULL) != (profile.name == NULL) ||
                   (profile.name != NULL && strcmp(profile.name, rows[i].profile) != 0)) {
            fail_msg("row %zu: %s '%s', profile '%s'", i, belay_code_name(code), err.text,
                     profile.name == NULL ? "" : profile.name);
        }
        belay_error_release(&err);
    }
}

/* S0.5, S0.6: with or without the profile's name. */
static void a_key_that_fits_a_template_is_a_lock_of_that_profile(void **state)
{
    static const struct profile_row rows[] = {
        { NULL, "build-router-prod", "build", NULL },
        { NULL, "build-nope-prod", NULL, "Invalid component: nope. Valid options: router, echo, all" },
        { NULL, "build-router-qa", NULL, "Invalid environment: qa. Valid options: prod, eu-prod" },
        { "execution", "build-nope-prod", NULL, "Invalid component: nope. Valid options: router, echo, all" },
        { "execution", "build-router-prod", "execution", NULL },
        { "deploy", "build-router-prod", NULL,
          "the key 'build-router-prod' belongs to profile 'build', not to 'deploy', whose keys are "
          "'deploy-{component}-{environment}'" },
        { "deploy", "anything", "deploy", NULL },
        { NULL, "deploy-router-plt", "deploy", NULL },
        { NULL, "stack:s:env:e", "stack", NULL },
        { NULL, "stack:s:env:e:component:v/c", "stack", NULL },
        { "execution", "stack:s:env:e", "execution", NULL },
        { "build", "stack:s:env:e", NULL,
          "the key 'stack:s:env:e' belongs to profile 'stack', not to 'build', whose keys are "
          "'build-{component}-{environment}'" },
        { NULL, "terraform-prod", NULL, NULL },
        { NULL, "build-router", NULL, NULL },
        { NULL, "", NULL, "the key is empty" },
        { "execution", "stack:s", NULL,
          "key 'stack:s' begins as a stack's but is none; write it as stack:STACK:env:ENVIRONMENT, perhaps "
          "with "
          ":service:SERVICE or :component:SERVICE/COMPONENT after it" },
        { "nope", "k", NULL,
          "unknown profile 'nope'; known profiles: any, build, database, deploy, execution, other, same, "
          "stack" },
        /* The one that says most about the key binds it, though another would allow it. */
        { NULL, "any-x", "any", NULL },
        { NULL, "t-x", "same", NULL },
        { NULL, "t-y", "other", NULL },
        { NULL, "t-z", NULL, "Invalid component: z. Valid options: y" },
    };

    check_profiles(load_text(*state,
                             "profiles:\n"
                             "  build: {components: [router, echo, all], environments: [prod, eu-prod]}\n"
                             "  any: {key: 'any-{component}'}\n"
                             "  other: {key: 't-{component}', components: [y]}\n"
                             "  same: {key: 't-{component}', components: [x]}\n"),
                   rows, COUNT(rows));
}

/* L8 */
static void any_key_is_checked(void **state)
{
    static const struct check_row rows[] = {
        { NULL, "x", NULL },
        { NULL, "terraform-prod", NULL },
        { NULL, "with spaces / and:colons {braces}", NULL },
        { NULL, "\xc3\xa4", NULL },
        { NULL, "stacks:whatever", NULL },
        { NULL, "build-router", NULL },
        { "execution", "terraform-prod", NULL },
        { NULL, NULL, "no key given" },
        { NULL, "", "the key is empty" },
        { NULL, "a\nb", "the key 'a\nb' is not UTF-8 or has control characters" },
        { NULL, "a\xff", "the key 'a\xff' is not UTF-8 or has control characters" },
        { "nope", "x", "unknown profile 'nope'; known profiles: build, database, deploy, execution, stack" },
    };

    (void)state;
    check_check(NULL, rows, COUNT(rows));
}

static void a_key_has_at_most_512_bytes_and_so_have_those_above_it(void **state)
{
    char key[BELAY_KEY_MAX + 2];
    struct belay_error err = BELAY_ERROR_INIT;

    (void)state;
    memset(key, 'k', sizeof key);
    key[BELAY_KEY_MAX + 1] = '\0';
    assert_int_equal(belay_key_check(NULL, NULL, key, &err), BELAY_INVALID);
    assert_string_equal(err.text, "the key has 513 bytes; at most 512 are allowed");
    key[BELAY_KEY_MAX] = '\0';
    assert_int_equal(belay_key_check(NULL, NULL, key, &err), BELAY_OK);

    memcpy(key, "build-abc-", 10);
    assert_int_equal(belay_key_check(NULL, NULL, key, &err), BELAY_OK);
    memcpy(key, "build-a-kk", 10);
    assert_int_equal(belay_key_check(NULL, NULL, key, &err), BELAY_INVALID);
    assert_string_equal(err.text,
                        "the key is too long: its ancestor would have 514 bytes; at most 512 are allowed");
    belay_error_release(&err);
}

/* S4.5: a slip must not become an unrelated lock. */
static void a_key_that_begins_as_a_stacks_must_be_one(void **state)
{
    static const char *const right[] = {
        "stack:s:env:e",
        "stack:s:env:e:service:v",
        "stack:s:env:e:component:v/c",
        "stack:s:env:e:component:c",
    };
    static const char *const wrong[] = {
        "stack:",
        "stack:a",
        "stack:a:prod",
        "stack:a:env:",
        "stack::env:e",
        "stack:a:env:e:",
        "stack:a:env:e:service",
        "stack:a:env:e:service:",
        "stack:a:env:e:service:v/w",
        "stack:a:env:e:service:v:component:c",
        "stack:a:env:e:component:",
        "stack:a:env:e:component:/c",
        "stack:a:env:e:component:v/",
        "stack:a:env:e:component:v/c/d",
        "stack:a:env:e:components:v/c",
        "stack:a:environment:e",
        "Stack:a:env:e",
        "STACK:a",
    };
    struct belay_error err = BELAY_ERROR_INIT;

    (void)state;
    for (size_t i = 0; i < COUNT(right); i++) {
        assert_int_equal(belay_key_check(NULL, NULL, right[i], &err), BELAY_OK);
        assert_int_equal(belay_key_check(NULL, "build", right[i], &err), BELAY_OK);
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char expected[400];

        (void)snprintf(expected, sizeof expected,
                       "key '%s' begins as a stack's but is none; write it as stack:STACK:env:ENVIRONMENT, "
                       "perhaps with :service:SERVICE or :component:SERVICE/COMPONENT after it",
                       wrong[i]);
        if (belay_key_check(NULL, NULL, wrong[i], &err) != BELAY_INVALID) {
            fail_msg("'%s' was taken", wrong[i]);
        }
        assert_string_equal(err.text, expected);
    }
    belay_error_release(&err);
}

/* S0.5: a key of a named profile is held to its lists; without the profile it is a key of its own. */
static void a_key_typed_in_full_is_held_to_the_lists_of_its_profile(void **state)
{
    static const struct check_row rows[] = {
        { "build", "build-router-prod", NULL },
        { "build", "build-router-eu-prod", NULL },
        { "build", "build-api-prod",
          "Invalid component: api. Valid options: router, echo, status, deploy, all" },
        { "build", "build-api-eu-prod",
          "Invalid component: api. Valid options: router, echo, status, deploy, all" },
        { "build", "build-router-qa", "Invalid environment: qa. Valid options: plt, dev, prod, eu-prod" },
        { NULL, "build-api-prod", NULL },
        { NULL, "build-router-qa", NULL },
        { "build", "terraform-prod", NULL },
        { "build", "deploy-api-prod", NULL },
        { "deploy", "deploy-api-qa", NULL },
        { "nightly", "build-api-prod", NULL },
    };

    check_check(load_text(*state, lists), rows, COUNT(rows));
}

/* ---- templates --------------------------------------------------------- */

static void a_template_that_cannot_be_read_back_is_faulty(void **state)
{
    static const struct {
        const char *template;
        const char *fault;
        size_t weight;
    } rows[] = {
        { "build-{component}-{environment}", NULL, 7 },
        { "{environment}/{component}", NULL, 1 },
        { "{component}", NULL, 0 },
        { "fixed", NULL, 5 },
        { "a:{component}:{environment}:z", NULL, 5 },
        { "", "is empty, too long, or has characters that a key may not have", 0 },
        { "a\tb", "is empty, too long, or has characters that a key may not have", 3 },
        { "{component}{environment}", "needs something between its placeholders, to tell where one ends", 0 },
        { "{component}-{component}", "names a placeholder twice", 0 },
        { "{component}-{environment}-{component}", "names a placeholder twice", 0 },
        { "{component}-{environment}-{environment}", "names a placeholder twice", 0 },
        { "{stack}", "has braces that are neither {component} nor {environment}", 0 },
        { "{Component}", "has braces that are neither {component} nor {environment}", 0 },
        { "{component", "has braces that are neither {component} nor {environment}", 0 },
        { "a}", "has braces that are neither {component} nor {environment}", 0 },
        { "stack:{component}", "begins with 'stack:', which is for keys made with --stack", 6 },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *fault = key_template_fault(rows[i].template);

        if ((fault == NULL) != (rows[i].fault == NULL) ||
            (fault != NULL && strcmp(fault, rows[i].fault) != 0)) {
            fail_msg("'%s': %s", rows[i].template, fault == NULL ? "no fault" : fault);
        }
        assert_int_equal(key_template_weight(rows[i].template), rows[i].weight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stack_with_its_parts_names_a_lock),
        cmocka_unit_test(parts_of_a_stack_that_are_wrong_are_named),
        cmocka_unit_test(a_profile_with_a_template_names_a_lock),
        cmocka_unit_test_setup_teardown(a_template_takes_the_parts_that_it_names_and_no_other, place_enter,
                                        place_leave),
        cmocka_unit_test(parts_that_name_no_lock_say_what_to_add),
        cmocka_unit_test_setup_teardown(a_component_or_environment_that_is_not_listed_is_refused, place_enter,
                                        place_leave),
        cmocka_unit_test_setup_teardown(a_key_that_would_be_read_otherwise_is_not_made, place_enter,
                                        place_leave),
        cmocka_unit_test(a_key_is_read_by_the_longest_listed_environment_or_the_last_dash),
        cmocka_unit_test_setup_teardown(a_key_that_was_made_is_read_back, place_enter, place_leave),
        cmocka_unit_test(a_component_stands_below_its_service_and_its_stack),
        cmocka_unit_test(a_component_stands_below_all_of_its_command_and_environment),
        cmocka_unit_test_setup_teardown(
            a_key_that_the_lists_no_longer_allow_is_released_with_the_keys_above_it, place_enter,
            place_leave),
        cmocka_unit_test_setup_teardown(a_key_that_fits_a_template_is_a_lock_of_that_profile, place_enter,
                                        place_leave),
        cmocka_unit_test_setup_teardown(a_key_that_fits_two_templates_is_read_by_the_longer, place_enter,
                                        place_leave),
        cmocka_unit_test(any_key_is_checked),
        cmocka_unit_test(a_key_has_at_most_512_bytes_and_so_have_those_above_it),
        cmocka_unit_test(a_key_that_begins_as_a_stacks_must_be_one),
        cmocka_unit_test_setup_teardown(a_key_typed_in_full_is_held_to_the_lists_of_its_profile, place_enter,
                                        place_leave),
        cmocka_unit_test(a_template_that_cannot_be_read_back_is_faulty),
    };

    return cmocka_run_group_tests_name("keys", tests, NULL, NULL);
}
