/*
 * The schemas of /openapi.json that are in no table of fields, in a short form: one string is one schema.
 *
 *   Queue {key string, lock Lock, -waiting Waiter[] `in their order`, until time?}
 *
 * A schema is a name and a type. A type is a type of JSON (`a/b`: one of several), `time`, another schema (`A or B`),
 * `map of TYPE`, or the fields of an object in braces; `closed` before them: it has no others. In parentheses after it
 * are the only values, `>=N` is a minimum, `[]` makes an array, and `?` also permits null. A '-' before a field: it may be
 * absent. A description is between backquotes.
 */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/openapi_schemas.h"
#include "server/core/routes.h"

/* clang-format off */
static const char *const core_schemas[] = {
    "Holder closed {lock_id string? `null unless the client acquired it or is an admin`, token "
    "integer? `the fencing token`, locked_by string?, locked_by_name string?, acquired_by string? "
    "`the name of the token that acquired it; null: without one`, status "
    "string(active|expired|released)?, outcome string(completed|failed|forced)?, locked_at time?, "
    "expires_at time?, last_heartbeat time?, ttl_ms integer?, expires_in_ms integer?, valid_for_ms "
    "integer? `how long the holder may rely on the lock, counted from before it sent this request; "
    "only in replies to acquire, adopt and renew`, is_stale boolean, metadata map of string}",
    "Lock {key string, released_at time? `when it was released, or ended by force; null: it was not`, "
    "mode string(exclusive|shared|slots), slots integer? `how many may hold it at a time; null: it "
    "has no slots`, holders Holder[] `those of a shared lock or one with slots, oldest first; one for "
    "an exclusive lock, none if it is not held`, waiting Waiter[]? `the first ten waiters in their "
    "order; .../queue has all. null: not read, after a change of the lock`}",
    "Waiter {position integer `how many wait before it`, key string `the key it waits for: the lock's "
    "own, or one below it`, locked_by string, locked_by_name string, since time, mode "
    "string(exclusive|shared|slots)}",
    "Grants {lock_id string? `the same for all of them`, locks Lock[] `one for each of the keys, in "
    "their order, each with its own token`}",
    "LockOrGrants Lock or Grants `a lock, or for a request with keys the locks on all of them`",
    "LockList {waiting map of integer `the number of waiters by key, without zeros`, locks Lock[], "
    "next_cursor string?}",
    "Event {id integer?, timestamp time, level string(INFO|WARN), event string, lock_key string, "
    "-lock_id string?, -token integer?, -locked_by string?, -locked_by_name string?, -by string?, "
    "-reason string?, -duration_seconds number?, -metadata map of string}",
    "EventList {events Event[]}",
    "Queue {key string, lock Lock, waiting Waiter[], estimate {holds_ms integer[] `how long the lock "
    "was held before: the last twenty times, oldest first`, turns_ms integer?[] `in how long each "
    "waiter has its turn, and then a client that would wait now; null: not known`, is_overdue boolean "
    "`it is held for longer than each of the last times`}? `null: not asked for, or the lock has no "
    "history`}",
    "Queued {key string, lock_id string, keys string[]? `of a request for several`, locked_by string, "
    "status string(queued|calling|delivered|cancelled), position integer? `how many wait before it`, "
    "wait_until time}",
    "Error {error {code string, message string, -lock Lock?, -position integer? `after a wait: how "
    "many wait before you`, -place_kept_ms integer `after a wait: repeat the request with the same "
    "lock_id within this time to keep the place`, -hint string `after a wait: how to keep the "
    "place`}}",
    "Free {key string, is_free boolean(true)}",
    "Noted {key string, is_noted boolean(true)}",
    "Health {status string, version string, locking_enabled boolean `false while the kill switch "
    "grants every lock`}",
    "Tree {key string, above {key string, lock Lock?}[] `nearest first`, below Lock[] `those that are "
    "held`, has_more boolean `there are more below`}",
    "Freeze {id string, pattern string, reason string, by string, created_at time, from time? `null: "
    "since it was created`, until time? `null: until it is ended`, in_force boolean}",
    "FreezeList {freezes Freeze[]}",
    "ActivityStep {at time, acquired integer?, released integer?, refused integer?, renewed integer?, "
    "forced integer?, taken_over integer?, waits integer?, wait_ms integer?, wait_max_ms integer?, "
    "held_ms integer?, held_max_ms integer?, held_p50_ms integer? `half were held no longer; to "
    "within a quarter`, held_p95_ms integer?}",
    "Activity {step_ms integer, total ActivityStep, steps ActivityStep[], is_complete boolean `false "
    "while events of before are still being counted`}",
    "Me {name string?, role string(reader|locker|admin), keys string[] `patterns; empty: every key`, "
    "needs_token boolean, version string, store string `its kind: sqlite, postgresql or dynamodb`, "
    "locking_enabled boolean, now time}",
    "Durations closed {count integer, median_ms integer? `half of them were not longer; percentiles "
    "are accurate to within 3 %. null: there are none`, p90_ms integer?, longest_ms integer?, "
    "total_ms integer?}",
    "StatsGroup closed {name string? `the day in UTC, the profile or the key; null: the total, or all "
    "groups after the first thousand`, acquired integer, released integer, refused integer, "
    "taken_over integer `from a holder whose lease had expired`, forced integer `ended by another "
    "client`, lost integer `as reported by the holder`, held Durations, waited Durations}",
    "Stats closed {key string?, prefix string?, by string(day|profile|key)?, from time? `the "
    "beginning of the time that is counted; null: there are no events`, until time, oldest_event "
    "time? `the oldest event that the store keeps: before it nothing is known`, events integer, total "
    "StatsGroup, groups StatsGroup[]}",
    NULL
};
/* clang-format on */

