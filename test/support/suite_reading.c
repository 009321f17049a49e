/* get and scan. */
#include "support/suite_kit.h"

static bool an_absent_key_is_read_with_its_name_and_revision_zero(struct suite *s)
{
    const struct belay_record *r = see(s, "not there");

    CHECK_TEXT(r->key, "not there");
    CHECK_INT(r->revision, 0);
    CHECK(!r->held);
    CHECK_INT(r->n_tickets + r->n_intents + r->n_metadata, 0);
    return true;
}

static bool several_keys_are_read_in_the_order_asked_for(struct suite *s)
{
    const char *keys[] = { "z", "not there", "a", "z" };
    struct belay_record records[4];
    int64_t now = INT64_MIN;
    bool right;

    CHECK_DONE(take(s, "a", "one"));
    CHECK_DONE(take(s, "z", "two"));
    CHECK_INT(s->b->ops->get(s->b, keys, 4, records, &now, NULL), BELAY_OK);
    right = same_text(records[0].lock_id, "two") && same_text(records[2].lock_id, "one") &&
            same_text(records[1].key, "not there") && records[1].revision == 0 &&
            records[3].revision == records[0].revision && now >= s->now_ms;
    for (size_t i = 0; i < 4; i++) {
        right = right && same_text(records[i].key, keys[i]);
        belay_record_release(&records[i]);
    }
    CHECK(right);
    return true;
}

static bool reading_no_keys_returns_the_time(struct suite *s)
{
    int64_t now = INT64_MIN;

    CHECK_INT(s->a->ops->get(s->a, NULL, 0, NULL, &now, NULL), BELAY_OK);
    (void)look(s, s->a, "k");
    CHECK(now != INT64_MIN && now <= s->now_ms);
    return true;
}

static bool one_handle_sees_at_once_what_another_committed(struct suite *s)
{
    for (int i = 0; i < 20; i++) {
        struct belay_store *writer = i % 2 == 0 ? s->a : s->b;
        struct belay_store *reader = i % 2 == 0 ? s->b : s->a;
        const char *id = suite_text(s, "id-%d", i);
        struct belay_write write = { .key = "k", .set = BELAY_SET_HOLDER, .values = holder(s, id, LONG_MS) };

        CHECK_DONE(commit(s, writer, &(struct belay_batch){ .writes = &write, .n_writes = 1 }));
        CHECK_TEXT(look(s, reader, "k")->lock_id, id);
        CHECK_TEXT(look(s, writer, "k")->lock_id, id);
    }
    return true;
}

static bool committed_writes_survive_closing_and_opening(struct suite *s)
{
    uint64_t revision;

    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(queue(s, "k", "waiter", LONG_MS));
    revision = see(s, "k")->revision;
    CHECK(suite_reopen(s));
    CHECK(see(s, "k")->held);
    CHECK_INT(see(s, "k")->revision, revision);
    CHECK_TEXT(see(s, "k")->owner, "owner of one");
    CHECK_TEXT(meta_of(see(s, "k"), "branch"), "main");
    CHECK_INT(see(s, "k")->n_tickets, 1);
    return true;
}

/* ---- scan -------------------------------------------------------------- */

static bool take_all(struct suite *s, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CHECK_DONE(take(s, keys[i], "one"));
    }
    return true;
}

static bool a_scan_goes_by_the_bytes_of_the_keys(struct suite *s)
{
    static const char *const keys[] = { "b", "B",   "a",  "aa", "\xc3\xa4",
                                        "_", "a:b", "10", "9",  "\xf0\x9f\x94\x92" };

    CHECK(take_all(s, keys, sizeof keys / sizeof keys[0]));
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ 0 }),
               "10 9 B _ a a:b aa b \xc3\xa4 \xf0\x9f\x94\x92 ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "" }),
               "10 9 B _ a a:b aa b \xc3\xa4 \xf0\x9f\x94\x92 ");
    return true;
}

