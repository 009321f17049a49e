/* Hostile texts, and everything at its largest. */
#include <stdio.h>

#include "support/suite_kit.h"

/* Clean UTF-8 that has broken programs before. */
static const char *const hostile[] = {
    "it's",
    "\"quoted\"",
    "'; DROP TABLE locks; --",
    "back\\slash \\n \\u0000",
    "100% %s %n %d",
    "a=b&c=d#e?f/g:h",
    " leading and trailing ",
    "{\"json\":[1,2]}",
    "$(reboot) `id` ${HOME}",
    "<script>alert(1)</script>",
    "\xc3\xbc\xc3\xb1\xc3\xae",
    "\xd7\xa2\xd7\x91\xd7\xa8\xd7\x99\xd7\xaa \xe2\x80\xae"
    "abc",
    "\xf0\x9f\x94\x92\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x9a\x92",
    "e\xcc\x81 is not \xc3\xa9",
    "NULL",
    "null",
    "0",
    "-1",
    "1e308",
    "true",
    "\xef\xbb\xbf"
    "bom",
    "\xef\xbf\xbf",
};
enum { N_HOSTILE = sizeof hostile / sizeof hostile[0] };

static bool hostile_keys_are_keys_like_any_other(struct suite *s)
{
    for (size_t i = 0; i < N_HOSTILE; i++) {
        CHECK_DONE(take(s, hostile[i], suite_text(s, "id-%zu", i)));
    }
    for (size_t i = 0; i < N_HOSTILE; i++) {
        const struct belay_record *r = see(s, hostile[i]);
        struct belay_scan scan = { .prefix = hostile[i] };

        CHECK_TEXT(r->key, hostile[i]);
        CHECK_TEXT(r->lock_id, suite_text(s, "id-%zu", i));
        CHECK_TEXT(scan_keys(s, s->b, &scan), suite_text(s, "%s ", hostile[i]));
        CHECK_REFUSED(take(s, hostile[i], "rival"));
    }
    return true;
}

static bool hostile_values_are_read_as_written(struct suite *s)
{
    struct belay_meta metadata[N_HOSTILE];
    struct belay_record *values = holder(s, "one", LONG_MS);
    const struct belay_record *r;

    for (size_t i = 0; i < N_HOSTILE; i++) {
        metadata[i] = (struct belay_meta){ hostile[i], hostile[N_HOSTILE - 1 - i] };
    }
    values->metadata = metadata;
    values->n_metadata = N_HOSTILE;
    for (size_t i = 0; i < N_HOSTILE; i++) {
        values->owner = (char *)hostile[i];
        values->owner_name = (char *)hostile[N_HOSTILE - 1 - i];
        CHECK_DONE(
            commit1(s, &(struct belay_write){ .key = "k", .set = BELAY_SET_HOLDER, .values = values }));
        CHECK_TEXT(see(s, "k")->owner, hostile[i]);
        CHECK_TEXT(see(s, "k")->owner_name, hostile[N_HOSTILE - 1 - i]);
    }
    r = see(s, "k");
    CHECK_INT(r->n_metadata, N_HOSTILE);
    for (size_t i = 0; i < N_HOSTILE; i++) {
        CHECK_TEXT(meta_of(r, hostile[i]), hostile[N_HOSTILE - 1 - i]);
    }
    return true;
}

static bool hostile_tickets_are_read_as_written(struct suite *s)
{
    for (size_t i = 0; i < N_HOSTILE; i++) {
        const char *id = suite_text(s, "id-%zu", i);
        struct belay_put_ticket put = { .lock_id = id,
                                        .key = hostile[i],
                                        .owner = hostile[i],
                                        .owner_name = hostile[N_HOSTILE - 1 - i],
                                        .since_unix_ms = 1,
                                        .ttl_ms = LONG_MS,
                                        .acquired_by = hostile[i] };
        const struct belay_ticket *ticket;

        CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k",
                                                     .condition = BELAY_IF_UNCHANGED,
                                                     .revision = see(s, "k")->revision,
                                                     .put_ticket = &put }));
        CHECK_INT(see(s, "k")->n_tickets, i + 1);
        ticket = &see(s, "k")->tickets[i];
        CHECK_TEXT(ticket->key, hostile[i]);
        CHECK_TEXT(ticket->owner, hostile[i]);
        CHECK_TEXT(ticket->owner_name, hostile[N_HOSTILE - 1 - i]);
        CHECK_TEXT(ticket->acquired_by, hostile[i]);
    }
    return true;
}

