/* Opening an SQLite store: what is refused, in which words, and that nothing is touched then (L8). */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test_sqlite_support.h"

static enum belay_code try_open(struct place *place, const char *path)
{
    struct belay_store *store = NULL;
    enum belay_code code = sqlite_store_open(path, &place->machine.hooks, &store, NULL, &place->err);

    if (code == BELAY_OK) {
        store->ops->close(store);
    }
    return code;
}

static void assert_refused(struct place *place, const char *path, enum belay_code code, const char *words)
{
    assert_int_equal(try_open(place, path), code);
    if (strstr(place->err.text, words) == NULL) {
        fail_msg("'%s' does not say '%s'", place->err.text, words);
    }
    assert_null(strchr(place->err.text, '\n'));
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static void read_file(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, out, size - 1);

    assert_true(n >= 0);
    out[n] = '\0';
    assert_int_equal(close(fd), 0);
}

static void missing_directories_are_created_for_the_owner_alone(void **state)
{
    struct place *place = *state;
    char path[160];
    struct stat st;

    (void)snprintf(path, sizeof path, "%s/a/b/belay.db", place->directory);
    assert_int_equal(try_open(place, path), BELAY_OK);
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void the_url_is_absolute_and_keeps_the_parameters(void **state)
{
    struct place *place = *state;
    struct belay_store *store = NULL;
    char *url = NULL;
    char expected[160];

    assert_int_equal(chdir(place->directory), 0);
    assert_int_equal(sqlite_store_open("locks.db?durability=full,retain_events=2d", &place->machine.hooks,
                                       &store, &url, NULL),
                     BELAY_OK);
    (void)snprintf(expected, sizeof expected, "sqlite:%s/locks.db?durability=full&retain_events=2d",
                   place->directory);
    assert_string_equal(url, expected);
    free(url);
    store->ops->close(store);
    assert_int_equal(chdir("/"), 0);
}

/* Two names for one file are two holders of one lock (L1). */
static void a_comma_begins_the_parameters_as_a_question_mark_does(void **state)
{
    struct place *place = *state;
    struct belay_store *store = NULL;
    struct belay_store *again = NULL;
    char path[160];
    char *url = NULL;
    char *url_again = NULL;

    (void)snprintf(path, sizeof path, "%s,durability=full,retain_events=2d", place->path);
    assert_int_equal(sqlite_store_open(path, &place->machine.hooks, &store, &url, NULL), BELAY_OK);
    assert_int_equal(access(place->path, F_OK), 0);
    assert_int_equal(access(path, F_OK), -1);
    (void)snprintf(path, sizeof path, "sqlite:%s?durability=full&retain_events=2d", place->path);
    assert_string_equal(url, path);

    assert_int_equal(
        sqlite_store_open(url + strlen("sqlite:"), &place->machine.hooks, &again, &url_again, NULL),
        BELAY_OK);
    assert_string_equal(url, url_again);
    free(url);
    free(url_again);
    store->ops->close(store);
    again->ops->close(again);
}

static void a_path_with_commas_is_written_encoded_and_found_again(void **state)
{
    struct place *place = *state;
    struct belay_store *store = NULL;
    char text[160], path[160], expected[200];
    char *url = NULL;

    (void)snprintf(text, sizeof text, "%s/a%%2Cb%%3fc%%25.db", place->directory);
    (void)snprintf(path, sizeof path, "%s/a,b?c%%.db", place->directory);
    (void)snprintf(expected, sizeof expected, "sqlite:%s/a%%2Cb%%3Fc%%25.db", place->directory);
    assert_int_equal(sqlite_store_open(text, &place->machine.hooks, &store, &url, NULL), BELAY_OK);
    assert_int_equal(access(path, F_OK), 0);
    assert_string_equal(url, expected);
    free(url);
    store->ops->close(store);
    assert_refused(place, "/tmp/100%.db", BELAY_INVALID, "written %25");
}

/* BELAY_STORE=sqlite:~/f is made a path by the shell, --store sqlite:~/f is not. */
/* Numbers that no belay has written: they are not counted on from. L2 */
static void impossible_numbers_are_damage(void **state)
{
    static const char *const changes[] = { "number = -1", "number = 9223372036854775807", "ceiling = -1",
                                           "ceiling = 9223372036854775807" };
    struct place *place = *state;

    place->store = open_here(place);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        sqlite3 *db = NULL;
        char *sql =
            sqlite3_mprintf("CREATE TEMP TABLE old AS SELECT * FROM meta; UPDATE meta SET %s", changes[i]);
        struct belay_store *other = NULL;

        assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite_store_open(place->path, &place->machine.hooks, &other, NULL, &place->err),
                         BELAY_BAD_CONTENT);
        assert_non_null(strstr(place->err.text, "is damaged"));
        assert_true(take(place->store, "k", "id") == 0); /* nor in a process that has it open */
        assert_int_equal(sqlite3_exec(db,
                                      "UPDATE meta SET number = (SELECT number FROM old), "
                                      "ceiling = (SELECT ceiling FROM old)",
                                      NULL, NULL, NULL),
                         SQLITE_OK);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        sqlite3_free(sql);
    }
    assert_true(take(place->store, "k", "id") > 0);
}

