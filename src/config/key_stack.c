/* Keys of stacks, services and components (S4.5), and what holds for every key. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "config/key_forms.h"

/* In any case: "Stack:a:env:b" is a slip, and must not become an unrelated lock. */
bool key_begins_as_stack(const char *key)
{
    return strncasecmp(key, "stack:", strlen("stack:")) == 0;
}

enum level { LEVEL_STACK, LEVEL_SERVICE, LEVEL_COMPONENT };

struct stack_key {
    enum level level;
    struct key_piece stack;   /* "stack:S:env:E" */
    struct key_piece service; /* of a component too; .at is NULL if it has none */
};

/* The part of a key at *at up to the next ':' or the end, if it is a name; moves past it. */
static bool next_piece(const char **at, struct key_piece *out)
{
    struct key_piece part = { *at, strcspn(*at, ":") };

    *at += part.len;
    *out = part;
    return part.len > 0;
}

static bool take_literal(const char **at, const char *literal)
{
    if (!text_has_prefix(*at, literal)) {
        return false;
    }
    *at += strlen(literal);
    return true;
}

/* V/C has two names and no third, C has one. */
static bool component_parse(struct key_piece path, struct stack_key *key)
{
    const char *slash = memchr(path.at, '/', path.len);
    size_t before;

    if (slash == NULL) {
        return true;
    }
    before = (size_t)(slash - path.at);
    key->service = (struct key_piece){ path.at, before };
    return before > 0 && before + 1 < path.len && memchr(slash + 1, '/', path.len - before - 1) == NULL;
}

static bool stack_parse(const char *text, struct stack_key *out)
{
    struct stack_key key = { LEVEL_STACK, { text, 0 }, { NULL, 0 } };
    const char *at = text;
    struct key_piece part;

    if (!take_literal(&at, "stack:") || !next_piece(&at, &part) || !take_literal(&at, ":env:") ||
        !next_piece(&at, &part)) {
        return false;
    }
    key.stack.len = (size_t)(at - text);
    if (take_literal(&at, ":service:")) {
        key.level = LEVEL_SERVICE;
        if (!next_piece(&at, &part) || memchr(part.at, '/', part.len) != NULL) {
            return false;
        }
    } else if (take_literal(&at, ":component:")) {
        key.level = LEVEL_COMPONENT;
        if (!next_piece(&at, &part) || !component_parse(part, &key)) {
            return false;
        }
    }
    *out = key;
    return *at == '\0';
}

size_t key_above_stack(const char *key, char *out_keys[BELAY_ANCESTORS_MAX])
{
    struct stack_key stack;
    size_t n = 0;

    if (!stack_parse(key, &stack) || stack.level == LEVEL_STACK) {
        return 0;
    }
    if (stack.level == LEVEL_COMPONENT && stack.service.at != NULL) {
        struct buf service = BUF_INIT(2 * BELAY_KEY_MAX);

        buf_add(&service, stack.stack.at, stack.stack.len);
        buf_adds(&service, ":service:");
        buf_add(&service, stack.service.at, stack.service.len);
        out_keys[n++] = buf_take(&service);
        buf_release(&service);
    }
    out_keys[n++] = strndup(stack.stack.at, stack.stack.len);
    return n;
}

static enum belay_code check_service_name(const char *service, struct belay_error *err)
{
    enum belay_code code = key_name_check("service", service, err);

    if (code == BELAY_OK && strchr(service, '/') != NULL) {
        return error_set(err, BELAY_INVALID,
                         "--service: '%s' has a '/', which separates service and component", service);
    }
    return code;
}

static enum belay_code check_stack_parts(const struct belay_key_parts *parts, struct belay_error *err)
{
    enum belay_code code = key_name_check("stack", parts->stack, err);

    if (code == BELAY_OK && parts->environment == NULL) {
        return error_set(err, BELAY_INVALID, "--stack needs --environment");
    }
    if (code == BELAY_OK && parts->service != NULL && parts->component != NULL) {
        return error_set(err, BELAY_INVALID,
                         "--service and --component exclude each other; a component of a service is "
                         "--component SERVICE/COMPONENT");
    }
    if (code == BELAY_OK) {
        code = key_name_check("environment", parts->environment, err);
    }
    if (code == BELAY_OK && parts->service != NULL) {
        code = check_service_name(parts->service, err);
    }
    if (code == BELAY_OK && parts->component != NULL) {
        code = key_name_check("component", parts->component, err);
    }
    return code;
}

enum belay_code key_make_by_stack(const struct belay_key_parts *parts, char **out_key,
                                  struct belay_error *err)
{
    struct buf buf = BUF_INIT(8 * BELAY_KEY_MAX);
    struct stack_key parsed;
    enum belay_code code = check_stack_parts(parts, err);
    char *key;

    if (code != BELAY_OK) {
        return code;
    }
    buf_addf(&buf, "stack:%s:env:%s", parts->stack, parts->environment);
    if (parts->service != NULL) {
        buf_addf(&buf, ":service:%s", parts->service);
    } else if (parts->component != NULL) {
        buf_addf(&buf, ":component:%s", parts->component);
    }
    key = buf_take(&buf);
    buf_release(&buf);
    if (key == NULL) {
        return error_no_memory(err);
    }
    /* Only the path of a component can still be wrong. */
    if (!stack_parse(key, &parsed)) {
        free(key);
        return error_set(err, BELAY_INVALID, "--component: '%s' is not SERVICE/COMPONENT, nor one name",
                         parts->component);
    }
    *out_key = key;
    return BELAY_OK;
}

enum belay_code key_check(const char *key, struct belay_error *err)
{
    struct stack_key parsed;
    size_t len = strlen(key);

    if (len == 0) {
        return error_set(err, BELAY_INVALID, "the key is empty");
    }
    if (len > BELAY_KEY_MAX) {
        return error_set(err, BELAY_INVALID, "the key has %zu bytes; at most %d are allowed", len,
                         BELAY_KEY_MAX);
    }
    if (!text_is_clean(key, BELAY_KEY_MAX)) {
        return error_set(err, BELAY_INVALID, "the key '%.100s' is not UTF-8 or has control characters", key);
    }
    if (key_begins_as_stack(key) && !stack_parse(key, &parsed)) {
        return error_set(err, BELAY_INVALID,
                         "key '%s' begins as a stack's but is none; write it as stack:STACK:env:ENVIRONMENT, "
                         "perhaps with :service:SERVICE or :component:SERVICE/COMPONENT after it",
                         key);
    }
    return BELAY_OK;
}
