/* Request bodies, read strictly: an unknown member is an error that names it. */
#ifndef SERVER_CORE_JSON_BODY_H
#define SERVER_CORE_JSON_BODY_H

#include <jansson.h>
#include <stdint.h>

#include "belay.h"

enum body_type { BODY_TEXT, BODY_NUMBER, BODY_SWITCH, BODY_CHOICE, BODY_METADATA, BODY_WEBHOOK, BODY_KEYS };

struct body_field {
    const char *name; /* NULL ends a table */
    enum body_type type;
    bool is_required;
    size_t offset; /* in struct body */
    int64_t min;
    int64_t max;
    const char *choices; /* BODY_CHOICE: "completed|failed" */
    const char *about;
};

struct body {
    json_t *root; /* owned; the strings point into it, or into `text`; NULL: it was a plain object */
    char *text;   /* owned; or NULL */
    const char *key;
    const char *stack;
    const char *environment;
    const char *service;
    const char *component;
    const char *locked_by;
    const char *locked_by_name;
    const char *lock_id;
    const char *new_lock_id;
    const char *profile;
    const char *correlation_id;
    const char *outcome;
    const char *reason;
    const char *by;
    const char *pattern;
    const char *from;
    const char *until;
    const char *id;
    int64_t ttl_ms;
    int64_t wait_ms;
    int64_t heartbeat_ms;
    int64_t stale_after_ms;
    int64_t token;
    int64_t for_ms;
    int64_t slots;
    bool shared;
    bool reentrant;
    bool ignore_freeze;
    bool has_webhook;
    const char *webhook_url;
    const char *webhook_secret;
    int64_t webhook_timeout_ms;
    size_t n_keys;
    size_t n_metadata;
    const char *keys[BELAY_KEYS_MAX]; /* this and the next are last: counted, not cleared */
    struct belay_meta metadata[BELAY_META_MAX + 1];
};

/*
 * The tables of fields. All but force_fields begin with the fields that name the lock, and then the profile: a route
 * with the key in its path uses the table after the former or, if it has no use for a profile, after both.
 */
enum { BODY_KEY_FIELDS = 6, BODY_KEY_AND_PROFILE = BODY_KEY_FIELDS + 1 };
extern const struct body_field acquire_fields[], adopt_fields[], renew_fields[], release_fields[],
    force_fields[], lost_fields[], held_fields[], check_fields[];
extern const struct body_field freeze_fields[], unfreeze_fields[]; /* without a key */
extern const struct body_field webhook_fields[];                   /* inside "webhook" */

/* BELAY_INVALID names the error. Release the body in any case. */
enum belay_code body_read(struct body *body, const struct body_field *fields, const char *text, size_t len,
                          struct belay_error *err);
/* The same for a parsed body; takes the reference. */
enum belay_code body_read_json(struct body *body, const struct body_field *fields, json_t *root,
                               struct belay_error *err);
void body_release(struct body *body);

#endif
