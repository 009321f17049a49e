#include "server/http/loop.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"

/* Few enough that of many requests the first are being synced while the others are read. */
enum { EVENTS_PER_TURN = 32 };

struct task_list {
    struct loop_task *first;
    struct loop_task **end;
};

struct loop {
    int epoll_fd;
    struct loop_watch wake;  /* an eventfd: a thread has posted */
    struct loop_watch alarm; /* a timerfd on the boot clock, for the first timer */
    int64_t alarm_ms;        /* what the timerfd is set to; 0: nothing */
    int64_t now_ms;
    struct timers timers;
    struct task_list later;
    pthread_mutex_t lock; /* guards posted: the other list is the loop's own */
    struct task_list posted;
    loop_hook *hook;
    void *hook_context; /* borrowed */
    bool is_stopped;
    bool is_awake; /* the next turn does not sleep */
};

static void task_list_init(struct task_list *list)
{
    list->first = NULL;
    list->end = &list->first;
}

static void task_list_add(struct task_list *list, struct loop_task *task)
{
    task->next = NULL;
    *list->end = task;
    list->end = &task->next;
}

/* The event only ends the wait: the queues say what there is to do. */
static void drain_counter(struct loop_watch *watch, uint32_t events)
{
    uint64_t count;

    (void)events;
    if (read(watch->fd, &count, sizeof count) < 0) {
        return; /* EAGAIN: it was reset meanwhile */
    }
}

struct loop *loop_new(void)
{
    struct loop *loop = calloc(1, sizeof *loop);

    if (loop == NULL) {
        return NULL;
    }
    pthread_mutex_init(&loop->lock, NULL);
    task_list_init(&loop->later);
    task_list_init(&loop->posted);
    loop->now_ms = clock_boot_ms();
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake = (struct loop_watch){ eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), drain_counter };
    loop->alarm =
        (struct loop_watch){ timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK), drain_counter };
    if (loop->epoll_fd < 0 || loop->wake.fd < 0 || loop->alarm.fd < 0 ||
        !loop_watch(loop, &loop->wake, EPOLLIN) || !loop_watch(loop, &loop->alarm, EPOLLIN)) {
        int saved = errno;
        loop_free(loop);
        errno = saved;
        return NULL;
    }
    return loop;
}

