/* The blob suite must be able to fail: each of these stores breaks one rule, and must be found out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/file/file_blob.h"
#include "support/blob_suite.h"

enum rule {
    NOTHING,
    IGNORES_THAT_IT_EXISTS,
    IGNORES_THE_TAG,
    CHECKS_BEFORE_IT_WRITES, /* and not in one step */
    CUTS_CONTENTS,
    FORGETS_REMOVALS,
    LISTS_TOO_MUCH,
    LISTS_ALL_THE_SAME,
    FOLLOWS_ANY_NAME,
    SEES_NO_CHANGE,
    N_RULES
};

struct faulty_store {
    struct belay_blob_store base;
    struct belay_blob_store *inner; /* owned */
};

static enum rule rule;
static char directory[64];

static struct belay_blob_store *inner_of(struct belay_blob_store *store)
{
    return ((struct faulty_store *)store)->inner;
}

static enum belay_code get(struct belay_blob_store *store, const char *name, struct belay_blob *out_blob,
                           struct belay_error *err)
{
    if (rule == FOLLOWS_ANY_NAME && belay_blob_name_check(name, NULL) != BELAY_OK) {
        name = "elsewhere";
    }
    return inner_of(store)->ops->get(inner_of(store), name, out_blob, err);
}

static enum belay_code overwrite(struct belay_blob_store *inner, const char *name, const void *data,
                                 size_t len, struct belay_blob_tag *out_tag, struct belay_error *err)
{
    struct belay_blob blob = { 0 };
    enum belay_code code;

    do {
        code = inner->ops->get(inner, name, &blob, err);
        code = code == BELAY_OK          ? inner->ops->put_if(inner, name, data, len, &blob.tag, out_tag, err)
               : code == BELAY_NOT_FOUND ? inner->ops->put_if(inner, name, data, len, NULL, out_tag, err)
                                         : code;
        belay_blob_release(&blob);
    } while (code == BELAY_REFUSED);
    return code;
}

static enum belay_code put_if(struct belay_blob_store *store, const char *name, const void *data, size_t len,
                              const struct belay_blob_tag *expected, struct belay_blob_tag *out_tag,
                              struct belay_error *err)
{
    struct belay_blob_store *inner = inner_of(store);
    struct belay_blob blob = { 0 };

    if (rule == IGNORES_THAT_IT_EXISTS && expected == NULL) {
        return overwrite(inner, name, data, len, out_tag, err);
    }
    if (rule == IGNORES_THE_TAG && expected != NULL) {
        return overwrite(inner, name, data, len, out_tag, err);
    }
    if (rule == CHECKS_BEFORE_IT_WRITES && expected != NULL &&
        inner->ops->get(inner, name, &blob, NULL) == BELAY_OK) {
        bool same = strcmp(blob.tag.text, expected->text) == 0;

        belay_blob_release(&blob);
        return same ? overwrite(inner, name, data, len, out_tag, err) : BELAY_REFUSED;
    }
    if (rule == CUTS_CONTENTS && len > 1000) {
        len -= 1;
    }
    if (rule == FOLLOWS_ANY_NAME && belay_blob_name_check(name, NULL) != BELAY_OK) {
        name = "elsewhere";
    }
    return inner->ops->put_if(inner, name, data, len, expected, out_tag, err);
}

static enum belay_code list(struct belay_blob_store *store, const char *prefix, bool shallow,
                            belay_blob_fn fn, void *context, struct belay_error *err)
{
    return inner_of(store)->ops->list(inner_of(store), rule == LISTS_TOO_MUCH ? "" : prefix,
                                      shallow && rule != LISTS_ALL_THE_SAME, fn, context, err);
}

static enum belay_code remove_blob(struct belay_blob_store *store, const char *name, struct belay_error *err)
{
    return rule == FORGETS_REMOVALS ? BELAY_OK : inner_of(store)->ops->remove(inner_of(store), name, err);
}

static void close_store(struct belay_blob_store *store)
{
    inner_of(store)->ops->close(inner_of(store));
    free(store);
}

static enum belay_code get_if_changed(struct belay_blob_store *store, const char *name,
                                      const struct belay_blob_tag *known, struct belay_blob *out_blob,
                                      struct belay_error *err)
{
    return rule == SEES_NO_CHANGE
               ? BELAY_OK
               : inner_of(store)->ops->get_if_changed(inner_of(store), name, known, out_blob, err);
}

static const struct belay_blob_ops ops = { .name = "broken",
                                           .close = close_store,
                                           .get = get,
                                           .put_if = put_if,
                                           .list = list,
                                           .remove = remove_blob,
                                           .get_if_changed = get_if_changed };

static struct belay_blob_store *open_store(void *ctx)
{
    struct faulty_store *broken = calloc(1, sizeof *broken);

    (void)ctx;
    assert_non_null(broken);
    broken->base.ops = &ops;
    assert_int_equal(file_blob_open(directory, &broken->inner, NULL, NULL), BELAY_OK);
    return &broken->base;
}

/* How many cases fail on a store that breaks `broken`. */
static int count_failures(enum rule broken)
{
    const struct blob_fixture fixture = { .open = open_store };
    int failed = 0;

    for (size_t i = 0; i < blob_suite_count(); i++) {
        char command[128];
        char why[900];

        rule = broken;
        (void)snprintf(directory, sizeof directory, "/tmp/belay-blob-XXXXXX");
        assert_non_null(mkdtemp(directory));
        failed += blob_suite_run(i, &fixture, why, sizeof why) ? 0 : 1;
        (void)snprintf(command, sizeof command, "rm -rf %s", directory);
        (void)!system(command);
    }
    return failed;
}

static void a_store_that_breaks_nothing_passes(void **state)
{
    (void)state;
    assert_int_equal(count_failures(NOTHING), 0);
}

static void every_faulty_store_is_found(void **state)
{
    (void)state;
    for (enum rule broken = NOTHING + 1; broken < N_RULES; broken++) {
        if (count_failures(broken) == 0) {
            fail_msg("nobody saw that rule %d is broken", broken);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_that_breaks_nothing_passes),
        cmocka_unit_test(every_faulty_store_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
