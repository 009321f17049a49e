/* Several processes and threads on one SQLite store at once (L1, L2). */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "test_sqlite_support.h"

enum { WORKERS = 4, ROUNDS = 150 };

/* Count to ROUNDS under one lock; false if another process was inside as well. */
static bool hammer(struct belay_store *store, const char *name, int *inside)
{
    for (int i = 0; i < ROUNDS; i++) {
        char id[48];

        (void)snprintf(id, sizeof id, "%s-%d", name, i);
        while (take(store, "k", id) == 0) {
        }
        if (__atomic_add_fetch(inside, 1, __ATOMIC_SEQ_CST) != 1) {
            return false;
        }
        (void)__atomic_sub_fetch(inside, 1, __ATOMIC_SEQ_CST);
        if (give_back(store, "k", id) != BELAY_OK) {
            return false;
        }
    }
    return true;
}

static void hammer_in_a_process(struct place *place, int number, int *inside)
{
    struct belay_store *store = NULL;
    char name[16];

    (void)snprintf(name, sizeof name, "p%d", number);
    if (sqlite_store_open(place->path, &place->machine.hooks, &store, NULL, NULL) != BELAY_OK) {
        _exit(2);
    }
    if (!hammer(store, name, inside)) {
        _exit(1);
    }
    store->ops->close(store);
    _exit(0);
}

static int *shared_int(void)
{
    FILE *file = tmpfile();
    int *shared;

    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), 4096), 0);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    (void)fclose(file);
    return shared;
}

/* They also make the database, all at once. */
static void processes_take_turns_and_no_token_is_given_twice(void **state)
{
    struct place *place = *state;
    int *inside = shared_int();
    pid_t children[WORKERS];

    for (int i = 0; i < WORKERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            hammer_in_a_process(place, i, inside);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(outside(place, "SELECT count(*) FROM events WHERE type = 'lock.acquired'"),
                     WORKERS * ROUNDS);
    assert_int_equal(outside(place, "SELECT count(DISTINCT token) FROM events WHERE type = 'lock.acquired'"),
                     WORKERS * ROUNDS);
    assert_int_equal(munmap(inside, 4096), 0);
}

static void open_at_once(struct place *place, const char *path, int *ready)
{
    struct belay_store *store = NULL;

    (void)__atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(ready, __ATOMIC_SEQ_CST) < WORKERS) {
    }
    if (sqlite_store_open(path, &place->machine.hooks, &store, NULL, NULL) != BELAY_OK) {
        _exit(2);
    }
    store->ops->close(store);
    _exit(0);
}

/* None may take what another is making for a file of another program. */
static void processes_may_create_the_database_at_once(void **state)
{
    struct place *place = *state;
    int *ready = shared_int();

    for (int round = 0; round < 40; round++) {
        char path[sizeof place->path + 16];
        pid_t children[WORKERS];

        (void)snprintf(path, sizeof path, "%s-%d", place->path, round);
        *ready = 0;
        for (int i = 0; i < WORKERS; i++) {
            children[i] = fork();
            if (children[i] == 0) {
                open_at_once(place, path, ready);
            }
        }
        for (int i = 0; i < WORKERS; i++) {
            int status = 0;
            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
            assert_int_equal(status, 0);
        }
    }
    assert_int_equal(munmap(ready, 4096), 0);
}

struct worker {
    struct belay_store *store;
    int *inside;
    char name[16];
    bool good;
};

static void *hammer_in_a_thread(void *arg)
{
    struct worker *worker = arg;

    worker->good = hammer(worker->store, worker->name, worker->inside);
    return NULL;
}

static void threads_share_one_store(void **state)
{
    struct place *place = *state;
    struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    int inside = 0;

    place->store = open_here(place);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){ .store = place->store, .inside = &inside };
        (void)snprintf(workers[i].name, sizeof workers[i].name, "t%d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, hammer_in_a_thread, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(workers[i].good);
    }
    assert_int_equal(outside(place, "SELECT count(DISTINCT token) FROM events WHERE type = 'lock.acquired'"),
                     WORKERS * ROUNDS);
}

/* Killed anywhere, also between the pages of a commit, it leaves a whole database. */
static void a_process_killed_in_the_middle_of_commits_leaves_all_whole(void **state)
{
    struct place *place = *state;
    int *inside = shared_int();

    for (int i = 0; i < 8; i++) {
        struct timespec pause_for = { 0, (3 + 2 * i) * 1000 * 1000 };
        pid_t child = fork();
        int64_t tokens;
        int status;

        if (child == 0) {
            for (;;) {
                struct belay_store *store = NULL;
                char id[32];

                if (sqlite_store_open(place->path, &place->machine.hooks, &store, NULL, NULL) != BELAY_OK) {
                    _exit(1);
                }
                for (int k = 0; k < 20; k++) {
                    (void)snprintf(id, sizeof id, "%d-%d-%d", i, k, (*inside)++);
                    (void)take(store, id, id);
                    (void)give_back(store, id, id);
                }
                store->ops->close(store);
            }
        }
        (void)nanosleep(&pause_for, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        place->store = open_here(place);
        assert_true(take(place->store, "after", i % 2 == 0 ? "even" : "odd") > 0);
        assert_int_equal(give_back(place->store, "after", i % 2 == 0 ? "even" : "odd"), BELAY_OK);
        place->store->ops->close(place->store);
        place->store = NULL;
        tokens = outside(place, "SELECT count(*) - count(DISTINCT id) FROM events");
        assert_int_equal(tokens, 0);
        assert_int_equal(outside(place, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
    }
    assert_int_equal(munmap(inside, 4096), 0);
}

static void the_process_that_keeps_the_database_busy_is_named(void **state)
{
    struct place *place = *state;
    struct belay_commit commit = { 0 };
    struct belay_batch batch = { 0 };
    char pid[32];
    int ready[2];
    pid_t child;
    char byte;

    assert_int_equal(pipe(ready), 0);
    place->machine.hooks.busy_limit_ms = 50;
    place->store = open_here(place);
    child = fork();
    if (child == 0) {
        sqlite3 *db = NULL;
        (void)sqlite3_open(place->path, &db);
        (void)sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        (void)!write(ready[1], "!", 1);
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, &place->err),
                     BELAY_UNREACHABLE);
    (void)snprintf(pid, sizeof pid, "process %d ", (int)child);
    assert_non_null(strstr(place->err.text, pid));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(take(place->store, "k", "id") > 0);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(processes_take_turns_and_no_token_is_given_twice),
        TEST(processes_may_create_the_database_at_once),
        TEST(threads_share_one_store),
        TEST(a_process_killed_in_the_middle_of_commits_leaves_all_whole),
        TEST(the_process_that_keeps_the_database_busy_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
