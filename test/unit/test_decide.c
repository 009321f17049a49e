/*
 * Which client may take the lock now: a table of records and requests with the verdict (L1, L4, L5).
 *
 * A record is written as words. MODE is E, S, or the number of slots; times are in milliseconds.
 *
 *     MODE=ID:EXPIRES   ID holds it
 *     MODE~ID           ID waits for it;  MODE~ID. for a key below it;  MODE~~ID also for other keys
 *     MODE^ID:EXPIRES   ID holds a key below it
 *     freed:TIME        when it was last released
 *
 * It is 1000, a claim takes 100 and the margin is 10; tickets are valid until 5000. The request
 * is "me", for the key "p:k", whose parent is "p".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lock/decide.h"

enum { NOW_MS = 1000, CLAIM_MS = 100, MARGIN_MS = 10, TICKETS_UNTIL_MS = 5000, ROOM = 8, ID_SIZE = 16 };

struct written {
    struct belay_record record;
    struct belay_holder holders[ROOM];
    struct belay_ticket tickets[ROOM];
    struct belay_intent intents[ROOM];
    char ids[ROOM][ID_SIZE];
    size_t n_ids;
};

static enum belay_mode read_mode(char c, int *out_slots)
{
    *out_slots = c >= '1' && c <= '9' ? c - '0' : 0;
    return c == 'E' ? BELAY_EXCLUSIVE : c == 'S' ? BELAY_SHARED : BELAY_SLOTS;
}

static void read_holder(struct written *out, enum belay_mode mode, int slots, char *id, int64_t expires_ms)
{
    struct belay_record *record = &out->record;

    record->held = true;
    record->mode = mode;
    record->slots = slots;
    if (expires_ms >= record->expires_ms) {
        record->lock_id = id;
        record->expires_ms = expires_ms;
    }
    if (mode != BELAY_EXCLUSIVE) {
        out->holders[record->n_holders++] = (struct belay_holder){ .lock_id = id,
                                                                   .owner = id,
                                                                   .acquired_by = "",
                                                                   .token = record->n_holders,
                                                                   .expires_ms = expires_ms };
    } else {
        record->owner = id;
    }
}

static void read_ticket(struct written *out, enum belay_mode mode, int slots, const char *text, char *id)
{
    bool is_joint = text[0] == '~';
    size_t len;

    (void)snprintf(id, ID_SIZE, "%s", text + is_joint);
    len = strlen(id);
    out->tickets[out->record.n_tickets++] = (struct belay_ticket){
        .lock_id = id,
        .key = id[len - 1] == '.' ? "p:other" : out->record.key,
        .owner = id,
        .acquired_by = "",
        .seq = out->record.n_tickets,
        .expires_ms = TICKETS_UNTIL_MS,
        .mode = mode,
        .slots = slots,
        .joint = is_joint,
    };
}

static void read_word(struct written *out, const char *word)
{
    const char *colon = strchr(word, ':');
    int64_t time_ms = colon == NULL ? 0 : atoll(colon + 1);
    char *id = out->ids[out->n_ids++];
    int slots;
    enum belay_mode mode = read_mode(word[0], &slots);

    assert_true(out->n_ids <= ROOM);
    if (strncmp(word, "freed", 5) == 0) {
        out->record.freed_ms = time_ms;
        return;
    }
    if (word[1] == '~') {
        read_ticket(out, mode, slots, word + 2, id);
        return;
    }
    assert_non_null(colon);
    (void)snprintf(id, ID_SIZE, "%.*s", (int)(colon - word - 2), word + 2);
    if (word[1] == '=') {
        read_holder(out, mode, slots, id, time_ms);
    } else {
        assert_int_equal(word[1], '^');
        out->intents[out->record.n_intents++] = (struct belay_intent){
            .lock_id = id, .key = "p:other", .expires_ms = time_ms, .shared = mode == BELAY_SHARED
        };
    }
}

static void read_record(const char *key, const char *text, struct written *out)
{
    char copy[128];
    char *rest;

    memset(out, 0, sizeof *out);
    out->record = (struct belay_record){ .key = (char *)key,
                                         .revision = 1,
                                         .lock_id = "",
                                         .owner = "",
                                         .acquired_by = "",
                                         .holders = out->holders,
                                         .tickets = out->tickets,
                                         .intents = out->intents };
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        read_word(out, word);
    }
}

struct row {
    const char *why;
    char mode;
    const char *own;
    const char *parent;
    enum verdict verdict;
};

static void check_row(const struct row *row)
{
    struct written own;
    struct written parent;
    struct belay_record records[2];
    struct op_request request = {
        .kind = OP_ACQUIRE,
        .key = "p:k",
        .ancestors = { "p" },
        .n_ancestors = 1,
        .lock_id = "me",
        .owner = "me",
        .capabilities = { .margin_ms = MARGIN_MS, .claim_ms = CLAIM_MS, .has_modes = true },
    };
    enum verdict verdict;

    request.mode = read_mode(row->mode, &request.slots);
    read_record("p:k", row->own, &own);
    read_record("p", row->parent, &parent);
    records[0] = own.record;
    records[1] = parent.record;
    verdict = decide(&request, records, NOW_MS).verdict;
    if (verdict != row->verdict) {
        fail_msg("%s: %c of '%s' below '%s': verdict %d, not %d", row->why, row->mode, row->own, row->parent,
                 (int)verdict, (int)row->verdict);
    }
}

static void check_rows(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        check_row(&rows[i]);
    }
}

#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof(rows)[0])

static void modes_get_along_as_the_table_says(void **state)
{
    static const struct row rows[] = {
        { "free", 'E', "", "", VERDICT_TAKE },
        { "free", 'S', "", "", VERDICT_TAKE },
        { "free", '2', "", "", VERDICT_TAKE },
        { "exclusive", 'E', "E=a:2000", "", VERDICT_BLOCKED },
        { "exclusive", 'S', "E=a:2000", "", VERDICT_BLOCKED },
        { "exclusive", '2', "E=a:2000", "", VERDICT_BLOCKED },
        { "shared", 'E', "S=a:2000", "", VERDICT_BLOCKED },
        { "shared", 'S', "S=a:2000 S=b:3000", "", VERDICT_TAKE },
        { "shared", '2', "S=a:2000", "", VERDICT_BLOCKED },
        { "slots", 'E', "2=a:2000", "", VERDICT_BLOCKED },
        { "slots", 'S', "2=a:2000", "", VERDICT_BLOCKED },
        { "a slot is free", '2', "2=a:2000", "", VERDICT_TAKE },
        { "no slot is free", '2', "2=a:2000 2=b:2000", "", VERDICT_BLOCKED },
        { "another number", '3', "2=a:2000", "", VERDICT_OTHER_SLOTS },
        { "another number, over", '3', "2=a:900", "", VERDICT_TAKE },
    };

    (void)state;
    CHECK_ROWS(rows);
}

static void a_lease_counts_until_its_end_and_the_margin(void **state)
{
    static const struct row rows[] = {
        { "over", 'E', "E=a:990", "", VERDICT_TAKE },
        { "within the margin", 'E', "E=a:991", "", VERDICT_BLOCKED },
        { "one of two is over", '2', "2=a:990 2=b:2000", "", VERDICT_TAKE },
        { "one of two within the margin", '2', "2=a:991 2=b:2000", "", VERDICT_BLOCKED },
        { "one of two is over", 'E', "S=a:990 S=b:2000", "", VERDICT_BLOCKED },
        { "both are over", 'E', "S=a:990 S=b:980", "", VERDICT_TAKE },
    };

    (void)state;
    CHECK_ROWS(rows);
}

static void locks_above_and_below_exclude_each_other_unless_both_are_shared(void **state)
{
    static const struct row rows[] = {
        { "above", 'E', "", "E=a:2000", VERDICT_BLOCKED },
        { "shared above", 'E', "", "S=a:2000", VERDICT_BLOCKED },
        { "shared above", 'S', "", "S=a:2000", VERDICT_TAKE },
        { "shared above", '2', "", "S=a:2000", VERDICT_BLOCKED },
        { "slots above are of another lock", '2', "", "2=a:2000", VERDICT_BLOCKED },
        { "below", 'S', "E^a:2000", "", VERDICT_BLOCKED },
        { "shared below", 'S', "S^a:2000", "", VERDICT_TAKE },
        { "shared below", 'E', "S^a:2000", "", VERDICT_BLOCKED },
        { "shared below, over", 'E', "S^a:990", "", VERDICT_TAKE },
        { "beside, below the parent", 'E', "", "E^a:2000", VERDICT_TAKE },
    };

    (void)state;
    CHECK_ROWS(rows);
}

static void a_waiter_is_not_overtaken_by_one_that_it_does_not_get_along_with(void **state)
{
    static const struct row rows[] = {
        { "its turn", 'S', "freed:950 E~a", "", VERDICT_BLOCKED },
        { "its turn has passed", 'S', "freed:900 E~a", "", VERDICT_TAKE },
        { "it waits for the shared holder", 'S', "S=h:2000 E~a", "", VERDICT_BLOCKED },
        { "it waits for the shared holder above", 'S', "E~a", "S=h:2000", VERDICT_BLOCKED },
        { "it waits for the shared lock below", 'S', "S^h:2000 E~a", "", VERDICT_BLOCKED },
        { "shared waiters get along", 'S', "freed:950 S~a S~b", "", VERDICT_TAKE },
        { "a group of shared waiters has one turn", 'E', "freed:900 S~a S~b", "", VERDICT_TAKE },
        { "two turns", 'E', "freed:850 S~a E~b", "", VERDICT_BLOCKED },
        { "two turns have passed", 'E', "freed:800 S~a E~b", "", VERDICT_TAKE },
        { "the turn of one ahead of the one ahead", 'S', "freed:850 S~a E~b", "", VERDICT_BLOCKED },
        { "it waits for the parent", 'E', "", "freed:950 E~a", VERDICT_BLOCKED },
        { "it waits for another key below", 'E', "", "freed:950 E~a.", VERDICT_TAKE },
        { "it waits for the parent, shared", 'S', "", "freed:950 S~a", VERDICT_TAKE },
    };

    (void)state;
    CHECK_ROWS(rows);
}

static void slots_go_to_those_that_came_first(void **state)
{
    static const struct row rows[] = {
        { "one for each", '2', "freed:950 2~a", "", VERDICT_TAKE },
        { "one is left, for the first", '2', "freed:950 2=h:2000 2~a", "", VERDICT_BLOCKED },
        { "its turn has passed", '2', "freed:900 2=h:2000 2~a", "", VERDICT_TAKE },
        { "two wait for two", '2', "freed:950 2~a 2~b", "", VERDICT_BLOCKED },
        { "it waits for a slot of another lock, below", '2', "2=h:1500 2~a.", "", VERDICT_BLOCKED },
        { "another number waits", '2', "freed:950 3~a", "", VERDICT_BLOCKED },
        { "it waits for the holder of a slot", '2', "2=h:2000 E~a", "", VERDICT_BLOCKED },
    };

    (void)state;
    CHECK_ROWS(rows);
}

static void a_joint_waiter_keeps_its_place_until_its_ticket_expires(void **state)
{
    static const struct row rows[] = {
        { "long free", 'E', "freed:100 E~~a", "", VERDICT_BLOCKED },
        { "long free", 'S', "freed:100 E~~a", "", VERDICT_BLOCKED },
        { "shared with shared", 'S', "freed:100 S~~a", "", VERDICT_TAKE },
        { "one behind it waits for it", 'S', "freed:100 S~~a E~b", "", VERDICT_BLOCKED },
        { "a slot for each", '2', "freed:100 2~~a", "", VERDICT_TAKE },
        { "its slot is the last", '1', "freed:100 1~~a", "", VERDICT_BLOCKED },
        { "above", 'E', "", "freed:100 E~~a", VERDICT_BLOCKED },
    };

    (void)state;
    CHECK_ROWS(rows);
}

static void a_lock_id_finds_itself_among_the_holders(void **state)
{
    static const struct row rows[] = {
        { "exclusive", 'E', "E=me:2000", "", VERDICT_MINE },
        { "one of several", 'S', "S=me:2000 S=b:3000", "", VERDICT_MINE },
        { "one of several", '2', "2=a:3000 2=me:2000", "", VERDICT_MINE },
        { "its lease has ended", 'S', "S=me:900 S=b:3000", "", VERDICT_USED },
        { "its lease has ended", 'E', "E=me:900", "", VERDICT_USED },
    };

    (void)state;
    CHECK_ROWS(rows);
}

/* ---- several keys ---- */