/* ---- reading ---- */

enum { WORD_SIZE = 64 };

static bool take_text(const char **at, const char *text)
{
    size_t n = strlen(text);

    *at += strspn(*at, " ");
    if (strncmp(*at, text, n) != 0) {
        return false;
    }
    *at += n;
    return true;
}

/* Up to one of the characters in `ends`. */
static void read_until(const char **at, const char *ends, char *out, size_t size)
{
    size_t n;

    *at += strspn(*at, " ");
    n = strcspn(*at, ends);
    assert(n > 0 && n < size);
    (void)snprintf(out, size, "%.*s", (int)n, *at);
    *at += n;
}

json_t *openapi_ref(const char *name)
{
    char ref[WORD_SIZE + 32];

    (void)snprintf(ref, sizeof ref, "#/components/schemas/%s", name);
    return json_pack("{s:s}", "$ref", ref);
}

static json_t *read_described(const char **at);

/* After the '{'. */
static json_t *read_object(const char **at)
{
    json_t *properties = json_object();
    json_t *required = json_array();
    json_t *object = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
    char name[WORD_SIZE];

    do {
        bool may_be_absent = take_text(at, "-");

        read_until(at, " ", name, sizeof name);
        (void)json_object_set_new(properties, name, read_described(at));
        if (!may_be_absent) {
            (void)json_array_append_new(required, json_string(name));
        }
    } while (take_text(at, ","));
    assert(**at == '}');
    (*at)++;
    if (json_array_size(required) > 0) {
        (void)json_object_set(object, "required", required);
    }
    json_decref(required);
    return object;
}

/* "(a|b)", after the '('. */
static json_t *read_choices(const char **at)
{
    json_t *choices = json_array();
    char word[WORD_SIZE];

    do {
        read_until(at, "|)", word, sizeof word);
        (void)json_array_append_new(choices, strcmp(word, "true") == 0 ? json_true() : json_string(word));
    } while (take_text(at, "|"));
    (*at)++;
    return choices;
}

static json_t *plain_type(const char *word)
{
    const char *slash = strchr(word, '/');

    if (strcmp(word, "time") == 0) {
        return json_pack("{s:s, s:s}", "type", "string", "format", "date-time");
    }
    return slash == NULL ? json_pack("{s:s}", "type", word)
                         : json_pack("{s:[s%, s]}", "type", word, (size_t)(slash - word), slash + 1);
}

static json_t *read_base(const char **at)
{
    json_t *schema;
    char word[WORD_SIZE];

    if (take_text(at, "{")) {
        return read_object(at);
    }
    if (take_text(at, "map of ")) {
        return json_pack("{s:s, s:o}", "type", "object", "additionalProperties", read_base(at));
    }
    if (take_text(at, "closed {")) {
        schema = read_object(at);
        (void)json_object_set_new(schema, "additionalProperties", json_false());
        return schema;
    }
    read_until(at, " ,}?([>", word, sizeof word);
    if (isupper((unsigned char)word[0])) {
        schema = openapi_ref(word);
        return take_text(at, "or ") ? json_pack("{s:[o, o]}", "oneOf", schema, read_base(at)) : schema;
    }
    schema = plain_type(word);
    if (take_text(at, "(")) {
        (void)json_object_set_new(schema, "enum", read_choices(at));
    }
    if (take_text(at, ">=")) {
        read_until(at, " ,}", word, sizeof word);
        (void)json_object_set_new(schema, "minimum", json_integer(strtoll(word, NULL, 10)));
    }
    return schema;
}

static json_t *or_null(json_t *schema)
{
    json_t *type = json_object_get(schema, "type");

    if (type == NULL) {
        return json_pack("{s:[o, {s:s}]}", "oneOf", schema, "type", "null");
    }
    (void)json_object_set_new(schema, "type", json_pack("[O, s]", type, "null"));
    if (json_object_get(schema, "enum") != NULL) {
        (void)json_array_append_new(json_object_get(schema, "enum"), json_null());
    }
    return schema;
}

/* A type with its suffixes, and perhaps a description. */
static json_t *read_described(const char **at)
{
    json_t *schema = read_base(at);
    char text[256];

    for (;;) {
        if (take_text(at, "[]")) {
            schema = json_pack("{s:s, s:o}", "type", "array", "items", schema);
        } else if (take_text(at, "?")) {
            schema = or_null(schema);
        } else {
            break;
        }
    }
    if (take_text(at, "`")) {
        read_until(at, "`", text, sizeof text);
        (*at)++;
        (void)json_object_set_new(schema, "description", json_string(text));
    }
    return schema;
}

json_t *openapi_schemas(void)
{
    const char *const *const lists[] = { core_schemas, shared_db_schemas, state_schemas, dashboard_schemas };
    json_t *all = json_object();
    char name[WORD_SIZE];

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        for (const char *const *list = lists[i]; *list != NULL; list++) {
            const char *at = *list;

            read_until(&at, " ", name, sizeof name);
            (void)json_object_set_new(all, name, read_described(&at));
            assert(*at == '\0');
        }
    }
    return all;
}
