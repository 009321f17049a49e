#include "hammer_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "belay.h"

/* An acquisition, its keys in the order in which they are named. */
struct turn {
    enum kind kind;
    int keys[N_KEYS];
    size_t n_keys;
    uint64_t seen[N_KEYS]; /* by position: the highest token before it was asked for */
    char lock_id[48];
};

struct process {
    const struct worker *is;
    struct belay_client *client;
    unsigned random;
    unsigned n_turns;
};

static unsigned below(struct process *process, unsigned n)
{
    process->random = process->random * 1664525U + 1013904223U;
    return (process->random >> 8) % n;
}

static void sleep_ms(unsigned ms)
{
    struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000L };

    (void)nanosleep(&time, NULL);
}

/* ---- choosing ---- */

static void add_key(struct turn *turn, int key)
{
    for (size_t i = 0; i < turn->n_keys; i++) {
        bool is_related = turn->keys[i] >= KEY_PARENT && key >= KEY_PARENT;

        if (turn->keys[i] == key || is_related) {
            return;
        }
    }
    turn->keys[turn->n_keys++] = key;
}

static void choose_turn(struct process *process, struct turn *turn)
{
    *turn = (struct turn){ .kind = (enum kind)(atomic_fetch_add(&process->is->board->n_turns, 1) % N_KINDS) };
    if (kind_is_slots(turn->kind)) {
        add_key(turn, (int)below(process, KEY_SLOTS_END));
        if (turn->kind == KIND_JOINT_SLOTS) {
            add_key(turn, KEY_SLOTS_END - 1 - turn->keys[0]);
        }
    } else {
        size_t n = turn->kind < KIND_JOINT_EXCLUSIVE ? 1 : 2 + below(process, 2);

        while (turn->n_keys < n) {
            add_key(turn, KEY_SLOTS_END + (int)below(process, N_KEYS - KEY_SLOTS_END));
        }
    }
    (void)snprintf(turn->lock_id, sizeof turn->lock_id, "hammer-%d-%ld-%u", process->is->number,
                   (long)getpid(), process->n_turns++);
}

/* ---- acquiring ---- */

static enum belay_code acquire(struct process *process, struct turn *turn, struct belay_lock **out_lock,
                               struct belay_error *err)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    const char *more[N_KEYS];

    for (size_t i = 1; i < turn->n_keys; i++) {
        more[i - 1] = key_names[turn->keys[i]];
    }
    options.ttl_ms = process->is->board->ttl_ms;
    options.heartbeat_ms = below(process, 2) == 0 ? options.ttl_ms / 4 : 0;
    options.wait_ms = WAIT_MS;
    options.lock_id = turn->lock_id;
    options.shared = kind_is_shared(turn->kind);
    options.slots = kind_is_slots(turn->kind) ? N_SLOTS : 0;
    options.more_keys = more;
    options.n_more_keys = turn->n_keys - 1;
    return belay_lock_acquire(process->client, key_names[turn->keys[0]], &options, out_lock, err);
}

static bool is_trouble(enum belay_code code)
{
    return code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN || code == BELAY_BUSY;
}

/* NULL: no lock. An answer that was lost is asked for again, with the same id. */
static struct belay_lock *acquire_or_tell(struct process *process, struct turn *turn)
{
    struct board *board = process->is->board;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock *lock = NULL;
    enum belay_code code;
    int64_t began_ms = belay_now_boot_ms();
    bool again = false;

    for (size_t i = 0; i < turn->n_keys; i++) {
        turn->seen[i] = atomic_load(&board->highest[turn->keys[i]]);
    }
    while (is_trouble(code = acquire(process, turn, &lock, &err)) && !atomic_load(&board->is_over)) {
        board_count(board, COUNT_TROUBLE);
        again = true;
        sleep_ms(20);
    }
    if (code == BELAY_OK) {
        int64_t waited_ms = belay_now_boot_ms() - began_ms;
        int64_t longest_ms = atomic_load(&board->longest_wait_ms);

        while (longest_ms < waited_ms &&
               !atomic_compare_exchange_weak(&board->longest_wait_ms, &longest_ms, waited_ms)) {
        }
        if (again) {
            board_count(board, COUNT_REPEATED);
        }
    } else if (code == BELAY_ID_USED && (again || belay_now_boot_ms() - began_ms > board->ttl_ms)) {
        /* A grant whose answer was lost or late, and that has expired since. */
        board_count(board, COUNT_LOST);
    } else if (!is_trouble(code)) {
        board_fault(board, "%s of '%s' (%zu keys) after %lld ms: %s: %s", kind_names[turn->kind],
                    key_names[turn->keys[0]], turn->n_keys, (long long)(belay_now_boot_ms() - began_ms),
                    belay_code_name(code), err.text);
    }
    belay_error_release(&err);
    return code == BELAY_OK ? lock : NULL;
}

/* ---- holding ---- */

static unsigned key_bits(const struct turn *turn)
{
    unsigned bits = 0;

    for (size_t i = 0; i < turn->n_keys; i++) {
        bits |= 1U << turn->keys[i];
    }
    return bits;
}

