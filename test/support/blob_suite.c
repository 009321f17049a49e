#include "support/blob_suite.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct blobs {
    const struct blob_fixture *fixture;
    struct belay_blob_store *a; /* two handles on the same data */
    struct belay_blob_store *b;
    struct belay_blob blob; /* what a case read last */
    char *why;
    size_t why_size;
};

static bool wrong(struct blobs *s, int line, const char *what, const struct belay_error *err)
{
    (void)snprintf(s->why, s->why_size, "line %d: not so: %s%s%s", line, what, err == NULL ? "" : ": ",
                   err == NULL ? "" : err->text);
    return false;
}

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            return wrong(s, __LINE__, #condition, NULL);                                                     \
        }                                                                                                    \
    } while (0)
#define CHECK_CODE(call, wanted)                                                                             \
    do {                                                                                                     \
        struct belay_error check_err = BELAY_ERROR_INIT;                                                     \
        struct belay_error *err = &check_err;                                                                \
        enum belay_code check_code = (call);                                                                 \
        if (check_code != (wanted)) {                                                                        \
            (void)wrong(s, __LINE__, #call, err);                                                            \
            belay_error_release(err);                                                                        \
            return false;                                                                                    \
        }                                                                                                    \
        belay_error_release(err);                                                                            \
    } while (0)

#define PUT(store, name, text, expected, tag, wanted)                                                        \
    CHECK_CODE((store)->ops->put_if((store), (name), (text), strlen(text), (expected), (tag), err), (wanted))

static bool holds(struct belay_blob_store *store, const char *name, const char *text)
{
    struct belay_blob blob = { 0 };
    bool same = store->ops->get(store, name, &blob, NULL) == BELAY_OK && blob.len == strlen(text) &&
                memcmp(blob.data, text, blob.len + 1) == 0;

    belay_blob_release(&blob);
    return same;
}

static enum belay_code get(struct blobs *s, struct belay_blob_store *store, const char *name,
                           struct belay_error *err)
{
    belay_blob_release(&s->blob);
    return store->ops->get(store, name, &s->blob, err);
}

static bool a_written_blob_is_read_by_another_handle(struct blobs *s)
{
    struct belay_blob_tag tag;

    PUT(s->a, "stacks/shop/prod/state.json", "one", NULL, &tag, BELAY_OK);
    CHECK(holds(s->b, "stacks/shop/prod/state.json", "one"));
    CHECK_CODE(get(s, s->b, "stacks/shop/prod/state.json", err), BELAY_OK);
    CHECK(strcmp(s->blob.tag.text, tag.text) == 0);
    return true;
}

static bool an_unchanged_blob_need_not_be_read(struct blobs *s)
{
    const struct belay_blob_ops *ops = s->a->ops;
    struct belay_blob_tag first;
    struct belay_blob_tag second;

    if (ops->get_if_changed == NULL) {
        return true;
    }
    PUT(s->a, "d/x", "one", NULL, &first, BELAY_OK);
    belay_blob_release(&s->blob);
    CHECK_CODE(ops->get_if_changed(s->b, "d/x", &first, &s->blob, err), BELAY_OK);
    CHECK(s->blob.data == NULL);
    PUT(s->a, "d/x", "two", &first, &second, BELAY_OK);
    CHECK_CODE(ops->get_if_changed(s->b, "d/x", &first, &s->blob, err), BELAY_OK);
    CHECK(s->blob.data != NULL && strcmp(s->blob.data, "two") == 0);
    CHECK(strcmp(s->blob.tag.text, second.text) == 0);
    CHECK_CODE(s->a->ops->remove(s->a, "d/x", err), BELAY_OK);
    belay_blob_release(&s->blob);
    CHECK_CODE(ops->get_if_changed(s->b, "d/x", &second, &s->blob, err), BELAY_NOT_FOUND);
    return true;
}

static bool a_missing_blob_is_not_found(struct blobs *s)
{
    struct belay_blob_tag tag;

    CHECK_CODE(get(s, s->a, "nothing", err), BELAY_NOT_FOUND);
    CHECK_CODE(get(s, s->a, "no/such/folder/nothing", err), BELAY_NOT_FOUND);
    PUT(s->a, "folder/x", "x", NULL, &tag, BELAY_OK);
    CHECK_CODE(get(s, s->a, "folder/y", err), BELAY_NOT_FOUND);
    return true;
}

static bool a_second_creation_is_refused(struct blobs *s)
{
    struct belay_blob_tag tag;

    PUT(s->a, "x", "one", NULL, &tag, BELAY_OK);
    PUT(s->b, "x", "two", NULL, &tag, BELAY_REFUSED);
    CHECK(holds(s->a, "x", "one"));
    return true;
}

static bool a_write_over_another_content_is_refused(struct blobs *s)
{
    struct belay_blob_tag first;
    struct belay_blob_tag second;
    struct belay_blob_tag third;

    PUT(s->a, "x", "one", NULL, &first, BELAY_OK);
    PUT(s->b, "x", "two", &first, &second, BELAY_OK);
    CHECK(strcmp(first.text, second.text) != 0);
    PUT(s->a, "x", "three", &first, &third, BELAY_REFUSED);
    CHECK(holds(s->a, "x", "two"));
    PUT(s->a, "x", "three", &second, &third, BELAY_OK);
    CHECK(holds(s->b, "x", "three"));
    return true;
}

static bool a_write_over_a_removed_blob_is_refused(struct blobs *s)
{
    struct belay_blob_tag tag;

    PUT(s->a, "d/x", "one", NULL, &tag, BELAY_OK);
    CHECK_CODE(s->b->ops->remove(s->b, "d/x", err), BELAY_OK);
    PUT(s->a, "d/x", "two", &tag, &tag, BELAY_REFUSED);
    CHECK_CODE(get(s, s->a, "d/x", err), BELAY_NOT_FOUND);
    PUT(s->a, "never/was", "two", &tag, &tag, BELAY_REFUSED);
    PUT(s->a, "d/x", "three", NULL, &tag, BELAY_OK);
    return true;
}

static bool removing_again_is_no_error(struct blobs *s)
{
    struct belay_blob_tag tag;

    PUT(s->a, "d/x", "one", NULL, &tag, BELAY_OK);
    CHECK_CODE(s->a->ops->remove(s->a, "d/x", err), BELAY_OK);
    CHECK_CODE(get(s, s->b, "d/x", err), BELAY_NOT_FOUND);
    CHECK_CODE(s->a->ops->remove(s->a, "d/x", err), BELAY_OK);
    CHECK_CODE(s->a->ops->remove(s->a, "no/such", err), BELAY_OK);
    return true;
}

static bool contents_are_kept_to_the_byte(struct blobs *s)
{
    static const char odd[] = "a\0b\xff\xfe\r\n\x1a";
    size_t sizes[] = { 0, 1, 4096, s->fixture->large == 0 ? 3 << 20 : s->fixture->large };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct belay_blob_tag tag;
        struct belay_blob blob = { 0 };
        char name[32];
        char *data = malloc(sizes[i] + 1);
        bool same;

        CHECK(data != NULL);
        for (size_t k = 0; k < sizes[i]; k++) {
            data[k] = k % 7 == 0 ? odd[k % (sizeof odd - 1)] : (char)(k * 31 + k / 251);
        }
        (void)snprintf(name, sizeof name, "size-%zu", sizes[i]);
        same = s->a->ops->put_if(s->a, name, data, sizes[i], NULL, &tag, NULL) == BELAY_OK &&
               s->b->ops->get(s->b, name, &blob, NULL) == BELAY_OK && blob.len == sizes[i] &&
               memcmp(blob.data, data, sizes[i]) == 0;
        free(data);
        belay_blob_release(&blob);
        CHECK(same);
    }
    return true;
}

