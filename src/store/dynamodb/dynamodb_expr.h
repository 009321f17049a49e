/*
 * The expressions of one request, and attribute values.
 * Every name is aliased and every value bound: `owner`, `ttl`, `token` and some 570 others are
 * reserved words, and text from a user must not become syntax.
 */
#ifndef STORE_DYNAMODB_DYNAMODB_EXPR_H
#define STORE_DYNAMODB_DYNAMODB_EXPR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum expr_clause { CLAUSE_SET, CLAUSE_REMOVE, CLAUSE_ADD, CLAUSE_DELETE, N_CLAUSES };

struct expr {
    json_t *names;    /* owned: {"#n0": "attribute"} */
    json_t *values;   /* owned: {":v0": {"S": "..."}} */
    json_t *assigned; /* owned: plain values that are set, by attribute */
    struct buf condition;
    struct buf clauses[N_CLAUSES]; /* without their words */
    char within[28]; /* "#n1.#n2.": what is set or removed is in this map; "": in the item itself */
    bool failed;
};

/* "#n12" or ":v12"; returned by value, so that several fit into one format. */
struct expr_ref {
    char text[12];
};

void expr_init(struct expr *expr);
void expr_release(struct expr *expr);

struct expr_ref expr_name(struct expr *expr, const char *attribute);
/* Takes over `value`; NULL makes the expression fail. */
struct expr_ref expr_value(struct expr *expr, json_t *value);

/* From now on, expr_set(), expr_set_to() and expr_remove() act on the map `attribute`.`key`; NULL: on the item. */
void expr_within(struct expr *expr, const char *attribute, const char *key);

/* Adds a condition; all conditions must hold. */
void expr_and(struct expr *expr, const char *format, ...) __attribute__((format(printf, 2, 3)));
void expr_and_absent(struct expr *expr, const char *attribute);
void expr_and_is(struct expr *expr, const char *attribute, json_t *value); /* takes over `value` */
/* It has another value, or is absent. Takes over `value`. */
void expr_and_is_not(struct expr *expr, const char *attribute, json_t *value);
void expr_set(struct expr *expr, const char *attribute, json_t *value); /* takes over `value` */
void expr_set_to(struct expr *expr, const char *attribute, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void expr_remove(struct expr *expr, const char *attribute);
/* Sets it to one more than `counter` is, or than `first` if that is absent. */
void expr_set_next(struct expr *expr, const char *attribute, const char *counter, int64_t first);
/* An entry of the map `attribute`. Takes over `value`. */
void expr_set_entry(struct expr *expr, const char *attribute, const char *key, json_t *value);
void expr_remove_entry(struct expr *expr, const char *attribute, const char *key);
/* The first element of the list `attribute`. */
void expr_remove_first(struct expr *expr, const char *attribute);
/* Adds to (CLAUSE_ADD) or deletes from (CLAUSE_DELETE) a set of strings. Takes over `set`. */
void expr_change_set(struct expr *expr, enum expr_clause clause, const char *attribute, json_t *set);
bool expr_updates(const struct expr *expr); /* it sets, removes, adds or deletes something */
/* Puts the expressions into a request. False: no memory, or an expression is too long. */
bool expr_finish(struct expr *expr, json_t *request);

/* ---- attribute values --------------------------------------------------- */

json_t *av_text(const char *text); /* NULL means "" */
json_t *av_int(int64_t number);
json_t *av_uint(uint64_t number);
json_t *av_bool(bool value);
json_t *av_map(json_t *map);                      /* takes over `map` */
json_t *av_set(const char *const *ids, size_t n); /* of strings */
json_t *av_repeated(const char *text, size_t n);  /* n times the text */

/* Read an attribute of an item, whatever its type; NULL or the fallback if it is missing or unusable. */
const char *item_text(const json_t *item, const char *attribute); /* S, or the digits of N */
bool item_int(const json_t *item, const char *attribute, int64_t *out);
bool item_uint(const json_t *item, const char *attribute, uint64_t *out);
bool item_bool(const json_t *item, const char *attribute);
const json_t *item_map(const json_t *item, const char *attribute); /* the content of M */

#endif
