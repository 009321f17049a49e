/*
 * The power goes, at every sync and between them (L2, L7).
 *
 * One scripted run of acquisitions, renewals and releases is logged by the VFS
 * of support/power_loss_vfs.h, with a note of what had been acknowledged when. Then
 * the power is cut after every single thing the database did to its files: the
 * files are made as such a cut leaves them, the machine starts again (another
 * boot id, another clock), and the store must
 *  - open, and pass PRAGMA integrity_check;
 *  - be as it was after some step of the script that is not before the last
 *    acknowledged durable one, and not after the last one that had begun;
 *  - have ended what processes held, and given the others their whole ttl;
 *  - grant tokens higher than every acknowledged one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "support/directory.h"
#include "support/power_loss_script.h"

static struct script_run run;
static char run_directory[64];
static char cut_directory[64];

static int set_up(void **unused)
{
    /* Thousands of small files: in memory where there is such a place. */
    const char *place = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

    (void)unused;
    (void)snprintf(run_directory, sizeof run_directory, "%s/belay-power-XXXXXX", place);
    (void)snprintf(cut_directory, sizeof cut_directory, "%s/belay-power-XXXXXX", place);
    if (!power_loss_vfs_register() || mkdtemp(run_directory) == NULL || mkdtemp(cut_directory) == NULL) {
        return -1;
    }
    return script_run(&run, run_directory) ? 0 : -1;
}

static int clean_up(void **unused)
{
    (void)unused;
    power_loss_log_free(run.log);
    directory_empty(run_directory);
    directory_empty(cut_directory);
    (void)rmdir(run_directory);
    (void)rmdir(cut_directory);
    return 0;
}

/* ---- after a cut ------------------------------------------------------- */

static bool check_records(const struct belay_record records[SCRIPT_KEYS], const struct script_bounds *bounds,
                          int64_t now_ms, char *why, size_t why_size)
{
    size_t n = bounds->least;

    while (n <= bounds->most && !script_is_as_after(&run, records, n)) {
        n++;
    }
    if (n > bounds->most) {
        (void)snprintf(why, why_size, "it is not as after any of the steps %zu to %zu", bounds->least,
                       bounds->most);
        return false;
    }
    for (size_t i = 0; i < SCRIPT_KEYS; i++) {
        const struct belay_record *r = &records[i];

        if (r->held && (r->durable ? r->expires_ms != now_ms + SCRIPT_TTL_MS : r->expires_ms > now_ms)) {
            (void)snprintf(why, why_size, "the lease of '%s' ends at %lld, now is %lld", r->key,
                           (long long)r->expires_ms, (long long)now_ms);
            return false;
        }
    }
    return true;
}

static bool check_tokens(struct belay_store *store, uint64_t told, char *why, size_t why_size)
{
    for (size_t i = 0; i < 2 * SCRIPT_KEYS; i++) {
        struct belay_record values = { .lock_id = i < SCRIPT_KEYS ? "new" : "newer",
                                       .owner = "o",
                                       .owner_name = "n",
                                       .ttl_ms = SCRIPT_TTL_MS };
        struct belay_write write = { .key = script_keys[i % SCRIPT_KEYS],
                                     .set = BELAY_SET_HOLDER,
                                     .values = &values };
        struct belay_commit done = { 0 };
        enum belay_code code =
            store->ops->commit(store, &(struct belay_batch){ .writes = &write, .n_writes = 1 }, &done, NULL);
        uint64_t token = done.token;

        belay_commit_release(&done);
        if (code != BELAY_OK || token <= told) {
            (void)snprintf(why, why_size,
                           "a new holder of '%s' gets token %llu (%s), %llu was handed out before", write.key,
                           (unsigned long long)token, belay_code_name(code), (unsigned long long)told);
            return false;
        }
        told = token;
    }
    return true;
}

static bool check_store(const struct script_bounds *bounds, const char *boot_id, char *why, size_t why_size)
{
    struct belay_store *store = script_open(cut_directory, boot_id, why, why_size);
    struct belay_record records[SCRIPT_KEYS];
    const char *names[SCRIPT_KEYS];
    int64_t now;
    bool ok;

    if (store == NULL) {
        return false;
    }
    for (size_t i = 0; i < SCRIPT_KEYS; i++) {
        names[i] = script_keys[i];
    }
    ok = store->ops->get(store, names, SCRIPT_KEYS, records, &now, NULL) == BELAY_OK;
    if (!ok) {
        (void)snprintf(why, why_size, "it cannot be read");
    } else {
        ok = check_records(records, bounds, now, why, why_size);
        for (size_t i = 0; i < SCRIPT_KEYS; i++) {
            belay_record_release(&records[i]);
        }
        ok = ok && check_tokens(store, bounds->token, why, why_size);
    }
    store->ops->close(store);
    return ok;
}

