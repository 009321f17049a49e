#include "server/core/lock_key.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/json_body.h"
#include "server/core/server.h"

/* ---- several keys ---- */

struct lock_keys *lock_keys_new(const char *const *keys, size_t n)
{
    struct lock_keys *copy;
    size_t size = 0;
    char *at;

    assert(n > 0 && n <= BELAY_KEYS_MAX);
    for (size_t i = 0; i < n; i++) {
        size += text_room(keys[i]);
    }
    copy = malloc(sizeof *copy + size);
    if (copy == NULL) {
        return NULL;
    }
    copy->n = n;
    at = (char *)(copy + 1);
    for (size_t i = 0; i < n; i++) {
        copy->keys[i] = text_place(&at, keys[i]);
    }
    return copy;
}

bool lock_keys_are_same(const struct lock_keys *a, const struct lock_keys *b)
{
    size_t n_a = a == NULL ? 1 : a->n;
    size_t n_b = b == NULL ? 1 : b->n;

    for (size_t i = 0; n_a == n_b && i < n_a && a != NULL && b != NULL; i++) {
        if (strcmp(a->keys[i], b->keys[i]) != 0) {
            return false;
        }
    }
    return n_a == n_b;
}

bool lock_keys_have(const struct lock_keys *keys, const char *key)
{
    for (size_t i = 0; keys != NULL && i < keys->n; i++) {
        if (strcmp(keys->keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

void lock_keys_fill(const struct lock_keys *keys, struct belay_lock_options *options)
{
    options->more_keys = keys == NULL ? NULL : keys->keys + 1;
    options->n_more_keys = keys == NULL ? 0 : keys->n - 1;
}

/* ---- the key ---- */

enum belay_code lock_key_profile(const struct server *server, const char *name,
                                 struct belay_profile *out_profile, struct belay_error *err)
{
    if (belay_config_profile(server->config, name, out_profile, NULL) != BELAY_OK) {
        return error_set(err, BELAY_INVALID, "there is no profile '%.60s'", name);
    }
    return BELAY_OK;
}

static const char *first_given_part(const struct body *body)
{
    return body->stack != NULL         ? "stack"
           : body->environment != NULL ? "environment"
           : body->service != NULL     ? "service"
           : body->component != NULL   ? "component"
                                       : NULL;
}

/* The library names the options of the command line: --stack is the field stack. */
static void name_fields(char *text)
{
    static const char *const names[] = { "stack", "environment", "service", "component", "profile" };

    for (char *at = strstr(text, "--"); at != NULL; at = strstr(at, "--")) {
        const char *word = at + 2;
        bool is_option = false;

        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            size_t len = strlen(names[i]);

            is_option = is_option || (strncmp(word, names[i], len) == 0 && strchr(" ,:", word[len]) != NULL);
        }
        if (is_option && (at == text || at[-1] == ' ')) {
            memmove(at, word, strlen(word) + 1);
        } else {
            at += 2;
        }
    }
}

/* Whether the token's keys match any key that the template makes. True if there is none. */
static bool may_use_template(const struct exchange *x, const char *template)
{
    struct buf pattern = BUF_INIT(4096);
    bool may = true;

    while (template != NULL && *template != '\0') {
        size_t len = strcspn(template, "{");

        buf_add(&pattern, template, len);
        template += len;
        if (*template == '{') {
            buf_adds(&pattern, "*");
            template += strcspn(template, "}");
            template += *template == '}' ? 1 : 0;
        }
    }
    if (pattern.data != NULL && !pattern.failed) {
        may = exchange_may_see_pattern(x, pattern.data);
    }
    buf_release(&pattern);
    return may;
}

/* Instead of an error that lists the parts which the profile allows: those are of other clients' keys. */
static enum belay_code say_not_of_profile(const struct exchange *x, const char *profile,
                                          struct belay_error *err)
{
    belay_error_release(err);
    return error_set(err, BELAY_NOT_PERMITTED, "'%s' may not touch the keys of profile '%.60s'", x->who,
                     profile);
}

static enum belay_code make_key_of_parts(struct exchange *x, const struct body *body, struct belay_error *err)
{
    const struct belay_key_parts parts = { .profile = body->profile,
                                           .stack = body->stack,
                                           .environment = body->environment,
                                           .service = body->service,
                                           .component = body->component };
    char *key = NULL;
    enum belay_code code = belay_key_make(x->server->config, &parts, &key, err);

    if (code == BELAY_OK) {
        (void)snprintf(x->key, sizeof x->key, "%s", key);
    } else {
        name_fields(err->text);
    }
    free(key);
    return code;
}

/* The keys of a request for several locks. The library checks them, and that none of them is there twice. */
static enum belay_code take_keys(struct exchange *x, const struct body *body, struct belay_error *err)
{
    const char *part = body->key != NULL ? "key" : first_given_part(body);

    if (part != NULL) {
        return error_set(err, BELAY_INVALID, "keys and %s both name locks: give only one of them", part);
    }
    free(x->keys); /* of the same request, which is handled once more */
    x->keys = lock_keys_new(body->keys, body->n_keys);
    if (x->keys == NULL) {
        return error_no_memory(err);
    }
    memcpy(x->key, body->keys[0], strlen(body->keys[0]) + 1);
    return BELAY_OK;
}

enum belay_code lock_key_read(struct exchange *x, const struct body *body, struct belay_error *err)
{
    const char *part = first_given_part(body);
    struct belay_profile profile;
    enum belay_code code = BELAY_OK;

    if (body->profile != NULL) {
        code = lock_key_profile(x->server, body->profile, &profile, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    if (body->n_keys > 0) {
        return take_keys(x, body, err);
    }
    if (body->key != NULL && part != NULL) {
        return error_set(err, BELAY_INVALID, "key '%.200s' and %s both name a lock: give only one of them",
                         body->key, part);
    }
    if (part != NULL) {
        code = make_key_of_parts(x, body, err);
        return code == BELAY_OK || body->profile == NULL || may_use_template(x, profile.key_template)
                   ? code
                   : say_not_of_profile(x, body->profile, err);
    }
    if (body->key == NULL && x->key[0] == '\0') {
        return error_set(err, BELAY_INVALID,
                         "key is missing: give it, or keys, or stack and environment, or profile, component "
                         "and environment");
    }
    if (body->key != NULL && strlen(body->key) > BELAY_KEY_MAX) {
        return error_set(err, BELAY_INVALID, "key has more than %d bytes", BELAY_KEY_MAX);
    }
    if (body->key != NULL) {
        memcpy(x->key, body->key, strlen(body->key) + 1);
    }
    return BELAY_OK;
}

/* ---- the id ---- */

/* Whether the owner may stand for the lock id. The owner is a name, not a secret, so the credential is compared, too. */
static enum belay_code check_owner_given(const struct exchange *x, const struct body *body,
                                         struct belay_error *err)
{
    struct belay_profile profile;
    enum belay_code code;

    if (body->locked_by == NULL) {
        return error_set(err, BELAY_INVALID, "lock_id is missing: the lock_id that acquire answered");
    }
    if (!text_is_clean(body->locked_by, BELAY_OWNER_MAX)) {
        return error_set(err, BELAY_INVALID,
                         "locked_by must be 1 to %d bytes of UTF-8 without control characters",
                         BELAY_OWNER_MAX);
    }
    code = belay_key_profile(x->server->config, body->profile, x->key, &profile, err);
    if (code == BELAY_OK && !profile.reentrant) {
        code = error_set(err, BELAY_INVALID,
                         "lock_id is missing: locked_by is enough only with a re-entrant profile, and %s%s%s",
                         profile.name == NULL ? "the request names none" : "'",
                         profile.name == NULL ? "" : profile.name,
                         profile.name == NULL ? "" : "' is not re-entrant");
    }
    return code;
}

/* x->more[0] is the owner: the body is gone by now. */
static void ask_own_id(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;

    if (belay_find_own(x->server->client, x->key, x->more[0], x->who, &info, &err) == BELAY_OK) {
        (void)snprintf(x->found_id, sizeof x->found_id, "%s", info->lock_id);
    } else {
        reply_error(x, &err);
    }
    belay_info_free(info);
    belay_error_release(&err);
}

bool lock_key_find_id(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct body *body = x->body;

    assert(body != NULL);
    if (body->lock_id != NULL && body->locked_by != NULL) {
        reply_problem(x, 400, "invalid",
                      "lock_id and locked_by both say whose lock it is: give only one of them");
        return false;
    }
    if (body->lock_id == NULL && x->found_id[0] != '\0') {
        body->lock_id = x->found_id;
    }
    if (body->lock_id != NULL) {
        return true;
    }
    if (check_owner_given(x, body, &err) != BELAY_OK) {
        reply_error(x, &err);
    } else {
        (void)snprintf(x->more[0], sizeof x->more[0], "%s", body->locked_by);
        exchange_read(x, WORK_READ, ask_own_id, exchange_run_handler);
    }
    belay_error_release(&err);
    return false;
}