static void close_if_open(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

void loop_free(struct loop *loop)
{
    if (loop == NULL) {
        return;
    }
    close_if_open(loop->epoll_fd);
    close_if_open(loop->wake.fd);
    close_if_open(loop->alarm.fd);
    timers_release(&loop->timers);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

int64_t loop_now_ms(const struct loop *loop)
{
    return loop->now_ms;
}

static bool control(struct loop *loop, int what, struct loop_watch *watch, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = watch };

    return epoll_ctl(loop->epoll_fd, what, watch->fd, &event) == 0;
}

bool loop_watch(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
    assert(watch->ready != NULL);
    return control(loop, EPOLL_CTL_ADD, watch, events);
}

bool loop_watch_change(struct loop *loop, struct loop_watch *watch, uint32_t events)
{
    return control(loop, EPOLL_CTL_MOD, watch, events);
}

void loop_unwatch(struct loop *loop, struct loop_watch *watch)
{
    if (watch->fd < 0) {
        return;
    }
    control(loop, EPOLL_CTL_DEL, watch, 0);
    watch->fd = -1; /* so that an event of this turn that is still in the list is ignored */
}

bool loop_timer_set(struct loop *loop, struct timer *timer, int64_t at_ms)
{
    return timers_set(&loop->timers, timer, at_ms);
}

void loop_timer_cancel(struct loop *loop, struct timer *timer)
{
    timers_cancel(&loop->timers, timer);
}

void loop_later(struct loop *loop, struct loop_task *task)
{
    if (task->is_queued) {
        return;
    }
    assert(task->run != NULL);
    task->is_queued = true;
    task_list_add(&loop->later, task);
}

void loop_wake(struct loop *loop)
{
    uint64_t one = 1;

    if (write(loop->wake.fd, &one, sizeof one) < 0) {
        return; /* the counter is full: the loop is being woken */
    }
}

void loop_post(struct loop *loop, struct loop_task *task)
{
    bool was_empty;

    pthread_mutex_lock(&loop->lock);
    was_empty = loop->posted.first == NULL;
    assert(!task->is_queued && task->run != NULL);
    task->is_queued = true;
    task_list_add(&loop->posted, task);
    pthread_mutex_unlock(&loop->lock);
    if (was_empty) { /* else the loop was woken, and has yet to take the list */
        loop_wake(loop);
    }
}

void loop_before_sleep(struct loop *loop, loop_hook *hook, void *context)
{
    loop->hook = hook;
    loop->hook_context = context;
}

void loop_stop(struct loop *loop)
{
    loop->is_stopped = true;
}

/* The list as it is now: tasks that are added meanwhile wait for the next round. */
static void run_list(struct loop *loop, struct task_list *list)
{
    struct loop_task *task;

    pthread_mutex_lock(&loop->lock);
    task = list->first;
    list->first = NULL;
    list->end = &list->first;
    pthread_mutex_unlock(&loop->lock);
    while (task != NULL) {
        struct loop_task *next = task->next;

        assert(task->is_queued);
        task->is_queued = false;
        task->run(task);
        task = next;
    }
}

void loop_run_later(struct loop *loop)
{
    while (loop->later.first != NULL) {
        run_list(loop, &loop->later);
    }
}

static void run_timers(struct loop *loop)
{
    size_t most = loop->timers.count; /* one that sets itself again at once waits for the next turn */

    for (size_t i = 0; i < most; i++) {
        struct timer *timer = timers_take_due(&loop->timers, loop->now_ms);
        if (timer == NULL) {
            return;
        }
        assert(!timer_is_set(timer) && timer->at_ms <= loop->now_ms && timer->fire != NULL);
        timer->fire(timer);
    }
}

/*
 * The clock of epoll_wait() stops while the machine is suspended; a lease does
 * not. So the wait has no timeout of its own, but a timerfd, which is set
 * again only when another timer has become the first.
 */
static bool set_alarm(struct loop *loop)
{
    struct itimerspec when = { 0 };
    int64_t next_ms = 0;

    if (timers_next(&loop->timers, &next_ms) && next_ms < 1) {
        next_ms = 1; /* 0 would switch it off */
    }
    if (next_ms == loop->alarm_ms) {
        return true;
    }
    loop->alarm_ms = next_ms;
    when.it_value.tv_sec = next_ms / 1000;
    when.it_value.tv_nsec = next_ms % 1000 * 1000000;
    return timerfd_settime(loop->alarm.fd, TFD_TIMER_ABSTIME, &when, NULL) == 0;
}

bool loop_turn(struct loop *loop, int max_ms)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int n;

    if (loop->later.first != NULL || loop->is_awake) {
        max_ms = 0;
        loop->is_awake = false;
    } else if (max_ms != 0 && !set_alarm(loop)) {
        return false;
    }
    n = epoll_wait(loop->epoll_fd, events, EVENTS_PER_TURN, max_ms);
    if (n < 0 && errno != EINTR) {
        return false;
    }
    loop->now_ms = clock_boot_ms();
    if (loop->alarm_ms <= loop->now_ms) {
        loop->alarm_ms = 0; /* it has rung: a timer for the same moment needs it set anew */
    }
    for (int i = 0; i < n; i++) {
        struct loop_watch *watch = events[i].data.ptr;
        if (watch->fd >= 0) {
            watch->ready(watch, events[i].events);
        }
    }
    run_list(loop, &loop->posted);
    run_timers(loop);
    run_list(loop, &loop->later);
    if (loop->hook != NULL) {
        loop->hook(loop->hook_context);
    }
    return true;
}

/* The ready descriptor may be the alarm, which the next turn may set anew before it looks. */
bool loop_is_ready(struct loop *loop)
{
    struct pollfd poll_fd = { .fd = loop->epoll_fd, .events = POLLIN };

    loop->is_awake = poll(&poll_fd, 1, 0) > 0;
    return loop->is_awake;
}

bool loop_run(struct loop *loop)
{
    loop->is_stopped = false;
    while (!loop->is_stopped) {
        if (!loop_turn(loop, -1)) {
            return false;
        }
    }
    return true;
}
