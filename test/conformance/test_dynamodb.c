/* The conformance suite on the DynamoDB store, against DynamoDB Local, on a clock of the test's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/dynamodb/dynamodb_internal.h"
#include "support/retrying_store.h"
#include "support/server.h"
#include "support/suite_main.h"

static struct server server;
static struct server proxy; /* between the store and it, in a variant that harms */
static int n_tables;
static char url[256];
static int64_t now_ms;
static struct belay_config *config;

static int64_t read_clock(void *context)
{
    (void)context;
    return __atomic_load_n(&now_ms, __ATOMIC_SEQ_CST);
}

static int64_t read_wall_clock(void *context)
{
    return 1730816000000 + read_clock(context);
}

static const struct dynamodb_hooks hooks = {
    .boot_ms = read_clock, .unix_ms = read_wall_clock, .date_ms = read_wall_clock, .timeout_factor = 10
}; /* the machine may be busy */

static const char *read_setting(const void *settings, const char *name)
{
    return belay_config_get(settings, name);
}

static struct belay_store *open_plain(void)
{
    struct dynamodb_options options = { .hooks = &hooks, .setting = read_setting, .settings = config };
    struct belay_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    char *whole = NULL;

    if (dynamodb_store_open(url, &options, &store, &whole, &err) != BELAY_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        belay_error_release(&err);
        return NULL;
    }
    free(whole);
    return store;
}

static void name_table(int port, const char *table, const char *params)
{
    (void)snprintf(url, sizeof url, "%s?region=us-east-1&endpoint=http://127.0.0.1:%d&%s", table, port,
                   params);
}

static void advance(void *ctx, int64_t ms)
{
    (void)ctx;
    (void)__atomic_add_fetch(&now_ms, ms, __ATOMIC_SEQ_CST);
}

static json_t *table_request(const struct layout *layout, const char *table)
{
    static const char *const kinds[] = { "HASH", "RANGE" };
    json_t *schema = json_array(), *attributes = json_array();

    for (size_t i = 0; i < layout->n_keys; i++) {
        (void)json_array_append_new(
            schema, json_pack("{s:s,s:s}", "AttributeName", layout->keys[i].name, "KeyType", kinds[i]));
        (void)json_array_append_new(
            attributes, json_pack("{s:s,s:s}", "AttributeName", layout->keys[i].name, "AttributeType", "S"));
    }
    return json_pack("{s:s,s:o,s:o,s:s}", "TableName", table, "KeySchema", schema, "AttributeDefinitions",
                     attributes, "BillingMode", "PAY_PER_REQUEST");
}

static bool call(const char *operation, bool create)
{
    struct belay_store *store = open_plain();
    struct ddb_answer answer = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    json_t *request;
    bool done;

    if (store == NULL) {
        return false;
    }
    request = create ? table_request(ddb_of(store)->layout, ddb_of(store)->params.table)
                     : json_pack("{s:s}", "TableName", ddb_of(store)->params.table);
    done = ddb_call(ddb_of(store), operation, request, &answer, &err) == BELAY_OK;
    if (!done) {
        (void)fprintf(stderr, "%s: %s\n", operation, err.text);
    }
    belay_error_release(&err);
    ddb_answer_release(&answer);
    store->ops->close(store);
    return done;
}

/* Fields that other programs' layouts lack, as in docs/stores/dynamodb.md. */
enum {
    FOREIGN = SUITE_LACKS_TOKENS | SUITE_LACKS_OUTCOMES | SUITE_LACKS_LIVENESS | SUITE_LACKS_MILLIS |
              SUITE_LACKS_REVISIONS | SUITE_LACKS_WHOLE_IMAGES
};

static const struct variant {
    const char *name;
    const char *params;
    const char *server; /* NULL: DynamoDB Local */
    unsigned lacks;
    bool harmed; /* through a proxy that loses answers, throttles and fails */
} variants[] = {
    { "belay", "layout=belay&freezes=on", NULL, 0, false },
    { "dynalite", "layout=belay", "dynalite", SUITE_LACKS_BATCHES, false },
    { "chatops", "layout=chatops", NULL, FOREIGN | SUITE_LACKS_METADATA, false },
    { "resource", "layout=resource", NULL,
      FOREIGN | SUITE_LACKS_METADATA | SUITE_LACKS_NAMES | SUITE_LACKS_RELEASED, false },
    { "runvoy", "layout=runvoy", NULL, FOREIGN, false },
    { "appregistry", "layout=appregistry", NULL,
      FOREIGN | SUITE_LACKS_METADATA | SUITE_LACKS_NAMES | SUITE_LACKS_RELEASED, false },
    { "deployer", "layout=deployer", NULL, FOREIGN | SUITE_LACKS_NAMES | SUITE_LACKS_RELEASED, false },
    /* In YAML only: test/conformance/dynamodb.yaml. */
    { "ours", "layout=ours", NULL, FOREIGN & ~(unsigned)SUITE_LACKS_MILLIS, false },
    { "fence", "layout=runvoy&fence_table=fences", NULL, FOREIGN & ~(unsigned)SUITE_LACKS_TOKENS, false },
    { "harmed", "layout=belay", NULL, 0, true },
    { "harmed-fence", "layout=runvoy&fence_table=fences", NULL, FOREIGN & ~(unsigned)SUITE_LACKS_TOKENS,
      true },
};
static const struct variant *variant;

