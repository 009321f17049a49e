/* What an acquisition does where the store knows of turns, a step at a time (src/lock/acquire.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "lock/op.h"
#include "support/memstore.h"

struct fixture {
    struct memstore_data *data;
    struct belay_store *store;
    struct op op; /* the acquisition under test */
    struct belay_error err;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    f->data = memstore_data_new(NULL, NULL, NULL);
    f->store = memstore_open(f->data);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    op_destroy(&f->op);
    belay_error_release(&f->err);
    f->store->ops->close(f->store);
    memstore_data_free(f->data);
    free(f);
    return 0;
}

static struct op_request request_of(struct fixture *f, enum op_kind kind, const char *lock_id)
{
    return (struct op_request){ .kind = kind,
                                .key = "k",
                                .lock_id = lock_id,
                                .owner = "me",
                                .owner_name = "me@example",
                                .ttl_ms = kind == OP_ACQUIRE ? 60000 : 0,
                                .wait_ms = kind == OP_ACQUIRE ? 60000 : 0,
                                .outcome = BELAY_OUTCOME_COMPLETED,
                                .capabilities = f->store->ops->capabilities(f->store) };
}

/* Do what it wants, which is a commit or a look. */
static void step(struct fixture *f, struct op *op)
{
    int64_t now_ms = clock_boot_ms();
    struct belay_record records[OP_FEW];
    struct belay_commit result = { 0 };
    int64_t store_ms = 0;
    enum belay_code code;

    belay_error_release(&f->err);
    if (op->want == OP_COMMIT) {
        code = f->store->ops->commit(f->store, &op->batch, &result, &f->err);
        op_on_commit(op, code, &result, &f->err, now_ms, clock_boot_ms());
        belay_commit_release(&result);
    } else {
        assert_int_equal(op->want, OP_GET);
        code = f->store->ops->get(f->store, op->keys, op->n_keys, records, &store_ms, &f->err);
        op_on_get(op, code, records, store_ms, &f->err, clock_boot_ms());
    }
}

/* The same for a client that waits for nothing. */
static void run(struct fixture *f, enum op_kind kind, const char *lock_id)
{
    struct op_request request = request_of(f, kind, lock_id);
    struct op op;

    op_start(&op, &request, clock_boot_ms());
    for (int i = 0; i < 10 && op.want != OP_DONE; i++) {
        step(f, &op);
    }
    assert_int_equal(op.want, OP_DONE);
    assert_int_equal(op.code, BELAY_OK);
    op_destroy(&op);
}

/* Up to the commit that takes a place in the queue, under an id that others may use. */
static void begin_to_queue(struct fixture *f)
{
    struct op_request request = request_of(f, OP_ACQUIRE, "mine");

    run(f, OP_ACQUIRE, "other");
    op_start(&f->op, &request, clock_boot_ms());
    step(f, &f->op);
    assert_int_equal(f->op.want, OP_COMMIT);
    assert_int_equal(f->op.batch.writes[0].condition, BELAY_IF_OCCUPIED);
    assert_string_equal(f->op.batch.require_unused_id, "mine");
}

/* L5: a repeated request, and the first one has just got the lock. */
static void one_whose_id_gets_the_lock_while_it_queues_has_the_lock(void **state)
{
    struct fixture *f = *state;
    const struct belay_record *records;
    size_t n;

    begin_to_queue(f);
    run(f, OP_RELEASE, "other");
    run(f, OP_ACQUIRE, "mine");
    step(f, &f->op);
    assert_int_equal(f->op.want, OP_GET);
    step(f, &f->op);
    assert_int_equal(f->op.want, OP_DONE);
    assert_int_equal(f->op.code, BELAY_OK);
    records = memstore_records(f->data, &n);
    assert_int_equal(n, 1);
    assert_true(f->op.record.token == records[0].token && records[0].n_tickets == 0);
}

/* L5: an id has a lock once. */
static void one_whose_id_had_the_lock_while_it_queued_is_told_so(void **state)
{
    struct fixture *f = *state;
    const struct belay_record *records;
    size_t n;

    begin_to_queue(f);
    run(f, OP_RELEASE, "other");
    run(f, OP_ACQUIRE, "mine");
    run(f, OP_RELEASE, "mine");
    run(f, OP_ACQUIRE, "third");
    for (int i = 0; i < 5 && f->op.want != OP_DONE; i++) {
        step(f, &f->op);
    }
    assert_int_equal(f->op.want, OP_DONE);
    assert_int_equal(f->op.code, BELAY_ID_USED);
    records = memstore_records(f->data, &n);
    assert_string_equal(records[0].lock_id, "third");
    assert_int_equal(records[0].n_tickets, 0);
}

/* L4: the holder it saw is gone, and no client is left that would wake it. */
static void one_that_finds_the_lock_free_when_it_queues_takes_it(void **state)
{
    struct fixture *f = *state;

    begin_to_queue(f);
    run(f, OP_RELEASE, "other");
    step(f, &f->op);
    assert_int_equal(f->op.want, OP_COMMIT);
    step(f, &f->op);
    assert_int_equal(f->op.want, OP_DONE);
    assert_int_equal(f->op.code, BELAY_OK);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_whose_id_gets_the_lock_while_it_queues_has_the_lock),
        TEST(one_whose_id_had_the_lock_while_it_queued_is_told_so),
        TEST(one_that_finds_the_lock_free_when_it_queues_takes_it),
    };

    return cmocka_run_group_tests_name("turns", tests, NULL, NULL);
}
