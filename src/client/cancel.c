#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "belay/store.h"
#include "client/client.h"

struct belay_cancel {
    atomic_bool requested;
    _Atomic(uint32_t *) word; /* what a thread in a store's wait() sleeps on */
    atomic_int busy;          /* requests that may be using `word` */
    uint32_t own;             /* what client_sleep() sleeps on */
};

struct belay_cancel *belay_cancel_new(void)
{
    return calloc(1, sizeof(struct belay_cancel));
}

void belay_cancel_free(struct belay_cancel *cancel)
{
    free(cancel);
}

static void wake_word(uint32_t *word)
{
    __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void belay_cancel_request(struct belay_cancel *cancel)
{
    int saved = errno; /* it may be called by a signal handler */
    uint32_t *word;

    atomic_fetch_add(&cancel->busy, 1);
    atomic_store(&cancel->requested, true);
    wake_word(&cancel->own);
    word = atomic_load(&cancel->word);
    if (word != NULL) {
        wake_word(word);
    }
    atomic_fetch_sub(&cancel->busy, 1);
    errno = saved;
}

bool belay_cancel_requested(const struct belay_cancel *cancel)
{
    return cancel != NULL && atomic_load(&cancel->requested);
}

void belay_cancel_bind(struct belay_cancel *cancel, uint32_t *word)
{
    if (cancel == NULL) {
        return;
    }
    atomic_store(&cancel->word, word);
    /* Who asked before this may still hold the old word, which is about to go. */
    while (word == NULL && atomic_load(&cancel->busy) != 0) {
        (void)sched_yield();
    }
}

void client_sleep(int64_t ms, struct belay_cancel *cancel)
{
    struct timespec time = { .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 };

    if (ms <= 0 || belay_cancel_requested(cancel)) {
        return;
    }
    if (cancel == NULL) {
        (void)nanosleep(&time, NULL);
        return;
    }
    uint32_t seen = __atomic_load_n(&cancel->own, __ATOMIC_SEQ_CST);
    if (!belay_cancel_requested(cancel)) {
        (void)syscall(SYS_futex, &cancel->own, FUTEX_WAIT, seen, &time, NULL, 0);
    }
}