struct names {
    char text[4096];
    size_t n;
    size_t most;
};

static bool collect(void *context, const struct belay_blob_entry *entry)
{
    struct names *names = context;
    size_t n = strlen(names->text);

    (void)snprintf(names->text + n, sizeof names->text - n, "%s=%llu\n", entry->name,
                   (unsigned long long)entry->size);
    names->n++;
    return names->most == 0 || names->n < names->most;
}

static bool lists_are_in_order_and_keep_to_the_prefix(struct blobs *s)
{
    static const char *const given[] = { "b/2", "b/10", "a", "b-x/1", "b/c/d", "c+ d&e/ü%2F", "bb" };
    struct belay_blob_tag tag;
    struct names names = { "", 0, 0 };

    CHECK_CODE(s->a->ops->list(s->a, "", false, collect, &names, err), BELAY_OK);
    CHECK(names.n == 0);
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        PUT(s->a, given[i], given[i], NULL, &tag, BELAY_OK);
    }
    CHECK_CODE(s->b->ops->list(s->b, "", false, collect, &names, err), BELAY_OK);
    CHECK(strcmp(names.text, "a=1\nb-x/1=5\nb/10=4\nb/2=3\nb/c/d=5\nbb=2\nc+ d&e/ü%2F=12\n") == 0);
    names = (struct names){ "", 0, 0 };
    CHECK_CODE(s->b->ops->list(s->b, "b/", false, collect, &names, err), BELAY_OK);
    CHECK(strcmp(names.text, "b/10=4\nb/2=3\nb/c/d=5\n") == 0);
    names = (struct names){ "", 0, 0 };
    CHECK_CODE(s->b->ops->list(s->b, "b/1", false, collect, &names, err), BELAY_OK);
    CHECK(strcmp(names.text, "b/10=4\n") == 0);
    names = (struct names){ "", 0, 0 };
    CHECK_CODE(s->b->ops->list(s->b, "no/such/", false, collect, &names, err), BELAY_OK);
    CHECK(names.n == 0);
    return true;
}