static bool a_scan_of_nothing_is_empty_and_no_error(struct suite *s)
{
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ 0 }), "");
    CHECK_DONE(take(s, "k", "one"));
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "x" }), "");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .after = "k" }), "");
    return true;
}

static bool a_prefix_is_compared_literally(struct suite *s)
{
    static const char *const keys[] = {
        "a_b", "axb", "a%b", "a%bc", "A_b", "ab", "a*b", "a?b", "a'b", "a\\b"
    };

    CHECK(take_all(s, keys, sizeof keys / sizeof keys[0]));
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "a_" }), "a_b ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "a%" }), "a%b a%bc ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "A" }), "A_b ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "a*" }), "a*b ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "a?" }), "a?b ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "a'" }), "a'b ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "a\\" }), "a\\b ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "%" }), "");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "_" }), "");
    return true;
}

static bool a_prefix_that_is_a_whole_key_includes_it(struct suite *s)
{
    static const char *const keys[] = { "stack", "stack:a", "stack:b", "stack2", "stac" };

    CHECK(take_all(s, keys, sizeof keys / sizeof keys[0]));
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "stack" }),
               "stack stack2 stack:a stack:b ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "stack:" }), "stack:a stack:b ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "stack:a" }), "stack:a ");
    return true;
}

static bool a_prefix_may_have_the_highest_code_points(struct suite *s)
{
    /* U+10FFFF, the last there is, U+FFFD, and two that share their first bytes. */
    static const char *const keys[] = { "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf\xf4\x8f\xbf\xbf",
                                        "\xef\xbf\xbd",     "\xc3\xa4",
                                        "\xc3\xa5",         "~",
                                        "\xdf\xbf" };

    CHECK(take_all(s, keys, sizeof keys / sizeof keys[0]));
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "\xf4\x8f\xbf\xbf" }),
               "\xf4\x8f\xbf\xbf \xf4\x8f\xbf\xbf\xf4\x8f\xbf\xbf ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "\xc3\xa4" }), "\xc3\xa4 ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "\xef\xbf\xbd" }), "\xef\xbf\xbd ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "\xdf\xbf" }), "\xdf\xbf ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "~" }), "~ ");
    return true;
}

static bool a_scan_continues_after_a_key(struct suite *s)
{
    static const char *const keys[] = { "a", "b", "b:1", "b:2", "c" };

    CHECK(take_all(s, keys, sizeof keys / sizeof keys[0]));
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .after = "b" }), "b:1 b:2 c ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .after = "bb" }), "c ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .after = "" }), "a b b:1 b:2 c ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "b", .after = "b:1" }), "b:2 ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "b", .after = "a" }), "b b:1 b:2 ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .prefix = "b", .after = "c" }), "");
    return true;
}

static bool held_only_leaves_out_released_and_never_acquired_records(struct suite *s)
{
    CHECK_DONE(take(s, "held", "one"));
    CHECK_DONE(take(s, "given back", "one"));
    CHECK_DONE(release(s, "given back", "one"));
    CHECK_DONE(queue(s, "waited for", "waiter", LONG_MS));
    CHECK_DONE(take_for(s, "over", "one", SHORT_MS));
    pass_time(s, SHORT_MS * 2);
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .held_only = true }), "held over ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .held_only = true, .prefix = "h" }), "held ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .held_only = true, .after = "held" }), "over ");
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ 0 }), "given back held over waited for ");
    return true;
}

struct stopping {
    int calls;
    int most;
};

static bool stop_soon(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct stopping *stopping = context;

    (void)record;
    (void)now_ms;
    return ++stopping->calls < stopping->most;
}

static bool a_scan_stops_on_request(struct suite *s)
{
    static const char *const keys[] = { "a", "b", "c", "d" };
    struct stopping stopping = { 0, 2 };

    CHECK(take_all(s, keys, 4));
    CHECK_INT(s->b->ops->scan(s->b, &(struct belay_scan){ 0 }, stop_soon, &stopping, NULL), BELAY_OK);
    CHECK_INT(stopping.calls, 2);
    /* And leaves nothing behind that would be in the way. */
    CHECK_DONE(take(s, "e", "one"));
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .after = "d" }), "e ");
    return true;
}