static bool is_named(const char *name, int argc, char **argv)
{
    bool named = argc == 1;

    for (int i = 1; i < argc; i++) {
        named = named || strcmp(argv[i], name) == 0;
    }
    return named;
}

/* For a case. What the proxy loses is found out, so that a case sees a store like any other. */
static struct belay_store *open_store(void *ctx)
{
    (void)ctx;
    return variant->harmed ? retrying_store_open(open_plain()) : open_plain();
}

static bool begin(struct suite_fixture *out_fixture)
{
    bool is_registry = strcmp(variant->params, "layout=appregistry") == 0;
    bool is_belay = strncmp(variant->params, "layout=belay", 12) == 0;
    char table[32];
    bool made;

    (void)snprintf(table, sizeof table, "suite-%d", ++n_tables);
    name_table(server.port, table, variant->params);
    made = call("CreateTable", true);
    name_table(variant->harmed ? proxy.port : server.port, table, variant->params);
    now_ms = 1000000;
    *out_fixture = (struct suite_fixture){ .open = open_store,
                                           .advance = advance,
                                           .clock_stands = true,
                                           .keeps_items = !variant->harmed && (is_belay || is_registry),
                                           .items_are_apps = is_registry,
                                           .keeps_modes = is_belay,
                                           .keeps_freezes = strstr(variant->params, "freezes=on") != NULL,
                                           .lacks = variant->lacks };
    return made;
}

static void end(void)
{
    char table[32];

    (void)snprintf(table, sizeof table, "suite-%d", n_tables);
    name_table(server.port, table, variant->params);
    (void)call("DeleteTable", false);
}

/* The table of the counters, which is there for all cases. */
static bool make_fences(void)
{
    name_table(server.port, "fences", "layout=belay");
    return call("CreateTable", true);
}

/* Issue 3: 5 % lost answers, 5 % throttles, 5 % 500s, applied and not. A seed in the environment repeats a run. */
static bool start_proxy(void)
{
    const char *seed = getenv("BELAY_PROXY_SEED");
    char argument[200];

    (void)snprintf(argument, sizeof argument,
                   "--upstream %d --seed %s --plan "
                   "cut_after=0.05,throttle=0.05,error_before=0.025,error_after=0.025",
                   server.port, seed == NULL ? "1" : seed);
    return server_start(&proxy, BELAY_SOURCE_DIR "/test/dynamodb/proxy.py", argument);
}

/* A proxy that did no harm has proved nothing. */
static bool was_harmed(void)
{
    int unknown = 0;
    int again = 0;

    retrying_store_counts(&unknown, &again);
    (void)printf("# %d outcomes unknown, %d batches sent again\n", unknown, again);
    return unknown > 0 && again > 0;
}

static int run_variant(const struct variant *chosen)
{
    static const struct suite_program program = { "dynamodb", begin, end };
    int failed = 1;

    variant = chosen;
    (void)printf("# %s\n", chosen->name);
    if (server_start(&server, BELAY_SOURCE_DIR "/tools/dynamodb-local", variant->server) && make_fences() &&
        (!variant->harmed || start_proxy())) {
        failed = suite_main(&program);
        if (variant->harmed && !was_harmed()) {
            failed++;
        }
    }
    server_stop(&proxy);
    server_stop(&server);
    return failed;
}

/* All variants, or those that are named. */
int main(int argc, char **argv)
{
    int failed = 0;
    int ran = 0;

    (void)setenv("AWS_ACCESS_KEY_ID", "test", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "test", 1);
    (void)setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    if (belay_config_load(BELAY_SOURCE_DIR "/test/conformance/dynamodb.yaml", &config, NULL) != BELAY_OK) {
        (void)fprintf(stderr, "test/conformance/dynamodb.yaml cannot be read\n");
        return 1;
    }
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        if (is_named(variants[i].name, argc, argv)) {
            failed += run_variant(&variants[i]);
            ran++;
        }
    }
    belay_config_free(config);
    return ran > 0 ? failed : 1;
}
