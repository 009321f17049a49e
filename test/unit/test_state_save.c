/* Saving states: fencing, snapshots, and crashes between two writes (S4.3, L2). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "belay/state.h"
#include "store/file/file_blob.h"

static const struct belay_state_name name = { "shop", "prod" };
static char directory[64];
static long keep_snapshots;
static int64_t now_ms;

/* A store that fails to put what has this in its name, as if the process had died before it. */
struct failing {
    struct belay_blob_store base;
    struct belay_blob_store *inner; /* owned */
};
static const char *fail_on;

static struct belay_blob_store *inner_of(struct belay_blob_store *store)
{
    return ((struct failing *)store)->inner;
}

static enum belay_code get(struct belay_blob_store *store, const char *blob, struct belay_blob *out,
                           struct belay_error *err)
{
    return inner_of(store)->ops->get(inner_of(store), blob, out, err);
}

static enum belay_code put_if(struct belay_blob_store *store, const char *blob, const void *data, size_t len,
                              const struct belay_blob_tag *expected, struct belay_blob_tag *out_tag,
                              struct belay_error *err)
{
    if (fail_on != NULL && strstr(blob, fail_on) != NULL) {
        return BELAY_UNREACHABLE;
    }
    return inner_of(store)->ops->put_if(inner_of(store), blob, data, len, expected, out_tag, err);
}

static enum belay_code list(struct belay_blob_store *store, const char *prefix, bool shallow,
                            belay_blob_fn fn, void *context, struct belay_error *err)
{
    return inner_of(store)->ops->list(inner_of(store), prefix, shallow, fn, context, err);
}

static enum belay_code remove_blob(struct belay_blob_store *store, const char *blob, struct belay_error *err)
{
    return inner_of(store)->ops->remove(inner_of(store), blob, err);
}

static void close_store(struct belay_blob_store *store)
{
    inner_of(store)->ops->close(inner_of(store));
    free(store);
}

static enum belay_code get_if_changed(struct belay_blob_store *store, const char *blob,
                                      const struct belay_blob_tag *known, struct belay_blob *out,
                                      struct belay_error *err)
{
    return inner_of(store)->ops->get_if_changed(inner_of(store), blob, known, out, err);
}

/* A store that has the locks too: whether the lock is held, and the one that was asked for. */
static bool is_held;
static char asked[160];

static enum belay_code put_if_held(struct belay_blob_store *store, const struct belay_blob_put *put,
                                   struct belay_blob_tag *out_tag, struct belay_error *err)
{
    (void)snprintf(asked, sizeof asked, "%s %s %s %s %llu", put->name, put->lock->store, put->lock->key,
                   put->lock->lock_id, (unsigned long long)put->lock->token);
    return is_held ? put_if(store, put->name, put->data, put->len, put->expected, out_tag, err)
                   : BELAY_NOT_HOLDER;
}

static enum belay_code remove_if_held(struct belay_blob_store *store, const char *blob,
                                      const struct belay_blob_lock *lock, struct belay_error *err)
{
    (void)snprintf(asked, sizeof asked, "remove %s %s %s %llu", lock->store, lock->key, lock->lock_id,
                   (unsigned long long)lock->token);
    return is_held ? remove_blob(store, blob, err) : BELAY_NOT_HOLDER;
}

static const struct belay_blob_ops ops = { .name = "failing",
                                           .close = close_store,
                                           .get = get,
                                           .put_if = put_if,
                                           .list = list,
                                           .remove = remove_blob,
                                           .get_if_changed = get_if_changed,
                                           .put_if_held = put_if_held,
                                           .remove_if_held = remove_if_held };

static int64_t read_clock(void *context)
{
    (void)context;
    return now_ms;
}

static struct belay_states *open_states(void)
{
    struct belay_states_options options = BELAY_STATES_OPTIONS_INIT;
    struct failing *store = calloc(1, sizeof *store);
    struct belay_states *states = NULL;

    assert_non_null(store);
    store->base.ops = &ops;
    assert_int_equal(file_blob_open(directory, &store->inner, NULL, NULL), BELAY_OK);
    options.now_unix_ms = read_clock;
    options.keep_snapshots = keep_snapshots;
    assert_int_equal(belay_states_open_store(&store->base, NULL, &options, &states, NULL), BELAY_OK);
    return states;
}

static int set_up(void **state)
{
    (void)state;
    now_ms = 1705328400000; /* 2024-01-15T14:20:00Z */
    fail_on = NULL;
    is_held = false;
    asked[0] = '\0';
    keep_snapshots = 50;
    (void)snprintf(directory, sizeof directory, "/tmp/belay-state-XXXXXX");
    return mkdtemp(directory) == NULL;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf %s", directory);
    return system(command);
}

