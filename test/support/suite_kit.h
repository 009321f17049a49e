/* Helpers for the cases of the suite only. */
#ifndef SUPPORT_SUITE_KIT_H
#define SUPPORT_SUITE_KIT_H

#include <string.h>

#include "support/suite.h"

/* The environment of a case. Results of the functions below are released after it. */
struct suite {
    const struct suite_fixture *fixture;
    struct belay_store *a; /* two handles on the same data */
    struct belay_store *b;
    int64_t now_ms; /* as the last answer said */
    char *why;
    size_t why_size;
    struct suite_owned *owned;
};

enum suite_needs {
    SUITE_NEEDS_NOTHING,
    SUITE_NEEDS_EVENTS = 1 << 0,
    SUITE_NEEDS_USED_IDS = 1 << 1,
    SUITE_NEEDS_STANDING_CLOCK = 1 << 2,
    SUITE_NEEDS_FORGETTING = 1 << 3,
    SUITE_NEEDS_ITEMS = 1 << 4,
    SUITE_NEEDS_MODES = 1 << 5, /* locks with several holders */
    SUITE_NEEDS_FREEZES = 1 << 6
};

struct suite_case {
    const char *promise;
    const char *name;
    unsigned needs;
    bool (*run)(struct suite *s);
};
#define CASE(promise, function)                                                                              \
    {                                                                                                        \
        promise, #function, SUITE_NEEDS_NOTHING, function                                                    \
    }
#define CASE_IF(promise, function, needs)                                                                    \
    {                                                                                                        \
        promise, #function, needs, function                                                                  \
    }

/* Each ends with a case without a name. */
extern const struct suite_case suite_conditions[];
extern const struct suite_case suite_fields[];
extern const struct suite_case suite_batches[];
extern const struct suite_case suite_tokens[];
extern const struct suite_case suite_lines[];
extern const struct suite_case suite_reading[];
extern const struct suite_case suite_sizes[];
extern const struct suite_case suite_events[];
extern const struct suite_case suite_waking[];
extern const struct suite_case suite_threads[];
extern const struct suite_case suite_items[];
extern const struct suite_case suite_modes[];
extern const struct suite_case suite_turns[];
extern const struct suite_case suite_freezes[];

/* ---- saying what is wrong ---------------------------------------------- */

bool suite_fail(struct suite *s, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            return suite_fail(s, __FILE__, __LINE__, "not so: %s", #condition);                              \
        }                                                                                                    \
    } while (0)

#define CHECK_INT(got, wanted)                                                                               \
    do {                                                                                                     \
        long long got_ = (long long)(got), wanted_ = (long long)(wanted);                                    \
        if (got_ != wanted_) {                                                                               \
            return suite_fail(s, __FILE__, __LINE__, "%s is %lld instead of %lld", #got, got_, wanted_);     \
        }                                                                                                    \
    } while (0)

#define CHECK_TEXT(got, wanted)                                                                              \
    do {                                                                                                     \
        const char *got_ = (got), *wanted_ = (wanted);                                                       \
        if (!same_text(got_, wanted_)) {                                                                     \
            return suite_fail(s, __FILE__, __LINE__, "%s is '%.80s' instead of '%.80s'", #got,               \
                              got_ == NULL ? "(null)" : got_, wanted_ == NULL ? "(null)" : wanted_);         \
        }                                                                                                    \
    } while (0)

#define CHECK_CODE(answer, wanted)                                                                           \
    do {                                                                                                     \
        enum belay_code got_ = (answer)->code, wanted_ = (wanted);                                           \
        if (got_ != wanted_) {                                                                               \
            return suite_fail(s, __FILE__, __LINE__, "%s: '%s' instead of '%s'", #answer,                    \
                              belay_code_name(got_), belay_code_name(wanted_));                              \
        }                                                                                                    \
    } while (0)

#define CHECK_DONE(answer) CHECK_CODE(answer, BELAY_OK)
#define CHECK_REFUSED(answer) CHECK_CODE(answer, BELAY_REFUSED)

bool same_text(const char *a, const char *b);

/* ---- asking the store -------------------------------------------------- */

struct answer {
    enum belay_code code;
    struct belay_commit done;
};

/* NULL fails the case by itself: the handles are opened before anything is checked. */
struct belay_store *suite_open(struct suite *s);
/* Close all handles and open two new ones. */
bool suite_reopen(struct suite *s);

void *suite_alloc(struct suite *s, size_t size); /* zeroed */
char *suite_text(struct suite *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

const struct answer *commit(struct suite *s, struct belay_store *store, const struct belay_batch *batch);
const struct answer *commit1(struct suite *s, const struct belay_write *write); /* through handle a */

/* The i-th record that came back, or an empty one: never NULL. */
const struct belay_record *image(const struct answer *answer, size_t i);

/* Through handle `store`. Never NULL; an empty record without a key if it failed. */
const struct belay_record *look(struct suite *s, struct belay_store *store, const char *key);
const struct belay_record *see(struct suite *s,
                               const char *key); /* through handle b, which did not write it */

void pass_time(struct suite *s, int64_t ms);

/* ---- the writes most cases begin with ---------------------------------- */

enum { LONG_MS = 600000, SHORT_MS = 120 };

/* Values of a holder with that id, and everything else made of it. */
struct belay_record *holder(struct suite *s, const char *lock_id, int64_t ttl_ms);

const struct answer *take(struct suite *s, const char *key, const char *lock_id); /* if free */
const struct answer *take_for(struct suite *s, const char *key, const char *lock_id, int64_t ttl_ms);
const struct answer *release(struct suite *s, const char *key, const char *lock_id); /* if held by it */
/* These look first and write if nothing changed, so that they also create a record. */
const struct answer *queue(struct suite *s, const char *key, const char *lock_id, int64_t ttl_ms);
const struct answer *intend(struct suite *s, const char *key, const char *lock_id, int64_t ttl_ms);
const struct answer *unqueue(struct suite *s, const char *key, const char *lock_id);

/* As a client does it, with all events. `options`: what else there is in a batch. */
const struct answer *acquire_with(struct suite *s, const char *key, const char *lock_id,
                                  const struct belay_batch *options);
/* The lock "k", by the first of its queue. */
const struct answer *claim_with(struct suite *s, const char *lock_id, const struct belay_batch *options);

/* One write with no values. */
const struct answer *check_only(struct suite *s, const char *key, enum belay_condition condition);

/* Where in the record the intent of that id is; n_intents if nowhere. */
size_t intent_at(const struct belay_record *record, const char *lock_id);
const char *meta_of(const struct belay_record *record, const char *name); /* NULL: no such name */

/* All keys that a scan gives, each followed by a space. */
const char *scan_keys(struct suite *s, struct belay_store *store, const struct belay_scan *scan);

/* Real milliseconds, for cases about waiting. */
int64_t real_ms(void);

#endif