static enum verdict decide_joint(char mode, const char *first, const char *second)
{
    static const struct op_joint joint = { .keys = { "k", "l" }, .n_keys = 2 };
    struct op_request request = {
        .kind = OP_ACQUIRE,
        .key = "k",
        .joint = &joint,
        .lock_id = "me",
        .owner = "me",
        .capabilities = { .margin_ms = MARGIN_MS, .claim_ms = CLAIM_MS, .has_modes = true },
    };
    struct written written[2];
    struct belay_record records[2];

    request.mode = read_mode(mode, &request.slots);
    read_record("k", first, &written[0]);
    read_record("l", second, &written[1]);
    records[0] = written[0].record;
    records[1] = written[1].record;
    return decide(&request, records, NOW_MS).verdict;
}

static void several_keys_are_taken_together_or_not_at_all(void **state)
{
    (void)state;
    assert_int_equal(decide_joint('E', "", ""), VERDICT_TAKE);
    assert_int_equal(decide_joint('E', "", "E=a:2000"), VERDICT_BLOCKED);
    assert_int_equal(decide_joint('S', "S=a:2000", "S=b:2000"), VERDICT_TAKE);
    assert_int_equal(decide_joint('S', "S=a:2000", "E=b:2000"), VERDICT_BLOCKED);
    assert_int_equal(decide_joint('2', "2=a:2000", "3=b:2000"), VERDICT_OTHER_SLOTS);
    assert_int_equal(decide_joint('E', "", "freed:950 E~a"), VERDICT_BLOCKED);
    assert_int_equal(decide_joint('E', "E~~me", "E~~a E~~me"), VERDICT_BLOCKED);
}