static struct belay_state_lock stamp_of(uint64_t token, const char *by)
{
    return (struct belay_state_lock){ .token = token, .store = "locks", .lock_id = by, .locked_by = by };
}

static enum belay_code save(struct belay_states *states, const char *text, uint64_t token, const char *by,
                            const struct belay_blob_tag *loaded, struct belay_error *err)
{
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;
    struct belay_state_lock stamp = stamp_of(token, by);

    write.lock = &stamp;
    write.loaded = loaded;
    return belay_state_save(states, &name, text, strlen(text), &write, NULL, err);
}

static bool count(void *context, const struct belay_snapshot *snapshot)
{
    (void)snapshot;
    ++*(size_t *)context;
    return true;
}

static size_t n_snapshots(struct belay_states *states)
{
    size_t n = 0;

    assert_int_equal(belay_state_snapshots(states, &name, count, &n, NULL), BELAY_OK);
    return n;
}

static void a_lock_store_without_tokens_is_refused(void **state)
{
    struct belay_states *states = open_states();
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_state_lock stamp = stamp_of(0, "a");
    struct belay_state *got = NULL;

    (void)state;
    assert_int_equal(belay_state_begin(states, &name, &stamp, &got, &err), BELAY_CONFIG);
    assert_non_null(strstr(err.text, "fence_table"));
    assert_int_equal(belay_state_load(states, &name, &got, &err), BELAY_NOT_FOUND);
    belay_states_close(states);
}

static void a_lock_overrides_older_tokens_and_yields_to_later_ones(void **state)
{
    struct belay_states *states = open_states();
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_state_lock old = stamp_of(5, "old");
    struct belay_state_lock later = stamp_of(9, "later");
    struct belay_state *a = NULL;
    struct belay_state *b = NULL;

    (void)state;
    assert_int_equal(belay_state_begin(states, &name, &old, &a, &err), BELAY_OK);
    assert_int_equal(belay_state_begin(states, &name, &later, &b, &err), BELAY_OK);
    assert_int_equal(b->token, 9);
    assert_true(b->locked);
    assert_int_equal(save(states, "{\"outputs\":{\"by\":\"old\"}}", 5, "old", &a->tag, &err),
                     BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "later"));
    assert_string_equal(belay_error_holder(&err)->locked_by, "later");
    assert_int_equal(save(states, "{\"outputs\":{\"by\":\"later\"}}", 9, "later", &b->tag, &err), BELAY_OK);
    /* The mark stays when the lock is gone. */
    belay_state_free(a);
    assert_int_equal(belay_state_begin(states, &name, &old, &a, &err), BELAY_NOT_HOLDER);
    assert_int_equal(belay_state_load(states, &name, &a, &err), BELAY_OK);
    assert_false(a->locked);
    assert_int_equal(a->token, 9);
    assert_non_null(strstr(a->text, "\"by\":\"later\""));
    belay_state_free(a);
    belay_state_free(b);
    belay_error_release(&err);
    belay_states_close(states);
}

static void a_begin_whose_answer_was_lost_can_be_repeated(void **state)
{
    struct belay_states *states = open_states();
    struct belay_state_lock stamp = stamp_of(5, "a");
    struct belay_state *first = NULL;
    struct belay_state *again = NULL;

    (void)state;
    assert_int_equal(belay_state_begin(states, &name, &stamp, &first, NULL), BELAY_OK);
    assert_int_equal(belay_state_begin(states, &name, &stamp, &again, NULL), BELAY_OK);
    assert_int_equal(save(states, "{}", 5, "a", &first->tag, NULL), BELAY_OK);
    belay_state_free(first);
    belay_state_free(again);
    belay_states_close(states);
}

static void a_write_made_from_another_version_is_refused(void **state)
{
    struct belay_states *states = open_states();
    struct belay_state *loaded = NULL;

    (void)state;
    assert_int_equal(save(states, "{}", 1, "a", NULL, NULL), BELAY_OK);
    assert_int_equal(belay_state_load(states, &name, &loaded, NULL), BELAY_OK);
    assert_int_equal(save(states, "{\"metadata\":{\"serial\":1}}", 2, "b", NULL, NULL), BELAY_OK);
    assert_int_equal(save(states, "{}", 3, "c", &loaded->tag, NULL), BELAY_NOT_HOLDER);
    belay_state_free(loaded);
    belay_states_close(states);
}