static void a_path_with_a_tilde_is_refused(void **state)
{
    struct place *place = *state;

    assert_refused(place, "~/belay.db", BELAY_INVALID, "write the path in full");
}

static void an_unknown_parameter_is_named_with_the_valid_ones(void **state)
{
    struct place *place = *state;
    char path[160];

    (void)snprintf(path, sizeof path, "%s?durabilty=full", place->path);
    assert_refused(place, path, BELAY_INVALID, "'durabilty'");
    assert_non_null(strstr(place->err.text, "retain_records"));
    (void)snprintf(path, sizeof path, "%s?durability=some", place->path);
    assert_refused(place, path, BELAY_INVALID, "'some'");
    (void)snprintf(path, sizeof path, "%s?retain_events=x", place->path);
    assert_refused(place, path, BELAY_INVALID, "'x'");
    (void)snprintf(path, sizeof path, "%s,durabilty=full", place->path);
    assert_refused(place, path, BELAY_INVALID, "'durabilty'");
    (void)snprintf(path, sizeof path, "%s,durability=full,durability=normal", place->path);
    assert_refused(place, path, BELAY_INVALID, "is given twice");
    assert_refused(place, "", BELAY_INVALID, "names no file");
    assert_int_equal(access(place->path, F_OK), -1);
}

static void a_file_that_is_not_a_database_is_left_as_it_is(void **state)
{
    struct place *place = *state;
    char text[256];

    write_file(place->path, "this is the only copy of somebody's letter, longer than a header, and it stays "
                            "so, whatever we do to it in this test of ours; it is not a database at all");
    assert_refused(place, place->path, BELAY_BAD_CONTENT, "is not a lock database");
    read_file(place->path, text, sizeof text);
    assert_memory_equal(text, "this is the only copy", 21);
}

static void another_programs_database_is_left_as_it_is(void **state)
{
    struct place *place = *state;

    (void)outside(place, "CREATE TABLE letters (text)");
    assert_refused(place, place->path, BELAY_BAD_CONTENT, "another program");
    assert_int_equal(outside(place, "SELECT count(*) FROM sqlite_schema"), 1);
    assert_int_equal(outside(place, "SELECT 1 FROM pragma_journal_mode WHERE journal_mode = 'delete'"), 1);
}

static void a_database_of_another_schema_is_refused(void **state)
{
    struct place *place = *state;

    assert_int_equal(try_open(place, place->path), BELAY_OK);
    (void)outside(place, "PRAGMA user_version=99");
    assert_refused(place, place->path, BELAY_BAD_CONTENT, "a newer belay (schema 99, this one needs 7)");
    (void)outside(place, "PRAGMA user_version=6");
    assert_refused(place, place->path, BELAY_BAD_CONTENT,
                   "an early belay (schema 6, this one needs 7); move it");
}

/* L1: two processes that hold "the" lock in two files. */
static void a_database_deleted_while_open_grants_no_more_locks(void **state)
{
    struct place *place = *state;
    struct belay_commit commit = { 0 };
    struct belay_batch batch = { 0 };

    place->store = open_here(place);
    assert_true(take(place->store, "k", "id-1") > 0);
    assert_int_equal(unlink(place->path), 0);
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, &place->err),
                     BELAY_UNREACHABLE);
    assert_non_null(strstr(place->err.text, "moved or deleted"));
}

static void a_copy_without_a_log_gets_a_new_one(void **state)
{
    struct place *place = *state;

    assert_int_equal(try_open(place, place->path), BELAY_OK);
    (void)outside(place, "PRAGMA journal_mode=DELETE");
    place->store = open_here(place);
    assert_true(take(place->store, "k", "id-1") > 0);
    assert_int_equal(outside(place, "SELECT 1 FROM pragma_journal_mode WHERE journal_mode = 'wal'"), 1);
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_OK);
}

static void an_empty_file_becomes_a_database(void **state)
{
    struct place *place = *state;

    write_file(place->path, "");
    assert_int_equal(try_open(place, place->path), BELAY_OK);
}

static void a_damaged_database_is_refused_and_kept(void **state)
{
    struct place *place = *state;
    char noise[2048]; /* a page */
    struct stat before, after;
    int fd;

    assert_int_equal(try_open(place, place->path), BELAY_OK);
    (void)outside(place, "PRAGMA wal_checkpoint(TRUNCATE)");
    memset(noise, 0x5a, sizeof noise);
    assert_int_equal(stat(place->path, &before), 0);
    fd = open(place->path, O_WRONLY);
    for (off_t at = sizeof noise; at < before.st_size; at += (off_t)sizeof noise) {
        assert_int_equal(pwrite(fd, noise, sizeof noise, at), sizeof noise);
    }
    assert_int_equal(close(fd), 0);
    assert_refused(place, place->path, BELAY_BAD_CONTENT, "is damaged");
    assert_int_equal(stat(place->path, &after), 0);
    assert_int_equal(before.st_size, after.st_size);
}