static void check_grant(struct process *process, const struct turn *turn, struct belay_lock *lock)
{
    struct board *board = process->is->board;

    if (belay_lock_n_keys(lock) != turn->n_keys) {
        board_fault(board, "%zu keys were granted of %zu", belay_lock_n_keys(lock), turn->n_keys);
    }
    for (size_t i = 0; i < turn->n_keys; i++) {
        int key = turn->keys[i];
        uint64_t highest = atomic_load(&board->highest[key]);
        uint64_t token = belay_lock_token_at(lock, i);

        if (strcmp(belay_lock_key_at(lock, i), key_names[key]) != 0) {
            board_fault(board, "key %zu is '%s' and not '%s'", i, belay_lock_key_at(lock, i), key_names[key]);
        }
        /* Beside an exclusive holder nobody has a later token. */
        if (!kind_is_shared(turn->kind) && !kind_is_slots(turn->kind) && highest >= token &&
            belay_lock_is_mine(lock)) {
            board_fault(board, "'%s' is held with token %llu, but %llu was granted", key_names[key],
                        (unsigned long long)token, (unsigned long long)highest);
        }
        board_grant(board, key, token, turn->seen[i]);
    }
}

/* The grant with this token stands in the store. */
static bool store_has(struct process *process, const char *key, uint64_t token)
{
    struct belay_info *info = NULL;
    bool has = false;

    if (belay_get(process->client, key, &info, NULL) != BELAY_OK) {
        return true; /* not known */
    }
    has = info->token == token && info->status == BELAY_STATUS_ACTIVE;
    for (size_t i = 0; i < info->n_holders && !has; i++) {
        has = info->holders[i].token == token && info->holders[i].status == BELAY_STATUS_ACTIVE;
    }
    belay_info_free(info);
    return has;
}

/*
 * The store must agree, for each key, as long as the lease lasts. belay_check() may say that the lock is
 * lost somewhat before its holder must stop, because clocks may differ.
 */
static void ask_store(struct process *process, const struct turn *turn, struct belay_lock *lock)
{
    struct board *board = process->is->board;
    struct belay_error err = BELAY_ERROR_INIT;
    size_t i = below(process, (unsigned)turn->n_keys);
    const char *key = key_names[turn->keys[i]];
    uint64_t token = belay_lock_token_at(lock, i);
    enum belay_code code = belay_check(process->client, key, belay_lock_id(lock), token, 0, NULL, &err);
    bool agrees =
        code == BELAY_OK || is_trouble(code) || (code == BELAY_LOST && store_has(process, key, token));

    if (!agrees && belay_lock_is_mine(lock)) {
        board_fault(board, "%s: '%s' is held, but the store says: %s", kind_names[turn->kind], key, err.text);
    }
    board_count(board, COUNT_ASKED);
    belay_error_release(&err);
}

/* False: the lease is over. */
static bool hold_step(struct process *process, const struct turn *turn, struct belay_lock *lock)
{
    struct board *board = process->is->board;
    int64_t slept_ms = belay_now_boot_ms();
    bool was_stopped;

    sleep_ms(below(process, (unsigned)board->ttl_ms / 60));
    was_stopped = belay_now_boot_ms() - slept_ms > board->ttl_ms;
    claim_extend(process->is->claim, belay_lock_deadline_boot_ms(lock));
    if (!belay_lock_is_mine(lock)) {
        board_count(board, COUNT_LOST);
        if (was_stopped) {
            board_count(board, COUNT_STOPPED);
        }
        return false;
    }
    board_check(board);
    if (below(process, 8) == 0) {
        ask_store(process, turn, lock);
    }
    if (below(process, 8) == 0) {
        (void)belay_lock_renew(lock, NULL);
    }
    return true;
}

/*
 * A hold is short, one in ten is long. On a slow store few begin at one time: until two have met on one
 * key, all that others may join are long.
 */
static unsigned choose_steps(struct process *process, enum kind kind)
{
    bool may_meet = kind_is_shared(kind) || kind_is_slots(kind);
    bool have_met = atomic_load(&process->is->board->counts[COUNT_TOGETHER]) > 0;
    bool is_long = below(process, 10) == 0 || (may_meet && !have_met);

    return 1 + below(process, is_long ? 100 : 6);
}

static void hold(struct process *process, const struct turn *turn, struct belay_lock *lock)
{
    unsigned steps = choose_steps(process, turn->kind);
    bool is_held = true;

    claim_publish(process->is->claim, key_bits(turn), turn->kind, belay_lock_deadline_boot_ms(lock));
    check_grant(process, turn, lock);
    while (is_held && steps-- > 0) {
        is_held = hold_step(process, turn, lock);
    }
    claim_withdraw(process->is->claim);
    if (is_held) {
        atomic_fetch_add(&process->is->board->done[turn->kind], 1);
        atomic_fetch_add(&process->is->board->done_by[process->is->number], 1);
    }
}

static void let_go(struct process *process, const struct turn *turn, struct belay_lock *lock)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &err);

    if (is_trouble(code)) {
        board_count(process->is->board, COUNT_TROUBLE);
    } else if (code != BELAY_OK && code != BELAY_LOST) {
        board_fault(process->is->board, "release of %s: %s: %s", kind_names[turn->kind],
                    belay_code_name(code), err.text);
    }
    belay_lock_free(lock);
    belay_error_release(&err);
}

int worker_run(const struct worker *worker)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct process process = { .is = worker, .random = worker->seed };

    options.store_url = worker->store_url;
    if (belay_client_open(&options, &process.client, &err) != BELAY_OK) {
        if (is_trouble(err.code)) {
            board_count(worker->board, COUNT_TROUBLE);
        } else {
            board_fault(worker->board, "open '%s': %s", worker->store_url, err.text);
        }
        belay_error_release(&err);
        return 0;
    }
    while (!atomic_load(&worker->board->is_over)) {
        struct turn turn;
        struct belay_lock *lock;

        choose_turn(&process, &turn);
        lock = acquire_or_tell(&process, &turn);
        if (lock != NULL) {
            hold(&process, &turn, lock);
            let_go(&process, &turn, lock);
        }
    }
    belay_client_close(process.client);
    belay_error_release(&err);
    return 0;
}
