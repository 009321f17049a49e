/* The conformance suite on the DynamoDB store, against DynamoDB Local, on a clock of the test's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/dynamodb/dynamodb_internal.h"
#include "support/server.h"
#include "support/suite_main.h"

static struct server server;
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

static const struct dynamodb_hooks hooks = { .boot_ms = read_clock,
                                             .unix_ms = read_wall_clock,
                                             .date_ms = read_wall_clock };

static const char *read_setting(const void *settings, const char *name)
{
    return belay_config_get(settings, name);
}

static struct belay_store *open_store(void *ctx)
{
    struct dynamodb_options options = { .hooks = &hooks, .setting = read_setting, .settings = config };
    struct belay_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    char *whole = NULL;

    (void)ctx;
    if (dynamodb_store_open(url, &options, &store, &whole, &err) != BELAY_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        belay_error_release(&err);
        return NULL;
    }
    free(whole);
    return store;
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
    struct belay_store *store = open_store(NULL);
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

/* What other programs' forms of a lock have no place for; docs/stores/dynamodb.md says the same. */
enum {
    FOREIGN = SUITE_LACKS_TOKENS | SUITE_LACKS_OUTCOMES | SUITE_LACKS_TERMS | SUITE_LACKS_MILLIS |
              SUITE_LACKS_REVISIONS | SUITE_LACKS_WHOLE_IMAGES
};

static const struct variant {
    const char *name;
    const char *params;
    const char *server; /* NULL: DynamoDB Local */
    unsigned lacks;
} variants[] = {
    { "belay", "layout=belay", NULL, 0 },
    { "dynalite", "layout=belay", "dynalite", SUITE_LACKS_BATCHES },
    { "chatops", "layout=chatops", NULL, FOREIGN | SUITE_LACKS_METADATA },
    { "resource", "layout=resource", NULL,
      FOREIGN | SUITE_LACKS_METADATA | SUITE_LACKS_NAMES | SUITE_LACKS_RELEASED },
    { "runvoy", "layout=runvoy", NULL, FOREIGN },
    { "appregistry", "layout=appregistry", NULL,
      FOREIGN | SUITE_LACKS_METADATA | SUITE_LACKS_NAMES | SUITE_LACKS_RELEASED },
    { "deployer", "layout=deployer", NULL, FOREIGN | SUITE_LACKS_NAMES | SUITE_LACKS_RELEASED },
    /* In YAML only: test/conformance/dynamodb.yaml. */
    { "ours", "layout=ours", NULL, FOREIGN & ~(unsigned)SUITE_LACKS_MILLIS },
    { "fence", "layout=runvoy&fence_table=fences", NULL, FOREIGN & ~(unsigned)SUITE_LACKS_TOKENS },
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

static bool begin(struct suite_fixture *out_fixture)
{
    (void)snprintf(url, sizeof url, "suite-%d?region=us-east-1&endpoint=http://127.0.0.1:%d&%s", ++n_tables,
                   server.port, variant->params);
    now_ms = 1000000;
    *out_fixture = (struct suite_fixture){ .open = open_store,
                                           .advance = advance,
                                           .clock_stands = true,
                                           .keeps_items = strcmp(variant->params, "layout=belay") == 0,
                                           .lacks = variant->lacks };
    return call("CreateTable", true);
}

static void end(void)
{
    (void)call("DeleteTable", false);
}

/* The table of the counters, which is there for all cases. */
static bool make_fences(void)
{
    (void)snprintf(url, sizeof url, "fences?region=us-east-1&endpoint=http://127.0.0.1:%d", server.port);
    return call("CreateTable", true);
}

static int run_variant(const struct variant *chosen)
{
    static const struct suite_program program = { "dynamodb", begin, end };
    int failed = 1;

    variant = chosen;
    (void)printf("# %s\n", chosen->name);
    if (server_start(&server, BELAY_SOURCE_DIR "/tools/dynamodb-local", variant->server) && make_fences()) {
        failed = suite_main(&program);
    }
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