static bool shallow_lists_name_folders_once(struct blobs *s)
{
    static const char *const given[] = { "s/a/1/x", "s/a/2/x", "s/a-b/1/x", "s/z", "t/q" };
    struct belay_blob_tag tag;
    struct names names = { "", 0, 0 };

    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        PUT(s->a, given[i], "x", NULL, &tag, BELAY_OK);
    }
    CHECK_CODE(s->a->ops->list(s->a, "s/", true, collect, &names, err), BELAY_OK);
    CHECK(strcmp(names.text, "s/a-b/=0\ns/a/=0\ns/z=1\n") == 0);
    return true;
}

static bool a_list_stops_on_request(struct blobs *s)
{
    struct belay_blob_tag tag;
    struct names names = { "", 0, 2 };

    PUT(s->a, "1", "x", NULL, &tag, BELAY_OK);
    PUT(s->a, "2", "x", NULL, &tag, BELAY_OK);
    PUT(s->a, "3", "x", NULL, &tag, BELAY_OK);
    CHECK_CODE(s->a->ops->list(s->a, "", false, collect, &names, err), BELAY_OK);
    CHECK(names.n == 2);
    return true;
}

static bool names_that_lead_elsewhere_are_refused(struct blobs *s)
{
    static const char *const bad[] = {
        "", "/x", "x/", "a//b", "..", "a/../b", "./a", "a/.", ".belay-lock", "a\nb", "a/.belay-new-x", "a\xff"
    };
    struct belay_blob_tag tag;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        PUT(s->a, bad[i], "x", NULL, &tag, BELAY_INVALID);
        CHECK_CODE(get(s, s->a, bad[i], err), BELAY_INVALID);
        CHECK_CODE(s->a->ops->remove(s->a, bad[i], err), BELAY_INVALID);
    }
    return true;
}

/* ---- several at once ------------------------------------------------------ */

enum { WRITERS = 4, ROUNDS = 12 };

struct race {
    struct blobs *s;
    const char *name;
    bool creates;
    atomic_int done;
    atomic_int wrong;
};

static void *count_up(void *context)
{
    struct race *race = context;
    struct belay_blob_store *store = race->s->fixture->open(race->s->fixture->ctx);

    for (int round = 0; store != NULL && round < ROUNDS;) {
        struct belay_blob blob = { 0 };
        struct belay_blob_tag tag;
        char next[32];
        enum belay_code code = store->ops->get(store, race->name, &blob, NULL);

        if (code == BELAY_OK) {
            (void)snprintf(next, sizeof next, "%d", atoi(blob.data) + 1);
            code = store->ops->put_if(store, race->name, next, strlen(next), &blob.tag, &tag, NULL);
        }
        belay_blob_release(&blob);
        if (code == BELAY_OK) {
            round++;
            (void)atomic_fetch_add(&race->done, 1);
        } else if (code != BELAY_REFUSED) {
            (void)atomic_fetch_add(&race->wrong, 1);
            break;
        }
    }
    if (store != NULL) {
        store->ops->close(store);
    }
    return NULL;
}

