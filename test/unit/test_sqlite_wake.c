/* Waking and seeing waiters die, between processes, on the SQLite store (L4). */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "test_sqlite_support.h"

enum { LONG_MS = 20000 };

/* A child with a store of its own, once it has said that it is ready. */
struct child {
    pid_t pid;
    int from; /* read end of what it says */
};

static void say(int to)
{
    if (write(to, "!", 1) != 1) {
        _exit(3);
    }
}

static void hear(const struct child *child)
{
    char byte;

    assert_int_equal(read(child->from, &byte, 1), 1);
}

static struct child start(struct place *place, void (*run)(struct belay_store *store, int to))
{
    struct child child;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        struct belay_store *store = NULL;

        if (sqlite_store_open(place->path, &place->machine.hooks, &store, NULL, NULL) != BELAY_OK) {
            _exit(2);
        }
        run(store, ends[1]);
        store->ops->close(store);
        _exit(0);
    }
    (void)close(ends[1]);
    child.from = ends[0];
    return child;
}

static void finish(struct child *child, int signal_no)
{
    int status = 0;

    if (signal_no != 0) {
        assert_int_equal(kill(child->pid, signal_no), 0);
    }
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    assert_true(signal_no != 0 || status == 0);
    (void)close(child->from);
}

/* The parent must not have the database open over fork(); it opens it afterwards. */
static void wait_in_line(struct belay_store *store, int to)
{
    if (put_ticket(store, "k", "childs") != BELAY_OK) {
        _exit(4);
    }
    say(to);
    (void)pause();
}

static void a_waiter_killed_with_kill_9_is_known_to_be_dead_at_once(void **state)
{
    struct place *place = *state;
    struct child child = start(place, wait_in_line);
    struct belay_record record;

    hear(&child);
    place->store = open_here(place);
    assert_int_equal(put_ticket(place->store, "k", "ours"), BELAY_OK);
    record = look(place->store, "k");
    assert_int_equal(record.n_tickets, 2);
    assert_false(record.tickets[0].dead);
    belay_record_release(&record);

    finish(&child, SIGKILL);
    record = look(place->store, "k");
    assert_string_equal(record.tickets[0].lock_id, "childs");
    assert_true(record.tickets[0].dead);
    assert_false(record.tickets[1].dead); /* our own, though our own lock is not in our way */
    belay_record_release(&record);
}

static void a_ticket_that_is_dropped_loses_its_liveness_lock(void **state)
{
    struct place *place = *state;
    const char *ids[] = { "w" };
    struct belay_write write = {
        .key = "k", .condition = BELAY_IF_ANY, .drop_tickets = ids, .n_drop_tickets = 1
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit commit = { 0 };
    struct belay_store *second;
    struct belay_record record;

    place->store = open_here(place);
    second = open_here(place);
    assert_int_equal(put_ticket(place->store, "k", "w"), BELAY_OK);
    assert_int_equal(put_ticket(place->store, "other", "w"), BELAY_OK);
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, NULL), BELAY_OK);
    belay_commit_release(&commit);
    assert_int_equal(put_ticket(place->store, "k", "gone"), BELAY_OK);
    ids[0] = "gone";
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, NULL), BELAY_OK);
    belay_commit_release(&commit);
    assert_int_equal(put_ticket(second, "k", "gone"), BELAY_OK); /* which holds its liveness lock now */
    second->ops->close(second);
    second = open_here(place);
    record = look(second, "k");
    assert_true(record.tickets[0].dead);
    belay_record_release(&record);
    record = look(second, "other");
    assert_false(record.tickets[0].dead); /* the same id still waits here */
    belay_record_release(&record);

    place->store->ops->close(place->store);
    place->store = second;
    record = look(second, "other");
    assert_true(record.tickets[0].dead);
    belay_record_release(&record);
}

/* Two may wait under one id; the one that did not get the lock must not count as dead when the other ends. */
static void a_ticket_rewritten_by_another_store_counts_as_alive(void **state)
{
    struct place *place = *state;
    struct belay_store *second;
    struct belay_record record;

    place->store = open_here(place);
    second = open_here(place);
    assert_int_equal(put_ticket(place->store, "k", "w"), BELAY_OK);
    assert_int_equal(put_ticket(second, "k", "w"), BELAY_OK);
    place->store->ops->close(place->store);
    place->store = second;
    record = look(second, "k");
    assert_int_equal(record.n_tickets, 1);
    assert_false(record.tickets[0].dead);
    belay_record_release(&record);
}

static void sleep_on_id(struct belay_store *store, int to)
{
    uint32_t heard = store->ops->listen(store, "sleeper");

    say(to);
    store->ops->wait(store, "sleeper", heard, LONG_MS, NULL);
    say(to);
}

static void sleep_on_any(struct belay_store *store, int to)
{
    uint32_t heard = store->ops->listen(store, NULL);

    say(to);
    store->ops->wait(store, NULL, heard, LONG_MS, NULL);
    say(to);
}

static void a_wake_reaches_another_process(void **state)
{
    struct place *place = *state;
    struct child child = start(place, sleep_on_id);
    int64_t before = clock_boot_ms();

    hear(&child);
    place->store = open_here(place);
    place->store->ops->wake(place->store, "sleeper");
    hear(&child);
    assert_true(clock_boot_ms() - before < LONG_MS / 2);
    finish(&child, 0);
}

/* After a commit a store knows whether anybody listens for an id. */
static void a_wake_after_a_commit_reaches_another_process(void **state)
{
    struct place *place = *state;
    struct child child;
    int64_t before = clock_boot_ms();

    place->store = open_here(place);
    assert_true(take(place->store, "k", "id-1") > 0);
    child = start(place, sleep_on_id);
    hear(&child);
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_OK);
    place->store->ops->wake(place->store, "sleeper");
    hear(&child);
    assert_true(clock_boot_ms() - before < LONG_MS / 2);
    finish(&child, 0);
}