static int is_ok(void *context, int n, char **values, char **columns)
{
    (void)columns;
    *(bool *)context = n == 1 && values[0] != NULL && strcmp(values[0], "ok") == 0;
    return 0;
}

static bool check_integrity(char *why, size_t why_size)
{
    char path[128];
    sqlite3 *db = NULL;
    bool ok = false;
    int rc;

    (void)snprintf(path, sizeof path, "%s/locks.db", cut_directory);
    rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, POWER_LOSS_VFS);
    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(db, "PRAGMA integrity_check", is_ok, &ok, NULL);
    }
    if (!ok) {
        (void)snprintf(why, why_size, "PRAGMA integrity_check: %s", sqlite3_errstr(rc));
    }
    (void)sqlite3_close(db);
    return ok;
}

/* Cut the power where the disk is now, and see what the machine finds. */
static bool survives(const struct power_loss_disk *disk, size_t at, enum power_loss_kind kind, uint64_t seed,
                     char *why, size_t why_size)
{
    struct script_bounds bounds = script_bounds_at(&run, at);

    directory_empty(cut_directory);
    if (!power_loss_disk_save(disk, kind, seed, cut_directory)) {
        (void)snprintf(why, why_size, "the files cannot be written");
        return false;
    }
    script_set_clock(5000); /* the machine has just started */
    return check_store(&bounds, "boot-2", why, why_size) && check_integrity(why, why_size);
}

/* ---- a second cut, while the machine starts after the first ------------ */

enum { N_NEW = 6 };

struct restart {
    struct power_loss_log *log;
    size_t from; /* length of the log before the store was opened */
    size_t acked[N_NEW];
    uint64_t tokens[N_NEW];
};

/* Start on what the first cut has left, and take locks of new keys, every other one durably. */
static bool start_again(struct restart *restart, char *why, size_t why_size)
{
    struct belay_store *store;

    restart->from = power_loss_log_length(restart->log);
    power_loss_vfs_record(restart->log);
    script_set_clock(5000);
    store = script_open(cut_directory, "boot-2", why, why_size);
    for (size_t i = 0; i < N_NEW && store != NULL; i++) {
        char key[16];
        struct belay_record values = {
            .lock_id = "new", .owner = "o", .owner_name = "n", .ttl_ms = SCRIPT_TTL_MS, .durable = i % 2 == 0
        };
        struct belay_write write = { .key = key, .set = BELAY_SET_HOLDER, .values = &values };
        struct belay_commit done = { 0 };

        (void)snprintf(key, sizeof key, "new-%zu", i);
        if (store->ops->commit(store, &(struct belay_batch){ .writes = &write, .n_writes = 1 }, &done,
                               NULL) == BELAY_OK) {
            restart->tokens[i] = done.token;
        }
        belay_commit_release(&done);
        restart->acked[i] = power_loss_log_length(restart->log);
    }
    if (store != NULL) {
        store->ops->close(store);
    }
    power_loss_vfs_record(NULL);
    return store != NULL;
}

/* Cut the power at every point of that start. */
static size_t cut_the_start(const struct restart *restart, struct script_bounds first,
                            enum power_loss_kind kind)
{
    struct power_loss_disk *disk = power_loss_disk_new(restart->log, SIZE_MAX);
    size_t n = power_loss_log_length(restart->log);
    size_t failures = 0;

    for (size_t at = 0; at <= n; at++) {
        struct script_bounds bounds = first;
        char why[400] = "";

        for (size_t i = 0; i < N_NEW; i++) {
            if (restart->acked[i] <= at && restart->tokens[i] > bounds.token) {
                bounds.token = restart->tokens[i];
            }
        }
        directory_empty(cut_directory);
        script_set_clock(7000);
        if (at >= restart->from &&
            (!power_loss_disk_save(disk, kind, at, cut_directory) ||
             !check_store(&bounds, "boot-3", why, sizeof why) || !check_integrity(why, sizeof why))) {
            print_error("second cut after %zu of %zu: %s\n", at, n, why);
            failures++;
        }
        if (at < n) {
            power_loss_disk_step(disk);
        }
    }
    power_loss_disk_free(disk);
    return failures;
}

static size_t cut_twice(const struct power_loss_disk *disk, size_t at, enum power_loss_kind kind)
{
    struct restart restart = { .log = power_loss_log_new() };
    size_t failures = 1;
    char why[400] = "";

    directory_empty(cut_directory);
    power_loss_log_begin_with(restart.log, disk, kind, at);
    if (power_loss_disk_save(disk, kind, at, cut_directory) && start_again(&restart, why, sizeof why)) {
        failures = cut_the_start(&restart, script_bounds_at(&run, at), kind);
    } else {
        print_error("first cut after %zu: %s\n", at, why);
    }
    power_loss_log_free(restart.log);
    return failures;
}

static const char *const kind_names[] = { "all of it", "nothing", "some of it" };

