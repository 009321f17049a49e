#include "store/dynamodb/dynamodb_expr.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPRESSION_MAX = 4096, PART_SIZE = 512 }; /* the first is the service's limit */

void expr_init(struct expr *expr)
{
    struct buf empty = BUF_INIT(EXPRESSION_MAX);

    expr->names = json_object();
    expr->values = json_object();
    expr->assigned = json_object();
    expr->condition = empty;
    for (size_t i = 0; i < N_CLAUSES; i++) {
        expr->clauses[i] = empty;
    }
    expr->within[0] = '\0';
    expr->failed = expr->names == NULL || expr->values == NULL || expr->assigned == NULL;
}

void expr_release(struct expr *expr)
{
    json_decref(expr->names);
    json_decref(expr->values);
    json_decref(expr->assigned);
    buf_release(&expr->condition);
    for (size_t i = 0; i < N_CLAUSES; i++) {
        buf_release(&expr->clauses[i]);
    }
    memset(expr, 0, sizeof *expr);
}

static bool find_name(const json_t *names, const char *attribute, struct expr_ref *out)
{
    const char *alias;
    json_t *name;

    json_object_foreach((json_t *)names, alias, name)
    {
        if (strcmp(json_string_value(name), attribute) == 0) {
            (void)snprintf(out->text, sizeof out->text, "%s", alias);
            return true;
        }
    }
    return false;
}

struct expr_ref expr_name(struct expr *expr, const char *attribute)
{
    struct expr_ref ref = { "" };

    if (!find_name(expr->names, attribute, &ref)) {
        (void)snprintf(ref.text, sizeof ref.text, "#n%zu", json_object_size(expr->names));
        if (json_object_set_new(expr->names, ref.text, json_string(attribute)) != 0) {
            expr->failed = true;
        }
    }
    return ref;
}

struct expr_ref expr_value(struct expr *expr, json_t *value)
{
    struct expr_ref ref;

    (void)snprintf(ref.text, sizeof ref.text, ":v%zu", json_object_size(expr->values));
    if (json_object_set_new(expr->values, ref.text, value) != 0) {
        expr->failed = true;
    }
    return ref;
}

void expr_within(struct expr *expr, const char *attribute, const char *key)
{
    assert(attribute == NULL || expr->within[0] == '\0'); /* maps do not nest */
    if (attribute == NULL) {
        expr->within[0] = '\0';
    } else {
        (void)snprintf(expr->within, sizeof expr->within, "%s.%s.", expr_name(expr, attribute).text,
                       expr_name(expr, key).text);
    }
}

void expr_and(struct expr *expr, const char *format, ...)
{
    char text[PART_SIZE];
    va_list args;

    va_start(args, format);
    expr->failed = vsnprintf(text, sizeof text, format, args) >= PART_SIZE || expr->failed;
    va_end(args);
    buf_addf(&expr->condition, "%s(%s)", expr->condition.len > 0 ? " AND " : "", text);
}

void expr_and_absent(struct expr *expr, const char *attribute)
{
    expr_and(expr, "attribute_not_exists(%s)", expr_name(expr, attribute).text);
}

void expr_and_is(struct expr *expr, const char *attribute, json_t *value)
{
    expr_and(expr, "%s = %s", expr_name(expr, attribute).text, expr_value(expr, value).text);
}

void expr_and_is_not(struct expr *expr, const char *attribute, json_t *value)
{
    struct expr_ref name = expr_name(expr, attribute);

    expr_and(expr, "attribute_not_exists(%s) OR %s <> %s", name.text, name.text,
             expr_value(expr, value).text);
}

