#include "support/suite.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/suite_kit.h"

static const struct suite_case *const themes[] = {
    suite_conditions, suite_fields, suite_batches, suite_tokens, suite_lines, suite_reading, suite_sizes,
    suite_events,     suite_waking, suite_threads, suite_items,  suite_modes, suite_turns,   suite_freezes,
};
enum { N_THEMES = sizeof themes / sizeof themes[0] };

static const struct suite_case *case_at(size_t i)
{
    for (size_t t = 0; t < N_THEMES; t++) {
        for (const struct suite_case *c = themes[t]; c->name != NULL; c++) {
            if (i == 0) {
                return c;
            }
            i--;
        }
    }
    return NULL;
}

size_t suite_count(void)
{
    size_t n = 0;

    while (case_at(n) != NULL) {
        n++;
    }
    return n;
}

const char *suite_name(size_t i)
{
    return case_at(i)->name;
}

const char *suite_promise(size_t i)
{
    return case_at(i)->promise;
}

bool suite_applies(size_t i, const struct suite_fixture *fixture)
{
    unsigned has = (fixture->keeps_events ? SUITE_NEEDS_EVENTS : 0U) |
                   (fixture->knows_used_ids ? SUITE_NEEDS_USED_IDS : 0U) |
                   (fixture->clock_stands ? SUITE_NEEDS_STANDING_CLOCK : 0U) |
                   (fixture->keeps_items ? SUITE_NEEDS_ITEMS : 0U) |
                   (fixture->keeps_modes ? SUITE_NEEDS_MODES : 0U) |
                   (fixture->keeps_freezes ? SUITE_NEEDS_FREEZES : 0U) |
                   (fixture->forget != NULL ? SUITE_NEEDS_FORGETTING : 0U) |
                   ((unsigned)SUITE_LACKS_ALL & ~fixture->lacks);

    return (case_at(i)->needs & ~has) == 0;
}

/* ---- what a case owns -------------------------------------------------- */

struct suite_owned {
    struct suite_owned *next;
    void (*release)(struct suite_owned *self);
};

struct owned_answer {
    struct suite_owned head;
    struct answer answer;
};

struct owned_record {
    struct suite_owned head;
    struct belay_record record;
};

struct owned_store {
    struct suite_owned head;
    struct belay_store *store;
};

struct owned_memory {
    struct suite_owned head;
    max_align_t data[];
};

static void answer_release(struct suite_owned *self)
{
    belay_commit_release(&((struct owned_answer *)self)->answer.done);
}

static void record_release(struct suite_owned *self)
{
    belay_record_release(&((struct owned_record *)self)->record);
}

static void store_release(struct suite_owned *self)
{
    struct belay_store *store = ((struct owned_store *)self)->store;

    if (store != NULL) {
        store->ops->close(store);
    }
}

static void nothing_release(struct suite_owned *self)
{
    (void)self;
}

static void *own(struct suite *s, size_t size, void (*let_go)(struct suite_owned *self))
{
    struct suite_owned *owned = calloc(1, size);

    if (owned == NULL) {
        abort();
    }
    owned->release = let_go;
    owned->next = s->owned;
    s->owned = owned;
    return owned;
}

static void release_all(struct suite *s)
{
    while (s->owned != NULL) {
        struct suite_owned *owned = s->owned;

        s->owned = owned->next;
        owned->release(owned);
        free(owned);
    }
}

void *suite_alloc(struct suite *s, size_t size)
{
    struct owned_memory *memory = own(s, sizeof *memory + size, nothing_release);

    return memory->data;
}

char *suite_text(struct suite *s, const char *format, ...)
{
    va_list args;
    va_list again;
    char *text;
    int n;

    va_start(args, format);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, format, args);
    text = suite_alloc(s, (size_t)n + 1);
    (void)vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

struct belay_store *suite_open(struct suite *s)
{
    struct owned_store *owned = own(s, sizeof *owned, store_release);

    owned->store = s->fixture->open(s->fixture->ctx);
    return owned->store;
}

bool suite_reopen(struct suite *s)
{
    for (struct suite_owned *o = s->owned; o != NULL; o = o->next) {
        if (o->release == store_release) {
            store_release(o);
            ((struct owned_store *)o)->store = NULL;
        }
    }
    s->a = suite_open(s);
    s->b = s->a == NULL ? NULL : suite_open(s);
    return s->b != NULL;
}

/* ---- running ----------------------------------------------------------- */

bool suite_fail(struct suite *s, const char *file, int line, const char *format, ...)
{
    const char *slash = strrchr(file, '/');
    int n = snprintf(s->why, s->why_size, "%s:%d: ", slash == NULL ? file : slash + 1, line);
    va_list args;

    va_start(args, format);
    if (n > 0 && (size_t)n < s->why_size) {
        (void)vsnprintf(s->why + n, s->why_size - (size_t)n, format, args);
    }
    va_end(args);
    return false;
}

bool suite_run(size_t i, const struct suite_fixture *fixture, char *why, size_t why_size)
{
    struct suite s = { .fixture = fixture, .why = why, .why_size = why_size };
    bool passed;

    why[0] = '\0';
    s.a = suite_open(&s);
    s.b = s.a == NULL ? NULL : suite_open(&s);
    if (s.b == NULL) {
        passed = suite_fail(&s, __FILE__, __LINE__, "the store cannot be opened");
    } else {
        passed = case_at(i)->run(&s);
    }
    release_all(&s);
    return passed;
}

/* ---- asking the store -------------------------------------------------- */

static const struct belay_record nothing = {
    .key = "", .lock_id = "", .owner = "", .owner_name = "", .expires_ms = -1
};

bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

const struct answer *commit(struct suite *s, struct belay_store *store, const struct belay_batch *batch)
{
    struct owned_answer *owned = own(s, sizeof *owned, answer_release);
    struct belay_error err = BELAY_ERROR_INIT;

    owned->answer.code = store->ops->commit(store, batch, &owned->answer.done, &err);
    if (owned->answer.code == BELAY_OK || owned->answer.code == BELAY_REFUSED) {
        s->now_ms = owned->answer.done.now_ms;
    }
    belay_error_release(&err);
    return &owned->answer;
}

const struct answer *commit1(struct suite *s, const struct belay_write *write)
{
    return commit(s, s->a, &(struct belay_batch){ .writes = write, .n_writes = 1 });
}

const struct belay_record *image(const struct answer *answer, size_t i)
{
    return i < answer->done.n_records ? &answer->done.records[i] : &nothing;
}

const struct belay_record *look(struct suite *s, struct belay_store *store, const char *key)
{
    struct owned_record *owned = own(s, sizeof *owned, record_release);
    struct belay_error err = BELAY_ERROR_INIT;

    if (store->ops->get(store, &key, 1, &owned->record, &s->now_ms, &err) != BELAY_OK) {
        belay_error_release(&err);
        memset(&owned->record, 0, sizeof owned->record);
        return &nothing;
    }
    return &owned->record;
}

const struct belay_record *see(struct suite *s, const char *key)
{
    return look(s, s->b, key);
}

void pass_time(struct suite *s, int64_t ms)
{
    s->fixture->advance(s->fixture->ctx, ms);
}

int64_t real_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
