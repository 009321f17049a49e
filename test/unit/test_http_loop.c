/* The loop, its timers, and the helpers for paths and queries. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "http_kit.h"

/* --- timers --- */

enum { MANY = 20000 };

static void timers_come_out_in_their_order(void **state)
{
    struct timers timers = { 0 };
    struct timer *many = calloc(MANY, sizeof *many);
    int64_t last = -1;
    size_t count = 0;

    (void)state;
    assert_non_null(many);
    srand(7);
    for (size_t i = 0; i < MANY; i++) {
        assert_true(timers_set(&timers, &many[i], rand() % 5000));
    }
    for (size_t i = 0; i < MANY; i += 3) {
        assert_true(timers_set(&timers, &many[i], rand() % 5000)); /* moved, both ways */
    }
    for (size_t i = 0; i < MANY; i += 4) {
        timers_cancel(&timers, &many[i]);
        timers_cancel(&timers, &many[i]); /* once more changes nothing */
        assert_false(timer_is_set(&many[i]));
    }
    assert_null(timers_take_due(&timers, -1));
    for (struct timer *timer; (timer = timers_take_due(&timers, 5000)) != NULL; count++) {
        assert_true(timer->at_ms >= last);
        assert_false(timer_is_set(timer));
        last = timer->at_ms;
    }
    assert_int_equal(count, MANY - MANY / 4);
    timers_release(&timers);
    free(many);
}

struct ring {
    struct timer timer; /* first */
    struct loop *loop;
    int64_t rang_ms;
    int left;
};

static void ring(struct timer *timer)
{
    struct ring *it = (struct ring *)(void *)timer;

    it->rang_ms = clock_boot_ms();
    if (--it->left > 0) {
        loop_timer_set(it->loop, timer, timer->at_ms); /* at once, for the very same moment */
    } else {
        loop_stop(it->loop);
    }
}

static void a_timer_never_fires_early_and_may_set_itself_again(void **state)
{
    struct loop *loop = loop_new();
    struct ring it = { .timer = { .fire = ring }, .loop = loop, .left = 3 };
    int64_t at_ms = clock_boot_ms() + 30;

    (void)state;
    assert_non_null(loop);
    assert_true(loop_timer_set(loop, &it.timer, at_ms));
    assert_true(loop_run(loop));
    assert_true(it.rang_ms >= at_ms);
    assert_int_equal(it.left, 0);
    loop_free(loop);
}

static void a_timer_set_for_the_current_moment_fires_again(void **state)
{
    struct loop *loop = loop_new();
    struct ring it = { .timer = { .fire = ring }, .loop = loop, .left = 1 };

    (void)state;
    assert_true(loop_timer_set(loop, &it.timer, loop_now_ms(loop) + 5));
    assert_true(loop_run(loop));
    it.left = 1;
    assert_true(loop_timer_set(loop, &it.timer, it.timer.at_ms));
    assert_true(loop_run(loop));
    assert_int_equal(it.left, 0);
    loop_free(loop);
}

/* --- the order of a turn --- */

struct diary {
    struct loop *loop;
    char text[64];
    struct loop_task later;
    struct timer timer;
    struct loop_watch watch;
};

static struct diary diary;

static void note(char c)
{
    size_t len = strlen(diary.text);

    assert_true(len + 1 < sizeof diary.text);
    diary.text[len] = c;
    diary.text[len + 1] = '\0';
}

static void on_later(struct loop_task *task)
{
    (void)task;
    note('l');
}

static void on_timer(struct timer *timer)
{
    (void)timer;
    note('t');
}

static void on_ready(struct loop_watch *watch, uint32_t events)
{
    char c;

    (void)events;
    assert_int_equal(read(watch->fd, &c, 1), 1);
    note('r');
    loop_later(diary.loop, &diary.later);
    loop_later(diary.loop, &diary.later); /* twice is once */
}

static void on_hook(void *context)
{
    (void)context;
    note('h');
}

static void the_hook_runs_once_at_the_end_of_an_iteration(void **state)
{
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    diary = (struct diary){ .loop = loop_new(), .watch = { ends[0], on_ready } };
    diary.later.run = on_later;
    diary.timer.fire = on_timer;
    assert_true(loop_watch(diary.loop, &diary.watch, EPOLLIN));
    assert_true(loop_timer_set(diary.loop, &diary.timer, 0));
    loop_before_sleep(diary.loop, on_hook, NULL);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_true(loop_turn(diary.loop, 1000));
    assert_string_equal(diary.text, "rtlh");
    assert_true(loop_turn(diary.loop, 0));
    assert_string_equal(diary.text, "rtlhh");
    loop_unwatch(diary.loop, &diary.watch);
    loop_free(diary.loop);
    close(ends[0]);
    close(ends[1]);
}

static void requeue_from_hook(void *context)
{
    if (++*(int *)context == 1) {
        loop_later(diary.loop, &diary.later);
    }
}

static void work_that_the_hook_makes_does_not_sleep(void **state)
{
    int count = 0;

    (void)state;
    diary = (struct diary){ .loop = loop_new() };
    diary.later.run = on_later;
    loop_before_sleep(diary.loop, requeue_from_hook, &count);
    assert_true(loop_turn(diary.loop, 0));
    assert_string_equal(diary.text, "");
    assert_true(loop_turn(diary.loop, -1)); /* would sleep for ever */
    assert_string_equal(diary.text, "l");
    loop_free(diary.loop);
}

/* --- posting --- */

enum { POSTERS = 4, POSTS = 2000 };