static bool an_empty_value_is_not_a_missing_one(struct suite *s)
{
    struct belay_meta metadata[1] = { { "empty", "" } };
    struct belay_record *values = holder(s, "one", LONG_MS);

    values->metadata = metadata;
    values->n_metadata = 1;
    values->owner_name = "";
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .set = BELAY_SET_HOLDER, .values = values }));
    CHECK_TEXT(meta_of(see(s, "k"), "empty"), "");
    CHECK_TEXT(see(s, "k")->owner_name, "");
    return true;
}

/* `n` bytes that end in `i`, so that no two of them are the same. */
static char *long_text(struct suite *s, size_t n, size_t i)
{
    char tail[24];
    char *text = suite_alloc(s, n + 1);

    memset(text, 'x', n);
    (void)snprintf(tail, sizeof tail, "%05zu", i);
    memcpy(text + n - strlen(tail), tail, strlen(tail));
    return text;
}

static bool the_longest_key_id_and_owner_are_kept_whole(struct suite *s)
{
    const char *key = long_text(s, BELAY_KEY_MAX, 1);
    const char *sibling = long_text(s, BELAY_KEY_MAX, 2);
    char *id = long_text(s, BELAY_ID_MAX, 1);
    struct belay_record *values = holder(s, id, LONG_MS);
    const struct belay_record *r;

    values->owner = long_text(s, BELAY_OWNER_MAX, 1);
    values->owner_name = long_text(s, BELAY_OWNER_MAX, 2);
    CHECK_DONE(
        commit1(s, &(struct belay_write){
                       .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = values }));
    CHECK_DONE(queue(s, key, long_text(s, BELAY_ID_MAX, 2), LONG_MS));
    CHECK_DONE(queue(s, key, long_text(s, BELAY_ID_MAX, 3), LONG_MS));
    r = see(s, key);
    CHECK_TEXT(r->key, key);
    CHECK_TEXT(r->lock_id, id);
    CHECK_TEXT(r->owner, values->owner);
    CHECK_TEXT(r->owner_name, values->owner_name);
    CHECK_INT(r->n_tickets, 2);
    CHECK_TEXT(r->tickets[1].lock_id, long_text(s, BELAY_ID_MAX, 3));
    CHECK_INT(see(s, sibling)->revision, 0);
    CHECK_REFUSED(release(s, key, long_text(s, BELAY_ID_MAX, 9)));
    CHECK_DONE(release(s, key, id));
    return true;
}

static bool sixty_four_entries_of_the_longest_metadata_are_kept(struct suite *s)
{
    struct belay_meta metadata[BELAY_META_MAX];
    struct belay_record *values = holder(s, "one", LONG_MS);
    const struct belay_record *r;

    for (size_t i = 0; i < BELAY_META_MAX; i++) {
        metadata[i] = (struct belay_meta){ long_text(s, BELAY_META_NAME_MAX, i),
                                           long_text(s, BELAY_META_VALUE_MAX, i + 100) };
    }
    values->metadata = metadata;
    values->n_metadata = BELAY_META_MAX;
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .set = BELAY_SET_HOLDER, .values = values }));
    r = see(s, "k");
    CHECK_INT(r->n_metadata, BELAY_META_MAX);
    for (size_t i = 0; i < BELAY_META_MAX; i++) {
        CHECK_TEXT(meta_of(r, metadata[i].name), metadata[i].value);
    }
    return true;
}

const struct suite_case suite_sizes[] = {
    CASE("L8", hostile_keys_are_keys_like_any_other),
    CASE_IF("L8", hostile_values_are_read_as_written, SUITE_LACKS_NAMES | SUITE_LACKS_METADATA),
    CASE("L8", hostile_tickets_are_read_as_written),
    CASE_IF("L8", an_empty_value_is_not_a_missing_one, SUITE_LACKS_NAMES | SUITE_LACKS_METADATA),
    CASE_IF("L8", the_longest_key_id_and_owner_are_kept_whole, SUITE_LACKS_NAMES),
    CASE_IF("L8", sixty_four_entries_of_the_longest_metadata_are_kept, SUITE_LACKS_METADATA),
    { NULL, NULL, 0, NULL },
};