/* Cut everywhere; with `only_syncs` just before and after each sync. Returns how often something was lost. */
static size_t cut_everywhere(enum power_loss_kind kind, uint64_t seed, bool only_syncs, size_t lies_from,
                             bool *print)
{
    struct power_loss_disk *disk = power_loss_disk_new(run.log, lies_from);
    size_t n = power_loss_log_length(run.log);
    size_t failures = 0;
    size_t cuts = 0;

    for (size_t at = 0; at <= n; at++) {
        bool near_sync = (at < n && power_loss_log_is_sync(run.log, at)) ||
                         (at > 0 && power_loss_log_is_sync(run.log, at - 1));
        char why[400] = "";

        if (near_sync || !only_syncs) {
            cuts++;
            if (!survives(disk, at, kind, seed + at, why, sizeof why)) {
                failures++;
                if (*print && failures <= 5) {
                    print_error("cut after %zu of %zu, losing %s: %s\n", at, n, kind_names[kind], why);
                }
            }
        }
        if (at < n) {
            power_loss_disk_step(disk);
        }
    }
    power_loss_disk_free(disk);
    assert_true(cuts > power_loss_log_syncs(run.log));
    return failures;
}

/* ---- the tests --------------------------------------------------------- */

static void the_script_is_worth_cutting(void **unused)
{
    size_t n = 0;
    size_t durable = 0;

    (void)unused;
    for (size_t i = 0; i < SCRIPT_STEPS; i++) {
        n += run.steps[i].token != 0;
        durable += run.steps[i].durable;
    }
    assert_true(n >= 20);
    assert_true(durable >= 15 && durable <= SCRIPT_STEPS - 15);
    /* Several raises of the ceiling, and at least one checkpoint. */
    assert_true(run.steps[SCRIPT_STEPS - 1].after[0].token > 0);
    assert_true(power_loss_log_syncs(run.log) >= durable + SCRIPT_STEPS / SCRIPT_AHEAD);
    assert_true(power_loss_log_writes(run.log, "locks.db", run.opened) > 0);
    print_message("             %zu entries, %zu syncs\n", power_loss_log_length(run.log),
                  power_loss_log_syncs(run.log));
}

static void nothing_promised_is_lost_at_any_sync_L2_L7(void **unused)
{
    (void)unused;
    assert_int_equal(cut_everywhere(POWER_LOSS_ALL, 0, true, SIZE_MAX, &(bool){ true }), 0);
}

static void nothing_promised_is_lost_between_syncs(void **unused)
{
    (void)unused;
    assert_int_equal(cut_everywhere(POWER_LOSS_ALL, 0, false, SIZE_MAX, &(bool){ true }), 0);
}

static void nothing_promised_is_lost_when_writes_are_torn(void **unused)
{
    (void)unused;
    assert_int_equal(cut_everywhere(POWER_LOSS_SOME, 1, false, SIZE_MAX, &(bool){ true }), 0);
    assert_int_equal(cut_everywhere(POWER_LOSS_SOME, 2000003, false, SIZE_MAX, &(bool){ true }), 0);
}

static void nothing_is_lost_when_only_the_machine_restarts(void **unused)
{
    (void)unused;
    assert_int_equal(cut_everywhere(POWER_LOSS_NOTHING, 0, false, SIZE_MAX, &(bool){ true }), 0);
}

static void nothing_promised_is_lost_when_the_power_goes_twice(void **unused)
{
    struct power_loss_disk *disk = power_loss_disk_new(run.log, SIZE_MAX);
    size_t n = power_loss_log_length(run.log);
    size_t failures = 0;

    (void)unused;
    for (size_t at = 0; at < n; at++) {
        if (at % 61 == 7) {
            failures += cut_twice(disk, at, at % 2 == 0 ? POWER_LOSS_SOME : POWER_LOSS_ALL);
        }
        power_loss_disk_step(disk);
    }
    power_loss_disk_free(disk);
    assert_int_equal(failures, 0);
}

/* The proof that the tests above can fail: without syncs they must. */
static void a_disk_that_lies_about_syncs_is_found(void **unused)
{
    size_t lies_from = run.steps[9].acked;

    (void)unused;
    assert_true(cut_everywhere(POWER_LOSS_ALL, 0, true, lies_from, &(bool){ false }) > 0);
    assert_true(cut_everywhere(POWER_LOSS_SOME, 1, true, lies_from, &(bool){ false }) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_script_is_worth_cutting),
        cmocka_unit_test(nothing_promised_is_lost_at_any_sync_L2_L7),
        cmocka_unit_test(nothing_promised_is_lost_between_syncs),
        cmocka_unit_test(nothing_promised_is_lost_when_writes_are_torn),
        cmocka_unit_test(nothing_is_lost_when_only_the_machine_restarts),
        cmocka_unit_test(nothing_promised_is_lost_when_the_power_goes_twice),
        cmocka_unit_test(a_disk_that_lies_about_syncs_is_found),
    };

    return cmocka_run_group_tests_name("power loss", tests, set_up, clean_up);
}