/* Issue 12, item 33: what was loaded during a first deployment has no serial, and is no base after it. */
static void a_write_without_a_base_is_refused_once_there_is_a_state(void **state)
{
    struct belay_states *states = open_states();
    struct belay_state_lock stamp = stamp_of(1, "first");
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_state *loaded = NULL;
    struct belay_state *now = NULL;

    (void)state;
    assert_int_equal(belay_state_begin(states, &name, &stamp, &loaded, NULL), BELAY_OK);
    assert_int_equal(save(states, "{\"outputs\":{\"by\":1}}", 1, "first", &loaded->tag, NULL), BELAY_OK);
    assert_int_equal(save(states, loaded->text, 2, "late", NULL, &err), BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "does not say (in metadata.serial) that it was made from it"));
    assert_int_equal(belay_state_save(states, &name, "{}", 2, NULL, NULL, NULL), BELAY_NOT_HOLDER);
    assert_int_equal(save(states, "{\"metadata\":{\"serial\":null}}", 2, "late", NULL, NULL),
                     BELAY_NOT_HOLDER);
    assert_int_equal(save(states, "{\"metadata\":{\"serial\":\"1\"}}", 2, "late", NULL, NULL),
                     BELAY_NOT_HOLDER);
    assert_int_equal(belay_state_load(states, &name, &now, NULL), BELAY_OK);
    assert_int_equal(now->serial, 1);
    belay_error_release(&err);
    belay_state_free(loaded);
    belay_state_free(now);
    belay_states_close(states);
}

/* HTTP's If-Match and If-None-Match: what one lock saved before is no excuse. */
static void an_exact_write_is_made_from_exactly_what_it_says(void **state)
{
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;
    struct belay_state_lock stamp = stamp_of(1, "a");
    struct belay_states *states = open_states();
    struct belay_state *first = NULL;
    struct belay_error err = BELAY_ERROR_INIT;

    (void)state;
    write.lock = &stamp;
    write.exact = true;
    assert_int_equal(belay_state_save(states, &name, "{}", 2, &write, &first, NULL), BELAY_OK);
    assert_int_equal(belay_state_save(states, &name, "{}", 2, &write, NULL, &err), BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "the state of 'shop' in 'prod' exists already"));
    write.loaded = &first->tag;
    assert_int_equal(belay_state_save(states, &name, "{}", 2, &write, NULL, NULL), BELAY_OK);
    assert_int_equal(belay_state_save(states, &name, "{}", 2, &write, NULL, &err), BELAY_NOT_HOLDER);
    assert_non_null(strstr(err.text, "has changed since this one was loaded: it is version 2"));
    write.exact = false;
    assert_int_equal(belay_state_save(states, &name, "{}", 2, &write, NULL, NULL), BELAY_OK);
    belay_error_release(&err);
    belay_state_free(first);
    belay_states_close(states);
}

/* Another program that writes in place, at once, and as many bytes: it is seen, and named as damage. */
static void a_reload_reads_only_what_has_changed(void **state)
{
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;
    struct belay_states *states = open_states();
    struct belay_state *saved = NULL;
    struct belay_state *again = NULL;
    char path[128];
    FILE *file;

    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(belay_state_save(states, &name, "{\"outputs\":{}}", 14, &write, &saved, NULL),
                         BELAY_OK);
        assert_int_equal(belay_state_reload(states, &name, &saved->tag, &again, NULL), BELAY_OK);
        assert_null(again);
        (void)snprintf(path, sizeof path, "%s/stacks/shop/prod/state.json", directory);
        file = fopen(path, "r+");
        assert_non_null(file);
        assert_int_equal(fputc('[', file), '[');
        assert_int_equal(fclose(file), 0);
        assert_int_equal(belay_state_reload(states, &name, &saved->tag, &again, NULL), BELAY_BAD_CONTENT);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(belay_state_reload(states, &name, &saved->tag, &again, NULL), BELAY_NOT_FOUND);
        belay_state_free(saved);
    }
    belay_states_close(states);
}

static void a_snapshot_missing_after_a_crash_is_written_later(void **state)
{
    struct belay_states *states = open_states();
    struct belay_state *old = NULL;

    (void)state;
    assert_int_equal(save(states, "{\"outputs\":{\"n\":1}}", 1, "a", NULL, NULL), BELAY_OK);
    fail_on = "history/";
    assert_int_equal(save(states, "{\"metadata\":{\"serial\":1},\"outputs\":{\"n\":2}}", 2, "a", NULL, NULL),
                     BELAY_OK);
    assert_int_equal(n_snapshots(states), 1);
    fail_on = NULL;
    assert_int_equal(save(states, "{\"metadata\":{\"serial\":2},\"outputs\":{\"n\":3}}", 3, "a", NULL, NULL),
                     BELAY_OK);
    assert_int_equal(n_snapshots(states), 3);
    assert_int_equal(belay_state_load_snapshot(states, &name, "2024-01-15-14-20-00-2.json", &old, NULL),
                     BELAY_OK);
    assert_non_null(strstr(old->text, "{\"n\":2}"));
    belay_state_free(old);
    belay_states_close(states);
}

