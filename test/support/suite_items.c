/* Small values beside the locks: put on condition, listed whole, and never taken for locks. */
#include <stdio.h>

#include "support/suite_kit.h"

#define APPS BELAY_SPACE_APPS
#define DATABASES BELAY_SPACE_DATABASES

/* Never NULL; empty if it failed. */
static const struct belay_item *get(struct suite *s, const char *space, const char *name)
{
    struct belay_item *item = suite_alloc(s, sizeof *item);
    struct belay_item raw = { 0 };

    if (s->b->ops->item_get(s->b, space, name, &raw, NULL) == BELAY_OK) {
        item->name = suite_text(s, "%s", raw.name);
        item->value = raw.value == NULL ? NULL : suite_text(s, "%s", raw.value);
        item->version = raw.version;
        belay_item_release(&raw);
    }
    return item;
}

/* The value for `any`, an object of strings: where only applications fit, the labels of one. */
static const char *whole(struct suite *s, const char *name, const char *any)
{
    if (any == NULL || !s->fixture->items_are_apps) {
        return any;
    }
    return suite_text(s,
                      "{\"name\":\"%s\",\"urls\":[\"https://%s.example/\"],\"databases\":[],\"labels\":%s,"
                      "\"state\":\"running\",\"since\":null,\"by\":null}",
                      name, name, any);
}

static enum belay_code put(struct suite *s, const char *name, const char *any, uint64_t version,
                           uint64_t *out_version)
{
    struct belay_item_write write = {
        .space = APPS, .name = name, .value = whole(s, name, any), .version = version
    };

    return s->a->ops->item_put(s->a, &write, out_version, NULL);
}

static bool is(struct suite *s, const char *name, const char *any)
{
    const char *value = get(s, APPS, name)->value;

    return value != NULL && strcmp(value, whole(s, name, any)) == 0;
}

static bool an_item_is_read_as_written(struct suite *s)
{
    static const char value[] = "{\"a\":\"it's \\\"quoted\\\" \\\\ \xc3\xa9 \xf0\x9f\x94\x92 %s\"}";
    uint64_t version = 0;

    CHECK_INT(get(s, APPS, "shop")->version, 0);
    CHECK_TEXT(get(s, APPS, "shop")->name, "shop");
    CHECK_INT(put(s, "shop", value, 0, &version), BELAY_OK);
    CHECK(version != 0);
    CHECK(is(s, "shop", value));
    CHECK(get(s, APPS, "shop")->version == version);
    CHECK(suite_reopen(s));
    CHECK(is(s, "shop", value));
    return true;
}

static bool an_item_is_written_only_over_the_named_version(struct suite *s)
{
    uint64_t first = 0, second = 0, third = 0;

    CHECK_INT(put(s, "shop", "{}", 7, &first), BELAY_REFUSED);
    CHECK_INT(get(s, APPS, "shop")->version, 0);
    CHECK_INT(put(s, "shop", "{}", 0, &first), BELAY_OK);
    CHECK_INT(put(s, "shop", "{\"b\":\"1\"}", 0, &second), BELAY_REFUSED);
    CHECK_INT(put(s, "shop", "{\"b\":\"1\"}", first + 2, &second), BELAY_REFUSED);
    CHECK(is(s, "shop", "{}"));
    CHECK_INT(put(s, "shop", "{\"b\":\"1\"}", first, &second), BELAY_OK);
    CHECK(second != first);
    CHECK_INT(put(s, "shop", "{\"c\":\"1\"}", first, &third), BELAY_REFUSED);
    CHECK_INT(put(s, "shop", NULL, first, &third), BELAY_REFUSED);
    CHECK(is(s, "shop", "{\"b\":\"1\"}"));
    return true;
}

static bool an_item_that_was_removed_and_put_again_is_another(struct suite *s)
{
    uint64_t first = 0, second = 0, none = 1;

    CHECK_INT(put(s, "shop", "{}", 0, &first), BELAY_OK);
    CHECK_INT(put(s, "shop", NULL, first, &none), BELAY_OK);
    CHECK_INT(none, 0);
    CHECK_INT(get(s, APPS, "shop")->version, 0);
    CHECK_INT(put(s, "shop", "{}", 0, &second), BELAY_OK);
    CHECK(second != first);
    CHECK_INT(put(s, "shop", NULL, first, &none), BELAY_REFUSED);
    return true;
}

