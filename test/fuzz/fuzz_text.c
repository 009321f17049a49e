/* Texts that people and other programs write: YAML, INI, URLs, keys, durations, times. */
#include <stdlib.h>
#include <string.h>

#include "aws/text/ini.h"
#include "base/address.h"
#include "base/buf.h"
#include "base/clock.h"
#include "belay.h"
#include "belay/shared_db.h"
#include "fuzz_parsers.h"
#include "http_client/http.h"
#include "http_client/uri.h"
#include "store/dynamodb/dynamodb_internal.h"
#include "store/s3/s3_internal.h"
#include "store/sqlite/sqlite_internal.h"

static char *copy_text(const uint8_t *data, size_t len)
{
    char *text = malloc(len + 1);

    fuzz_must(text != NULL, "no memory");
    memcpy(text, data, len);
    text[len] = '\0';
    return text;
}

/* ---- YAML: the configuration, and files of applications ---- */

static bool on_app(void *context, const struct belay_app *app)
{
    (void)context;
    free(belay_app_to_yaml(app));
    return true;
}

void fuzz_yaml(const uint8_t *data, size_t len)
{
    const char *path = fuzz_file("config.yaml", data, len);
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_config *config = NULL;
    char *text = copy_text(data, len);

    if (belay_config_load(path, &config, &err) == BELAY_OK) {
        for (size_t i = 0; i < belay_config_count(config); i++) {
            struct belay_setting setting = belay_config_setting(config, i);

            fuzz_must(setting.name != NULL && setting.value != NULL && setting.origin != NULL,
                      "a setting lacks a part");
        }
        (void)belay_key_check(config, NULL, "build-router-plt", &err);
    } else {
        fuzz_must(err.text[0] != '\0', "an error without a text");
    }
    (void)belay_apps_from_yaml(config, "apps.yaml", text, len, on_app, NULL, &err);
    belay_config_free(config);
    belay_error_release(&err);
    free(text);
}

void fuzz_ini(const uint8_t *data, size_t len)
{
    struct belay_error err = BELAY_ERROR_INIT;
    char *text = copy_text(data, len);
    struct ini ini;

    if (ini_parse(text, "config", &ini, &err) == BELAY_OK) {
        (void)ini_get(&ini, "default", "region");
        (void)ini_get(&ini, "profile ci", "s3.endpoint_url");
        ini_release(&ini);
    }
    belay_error_release(&err);
    free(text);
}

/* ---- one line: URLs, keys, durations, times ---- */

static void parse_urls(const char *text, struct belay_error *err)
{
    struct ddb_params dynamodb;
    struct s3_params s3;
    struct sqlite_params sqlite;
    struct uri uri;
    char *url = NULL;

    if (uri_parse(text, &uri)) {
        fuzz_must(uri.host[0] != '\0' && uri.port <= 65535, "a URL without a host or with a wrong port");
        uri_release(&uri);
    }
    if (ddb_params_parse(text, &dynamodb, err) == BELAY_OK) {
        char *again = ddb_params_url(&dynamodb);
        struct ddb_params second;

        fuzz_must(again != NULL && strncmp(again, "dynamodb:", 9) == 0, "a URL that is no dynamodb: URL");
        fuzz_must(ddb_params_parse(again + 9, &second, err) == BELAY_OK &&
                      strcmp(second.table, dynamodb.table) == 0,
                  "a dynamodb: URL that is not understood again");
        ddb_params_release(&second);
        ddb_params_release(&dynamodb);
        free(again);
    }
    if (s3_params_parse(text, &s3, &url, err) == BELAY_OK) {
        s3_params_release(&s3);
        free(url);
    }
    /* It makes the directories of its path: so a path gets none. */
    if (strchr(text, '/') == NULL && strcasestr(text, "%2f") == NULL &&
        sqlite_params_parse(text, &sqlite, err) == BELAY_OK) {
        sqlite_params_release(&sqlite);
    }
}

static void parse_keys(const char *text, struct belay_error *err)
{
    char *above[BELAY_ANCESTORS_MAX];
    struct belay_parsed_key form;
    struct belay_key_parts parts = { .stack = text, .environment = "prod", .service = text };
    char *key = NULL;

    (void)belay_key_check(NULL, NULL, text, err);
    belay_key_parse(NULL, text, &form);
    for (size_t i = 0, n = belay_key_ancestors(NULL, text, above); i < n; i++) {
        free(above[i]);
    }
    if (belay_key_make(NULL, &parts, &key, err) == BELAY_OK) {
        fuzz_must(belay_key_check(NULL, NULL, key, err) == BELAY_OK, "a key that was made is not a key");
        free(key);
    }
}

void fuzz_words(const uint8_t *data, size_t len)
{
    struct belay_error err = BELAY_ERROR_INIT;
    char *text = copy_text(data, len);
    struct address_range range;
    struct address address;
    struct buf decoded = BUF_INIT(65536);
    int64_t ms = 0;

    parse_urls(text, &err);
    parse_keys(text, &err);
    if (belay_parse_duration(text, &ms)) {
        fuzz_must(ms >= 0, "a duration below zero");
    }
    (void)clock_parse_utc(text);
    (void)http_parse_date(text);
    (void)clock_parse_iso(text, &ms);
    (void)ddb_parse_time(text, &ms);
    (void)address_parse(text, &address);
    (void)address_range_parse(text, &range);
    uri_decode(&decoded, text, strlen(text));
    buf_release(&decoded);
    belay_error_release(&err);
    free(text);
}