struct whole {
    bool right;
    int64_t now_ms;
};

static bool is_whole(void *context, const struct belay_record *r, int64_t now_ms)
{
    struct whole *whole = context;

    whole->now_ms = now_ms;
    whole->right = r->held && same_text(r->lock_id, "one") && same_text(r->owner, "owner of one") &&
                   same_text(meta_of(r, "branch"), "main") && r->n_tickets == 2 && r->n_intents == 1 &&
                   r->ttl_ms == LONG_MS && r->revision != 0 && r->token != 0 &&
                   same_text(r->tickets[0].lock_id, "first");
    return true;
}

static bool a_scan_gives_records_whole_and_the_time(struct suite *s)
{
    struct whole whole = { false, INT64_MIN };

    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(queue(s, "k", "first", LONG_MS));
    CHECK_DONE(queue(s, "k", "second", LONG_MS));
    CHECK_DONE(intend(s, "k", "below", LONG_MS));
    CHECK_INT(s->b->ops->scan(s->b, &(struct belay_scan){ 0 }, is_whole, &whole, NULL), BELAY_OK);
    CHECK(whole.right);
    CHECK(whole.now_ms >= s->now_ms);
    return true;
}

static bool a_scan_of_many_gives_each_once(struct suite *s)
{
    enum { N = 1200 }; /* more than a page of any store */
    struct stopping all = { 0, INT32_MAX };
    struct belay_scan scan = { .prefix = "many-" };

    for (int i = 0; i < N / 3; i++) {
        struct belay_write writes[3];

        for (int j = 0; j < 3; j++) {
            writes[j] = (struct belay_write){ .key = suite_text(s, "many-%04d", (i * 3 + j) * 7 % N),
                                              .condition = BELAY_IF_ABSENT,
                                              .set = BELAY_SET_ACQUIRED,
                                              .values = holder(s, "x", 1000) };
        }
        CHECK_DONE(commit(s, s->a, &(struct belay_batch){ .writes = writes, .n_writes = 3 }));
    }
    CHECK_INT(s->b->ops->scan(s->b, &scan, stop_soon, &all, NULL), BELAY_OK);
    CHECK_INT(all.calls, N);
    scan.after = "many-0599";
    all.calls = 0;
    CHECK_INT(s->b->ops->scan(s->b, &scan, stop_soon, &all, NULL), BELAY_OK);
    CHECK_INT(all.calls, N - 600);
    return true;
}

const struct suite_case suite_reading[] = {
    CASE("port", an_absent_key_is_read_with_its_name_and_revision_zero),
    CASE("port", several_keys_are_read_in_the_order_asked_for),
    CASE("port", reading_no_keys_returns_the_time),
    CASE("L1", one_handle_sees_at_once_what_another_committed),
    CASE_IF("port", committed_writes_survive_closing_and_opening, SUITE_LACKS_METADATA),
    CASE("port", a_scan_goes_by_the_bytes_of_the_keys),
    CASE("port", a_scan_of_nothing_is_empty_and_no_error),
    CASE("port", a_prefix_is_compared_literally),
    CASE("port", a_prefix_that_is_a_whole_key_includes_it),
    CASE("port", a_prefix_may_have_the_highest_code_points),
    CASE("port", a_scan_continues_after_a_key),
    CASE_IF("port", held_only_leaves_out_released_and_never_acquired_records, SUITE_LACKS_RELEASED),
    CASE("port", a_scan_stops_on_request),
    CASE_IF("port", a_scan_gives_records_whole_and_the_time, SUITE_LACKS_TOKENS | SUITE_LACKS_METADATA),
    CASE_IF("port", a_scan_of_many_gives_each_once, SUITE_LACKS_BATCHES),
    { NULL, NULL, 0, NULL },
};
