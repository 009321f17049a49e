#include <assert.h>
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
    atomic_int fd;            /* what it polls, plus one; 0: nothing */
    atomic_int busy;          /* requests that may be using `word` or `fd` */
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

/*
 * Add one and wake, both in the kernel: a word in a mapped file that was truncated is then an error (EFAULT), where
 * an access from here would end the process with SIGBUS. No thread sleeps on such a word.
 */
static void wake_sleepers(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_OP, INT32_MAX, 0L, word,
                  FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_LT, 0));
}

void belay_cancel_request(struct belay_cancel *cancel)
{
    int saved = errno; /* it may be called by a signal handler */
    const uint64_t one = 1;
    uint32_t *word;
    int fd;

    atomic_fetch_add(&cancel->busy, 1);
    atomic_store(&cancel->requested, true);
    wake_sleepers(&cancel->own);
    word = atomic_load(&cancel->word);
    if (word != NULL) {
        wake_sleepers(word);
    }
    fd = atomic_load(&cancel->fd) - 1;
    if (fd >= 0) {
        (void)!write(fd, &one, sizeof one);
    }
    atomic_fetch_sub(&cancel->busy, 1);
    errno = saved;
}

bool belay_cancel_requested(const struct belay_cancel *cancel)
{
    return cancel != NULL && atomic_load(&cancel->requested);
}

/* Requests that began before may still use the word or the descriptor. */
static void await_requests(const struct belay_cancel *cancel)
{
    assert(atomic_load(&cancel->busy) >= 0);
    while (atomic_load(&cancel->busy) != 0) {
        (void)sched_yield();
    }
}

void belay_cancel_bind(struct belay_cancel *cancel, uint32_t *word)
{
    if (cancel == NULL) {
        return;
    }
    atomic_store(&cancel->word, word);
    if (word == NULL) {
        await_requests(cancel);
    }
}

void belay_cancel_bind_fd(struct belay_cancel *cancel, int fd)
{
    const uint64_t one = 1;

    if (cancel == NULL) {
        return;
    }
    atomic_store(&cancel->fd, fd + 1);
    if (fd < 0) {
        await_requests(cancel);
    } else if (belay_cancel_requested(cancel)) {
        (void)!write(fd, &one, sizeof one); /* it was requested before the descriptor was bound */
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