struct letter {
    struct loop_task task; /* first */
    int from;
    int number;
};

struct poster {
    struct letter letters[POSTS];
    struct loop *loop;
};

static int next_number[POSTERS];
static int n_letters;
static struct loop *letter_loop;

static void on_letter(struct loop_task *task)
{
    struct letter *letter = (struct letter *)(void *)task;

    assert_int_equal(letter->number, next_number[letter->from]++);
    if (++n_letters == POSTERS * POSTS) {
        loop_stop(letter_loop);
    }
}

static void *post_all(void *context)
{
    struct poster *poster = context;

    for (int i = 0; i < POSTS; i++) {
        loop_post(poster->loop, &poster->letters[i].task);
    }
    return NULL;
}

static void messages_from_other_threads_arrive_complete_and_in_order(void **state)
{
    struct poster *posters = calloc(POSTERS, sizeof *posters);
    pthread_t threads[POSTERS];

    (void)state;
    assert_non_null(posters);
    letter_loop = loop_new();
    for (int i = 0; i < POSTERS; i++) {
        posters[i].loop = letter_loop;
        for (int k = 0; k < POSTS; k++) {
            posters[i].letters[k] = (struct letter){ .task = { .run = on_letter }, .from = i, .number = k };
        }
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, &posters[i]), 0);
    }
    assert_true(loop_run(letter_loop));
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(n_letters, POSTERS * POSTS);
    loop_free(letter_loop);
    free(posters);
}

static void on_signal(struct loop_watch *watch, uint32_t events)
{
    struct signalfd_siginfo info;

    (void)events;
    assert_int_equal(read(watch->fd, &info, sizeof info), sizeof info);
    assert_int_equal(info.ssi_signo, SIGUSR1);
    loop_stop(diary.loop);
}

static void a_signal_comes_through_a_watched_signalfd(void **state)
{
    sigset_t set;
    struct loop_watch watch;

    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    watch = (struct loop_watch){ signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), on_signal };
    diary = (struct diary){ .loop = loop_new() };
    assert_true(loop_watch(diary.loop, &watch, EPOLLIN));
    raise(SIGUSR1);
    assert_true(loop_run(diary.loop));
    close(watch.fd);
    loop_free(diary.loop);
}

/* --- paths and queries --- */

static void a_path_is_split_before_it_is_decoded(void **state)
{
    struct http_slice parts[3];
    char text[32];

    (void)state;
    assert_int_equal(http_path_split("/v1/locks/a%2Fb%20c", parts, 3), 3);
    assert_true(http_decode(parts[2], text, sizeof text));
    assert_string_equal(text, "a/b c");
    assert_int_equal(http_path_split("/", parts, 3), 1);
    assert_int_equal(parts[0].len, 0);
    assert_int_equal(http_path_split("/a/", parts, 3), 2);
    assert_int_equal(http_path_split("/a/b/c/d", parts, 3), 4);
}

static void invalid_percent_encoding_is_refused(void **state)
{
    const char *bad[] = { "%", "%2", "%zz", "a%0", "%00", "a%00b", "%%20" };
    char text[8];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(http_decode((struct http_slice){ bad[i], strlen(bad[i]) }, text, sizeof text));
    }
    assert_true(http_decode((struct http_slice){ "1234567", 7 }, text, sizeof text));
    assert_false(http_decode((struct http_slice){ "12345678", 8 }, text, sizeof text));
    assert_true(http_decode((struct http_slice){ "a+b%C3%A9", 9 }, text, sizeof text));
    assert_string_equal(text, "a+b\xc3\xa9");
}

static void a_query_is_read_by_name(void **state)
{
    const char *query = "prefix=a%26b+c&stale&limit=10&limit=20&bad=%zz&&na%6De=v";
    char text[16];

    (void)state;
    assert_int_equal(http_query_get(query, "prefix", text, sizeof text), HTTP_FOUND);
    assert_string_equal(text, "a&b c");
    assert_int_equal(http_query_get(query, "stale", text, sizeof text), HTTP_FOUND);
    assert_string_equal(text, "");
    assert_int_equal(http_query_get(query, "limit", text, sizeof text), HTTP_FOUND);
    assert_string_equal(text, "10");
    assert_int_equal(http_query_get(query, "name", text, sizeof text), HTTP_FOUND);
    assert_string_equal(text, "v");
    assert_int_equal(http_query_get(query, "bad", text, sizeof text), HTTP_MALFORMED);
    assert_int_equal(http_query_get(query, "prefi", text, sizeof text), HTTP_ABSENT);
    assert_int_equal(http_query_get("", "x", text, sizeof text), HTTP_ABSENT);
    assert_int_equal(http_query_get(query, "prefix", text, 3), HTTP_MALFORMED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_come_out_in_their_order),
        cmocka_unit_test(a_timer_never_fires_early_and_may_set_itself_again),
        cmocka_unit_test(a_timer_set_for_the_current_moment_fires_again),
        cmocka_unit_test(the_hook_runs_once_at_the_end_of_an_iteration),
        cmocka_unit_test(work_that_the_hook_makes_does_not_sleep),
        cmocka_unit_test(messages_from_other_threads_arrive_complete_and_in_order),
        cmocka_unit_test(a_signal_comes_through_a_watched_signalfd),
        cmocka_unit_test(a_path_is_split_before_it_is_decoded),
        cmocka_unit_test(invalid_percent_encoding_is_refused),
        cmocka_unit_test(a_query_is_read_by_name),
    };

    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