/* Issue 12, item 11: 90 days, and at least the newest 100. */
static void snapshots_are_removed_when_too_old_and_too_many(void **state)
{
    char text[64];

    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        struct belay_states *states;

        keep_snapshots = i < 4 ? 50 : 3;
        states = open_states();
        (void)snprintf(text, sizeof text, "{\"metadata\":{\"serial\":%u}}", i);
        assert_int_equal(save(states, text, i + 1, "a", NULL, NULL), BELAY_OK);
        /* The first four are 60 days apart, and few: all stay. Then three do, and whatever is young. */
        assert_int_equal(n_snapshots(states), i < 4 ? i + 1 : i < 6 ? 3 : i - 2);
        now_ms += i < 4 ? INT64_C(60) * 24 * 3600 * 1000 : 1000;
        belay_states_close(states);
    }
}

static void a_clock_that_was_set_back_does_not_change_the_order(void **state)
{
    struct belay_states *states = open_states();
    struct belay_state *newest = NULL;
    char *latest = NULL;

    (void)state;
    assert_int_equal(save(states, "{\"outputs\":{\"n\":1}}", 1, "a", NULL, NULL), BELAY_OK);
    now_ms -= INT64_C(3600) * 1000;
    assert_int_equal(save(states, "{\"metadata\":{\"serial\":1},\"outputs\":{\"n\":2}}", 2, "a", NULL, NULL),
                     BELAY_OK);
    assert_int_equal(belay_state_find_snapshot(states, &name, "latest", &latest, NULL), BELAY_OK);
    assert_int_equal(belay_state_load_snapshot(states, &name, latest, &newest, NULL), BELAY_OK);
    assert_non_null(strstr(newest->text, "{\"n\":2}"));
    free(latest);
    belay_state_free(newest);
    belay_states_close(states);
}

static void a_damaged_state_is_not_built_upon(void **state)
{
    struct belay_states *states = open_states();
    struct belay_error err = BELAY_ERROR_INIT;
    char command[256];

    (void)state;
    assert_int_equal(save(states, "{\"outputs\":{\"n\":1}}", 1, "a", NULL, NULL), BELAY_OK);
    (void)snprintf(command, sizeof command, "sed -i 's/\"n\":1/\"n\":7/' %s/stacks/shop/prod/state.json",
                   directory);
    assert_int_equal(system(command), 0);
    assert_int_equal(save(states, "{}", 2, "a", NULL, &err), BELAY_BAD_CONTENT);
    assert_non_null(strstr(err.text, "outputs: the checksum is wrong"));
    belay_states_close(states);
}

/* A damaged state has no token to compare with, but the state store is still bound to its lock store. */
static void a_restore_over_damage_needs_the_bound_lock_store(void **state)
{
    struct belay_states *states = open_states();
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;
    struct belay_state_lock stamp = stamp_of(9, "b");
    char command[256];
    char *snapshot = NULL;

    (void)state;
    assert_int_equal(save(states, "{\"outputs\":{\"n\":1}}", 1, "a", NULL, NULL), BELAY_OK);
    assert_int_equal(belay_state_find_snapshot(states, &name, "latest", &snapshot, &err), BELAY_OK);
    (void)snprintf(command, sizeof command, "echo broken > %s/stacks/shop/prod/state.json", directory);
    assert_int_equal(system(command), 0);
    write.lock = &stamp;
    stamp.store = "other";
    assert_int_equal(belay_state_restore(states, &name, snapshot, &write, NULL, &err), BELAY_CONFIG);
    assert_non_null(strstr(err.text, "is fenced by the lock store"));
    stamp.store = "locks";
    assert_int_equal(belay_state_restore(states, &name, snapshot, &write, NULL, &err), BELAY_OK);
    free(snapshot);
    belay_states_close(states);
}