static void a_directory_is_refused_as_a_database(void **state)
{
    struct place *place = *state;

    assert_refused(place, place->directory, BELAY_INVALID, "is a directory");
}

/* Two names, two logs, two holders of one lock. */
static void a_file_with_two_names_is_refused_until_one_is_gone(void **state)
{
    struct place *place = *state;
    char other[128];

    assert_int_equal(try_open(place, place->path), BELAY_OK);
    (void)snprintf(other, sizeof other, "%s/other.db", place->directory);
    assert_int_equal(link(place->path, other), 0);
    assert_refused(place, place->path, BELAY_INVALID, "hard links");
    assert_refused(place, other, BELAY_INVALID, "hard links");
    assert_int_equal(unlink(other), 0);
    assert_int_equal(try_open(place, place->path), BELAY_OK);
}

/* The process that creates the file must use the same companion files as later ones. */
static void a_link_to_a_file_that_is_not_there_yet_is_followed(void **state)
{
    struct place *place = *state;
    char link_path[128], second[128], wanted[192];
    struct belay_store *store = NULL;
    char *url = NULL;

    (void)snprintf(link_path, sizeof link_path, "%s/link.db", place->directory);
    (void)snprintf(second, sizeof second, "%s/second.db", place->directory);
    (void)snprintf(wanted, sizeof wanted, "sqlite:%s/below/real.db", place->directory);
    assert_int_equal(symlink("below/real.db", second), 0);
    assert_int_equal(symlink(second, link_path), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sqlite_store_open(link_path, &place->machine.hooks, &store, &url, &place->err),
                         BELAY_OK);
        assert_string_equal(url, wanted);
        free(url);
        store->ops->close(store);
    }
    (void)snprintf(link_path, sizeof link_path, "%s/round.db", place->directory);
    assert_int_equal(symlink("round.db", link_path), 0);
    assert_refused(place, link_path, BELAY_UNREACHABLE, "round.db");
}

static void a_network_file_system_is_refused_by_name(void **state)
{
    struct place *place = *state;

    place->machine.fs_type = 0x6969;
    assert_refused(place, place->path, BELAY_INVALID, "network file system (NFS)");
    place->machine.fs_type = (long)(int)0xff534d42; /* as statfs gives it where long is narrow */
    assert_refused(place, place->path, BELAY_INVALID, "(CIFS)");
    assert_int_equal(access(place->path, F_OK), -1);
}

static void a_directory_that_cannot_be_created_is_reported(void **state)
{
    struct place *place = *state;
    char path[160];

    write_file(place->path, "x");
    (void)snprintf(path, sizeof path, "%s/belay.db", place->path);
    assert_refused(place, path, BELAY_UNREACHABLE, "Not a directory");
}

/* As a user to whom permissions apply, in a process of its own. */
static void as_nobody(struct place *place, const char *words)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) {
            _exit(2);
        }
        if (try_open(place, place->path) != BELAY_UNREACHABLE || strstr(place->err.text, words) == NULL) {
            (void)fprintf(stderr, "said: '%s'\n", place->err.text);
            _exit(1);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_read_only_file_is_reported(void **state)
{
    struct place *place = *state;

    assert_int_equal(try_open(place, place->path), BELAY_OK);
    assert_int_equal(chmod(place->directory, 0777), 0);
    assert_int_equal(chmod(place->path, 0444), 0);
    as_nobody(place, "cannot be written by user");
}

static void a_read_only_directory_is_reported(void **state)
{
    struct place *place = *state;

    assert_int_equal(chmod(place->directory, 0555), 0);
    as_nobody(place, "cannot be written by user");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(missing_directories_are_created_for_the_owner_alone),
        TEST(the_url_is_absolute_and_keeps_the_parameters),
        TEST(a_comma_begins_the_parameters_as_a_question_mark_does),
        TEST(a_path_with_commas_is_written_encoded_and_found_again),
        TEST(an_unknown_parameter_is_named_with_the_valid_ones),
        TEST(a_file_that_is_not_a_database_is_left_as_it_is),
        TEST(another_programs_database_is_left_as_it_is),
        TEST(a_database_of_another_schema_is_refused),
        TEST(a_database_deleted_while_open_grants_no_more_locks),
        TEST(a_copy_without_a_log_gets_a_new_one),
        TEST(an_empty_file_becomes_a_database),
        TEST(a_damaged_database_is_refused_and_kept),
        TEST(impossible_numbers_are_damage),
        TEST(a_path_with_a_tilde_is_refused),
        TEST(a_directory_is_refused_as_a_database),
        TEST(a_file_with_two_names_is_refused_until_one_is_gone),
        TEST(a_link_to_a_file_that_is_not_there_yet_is_followed),
        TEST(a_network_file_system_is_refused_by_name),
        TEST(a_directory_that_cannot_be_created_is_reported),
        TEST(a_read_only_file_is_reported),
        TEST(a_read_only_directory_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