static bool an_item_can_be_written_unconditionally(struct suite *s)
{
    struct belay_item_write write = {
        .space = DATABASES, .name = "db:5432", .value = "{}", .any_version = true
    };
    uint64_t version = 0;

    for (int i = 0; i < 2; i++) {
        CHECK_INT(s->a->ops->item_put(s->a, &write, &version, NULL), BELAY_OK);
        CHECK(get(s, DATABASES, "db:5432")->version == version);
    }
    CHECK_INT(get(s, APPS, "db:5432")->version, 0); /* of another space */
    write.value = NULL;
    CHECK_INT(s->a->ops->item_put(s->a, &write, &version, NULL), BELAY_OK);
    CHECK_INT(s->a->ops->item_put(s->a, &write, &version, NULL), BELAY_OK);
    return true;
}

struct listed {
    char last[64];
    int n;
    int most;
    bool in_order;
};

static bool on_item(void *context, const struct belay_item *item)
{
    struct listed *listed = context;

    listed->in_order =
        listed->in_order && strcmp(item->name, listed->last) > 0 && item->version != 0 && item->value != NULL;
    (void)snprintf(listed->last, sizeof listed->last, "%s", item->name);
    return ++listed->n < listed->most;
}

static bool all_items_of_a_space_are_listed_in_order(struct suite *s)
{
    struct listed all = { .most = 1000, .in_order = true };
    struct listed some = { .most = 3, .in_order = true };
    uint64_t version;

    CHECK_INT(s->a->ops->item_list(s->a, APPS, on_item, &all, NULL), BELAY_OK);
    CHECK_INT(all.n, 0);
    for (int i = 39; i >= 0; i--) {
        CHECK_INT(put(s, suite_text(s, "app-%02d", i), "{}", 0, &version), BELAY_OK);
    }
    CHECK_INT(s->b->ops->item_list(s->b, APPS, on_item, &all, NULL), BELAY_OK);
    CHECK_INT(all.n, 40);
    CHECK(all.in_order);
    CHECK_INT(s->b->ops->item_list(s->b, APPS, on_item, &some, NULL), BELAY_OK);
    CHECK_INT(some.n, 3);
    CHECK_INT(s->b->ops->item_list(s->b, DATABASES, on_item, &some, NULL), BELAY_OK);
    CHECK_INT(some.n, 3);
    return true;
}

static bool items_and_locks_do_not_mix(struct suite *s)
{
    struct belay_scan scan = { .prefix = NULL };
    struct listed all = { .most = 1000, .in_order = true };
    uint64_t version;

    CHECK_INT(put(s, "shop", "{}", 0, &version), BELAY_OK);
    CHECK_DONE(take(s, "shop", "one"));
    CHECK_DONE(take(s, "app", "two"));
    CHECK_TEXT(scan_keys(s, s->b, &scan), "app shop ");
    CHECK_INT(s->b->ops->item_list(s->b, APPS, on_item, &all, NULL), BELAY_OK);
    CHECK_INT(all.n, 1);
    CHECK(is(s, "shop", "{}"));
    CHECK_TEXT(see(s, "shop")->lock_id, "one");
    return true;
}

const struct suite_case suite_items[] = {
    CASE_IF("S3", an_item_is_read_as_written, SUITE_NEEDS_ITEMS),
    CASE_IF("S3", an_item_is_written_only_over_the_named_version, SUITE_NEEDS_ITEMS),
    CASE_IF("S3", an_item_that_was_removed_and_put_again_is_another, SUITE_NEEDS_ITEMS),
    CASE_IF("S3", an_item_can_be_written_unconditionally, SUITE_NEEDS_ITEMS),
    CASE_IF("S3", all_items_of_a_space_are_listed_in_order, SUITE_NEEDS_ITEMS),
    CASE_IF("S3", items_and_locks_do_not_mix, SUITE_NEEDS_ITEMS),
    { NULL, NULL, 0, NULL },
};