static void read_wake_file(const struct place *place, char words[16384])
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s-wake", place->path);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(words, 1, 16384, file), 16384);
    (void)fclose(file);
}

static void a_commit_that_nobody_waits_for_wakes_nobody(void **state)
{
    struct place *place = *state;
    char before[16384];
    char after[16384];

    place->store = open_here(place);
    assert_true(take(place->store, "k", "id-1") > 0);
    read_wake_file(place, before);
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_OK);
    place->store->ops->wake(place->store, "id-1");
    read_wake_file(place, after);
    assert_memory_equal(before, after, sizeof before);
}

/* As a shell's `> FILE-wake`, and a process that opens it then. */
static void who_listens_again_is_counted_again_after_a_truncation(void **state)
{
    struct place *place = *state;
    struct belay_store *other;
    int64_t began;
    uint32_t heard;
    char path[128];

    place->store = open_here(place);
    (void)place->store->ops->listen(place->store, "w");
    (void)snprintf(path, sizeof path, "%s-wake", place->path);
    assert_int_equal(truncate(path, 0), 0);
    other = open_here(place);
    assert_true(take(other, "k", "id-1") > 0); /* opens the wake file */
    heard = place->store->ops->listen(place->store, "w");
    assert_int_equal(give_back(other, "k", "id-1"), BELAY_OK);
    other->ops->wake(other, "w");
    began = clock_boot_ms();
    place->store->ops->wait(place->store, "w", heard, LONG_MS, NULL);
    assert_true(clock_boot_ms() - began < LONG_MS / 2);
    other->ops->close(other);
}

static void every_batch_with_events_wakes_watchers(void **state)
{
    struct place *place = *state;
    struct child child = start(place, sleep_on_any);
    int64_t before = clock_boot_ms();

    hear(&child);
    place->store = open_here(place);
    assert_true(take(place->store, "k", "id-1") > 0);
    hear(&child);
    assert_true(clock_boot_ms() - before < LONG_MS / 2);
    finish(&child, 0);
}

static void a_wake_between_listening_and_waiting_is_not_missed(void **state)
{
    struct place *place = *state;
    int64_t before = clock_boot_ms();
    uint32_t heard;

    place->store = open_here(place);
    heard = place->store->ops->listen(place->store, "w");
    place->store->ops->wake(place->store, "w");
    place->store->ops->wait(place->store, "w", heard, LONG_MS, NULL);
    assert_true(clock_boot_ms() - before < LONG_MS / 2);
}

struct sleeper {
    struct belay_store *store;
    struct belay_cancel *cancel;
};

static void *sleep_until_cancelled(void *arg)
{
    struct sleeper *sleeper = arg;

    while (!belay_cancel_requested(sleeper->cancel)) {
        uint32_t heard = sleeper->store->ops->listen(sleeper->store, "w");
        sleeper->store->ops->wait(sleeper->store, "w", heard, LONG_MS, sleeper->cancel);
    }
    return NULL;
}

static void a_wait_ends_when_it_is_cancelled(void **state)
{
    struct place *place = *state;
    struct sleeper sleeper;
    struct timespec pause_for = { 0, 20 * 1000 * 1000 };
    int64_t before = clock_boot_ms();
    pthread_t thread;

    place->store = open_here(place);
    sleeper.store = place->store;
    sleeper.cancel = belay_cancel_new();
    assert_int_equal(pthread_create(&thread, NULL, sleep_until_cancelled, &sleeper), 0);
    (void)nanosleep(&pause_for, NULL); /* likely asleep by then; it must end either way */
    belay_cancel_request(sleeper.cancel);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(clock_boot_ms() - before < LONG_MS / 2);
    belay_cancel_free(sleeper.cancel);
}

static void without_a_wake_file_waits_are_short_and_waiters_stay_alive(void **state)
{
    struct place *place = *state;
    int64_t before = clock_boot_ms();
    struct belay_record record;
    char path[128];

    (void)snprintf(path, sizeof path, "%s-wake", place->path);
    assert_int_equal(symlink("/nowhere", path), 0);
    place->store = open_here(place);
    assert_int_equal(put_ticket(place->store, "k", "w"), BELAY_OK);
    record = look(place->store, "k");
    assert_false(record.tickets[0].dead);
    belay_record_release(&record);
    place->store->ops->wait(place->store, "w", place->store->ops->listen(place->store, "w"), LONG_MS, NULL);
    assert_true(clock_boot_ms() - before < LONG_MS / 2);
    /* The next process on the file must not take that waiter for dead. */
    assert_int_equal(unlink(path), 0);
    reopen(place, "boot-1");
    record = look(place->store, "k");
    assert_false(record.tickets[0].dead);
    belay_record_release(&record);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_waiter_killed_with_kill_9_is_known_to_be_dead_at_once),
        TEST(a_ticket_that_is_dropped_loses_its_liveness_lock),
        TEST(a_ticket_rewritten_by_another_store_counts_as_alive),
        TEST(a_wake_reaches_another_process),
        TEST(a_wake_after_a_commit_reaches_another_process),
        TEST(a_commit_that_nobody_waits_for_wakes_nobody),
        TEST(who_listens_again_is_counted_again_after_a_truncation),
        TEST(every_batch_with_events_wakes_watchers),
        TEST(a_wake_between_listening_and_waiting_is_not_missed),
        TEST(a_wait_ends_when_it_is_cancelled),
        TEST(without_a_wake_file_waits_are_short_and_waiters_stay_alive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
