#include "hammer_board.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "belay.h"

const char *const kind_names[N_KINDS] = { "exclusive",       "shared",       "slots",
                                          "joint exclusive", "joint shared", "joint slots" };
const char *const count_names[N_COUNTS] = {
    "lost",   "lost while stopped", "trouble",         "repeated",
    "checks", "asked the store",    "all slots taken", "held by several"
};
const char *const key_names[N_KEYS] = {
    "slots-a", "slots-b", "a", "b", "c", "stack:s:env:e", "stack:s:env:e:service:v"
};

/* A claim as it was read. */
struct standing {
    bool stands;
    unsigned version, keys;
    enum kind kind;
};

struct holders {
    int n[3]; /* by enum belay_mode */
};

bool kind_is_shared(enum kind kind)
{
    return kind == KIND_SHARED || kind == KIND_JOINT_SHARED;
}

bool kind_is_slots(enum kind kind)
{
    return kind == KIND_SLOTS || kind == KIND_JOINT_SLOTS;
}

struct board *board_new(int64_t ttl_ms)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (board == MAP_FAILED) {
        perror("kinds_hammer: mmap");
        exit(1);
    }
    board->ttl_ms = ttl_ms;
    return board;
}

void board_count(struct board *board, enum count count)
{
    atomic_fetch_add(&board->counts[count], 1);
}

void board_fault(struct board *board, const char *format, ...)
{
    size_t i = atomic_fetch_add(&board->n_faults, 1);
    va_list args;

    if (i < N_FAULTS) {
        va_start(args, format);
        (void)vsnprintf(board->faults[i], sizeof board->faults[i], format, args);
        va_end(args);
    }
}

/* ---- claims ---- */

void claim_publish(struct claim *claim, unsigned keys, enum kind kind, int64_t until_boot_ms)
{
    atomic_fetch_add(&claim->version, 1);
    atomic_store(&claim->keys, keys);
    atomic_store(&claim->kind, (int)kind);
    atomic_store(&claim->until_boot_ms, until_boot_ms);
    atomic_fetch_add(&claim->version, 1);
}

void claim_extend(struct claim *claim, int64_t until_boot_ms)
{
    atomic_store(&claim->until_boot_ms, until_boot_ms);
}

void claim_withdraw(struct claim *claim)
{
    atomic_store(&claim->until_boot_ms, 0);
}

static struct standing claim_read(struct claim *claim)
{
    struct standing it = { .version = atomic_load(&claim->version) };
    int64_t until_boot_ms;

    it.keys = atomic_load(&claim->keys);
    it.kind = (enum kind)atomic_load(&claim->kind);
    until_boot_ms = atomic_load(&claim->until_boot_ms);
    it.stands = it.version % 2 == 0 && atomic_load(&claim->version) == it.version &&
                until_boot_ms > belay_now_boot_ms();
    return it;
}

/* ---- what excludes what ---- */

static void add_holder(struct holders holders[N_KEYS], const struct standing *it)
{
    enum belay_mode mode = kind_is_slots(it->kind)    ? BELAY_SLOTS
                           : kind_is_shared(it->kind) ? BELAY_SHARED
                                                      : BELAY_EXCLUSIVE;

    for (int key = 0; key < N_KEYS; key++) {
        holders[key].n[mode] += (it->keys >> key & 1) != 0;
    }
}

static void check_key(struct board *board, int key, const struct holders *at)
{
    int exclusive = at->n[BELAY_EXCLUSIVE];
    int shared = at->n[BELAY_SHARED];
    int slots = at->n[BELAY_SLOTS];

    if (exclusive > 1 || slots > N_SLOTS || (exclusive > 0) + (shared > 0) + (slots > 0) > 1) {
        board_fault(board, "'%s' has %d exclusive holders, %d shared ones, and %d of %d slots at one moment",
                    key_names[key], exclusive, shared, slots, N_SLOTS);
    }
    if (slots == N_SLOTS) {
        board_count(board, COUNT_CROWDED);
    }
    if (shared > 1 || slots > 1) {
        board_count(board, COUNT_TOGETHER);
    }
}

/* An exclusive holder of either excludes every holder of the other. */
static void check_hierarchy(struct board *board, const struct holders *above, const struct holders *below)
{
    bool is_exclusive = above->n[BELAY_EXCLUSIVE] + below->n[BELAY_EXCLUSIVE] > 0;
    bool has_above = above->n[BELAY_EXCLUSIVE] + above->n[BELAY_SHARED] > 0;
    bool has_below = below->n[BELAY_EXCLUSIVE] + below->n[BELAY_SHARED] > 0;

    if (is_exclusive && has_above && has_below) {
        board_fault(board, "'%s' has %d exclusive and %d shared holders, and '%s' below it %d and %d",
                    key_names[KEY_PARENT], above->n[BELAY_EXCLUSIVE], above->n[BELAY_SHARED],
                    key_names[KEY_CHILD], below->n[BELAY_EXCLUSIVE], below->n[BELAY_SHARED]);
    }
}

void board_check(struct board *board)
{
    struct standing before[N_CLAIMS];
    struct holders holders[N_KEYS] = { 0 };

    for (size_t i = 0; i < N_CLAIMS; i++) {
        before[i] = claim_read(&board->claims[i]);
    }
    /* The claims that are there both times all stood at the moment in between. */
    for (size_t i = 0; i < N_CLAIMS; i++) {
        struct standing now = claim_read(&board->claims[i]);

        if (before[i].stands && now.stands && now.version == before[i].version) {
            add_holder(holders, &now);
        }
    }
    for (int key = 0; key < N_KEYS; key++) {
        check_key(board, key, &holders[key]);
    }
    check_hierarchy(board, &holders[KEY_PARENT], &holders[KEY_CHILD]);
    board_count(board, COUNT_CHECKS);
}

/* ---- tokens ---- */

void board_grant(struct board *board, int key, uint64_t token, uint64_t seen)
{
    uint64_t highest = atomic_load(&board->highest[key]);
    size_t i = atomic_fetch_add(&board->n_grants, 1);

    if (token <= seen) {
        board_fault(board, "'%s' was granted with token %llu after %llu", key_names[key],
                    (unsigned long long)token, (unsigned long long)seen);
    }
    if (i < N_GRANTS) {
        atomic_store(&board->grants[i].token, token);
        atomic_store(&board->grants[i].key, key + 1);
    }
    while (highest < token && !atomic_compare_exchange_weak(&board->highest[key], &highest, token)) {
    }
}

static int by_key_and_token(const void *a, const void *b)
{
    const struct grant *x = a;
    const struct grant *y = b;

    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return (x->token > y->token) - (x->token < y->token);
}

void board_check_tokens(struct board *board)
{
    size_t n = atomic_load(&board->n_grants);

    n = n < N_GRANTS ? n : N_GRANTS;
    qsort(board->grants, n, sizeof *board->grants, by_key_and_token);
    for (size_t i = 1; i < n; i++) {
        const struct grant *one = &board->grants[i];

        if (one->key > 0 && one->key == one[-1].key && one->token == one[-1].token) {
            board_fault(board, "'%s' was granted twice with token %llu", key_names[one->key - 1],
                        (unsigned long long)one->token);
        }
    }
}