static void *create(void *context)
{
    struct race *race = context;
    struct belay_blob_store *store = race->s->fixture->open(race->s->fixture->ctx);
    struct belay_blob_tag tag;
    enum belay_code code = BELAY_UNREACHABLE;

    if (store != NULL) {
        code = store->ops->put_if(store, race->name, "0", 1, NULL, &tag, NULL);
        store->ops->close(store);
    }
    (void)atomic_fetch_add(code == BELAY_OK ? &race->done : &race->wrong, code == BELAY_REFUSED ? 0 : 1);
    return NULL;
}

static bool run_race(struct race *race, void *(*body)(void *))
{
    pthread_t threads[WRITERS];

    for (size_t i = 0; i < WRITERS; i++) {
        if (pthread_create(&threads[i], NULL, body, race) != 0) {
            return false;
        }
    }
    for (size_t i = 0; i < WRITERS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    return true;
}

static bool of_many_creations_one_succeeds(struct blobs *s)
{
    for (int round = 0; round < 8; round++) {
        char name[32];
        struct race race = { .s = s, .name = name };

        (void)snprintf(name, sizeof name, "race/%d", round);
        CHECK(run_race(&race, create));
        CHECK(atomic_load(&race.wrong) == 0);
        CHECK(atomic_load(&race.done) == 1);
    }
    return true;
}

static bool no_acknowledged_write_is_lost_among_rivals(struct blobs *s)
{
    struct race race = { .s = s, .name = "counter" };
    struct belay_blob_tag tag;

    PUT(s->a, "counter", "0", NULL, &tag, BELAY_OK);
    CHECK(run_race(&race, count_up));
    CHECK(atomic_load(&race.wrong) == 0);
    CHECK(atomic_load(&race.done) == WRITERS * ROUNDS);
    CHECK(holds(s->b, "counter", "48"));
    return true;
}

/* ---- the table -------------------------------------------------------------- */

#define CASE(function)                                                                                       \
    {                                                                                                        \
#function, function                                                                                  \
    }
static const struct blob_case {
    const char *name;
    bool (*run)(struct blobs *s);
} cases[] = {
    CASE(a_written_blob_is_read_by_another_handle),
    CASE(an_unchanged_blob_need_not_be_read),
    CASE(a_missing_blob_is_not_found),
    CASE(a_second_creation_is_refused),
    CASE(a_write_over_another_content_is_refused),
    CASE(a_write_over_a_removed_blob_is_refused),
    CASE(removing_again_is_no_error),
    CASE(contents_are_kept_to_the_byte),
    CASE(lists_are_in_order_and_keep_to_the_prefix),
    CASE(shallow_lists_name_folders_once),
    CASE(a_list_stops_on_request),
    CASE(names_that_lead_elsewhere_are_refused),
    CASE(of_many_creations_one_succeeds),
    CASE(no_acknowledged_write_is_lost_among_rivals),
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

size_t blob_suite_count(void)
{
    return N_CASES;
}

const char *blob_suite_name(size_t i)
{
    return cases[i].name;
}

bool blob_suite_run(size_t i, const struct blob_fixture *fixture, char *why, size_t why_size)
{
    struct blobs s = { .fixture = fixture, .why = why, .why_size = why_size };
    bool passed;

    s.a = fixture->open(fixture->ctx);
    s.b = fixture->open(fixture->ctx);
    passed = s.a != NULL && s.b != NULL ? cases[i].run(&s) : wrong(&s, __LINE__, "two handles", NULL);
    belay_blob_release(&s.blob);
    if (s.a != NULL) {
        s.a->ops->close(s.a);
    }
    if (s.b != NULL) {
        s.b->ops->close(s.b);
    }
    return passed;
}

static const struct blob_program *running;

static void run_case(void **state)
{
    size_t i = *(const size_t *)*state;
    struct blob_fixture fixture = { 0 };
    char why[900] = "";
    bool passed;

    if (!running->begin(&fixture)) {
        fail_msg("no fresh %s store could be made", running->name);
    }
    passed = blob_suite_run(i, &fixture, why, sizeof why);
    running->end();
    if (!passed) {
        fail_msg("%s: %s", blob_suite_name(i), why);
    }
}

int blob_suite_main(const struct blob_program *program)
{
    static size_t numbers[N_CASES];
    struct CMUnitTest tests[N_CASES];

    for (size_t i = 0; i < N_CASES; i++) {
        numbers[i] = i;
        tests[i] = (struct CMUnitTest){ cases[i].name, run_case, NULL, NULL, &numbers[i] };
    }
    running = program;
    return _cmocka_run_group_tests(program->name, tests, N_CASES, NULL, NULL);
}