static void add_to_clause(struct expr *expr, enum expr_clause clause, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_to_clause(struct expr *expr, enum expr_clause clause, const char *format, ...)
{
    struct buf *out = &expr->clauses[clause];
    char text[PART_SIZE];
    va_list args;

    assert(clause < N_CLAUSES);
    va_start(args, format);
    expr->failed = vsnprintf(text, sizeof text, format, args) >= PART_SIZE || expr->failed;
    va_end(args);
    buf_addf(out, "%s%s", out->len > 0 ? ", " : "", text);
}

void expr_set_to(struct expr *expr, const char *attribute, const char *format, ...)
{
    char text[PART_SIZE];
    va_list args;

    va_start(args, format);
    expr->failed = vsnprintf(text, sizeof text, format, args) >= PART_SIZE || expr->failed;
    va_end(args);
    add_to_clause(expr, CLAUSE_SET, "%s%s = %s", expr->within, expr_name(expr, attribute).text, text);
}

void expr_set(struct expr *expr, const char *attribute, json_t *value)
{
    struct expr_ref ref;

    assert(expr->within[0] != '\0' || json_object_get(expr->assigned, attribute) == NULL); /* set once */
    if (expr->within[0] == '\0' && json_object_set(expr->assigned, attribute, value) != 0) {
        expr->failed = true;
    }
    ref = expr_value(expr, value);
    expr_set_to(expr, attribute, "%s", ref.text);
}

void expr_set_next(struct expr *expr, const char *attribute, const char *counter, int64_t first)
{
    expr_set_to(expr, attribute, "if_not_exists(%s, %s) + %s", expr_name(expr, counter).text,
                expr_value(expr, av_int(first)).text, expr_value(expr, av_int(1)).text);
}

void expr_remove(struct expr *expr, const char *attribute)
{
    add_to_clause(expr, CLAUSE_REMOVE, "%s%s", expr->within, expr_name(expr, attribute).text);
}

void expr_set_entry(struct expr *expr, const char *attribute, const char *key, json_t *value)
{
    add_to_clause(expr, CLAUSE_SET, "%s.%s = %s", expr_name(expr, attribute).text, expr_name(expr, key).text,
                  expr_value(expr, value).text);
}

void expr_remove_entry(struct expr *expr, const char *attribute, const char *key)
{
    add_to_clause(expr, CLAUSE_REMOVE, "%s.%s", expr_name(expr, attribute).text, expr_name(expr, key).text);
}

void expr_remove_first(struct expr *expr, const char *attribute)
{
    add_to_clause(expr, CLAUSE_REMOVE, "%s[0]", expr_name(expr, attribute).text);
}

void expr_change_set(struct expr *expr, enum expr_clause clause, const char *attribute, json_t *set)
{
    add_to_clause(expr, clause, "%s %s", expr_name(expr, attribute).text, expr_value(expr, set).text);
}

bool expr_updates(const struct expr *expr)
{
    bool updates = false;

    for (size_t i = 0; i < N_CLAUSES; i++) {
        updates = updates || expr->clauses[i].len > 0;
    }
    return updates;
}

bool expr_finish(struct expr *expr, json_t *request)
{
    static const char *const words[N_CLAUSES] = { "SET", "REMOVE", "ADD", "DELETE" };
    struct buf update = BUF_INIT(EXPRESSION_MAX);
    bool ok;

    for (size_t i = 0; i < N_CLAUSES; i++) {
        if (expr->clauses[i].len > 0) {
            buf_addf(&update, "%s%s %s", update.len > 0 ? " " : "", words[i], expr->clauses[i].data);
        }
        update.failed = update.failed || expr->clauses[i].failed;
    }
    ok = !expr->failed && !update.failed && !expr->condition.failed;
    if (ok && update.len > 0) {
        ok = json_object_set_new(request, "UpdateExpression", json_string(update.data)) == 0;
    }
    if (ok && expr->condition.len > 0) {
        ok = json_object_set_new(request, "ConditionExpression", json_string(expr->condition.data)) == 0;
    }
    if (ok && json_object_size(expr->names) > 0) {
        ok = json_object_set(request, "ExpressionAttributeNames", expr->names) == 0;
    }
    if (ok && json_object_size(expr->values) > 0) {
        ok = json_object_set(request, "ExpressionAttributeValues", expr->values) == 0;
    }
    buf_release(&update);
    return ok;
}

/* ---- attribute values --------------------------------------------------- */

json_t *av_text(const char *text)
{
    return json_pack("{s:s}", "S", text == NULL ? "" : text);
}

json_t *av_int(int64_t number)
{
    return json_pack("{s:o}", "N", json_sprintf("%lld", (long long)number));
}

json_t *av_uint(uint64_t number)
{
    return json_pack("{s:o}", "N", json_sprintf("%llu", (unsigned long long)number));
}

json_t *av_bool(bool value)
{
    return json_pack("{s:b}", "BOOL", value ? 1 : 0);
}

json_t *av_map(json_t *map)
{
    return json_pack("{s:o}", "M", map);
}

json_t *av_set(const char *const *ids, size_t n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(all, json_string(ids[i]));
    }
    return json_pack("{s:o}", "SS", all);
}

json_t *av_repeated(const char *text, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; list != NULL && i < n; i++) {
        if (json_array_append_new(list, av_text(text)) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return json_pack("{s:o}", "L", list);
}

const char *item_text(const json_t *item, const char *attribute)
{
    const json_t *value = attribute == NULL ? NULL : json_object_get(item, attribute);
    const char *text = json_string_value(json_object_get(value, "S"));

    return text != NULL ? text : json_string_value(json_object_get(value, "N"));
}

bool item_int(const json_t *item, const char *attribute, int64_t *out)
{
    const char *text = item_text(item, attribute);
    long long number;
    char *end;

    if (text == NULL || *text == '\0') {
        return false;
    }
    errno = 0;
    number = strtoll(text, &end, 10);
    /* A number may come with a fraction ("1.7e9" does not: DynamoDB writes digits). */
    if (errno != 0 || end == text || (*end != '\0' && *end != '.')) {
        return false;
    }
    *out = number;
    return true;
}

bool item_uint(const json_t *item, const char *attribute, uint64_t *out)
{
    const char *text = item_text(item, attribute);
    unsigned long long number;
    char *end;

    if (text == NULL || *text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0') {
        return false;
    }
    *out = number;
    return true;
}

bool item_bool(const json_t *item, const char *attribute)
{
    const json_t *value = attribute == NULL ? NULL : json_object_get(item, attribute);

    return json_is_true(json_object_get(value, "BOOL"));
}

const json_t *item_map(const json_t *item, const char *attribute)
{
    const json_t *value = attribute == NULL ? NULL : json_object_get(item, attribute);

    return json_object_get(value, "M");
}