static void a_joint_lock_of_which_a_part_has_ended_is_not_taken_again(void **state)
{
    (void)state;
    assert_int_equal(decide_joint('E', "E=me:2000", "E=me:2000"), VERDICT_MINE);
    assert_int_equal(decide_joint('E', "E=me:2000", ""), VERDICT_USED);
    assert_int_equal(decide_joint('E', "E=me:2000", "E=a:2000"), VERDICT_USED);
    assert_int_equal(decide_joint('S', "S=me:2000 S=a:2000", "S=me:900 S=a:2000"), VERDICT_USED);
}

static struct decision decide_partly(const char *text, size_t n_between, size_t n_behind)
{
    struct op_request request = { .kind = OP_ACQUIRE,
                                  .key = "k",
                                  .lock_id = "me",
                                  .owner = "me",
                                  .capabilities = { .margin_ms = MARGIN_MS, .claim_ms = CLAIM_MS } };
    struct written own;

    read_record("k", text, &own);
    own.record.n_between = n_between;
    own.record.n_behind = n_behind;
    return decide(&request, &own.record, NOW_MS);
}

static void tickets_that_a_store_left_out_count(void **state)
{
    struct decision decision = decide_partly("freed:850 E~a E~me", 3, 7);

    (void)state;
    assert_int_equal(decision.verdict, VERDICT_BLOCKED);
    assert_true(decision.queued);
    assert_int_equal(decision.ahead, 4);
    assert_int_equal(decision.may_try_ms, 850 + 4 * CLAIM_MS);
    decision = decide_partly("freed:850 E~a", 0, 7); /* without a ticket, those behind are ahead of us */
    assert_int_equal(decision.verdict, VERDICT_BLOCKED);
    assert_false(decision.queued);
    assert_int_equal(decision.ahead, 8);
    decision = decide_partly("freed:850 E~me E~a", 0, 7);
    assert_int_equal(decision.verdict, VERDICT_TAKE);
    assert_int_equal(decision.ahead, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_get_along_as_the_table_says),
        cmocka_unit_test(a_lease_counts_until_its_end_and_the_margin),
        cmocka_unit_test(locks_above_and_below_exclude_each_other_unless_both_are_shared),
        cmocka_unit_test(a_waiter_is_not_overtaken_by_one_that_it_does_not_get_along_with),
        cmocka_unit_test(slots_go_to_those_that_came_first),
        cmocka_unit_test(a_joint_waiter_keeps_its_place_until_its_ticket_expires),
        cmocka_unit_test(a_lock_id_finds_itself_among_the_holders),
        cmocka_unit_test(tickets_that_a_store_left_out_count),
        cmocka_unit_test(several_keys_are_taken_together_or_not_at_all),
        cmocka_unit_test(a_joint_lock_of_which_a_part_has_ended_is_not_taken_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