static void documents_of_other_formats_have_versions_too(void **state)
{
    struct belay_states *states = open_states();
    struct belay_blob_tag tag;
    struct belay_blob one = { 0 };
    struct belay_blob two = { 0 };
    struct belay_blob got = { 0 };
    struct belay_document_write over_one = { .before = &one };
    struct belay_document_write over_two = { .before = &two };
    size_t n = 0;

    (void)state;
    assert_int_equal(belay_document_load(states, "terraform/net", &got, NULL), BELAY_NOT_FOUND);
    assert_int_equal(belay_document_save(states, "terraform/net", "one", 3, NULL, &tag, NULL), BELAY_OK);
    assert_int_equal(belay_document_load(states, "terraform/net", &one, NULL), BELAY_OK);
    fail_on = "history/";
    assert_int_equal(belay_document_save(states, "terraform/net", "two", 3, &over_one, &tag, NULL), BELAY_OK);
    fail_on = NULL;
    assert_int_equal(belay_document_load(states, "terraform/net", &two, NULL), BELAY_OK);
    assert_int_equal(belay_document_save(states, "terraform/net", "bad", 3, &over_one, &tag, NULL),
                     BELAY_NOT_HOLDER);
    assert_int_equal(belay_document_save(states, "terraform/net", "three", 5, &over_two, &tag, NULL),
                     BELAY_OK);
    assert_int_equal(belay_document_snapshots(states, "terraform/net", count, &n, NULL), BELAY_OK);
    assert_int_equal(n, 3);
    assert_int_equal(belay_document_load_snapshot(states, "terraform/net", "2", &got, NULL), BELAY_OK);
    assert_string_equal(got.data, "two");
    belay_blob_release(&got);
    belay_blob_release(&one);
    belay_blob_release(&two);
    assert_int_equal(belay_document_remove(states, "terraform/net", NULL, NULL), BELAY_OK);
    assert_int_equal(belay_document_load(states, "terraform/net", &got, NULL), BELAY_NOT_FOUND);
    assert_int_equal(belay_document_load(states, "terraform/../net", &got, NULL), BELAY_INVALID);
    belay_states_close(states);
}

static void the_lock_is_checked_in_the_write_if_the_store_has_it(void **state)
{
    struct belay_states *states = open_states();
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;
    struct belay_state_lock stamp = stamp_of(5, "me");
    struct belay_document_write document = { .lock = &stamp };
    const char *next = "{\"metadata\":{\"serial\":1}}";
    struct belay_blob_tag tag;

    (void)state;
    write.lock = &stamp;
    assert_int_equal(belay_state_save(states, &name, "{}", 2, &write, NULL, NULL), BELAY_OK);
    assert_string_equal(asked, ""); /* a lock without a key */
    stamp.key = "the-key";
    assert_int_equal(belay_document_save(states, "terraform/net", "one", 3, &document, &tag, NULL),
                     BELAY_NOT_HOLDER);
    assert_string_equal(asked, "terraform/net/state.json locks the-key me 5");
    assert_int_equal(belay_state_save(states, &name, next, strlen(next), &write, NULL, NULL),
                     BELAY_NOT_HOLDER);
    assert_string_equal(asked, "stacks/shop/prod/state.json locks the-key me 5");
    is_held = true;
    assert_int_equal(belay_state_save(states, &name, next, strlen(next), &write, NULL, NULL), BELAY_OK);
    assert_int_equal(belay_document_save(states, "terraform/net", "one", 3, &document, &tag, NULL), BELAY_OK);
    is_held = false;
    assert_int_equal(belay_document_remove(states, "terraform/net", &stamp, NULL), BELAY_NOT_HOLDER);
    assert_string_equal(asked, "remove locks the-key me 5");
    is_held = true;
    assert_int_equal(belay_document_remove(states, "terraform/net", &stamp, NULL), BELAY_OK);
    belay_states_close(states);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_lock_store_without_tokens_is_refused),
        TEST(a_lock_overrides_older_tokens_and_yields_to_later_ones),
        TEST(a_begin_whose_answer_was_lost_can_be_repeated),
        TEST(a_write_made_from_another_version_is_refused),
        TEST(a_write_without_a_base_is_refused_once_there_is_a_state),
        TEST(an_exact_write_is_made_from_exactly_what_it_says),
        TEST(a_reload_reads_only_what_has_changed),
        TEST(a_snapshot_missing_after_a_crash_is_written_later),
        TEST(snapshots_are_removed_when_too_old_and_too_many),
        TEST(a_clock_that_was_set_back_does_not_change_the_order),
        TEST(a_damaged_state_is_not_built_upon),
        TEST(a_restore_over_damage_needs_the_bound_lock_store),
        TEST(documents_of_other_formats_have_versions_too),
        TEST(the_lock_is_checked_in_the_write_if_the_store_has_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
