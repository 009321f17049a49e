/* The dashboard's other requests: the client's identity, and the locks above and below a key. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "server/core/server.h"
#include "json/json_write.h"

enum { BELOW_MAX = 200, BELOW_LOOK = 5000 };

/* ---- who one is ---- */

static json_t *token_keys_json(const struct token *token)
{
    json_t *keys = json_array();

    for (size_t i = 0; token != NULL && i < token->n_keys; i++) {
        (void)json_array_append_new(keys, wire_text(token->keys[i]));
    }
    return keys;
}

void handle_me(struct exchange *x)
{
    const char *url = belay_client_store_url(x->server->client);
    char store[32] = "";

    /* Only the kind of store: its location is not for every reader. */
    memcpy(store, url, strcspn(url, ":") < sizeof store ? strcspn(url, ":") : sizeof store - 1);
    reply(x, 200,
          json_pack("{s:o, s:s, s:o, s:b, s:s, s:s, s:o, s:b}", "name",
                    x->who[0] == '\0' ? json_null() : wire_text(x->who), "role", role_name(x->role), "keys",
                    token_keys_json(x->token), "needs_token", x->server->tokens->n > 0, "version",
                    belay_version(), "store", store, "now", wire_time(clock_unix_ms()), "locking_enabled",
                    belay_client_locking_enabled(x->server->client)));
}

/* ---- above and below ---- */

struct tree {
    struct exchange *x;
    json_t *below; /* owned */
    size_t n_seen;
    bool has_more;
};

static bool is_below(const struct exchange *x, const char *key)
{
    char *above[BELAY_ANCESTORS_MAX];
    size_t n = belay_key_ancestors(x->server->config, key, above);
    bool found = false;

    for (size_t i = 0; i < n; i++) {
        found = found || (above[i] != NULL && strcmp(above[i], x->key) == 0);
        free(above[i]);
    }
    return found;
}

static bool on_candidate(void *context, const struct belay_info *info)
{
    struct tree *tree = context;

    if (++tree->n_seen > BELOW_LOOK || json_array_size(tree->below) >= BELOW_MAX) {
        tree->has_more = true;
        return false;
    }
    if (is_below(tree->x, info->key) && exchange_may_see(tree->x, info->key)) {
        (void)json_array_append_new(tree->below, lock_for(tree->x, info));
    }
    return true;
}

/*
 * The prefix of all keys below this one. A stack's key is a prefix of those below it; other keys have keys below them
 * if they are of component `all`. False: there can be none.
 */
static bool prefix_below(const char *key, char out[BELAY_KEY_MAX + 1])
{
    const char *all = strstr(key, "all");
    size_t len = strncmp(key, "stack:", 6) == 0 ? strlen(key) : all == NULL ? 0 : (size_t)(all - key);
    const char *service = strstr(key, ":service:");

    if (strncmp(key, "stack:", 6) == 0 && service != NULL) {
        len = (size_t)(service - key); /* stack:S:env:E:component:V/C is below stack:S:env:E:service:V */
    } else if (strncmp(key, "stack:", 6) != 0 && all == NULL) {
        return false;
    }
    memcpy(out, key, len);
    out[len] = '\0';
    return true;
}

/* If the store does not answer, the lock must not be shown as free. */
static enum belay_code above_json(struct exchange *x, json_t *list, struct belay_error *err)
{
    char *above[BELAY_ANCESTORS_MAX];
    size_t n = belay_key_ancestors(x->server->config, x->key, above);
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; i < n; i++) {
        struct belay_info *info = NULL;

        if (above[i] != NULL && code == BELAY_OK && exchange_may_see(x, above[i])) {
            code = belay_get(x->server->client, above[i], &info, err);
            code = code == BELAY_NOT_FOUND ? BELAY_OK : code;
            (void)json_array_append_new(list, json_pack("{s:o, s:o}", "key", wire_text(above[i]), "lock",
                                                        info == NULL ? json_null() : lock_for(x, info)));
        }
        belay_info_free(info);
        free(above[i]);
    }
    return code;
}

static void ask_tree(struct exchange *x)
{
    struct tree tree = { .x = x, .below = json_array() };
    json_t *above = json_array();
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_query query = BELAY_QUERY_INIT;
    char prefix[BELAY_KEY_MAX + 1];
    enum belay_code code = belay_key_check(x->server->config, NULL, x->key, &err);

    query.status = BELAY_STATUS_ACTIVE;
    query.prefix = prefix;
    if (code == BELAY_OK && prefix_below(x->key, prefix)) {
        code = belay_list(x->server->client, &query, on_candidate, &tree, NULL, &err);
    }
    if (code == BELAY_OK) {
        code = above_json(x, above, &err);
    }
    if (code == BELAY_OK) {
        reply(x, 200,
              json_pack("{s:o, s:O, s:O, s:b}", "key", wire_text(x->key), "above", above, "below", tree.below,
                        "has_more", tree.has_more));
    } else {
        reply_error(x, &err);
    }
    json_decref(above);
    json_decref(tree.below);
    belay_error_release(&err);
}

void handle_tree(struct exchange *x)
{
    if (exchange_may_touch(x, x->key)) {
        exchange_read(x, WORK_SCAN, ask_tree, NULL);
    }
}
