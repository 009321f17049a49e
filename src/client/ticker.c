#include <assert.h>
#include <poll.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/pool.h"
#include "client/client.h"

static void arm(int timer_fd, int64_t at_ms)
{
    struct itimerspec when = { 0 };

    if (at_ms != INT64_MAX) {
        /* 0 would disarm it. */
        int64_t ms = at_ms > 0 ? at_ms : 1;
        when.it_value.tv_sec = (time_t)(ms / 1000);
        when.it_value.tv_nsec = (long)(ms % 1000) * 1000000;
    }
    (void)timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void *ticker_main(void *argument)
{
    struct ticker *ticker = argument;
    struct belay_client *client = ticker->client;
    struct pollfd fds[2] = { { .fd = ticker->timer_fd, .events = POLLIN },
                             { .fd = ticker->poke_fd, .events = POLLIN } };

    (void)pthread_mutex_lock(&client->mutex);
    while (!ticker->stop) {
        uint64_t count;

        arm(ticker->timer_fd, ticker->due(client));
        (void)pthread_mutex_unlock(&client->mutex);
        (void)poll(fds, 2, -1);
        for (size_t i = 0; i < 2; i++) {
            if ((fds[i].revents & POLLIN) != 0) {
                (void)!read(fds[i].fd, &count, sizeof count);
            }
        }
        (void)pthread_mutex_lock(&client->mutex);
    }
    (void)pthread_mutex_unlock(&client->mutex);
    return NULL;
}

bool ticker_start(struct ticker *ticker, struct belay_client *client, int64_t (*due)(struct belay_client *))
{
    assert(!ticker->running && due != NULL);
    ticker->client = client;
    ticker->due = due;
    ticker->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    ticker->poke_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (ticker->timer_fd >= 0 && ticker->poke_fd >= 0) {
        ticker->running = thread_start(&ticker->thread, ticker_main, ticker);
    }
    if (!ticker->running) {
        (void)close(ticker->timer_fd);
        (void)close(ticker->poke_fd);
    }
    return ticker->running;
}

void ticker_poke(struct ticker *ticker)
{
    uint64_t one = 1;

    if (ticker->running) {
        (void)!write(ticker->poke_fd, &one, sizeof one);
    }
}

void ticker_stop(struct ticker *ticker)
{
    if (!ticker->running) {
        return;
    }
    (void)pthread_mutex_lock(&ticker->client->mutex);
    ticker->stop = true;
    (void)pthread_mutex_unlock(&ticker->client->mutex);
    ticker_poke(ticker);
    (void)pthread_join(ticker->thread, NULL);
    (void)close(ticker->timer_fd);
    (void)close(ticker->poke_fd);
    ticker->running = false;
}
